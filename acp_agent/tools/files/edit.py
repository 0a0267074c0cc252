"""`edit`: replace a piece of text in a file."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from acp_agent.errors import ToolError
from acp_agent.executors.base import NO_FILE, ChangedMeanwhile, FileVersion
from acp_agent.lsp.base import Document
from acp_agent.tools.files.notebook import (
    Notebook,
    find_cell,
    joined,
    lines_of_cells,
    notebook_at,
    parted,
    with_sources,
)
from acp_agent.tools.files.notebook_view import around_edit, keep_cell_credentials
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.line_ends import plain, with_ends
from acp_agent.tools.kit.positions import errors_of_change
from acp_agent.tools.kit.text import (
    MARK,
    changed_places,
    diff_of,
    keep_credentials,
    need_expressible,
    numbered,
    read_file,
    without_numbers,
)
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class Replacement(Params):
    old_string: str = Field(description="As `old_string` of one edit.")
    new_string: str = Field(description="The replacement text.")
    replace_all: bool = Field(default=False, description="Replace all occurrences.")


class EditParams(Params):
    path: str = Field(description="The file, absolute or relative to the working directory.")
    old_string: str = Field(
        default="", description="The text to replace, exactly as it is in the file, without line numbers."
    )
    new_string: str = Field(default="", description="The replacement text.")
    replace_all: bool = Field(default=False, description="Replace all occurrences.")
    edits: list[Replacement] = Field(
        default=[], description="Several replacements, made one after the other, all or none; instead of `old_string`."
    )
    cell: SkipJsonSchema[int | str] = ""
    """The only cell of a notebook to change, by id or number: the model is told where it reads one."""

    @model_validator(mode="after")
    def _one_form(self) -> EditParams:
        if self.edits and (self.old_string or self.new_string):
            raise ValueError("give either `edits`, or `old_string` and `new_string`")
        if not self.edits and "new_string" not in self.model_fields_set:
            raise ValueError(GIVE)
        return self

    @property
    def all_edits(self) -> Sequence[Replacement]:
        one = Replacement.model_construct(
            old_string=self.old_string, new_string=self.new_string, replace_all=self.replace_all
        )
        return self.edits or (one,)


class Planned(Struct, frozen=True):
    """A previewed change, made only if the file is unchanged."""

    path: Path
    version: FileVersion | None
    """What was there; `None`: nothing."""
    new: str

    @property
    def old(self) -> str | None:
        return None if self.version is None else self.version.text

    @property
    def expected(self) -> FileVersion:
        return self.version or NO_FILE


GIVE = "give `old_string` and `new_string`, or `edits`"
AT_THE_END = "`old_string` was empty, so `new_string` was added at the end."


class Edit(PathTool[EditParams]):
    name = "edit"
    title = "Edit {path}"
    aliases = ("edit_file", "file_edit", "str_replace", "multi_edit", "search_replace")
    kind = "edit"
    touches = "write"

    async def preview(self, params: EditParams, ctx: ToolContext) -> Preview:
        path = ctx.roots.resolve(params.path)
        if not params.edits and not params.old_string:
            if await ctx.files.stat(path) is None:  # A file is created so by other agents' tools.
                new = params.new_string
                return Preview((diff_of(path, None, new),), Planned(path, None, new))
            if "old_string" not in params.model_fields_set:
                raise ToolError(f"`old_string` is missing: {GIVE}.", "invalid_parameters")
        version = await read_for_edit(ctx, path, params.path)
        old = version.text
        notebook = notebook_at(path, old, params.path)
        if params.cell != "" and notebook is None:
            raise ToolError(f"{params.path} is no notebook, so it has no `cell`.", "invalid_parameters")
        text = old if notebook is None else joined(notebook.sources)
        hidden = any(MARK in edit.old_string and edit.old_string not in text for edit in params.all_edits)
        if hidden and ctx.redactor.redact(text) != text:
            raise ToolError(
                f"`old_string` contains `{MARK}...]`, a credential in {params.path} that you cannot see; "
                "nothing was written.",
                "invalid_parameters",
                suggestion="Give an `old_string` without that line.",
            )
        new = _all_replaced(params, old) if notebook is None else _in_cells(params, notebook)
        need_expressible(version, params.path, new)
        watch(ctx, path, old)
        if notebook is None:
            keep_credentials(ctx, params.path, old, new)
        else:
            keep_cell_credentials(ctx, params.path, notebook, new)
        return Preview(
            (diff_of(path, old, new),), Planned(path, version, new), locations=changed_places(path, old, new)
        )

    async def run(self, params: EditParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        planned: Planned = preview.state
        note = AT_THE_END if planned.old is not None and not all(edit.old_string for edit in params.all_edits) else ""
        return await apply(planned, params.path, ctx, preview, context=ctx.config.files.edit_context, note=note)


async def read_for_edit(ctx: ToolContext, path: Path, shown: str) -> FileVersion:
    """Raises ToolError if there is no such file, or the model has seen another version."""
    found = await read_file(ctx, path, shown)
    if found is None:
        instead = "Use `write` to create it, or `find_path` to find it."
        raise ToolError(f"{shown} does not exist.", "invalid_parameters", suggestion=instead)
    seen = ctx.memory.ledger.last_seen(path)
    if seen is not None and not seen.is_still(found):
        raise ToolError(f"{shown} has changed since it was read.", suggestion="Read it again, then edit.")
    return found


def watch(ctx: ToolContext, path: Path, old: str | None) -> None:
    """Lets language servers analyse the file while the user is asked, so that its earlier errors are known."""
    if ctx.languages.config.edit_wait and old is not None:
        ctx.languages.watch(Document(path, old))


def changed_meanwhile(shown: str) -> ToolError:
    return ToolError(
        f"{shown} was changed by someone else in the meantime, so nothing was written.", suggestion="Read it again."
    )


def need_same_place(planned: Planned, shown: str, ctx: ToolContext) -> None:
    """Raises ToolError if the name leads elsewhere than in the preview."""
    if ctx.roots.resolve(shown) != planned.path:
        raise ToolError(f"{shown} now points somewhere else, so nothing was written.")


async def need_unchanged(planned: Planned, shown: str, ctx: ToolContext) -> None:
    """Raises ToolError if the file is no longer what the preview was made from: before one of several is written."""
    need_same_place(planned, shown, ctx)
    if not planned.expected.is_still(await read_file(ctx, planned.path, shown)):
        raise changed_meanwhile(shown)


async def apply(
    planned: Planned, shown: str, ctx: ToolContext, preview: Preview, *, context: int = 0, note: str = ""
) -> ToolResult:
    """Writes the previewed change once, if the file is still what the preview was based on; reports new errors, a note,
    and `context` lines around the change."""
    need_same_place(planned, shown, ctx)
    try:
        version = await ctx.files.write(planned.path, planned.new, planned.expected, again=ctx.call.asked)
    except ChangedMeanwhile as error:
        raise changed_meanwhile(shown) from error
    now = version.text
    words = f"{shown} was {'created' if planned.old is None else 'changed'}."
    text = told_of(planned, version, f"{words} {note}".rstrip(), ctx, context)
    content = preview.content if now == planned.new else (diff_of(planned.path, planned.old, now),)
    before = None if planned.old is None else Document(planned.path, planned.old)
    errors, shown_errors = await errors_of_change([(before, Document(planned.path, now))], ctx)
    return ToolResult(
        f"{text}\n\n{errors}" if errors else text,
        content=(*content, *shown_errors),
        locations=changed_places(planned.path, planned.old, now, done=True),
    )


def told_of(planned: Planned, written: FileVersion, words: str, ctx: ToolContext, context: int) -> str:
    """Remembers that the model knows what was written; returns `words` with what else is to say."""
    path = planned.path
    ctx.memory.ledger.saw(path, written)
    text = f"{words} {written.remark}".rstrip()
    if written.text != planned.new:
        text += " The editor reformatted it on saving: read it again before the next edit."
        ctx.memory.ledger.forget(path)
    if context and planned.old is not None:
        text = f"{text}\n{around_edit(path, planned.old, written.text, context)}".rstrip("\n")
    return text


def _lines(numbers: Sequence[int], text: str) -> str:
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


Places = Callable[[Sequence[int], str], str]
"""Words for lines of a text."""


def _in_cells(params: EditParams, notebook: Notebook) -> str:
    """The text of the notebook after all edits of the sources of its cells."""
    sources, only = notebook.sources, None
    try:
        if params.cell != "":
            only = find_cell(notebook, params.cell)
        seen = [source if only in (None, index) else "" for index, source in enumerate(sources)]
        new = parted(_all_replaced(params, joined(seen), lines_of_cells), seen)
    except ValueError as error:
        raise ToolError(f"In {params.path} {error}. Nothing was written.", "invalid_parameters") from error
    return with_sources(notebook, [new[at] if only in (None, at) else source for at, source in enumerate(sources)])


def _all_replaced(params: EditParams, old: str, places: Places = _lines) -> str:
    """The new text after all edits. Raises ToolError, which names the edit if there are several."""
    new = old
    for number, edit in enumerate(params.all_edits, 1):
        try:
            new = _replaced(edit, params.path, new, places, alone=len(params.edits) < 2)
        except ToolError as error:
            if len(params.edits) < 2:
                raise
            words = f"Edit {number} of {len(params.edits)}: {error} Nothing was written."
            raise ToolError(words, error.category, suggestion=error.suggestion, shown=error.shown) from error
    return new


def _with_more(more: str, old: str) -> str:
    """The text with lines at its end: what models mean by an empty `old_string`. Raises ToolError if nothing is to be
    added, or all of the text is meant."""
    text = plain(old)
    if not more or (text.strip() and text.strip() in more):
        raise ToolError(
            "`old_string` is empty.",
            "invalid_parameters",
            suggestion="Give the text to replace; to add lines, give the line before them, and write it again in "
            "`new_string` with the new ones. To write a whole file, use `write`.",
            shown="The model did not say which text it wants to replace.",
        )
    between = "" if not text or text.endswith("\n") else "\n"
    return with_ends(f"{text}{between}{more}" + ("" if more.endswith("\n") else "\n"), old)


def _replaced(params: Replacement, path: str, old: str, places: Places, *, alone: bool) -> str:
    """The new text. Raises ToolError that helps to find the right `old_string`. `alone`: `old` is what the file has."""
    if not params.old_string:
        return _with_more(plain(params.new_string) if places is _lines else "", old)
    text, target, replacement = plain(old), plain(params.old_string), plain(params.new_string)
    if target not in text and (bare := without_numbers(target)) is not None and bare in text:
        target, replacement = bare, without_numbers(replacement) or replacement
    if target == replacement:
        ends = ", and line ends stay as they are" if params.old_string != params.new_string else ""
        named = FILE_NAME.fullmatch(target) is not None
        raise ToolError(
            f"`old_string` and `new_string` are the same{ends}; there is nothing to change."
            f"{_around(0, text) if alone and places is _lines and not named else ''}",
            "invalid_parameters",
            suggestion=f"To rename a file, call `bash` with `{shlex.join(('mv', path, target))}`." if named else "",
            shown=f"The model wanted to replace a text in {path} with the same text.",
        )
    count = text.count(target)
    choice = "" if places is _lines else "name its `cell`, "
    if count == 0:
        near, why = _nearest(target, text, places)
        raise ToolError(
            f"`old_string` is not in {path}. {why}{_around(near, text) if alone and places is _lines else ''}",
            shown=f"The text that the model wanted to replace is not in {path}.",
        )
    if count > 1 and not params.replace_all:
        raise ToolError(
            f"`old_string` occurs {count} times in {path} ({places(_lines_of(target, text), text)}).",
            suggestion=f"Send it again with `replace_all`: true for all, {choice}or with more of the text around the "
            "one you mean.",
            shown=f"The text that the model wanted to replace is in {path} {count} times, so it is not clear which.",
        )
    return with_ends(text.replace(target, replacement), old)


WORD = re.compile(r"[^\W\d]\w{2,}")
FILE_NAME = re.compile(r"[\w./-]+\.\w{1,8}")

MOST_LINES = 10
"""Line numbers named in a message."""

LONGEST_SEARCH = 4000
"""Lines of a file that are searched for text that was not found."""

SHOWN_WHOLE = 50
"""Lines of a file that is shown with the error: one read less."""
SHOWN_CHARS = 2000
SHOWN_AROUND = 2
"""Of a longer one, lines before and after the nearest."""

MOST_COMPARED = 2000
MOST_COMPARED_CHARS = 200_000
LONGEST_COMPARED = 400
"""Limits of the slow search for a similar line: lines, characters in total and per line."""


def _lines_of(target: str, text: str) -> list[int]:
    lines: list[int] = []
    at = text.find(target)
    while at >= 0 and len(lines) < MOST_LINES:
        lines.append(text.count("\n", 0, at) + 1)
        at = text.find(target, at + len(target))
    return lines


def _nearest(target: str, text: str, places: Places) -> tuple[int, str]:
    """The line of the file most similar to the target's first line (0: none is), and a sentence with it."""
    wanted = next((line for line in target.split("\n") if line.strip()), "")
    lines = text.split("\n")[:LONGEST_SEARCH]
    for number, line in enumerate(lines, 1):
        if line.strip() == wanted.strip():
            where = places([number], text)
            return number, f"Its first line is at {where}, but the following text or the white space differs:\n{line}"
    compared = _comparable(lines) if len(wanted) <= LONGEST_COMPARED else {}
    near = difflib.get_close_matches(wanted, compared, n=1, cutoff=0.6)
    if not near and (words := set(WORD.findall(wanted))):
        line = max(compared, key=lambda line: len(words.intersection(WORD.findall(line))), default="")
        near = [] if words.isdisjoint(WORD.findall(line)) else [line]
    if near:
        where = places([compared[near[0]]], text).removeprefix("line ")
        return compared[near[0]], f"The most similar line is {where}:\n{near[0]}"
    whole = len(compared) == len(set(lines)) and text.count("\n") < LONGEST_SEARCH
    return 0, "It contains nothing similar." if whole else "Nothing similar is in the part that was compared."


def _around(near: int, text: str) -> str:
    """What the model may have wanted to send, so that it need not read the file: all of a short one, else the lines
    around the nearest."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) <= SHOWN_WHOLE and len(text) <= SHOWN_CHARS:
        shown, title = range(len(lines)), "The whole file"
    elif near:
        shown, title = range(max(near - 1 - SHOWN_AROUND, 0), min(near + SHOWN_AROUND, len(lines))), "There"
    else:
        return " Read it."
    if not text:
        return " The file is empty."
    return "\n".join((f"\n{title}:", *(numbered(at + 1, lines[at], LONGEST_COMPARED) for at in shown)))


def _comparable(lines: list[str]) -> dict[str, int]:
    """Each distinct line with its first number, within the limits."""
    found: dict[str, int] = {}
    chars = 0
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_COMPARED or line in found:
            continue
        chars += len(line)
        if len(found) == MOST_COMPARED or chars > MOST_COMPARED_CHARS:
            break
        found[line] = number
    return found
