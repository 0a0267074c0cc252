"""What a hook says: the protocol of Claude Code's hooks (https://code.claude.com/docs/en/hooks). Pure.

A command gets a JSON object on stdin. Exit code 2 says no, with the reason on stderr; 0 with a JSON object on stdout
says what it says; 0 with other text adds that to what the model reads, where the event is a prompt or a start. Anything
else is a failure of the hook. A URL gets the object as the body of a POST, and answers as stdout does.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from acp_agent.config.safety_settings import HookEvent
from acp_agent.errors import HookFailed
from acp_agent.limits.decoding import read_json

Effect = Literal["", "allow", "ask", "deny"]

REFUSAL = 2
"""The exit code."""
DECIDE: frozenset[HookEvent] = frozenset(
    ("PreToolUse", "PermissionRequest", "UserPromptSubmit", "PreCompact", "Stop", "SubagentStop")
)
"""Events whose hooks can say no."""
TEXT_IS_CONTEXT: frozenset[HookEvent] = frozenset(("UserPromptSubmit", "SessionStart", "SubagentStart"))
"""Events where plain text on stdout is for the model."""
WORDS: dict[str, Effect] = {"allow": "allow", "approve": "allow", "ask": "ask", "deny": "deny", "block": "deny"}
NO_WORDS = frozenset(("", "defer"))
"""Decisions that decide nothing."""


class HookAnswer(Struct, frozen=True):
    effect: Effect = ""
    """`deny` of an event behind which something has happened already is a complaint to the model."""
    reason: str = ""
    changed: dict[str, Any] | None = None
    """Another input of the call, in the hook's names."""
    context: str = ""
    """For the model."""
    message: str = ""
    """For the user."""
    stops: str | None = None
    """The turn is to end; why."""


class _Permission(Struct, frozen=True):
    behavior: Literal["allow", "deny"]
    message: str = ""
    updated_input: dict[str, Any] | None = field(name="updatedInput", default=None)
    interrupt: bool = False


class _Specific(Struct, frozen=True):
    permission_decision: str = field(name="permissionDecision", default="")
    permission_decision_reason: str = field(name="permissionDecisionReason", default="")
    updated_input: dict[str, Any] | None = field(name="updatedInput", default=None)
    additional_context: str = field(name="additionalContext", default="")
    decision: _Permission | None = None


class _Said(Struct, frozen=True):
    go_on: bool = field(name="continue", default=True)
    stop_reason: str = field(name="stopReason", default="")
    system_message: str = field(name="systemMessage", default="")
    decision: str = ""
    reason: str = ""
    additional_context: str = field(name="additionalContext", default="")
    specific: _Specific = field(name="hookSpecificOutput", default=_Specific())


def read_exit(event: HookEvent, code: int | None, stdout: str, stderr: str) -> HookAnswer:
    """What a command said that ended with `code`. Raises HookFailed."""
    if code == REFUSAL:
        reason = stderr.strip() or stdout.strip() or "it gave no reason"
        if event in DECIDE or event == "PostToolUse":
            return HookAnswer("deny", reason)
        return HookAnswer(message=reason)
    if code != 0:
        said = stderr.strip() or stdout.strip()
        raise HookFailed(f"exit code {code}{': ' + said if said else ''}")
    return read_text(event, stdout)


def read_text(event: HookEvent, text: str) -> HookAnswer:
    """What a hook said that succeeded. Raises HookFailed."""
    if not text.lstrip().startswith("{"):
        return HookAnswer(context=text.strip() if event in TEXT_IS_CONTEXT else "")
    try:
        said = read_json(text, type=_Said)
    except msgspec.DecodeError as error:
        raise HookFailed(f"its output is not what a hook says: {error}") from error
    specific = said.specific
    word, reason = said.decision, said.reason
    if specific.permission_decision:
        word, reason = specific.permission_decision, specific.permission_decision_reason or reason
    if specific.decision is not None:
        if specific.decision.updated_input is not None:
            raise HookFailed("`updatedInput` of a permission request is not supported: change the input in PreToolUse")
        word, reason = specific.decision.behavior, specific.decision.message or reason
    if word not in WORDS and word not in NO_WORDS:
        raise HookFailed(f"it decided {word!r}, which is not one of {', '.join(WORDS)}")
    stops = None if said.go_on else said.stop_reason
    if specific.decision is not None and specific.decision.interrupt:
        stops = reason
    return HookAnswer(
        WORDS.get(word, ""),
        reason,
        specific.updated_input,
        "\n".join(filter(None, (said.additional_context, specific.additional_context))),
        said.system_message,
        stops,
    )
