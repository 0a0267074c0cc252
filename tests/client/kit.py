"""A tiny agent made of plain functions, for the tests of the client side."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from acp_agent.client.tasks import Background
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import Transport, memory_pair
from tests.protocol.kit import Answer, gives

BOUND = 60.0
"""Seconds after which a test that waits has failed."""


def real(path: Path) -> str:
    """What a process says its working directory is."""
    return str(path.resolve())


__all__ = ["ScriptedAgent", "gives", "real", "scripted_agent"]


class ScriptedAgent:
    """Answers each method with a function of its params; `ask` and `tell` speak to the client, in plain JSON."""

    def __init__(self, transport: Transport, answers: dict[str, Answer] | None = None) -> None:
        self.answers: dict[str, Answer] = {
            "initialize": gives({"protocolVersion": 1}), "session/new": gives({"sessionId": "s"}), **(answers or {}),
        }  # fmt: skip
        self.received: list[tuple[str, Any]] = []
        self.notified = anyio.Event()
        self.connection = Connection(transport, self, peer=Peer(encode=encode))

    async def handle_request(self, method: str, params: Any) -> Any:
        self.received.append((method, params))
        return await self.answers[method](params)

    async def handle_notification(self, method: str, params: Any) -> None:
        self.received.append((method, params))
        self.notified.set()

    def cancel_request(self, method: str, params: Any) -> bool:
        return False

    async def ask(self, method: str, **params: Any) -> Any:
        with anyio.fail_after(BOUND):
            return await self.connection.request(method, {"sessionId": "s", **params})

    def tell(self, update: dict[str, Any], session: str = "s") -> None:
        self.connection.notify("session/update", {"sessionId": session, "update": update})

    def say(self, text: str) -> None:
        self.tell({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


@asynccontextmanager
async def scripted_agent(answers: dict[str, Answer] | None = None) -> AsyncIterator[tuple[ScriptedAgent, Transport]]:
    """An agent that serves, and the client's end of its wire."""
    ours, theirs = memory_pair()
    agent = ScriptedAgent(ours, answers)
    async with Background() as background:
        background.start(agent.connection.serve)
        try:
            yield agent, theirs
        finally:
            agent.connection.close()
