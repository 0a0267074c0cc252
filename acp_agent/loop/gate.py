"""The permission gate: rules, remembered answers, and the question to the person.

The one place that turns a verdict into a question. An error, an unknown option or garbage as an answer is never
approval. A remembered "always" answers an ask, never a deny.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acp_agent.errors import AgentError, ConnectionClosed
from acp_agent.loop.modes import Mode
from acp_agent.protocol.client import Client
from acp_agent.safety.access import Access, Allow, Ask, Deny, Verdict
from acp_agent.safety.decide import decide
from acp_agent.safety.paths import Roots
from acp_agent.schema.acp import (
    CancelledPermissionOutcome,
    PermissionOption,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
    ToolCallUpdate,
)
from acp_agent.store.base import Decision, SessionStore

if TYPE_CHECKING:
    from acp_agent.errors import ToolErrorCategory

__all__ = ["Gate", "Permit", "Refused", "TurnCancelledByClient"]

log = logging.getLogger(__name__)

REJECTED = (
    "The person did not allow this call, and it was not run. Do not try to reach the same in another way; "
    "go on without it, or say what you need and why."
)


@dataclass(frozen=True)
class Permit:
    """The call may run."""


@dataclass(frozen=True)
class Refused:
    """The call must not run; `reason` is for the model and the person."""

    reason: str
    category: ToolErrorCategory = "policy_blocked"


@dataclass(frozen=True)
class TurnCancelledByClient:
    """The client answered that the turn is being cancelled."""


class Gate:
    """Permissions of one session. `project` is what remembered answers belong to."""

    def __init__(
        self,
        client: Client,
        store: SessionStore,
        roots: Roots,
        mode: Callable[[], Mode],
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`redact` takes credentials out: an answer about a command that holds one is not remembered, since what is
        remembered is kept on disk."""
        self._redact = redact
        self._client = client
        self._store = store
        self._roots = roots
        self._mode = mode
        self._project = str(roots.cwd)

    async def permit(
        self, accesses: Sequence[Access], call: ToolCallUpdate
    ) -> Permit | Refused | TurnCancelledByClient:
        """Whether a call that touches `accesses` may run. `call` is shown with the question, if there is one."""
        mode = self._mode()
        verdict: Verdict = decide(accesses, self._roots, mode=mode.id, may_change=mode.changes)
        if isinstance(verdict, Ask):
            verdict = self._remembered(verdict, mode)
        match verdict:
            case Allow():
                return Permit()
            case Deny(reason):
                return Refused(reason)
            case Ask():
                answer = await self._ask(verdict, call)
                if isinstance(answer, Permit) and verdict.changes and not self._mode().changes:
                    # The person thought it over in another way: the mode they chose meanwhile only reads.
                    return Refused(f"The mode was changed to `{self._mode().id}`, which only reads. It was not run.")
                return answer

    def _remembered(self, ask: Ask, mode: Mode) -> Verdict:
        if ask.every_time:
            return ask
        answers = {answer.scope: answer.decision for answer in self._store.permissions(self._project)}
        if any(answers.get(scope) == "reject" for scope in ask.scopes):
            return Deny(f"The person has chosen never to allow {ask.scope_words} (see /permissions). It was not run.")
        if not mode.asks or (ask.scopes and all(answers.get(scope) == "allow" for scope in ask.scopes)):
            return Allow()
        return ask

    async def _ask(self, ask: Ask, call: ToolCallUpdate) -> Permit | Refused | TurnCancelledByClient:
        options = [
            PermissionOption(option_id="allow_once", name="Allow once", kind="allow_once"),
            PermissionOption(option_id="allow_always", name=f"Always allow {ask.scope_words}", kind="allow_always"),
            PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
            PermissionOption(option_id="reject_always", name=f"Never allow {ask.scope_words}", kind="reject_always"),
        ]
        if self._only_once(ask):
            options = [option for option in options if option.kind in ("allow_once", "reject_once")]
        try:
            answer = await self._client.request_permission(call, options)
        except ConnectionClosed:
            raise
        except AgentError as error:
            log.warning("the permission request failed: %s", error)
            return Refused(f"The editor could not ask the person for permission ({error}), so the call was not run.")
        return self._take(answer, ask)

    def _only_once(self, ask: Ask) -> bool:
        return ask.every_time or any(self._redact(scope) != scope for scope in ask.scopes)

    def _take(self, answer: RequestPermissionResponse, ask: Ask) -> Permit | Refused | TurnCancelledByClient:
        match answer.outcome:
            case CancelledPermissionOutcome():
                return TurnCancelledByClient()
            case SelectedPermissionOutcome(option_id="allow_once"):
                return Permit()
            case SelectedPermissionOutcome(option_id="allow_always") if not self._only_once(ask):
                self._remember(ask, "allow")
                return Permit()
            case SelectedPermissionOutcome(option_id="reject_always") if not self._only_once(ask):
                self._remember(ask, "reject")
                return Refused(REJECTED, "confirmation_required")
            case SelectedPermissionOutcome(option_id="reject_once"):
                return Refused(REJECTED, "confirmation_required")
            case SelectedPermissionOutcome(option_id=unknown):
                return Refused(f"The editor answered the permission request with an unknown option ({unknown!r}).")
        return Refused("The editor's answer to the permission request was not understood.")

    def _remember(self, ask: Ask, decision: Decision) -> None:
        for scope in ask.scopes:
            self._store.remember(self._project, scope.split(" ", 1)[0], scope, decision)
