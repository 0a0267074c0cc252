"""What the chat prints."""

from hypothesis import given
from hypothesis import strategies as st

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


def test_help_is_whole_in_a_narrow_terminal():
    rows = [CommandRow("mine", "A description of many words that does not end before the line does")]
    text = COLOUR.sub("", help_text(rows, TerminalStyle(), 40))
    assert max(map(len, text.split("\n"))) < 40
    assert " ".join(text.partition("/mine")[2].split()) == rows[0].description
