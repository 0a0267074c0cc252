"""Plays the client's side of a recorded connection: its messages in order, its answers to the agent's requests.

Files are written again, since the agent looks at them; what ran in the editor's terminal is not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from acp_agent.client.fs import Files
from acp_agent.errors import RpcError, UsageError
from acp_agent.fronts.playing.here import agent_here
from acp_agent.fronts.playing.listener import chunk_of
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.recordings.difference import diff, key_of
from acp_agent.llm.recordings.form import line_of
from acp_agent.llm.recordings.playback import Playback
from acp_agent.protocol.transports import MemoryTransport
from acp_agent.schema.decode import decode_params

WAIT_SECONDS = 60.0
"""For what the agent did then."""
LATE_SECONDS = 2.0
"""For what it asks while it has answered everything."""
CANCEL_SECONDS = 5.0
"""For the words after which the user cancelled."""


class _Ask(Struct):
    """A recorded request of the agent's."""

    message: dict[str, Any]
    answer: dict[str, Any] | None
    done: bool = False


class WirePlayer:
    def __init__(self, playback: Playback, cwd: Path, environ: Mapping[str, str], folder: Path) -> None:
        self.differences: list[str] = []
        self._playback = playback
        self._environ = environ
        self._folder = folder
        self._files = Files()
        lines = [line for line in playback.recording.wire if isinstance(line["message"], dict)]
        if sum(line["message"].get("method") == "initialize" for line in lines) != 1:
            raise UsageError("the recording has the messages of no or of several agents; record one")
        self._lines = lines
        inward = [line["message"] for line in lines if line["wire"] == "in"]
        answers = {message.get("id"): message for message in inward if "method" not in message}
        outward = [line["message"] for line in lines if line["wire"] == "out"]
        self._asks = [_Ask(each, answers.get(each["id"])) for each in outward if "method" in each and "id" in each]
        self._responses: dict[Any, dict[str, Any]] = {}
        self._sent: set[Any] = set()
        """Ids of the client's requests."""
        self._heard = 0
        """Characters of text from the model."""
        self._changed = anyio.Event()
        playback.cleaner.folder(str(cwd))

    async def play(self) -> None:
        expected = 0
        async with (
            agent_here(self._environ, self._playback, self._folder) as transport,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._read, transport)
            for line in self._lines:
                message = line["message"]
                if line["wire"] == "in":
                    await self._say(message, transport, expected)
                elif "id" in message:
                    await self._await(message)
                else:
                    expected += len(chunk_of(message))
            tasks.cancel_scope.cancel()

    async def _say(self, message: dict[str, Any], transport: MemoryTransport, expected: int) -> None:
        if "method" not in message:
            return  # An answer was given when the agent asked.
        if message["method"] == "session/cancel":
            await self._until(lambda: self._heard >= expected, CANCEL_SECONDS)
        if "id" in message:
            self._sent.add(message["id"])
        await transport.write(line_of(self._playback.restored(message)))

    async def _await(self, message: dict[str, Any]) -> None:
        """Waits until the agent has asked or answered the same."""
        if "method" in message:
            ask = next(each for each in self._asks if each.message is message)
            await self._until(lambda: ask.done or self._sent <= self._responses.keys(), WAIT_SECONDS)
            if not await self._until(lambda: ask.done, LATE_SECONDS):
                self.differences.append(f"The agent did not ask the client for {message['method']} again.")
            return
        if not await self._until(lambda: message["id"] in self._responses, WAIT_SECONDS):
            self.differences.append(f"The agent did not answer request {message['id']} of the client.")
            return
        now = self._responses[message["id"]]
        self._playback.learn(message.get("result"), now.get("result"))
        before, after = _outcome(message), _outcome(self._playback.cleaner.clean(now))
        if key_of(before) != key_of(after):
            told = diff(before, after)
            self.differences.append(f"Request {message['id']} of the client is answered differently:\n{told}")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while not condition():
                await self._changed.wait()
        return condition()

    # --- what the agent says ----------------------------------------------------------------------------------

    async def _read(self, transport: MemoryTransport) -> None:
        rest = b""
        while data := await transport.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                message = read_loose_json(line)
                if "method" not in message:
                    self._responses[message["id"]] = message
                elif "id" not in message:
                    self._heard += len(chunk_of(message))
                elif (answer := self._answer(message)) is not None:
                    if message["method"] == "fs/write_text_file" and "result" in answer:
                        with suppress(RpcError):
                            await self._files.write(decode_params(message["method"], message["params"], "client"))
                    await transport.write(line_of({**answer, "id": message["id"]}))
            changed, self._changed = self._changed, anyio.Event()
            changed.set()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What the client answered then; None if nothing."""
        method, params = message["method"], self._playback.cleaner.clean(message.get("params"))
        open_ = [ask for ask in self._asks if not ask.done and ask.message["method"] == method]
        key = key_of(params)
        ask = next((each for each in open_ if key_of(each.message.get("params")) == key), None)
        if ask is None:
            if not open_:
                self.differences.append(f"The agent asks the client for {method}, which it did not then.")
                return {"jsonrpc": "2.0", "error": {"code": -32603, "message": "this was not recorded"}}
            ask = open_[0]
            told = diff(ask.message.get("params"), params)
            self.differences.append(f"The agent's request {method} to the client differs:\n{told}")
        ask.done = True
        self._playback.learn(ask.message.get("params"), message.get("params"))
        if (params.get("toolCall", {}).get("_meta") or {}).get("trust") is True:
            return {"jsonrpc": "2.0", "result": {"outcome": {"outcome": "cancelled"}}}  # Only a user trusts a folder.
        return None if ask.answer is None else self._playback.restored(ask.answer)


def _outcome(message: dict[str, Any]) -> Any:
    """What of a response is compared: an error, or how a turn ended."""
    if error := message.get("error"):
        return {"code": error.get("code"), "message": error.get("message")}
    result = message.get("result")
    return {"stopReason": result.get("stopReason")} if isinstance(result, dict) else {}
