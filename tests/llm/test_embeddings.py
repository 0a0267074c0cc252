"""Embeddings from a server's endpoint."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ProviderError
from acp_agent.llm.embeddings import BATCH, Embedder


class Server(ThreadingHTTPServer):
    asked: list[dict[str, Any]]
    reply: Any
    status: int


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, "auth": self.headers.get("Authorization"), **body})
        data = [{"index": n, "embedding": [float(len(text)), 1.0]} for n, text in enumerate(body["input"])]
        reply = self.server.reply if self.server.reply is not None else {"data": data[::-1]}
        text = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked, made.reply, made.status = [], None, 200
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def embedder(server: Server, **changes: Any) -> Embedder:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return Embedder(ProviderOptions(name="fake", base_url=url, api_key="sk", embedding_model="small", **changes))


async def test_vectors_come_in_the_order_of_the_texts_and_many_texts_go_in_several_requests(server):
    assert await embedder(server).embed(["a", "bbb", "cc"]) == [[1.0, 1.0], [3.0, 1.0], [2.0, 1.0]]
    (asked,) = server.asked
    assert (asked["path"], asked["auth"], asked["model"]) == ("/v1/embeddings", "Bearer sk", "small")
    assert len(await embedder(server).embed(["x" * n for n in range(1, BATCH + 11)])) == BATCH + 10
    assert [len(asked["input"]) for asked in server.asked] == [3, BATCH, 10]


@pytest.mark.parametrize(
    ("status", "reply"),
    [
        (404, {"error": {"message": "no such model"}}), (500, b"oops"), (200, b"<html>"), (200, {"data": []}),
        (200, {"data": [{"embedding": ["x"]}]}), (200, {"data": None}), (200, []),
    ],
    ids=str,
)  # fmt: skip
async def test_what_is_no_answer_is_a_provider_error(server, status, reply):
    server.status, server.reply = status, reply
    with anyio.fail_after(60), pytest.raises(ProviderError):
        await embedder(server).embed(["a"])


async def test_a_server_that_is_not_there_is_a_provider_error():
    gone = Embedder(ProviderOptions(name="fake", base_url="http://127.0.0.1:1", embedding_model="small"))
    with anyio.fail_after(60), pytest.raises(ProviderError, match="fake"):
        await gone.embed(["a"])
