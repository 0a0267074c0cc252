"""`OllamaProvider`: Ollama's own API. Its `/v1` takes neither the size of the context nor a switch for thinking, and
cuts longer prompts without a word.

The size is set with each request (the model is loaded anew when it changes, so it is always the same): what the
configuration says, or the model's own file, else the most the model was trained for, up to `OWN_WINDOW`.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ProviderError
from acp_agent.limits.decoding import read_json
from acp_agent.llm import base as llm
from acp_agent.llm.chat_answer import LONGEST_CALLS, PER_FRAGMENT, lenient
from acp_agent.llm.chat_request import encode_json
from acp_agent.llm.choose import complete_base_url, key_headers
from acp_agent.llm.provider_errors import ErrorInAnswer, error_from_object
from acp_agent.llm.streamed_text import SurrogateJoiner, ThinkSplitter, clean
from acp_agent.llm.translate import arguments_object, tool_name
from acp_agent.llm.transport.http_provider import Exchange, HttpProvider
from acp_agent.llm.transport.sse import EventTooLong

OWN_WINDOW = 32_768
"""Tokens of context if nothing else is set: enough for an agent, and no more memory than most machines have."""

LEAST_WINDOW = 256
"""Tokens of context below which what the server says of a model is an error."""

LEFT_OUT = "[A {} was left out: Ollama does not take it.]"

_EFFORTS = re.compile(r"gpt-oss")
"""Models whose thinking has levels; for the others it is on or off."""


class _Model(Struct, frozen=True):
    """What `/api/show` says of a model."""

    window: int | None = None
    """Tokens that are asked for with each request."""
    able: tuple[str, ...] | None = None
    """`completion`, `tools`, `thinking`, `vision`; `None`: an older server."""

    def info(self, name: str) -> llm.ModelInfo:
        able = self.able
        if able is None:
            return llm.ModelInfo(name, self.window)
        return llm.ModelInfo(name, self.window, ("image",) if "vision" in able else (), "tools" in able)


class OllamaProvider(HttpProvider):
    """An Ollama server."""

    path = "/api/chat"
    models_path = "/api/tags"

    def __init__(self, options: ProviderOptions) -> None:
        base_url = complete_base_url(options.base_url or "http://127.0.0.1:11434").removesuffix("/v1")
        super().__init__(options, base_url, key_headers(base_url, options.api_key))
        self._known: dict[str, _Model] = {}

    async def _attempt(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        await self._show(settings.model)
        async with aclosing(super()._attempt(messages, tools, settings)) as events:
            async for event in events:
                yield event

    async def models(self) -> list[llm.ModelInfo]:
        """Returns the configured models, else those that were pulled, without those that only embed."""
        listed, configured = list(self._options.models), bool(self._options.models)
        if not configured:
            body = await self._json("GET", self.models_path)
            entries = body.get("models")
            if not isinstance(entries, list):
                raise error_from_object(self.label, "the list of models is malformed")
            listed = [str(entry["name"]) for entry in entries if isinstance(entry, dict) and "name" in entry]
        found: list[llm.ModelInfo] = []
        for name in listed:
            try:
                model = await self._show(name)
            except ProviderError:
                if not configured:
                    raise
                model = _Model(self._options.context_window or None)
            if model.able != ("embedding",):
                found.append(model.info(name))
        return found

    async def _show(self, name: str) -> _Model:
        """What the server says of a model; nothing if it does not know it, which the request itself will report. Raises
        `ProviderError`."""
        if name not in self._known:
            try:
                body = await self._json("POST", "/api/show", encode_json({"model": name}))
            except ProviderError as error:
                if error.kind not in ("not_found", "bad_request"):
                    raise
                return _Model(self._options.context_window or None)
            self._known[name] = self._read_model(body)
        return self._known[name]

    def _read_model(self, body: dict[str, Any]) -> _Model:
        about, parameters, able = body.get("model_info"), body.get("parameters"), body.get("capabilities")
        trained = None
        if isinstance(about, dict):
            trained = about.get(f"{about.get('general.architecture')}.context_length")
        own = (
            re.search(r"^num_ctx\s+([1-9][0-9]{0,8})\s*$", parameters, re.MULTILINE)
            if isinstance(parameters, str)
            else None
        )
        most = trained if isinstance(trained, int) and trained >= LEAST_WINDOW else OWN_WINDOW
        window = self._options.context_window or (int(own[1]) if own else min(most, OWN_WINDOW))
        return _Model(window, tuple(map(str, able)) if isinstance(able, list) and able else None)

    async def _json(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        content = await self._ask(method, path, body)
        try:
            return read_json(content, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise error_from_object(self.label, f"the answer of {path} is malformed: {error}") from error

    def _exchange(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> Exchange:
        window = self._known.get(settings.model, _Model(self._options.context_window or None)).window
        sizes = {"num_ctx": window, "num_predict": settings.max_output_tokens}
        functions = [msgspec.to_builtins(tool) for tool in tools]
        body = {
            "model": settings.model,
            "messages": [*_system(settings.system), *(each for message in messages for each in _message(message))],
            **({"tools": [{"type": "function", "function": function} for function in functions]} if tools else {}),
            **_thinking(settings),
            "options": {name: value for name, value in sizes.items() if value},
            "keep_alive": self._options.keep_alive,
            # Newer servers refuse what is too long instead of cutting it.
            "truncate": False,
            "stream": True,
        }
        return Exchange(encode_json(body), OllamaAnswer(), lambda _: False)


# --- request -----------------------------------------------------------------------------------------------------


def _system(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": text}] if text else []


def _thinking(settings: llm.ModelSettings) -> dict[str, Any]:
    level = settings.thought_level
    if level is None:
        return {}
    if _EFFORTS.search(settings.model):
        return {"think": "low" if level == "off" else level}
    return {"think": level != "off"}


def _message(message: llm.Message) -> list[dict[str, Any]]:
    match message:
        case llm.UserMessage(content):
            return [{"role": "user", **_content(content)}]
        case llm.ToolMessage(call_id, name, content):
            said = {"role": "tool", "tool_name": tool_name(name), "tool_call_id": call_id, **_content(content)}
            return [{**said, "content": said["content"] or "(no output)"}]
        case llm.AssistantMessage(text, calls, thought):
            calling = [
                {
                    "id": call.id,
                    "function": {"name": tool_name(call.name), "arguments": arguments_object(call.arguments)},
                }
                for call in calls
            ]
            out: dict[str, Any] = {"role": "assistant", "content": text}
            # The thought belongs to the calls that follow from it; templates drop those of earlier turns.
            return [{**out, **({"thinking": thought} if thought and calls else {}), "tool_calls": calling}]


def _content(parts: Sequence[llm.Part]) -> dict[str, Any]:
    texts, images = [], []
    for part in parts:
        match part:
            case llm.TextPart(text):
                texts.append(text)
            case llm.ImagePart(_, data):
                images.append(data)
            case _:
                texts.append(LEFT_OUT.format("PDF" if isinstance(part, llm.DocumentPart) else "recording"))
    return {"content": "\n".join(texts), **({"images": images} if images else {})}


# --- answer ------------------------------------------------------------------------------------------------------


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _Call(Struct):
    id: str | None = None
    function: _Function | None = None


class _Said(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(Struct):
    message: _Said | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Line).decode


class OllamaAnswer:
    """Folds one answer: `feed()` with each line, then `finish()` once. See `sse.FoldedAnswer`."""

    def __init__(self) -> None:
        self.done = False
        self._text, self._thought, self._think = SurrogateJoiner(), SurrogateJoiner(), ThinkSplitter()
        self._uses: list[llm.ToolUse] = []
        self._calls_size = 0
        self._last = _Line()

    @property
    def ended(self) -> bool:
        return self.done

    def feed(self, data: bytes) -> list[llm.ModelEvent]:
        """Raises `ErrorInAnswer` if the line is an error object or not JSON at all."""
        if self.done or not data.strip():
            return []
        try:
            line = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            line = lenient(data, _Line)
        if line.error:
            raise ErrorInAnswer({"error": line.error})
        events: list[llm.ModelEvent] = []
        if said := line.message:
            self._add(self._thought.feed(said.thinking or ""), said.content or "", events)
            for call in said.tool_calls or ():
                self._use(call)
        if line.done:
            self.done, self._last = True, line
        return events

    def _add(self, thought: str, content: str, events: list[llm.ModelEvent]) -> None:
        text = self._text.feed(content)
        if not self._think.settled and text:
            more, text = self._think.feed(text)
            thought += more
        if thought:
            events.append(llm.ThoughtDelta(thought))
        if text:
            events.append(llm.TextDelta(text))

    def _use(self, call: _Call) -> None:
        function = call.function or _Function()
        given = function.arguments
        arguments = given if isinstance(given, str) else encode_json({} if given is None else given).decode()
        self._calls_size += len(arguments) + PER_FRAGMENT
        if self._calls_size > LONGEST_CALLS:
            raise EventTooLong(f"the tool calls of one answer are longer than {LONGEST_CALLS} characters")
        known = {use.id for use in self._uses}
        own = clean(call.id or "")
        call_id = own if own and own not in known else f"call_{os.urandom(12).hex()}"
        if function.name or given:
            self._uses.append(llm.ToolUse(call_id, clean(function.name or ""), clean(arguments)))

    def finish(self) -> list[llm.ModelEvent]:
        """Returns what was held back, the tool calls, the usage, and `Finished`."""
        events: list[llm.ModelEvent] = []
        thought, text = self._think.finish()
        if thought := thought + self._thought.finish():
            events.append(llm.ThoughtDelta(thought))
        if text := text + self._text.finish():
            events.append(llm.TextDelta(text))
        events += self._uses
        if self._last.prompt_eval_count is not None or self._last.eval_count is not None:
            events.append(llm.UsageReport(self._last.prompt_eval_count or 0, self._last.eval_count or 0))
        reason: llm.FinishReason = "tool_calls" if self._uses else "stop"
        events.append(llm.Finished("length" if self._last.done_reason == "length" else reason))
        return events
