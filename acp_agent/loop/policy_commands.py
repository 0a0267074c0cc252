"""What the user asks and says about the safety of a session: `/policy`, `/approve`, `/reject`, `/unblock`,
`/permissions`. Each function returns the text for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_agent.config.safety_settings import RiskConfig
from acp_agent.errors import StoreError
from acp_agent.safety.deciding.blocks import HOUR, LEARNED
from acp_agent.safety.deciding.trajectory import spelled, why_learned
from acp_agent.store.experience import TrajectoryStore

if TYPE_CHECKING:
    from acp_agent.loop.calls.call_permissions import Permissions

MIN_QUESTIONS = 2
"""How often something must have been asked and allowed for a rule to be suggested."""
MAX_PROPOSALS = 10
NOT_BLOCKED = "Nothing is blocked."


def learned_words(store: TrajectoryStore, project: str, rest: str) -> str:
    """What `/policy learned` answers to `rest`: empty, or `forget` with a number or `all`. Raises StoreError."""
    known = store.learned(project)
    word, _, which = rest.strip().partition(" ")
    which = which.strip().lstrip("#")
    if word == "forget" and which == "all":
        return f"Forgotten: {store.forget(project)}."
    if word == "forget" and which.isdecimal() and 1 <= int(which) <= len(known):
        store.drop(project, known[int(which) - 1].steps)
        return f"Forgotten: {spelled(known[int(which) - 1])}"
    if word:
        return "`learned` lists what was learned, `learned forget NUMBER` and `learned forget all` forget it."
    if not known:
        return f"Nothing was learned in {project}."
    lines = [f"- #{number} {why_learned(item)}: {spelled(item)}" for number, item in enumerate(known, 1)]
    return f"Learned in {project}:\n" + "\n".join(lines)


async def proposals(permissions: Permissions) -> list[str]:
    """Rules that would have saved questions, as TOML, the most useful first. Raises StoreError."""
    known = {rule.pattern for rule in permissions.deciders.rules.of("permissions") if rule.effect == "allow"}
    found = []
    questions = permissions.store.questions
    for asked in await questions.do(questions.counts, permissions.project, 100):
        pattern = _pattern(asked.scope)
        if asked.rejected or asked.allowed < MIN_QUESTIONS or pattern is None or pattern in known:
            continue
        found.append(
            f"[[tools.permissions.{asked.tool}]]  # would have saved {asked.allowed} questions\n"
            f'pattern = "{pattern}"\naction = "allow"'
        )
    return found[:MAX_PROPOSALS]


def approve(permissions: Permissions, beginning: str) -> str:
    """`/approve ID`; returns the text for the user."""
    pending = permissions.approvals.pending
    if not beginning and len(pending) == 1:
        beginning = pending[0]
    call_id = permissions.approvals.find(beginning)
    if call_id is None:
        listed = ", ".join(f"`{item[:8]}`" for item in pending) or "none"
        return f"No such call was stopped. Calls stopped by a limit in `tools.scoped`: {listed}."
    permissions.approvals.approve(call_id)
    permissions.audit.journal.notice(f"approved by the user: {call_id}", call_id=call_id)
    return "The same call may now exceed that limit once. Ask for it again."


async def reject(permissions: Permissions, beginning: str) -> str:
    """`/reject ID`; returns the text for the user."""
    sentinel = permissions.audit.blocks.sentinel
    if not sentinel.enabled:
        return "The trajectory sentinel is off; `tools.governance.trajectory_enabled` turns it on."
    try:
        tool = sentinel.reject(beginning or sentinel.last_call)
        await permissions.audit.learned.stored()
    except StoreError as error:
        return f"That could not be stored: {error}"
    if tool is None:
        return f"There is no call `{beginning}` in this session. Without an id, the last call is used."
    permissions.audit.journal.notice(f"rejected by the user: a call of {tool}", tool=tool)
    blocks = permissions.tools.governance.block_risky_patterns
    more = "" if blocks else " (`tools.governance.block_risky_patterns` is off, so it blocks nothing yet)"
    return f"Remembered for this project: calls like that one to `{tool}` are not acceptable{more}."


async def unblock(permissions: Permissions, name: str) -> str:
    """`/unblock NAME`; returns the text for the user."""
    try:
        if not name:
            return await _blocked(permissions)
        await permissions.audit.learn()
        if not permissions.audit.blocks.lift(name):
            return f"`{name}` is not blocked."
        await permissions.audit.learned.stored()
    except StoreError as error:
        return f"That could not be read or stored: {error}"
    permissions.audit.journal.notice(f"unblocked by the user: {name}", tool=name)
    what = {LEARNED: "What was learned was forgotten.", HOUR: "The hourly count was reset."}
    return what.get(name, f"`{name}` may be used again.")


async def learned(permissions: Permissions, rest: str) -> str:
    """`/policy learned ...`; returns the text for the user."""
    try:
        kept = permissions.store.trajectories
        told = await kept.do(learned_words, kept, permissions.project, rest)
    except StoreError as error:
        return f"That could not be read or stored: {error}"
    if rest.strip():
        permissions.audit.journal.notice(f"learned sequences, by the user: {told}")
    return told


async def _blocked(permissions: Permissions) -> str:
    """Raises StoreError."""
    await permissions.audit.learn()
    listed = "\n".join(f"- `{block.name}`: {block.reason}" for block in permissions.audit.blocks.listed())
    return f"Blocked:\n{listed}\n\n`/unblock NAME` unblocks one." if listed else NOT_BLOCKED


def status(permissions: Permissions) -> list[str]:
    """Lists what is active, one line each."""
    tools, rules, rate = permissions.tools, permissions.deciders.rules, permissions.audit.blocks.rate
    lines = [f"Autonomy: {tools.risk.autonomy}; high-risk commands {_high(tools.risk)}."]
    lines += [f"Rule: {rule}" for rule in rules.of("permissions")] or ["No permission rules."]
    lines += [f"Policy: {line}" for line in rules.policy_lines()] or ["No policy rules."]
    lines += rules.trouble
    lines.append("Limits of tools: " + ("`tools.scoped` is active." if rules.of("limits") else "none."))
    governance = tools.governance
    lines.append(
        f"Trajectory sentinel: on, {len(governance.blocked_sequences)} blocked sequences"
        + (", learned ones block." if governance.block_risky_patterns else ".")
        if governance.trajectory_enabled
        else "Trajectory sentinel: off."
    )
    blocked = ", ".join(f"`{item.tool}`" for item in permissions.audit.blocks.anomalies.blocked)
    lines.append(f"Tools blocked because they keep failing: {blocked or 'none'}.")
    if rate.limit:
        lines.append(f"Calls that changed something in the last hour: {rate.used} of {rate.limit}.")
    lines.append(permissions.audit.audit_words())
    return lines


def _high(risk: RiskConfig) -> str:
    if risk.block_high_risk_commands:
        return "are refused"
    return "ask like others" if risk.autonomy == "full" else "ask every time, in every mode"


def _pattern(scope: str) -> str | None:
    """The glob that covers what a remembered answer would: `bash cargo test` -> `cargo test *`."""
    word, _, rest = scope.partition(" ")
    if word != "bash" or not rest or rest.startswith("= ") or any(char in rest for char in '*?["\\'):
        return None
    return f"{rest} *"
