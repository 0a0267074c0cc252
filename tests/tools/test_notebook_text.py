"""Notebooks as text: what a change of one cell leaves alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.files import notebook
from tests.tables import table

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\ufdd0"), max_size=30)
SOURCE = st.one_of(
    TEXT, st.lists(st.sampled_from(["x = 1\n", "é\n", "<b>\n", "\x1b[0m\n", "🎈\n", "\\u00e9\n"]), max_size=4)
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)), max_leaves=6,
)  # fmt: skip


@st.composite
def cells(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["code", "markdown", "raw"]))
    cell: dict[str, Any] = {"cell_type": kind, "metadata": draw(st.dictionaries(TEXT, JSON, max_size=2))}
    if draw(st.booleans()):
        cell["id"] = draw(st.text("abcdef0123456789-_", min_size=1, max_size=10))
    if kind == "code":
        cell["execution_count"] = draw(st.one_of(st.none(), st.integers(0, 99)))
        output = {"output_type": "stream", "name": "stdout", "text": draw(SOURCE)}
        cell["outputs"] = draw(st.sampled_from([[], [output]]))
    cell["source"] = draw(SOURCE)
    keys = draw(st.one_of(st.just(sorted(cell)), st.permutations(sorted(cell))))
    return {key: cell[key] for key in keys}


@st.composite
def notebooks(draw: st.DrawFn, least: int = 0) -> str:
    """Texts of notebooks in many styles."""
    parts = [
        ("cells", draw(st.lists(cells(), min_size=least, max_size=4))),
        ("metadata", draw(st.dictionaries(TEXT, JSON, max_size=2))), ("nbformat", 4),
        ("nbformat_minor", draw(st.integers(0, 5))),
    ]  # fmt: skip
    indent: Any
    indent, separators = draw(st.sampled_from([
        (1, (",", ": ")), (2, (",", ": ")), ("\t", (",", ": ")), (None, (",", ":")), (None, (", ", ": ")),
    ]))  # fmt: skip
    text = json.dumps(
        dict(draw(st.permutations(parts))), indent=indent, separators=separators, ensure_ascii=draw(st.booleans())
    )
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text + draw(st.sampled_from(["", "\n"]))


def raw_cells(book: notebook.Notebook) -> list[str]:
    return [book.text[cell.start : cell.end] for cell in book.cells]


@given(notebooks())
def test_what_is_not_changed_is_written_back_byte_for_byte(text: str) -> None:
    book = notebook.parse(text)
    assert [cell.source for cell in book.cells] == ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    assert notebook.with_sources(book, book.sources) == text
    assert notebook.parted(notebook.joined(book.sources), book.sources) == book.sources


@given(notebooks(least=1), st.data())
def test_an_edit_of_one_cell_leaves_every_other_cell_and_all_around_as_it_was(text: str, data: st.DataObject) -> None:
    book = notebook.parse(text)
    index = data.draw(st.integers(0, len(book.cells) - 1))
    source = data.draw(TEXT)
    sources = [source if at == index else old for at, old in enumerate(book.sources)]
    changed = notebook.with_sources(book, sources)
    if source != book.cells[index].source:
        assert notebook.with_cell(book, index, source, book.cells[index].type) == changed
    after = notebook.parse(changed)
    assert after.sources == sources
    before, now = raw_cells(book), raw_cells(after)
    assert [*before[:index], *before[index + 1 :]] == [*now[:index], *now[index + 1 :]]
    assert text[: book.cells[index].start] == changed[: book.cells[index].start]
    assert text[book.cells[index].end :] == changed[after.cells[index].end :]
    was, cell = book.cells[index], after.cells[index]
    for key, member in was.members.items():
        if key not in ("source", "outputs", "execution_count"):
            assert text[member.start : member.end] == changed[cell.members[key].start : cell.members[key].end]
    assert list(was.members) == list(cell.members)
    assert isinstance(was.get("source"), str) == isinstance(cell.get("source"), str)
    if was.type == "code" and source != was.source:
        assert cell.get("outputs") == [] and cell.get("execution_count") is None


@given(notebooks(), st.data())
def test_an_inserted_cell_is_all_that_comes_and_a_deleted_one_all_that_goes(text: str, data: st.DataObject) -> None:
    book = notebook.parse(text)
    index = data.draw(st.integers(0, len(book.cells)))
    source, kind = data.draw(TEXT), data.draw(st.sampled_from(["code", "markdown", "raw"]))
    after = notebook.parse(notebook.with_new_cell(book, index, source, kind))
    assert (after.cells[index].source, after.cells[index].type) == (source, kind)
    now = raw_cells(after)
    assert [*now[:index], *now[index + 1 :]] == raw_cells(book)
    assert ("id" in after.cells[index].members) == (book.minor >= 5)
    if book.minor >= 5:
        ids = [cell.id for cell in after.cells]
        assert len(str(ids[index])) == 8 and ids.count(ids[index]) == 1
    less = notebook.without_cell(after, index)
    assert raw_cells(notebook.parse(less)) == raw_cells(book)
    assert less == text if book.cells else json.loads(less) == json.loads(text)


@given(notebooks(least=1), st.data())
def test_a_cell_of_another_type_has_what_that_type_has(text: str, data: st.DataObject) -> None:
    book = notebook.parse(text)
    index = data.draw(st.integers(0, len(book.cells) - 1))
    kind = data.draw(st.sampled_from(["code", "markdown", "raw"]))
    after = notebook.parse(notebook.with_cell(book, index, "new", kind))
    cell = after.cells[index]
    assert (cell.type, cell.source) == (kind, "new")
    assert ("outputs" in cell.members, "execution_count" in cell.members) == (kind == "code",) * 2
    assert cell.get("metadata") == book.cells[index].get("metadata") and cell.id == book.cells[index].id
    before, now = raw_cells(book), raw_cells(after)
    assert [*before[:index], *before[index + 1 :]] == [*now[:index], *now[index + 1 :]]


JUPYTER = """{
 "cells": [
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "a1b2c3d4",
   "metadata": {},
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "1\\n"
     ]
    }
   ],
   "source": [
    "x = 1\\n",
    "\\u003cb\\u003e\\n",
    "print(x)"
   ]
  }
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"""


def test_a_changed_cell_looks_as_jupyter_writes_it() -> None:
    changed = notebook.with_sources(notebook.parse(JUPYTER), ["y = 2\nprint('é')\n<b>\nprint(x)"])
    start, end = JUPYTER.index('   "outputs"'), JUPYTER.index(' "metadata": {},\n "nbformat"')
    assert (
        changed
        == JUPYTER[:start].replace(": 3", ": null")
        + (
            '   "outputs": [],\n   "source": [\n    "y = 2\\n",\n    "print(\'é\')\\n",\n    "\\u003cb\\u003e\\n",\n'
            '    "print(x)"\n   ]\n  }\n ],\n'
        )
        + JUPYTER[end:]
    )
    added = notebook.with_new_cell(notebook.parse(changed), 1, "# Title\n", "markdown")
    id_ = notebook.parse(added).cells[1].id
    assert added == changed.replace(
        "  }\n ],\n",
        f'  }},\n  {{\n   "cell_type": "markdown",\n   "id": "{id_}",\n   "metadata": {{}},\n   "source": [\n'
        '    "# Title\\n"\n   ]\n  }\n ],\n',
    )


@table(("text", "words"), [
    ("", "broken JSON"), ("{", "broken JSON"), ('{"cells": [', "broken JSON"), ('{"cells": [{}]', "broken JSON"),
    ('{"cells": [] "nbformat": 4}', "broken JSON"), ('{"cells": [], "nbformat": 4} x', "broken JSON"),
    ("[" * 100_000, "broken JSON|too deeply"), ('{"a": ' + "[" * 100_000, "too deeply"), ("[1]", "no object"),
    ("{}", "without `nbformat`"), ('{"nbformat": "4"}', "without `nbformat`"),
    ('{"nbformat": 3, "worksheets": []}', "in nbformat 3"), ('{"nbformat": 4}', "no list of `cells`"),
    ('{"nbformat": 4, "cells": {}}', "no list of `cells`"),
    ('{"nbformat": 4, "cells": [1]}', "a cell 1 that is no object"),
    ('{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "a cell 1 without source"),
    ('{"nbformat": 4, "cells": [{"cell_type": "heading", "source": ""}]}', "a cell 1 of no known type"),
    ('{"nbformat": 4, "cells": [{"cell_type": "raw", "source": [1]}]}', "a cell 1 without source"),
])  # fmt: skip
def test_what_is_no_notebook_is_told_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(notebook.NotANotebook, match=words):
        notebook.parse(text)


def test_cells_are_found_by_id_before_number() -> None:
    cells = [{"cell_type": "raw", "source": "", "id": id_} for id_ in ("2", "b")]
    book = notebook.parse(json.dumps({"nbformat": 4, "cells": cells}))
    assert [notebook.find_cell(book, given) for given in ("2", 2, "b", "1", 1)] == [0, 1, 1, 0, 0]
    for wrong in (0, 3, "c", "", "-1", "²"):
        with pytest.raises(ValueError, match="its cells have the numbers 1 to 2"):
            notebook.find_cell(book, wrong)


def test_a_change_over_the_end_of_a_cell_is_refused_and_line_feeds_beside_it_are_forgiven() -> None:
    sources = ["a\nb", "", "c\r\nd"]
    text = notebook.joined(sources)
    assert notebook.parted(text.replace("b\n", "B"), sources) == ["a\nB", "", "c\r\nd"]
    assert notebook.parted(text.replace("a\nb", "a\r\nb"), sources) == sources, "line ends stay those of the cell"
    for wrong in (text.replace("\ufdd0", "", 1), text + "more", text + "\ufdd0"):
        with pytest.raises(ValueError, match="over the end of a cell"):
            notebook.parted(wrong, sources)
    assert (
        notebook.lines_of_cells([1, 2, 7, 8], text)
        == "lines 1, 2 of cell 1, lines 2, 3 of cell 3".replace("2, 3", "1, 2")
        or notebook.lines_of_cells([1, 2, 6, 7], text) == "lines 1, 2 of cell 1, lines 1, 2 of cell 3"
    )
