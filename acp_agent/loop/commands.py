"""The slash commands: a prompt that begins with `/name rest` runs one; anything else is a prompt.

What a command answers is shown to the person and kept for them; the model does not hear of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acp_agent import __version__
from acp_agent.errors import InvalidParams
from acp_agent.loop.modes import MODES
from acp_agent.loop.prompt import leading_text
from acp_agent.schema.acp import (
    AvailableCommand,
    AvailableCommandsUpdate,
    ContentBlock,
    UnstructuredCommandInput,
)
from acp_agent.store.base import SessionStore

if TYPE_CHECKING:
    from acp_agent.loop.extensions import Extensions
    from acp_agent.loop.session import Engine, Session

__all__ = ["COMMANDS", "PLAN_WORDS", "Commands", "commands_update", "sets_goal", "split_command"]


PLAN_WORDS = frozenset(("done", "pause", "resume", "clear"))
"""What `/plan` does with the goal there is; anything else is a new goal."""


@dataclass(frozen=True)
class Command:
    name: str
    description: str
    hint: str
    run: Callable[[Commands, Session, Engine, str], Awaitable[None]]


class Commands:
    """The commands of one session. `store` holds the remembered permissions, `extensions` the project's own tools."""

    def __init__(self, store: SessionStore, extensions: Extensions) -> None:
        self.store = store
        self.extensions = extensions

    def finds(self, blocks: Sequence[ContentBlock]) -> bool:
        """Whether these blocks call a command that exists."""
        name, rest = split_command(blocks)
        return name in COMMANDS and not sets_goal(name, rest)

    async def run(self, session: Session, engine: Engine, blocks: Sequence[ContentBlock]) -> None:
        name, rest = split_command(blocks)
        await COMMANDS[name].run(self, session, engine, rest)


def split_command(blocks: Sequence[ContentBlock]) -> tuple[str, str]:
    """The name of the command a prompt calls, and what follows it; empty where it calls none."""
    text = leading_text(blocks)
    if not text.startswith("/"):
        return "", ""
    name, _, rest = text[1:].partition(" ")
    return name.split("\n", 1)[0].strip(), rest.strip()


def sets_goal(name: str, rest: str) -> bool:
    """Whether a command is `/plan GOAL`, which is a prompt."""
    return name == "plan" and bool(rest) and rest.lower() not in PLAN_WORDS


def commands_update(more: Sequence[AvailableCommand] = ()) -> AvailableCommandsUpdate:
    """What the client offers for completion. `more`: skills and prompts, behind the commands of the same name."""
    own = [command for command in more if command.name not in COMMANDS]
    return AvailableCommandsUpdate(
        available_commands=[
            AvailableCommand(
                name=command.name,
                description=command.description,
                input=UnstructuredCommandInput(hint=command.hint) if command.hint else None,
            )
            for command in COMMANDS.values()
        ]
        + own
    )


# --- the commands ------------------------------------------------------------------------------------------------


