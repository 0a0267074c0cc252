"""`Recorder`: writes down what a provider is asked and what it answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.recordings.form import Form, error_form, event_forms, message_form, settings_form, tools_form
from acp_agent.llm.recordings.tape import Tape

LOOKED_AT = 12
"""Earlier requests of which a request may have a part: those of sub-agents that run side by side, too."""


class _Earlier(Struct, frozen=True):
    number: int
    system: str
    tools: tuple[llm.ToolDefinition, ...]
    messages: tuple[llm.Message, ...]


class Recorder:
    """Wraps a provider."""

    def __init__(self, inner: llm.Provider, tape: Tape) -> None:
        self.name = inner.name
        self._inner = inner
        self._tape = tape
        self._earlier: deque[_Earlier] = deque(maxlen=LOOKED_AT)

    async def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        """Runs one model call; see `Provider.stream`."""
        number = self._request(_Earlier(self._tape.next_request(), settings.before, (*tools,), (*messages,)), settings)
        if words := self._tape.taken_trouble():
            yield llm.Notice(words)
        events: list[tuple[float, llm.ModelEvent]] = []
        began = time.monotonic()
        line: Form = {"cut": True}
        try:
            async with aclosing(self._inner.stream(messages, tools, settings)) as streamed:
                async for event in streamed:
                    events.append((time.monotonic() - began, event))
                    yield event
        except ProviderError as error:
            line = {"error": error_form(error, self._tape.cleaner)}
            raise
        finally:
            if events and isinstance(events[-1][1], llm.Finished):
                line = {}
            self._tape.write({"answer": number, "events": event_forms(events, self._tape.cleaner), **line})

    def _request(self, now: _Earlier, settings: llm.ModelSettings) -> int:
        clean = self._tape.cleaner.clean
        system: Any = next((each.number for each in self._earlier if each.system == now.system), None)
        tools: Any = next((each.number for each in self._earlier if each.tools == now.tools), None)
        self._tape.write(
            {
                "request": now.number,
                "t": self._tape.seconds(),
                "provider": self.name,
                "model": settings.model,
                "settings": settings_form(settings),
                "system": clean(now.system) if system is None else system,
                "tools": clean(tools_form(now.tools)) if tools is None else tools,
                "messages": self._messages(now),
            }
        )
        self._earlier.append(now)
        return now.number

    def _messages(self, now: _Earlier) -> list[Form] | Form:
        best, kept = 0, 0
        for each in self._earlier:
            if (same := _common(each.messages, now.messages)) and same >= kept:
                best, kept = each.number, same
        forms: list[Form] = self._tape.cleaner.clean([message_form(message) for message in now.messages[kept:]])
        return {"after": best, "kept": kept, "messages": forms} if kept else forms

    async def models(self) -> list[llm.ModelInfo]:
        found = await self._inner.models()
        infos = self._tape.cleaner.clean([msgspec.to_builtins(info) for info in found])
        self._tape.write({"models": infos, "provider": self.name})
        return found

    async def aclose(self) -> None:
        await self._inner.aclose()


def _common(one: Sequence[llm.Message], two: Sequence[llm.Message]) -> int:
    """How many messages both begin with."""
    differ = (at for at, (first, second) in enumerate(zip(one, two, strict=False)) if first != second)
    return next(differ, min(len(one), len(two)))
