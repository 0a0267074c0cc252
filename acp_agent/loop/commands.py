"""The slash commands: a prompt that begins with `/name rest` runs one; anything else is a prompt.

A command's answer is shown to the user and stored; the model does not see it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import anyio.to_thread

from acp_agent import __version__
from acp_agent.errors import InvalidParams, ToolError
from acp_agent.lazy import load
from acp_agent.loop import policy_commands
from acp_agent.loop.calls.dry_run import check_call
from acp_agent.loop.calls.dry_run import words as check_words
from acp_agent.loop.judging import judged
from acp_agent.loop.modes import MODES
from acp_agent.loop.options import default_server
from acp_agent.loop.prompts.command_names import BUILT_IN, sets_goal, split_command
from acp_agent.loop.session_state import one_title
from acp_agent.schema.acp import ContentBlock, UnstructuredCommandInput
from acp_agent.tools.kit.registry import user_words

if TYPE_CHECKING:
    from acp_agent.loop.session import Session
    from acp_agent.loop.turns.parts import Parts
    from acp_agent.loop.undo.undoing import Undoing

CHECKPOINTS = "acp_agent.loop.undo.undo_commands:checkpoints"
MAKE_WORKTREE = "acp_agent.loop.shell.worktrees:make"
WORKTREE = "acp_agent.loop.shell.worktrees:command"
PUT_AS_BEFORE = "acp_agent.undo.elsewhere:put_as_before"
FORK = "acp_agent.loop.memory.forking:fork_command"
DIFF = "acp_agent.loop.undo.undo_commands:diff"
UNDO = "acp_agent.loop.undo.undo_commands:undo"
MCP = "acp_agent.loop.toolbox.mcp_states:mcp_command"

CHECK_EXAMPLE = '`/policy check bash {"command": "ls"}` is an example.'


class Commands:
    """The commands of one session."""

    def __init__(self, session: Session, undoing: Callable[[], Undoing]) -> None:
        self._session = session
        self._undoing = undoing

    @cached_property
    def undoing(self) -> Undoing:
        """Made when first needed."""
        return self._undoing()

    def finds(self, blocks: Sequence[ContentBlock]) -> bool:
        """Whether these blocks call a command that exists."""
        name, rest = split_command(blocks)
        return name in BUILT_IN and not sets_goal(name, rest)

    async def run(self, blocks: Sequence[ContentBlock]) -> None:
        name, rest = split_command(blocks)
        parts = await self._session.parts()
        self._session.outbox.say(await COMMANDS[name](self._session, parts, rest))


# --- the commands ------------------------------------------------------------------------------------------------


async def _help(session: Session, parts: Parts, rest: str) -> str:
    lines = []
    for command in parts.prompts.menu.update().available_commands:
        hint = f" {command.input.hint}" if isinstance(command.input, UnstructuredCommandInput) else ""
        lines.append(f"- `/{command.name}{hint}`: {command.description}")
    return "Commands:\n" + "\n".join(lines)


async def _model(session: Session, parts: Parts, rest: str) -> str:
    if not rest:
        shown = [session.choices.shown(name) for name in session.choices.models]
        models = "\n".join(f"- `{name}`{' (in use)' if name == session.choices.shown() else ''}" for name in shown)
        means = any(name.startswith("default/") for name in shown)
        server = f" `default` is {default_server(session.choices.settings)}." if means else ""
        return f"Models:\n{models}\n\n`/model NAME` switches.{server}"
    try:
        await session.name_model(rest)
    except InvalidParams as error:
        return f"{error}."
    session.choices.show()
    return f"Model: `{session.choices.shown()}`."


async def _mode(session: Session, parts: Parts, rest: str) -> str:
    if not rest:
        modes = "\n".join(
            f"- `{m.id}` {m.description}{' (in use)' if m.id == session.choices.mode_id else ''}"
            for m in MODES.values()
        )
        return f"Modes:\n{modes}\n\n`/mode NAME` switches."
    try:
        await session.choices.set_mode(rest.lower(), tell=True)
    except InvalidParams:
        return f"There is no mode `{rest}`; the modes are {', '.join(f'`{name}`' for name in MODES)}."
    session.choices.show()
    return f"Mode: `{session.choices.mode_id}`. {session.choices.mode().description}."


async def _clear(session: Session, parts: Parts, rest: str) -> str:
    parts.memory.forget()
    parts.calls.forget()
    parts.shell.runs.forget()
    if (deciding := parts.shell.hooks.deciding) is not None:
        deciding.starts = "clear"
    session.report_usage(0, session.usage.size if session.usage is not None else 0)
    return "The model has forgotten this conversation; your view of it stays."


async def _compact(session: Session, parts: Parts, rest: str) -> str:
    if not len(parts.memory.history):
        return "There is nothing to compact yet."
    return await parts.context.compact()


async def _context(session: Session, parts: Parts, rest: str) -> str:
    return _markdown(await parts.context.lines(aimed=bool(parts.shell.turn.number)))


async def _cost(session: Session, parts: Parts, rest: str) -> str:
    return _markdown(await parts.models.spending.lines())


def _markdown(lines: Sequence[str]) -> str:
    """Paragraphs, and lists of the lines that begin with a dash."""
    text = lines[0]
    for before, line in pairwise(lines):
        text += ("\n" if before.startswith("-") and line.startswith("-") else "\n\n") + line
    return text


async def _plan(session: Session, parts: Parts, rest: str) -> str:
    """`/plan GOAL` itself is a prompt: see `Prompts.expand`."""
    return await parts.memory.goals.command(rest.lower())


async def _tools(session: Session, parts: Parts, rest: str) -> str:
    sent, words = {entry.name for entry in parts.toolbox.offer.sent()}, user_words()
    lines: tuple[list[str], list[str]] = ([], [])  # What is sent with the prompts is the second.
    for entry in parts.toolbox.offer.entries():
        does = words.get(entry.name) or entry.description.partition("\n")[0]
        lines[entry.name in sent].append(f"- `{entry.name}`: {does}".rstrip(": "))
    reasons: dict[str, list[str]] = {}
    for name, why in parts.toolbox.offer.excluded().items():
        reasons.setdefault(why.removeprefix(f"`{name}` is "), []).append(f"`{name}`")
    away = [f"- {', '.join(names)}: {why}" for why, names in reasons.items()]
    tools = f"Tools in the mode `{session.choices.mode_id}`"
    heads = tools, "Added when the model looks for them", "Currently unavailable"
    groups = zip(heads, (lines[1], lines[0], away), strict=True)
    return "\n\n".join("\n".join([f"{head}:", *rows]) for head, rows in groups if rows)


async def _rename(session: Session, parts: Parts, rest: str) -> str:
    if title := one_title(rest):
        await session.set_title(title)
    return f"The session is called `{session.title}`." if session.title else "It has no title: `/rename TITLE`."


async def _status(session: Session, parts: Parts, rest: str) -> str:
    client = session.client
    offers = [
        words
        for words, offered_ in (
            ("reading buffers", client.plan.reads_files),
            ("writing buffers", client.plan.writes_files),
            ("terminals", client.plan.terminals),
        )
        if offered_
    ]
    roots = "\n".join(f"- {root}" for root in session.roots.all)
    more = _more(parts)
    return (
        f"acp-coder {__version__}\n\n- Session: `{session.id}`\n- Model: `{session.choices.shown()}`\n"
        f"- Mode: `{session.choices.mode_id}`\n"
        + (f"- The editor ({client.plan.name}) offers: {', '.join(offers)}\n" if offers else "")
        + "".join(f"- Corrected: {words}\n" for words in client.plan.corrected)
        + f"\nFolders:\n{roots}"
        + ("\n\nMore:\n" + "\n".join(f"- {line}" for line in more) if more else "")
    )


def _more(parts: Parts) -> list[str]:
    """Lines from the parts of the session."""
    lines = parts.calls.outputs.words()
    if (goal := parts.memory.goals.current) is not None:
        lines.append(f"Goal ({goal.status}): {goal.text}")
    for server in parts.toolbox.servers.states():
        counts = f"{server.tools} tools, {server.prompts} prompts" if server.state == "ready" else server.words
        lines.append(f"MCP server `{server.name}`: {server.state}{f' ({counts})' if counts else ''}")
    return [*lines, *parts.project.languages.states()]


async def _permissions(session: Session, parts: Parts, rest: str) -> str:
    word, _, argument = rest.partition(" ")
    if word == "revoke":
        number = argument.strip().lstrip("#")
        if number.isdigit() and await parts.project.permissions.revoke(int(number)):
            return f"Revoked #{number}."
        return f"There is no permission #{number or '?'}. `/permissions` lists them."
    known = await parts.project.permissions.remembered()
    proposed = _proposed(await policy_commands.proposals(parts.project.permissions))
    if not known:
        return f"Nothing is remembered for this project: you are asked about every change.{proposed}"
    words = {"allow": "always allow", "reject": "never allow"}
    lines = [
        f"- #{item.id} {'trusts' if item.decision == 'allow' else 'does not trust'} files of this folder (`/trust`)"
        if item.tool == "trust"
        else f"- #{item.id} {words[item.decision]} `{item.scope}`"
        for item in known
    ]
    return (
        f"Remembered for {session.roots.cwd}:\n"
        + "\n".join(lines)
        + f"\n\n`/permissions revoke NUMBER` forgets one.{proposed}"
    )


def _proposed(rules: Sequence[str]) -> str:
    if not rules:
        return ""
    head = "\n\nRules for your configuration that would have saved the most questions:\n"
    return f"{head}```toml\n" + "\n\n".join(rules) + "\n```"


async def _trust(session: Session, parts: Parts, rest: str) -> str:
    extensions, (word, _, mark) = parts.toolbox.extensions, rest.lower().partition(" ")
    if word == "no":
        await extensions.distrust()
        parts.journal.notice("trust in this folder: taken back by the user")
        return "No longer trusted. What was loaded is no longer offered."
    changed = ""
    if word == "yes":
        trouble = await extensions.trust(mark.strip())
        if trouble is not None:
            parts.journal.notice(f"trust in this folder ({extensions.mark}): given by the user")
            return "\n".join(["Trusted and loaded. `/tools` lists them.", *(f"- {words}" for words in trouble)])
        changed = "These are not the files you were shown, so nothing was done.\n\n"
    files, not_covered, trusted = await extensions.show()
    if not files:
        return (
            "This folder has no files of its own (`.acp-coder/config.toml`, `.acp-coder/tools/*.py`, `.mcp.json`): "
            "nothing to trust."
        )
    listed = "\n".join(f"- {file}" for file in files)
    listed += "".join(f"\n- not covered: {line}" for line in not_covered)
    state = "They are trusted." if trusted else "They are not trusted, so they are not used."
    if extensions.loaded and not trusted:
        state = "They are not trusted. What was loaded earlier stays until the session ends, or `/trust no`."
    return (
        f"{changed}Files in this folder that take effect if it is trusted:\n{listed}\n\n{state} They run with your "
        "privileges: read them first. "
        f"`/trust yes {extensions.mark}` uses exactly these files from now on, until one of them changes; "
        "`/trust no` revokes it."
    )


async def _hooks(session: Session, parts: Parts, rest: str) -> str:
    lines = parts.shell.hooks.lines()
    if not lines:
        return "There are no hooks. `[[hooks.on]]` in the configuration adds one."
    return "Hooks:\n" + "\n".join(f"- {line}" for line in lines)


async def _plugins(session: Session, parts: Parts, rest: str) -> str:
    lines = [] if parts.toolbox.plugins is None else [*parts.toolbox.plugins.lines(), *parts.toolbox.plugins.trouble]
    if not lines:
        return "There are no plugins. In a terminal `acp-coder plugin add SOURCE` shows one, and adds it if you agree."
    return "Plugins:\n" + "\n".join(f"- {line}" for line in lines)


async def _mcp(session: Session, parts: Parts, rest: str) -> str:
    return str(await load(MCP)(parts.toolbox.servers, rest, parts.shell.hooks.notify))


async def _agents(session: Session, parts: Parts, rest: str) -> str:
    listed = [f"- `{name}`: {words}" for name, words in parts.memory.library.agents().items()]
    if not listed:
        return (
            "There are no sub-agents with instructions of their own. One is a file `.agents/agents/NAME.md` in the "
            "project, or `agents/NAME.md` beside your configuration."
        )
    return "Sub-agents, by `@NAME` in a prompt:\n" + "\n".join(listed)


async def _doctor(session: Session, parts: Parts, rest: str) -> str:
    lines = [*await parts.shell.confinement.lines(), parts.project.permissions.audit.audit_words()]
    return "\n".join(f"- {line}" for line in [parts.models.state(), *lines])


async def _place(session: Session, parts: Parts, rest: str) -> str:
    if parts.shell.confinement.place is None:
        known = ", ".join(f"`{name}`" for name in session.choices.places)
        said = f"Commands run on this machine. `/place NAME` goes elsewhere; configured: {known}."
    else:
        said = "\n".join(f"- {line}" for line in await parts.shell.confinement.lines())
    return "\n\n".join([said, *await parts.shell.runs.panes.lines()])


async def _policy(session: Session, parts: Parts, rest: str) -> str:
    word, _, argument = rest.strip().partition(" ")
    if word in ("", "status"):
        return "\n".join(
            f"- {line}"
            for line in [*policy_commands.status(parts.project.permissions), *await parts.shell.confinement.lines()]
        )
    if word == "check":
        return await _check(session, parts, argument.strip())
    if word == "learned":
        return await policy_commands.learned(parts.project.permissions, argument)
    return (
        "`/policy status` shows the active rules, `/policy check TOOL {JSON}` what would happen to a call, `/policy "
        "learned` which sequences of calls went wrong before (`learned forget NUMBER` or `all` forgets them)."
    )


async def _check(session: Session, parts: Parts, text: str) -> str:
    name, _, arguments = text.partition(" ")
    if not name:
        return f"Which call? {CHECK_EXAMPLE}"
    config, permissions = parts.calls.config, parts.project.permissions
    try:
        mode = session.choices.mode()
        await permissions.audit.learn()
        check = partial(check_call, parts.toolbox.registry, config, permissions.deciders, mode, name, arguments)
        checked = await judged(session.roots, check)
    except ToolError as error:
        return f"{error} {CHECK_EXAMPLE}"
    return check_words(checked)


async def _approve(session: Session, parts: Parts, rest: str) -> str:
    return policy_commands.approve(parts.project.permissions, rest.strip())


async def _reject(session: Session, parts: Parts, rest: str) -> str:
    return await policy_commands.reject(parts.project.permissions, rest.strip())


async def _unblock(session: Session, parts: Parts, rest: str) -> str:
    return await policy_commands.unblock(parts.project.permissions, rest.strip().strip("`"))


async def _checkpoints(session: Session, parts: Parts, rest: str) -> str:
    return str(await load(CHECKPOINTS)(parts.commands.undoing))


async def _undo(session: Session, parts: Parts, rest: str) -> str:
    return str(await load(UNDO)(session, parts.commands.undoing, rest))


async def _redo(session: Session, parts: Parts, rest: str) -> str:
    return str(await load(UNDO)(session, parts.commands.undoing, rest, redo=True))


async def _diff(session: Session, parts: Parts, rest: str) -> str:
    return str(await load(DIFF)(session, parts.commands.undoing, rest))


async def _fork(session: Session, parts: Parts, rest: str) -> str:
    recorder = parts.project.recorder
    if not session.roots.disk.here and "worktree" in rest.split():
        return f"There are no worktrees {session.roots.disk.where}; `/fork` without one works."

    async def worktree(prompt: int) -> tuple[str, Sequence[str]]:
        await recorder.settled()
        make = partial(
            load(MAKE_WORKTREE), session.roots.opened[0], recorder.state, session.config.settings.worktree.include
        )
        hold = await anyio.to_thread.run_sync(partial(make, waits=True))
        top, made = hold.worktree.top, hold.worktree.path
        lost = await load(PUT_AS_BEFORE)(recorder.store, session.id, prompt, top, made, recorder.contents)
        hold.release()
        return made, lost

    return str(await load(FORK)(session, rest, worktree))


async def _worktree(session: Session, parts: Parts, rest: str) -> str:
    if not session.roots.disk.here:
        return f"There are no worktrees {session.roots.disk.where}."
    run = partial(load(WORKTREE), parts.project.recorder.state, session.roots.real[0], rest)
    return str(await anyio.to_thread.run_sync(run))


COMMANDS: dict[str, Callable[[Session, Parts, str], Awaitable[str]]] = {
    "help": _help,
    "model": _model,
    "mode": _mode,
    "clear": _clear,
    "compact": _compact,
    "plan": _plan,
    "context": _context,
    "cost": _cost,
    "tools": _tools,
    "rename": _rename,
    "status": _status,
    "trust": _trust,
    "permissions": _permissions,
    "policy": _policy,
    "approve": _approve,
    "reject": _reject,
    "unblock": _unblock,
    "doctor": _doctor,
    "hooks": _hooks,
    "agents": _agents,
    "mcp": _mcp,
    "plugins": _plugins,
    "place": _place,
    "checkpoints": _checkpoints,
    "undo": _undo,
    "redo": _redo,
    "diff": _diff,
    "fork": _fork,
    "worktree": _worktree,
}
