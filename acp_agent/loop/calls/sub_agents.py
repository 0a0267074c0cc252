"""Sub-agents: their own prompt, history and set of tools, inside one tool call.

In the client, a sub-agent's calls appear below the call that started it (`_meta.claudeCode.parentToolUseId`); its text
goes to the model that asked for it, not to the user. The call's card shows one line: its current activity. Cancelling
the call ends all of it: it runs in the call's own task.

Its conversation is stored as a session, a child of the one it works for (`_meta.subAgent.sessionId` of the call). It
can be loaded and prompted like any other. A client with the capability `subagents` is shown it as such: announced by
`subagent_update` in the session above, then its messages and calls under its own id, and not below the call. Until it
was prompted no list has it, and it goes with its parent.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from msgspec import structs
from msgspec.structs import replace

from acp_agent.config.safety_settings import divided
from acp_agent.errors import AuthRequired, InvalidParams, ProviderError, ToolError, WorktreeError
from acp_agent.lazy import load
from acp_agent.llm import base as llm
from acp_agent.loop.calls.call import Call
from acp_agent.loop.calls.repeats import RepeatedFailures
from acp_agent.loop.calls.reports import Parent
from acp_agent.loop.hooks.call_patterns import our_tool
from acp_agent.loop.judging import judged
from acp_agent.loop.memory.compaction import Compacted
from acp_agent.loop.memory.forking import ForkMark
from acp_agent.loop.memory.replay import replayed_updates
from acp_agent.loop.memory.room import Asked
from acp_agent.loop.model.turn import Limits, run_turn
from acp_agent.loop.model.turn_host import SessionHost
from acp_agent.loop.modes import MODES
from acp_agent.loop.outbox import ChildOutbox
from acp_agent.loop.prompts.library import REVIEWER
from acp_agent.loop.prompts.model_settings import model_settings
from acp_agent.loop.prompts.review_findings import findings
from acp_agent.loop.prompts.written_agents import WrittenAgent
from acp_agent.loop.toolbox.absent import Absent
from acp_agent.protocol.codec import encode
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import (
    IdleStateUpdate,
    RunningStateUpdate,
    SessionCancelCapabilities,
    StateUpdate,
    StopReason,
    SubagentSessionCapabilities,
    SubagentUpdate,
    TextContent,
    UserMessageChunk,
)
from acp_agent.tools.kit.registry import OF_CONVERSATION, TOOLS
from acp_agent.tools.kit.tool_context import Location, Task, ToolResult

if TYPE_CHECKING:
    from acp_agent.loop.calls.runner import Calls
    from acp_agent.loop.model.ready_model import ReadyModel
    from acp_agent.loop.shell.session_shell import Shell
    from acp_agent.loop.shell.workspaces import Project
    from acp_agent.loop.shell.worktrees import Hold
    from acp_agent.store.base import ClientPrompt, LogEntry
    from acp_agent.store.session_store import SessionStore

MAKE_WORKTREE = "acp_agent.loop.shell.worktrees:make"

Shown = tuple[str, str, Any]
"""An update, behind the ids of its session and of the one above it (that of the root for its own)."""
INSTRUCTIONS = """
You are a sub-agent: another agent gave you one task and reads only your last message. Do the task with your tools,
then answer with what it needs to know: findings with paths and lines, what you changed, what you could not do. You
cannot ask anyone.
"""

ENDINGS: dict[StopReason, str] = {
    "max_turn_requests": "[the sub-agent reached its limit before it was done; this is its last message]",
    "max_tokens": "[the sub-agent's answer was cut off: its context or token limit was reached]",
    "refusal": "[the sub-agent refused the task]",
}


async def run_sub_agent(calls: Calls, call: Call, task: Task) -> ToolResult:
    """Runs one task to its end, as `call` among `calls`. Raises ToolError if it could not be started or the model
    failed."""
    config = calls.config
    if calls.conversation.depth >= config.delegate.max_depth:
        deep = config.delegate.max_depth
        raise ToolError(
            f"Sub-agents can be nested at most {deep} deep.", "policy_blocked", suggestion="Do the task yourself."
        )
    shell = calls.shell if call.ready is None else call.ready.shell
    if task.isolated:
        return await _run_isolated(calls, call, task, shell)
    return await _run_in(calls, call, task, shell)


async def _run_in(calls: Calls, call: Call, task: Task, shell: Shell) -> ToolResult:
    """`shell`: whose workspace it works in."""
    written = _written(calls, task.agent)
    tools, model = _allowed(calls, task, written, shell.project), await _model(calls, written)
    told = calls.session.client_prompt if written is not None and written.client_prompt else None
    told = None if told is None else replace(told, mode="append")
    outbox = await _stored_child(calls, task, model, shell, told)
    parent = Parent(call, calls.reports, task.title, task.agent or task.title, outbox)
    below = _below(calls, parent, tools, shell.below(call.id))
    hooks, rounds, about = shell.hooks, 0, parent.about
    host = _SubHost(below, model, outbox, told, "" if written is None else written.instructions)
    host.refused = None if hooks.deciding is None else partial(hooks.before_compaction, **about)
    host.add(llm.UserMessage((llm.TextPart(task.prompt),)))
    async with _at_work(calls, call, outbox, task.title):
        outbox.emit(UserMessageChunk(content=TextContent(text=task.prompt), message_id=str(uuid.uuid4())))
        agent = calls.session.config.settings.agent
        limits = Limits(
            task.max_iterations,
            "tools.delegate.max_iterations",
            agent.doom_loop,
            agent.max_repetition,
            agent.max_answer_bytes,
        )
        for text in await hooks.sub_agent_started(**about):
            host.add(llm.UserMessage((llm.TextPart(text),)))
        try:
            while True:
                reason = await run_turn(model, host, below.run_all, limits)
                words = await hooks.goes_on("SubagentStop", rounds, host.last_words(), about["agent_type"], **about)
                if reason != "end_turn" or not words:
                    break
                rounds += 1
                host.add(llm.UserMessage((llm.TextPart(words),), own=True))
        except ProviderError as error:
            category = {"rate_limit": "rate_limited", "network": "network_error", "timeout": "timeout"}
            raise ToolError(
                f"The sub-agent's model failed: {error}",
                category.get(error.kind, "server_error" if error.retryable else "permanent_failure"),  # type: ignore[arg-type]
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                failure = await outbox.taken_failure()
    lost = "" if failure is None else f"[the sub-agent's conversation is not stored: {failure}]"
    text = "\n\n".join(part for part in (host.last_words(), ENDINGS.get(reason, ""), *host.said, lost) if part)
    meta = {"subAgent": {"sessionId": outbox.session_id}}
    result = ToolResult(text or "[the sub-agent gave no answer]", failed=reason in ENDINGS, meta=meta)
    return result if task.agent != REVIEWER else await _with_findings(result, shell.roots)


@asynccontextmanager
async def _at_work(calls: Calls, call: Call, outbox: ChildOutbox, title: str) -> AsyncIterator[None]:
    """It is known by the id of its session, and announced where it is shown as one."""
    children, above, id_ = calls.session.children, calls.reports.outbox, outbox.session_id
    children[id_] = call.id
    try:
        if outbox.shown:
            above.emit(announced(id_, title, running=True), keep=False)
            await above.flushed()  # Before anything of it is sent.
        yield
    finally:
        del children[id_]
        if outbox.shown:
            with anyio.CancelScope(shield=True):
                await outbox.flushed()
            above.emit(announced(id_, title, running=False), keep=False)


def announced(session_id: str, title: str, *, running: bool) -> SubagentUpdate:
    """A sub-agent as a session below the one that it works for. While it runs it can be cancelled."""
    can = SubagentSessionCapabilities(cancel=SessionCancelCapabilities()) if running else None
    state: StateUpdate = RunningStateUpdate() if running else IdleStateUpdate()
    return SubagentUpdate(session_id=session_id, title=title, capabilities=can, state=state)


async def with_children(
    store: SessionStore, session_id: str, entries: Sequence[LogEntry], *, cursors: bool = False
) -> AsyncIterator[Shown]:
    """The conversation: each sub-agent announced behind its call, then all of it; what stands of it in the log of the
    session itself, for other clients, is left out."""
    async for shown in _replayed(store, session_id, session_id, entries, cursors=cursors):
        yield shown


async def _replayed(
    store: SessionStore, id_: str, above: str, entries: Sequence[LogEntry], *, cursors: bool = False
) -> AsyncIterator[Shown]:
    updates = replayed_updates(entries, cursors=cursors)
    children = {}
    for update in updates:
        child = ((update.get("_meta") or {}).get("subAgent") or {}).get("sessionId")
        if child and (record := await store.do(store.get, child)) is not None:
            children[update["toolCallId"]] = record
    for update in updates:
        if ((update.get("_meta") or {}).get("claudeCode") or {}).get("parentToolUseId") in children:
            continue
        yield id_, above, update
        if (record := children.get(update.get("toolCallId"))) is not None:
            yield id_, above, announced(record.id, record.title or "", running=False)
            log = await store.do(store.entries, record.id)
            async for shown in _replayed(store, record.id, id_, log):
                yield shown


async def _stored_child(
    calls: Calls, task: Task, model: ReadyModel, shell: Shell, told: ClientPrompt | None
) -> ChildOutbox:
    """The log of a new sub-agent, in the store; `told`: its client's system prompt. Raises StoreError."""
    session, sources, new = calls.session, calls.memory.sources, str(uuid.uuid4())
    about = {"title": session.outbox.clean(task.title), "model": model.chosen, "place": shell.workspace.name}
    await session.store.do(session.store.create_child, new, sources[0], **about, client_prompt=told)
    outbox = ChildOutbox(new, calls.reports.outbox)
    outbox.put("fork", encode(ForkMark(sources)))
    return outbox


