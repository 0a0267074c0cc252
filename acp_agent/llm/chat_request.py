"""The body of a chat-completions request, without I/O: our history in, JSON bytes out.

A history of two hundred turns is sent again with every call, so each message is encoded once: messages are frozen, and
`RequestEncoder` caches their JSON by identity. What servers disagree on is in a `Dialect`, learnt from refusals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.llm import base as llm
from acp_agent.llm.choose import reasoning_effort
from acp_agent.llm.streamed_text import clean
from acp_agent.llm.translate import DETAILS, EXTRA, arguments_object, call_id, returned, tool_name

CACHED_MESSAGES = 4096
NO_PDF = "[A PDF was left out: it is not known whether this server reads them.]"
_AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
}


class Dialect(msgspec.Struct, frozen=True):
    """The features a server is known to accept. Starts as a guess and is corrected by `learn`."""

    openai: bool = False
    """OpenAI or Azure: `max_completion_tokens`, `prompt_cache_key`, `reasoning_effort: none`."""
    stream_options: bool = True
    """Whether `stream_options: {include_usage: true}` may be sent."""
    documents: bool = False
    """Whether PDFs may be sent."""
    breakpoints: bool = False
    """Whether Claude's cache needs to be told where to begin."""
    thinking: str = "effort"
    """How the effort is set: `effort`, `template` (the same, and on or off for the chat template), `reasoning`
    (OpenRouter), `type` (on or off, in an object), `switch` (on or off), `none`."""
    ids: re.Pattern[str] | None = None
    """The ids of calls that it takes; `None`: any."""
    origin: str = ""
    """Names the server in what it wants back."""
    thought_back: bool = False
    """Whether the thought of an assistant message with tool calls must be sent back as `reasoning_content`."""


def learn(dialect: Dialect, words: str) -> Dialect | None:
    """Returns the dialect to retry with after a refusal (HTTP 400 or 422) in these words; `None` if there is none."""
    if "chat_template" in words and dialect.thinking == "template":
        return msgspec.structs.replace(dialect, thinking="effort")
    if "stream_options" in words and dialect.stream_options:
        return msgspec.structs.replace(dialect, stream_options=False)
    if "reasoning_content" in words and not dialect.thought_back:
        return msgspec.structs.replace(dialect, thought_back=True)
    if "max_completion_tokens" in words and not dialect.openai:
        return msgspec.structs.replace(dialect, openai=True)
    return None


class _Encoded(Struct, frozen=True):
    source: llm.Message | llm.ToolDefinition
    """Kept so that its identity is not reused while the entry lives."""
    json: msgspec.Raw
    media: tuple[dict[str, Any], ...] = ()
    """Images and audio of a tool's result, which the API accepts only in user messages."""


class RequestEncoder:
    """Encodes requests for one server. `dialect` may be replaced at any time."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._cache: dict[int, _Encoded] = {}

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._cache.clear()

    def encode(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> bytes:
        """Returns the JSON body of a streamed request."""
        body: dict[str, Any] = {"model": settings.model, "messages": self._messages(messages, settings), "stream": True}
        if self._dialect.stream_options:
            body["stream_options"] = {"include_usage": True}
        if tools:
            body["tools"] = [self._encoded(tool).json for tool in tools]
        body |= _thinking(self._dialect, settings)
        if settings.max_output_tokens is not None:
            # OpenAI's newer models reject the old name; most other servers know only that one.
            name = "max_completion_tokens" if self._dialect.openai else "max_tokens"
            body[name] = settings.max_output_tokens
        if settings.cache_key and self._dialect.openai:
            body["prompt_cache_key"] = settings.cache_key
        if settings.fast:
            body["service_tier"] = "priority"
        return encode_json(body)

    def _messages(self, messages: Sequence[llm.Message], settings: llm.ModelSettings) -> list[object]:
        out: list[object] = []
        marked = self._dialect.breakpoints and "claude" in settings.model.lower()
        if settings.system:
            out.append({"role": "system", "content": [_marked(settings.system)] if marked else settings.system})
        media: list[dict[str, Any]] = []
        known = self._cache.get
        for message in messages:
            encoded = known(id(message))
            if encoded is None or encoded.source is not message:
                encoded = self._encoded(message)
            # The answers to one assistant message must stay together, so their media follow after the last of them.
            if media and not isinstance(message, llm.ToolMessage):
                out.append(_media_message(media))
                media = []
            out.append(encoded.json)
            media.extend(encoded.media)
        if media:
            out.append(_media_message(media))
        if marked:
            _set_breakpoints(out, messages)
        return out

    def _encoded(self, source: llm.Message | llm.ToolDefinition) -> _Encoded:
        found = self._cache.get(id(source))
        if found is not None and found.source is source:
            return found
        media: tuple[dict[str, Any], ...] = ()
        if isinstance(source, llm.ToolMessage):
            media = tuple(self._part(part) for part in source.content if not isinstance(part, llm.TextPart))
            plain: dict[str, Any] = _tool_message(source, self._dialect)
        elif isinstance(source, llm.AssistantMessage):
            plain = _assistant_message(source, self._dialect)
        elif isinstance(source, llm.UserMessage):
            plain = {"role": "user", "content": self._content(source.content)}
        else:
            function = {"name": source.name, "description": source.description, "parameters": source.parameters}
            plain = {"type": "function", "function": function}
        while len(self._cache) >= CACHED_MESSAGES:
            del self._cache[next(iter(self._cache))]
        encoded = self._cache[id(source)] = _Encoded(source, msgspec.Raw(encode_json(plain)), media)
        return encoded

    def _content(self, parts: tuple[llm.Part, ...]) -> str | list[dict[str, Any]]:
        texts = [part.text for part in parts if isinstance(part, llm.TextPart)]
        if len(texts) == len(parts):
            # Several local servers accept only a string.
            return "\n".join(texts)
        return [self._part(part) for part in parts]

    def _part(self, part: llm.Part) -> dict[str, Any]:
        if isinstance(part, llm.TextPart):
            return {"type": "text", "text": part.text}
        if isinstance(part, llm.ImagePart):
            return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}
        if isinstance(part, llm.DocumentPart):
            if not self._dialect.documents:
                return {"type": "text", "text": NO_PDF}
            data = f"data:{llm.PDF};base64,{part.data}"
            return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": data}}
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _audio_format(part)}}


def encode_json(value: object) -> bytes:
    """JSON bytes; lone surrogates (a file name, broken tool output) become U+FFFD instead of an exception."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(value))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    return value


