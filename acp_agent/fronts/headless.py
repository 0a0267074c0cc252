"""Runs one prompt without an editor: the agent is a child process, and this program its ACP client."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
from msgspec import Struct

from acp_agent import __version__
from acp_agent.client.acp_client import AcpClient
from acp_agent.client.fs import Files
from acp_agent.client.permissions import allow_once, cancelled, reject_once
from acp_agent.client.spawn import AgentProcess, spawn_agent
from acp_agent.client.terminals import Terminals
from acp_agent.errors import AgentError, ConnectionClosed, PeerError, ResourceNotFound, UsageError
from acp_agent.fronts.view import View, command_of
from acp_agent.legible import legible
from acp_agent.protocol.client import QUESTION
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp
from acp_agent.undo.base import named

QUESTIONS = {"execute": "Run this?", "edit": "Make this change?", "delete": "Delete this?", "move": "Move this?"}
"""What a permission request is asked as, by the kind of the call."""

AGENT_COMMAND = (sys.executable, "-m", "acp_agent")

Answers = Literal["allow", "deny", "person", "nobody"]

STATUS = {"end_turn": 0, "max_tokens": 3, "max_turn_requests": 4, "refusal": 5, "cancelled": 130}
"""Stop reason -> exit status; 1 is an error."""

CAPABILITIES = acp.ClientCapabilities(
    fs=acp.FileSystemCapabilities(read_text_file=True, write_text_file=True),
    terminal=True,
    session=acp.ClientSessionCapabilities(notices=acp.NoticeCapabilities()),
)
FACTS = ("files", "moreFiles", "failedCalls", "usage")
MOST_NAMED = 8
"""Changed files that are named at the end."""

LIMIT_STATUS = 6
"""A limit on the cost ended the turn."""
UNANSWERED_STATUS = 7
"""Something was refused because nobody could be asked."""
CLOSED_STATUS = 141
"""Nobody reads the answer any more: as a program that a closed pipe ends."""
CLOSED_SECONDS = 0.3
"""How often it is looked whether somebody reads."""
ENDING_SECONDS = 5.0
"""How long a turn may take to end then."""


class Headless(Struct, frozen=True):
    """A prompt to run. `cwd` is absolute; `environ` is the agent's complete environment."""

    prompt: str
    cwd: Path
    environ: Mapping[str, str]
    mode: str | None = None
    model: str | None = None
    session: str | None = None
    answers: Answers = "nobody"
    newest: bool = False
    """Whether to go on with the newest session of `cwd`."""
    needs_login: bool = True
    """Whether the model is asked."""
    keep_running: bool = False
    """Whether background processes go on."""


class OneRun(Struct):
    """What was noticed of a run."""

    closed: bool = False
    """Nobody reads the answer any more."""
    unanswered: bool = False
    """Something was refused because nobody could be asked."""


class Running(Struct, frozen=True):
    """A background process at the end of a run."""

    command: str
    pid: int
    """Of its group's leader."""
    file: str = ""
    """Where its output goes, if it goes on."""


class Ended(Struct, frozen=True):
    """How a run ended; `session_id` is empty if it ended before there was a session."""

    status: int
    session_id: str
    facts: Mapping[str, Any] = {}
    """What the turn did, by the agent's own observation: `files` (`path`, `change`), `moreFiles` and `failedCalls`; its
    `usage`."""
    running: Sequence[Running] = ()
    """What still ran in the background at its end."""

    @property
    def words(self) -> str:
        files = [os.path.relpath(each["path"]) for each in self.facts.get("files", ())]
        files += [""] * self.facts.get("moreFiles", 0)  # Those behind the first are counted.
        failed = self.facts.get("failedCalls", 0)
        said = [f"changed: {named([legible(file) for file in files], MOST_NAMED)}"] if files else []
        said += [f"{failed} call{'s' * (failed > 1)} failed"] if failed else []
        return "; ".join(said)


def run_headless(job: Headless, view: View) -> Ended:
    """Runs the prompt to completion. Raises UsageError for a session that does not exist."""
    return anyio.run(_run, job, view)


