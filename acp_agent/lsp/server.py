"""One language server: its life, and what it knows of the documents that it was shown.

It is started when it is first needed and started again after it ended by itself, a few times; documents are opened
again then, and who waits keeps waiting. Every wait is bounded by whoever waits: `look` and `edited` go on until they
are cancelled, `ask` has the configured time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
from lsprotocol import types

from acp_agent.config.model import LspConfig
from acp_agent.lsp import tsserver
from acp_agent.lsp.base import Document, Launcher, LspError
from acp_agent.lsp.client import Client, Handlers, Refused, ServerGone
from acp_agent.lsp.compare import new_errors
from acp_agent.lsp.decode import diagnostics
from acp_agent.lsp.documents import Documents, OpenDocument
from acp_agent.lsp.greeting import configuration, initialize_params
from acp_agent.lsp.process import Process
from acp_agent.lsp.signals import Signal
from acp_agent.lsp.table import ServerRow
from acp_agent.lsp.uris import path_of
from acp_agent.schema.lsp import Diagnostic

__all__ = ["Server", "ServerState", "Silent"]

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "failed", "stopped"]

SHUTDOWN = 0.3
"""Seconds a server has to answer `shutdown` and to read `exit`."""
QUIET = 0.15
"""Seconds without a publication after which those of a version count as complete: some servers publish in parts."""
AGAIN = 0.05
"""Seconds between two tries of a request that a server refuses for now."""
TRIES = 10
SILENCES = 2
"""Edits after which a server published nothing, as one may that has nothing else to say than before."""
PATIENCE = 1.0
"""Seconds that it is waited for then, until it publishes again."""
OTHERS = 10
"""Other open documents that are looked at after an edit, those used last."""
OTHERS_WAIT = 0.3
"""Seconds for these."""


class Silent(LspError):
    """The server published nothing after an edit."""


@dataclass(frozen=True)
class ServerState:
    name: str
    folder: Path
    state: State
    restarts: int
    trouble: str
    """Why it failed; empty where it did not."""


class Server:
    """Made by `OwnServers`, which runs `run` beside everything else and ends it by `stop`."""

    def __init__(
        self,
        row: ServerRow,
        program: str,
        folder: Path,
        launcher: Launcher,
        config: LspConfig,
        *,
        hides: Callable[[Path], bool],
        tell: Callable[[str], None],
    ) -> None:
        self.row = row
        self.folder = folder
        self._argv = (program, *row.command[1:])
        self._launcher = launcher
        self._config = config
        self._hides = hides
        self._tell = tell
        self.documents = Documents(hides)
        self._changed = Signal()
        self._client: Client | None = None
        self._state: State = "starting"
        self._trouble = ""
        self._restarts = 0
        self._silences = 0
        """Edits in a row after which it published nothing."""
        self._stopping = False
        self._greeting = anyio.CancelScope()
        self._capabilities: dict[str, Any] = {}
        self._registered: dict[str, dict[str, Any]] = {}
        """Registration id -> of what the server registered while it ran; only pull diagnostics are told apart."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def state(self) -> ServerState:
        return ServerState(self.name, self.folder, self._state, self._restarts, self._trouble)

    @property
    def alive(self) -> bool:
        return self._state in ("starting", "ready")

    # --- its life ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends when the server was stopped, or failed for good."""
        try:
            while not self._stopping:
                try:
                    words, again = await self._live()
                except LspError as error:
                    words, again = str(error), False
                self.documents.server_gone()
                if self._stopping:
                    break
                log.warning("the language server %s in %s: %s", self.name, self.folder, words)
                if not again or self._restarts >= self._config.max_restarts:
                    self._fail(words, again)
                    return
                self._restarts += 1
                self._set("starting")
        finally:
            if self._state != "failed":
                self._set("stopped")

    def stop(self) -> None:
        """Begins the end; `run` ends soon."""
        self._stopping = True
        self._greeting.cancel()
        self._changed.notify()

    def _fail(self, words: str, again: bool) -> None:
        often = f" after {self._restarts + 1} starts" if again and self._restarts else ""
        self._trouble = f"the language server {self.name} does not run{often}: {words}"
        self._set("failed")
        self._tell(self._trouble)

    def _set(self, state: State) -> None:
        self._state = state
        self._changed.notify()

    async def _live(self) -> tuple[str, bool]:
        """One process from start to end; gives how it ended, and whether another one may fare better. Raises LspError
        where none can be started."""
        launch = await self._launcher(self._argv, self.folder)
        try:
            process = Process.start(self.name, launch)
        except LspError:
            launch.close()
            raise
        try:
            client = Client(self.name, process, self._handlers(), self._changed.notify)
            async with anyio.create_task_group() as tasks:
                for work in (process.watch_stderr, client.send, client.receive):
                    tasks.start_soon(work)
                try:
                    ended = await self._serve(client)
                finally:
                    self._client = None
                    with anyio.CancelScope(shield=True):
                        await self._part(client)
                        await process.stop()
                    tasks.cancel_scope.cancel()
            return ended
        finally:
            process.close()
            launch.close()

    async def _serve(self, client: Client) -> tuple[str, bool]:
        self._registered.clear()
        params = initialize_params(self.folder, self.row.options)
        answer: Any = None
        self._greeting = anyio.CancelScope()
        try:
            with self._greeting:
                answer = await client.ask(types.INITIALIZE, params, self._config.start_timeout)
        except ServerGone:
            return client.words, True
        except LspError as error:
            return str(error), not isinstance(error, Refused)
        if self._stopping:
            return "it was stopped", False
        offered = answer.get("capabilities") if isinstance(answer, dict) else None
        self._capabilities = offered if isinstance(offered, dict) else {}
        encoding = self._capabilities.get("positionEncoding", "utf-16")
        if encoding != "utf-16":
            return f"it counts characters in {encoding}, not in utf-16", False
        client.tell(types.INITIALIZED, types.InitializedParams())
        if self.row.settings:
            client.tell(
                types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                types.DidChangeConfigurationParams(settings=dict(self.row.settings)),
            )
        self._client = client
        self.documents.send_all(client.tell)
        self._set("ready")
        await self._changed.until(lambda: self._stopping or bool(client.words))
        return client.words, True

    async def _part(self, client: Client) -> None:
        """Says good-bye, as LSP wants it."""
        if not client.words:
            try:
                await client.ask(types.SHUTDOWN, None, SHUTDOWN)
            except LspError as error:
                log.debug("%s", error)
            client.tell(types.EXIT)
            with anyio.move_on_after(SHUTDOWN / 2):
                await client.sent()

    # --- what it asks and tells -------------------------------------------------------------------------------

    def _handlers(self) -> Handlers:
        return {
            types.WORKSPACE_CONFIGURATION: self._on_configuration,
            types.WORKSPACE_WORKSPACE_FOLDERS: lambda _: initialize_params(self.folder, {}).workspace_folders,
            types.WORKSPACE_APPLY_EDIT: lambda _: {"applied": False, "failureReason": "this client applies no edits"},
            types.WINDOW_WORK_DONE_PROGRESS_CREATE: lambda _: None,
            types.WINDOW_SHOW_MESSAGE_REQUEST: lambda _: None,
            types.WINDOW_SHOW_DOCUMENT: lambda _: {"success": False},
            types.CLIENT_REGISTER_CAPABILITY: self._on_register,
            types.CLIENT_UNREGISTER_CAPABILITY: self._on_unregister,
            types.WORKSPACE_DIAGNOSTIC_REFRESH: lambda _: None,
            types.WORKSPACE_SEMANTIC_TOKENS_REFRESH: lambda _: None,
            types.WORKSPACE_INLAY_HINT_REFRESH: lambda _: None,
            types.WORKSPACE_CODE_LENS_REFRESH: lambda _: None,
            types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: self._on_publish,
        }

    def _on_configuration(self, params: Any) -> list[Any]:
        items = params.get("items", []) if isinstance(params, dict) else []
        return [configuration(self.row.settings, item.get("section")) for item in items if isinstance(item, dict)]

    def _on_register(self, params: Any) -> None:
        for item in params.get("registrations", []) if isinstance(params, dict) else []:
            if isinstance(item, dict) and item.get("method") == types.TEXT_DOCUMENT_DIAGNOSTIC:
                options = item.get("registerOptions")
                self._registered[str(item.get("id"))] = options if isinstance(options, dict) else {}
        self._changed.notify()

    def _on_unregister(self, params: Any) -> None:
        # LSP spells it so.
        for item in params.get("unregisterations", []) if isinstance(params, dict) else []:
            if isinstance(item, dict):
                self._registered.pop(str(item.get("id")), None)

    def _on_publish(self, params: Any) -> None:
        path = path_of(str(params.get("uri", ""))) if isinstance(params, dict) else None
        if path is None or self._commanded:
            return
        version = params.get("version")
        items = diagnostics(params.get("diagnostics"))
        if self.documents.pushed(path, version if isinstance(version, int) else None, items):
            self._silences = 0
        self._changed.notify()

    # --- asking -----------------------------------------------------------------------------------------------

    def offers(self, capability: str) -> bool:
        """Whether it serves what the capability stands for, as in `renameProvider`; once it is ready."""
        return self._capabilities.get(capability) not in (None, False)

    def detail(self, capability: str, key: str) -> Any:
        """An option of a capability."""
        options = self._capabilities.get(capability)
        return options.get(key) if isinstance(options, dict) else None

    async def ready(self) -> Client:
        """Waits until it is. Raises LspError where it failed for good."""
        await self._changed.until(lambda: self._client is not None or not self.alive)
        if self._client is None:
            raise LspError(self._trouble or f"the language server {self.name} was stopped")
        return self._client

    async def started(self) -> None:
        """The same within the configured time."""
        try:
            with anyio.fail_after(self._config.start_timeout):
                await self.ready()
        except TimeoutError:
            raise LspError(
                f"the language server {self.name} is not ready after {self._config.start_timeout:g} s"
            ) from None

    async def ask(self, method: str, params: Any) -> Any:
        """The result, as plain JSON; once more where it ended before it answered. Raises LspError."""
        for _ in range(TRIES):
            await self.started()
            client = await self.ready()
            try:
                return await client.ask(method, params, self._config.request_timeout)
            except ServerGone:
                await self._changed.until(lambda client=client: self._client is not client)  # type: ignore[misc]
            except Refused as error:
                if not error.again:
                    raise
                await anyio.sleep(AGAIN)
        raise LspError(f"the language server {self.name} does not answer {method} for now; try again later")

    # --- documents --------------------------------------------------------------------------------------------

    def update(self, document: Document) -> None:
        """Tells of a new text of a document, if that is open, and asks nothing."""
        opened = self.documents.get(document.path)
        if opened is not None and not opened.lock.locked():
            self.show(opened, document.text)

    def show(self, document: OpenDocument, text: str) -> None:
        self.documents.show(document, text, self._client.tell if self._client else None)

    async def shown(self, language: str, document: Document) -> OpenDocument:
        """The document with this text open in the server, once nobody asks about another text of it."""
        opened = self.documents.take(document.path, language)
        if not opened.sent or opened.text != document.text:
            async with opened.lock:
                self.show(opened, document.text)
        return opened

    async def look(self, language: str, document: Document) -> list[Diagnostic]:
        """What it says of the document as it is, as far as it says something in time. Raises LspError."""
        opened = self.documents.take(document.path, language)
        async with opened.lock:
            self.show(opened, document.text)
            await self.ready()
            seconds = self._config.request_timeout
            with anyio.move_on_after(0 if opened.waited else seconds) as scope:
                await self._settle(opened)
            opened.waited = scope.cancelled_caught
            if opened.waited and not opened.seen:
                raise LspError(
                    f"the language server {self.name} gave no diagnostics of {opened.path} within {seconds:g} s"
                )
            return self.documents.of(opened.path)

    async def edited(
        self, language: str, before: Document | None, after: Document, saved: bool
    ) -> list[tuple[Path, Diagnostic]]:
        """The errors that the edit brought about; `saved`: the disk has it. Raises LspError, Silent.

        However this ends, the server is told of the text after the edit."""
        opened = self.documents.take(after.path, language)
        async with opened.lock:
            told = False
            try:
                old: list[Diagnostic] = []
                if before is not None:
                    self.show(opened, before.text)
                    if not opened.waited:
                        await self._settle(opened)
                    old = self.documents.of(opened.path)
                else:
                    await self.ready()
                others = self._others(opened)
                self._edit(opened, before is None, after.text, saved)
                told = True
                await self._settle_patiently(opened)
                new = self.documents.of(opened.path)
                found = [(after.path, item) for item in new_errors(old, new, before.text if before else "", after.text)]
                await self._look_at_others(opened)
                for path, (version, items) in self._others(opened).items():
                    was, known = others.get(path, (None, ()))
                    if was == version:
                        other = self.documents.get(path)
                        text = other.text if other else ""
                        found += [(path, item) for item in new_errors(known, items, text, text)]
                return found
            finally:
                if not told:
                    self._edit(opened, before is None, after.text, saved)

    def _others(self, edited: OpenDocument) -> dict[Path, tuple[int, list[Diagnostic]]]:
        """What is known of other files, each with the version it is for; not of those that somebody works with now."""
        known: dict[Path, tuple[int, list[Diagnostic]]] = {}
        for path, items in self.documents.known().items():
            other = self.documents.get(path)
            if other is not edited and (other is None or not other.lock.locked()):
                known[path] = (other.version if other else 0, items)
        return known

    def _edit(self, document: OpenDocument, is_new: bool, text: str, saved: bool) -> None:
        client = self._client
        if client is not None and saved:
            kind = types.FileChangeType.Created if is_new else types.FileChangeType.Changed
            client.tell(
                types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                types.DidChangeWatchedFilesParams(changes=[types.FileEvent(document.uri, kind)]),
            )
        self.show(document, text)
        if client is not None and saved:
            client.tell(types.TEXT_DOCUMENT_DID_SAVE, types.DidSaveTextDocumentParams(document.identifier))

    # --- diagnostics ------------------------------------------------------------------------------------------

    @property
    def _commanded(self) -> bool:
        commands = self.detail("executeCommandProvider", "commands")
        return isinstance(commands, list) and tsserver.COMMAND in commands

    @property
    def _pulls(self) -> bool:
        return bool(self._registered) or self.offers("diagnosticProvider") or self._commanded

    @property
    def _looks_beyond(self) -> bool:
        """Whether a change of one file may change what is asked of another."""
        options = [*self._registered.values(), self._capabilities.get("diagnosticProvider")]
        inter = any(isinstance(each, dict) and each.get("interFileDependencies") for each in options)
        return inter or self._commanded

    async def _settle(self, document: OpenDocument) -> None:
        """Waits until the diagnostics are those of the document's text. Raises LspError."""
        while True:
            await self.ready()
            if self._pulls:
                await self._pull(document)
                return
            if not document.pushes:
                await self._changed.wait()
                continue
            heard = 0
            while heard != document.pushes:
                heard = document.pushes
                with anyio.move_on_after(QUIET):
                    await self._changed.until(lambda heard=heard: document.pushes != heard)  # type: ignore[misc]
            if document.pushes:
                return

    async def _settle_patiently(self, document: OpenDocument) -> None:
        """The same after an edit; not for long where the server was silent after the last ones. Raises Silent."""
        document.waited = True
        patience = PATIENCE if self._silences >= SILENCES else math.inf
        self._silences += 1
        with anyio.move_on_after(patience) as scope:
            await self._settle(document)
        if scope.cancelled_caught:
            raise Silent(f"the language server {self.name} says nothing")
        self._silences = 0
        document.waited = False

    async def _pull(self, document: OpenDocument) -> None:
        if self._commanded:
            self.documents.pulled(document.path, await tsserver.look(self.ask, document.uri))
            return
        identifier = self.detail("diagnosticProvider", "identifier") or next(
            (each.get("identifier") for each in self._registered.values()), None
        )
        answer = await self.ask(
            types.TEXT_DOCUMENT_DIAGNOSTIC,
            types.DocumentDiagnosticParams(document.identifier, identifier if isinstance(identifier, str) else None),
        )
        if not isinstance(answer, dict):
            return
        related = answer.get("relatedDocuments")
        for uri, report in related.items() if isinstance(related, dict) else ():
            path = path_of(uri)
            if path is not None and isinstance(report, dict) and report.get("kind") == "full":
                self.documents.pulled(path, diagnostics(report.get("items")))
        if answer.get("kind") != "unchanged":
            self.documents.pulled(document.path, diagnostics(answer.get("items")))

    async def _look_at_others(self, edited: OpenDocument) -> None:
        """Asks again for the other documents that the edit may have touched, those that are done soon."""
        if not self._pulls or not self._looks_beyond:
            return
        others = [each for each in self.documents if each is not edited and each.sent and each.seen]
        with anyio.move_on_after(OTHERS_WAIT):
            for other in others[:OTHERS]:
                try:
                    await self._pull(other)
                except LspError as error:
                    log.debug("%s", error)
                    return
