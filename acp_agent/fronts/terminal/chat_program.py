"""`ChatProgram`: starts the agent, runs prompts, answers its questions, and has everything drawn."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from acp_agent import __version__
from acp_agent.client.acp_client import AcpClient
from acp_agent.client.spawn import AgentProcess, spawn_agent
from acp_agent.config.load import load_config
from acp_agent.errors import AgentError, ConfigError, ConnectionClosed, PeerError
from acp_agent.fronts.headless import AGENT_COMMAND
from acp_agent.fronts.terminal.chat_commands import help_text, merged
from acp_agent.fronts.terminal.picks import (
    NO_ANSWER,
    form_picks,
    form_value,
    permission_outcome,
    permission_pick,
    question_lines,
)
from acp_agent.fronts.terminal.screens import (
    DIM,
    RED,
    UNFOLD,
    YELLOW,
    ChatJob,
    ChatScreen,
    Pick,
    Picked,
    PickRow,
    ScreenEvent,
    wrapped,
)
from acp_agent.fronts.terminal.turn_view import NO_LINE, TurnView
from acp_agent.legible import legible
from acp_agent.output.sanitize import sanitize_output
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp

FRAME_SECONDS = 0.2
GATHER_SECONDS = 0.05
LEAVE_SECONDS = 2.0
"""Within these a second Ctrl-C leaves."""
JOIN_TRIES, JOIN_SECONDS = 10, 0.2
"""How often a turn that is beginning is asked to take what was written."""
TOLD_CHARS = 20_000
"""Characters at the end of a user's command's output that the model gets."""
MENTIONED = re.compile(r"(?:^|(?<=\s))@(\S+)")
BELL = "\a"
STEERING = "_session/steering"
CAPABILITIES = acp.ClientCapabilities(
    elicitation=acp.ElicitationCapabilities(
        form=acp.ElicitationFormCapabilities(), url=acp.ElicitationUrlCapabilities()
    ),
    session=acp.ClientSessionCapabilities(compaction=acp.CompactionCapabilities(), notices=acp.NoticeCapabilities()),
)


@dataclass
class _Typed:
    """What the user wrote while a turn runs."""

    waiting: deque[str] = field(default_factory=deque)
    """For the turn after it."""
    joining: list[str] = field(default_factory=list)
    """For its next step."""
    back: list[tuple[int, str]] = field(default_factory=list)
    """For the input again, by what goes first: the prompt, what did not join, what waited."""
    stopped: bool = False
    """Whether the user has stopped that turn."""

    def taken_back(self) -> str:
        """Once it is known of all of them; else nothing."""
        if self.joining:
            return ""
        words = "\n".join(text for _, text in sorted(self.back, key=lambda each: each[0]))
        self.back.clear()
        return words


class GatheringTransport(Transport):
    """Once much comes, what comes within `GATHER_SECONDS` is read at once: to wake for each delta takes longer than to
    draw them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._last, self._between = 0.0, math.inf
        """When something came last, and how long after what was before."""

    async def read(self) -> bytes:
        if self._between < 2 * GATHER_SECONDS:
            await anyio.sleep(GATHER_SECONDS)
        data = await self._transport.read()
        now = time.monotonic()
        self._last, self._between = now, now - self._last
        return data

    async def write(self, data: bytes) -> None:
        await self._transport.write(data)

    def close(self) -> None:
        self._transport.close()


