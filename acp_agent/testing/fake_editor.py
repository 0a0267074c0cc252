"""`FakeEditor`: a scripted editor for tests, over the real protocol.

    async with FakeEditor(transport, permissions=[reject_once]) as editor:
        await editor.start()
        await editor.new_session(tmp_path)
        answer = await editor.prompt("fix it")
        assert answer.stop_reason == "end_turn"
        assert editor.text() == "Done."

It is an `AcpClient` with a memory: `transcript` holds every line of both directions, and every line is checked (see
`checks`); leaving the block fails the test if one was wrong. It can imitate any editor: arguments set what it offers,
how its user answers, and how it misbehaves.

The test kit may import `acp_agent.client`: the one exception to the rule that wings never import each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack
from weakref import WeakSet

import anyio
from msgspec import UNSET, Struct, field

from acp_agent.client.acp_client import AcpClient, Around, ElicitationAnswer, LanguageServers
from acp_agent.client.permissions import PermissionHandler, allow_once
from acp_agent.client.spawn import AgentProcess, agent_process
from acp_agent.client.tasks import Background
from acp_agent.errors import AgentError, MethodNotFound, RpcError
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp
from acp_agent.testing.checks import Direction, WireChecks
from acp_agent.testing.quirks import FileQuirks, QuirkyFiles, QuirkyTerminals, TerminalQuirks

WAIT_SECONDS = 60.0
"""Default timeout of the waiting helpers, after which they fail the test."""

TOOL_CALL_FIELDS = ("title", "name", "kind", "content", "locations", "raw_input", "raw_output", "meta")

FAKE_EDITOR = acp.Implementation(name="fake-editor", title="Fake editor", version="1")

_Found = TypeVar("_Found")


# --- misbehaviour ------------------------------------------------------------------------------------------------


VERBATIM = re.compile(r"\A(`{3,})\n(.*)\n\1\Z", re.DOTALL)
"""A text in a code block."""


class NeverAnswers(Struct, frozen=True):
    """The request hangs until it is cancelled."""


class AnswersError(Struct, frozen=True):
    code: int = -32603
    message: str = "the editor is out of order"
    data: Any = None


class AnswersGarbage(Struct, frozen=True):
    """Answers `result`, whatever the method."""

    result: Any = "garbage"


class AnswersLate(Struct, frozen=True):
    """Serves the request only after the test sets `release`; with `served_at_once`, only its answer is late."""

    release: anyio.Event = field(default_factory=anyio.Event)
    served_at_once: bool = False


Misbehaviour = NeverAnswers | AnswersError | AnswersGarbage | AnswersLate


# --- recording ---------------------------------------------------------------------------------------------------


class Line(Struct, frozen=True):
    """One line on the wire. `message` is its JSON, or the text itself if it is not JSON."""

    direction: Direction
    message: Any

    def __str__(self) -> str:
        arrow = "->" if self.direction == "to_agent" else "<-"
        return f"{arrow} {json.dumps(self.message, ensure_ascii=False)}"


class ToolCallState(Struct):
    """A tool call as the user currently sees it: its announcement with every update merged in."""

    id: str
    statuses: list[str] = []
    """Each status reported, in order; an announcement without one counts as pending."""
    title: str = ""
    name: str | None = None
    kind: str = "other"
    content: list[Any] = []
    locations: list[Any] = []
    raw_input: Any = None
    raw_output: Any = None
    meta: dict[str, Any] = {}

    @property
    def status(self) -> str:
        return self.statuses[-1]

    def take(self, update: acp.ToolCall | acp.ToolCallUpdate) -> None:
        """Keeps the latest value of each reported field."""
        for name in TOOL_CALL_FIELDS:
            value = getattr(update, name)
            if value is not UNSET and value is not None:
                setattr(self, name, value)
        if isinstance(update.status, str) or not self.statuses:
            self.statuses.append(update.status if isinstance(update.status, str) else "pending")

    def text(self) -> str:
        """Text blocks of its content as they are read, without the code block around one, joined by line feeds."""
        blocks = (item.content for item in self.content if hasattr(item, "content"))
        return "\n".join(VERBATIM.sub(r"\2", block.text) for block in blocks if isinstance(block, acp.TextContent))

    def assert_finished(self, status: str | None = None) -> None:
        """Asserts a legal life: pending, in_progress, then completed or failed, each at most once; and its end.

        A call may end without ever running (rejected, cancelled), and a replayed one starts with its final status.
        """
        legal = ("pending", "in_progress")
        assert self.status in ("completed", "failed"), f"tool call {self.id} has not ended: {self.statuses}"
        before = self.statuses[:-1]
        assert before == [step for step in legal if step in before], f"tool call {self.id}: {self.statuses}"
        assert status in (None, self.status), f"tool call {self.id} is {self.status}, not {status}: {self.text()}"


class Turn:
    """A prompt that runs while the test does something else."""

    def __init__(self) -> None:
        self._ended = anyio.Event()
        self._answer: acp.PromptResponse | None = None
        self._error: AgentError | None = None

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    async def response(self) -> acp.PromptResponse:
        """The prompt's response; raises what `AcpClient.prompt` raised."""
        with anyio.fail_after(WAIT_SECONDS):
            await self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    async def run(self, prompt: Callable[[], Any]) -> None:
        try:
            self._answer = await prompt()
        except AgentError as error:
            self._error = error
        finally:
            self._ended.set()


