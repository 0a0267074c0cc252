"""`Recorder`: writes down what a provider is asked and what it answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.adapters import Pass, Request
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
    """An adapter. `name`: of the provider."""

    def __init__(self, name: str, tape: Tape) -> None:
        self.name = name
        self._tape = tape
        self._earlier: deque[_Earlier] = deque(maxlen=LOOKED_AT)

    def open(self, request: Request) -> Pass:
        messages, tools, settings = request
        asked = _Earlier(self._tape.next_request(), settings.before, (*tools,), (*messages,))
        return _Recorded(self._request(asked, settings), request, self._tape)

    def learn(self, models: Sequence[llm.ModelInfo]) -> None:
        infos = self._tape.cleaner.clean([msgspec.to_builtins(info) for info in models])
        self._tape.write({"models": infos, "provider": self.name})

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


class _Recorded(Pass):
    def __init__(self, number: int, request: Request, tape: Tape) -> None:
        words = tape.taken_trouble()
        super().__init__(request, (llm.Notice(words),) if words else ())
        self._number = number
        self._tape = tape
        self._began = time.monotonic()
        self._events: list[tuple[float, llm.ModelEvent]] = []
        self._line: Form = {"cut": True}

    def feed(self, event: llm.ModelEvent) -> Sequence[llm.ModelEvent]:
        self._events.append((time.monotonic() - self._began, event))
        return (event,)

    def failed(self, error: ProviderError) -> Sequence[llm.ModelEvent]:
        self._line = {"error": error_form(error, self._tape.cleaner)}
        return ()

    def closed(self) -> None:
        if self._events and isinstance(self._events[-1][1], llm.Finished):
            self._line = {}
        events = event_forms(self._events, self._tape.cleaner)
        self._tape.write({"answer": self._number, "events": events, **self._line})


def _common(one: Sequence[llm.Message], two: Sequence[llm.Message]) -> int:
    """How many messages both begin with."""
    differ = (at for at, (first, second) in enumerate(zip(one, two, strict=False)) if first != second)
    return next(differ, min(len(one), len(two)))
