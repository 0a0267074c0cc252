"""Reading messages from a stream of bytes, however it is cut."""

import json
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.child import Child
from acp_agent.lsp.lsp_client import Client
from tests.nightly import examples

HEADERS = [
    b"Content-Length: %d\r\n\r\n", b"content-length:%d\n\n",
    b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: %d\r\n\r\n",
    b"Content-Length: %d \r\nX-More: yes\r\n\r\n", b"\r\n\r\nContent-Length: %d\r\n\r\n",
    b"Starting the server\nlistening ...\nContent-Length: %d\r\n\r\n",
]  # fmt: skip


class Pieces:
    """As much of a process as a client reads from."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter([piece for piece in pieces if piece])
        self.junk: list[bytes] = []

    async def read(self) -> bytes:
        return next(self._pieces, b"")

    def heard(self, line: bytes) -> None:
        self.junk.append(line)

    async def left(self) -> None: ...

    def end_words(self) -> str:
        return "it ended"


async def received(data: bytes, cuts: list[int]) -> list[Any]:
    """The parameters of the notifications `told`."""
    pieces = [data[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True)]
    told: list[Any] = []
    client = Client("it", cast(Child, Pieces(pieces)), {"told": told.append}, lambda: None)
    await client.receive()
    assert client.words == "it ended"
    return told


def message(header: bytes, params: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "method": "told", "params": params}, ensure_ascii=False).encode()
    return header % len(body) + body


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.sampled_from(HEADERS), st.text(max_size=20) | st.integers() | st.none()), max_size=5),
    st.data(),
)
def test_every_message_arrives_whole_once_however_bytes_come(sent: list[tuple[bytes, Any]], data: st.DataObject):
    stream = b"".join(message(header, params) for header, params in sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert anyio.run(received, stream, cuts) == [params for _, params in sent]


@pytest.mark.parametrize("body", [
    b"{", b"[]", b"null", b'{"id": null}', b'{"id": true, "method": 3}', b'{"id": 5, "result": 1}',
    b'{"id": 5, "error": "no"}', b'{"id": [1], "method": "told", "params": 0}', b"[" * 100_000,
    b'{"jsonrpc": "2.0", "method": "$/cancelRequest"}', b"\xff\xfe",
])  # fmt: skip
async def test_a_body_that_is_no_message_costs_nothing_but_itself(body: bytes):
    stream = b"Content-Length: %d\r\n\r\n%b" % (len(body), body) + message(HEADERS[0], "after")
    assert await received(stream, []) == ["after"]


async def test_half_surrogates_wrong_bytes_and_a_cut_end_lose_no_message():
    body = b'{"method": "told", "params": "\\ud83d \xff"}'
    (text,) = await received(b"Content-Length: %d\r\n\r\n%b" % (len(body), body), [])
    assert text == "\ud83d �"
    assert await received(message(HEADERS[0], "whole") + message(HEADERS[0], "cut")[:-3], []) == ["whole"]
