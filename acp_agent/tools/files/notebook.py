"""Jupyter notebooks (nbformat 4) as text: where their cells are, and the text after a change of some.

A change replaces the characters of what changes and nothing else, so that key order, metadata, numbers, escapes, white
space and line ends of the rest stay byte for byte as whatever program wrote them. What is new is written in the style
of the file. Pure.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from acp_agent.errors import ToolError
from acp_agent.limits.decoding import read_loose_json

CellType = Literal["code", "markdown", "raw"]
CELL_TYPES = ("code", "markdown", "raw")

SUFFIX = ".ipynb"
FORMAT = 4
"""`nbformat`. 3 had worksheets instead of cells."""
MINOR_WITH_IDS = 5
"""`nbformat_minor` from which on every cell has an id."""

EMPTY = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'

MOST_TOLD = 5
"""Faults that are named."""

CELL_END = "\ufdd0"
"""Ends each source where those of all cells are one text: a code point that no text may contain."""

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENTATION = re.compile(r"[ \t]*")
_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])[0-9a-fA-F]{4}")
"""A character beyond ASCII as an escape."""
_LONE = re.compile("[\ud800-\udfff]")
_CELL_ENDS = re.compile(f"\n?{CELL_END}\n?")
_DECODER = json.JSONDecoder()


class NotANotebook(ValueError):
    """Why, in words without a full stop."""


class OtherVersion(NotANotebook):
    """A notebook of another nbformat."""


class Member(Struct, frozen=True):
    """A key of an object with its value, which is at `start` to `end` of the text."""

    key: str
    key_at: int
    value: Any
    start: int
    end: int


class Cell(Struct, frozen=True):
    members: Mapping[str, Member]
    start: int
    end: int

    def get(self, key: str) -> Any:
        member = self.members.get(key)
        return None if member is None else member.value

    @property
    def source(self) -> str:
        return text_of(self.get("source"))

    @property
    def type(self) -> str:
        return str(self.get("cell_type"))

    @property
    def id(self) -> str | None:
        found = self.get("id")
        return found if isinstance(found, str) else None


class Style(Struct, frozen=True):
    """How the file is written."""

    newline: str
    indent: str | None
    """Of one level; `None`: all in one line."""
    comma: str
    """Between values that are in one line."""
    colon: str
    ascii: bool
    """Whether other characters are escaped."""


class Notebook(Struct, frozen=True):
    text: str
    members: Mapping[str, Member]
    """All but the cells."""
    array: Member
    """The cells, without a value."""
    cells: tuple[Cell, ...]
    style: Style

    @property
    def minor(self) -> int:
        found = self.members.get("nbformat_minor")
        return found.value if found is not None and isinstance(found.value, int) else 0

    @property
    def sources(self) -> list[str]:
        return [cell.source for cell in self.cells]


def text_of(value: Any) -> str:
    """A text of nbformat: a string, or a list of its lines."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


# --- reading -----------------------------------------------------------------------------------------------------


def notebook_at(path: Path, text: str, shown: str) -> Notebook | None:
    """`None` if the file is no notebook. Raises ToolError for a notebook in another format."""
    if path.suffix.lower() != SUFFIX:
        return None
    try:
        return parse(text)
    except OtherVersion as error:
        raise ToolError(
            f"{shown} {error}; only nbformat 4 is read and edited here.",
            suggestion="Convert it with `jupyter nbconvert --to notebook --inplace <file>`, if the user agrees.",
        ) from error
    except NotANotebook:
        return None


def why_not(path: Path, text: str) -> str:
    """Why a file named as one is no notebook, as the end of a sentence; empty if it is, or is not named so."""
    if path.suffix.lower() != SUFFIX:
        return ""
    try:
        parse(text)
    except NotANotebook as error:
        return str(error)
    return ""


def parse(text: str) -> Notebook:
    """Raises NotANotebook."""
    try:
        return _parse(text)
    except NotANotebook:
        raise
    except ValueError as error:
        raise NotANotebook(f"is broken JSON ({error})") from error
    except IndexError as error:
        raise NotANotebook("is broken JSON (it ends too early)") from error
    except RecursionError as error:
        raise NotANotebook("is JSON that is nested too deeply") from error