def _below(calls: Calls, parent: Parent, tools: frozenset[str], shell: Shell) -> Calls:
    """The calls of a sub-agent, with these of our tools and its own memory, in its own shell."""
    ours, project = calls.conversation, shell.project
    absent = None
    if project is not calls.shell.project:
        absent = Absent(calls.config, project.skills, shell.runs, project.languages, project.roots)
    conversation = replace(
        ours,
        memory=ours.memory.below(parent.outbox, project.instructions, project.skills),
        toolbox=ours.toolbox.only(tools, absent, shell.more_parameters()),
        reports=ours.reports.below(parent),
        failures=RepeatedFailures(calls.config.repeated_failures),
        above=(*ours.above, parent.call_id),
    )
    return calls.of(conversation, shell)


async def _with_findings(result: ToolResult, roots: Roots) -> ToolResult:
    """With the places of what a review found, and for programs the findings."""
    found = await judged(roots, lambda: list(findings(result.text, roots)))
    meta = [structs.asdict(each) for each in found]
    locations = tuple(Location(Path(each.path), each.line) for each in found)
    return replace(result, locations=locations, meta={**result.meta, "findings": meta})


async def _run_isolated(calls: Calls, call: Call, task: Task, shell: Shell) -> ToolResult:
    """Runs it in a worktree of its own."""
    session, roots, recorder = calls.session, shell.roots, shell.project.recorder
    if not roots.opened:
        raise ToolError(f"There are no worktrees {roots.disk.where}. Do without `isolation`.", "permanent_failure")
    if not session.choices.mode().changes:
        raise ToolError(f"The mode `{session.choices.mode().id}` is read-only; no worktree was made.", "policy_blocked")
    make = partial(load(MAKE_WORKTREE), roots.opened[0], recorder.state, session.config.settings.worktree.include)
    try:
        hold: Hold = await anyio.to_thread.run_sync(make)
    except (WorktreeError, OSError) as error:
        raise ToolError(f"No worktree was made: {error}. Do without `isolation`.", "permanent_failure") from error
    told = ""
    try:
        workspaces = await shell.workspaces.opens.in_worktree(shell.workspace.name, Path(hold.worktree.path))
        try:
            within = shell.within(workspaces)
            await within.confinement.ready()
            result = await _run_in(calls, call, task, within)
        finally:
            with anyio.CancelScope(shield=True):
                await shell.runs.leave(workspaces.own.project.roots)
                await workspaces.close()
    finally:
        with anyio.CancelScope(shield=True):
            told = await anyio.to_thread.run_sync(hold.end)
    words = told or "Nothing was changed in its worktree, which was removed."
    return replace(result, text=f"{result.text}\n\n[{words}]")


