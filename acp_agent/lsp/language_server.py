"""One language server: its lifetime, and requests to it.

Started when first needed and restarted a few times if it exits by itself; documents are then reopened, and pending
requests keep waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
from lsprotocol import types
from msgspec import Struct

from acp_agent.config.language_settings import LspConfig
from acp_agent.lsp import tsserver
from acp_agent.lsp.answers import diagnostics
from acp_agent.lsp.base import Document, Launcher, LspError
from acp_agent.lsp.greeting import configuration, initialize_params
from acp_agent.lsp.known_servers import ServerRow
from acp_agent.lsp.lsp_client import Client, Handlers, Refused, ServerGone, start_process
from acp_agent.lsp.server_documents import Documents, OpenDocument
from acp_agent.lsp.signals import Signal
from acp_agent.lsp.uris import path_of

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "failed", "stopped"]

SHUTDOWN = 0.3
"""Seconds a server has to answer `shutdown` and to read `exit`."""
AGAIN = 0.05
"""Seconds between two tries of a request that a server temporarily refuses."""
TRIES = 10

UNKNOWN = "acp-coder/areYouThere"
"""A request that no server knows: one that works refuses it at once (LSP 3.17, `MethodNotFound`)."""
ALIVE, CHECK_AGAIN = 1.0, 2.0
"""Seconds for that, and until a server that hangs is asked again."""


class ServerState(Struct, frozen=True):
    name: str
    folder: Path
    state: State
    restarts: int
    trouble: str
    """Why it failed; else empty."""


class Server:
    """Created by `OwnServers`, which runs `run` in the background and ends it with `stop`."""

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
        self.changed = Signal()
        self.client: Client | None = None
        """Set while the server is ready."""
        self._state: State = "starting"
        self._trouble = ""
        self._restarts = 0
        self.in_vain = 0
        """Consecutive edits for which nothing arrived in time."""
        self.hangs = False
        """Whether it does not even refuse a request that no server knows; it is left alone meanwhile."""
        self._checks = False
        self._stopping = False
        self._greeting = anyio.CancelScope()
        self._capabilities: dict[str, Any] = {}
        self.registered: dict[str, dict[str, Any]] = {}
        """Registration id -> options registered at run time; only pull diagnostics are tracked."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def state(self) -> ServerState:
        return ServerState(self.name, self.folder, self._state, self._restarts, self._trouble)

    @property
    def alive(self) -> bool:
        return self._state in ("starting", "ready")

    # --- lifetime ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until the server was stopped, or failed for good."""
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
        """Starts to stop the server; `run` ends soon."""
        self._stopping = True
        self._greeting.cancel()
        self.changed.notify()

    def _fail(self, words: str, again: bool) -> None:
        often = f" after {self._restarts + 1} starts" if again and self._restarts else ""
        self._trouble = f"the language server {self.name} is not running{often}: {words}"
        self._set("failed")
        self._tell(self._trouble)

    def _set(self, state: State) -> None:
        self._state = state
        self.changed.notify()

    async def _live(self) -> tuple[str, bool]:
        """Runs one process from start to end; returns how it ended, and whether a restart may help. Raises LspError if
        none can be started."""
        launch = await self._launcher(self._argv, self.folder)
        try:
            process = start_process(self.name, launch)
        except LspError:
            launch.close()
            raise
        try:
            client = Client(self.name, process, self._handlers(), self.changed.notify)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process.watch_stderr)
                tasks.start_soon(client.receive)
                await tasks.start(client.send)
                try:
                    ended = await self._serve(client)
                finally:
                    self.client = None
                    with anyio.CancelScope(shield=True):
                        await self._part(client)
                        await client.hush()
                        await process.end()
                    tasks.cancel_scope.cancel()
            return ended
        finally:
            process.close()
            launch.close()

    async def _serve(self, client: Client) -> tuple[str, bool]:
        self.registered.clear()
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
        encoding = self._capabilities.get("positionEncoding") or "utf-16"
        if encoding != "utf-16":
            return f"it uses the position encoding {encoding} instead of utf-16", False
        commands = self.detail("executeCommandProvider", "commands")
        self.documents.only_pulled = isinstance(commands, list) and tsserver.COMMAND in commands
        client.tell(types.INITIALIZED, types.InitializedParams())
        if self.row.settings:
            client.tell(
                types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                types.DidChangeConfigurationParams(settings=dict(self.row.settings)),
            )
        self.client = client
        self.documents.send_all(client.tell)
        self._set("ready")
        await self.changed.until(lambda: self._stopping or bool(client.words))
        return client.words, True

    async def _part(self, client: Client) -> None:
        """Shuts the server down as LSP specifies."""
        if not client.words:
            try:
                await client.ask(types.SHUTDOWN, None, SHUTDOWN)
            except LspError as error:
                log.debug("%s", error)
            client.tell(types.EXIT)
            with anyio.move_on_after(SHUTDOWN / 2):
                await client.sent()

    # --- requests and notifications from the server -----------------------------------------------------------

    def _handlers(self) -> Handlers:
        return {
            types.WORKSPACE_CONFIGURATION: self._on_configuration,
            types.WORKSPACE_WORKSPACE_FOLDERS: lambda _: initialize_params(self.folder, {}).workspace_folders,
            types.WORKSPACE_APPLY_EDIT: lambda _: {"applied": False, "failureReason": "edits are not supported"},
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
                self.registered[str(item.get("id"))] = options if isinstance(options, dict) else {}
        self.changed.notify()

    def _on_unregister(self, params: Any) -> None:
        # LSP spells it so.
        for item in params.get("unregisterations", []) if isinstance(params, dict) else []:
            if isinstance(item, dict):
                self.registered.pop(str(item.get("id")), None)

    def _on_publish(self, params: Any) -> None:
        path = path_of(str(params.get("uri", ""))) if isinstance(params, dict) else None
        if path is None:
            return
        version = params.get("version")
        items = diagnostics(params.get("diagnostics"))
        self.documents.pushed(path, version if isinstance(version, int) else None, items)
        self.changed.notify()

    # --- requests to the server -------------------------------------------------------------------------------

    def capability(self, name: str) -> Any:
        """The capability as answered to `initialize`."""
        return self._capabilities.get(name)

    def offers(self, capability: str) -> bool:
        """Whether the server has the capability, such as `renameProvider`; call it once ready."""
        return self._capabilities.get(capability) not in (None, False)

    def detail(self, capability: str, key: str) -> Any:
        """An option of a capability."""
        options = self._capabilities.get(capability)
        return options.get(key) if isinstance(options, dict) else None

    async def ready(self) -> Client:
        """Waits until the server is ready. Raises LspError if it failed for good."""
        await self.changed.until(lambda: self.client is not None or not self.alive)
        if self.client is None:
            raise LspError(self._trouble or f"the language server {self.name} was stopped")
        return self.client

    async def started(self) -> None:
        """The same with the configured timeout."""
        try:
            with anyio.fail_after(self._config.start_timeout):
                await self.ready()
        except TimeoutError:
            raise LspError(
                f"the language server {self.name} is not ready after {self._config.start_timeout:g} s"
            ) from None

    async def ask(self, method: str, params: Any) -> Any:
        """Returns the result as plain JSON; retries once if the server ended before it answered. Raises LspError."""
        for _ in range(TRIES):
            await self.started()
            client = await self.ready()
            try:
                return await client.ask(method, params, self._config.request_timeout)
            except ServerGone:
                await self.changed.until(lambda client=client: self.client is not client)  # type: ignore[misc]
            except Refused as error:
                if not error.again:
                    raise
                await anyio.sleep(AGAIN)
        raise LspError(f"the language server {self.name} does not answer {method} for now; try again later")

    async def check(self) -> None:
        """Finds out whether it hangs, and goes on until it does not."""
        if self._checks:
            return
        self._checks = True
        try:
            while (client := self.client) is not None:
                try:
                    await client.ask(UNKNOWN, None, ALIVE)
                except (Refused, ServerGone):
                    return
                except LspError as error:
                    if not self.hangs:
                        log.warning("the language server %s hangs: %s", self.name, error)
                    self.hangs = True
                else:
                    return
                await anyio.sleep(CHECK_AGAIN)
        finally:
            self._checks = self.hangs = False

    # --- documents --------------------------------------------------------------------------------------------

    def update(self, document: Document) -> None:
        """Notifies the server of a document's new text, if it is open; requests nothing."""
        opened = self.documents.get(document.path)
        if opened is not None and not opened.users:
            self.show(opened, document.text)

    def show(self, document: OpenDocument, text: str) -> None:
        self.documents.show(document, text, self.client.tell if self.client else None)

    async def shown(self, language: str, document: Document) -> OpenDocument:
        """Opens the document with this text in the server, once no other request uses another text of it."""
        opened = self.documents.take(document.path, language)
        if not opened.sent or opened.text != document.text:
            async with self.documents.using(document.path, language) as opened:
                self.show(opened, document.text)
        return opened
