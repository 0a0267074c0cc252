"""Markdown as it arrives: finished blocks as text for the terminal, and the unfinished one as far as it is."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from acp_agent.fronts.terminal.screens import DIM, TerminalStyle

MAX_WIDTH = 100
"""Columns of text: longer lines are hard to read."""
CODE_CONTEXT = 30
"""Lines before a line of code that decide how it is coloured."""
MAX_CODE_COLUMNS = 10_000
FEW = 5
"""Such lines before one that is not finished."""
UNFINISHED, STEP = 400, 200
"""Characters at the end of an unfinished block that are drawn: up to `STEP` more of a longer one, so that its lines do
not break anew with each word."""
CODE_THEME = "ansi_dark"
THEME = Theme(
    {
        "markdown.code": "cyan", "markdown.code_block": "cyan", "markdown.h1": "bold underline", "markdown.h2": "bold",
        "markdown.h3": "bold", "markdown.h4": "bold dim", "markdown.link": "bright_blue", "markdown.hr": "dim",
        "markdown.link_url": "blue underline", "markdown.block_quote": "italic", "markdown.item.bullet": "bold",
        "markdown.item.number": "bold", "markdown.table.border": "dim", "markdown.table.header": "bold",
    }
)  # fmt: skip
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w+#.-]*)")
ITEM = re.compile(r"^(?:[-*+]|\d{1,9}[.)])\s")
CODES = re.compile(r"\x1b\[[0-9;]*m")
PLAIN = str.maketrans("•▌─━│┃", "*|--||")
"""For terminals without UTF-8."""
ENDS_BLANK = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$")


class PlainHeading(Heading):
    """At the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class PlainMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": PlainHeading}


class MarkdownStream:
    """`take` gets the text in pieces of any size."""

    def __init__(self, style: TerminalStyle) -> None:
        self._style = style
        self._coming = ""
        """Text that has not been cut into lines."""
        self._block: list[str] = []
        self._fence = self._indent = self._language = ""
        self._lexers: dict[str, Any] = {}
        self._code: list[str] = []
        self._fresh = 0
        """Lines at its end that have not been rendered."""
        self._ready: list[str] = []
        """Lines of finished blocks that have not been rendered."""
        self._before = self._gap = self._begun = False
        """Whether a blank line is before what is ready, and before what comes; whether anything was rendered."""

    def take(self, text: str) -> None:
        self._coming += text

    def finished(self, width: int) -> str:
        """What has been finished since it was last asked."""
        if "\n" not in self._coming:
            return ""
        *lines, self._coming = self._coming.split("\n")
        return "".join([*(piece for line in lines for piece in self._line(line, width)), *self._render(width)])

    def tail(self, width: int) -> str:
        """The unfinished block."""
        if self._fence:
            return self._highlighted([*self._code[-FEW:], self._coming], 1) if self._coming else ""
        text = "\n".join([*self._block, self._coming])
        if not text.strip() or FENCE.match(self._coming):
            return ""
        gap = "\n" if self._gap and self._begun else ""
        start = max(0, len(text) - UNFINISHED) // STEP * STEP
        return gap + self._rendered(text[start:].partition(" ")[2] if start else text, width).rstrip("\n")

    def end(self, width: int) -> str:
        """All that is left; afterwards it is as new."""
        self._coming += "\n" if self._coming else ""
        text = self.finished(width)
        self._flush()
        text += "".join(self._render(width))
        self._fence, self._gap, self._begun = "", False, False
        return text

    # --- blocks -----------------------------------------------------------------------------------------------

    def _line(self, line: str, width: int) -> Iterator[str]:
        """Takes a line; what is above it is rendered where code begins or ends."""
        fence = FENCE.match(line)
        if self._fence:
            if fence and fence[2].startswith(self._fence) and not line.strip(" `~"):
                yield from self._render(width)
                self._fence, self._code, self._gap = "", [], True
            else:
                self._code.append(line[len(self._indent) :] if not line[: len(self._indent)].strip() else line)
                self._fresh += 1
        elif fence:
            self._flush()
            yield from self._render(width)
            yield from self._space()
            self._indent, self._fence, self._language = fence[1], fence[2], fence[3]
        elif not line.strip():
            self._flush()
            self._gap = True
        else:
            heading = line.startswith("#")
            if heading or (ITEM.match(line) and self._block and ITEM.match(self._block[0])):
                self._flush()
            self._block.append(line)
            if heading:
                self._flush()
                self._gap = True

    def _space(self) -> Iterator[str]:
        if self._gap and self._begun:
            yield "\n"
        self._gap, self._begun = False, True

    def _flush(self) -> None:
        """The block is finished."""
        if self._block:
            if not self._ready:
                self._before = self._gap
            elif self._gap:
                self._ready.append("")
            self._gap = False
            self._ready += self._block
            self._block = []

    def _render(self, width: int) -> Iterator[str]:
        """What is finished: blocks, all at once, or lines of code."""
        if self._ready:
            gap, self._gap = self._gap, self._before
            yield from self._space()
            self._gap = gap
            yield self._rendered("\n".join(self._ready), width)
            self._ready = []
        if self._fresh:
            yield self._highlighted(self._code, self._fresh) + "\n"
            self._code, self._fresh = self._code[-CODE_CONTEXT:], 0

    # --- rendering --------------------------------------------------------------------------------------------

    def _rendered(self, text: str, width: int) -> str:
        return self._shown(PlainMarkdown(text, hyperlinks=False), min(width, MAX_WIDTH)) + "\n"

    def _highlighted(self, code: list[str], fresh: int) -> str:
        """The last lines, coloured as in their context; they are not wrapped, so that they can be copied."""
        lines = code[-fresh:]
        if self._style.colour and (lexer := self._lexer()) is not None:
            text = Syntax("", lexer, theme=CODE_THEME, background_color="default").highlight("\n".join(code))
            shown = text.split("\n", allow_blank=True)[: len(code)][-fresh:]
            lines = self._shown(Text("\n").join(shown), MAX_CODE_COLUMNS, strip=False).split("\n")[:fresh]
        bar = self._style.paint(DIM, self._style.mark("bar"))
        return "\n".join(f"{self._indent}{bar} {line}" for line in lines)

    def _lexer(self) -> Any:
        """Of the block's language, if it is known."""
        if self._language not in self._lexers:
            self._lexers[self._language] = Syntax("", self._language).lexer if self._language else None
        return self._lexers[self._language]

    def _shown(self, what: object, width: int, *, strip: bool = True) -> str:
        out = io.StringIO()
        system: Literal["standard"] | None = "standard" if self._style.colour else None
        console = Console(
            file=out, width=max(width, 20), force_terminal=self._style.colour, color_system=system, theme=THEME,
            legacy_windows=False, markup=False, emoji=False, highlight=False, safe_box=not self._style.utf8,
        )  # fmt: skip
        console.print(what)
        lines = [ENDS_BLANK.sub(r"\1", line) for line in out.getvalue().split("\n")]
        while strip and lines and not CODES.sub("", lines[-1]):
            lines.pop()
        while strip and lines and not CODES.sub("", lines[0]):
            del lines[0]
        blank = [not CODES.sub("", line) for line in lines]
        if strip:
            lines = [line for at, line in enumerate(lines) if not (at and blank[at] and blank[at - 1])]
        text = "\n".join(lines)
        return text if self._style.utf8 else text.translate(PLAIN)
