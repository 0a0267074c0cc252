"""What a model cannot take is left out of its requests, after its server refused it once or its list of models said so.

`Tolerant` is an adapter of any provider and knows images, audio, PDFs and the reasoning effort. `fenced` does the same
for tools, `chat_request.Dialect` for fields of the chat API. It also notices by the count of the server that a prompt
was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.adapters import AskAgain, Pass, Request

Feature = Literal["image", "audio", "document", "reasoning"]

NAMES: dict[Feature, tuple[str, ...]] = {
    # The last one: Groq's words for a model that takes text alone.
    "image": ("image", "vision", "multimodal", "mmproj", "content must be a string"),
    "audio": ("audio",),
    "document": ("document", "file", "pdf"),
    "reasoning": ("reasoning", "thinking"),
}
REFUSES = (
    r"not support|unsupported|n[o']t support|only supported by|at most 0 |not a multimodal|missing data required"
    r"|unknown (variant|part|content|field|parameter|name)|unrecogni[sz]ed|unexpected|extra inputs|not permitted"
    r"|must be a string|no endpoints? found|mmproj|not (enabled|available|allowed)"
)
"""How servers say that a model lacks something: llama.cpp, vLLM, Ollama, OpenAI, OpenRouter, DeepSeek, Groq, xAI."""

BAD_DATA = r"format|mime|media[ _]type|too (large|big|many)|corrupt|decod|base64|could not process|dimension"
"""Refusals of this one image or recording."""

INSTEAD: dict[Feature, str] = {
    "image": "[an image, which this model cannot see]",
    "audio": "[a recording, which this model cannot hear]",
    "document": "[a PDF, which this model cannot read]",
}
SPOILED = "[an image, which the server could not take]"
WORDS: dict[Feature, str] = {
    "image": "cannot see images, so they are left out",
    "audio": "cannot hear recordings, so they are left out",
    "document": "cannot read PDFs, so they are left out",
    "reasoning": "takes no reasoning effort, so none is set",
}


CHARS_PER_TOKEN = 6
"""More characters than a token of a prompt has on the average: text has four, code three."""
FEWEST_TOKENS = 1_000
"""What is left of a prompt that was cut; servers that count less count something else."""

CUT = (
    "{model} got about {tokens:,} tokens of a longer prompt: the server cuts what does not fit without saying so. Give "
    'the model a larger context (LM Studio: when loading it; llama.cpp: `-c`; Ollama: `api = "ollama"`), or set '
    "`providers.{name}.context_window` to what it has, so that the conversation is summarized in time."
)


class Tolerant:
    """`name`: of the provider."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lacks: dict[str, set[Feature]] = {}
        """By model."""
        self._told: set[tuple[str, Feature]] = set()
        self._cut: set[str] = set()
        """Models whose prompts are cut, which the user was told."""
        self._spoiled: set[int] = set()
        """Hashes of images that the server could not take."""

    def open(self, request: Request) -> Pass:
        return _Tolerated(self, request)

    def learn(self, models: Sequence[llm.ModelInfo]) -> None:
        for info in models:
            if info.accepts is not None:
                missing: set[Feature] = {kind for kind in INSTEAD if kind not in info.accepts}
                self.lacks(info.id).update(missing)

    def lacks(self, model: str) -> set[Feature]:
        return self._lacks.setdefault(model, set())

    def spoiled(self, image: llm.ImagePart) -> None:
        self._spoiled.add(hash(image.data))

    def untold(self, model: str, features: set[Feature]) -> list[llm.Notice]:
        """What is left out for the first time."""
        new = [feature for feature in sorted(features) if (model, feature) not in self._told]
        self._told.update((model, feature) for feature in new)
        return [llm.Notice(f"{model} {WORDS[feature]}.") for feature in new]

    def readable(self, messages: Sequence[llm.Message], lacks: set[Feature]) -> Sequence[llm.Message]:
        """The same messages where they have nothing that is left out: providers recognise them by identity."""
        if not (self._spoiled or lacks & set(INSTEAD)):
            return messages

        def instead(part: llm.Part) -> str:
            if isinstance(part, llm.ImagePart) and hash(part.data) in self._spoiled:
                return SPOILED
            kind = _kind(part)
            return INSTEAD[kind] if kind in lacks else ""

        return [_replaced(message, instead) for message in messages]

    def was_cut(self, asked: Request, usage: llm.UsageReport) -> bool:
        """Whether the server, by its own count, cannot have read all of a prompt. True once for a model."""
        messages, _, settings = asked
        if settings.model in self._cut or usage.input_tokens < FEWEST_TOKENS:
            return False
        if settings.chars + sum(map(_size, messages)) <= usage.input_tokens * CHARS_PER_TOKEN:
            return False
        self._cut.add(settings.model)
        return True


