"""Calls blocked because of earlier ones: tools that keep failing (`anomaly`), sequences that went wrong (`trajectory`),
too many changes within an hour (`rate`). One list, each entry with its reason; `/unblock` shows and removes entries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from acp_agent.errors import StoreError
from acp_agent.safety.access import Deny
from acp_agent.safety.deciding.anomaly import AnomalyDetector
from acp_agent.safety.deciding.rate import ActionRate
from acp_agent.safety.deciding.subjects import CallFacts, Step
from acp_agent.safety.deciding.trajectory import Outcome, Sentinel, spelled, why_learned

log = logging.getLogger(__name__)

LEARNED = "learned"
HOUR = "hour"
RATE = "tools.risk.max_actions_per_hour"
MAX_LISTED = 20


class Block(Struct, frozen=True):
    name: str
    """Removed with `/unblock NAME`."""
    reason: str


class Blocks:
    """Blocks of one session."""

    def __init__(self, anomalies: AnomalyDetector, sentinel: Sentinel, rate: ActionRate) -> None:
        self.anomalies = anomalies
        self.sentinel = sentinel
        self.rate = rate

    # --- before a call ----------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Reads what was learned, for a judgement in another thread, where the store cannot be asked."""
        try:
            self.sentinel.known = self.sentinel.learned if self.sentinel.enabled else ()
        except StoreError as error:
            self.sentinel.known = ()
            log.warning("what was learned could not be read: %s", error)

    def steps(self, call: CallFacts, spellings: Sequence[str]) -> tuple[Step, ...]:
        """The call in the form that sequences compare; for a command line also its simple commands, normalised."""
        given = (call.arguments, *({"command": text} for text in spellings))
        return tuple(self.sentinel.step(call.tool, arguments) for arguments in given) if self.sentinel.enabled else ()

    def check(self, call: CallFacts, steps: Sequence[Step]) -> Deny | None:
        if (anomaly := self.anomalies.blocks(call.tool)) is not None:
            return Deny(
                f"`{call.tool}` is blocked: {anomaly}. Only the user can change that (`/unblock {call.tool}`).",
                "tools.anomaly",
            )
        try:
            learned = next(filter(None, map(self.sentinel.blocks, steps)), "")
        except StoreError as error:
            log.warning("what was learned could not be read: %s", error)
            learned = ""
        if learned:
            return Deny(learned, "learned sequence")
        if call.acts and (wait := self.rate.wait()):
            return Deny(
                f"{self.rate.limit} calls of this session changed something within an hour, which is the limit "
                f"(`{RATE}`). The next one is possible in {wait / 60:.0f} min.",
                RATE,
            )
        return None

    # --- calls ------------------------------------------------------------------------------------------------

    def began(self, call: CallFacts) -> None:
        if call.acts:
            self.rate.count()
        self.sentinel.began(call.call_id, call.tool, call.arguments)

    def refused(self, call: CallFacts) -> None:
        """A policy has denied it."""
        self._keep(partial(self.sentinel.refused, call.tool, call.arguments))

    def ended(self, call: CallFacts, outcome: Outcome, *, broke: bool) -> None:
        """`broke`: the tool itself failed."""
        self.anomalies.observed(call.tool, failed=broke)
        self._keep(partial(self.sentinel.ended, call.call_id, outcome))

    def _keep(self, learn: Callable[[], None]) -> None:
        try:
            learn()
        except StoreError as error:
            log.warning("the outcome of a call could not be kept: %s", error)

    # --- list and unblock ---------------------------------------------------------------------------------------

    def listed(self) -> list[Block]:
        """Raises StoreError."""
        found = [Block(item.tool, str(item)) for item in self.anomalies.blocked]
        blocking = self.sentinel.blocking if self.sentinel.enabled else []
        found += [Block(LEARNED, f"{why_learned(each)}: {spelled(each)}") for each in blocking[:MAX_LISTED]]
        found += [Block(LEARNED, f"and {more} more")] if (more := len(blocking) - MAX_LISTED) > 0 else []
        if wait := self.rate.wait():
            why = f"{self.rate.limit} calls changed something within an hour; wait {wait / 60:.0f} min for the next"
            found.append(Block(HOUR, why))
        return found

    def lift(self, name: str) -> bool:
        """Returns False if nothing is blocked under that name. Raises StoreError."""
        if self.anomalies.unblock(name):
            return True
        if name == LEARNED:
            return self.sentinel.enabled and self.sentinel.forget() > 0
        return name == HOUR and self.rate.lift()
