"""One turn: ask the model, run its tool calls, ask again, until it makes no more calls.

Emits ACP's own updates and returns a `StopReason`. Cancellation propagates; whatever it interrupts, the history stays
valid for the next prompt.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import msgspec

from acp_agent.errors import AgentError, ProviderError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm import base as llm
from acp_agent.loop.model.doom_loop import Babble, DoomLoop
from acp_agent.schema.acp import AgentMessageChunk, AgentThoughtChunk, SessionUpdate, StopReason, TextContent

if TYPE_CHECKING:
    from acp_agent.loop.calls.runner import RoundResult


class Cleaner(Protocol):
    def feed(self, text: str) -> str:
        """Returns what can be shown so far."""
        ...

    def finish(self) -> str: ...


class TurnHost(Protocol):
    """The part of a session that a turn needs."""

    def messages(self) -> Sequence[llm.Message]: ...

    def add(self, message: llm.Message, *, clean: bool = False) -> None:
        """Appends to the history, also on disk. `clean`: it contains no credentials."""
        ...

    def emit(self, update: SessionUpdate) -> None: ...

    async def drain(self) -> None:
        """Waits while the client reads too slowly."""
        ...

    def tools(self) -> Sequence[llm.ToolDefinition]:
        """The tools of the current mode."""
        ...

    def settings(self) -> llm.ModelSettings: ...

    def report_usage(self, usage: llm.UsageReport | None, message: llm.AssistantMessage) -> None:
        """Reports what the server counted for the answer `message`; `None`: nothing."""
        ...

    async def prepare(self) -> None:
        """Chooses the model of the next request. Raises CostLimit."""
        ...

    async def fall_back(self, error: ProviderError, failures: dict[str, AgentError]) -> bool:
        """Whether another model goes on; `failures`: those of this request. Raises ProviderError if all have failed."""
        ...

    async def make_room(self, refused: ProviderError | None = None) -> str | None:
        """Makes the next request fit; returns a message for the user if it cannot. `refused`: the server says it does
        not."""
        ...

    def join(self) -> bool:
        """Adds to the conversation what the user wrote meanwhile; false if there is nothing."""
        ...

    def undo_room(self) -> None:
        """Restores what was removed for the last rejection."""
        ...

    def say(self, text: str) -> None:
        """A message of the agent's own."""
        ...

    def cleaner(self) -> Cleaner:
        """Redacts text that arrives in pieces."""
        ...


class Limits(msgspec.Struct):
    """What ends a turn before the model is done. Each message names the configuration key."""

    requests: int
    """Model calls."""
    requests_key: str
    doom_loop: int
    repetition: int
    """Characters, as in `Babble`."""
    answer: int
    """Bytes of one answer."""
    made: int = 0
    """Model calls so far."""

    @property
    def left(self) -> int:
        return self.requests - self.made


class Turn(msgspec.Struct):
    """The result of one model call."""

    message: llm.AssistantMessage
    reason: llm.FinishReason
    usage: llm.UsageReport | None
    repeated: str = ""
    """What the model repeated until it was stopped."""
    cut: bool = False
    """Whether the answer ended in the middle of a call."""
    endless: bool = False
    """Whether it was stopped because it was too long."""

    @property
    def silent(self) -> bool:
        """Whether it ended by itself with neither text nor call, or announced a call that did not come."""
        if self.repeated or self.endless or self.message.tool_calls:
            return False
        return self.reason == "tool_calls" or (self.reason == "stop" and not self.message.text.strip())


RunCalls = Callable[[Sequence[llm.ToolUse], Callable[[llm.ToolMessage], None]], Awaitable["RoundResult"]]
"""Runs the calls of one message and returns one result for each, in order, even if cancelled."""


MOST_SILENCES = 2
"""Answers in a row without a word that are asked for again."""
NEARLY_OVER = 5
"""Model calls left when the model is told so; in a turn of few, the last quarter: said at once, a small model takes it
for its task."""

GO_ON = 'Say "continue" to go on.'
CUT = (
    "The answer was cut off at {tokens} tokens, the limit of one answer, in the middle of a call, so nothing was run. "
    "Make the call again in smaller parts: fewer calls in one answer, a long file in several edits."
)
LEFT = "[{left} more answers are possible in this turn. If the task takes more, say in the last one what is not done.]"


