"""The agent as an MCP server on stdio, so that other agents can give it work.

Tools: `prompt` runs a turn, `status` says what sessions there are. What would be asked of a user is asked of the MCP
client's user by elicitation; a client that cannot ask anybody gets a refusal in the result instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from msgspec import Struct, field

from acp_agent import __version__
from acp_agent.client.acp_client import AcpClient
from acp_agent.client.permissions import cancelled, choose, reject_once
from acp_agent.client.spawn import SpawnedAgent, spawn_agent
from acp_agent.errors import AgentError, PeerError
from acp_agent.fronts.headless import AGENT_COMMAND
from acp_agent.legible import legible
from acp_agent.loop.prompts.command_names import BUILT_IN, sets_goal, split_command
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp

INSTRUCTIONS = (
    "A coding agent with its own tools (files, search, bash, language servers, the web). Give it whole tasks with "
    "`prompt`; it answers when it is done. It goes on with a session if you give its id."
)
MAX_CALLS = 100
"""Calls of the agent that are named in a result."""
SHOWN = 8_000
"""Characters of a call that a question shows."""
ENDING = 10.0
"""Seconds that a prompt waits for the end of a cancelled turn."""
ANSWERS = {
    "allow": ("allow_once", "allow_always"),
    "always": ("allow_always", "allow_once"),
    "reject": ("reject_once",),
}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "Answer",
            "oneOf": [
                {"const": "allow", "title": "Allow once"},
                {"const": "always", "title": "Always allow"},
                {"const": "reject", "title": "Reject"},
            ],
        }
    },
    "required": ["answer"],
}


class _Turn(Struct):
    """A running one. `context`: of the MCP request."""

    context: Context[Any, Any]
    text: list[str] = field(default_factory=list)
    calls: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Titles of what nobody could be asked about."""
    cancelled: bool = False
    reason: str = ""
    error: AgentError | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set once the agent has answered; until then its updates are of this turn."""


class McpFront:
    """`folders`: in which it works, also below them; the first is the usual one."""

    def __init__(self, folders: Sequence[Path], environ: Mapping[str, str], mode: str | None) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._environ = environ
        self._mode = mode
        self._agent: SpawnedAgent | None = None
        self._turns: dict[str, _Turn] = {}
        self._sessions: dict[str, str] = {}
        """Id -> folder, of those that were opened here."""
        self.server = MCPServer("acp-coder", version=__version__, instructions=INSTRUCTIONS)
        self.server.tool(structured_output=False)(self.prompt)
        self.server.tool(structured_output=False)(self.status)

    async def run(self) -> None:
        """Serves until stdin ends."""
        environ = {"ACP_CODER_SCHEDULES": "false", **self._environ}
        folder = self._folders[0]
        async with (
            spawn_agent(AGENT_COMMAND, cwd=folder, env=environ, connect=self._connect) as agent,
            anyio.create_task_group() as self._tasks,
        ):
            self._agent = agent
            await agent.client.initialize()
            await self.server.run_stdio_async()
            self._tasks.cancel_scope.cancel()

    # --- the tools --------------------------------------------------------------------------------------------

    async def prompt(self, text: str, context: Context[Any, Any], session: str = "", folder: str = "") -> str:
        """Give the agent a task and wait for its answer.

        `session`: the id of an earlier session to continue. `folder`: the absolute path to work in.
        """
        where = self._folder(folder)
        name, rest = split_command([acp.TextContent(text=text)])
        if name in BUILT_IN and not sets_goal(name, rest):
            raise ToolError(f"/{name} is for the agent's own user: give it a task.")
        client = self._client
        turn = _Turn(context)
        try:
            session = await self._opened(client, session, where)
            if (before := self._turns.get(session)) is not None and before.cancelled:
                with anyio.move_on_after(ENDING):
                    await before.ended.wait()
            if session in self._turns:
                raise ToolError(f"The session {session} is busy: wait for its answer, or begin another.")
            self._turns[session] = turn
            self._tasks.start_soon(self._run, client, session, text, turn)
            try:
                await turn.ended.wait()
            except anyio.get_cancelled_exc_class():
                turn.cancelled = True
                client.cancel(session)
                raise
            if turn.error is not None:
                raise turn.error
        except PeerError as error:
            raise ToolError(error.message) from error
        except AgentError as error:
            raise ToolError(f"The agent has ended: {error}") from error
        return "\n\n".join(filter(None, ("".join(turn.text).strip(), self._summary(turn, session))))

    async def _run(self, client: AcpClient, session: str, text: str, turn: _Turn) -> None:
        """To the agent's answer, also if nobody waits for it any more."""
        try:
            turn.reason = (await client.prompt(session, text)).stop_reason
        except AgentError as error:
            turn.error = error
        finally:
            del self._turns[session]
            turn.ended.set()

    async def status(self, session: str = "") -> str:
        """What sessions the agent has in its folders, and which are working. `session`: what that one is doing."""
        if session:
            turn = self._turns.get(session)
            doing = [call["title"] for call in turn.calls.values() if call["status"] == "in_progress"] if turn else []
            return f"{session}: {'working' if turn else 'idle'}" + (f" ({'; '.join(doing)})" if doing else "")
        client = self._client
        lines = []
        for folder in self._folders:
            for each in (await client.list_sessions(cwd=folder)).sessions:
                state = "working" if each.session_id in self._turns else "idle"
                lines.append(f"{each.session_id} ({state}) {each.title or ''} in {folder}".replace("  ", " "))
        return "\n".join(lines) or "There are no sessions."

    def _summary(self, turn: _Turn, session: str) -> str:
        calls = list(turn.calls.values())
        lines = [f"- {call['title']}: {call['status']}" for call in calls[:MAX_CALLS]]
        lines += [f"- and {len(calls) - MAX_CALLS} more"] if len(calls) > MAX_CALLS else []
        refused = [f"Not allowed, since nobody could be asked: {'; '.join(turn.refused)}"] if turn.refused else []
        ended = [] if turn.reason == "end_turn" else [f"It ended with {turn.reason}."]
        return "\n".join([*ended, *refused, *(["What it did:", *lines] if lines else []), f"Session: {session}"])

    # --- the agent --------------------------------------------------------------------------------------------

    def _folder(self, folder: str) -> Path:
        path = Path(folder).resolve() if folder else self._folders[0]
        if not any(path.is_relative_to(top) for top in self._folders):
            listed = ", ".join(map(str, self._folders))
            raise ToolError(f"{folder} is not in the folders that may be worked in: {listed}.")
        if not path.is_dir():
            raise ToolError(f"{folder} is not an existing folder.")
        return path

    @property
    def _client(self) -> AcpClient:
        assert self._agent is not None, "it is served only with an agent"
        return self._agent.client

    def _connect(self, transport: Transport) -> AcpClient:
        return AcpClient(
            transport,
            permissions=self._permission,
            on_update=self._update,
            info=acp.Implementation(name="acp-coder-mcp", version=__version__),
        )

    async def _opened(self, client: AcpClient, session: str, folder: Path) -> str:
        if session in self._sessions:
            return session
        if not session:
            session = (await client.new_session(folder)).session_id
        elif not await self._is_of(client, session, folder):
            raise ToolError(f"There is no session {session} in {folder}.")
        else:
            await client.resume_session(session, folder)
        if self._mode is not None:
            await client.set_session_mode(session, self._mode)
        self._sessions[session] = str(folder)
        return session

    async def _is_of(self, client: AcpClient, session: str, folder: Path) -> bool:
        listed = await client.list_sessions(cwd=folder)
        while all(each.session_id != session for each in listed.sessions):
            if not listed.next_cursor:
                return False
            listed = await client.list_sessions(cwd=folder, cursor=listed.next_cursor)
        return True

    def _update(self, session_id: str, update: acp.SessionUpdate) -> None:
        if (turn := self._turns.get(session_id)) is None:
            return
        if isinstance(update, acp.AgentMessageChunk) and isinstance(update.content, acp.TextContent):
            turn.text.append(update.content.text)
        if isinstance(update, acp.ToolCall | acp.ToolCallProgress):
            if isinstance(update, acp.ToolCall):
                turn.text.clear()  # What counts is said at the end.
                turn.calls[update.tool_call_id] = {"title": "A tool", "status": "pending"}
            call = turn.calls.get(update.tool_call_id, {})  # It may be of an earlier turn, and in the background.
            for name in ("title", "status"):
                if isinstance(value := getattr(update, name), str):
                    call[name] = " ".join(legible(value).split())

    async def _permission(self, request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        turn = self._turns.get(request.session_id)
        title = " ".join(legible(str(request.tool_call.title or "A tool")).split())
        if turn is None or turn.cancelled or {"cost", "trust"} & set(request.tool_call.meta or ()):
            return await reject_once(request)  # Only the agent's own user decides about these.
        offered = turn.context.client_capabilities
        if offered is None or offered.elicitation is None:
            turn.refused.append(title)
            return await reject_once(request)
        try:
            said = await turn.context.session.elicit_form(_question(title, request), FORM, turn.context.request_id)
        except MCPError:
            turn.refused.append(title)
            return await reject_once(request)
        answer = (said.content or {}).get("answer") if said.action == "accept" else None
        if said.action == "cancel":
            return await cancelled(request)
        return choose(request, *ANSWERS.get(str(answer), ANSWERS["reject"]))


def _question(title: str, request: acp.RequestPermissionRequest) -> str:
    lines = [f"acp-coder asks: {title}"]
    for content in request.tool_call.content if isinstance(request.tool_call.content, list) else ():
        if isinstance(content, acp.Content) and isinstance(content.content, acp.TextContent):
            lines.append(content.content.text)
        elif isinstance(content, acp.Diff):
            lines.append(f"{content.path}:\n{content.new_text}")
    text = legible("\n\n".join(lines))
    more = len(text) - SHOWN
    return text if more <= 0 else f"{text[:SHOWN]}\n\n[{more} more characters, which are not shown here]"


def serve(folders: Sequence[Path], environ: Mapping[str, str], mode: str | None) -> None:
    anyio.run(McpFront(folders, environ, mode).run)
