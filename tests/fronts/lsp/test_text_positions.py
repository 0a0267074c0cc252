"""Positions, edits and marks, by tables."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol.types import Position, Range

from acp_agent.fronts.lsp_server.documents.editor_documents import path_of, uri_of
from acp_agent.fronts.lsp_server.documents.edits import hunks_between, rebased, text_edits
from acp_agent.fronts.lsp_server.documents.text_positions import ENCODINGS, Encoding, Text, choose_encoding, split_lines
from acp_agent.fronts.lsp_server.initialization_options import Options, read_options
from acp_agent.fronts.lsp_server.status import Board
from acp_agent.schema.acp import ToolCall, ToolCallLocation
from tests.nightly import examples

CHARACTERS = st.text(st.sampled_from(list("ab\n\r\t\x0c\u2028\u00fc\u20ac\u0301\U0001d518\u200d")), max_size=40)
ALL = list(ENCODINGS.values())


@pytest.mark.parametrize(("offered", "chosen"), [
    (None, "utf-16"), ([], "utf-16"), (["utf-7"], "utf-16"), (["utf-32", "utf-8"], "utf-32"), (["x", "utf-8"], "utf-8"),
])  # fmt: skip
def test_the_editors_first_choice_that_is_known_is_taken(offered: list[str] | None, chosen: str):
    assert choose_encoding(offered) == chosen


def test_lines_positions_behind_the_text_and_uris_are_as_lsp_says():
    assert split_lines("a\nb\r\nc\rd\x0ce\u2028f\x0b\x85g") == ["a\n", "b\r\n", "c\r", "d\x0ce\u2028f\x0b\x85g"]
    assert split_lines("\n\n") == ["\n", "\n"] and split_lines("") == []
    assert Text("a\nb").offset(Position(line=9, character=9)) == 3
    assert Text("a\n").offset(Position(line=1, character=0)) == 2
    assert Text("").position(0) == Position(line=0, character=0)
    path = Path("/a b/\u00fc#?%.py")
    assert path_of(uri_of(path)) == path


@pytest.mark.parametrize("encoding", ALL)
@given(text=CHARACTERS)
@settings(max_examples=examples(60))
def test_a_place_is_the_same_there_and_back(text: str, encoding: Encoding):
    whole = Text(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n" and offset:
            continue  # No position means the middle of a line end.
        assert whole.offset(whole.position(offset)) == offset


@pytest.mark.parametrize(("encoding", "character", "offset"), [
    ("utf-8", 4, 1), ("utf-8", 3, 0), ("utf-16", 2, 1), ("utf-16", 1, 0), ("utf-32", 1, 1), ("utf-8", 99, 2),
])  # fmt: skip
def test_positions_inside_a_character_or_behind_a_line_are_its_edge(encoding: Encoding, character: int, offset: int):
    assert Text("\U0001d518x\nb", encoding).offset(Position(line=0, character=character)) == offset


@pytest.mark.parametrize("encoding", ALL)
@given(old=CHARACTERS, new=CHARACTERS)
@settings(max_examples=examples(60))
def test_edits_turn_any_text_into_any_other(old: str, new: str, encoding: Encoding):
    text = Text(old, encoding)
    for edit in reversed(text_edits(text, hunks_between(text.lines, split_lines(new)))):
        text = text.changed(edit.range, edit.new_text)
    assert text.text == new


def test_edits_touch_only_what_differs_and_of_long_texts_all():
    old = [f"{number}\n" for number in range(2_000)]
    new = [*old[:5], "five\n", *old[6:1_000], *old[1_001:], "end\n"]
    assert [(hunk.start, hunk.end) for hunk in hunks_between(old, new)] == [(5, 6), (1_000, 1_001), (2_000, 2_000)]
    numbers = random.Random(1)
    old, new = ([f"{numbers.random()}\n" for _ in range(10_000)] for _ in range(2))
    assert len(hunks_between(old, new)) == 1


@pytest.mark.parametrize(("current", "wanted", "merged"), [
    ("abc", "abX", "abX"), ("Zabc", "abX", "ZabX"), ("abcZ", "Xbc", "XbcZ"), ("Xbc", "Xbc", "Xbc"),
    ("aZbc", "abX", "aZbX"), ("ac", "abX", "aX"), ("aYc", "aXc", None), ("aYbc", "aXbc", None), ("", "abX", None),
])  # fmt: skip
def test_what_the_agent_means_is_carried_over_to_what_people_made(current: str, wanted: str, merged: str | None):
    hunks = rebased(list("abc"), list(current), list(wanted))
    if hunks is None:
        assert merged is None
        return
    lines = list(current)
    for hunk in reversed(hunks):
        lines[hunk.start : hunk.end] = hunk.lines
    assert "".join(lines) == merged


@pytest.mark.parametrize(("uri", "path"), [
    ("file:///a%20b/%C3%BC.py", "/a b/\u00fc.py"), ("file://localhost/a", "/a"), ("file:///a/../b", "/b"),
    ("file:///a b", "/a b"), ("untitled:Untitled-1", None), ("file://host/share", None), ("http://[", None),
    ("file:///a%00b", None), ("", None),
])  # fmt: skip
def test_files_of_uris(uri: str, path: str | None):
    assert path_of(uri) == (None if path is None else Path(path))


@pytest.mark.parametrize(("where", "new", "line"), [
    ((0, 0, 0, 0), "x\n", 6), ((0, 0, 2, 0), "", 3), ((5, 0, 5, 0), "x\n", 6), ((5, 3, 5, 3), "x\ny\n", 5),
    ((6, 0, 7, 0), "", 5), ((4, 2, 5, 0), " ", 4), ((3, 0, 9, 0), "x\n", 4),
])  # fmt: skip
def test_a_running_call_stays_at_its_line(where: tuple[int, int, int, int], new: str, line: int):
    board = Board()
    board.take(ToolCall(tool_call_id="t", title="x", locations=[ToolCallLocation(path="/a", line=6)]))
    start, end = Position(line=where[0], character=where[1]), Position(line=where[2], character=where[3])
    board.edited(Path("/a"), Range(start=start, end=end), new, False)
    board.edited(Path("/b"), Range(start=start, end=end), new, False)
    (mark,) = board.marks()[Path("/a")]
    assert mark.line == line


def test_options_that_are_wrong_are_told_and_the_others_count():
    assert read_options(None) == (Options(), [])
    options, problems = read_options({"save": "disk", "updates": "yes", "transcript": 7, "hints": False, "colour": 1})
    assert options == Options(save="disk", hints=False)
    assert len(problems) == 3 and "never, client, disk" in read_options({"save": "x"})[1][0] and read_options([1])[1]
