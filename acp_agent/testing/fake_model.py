"""`FakeModel`: a scripted endpoint of all wire APIs on the loopback interface, for tests over real sockets.

    async with FakeModel([Answer(text=("Hel", "lo")), Failure(429, {"error": {"message": "slow down"}})]) as model:
        provider = ChatProvider(ProviderOptions(name="fake", base_url=model.base_url))
        ...
        assert model.requests[0].body["messages"][-1]["content"] == "hi"

It serves what `WIRES` have: those of `WIRE_APIS` and Gemini's, all streamed, and the lists of models, and it can
misbehave in every way seen in real servers: see `Answer`, `Call`, `Failure` and `RawAnswer`. The same script works with
each API.
All waiting in a script is for an event (`release()`), so that tests need no sleeps.

As a separate process (benchmarks): `python -m acp_agent.testing.fake_model SCRIPT.json [--port N]` writes the base
URL as one line to stdout and serves until it is killed. The file holds a list of answers: `Answer`'s fields, or
`{"deltas": 2000, "delta_text": "word ", "interval_ms": 0}`, or a plain string.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.lazy import load
from acp_agent.testing import fake_answers as fake
from acp_agent.testing.fake_answers import Answer, Call, Failure, FakeRequest, RawAnswer, Reply, Script, Usage
from acp_agent.testing.fake_gemini import Gemini, GeminiWhole

__all__ = ["Answer", "Call", "Failure", "FakeModel", "FakeRequest", "RawAnswer", "Reply", "Script", "Usage"]

WIRES: tuple[type[fake.Wire], ...] = (*(load(row.fake) for row in WIRE_APIS.values() if row.fake), Gemini, GeminiWhole)
"""Ours, and what other agents are tested with."""
W = TypeVar("W", bound=fake.Wire)

# --- the server --------------------------------------------------------------------------------------------------


class FakeModel:
    """A scripted model server, as an asynchronous context manager. The n-th model call gets the n-th reply.

    A script may also be a function of the request's JSON. When a list is exhausted, requests get status 500.
    """

    def __init__(self, script: Script = (), *, models: fake.Models | Failure = ("fake-model",)) -> None:
        self.requests: list[FakeRequest] = []
        """All model calls, in order of arrival, without `GET /models`."""
        self.models = models
        """The list of models; a `Failure` may have any status."""
        self.wires = {kind: kind() for kind in WIRES}
        """How it speaks each API; a test may change their attributes at any time."""
        self.connections = 0
        """Number of connections opened."""
        self._script = script
        self._refused = 0
        """Requests that were wrong and used up no reply."""
        self._release = asyncio.Event()
        self._arrived = asyncio.Condition()
        self._closed: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        """Ends in `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=64 * 1024 * 1024)
        self._port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Closes all connections abruptly. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    async def __aenter__(self) -> FakeModel:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def speaking(self, kind: type[W]) -> W:
        """How it speaks this API, to change it."""
        return self.wires[kind]  # type: ignore[return-value]

    def release(self) -> None:
        """Lets every answer that hangs, now or later, continue."""
        self._release.set()

    async def wait_for_request(self, number: int = 1) -> FakeRequest:
        """Waits for the request with this number, counted from 1, and returns it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def answer_closed(self, number: int = 1) -> None:
        """Waits until the client has closed the connection in the middle of the answer to request `number`."""
        await self._closed.setdefault(number, asyncio.Event()).wait()

    def _next_reply(self, body: dict[str, Any], number: int) -> Reply:
        if callable(self._script):
            reply: Reply | str = self._script(body)
        elif number <= len(self._script):
            reply = self._script[number - 1]
        elif self._script and isinstance(last := self._script[-1], Answer) and last.repeat:
            reply = last
        else:
            words = f"the script of FakeModel is used up: request {number}, {len(self._script)} replies"
            reply = Failure(500, {"error": {"message": words, "type": "server_error"}})
        return Answer(text=reply) if isinstance(reply, str) else reply

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, _Dropped):
            pass  # The client is gone, as is its right, or the script wanted it gone.
        except asyncio.CancelledError:
            writer.transport.abort()  # `aclose`; nothing awaits this task, so it may simply end.
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pushed_back = b""
        while True:
            try:
                request = await _read_request(reader, pushed_back)
            except msgspec.DecodeError as error:  # A lone surrogate, say: real servers refuse it, too.
                await _send(writer, Failure(400, {"error": {"message": str(error), "type": "invalid_request_error"}}))
                pushed_back = b""
                continue
            if request is None:
                return
            pushed_back = b""
            path = request.path.partition("?")[0].rstrip("/")
            if (told := self._told(request, path)) is not None:
                await _send(writer, told)
                continue
            wire = next((wire for wire in self.wires.values() if path.endswith(wire.paths)), None)
            if wire is None or request.method != "POST":
                words = f"FakeModel does not serve {request.method} {request.path}"
                await _send(writer, Failure(404, {"error": {"message": words, "type": "invalid_request_error"}}))
                continue
            async with self._arrived:
                self.requests.append(request)
                number = len(self.requests)
                self._arrived.notify_all()
            wrong = wire.refused(request, path)
            self._refused += wrong is not None
            reply = wrong or self._next_reply(wire.body(request), number - self._refused)
            answering = asyncio.ensure_future(self._answer(writer, wire, request, reply, number))
            watching = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() and not watching.result():
                    self._closed.setdefault(number, asyncio.Event()).set()
                    return
                await answering
                # The byte read to detect a closed connection may be the first of the next request.
                pushed_back = await watching
            except ConnectionError:
                self._closed.setdefault(number, asyncio.Event()).set()
                raise
            finally:
                answering.cancel()
                watching.cancel()
                await asyncio.gather(answering, watching, return_exceptions=True)
            if not pushed_back:
                return

    def _told(self, request: FakeRequest, path: str) -> Failure | None:
        for wire in self.wires.values():
            if request.method == "GET" and path.endswith(wire.lists):
                return self.models if isinstance(self.models, Failure) else Failure(200, wire.listed(self.models))
            if (told := wire.told(request, path)) is not None:
                return told
        return None

    async def _answer(
        self, writer: asyncio.StreamWriter, wire: fake.Wire, request: FakeRequest, reply: Reply, number: int
    ) -> None:
        if isinstance(reply, Failure):
            await _send(writer, reply)
            return
        if isinstance(reply, RawAnswer):
            _start_chunked(writer, reply.content_type, reply.status)
            await self._send_chunks(writer, _paced(Answer(), [(chunk, True) for chunk in reply.chunks]), reply)
            return
        if reply.hang_before:
            await self._release.wait()
        _start_chunked(writer, wire.content_type, 200)
        await self._send_chunks(writer, _paced(reply, wire.chunks(reply, request, number)), reply)

    async def _send_chunks(
        self, writer: asyncio.StreamWriter, chunks: AsyncIterator[tuple[bytes, bool]], faults: fake.Faults
    ) -> None:
        """Sends chunks, each with whether it counts as a delta; hangs and breaks where the script says so."""
        sent = 0
        if faults.hang_after == 0:
            await self._release.wait()
        async for chunk, counts in chunks:
            if faults.drop_after is not None and sent >= faults.drop_after and counts:
                break
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
            sent += counts
            if counts and sent == faults.hang_after:
                await self._release.wait()
        if faults.drop_after is not None:
            # The headers and the last delta may still be in the buffer, so close rather than abort; the client must
            # notice that the chunked body lacks its end.
            writer.close()
            raise _Dropped
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class _Dropped(Exception):
    """The script breaks the connection here."""


# --- HTTP/1.1 ----------------------------------------------------------------------------------------------------

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


async def _read_request(reader: asyncio.StreamReader, pushed_back: bytes) -> FakeRequest | None:
    try:
        head = pushed_back + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial or pushed_back:
            raise
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    body = msgspec.json.decode(content) if content else {}
    return FakeRequest(method, path, headers, body if isinstance(body, dict) else {})


def _start_chunked(writer: asyncio.StreamWriter, content_type: str, status: int) -> None:
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: {content_type}\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode("latin-1"))


async def _send(writer: asyncio.StreamWriter, failure: Failure) -> None:
    body = failure.body.encode() if isinstance(failure.body, str) else msgspec.json.encode(failure.body)
    lines = [
        f"HTTP/1.1 {failure.status} {_REASONS.get(failure.status, 'Error')}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in failure.headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    await writer.drain()


async def _paced(answer: Answer, chunks: Sequence[tuple[bytes, bool]]) -> AsyncIterator[tuple[bytes, bool]]:
    """Sends deltas at fixed times from the first one, so that a slow reader does not stretch the schedule."""
    pause = answer.interval_ms / 1000.0 if answer.deltas else answer.delay
    loop = asyncio.get_running_loop()
    start, number = loop.time(), 0
    for chunk, counts in chunks:
        if counts and pause:
            wait = start + number * pause - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
        if answer.deltas:
            chunk = chunk.replace(b"{now}", b"%d" % time.monotonic_ns()).replace(b"{number}", b"%d" % number)
        number += counts
        yield chunk, counts


# --- as a separate process ---------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m acp_agent.testing.fake_model SCRIPT.json [--port N]`; the last answer may say `"repeat": true`."""
    parser = argparse.ArgumentParser(
        prog="python -m acp_agent.testing.fake_model", description="A scripted model server."
    )
    parser.add_argument("script", type=Path, help="JSON file: a list of answers")
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    chosen = parser.parse_args(arguments)
    script = msgspec.json.decode(chosen.script.read_bytes(), type=list[Answer | str])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_forever(FakeModel(script), chosen.port))


async def _serve_forever(model: FakeModel, port: int) -> None:
    await model.start(port)
    sys.stdout.write(f"{model.base_url}\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await model.aclose()


if __name__ == "__main__":
    main()
