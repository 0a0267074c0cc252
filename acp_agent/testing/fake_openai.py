"""OpenAI's two APIs as `FakeModel` speaks them: Chat Completions, which most servers have, and Responses."""

from __future__ import annotations

from typing import Any

import msgspec

from acp_agent.testing import fake_answers as fake

UNTYPED = fake.Failure(400, {"error": {"code": 400, "message": "Cannot determine type of 'item'"}})
"""llama.cpp, where OpenAI's own server accepts the short form."""


# --- Chat Completions --------------------------------------------------------------------------------------------


class ChatCompletions(fake.Wire):
    paths = ("/chat/completions",)
    properties: dict[str, Any] | None = None
    """The answer to llama.cpp's `GET /props`; `None`: status 404."""

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        usage = answer.usage if (request.body.get("stream_options") or {}).get("include_usage") else None
        out: fake.Chunks = []
        head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": request.model}

        def add(delta: dict[str, Any], *, finish: str | None = None, counts: bool = True) -> None:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            out.append((fake.event_data({**head, "choices": [choice]}), counts))

        add({"role": "assistant", "content": ""}, counts=False)
        thoughts = fake.pieces_of(answer.thought)
        if thoughts and answer.thought_as == "think":
            for text in ("<think>", *thoughts, "</think>\n\n"):
                add({"content": text})
        else:
            for text in thoughts:
                add({answer.thought_as: text})
        for text in fake.texts_of(answer):
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
        if usage is not None:
            out.append((fake.event_data({**head, "choices": [], "usage": _chat_usage(usage)}), False))
        if answer.done:
            out.append((b"data: [DONE]\n\n", False))
        return out

    def told(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        asked = request.method == "GET" and path == "/props" and self.properties is not None
        return fake.Failure(200, self.properties) if asked else None


def _chat_usage(usage: fake.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _chat_call(call: fake.Call, number: int, position: int) -> list[dict[str, Any]]:
    index = position if call.index == "auto" else call.index
    at: dict[str, Any] = {} if index is None else {"index": index}
    given = fake.call_id(call, number, position)
    first: dict[str, Any] = {**at, "type": "function"}
    if given is not None:
        first["id"] = given
    if call.as_object:
        arguments: Any = call.arguments if isinstance(call.arguments, dict) else msgspec.json.decode(call.arguments)
        return [{**first, "function": {"name": call.name, "arguments": arguments}}]
    if call.pieces <= 1:
        return [{**first, "function": {"name": call.name, "arguments": call.text}}]
    fragments = [{**at, "function": {"arguments": piece}} for piece in fake.cut_up(call.text, call.pieces)]
    return [{**first, "function": {"name": call.name, "arguments": ""}}, *fragments]


# --- Responses ---------------------------------------------------------------------------------------------------


class Responses(fake.Wire):
    paths = ("/responses",)
    seals = True

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        events = _Events()
        events.add("response.created", response=_response(answer, request.model, number, "in_progress"))
        events.add("response.in_progress", response=_response(answer, request.model, number, "in_progress"))
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
            at = {"item_id": item["id"], "output_index": position}
            if item["type"] == "reasoning" and item["summary"]:
                _summary_events(events, at, fake.pieces_of(answer.thought))
            elif item["type"] == "message":
                _content_events(events, at, item, answer)
            elif item["type"] == "function_call":
                call = next(calls)
                for piece in fake.cut_up(call.text, call.pieces):
                    events.add("response.function_call_arguments.delta", counts=True, **at, delta=piece)
                done = {**at, "name": item["name"], "arguments": item["arguments"]}
                events.add("response.function_call_arguments.done", **done)
            events.add("response.output_item.done", output_index=position, item=item)
        if answer.finish in ("length", "content_filter"):
            events.add("response.incomplete", response=_response(answer, request.model, number, "incomplete"))
        elif answer.finish is not None:
            events.add("response.completed", response=_response(answer, request.model, number, "completed"))
        return events.out

    def refused(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        said = request.body.get("input", ()) if self.strict else ()
        items = () if isinstance(said, str) else said  # A text is one message of the user.
        return UNTYPED if any("type" not in each and each.get("role") == "assistant" for each in items) else None


def _message_item(answer: fake.Answer, number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if texts := fake.texts_of(answer):
        content.append({"type": "output_text", "text": "".join(texts), "annotations": [], "logprobs": []})
    if answer.refusal:
        content.append({"type": "refusal", "refusal": answer.refusal})
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": content}


def _reasoning_item(answer: fake.Answer, number: int) -> dict[str, Any]:
    text = "".join(fake.pieces_of(answer.thought))
    summary = [{"type": "summary_text", "text": text}] if text else []
    sealed = {"encrypted_content": answer.encrypted} if answer.encrypted else {}
    return {"id": f"rs_{number}", "type": "reasoning", "summary": summary, **sealed}


def _call_item(call: fake.Call, number: int, position: int) -> dict[str, Any]:
    given = {"call_id": fake.call_id(call, number, position), "name": call.name, "arguments": call.text}
    return {"id": f"fc_{number}_{position}", "type": "function_call", **given, "status": "completed"}


def _output(answer: fake.Answer, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thought or answer.encrypted:
        items.append(_reasoning_item(answer, number))
    if fake.texts_of(answer) or answer.refusal:
        items.append(_message_item(answer, number))
    items.extend(_call_item(call, number, position) for position, call in enumerate(answer.tool_calls))
    return items


def _response(answer: fake.Answer, model: str, number: int, status: str) -> dict[str, Any]:
    """A response object, without output and usage while `status` is "in_progress"."""
    over = status != "in_progress"
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
        "usage": None if answer.usage is None or not over else _usage(answer.usage),
    }


def _usage(usage: fake.Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


class _Events:
    """The numbered events of one streamed response."""

    def __init__(self) -> None:
        self.out: fake.Chunks = []

    def add(self, kind: str, *, counts: bool = False, **fields: object) -> None:
        event = {"type": kind, "sequence_number": len(self.out), **fields}
        self.out.append((f"event: {kind}\n".encode() + fake.event_data(event), counts))


def _summary_events(events: _Events, at: dict[str, Any], thoughts: tuple[str, ...]) -> None:
    part = {**at, "summary_index": 0}
    whole = {"type": "summary_text", "text": "".join(thoughts)}
    events.add("response.reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""})
    for thought in thoughts:
        events.add("response.reasoning_summary_text.delta", counts=True, **part, delta=thought)
    events.add("response.reasoning_summary_text.done", **part, text=whole["text"])
    events.add("response.reasoning_summary_part.done", **part, part=whole)


def _content_events(events: _Events, at: dict[str, Any], item: dict[str, Any], answer: fake.Answer) -> None:
    for content_index, content in enumerate(item["content"]):
        part = {**at, "content_index": content_index}
        if content["type"] == "output_text":
            events.add("response.content_part.added", **part, part={**content, "text": ""})
            for text in fake.texts_of(answer):
                events.add("response.output_text.delta", counts=True, **part, delta=text, logprobs=[])
            events.add("response.output_text.done", **part, text=content["text"], logprobs=[])
        else:
            events.add("response.content_part.added", **part, part={**content, "refusal": ""})
            events.add("response.refusal.delta", counts=True, **part, delta=content["refusal"])
            events.add("response.refusal.done", **part, refusal=content["refusal"])
        events.add("response.content_part.done", **part, part=content)
