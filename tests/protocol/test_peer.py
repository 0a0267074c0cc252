"""`Peer` by tables: bytes in -> events, calls -> bytes. Ids in brackets are those of the protocol's requirements."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.errors import LocalProtocolError
from acp_agent.protocol.peer import (
    MAX_LINE_BYTES,
    Event,
    Malformed,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
    encode_json,
)
from tests.nightly import examples

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


def one(data: bytes, peer: Peer | None = None) -> Event:
    (event,) = (peer or Peer()).receive(data)
    return event


def received(data: bytes, peer: Peer | None = None) -> RequestReceived:
    event = one(data, peer)
    assert isinstance(event, RequestReceived)
    return event


def answered(rest: str) -> ResponseReceived:
    """What comes of this answer to a request of ours."""
    peer = Peer()
    id_, _ = peer.request("m", None)
    event = one(f'{{"jsonrpc":"2.0","id":{id_},{rest}}}\n'.encode(), peer)
    assert isinstance(event, ResponseReceived)
    return event


def request(id_: object, method: str = "m", params: object = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\n"


def answer(event: Event) -> dict[str, Any]:
    assert isinstance(event, Malformed) and event.answer.endswith(b"\n") and event.answer.count(b"\n") == 1
    message: dict[str, Any] = json.loads(event.answer)
    return message


@pytest.mark.parametrize(("line", "id_", "method", "params"), [
    (request(7, "session/new", {"cwd": "/"}), 7, "session/new", {"cwd": "/"}),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"}\n', 1, "m", None),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}\n', 2, "b", None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m","result":1,"extra":[]}\n', 1, "m", None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"}\r\n', 1, "m", None),
], ids=[
    "a whole one", "no params", "the last of duplicate keys counts", "unknown members", "a carriage return",
])  # fmt: skip
def test_request_is_received_whole(line: bytes, id_: object, method: str, params: object) -> None:
    """[TR-8]"""
    event = received(line)
    assert (event.id, event.method, event.params) == (id_, method, params)


def test_notification_is_received_whole_and_numbers_beyond_a_double_too() -> None:
    event = one(b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}\n')
    assert isinstance(event, NotificationReceived)
    assert (event.method, event.params) == ("session/cancel", {"sessionId": "s"})
    received(b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1e400,' + b"9" * 4000 + b"]}\n")


@pytest.mark.parametrize(
    "id_", [0, 1, -1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**40, "", "1", "a b", "é\n\U0001f600", None]
)
def test_ids_are_echoed_with_value_and_type(id_: object) -> None:
    """[RPC-6]"""
    peer = Peer()
    event = received(request(id_), peer)
    echoed = json.loads(peer.respond(event.id, {}))["id"]
    assert (type(echoed), echoed) == (type(id_), id_)
    one(request(id_), peer)
    failed = json.loads(peer.fail(event.id, -32601, "no"))["id"]
    assert (type(failed), failed) == (type(id_), id_)


@pytest.mark.parametrize(("line", "id_"), [
    ("[]", None), ('[{"jsonrpc":"2.0","id":1,"method":"m"}]', None), ("1", None), ('"text"', None), ("true", None),
    ("null", None), ("{}", None), ('{"jsonrpc":"2.0"}', None), ('{"jsonrpc":"2.0","id":4}', 4),
    ('{"id":5,"method":"m"}', 5), ('{"jsonrpc":"1.0","id":5,"method":"m"}', 5),
    ('{"jsonrpc":2.0,"id":"x","method":"m"}', "x"), ('{"jsonrpc":"2.0","id":6,"method":7}', 6),
    ('{"jsonrpc":"2.0","id":6,"method":null}', 6), ('{"jsonrpc":"2.0","id":6,"method":["m"]}', 6),
    ('{"jsonrpc":"2.0","method":7}', None), ('{"jsonrpc":"2.0","id":true,"method":"m"}', None),
    ('{"jsonrpc":"2.0","id":1.0,"method":"m"}', None), ('{"jsonrpc":"2.0","id":1e400,"method":"m"}', None),
    ('{"jsonrpc":"2.0","id":{},"method":"m"}', None), ('{"jsonrpc":"2.0","id":[1],"method":"m"}', None),
])  # fmt: skip
def test_json_that_is_no_request_is_answered_with_invalid_request(line: str, id_: object) -> None:
    """[RPC-3]"""
    message = answer(one(line.encode() + b"\n"))
    assert message["jsonrpc"] == "2.0" and message["id"] == id_ and message["error"]["code"] == INVALID_REQUEST
    assert isinstance(message["error"]["message"], str)


@pytest.mark.parametrize(
    "line",
    [
        b"hello", b"{", b'{"jsonrpc":"2.0","id":1,"method":"m"', b'{"jsonrpc":"2.0","id":1,"method":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} {}', b"{'jsonrpc':'2.0'}", b'{"jsonrpc":"2.0","id":NaN,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":[Infinity]}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":[-Infinity]}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":"\x01"}', b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b"\xff\xfe{\x00}\x00", b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\xbd"}',
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"m"}', b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_what_is_not_json_is_answered_with_parse_error_and_reading_goes_on(line: bytes) -> None:
    """[RPC-2] [TR-2] [TR-5]"""
    first, second = Peer().receive(line + b"\n" + request(1))
    message = answer(first)
    assert message["id"] is None and message["error"]["code"] == PARSE_ERROR
    assert len(json.dumps(message)) < 1000
    assert isinstance(second, RequestReceived)


@pytest.mark.parametrize("noise", [b"\n", b"\r\n", b"   \n", b"\t\r\n\n\n"])
def test_empty_lines_are_nothing(noise: bytes) -> None:
    """[TR-8]"""
    assert Peer().receive(noise) == []
    received(noise + request(1) + noise)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"])
def test_only_the_line_feed_ends_a_line(separator: str) -> None:
    """[TR-3]"""
    text = f"a{separator}b"
    raw = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": text}, ensure_ascii=separator < " ")
    assert received(raw.encode() + b"\n").params == text
    out = Peer().notify("m", text)
    assert out.count(b"\n") == 1
    assert json.loads(out)["params"] == text


def test_any_unicode_passes_unchanged_in_both_directions() -> None:
    """[TR-6]"""
    text = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2070), 0xFEFF, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]))
    event = one(Peer().notify("m", {text: text}))
    assert isinstance(event, NotificationReceived) and event.params == {text: text}


@pytest.mark.parametrize(("escaped", "read"), [
    (r"\ud83d", "\ufffd"), (r"\uD83D", "\ufffd"), (r"\ude00", "\ufffd"), (r"a\ud83db", "a\ufffdb"),
    (r"\ude00\ud83d", "\ufffd\ufffd"), (r"\ud83d\ude00", "\U0001f600"), (r"\uD83D\uDE00", "\U0001f600"),
    (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"), (r"\\ud83d", r"\ud83d"),
])  # fmt: skip
def test_lone_surrogates_are_replaced_and_pairs_are_kept(escaped: str, read: str) -> None:
    """[TR-7]"""
    raw = '{"jsonrpc":"2.0","id":"TEXT","method":"m","params":{"TEXT":["TEXT",{"x":"TEXT"}]}}\n'
    event = received(raw.replace("TEXT", escaped).encode())
    assert event.id == read and event.params == {read: [read, {"x": read}]}


def test_lone_surrogates_break_no_outgoing_line_and_no_deep_message() -> None:
    """[TR-7] [TR-5]"""
    line = encode_json({"text": "a\ud83db"})
    assert json.loads(line.decode("utf-8")) == {"text": "a?b"}
    for depth in (100, 450, 900):
        line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * depth + rb'"\ud83d"' + b"]" * depth + b"}\n"
        (event, after) = Peer().receive(line + request(2))
        assert isinstance(event, RequestReceived | Malformed) and isinstance(after, RequestReceived)


def test_at_the_end_a_last_line_is_read_whole_half_or_too_long() -> None:
    peer = Peer()
    assert peer.receive(request(1)[:-1]) == []
    (event,) = peer.receive_eof()
    assert isinstance(event, RequestReceived)
    assert peer.receive_eof() == []
    peer = Peer()
    peer.receive(b'{"jsonrpc"')
    (event,) = peer.receive_eof()
    assert answer(event)["error"]["code"] == PARSE_ERROR
    peer = Peer(max_line=10)
    (event,) = peer.receive(b"x" * 11)
    assert isinstance(event, Malformed)
    assert peer.receive_eof() == []


@pytest.mark.parametrize("cut", [1, 7, 64, 1000])
def test_too_long_line_is_answered_once_and_skipped(cut: int) -> None:
    """[TR-4]"""
    peer = Peer(max_line=100)
    stream = request(1) + b"x" * 950 + b"\n" + request(2)
    before, long, after = [event for at in range(0, len(stream), cut) for event in peer.receive(stream[at : at + cut])]
    assert isinstance(before, RequestReceived)
    assert answer(long)["error"]["code"] == INVALID_REQUEST
    assert "longer than 100 bytes" in answer(long)["error"]["message"]
    assert isinstance(after, RequestReceived) and after.id == 2


def test_line_of_the_limit_passes_and_one_more_byte_is_refused() -> None:
    """[TR-4]"""
    line = request(1)
    assert isinstance(one(line, Peer(max_line=len(line) - 1)), RequestReceived)
    assert isinstance(one(line, Peer(max_line=len(line) - 2)), Malformed)
    head, tail = b'{"jsonrpc":"2.0","id":1,"method":"m","params":"', b'"}'
    peer = Peer()
    for extra, kind in ((0, RequestReceived), (1, Malformed), (0, RequestReceived)):
        size = MAX_LINE_BYTES - len(head) - len(tail) + extra
        line = head + b"x" * size + tail + b"\n"
        step = 256 * 1024
        events = [event for at in range(0, len(line), step) for event in peer.receive(line[at : at + step])]
        assert [type(event) for event in events] == [kind]
        if isinstance(events[0], RequestReceived):
            assert len(events[0].params) == size


def test_lines_without_end_or_in_tiny_pieces_cost_no_more_memory_than_their_size() -> None:
    peer = Peer(max_line=64 * 1024)
    chunk = b"x" * 4096
    tracemalloc.start()
    try:
        for _ in range(4096):
            peer.receive(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 512 * 1024
    peer = Peer(max_line=256 * 1024)
    tracemalloc.start()
    try:
        for number in range(50_000):
            peer.receive(b"%02d" % (number % 100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024


def test_our_requests_count_up_in_a_space_of_their_own() -> None:
    """[RPC-6]"""
    peer = Peer()
    one(request(0), peer)
    first, line = peer.request("a", {"x": 1})
    second, _ = peer.request("b", None)
    assert first != second
    assert json.loads(line) == {"jsonrpc": "2.0", "id": first, "method": "a", "params": {"x": 1}}
    event = one(b'{"jsonrpc":"2.0","id":%d,"result":{"y":2}}\n' % second, peer)
    assert isinstance(event, ResponseReceived) and (event.id, event.result, event.error) == (second, {"y": 2}, None)
    assert json.loads(peer.respond(0, {}))["id"] == 0


@pytest.mark.parametrize("id_", ["99", '"0"', "null", "-1", "[0]"])
def test_answer_nobody_waits_for_is_dropped(id_: str) -> None:
    """[RPC-8]"""
    peer = Peer()
    peer.request("m", None)
    events = peer.receive(f'{{"jsonrpc":"2.0","id":{id_},"result":1}}\n'.encode())
    assert not any(isinstance(event, ResponseReceived) for event in events)


def test_second_answer_and_one_to_an_abandoned_request_are_dropped() -> None:
    """[RPC-8]"""
    peer = Peer()
    id_, _ = peer.request("m", None)
    line = b'{"jsonrpc":"2.0","id":%d,"result":1}\n' % id_
    assert len(peer.receive(line + line)) == 1
    peer = Peer()
    id_, _ = peer.request("m", None)
    peer.abandon(id_)
    peer.abandon(id_)
    assert peer.receive(b'{"jsonrpc":"2.0","id":%d,"result":1}\n' % id_) == []


@pytest.mark.parametrize(("rest", "result", "error"), [
    ('"result":null', None, None), ('"result":false', False, None), ('"result":{"a":1},"error":null', {"a": 1}, None),
    ('"error":{"code":-32000,"message":"no"}', None, (-32000, "no", None)),
    ('"error":{"code":1,"message":"","data":[1]}', None, (1, "", [1])),
    ('"error":{"code":1,"message":"no"},"result":{}', None, (1, "no", None)),
])  # fmt: skip
def test_answers_by_result_and_error(rest: str, result: object, error: object) -> None:
    event = answered(rest)
    assert (event.result, event.error) == (result, error)


@pytest.mark.parametrize(
    "error", ["null", "1", '"no"', "[]", "{}", '{"code":"1","message":"m"}', '{"code":1}', '{"code":1.5,"message":"m"}']
)
def test_malformed_error_object_is_an_error_all_the_same(error: str) -> None:
    """[RPC-9]"""
    event = answered(f'"error":{error}')
    assert event.error is not None and event.error[0] == -32603 and event.error[2] == json.loads(error)


def test_answering_twice_or_what_was_never_asked_is_our_own_error() -> None:
    """[RPC-1]"""
    peer = Peer()
    one(request(1), peer)
    peer.respond(1, {})
    with pytest.raises(LocalProtocolError):
        peer.respond(1, {})
    with pytest.raises(LocalProtocolError):
        peer.fail(1, -32603, "late")
    peer = Peer()
    one(request(1), peer)
    for id_ in ("1", 2, None):
        with pytest.raises(LocalProtocolError):
            peer.respond(id_, {})
    peer = Peer()
    peer.receive(request(1) + request(1))
    peer.respond(1, "a")
    peer.fail(1, 1, "b")
    with pytest.raises(LocalProtocolError):
        peer.respond(1, "c")


def test_what_cannot_be_encoded_leaves_a_request_open_and_is_not_waited_for() -> None:
    peer = Peer()
    one(request(1), peer)
    with pytest.raises(TypeError):
        peer.respond(1, object())
    assert json.loads(peer.fail(1, -32603, "no"))["error"] == {"code": -32603, "message": "no"}
    peer = Peer()
    with pytest.raises(TypeError):
        peer.request("m", object())
    assert peer.receive(b'{"jsonrpc":"2.0","id":0,"result":1}\n') == []


def test_outgoing_messages_are_single_lines_of_utf8() -> None:
    """[RPC-1] [TR-3]"""
    peer = Peer()
    one(request("x"), peer)
    one(request("y"), peer)
    lines = [
        peer.request("m", {"a": "1\n2"})[1], peer.notify("n", ["\r\n"]), peer.respond("x", "é"),
        peer.fail("y", -32000, "no\n", {"why": "\n"}),
    ]  # fmt: skip
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert [json.loads(line) for line in lines] == [
        {"jsonrpc": "2.0", "id": 0, "method": "m", "params": {"a": "1\n2"}},
        {"jsonrpc": "2.0", "method": "n", "params": ["\r\n"]}, {"jsonrpc": "2.0", "id": "x", "result": "é"},
        {"jsonrpc": "2.0", "id": "y", "error": {"code": -32000, "message": "no\n", "data": {"why": "\n"}}},
    ]  # fmt: skip


# --- any input: it never raises, and where the stream is cut makes no difference ---------------------------------


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
