"""The safety of a session: the deciders, what the session has learned, and the audit log.

The gate asks `decide` before a call runs; `ToolRunner` tells `began` and `ended`. The commands (`/policy`, `/approve`,
`/reject`, `/unblock`, `/permissions`) read and change it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec.structs import replace

from acp_agent.config.load import Config
from acp_agent.config.safety_settings import RiskConfig
from acp_agent.config.xdg import config_dir, config_file, data_dir, state_dir
from acp_agent.credentials.redactor import Redactor
from acp_agent.disk import HERE
from acp_agent.errors import ExecutorError, StoreError
from acp_agent.loop.journal import Journal
from acp_agent.loop.judging import judged
from acp_agent.loop.modes import Mode
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.safety.access import CONNECT, Allow, Ask, Deny, ExecuteAccess, PathAccess
from acp_agent.safety.deciding.anomaly import Anomaly, AnomalyDetector
from acp_agent.safety.deciding.approvals import Approvals
from acp_agent.safety.deciding.blocks import HOUR, LEARNED, Blocks
from acp_agent.safety.deciding.deciders import CallFacts, Deciders, Judgement
from acp_agent.safety.deciding.own_names import with_own_names
from acp_agent.safety.deciding.rate import ActionRate
from acp_agent.safety.deciding.rule_list import RuleList
from acp_agent.safety.deciding.trajectory import Learned, Sentinel, spelled, why_learned
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.folders.protect import PathRules, also_mounted, configured_folders
from acp_agent.store.base import Trajectory
from acp_agent.store.experience import TrajectoryStore
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import SessionRegistry

log = logging.getLogger(__name__)

MIN_QUESTIONS = 2
"""How often something must have been asked and allowed for a rule to be suggested."""
MAX_PROPOSALS = 10
FAILURES_THAT_COUNT = frozenset(("timeout", "server_error", "network_error", "permanent_failure", "rate_limited"))
"""Failure categories that reflect on the tool, unlike the model's mistakes and refusals."""


def audit_path(config: Config, environ: Mapping[str, str]) -> Path | None:
    """Path of the audit log; `None` without one."""
    audit = config.settings.audit
    if not audit.enabled:
        return None
    return Path(audit.file).expanduser() if audit.file else Path(state_dir(environ)) / "audit.jsonl"


def session_rules(config: Config, roots: Roots, environ: Mapping[str, str], home: Path | None) -> PathRules:
    """The rules for paths in a session's folders. The agent's own files are protected wherever they are: changing them
    would change what the user has allowed."""
    settings = config.settings
    tools = settings.tools
    store = Path(settings.store.path).expanduser() if settings.store.path else None
    audit = audit_path(config, environ)
    own = [Path(find(environ)) for find in (config_dir, state_dir, data_dir, config_file)]
    own += [Path(f"{store}{end}") for end in ("", "-wal", "-shm")] if store is not None else []
    if audit is not None:
        own.append(audit)
    rules = RuleList.compile(tools, environ, home, roots=roots)
    own = list(dict.fromkeys(path.absolute() for path in own))
    return PathRules(
        (*tools.sandbox.protect, *tools.sandbox.protect_existing, *tools.sandbox.report, *_programs(roots, environ)),
        tools.files.deny_read,
        tools.files.allow_read,
        roots.real,
        home,
        own=[*own, *also_mounted(own)],
        absolute=rules.hidden_paths("read"),
        policy=rules.denied_paths(),
        forbidden=_forbidden(tools.risk.forbidden_paths, roots, home),
        key_files=tools.files.key_files,
        disk=roots.disk,
    )


def _programs(roots: Roots, environ: Mapping[str, str]) -> Iterator[str]:
    """The session's folders on PATH (an activated `.venv/bin`): hooks and servers run what is there by its name."""
    for entry in environ.get("PATH", "").split(os.pathsep) if roots.disk.here else ():
        place = os.path.realpath(entry) if os.path.isabs(entry) else ""
        yield from (place.removeprefix(f"{root}/") for root in roots.real if place.startswith(f"{root}/"))


