"""An agent made with the SDK of the protocol, as its example `echo_agent.py` is: it agrees to any version, and what it
leaves out is answered by the SDK."""

import asyncio
import uuid
from typing import Any

from acp import Agent, InitializeResponse, NewSessionResponse, PromptResponse, run_agent, update_agent_message
from acp.interfaces import Client


class Echo(Agent):
    _client: Client

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, *_: Any, **__: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=uuid.uuid4().hex)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        for block in prompt:
            await self._client.session_update(session_id, update_agent_message(block))
        return PromptResponse(stop_reason="end_turn")


asyncio.run(run_agent(Echo()))  # type: ignore[abstract]
