"""`BedrockProvider`: models on Amazon Bedrock by its Converse API (extra `bedrock`).

The request is that of the Messages API in other words, and so is the answer: `MessagesEncoder` and `MessagesAnswer`
have the rules (order of messages, ids, signed thoughts, breakpoints), this module the words. The stream is a binary
one, read by botocore; a request is signed with the credentials that botocore finds (environment, profile, SSO, role),
or carries a Bedrock API key.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_json
from acp_agent.llm import base as llm
from acp_agent.llm.choose import complete_base_url, key_headers
from acp_agent.llm.messages_answer import Block, Delta, Event, MessagesAnswer, Usage
from acp_agent.llm.messages_request import MessagesEncoder
from acp_agent.llm.provider_errors import ErrorInAnswer, complaint, error_from_object
from acp_agent.llm.transport.http_provider import Exchange, HttpProvider
from acp_agent.llm.transport.sse import BLANK, LONGEST_ANSWER, STREAM, AnswerReader, EventTooLong, FoldedAnswer, WebPage

MISSING = "Amazon Bedrock needs the package botocore: pip install 'acp-coder[bedrock]'"
NO_CREDENTIALS = (
    "no AWS credentials were found. Run `aws configure` or `aws sso login`, or set AWS_BEARER_TOKEN_BEDROCK."
)
SERVICE = "bedrock"

_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_IMAGE = re.compile(r"image/(\w+)")
_ODD_IN_TITLES = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")

STOPS = {"content_filtered": "refusal", "guardrail_intervened": "refusal"}
"""Stop reasons that the Messages API has under another name."""

ERRORS = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "validationException": "invalid_request_error",
}
"""Errors within a stream that the Messages API has under another name."""


class BedrockProvider(HttpProvider):
    """`options.base_url`: `https://bedrock-runtime.REGION.amazonaws.com`."""

    def __init__(self, options: ProviderOptions) -> None:
        if not options.base_url:
            raise ConfigError(f"{options.name}: set AWS_REGION, or the base URL.")
        base_url = complete_base_url(options.base_url).removesuffix("/v1")
        super().__init__(options, base_url, key := key_headers(base_url, options.api_key))
        found = _REGION.search(self._base_url)
        self._region = found[1] if found else "us-east-1"
        self._signs = not key and "authorization" not in {name.lower() for name in options.headers}
        self._encoder = MessagesEncoder()
        self._credentials: Any = None
        try:
            self._buffer = load("botocore.eventstream:EventStreamBuffer")
        except ImportError as error:
            raise ConfigError(f"{options.name}: {MISSING}") from error
        self.reader = partial(EventStreamReader, self._buffer)

    def _exchange(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> Exchange:
        manner = self._encoder.manner(settings.model)
        said = read_json(self._encoder.encode(messages, tools, settings))
        return Exchange(
            msgspec.json.encode(converse(said, settings)),
            ConverseAnswer(settings.model),
            partial(self._encoder.learn, settings.model, manner, messages),
            f"/model/{quote(settings.model, safe='')}/converse-stream",
        )

    async def _listed(self) -> list[llm.ModelInfo]:
        """The inference profiles of the account, by which newer models are called."""
        base = self._base_url.replace("//bedrock-runtime", "//bedrock", 1)
        content = await self._ask("GET", "/inference-profiles?maxResults=1000", base=base)
        try:
            listed = read_json(content)["inferenceProfileSummaries"]
            return [llm.ModelInfo(str(each["inferenceProfileId"])) for each in listed]
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            raise error_from_object(self.label, f"the list of inference profiles is malformed: {error!r}") from error

    async def _authorized(self, method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        if not self._signs:
            return {}
        return await anyio.to_thread.run_sync(self._signed, method, url, body, abandon_on_cancel=True)

    def _signed(self, method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        """The headers of AWS Signature Version 4. May read files, run a program, or ask the machine's own service."""
        failure = load("botocore.exceptions:BotoCoreError")
        try:
            if self._credentials is None:
                self._credentials = load("botocore.session:Session")().get_credentials()
            frozen = self._credentials.get_frozen_credentials() if self._credentials is not None else None
        except failure as error:
            raise ProviderError("auth", f"{self.name}: {error}. {NO_CREDENTIALS}") from error
        if frozen is None or not frozen.access_key:
            raise ProviderError("auth", f"{self.name}: {NO_CREDENTIALS}")
        request = load("botocore.awsrequest:AWSRequest")(method, url, data=body or b"")
        load("botocore.auth:SigV4Auth")(frozen, SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())


# --- request -----------------------------------------------------------------------------------------------------