def _written(calls: Calls, name: str) -> WrittenAgent | None:
    """Raises ToolError for a sub-agent that there is not."""
    library = calls.memory.library
    found = library.agent(name) if name else None
    if name and found is None:
        known = ", ".join(f"`{each}`" for each in library.agents()) or "none"
        raise ToolError(f"There is no sub-agent `{name}`. There are: {known}.", "invalid_parameters")
    return found


async def _model(calls: Calls, agent: WrittenAgent | None) -> ReadyModel:
    """That of the turn, or the one that the sub-agent names."""
    chosen = calls.session.choices.meant(agent.model) if agent is not None and agent.model else None
    if chosen is None:
        return calls.shell.turn.model
    try:
        return await calls.conversation.models.ready(chosen)
    except (AuthRequired, InvalidParams, ProviderError) as error:
        raise ToolError(f"The sub-agent's model `{chosen}` cannot be used: {error}", "permanent_failure") from error


def _allowed(calls: Calls, task: Task, agent: WrittenAgent | None, project: Project) -> frozenset[str]:
    """The tools it gets: never more than its parent has, nor than the sub-agent's own; in another project none of
    servers and plugins, which work in this one."""
    offer = calls.toolbox.offer
    entries = offer.sent() if task.tools is None and agent is None else offer.entries()
    entries = [entry for entry in entries if project is calls.shell.project or entry.name in TOOLS]
    if agent is not None:
        own = None if agent.tools is None else {our_tool(divided(tool)[0]) for tool in agent.tools}
        without = {our_tool(divided(tool)[0]) for tool in agent.without}
        mode = next((mode for mode in MODES.values() if mode.id == agent.mode), None)
        reads = mode is not None and not mode.changes
        entries = [
            entry
            for entry in entries
            if (own is None or not own.isdisjoint((entry.name, *entry.aliases)))
            and without.isdisjoint((entry.name, *entry.aliases))
            and (entry.reads_only or not reads)
        ]
    offered = [entry for entry in entries if entry.name not in OF_CONVERSATION]
    if calls.conversation.depth + 1 >= calls.config.delegate.max_depth:
        offered = [entry for entry in offered if entry.name != "delegate"]
    if task.tools is None:
        return frozenset(entry.name for entry in offered)
    known = {name: entry.name for entry in offered for name in (entry.name, *entry.aliases)}
    wrong = [name for name in task.tools if name not in known]
    if wrong:
        names = ", ".join(dict.fromkeys(known.values()))
        raise ToolError(
            f"A sub-agent cannot have the tools {', '.join(wrong)}. It can have: {names}.", "invalid_parameters"
        )
    return frozenset(known[name] for name in task.tools)


