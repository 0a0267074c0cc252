"""`AcpClient`: an ACP client.

It sends requests to an agent, answers the agent's, and forwards its updates. What is passed in determines what the
agent may use: without `files` no `fs/*`, without `terminals` no `terminal/*`, without `elicitation` no
`elicitation/create`, without `language_servers` no `_lsp/*`; the announced capabilities follow from that unless they
are given. With `bounded`, `fs/*` are served in the session's folders only; an agent that asks its user about other
files, as ours does, needs them.

Other methods are answered with -32601. Updates arrive in `on_update` in the order they were sent, and before any
response sent after them. Callers bound each call with their own cancel scope; a cancelled call sends
`$/cancel_request`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

import anyio

from acp_agent.client.dispatch import Dispatcher, Serve
from acp_agent.client.fs import Files, Folders
from acp_agent.client.permissions import PermissionHandler, reject_once
from acp_agent.client.tasks import Background
from acp_agent.client.terminals import Terminals
from acp_agent.errors import RpcError
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp
from acp_agent.schema.decode import decode_params, decode_result

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1

OnUpdate = Callable[[str, acp.SessionUpdate], None]
"""Called with the session id and the update."""

LanguageServers = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Answers a method of the `_lsp/*` extension (docs/lsp-extension.md) with plain JSON data. Raises RpcError."""

_Answer = TypeVar("_Answer", bound=acp.AcpObject)

ElicitationAnswer = Callable[[acp.CreateElicitationRequest], Awaitable[acp.CreateElicitationResponse]]


class Around(TypedDict, total=False):
    """What a session has besides its working directory."""

    additional_directories: Sequence[Path]
    mcp_servers: Sequence[acp.McpServer]


