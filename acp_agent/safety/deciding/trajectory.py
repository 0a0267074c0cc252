"""The trajectory sentinel: which sequences of calls a session must not make. Off unless `[tools.governance]` says so.

A blocked sequence of the configuration is a list of words. A word that is a tool's name begins a step; the words behind
it must occur in the arguments of that call, in this order (in a command line as whole words). The last step is the call
to be judged, the ones before it must have been made earlier in the session, in this order.

Learned sequences are the last calls before one that went wrong: what the person rejected (`/reject`) at once, what
failed after it has failed `FAILURES` times and never worked since. They are compared by the words they share.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from acp_agent.config.safety_settings import GovernanceConfig
from acp_agent.safety.deciding.scoped import texts_of

__all__ = ["FAILURES", "Block", "Learned", "LearnedStore", "Sentinel", "Step"]

FAILURES = 3
"""How often a sequence must have failed, without a success since, to be blocked."""

MAX_WORDS = 200
"""Words of a call that are compared."""

WORD = re.compile(r"[^\s\"'`;|&()<>{}\[\],]+")

Outcome = Literal["failed", "rejected", "succeeded"]


class Step(msgspec.Struct, frozen=True):
    """One call, as it is compared."""

    tool: str
    words: tuple[str, ...]
    """Of its arguments, in order."""


class Learned(Protocol):
    """Calls in a row that went wrong."""

    @property
    def steps(self) -> str:
        """JSON: the calls, the last is the one that went wrong."""
        ...

    @property
    def failures(self) -> int: ...

    @property
    def rejected(self) -> bool: ...


class LearnedStore(Protocol):
    """What was learned of the session's project. All raise StoreError."""

    def learned(self) -> Sequence[Learned]: ...

    def keep(self, steps: str, failures: int, rejected: bool) -> None:
        """Replaces the one with the same steps."""
        ...

    def forget(self) -> int:
        """Removes all; how many they were."""
        ...


@dataclass(frozen=True)
class Block:
    reason: str
    rule: str


class Sentinel:
    """Of one session. `is_tool` knows the names of tools."""

    def __init__(
        self,
        config: GovernanceConfig,
        store: LearnedStore,
        is_tool: Callable[[str], bool],
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._config = config
        self._store = store
        self._redact = redact
        self._blocked = [_steps(words, is_tool) for words in config.blocked_sequences]
        self._made: deque[Step] = deque(maxlen=MAX_STEPS)
        self._of_call: dict[str, tuple[Step, ...]] = {}

    @property
    def enabled(self) -> bool:
        return self._config.trajectory_enabled

    def check(self, tool: str, arguments: Mapping[str, Any]) -> Block | None:
        """Whether a call about to be made would end a sequence that must not be."""
        if not self.enabled:
            return None
        step = self._step(tool, arguments)
        for number, steps in enumerate(self._blocked):
            if _ends(steps, [*self._made, step]):
                said = " ".join(self._config.blocked_sequences[number])
                return Block(
                    f"This call would complete a sequence that is not allowed here: {said}.",
                    f"tools.governance.blocked_sequences[{number}]",
                )
        if self._config.block_risky_patterns and tool not in self._config.always_available:
            for learned in self._store.learned():
                if self._like(learned, step):
                    what = "the person rejected" if learned.rejected else f"failed {learned.failures} times"
                    return Block(
                        f"Calls like this one {what} before, so it was not run. Try another way.", "learned sequence"
                    )
        return None

    def began(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> None:
        """A call is made."""
        if self.enabled:
            self._made.append(self._step(tool, arguments))
            self._of_call[call_id] = tuple(self._made)[-self._config.window :]
            while len(self._of_call) > MAX_STEPS:
                del self._of_call[next(iter(self._of_call))]

    def ended(self, call_id: str, outcome: Outcome) -> None:
        """What became of it. Raises StoreError."""
        steps = self._of_call.get(call_id)
        if steps is None or not self.enabled:
            return
        text = _encoded(steps)
        known = next((item for item in self._store.learned() if item.steps == text), None)
        failures, rejected = (known.failures, known.rejected) if known is not None else (0, False)
        if outcome == "succeeded" and not failures:
            return
        failures = {"succeeded": 0, "failed": failures + 1, "rejected": failures}[outcome]
        self._store.keep(text, failures, rejected or outcome == "rejected")

    def reject(self, beginning: str) -> str | None:
        """The person marks a call of this session as unacceptable; its tool, or `None` where no call begins so."""
        found = [call_id for call_id in self._of_call if beginning and call_id.startswith(beginning)]
        if len(found) != 1:
            return None
        self.ended(found[0], "rejected")
        return self._of_call[found[0]][-1].tool

    @property
    def last_call(self) -> str:
        return next(reversed(self._of_call), "")

    def forget(self) -> int:
        return self._store.forget()

    def _step(self, tool: str, arguments: Mapping[str, Any]) -> Step:
        text = self._redact(" ".join(texts_of(arguments)))
        return Step(tool, tuple(WORD.findall(text)[:MAX_WORDS]))

    def _like(self, learned: Learned, step: Step) -> bool:
        if not (learned.rejected or learned.failures >= FAILURES):
            return False
        *before, last = _decoded(learned.steps)
        made = [item.tool for item in list(self._made)[-len(before) :]] if before else []
        if last.tool != step.tool or made != [item.tool for item in before]:
            return False
        return _similarity(last.words, step.words) >= self._config.similarity


def _encoded(steps: Sequence[Step]) -> str:
    return msgspec.json.encode([[step.tool, *step.words] for step in steps]).decode()


def _decoded(text: str) -> list[Step]:
    return [Step(tool, tuple(words)) for tool, *words in msgspec.json.decode(text, type=list[list[str]])]


MAX_STEPS = 100
"""Calls of a session that are looked back at."""


def _steps(words: Sequence[str], is_tool: Callable[[str], bool]) -> list[tuple[str, list[str]]]:
    steps: list[tuple[str, list[str]]] = []
    for word in words:
        if not steps or is_tool(word):
            steps.append((word, []))
        else:
            steps[-1][1].append(word)
    return steps


def _ends(steps: Sequence[tuple[str, list[str]]], made: Sequence[Step]) -> bool:
    """Whether the last call made is the last step, and the others came before it in order."""
    if not steps or not made or not _is(steps[-1], made[-1]):
        return False
    rest = iter(made[:-1])
    return all(any(_is(step, call) for call in rest) for step in steps[:-1])


def _is(step: tuple[str, list[str]], call: Step) -> bool:
    tool, wanted = step
    if tool != call.tool:
        return False
    words = iter(call.words)
    if tool == "bash":
        return all(any(want == word for word in words) for want in wanted)
    return all(any(want.lower() in word.lower() for word in words) for want in wanted)


def _similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Shared words to all words (Jaccard), 1 where both are empty."""
    first, second = set(one), set(other)
    return len(first & second) / len(first | second) if first | second else 1.0
