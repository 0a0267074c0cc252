"""What the chat prints."""

import os

import anyio
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.fronts.terminal.call_lines import CallLines
from acp_agent.fronts.terminal.chat_commands import help_text
from acp_agent.fronts.terminal.chat_program import GatheringTransport
from acp_agent.fronts.terminal.live_screen import _around
from acp_agent.fronts.terminal.markdown_stream import STEP, UNFINISHED, MarkdownStream
from acp_agent.fronts.terminal.screens import COLOUR, DIM, RESET, CommandRow, TerminalStyle, joined
from acp_agent.fronts.view import ShownCall
from acp_agent.protocol.transports import FdTransport
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


def test_a_call_that_is_done_is_said_as_done():
    lines = CallLines(TerminalStyle(colour=False))
    for title, done in (("List src", "Listed src"), ("Search for x", "Searched for x"), ("Edit a.py", "Edited a.py")):
        assert lines.ended(ShownCall("1", title, "read", status="completed"), 80)[0] == f"● {done}"
        assert lines.ended(ShownCall("1", title, "read", status="failed"), 80)[0] == f"✗ {title}"


def test_help_is_whole_in_a_narrow_terminal():
    rows = [CommandRow("mine", "A description of many words that does not end before the line does")]
    text = COLOUR.sub("", help_text(rows, TerminalStyle(), 40))
    assert max(map(len, text.split("\n"))) < 40
    assert " ".join(text.partition("/mine")[2].split()) == rows[0].description


async def test_what_comes_soon_after_other_messages_is_read_at_once():
    read_end, write_end = os.pipe()
    transport = GatheringTransport(FdTransport(read_end, write_end))
    found: list[bytes] = []

    async def read() -> None:
        found.append(await transport.read())

    try:
        for number in range(2):
            os.write(write_end, b"%d\n" % number)
            await read()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            for number in range(2, 100):
                os.write(write_end, b"%d\n" % number)
        assert len(found) == 3 and b"".join(found) == b"".join(b"%d\n" % number for number in range(100))
    finally:
        transport.close()
        for end in (read_end, write_end):
            os.close(end)


def test_of_an_unfinished_paragraph_only_the_end_is_rendered_however_long_it_is(monkeypatch):
    rendered: list[int] = []
    real = MarkdownStream._rendered

    def counted(self: MarkdownStream, text: str, width: int) -> str:
        rendered.append(len(text))
        return real(self, text, width)

    monkeypatch.setattr(MarkdownStream, "_rendered", counted)
    stream = MarkdownStream(TerminalStyle())
    for number in range(2_000):
        stream.take(f"**{number}** words, ")
        if number % 10 == 0:
            assert stream.finished(80) == "" and str(number) in stream.tail(79)
    assert len(rendered) == 200 and max(rendered) <= UNFINISHED + STEP
    assert "1999" in stream.end(80) and len(rendered) == 201
