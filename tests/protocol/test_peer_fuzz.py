"""`Peer` with arbitrary input: it never raises, and where the stream is cut makes no difference."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.protocol.peer import (
    MAX_LINE_BYTES,
    Event,
    Malformed,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
)
from tests.nightly import examples

MAX_LINE = 200

settings.register_profile("fuzz", max_examples=examples(150))
settings.load_profile("fuzz")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)
pieces = st.sampled_from(
    [b"\n", b"\r\n", b"{", b"}", b'"', b"[", b"\\ud83d", b'{"jsonrpc":"2.0","id":1,"method":"m"}\n', b"\xff", b"x" * 90]
)
noise = st.binary(max_size=60) | st.lists(pieces, max_size=12).map(b"".join)
cuts = st.lists(st.integers(0, 4000), max_size=12)


def shown(event: Event) -> tuple[Any, ...]:
    if isinstance(event, RequestReceived):
        return ("request", type(event.id), event.id, event.method, repr(event.params))
    if isinstance(event, NotificationReceived):
        return ("notification", event.method, repr(event.params))
    if isinstance(event, ResponseReceived):
        return ("response", event.id, repr(event.result), event.error)
    return ("malformed", event.reason, event.answer)


def read(stream: bytes, at: list[int], max_line: int = MAX_LINE_BYTES) -> list[tuple[Any, ...]]:
    peer = Peer(max_line=max_line)
    places = [0, *sorted({min(place, len(stream)) for place in at}), len(stream)]
    events: list[Event] = []
    for start, end in pairwise(places):
        events += peer.receive(stream[start:end])
    return [shown(event) for event in [*events, *peer.receive_eof()]]


@given(st.lists(noise, max_size=6).map(b"".join), cuts)
def test_arbitrary_bytes_give_the_same_events_however_they_are_cut(stream: bytes, at: list[int]) -> None:
    assert read(stream, at) == read(stream, [])
    assert read(stream, at, max_line=MAX_LINE) == read(stream, list(range(len(stream))), max_line=MAX_LINE)


@given(st.binary(max_size=400))
def test_every_answer_to_malformed_input_is_one_valid_line(stream: bytes) -> None:
    for event in [*(peer := Peer()).receive(stream), *peer.receive_eof()]:
        if isinstance(event, Malformed):
            assert json.loads(event.answer.decode("utf-8"))["error"]["code"] in (-32700, -32600)
            assert event.answer.count(b"\n") == 1


@given(st.lists(st.tuples(json_values, st.lists(noise, max_size=2)), max_size=5), cuts)
def test_valid_messages_between_noise_are_all_found_in_order(plan: list[tuple[Any, list[bytes]]], at: list[int]):
    stream, expected = b"", []
    for number, (params, noises) in enumerate(plan):
        stream += b"".join(part.replace(b'"id":1', b'"id":"noise"') + b"\n" for part in noises)
        stream += json.dumps({"jsonrpc": "2.0", "id": number, "method": "wanted", "params": params}).encode() + b"\n"
        expected.append((number, repr(json.loads(json.dumps(params)))))
    found = [(event[2], event[4]) for event in read(stream, at) if event[0] == "request" and event[3] == "wanted"]
    assert found == expected


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(0, 3))
def test_too_long_line_gives_one_error_and_what_follows_is_read(excess: int, step: int, after: int) -> None:
    line = b'{"jsonrpc":"2.0","id":%d,"method":"m"}\n'
    stream = b"x" * (MAX_LINE + excess) + b"\n" + b"".join(line % number for number in range(after))
    events = read(stream, list(range(0, len(stream), step)), max_line=MAX_LINE)
    assert [event[0] for event in events] == ["malformed"] + ["request"] * after


@given(json_values)
def test_what_one_peer_writes_the_other_reads(value: Any) -> None:
    (event,) = Peer().receive(Peer().notify("m", value))
    assert isinstance(event, NotificationReceived) and event.params == value