def converse(said: Mapping[str, Any], settings: llm.ModelSettings) -> dict[str, Any]:
    """A body of the Messages API as one of the Converse API."""
    claude, nova = "claude" in settings.model, "amazon.nova" in settings.model
    cached = claude or nova
    body: dict[str, Any] = {
        "messages": [
            {"role": each["role"], "content": list(_blocks(each["content"], cached=cached, thoughts=claude))}
            for each in said["messages"]
        ]
    }
    if "system" in said:
        body["system"] = list(_blocks(said["system"], cached=cached, thoughts=False))
    if "tools" in said:
        tools = [_tool(tool) for tool in said["tools"]]
        body["toolConfig"] = {
            "tools": [*tools, *([CACHE_POINT] if claude and "cache_control" in said["tools"][-1] else [])]
        }
    if settings.max_output_tokens:
        body["inferenceConfig"] = {"maxTokens": said["max_tokens"]}
    if claude and (more := {name: said[name] for name in ("thinking", "output_config") if name in said}):
        body["additionalModelRequestFields"] = more
    return body


CACHE_POINT = {"cachePoint": {"type": "default"}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"json": tool["input_schema"]}
    return {
        "toolSpec": {"name": tool["name"], "description": tool["description"] or tool["name"], "inputSchema": schema}
    }


def _blocks(blocks: Sequence[Mapping[str, Any]], *, cached: bool, thoughts: bool) -> Iterator[dict[str, Any]]:
    for number, block in enumerate(blocks):
        if block["type"] not in ("thinking", "redacted_thinking") or thoughts:
            yield _block(block, str(number))
        if cached and "cache_control" in block:
            yield CACHE_POINT


def _block(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "image":
            kind = _IMAGE.match(block["source"]["media_type"])
            return {"image": {"format": kind[1] if kind else "png", "source": {"bytes": block["source"]["data"]}}}
        case "document":
            # Names have few characters, and no two in a message are alike.
            title = _ODD_IN_TITLES.sub(" ", block["title"]).strip()[:100] or "document"
            source = {"bytes": block["source"]["data"]}
            return {"document": {"format": "pdf", "name": f"{title} {place}", "source": source}}
        case "tool_use":
            return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
        case "tool_result":
            content = [_block(inner, f"{place}-{number}") for number, inner in enumerate(block["content"])]
            return {"toolResult": {"toolUseId": block["tool_use_id"], "content": content}}
        case "thinking":
            text = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": text}}
    return {"reasoningContent": {"redactedContent": block["data"]}}


# --- answer ------------------------------------------------------------------------------------------------------


class EventStreamReader:
    """Reads one answer from its bytes, in `application/vnd.amazon.eventstream`, or the JSON of an answer that was not
    streamed, or events as text, as proxies send them. Raises what `answer` raises, `WebPage`, `EventTooLong`."""

    def __init__(self, buffer: Any, answer: FoldedAnswer) -> None:
        self._answer = answer
        self._buffer = buffer()
        # What botocore's parser raises for headers that are none.
        self._broken = (load("botocore.eventstream:ParserError"), UnicodeDecodeError, KeyError, struct.error)
        self._document: bytearray | None = None
        self._text: AnswerReader | None = None
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[llm.ModelEvent]:
        if not self._begun and (start := chunk.lstrip(BLANK)):  # A message begins with its length, so with a zero.
            self._begun = True
            if start.startswith(b"<"):
                raise WebPage
            if start.startswith(b"{"):
                self._document = bytearray()
            if start[:1] in STREAM:  # Of a gateway, whatever its type is said to be.
                self._text = AnswerReader(self._answer)
        if self._text is not None:
            yield from self._text.feed(chunk)
            return
        if self._document is not None:
            self._document += chunk
            if len(self._document) > LONGEST_ANSWER:
                raise EventTooLong(f"the answer is longer than {LONGEST_ANSWER} bytes")
            return
        frames: list[Any] = []
        broken: Exception | None = None
        try:
            self._buffer.add_data(chunk)
            for event in self._buffer:
                frames.append(event)
        except self._broken as error:
            broken = error
        for frame in frames:
            yield from self._answer.feed(_named(frame))
        if broken is not None:
            raise ErrorInAnswer(f"the stream is malformed: {broken}") from broken

    def end(self) -> Iterator[llm.ModelEvent]:
        if self._text is not None:
            yield from self._text.end()
        for event in _streamed(bytes(self._document)) if self._document is not None else ():
            yield from self._answer.feed(event)


def _streamed(document: bytes) -> Iterator[bytes]:
    """The answer of `Converse` as the events of `ConverseStream`. Raises `ErrorInAnswer`."""
    try:
        whole = read_json(document.strip(BLANK))
        if "output" not in whole:
            raise ErrorInAnswer(complaint(document) or whole)
        events: list[tuple[str, dict[str, Any]]] = []
        for index, block in enumerate(whole["output"]["message"]["content"]):
            at, delta = {"contentBlockIndex": index}, block
            if (use := block.get("toolUse")) is not None:
                events.append(("contentBlockStart", {**at, "start": {"toolUse": {**use, "input": None}}}))
                delta = {"toolUse": {"input": msgspec.json.encode(use.get("input") or {}).decode()}}
            elif said := (block.get("reasoningContent") or {}).get("reasoningText"):
                delta = {"reasoningContent": said}
            events.append(("contentBlockDelta", {**at, "delta": delta}))
        events.append(("messageStop", {"stopReason": whole.get("stopReason")}))
        events.append(("metadata", {"usage": whole.get("usage")}))
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError) as error:
        raise ErrorInAnswer(f"the answer is malformed: {error!r}") from error
    yield from (msgspec.json.encode({kind: payload}) for kind, payload in events)


