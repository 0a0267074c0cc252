"""The agent as the editor sees it: connects the parts.

Everything starts only when needed: `initialize` is answered without an agent; the first command starts it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.abc
import msgspec
from lsprotocol import types

from acp_agent import __version__
from acp_agent.client.acp_client import AcpClient
from acp_agent.config.xdg import state_dir
from acp_agent.fronts.headless import AGENT_COMMAND
from acp_agent.fronts.lsp_server.agent_host import AgentHost
from acp_agent.fronts.lsp_server.buffers import Buffers, WarnedTerminals
from acp_agent.fronts.lsp_server.conversation import Folders, PromptQueue, Session, Turn
from acp_agent.fronts.lsp_server.documents.editor_documents import Documents, path_of, uri_of
from acp_agent.fronts.lsp_server.documents.edits import hunks_between, text_edits
from acp_agent.fronts.lsp_server.documents.text_positions import Text, choose_encoding
from acp_agent.fronts.lsp_server.drawing import Drawing
from acp_agent.fronts.lsp_server.initialization_options import Options, read_options
from acp_agent.fronts.lsp_server.lsp_editor import Editor, Kind
from acp_agent.fronts.lsp_server.progress import Progress
from acp_agent.fronts.lsp_server.prompt_content import Prompt
from acp_agent.fronts.lsp_server.questions import Questions
from acp_agent.fronts.lsp_server.status import Board, Call, one_line
from acp_agent.fronts.lsp_server.transcript import BLANK, YOU, Transcript, is_answered, pending_prompt, with_draft
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp

log = logging.getLogger(__name__)

UPDATE_NOTIFICATION = "acpCoder/update"
WRITE_SECONDS = 0.2
"""Pause between two writes of the transcript."""

LIVE_SECONDS = 1.0
"""Pause between two checks of an open live transcript."""

END_SECONDS = 1.0
"""How long the answer to `shutdown` waits for the agent to end; eglot waits 1.5 s for it."""

SAID_LENGTH = 60
"""Characters of an answer that are shown directly: more would require a key press in some editors."""

WATCH_SECONDS = 2.0
"""Pause between two checks of whether the editor's process is alive."""

ENDINGS = {
    "cancelled": "Stopped.",
    "max_tokens": "The answer was cut off: the model's token limit was reached.",
    "max_turn_requests": "Not finished: the turn reached its limit of requests. `Agent: continue` continues it.",
    "refusal": "The model refused to continue.",
}


