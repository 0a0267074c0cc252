"""Amazon's Converse API as `FakeModel` speaks it: the events of the Messages API in its words, in a binary stream."""

from __future__ import annotations

import struct
import zlib
from typing import Any
from urllib.parse import unquote

import msgspec

from acp_agent.testing import fake_answers as fake
from acp_agent.testing.fake_messages import message_chunks

STOPS = {"refusal": "content_filtered"}


class Converse(fake.Wire):
    paths = ("/converse-stream",)
    lists = "/inference-profiles"
    content_type = "application/vnd.amazon.eventstream"
    untold = frozenset({"reasoning_tokens"})
    explains = False
    seals = True

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        return _events(message_chunks(answer, request.model, number, None))

    def listed(self, models: fake.Models) -> Any:
        return {"inferenceProfileSummaries": [{"inferenceProfileId": name} for name in models]}

    def body(self, request: fake.FakeRequest) -> dict[str, Any]:
        """The model is in the path."""
        return {**request.body, "model": unquote(request.path.split("/")[2])}


def _events(chunks: fake.Chunks) -> fake.Chunks:
    """The answer that `fake_messages.message_chunks` made, each event as a message of the stream."""
    out: fake.Chunks = []
    number = 0
    for chunk, counts in chunks:
        data = msgspec.json.decode(chunk.partition(b"data: ")[2].replace(b"{number}", b"%d" % number))
        number += counts
        out += [(message(kind, said), counts) for kind, said in _translated(data)]
    return out


def _translated(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    place = {"contentBlockIndex": data.get("index")}
    match data["type"]:
        case "message_start":
            return [("messageStart", {"role": "assistant"})]
        case "content_block_start":
            block = data["content_block"]
            if block["type"] == "tool_use":
                use = {"toolUseId": block["id"], "name": block["name"]}
                return [("contentBlockStart", {**place, "start": {"toolUse": use}})]
            if block["type"] == "redacted_thinking":
                delta = {"reasoningContent": {"redactedContent": block["data"]}}
                return [("contentBlockDelta", {**place, "delta": delta})]
            return []
        case "content_block_delta":
            return [("contentBlockDelta", {**place, "delta": _delta(data["delta"])})]
        case "content_block_stop":
            return [("contentBlockStop", place)]
        case "message_delta":
            usage, reason = data["usage"] or {}, data["delta"]["stop_reason"]
            told = {
                "inputTokens": usage.get("input_tokens", 0),
                "outputTokens": usage.get("output_tokens", 0),
                "totalTokens": usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
                "cacheReadInputTokens": usage.get("cache_read_input_tokens", 0),
                "cacheWriteInputTokens": usage.get("cache_creation_input_tokens", 0),
            }
            stop = ("messageStop", {"stopReason": STOPS.get(reason, reason)})
            metadata = {"usage": told, "metrics": {"latencyMs": 1}}
            return [stop, ("metadata", metadata)] if usage else [stop]
    return []


def _delta(delta: dict[str, Any]) -> dict[str, Any]:
    match delta["type"]:
        case "text_delta":
            return {"text": delta["text"]}
        case "thinking_delta":
            return {"reasoningContent": {"text": delta["thinking"]}}
        case "signature_delta":
            return {"reasoningContent": {"signature": delta["signature"]}}
    return {"toolUse": {"input": delta["partial_json"]}}


def message(kind: str, said: dict[str, Any], *, exception: bool = False) -> bytes:
    """A message of `application/vnd.amazon.eventstream`: lengths, checksum, headers, payload, checksum."""
    names = {
        ":exception-type" if exception else ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception" if exception else "event",
    }
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in names.items()
    )
    payload = msgspec.json.encode(said)
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    begun = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return begun + struct.pack("!I", zlib.crc32(begun))
