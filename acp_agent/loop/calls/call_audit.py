"""What was decided about calls, and what became of them: in the audit log, and in what the session learns from it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from acp_agent.config.load import Config
from acp_agent.errors import StoreError
from acp_agent.loop.journal import Journal
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.safety.access import CONNECT, Deny, ExecuteAccess
from acp_agent.safety.deciding.anomaly import Anomaly, AnomalyDetector
from acp_agent.safety.deciding.blocks import Blocks
from acp_agent.safety.deciding.deciders import CallFacts, Judgement
from acp_agent.safety.deciding.rate import ActionRate
from acp_agent.safety.deciding.trajectory import Learned, Sentinel
from acp_agent.store.base import Trajectory
from acp_agent.store.experience import TrajectoryStore

log = logging.getLogger(__name__)

FAILURES_THAT_COUNT = frozenset(("timeout", "server_error", "network_error", "permanent_failure", "rate_limited"))
"""Failure categories that reflect on the tool, unlike the model's mistakes and refusals."""


class CallAudit:
    """Of one project. `blocks`: what is blocked by what happened before."""

    def __init__(
        self, config: Config, tools: Any, journal: Journal, sandbox: FolderSandbox, learned: Trajectories, clean: Any
    ) -> None:
        """`tools`: of the configuration, with the tools' own names. `clean` redacts a text."""
        self._config = config
        self._tools = tools
        self.journal = journal
        self._sandbox = sandbox
        self.learned = learned
        self.blocks = Blocks(
            AnomalyDetector(tools.anomaly, self._anomaly),
            Sentinel(tools.governance, learned, clean),
            ActionRate(tools.risk.max_actions_per_hour),
        )

    async def learn(self) -> None:
        """Reads what was learned, here or by other agents."""
        try:
            if self.blocks.sentinel.enabled:
                await self.learned.read()
        except StoreError as error:
            log.warning("what was learned could not be read: %s", error)
        self.blocks.learn()

    async def decided(self, call: CallFacts, decision: Judgement, outcome: str, rule: str, reason: str = "") -> bool:
        """Logs the decision; False if that failed and the log is required. `outcome`: as in `AuditEntry`."""
        if outcome == "deny" and isinstance(decision.verdict, Deny) and decision.policy_match:
            self.blocks.refused(call)
        if outcome == "allow" and not self._tools.scope.audit_all_invocations and not call.acts:
            return True
        written = await self.journal.written("decision", **self._line(call, decision, outcome, rule, reason))
        return written or not self._config.settings.audit.required

    def refused(self, call: CallFacts, decision: Judgement, rule: str, reason: str) -> None:
        """Logs that it was refused before it was decided about."""
        self.journal.write("decision", **self._line(call, decision, "deny", rule, reason))

    def _line(self, call: CallFacts, decision: Judgement, outcome: str, rule: str, reason: str) -> dict[str, Any]:
        runs = any(isinstance(access, ExecuteAccess) for access in call.accesses)
        return {
            "call_id": call.call_id,
            "tool": call.tool,
            "arguments": json.dumps(call.arguments, ensure_ascii=False, default=str),
            "decision": outcome,
            "rule": rule,
            "policy_match": decision.policy_match,
            "reason": reason,
            "risk": decision.risk.level if decision.risk is not None else None,
            "sandbox": call.confined_by(self._sandbox.kind) if runs else None,
        }

    def began(self, call: CallFacts) -> None:
        """The call may run and does."""
        self.blocks.began(call)

    def ended(
        self, call: CallFacts, result: str, *, error: str = "", failed: bool = False, broke: bool = False, **fields: Any
    ) -> None:
        """It has run. `result`: as in `AuditEntry`; `error`: the category of its failure; `broke`: whether the tool
        itself failed, unlike a command that returns a non-zero exit code."""
        if result != "cancelled":
            counts = broke and error in FAILURES_THAT_COUNT
            self.blocks.ended(call, "failed" if failed else "succeeded", broke=counts)
        if self._tools.scope.audit_all_invocations or call.acts:
            self.journal.write("result", call_id=call.call_id, tool=call.tool, result=result, error=error, **fields)

    def warn(self, words: str) -> None:
        self.journal.warn(words)

    def connected(self, call_id: str, host: str, sent: int, received: int) -> None:
        """A command has ended that had connections to a host."""
        self.journal.write("network", call_id=call_id, tool=CONNECT, host=host, sent=sent, received=received)

    def _anomaly(self, anomaly: Anomaly) -> None:
        log.warning("anomaly: %s", anomaly)
        self.journal.notice(f"anomaly: {anomaly}", tool=anomaly.tool)
        limit = self._tools.anomaly.block_seconds
        until = f"`/unblock {anomaly.tool}`" + (f", or for {limit:g} s" if limit else "")
        blocked = f" It is blocked until {until}." if self._tools.anomaly.auto_block else ""
        self.journal.outbox.tell(f"Something is wrong: {anomaly}.{blocked}")

    def audit_words(self) -> str:
        audit = self.journal.audit
        if audit.path is None:
            return "Audit log: off (`audit.enabled`)."
        state = "cannot be written" if audit.failing else "is written"
        needed = ", and no tool runs without it" if self._config.settings.audit.required else ""
        return f"Audit log: {audit.path} {state}{needed}."


class Trajectories:
    """The sequences of calls learned for one project: as they were read before the last call was judged, and changed
    here since."""

    def __init__(self, store: TrajectoryStore, project: str, tools: Any) -> None:
        self._store = store
        self._project = project
        self._limit = tools.governance.max_learned
        self._known: dict[str, Trajectory] = {}
        self._failure: StoreError | None = None

    async def read(self) -> None:
        """Raises StoreError."""
        known = await self._store.do(self._store.learned, self._project)
        self._known = {each.steps: each for each in known}

    async def stored(self) -> None:
        """Raises StoreError if what was changed here could not be stored."""
        await self._store.do(lambda: None)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def learned(self) -> Sequence[Learned]:
        return list(self._known.values())

    def keep(self, steps: str, failures: int, rejected: bool) -> None:
        self._known.pop(steps, None)
        self._known = {steps: (kept := Trajectory(steps, failures, rejected)), **self._known}
        self._store.later(partial(self._store.keep, self._project, kept, self._limit), self._failed)

    def forget(self) -> int:
        count, self._known = len(self._known), {}
        self._store.later(partial(self._store.forget, self._project), self._failed)
        return count

    def _failed(self, error: StoreError) -> None:
        log.warning("what was learned could not be kept: %s", error)
        self._failure = error
