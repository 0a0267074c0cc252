"""Real servers of the `mcp` package over each transport: one suite."""

import json
import re
import sys
from typing import Any

import anyio
import anyio.abc
import pytest

from acp_agent.mcp.base import Answers, McpError, ServerSpec
from acp_agent.mcp.surrogates import Repairer, repaired
from tests.mcp.kit import HERE, kept

KEY = {"x-key": "secret"}


@pytest.fixture(params=["stdio", "http", "modern", "sse"])
def spec(request: pytest.FixtureRequest) -> ServerSpec:
    if request.param == "stdio":
        return ServerSpec("good", "stdio", command=sys.executable, args=(str(HERE / "good_server.py"), "stdio"))
    kind: Any = "http" if request.param == "modern" else request.param
    return ServerSpec("good", kind, url=request.getfixturevalue(f"{request.param}_url"), headers=KEY)


async def test_a_server_of_the_package_is_used(spec: ServerSpec) -> None:
    async with kept(spec) as k:
        tools = {tool.name: tool for tool in k.servers.tools()}
        add = tools["add"]
        assert (add.title, add.description, add.read_only_hint) == ("Adder", "Adds two numbers.", True)
        assert add.parameters["required"] == ["a", "b"]
        assert await k.text("add", "good", a=1, b=2) == "3"
        assert [part.mime_type for part in (await k.call("good", "picture", {})).parts] == ["image/png"]
        assert (await k.call("good", "broken", {})).is_error
        assert await k.servers.prompt("good", "explain", {"topic": "it"}) == [("user", "Explain it")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(k.text, "wait", "good")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        while "wait" not in await k.text("was_cancelled", "good"):
            await anyio.sleep(0.01)
        if "grown" not in tools:
            assert await k.text("grow", "good") == "done"
            await k.until(lambda: "grown" in k.names)


async def test_a_server_may_ask_for_more_before_it_answers(modern_url: str) -> None:
    asked: list[str] = []

    async def elicit(server: str, wanted: dict[str, Any]) -> dict[str, Any]:
        asked.append(wanted["message"])
        return {"action": "accept", "content": {"name": f"answer {len(asked)}"}}

    async with kept(ServerSpec("good", "http", url=modern_url, headers=KEY), answers=Answers(elicit=elicit)) as k:
        assert await k.text("ask", "good") == "answer 1 and answer 2"
        assert asked == ["Name 1?", "Name 2?"]


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_that_wants_a_key_says_so(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    async with kept(ServerSpec("closed", kind, url=url), wait=False) as k:  # type: ignore[arg-type]
        await k.until(lambda: k.troubles)
        assert "it answered HTTP 401: it wants a login (`acp-coder mcp login closed`" in k.troubles[0][1]
        assert k.changes == 0


STATUSES = [
    (400, "invalid_input"), (401, "auth_failure"), (403, "auth_failure"), (404, "not_found"), (422, "invalid_input"),
    (429, "rate_limited"), (500, "server_error"), (503, "transient"),
]  # fmt: skip


class SmallServer:
    """Streamable HTTP by hand: as little as there can be. `status` answers calls; `session` is what it knows."""

    def __init__(self) -> None:
        self.status = 200
        self.session = ""
        self.body = b""
        self.tools: list[object] = [{"name": "t", "inputSchema": {"type": "object"}}]
        self.raw: tuple[str, bytes] | None = None
        """Type, and text as it is in the JSON of a call's answer."""

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                try:
                    data += await stream.receive()
                except anyio.EndOfStream:
                    return
            head, _, body = data.partition(b"\r\n\r\n")
            length = int((re.search(rb"content-length: (\d+)", head.lower()) or [0, 0])[1])
            while len(body) < length:
                body += await stream.receive()
            await stream.send(self.answer(head, body))

    def answer(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"POST"):
            return self.http(405)
        message = json.loads(body)
        if message["method"] == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "small", "version": "1"},
            }  # fmt: skip
            return self.result(message, result)
        if "id" not in message:
            return self.http(202)
        if message["method"] == "tools/list":
            return self.result(message, {"tools": self.tools})
        if self.session and f"mcp-session-id: {self.session}".encode() not in head.lower():
            return self.http(404)
        if self.status != 200:
            return self.http(self.status, extra="retry-after: 7\r\n")
        if message["params"].get("name") == "returns":
            return self.result(message, message["params"]["arguments"]["result"])
        if self.raw is not None:
            kind, text = self.raw
            content = b'[{"type": "text", "text": "%s"}]' % text
            body = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": %s}}' % (message["id"], content)
            body = b"event: message\ndata: %s\n\n" % body if kind == "text/event-stream" else body
            return self.http(200, body, f"content-type: {kind}\r\n")
        return self.body or self.result(message, {"content": [{"type": "text", "text": "fine"}]})

    def result(self, message, result) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        extra = f"mcp-session-id: {self.session}\r\n" if self.session else ""
        return self.http(200, body, f"content-type: application/json\r\n{extra}")

    def http(self, status: int, body: bytes = b"", extra: str = "") -> bytes:
        return f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {len(body)}\r\n{extra}\r\n".encode() + body


