"""Output as plain text, as a terminal would show it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.output.sanitize import sanitize_output
from tests.nightly import examples, times

TABLE = {
    "plain\ttext\n": "plain\ttext\n", "\x1b[31mred\x1b[0m \x1b[1;38;5;4mblue\x1b[m": "red blue",
    "\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\": "link", "\x1b]0;a title\x07text": "text",
    "\x1bP1$r0m\x1b\\text": "text", "\x1b(Btext\x1b7\x1b8\x1b=": "text",
    "\x9b31mred\x9b0m \x9d0;title\x9ctext": "red text", "\x1b]0;never ended\nnext": "0;never ended\nnext",
    "10%\r50%\r100%\ndone": "100%\ndone", "long words\rshort": "shortwords", "long words\r\x1b[Kshort": "short",
    "long words\x1b[2K\rshort": "short", "long words\x1b[1Gshort": "shortwords", "abc\b\bX": "aXc",
    "a\r\nb\r\r\nc\r": "a\nb\nc", "bell\x07 nul\x00 del\x7f": "bell nul del", "a\n\n\n\nb": "a\n\nb",
    "a\n \n\t\n\nb": "a\n\nb", "\n\n\na": "\na", "a\n\nb": "a\n\nb", "a\x1b[3Cb": "a b", "trailing  \n": "trailing  \n",
    "half \ud83d character": "half \ufffd character", "": "",
}  # fmt: skip


@pytest.mark.parametrize("text", TABLE, ids=[ascii(text) for text in TABLE])
def test_escape_sequences_and_progress_are_as_a_terminal_shows_them(text):
    assert sanitize_output(text) == TABLE[text]


PIECES = [
    "a", "bc", " ", "\n", "\r", "\b", "\t", "\x1b", "[", "K", "2K", "31m", "]", ";", "\x07", "\\", "P", "\x9b", "\x9d",
    "\x00", "é", "\x85",
]  # fmt: skip


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join))
def test_a_second_time_changes_nothing_and_nothing_grows(text):
    once = sanitize_output(text)
    assert sanitize_output(once) == once and len(once) <= len(text)
    assert not any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 for char in once)
    assert "\n\n\n" not in once


@pytest.mark.parametrize(
    "piece", ["\x1b]", "\x1bP", "\x9d", "\x1b[", "\x1b[2Ky", "\r", "\b", "\x1b[K", "\n ", " \n", "\x1b[1;"]
)
def test_much_hostile_text_comes_to_an_end(piece):
    text = "x" * 50_000 + piece * (times(250_000) // len(piece))
    assert len(sanitize_output(text)) <= len(text)