def _parse(text: str) -> Notebook:
    at = _skip(text, 0)
    if text[at] != "{":
        read_loose_json(text)
        raise NotANotebook("is JSON, but no object")
    members = list(_members(text, at, places_of="cells"))
    rest = _skip(text, _skip(text, members[-1].end if members else at + 1) + 1)
    if rest != len(text):
        raise json.JSONDecodeError("Extra data", text, rest)
    by_key = {member.key: member for member in members}
    version = by_key["nbformat"].value if "nbformat" in by_key else None
    if not isinstance(version, int):
        raise NotANotebook("is JSON without `nbformat`")
    if version != FORMAT:
        raise OtherVersion(f"is a notebook in nbformat {version}")
    array = by_key.pop("cells", None)
    if array is None or text[array.start] != "[":
        raise NotANotebook("has no list of `cells`")
    cells = tuple(_cell(text, start, end, number) for number, (start, end) in enumerate(array.value, 1))
    return Notebook(text, by_key, array, cells, _style(text, at, members))


def _cell(text: str, start: int, end: int, number: int) -> Cell:
    if text[start] != "{":
        raise NotANotebook(f"has a cell {number} that is no object")
    cell = Cell({member.key: member for member in _members(text, start)}, start, end)
    source = cell.get("source")
    if cell.get("cell_type") not in CELL_TYPES:
        raise NotANotebook(f"has a cell {number} of no known type")
    if not (isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))):
        raise NotANotebook(f"has a cell {number} without source")
    return cell


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _expect(text: str, at: int, wanted: str) -> str:
    if text[at] not in wanted:
        raise json.JSONDecodeError(f"Expecting {' or '.join(map(repr, wanted))}", text, at)
    return text[at]


def _members(text: str, at: int, places_of: str = "") -> Iterator[Member]:
    """Of the object at `at`. The value of the array `places_of` is where its elements are."""
    at = _skip(text, at + 1)
    if text[at] == "}":
        return
    while True:
        _expect(text, at, '"')
        key, end = _DECODER.raw_decode(text, at)
        start = _skip(text, end)
        _expect(text, start, ":")
        start = _skip(text, start + 1)
        if key == places_of and text[start] == "[":
            value: Any = [(begin, end) for _, begin, end in _elements(text, start)]
            stop = _skip(text, value[-1][1] if value else start + 1) + 1
        else:
            value, stop = _DECODER.raw_decode(text, start)
        yield Member(key, at, value, start, stop)
        at = _skip(text, stop)
        if _expect(text, at, ",}") == "}":
            return
        at = _skip(text, at + 1)


def _elements(text: str, at: int) -> Iterator[tuple[Any, int, int]]:
    """Of the array at `at`: value, start, end."""
    at = _skip(text, at + 1)
    if text[at] == "]":
        return
    while True:
        value, end = _DECODER.raw_decode(text, at)
        yield value, at, end
        at = _skip(text, end)
        if _expect(text, at, ",]") == "]":
            return
        at = _skip(text, at + 1)


def _style(text: str, at: int, members: Sequence[Member]) -> Style:
    gap = text[at + 1 : members[0].key_at]
    _, end = _DECODER.raw_decode(text, members[0].key_at)
    colon = text[end : members[0].start]
    between = text[members[0].end : members[1].key_at]
    return Style(
        "\r\n" if "\r\n" in text else "\n",
        gap.rpartition("\n")[2] if "\n" in gap else None,
        ", " if "\n" in between else between,
        colon,
        text.isascii() and "\\u" in text and _ESCAPED.search(text) is not None,
    )


def lacks(notebook: Notebook) -> str:
    """What the schema of nbformat 4 demands and the notebook has not, in words; empty if it has all."""
    missing = [f"it has no `{key}`" for key in ("metadata", "nbformat_minor") if key not in notebook.members]
    ids: set[str | None] = set()
    for number, cell in enumerate(notebook.cells, 1):
        keys = ["metadata"]
        if cell.type == "code":
            keys += ["outputs", "execution_count"]
        if notebook.minor >= MINOR_WITH_IDS:
            keys.append("id")
            if cell.id is not None and cell.id in ids:
                missing.append(f"cell {number} has the `id` of another")
            ids.add(cell.id)
        if absent := [f"`{key}`" for key in keys if key not in cell.members]:
            missing.append(f"cell {number} has no {', '.join(absent)}")
    more = f", and {len(missing) - MOST_TOLD} more such faults" if len(missing) > MOST_TOLD else ""
    return "; ".join(missing[:MOST_TOLD]) + more


