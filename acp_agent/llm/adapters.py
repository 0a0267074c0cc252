"""What stands between the loop and a server: a list of adapters around one loop, so that a piece of an answer passes
one generator however many they are.

An adapter knows what a server and its models lack, or writes down what is said; a `Pass` of it sees one request on its
way out, and each event on its way back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm


class Request(NamedTuple):
    """The arguments of `Provider.stream`."""

    messages: Sequence[llm.Message]
    tools: Sequence[llm.ToolDefinition]
    settings: llm.ModelSettings


class AskAgain(Exception):
    """Raised by a pass: its adapter makes another one of the same request. `told`: what the user is told before."""

    def __init__(self, told: Sequence[llm.Notice] = ()) -> None:
        super().__init__()
        self.told = told


class Pass:
    """One request and its answer. `request`: as it goes on to the server; `before`: told before it is sent."""

    def __init__(self, request: Request, before: Sequence[llm.Notice] = ()) -> None:
        self.request = request
        self.before = before

    def feed(self, event: llm.ModelEvent) -> Sequence[llm.ModelEvent]:
        """What becomes of an event. A `Finished` that the server did not send ends the answer. May raise AskAgain."""
        return (event,)

    def failed(self, error: ProviderError) -> Sequence[llm.ModelEvent]:
        """The last words of an answer that broke. May raise AskAgain."""
        return ()

    def closed(self) -> None:
        """The answer has ended, in whichever way."""


class Adapter(Protocol):
    """One for all requests to a server."""

    def open(self, request: Request) -> Pass: ...

    def learn(self, models: Sequence[llm.ModelInfo]) -> None:
        """Takes the server's list of models."""
        ...


class AdaptedProvider:
    """`inner` through adapters, the outermost first; see `Provider`."""

    def __init__(self, inner: llm.Provider, *adapters: Adapter) -> None:
        self.name = inner.name
        self._inner = inner
        self._adapters = adapters

    async def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        """Runs one model call; see `Provider.stream`."""
        asked = Request(messages, tools, settings)
        passes: list[Pass] = []
        try:
            while True:
                for adapter in self._adapters[len(passes) :]:
                    passes.append(adapter.open(passes[-1].request if passes else asked))
                    for one in _outwards(passes, len(passes) - 1, passes[-1].before):
                        yield one
                at = len(passes)
                last_words: list[llm.ModelEvent] = []
                try:
                    async with aclosing(self._inner.stream(*(passes[-1].request if passes else asked))) as events:
                        async for event in events:
                            out: Sequence[llm.ModelEvent] = (event,)
                            for at in range(len(passes) - 1, -1, -1):
                                feed = passes[at].feed
                                out = feed(out[0]) if len(out) == 1 else [one for each in out for one in feed(each)]
                            for one in out:
                                yield one
                            if out and isinstance(out[-1], llm.Finished) and not isinstance(event, llm.Finished):
                                break
                    return
                except AskAgain as again:
                    told = again.told
                except ProviderError as error:
                    try:
                        for at in range(len(passes) - 1, -1, -1):
                            last_words += _outwards(passes, at, passes[at].failed(error))
                    except AskAgain as again:
                        told = again.told
                    else:
                        for one in last_words:
                            yield one
                        raise
                for one in (*last_words, *_outwards(passes, at, told)):
                    yield one
                while len(passes) > at:
                    passes.pop().closed()
        finally:
            for each in reversed(passes):
                each.closed()

    async def models(self) -> list[llm.ModelInfo]:
        found = await self._inner.models()
        for adapter in reversed(self._adapters):
            adapter.learn(found)
        return found

    async def aclose(self) -> None:
        await self._inner.aclose()


def _outwards(passes: Sequence[Pass], at: int, events: Sequence[llm.ModelEvent]) -> Iterator[llm.ModelEvent]:
    """What becomes of the events of pass number `at` in those around it."""
    for each in reversed(passes[:at]):
        events = [one for event in events for one in each.feed(event)]
    return iter(events)