def _forbidden(texts: Sequence[str], roots: Roots, home: Path | None) -> dict[Path, None]:
    """Those in the session's folders, and in a repository around the first, resolved. A session whose folder is in one
    was opened there on purpose."""
    disk, found = roots.disk, dict[Path, None]()
    top = next((each for each in roots.real[0].parents if disk.stands(each / ".git")), None)
    for text in texts:
        path = home / text[2:] if text.startswith("~/") and home is not None else Path(text)
        if path.is_absolute():
            found |= {
                place: None for place in (path, disk.real_path(path)) if roots.contains(place) or top in place.parents
            }
    return {place: None for place in found if not roots.holds_root(place)}


def home_of(environ: Mapping[str, str]) -> Path | None:
    """The user's home, resolved."""
    home = environ.get("HOME", "")
    return real_path(Path(home)) if home.startswith("/") else None


def roots_of(config: Config, cwd: Path, environ: Mapping[str, str]) -> Roots:
    """The folders of a session in `cwd`, with their protected and hidden paths."""
    roots = Roots(cwd, configured_folders(config.settings.tools.files.allowed_paths))
    roots.rules = session_rules(config, roots, environ, home_of(environ))
    return roots


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


class Guard:
    """The safety of one project."""

    def __init__(
        self,
        config: Config,
        roots: Roots,
        environ: Mapping[str, str],
        home: Path | None,
        registry: SessionRegistry,
        store: SessionStore,
        redactor: Redactor,
        journal: Journal,
        sandbox: FolderSandbox,
    ) -> None:
        """`home`: the user's home folder where the roots are."""
        tools = with_own_names(config.settings.tools, registry.own_name)
        self._registry = registry
        self._config = config
        self._tools = tools
        self._store = store
        self._journal = journal
        self._sandbox = sandbox
        self.project = roots.project
        self.approvals = Approvals()
        self._learned = _Trajectories(store.trajectories, self.project, tools)
        self.blocks = Blocks(
            AnomalyDetector(tools.anomaly, self._anomaly),
            Sentinel(tools.governance, self._learned, redactor.redact),
            ActionRate(tools.risk.max_actions_per_hour),
        )
        origin = config.origin_of
        self.deciders = Deciders.from_config(tools, roots, environ, home, origin, self.blocks, registry.knows)

    def unknown_tools(self) -> list[str]:
        """A notice about rules for tools that do not exist. MCP tools may still be added."""
        tools = self._tools
        names = [*tools.permissions, *tools.scoped.allowed_tools, *tools.scoped.denied_tools]
        names += [rule.tool for rule in (*tools.policy.rules, *tools.authorization.rules)]
        names += [constraint.tool for constraint in tools.scoped.constraints]
        wild = [name for name in names if not any(char in name for char in "*?[") and not name.startswith("mcp_")]
        strange = [name for name in dict.fromkeys(wild) if name != CONNECT and not self._registry.knows(name)]
        unknown = ", ".join(f"`{name}`" for name in strange)
        return [f"Your rules name tools that do not exist: {unknown}."] if unknown else []

    # --- before a call ----------------------------------------------------------------------------------------

    async def decide(self, call: CallFacts, mode: Mode) -> Judgement:
        audit = self._journal.audit
        if audit.refuses and not await self._journal.written("notice", reason="tried again"):
            words = "The audit log is required and cannot be written, so no tool runs (see `/policy status`)."
            return Judgement(Deny(words, "audit.required"))
        if self._tools.scope.enabled and self._tools.scope.require_capability:
            try:
                self._sandbox.user()
            except ExecutorError as error:
                return Judgement(Deny(f"No tool runs: {error}", "tools.scope.require_capability"))
        approved = self.approvals.of(call.tool, call.arguments)
        decide = partial(self.deciders.decide, call, mode=mode.id, may_change=mode.changes, approved=approved)
        await self.learn()
        decision = replace(await judged(self.deciders.roots, decide), approved=approved)
        if call.leaves and not isinstance(decision.verdict, Deny):
            decision = replace(decision, verdict=_leaving(call, decision.verdict))
        if isinstance(decision.verdict, Deny) and decision.verdict.approvable and call.call_id:
            self.approvals.violated(call.call_id, call.tool, call.arguments, decision.verdict.rule)
        return decision

    async def learn(self) -> None:
        """Reads what was learned, here or by other agents."""
        try:
            if self.blocks.sentinel.enabled:
                await self._learned.read()
        except StoreError as error:
            log.warning("what was learned could not be read: %s", error)
        self.blocks.learn()

    # --- the life of a call -----------------------------------------------------------------------------------

    async def decided(self, call: CallFacts, decision: Judgement, outcome: str, rule: str, reason: str = "") -> bool:
        """Logs the decision; False if that failed and the log is required. `outcome`: as in `AuditEntry`."""
        if outcome == "deny" and isinstance(decision.verdict, Deny) and decision.policy_match:
            self.blocks.refused(call)
        if outcome == "allow" and not self._tools.scope.audit_all_invocations and not call.acts:
            return True
        written = await self._journal.written("decision", **self._line(call, decision, outcome, rule, reason))
        return written or not self._config.settings.audit.required

    def refused(self, call: CallFacts, decision: Judgement, rule: str, reason: str) -> None:
        """Logs that it was refused before it was decided about."""
        self._journal.write("decision", **self._line(call, decision, "deny", rule, reason))

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
            "sandbox": self._sandbox_of(call) if runs else None,
        }

    def _sandbox_of(self, call: CallFacts) -> str:
        outside = any(isinstance(access, ExecuteAccess) and not access.confined for access in call.accesses)
        if (place := call.place) is not None:
            return place.words if outside or place.sandbox in ("", "none") else f"{place.words}: {place.sandbox}"
        return "none" if outside else self._sandbox.kind

    def lacks_sandbox(self, call: CallFacts) -> bool:
        """Whether it runs a command that should be confined, but no sandbox was found to work."""
        found = self._sandbox.found
        runs = any(isinstance(access, ExecuteAccess) and access.confined for access in call.accesses)
        if call.place is not None:
            return runs and call.place.lacks_walls
        return runs and found is not None and found.sandbox.kind == "none" and not found.disabled

    def placed(self, call: CallFacts, ask: Ask) -> Ask:
        """An answer about a command holds for one place. (One about files there is kept for the folder there.)"""
        place = call.place
        if place is None:
            return ask
        if not any(isinstance(access, ExecuteAccess) for access in call.accesses):
            files = not self.deciders.roots.disk.here and any(isinstance(each, PathAccess) for each in call.accesses)
            return replace(ask, scope_words=f"{ask.scope_words} {place.where}") if files else ask
        prefix, words = f"in:{quote(place.identity)} ", f" {place.where}"
        wider = None if ask.wider is None else (prefix + ask.wider[0], ask.wider[1] + words)
        scopes = tuple(prefix + scope for scope in ask.scopes)
        return replace(ask, scopes=scopes, scope_words=ask.scope_words + words, wider=wider)

    def exposed_link(self, call: CallFacts) -> Path | None:
        """A link on the way to the agent's own files that the call's command could replace: no sandbox can keep it from
        that."""
        runs = any(isinstance(access, ExecuteAccess) and access.confined for access in call.accesses)
        found = self._sandbox.found
        roots = self.deciders.roots
        if not runs or found is None or found.disabled or not roots.disk.here:
            return None
        return next((link for link in roots.rules.links if roots.contains(link)), None)

    def began(self, call: CallFacts) -> None:
        """The call may run and does."""
        self.blocks.began(call)

    def ended(
        self,
        call: CallFacts,
        result: str,
        *,
        error: str = "",
        failed: bool = False,
        broke: bool = False,
        **fields: Any,
    ) -> None:
        """It has run. `result`: as in `AuditEntry`; `error`: the category of its failure; `broke`: whether the tool
        itself failed, unlike a command that returns a non-zero exit code."""
        if result != "cancelled":
            counts = broke and error in FAILURES_THAT_COUNT
            self.blocks.ended(call, "failed" if failed else "succeeded", broke=counts)
        if self._tools.scope.audit_all_invocations or call.acts:
            self._journal.write(
                "result",
                call_id=call.call_id,
                tool=call.tool,
                result=result,
                error=error,
                **fields,
            )

    def warn(self, words: str) -> None:
        self._journal.warn(words)

    async def refuses(self, host: str) -> str:
        """Why nothing of the session may connect to a host, by the user's rules and answers; empty if it may."""
        rule = self.deciders.rules.permission(CONNECT, [host])
        if rule is not None and rule.effect == "deny":
            return rule.denial().reason
        known = await self._store.known_permissions(self.project)
        answers = {answer.scope: answer.decision for answer in known}
        return f"The user chose never to allow {host}." if answers.get(f"send = {host}") == "reject" else ""

    def connected(self, call_id: str, host: str, sent: int, received: int) -> None:
        """A command has ended that had connections to a host."""
        self._journal.write("network", call_id=call_id, tool=CONNECT, host=host, sent=sent, received=received)

    def _anomaly(self, anomaly: Anomaly) -> None:
        log.warning("anomaly: %s", anomaly)
        self._journal.notice(f"anomaly: {anomaly}", tool=anomaly.tool)
        limit = self._tools.anomaly.block_seconds
        until = f"`/unblock {anomaly.tool}`" + (f", or for {limit:g} s" if limit else "")
        blocked = f" It is blocked until {until}." if self._tools.anomaly.auto_block else ""
        self._journal.outbox.tell(f"Something is wrong: {anomaly}.{blocked}")

    # --- questions --------------------------------------------------------------------------------------------

    def answered(self, tool: str, scopes: Sequence[str], *, allowed: bool) -> None:
        """The user was asked about these."""
        count = partial(self._store.questions.answered, self.project, tool, scopes, allowed=allowed)
        self._store.later(count, partial(log.warning, "a question could not be counted: %s"))

    async def proposals(self) -> list[str]:
        """Rules that would have saved questions, as TOML, the most useful first. Raises StoreError."""
        known = {rule.pattern for rule in self.deciders.rules.of("permissions") if rule.effect == "allow"}
        found = []
        questions = self._store.questions
        for asked in await questions.do(questions.counts, self.project, 100):
            pattern = _pattern(asked.scope)
            if asked.rejected or asked.allowed < MIN_QUESTIONS or pattern is None or pattern in known:
                continue
            found.append(
                f"[[tools.permissions.{asked.tool}]]  # would have saved {asked.allowed} questions\n"
                f'pattern = "{pattern}"\naction = "allow"'
            )
        return found[:MAX_PROPOSALS]

    # --- what the user says ---------------------------------------------------------------------------------

    def approve(self, beginning: str) -> str:
        """`/approve ID`; returns the text for the user."""
        pending = self.approvals.pending
        if not beginning and len(pending) == 1:
            beginning = pending[0]
        call_id = self.approvals.find(beginning)
        if call_id is None:
            listed = ", ".join(f"`{item[:8]}`" for item in pending) or "none"
            return f"No such call was stopped. Calls stopped by a limit in `tools.scoped`: {listed}."
        self.approvals.approve(call_id)
        self._journal.notice(f"approved by the user: {call_id}", call_id=call_id)
        return "The same call may now exceed that limit once. Ask for it again."

    async def reject(self, beginning: str) -> str:
        """`/reject ID`; returns the text for the user."""
        sentinel = self.blocks.sentinel
        if not sentinel.enabled:
            return "The trajectory sentinel is off; `tools.governance.trajectory_enabled` turns it on."
        try:
            tool = sentinel.reject(beginning or sentinel.last_call)
            await self._learned.stored()
        except StoreError as error:
            return f"That could not be stored: {error}"
        if tool is None:
            return f"There is no call `{beginning}` in this session. Without an id, the last call is used."
        self._journal.notice(f"rejected by the user: a call of {tool}", tool=tool)
        blocks = self._tools.governance.block_risky_patterns
        more = "" if blocks else " (`tools.governance.block_risky_patterns` is off, so it blocks nothing yet)"
        return f"Remembered for this project: calls like that one to `{tool}` are not acceptable{more}."

    async def unblock(self, name: str) -> str:
        """`/unblock NAME`; returns the text for the user."""
        try:
            if not name:
                return await self._blocked()
            await self.learn()
            if not self.blocks.lift(name):
                return f"`{name}` is not blocked."
            await self._learned.stored()
        except StoreError as error:
            return f"That could not be read or stored: {error}"
        self._journal.notice(f"unblocked by the user: {name}", tool=name)
        what = {LEARNED: "What was learned was forgotten.", HOUR: "The hourly count was reset."}
        return what.get(name, f"`{name}` may be used again.")

    async def learned(self, rest: str) -> str:
        """`/policy learned ...`; returns the text for the user."""
        try:
            kept = self._store.trajectories
            told = await kept.do(learned_words, kept, self.project, rest)
        except StoreError as error:
            return f"That could not be read or stored: {error}"
        if rest.strip():
            self._journal.notice(f"learned sequences, by the user: {told}")
        return told

    async def _blocked(self) -> str:
        """Raises StoreError."""
        await self.learn()
        listed = "\n".join(f"- `{block.name}`: {block.reason}" for block in self.blocks.listed())
        return f"Blocked:\n{listed}\n\n`/unblock NAME` unblocks one." if listed else NOT_BLOCKED

    def status(self) -> list[str]:
        """Lists what is active, one line each."""
        tools, rules, rate = self._tools, self.deciders.rules, self.blocks.rate
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
        blocked = ", ".join(f"`{item.tool}`" for item in self.blocks.anomalies.blocked)
        lines.append(f"Tools blocked because they keep failing: {blocked or 'none'}.")
        if rate.limit:
            lines.append(f"Calls that changed something in the last hour: {rate.used} of {rate.limit}.")
        lines.append(self.audit_words())
        return lines

    def audit_words(self) -> str:
        audit = self._journal.audit
        if audit.path is None:
            return "Audit log: off (`audit.enabled`)."
        state = "cannot be written" if audit.failing else "is written"
        needed = ", and no tool runs without it" if self._config.settings.audit.required else ""
        return f"Audit log: {audit.path} {state}{needed}."


NOT_BLOCKED = "Nothing is blocked."


def _high(risk: RiskConfig) -> str:
    if risk.block_high_risk_commands:
        return "are refused"
    return "ask like others" if risk.autonomy == "full" else "ask every time, in every mode"


class _Trajectories:
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


def _leaving(call: CallFacts, verdict: Allow | Ask) -> Ask:
    """What runs in another place than the session's is asked about in every mode."""
    reason = f"it runs {HERE.where if call.place is None else call.place.where}, not where the session is"
    if isinstance(verdict, Allow):
        commands = tuple(f"bash = {each.command}" for each in call.accesses if isinstance(each, ExecuteAccess))
        once = call.apart or not commands
        return Ask(reason, commands, "this exact command", every_time=once, by_person=True, rule=verdict.rule)
    every_time = verdict.every_time or call.apart
    return replace(verdict, reason=f"{reason}; {verdict.reason}", every_time=every_time, by_person=True)


def _pattern(scope: str) -> str | None:
    """The glob that covers what a remembered answer would: `bash cargo test` -> `cargo test *`."""
    word, _, rest = scope.partition(" ")
    if word != "bash" or not rest or rest.startswith("= ") or any(char in rest for char in '*?["\\'):
        return None
    return f"{rest} *"
