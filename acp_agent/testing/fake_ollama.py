"""Ollama's own API as `FakeModel` speaks it: its lines, what it says of a model, and how it cuts prompts."""

from __future__ import annotations

from typing import Any

import msgspec

from acp_agent.testing import fake_answers as fake

DEFAULT_WINDOW = 4096
"""Tokens without `num_ctx`."""
CHARS_PER_TOKEN = 4

MODEL: dict[str, Any] = {
    "capabilities": ["completion", "tools", "thinking", "vision"],
    "parameters": 'stop "<|im_end|>"',
    "details": {"family": "fake", "parameter_size": "8B"},
    "model_info": {"general.architecture": "fake", "fake.context_length": 40960},
}
"""The answer to `/api/show`."""


class Ollama(fake.Wire):
    paths = ("/api/chat",)
    lists = "/api/tags"
    content_type = "application/x-ndjson"
    untold = frozenset({"cached_tokens", "reasoning_tokens"})
    refuses = False
    shown: dict[str, Any] | fake.Failure = MODEL
    """The answer to `POST /api/show`."""
    shows = 0
    """How often that was asked."""
    cuts = False
    """Cut prompts, as it does, and count what is left."""

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        body = request.body
        head = {"model": body.get("model"), "created_at": "2026-01-01T00:00:00Z"}
        out: fake.Chunks = []

        def add(said: dict[str, Any], *, counts: bool = True, **more: Any) -> None:
            line = {**head, "message": {"role": "assistant", "content": "", **said}, "done": False, **more}
            out.append((msgspec.json.encode(line) + b"\n", counts))

        for text in fake.pieces_of(answer.thought):
            add({"thinking": text})
        for text in fake.texts_of(answer):
            add({"content": text})
        for text in fake.pieces_of(answer.refusal):
            add({"content": text})
        for position, call in enumerate(answer.tool_calls):
            given = fake.call_id(call, number, position)
            try:
                arguments = msgspec.json.decode(call.text)
            except msgspec.DecodeError:
                arguments = call.text
            function = {"index": position, "name": call.name, "arguments": arguments}
            add({"tool_calls": [{**({"id": given} if given is not None else {}), "function": function}]})
        usage = fake.Usage(min(_sizes(body)), 5) if self.cuts else answer.usage
        counted = {} if usage is None else {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
        if answer.finish is not None and answer.done:
            reason = "length" if answer.finish == "length" else "stop"
            add({}, counts=False, done=True, done_reason=reason, total_duration=1, **counted)
        return out

    def listed(self, models: fake.Models) -> Any:
        names = [model if isinstance(model, str) else model["id"] for model in models]
        return {"models": [{"name": name, "model": name, "size": 1, "details": MODEL["details"]} for name in names]}

    def told(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        if request.method != "POST" or path != "/api/show":
            return None
        self.shows += 1
        return self.shown if isinstance(self.shown, fake.Failure) else fake.Failure(200, self.shown)

    def refused(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        """A newer server's refusal of what it was asked not to cut."""
        sent, window = _sizes(request.body)
        if self.cuts and request.body.get("truncate") is False and sent > window:
            return fake.Failure(400, {"error": "the input length exceeds the context length"})
        return None


def _sizes(body: dict[str, Any]) -> tuple[int, int]:
    """Tokens of a request, and of the window that it asks for."""
    said = msgspec.json.encode([body.get("messages"), body.get("tools")])
    return len(said) // CHARS_PER_TOKEN, int(body.get("options", {}).get("num_ctx") or DEFAULT_WINDOW)
