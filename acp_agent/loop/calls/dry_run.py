"""Decides about a call without making it: for `/policy check`, `acp-coder policy explain` and `policy test`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import AgentError, ToolError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.loop.modes import Mode
from acp_agent.safety.access import Allow, Ask, Deny, Verdict
from acp_agent.safety.deciding.deciders import CallFacts, Deciders
from acp_agent.safety.deciding.subjects import SaidByHook
from acp_agent.tools.kit.registry import Tools

Outcome = Literal["allow", "ask", "deny"]


class Checked(Struct, frozen=True):
    outcome: Outcome
    rule: str
    """The rule that decided."""
    lines: tuple[str, ...]
    """The full explanation, for a user."""


def check_call(
    registry: Tools,
    config: ToolsConfig,
    deciders: Deciders,
    mode: Mode,
    name: str,
    arguments: str,
    hooked: SaidByHook | None = None,
) -> Checked:
    """`arguments`: JSON. `hooked`: what hooks said before.

    Raises ToolError for a tool that does not exist and for arguments it does not take.
    """
    entry = registry.find(name)
    if entry is None:
        raise ToolError(f"Unknown tool `{name}`.", "tool_not_found")
    try:
        given: Any = read_loose_json(arguments or "{}")
    except ValueError as error:
        raise ToolError(f"The arguments are not JSON: {error}", "invalid_parameters") from error
    if not isinstance(given, dict):
        raise ToolError("The arguments are not a JSON object.", "invalid_parameters")
    if (hidden := deciders.hides(entry.name)) is not None:
        return Checked("deny", hidden, (f"deny: {hidden}",))
    tool: Any = registry.tool(entry.name)
    params = tool.parse(given)
    try:
        # Whether the model states the risk does not matter here.
        config = msgspec.structs.replace(config, require_risk_metadata=False)
        accesses = tool.access(params, deciders.roots, deciders.roots.cwd, config)
    except (AgentError, OSError) as error:
        return Checked("deny", "the tool refuses", (f"deny: {error}",))
    facts = CallFacts(entry.name, given, accesses, hooked=hooked)
    judged = deciders.decide(facts, mode=mode.id, may_change=mode.changes)
    verdict: Verdict = judged.verdict
    if isinstance(verdict, Ask) and hooked is not None and hooked.effect == "allow":
        verdict = verdict if verdict.every_time or verdict.by_person else Allow(hooked.rule)
    outcome = _outcome(verdict, mode)
    lines = [f"{outcome}: {_reason(verdict)}", f"rule: {verdict.rule or 'none'}"]
    lines += [f"policy: {judged.policy_match}"] if judged.policy_match else []
    if judged.risk is not None:
        lines.append(
            f"risk: {judged.risk.level}" + (f" ({', '.join(judged.risk.reasons)})" if judged.risk.reasons else "")
        )
    if isinstance(verdict, Ask):
        lines.append('an "always" covers: ' + (", ".join(verdict.scopes) if not verdict.every_time else "nothing"))
        lines += verdict.notes
    return Checked(outcome, verdict.rule, (*lines, *judged.explained))


def _outcome(verdict: Verdict, mode: Mode) -> Outcome:
    match verdict:
        case Deny():
            return "deny"
        case Ask() if mode.asks or verdict.every_time or verdict.by_person:
            return "ask"
        case _:
            return "allow"


def _reason(verdict: Verdict) -> str:
    match verdict:
        case Allow():
            return "nothing asks or denies"
        case Ask(reason) | Deny(reason):
            return reason


def words(checked: Checked) -> str:
    """For a chat."""
    return "\n".join(["```", *checked.lines, "```"])
