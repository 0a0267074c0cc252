"""`acp-coder lsp`: the language server. Forwards LSP requests to the parts; decides nothing."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from lsprotocol import types
from pygls.exceptions import JsonRpcMethodNotFound
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from acp_agent import __version__
from acp_agent.config.xdg import state_dir
from acp_agent.errors import ConnectionClosed
from acp_agent.fronts.lsp_server.actions import KIND, QUICKFIX, actions_for
from acp_agent.fronts.lsp_server.execute_command import Commands
from acp_agent.fronts.lsp_server.front import Front
from acp_agent.fronts.lsp_server.lsp_editor import Editor
from acp_agent.fronts.lsp_server.undo import Undo
from acp_agent.fronts.lsp_server.wire import Outgoing, Wire, flush_bounded, serve_wire
from acp_agent.protocol.transports import FdTransport

log = logging.getLogger(__name__)

GOODBYE_SECONDS = 1.0
"""How long the editor may take to read our last messages."""


class Server(LanguageServer):
    """Logs background failures: an editor would show each to the user."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        if not isinstance(error, JsonRpcMethodNotFound):
            log.error("%s", getattr(source, "__name__", source), exc_info=error)


def serve(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serves the editor on stdin and stdout until it exits, or until SIGTERM or SIGINT; returns the exit status.

    `argv`: the ACP agent, `environ` its complete environment.
    """
    return anyio.run(_serve, argv, environ)


async def _serve(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    status = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_leave_on_signal, tasks)
        status = await serve_streams(argv, environ, 0, 1)
        tasks.cancel_scope.cancel()
    return status


async def serve_streams(argv: Sequence[str], environ: Mapping[str, str], read_fd: int, write_fd: int) -> int:
    """As `serve`, on any two descriptors; cancelling it ends the agent and everything it started."""
    # pygls warns of normal editor behaviour: cancelling ended requests, unrequested notifications. See `wire`.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    server = Server("acp-coder", __version__, protocol_cls=Wire, converter_factory=default_converter)
    wire = server.protocol
    assert isinstance(wire, Wire)
    transport = FdTransport(read_fd, write_fd, ends_on_hangup=False)
    outgoing = Outgoing(transport)
    wire.set_writer(outgoing)
    try:
        async with anyio.create_task_group() as tasks:
            front = Front(Editor(server, wire), argv, environ, tasks)
            undo = Undo(front, Path(state_dir(environ)) / "shown", tasks)
            _register(server, wire, front, undo, tasks)
            tasks.start_soon(_pass_on, outgoing, tasks)
            try:
                await serve_wire(wire, read_fd)
            finally:
                front.leave()
                undo.close()
                with anyio.CancelScope(shield=True):
                    await flush_bounded(outgoing, GOODBYE_SECONDS)
            tasks.cancel_scope.cancel()
    finally:
        transport.close()
    return 0 if wire.shut_down else 1


async def _pass_on(outgoing: Outgoing, tasks: anyio.abc.TaskGroup) -> None:
    try:
        await outgoing.run()
    except ConnectionClosed as error:
        log.info("the editor is gone: %s", error)
        tasks.cancel_scope.cancel()


async def _leave_on_signal(tasks: anyio.abc.TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            tasks.cancel_scope.cancel()


def _register(server: Server, wire: Wire, front: Front, undo: Undo, tasks: anyio.abc.TaskGroup) -> None:
    def feature(name: str, handler: Any, options: Any = None) -> None:
        server.feature(name, options)(handler)

    def initialize(params: types.InitializeParams) -> None:
        front.initialize(params)
        wire.initialized = True

    async def close() -> None:
        await front.close()

    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        front.documents.open(params.text_document)
        front.drawing.change()

    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        front.documents.change(params)

    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        document = front.documents.saved(params.text_document.uri)
        if document is not None:
            front.buffers.saved(document.uri)

    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        front.buffers.saved(params.text_document.uri)
        front.documents.close(params.text_document.uri)

    def change_folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        front.change_folders(params.event)

    async def code_actions(params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        document = front.documents.get(params.text_document.uri)
        offers = await undo.offers(document, params.range)
        return actions_for(
            params,
            document,
            busy=front.conversation.busy,
            literals=front.editor.takes_action_literals,
            question=front.questions.waiting,
            offers=offers,
        )

    def hints(params: types.InlayHintParams) -> list[types.InlayHint]:
        return front.drawing.hints(params.text_document.uri, params.range)

    def lenses(params: types.CodeLensParams) -> list[types.CodeLens]:
        return front.drawing.lenses(params.text_document.uri)

    def cancel_progress(params: types.WorkDoneProgressCancelParams) -> None:
        if front.progress.is_ours(params.token):
            front.stop()

    feature(types.INITIALIZE, initialize)
    feature(types.SHUTDOWN, close)
    feature(types.TEXT_DOCUMENT_DID_OPEN, did_open)
    feature(types.TEXT_DOCUMENT_DID_CHANGE, did_change)
    feature(types.TEXT_DOCUMENT_DID_SAVE, did_save, types.SaveOptions(include_text=False))
    feature(types.TEXT_DOCUMENT_DID_CLOSE, did_close)
    feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, change_folders)
    feature(types.TEXT_DOCUMENT_CODE_ACTION, code_actions, types.CodeActionOptions(code_action_kinds=[QUICKFIX, KIND]))
    feature(types.TEXT_DOCUMENT_INLAY_HINT, hints)
    feature(types.TEXT_DOCUMENT_CODE_LENS, lenses, types.CodeLensOptions(resolve_provider=False))
    feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL, cancel_progress)
    for name, execute in Commands(front, undo, tasks).table.items():
        wire.fm.commands[name] = partial(execute)