async def run_turn(model: llm.Answers, host: TurnHost, run_calls: RunCalls, limits: Limits) -> StopReason:
    """Runs until the model is done, or a limit ends it (then the user is told which). Raises ProviderError; what the
    model had said by then stays in the history."""
    circles = DoomLoop(limits.doom_loop)
    while limits.left:
        limits.made += 1
        left = limits.left
        host.join()
        turn = await _ask(model, host, limits)
        if isinstance(turn, str):
            host.say(turn)
            return "max_tokens"
        if turn.repeated:
            host.say(f"The model repeated itself and was stopped (`agent.max_repetition`). {GO_ON}")
            return "max_turn_requests"
        if turn.endless:
            host.say(f"The answer was stopped after {limits.answer} bytes (`agent.max_answer_bytes`). {GO_ON}")
            return "max_tokens"
        calls = turn.message.tool_calls
        if not calls:
            if left and turn.reason == "stop" and host.join():
                continue
            if turn.reason == "length":
                host.say(f"The answer was cut off at {_tokens(turn)} tokens (`agent.max_output_tokens`). {GO_ON}")
            return ENDS.get(turn.reason, "end_turn")
        if (words := circles.asked(calls)) is not None:
            for call in calls:
                host.add(llm.ToolMessage(call.id, call.name, (llm.TextPart(words),)))
            host.say(words)
            return "max_turn_requests"
        results: list[llm.ToolMessage] = []

        def add(
            result: llm.ToolMessage, results: list[llm.ToolMessage] = results, last: int = len(calls), left: int = left
        ) -> None:
            results.append(result)
            if left == min(NEARLY_OVER, limits.requests // 4) and len(results) == last:
                note = llm.TextPart(LEFT.format(left=left))
                result = msgspec.structs.replace(result, content=(*result.content, note))
            host.add(result, clean=True)  # The runner has redacted them.

        if turn.cut:
            for call in calls:
                add(llm.ToolMessage(call.id, call.name, (llm.TextPart(CUT.format(tokens=_tokens(turn))),)))
            progress = False
        else:
            outcome = await run_calls(calls, add)
            if outcome.ends_turn:
                return "end_turn"
            progress = outcome.progress
        if (words := circles.answered(results, progress=progress)) is not None:
            host.say(words)
            return "max_turn_requests"
    host.say(f"The turn ended after {limits.requests} answers of the model (`{limits.requests_key}`). {GO_ON}")
    return "max_turn_requests"


def _tokens(turn: Turn) -> str:
    return str(turn.usage.output_tokens) if turn.usage is not None and turn.usage.output_tokens else "its limit of"


GO_ON_THERE = "[The answer broke off here. Go on exactly where it ends, without repeating it.]"


NUDGES = {
    "stop": "[The last answer was empty. Make the next call, or tell the user what the result is.]",
    "tool_calls": "[A call was announced and none came. Make it again, or tell the user what the result is.]",
}
SILENT = (
    f"The model answered {MOST_SILENCES + 1} times without a text and without a call; the last answer had {{}}. "
    "Try again, or choose another model."
)


async def _ask(model: llm.Answers, host: TurnHost, limits: Limits) -> Turn | str:
    """Makes one model call, with another model if one fails. Returns a message for the user if it cannot fit. An answer
    without a word is asked for again, the second time with a nudge; then it is a ProviderError."""
    failures: dict[str, AgentError] = {}
    await host.prepare()
    silences = 0
    while True:
        try:
            turn = await _ask_fitting(model, host, limits)
            if isinstance(turn, str):
                return turn
            host.report_usage(turn.usage, turn.message)
            if not turn.silent:
                return turn
            silences += 1
            if silences > MOST_SILENCES:
                silences = 0
                raise ProviderError("server", _silent(turn))
            if silences == MOST_SILENCES or turn.message.text.strip():
                host.add(llm.UserMessage((llm.TextPart(NUDGES[turn.reason]),), own=True))
            continue
        except ProviderError as error:
            if not await host.fall_back(error, failures):
                raise
        if (messages := host.messages()) and isinstance(messages[-1], llm.AssistantMessage):
            host.add(llm.UserMessage((llm.TextPart(GO_ON_THERE),), own=True))


def _silent(turn: Turn) -> str:
    if turn.reason == "tool_calls":
        what = "a call that was announced and did not come"
    elif turn.message.thought.strip():
        what = "only reasoning"
    else:
        what = "nothing in it"
    counted = f" ({turn.usage.output_tokens} tokens by the server's count)" if turn.usage is not None else ""
    return SILENT.format(what + counted)


async def _ask_fitting(model: llm.Answers, host: TurnHost, limits: Limits) -> Turn | str:
    """Makes one model call that fits. If a server finds it too long, retries once, shortened; returns a message for the
    user if it cannot fit."""
    if (words := await host.make_room()) is not None:
        return words
    try:
        return await ask_model(model, host, limits.repetition, limits.answer)
    except ProviderError as error:
        if error.kind != "context_too_long":
            raise
        if (words := await host.make_room(error)) is not None:
            return words
    try:
        return await ask_model(model, host, limits.repetition, limits.answer)
    except ProviderError as error:
        if error.kind == "context_too_long":
            host.undo_room()  # It did not help, so nothing must be lost for it.
        raise


ENDS: dict[llm.FinishReason, StopReason] = {"length": "max_tokens", "refusal": "refusal"}


KEPT_OF_ENDLESS = 100_000
"""Characters that the model reads again of an answer that was stopped because it was too long."""


async def ask_model(model: llm.Answers, host: TurnHost, repetition: int = 0, most: int = 0) -> Turn:
    """Makes one model call, streamed to the user; adds its message to the history, even if it is cut short.

    A model that repeats itself for `repetition` characters is stopped, or that says more than `most` bytes (0: any
    number)."""
    calls: list[llm.ToolUse] = []
    usage: llm.UsageReport | None = None
    finished: llm.Finished | None = None
    voice = _Voice(host, AgentMessageChunk, repetition)
    mind = _Voice(host, AgentThoughtChunk, repetition)
    endless = False
    try:
        async with aclosing(model.stream(host.messages(), host.tools(), host.settings())) as events:
            async for event in events:
                match event:
                    case llm.TextDelta(text):
                        mind.rest()
                        voice.say(text)
                        await host.drain()
                    case llm.ThoughtDelta(text):
                        voice.rest()
                        mind.say(text)
                        await host.drain()
                    case llm.ToolUse():
                        calls.append(event)
                    case llm.UsageReport():
                        usage = event
                    case llm.Notice(text):
                        host.say(text)
                    case llm.Finished():
                        finished = event
                endless = 0 < most < voice.size + mind.size
                if voice.repeated or mind.repeated or endless:
                    break
    finally:
        mind.rest()
        voice.rest()
        whole = [call if _is_whole(call) else msgspec.structs.replace(call, arguments="{}") for call in calls]
        cut = finished is not None and finished.reason == "length" and whole != calls
        message = llm.AssistantMessage(
            text=voice.said()[: KEPT_OF_ENDLESS if endless else None],
            # Calls of an answer that was cut short are never run, so they are not kept either.
            tool_calls=tuple(whole if cut else calls) if finished is not None else (),
            thought=mind.said()[: KEPT_OF_ENDLESS if endless else None],
            opaque=finished.opaque if finished is not None else (),
        )
        reason = finished.reason if finished is not None else "stop"
        turn = Turn(message, reason, usage, voice.repeated or mind.repeated, cut, endless)
        if finished is None or not turn.silent or message.text.strip():
            host.add(message)
    return turn


def _is_whole(call: llm.ToolUse) -> bool:
    try:
        return isinstance(read_loose_json(call.arguments or "{}", strict=False), dict)
    except ValueError:
        return False


class _Voice:
    """Streams the model's text to the user as one message, and hears when it repeats itself."""

    def __init__(self, host: TurnHost, chunk: type[AgentMessageChunk | AgentThoughtChunk], repetition: int) -> None:
        self._texts: list[str] = []
        self._babble = Babble(repetition)
        self._repetition = repetition
        self.repeated = ""
        """What is repeated at its end."""
        self.size = 0
        """Bytes so far."""
        self._host = host
        self._chunk = chunk
        self._id = str(uuid.uuid4())
        self._cleaner: Cleaner | None = None

    def say(self, text: str) -> None:
        self._texts.append(text)
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self.repeated = self._babble.heard(text) or ""
        if self._cleaner is None:
            self._cleaner = self._host.cleaner()
        self._tell(self._cleaner.feed(text))

    def said(self) -> str:
        """All of it, with what is repeated at its end once: a model that reads it all again goes on with it."""
        text = "".join(self._texts)
        return text[: len(self.repeated) - self._repetition] + "…" if self.repeated else text

    def rest(self) -> None:
        """Nothing follows for now: sends what was held back."""
        if self._cleaner is not None:
            self._tell(self._cleaner.finish())
            self._cleaner = None

    def _tell(self, text: str) -> None:
        if text:
            self._host.emit(self._chunk(content=TextContent(text=text), message_id=self._id))
