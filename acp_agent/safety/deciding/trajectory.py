"""The trajectory sentinel: records a session's calls and learns which sequences of them went wrong.

Disabled unless enabled in `[tools.governance]`. A learned sequence is the last calls up to one that went wrong: learned
immediately if the user rejected it (`/reject`), otherwise after `FAILURES` failures (or refusals by a policy) without a
success. The calls before the last one count in any order; the last is compared by shared words. An equal call that
failed that often is blocked whatever came before it. Of sequences that succeeded, those are kept that are like one that
failed: what is equal to one of them is not blocked for being like the other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from acp_agent.config.safety_settings import GovernanceConfig
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_json
from acp_agent.safety.deciding.subjects import Step, step_of, texts_of

FAILURES = 3
"""How often a sequence must have failed, without a success since, to be blocked."""
KEPT_WORDS = 2_000
"""Words of a call that are kept as they are; those after them become one word, by which they can be told apart."""
SHA256 = "hashlib:sha256"
MAX_STEPS = 100
"""Number of recent calls of a session that are kept."""

Outcome = Literal["failed", "rejected", "succeeded"]


class Learned(Protocol):
    """Consecutive calls that went wrong."""

    @property
    def steps(self) -> str:
        """The calls as JSON; the last is the one that went wrong."""
        ...

    @property
    def failures(self) -> int: ...

    @property
    def rejected(self) -> bool: ...


class LearnedStore(Protocol):
    """The learned sequences of the session's project. All raise StoreError."""

    def learned(self) -> Sequence[Learned]: ...

    def keep(self, steps: str, failures: int, rejected: bool) -> None:
        """Replaces the entry with the same steps."""
        ...

    def forget(self) -> int:
        """Removes all and returns their number."""
        ...