async def _run(job: Headless, view: View) -> Ended:
    session_id = ""
    terminals = Terminals(env=job.environ)
    asking, run, titles = anyio.Lock(), OneRun(), Titles()

    def connect(transport: Transport) -> AcpClient:
        return AcpClient(
            transport,
            files=Files(),
            terminals=terminals,
            permissions=partial(permission_answer, job.answers, view, asking, run),
            on_update=partial(titles.update, view),
            capabilities=CAPABILITIES,
            info=acp.Implementation(name="acp-coder-prompt", version=__version__),
        )

    # It exits after one answer: nobody would see the end of a scheduled run.
    environ = {"ACP_CODER_SCHEDULES": "false", **job.environ}
    async with spawn_agent(AGENT_COMMAND, cwd=job.cwd, env=environ, connect=connect) as agent:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(view.animate, terminals.tail)
                session_id = await _open(job, agent.client, view)
                tasks.start_soon(_cancel_on_interrupt, agent.client, session_id)
                tasks.start_soon(_cancel_when_closed, agent.client, session_id, run, tasks.cancel_scope)
                try:
                    answer = await agent.client.prompt(session_id, job.prompt)
                finally:
                    if job.session is None and not job.newest and not titles.kept:
                        await _forget(agent.client, session_id)
                        session_id = ""
                reason = answer.stop_reason
                tasks.cancel_scope.cancel()
            if run.closed:
                return Ended(CLOSED_STATUS, "")
            meta = answer.meta or {}
            facts: dict[str, Any] = {name: meta[name] for name in FACTS if name in meta}
            view.end(reason, session_id=session_id, facts=facts)
            status = STATUS[reason] or (UNANSWERED_STATUS if run.unanswered else 0)
            running = titles.running(terminals, keep=job.keep_running)
            if any(each.file for each in running):
                await agent.client.list_sessions(cwd=job.cwd)  # Behind all that it still writes.
                os.kill(agent.process.pid, signal.SIGKILL)  # At its own end it would end them.
            return Ended(LIMIT_STATUS if meta.get("limit") else status, session_id, facts, running)
        except* AgentError as group:
            error = group.exceptions[0]
            message = _words(error, agent.process)
    if isinstance(error, UsageError):
        raise error
    view.end("error", message, session_id=session_id)
    return Ended(1, session_id)


async def _forget(client: AcpClient, session_id: str) -> None:
    """Of a prompt that failed, or asked for what the program itself knows, no session is left."""
    with suppress(AgentError), anyio.move_on_after(ENDING_SECONDS):
        await client.delete_session(session_id)


class Titles:
    """Which call runs in which terminal, and whether there is anything to go on with."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self._titled = self.kept = False
        """Whether there was a prompt; whether the model has said or done anything, so that one can go on with it."""

    def update(self, view: View, session_id: str, update: acp.SessionUpdate) -> None:
        if isinstance(update, acp.SessionInfoUpdate):
            self._titled = True
        elif isinstance(update, acp.AgentMessageChunk | acp.AgentThoughtChunk | acp.ToolCall):
            self.kept = self._titled  # What the program itself says comes without a title.
        if isinstance(update, acp.ToolCall):
            self._calls[update.tool_call_id] = legible(update.title)
        if isinstance(update, acp.ToolCallProgress) and isinstance(update.content, list):
            for item in update.content:
                if isinstance(item, acp.Terminal):
                    self._terminals[item.terminal_id] = self._calls.get(update.tool_call_id, "")
        view.update(session_id, update)

    def running(self, terminals: Terminals, *, keep: bool) -> Sequence[Running]:
        """What still runs. `keep`: it goes on after this program."""
        found = []
        for terminal_id, pid in terminals.running():
            file = terminals.let_go(terminal_id) if keep and not _ends_with_us(pid) else ""
            found.append(Running(self._terminals.get(terminal_id, ""), pid, file))
        return found


def _ends_with_us(pid: int) -> bool:
    """Whether the sandbox ends it with the program that started it."""
    try:
        return b"--die-with-parent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def _cancel_when_closed(client: AcpClient, session_id: str, run: OneRun, scope: anyio.CancelScope) -> None:
    """A reader that has gone away stops the turn."""
    poll = select.poll()
    poll.register(1, select.POLLERR)
    while not any(event & select.POLLERR for _, event in poll.poll(0)):  # noqa: ASYNC110
        await anyio.sleep(CLOSED_SECONDS)
    run.closed = True
    client.cancel(session_id)
    await anyio.sleep(ENDING_SECONDS)
    scope.cancel()


async def _open(job: Headless, client: AcpClient, view: View) -> str:
    """The id of the session, opened and with the job's mode and model."""
    await client.initialize()
    session_id = job.session
    if job.newest:
        listed = (await client.list_sessions(cwd=job.cwd)).sessions
        if not listed:
            raise UsageError(f"there is no session in {job.cwd} to continue; leave out --continue to begin one")
        session_id = listed[0].session_id
    if session_id is None:
        new = await client.new_session(job.cwd)
        session_id, options = new.session_id, new.config_options
    else:
        try:
            meta = None if job.needs_login else {"login": "later"}
            options = (await client.resume_session(session_id, job.cwd, meta=meta)).config_options
        except PeerError as error:
            if error.code != ResourceNotFound.code:
                raise
            raise UsageError(f"session {session_id!r} does not exist; `acp-coder sessions list` shows them") from error
    if job.mode is not None:
        await client.set_session_mode(session_id, job.mode)
    if job.model is not None:
        options = (await client.set_config_option(session_id, "model", job.model)).config_options
    view.begin(options or ())
    return session_id


