"""Text kept within a limit."""

import re

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.executors.buffer import LONGEST_CUT_LINE, BoundedText, Utf8Stream

MARK = re.compile(r"\n\[\.\.\. (\d+) characters omitted \.\.\.\]\n")


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


@given(text=st.text(), cuts=st.lists(st.integers(0, 200)))
def test_bytes_in_any_cuts_give_the_same_text(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    stream, out, at = Utf8Stream(), "", 0
    for cut in sorted(min(cut, len(data)) for cut in cuts):
        out += stream.decode(data[at:cut])
        at = cut
    out += stream.decode(data[at:], final=True)
    assert out == data.decode()


def test_what_is_no_utf8_is_replaced_and_a_line_without_end_cut() -> None:
    stream = Utf8Stream()
    assert stream.decode(b"a\xff") + stream.decode(b"\xe2\x82") + stream.decode(b"", final=True) == "a\ufffd\ufffd"
    kept = BoundedText(100_000, whole_lines=True)
    kept.add("k" * 1_000_000)
    assert kept.text().count("k") == 100_000 - 2 * LONGEST_CUT_LINE


@given(lines=st.lists(st.text("abcd", max_size=12)), cuts=st.integers(1, 9), limit=st.integers(2, 80))
def test_with_whole_lines_no_line_is_cut(lines: list[str], cuts: int, limit: int) -> None:
    kept, whole = BoundedText(limit, whole_lines=True), "".join(f"<{line}>\n" for line in lines)
    for at in range(0, len(whole), cuts):
        kept.add(whole[at : at + cuts])
    text = kept.text()
    if not kept.truncated:
        assert text == whole
        return
    found = MARK.search(text)
    assert found is not None
    assert len(text) - len(found[0]) + int(found[1]) in (len(whole), len(whole) - 1), "one line feed may be the mark's"
    for line in [*text[: found.start()].splitlines(), *text[found.end() :].splitlines()]:
        assert line.startswith("<") and line.endswith(">")
