"""Which errors an edit caused, as a table, and properties for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.lsp.compare import new_errors
from acp_agent.schema.lsp_types import Diagnostic, Position, Range


def at(line: int, message: str = "bad", severity: int = 1, code: str = "E") -> Diagnostic:
    return Diagnostic(Range(Position(line, 0), Position(line, 1)), message, severity, "test", code)


TABLE = [
    ("nothing before", [], [at(0)], "a", "b", [0]), ("warnings are no errors", [], [at(0, severity=2)], "a", "b", []),
    ("a warning that becomes an error", [at(0, severity=2)], [at(0)], "a", "b", [0]),
    ("the same", [at(1)], [at(1)], "a\nb", "a\nb", []),
    ("moved down by lines above", [at(0)], [at(2)], "a", "x\ny\na", []),
    ("moved up by lines taken away", [at(2)], [at(0)], "x\ny\na", "a", []),
    ("on a line that was edited", [at(0)], [at(0)], "a b", "a c", []),
    ("another message", [at(0)], [at(0, "worse")], "a", "a", [0]),
    ("another code", [at(0)], [at(0, code="F")], "a", "a", [0]),
    ("one more of the same on a new line", [at(0)], [at(0), at(1)], "a", "a\nb", [1]),
    ("one more of the same above it", [at(0)], [at(0), at(1)], "a", "b\na", [0]),
    ("repaired here and broken there", [at(0)], [at(1)], "a\nb", "a\nc", [1]),
    ("a block that moved", [at(0)], [at(3)], "f\ng\na\nb", "a\nb\nf\nf", []),
    ("a line that moved with its error", [at(0)], [at(2)], "f\na\nb", "a\nb\nf", []),
    ("line numbers in messages", [at(1, "clash with line 3")], [at(2, "clash with line 4")], "a\nb", "x\na\nb", []),
    ("places in messages", [at(1, "see a.go:3:6")], [at(2, "see a.go:4:6")], "a\nb", "x\na\nb", []),
    ("other numbers in messages", [at(0, "expected 2 arguments")], [at(0, "expected 3 arguments")], "a", "b", [0]),
    ("at the end of the text", [at(1)], [at(2)], "a\n", "a\nb\n", []),
    ("beyond the end of the text", [at(9)], [at(10)], "a\n", "a\nb\n", []),
    ("carriage returns", [at(1)], [at(2)], "a\r\nb\r\n", "x\r\na\r\nb\r\n", []),
    ("form feeds are no line ends", [at(1)], [at(2)], "a\fb\nc", "x\na\fb\nc", []),
    ("from an empty text", [], [at(0), at(0, "b")], "", "a", [0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "old", "new", "lines"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_only_errors_that_were_not_there_are_new(before, after, old, new, lines):
    assert [item.range.start.line for item in new_errors(before, after, old, new)] == lines


LINES = st.lists(st.sampled_from(["", "a", "b", "x = 1", "}"]), max_size=12)
MESSAGES = st.sampled_from(["bad", "worse", "see line 3"])


@given(LINES, LINES, st.data())
def test_an_edit_that_only_inserts_lines_brings_no_error_about(lines: list[str], more: list[str], data: st.DataObject):
    place = data.draw(st.integers(0, len(lines)))
    found = data.draw(st.lists(st.tuples(st.integers(0, len(lines)), MESSAGES), max_size=8))
    new = lines[:place] + more + lines[place:]
    before = [at(line, message) for line, message in found]
    after = [at(line + (len(more) if line >= place else 0), message) for line, message in found]
    assert new_errors(before, data.draw(st.permutations(after)), "\n".join(lines), "\n".join(new)) == []


@given(LINES, LINES, st.lists(st.integers(0, 15), max_size=6), st.lists(st.integers(0, 15), max_size=6))
def test_no_more_errors_are_old_than_there_were(old: list[str], new: list[str], was: list[int], now: list[int]):
    after = [at(line) for line in now]
    found = new_errors([at(line) for line in was], after, "\n".join(old), "\n".join(new))
    assert len(after) - len(was) <= len(found) <= len(after)
    assert all(item in after for item in found)


def test_a_long_part_that_was_rewritten_is_compared_without_its_lines():
    old, new = "\n".join(f"old {n}" for n in range(20_000)), "\n".join(f"new {n}" for n in range(20_000))
    assert len(new_errors([at(5), at(100)], [at(7), at(90), at(91)], old, new)) == 1