class AcpClient:
    """An async context manager: serves the connection inside it, and closes everything on exit.

    Calls raise PeerError for an error response, MalformedResult for one the protocol does not allow, ConnectionClosed
    if the agent is gone.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        files: Files | None = None,
        terminals: Terminals | None = None,
        permissions: PermissionHandler = reject_once,
        elicitation: ElicitationAnswer | None = None,
        language_servers: LanguageServers | None = None,
        on_update: OnUpdate | None = None,
        capabilities: acp.ClientCapabilities | None = None,
        info: acp.Implementation | None = None,
        bounded: bool = False,
    ) -> None:
        self._files = files
        self._folders = Folders() if bounded else None
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

    def _offered(self) -> acp.ClientCapabilities:
        elicitation = None
        if self._elicitation is not None:
            elicitation = acp.ElicitationCapabilities(
                form=acp.ElicitationFormCapabilities(), url=acp.ElicitationUrlCapabilities()
            )
        has_files = self._files is not None
        return acp.ClientCapabilities(
            fs=acp.FileSystemCapabilities(read_text_file=has_files, write_text_file=has_files),
            terminal=self._terminals is not None,
            elicitation=elicitation,
            meta={"lsp": True} if self._language_servers is not None else None,
        )

    def _serves(self) -> dict[str, Serve]:
        serves: dict[str, Serve] = {"session/request_permission": self._request_permission}
        if self._files is not None and self.capabilities.fs.read_text_file:
            serves["fs/read_text_file"] = self._in_folders(self._files.read)
        if self._files is not None and self.capabilities.fs.write_text_file:
            serves["fs/write_text_file"] = self._in_folders(self._files.write)
        if self._terminals is not None and self.capabilities.terminal:
            serves["terminal/create"] = self._terminals.create
            serves["terminal/output"] = self._terminals.output
            serves["terminal/wait_for_exit"] = self._terminals.wait_for_exit
            serves["terminal/kill"] = self._terminals.kill
            serves["terminal/release"] = self._terminals.release
        if self._elicitation is not None:
            serves["elicitation/create"] = self._elicitation
        return serves

    def _in_folders(self, serve: Serve) -> Serve:
        if (folders := self._folders) is None:
            return serve

        in_order = anyio.Lock()

        async def checked(request: Any) -> Any:
            async with in_order:  # Of two writes to a file the later one counts.
                await folders.check(request.session_id, request.path)
            return await serve(request)

        return checked

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

    async def initialize(self, *, protocol_version: int = PROTOCOL_VERSION) -> acp.InitializeResponse:
        request = acp.InitializeRequest(
            protocol_version=protocol_version, client_capabilities=self.capabilities, client_info=self.info
        )
        return await self._answer("initialize", request, acp.InitializeResponse)

    async def authenticate(self, method_id: str) -> acp.AuthenticateResponse:
        return await self._answer(
            "authenticate", acp.AuthenticateRequest(method_id=method_id), acp.AuthenticateResponse
        )

    async def logout(self) -> acp.LogoutResponse:
        return await self._answer("logout", acp.LogoutRequest(), acp.LogoutResponse)

    async def new_session(self, cwd: Path, **around: Unpack[Around]) -> acp.NewSessionResponse:
        request = acp.NewSessionRequest(**_where(cwd, around))
        made = await self._answer("session/new", request, acp.NewSessionResponse)
        self._opened(made.session_id, cwd, around)
        return made

    def _opened(self, session_id: str, cwd: Path, around: Around) -> None:
        if self._folders is not None:
            self._folders.begin(session_id, [cwd, *around.get("additional_directories", ())])

    async def load_session(self, session_id: str, cwd: Path, **around: Unpack[Around]) -> acp.LoadSessionResponse:
        """All updates of the conversation have arrived when this returns."""
        self._opened(session_id, cwd, around)
        request = acp.LoadSessionRequest(session_id=session_id, **_where(cwd, around))
        return await self._answer("session/load", request, acp.LoadSessionResponse)

    async def resume_session(
        self, session_id: str, cwd: Path, *, meta: dict[str, Any] | None = None, **around: Unpack[Around]
    ) -> acp.ResumeSessionResponse:
        self._opened(session_id, cwd, around)
        request = acp.ResumeSessionRequest(session_id=session_id, **_where(cwd, around), meta=meta)
        return await self._answer("session/resume", request, acp.ResumeSessionResponse)

    async def list_sessions(self, *, cwd: Path | None = None, cursor: str | None = None) -> acp.ListSessionsResponse:
        request = acp.ListSessionsRequest(cwd=None if cwd is None else str(cwd), cursor=cursor)
        return await self._answer("session/list", request, acp.ListSessionsResponse)

    async def close_session(self, session_id: str) -> acp.CloseSessionResponse:
        closed = await self._answer(
            "session/close", acp.CloseSessionRequest(session_id=session_id), acp.CloseSessionResponse
        )
        if self._folders is not None:
            self._folders.end(session_id)
        return closed

    async def delete_session(self, session_id: str) -> acp.DeleteSessionResponse:
        return await self._answer(
            "session/delete", acp.DeleteSessionRequest(session_id=session_id), acp.DeleteSessionResponse
        )

    async def prompt(self, session_id: str, prompt: str | Sequence[acp.ContentBlock]) -> acp.PromptResponse:
        """Runs one turn; a string stands for one text block. All its updates have arrived when this returns."""
        blocks: list[acp.ContentBlock] = [acp.TextContent(text=prompt)] if isinstance(prompt, str) else list(prompt)
        return await self._answer(
            "session/prompt", acp.PromptRequest(session_id=session_id, prompt=blocks), acp.PromptResponse
        )

    async def set_session_mode(self, session_id: str, mode_id: str) -> acp.SetSessionModeResponse:
        request = acp.SetSessionModeRequest(session_id=session_id, mode_id=mode_id)
        return await self._answer("session/set_mode", request, acp.SetSessionModeResponse)

    async def set_config_option(
        self, session_id: str, config_id: str, value: str | bool
    ) -> acp.SetSessionConfigOptionResponse:
        if isinstance(value, bool):
            request = acp.SetSessionConfigOptionRequest(
                session_id=session_id, config_id=config_id, type="boolean", value=value
            )
        else:
            request = acp.SetSessionConfigOptionRequest(session_id=session_id, config_id=config_id, value=value)
        return await self._answer("session/set_config_option", request, acp.SetSessionConfigOptionResponse)

    def cancel(self, session_id: str) -> None:
        """Tells the agent to end the session's turn; the prompt's stop reason is then `cancelled`."""
        self.connection.notify("session/cancel", acp.CancelNotification(session_id=session_id))

    async def ask(self, method: str, request: object) -> Any:
        """Calls any of ACP's agent methods with params as a Struct or plain JSON data; returns a Struct."""
        return decode_result(method, await self.connection.request(method, request), "agent")

    async def _answer(self, method: str, request: object, kind: type[_Answer]) -> _Answer:
        answer = await self.ask(method, request)
        assert isinstance(answer, kind)
        return answer

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

    async def _request_permission(self, request: acp.RequestPermissionRequest) -> acp.RequestPermissionResponse:
        return acp.RequestPermissionResponse(outcome=await self._permissions(request))


def _where(cwd: Path, around: Around) -> dict[str, Any]:
    """The fields that every request to open a session has."""
    folders = [str(path) for path in around.get("additional_directories", ())]
    return {"cwd": str(cwd), "additional_directories": folders, "mcp_servers": [*around.get("mcp_servers", ())]}