@pytest.fixture
async def small():
    server = SmallServer()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server, ServerSpec("small", "http", url=f"http://127.0.0.1:{port}/mcp")
        tasks.cancel_scope.cancel()


async def test_http_statuses_are_classified_and_the_connection_stays(small) -> None:
    server, spec = small
    async with kept(spec) as k:
        for status, code in STATUSES:
            server.status = status
            with pytest.raises(McpError, match=f"HTTP {status}") as error:
                await k.text("t", "small")
            assert (error.value.code, error.value.retry_after) == (code, 7.0)
        server.status = 200
        assert await k.text("t", "small") == "fine" and k.troubles == []


@pytest.mark.parametrize(("what", "before", "after", "words"), [
    ("session", "first", "second", "no longer knows the session"), ("body", b"", b"nonsense", "was lost"),
])  # fmt: skip
async def test_a_session_that_was_forgotten_or_a_connection_that_breaks_is_begun_anew(
    small, what, before, after, words
):
    server, spec = small
    setattr(server, what, before)
    async with kept(spec) as k:
        assert await k.text("t", "small") == "fine"
        setattr(server, what, after)
        with pytest.raises(McpError, match=words) as error:
            await k.text("t", "small")
        assert error.value.code == "transient"
        server.body = b""
        assert await k.text("t", "small") == "fine"


async def test_an_answer_beyond_all_bounds_is_not_read(small) -> None:
    server, spec = small
    async with kept(spec, max_result_bytes=2000) as k:
        server.body = server.http(200, b'"' + b"x" * 3_000_000 + b'"', "content-type: application/json\r\n")
        with pytest.raises(McpError, match="more than 1052576 bytes") as error:
            await k.text("t", "small")
        assert error.value.code == "server_error"


HALF = rb"a\ud800b \ud83d\ude00 \\ud800 \udc00\ud800\ud83d\ude00\\\\"
WHOLE = "a?b \U0001f600 \\ud800 ??\U0001f600\\\\"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_half_a_character_in_an_answer_over_http_costs_that_character_only(small, kind) -> None:
    server, spec = small
    async with kept(spec) as k:
        server.raw = (kind, HALF)
        assert await k.text("t", "small") == WHOLE


def test_half_characters_are_found_wherever_the_pieces_are_cut() -> None:
    text = b'"' + HALF + rb"\ud800\u0041 \uDBFF\uDFFF \n\\" + b'"'
    whole = repaired(text)
    assert json.loads(whole).encode("utf-8").decode() == WHOLE + "?A \U0010ffff \n\\"
    for first in range(len(text)):
        for second in range(first, len(text)):
            repairer = Repairer()
            pieces = (text[:first], text[first:second], text[second:])
            assert b"".join(repairer.feed(piece) for piece in pieces) + repairer.end() == whole
    for tail in (b"\\", rb"\u", rb"\ud8", rb"\ud800", rb"\ud800\u", rb"\\\\"):
        repairer = Repairer()
        assert repairer.feed(b"x" + tail) + repairer.end() == repaired(b"x" + tail)