class Front:
    def __init__(
        self, editor: Editor, argv: Sequence[str], environ: Mapping[str, str], tasks: anyio.abc.TaskGroup
    ) -> None:
        self.options = Options()
        self.folders = Folders(Path.cwd())
        self.editor = editor
        self.documents = Documents()
        self.documents.on_edit = self._edited
        self.board = Board()
        self._replayed = Board()
        """For a replayed session, of which nothing is drawn."""
        self.transcript = Transcript(Path(state_dir(environ)) / "transcripts")
        self.buffers = Buffers(self.documents, editor, self.board.title_for)
        self.progress = Progress(editor, tasks)
        self.drawing = Drawing(editor, self.documents, self.board, self.progress, tasks, lambda: self.options)
        self.questions = Questions(editor, self.board, self.transcript, self.show_transcript, self.drawing.change)
        # Our own agent asks better without forms: a question for text ends the turn, and the next prompt is its answer.
        # Other agents may not support that. It also asks before it uses files outside of the session's folders.
        self._foreign = tuple(argv) != AGENT_COMMAND
        self.host = AgentHost(argv, environ, self._connect, tasks)
        self.conversation = PromptQueue(self.host, lambda: self.folders, self, tasks)
        self._tasks = tasks
        self._prompted: Turn | None = None
        self._answer = ""
        """The beginning of the agent's last message."""
        self._terminals: WarnedTerminals | None = None
        self._to_write = anyio.Event()
        self._syncing = anyio.Lock()

    def _connect(self, transport: Transport) -> AcpClient:
        self._terminals = WarnedTerminals(self.buffers)
        forms = acp.ElicitationCapabilities(form=acp.ElicitationFormCapabilities())
        return AcpClient(
            transport,
            files=self.buffers,
            terminals=self._terminals,
            permissions=self.questions.permission,
            elicitation=self.questions.elicit if self._foreign else None,
            on_update=self.conversation.take_update,
            capabilities=acp.ClientCapabilities(
                fs=acp.FileSystemCapabilities(read_text_file=True, write_text_file=True),
                terminal=True,
                elicitation=forms if self._foreign else None,
            ),
            bounded=self._foreign,
            info=acp.Implementation(name="acp-coder-lsp", version=__version__),
        )

    # --- the editor's lifetime --------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        self.editor.capabilities = params.capabilities
        self.editor.name = params.client_info.name if params.client_info is not None else ""
        general = params.capabilities.general
        offered = general.position_encodings if general is not None else None
        self.documents.encoding = choose_encoding([str(getattr(name, "value", name)) for name in offered or ()])
        self.options, problems = read_options(params.initialization_options)
        self.buffers.when_to_save = self.options.save
        for problem in problems:
            self.editor.say(f"acp-coder: {problem}", Kind.Warning)
        self.folders = _folders(params)
        for work in (self.conversation.run, self.drawing.run, self._write_transcript):
            self._tasks.start_soon(work)
        if self.options.transcript == "live":
            self._tasks.start_soon(self._keep_live)
        # An editor in another process namespace (a container) only seems to be absent.
        if params.process_id is not None and _lives(params.process_id):
            self._tasks.start_soon(self._watch, params.process_id)

    def change_folders(self, event: types.WorkspaceFoldersChangeEvent) -> None:
        """Takes effect with the next session."""
        gone = {folder.uri for folder in event.removed}
        before = [self.folders.cwd, *self.folders.more]
        kept = [path for path in before if path not in {path_of(uri) for uri in gone}]
        added = [path for folder in event.added if (path := _folder(folder.uri)) is not None]
        found = list(dict.fromkeys([*kept, *added]))
        if found:
            self.folders = Folders(found[0], tuple(found[1:]))

    def leave(self) -> None:
        """Called before the editor exits: removes everything of ours from it, and asks the agent to end."""
        self.conversation.stop()
        self.questions.abandon()
        self.progress.end_turn("")
        self.board.clear()
        self.drawing.clear()
        self.transcript.flush()
        self.host.end()

    async def close(self) -> None:
        """As `leave`, and waits, with a limit, until the agent and its commands have ended."""
        self.leave()
        with anyio.move_on_after(END_SECONDS):
            await self.host.gone()

    async def _watch(self, pid: int) -> None:
        """Ends with the editor: if killed, it may leave its pipes open in a child process."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            if not _lives(pid):
                break
        log.warning("the editor (process %d) is gone", pid)
        self._tasks.cancel_scope.cancel()

    # --- documents --------------------------------------------------------------------------------------------

    def _edited(self, path: Path, where: types.Range, new: str, ours: bool) -> None:
        if not ours:
            self.questions.typed()
        changes = self.board.changes
        self.board.edited(path, where, new, ours)
        if self.board.changes != changes:
            self.drawing.change()

    # --- the conversation -----------------------------------------------------------------------------------

    def session_began(self, session: Session, *, loaded: bool) -> None:
        self.buffers.forget()
        self._replayed.clear()
        self.transcript.begin(f"{session.agent.name} in {session.folders.cwd}", loaded=loaded)

    def turn_began(self, turn: Turn) -> None:
        self.board.clear()
        self._answer = ""
        self.buffers.new_turn()
        self.progress.begin_turn(turn.prompt.text)
        self.drawing.change()

    def prompted(self, turn: Turn) -> None:
        self._prompted = turn
        self.transcript.prompt(turn.prompt.text)

    def updated(self, session_id: str, update: acp.SessionUpdate, *, replayed: bool) -> None:
        if self.options.updates:
            self.editor.notify(UPDATE_NOTIFICATION, {"sessionId": session_id, "update": msgspec.to_builtins(update)})
        self.transcript.update(update)
        self._to_write.set()
        if isinstance(update, acp.AgentMessageChunk) and isinstance(update.content, acp.TextContent):
            self._answer += update.content.text[: SAID_LENGTH * 2]
        elif isinstance(update, acp.ToolCall):
            self._answer = ""
        if not isinstance(update, acp.ToolCall | acp.ToolCallProgress):
            return
        board = self._replayed if replayed else self.board
        before = board.calls.get(update.tool_call_id)
        had_ended = before is not None and before.ended
        call = board.take(update)
        if call.ended and not had_ended:
            self._take_output(session_id, call)
            self.transcript.call(call)
            board.forget_details(call.id)
        self.drawing.change()

    def _take_output(self, session_id: str, call: Call) -> None:
        ids = [item.terminal_id for item in call.content if isinstance(item, acp.Terminal)]
        if self._terminals is not None:
            call.terminal_output = "".join(self._terminals.said(session_id, name) for name in ids)

    def turn_ended(self, turn: Turn) -> None:
        self.questions.abandon()
        for call in self.board.end():
            self.transcript.call(call)
        words = turn.failure or ENDINGS.get(turn.stop_reason, "")
        if self._prompted is not turn:  # It did not get that far: keep the user's text.
            self._begin_transcript()
            self.prompted(turn)
        if turn.failure:
            self.editor.say(f"Agent: {turn.failure}", Kind.Error)
        elif turn.stop_reason in ("max_tokens", "max_turn_requests", "refusal"):
            self.editor.say(f"Agent: {words}", Kind.Warning)
        elif turn.stop_reason == "end_turn" and (said := one_line(self._answer, SAID_LENGTH)):
            self.editor.say(f"Agent: {said}")  # The full text is in the transcript.
        self.transcript.end(words)
        self.progress.end_turn(one_line(words) or "done")
        self.drawing.change()
        self._tasks.start_soon(self.sync_transcript)

    # --- the transcript ---------------------------------------------------------------------------------------

    async def show_transcript(self, draft: str = "") -> None:
        """Shows it to the user. `draft`: text for them to continue."""
        self._begin_transcript()
        uri = uri_of(self.transcript.file)
        if self.documents.get(uri) is not None:
            await self.sync_transcript(draft)
        elif draft:
            self.transcript.draft(draft)
        else:
            self.transcript.flush()
        if self.transcript.failed and not self.transcript.file.exists():
            self.editor.say(f"The transcript cannot be written to {self.transcript.file}.", Kind.Error)
        # The newest is at the end. Some editors fail for a line that does not exist.
        elif not await self.editor.show(uri, max(0, len(self.transcript.text().splitlines()) - 1)):
            self.editor.say(f"The transcript is {self.transcript.file}")

    def _begin_transcript(self) -> None:
        """Begins it if no session has one yet."""
        if not self.transcript.begun:
            self.transcript.begin(f"The agent in {self.folders.cwd}")

    async def sync_transcript(self, draft: str = "") -> None:
        """Brings an open transcript up to date, and keeps what a user has begun to write in it."""
        async with self._syncing:
            document = self.documents.get(uri_of(self.transcript.file))
            if document is None:
                return
            if self.options.save == "client" and document.clean == document.now.text and not draft:
                self.transcript.flush()
                self.buffers.tell_changed(document)
                return
            text = document.now
            wanted = with_draft(self.transcript.text(), text.text)
            if draft:
                heading = f"{YOU}{BLANK}" if is_answered(pending_prompt(wanted)) else ""
                wanted = f"{wanted.rstrip()}{BLANK}{heading}{draft}"
            hunks = hunks_between(text.lines, Text(wanted).lines)
            if not hunks:
                return
            told = document.told
            failure = await self.editor.apply(document, text_edits(text, hunks), "Transcript")
            if failure is not None:
                log.info("the transcript could not be updated: %s", failure)
            elif document.told is told:
                document.applied = Text(wanted, text.encoding)

    async def _write_transcript(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write = anyio.Event()
            self.transcript.flush()
            await anyio.sleep(WRITE_SECONDS)

    async def _keep_live(self) -> None:
        while True:
            await self._to_write.wait()
            await anyio.sleep(LIVE_SECONDS)
            await self.sync_transcript()

    # --- prompts ----------------------------------------------------------------------------------------------

    def submit(self, prompt: Prompt) -> Turn:
        if self.conversation.busy:
            self.editor.say(f"Queued until the current turn ends: {one_line(prompt.text, 60)}")
        return self.conversation.submit(prompt)

    def stop(self) -> bool:
        waiting = [one_line(turn.prompt.text, 200) for turn in self.conversation.waiting]
        found = self.conversation.stop()
        if waiting:
            self.editor.say(f"Stopped, and not sent: {'; '.join(waiting)}", Kind.Warning)
        self.questions.abandon()
        return found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # It belongs to another user.
    return True


def _folders(params: types.InitializeParams) -> Folders:
    """The first folder is where the agent works. Some editors send folders, some a root, some a path."""
    named = [path for folder in params.workspace_folders or () if (path := _folder(folder.uri)) is not None]
    if not named and params.root_uri and (root := _folder(params.root_uri)) is not None:
        named = [root]
    if not named and params.root_path and Path(params.root_path).is_dir():
        named = [Path(os.path.normpath(params.root_path))]
    if not named:
        return Folders(Path.cwd())
    return Folders(named[0], tuple(dict.fromkeys(named[1:])))


def _folder(uri: str) -> Path | None:
    path = path_of(uri)
    return path if path is not None and path.is_dir() else None
