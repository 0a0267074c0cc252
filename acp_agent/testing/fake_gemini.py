"""Gemini's API as `FakeModel` speaks it: `POST .../models/MODEL:streamGenerateContent?alt=sse`, `:generateContent` and
`:countTokens`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from acp_agent.testing import fake_answers as fake

STREAMED, WHOLE, COUNTED = ":streamGenerateContent", ":generateContent", ":countTokens"
FINISHES = {"auto": "STOP", "stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
CHARS_PER_TOKEN = 4


class Gemini(fake.Wire):
    paths = (STREAMED,)

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        said = _said(answer, _model_of(request.path), number)
        # The official client takes U+2028 for the end of a line; the real server escapes it.
        return [(f"data: {json.dumps(each)}\r\n\r\n".encode(), counts) for each, counts in said]

    def told(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        if request.method != "POST" or not path.endswith(COUNTED):
            return None
        return fake.Failure(200, {"totalTokens": len(msgspec.json.encode(request.body)) // CHARS_PER_TOKEN})


class GeminiWhole(fake.Wire):
    """An answer that is not streamed."""

    paths = (WHOLE,)
    content_type = "application/json"

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        said = [each for each, _ in _said(answer, _model_of(request.path), number)]
        parts = [part for each in said for part in each["candidates"][0]["content"]["parts"]]
        content = {**said[-1]["candidates"][0], "content": {"role": "model", "parts": parts}}
        return [(msgspec.json.encode({**said[-1], "candidates": [content]}), False)]


def _model_of(path: str) -> str:
    return path.rpartition("/models/")[2].partition(":")[0]


def _said(answer: fake.Answer, model: str, number: int) -> list[tuple[dict[str, Any], bool]]:
    head = {"modelVersion": model, "responseId": f"gemini-{number}"}
    out: list[tuple[dict[str, Any], bool]] = []

    def add(*parts: dict[str, Any], counts: bool = True, finish: str | None = None) -> None:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        usage = {} if finish is None or answer.usage is None else {"usageMetadata": _usage(answer.usage)}
        out.append(({**head, "candidates": [candidate], **usage}, counts))

    for text in fake.pieces_of(answer.thought):
        add({"text": text, "thought": True})
    for text in (*fake.texts_of(answer), *fake.pieces_of(answer.refusal)):
        add({"text": text})
    for place, call in enumerate(answer.tool_calls):
        try:
            arguments = msgspec.json.decode(call.text)
        except msgspec.DecodeError:
            arguments = {}  # This API has no text of arguments that could be invalid.
        given = fake.call_id(call, number, place)
        function = {**({"id": given} if given is not None else {}), "name": call.name, "args": arguments}
        add({"functionCall": function, **({} if place else {"thoughtSignature": "c2ln"})})
    if answer.finish is not None:
        finish = "SAFETY" if answer.refusal else FINISHES.get(answer.finish, answer.finish)
        add(counts=False, finish=finish)
    return out or [({**head, "candidates": [{"content": {"role": "model", "parts": []}, "index": 0}]}, False)]


def _usage(usage: fake.Usage) -> dict[str, int]:
    """As the API counts: thoughts are not among the candidates' tokens."""
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