class Sentinel:
    """Sentinel of one session."""

    def __init__(
        self, config: GovernanceConfig, store: LearnedStore, redact: Callable[[str], str] = lambda text: text
    ) -> None:
        self._config = config
        self._store = store
        self._redact = redact
        self._made: deque[Step] = deque(maxlen=MAX_STEPS)
        self._of_call: dict[str, tuple[Step, ...]] = {}
        self.known: Sequence[Learned] | None = None
        """All, read before a judgement in another thread, where the store cannot be asked."""

    @property
    def enabled(self) -> bool:
        return self._config.trajectory_enabled

    @property
    def made(self) -> tuple[Step, ...]:
        return tuple(self._made)

    def step(self, tool: str, arguments: Mapping[str, Any]) -> Step:
        return step_of(tool, self._redact(" ".join(texts_of(arguments))))

    def blocks(self, step: Step) -> str:
        """Why learned sequences block a call about to be made; empty if they do not. Raises StoreError."""
        config = self._config
        if not self.enabled or not config.block_risky_patterns or step.tool in config.always_available:
            return ""
        known = [(each, _decoded(each.steps)[-1]) for each in (self.learned if self.known is None else self.known)]
        made = Step(step.tool, _kept(step.words))
        like = [(each, last) for each, last in known if self._like(each, step, config.similarity)]
        again = "before, so it was not run. Try another way."
        if any(each.rejected for each, _ in like):
            return f"Calls like this one the user rejected {again}"
        if any(last == made and not each.failures for each, last in like):
            return ""
        failures = max((each.failures for each, _ in like), default=0)
        if failures >= FAILURES:
            return f"Calls like this one failed {failures} times {again}"
        failures = sum(each.failures for each, last in known if last == made)
        return f"This call failed {failures} times {again}" if failures >= FAILURES else ""

    @property
    def learned(self) -> Sequence[Learned]:
        """Raises StoreError."""
        return self._store.learned()

    @property
    def blocking(self) -> list[Learned]:
        """The learned sequences that block. Raises StoreError."""
        failed: Counter[Step] = Counter()
        made = [(learned, _decoded(learned.steps)[-1]) for learned in self.learned]
        for learned, last in made:
            failed[last] += learned.failures
        return [each for each, last in made if each.rejected or (each.failures and failed[last] >= FAILURES)]

    def began(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> None:
        """Records the start of a call."""
        if self.enabled:
            self._made.append(self.step(tool, arguments))
            self._of_call[call_id] = tuple(self._made)[-self._config.window :]
            while len(self._of_call) > MAX_STEPS:
                del self._of_call[next(iter(self._of_call))]

    def ended(self, call_id: str, outcome: Outcome) -> None:
        """Records the end of a call. Raises StoreError."""
        if (steps := self._of_call.get(call_id)) is not None and self.enabled:
            self._learn(steps, outcome)

    def refused(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """A policy has denied a call: as if it had failed, though it was not made. Raises StoreError."""
        if self.enabled:
            self._learn((*self._made, self.step(tool, arguments))[-self._config.window :], "failed")

    def _learn(self, steps: Sequence[Step], outcome: Outcome) -> None:
        steps = tuple(Step(step.tool, _kept(step.words)) for step in steps)
        text, same = _encoded(steps), _in_any_order(steps)
        known = next((item for item in self._store.learned() if _in_any_order(_decoded(item.steps)) == same), None)
        text = text if known is None else known.steps
        failures, rejected = (known.failures, known.rejected) if known is not None else (0, False)
        if outcome == "succeeded":
            for other in [each for each in self.learned if each.failures and _decoded(each.steps)[-1] == steps[-1]]:
                self._store.keep(other.steps, 0, other.rejected)
            near = (each for each in self.learned if each.failures or each.rejected)
            *before, last = steps
            if not failures and not any(self._like(each, last, self._config.similarity, before) for each in near):
                return
        failures = {"succeeded": 0, "failed": failures + 1, "rejected": failures}[outcome]
        self._store.keep(text, failures, rejected or outcome == "rejected")

    def reject(self, beginning: str) -> str | None:
        """Marks a call of this session as unacceptable; returns its tool, or `None` if no call id has this prefix."""
        found = [call_id for call_id in self._of_call if beginning and call_id.startswith(beginning)]
        if len(found) != 1:
            return None
        self.ended(found[0], "rejected")
        return self._of_call[found[0]][-1].tool

    @property
    def last_call(self) -> str:
        return next(reversed(self._of_call), "")

    def forget(self) -> int:
        """Forgets everything learned; returns how much. Raises StoreError."""
        return self._store.forget()

    def _like(self, learned: Learned, step: Step, similarity: float, made_before: Sequence[Step] | None = None) -> bool:
        """`made_before`: the calls before it, if these are not those made last."""
        *before, last = _decoded(learned.steps)
        calls = list(self._made) if made_before is None else made_before
        made = sorted(item.tool for item in calls[-len(before) :]) if before else []
        if last.tool != step.tool or made != sorted(item.tool for item in before):
            return False
        return _similarity(last.words, _kept(step.words)) >= similarity


SPELLED = 200
"""Characters of a call in it."""


def spelled(learned: Learned) -> str:
    """A learned sequence in readable form."""
    calls = [" ".join((step.tool, *step.words)) for step in _decoded(learned.steps)]
    return " → ".join(call if len(call) <= SPELLED else f"{call[:SPELLED]}…" for call in calls)


def why_learned(learned: Learned) -> str:
    if learned.rejected:
        return "rejected"
    if not learned.failures:
        return "succeeded"
    more = "" if learned.failures >= FAILURES else f", blocked from {FAILURES} on"
    return f"failed {learned.failures} times{more}"


def _encoded(steps: Sequence[Step]) -> str:
    return msgspec.json.encode([[step.tool, *step.words] for step in steps]).decode()


def _kept(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(words) <= KEPT_WORDS:
        return words
    rest = load(SHA256)("\0".join(words[KEPT_WORDS:]).encode("utf-8", "replace")).hexdigest()
    return (*words[:KEPT_WORDS], f"sha256:{rest}")


def _in_any_order(steps: Sequence[Step]) -> tuple[object, ...]:
    """Equal for the same calls before the same last one."""
    *before, last = [(step.tool, tuple(sorted(set(step.words)))) for step in steps]
    return (sorted(before), last)


def _decoded(text: str) -> list[Step]:
    return [Step(tool, tuple(words)) for tool, *words in read_json(text, type=list[list[str]])]


def _similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Ratio of shared words to all words (Jaccard); 1 if both are empty."""
    first, second = set(one), set(other)
    return len(first & second) / len(first | second) if first | second else 1.0
