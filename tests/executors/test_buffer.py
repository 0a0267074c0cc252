"""Text kept within a bound."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.executors.buffer import BoundedText, Utf8Stream

MARK = re.compile(r"\n\[\.\.\. (\d+) characters omitted \.\.\.\]\n")


@settings(deadline=None)
@given(pieces=st.lists(st.text("abcdefgh", max_size=30)), limit=st.integers(0, 80))
def test_beginning_and_end_are_kept_and_the_rest_is_counted(pieces: list[str], limit: int) -> None:
    kept = BoundedText(limit)
    for piece in pieces:
        kept.add(piece)
    whole, text = "".join(pieces), kept.text()
    half = max(1, limit // 2)
    if len(whole) <= 2 * half:
        assert text == whole
        assert not kept.truncated
        return
    assert kept.truncated
    assert text == f"{whole[:half]}\n[... {len(whole) - 2 * half} characters omitted ...]\n{whole[-half:]}"
    assert kept.text() == text, "telling it changes nothing"


@settings(deadline=None)
@given(text=st.text(), cuts=st.lists(st.integers(0, 200)))
def test_bytes_in_any_cuts_give_the_same_text(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    stream, out, at = Utf8Stream(), "", 0
    for cut in sorted(min(cut, len(data)) for cut in cuts):
        out += stream.decode(data[at:cut])
        at = cut
    out += stream.decode(data[at:], final=True)
    assert out == data.decode()


def test_what_is_no_utf8_is_replaced() -> None:
    stream = Utf8Stream()
    assert stream.decode(b"a\xff") + stream.decode(b"\xe2\x82") + stream.decode(b"", final=True) == "a\ufffd\ufffd"