def find_cell(notebook: Notebook, given: int | str) -> int:
    """The index of the cell with that id or number. Raises ValueError with words."""
    wanted = str(given).strip()
    for index, cell in enumerate(notebook.cells):
        if cell.id == wanted and isinstance(given, str):
            return index
    if re.fullmatch(r"[0-9]{1,9}", wanted) and 1 <= int(wanted) <= len(notebook.cells):
        return int(wanted) - 1
    count = len(notebook.cells)
    there = f"its cells have the numbers 1 to {count}" if count else "it has no cells"
    raise ValueError(f"there is no cell {wanted!r}: {there}")


# --- sources as one text -----------------------------------------------------------------------------------------


def joined(sources: Sequence[str]) -> str:
    return "".join(f"{source}\n{CELL_END}\n" for source in sources)


def parted(text: str, before: Sequence[str]) -> list[str]:
    """The sources again, after a change of the text. A line feed beside the end of a cell that was replaced with the
    line before or after it is not missed. Raises ValueError."""
    *sources, rest = _CELL_ENDS.split(text)
    if len(sources) != len(before) or rest.strip():
        raise ValueError("the change reaches over the end of a cell; change the cells one by one")
    return [
        new if "\r\n" in old or "\r\n" not in new else new.replace("\r\n", "\n")
        for new, old in zip(sources, before, strict=True)
    ]


def lines_of_cells(numbers: Sequence[int], text: str) -> str:
    """Lines of the joined text, as the model knows them."""
    found: list[tuple[int, int]] = []
    lines = text.split("\n")
    for number in numbers:
        before = lines[: number - 1]
        cell = before.count(CELL_END)
        start = len(before) - before[::-1].index(CELL_END) if cell else 0
        found.append((cell + 1, number - start))
    return ", ".join(
        f"line{'s' if len(some) > 1 else ''} {', '.join(str(line) for _, line in some)} of cell {cell}"
        for cell, group in groupby(found, key=lambda pair: pair[0])
        if (some := list(group))
    )


# --- changing ----------------------------------------------------------------------------------------------------


def with_sources(notebook: Notebook, sources: Sequence[str]) -> str:
    """The text with these sources of the cells. The outputs and the execution count of a code cell that changes are
    cleared, as Claude Code does: they are those of other code (Jupyter and VS Code keep them until it is run)."""
    splices: list[tuple[int, int, str]] = []
    for cell, source in zip(notebook.cells, sources, strict=True):
        if source != cell.source:
            splices += _new_source(notebook, cell, source)
    return _spliced(notebook.text, splices)


def with_cell(notebook: Notebook, index: int, source: str, cell_type: str) -> str:
    """The text with another source of that cell, and perhaps another type."""
    cell = notebook.cells[index]
    if cell_type == cell.type:
        return _spliced(notebook.text, _new_source(notebook, cell, source))
    raw = {
        key: notebook.text[member.start : member.end]
        for key, member in cell.members.items()
        if key not in ("outputs", "execution_count", "attachments") or (key == "attachments" and cell_type != "code")
    }
    raw["cell_type"] = json.dumps(cell_type)
    if source != cell.source:
        raw["source"] = _source(notebook, cell, source)
    was_sorted = list(cell.members) == sorted(cell.members)
    if cell_type == "code":
        raw |= {"execution_count": "null", "outputs": "[]"}
    keys = sorted(raw) if was_sorted else list(raw)
    base = _indentation(notebook.text, cell.start)
    one_line = "\n" not in notebook.text[cell.start : cell.end]
    new = _object([(key, raw[key]) for key in keys], base, notebook.style, one_line=one_line)
    return _spliced(notebook.text, [(cell.start, cell.end, new)])


