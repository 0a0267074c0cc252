"""An agent fully controlled by a test: the program that VS Code starts passes its lines on to the test.

What any agent must answer (`initialize`, `session/new`) is answered here, the rest is the test's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

__all__ = ["Failed", "RawAgent", "Request", "Turn", "raw_agent"]

SECONDS = 60.0
"""Bound of each wait for the client."""
PASS_ON = """
import socket, sys, threading

wire = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def copy(source, sink):
    while chunk := source.read1(65536):
        sink.write(chunk)
        sink.flush()

threading.Thread(target=copy, args=(wire.makefile("rb"), sys.stdout.buffer), daemon=True).start()
copy(sys.stdin.buffer, wire.makefile("wb"))
"""
INITIALIZED = {
    "protocolVersion": 1, "agentInfo": {"name": "raw", "version": "1"},
    "agentCapabilities": {"promptCapabilities": {"embeddedContext": True}},
}  # fmt: skip
OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Refuse", "kind": "reject_once"},
]


class Failed(Exception):
    """One side answers with an error, whose message this has."""


@dataclass
class Request:
    """A request of the agent's, until the client has answered it."""

    method: str
    done: anyio.Event = field(default_factory=anyio.Event)
    message: dict[str, Any] = field(default_factory=dict)

    async def result(self) -> Any:
        """Raises Failed where the client refused."""
        with anyio.fail_after(SECONDS):
            await self.done.wait()
        if "error" in self.message:
            raise Failed(self.message["error"]["message"])
        return self.message["result"]

    async def chosen(self) -> str:
        """The option that the user chose, of an answer to a permission request."""
        outcome = (await self.result())["outcome"]
        return str(outcome.get("optionId", outcome["outcome"]))


@dataclass(frozen=True)
class Turn:
    """A prompt that the client sent and that is not answered yet."""

    agent: RawAgent
    id: int | str
    session: str
    text: str

    async def update(self, **update: Any) -> None:
        await self.agent.say(method="session/update", params={"sessionId": self.session, "update": update})

    async def text_chunk(self, text: str) -> None:
        await self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    async def request(self, method: str, **params: Any) -> Request:
        """Sends a request of this session, without waiting for its answer."""
        return await self.agent.request(method, sessionId=self.session, **params)

    async def ask(self, tool_call: dict[str, Any]) -> Request:
        return await self.request("session/request_permission", toolCall=tool_call, options=OPTIONS)

    async def end(self, text: str = "") -> None:
        """Answers the prompt, after an answer with this text."""
        if text:
            await self.text_chunk(text)
        await self.agent.say(id=self.id, result={"stopReason": "end_turn"})


class RawAgent:
    """`received` holds all requests and notifications of the client, in their order."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[dict[str, Any]] = []
        self.may_start = anyio.Event()
        """Until it is set, `initialize` is not answered."""
        self.refusal: str | None = None
        """With it, `session/new` is answered with an error with this message."""
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        """What other methods are answered with, by their params."""
        self._prompts, self._unread = anyio.create_memory_object_stream[Turn](100)
        self._stream: anyio.abc.SocketStream | None = None
        self._open: dict[int, Request] = {}
        self._sessions = 0
        self._requests = 0

    async def __aenter__(self) -> RawAgent:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._prompts.close()
        self._unread.close()

    @property
    def settings(self) -> dict[str, Any]:
        """VS Code's settings, by which it starts this agent."""
        return {"acpCoder.command": sys.executable, "acpCoder.arguments": ["-c", PASS_ON, str(self.port)]}

    def count(self, method: str) -> int:
        """How often the client sent it."""
        return sum(message["method"] == method for message in self.received)

    async def prompted(self) -> Turn:
        """The next prompt."""
        with anyio.fail_after(SECONDS):
            return await self._unread.receive()

    async def request(self, method: str, **params: Any) -> Request:
        self._requests += 1
        request = self._open[self._requests] = Request(method)
        await self.say(id=self._requests, method=method, params=params)
        return request

    async def say(self, *messages: dict[str, Any], **message: Any) -> None:
        """Sends messages: all in one piece."""
        assert self._stream is not None
        lines = [json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in (*messages, message) if one]
        await self._stream.send("".join(lines).encode())

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """One start of the program: until VS Code ends it."""
        self._stream = stream
        unread = b""
        async with stream:
            try:
                async for chunk in stream:
                    *lines, unread = (unread + chunk).split(b"\n")
                    for line in lines:
                        await self._take(json.loads(line))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            request = self._open.pop(message["id"])
            request.message = message
            request.done.set()
            return
        self.received.append(message)
        if method == "initialize":
            await self.may_start.wait()
            await self.say(id=message["id"], result=INITIALIZED)
        elif method == "session/new" and self.refusal is not None:
            await self.say(id=message["id"], error={"code": -32603, "message": self.refusal})
        elif method == "session/new":
            self._sessions += 1
            await self.say(id=message["id"], result={"sessionId": f"s{self._sessions}"})
        elif method == "session/prompt":
            params = message["params"]
            await self._prompts.send(Turn(self, message["id"], params["sessionId"], params["prompt"][0]["text"]))
        elif method in self.answers:
            try:
                await self.say(id=message["id"], result=self.answers[method](message["params"]))
            except Failed as refused:
                await self.say(id=message["id"], error={"code": -32602, "message": str(refused)})
        elif "id" in message:
            await self.say(id=message["id"], error={"code": -32601, "message": f"no {method}"})


@asynccontextmanager
async def raw_agent(*, starts: bool = True) -> AsyncIterator[RawAgent]:
    """An agent that is there when VS Code starts it; one that does not start waits for its `may_start`."""
    agent = RawAgent()
    if starts:
        agent.may_start.set()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    agent.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, agent, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, agent.serve)
        try:
            yield agent
        finally:
            tasks.cancel_scope.cancel()
