from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.llm.transport.sse import EventTooLong, ServerSentEvent, SseDecoder


def decoded(*chunks: bytes) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


@pytest.mark.parametrize(("stream", "events"), [
    (b"data: a\n\n", [(b"a", b"")]), (b"data:a\n\n", [(b"a", b"")]), (b"data:  a \n\n", [(b" a ", b"")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"a", b""), (b"b", b"")]),
    (b"data: a\r\rdata: b\r\r", [(b"a", b""), (b"b", b"")]), (b"data: a\ndata: b\n\n", [(b"a\nb", b"")]),
    (b"data\ndata: b\n\n", [(b"\nb", b"")]), (b"event: ping\ndata: a\n\ndata: b\n\n", [(b"a", b"ping"), (b"b", b"")]),
    (b"event: ping\n\ndata: b\n\n", [(b"b", b"")]), (b": keep-alive\n\ndata: a\n\n", [(b"a", b"")]),
    (b"data: a\n: in between\ndata: b\n\n", [(b"a\nb", b"")]),
    (b"id: 7\nretry: 10\nunknown: x\ndata: a\n\n", [(b"a", b"")]), (b"\xef\xbb\xbfdata: a\n\n", [(b"a", b"")]),
    (b"data: a\n", [(b"a", b"")]), (b"data: a", [(b"a", b"")]), (b"\n\n\n", []), (b"", []),
])  # fmt: skip
def test_streams(stream: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert decoded(stream) == [ServerSentEvent(*event) for event in events]


PIECES = st.sampled_from(
    [b"data: ", b"data", b"event: e", b": c", b"\n", b"\r", b"\r\n", b"\n\n", "né€😀".encode(), b"x"]
)


@given(st.lists(PIECES, max_size=30).map(b"".join), st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert decoded(*[stream[start:end] for start, end in pairwise(edges)]) == decoded(stream)


@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    assert decoded(*(stream[i : i + 1] for i in range(len(stream)))) == decoded(stream)


def test_an_event_is_given_at_its_blank_line_and_many_do_not_add_up() -> None:
    assert SseDecoder().feed(b"data: a\r\n\r") == [ServerSentEvent(b"a")]
    assert len([event for _ in range(100) for event in SseDecoder(limit=100).feed(b"data: 123456789\n\n")]) == 100


@pytest.mark.parametrize("chunk", [b"x" * 60, b"data: 123456789\n", b"data:12345\ndata:12345\n"])
def test_what_never_ends_is_refused(chunk: bytes) -> None:
    decoder = SseDecoder(limit=100)
    with pytest.raises(EventTooLong, match="100 bytes"):
        for _ in range(20):
            decoder.feed(chunk)
