"""`FakeModel`: a scripted endpoint of six wire APIs on the loopback interface, for tests over real sockets.

    async with FakeModel([Answer(text=("Hel", "lo")), Failure(429, {"error": {"message": "slow down"}})]) as model:
        provider = ChatProvider(ProviderOptions(name="fake", base_url=model.base_url))
        ...
        assert model.requests[0].body["messages"][-1]["content"] == "hi"

It serves `POST …/chat/completions`, `POST …/responses`, `POST …/messages` (and Vertex AI's form of it), Ollama's
`POST /api/chat`, Amazon's `POST …/converse-stream` and Gemini's `POST …:streamGenerateContent`, all streamed, and the
lists of models, and it can misbehave in every way seen in real servers: see `Answer`, `Call`, `Failure` and
`RawAnswer`. The same script works with each API.
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
from typing import Any
from urllib.parse import unquote

import msgspec

from acp_agent.testing import fake_converse, fake_gemini, fake_ollama
from acp_agent.testing.fake_answers import (
    Answer,
    Call,
    Failure,
    FakeRequest,
    Faults,
    RawAnswer,
    Reply,
    Script,
    Usage,
    call_id,
    cut_up,
    event_data,
    pieces_of,
    texts_of,
)
from acp_agent.testing.fake_messages import PromptCache, message_chunks, refusal

__all__ = ["Answer", "Call", "Failure", "FakeModel", "FakeRequest", "RawAnswer", "Reply", "Script", "Usage"]

# --- the server --------------------------------------------------------------------------------------------------


class FakeModel:
    """A scripted model server, as an asynchronous context manager. The n-th model call gets the n-th reply.

    A script may also be a function of the request's JSON. When a list is exhausted, requests get status 500.
    """

    def __init__(
        self, script: Script = (), *, models: Sequence[str | dict[str, Any]] | Failure = ("fake-model",)
    ) -> None:
        self.requests: list[FakeRequest] = []
        """All model calls, in order of arrival, without `GET /models`."""
        self.models = models
        """The answer to `GET /models`; a `Failure` may have any status."""
        self.properties: dict[str, Any] | None = None
        """The answer to llama.cpp's `GET /props`; `None`: status 404."""
        self.shown: dict[str, Any] | Failure = fake_ollama.MODEL
        self.shows = 0
        """The answer to Ollama's `POST /api/show`."""
        self.cuts = False
        """Cut prompts of Ollama's API, as it does, and count what is left."""
        self.cache: PromptCache | None = None
        """Counts the input of Messages requests, instead of the answers' own `usage`."""
        self.strict = True
        """Refuse requests as the strictest server of each API does."""
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

    def _next_reply(self, request: FakeRequest, number: int) -> Reply:
        if callable(self._script):
            # The Converse API has the model in the path.
            named = {"model": unquote(request.path.split("/")[2])} if request.path.endswith(CONVERSE) else {}
            reply: Reply | str = self._script({**request.body, **named})
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
            if request.method == "GET" and path.endswith("/models"):
                models = self.models
                await _send(writer, models if isinstance(models, Failure) else Failure(200, _model_list(models)))
                continue
            if request.method == "GET" and path == "/api/tags":
                models = self.models
                listed = models if isinstance(models, Failure) else Failure(200, fake_ollama.tags(models))
                await _send(writer, listed)
                continue
            if request.method == "GET" and path == "/inference-profiles":
                models = self.models
                profiles = [] if isinstance(models, Failure) else [{"inferenceProfileId": name} for name in models]
                listed = Failure(200, {"inferenceProfileSummaries": profiles})
                await _send(writer, models if isinstance(models, Failure) else listed)
                continue
            if request.method == "POST" and path == "/api/show":
                shown = self.shown
                self.shows += 1
                await _send(writer, shown if isinstance(shown, Failure) else Failure(200, shown))
                continue
            if request.method == "GET" and path == "/props" and self.properties is not None:
                await _send(writer, Failure(200, self.properties))
                continue
            if request.method == "POST" and path.endswith(fake_gemini.COUNTED):
                await _send(writer, Failure(200, fake_gemini.count(request.body)))
                continue
            if request.method != "POST" or not path.endswith(PATHS):
                words = f"FakeModel does not serve {request.method} {request.path}"
                await _send(writer, Failure(404, {"error": {"message": words, "type": "invalid_request_error"}}))
                continue
            async with self._arrived:
                self.requests.append(request)
                number = len(self.requests)
                self._arrived.notify_all()
            said = request.body.get("input", ()) if path.endswith("/responses") and self.strict else ()
            untyped = not isinstance(said, str) and any(map(_is_untyped, said))  # A text is one message of the user.
            wrong = refusal(request.body, request.headers) if path.endswith("/messages") and self.strict else None
            if path == "/api/chat" and self.cuts:
                wrong = fake_ollama.too_long(request.body)
            self._refused += wrong is not None
            reply = UNTYPED if untyped else wrong or self._next_reply(request, number - self._refused)
            answering = asyncio.ensure_future(self._answer(writer, request, reply, number))
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

    async def _answer(self, writer: asyncio.StreamWriter, request: FakeRequest, reply: Reply, number: int) -> None:
        if isinstance(reply, Failure):
            await _send(writer, reply)
            return
        if isinstance(reply, RawAnswer):
            _start_chunked(writer, reply.content_type, reply.status)
            await self._send_chunks(writer, _each(reply.chunks), reply)
            return
        if reply.hang_before:
            await self._release.wait()
        path = request.path.partition("?")[0]
        if path.endswith(fake_gemini.WHOLE):
            await _send(writer, Failure(200, fake_gemini.whole(reply, fake_gemini.model_of(path), number)))
            return
        model = str(request.body.get("model", "fake-model"))
        if request.path == "/api/chat":
            _start_chunked(writer, "application/x-ndjson", 200)
            chunks = fake_ollama.lines(reply, request.body, number, cuts=self.cuts)
            await self._send_chunks(writer, _paced(reply, chunks), reply)
            return
        if request.path.endswith(CONVERSE):
            _start_chunked(writer, "application/vnd.amazon.eventstream", 200)
            chunks = fake_converse.events(message_chunks(reply, model, number, None))
            await self._send_chunks(writer, _paced(reply, chunks), reply)
            return
        _start_chunked(writer, "text/event-stream", 200)
        if "chat/completions" in request.path:
            options = request.body.get("stream_options") or {}
            chunks = _chat_chunks(reply, model, number, include_usage=bool(options.get("include_usage")))
        elif path.endswith(fake_gemini.STREAMED):
            chunks = fake_gemini.chunks(reply, fake_gemini.model_of(path), number)
        elif path.endswith(("/messages", ":streamRawPredict")):
            counted = self.cache.count(request.body) if self.cache is not None else None
            chunks = message_chunks(reply, model, number, counted)
        else:
            chunks = _response_chunks(reply, model, number)
        await self._send_chunks(writer, _paced(reply, chunks), reply)

    async def _send_chunks(
        self, writer: asyncio.StreamWriter, chunks: AsyncIterator[tuple[bytes, bool]], faults: Faults
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


async def _each(chunks: Sequence[bytes]) -> AsyncIterator[tuple[bytes, bool]]:
    for chunk in chunks:
        yield chunk, True


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


def _model_list(models: Sequence[str | dict[str, Any]]) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    for model in models:
        own = {"id": model} if isinstance(model, str) else model
        entries.append({"object": "model", "created": 0, "owned_by": "fake", **own})
    return {"object": "list", "data": entries}


# --- chat completions on the wire --------------------------------------------------------------------------------


CONVERSE = "/converse-stream"
PATHS = ("/chat/completions", "/responses", "/messages", ":streamRawPredict", "/api/chat", CONVERSE, *fake_gemini.PATHS)

UNTYPED = Failure(400, {"error": {"code": 400, "message": "Cannot determine type of 'item'"}})
"""llama.cpp, where OpenAI's own server accepts the short form."""


def _is_untyped(item: dict[str, Any]) -> bool:
    return "type" not in item and item.get("role") == "assistant"


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _chat_chunks(answer: Answer, model: str, number: int, *, include_usage: bool) -> list[tuple[bytes, bool]]:
    out: list[tuple[bytes, bool]] = []
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}

    def add(delta: dict[str, Any], *, finish: str | None = None, counts: bool = True) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        out.append((event_data({**head, "choices": [choice]}), counts))

    add({"role": "assistant", "content": ""}, counts=False)
    thoughts = pieces_of(answer.thought)
    if thoughts and answer.thought_as == "think":
        for text in ("<think>", *thoughts, "</think>\n\n"):
            add({"content": text})
    else:
        for text in thoughts:
            add({answer.thought_as: text})
    for text in texts_of(answer):
        add({"content": text})
    if answer.refusal:
        add({"refusal": answer.refusal})
    for position, call in enumerate(answer.tool_calls):
        for delta in _chat_call(call, number, position):
            add({"tool_calls": [delta]})
    finish = answer.finish
    if finish == "auto":
        finish = "tool_calls" if answer.tool_calls else "stop"
    if finish is not None:
        add({}, finish=finish, counts=False)
    if answer.usage is not None and include_usage:
        out.append((event_data({**head, "choices": [], "usage": _chat_usage(answer.usage)}), False))
    if answer.done:
        out.append((b"data: [DONE]\n\n", False))
    return out


