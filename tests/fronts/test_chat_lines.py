"""What the chat prints."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.fronts.terminal.call_lines import CallLines, ShownCall
from acp_agent.fronts.terminal.chat_commands import help_text
from acp_agent.fronts.terminal.live_screen import _around
from acp_agent.fronts.terminal.screens import COLOUR, DIM, RESET, CommandRow, TerminalStyle, joined
from tests.tables import table


@table(("parts", "width", "lines"), [
    (["a.py +1 -1", "60 tokens", "14 s"], 40, ["a.py +1 -1 · 60 tokens · 14 s"]),
    (["a.py +1 -1", "60 tokens", "14 s"], 24, ["a.py +1 -1 · 60 tokens", "14 s"]),
    (["a part that is too long", "14 s"], 10, ["a part that is too long", "14 s"]),
    ([f"{DIM}a.py{RESET}", "14 s"], 11, [f"{DIM}a.py{RESET} · 14 s"]),
])  # fmt: skip
def test_parts_are_put_into_lines_and_none_is_broken(parts: list[str], width: int, lines: list[str]):
    assert joined(parts, " · ", width) == lines


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(0, 11), st.integers(3, 30))
def test_the_rows_around_the_chosen_one_have_room(heights: list[int], at: int, room: int):
    rows = ["\n".join([f"row {number}", *["more"] * (height - 1)]) for number, height in enumerate(heights)]
    at %= len(rows)
    shown = _around(rows, at, room)
    first = rows.index(shown[0])
    assert shown == rows[first : first + len(shown)] and rows[at] in shown
    assert len(shown) == 1 or sum(row.count("\n") + 1 for row in shown) <= room
    assert sum(heights) > room or shown == rows


@table(("put_out", "code", "first", "shown"), [
    ("", 0, "● $ make", 0), ("one\n", 0, "● $ make · 1 line: Ctrl-O", 0),
    ("a\nb\n", 0, "● $ make · 2 lines: Ctrl-O", 0),
    ("a\nb\n", 2, "✗ $ make · exit code 2", 2), ("a\n" * 12, 2, "✗ $ make · exit code 2 · 4 lines: Ctrl-O", 8),
])  # fmt: skip
def test_a_commands_line_says_how_its_output_is_opened(put_out: str, code: int, first: str, shown: int):
    raw = {"stdout": put_out, "stderr": "", "exit_code": code}
    call = ShownCall("1", "make", "execute", status="failed" if code else "completed", raw_output=raw)
    lines, folded = CallLines(TerminalStyle(colour=False)).ended(call, 80)
    assert lines.split("\n")[0] == first and lines.count("\n") == shown
    assert bool(folded) == ("Ctrl-O" in first)


def test_help_is_whole_in_a_narrow_terminal():
    rows = [CommandRow("mine", "A description of many words that does not end before the line does")]
    text = COLOUR.sub("", help_text(rows, TerminalStyle(), 40))
    assert max(map(len, text.split("\n"))) < 40
    assert " ".join(text.partition("/mine")[2].split()) == rows[0].description