class _MisbehavingClient(AcpClient):
    misbehave: Mapping[str, Misbehaviour]
    nulls: frozenset[str] = frozenset()
    unknown_never_answer: bool = False

    async def handle_request(self, method: str, params: Any) -> Any:
        match self.misbehave.get(method):
            case NeverAnswers():
                await anyio.sleep_forever()
            case AnswersError(code, message, data):
                error = RpcError(message, data)
                error.code = code
                raise error
            case AnswersGarbage(result):
                return result
            case AnswersLate(release) as late if not late.served_at_once:
                await release.wait()
        try:
            result = await super().handle_request(method, params)
        except MethodNotFound:
            if self.unknown_never_answer:
                await anyio.sleep_forever()
            raise
        if isinstance(slow := self.misbehave.get(method), AnswersLate):
            await slow.release.wait()
        return None if result == {} and method in self.nulls else result


class LineRecorder:
    """A transport that reports every whole line, in either direction, as it passes. `agent`: it is the agent's end."""

    def __init__(self, inner: Transport, show: Callable[[Direction, bytes], None], *, agent: bool = False) -> None:
        self._inner = inner
        self._show = show
        self._read: Direction = "to_agent" if agent else "from_agent"
        self._written: Direction = "from_agent" if agent else "to_agent"
        self._parts: dict[Direction, list[bytes]] = {"to_agent": [], "from_agent": []}
        self._writing = anyio.Lock()

    async def read(self) -> bytes:
        data = await self._inner.read()
        self._pass(self._read, data)
        return data

    async def write(self, data: bytes) -> None:
        async with self._writing:
            self._pass(self._written, data)
            await self._inner.write(data)

    def close(self) -> None:
        self._inner.close()

    def _pass(self, direction: Direction, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        parts = self._parts[direction]
        for line in whole:
            self._show(direction, b"".join((*parts, line)))
            parts.clear()
        if rest:
            parts.append(rest)


# --- the editor --------------------------------------------------------------------------------------------------


class Capabilities(TypedDict, total=False):
    """The editor's individual capabilities. By default it reads, writes and has terminals."""

    fs_read: bool
    fs_write: bool
    terminal: bool
    terminal_output_meta: bool
    terminal_auth: bool
    boolean_options: bool
    notices: bool
    compaction: bool
    plan_documents: bool
    subagents: bool
    cursors: bool
    suggestions: bool


class EditorOptions(Capabilities, FileQuirks, TerminalQuirks, total=False):
    """Options passed to the editor's parts by name."""

    unknown_never_answer: bool
    """Requests with unknown methods hang."""


live_editors: WeakSet[FakeEditor] = WeakSet()
"""All editors of the running test, for its report."""


class FakeEditor:
    """See the module docstring. The defaults of all keyword arguments make a complete, well-behaved editor.

    `capabilities` replaces those from the options, `elicitation` and `language_servers` as a whole. `permissions`
    answers one request each, in order, and `otherwise` the rest. `misbehave` maps a client method to what happens
    instead of serving it. `buffers` is unsaved text; with `save` false writes stay there. `options` are single
    capabilities and quirks of real editors (`Capabilities`, and `quirks`).
    """

    schema_file: ClassVar[Path | None] = None
    """The pinned schema every line is checked against; without it nothing is checked."""

    def __init__(
        self,
        transport: Transport,
        *,
        capabilities: acp.ClientCapabilities | None = None,
        info: acp.Implementation | None = FAKE_EDITOR,
        elicitation: ElicitationAnswer | None = None,
        language_servers: LanguageServers | None = None,
        permissions: Sequence[PermissionHandler] = (),
        otherwise: PermissionHandler = allow_once,
        misbehave: Mapping[str, Misbehaviour] | None = None,
        buffers: dict[Path, str] | None = None,
        save: bool = True,
        check: bool = True,
        **options: Unpack[EditorOptions],
    ) -> None:
        if unknown := options.keys() - EditorOptions.__optional_keys__:
            raise TypeError(f"FakeEditor has no {', '.join(sorted(unknown))}")
        if capabilities is None:
            capabilities = _capabilities(
                options, elicitation=elicitation is not None, language_servers=language_servers is not None
            )
        self.transcript: list[Line] = []
        self.violations: list[str] = []
        """Lists what was wrong on the wire so far."""
        self.updates: dict[str, list[acp.SessionUpdate]] = {}
        """By session id, in order of arrival."""
        self.permission_requests: list[acp.RequestPermissionRequest] = []
        self.elicitations: list[acp.CreateElicitationRequest] = []
        self.session_id = ""
        """The session opened last, used by helpers when none is named."""
        self.initialized: acp.InitializeResponse | None = None
        self.misbehave: dict[str, Misbehaviour] = dict(misbehave or {})
        """May be changed while the test runs."""
        self.files = QuirkyFiles({} if buffers is None else buffers, save=save, quirks=options)
        self.terminals = QuirkyTerminals(options)
        self.permissions = [*permissions]
        """May grow while the test runs."""
        self._changed = anyio.Event()
        self._background: Background | None = None
        self._raw: list[bytes] = []
        self._checks = WireChecks(self.schema_file) if check and self.schema_file is not None else None
        self._transport = LineRecorder(transport, self._on_line)
        self.client = _MisbehavingClient(
            self._transport,
            files=self.files,
            terminals=self.terminals,
            permissions=partial(self._answer_permission, otherwise),
            elicitation=None if elicitation is None else partial(self._answer_elicitation, elicitation),
            language_servers=language_servers,
            on_update=self._on_update,
            capabilities=capabilities,
            info=info,
        )
        self.client.misbehave = self.misbehave
        self.client.unknown_never_answer = options.get("unknown_never_answer", False)
        if options.get("write_answers_null"):
            self.client.nulls = frozenset({"fs/write_text_file"})
        live_editors.add(self)

    @classmethod
    @asynccontextmanager
    async def spawn(
        cls, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, **rest: Any
    ) -> AsyncIterator[Self]:
        """Creates an editor whose agent is a child process, in `process`; `rest` are the constructor's arguments."""
        async with agent_process(argv, cwd=cwd, env=env) as process, cls(process.transport, **rest) as editor:
            editor.process = process
            yield editor

    process: AgentProcess | None = None
    """The agent's process, if `spawn` started one."""

    # --- lifetime ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        self._background = await Background().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        background, self._background = self._background, None
        handled = False
        try:
            if background is not None:
                self.client.connection.close()  # Ends the prompts that are still running.
                handled = await background.__aexit__(kind, error, trace)
        finally:
            await self.client.__aexit__(kind, error, trace)
        if error is None:
            self.assert_clean()
        return handled

    def assert_clean(self) -> None:
        """Asserts that no line so far was wrong."""
        if self.violations:  # No `assert`, whose words pytest adds to.
            raise AssertionError("wrong on the wire:\n" + "\n".join(self.violations))

    # --- requests ---------------------------------------------------------------------------------------------

    async def start(self, params: dict[str, Any] | None = None) -> acp.InitializeResponse:
        """Sends `initialize`, with exactly `params` if given (as recorded from a real editor)."""
        with anyio.fail_after(WAIT_SECONDS):
            if params is None:
                self.initialized = await self.client.initialize()
            else:
                self.initialized = await self.client.ask("initialize", params)
        return self.initialized

    async def new_session(self, cwd: Path, **around: Unpack[Around]) -> acp.NewSessionResponse:
        with anyio.fail_after(WAIT_SECONDS):
            answer = await self.client.new_session(cwd, **around)
        self.session_id = answer.session_id
        return answer

    async def load_session(self, session_id: str, cwd: Path, **around: Unpack[Around]) -> acp.LoadSessionResponse:
        """Forgets what was recorded of this session before, so that `updates` holds only the replay."""
        self.updates[session_id] = []
        with anyio.fail_after(WAIT_SECONDS):
            answer = await self.client.load_session(session_id, cwd, **around)
        self.session_id = session_id
        return answer

    async def resume_session(self, session_id: str, cwd: Path, **around: Unpack[Around]) -> acp.ResumeSessionResponse:
        with anyio.fail_after(WAIT_SECONDS):
            answer = await self.client.resume_session(session_id, cwd, **around)
        self.session_id = session_id
        return answer

    async def prompt(
        self, prompt: str | Sequence[acp.ContentBlock], *, session_id: str | None = None, seconds: float = WAIT_SECONDS
    ) -> acp.PromptResponse:
        """Runs one whole turn, limited to `seconds`."""
        with anyio.fail_after(seconds):
            return await self.client.prompt(session_id or self.session_id, prompt)

    def begin(self, prompt: str | Sequence[acp.ContentBlock], *, session_id: str | None = None) -> Turn:
        """Starts a turn and returns immediately."""
        assert self._background is not None, "the editor is not open"
        turn = Turn()
        session = session_id or self.session_id
        self._background.start(turn.run, lambda: self.client.prompt(session, prompt))
        return turn

    def cancel(self, *, session_id: str | None = None) -> None:
        self.client.cancel(session_id or self.session_id)

    async def request(self, method: str, params: Any = None) -> Any:
        """Sends any request with any params, valid or not (they are not checked); returns its plain result."""
        if self._checks is not None:
            self._checks.allow(params)
        with anyio.fail_after(WAIT_SECONDS):
            return await self.client.connection.request(method, params)

    def notify(self, method: str, params: Any = None) -> None:
        """Sends any notification, valid or not."""
        if self._checks is not None:
            self._checks.allow(params)
        self.client.connection.notify(method, params)

    async def send_line(self, line: bytes) -> None:
        """Sends any bytes as a line (a line feed is added), bypassing the client. Answers appear in `transcript`."""
        self._raw.append(line)
        await self._transport.write(line + b"\n")

    # --- inspecting -------------------------------------------------------------------------------------------

    async def wait_for(
        self,
        matches: Callable[[acp.SessionUpdate], bool],
        *,
        session_id: str | None = None,
        seconds: float = WAIT_SECONDS,
    ) -> Any:
        """Returns the first matching update of the session, past or future."""

        def found() -> acp.SessionUpdate | None:
            return next((update for update in self._updates(session_id) if matches(update)), None)

        return await self.wait_until(found, seconds=seconds)

    async def wait_until(self, found: Callable[[], _Found], *, seconds: float = WAIT_SECONDS) -> _Found:
        """Calls `found` again after every line and update until its result is true; returns that."""
        with anyio.fail_after(seconds):
            while True:
                value = found()
                if value:
                    return value
                await self._changed.wait()

    def tool_calls(self, *, session_id: str | None = None) -> dict[str, ToolCallState]:
        """Tool calls by id, in the order of their announcement."""
        calls: dict[str, ToolCallState] = {}
        for update in self._updates(session_id):
            if isinstance(update, acp.ToolCall | acp.ToolCallUpdate):
                calls.setdefault(update.tool_call_id, ToolCallState(update.tool_call_id)).take(update)
        return calls

    def tool_call(self, *, session_id: str | None = None) -> ToolCallState:
        """Returns the only tool call of the session."""
        (call,) = self.tool_calls(session_id=session_id).values()
        return call

    def assert_tool_calls_finished(self, *, session_id: str | None = None) -> None:
        """Asserts that every tool call has had a legal life and has ended."""
        for call in self.tool_calls(session_id=session_id).values():
            call.assert_finished()

    def text(self, *, session_id: str | None = None) -> str:
        """All text the agent has sent in the session."""
        return self._text(acp.AgentMessageChunk, session_id)

    def thoughts(self, *, session_id: str | None = None) -> str:
        return self._text(acp.AgentThoughtChunk, session_id)

    def lines(self, direction: Direction, method: str | None = None) -> list[Any]:
        """The messages of one direction, optionally of one method only."""
        return [
            line.message
            for line in self.transcript
            if line.direction == direction
            and (method is None or (isinstance(line.message, dict) and line.message.get("method") == method))
        ]

    def _text(self, kind: type[acp.ContentChunk], session_id: str | None) -> str:
        chunks = (update for update in self._updates(session_id) if isinstance(update, kind))
        return "".join(chunk.content.text for chunk in chunks if isinstance(chunk.content, acp.TextContent))

    def _updates(self, session_id: str | None) -> list[acp.SessionUpdate]:
        return self.updates.get(session_id or self.session_id, [])

    # --- recording --------------------------------------------------------------------------------------------

    def _on_line(self, direction: Direction, line: bytes) -> None:
        if not line.strip():
            return
        raw = direction == "to_agent" and line in self._raw
        if raw:
            self._raw.remove(line)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self.transcript.append(Line(direction, line.decode("utf-8", "backslashreplace")))
            if not raw:
                self.violations.append(f"{direction}: not JSON: {line[:300]!r}")
        else:
            self.transcript.append(Line(direction, message))
            if self._checks is not None:
                self._checks.unchecked_answers = {
                    method for method, how in self.misbehave.items() if isinstance(how, AnswersGarbage)
                }
                problems = self._checks.check(direction, message)
                if not raw:
                    self.violations += [f"{direction}: {problem}" for problem in problems]
        self._wake()

    def _on_update(self, session_id: str, update: acp.SessionUpdate) -> None:
        self.updates.setdefault(session_id, []).append(update)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _answer_permission(
        self, otherwise: PermissionHandler, request: acp.RequestPermissionRequest
    ) -> acp.RequestPermissionOutcome:
        self.permission_requests.append(request)
        self._wake()
        answer = self.permissions.pop(0) if self.permissions else otherwise
        return await answer(request)

    async def _answer_elicitation(
        self, answer: ElicitationAnswer, request: acp.CreateElicitationRequest
    ) -> acp.CreateElicitationResponse:
        self.elicitations.append(request)
        self._wake()
        return await answer(request)


def _capabilities(options: Capabilities, *, elicitation: bool, language_servers: bool) -> acp.ClientCapabilities:
    meta: dict[str, Any] = {"terminal_output": True} if options.get("terminal_output_meta") else {}
    if language_servers:
        meta["lsp"] = True
    boolean = acp.SessionConfigOptionsCapabilities(boolean=acp.BooleanConfigOptionCapabilities())
    session = acp.ClientSessionCapabilities(
        config_options=boolean if options.get("boolean_options") else None,
        notices=acp.NoticeCapabilities() if options.get("notices") else None,
        cursors=acp.ClientCursorCapabilities() if options.get("cursors") else None,
        prompt_suggestions=acp.ClientPromptSuggestionCapabilities() if options.get("suggestions") else None,
        compaction=acp.CompactionCapabilities() if options.get("compaction") else None,
    )
    form_and_url = acp.ElicitationCapabilities(
        form=acp.ElicitationFormCapabilities(), url=acp.ElicitationUrlCapabilities()
    )
    return acp.ClientCapabilities(
        fs=acp.FileSystemCapabilities(
            read_text_file=options.get("fs_read", True), write_text_file=options.get("fs_write", True)
        ),
        terminal=options.get("terminal", True),
        session=None if session == acp.ClientSessionCapabilities() else session,
        auth=acp.AuthCapabilities(terminal=options.get("terminal_auth", False)),
        elicitation=form_and_url if elicitation else None,
        plan=acp.PlanCapabilities() if options.get("plan_documents") else None,
        subagents=acp.SubagentCapabilities() if options.get("subagents") else None,
        meta=meta or None,
    )