def _audio_format(part: llm.AudioPart) -> str:
    mime_type = part.mime_type.partition(";")[0].strip().lower()
    return _AUDIO_FORMATS.get(mime_type, mime_type.rpartition("/")[2] or "wav")


def _tool_message(message: llm.ToolMessage, dialect: Dialect) -> dict[str, Any]:
    text = "\n".join(part.text for part in message.content if isinstance(part, llm.TextPart))
    if len(message.content) > 0 and not text:
        text = "The result is in the next message."
    return {"role": "tool", "tool_call_id": _id(message.call_id, dialect), "content": text or "(no output)"}


def _media_message(media: list[dict[str, Any]]) -> dict[str, Any]:
    note = {"type": "text", "text": "What the tools above returned besides text:"}
    return {"role": "user", "content": [note, *media]}


def _id(given: str, dialect: Dialect) -> str:
    return given if dialect.ids is None else call_id(given, dialect.ids)


def _assistant_message(message: llm.AssistantMessage, dialect: Dialect) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        out["content"] = message.text or None
        extra = {item["call_id"]: item["content"] for item in returned(message, dialect.origin, EXTRA)}
        out["tool_calls"] = [
            {
                "id": _id(call.id, dialect),
                "type": "function",
                "function": {"name": tool_name(call.name), "arguments": _arguments(call)},
                **({"extra_content": extra[call.id]} if call.id in extra else {}),
            }
            for call in message.tool_calls
        ]
        if dialect.thought_back:
            out["reasoning_content"] = message.thought
        if details := returned(message, dialect.origin, DETAILS):
            out["reasoning_details"] = [item["content"] for item in details]
    return out


def _arguments(call: llm.ToolUse) -> str:
    """The model's own text if it is a JSON object. Servers that render it into a template reject anything else."""
    given = arguments_object(call.arguments)
    return call.arguments if given and "_invalid" not in given else encode_json(given).decode()


def _thinking(dialect: Dialect, settings: llm.ModelSettings) -> dict[str, Any]:
    """The fields that set how the model thinks."""
    level = settings.thought_level
    if dialect.thinking in ("effort", "template"):
        effort = reasoning_effort(settings.model, level, openai=dialect.openai)
        out: dict[str, Any] = {"reasoning_effort": effort} if effort is not None else {}
        if dialect.thinking == "template" and level is not None:
            out["chat_template_kwargs"] = {"enable_thinking": level != "off"}
        return out
    if level is None:
        return {}
    match dialect.thinking:
        case "reasoning":
            return {"reasoning": {"enabled": False} if level == "off" else {"effort": level}}
        case "type":
            return {"thinking": {"type": "disabled" if level == "off" else "enabled"}}
        case "switch":
            return {"enable_thinking": level != "off"}
    return {}


def _marked(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def _set_breakpoints(out: list[Any], messages: Sequence[llm.Message]) -> None:
    """Marks the last message, and the last one of the request before: that before the model's last answer."""
    answers = [number for number, message in enumerate(messages) if isinstance(message, llm.AssistantMessage)]
    after = len(messages) - answers[-1] if answers else 0
    media = len(out) - len(messages) - (1 if out and not isinstance(out[0], msgspec.Raw) else 0)
    places = [len(out) - 1]
    if after and answers[-1] and not media:
        places.append(len(out) - 1 - after)
    for place in places:
        message = msgspec.json.decode(encode_json(out[place]))
        content = message["content"]
        if isinstance(content, str):
            message["content"] = [_marked(content)]
        elif content:
            content[-1]["cache_control"] = {"type": "ephemeral"}
        out[place] = message