class _Tolerated(Pass):
    def __init__(self, adapter: Tolerant, asked: Request) -> None:
        messages, tools, settings = asked
        used, lacks = _used(messages, settings), adapter.lacks(settings.model)
        readable = adapter.readable(messages, lacks & used)
        allowed = replace(settings, thought_level=None) if "reasoning" in lacks else settings
        super().__init__(Request(readable, tools, allowed), adapter.untold(settings.model, used & lacks))
        self._adapter = adapter
        self._asked = asked
        self._sent = frozenset(used - lacks)
        self._begun = False

    def feed(self, event: llm.ModelEvent) -> Sequence[llm.ModelEvent]:
        self._begun = self._begun or not isinstance(event, llm.Notice)
        if isinstance(event, llm.UsageReport) and self._adapter.was_cut(self._asked, event):
            model, tokens = self._asked.settings.model, event.input_tokens
            return (llm.Notice(CUT.format(model=model, tokens=tokens, name=self._adapter.name)), event)
        return (event,)

    def failed(self, error: ProviderError) -> Sequence[llm.ModelEvent]:
        if self._begun:
            return ()
        if refused := _refused(error, self._sent):
            self._adapter.lacks(self._asked.settings.model).add(refused)
            raise AskAgain
        if (image := _newest_image(error, self._sent, self.request.messages)) is not None:
            self._adapter.spoiled(image)
            words = f"The server does not take an image ({image.mime_type}); it is left out: {error}"
            raise AskAgain((llm.Notice(words),))
        return ()


def _size(message: llm.Message) -> int:
    """Characters of text."""
    if isinstance(message, llm.AssistantMessage):
        return len(message.text) + sum(len(call.arguments) for call in message.tool_calls)
    return sum(len(part.text) for part in message.content if isinstance(part, llm.TextPart))


def _used(messages: Sequence[llm.Message], settings: llm.ModelSettings) -> set[Feature]:
    used: set[Feature] = set()
    if settings.thought_level is not None:
        used.add("reasoning")
    for message in messages:
        used.update(kind for part in _content(message) if (kind := _kind(part)) is not None)
    return used


def _kind(part: llm.Part) -> Feature | None:
    if isinstance(part, llm.TextPart):
        return None
    if isinstance(part, llm.DocumentPart):
        return "document"
    return "image" if isinstance(part, llm.ImagePart) else "audio"


def _content(message: llm.Message) -> Sequence[llm.Part]:
    return () if isinstance(message, llm.AssistantMessage) else message.content


def _replaced(message: llm.Message, instead: Callable[[llm.Part], str]) -> llm.Message:
    said = [instead(part) for part in _content(message)]
    if not any(said):
        return message
    pairs = zip(_content(message), said, strict=True)
    return replace(message, content=tuple(llm.TextPart(text) if text else part for part, text in pairs))


def _newest_image(
    error: ProviderError, used: frozenset[Feature], messages: Sequence[llm.Message]
) -> llm.ImagePart | None:
    """What the server means that refuses an image as such: the newest one, since the others were taken before."""
    words = str(error).lower()
    named = any(name in words for name in NAMES["image"]) or "base64" in words
    if error.kind != "bad_request" or "image" not in used or not named or not re.search(BAD_DATA, words):
        return None
    parts = (part for message in reversed(messages) for part in reversed(_content(message)))
    return next((part for part in parts if isinstance(part, llm.ImagePart)), None)


def _refused(error: ProviderError, used: frozenset[Feature]) -> Feature | None:
    """The feature of the request that the server says the model lacks."""
    words = str(error).lower()
    if error.kind not in ("bad_request", "not_found") or not re.search(REFUSES, words) or re.search(BAD_DATA, words):
        return None
    return next((kind for kind in NAMES if kind in used and any(name in words for name in NAMES[kind])), None)