def _chat_call(call: Call, number: int, position: int) -> list[dict[str, Any]]:
    index = position if call.index == "auto" else call.index
    place: dict[str, Any] = {} if index is None else {"index": index}
    given = call_id(call, number, position)
    first: dict[str, Any] = {**place, "type": "function"}
    if given is not None:
        first["id"] = given
    if call.as_object:
        arguments: Any = call.arguments if isinstance(call.arguments, dict) else msgspec.json.decode(call.arguments)
        return [{**first, "function": {"name": call.name, "arguments": arguments}}]
    if call.pieces <= 1:
        return [{**first, "function": {"name": call.name, "arguments": call.text}}]
    fragments = [{**place, "function": {"arguments": piece}} for piece in cut_up(call.text, call.pieces)]
    return [{**first, "function": {"name": call.name, "arguments": ""}}, *fragments]


# --- the Responses API on the wire -------------------------------------------------------------------------------


def _message_item(answer: Answer, number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if texts := texts_of(answer):
        content.append({"type": "output_text", "text": "".join(texts), "annotations": [], "logprobs": []})
    if answer.refusal:
        content.append({"type": "refusal", "refusal": answer.refusal})
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _reasoning_item(answer: Answer, number: int) -> dict[str, Any]:
    summary = "".join(pieces_of(answer.thought))
    item: dict[str, Any] = {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": summary}] if summary else [],
    }
    if answer.encrypted:
        item["encrypted_content"] = answer.encrypted
    return item


def _call_item(call: Call, number: int, position: int) -> dict[str, Any]:
    return {
        "id": f"fc_{number}_{position}",
        "type": "function_call",
        "call_id": call_id(call, number, position),
        "name": call.name,
        "arguments": call.text,
        "status": "completed",
    }


def _output(answer: Answer, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thought or answer.encrypted:
        items.append(_reasoning_item(answer, number))
    if texts_of(answer) or answer.refusal:
        items.append(_message_item(answer, number))
    items.extend(_call_item(call, number, position) for position, call in enumerate(answer.tool_calls))
    return items


def _response(answer: Answer, model: str, number: int, status: str) -> dict[str, Any]:
    """A response object, without output and usage while `status` is "in_progress"."""
    over = status != "in_progress"
    usage = answer.usage if over else None
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reasons[answer.finish or ""]} if status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": _output(answer, number) if over else [],
        "parallel_tool_calls": True,
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None
        if usage is None
        else {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


class _Events:
    """The numbered events of one streamed response."""

    def __init__(self) -> None:
        self.out: list[tuple[bytes, bool]] = []

    def add(self, kind: str, *, counts: bool = False, **fields: object) -> None:
        event = {"type": kind, "sequence_number": len(self.out), **fields}
        self.out.append((f"event: {kind}\n".encode() + event_data(event), counts))


def _response_chunks(answer: Answer, model: str, number: int) -> list[tuple[bytes, bool]]:
    events = _Events()
    events.add("response.created", response=_response(answer, model, number, "in_progress"))
    events.add("response.in_progress", response=_response(answer, model, number, "in_progress"))
    calls = iter(answer.tool_calls)
    for position, item in enumerate(_output(answer, number)):
        begun = {**item, "content": []} if item["type"] == "message" else {**item}
        if item["type"] == "function_call":
            begun["arguments"] = ""
        if "status" in item:
            begun["status"] = "in_progress"
        if item["type"] == "reasoning":
            begun = {"id": item["id"], "type": "reasoning", "summary": []}
        events.add("response.output_item.added", output_index=position, item=begun)
        place = {"item_id": item["id"], "output_index": position}
        if item["type"] == "reasoning" and item["summary"]:
            _summary_events(events, place, pieces_of(answer.thought))
        elif item["type"] == "message":
            _content_events(events, place, item, answer)
        elif item["type"] == "function_call":
            call = next(calls)
            for piece in cut_up(call.text, call.pieces):
                events.add("response.function_call_arguments.delta", counts=True, **place, delta=piece)
            done = {**place, "name": item["name"], "arguments": item["arguments"]}
            events.add("response.function_call_arguments.done", **done)
        events.add("response.output_item.done", output_index=position, item=item)
    if answer.finish in ("length", "content_filter"):
        events.add("response.incomplete", response=_response(answer, model, number, "incomplete"))
    elif answer.finish is not None:
        events.add("response.completed", response=_response(answer, model, number, "completed"))
    return events.out


def _summary_events(events: _Events, place: dict[str, Any], thoughts: tuple[str, ...]) -> None:
    part = {**place, "summary_index": 0}
    whole = {"type": "summary_text", "text": "".join(thoughts)}
    events.add("response.reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""})
    for thought in thoughts:
        events.add("response.reasoning_summary_text.delta", counts=True, **part, delta=thought)
    events.add("response.reasoning_summary_text.done", **part, text=whole["text"])
    events.add("response.reasoning_summary_part.done", **part, part=whole)


def _content_events(events: _Events, place: dict[str, Any], item: dict[str, Any], answer: Answer) -> None:
    for content_index, content in enumerate(item["content"]):
        part = {**place, "content_index": content_index}
        if content["type"] == "output_text":
            events.add("response.content_part.added", **part, part={**content, "text": ""})
            for text in texts_of(answer):
                events.add("response.output_text.delta", counts=True, **part, delta=text, logprobs=[])
            events.add("response.output_text.done", **part, text=content["text"], logprobs=[])
        else:
            events.add("response.content_part.added", **part, part={**content, "refusal": ""})
            events.add("response.refusal.delta", counts=True, **part, delta=content["refusal"])
            events.add("response.refusal.done", **part, refusal=content["refusal"])
        events.add("response.content_part.done", **part, part=content)


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
