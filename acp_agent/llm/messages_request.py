"""The body of a request to Anthropic's Messages API, without I/O: our history in, JSON bytes out.

The beginning of the body stays the same bytes from one round to the next, since the cache is found by it; breakpoints
stand after the tools, after the system prompt and after the last two messages of the user: where this request ends, and
where the one before it did, however many blocks are between. Each message is encoded once, as in `chat_request`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.llm import base as llm
from acp_agent.llm.chat_request import CACHED_MESSAGES, encode_json
from acp_agent.llm.streamed_text import clean
from acp_agent.llm.translate import ANTHROPIC_ID, arguments_object, call_id, returned, tool_name

OUTPUT_TOKENS = 64_000
"""Limit of an answer, thoughts included, if none is configured: the API demands one."""
OLDER_OUTPUT_TOKENS = 32_000
"""The same for models before 4.5 and unknown ones."""
LEAST_BUDGET = 1024
LEFT_FOR_ANSWER = 1024
"""Tokens that a thinking budget leaves of the limit."""
BUDGETS: dict[str, int] = {"low": 4_096, "medium": 12_288, "high": 24_576}
"""Thinking tokens for models that take a budget."""
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
THINKING = ("thinking", "redacted_thinking")
CONTINUED = "(The conversation goes on here.)"
"""Begins a history whose first message is the model's: the API wants the user's first."""

_BREAKPOINT = b',"cache_control":{"type":"ephemeral"}}'
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d)(?!\d))?")
_MOST = re.compile(r"max_tokens: \d+ > (\d+)")
_REFUSED_THOUGHT = re.compile(r"`?signature`? in `?thinking|thinking.{0,30}blocks?.{0,60}(cannot be modified|invalid)")


class Manner(Struct, frozen=True):
    """What a model takes: a guess by its name, corrected by `learn`."""

    adaptive: bool
    """Thinking is set by effort, not by a budget."""
    thinks: bool
    """It thinks unless it is told not to."""
    output_tokens: int
    """Limit of an answer if none is configured."""
    most: int = 0
    """The highest limit that the server takes; 0: it is not known."""
    stoppable: bool = True
    """Whether thinking can be switched off."""
    effort: bool = True
    display: bool = True
    """Whether summaries of adaptive thinking may be asked for."""
    cache: bool = True
    """Whether breakpoints may be set."""


def manner_of(model: str) -> Manner:
    """The models since 4.6 think adaptively, since 5 unasked; those of other vendors take a budget."""
    found = _VERSION.search(model.lower())
    if found is None:
        return Manner(adaptive="claude" in model.lower(), thinks=True, output_tokens=OLDER_OUTPUT_TOKENS)
    version = (int(found[1]), int(found[2] or 0))
    most = OUTPUT_TOKENS if version >= (4, 5) else OLDER_OUTPUT_TOKENS
    return Manner(adaptive=version >= (4, 6), thinks=version >= (5, 0), output_tokens=most)


def learn(manner: Manner, words: str) -> Manner | None:
    """What to ask in after a refusal in these words; `None` if that would be the same."""
    lower = words.lower()
    learnt = manner
    if (most := _MOST.search(words)) is not None:
        learnt = replace(manner, most=int(most[1]))
    elif "cache_control" in lower:
        learnt = replace(manner, cache=False)
    elif "thinking.type.disabled" in lower:
        learnt = replace(manner, stoppable=False, thinks=True)
    elif "thinking.type.enabled" in lower:
        learnt = replace(manner, adaptive=True)
    elif "display" in lower:
        learnt = replace(manner, display=False)
    elif "effort" in lower or "output_config" in lower:
        learnt = replace(manner, effort=False)
    elif "adaptive" in lower:
        learnt = replace(manner, adaptive=False)
    return learnt if learnt != manner else None


class _Turn:
    """Adjacent messages of one role, which the API takes as one."""

    def __init__(self, role: str, blocks: Sequence[bytes]) -> None:
        self.role = role
        self.blocks = list(blocks)

    def json(self, *, marked: bool) -> msgspec.Raw:
        blocks = self.blocks
        if marked:
            blocks = [*blocks[:-1], blocks[-1][:-1] + _BREAKPOINT]
        return msgspec.Raw(b'{"role":"%b","content":[%b]}' % (self.role.encode(), b",".join(blocks)))


class MessagesEncoder:
    """Encodes requests for one server."""

    def __init__(self) -> None:
        self._manners: dict[str, Manner] = {}
        self._refused: set[int] = set()
        """Hashes of thoughts that the server did not take back."""
        self._cache: dict[tuple[int, str], tuple[llm.Message, tuple[bytes, ...]]] = {}
        """By identity, and the model whose thoughts are among them; empty: no thoughts. The message is kept so that its
        identity is not reused."""

    def manner(self, model: str) -> Manner:
        return self._manners.setdefault(model, manner_of(model))

    def learn(self, model: str, manner: Manner, messages: Sequence[llm.Message], words: str) -> bool:
        """Takes the words in which a request of this manner was refused; true if another one is worth trying."""
        if _REFUSED_THOUGHT.search(words.lower()):
            thoughts = {hash(encode_json(item)) for message in messages for item in _thoughts(message, model)}
            new = bool(thoughts - self._refused)
            self._refused |= thoughts
            self._cache.clear()
            return new
        learnt = learn(manner, words)
        if learnt is not None:
            self._manners[model] = learnt
        return learnt is not None

    def encode(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> bytes:
        """Returns the JSON body of a streamed request."""
        manner = self.manner(settings.model)
        limit = settings.max_output_tokens or manner.output_tokens
        limit = min(limit, manner.most or limit)
        body: dict[str, Any] = {"model": settings.model, "max_tokens": limit, "stream": True}
        thinking = _thinking(manner, settings.thought_level, limit)
        turns = self._turns(messages, settings, manner)
        if thinking.get("thinking", {}).get("type") == "enabled" and not _may_think(turns):
            thinking = {}
        body |= thinking
        if settings.fast:
            body["speed"] = "fast"
        if tools:
            encoded = [encode_json(_tool(tool)) for tool in tools]
            if manner.cache:
                encoded[-1] = encoded[-1][:-1] + _BREAKPOINT
            body["tools"] = [msgspec.Raw(tool) for tool in encoded]
        if settings.system.strip():
            system = encode_json({"type": "text", "text": settings.system})
            body["system"] = [msgspec.Raw(system[:-1] + _BREAKPOINT if manner.cache else system)]
        users = [number for number, turn in enumerate(turns) if turn.role == "user"]
        marked = set(users[-2:]) if manner.cache else set()
        body["messages"] = [turn.json(marked=number in marked) for number, turn in enumerate(turns)]
        return encode_json(body)

    def _turns(self, messages: Sequence[llm.Message], settings: llm.ModelSettings, manner: Manner) -> list[_Turn]:
        origin = settings.model if _keeps_thoughts(manner, settings.thought_level) else ""
        turns: list[_Turn] = []
        for message in messages:
            role = "assistant" if isinstance(message, llm.AssistantMessage) else "user"
            blocks = self._blocks(message, origin)
            if not blocks:
                continue
            if turns and turns[-1].role == role:
                turns[-1].blocks.extend(blocks)
                continue
            if not turns and role == "assistant":
                turns.append(_Turn("user", [encode_json(_text(CONTINUED))]))
            turns.append(_Turn(role, blocks))
        return turns

    def _blocks(self, message: llm.Message, origin: str) -> tuple[bytes, ...]:
        found = self._cache.get((id(message), origin))
        if found is not None and found[0] is message:
            return found[1]
        while len(self._cache) >= CACHED_MESSAGES:
            del self._cache[next(iter(self._cache))]
        blocks = tuple(encode_json(block) for block in self._plain(message, origin))
        self._cache[id(message), origin] = message, blocks
        return blocks

    def _plain(self, message: llm.Message, origin: str) -> Iterator[dict[str, Any]]:
        if isinstance(message, llm.UserMessage):
            yield from _parts(message.content)
        elif isinstance(message, llm.ToolMessage):
            content = list(_parts(message.content)) or [_text("(no output)")]
            use = call_id(message.call_id, ANTHROPIC_ID)
            yield {"type": "tool_result", "tool_use_id": use, "content": content}
        else:
            thoughts = [item for item in _thoughts(message, origin) if hash(encode_json(item)) not in self._refused]
            blocks = list(_assistant(message, thoughts))
            while blocks and blocks[-1]["type"] in THINKING:  # No message may end in a thought.
                blocks.pop()
            yield from blocks


def _thinking(manner: Manner, level: llm.ThoughtLevel | None, most: int) -> dict[str, Any]:
    """The fields that set how the model thinks."""
    if level is None:
        return {}
    if level == "off" and manner.stoppable:
        return {"thinking": {"type": "disabled"}}
    wanted = "low" if level == "off" else level
    effort = {"output_config": {"effort": wanted}} if manner.effort else {}
    if level == "off":
        return effort
    if manner.adaptive:
        display = {"display": "summarized"} if manner.display else {}
        return {"thinking": {"type": "adaptive", **display}, **effort}
    budget = min(BUDGETS[wanted], most - LEFT_FOR_ANSWER)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= LEAST_BUDGET else {}


def _keeps_thoughts(manner: Manner, level: llm.ThoughtLevel | None) -> bool:
    """Whether thoughts go back. A model that does not think refuses those in an unfinished turn."""
    if level is None:
        return manner.thinks
    return level != "off" or not manner.stoppable


def _may_think(turns: Sequence[_Turn]) -> bool:
    """Whether a thinking budget may be set: not in a turn that began without a thought, with another model say."""
    first: _Turn | None = None
    for turn in reversed(turns):
        if turn.role == "assistant":
            first = turn
        elif not turn.blocks[0].startswith(b'{"type":"tool_result"'):
            break
    return first is None or first.blocks[0].startswith((b'{"type":"thinking"', b'{"type":"redacted_thinking"'))


def _thoughts(message: llm.Message, origin: str) -> list[dict[str, Any]]:
    if not origin or not isinstance(message, llm.AssistantMessage):
        return []
    return returned(message, origin, *THINKING)


def _assistant(message: llm.AssistantMessage, thoughts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The blocks in the order in which they came; `after` of a thought: characters of text and calls before it."""
    said = called = 0
    for thought in [*thoughts, {"after": (len(message.text), len(message.tool_calls))}]:
        text, calls = thought.pop("after", (0, 0))
        if (piece := message.text[said:text]).strip():
            yield _text(piece)
        yield from (_use(call) for call in message.tool_calls[called:calls])
        said, called = max(said, text), max(called, calls)
        if thought:
            yield thought


def _use(call: llm.ToolUse) -> dict[str, Any]:
    given = arguments_object(call.arguments)
    return {"type": "tool_use", "id": call_id(call.id, ANTHROPIC_ID), "name": tool_name(call.name), "input": given}


def _parts(parts: Sequence[llm.Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if isinstance(part, llm.TextPart):
            if part.text.strip():  # The API refuses text of nothing but spaces.
                yield _text(part.text)
        elif isinstance(part, llm.ImagePart) and part.mime_type in IMAGE_TYPES:
            yield {"type": "image", "source": _base64(part.mime_type, part.data)}
        elif isinstance(part, llm.DocumentPart):
            yield {"type": "document", "source": _base64(llm.PDF, part.data), "title": part.name or "document"}
        else:
            yield _text(f"[{part.mime_type} was left out: this API does not accept it.]")


def _base64(mime_type: str, data: str) -> dict[str, str]:
    return {"type": "base64", "media_type": mime_type, "data": data}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": clean(text)}


def _tool(tool: llm.ToolDefinition) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
