"""`ResponsesProvider`: OpenAI's Responses API.

Supported servers: api.openai.com; Azure OpenAI under its `/openai/v1` base URL (a bare resource URL is completed; the
key is sent as `api-key`, too); any other server with the Responses API, at an explicit base URL. Azure's dated
`api-version` URLs are not supported: use the `/openai/v1` ones.

Nothing is stored on the server (`store=False`), so reasoning items come back encrypted and are returned unchanged with
the next request: `AssistantMessage.opaque` holds them. Items from another provider are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.config.model import ProviderOptions
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm import base as llm
from acp_agent.llm import choose
from acp_agent.llm.chat_answer import LONGEST_CALLS, PER_FRAGMENT, event_of
from acp_agent.llm.chat_request import CACHED_MESSAGES, encode_json
from acp_agent.llm.provider_errors import ErrorInAnswer
from acp_agent.llm.streamed_text import SurrogateJoiner, clean
from acp_agent.llm.translate import RESPONSES_ID, call_id, returned, signed, tool_name
from acp_agent.llm.transport.http_provider import Exchange, HttpProvider
from acp_agent.llm.transport.sse import EventTooLong

_LEAST_OUTPUT_TOKENS = 16


class ResponsesProvider(HttpProvider):
    """OpenAI, Azure OpenAI, and other servers with this API."""

    path = "/responses"

    def __init__(self, options: ProviderOptions) -> None:
        base_url = choose.complete_base_url(options.base_url)
        super().__init__(options, base_url, choose.key_headers(base_url, options.api_key))
        self._origin = choose.host_of(base_url)
        self._on_openai = choose.choose_api(options.base_url) == "responses"
        self._cache: dict[int, tuple[llm.Message, bytes]] = {}
        """The items of each message, by its identity. The message is kept so that its identity is not reused."""

    def _exchange(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> Exchange:
        body = _settings(settings, on_openai=self._on_openai)
        items = b",".join(filter(None, (self._encoded(message) for message in messages)))
        body["input"] = msgspec.Raw(b"[%b]" % items)
        if tools:
            body["tools"] = [_tool(tool) for tool in tools]
        return Exchange(encode_json(body), ResponsesAnswer(self._origin), lambda _: False)

    def _encoded(self, message: llm.Message) -> bytes:
        found = self._cache.get(id(message))
        if found is not None and found[0] is message:
            return found[1]
        while len(self._cache) >= CACHED_MESSAGES:
            del self._cache[next(iter(self._cache))]
        encoded = encode_json(_items(message, self._origin))[1:-1]
        self._cache[id(message)] = message, encoded
        return encoded


# --- the request -------------------------------------------------------------------------------------------------


def _settings(settings: llm.ModelSettings, *, on_openai: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": settings.model, "stream": True, "store": False}
    if settings.system:
        body["instructions"] = clean(settings.system)
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = max(_LEAST_OUTPUT_TOKENS, settings.max_output_tokens)
    if settings.cache_key:
        body["prompt_cache_key"] = settings.cache_key
    if settings.fast:
        body["service_tier"] = "priority"
    effort = choose.reasoning_effort(settings.model, settings.thought_level, openai=on_openai)
    if settings.thought_level not in (None, "off") or choose.is_reasoning_model(settings.model):
        body["include"] = ["reasoning.encrypted_content"]
        body["reasoning"] = {"summary": "auto", **({"effort": effort} if effort is not None else {})}
    return body


def _tool(tool: llm.ToolDefinition) -> dict[str, Any]:
    # Strict mode requires every property to be required, which our schemas do not guarantee.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _items(message: llm.Message, origin: str) -> list[dict[str, Any]]:
    if isinstance(message, llm.UserMessage):
        return [{"role": "user", "content": [_part(part) for part in message.content]}]
    if isinstance(message, llm.ToolMessage):
        use = call_id(message.call_id, RESPONSES_ID)
        return [{"type": "function_call_output", "call_id": use, "output": _output(message)}]
    return _assistant_items(message, origin)


def _assistant_items(message: llm.AssistantMessage, origin: str) -> list[dict[str, Any]]:
    items = returned(message, origin, "reasoning")
    if message.text.strip():
        # With its type: llama.cpp does not know the short form, which OpenAI's own server takes.
        said = {"type": "output_text", "text": clean(message.text)}
        items.append({"type": "message", "role": "assistant", "content": [said]})
    for call in message.tool_calls:
        arguments = clean(call.arguments) if call.arguments.strip() else "{}"
        use, name = call_id(call.id, RESPONSES_ID), tool_name(call.name)
        items.append({"type": "function_call", "call_id": use, "name": name, "arguments": arguments})
    return items


def _output(message: llm.ToolMessage) -> str | list[dict[str, str]]:
    if all(isinstance(part, llm.TextPart) for part in message.content):
        return (
            clean("\n".join(part.text for part in message.content if isinstance(part, llm.TextPart))) or "(no output)"
        )
    return [_part(part) for part in message.content]


def _part(part: llm.Part) -> dict[str, str]:
    if isinstance(part, llm.TextPart):
        return {"type": "input_text", "text": clean(part.text)}
    if isinstance(part, llm.ImagePart):
        return {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{part.data}", "detail": "auto"}
    if isinstance(part, llm.DocumentPart):
        data = f"data:{llm.PDF};base64,{part.data}"
        return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data}
    return {"type": "input_text", "text": f"[Audio ({part.mime_type}) was left out: this API does not accept audio.]"}


# --- the answer --------------------------------------------------------------------------------------------------


class _Event(Struct):
    """The fields that we use; `output` and `status` are of a whole response, from servers that do not stream."""

    type: str | None = None
    delta: str | None = None
    item: Any = None
    response: Any = None
    error: Any = None
    code: Any = None
    message: str | None = None
    output: Any = None
    status: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class ResponsesAnswer:
    """Folds one answer: `feed()` with each event's data, then `finish()` once. See `sse.FoldedAnswer`."""

    def __init__(self, origin: str) -> None:
        self.done = False
        self._origin = origin
        self._response: dict[str, Any] = {}
        """Of the terminal event."""
        self._text = SurrogateJoiner()
        self._thought = SurrogateJoiner()
        self._opaque: list[dict[str, Any]] = []
        self._uses: dict[str, llm.ToolUse] = {}
        self._refused = False
        self._said = False
        """Whether text arrived in pieces."""
        self._itemized = False
        """Whether items arrived one by one."""
        self._thought_parts = 0
        self._calls_size = 0

    @property
    def ended(self) -> bool:
        return self.done

    def feed(self, data: bytes) -> list[llm.ModelEvent]:
        """Raises `ErrorInAnswer` if the server reports an error as an event, or sends no JSON at all."""
        if self.done:
            return []
        event = event_of(data, _decode, _Event)
        if event is None:
            return []
        match event.type:
            case "response.output_text.delta":
                self._said = True
                return _texts(self._text.feed(event.delta or ""))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return _thoughts(self._thought.feed(event.delta or ""))
            case "response.reasoning_summary_part.added":
                # Each part is a paragraph with its own heading.
                self._thought_parts += 1
                return _thoughts("\n\n" if self._thought_parts > 1 else "")
            case "response.refusal.delta":
                self._said = self._refused = True
                return _texts(self._text.feed(event.delta or ""))
            case "response.function_call_arguments.delta":
                self._hold(len(event.delta or "") + PER_FRAGMENT)
            case "response.output_item.done":
                self._itemized = True
                return self._item(_object(event.item))
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._whole(_object(event.response))
            case "error":
                raise ErrorInAnswer(
                    {"error": event.error} if event.error else {"code": event.code, "message": event.message}
                )
            case _ if event.error:
                raise ErrorInAnswer({"error": event.error})
            case None if isinstance(event.output, list):
                return self._whole(read_loose_json(data.decode("utf-8", "replace")))
        return []

    def finish(self) -> list[llm.ModelEvent]:
        """Returns what was held back, the usage, and `Finished`."""
        response = self._response
        events = _thoughts(self._thought.finish()) + _texts(self._text.finish())
        if usage := _object(response.get("usage")):
            cached, thought = _object(usage.get("input_tokens_details")), _object(usage.get("output_tokens_details"))
            events.append(
                llm.UsageReport(
                    input_tokens=_count(usage, "input_tokens"),
                    output_tokens=_count(usage, "output_tokens"),
                    cached_tokens=_count(cached, "cached_tokens"),
                    reasoning_tokens=_count(thought, "reasoning_tokens"),
                )
            )
        events.append(llm.Finished(self._reason(response), signed(self._opaque, self._origin)))
        return events

    def _whole(self, response: dict[str, Any]) -> list[llm.ModelEvent]:
        """The response at its end. Its items count if none came before: it was not streamed, or not in whole."""
        if response.get("status") == "failed":
            raise ErrorInAnswer({"error": response.get("error") or {}})
        self._response, self.done = response, True
        events: list[llm.ModelEvent] = []
        for item in map(_object, () if self._itemized else _list(response.get("output"))):
            for part in _list(item.get("content")) if item.get("type") == "message" else ():
                self._refused = self._refused or "refusal" in _object(part)
                if not self._said:
                    said = str(_object(part).get("text") or _object(part).get("refusal") or "")
                    events += _texts(self._text.feed(said))
            events += self._item(item)
        return events

    def _hold(self, size: int) -> None:
        self._calls_size += size
        if self._calls_size > LONGEST_CALLS:
            raise EventTooLong(f"the tool calls of one answer are longer than {LONGEST_CALLS} characters")

    def _item(self, item: dict[str, Any]) -> list[llm.ModelEvent]:
        if item.get("type") == "reasoning" and item.get("encrypted_content"):
            # Without its encrypted content the server, which stored nothing, could not recognize the item.
            self._opaque.append({name: value for name, value in item.items() if value is not None})
        if item.get("type") != "function_call":
            return []
        given = clean(str(item.get("call_id") or item.get("id") or ""))
        use = given if given and given not in self._uses else f"call_{os.urandom(12).hex()}"
        name, arguments = clean(str(item.get("name") or "")), item.get("arguments")
        text = arguments if isinstance(arguments, str) else encode_json(arguments or {}).decode()
        self._hold(len(text) + PER_FRAGMENT)
        self._uses[use] = llm.ToolUse(use, name, clean(text))
        return [*_thoughts(self._thought.finish()), *_texts(self._text.finish()), self._uses[use]]

    def _reason(self, response: dict[str, Any]) -> llm.FinishReason:
        if response.get("status") == "incomplete":
            why = _object(response.get("incomplete_details")).get("reason")
            return "refusal" if why == "content_filter" else "length"
        if self._uses:
            return "tool_calls"
        return "refusal" if self._refused else "stop"


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(of: dict[str, Any], name: str) -> int:
    value = of.get(name)
    return value if isinstance(value, int) else 0


def _texts(text: str) -> list[llm.ModelEvent]:
    return [llm.TextDelta(text)] if text else []


def _thoughts(text: str) -> list[llm.ModelEvent]:
    return [llm.ThoughtDelta(text)] if text else []