def _named(frame: Any) -> bytes:
    """A message of the stream as `{"TYPE": PAYLOAD}`. Raises `ErrorInAnswer` if it is an error without a payload."""
    headers = {name: str(value) for name, value in frame.headers.items()}
    if ":error-code" in headers:
        raise ErrorInAnswer({"error": {"type": headers[":error-code"], "message": headers.get(":error-message", "")}})
    kind = headers.get(":event-type") or headers.get(":exception-type") or ""
    return b"{%b:%b}" % (msgspec.json.encode(kind), frame.payload or b"{}")


class _Use(msgspec.Struct):
    toolUseId: str | None = None
    name: str | None = None
    input: str | None = None


class _Start(msgspec.Struct):
    toolUse: _Use | None = None


class _Thought(msgspec.Struct):
    text: str | None = None
    signature: str | None = None
    redactedContent: str | None = None


class _Delta(msgspec.Struct):
    text: str | None = None
    toolUse: _Use | None = None
    reasoningContent: _Thought | None = None


class _Counts(msgspec.Struct):
    inputTokens: int | None = None
    outputTokens: int | None = None
    cacheReadInputTokens: int | None = None
    cacheWriteInputTokens: int | None = None


class _Said(msgspec.Struct):
    """The payload of an event, of whatever type."""

    contentBlockIndex: int | None = None
    start: _Start | None = None
    delta: _Delta | None = None
    stopReason: str | None = None
    usage: _Counts | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(dict[str, _Said]).decode


class ConverseAnswer(MessagesAnswer):
    """Folds one answer; each event as `{"TYPE": PAYLOAD}`."""

    def feed(self, data: bytes) -> list[llm.ModelEvent]:
        """Raises `ErrorInAnswer`."""
        try:
            ((kind, said),) = _decode(data).items()
        except ValueError as error:  # Of msgspec, of UTF-8, of more than one event.
            raise ErrorInAnswer(f"the stream is malformed: {error}") from error
        index = said.contentBlockIndex
        match kind:
            case "contentBlockStart":
                use = said.start.toolUse if said.start else None
                block = Block("tool_use", id=use.toolUseId, name=use.name) if use else None
                return self.take(Event("content_block_start", index, block))
            case "contentBlockDelta":
                pieces = self._pieces(said.delta or _Delta())
                return [event for piece in pieces for event in self.take(msgspec.structs.replace(piece, index=index))]
            case "messageStop":
                reason = said.stopReason or ""
                return self.take(Event("message_delta", delta=Delta(stop_reason=STOPS.get(reason, reason))))
            case "metadata":
                told = said.usage
                usage = (
                    None
                    if told is None
                    else Usage(
                        told.inputTokens, told.outputTokens, told.cacheReadInputTokens, told.cacheWriteInputTokens
                    )
                )
                return [*self.take(Event("message_delta", usage=usage)), *self.take(Event("message_stop"))]
        if kind.endswith(("Exception", "Error")) or said.message:
            raise ErrorInAnswer({"error": {"type": ERRORS.get(kind, kind), "message": said.message or kind}})
        return []

    def _pieces(self, delta: _Delta) -> Iterator[Event]:
        """The same as events of the Messages API."""
        if delta.text is not None:
            yield Event("content_block_delta", delta=Delta("text_delta", text=delta.text))
        if delta.toolUse is not None:
            yield Event("content_block_delta", delta=Delta("input_json_delta", partial_json=delta.toolUse.input))
        thought = delta.reasoningContent or _Thought()
        if thought.redactedContent is not None:
            yield Event("content_block_start", content_block=Block("redacted_thinking", data=thought.redactedContent))
        if thought.text is not None:
            yield Event("content_block_delta", delta=Delta("thinking_delta", thinking=thought.text))
        if thought.signature is not None:
            yield Event("content_block_delta", delta=Delta("signature_delta", signature=thought.signature))