class ChatProgram:
    def __init__(self, job: ChatJob, screen: ChatScreen) -> None:
        self._job = job
        self._screen = screen
        self._view = TurnView(screen)
        self._style = screen.style
        screen.offer(merged(()))
        self._asking = anyio.Lock()
        self._typed = _Typed()
        self._told: list[str] = []
        """What the user's own commands have put out since the last prompt."""
        self._prompt = ""
        self._since: float | None = None
        """When the running turn began."""
        self._running: anyio.CancelScope | None = None
        """The user's own command."""
        self._left_at = -LEAVE_SECONDS
        self._dirty = anyio.Event()
        self._alert = ""
        self._answering = False
        """Whether a question is open."""
        self._session = ""
        self._kept = False
        """Whether there is something to go on with; else the session is forgotten."""
        self._modes: Sequence[str] = ()
        self._status = 0

    async def run(self) -> int:
        """Until the user leaves, or the agent has ended."""
        try:
            async with (
                spawn_agent(AGENT_COMMAND, cwd=self._job.cwd, env=self._job.environ, connect=self._connect) as agent,
                anyio.create_task_group() as tasks,
            ):
                self._client, self._tasks = agent.client, tasks
                for each in (self._paint, self._terminated):
                    tasks.start_soon(each)
                tasks.start_soon(self._watch, agent.process)
                await self._configure()
                if await self._open():
                    if self._job.prompt:
                        await self._submit(self._job.prompt)
                    async with self._screen.events as events:
                        async for event in events:
                            await self._handle(event)
                            self._touch()
                    with suppress(AgentError), anyio.move_on_after(LEAVE_SECONDS):
                        await self._end_session(close=False)
                tasks.cancel_scope.cancel()
        except* AgentError as group:
            self._tell(RED, str(group.exceptions[0]))
            self._status = 1
        return self._status

    def _connect(self, transport: Transport) -> AcpClient:
        return AcpClient(
            GatheringTransport(transport), permissions=self._permission, elicitation=self._elicit,
            on_update=self._update, capabilities=CAPABILITIES,
            info=acp.Implementation(name="acp-coder-chat", version=__version__),
        )  # fmt: skip

    async def _configure(self) -> None:
        try:
            terminal = (await anyio.to_thread.run_sync(load_config, self._job.environ)).settings.terminal
        except ConfigError:
            return  # The agent says it.
        self._alert = terminal.notify
        if terminal.keys == "vi":
            self._screen.use_vi_keys()

    async def _terminated(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                self._status = 128 + signal.SIGTERM
                self._screen.leave()

    async def _watch(self, process: AgentProcess) -> None:
        """The agent's end is this program's."""
        await process.wait()
        raise AgentError(_died(process))

    # --- drawing ----------------------------------------------------------------------------------------------

    def _touch(self) -> None:
        self._dirty.set()

    async def _paint(self) -> None:
        """Several times a second while something runs, else after a change."""
        try:
            while True:
                self._draw()
                if self._since is None and self._running is None:
                    await self._dirty.wait()
                self._dirty = anyio.Event()
                await anyio.sleep(FRAME_SECONDS)
        finally:
            self._draw()

    def _draw(self) -> None:
        self._view.finished()
        working = None if self._since is None else time.monotonic() - self._since
        words = "" if working is None else f"Working {working:.0f} s, Esc stops, Enter joins in, Tab queues"
        live = "" if self._answering else self._view.live(words[: self._screen.size.columns - 4])
        rows = [("at its next step", text) for text in self._typed.joining]
        rows += [("after this turn", text) for text in self._typed.waiting]
        for when, text in rows:
            line = f"{self._style.mark('into')} {when}: {text.partition(chr(10))[0]}"
            live += "\n" + self._style.paint(DIM, line[: self._screen.size.columns - 1])
        self._screen.paint(live, self._view.status(working))

    def _note(self, text: str) -> None:
        self._tell(DIM, text)

    def _tell(self, colour: str, text: str) -> None:
        """A line of ours."""
        self._view.say(self._style.paint(colour, wrapped(text, self._screen.size.columns - 1)))
        self._touch()

    def _update(self, session_id: str, update: acp.SessionUpdate) -> None:
        if session_id == self._session or not self._session:
            self._view.update(session_id, update)
            self._touch()

    def _ring(self, words: str) -> None:
        if self._alert == "bell":
            self._screen.signal(BELL)
        elif self._alert == "osc9":
            self._screen.signal(f"\x1b]9;acp-coder: {words}{BELL}")

    # --- sessions ---------------------------------------------------------------------------------------------

    async def _open(self) -> bool:
        """Whether a session is open; else it is said why not."""
        job, client = self._job, self._client
        try:
            await client.initialize()
            session_id = job.session
            if job.newest:
                listed = (await client.list_sessions(cwd=job.cwd)).sessions
                if not listed:
                    self._note("There is no session in this folder yet: this is a new one.")
                session_id = listed[0].session_id if listed else None
            if session_id is None:
                await self._new()
            else:
                await self._load(session_id)
            if job.mode is not None:
                await self._set_mode(job.mode)
            if job.model is not None:
                answer = await client.set_config_option(self._session, "model", job.model)
                self._view.configured(answer.config_options)
        except PeerError as error:
            self._tell(RED, legible(error.message))
            self._status = 1
            return False
        self._touch()
        return True

    async def _new(self) -> None:
        new = await self._client.new_session(self._job.cwd)
        self._session, self._kept = new.session_id, False
        self._opened(new.modes, new.config_options)
        where = legible(str(self._job.cwd)).replace(self._job.environ.get("HOME") or "~", "~", 1)
        self._tell(DIM, f"acp-coder in {where}. /help lists keys and commands.")

    async def _end_session(self, *, close: bool = True) -> None:
        """Of a conversation in which nothing was said nothing is left."""
        if not self._kept:
            await self._client.delete_session(self._session)
        elif close:
            await self._client.close_session(self._session)

    async def _load(self, session_id: str, words: str = "That was the conversation so far.") -> None:
        self._session, self._kept = session_id, True
        loaded = await self._client.load_session(session_id, self._job.cwd)
        self._opened(loaded.modes, loaded.config_options)
        self._view.finished()
        self._note(words)

    async def _caught_up(self) -> None:
        await self._load(self._session, "It was continued elsewhere, as shown above. Enter sends your words to it.")

    def _opened(self, modes: acp.SessionModeState | None, options: Sequence[acp.SessionConfigOption] | None) -> None:
        if modes is not None:
            self._modes = [mode.id for mode in modes.available_modes]
            self._view.chose(modes.current_mode_id)
        self._view.configured(options or ())

    async def _set_mode(self, mode: str) -> None:
        await self._client.set_session_mode(self._session, mode)
        self._view.chose(mode)

    async def _resume(self) -> None:
        sessions = (await self._client.list_sessions(cwd=self._job.cwd)).sessions
        others = [each for each in sessions if each.session_id != self._session]
        if not others:
            self._note("There is no other session in this folder.")
            return
        rows = [
            PickRow(each.session_id, f"{_when(each.updated_at)}  {legible(each.title or 'without a title')}")
            for each in others
        ]
        picked = await self._screen.ask(Pick("Continue which session?", rows))
        if picked.ids:
            await self._end_session()
            await self._load(picked.ids[0])

    async def _pick_model(self) -> None:
        option = next((each for each in self._view.options if each.id == "model"), None)
        if not isinstance(option, acp.SessionConfigSelect):
            return
        flat = [one for each in option.options
                for one in (each.options if isinstance(each, acp.SessionConfigSelectGroup) else [each])]  # fmt: skip
        start = next((at for at, each in enumerate(flat) if each.value == option.current_value), 0)
        picked = await self._screen.ask(
            Pick("Which model?", [PickRow(each.value, legible(each.name)) for each in flat], start)
        )
        if picked.ids:
            answer = await self._client.set_config_option(self._session, "model", picked.ids[0])
            self._view.configured(answer.config_options)

    # --- events -----------------------------------------------------------------------------------------------

    async def _handle(self, event: ScreenEvent) -> None:
        try:
            match event.kind:
                case "submit" | "queue":
                    await self._submit(event.text, queue=event.kind == "queue")
                case "interrupt":
                    self._interrupt()
                case "cancel":
                    self._cancel()
                case "leave":
                    self._screen.leave()
                case "unfold":
                    self._view.unfold()
                case "mode" if self._modes:
                    at = self._modes.index(self._view.mode) if self._view.mode in self._modes else -1
                    await self._set_mode(self._modes[(at + 1) % len(self._modes)])
        except PeerError as error:
            self._tell(RED, legible(error.message))

    async def _submit(self, text: str, *, queue: bool = False) -> None:
        command = text.strip()
        own = {"/resume": self._resume, "/model": self._pick_model, "/new": self._renew}
        if command in ("/exit", "/quit"):
            self._screen.leave()
        elif command == UNFOLD:
            self._view.unfold()
        elif command == "/help":
            self._view.say(help_text(self._screen.commands, self._style, self._screen.size.columns))
        elif command.startswith("!"):
            self._tasks.start_soon(self._run_own, command)
        elif command in own and self._since is None:
            self._tasks.start_soon(self._guarded, own[command])
        elif self._since is None:
            self._start(text)
        elif queue or command.startswith("/"):
            self._typed.waiting.append(text)
        else:
            self._tasks.start_soon(self._join, text)

    async def _join(self, text: str) -> None:
        """To the running turn, which may just be beginning; else it waits for the end of it."""
        typed = self._typed
        typed.joining.append(text)
        self._touch()
        try:
            outcome = await self._outcome(text)
        finally:
            typed.joining.remove(text)
        match outcome:
            case "injected":
                self._show_prompt(text)
                if not self._view.said:
                    self._prompt += f"\n{text}"  # Nothing has come for either.
            case "returned":
                typed.back.append((1, text))
            case "idle":
                self._start(text)
            case _:
                typed.waiting.append(text)
        self._give_back()
        self._touch()

    async def _outcome(self, text: str) -> str:
        for _ in range(JOIN_TRIES):
            if (outcome := await self._steered(text)) in ("injected", "returned"):
                return outcome
            await anyio.sleep(JOIN_SECONDS)
            if self._typed.stopped:
                return "returned"
            if self._since is None:
                return "idle"
        return "failed"

    async def _guarded(self, work: object) -> None:
        try:
            await work()  # type: ignore[operator]
        except PeerError as error:
            self._tell(RED, legible(error.message))
        self._touch()

    async def _renew(self) -> None:
        await self._end_session()
        await self._new()

    async def _steered(self, text: str) -> str:
        """What became of it: the running turn has taken it, or was cancelled first, or takes nothing."""
        meta = {"steering": {"untilJoined": True}}
        request = acp.PromptRequest(session_id=self._session, prompt=self._blocks(text), meta=meta)
        try:
            answer = await self._client.connection.request(STEERING, request)
        except PeerError:
            return "failed"
        return str(answer.get("outcome")) if isinstance(answer, dict) else "failed"

    def _interrupt(self) -> None:
        """Stops, and gives the words back: those that wait, or the prompt if nothing has come yet."""
        if self._since is None:
            return
        unheard = [] if self._view.said else [(0, self._prompt)]
        self._typed.back += [(2, text) for text in self._typed.waiting] or unheard
        self._typed.waiting.clear()
        self._stop()
        self._give_back()

    def _stop(self) -> None:
        self._typed.stopped = True
        self._client.cancel(self._session)

    def _give_back(self) -> None:
        if words := self._typed.taken_back():
            self._screen.give_back(words)

    def _cancel(self) -> None:
        now = time.monotonic()
        if now - self._left_at < LEAVE_SECONDS:
            self._screen.leave()
            return
        if self._running is not None:
            self._running.cancel()
        elif self._since is not None:
            self._typed.waiting.clear()
            self._stop()
        elif self._screen.clear():
            return
        else:
            self._note("Ctrl-C again leaves.")
        self._left_at = now

    # --- turns ------------------------------------------------------------------------------------------------

    def _start(self, text: str) -> None:
        self._prompt, self._since, self._typed.stopped = text, time.monotonic(), False
        self._show_prompt(text)
        self._view.begin()
        self._tasks.start_soon(self._turn, text)

    def _show_prompt(self, text: str) -> None:
        self._view.prompt(text)
        if missing := [legible(f"@{name}") for name, path in self._mentioned(text) if not path.exists()]:
            words = f"{', '.join(missing)}: no such file, sent as words"
            self._view.under(self._style.paint(DIM, wrapped(f"  {words}", self._screen.size.columns - 1)))

    async def _turn(self, text: str) -> None:
        before = self._cost()
        blocks = self._blocks(text)
        self._told.clear()
        ended = False
        try:
            answer = await self._client.prompt(self._session, blocks)
            self._kept = self._kept or not text.startswith("/")
            spent = None if before is None or (after := self._cost()) is None else after - before
            meta, reason = answer.meta or {}, str(answer.stop_reason)
            if reason == "end_turn" and text.startswith("/") and "usage" not in meta:
                reason = NO_LINE  # The command's answer says it all.
            self._view.end(reason, time.monotonic() - (self._since or 0), meta, spent)
            ended = answer.stop_reason != "cancelled"
        except PeerError as error:
            self._kept = self._kept or self._view.said
            self._view.end(NO_LINE, 0.0, {}, None)
            where = error.data if isinstance(error.data, dict) else {}
            undone = where.get("kind") == "elsewhere" and not self._view.said
            if where.get("continued"):
                await self._guarded(self._caught_up)
            else:
                self._tell(RED, legible(error.message))
            if undone:
                self._screen.give_back(text)
        except ConnectionClosed:
            await anyio.sleep_forever()  # Who watches the agent says why it has ended.
        self._since = None
        if ended:
            self._ring("done")
        if self._typed.waiting:
            self._start("\n".join(self._typed.waiting))
            self._typed.waiting.clear()
        self._touch()

    def _cost(self) -> float | None:
        usage = self._view.usage
        if usage is None:
            return 0.0
        return None if usage.cost is None else usage.cost.amount

    def _blocks(self, text: str) -> list[acp.ContentBlock]:
        """The text, the files that it mentions, and what the user's commands have put out."""
        blocks: list[acp.ContentBlock] = [acp.TextContent(text=text)]
        files = [path for _, path in self._mentioned(text) if path.is_file()]
        blocks += [acp.ResourceLink(uri=path.as_uri(), name=path.name) for path in files]
        return [*blocks, *(acp.TextContent(text=each) for each in self._told)]

    def _mentioned(self, text: str) -> list[tuple[str, Path]]:
        names = dict.fromkeys(name.rstrip(".,;:)") for name in MENTIONED.findall(text))
        return [(name, Path(os.path.normpath(self._job.cwd / name))) for name in names]

    async def _run_own(self, command: str) -> None:
        """`!command`: run by the user; `!!command`: the model is not told."""
        line = command.lstrip("!").strip()
        if not line:
            return
        self._view.prompt(command)
        self._touch()
        with anyio.CancelScope() as self._running:
            try:
                done = await anyio.run_process(
                    [self._job.environ.get("SHELL") or "/bin/sh", "-c", line], stdin=subprocess.DEVNULL, check=False,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self._job.cwd, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                self._note(str(error))
            else:
                out = legible(sanitize_output(done.stdout.decode("utf-8", "replace"))).rstrip()
                code = f"{YELLOW if self._style.colour else ''}exit code {done.returncode}"
                self._view.under("\n".join([*([out] if out else []), self._style.paint(DIM, code)]))
                if not command.startswith("!!"):
                    told = out[-TOLD_CHARS:]
                    self._told.append(f"The user ran `{line}` (exit code {done.returncode}):\n```\n{told}\n```")
        self._running = None
        self._touch()

    # --- questions --------------------------------------------------------------------------------------------

    async def _permission(self, request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        pick = permission_pick(request)
        content = request.tool_call.content
        diffs = [item for item in content if isinstance(item, acp.Diff)] if isinstance(content, list) else []
        async with self._asking:
            self._view.asked(question_lines(request, self._style, self._screen.size.columns), diffs)
            self._touch()
            self._draw()
            picked = await self._ask(pick)
            return permission_outcome(picked)

    async def _ask(self, pick: Pick) -> Picked:
        self._ring(pick.title)
        answer, self._answering = "not answered", True
        try:
            picked = await self._screen.ask(pick)
            names = [row.name for row in pick.rows if row.id in picked.ids and not (row.words and picked.words)]
            answer = "; ".join(filter(None, [*names, legible(picked.words)])) or answer
            return picked
        finally:
            self._answering = False
            self._view.under(self._style.paint(DIM, f"  {self._style.mark('into')} {answer}"))
            self._touch()

    async def _elicit(self, request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        async with self._asking:
            if not isinstance(request, acp.ElicitationFormMode):
                self._view.say(f"{legible(request.message)}\n{legible(request.url)}")
                picked = await self._ask(
                    Pick("Open it in a browser.", [PickRow("yes", "Done", "y"), PickRow("no", "No", "n")])
                )
                return acp.CreateElicitationResponse(action="accept" if picked.ids == ("yes",) else "decline")
            content: dict[str, acp.ElicitationContentValue] = {}
            words = wrapped(legible(request.message), self._screen.size.columns - 1)
            self._view.asks(str(request.tool_call_id or ""), words)
            for name, pick in form_picks(request):
                self._draw()
                picked = await self._ask(pick)
                value = form_value(request.requested_schema.properties[name], picked)
                if value is not None:
                    content[name] = value
                elif picked.words:
                    content["other"] = picked.words
                elif name in (request.requested_schema.required or ()) or not picked.ids:
                    return NO_ANSWER
            return acp.CreateElicitationResponse(action="accept", content=content)

    @property
    def farewell(self) -> str:
        """How to go on."""
        words = f"Continue with: acp-coder --session {self._session}"
        return f"\n{self._style.paint(DIM, words)}\n" if self._session and self._kept else ""


def _when(stamp: str | None) -> str:
    return (stamp or "")[:16].replace("T", " ")


def _died(process: AgentProcess) -> str:
    last = process.stderr.strip().splitlines()[-1:]
    return f"The agent has ended: {last[0] if last else 'it said nothing'}"
