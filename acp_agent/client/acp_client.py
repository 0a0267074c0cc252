"""`AcpClient`: an ACP client. It asks an agent, answers what the agent asks, and hands on its updates.

What the agent may use is what is passed in: without `files` no `fs/*`, without `terminals` no `terminal/*`, without
`elicitation` no `elicitation/create`, without `language_servers` no `_lsp/*`; the capabilities it announces follow from
that unless they are given. What is not served is answered with -32601.

Updates arrive in `on_update` in the order they were sent, and before the answer that the agent sent after them. Each
call is bounded by the caller's own cancel scope; a cancelled call sends `$/cancel_request`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from acp_agent.client.dispatch import Dispatcher, Serve
from acp_agent.client.fs import Files
from acp_agent.client.permissions import Permissions, reject_once
from acp_agent.client.tasks import Background
from acp_agent.client.terminals import Terminals
from acp_agent.errors import RpcError
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import Transport
from acp_agent.schema.acp import (
    AuthenticateRequest,
    AuthenticateResponse,
    CancelNotification,
    ClientCapabilities,
    CloseSessionRequest,
    CloseSessionResponse,
    ContentBlock,
    CreateElicitationRequest,
    CreateElicitationResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    LogoutRequest,
    LogoutResponse,
    McpServer,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
    PromptResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionUpdate,
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
    SetSessionModeResponse,
    TextContent,
)
from acp_agent.schema.decode import decode_params, decode_result

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1

OnUpdate = Callable[[str, SessionUpdate], None]
"""Called with the session id and the update."""

LanguageServers = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Answers a method of the `_lsp/*` extension (docs/lsp-extension.md) with plain JSON data. Raises RpcError."""

ElicitationAnswer = Callable[[CreateElicitationRequest], Awaitable[CreateElicitationResponse]]


