"""The picture of the chat: the real program in a terminal of `pyte`, drawn as SVG. `make pictures` writes it.

What depends on the machine (how long something took) is left out, so that the picture is made again, byte for byte, by
`tests/e2e/test_pictures.py`."""

import hashlib
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from pyte.screens import Char

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.e2e.test_chat import Tty, chat

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
CHAT, PAGE, MADE_OF = PICTURES / "chat.svg", PICTURES / "page.png", PICTURES / "page.sha256"
SOURCES = ("editors/vscode/page.sha256", "tests/page_picture.py", "tests/pictures.py")
"""Of the picture of the page: the first has the digests of all that the page is built of."""
COLUMNS, LINES = 84, 44
FILES = {
    "prices.py": "VAT = 0.19\n\n\ndef gross(net):\n    return net + VAT\n",
    "test_prices.py": "from prices import gross\n\nassert gross(100) == 119, gross(100)\n",
}
TEST = "python3 -B test_prices.py && echo passed"
FIX = Call("edit", {"path": "prices.py", "old_string": "net + VAT", "new_string": "net * (1 + VAT)"})
SCRIPT = [
    Answer(tool_calls=(Call("read", {"path": "prices.py"}),)),
    Answer(text="`gross` adds the *rate* to the price, not its share of the price.", tool_calls=(FIX,)),
    Answer(tool_calls=(Call("bash", {"command": TEST}),)),
    Answer(text="Fixed: `gross(100)` is **119**, and the test passes."),
    Answer(tool_calls=(Call("bash", {"command": "git commit -am 'Fix gross' && git push"}),)),
]
"""A fault is found and fixed, and at the end a question is open."""

WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
NO_BREAK = "\u00a0"
"""A space that no viewer folds into the one before."""
GROUND, PLAIN = "#14171c", "#d6d9de"
COLOURS = {
    "black": "#3b4252", "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": "#d6d9de", "brightblack": "#8b949e",
}  # fmt: skip
TOOK = re.compile(r" · \d+(\.\d+)? m?s(?= · |$)")


def played(tty: Tty, _: FakeModel) -> None:
    tty.until("code · fake-model")
    tty.type("gross(100) should be 119. Fix it and run the test\r", "Make this change?", "arrows and Enter")
    tty.type("y", "Run this?", "arrows and Enter")
    tty.type("y", "1 file changed", "❯\ncode ·")
    tty.type("Commit and push it\r", "git push", "Run this?", "arrows and Enter")


async def chat_lines(home: Path) -> list[list[Char]]:
    """The screen at the end of the scene: its cells by line, without what is empty below and what only times say."""
    (home / "project").mkdir(parents=True)
    for name, text in FILES.items():
        (home / "project" / name).write_text(text, encoding="utf-8")
    found: list[list[Char]] = []

    def walk(tty: Tty, model: FakeModel) -> None:
        played(tty, model)
        found.extend([tty.screen.buffer[y][x] for x in range(COLUMNS)] for y in range(LINES))

    await chat(home, SCRIPT, walk, columns=COLUMNS, lines=LINES)
    lines = [untimed(line) for line in found]
    while lines and not text_of(lines[-1]).strip():
        lines.pop()
    return lines


def untimed(line: list[Char]) -> list[Char]:
    """The cells up to the last that shows something, without those that say how long it took."""
    text = text_of(line).rstrip()
    took = TOOK.search(text)
    return line[: took.start()] + line[took.end() : len(text)] if took else line[: len(text)]


def text_of(line: list[Char]) -> str:
    return "".join(cell.data for cell in line)


def svg(lines: list[list[Char]], title: str) -> str:
    """Drawn as text: it stays sharp, can be searched, and asks no other server for a font."""
    width, height = round(COLUMNS * WIDTH + 2 * MARGIN), len(lines) * HEIGHT + 2 * MARGIN
    rows = [
        f'<text y="{MARGIN + (at + 1) * HEIGHT - 5}">{"".join(_runs(line))}</text>' for at, line in enumerate(lines)
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>',
        f'<g font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14" fill="{PLAIN}">',
        *rows, "</g>", "</svg>", "",
    ])  # fmt: skip


def _runs(line: list[Char]) -> Iterator[str]:
    """Pieces of one look, each at its column: what is wide in one font is not in another."""
    at = 0
    for look, cells in groupby(line, key=lambda cell: (cell.fg, cell.bold, cell.italics, cell.underscore)):
        text = text_of(list(cells))
        begins, at = at, at + len(text)
        if not text.strip():
            continue
        begins += len(text) - len(text.lstrip())
        shown = escape(text.strip()).replace(" ", NO_BREAK)
        yield f'<tspan x="{MARGIN + begins * WIDTH:.1f}"{_style(*look)}>{shown}</tspan>'


def _style(colour: str, bold: bool, italics: bool, underscore: bool) -> str:
    said = {
        "fill": COLOURS.get(colour) or (f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else ""),
        "font-weight": "bold" if bold else "", "font-style": "italic" if italics else "",
        "text-decoration": "underline" if underscore else "",
    }  # fmt: skip
    return "".join(f' {name}="{value}"' for name, value in said.items() if value)


def made_of() -> str:
    """The digest of what the picture of the page shows."""
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in SOURCES)).hexdigest()


async def chat_picture(home: Path) -> str:
    return svg(await chat_lines(home), "acp-coder in a terminal: it fixes a fault, shows the change, and asks")