def _sub_settings(settings: llm.ModelSettings, more: str) -> llm.ModelSettings:
    """The settings of a sub-agent: with its instructions, `more` of its own, and its own prompt cache."""
    return replace(
        settings,
        system="\n".join(filter(None, (settings.system.rstrip(), INSTRUCTIONS, more))),
        cache_key=f"{settings.cache_key}-sub" if settings.cache_key else "",
    )


class _SubHost(SessionHost):
    """The host of a sub-agent's turn: its text is stored, and not shown."""

    def __init__(
        self, calls: Calls, model: ReadyModel, outbox: ChildOutbox, told: ClientPrompt | None, instructions: str
    ) -> None:
        session, conversation = calls.session, calls.conversation
        super().__init__(session, model, conversation.memory, conversation.toolbox.offer, calls.shell.hooks, outbox)
        self.refused: Callable[[], Awaitable[str]] | None = None
        """As in `Room.fit`."""
        self._own = _sub_settings(model_settings(session, conversation.memory, model, told), instructions)
        self.said: list[str] = []

    def join(self) -> bool:
        """The user talks to the session."""
        return False

    def undo_room(self) -> None:
        """It ends with the refusal."""

    def settings(self) -> llm.ModelSettings:
        return replace(self._own, model=self._model.id)

    @property
    def _asked(self) -> Asked:
        return Asked(self._model.id, self.settings(), self.tools(), self._model.known_window)

    def report_usage(self, usage: llm.UsageReport | None, message: llm.AssistantMessage) -> None:
        self._room.counted(self._before(), self._asked, 0 if usage is None else usage.input_tokens)

    async def make_room(self, refused: ProviderError | None = None) -> str | None:
        asked = self._asked
        if refused is not None:
            self._room.learn(refused, self.messages(), asked)
        return await self._room.fit(self, asked, lambda: None, forced=refused is not None, refused=self.refused)

    def begin(self) -> None:
        """Nobody watches."""

    def replace(self, done: Compacted, before: int, after: int) -> None:
        self._memory.replace(done.messages)

    def gave_up(self, *, cancelled: bool = False) -> None:
        """Nobody watches."""

    def say(self, text: str) -> None:
        self.said.append(f"[{text}]")
        self._outbox.say(text)

    def last_words(self) -> str:
        return llm.last_words(self.messages())