class AcpClient:
    """Use as an async context manager: inside it the connection is served, on the way out everything is closed.

    Calls raise PeerError for an error answer, MalformedResult for an answer the protocol does not allow,
    ConnectionClosed when the agent is gone.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        files: Files | None = None,
        terminals: Terminals | None = None,
        permissions: Permissions = reject_once,
        elicitation: ElicitationAnswer | None = None,
        language_servers: LanguageServers | None = None,
        on_update: OnUpdate | None = None,
        capabilities: ClientCapabilities | None = None,
        info: Implementation | None = None,
    ) -> None:
        self._files = files
        self._terminals = terminals
        self._permissions = permissions
        self._elicitation = elicitation
        self._language_servers = language_servers
        self._on_update = on_update
        self.capabilities = self._offered() if capabilities is None else capabilities
        self.info = info
        self.connection = Connection(transport, self, peer=Peer(encode=encode))
        self._dispatcher = Dispatcher(self._serves())
        self._background: Background | None = None

    def _offered(self) -> ClientCapabilities:
        elicitation = None
        if self._elicitation is not None:
            elicitation = ElicitationCapabilities(form=ElicitationFormCapabilities(), url=ElicitationUrlCapabilities())
        has_files = self._files is not None
        return ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=has_files, write_text_file=has_files),
            terminal=self._terminals is not None,
            elicitation=elicitation,
            meta={"lsp": True} if self._language_servers is not None else None,
        )

    def _serves(self) -> dict[str, Serve]:
        serves: dict[str, Serve] = {"session/request_permission": self._request_permission}
        if self._files is not None and self.capabilities.fs.read_text_file:
            serves["fs/read_text_file"] = self._files.read
        if self._files is not None and self.capabilities.fs.write_text_file:
            serves["fs/write_text_file"] = self._files.write
        if self._terminals is not None and self.capabilities.terminal:
            serves["terminal/create"] = self._terminals.create
            serves["terminal/output"] = self._terminals.output
            serves["terminal/wait_for_exit"] = self._terminals.wait_for_exit
            serves["terminal/kill"] = self._terminals.kill
            serves["terminal/release"] = self._terminals.release
        if self._elicitation is not None:
            serves["elicitation/create"] = self._elicitation
        return serves

    # --- life -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._terminals is not None:
            await self._terminals.__aenter__()
        self._background = await Background().__aenter__()
        self._background.start(self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.connection.close()
        background, self._background = self._background, None
        try:
            return background is not None and await background.__aexit__(kind, error, trace)
        finally:
            if self._terminals is not None:
                await self._terminals.__aexit__(kind, error, trace)

    async def _serve(self) -> None:
        with anyio.CancelScope(shield=True):  # `connection.close()` ends it, in bounded time
            await self.connection.serve()

    # --- what an agent may be asked ---------------------------------------------------------------------------

    async def initialize(self, *, protocol_version: int = PROTOCOL_VERSION) -> InitializeResponse:
        request = InitializeRequest(
            protocol_version=protocol_version, client_capabilities=self.capabilities, client_info=self.info
        )
        answer: InitializeResponse = await self.ask("initialize", request)
        return answer

    async def authenticate(self, method_id: str) -> AuthenticateResponse:
        answer: AuthenticateResponse = await self.ask("authenticate", AuthenticateRequest(method_id=method_id))
        return answer

    async def logout(self) -> LogoutResponse:
        answer: LogoutResponse = await self.ask("logout", LogoutRequest())
        return answer

    async def new_session(
        self, cwd: Path, *, additional_directories: Sequence[Path] = (), mcp_servers: Sequence[McpServer] = ()
    ) -> NewSessionResponse:
        request = NewSessionRequest(
            cwd=str(cwd),
            additional_directories=[str(path) for path in additional_directories],
            mcp_servers=list(mcp_servers),
        )
        answer: NewSessionResponse = await self.ask("session/new", request)
        return answer

    async def load_session(
        self,
        session_id: str,
        cwd: Path,
        *,
        additional_directories: Sequence[Path] = (),
        mcp_servers: Sequence[McpServer] = (),
    ) -> LoadSessionResponse:
        """The updates of the conversation have all arrived when this returns."""
        request = LoadSessionRequest(
            session_id=session_id,
            cwd=str(cwd),
            additional_directories=[str(path) for path in additional_directories],
            mcp_servers=list(mcp_servers),
        )
        answer: LoadSessionResponse = await self.ask("session/load", request)
        return answer

    async def resume_session(
        self,
        session_id: str,
        cwd: Path,
        *,
        additional_directories: Sequence[Path] = (),
        mcp_servers: Sequence[McpServer] = (),
    ) -> ResumeSessionResponse:
        request = ResumeSessionRequest(
            session_id=session_id,
            cwd=str(cwd),
            additional_directories=[str(path) for path in additional_directories],
            mcp_servers=list(mcp_servers),
        )
        answer: ResumeSessionResponse = await self.ask("session/resume", request)
        return answer

    async def list_sessions(self, *, cwd: Path | None = None, cursor: str | None = None) -> ListSessionsResponse:
        request = ListSessionsRequest(cwd=None if cwd is None else str(cwd), cursor=cursor)
        answer: ListSessionsResponse = await self.ask("session/list", request)
        return answer

    async def close_session(self, session_id: str) -> CloseSessionResponse:
        answer: CloseSessionResponse = await self.ask("session/close", CloseSessionRequest(session_id=session_id))
        return answer

    async def delete_session(self, session_id: str) -> DeleteSessionResponse:
        answer: DeleteSessionResponse = await self.ask("session/delete", DeleteSessionRequest(session_id=session_id))
        return answer

    async def prompt(self, session_id: str, prompt: str | Sequence[ContentBlock]) -> PromptResponse:
        """One turn; plain text stands for one text block. Its updates have all arrived when this returns."""
        blocks: list[ContentBlock] = [TextContent(text=prompt)] if isinstance(prompt, str) else list(prompt)
        answer: PromptResponse = await self.ask("session/prompt", PromptRequest(session_id=session_id, prompt=blocks))
        return answer

    async def set_session_mode(self, session_id: str, mode_id: str) -> SetSessionModeResponse:
        request = SetSessionModeRequest(session_id=session_id, mode_id=mode_id)
        answer: SetSessionModeResponse = await self.ask("session/set_mode", request)
        return answer

    async def set_config_option(
        self, session_id: str, config_id: str, value: str | bool
    ) -> SetSessionConfigOptionResponse:
        if isinstance(value, bool):
            request = SetSessionConfigOptionRequest(
                session_id=session_id, config_id=config_id, type="boolean", value=value
            )
        else:
            request = SetSessionConfigOptionRequest(session_id=session_id, config_id=config_id, value=value)
        answer: SetSessionConfigOptionResponse = await self.ask("session/set_config_option", request)
        return answer

    def cancel(self, session_id: str) -> None:
        """Tells the agent to end the session's turn; its prompt is then answered with `cancelled`."""
        self.connection.notify("session/cancel", CancelNotification(session_id=session_id))

    async def ask(self, method: str, request: object) -> Any:
        """Any of ACP's agent methods, with its params as a Struct or as plain JSON data; its result as a Struct."""
        return decode_result(method, await self.connection.request(method, request), "agent")

    # --- what the agent asks (Handler) ------------------------------------------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        if self._language_servers is not None and method.startswith("_lsp/"):
            return await self._language_servers(method, params)
        result = await self._dispatcher.dispatch(method, params)
        return {} if result is None else result

    async def handle_notification(self, method: str, params: Any) -> None:
        """Unknown notifications are ignored, malformed ones too."""
        if method != "session/update" or self._on_update is None:
            return
        try:
            notification = decode_params(method, params, "client")
        except RpcError as error:
            log.warning("%s: %s", method, error.message)
            return
        self._on_update(notification.session_id, notification.update)

    def cancel_request(self, method: str, params: Any) -> bool:
        """The task ends, and the agent reads -32800."""
        return False

    async def _request_permission(self, request: RequestPermissionRequest) -> RequestPermissionResponse:
        return RequestPermissionResponse(outcome=await self._permissions(request))
