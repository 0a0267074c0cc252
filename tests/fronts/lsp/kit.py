"""`acp-coder lsp`, as a process or here, driven by pytest-lsp's client with the capabilities of a real editor.

`LspEditor` is that client with what an editor has besides: buffers that edits are made in, and a user who answers.
Its positions are counted by codecs, not by the code that is tested.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.io_ import run_async
from pygls.protocol import default_converter
from pytest_lsp.client import LanguageClient, register_lsp_features
from pytest_lsp.protocol import LanguageClientProtocol

from acp_agent.fronts.lsp_server import front, server
from acp_agent.fronts.lsp_server.wire import Outgoing
from acp_agent.protocol.transports import FdTransport
from acp_agent.testing.fake_model import FakeModel, Script
from tests.e2e.kit import environ
from tests.editors.raw_agent import PASS_ON, RawAgent, Turn, raw_agent
from tests.forked import forked_command

__all__ = ["CAPTURED", "LspEditor", "Question", "begun", "captured", "lsp", "raw_lsp"]

SECONDS = 60.0
"""Bound of each wait."""

CAPTURED = ("helix-25.07.1", "neovim-0.12.4", "eglot-1.17.30")
FOLDER = Path(__file__).parents[2] / "captured"
converter = cache(default_converter)
"""Made once: that takes longer than most tests of an editor."""
UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def captured(name: str) -> dict[str, Any]:
    """The `initialize` parameters as that editor sent them."""
    found: dict[str, Any] = json.loads((FOLDER / f"lsp-{name}.json").read_text(encoding="utf-8"))
    return found


@dataclass
class Question:
    """A message request, until the user answers it."""

    message: str
    actions: list[str]
    done: anyio.Event = field(default_factory=anyio.Event)
    chosen: str | None = None
    withdrawn: bool = False

    def answer(self, title: str | None) -> None:
        """`None`: the user puts it away."""
        assert title is None or title in self.actions
        self.chosen = title
        self.done.set()


@dataclass
class Buffer:
    uri: str
    text: str
    version: int = 1


class _Protocol(LanguageClientProtocol):
    def handle_message(self, message: Any) -> None:
        super().handle_message(message)
        self._server.tick()  # type: ignore[attr-defined]


class LspEditor(LanguageClient):
    """`echo`: when a change that an edit made is told: "before" the answer to the edit, "after" it, or "never"."""

    def __init__(self, home: Path) -> None:
        self.home = home
        super().__init__(protocol_cls=_Protocol, converter_factory=converter)
        register_lsp_features(self)
        self.buffers: dict[str, Buffer] = {}
        self.questions: list[Question] = []
        self.edits: list[types.ApplyWorkspaceEditParams] = []
        self.refreshes: list[str] = []
        self.updates: list[Any] = []
        self.saves: list[str] = []
        self.changed: list[str] = []
        self.published: list[types.PublishDiagnosticsParams] = []
        self.echo = "before"
        self.refusals = 0
        """So many edits are refused."""
        self.before_edit: Callable[[], None] | None = None
        """Called before an edit is looked at."""
        self.saves_when_told = False
        self._requests = 0
        self.encoding = "utf-16"
        self.result: types.InitializeResult | None = None
        self._changed = anyio.Event()
        self._register()

    def tick(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Waits, bounded, until something that was received makes it true."""
        with anyio.fail_after(SECONDS):
            while not (found := holds()):
                await self._changed.wait()
        return found

    # --- what the server asks ---------------------------------------------------------------------------------

    def _register(self) -> None:
        features: dict[str, Callable[..., Any]] = {
            types.WORKSPACE_APPLY_EDIT: self._apply, types.WINDOW_SHOW_MESSAGE_REQUEST: self._ask,
            types.WORKSPACE_INLAY_HINT_REFRESH: lambda _: self.refreshes.append("hints"),
            types.WORKSPACE_CODE_LENS_REFRESH: lambda _: self.refreshes.append("lenses"),
            types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: self._publish, "acpCoder/update": self.updates.append,
            "acpCoder/save": self._save, "acpCoder/changed": lambda params: self.changed.append(params.uri),
        }  # fmt: skip
        self.protocol.fm.features.update(features)

    async def _ask(self, params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
        question = Question(params.message, [action.title for action in params.actions or ()])
        self.questions.append(question)
        self.tick()
        try:
            await question.done.wait()
        finally:
            question.withdrawn = not question.done.is_set()
            self.tick()
        return None if question.chosen is None else types.MessageActionItem(title=question.chosen)

    def _publish(self, params: types.PublishDiagnosticsParams) -> None:
        self.published.append(params)
        self.diagnostics[params.uri] = params.diagnostics

    def _save(self, params: Any) -> None:
        self.saves.append(params.uri)
        if self.saves_when_told:
            self.save(params.uri)

    def _apply(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        self.edits.append(params)
        if self.before_edit is not None:
            before, self.before_edit = self.before_edit, None
            before()
        if self.refusals:
            self.refusals -= 1
            return types.ApplyWorkspaceEditResult(applied=False, failure_reason="the user said no")
        wanted: list[tuple[Buffer, Sequence[Any]]] = []
        for change in params.edit.document_changes or ():
            assert isinstance(change, types.TextDocumentEdit)
            buffer = self.buffers[change.text_document.uri]
            if change.text_document.version not in (None, buffer.version):
                return types.ApplyWorkspaceEditResult(applied=False, failure_reason="version mismatch")
            wanted.append((buffer, change.edits))
        wanted += [(self.buffers[uri], edits) for uri, edits in (params.edit.changes or {}).items()]
        for buffer, edits in wanted:
            spans = [(self.offset(buffer.text, e.range.start), self.offset(buffer.text, e.range.end), e) for e in edits]
            for start, end, edit in sorted(spans, key=lambda span: span[0], reverse=True):
                old = buffer.text
                buffer.text = old[:start] + edit.new_text + old[end:]
            buffer.version += 1
            if self.echo == "before":
                self.tell(buffer)
        return types.ApplyWorkspaceEditResult(applied=True)

    # --- what the editor tells --------------------------------------------------------------------------------

    def open(self, path: Path, text: str | None = None, language: str = "python") -> Buffer:
        """Opens a file; `text` instead of what is on the disk."""
        said = path.read_bytes().decode() if text is None else text
        buffer = self.buffers[path.as_uri()] = Buffer(path.as_uri(), said)
        item = types.TextDocumentItem(uri=buffer.uri, language_id=language, version=1, text=said)
        self.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        return buffer

    def type(self, buffer: Buffer, start: int, end: int, new: str) -> None:
        """A user changes the code points from `start` to `end`."""
        where = types.Range(start=self.position(buffer.text, start), end=self.position(buffer.text, end))
        buffer.text = buffer.text[:start] + new + buffer.text[end:]
        buffer.version += 1
        self._tell(buffer, types.TextDocumentContentChangePartial(range=where, text=new))

    def tell(self, buffer: Buffer) -> None:
        """The whole text, as it is now."""
        self._tell(buffer, types.TextDocumentContentChangeWholeDocument(text=buffer.text))

    def _tell(self, buffer: Buffer, change: types.TextDocumentContentChangeEvent) -> None:
        named = types.VersionedTextDocumentIdentifier(uri=buffer.uri, version=buffer.version)
        self.text_document_did_change(types.DidChangeTextDocumentParams(text_document=named, content_changes=[change]))

    def save(self, uri: str) -> None:
        Path(uri.removeprefix("file://")).write_bytes(self.buffers[uri].text.encode())
        self.text_document_did_save(
            types.DidSaveTextDocumentParams(text_document=types.TextDocumentIdentifier(uri=uri))
        )

    async def execute(self, command: str, *arguments: Any) -> Any:
        with anyio.fail_after(SECONDS):
            return await self.workspace_execute_command_async(
                types.ExecuteCommandParams(command=command, arguments=list(arguments))
            )

    async def actions(
        self, uri: str, where: types.Range, *diagnostics: types.Diagnostic, only: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """The code actions as plain data: lsprotocol takes every one for a command."""
        params = types.CodeActionParams(
            text_document=types.TextDocumentIdentifier(uri=uri), range=where,
            context=types.CodeActionContext(diagnostics=list(diagnostics), only=only),
        )  # fmt: skip
        self._requests += 1
        name = f"plain-{self._requests}"
        answer = self.protocol.send_request(types.TEXT_DOCUMENT_CODE_ACTION, params, msg_id=name)
        self.protocol._result_types[name] = None
        await self.until(answer.done)
        found: list[dict[str, Any]] = answer.result()
        return found

    async def question(self, number: int = 1) -> Question:
        """The message request of that number, counted from 1."""
        await self.until(lambda: len(self.questions) >= number)
        return self.questions[number - 1]

    def said(self) -> list[str]:
        """What was shown to the user as messages."""
        return [message.message for message in self.messages]

    def lines(self) -> list[tuple[str, list[Any]]]:
        """The work-done progress: titles, and what was said of each."""
        reports: list[list[Any]] = list(self.progress_reports.values())
        return [(said[0].title, said) for said in reports if said]

    async def turns_over(self, number: int = 1) -> None:
        """So many turns have ended, as progress shows them."""

        def ended() -> bool:
            turns = [said for title, said in self.lines() if title.startswith("Agent: ")]
            return sum(said[-1].kind == "end" for said in turns) >= number

        await self.until(ended)

    def transcript(self) -> str:
        """What is in the newest transcript."""
        return max((self.home / ".local/state/acp-coder/transcripts").glob("*.md")).read_text()

    # --- positions --------------------------------------------------------------------------------------------

    def position(self, text: str, offset: int) -> types.Position:
        before = text[:offset].split("\n")
        codec, size = UNITS[self.encoding]
        return types.Position(line=len(before) - 1, character=len(before[-1].encode(codec)) // size)

    def offset(self, text: str, position: types.Position) -> int:
        lines = text.split("\n")
        assert position.line < len(lines), "behind the end of the text"
        codec, size = UNITS[self.encoding]
        data = lines[position.line].encode(codec)
        assert position.character * size <= len(data), "behind the end of the line"
        inside = data[: position.character * size].decode(codec)
        return sum(len(line) + 1 for line in lines[: position.line]) + len(inside)

    def range_of(self, text: str, words: str) -> types.Range:
        start = text.index(words)
        return types.Range(start=self.position(text, start), end=self.position(text, start + len(words)))


@asynccontextmanager
async def lsp(
    folder: Path, script: Script = (), *, name: str = "neovim-0.12.4", command: Sequence[str] = (),
    options: Mapping[str, Any] | None = None, change: Callable[[dict[str, Any]], None] | None = None,
    started: bool = True, process: bool = False, **more: str,
) -> AsyncIterator[tuple[LspEditor, FakeModel]]:  # fmt: skip
    """An editor with `folder/project` open and the server behind it; with `started` after `initialize`.

    `process`: the server as the command that editors start, else in this process, with the same streams.

    `command`: another agent than ours. `change` may change what is sent with `initialize`.
    """
    (project := folder / "project").mkdir(exist_ok=True)
    editor = LspEditor(folder)
    async with FakeModel(script) as model:
        env = environ(folder, model.base_url, **more)
        async with _process(editor, command, env) if process else _here(editor, command, env):
            if started:
                await _initialize(editor, name, project, options, change)
            yield editor, model
            if editor.error is not None:
                raise editor.error


@asynccontextmanager
async def _process(editor: LspEditor, command: Sequence[str], env: dict[str, str]) -> AsyncIterator[None]:
    """`python -m acp_agent lsp`."""
    argv = ("-m", "acp_agent", "lsp", *(["--", *command] if command else []))
    await editor.start_io(sys.executable, *argv, env=env, cwd=str(editor.home))
    server = editor._server
    assert server is not None and server.stdin is not None
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(SECONDS):
            if server.returncode is None:
                await _leave(editor)
            server.stdin.close()
            with anyio.move_on_after(SECONDS / 2):
                await server.wait()
            if server.returncode is None:
                server.kill()
            await editor.stop()


class _Reader:
    """A transport as pygls reads it."""

    def __init__(self, transport: FdTransport) -> None:
        self._transport = transport
        self._received = b""

    async def readline(self) -> bytes:
        while b"\n" not in self._received:
            await self._more()
        line, _, self._received = self._received.partition(b"\n")
        return line + b"\n"

    async def readexactly(self, length: int) -> bytes:
        while len(self._received) < length:
            await self._more()
        data, self._received = self._received[:length], self._received[length:]
        return data

    async def _more(self) -> None:
        data = await self._transport.read()
        if not data:
            await anyio.sleep_forever()
        self._received += data


@asynccontextmanager
async def _here(editor: LspEditor, command: Sequence[str], env: dict[str, str]) -> AsyncIterator[None]:
    """The server in this process, on real pipes: it is loaded once for all tests, and so is our agent."""
    our_agent = (forked_command(),)
    (its_in, our_out), (our_in, its_out) = os.pipe(), os.pipe()
    try:
        async with anyio.create_task_group() as tasks:
            ours = FdTransport(our_in, our_out, ends_on_hangup=False)
            writer = Outgoing(ours)
            editor.protocol.set_writer(writer)
            ended = anyio.Event()

            async def serve() -> None:
                with (
                    patch.object(front, "AGENT_COMMAND", our_agent),
                    patch.object(server, "default_converter", converter),
                ):
                    await server.serve_streams(command or our_agent, env, its_in, its_out)
                ended.set()

            tasks.start_soon(serve)
            tasks.start_soon(writer.run)
            tasks.start_soon(partial(
                run_async, stop_event=editor._stop_event, reader=_Reader(ours), protocol=editor.protocol,
                error_handler=editor.report_server_error,
            ))  # fmt: skip
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(SECONDS):
                    await _leave(editor)
                    with anyio.move_on_after(SECONDS / 2):
                        await ended.wait()
                tasks.cancel_scope.cancel()
                ours.close()
    finally:
        for fd in (its_in, our_out, our_in, its_out):
            os.close(fd)


async def _initialize(
    editor: LspEditor, name: str, project: Path, options: Mapping[str, Any] | None,
    change: Callable[[dict[str, Any]], None] | None,
) -> None:  # fmt: skip
    params = captured(name)
    params["processId"] = os.getpid()
    params["rootPath"] = str(project)
    for folder in params.get("workspaceFolders") or ():
        folder["uri"] = project.as_uri()
    if params.get("rootUri"):
        params["rootUri"] = project.as_uri()
    params["initializationOptions"] = options
    if change is not None:
        change(params)
    with anyio.fail_after(SECONDS):
        editor.result = await editor.initialize_session(converter().structure(params, types.InitializeParams))
    encoding = editor.result.capabilities.position_encoding
    editor.encoding = str(getattr(encoding, "value", encoding))


async def _leave(editor: LspEditor) -> None:
    for question in editor.questions:
        question.done.set()
    with anyio.move_on_after(SECONDS / 2):
        with suppress(JsonRpcException):  # It was not asked to begin, or the test has said so before.
            await editor.shutdown_async(None)
        editor.exit(None)


@asynccontextmanager
async def raw_lsp(folder: Path, **how: Any) -> AsyncIterator[tuple[LspEditor, RawAgent]]:
    """With an agent whose every word the test says."""
    async with raw_agent() as agent:
        command = [sys.executable, "-c", PASS_ON, str(agent.port)]
        async with lsp(folder, command=command, **how) as (editor, _):
            yield editor, agent


async def begun(editor: LspEditor, agent: RawAgent, text: str = "go") -> Turn:
    """The turn of this prompt."""
    await editor.execute("acpCoder.prompt", text)
    return await agent.prompted()
