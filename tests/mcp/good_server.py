"""A server built with the package: `stdio`, `http`, `sse`, or `modern`: http without a handshake, as servers of
2026-07-28 may be. Over HTTP it prints its port and requires a key."""

import json
import socket
import sys

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, ToolAnnotations

server = MCPServer("good")
cancelled: list[str] = []


@server.tool(title="Adder", annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def picture() -> Image:
    """A small image."""
    return Image(data=b"\x89PNG\r\n\x1a\n" + bytes(8), format="png")


@server.tool()
def broken() -> str:
    """Always fails."""
    raise ValueError("it is broken")


@server.tool()
async def wait() -> str:
    """Waits for ever."""
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.append("wait")
    return ""


@server.tool()
def was_cancelled() -> str:
    """What was cancelled."""
    return ",".join(cancelled)


@server.tool()
async def grow(ctx: Context) -> str:
    """Makes another tool."""
    server.add_tool(was_cancelled, name="grown")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "done"


@server.tool()
async def ask(ctx: Context) -> str | InputRequiredResult:
    """Asks twice, in round trips of its own, and says what came back."""
    told = json.loads(ctx.request_state or "[]")
    for given in (ctx.input_responses or {}).values():
        assert isinstance(given, ElicitResult) and given.content is not None
        told.append(given.content["name"])
    if len(told) == 2:
        return " and ".join(told)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = ElicitRequestFormParams(message=f"Name {len(told) + 1}?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)}, request_state=json.dumps(told))


@server.prompt()
def explain(topic: str) -> str:
    """Explains a topic."""
    return f"Explain {topic}"


class Guard:
    """Answers 401 without the key."""

    def __init__(self, app) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        status = 200 if dict(scope.get("headers", ())).get(b"x-key") == b"secret" else 401
        if scope["type"] == "http" and status != 200:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await self._app(scope, receive, send)


class Modern:
    """Knows no handshake."""

    def __init__(self, app) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or dict(scope["headers"]).get(b"mcp-protocol-version", b"") >= b"2026":
            await self._app(scope, receive, send)
            return
        error = {"code": -32020, "message": "Missing MCP-Protocol-Version header"}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main() -> None:
    kind = sys.argv[1]
    if kind == "stdio":
        server.run("stdio")
        return
    app = server.sse_app() if kind == "sse" else server.streamable_http_app()
    guarded = Guard(Modern(app) if kind == "modern" else app)
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(guarded, log_level="warning", timeout_graceful_shutdown=0)).run(sockets=[listener])


main()
