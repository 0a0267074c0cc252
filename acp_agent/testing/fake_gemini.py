"""Gemini's API as `FakeModel` speaks it: `POST .../models/MODEL:streamGenerateContent?alt=sse`, `:generateContent` and
`:countTokens`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from acp_agent.testing.fake_answers import Answer, Usage, call_id, pieces_of, texts_of

STREAMED, WHOLE, COUNTED = ":streamGenerateContent", ":generateContent", ":countTokens"
PATHS = (STREAMED, WHOLE)
FINISHES = {"auto": "STOP", "stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
CHARS_PER_TOKEN = 4


def model_of(path: str) -> str:
    return path.rpartition("/models/")[2].partition(":")[0]


def count(body: dict[str, Any]) -> dict[str, Any]:
    """The answer to `:countTokens`."""
    return {"totalTokens": len(msgspec.json.encode(body)) // CHARS_PER_TOKEN}


def chunks(answer: Answer, model: str, number: int) -> list[tuple[bytes, bool]]:
    """The events of an answer, each with whether it counts as a delta."""
    # The official client takes U+2028 for the end of a line; the real server escapes it.
    return [(f"data: {json.dumps(said)}\r\n\r\n".encode(), counts) for said, counts in _said(answer, model, number)]


def whole(answer: Answer, model: str, number: int) -> dict[str, Any]:
    """The answer of a request that is not streamed."""
    said = [each for each, _ in _said(answer, model, number)]
    parts = [part for each in said for part in each["candidates"][0]["content"]["parts"]]
    last = said[-1]
    return {**last, "candidates": [{**last["candidates"][0], "content": {"role": "model", "parts": parts}}]}


def _said(answer: Answer, model: str, number: int) -> list[tuple[dict[str, Any], bool]]:
    head = {"modelVersion": model, "responseId": f"gemini-{number}"}
    out: list[tuple[dict[str, Any], bool]] = []

    def add(*parts: dict[str, Any], counts: bool = True, finish: str | None = None) -> None:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        usage = {} if finish is None or answer.usage is None else {"usageMetadata": _usage(answer.usage)}
        out.append(({**head, "candidates": [candidate], **usage}, counts))

    for text in pieces_of(answer.thought):
        add({"text": text, "thought": True})
    for text in (*texts_of(answer), *pieces_of(answer.refusal)):
        add({"text": text})
    for place, call in enumerate(answer.tool_calls):
        try:
            arguments = msgspec.json.decode(call.text)
        except msgspec.DecodeError:
            arguments = {}  # This API has no text of arguments that could be invalid.
        given = call_id(call, number, place)
        function = {**({"id": given} if given is not None else {}), "name": call.name, "args": arguments}
        add({"functionCall": function, **({} if place else {"thoughtSignature": "c2ln"})})
    if answer.finish is not None:
        finish = "SAFETY" if answer.refusal else FINISHES.get(answer.finish, answer.finish)
        add(counts=False, finish=finish)
    return out or [({**head, "candidates": [{"content": {"role": "model", "parts": []}, "index": 0}]}, False)]


def _usage(usage: Usage) -> dict[str, int]:
    """As the API counts: thoughts are not among the candidates' tokens."""
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