async def _cancel_on_interrupt(client: AcpClient, session_id: str) -> None:
    """Ctrl-C stops the turn; a second one stops the program."""
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            client.cancel(session_id)
            break
    await anyio.sleep_forever()


def _words(error: BaseException, process: AgentProcess) -> str:
    if isinstance(error, PeerError):
        return error.message
    if isinstance(error, ConnectionClosed):
        last = process.stderr.strip().splitlines()[-1:] or [str(error)]
        return f"the agent has ended: {last[0]}"
    return str(error)


async def permission_answer(
    answers: Answers, view: View, asking: anyio.Lock, run: OneRun, request: acp.RequestPermissionRequest
) -> acp.RequestPermissionOutcome:
    if answers == "person":
        return await _ask(view, asking, request)
    meta = request.tool_call.meta or {}
    run.unanswered = run.unanswered or answers == "nobody"
    if not _is_permission(request) or meta.get("cost") is True:
        view.asked(request, "not answered: nobody to ask")
        return await reject_once(request)
    if asks_for_trust(request):
        view.asked(request, "not trusted: only a user trusts a folder; `/trust` shows its files")
        return await cancelled(request)
    if answers == "allow":
        view.asked(request, "allowed (--yes)")
        return await allow_once(request)
    no = "rejected (--deny)" if answers == "deny" else "rejected: nobody to ask; use --yes or --mode"
    view.asked(request, no)
    return await reject_once(request)


def asks_for_trust(request: acp.RequestPermissionRequest) -> bool:
    """Whether it is about trusting the folder, which only a user does."""
    return (request.tool_call.meta or {}).get("trust") is True


def _is_permission(request: acp.RequestPermissionRequest) -> bool:
    """Whether it is no question of the model's, where none of the answers means "yes"."""
    return (request.tool_call.meta or {}).get(QUESTION) is not True


async def _ask(view: View, asking: anyio.Lock, request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
    keys = _keys(request)
    prompt = f"{'y/N or ' if '' in keys else ''}1 to {len(request.options)}: "
    content = request.tool_call.content
    diffs = [item for item in content if isinstance(item, acp.Diff)] if isinstance(content, list) else []
    async with asking:  # Two calls that run side by side may ask at the same time.
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # What was typed before the question does not answer it.
        view.ask("\n".join([*_question(request), prompt]), diffs)
        answer = "not answered"
        try:
            while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
                if (chosen := keys.get(line.strip().lower())) is not None:
                    answer = chosen.name
                    return acp.SelectedPermissionOutcome(option_id=chosen.option_id)
                view.ask(f"Please answer {prompt}")
            return acp.CancelledPermissionOutcome()
        finally:
            view.asked(request, answer)


def _keys(request: acp.RequestPermissionRequest) -> dict[str, acp.PermissionOption]:
    """What may be typed, and what it chooses. Enter says no: it never allows anything by accident."""
    keys = {str(number): option for number, option in enumerate(request.options, 1)}
    if not _is_permission(request):
        return keys
    for words, kinds in (
        (("y", "yes"), ("allow_once", "allow_always")),
        (("n", "no", ""), ("reject_once", "reject_always")),
    ):
        found = [option for kind in kinds for option in request.options if option.kind == kind]
        keys.update({word: found[0] for word in words if found})
    return keys


def _question(request: acp.RequestPermissionRequest) -> Iterator[str]:
    """The lines of the question, without its last: what would be done, whole; then why it is asked, and the answers.

    What is asked about is above the rest, so that its end is the last thing read before the question.
    """
    call = request.tool_call
    title = legible(call.title) if isinstance(call.title, str) else "A tool"
    letters = {id(option): f" ({word})" for word, option in _keys(request).items() if word in ("y", "n")}
    command = legible(command_of(call.raw_input)).strip()
    about = [title, *([command] if command not in title else [])]
    yield from (f"  {line}" if letters else line for text in about for line in text.split("\n"))
    for item in call.content if isinstance(call.content, list) else ():
        if isinstance(item, acp.Content) and isinstance(item.content, acp.TextContent):
            text = legible(item.content.text.strip("`\n"))
            if text.strip() not in "\n".join(about):
                yield from (f"  {line}" for line in text.split("\n") if line.strip())
    if letters:
        yield QUESTIONS.get(call.kind if isinstance(call.kind, str) else "", "Allow this?")
    for number, option in enumerate(request.options, 1):
        yield f"  {number}. {legible(option.name)}{letters.get(id(option), '')}"