def with_new_cell(notebook: Notebook, index: int, source: str, cell_type: str) -> str:
    """The text with a new cell at that index."""
    style, text, cells = notebook.style, notebook.text, notebook.cells
    inside = notebook.array.start + 1
    outer = _indentation(text, notebook.array.key_at)
    base = _indentation(text, cells[0].start) if cells else outer + (style.indent or "")
    one_line = style.indent is None or (bool(cells) and "\n" not in text[cells[0].start : cells[0].end])
    raw = {"cell_type": json.dumps(cell_type), "metadata": "{}"}
    if cell_type == "code":
        raw |= {"execution_count": "null", "outputs": "[]"}
    if notebook.minor >= MINOR_WITH_IDS:
        raw["id"] = json.dumps(_new_id(notebook))
    if cells and isinstance(cells[0].get("source"), str):
        raw["source"] = _string(source, style)
    else:
        raw["source"] = _list(source, {}, base + (style.indent or ""), style, one_line=one_line)
    new = _object(sorted(raw.items()), base, style, one_line=one_line)
    if not cells:
        inner = new if style.indent is None else f"{style.newline}{base}{new}{style.newline}{outer}"
        return _spliced(text, [(inside, notebook.array.end - 1, inner)])
    gap = text[inside : cells[0].start]
    between = f",{gap}" if "\n" in gap else style.comma
    if index == 0:
        return _spliced(text, [(cells[0].start, cells[0].start, new + between)])
    end = cells[index - 1].end
    return _spliced(text, [(end, end, between + new)])


def without_cell(notebook: Notebook, index: int) -> str:
    cells = notebook.cells
    if len(cells) == 1:
        return _spliced(notebook.text, [(notebook.array.start + 1, notebook.array.end - 1, "")])
    if index == 0:
        return _spliced(notebook.text, [(cells[0].start, cells[1].start, "")])
    return _spliced(notebook.text, [(cells[index - 1].end, cells[index].end, "")])


def _new_source(notebook: Notebook, cell: Cell, source: str) -> list[tuple[int, int, str]]:
    member = cell.members["source"]
    splices = [(member.start, member.end, _source(notebook, cell, source))] if source != cell.source else []
    if cell.type == "code":
        for key, nothing in (("outputs", "[]"), ("execution_count", "null")):
            old = cell.members.get(key)
            if old is not None and old.value not in ([], None):
                splices.append((old.start, old.end, nothing))
    return splices


def _source(notebook: Notebook, cell: Cell, source: str) -> str:
    """As the cell had it: a string, or a list of lines. Lines that stay keep their escapes."""
    member, style, text = cell.members["source"], notebook.style, notebook.text
    if isinstance(member.value, str):
        return _string(source, style)
    known = {line: text[start:end] for line, start, end in _elements(text, member.start)}
    one_line = style.indent is None or (bool(known) and "\n" not in text[member.start : member.end])
    return _list(source, known, _indentation(text, member.key_at), style, one_line=one_line)


def _list(source: str, known: Mapping[str, str], base: str, style: Style, *, one_line: bool) -> str:
    lines = [f"{line}\n" for line in source.split("\n")]
    lines[-1] = lines[-1][:-1]
    items = [known.get(line) or _string(line, style) for line in lines if line]
    if one_line or not items:
        return f"[{style.comma.join(items)}]"
    gap = f"{style.newline}{base}{style.indent}"
    return f"[{gap}{f',{gap}'.join(items)}{style.newline}{base}]"


def _string(text: str, style: Style) -> str:
    written = json.dumps(text, ensure_ascii=style.ascii)
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _object(members: Sequence[tuple[str, str]], base: str, style: Style, *, one_line: bool) -> str:
    pairs = [f"{json.dumps(key)}{style.colon}{raw}" for key, raw in members]
    if one_line:
        return f"{{{style.comma.join(pairs)}}}"
    gap = f"{style.newline}{base}{style.indent}"
    return f"{{{gap}{f',{gap}'.join(pairs)}{style.newline}{base}}}"


def _indentation(text: str, at: int) -> str:
    """Of the line in which `at` is."""
    start = text.rfind("\n", 0, at) + 1
    found = _INDENTATION.match(text, start)
    assert found is not None
    return found[0]


def _new_id(notebook: Notebook) -> str:
    taken = {cell.id for cell in notebook.cells}
    while (new := uuid.uuid4().hex[:8]) in taken:
        pass
    return new


def _spliced(text: str, splices: Sequence[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(splices):
        parts += (text[done:start], new)
        done = end
    return "".join([*parts, text[done:]])