async def _help(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    lines = []
    for command in engine.command_list().available_commands:
        hint = f" {command.input.hint}" if isinstance(command.input, UnstructuredCommandInput) else ""
        lines.append(f"- `/{command.name}{hint}` {command.description}")
    session.say("Commands:\n" + "\n".join(lines))


async def _model(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    if not rest:
        models = "\n".join(f"- `{name}`{' (in use)' if name == session.model else ''}" for name in session.models)
        session.say(f"Models:\n{models}\n\n`/model NAME` switches.")
        return
    matches = [name for name in session.models if rest in (name, name.partition(":")[2])]
    if not matches:
        session.say(f"There is no model `{rest}`. `/model` lists them.")
        return
    session.set_option("model", matches[0])
    session.show_options()
    session.say(f"Model: `{matches[0]}`.")


async def _mode(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    if not rest:
        modes = "\n".join(
            f"- `{m.id}` {m.description}{' (in use)' if m.id == session.mode_id else ''}" for m in MODES.values()
        )
        session.say(f"Modes:\n{modes}\n\n`/mode NAME` switches.")
        return
    try:
        session.set_mode(rest.lower(), tell=True)
    except InvalidParams:
        session.say(f"There is no mode `{rest}`; the modes are {', '.join(f'`{name}`' for name in MODES)}.")
        return
    session.show_options()
    session.say(f"Mode: `{session.mode_id}`. {session.mode().description}.")


async def _clear(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    session.replace_history([])
    engine.forget()
    session.report_usage(0, session.usage.size if session.usage is not None else 0)
    session.say("The model has forgotten this conversation; what you see stays.")


async def _compact(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    if not len(session.history):
        session.say("There is nothing to compact yet.")
        return
    session.say(await engine.compact())


async def _context(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    session.say("\n".join(await engine.context()))


async def _plan(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    """`/plan GOAL` itself is a prompt: the engine makes it one (`expand`)."""
    session.say(engine.plan(rest.lower()))


async def _tools(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    sent = {entry.name for entry in engine.offer.sent()}
    lines = []
    for entry in engine.offer.entries():
        aliases = f" (also {', '.join(entry.aliases)})" if entry.aliases else ""
        mark = "" if entry.name in sent else " [not sent with the last prompt]"
        lines.append(
            f"- `{entry.name}`{aliases}: {entry.description.splitlines()[0] if entry.description else ''}{mark}"
        )
    reasons: dict[str, list[str]] = {}
    for name, why in engine.offer.excluded().items():
        reasons.setdefault(why, []).append(f"`{name}`")
    away = [f"- {', '.join(names)}: {why}" for why, names in reasons.items()]
    text = f"Tools in the mode `{session.mode_id}`:\n" + "\n".join(lines) + f"\n\n{engine.offer.words()}"
    session.say(text + ("\n\nNot there now:\n" + "\n".join(away) if away else ""))


async def _status(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    client = session.client
    offers = [
        words
        for words, offered_ in (
            ("reading buffers", client.reads_files),
            ("writing buffers", client.writes_files),
            ("terminals", client.has_terminals),
        )
        if offered_
    ]
    roots = "\n".join(f"- {root}" for root in session.roots.all)
    more = engine.status()
    session.say(
        f"acp-coder {__version__}\n\n- Session: `{session.id}`\n- Model: `{session.model}`\n"
        f"- Mode: `{session.mode_id}`\n- The editor ({client.plan.name}) offers: "
        f"{', '.join(offers) or 'nothing; all is done locally'}\n"
        + "".join(f"- Not as it says: {words}\n" for words in client.plan.corrected)
        + f"\nFolders:\n{roots}"
        + ("\n\nMore:\n" + "\n".join(f"- {line}" for line in more) if more else "")
    )


async def _permissions(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    project = str(session.roots.cwd)
    word, _, argument = rest.partition(" ")
    if word == "revoke":
        number = argument.strip().lstrip("#")
        if number.isdigit() and commands.store.revoke(project, int(number)):
            session.say(f"Revoked #{number}.")
        else:
            session.say(f"There is no permission #{number or '?'}. `/permissions` lists them.")
        return
    known = commands.store.permissions(project)
    proposed = _proposed(engine.safety.proposals())
    if not known:
        session.say(f"Nothing is remembered for this project: every change is asked about.{proposed}")
        return
    words = {"allow": "always allow", "reject": "never allow"}
    lines = [
        f"- #{item.id} {'trusts' if item.decision == 'allow' else 'does not trust'} files of this folder (`/trust`)"
        if item.tool == "trust"
        else f"- #{item.id} {words[item.decision]} `{item.scope}`"
        for item in known
    ]
    session.say(
        f"Remembered for {project}:\n" + "\n".join(lines) + f"\n\n`/permissions revoke NUMBER` forgets one.{proposed}"
    )


def _proposed(rules: Sequence[str]) -> str:
    if not rules:
        return ""
    head = "\n\nRules for your configuration that would have saved the most questions:\n"
    return f"{head}```toml\n" + "\n\n".join(rules) + "\n```"


async def _trust(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    extensions, (word, _, mark) = commands.extensions, rest.lower().partition(" ")
    if word == "no":
        await extensions.distrust()
        engine.safety.noticed("trust in this folder: taken back by the person")
        session.say("No longer trusted. What was loaded is not offered any more.")
        return
    changed = ""
    if word == "yes":
        trouble = await extensions.trust(mark.strip())
        if trouble is not None:
            engine.safety.noticed(f"trust in this folder ({extensions.mark}): given by the person")
            session.say("\n".join(["Trusted and loaded. `/tools` lists them.", *(f"- {words}" for words in trouble)]))
            return
        changed = "These are not the files that you were shown, so nothing was done.\n\n"
    files, trusted = await extensions.show()
    if not files:
        session.say(
            "This folder has no files of its own (`.acp-coder/config.toml`, `.acp-coder/tools/*.py`); there is nothing "
            "to trust."
        )
        return
    listed = "\n".join(f"- {file}" for file in files)
    state = "They are trusted." if trusted else "They are not trusted, so they are not used."
    if extensions.loaded and not trusted:
        state = "They are not trusted. What was loaded earlier stays until the session ends, or `/trust no`."
    session.say(
        f"{changed}Files of this folder that take effect where it is trusted:\n{listed}\n\n{state} They may run "
        "with your rights as soon as they are used: read them first. "
        f"`/trust yes {extensions.mark}` uses exactly these files (tools now, configuration from the next session on), "
        "until one of them changes; `/trust no` takes it back."
    )


async def _doctor(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    session.say("\n".join(f"- {line}" for line in await engine.doctor()))


async def _policy(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    word, _, argument = rest.strip().partition(" ")
    if word in ("", "status"):
        session.say("\n".join(f"- {line}" for line in await engine.policy_status()))
    elif word == "check":
        session.say(await engine.policy_check(argument.strip()))
    else:
        session.say("`/policy status` shows what is in force, `/policy check TOOL {JSON}` what would become of a call.")


async def _approve(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    session.say(engine.safety.approve(rest.strip()))


async def _reject(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    session.say(engine.safety.reject(rest.strip()))


async def _unblock(commands: Commands, session: Session, engine: Engine, rest: str) -> None:
    session.say(engine.safety.unblock(rest.strip().strip("`")))


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("help", "List the commands", "", _help),
        Command("model", "Show the models, or switch", "name", _model),
        Command("mode", "Show the modes, or switch", "ask|architect|code|auto", _mode),
        Command("clear", "Let the model forget the conversation", "", _clear),
        Command("compact", "Replace the conversation by a summary the model writes", "", _compact),
        Command("plan", "Set a goal and work towards it; show, pause or end it", "goal|done|pause|resume|clear", _plan),
        Command("context", "Show how full the model's context is", "", _context),
        Command("tools", "List the tools of the current mode", "", _tools),
        Command("status", "Show session, model, mode and what the editor offers", "", _status),
        Command("trust", "Show the folder's own tools, and load them", "yes|no", _trust),
        Command("permissions", "List and revoke remembered permissions; rules to add", "revoke number", _permissions),
        Command("policy", "Show the rules in force, or what would become of a call", "status|check tool json", _policy),
        Command("approve", "Let one call pass that a limit of `tools.scoped` stopped", "tool call id", _approve),
        Command("reject", "Mark a tool call as unacceptable, so that it is not repeated", "tool call id", _reject),
        Command("unblock", "List what the session has learned to block, and lift it", "tool|learned|hour", _unblock),
        Command("doctor", "Show how commands are confined, and what is written down", "", _doctor),
    )
}
