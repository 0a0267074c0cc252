"""The agent's requests to its editor: a typed method for each ACP client method it uses, bound to one session.

Every call is gated on `ClientCapabilities` (some clients never answer methods they did not offer) and, unless a user
is asked, has a timeout. Raises no `ExecutorError` but PeerError, CapabilityMissing, ConnectionClosed and TimeoutError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import to_builtins
from msgspec.structs import replace

from acp_agent.errors import AgentError, CapabilityMissing
from acp_agent.lazy import load
from acp_agent.protocol.profiles import RenderingPlan, rendering_plan, takes_booleans, takes_cursors, watches_turns
from acp_agent.schema import acp
from acp_agent.schema.decode import decode_result

if TYPE_CHECKING:
    from acp_agent.schema.lsp_types import (
        DiagnosticReport,
        DocumentSymbol,
        Hover,
        Location,
        WorkspaceEdit,
        WorkspaceSymbol,
    )


LSP_RESULT = "acp_agent.schema.lsp_types:decode_result"
LSP_METHODS = "acp_agent.schema.lsp_types:METHODS"

MARK: ContextVar[str] = ContextVar("mark", default="")
"""What the prompt that is worked on carries as `_meta.prompt`: its message comes back with it."""
STEPS = "steps"
"""Id of the plan that the tool `plan` makes."""
PROPOSAL = "proposal"
"""Id of the plan that the user reviews or has approved, until its steps take its place."""
PLANS = (acp.Plan, acp.PlanUpdate, acp.PlanRemoved)
QUESTION = "question"
"""In `_meta` of a permission request that is a question of the model."""


class Wire(Protocol):
    """What leads to the client: a `Connection`, or what stands for several."""

    async def request(self, method: str, params: object, *, late: Callable[[Any], None] | None = None) -> Any: ...

    def tell(self, method: str, params: object) -> None: ...

    def notify(self, method: str, params: Any) -> None: ...

    def push(self) -> None: ...

    async def drain(self) -> None: ...


@runtime_checkable
class Several(Wire, Protocol):
    """Several clients may see the session."""

    def show(self, note: acp.SessionNotification, place: int) -> None: ...

    def said(self, message_id: str, mark: str) -> None: ...

    def tell_others(self, meta: dict[str, Any]) -> None: ...


class Client:
    """The editor as seen by one session. `timeout` (seconds) limits every call that needs no answer from a user."""

    def __init__(
        self,
        connection: Wire,
        session_id: str,
        capabilities: acp.ClientCapabilities,
        *,
        timeout: float = 20.0,
        lsp_timeout: float | None = 10.0,
        plan: RenderingPlan | None = None,
        unstable: bool = False,
    ) -> None:
        """`lsp_timeout` limits requests to language servers, in seconds; None: none are sent.

        `plan`: what the client can really do; None: what it claims. `unstable`: as in the configuration."""
        self.plan = rendering_plan(capabilities) if plan is None else plan
        """Features this client gets, and those it does without."""
        self._connection = connection
        self._several = connection if isinstance(connection, Several) else None
        self._session_id = session_id
        self._said: dict[str, str] = {}
        """Messages of the user in this turn that are the client's, and the marks of their prompts."""
        self._below: set[str] = set()
        """Calls of sub-agents that are shown as sessions."""
        self._timeout = timeout
        self._lsp_timeout = lsp_timeout
        self.capabilities = capabilities
        self.shows_children = capabilities.subagents is not None and self._several is None
        """Whether sub-agents are shown as sessions of their own (the draft `subagent_update`)."""
        self.shows_cursors = unstable and (self._several is not None or takes_cursors(capabilities))
        """Whether it is told where the conversation can be forked (the draft `cursor_update`); of several, who takes
        it is."""
        suggestions = None if capabilities.session is None else capabilities.session.prompt_suggestions
        self.takes_suggestions = unstable and suggestions is not None and self._several is None
        """Whether it is told what the user may want to say next (the draft `prompt_suggestions_update`)."""
        self.takes_booleans = self._several is None and takes_booleans(capabilities)
        """Whether an option may be a boolean."""
        self._watches_turns = watches_turns(capabilities)
        self.before_asking: Callable[[], Awaitable[None]] | None = None
        """Called before every request: updates emitted earlier must be on the wire earlier."""
        self.clean: Callable[[Any], Any] | None = None
        """Redacts credentials in questions to the user."""
        self.asking: Callable[[Any], None] | None = None
        """Told each question that the user is asked."""

    # --- capabilities -----------------------------------------------------------------------------------------

    def answers(self, method: str) -> bool:
        """Whether the client serves this method of the `_lsp/*` extension."""
        return method in self._lsp_methods and not self.plan.far

    @property
    def opens_urls(self) -> bool:
        """Whether the client can ask the user to open a URL."""
        return self.capabilities.elicitation is not None and self.capabilities.elicitation.url is not None

    @cached_property
    def publishes_diagnostics(self) -> bool:
        """Whether the client notifies us of changed diagnostics."""
        lsp = None if self.plan.far else (self.capabilities.meta or {}).get("lsp")
        named = lsp.get("notifications") if isinstance(lsp, dict) else None
        return isinstance(named, list) and "_lsp/publishDiagnostics" in named

    @cached_property
    def _lsp_methods(self) -> frozenset[str]:
        """Methods named by `_meta.lsp.methods`; `_meta.lsp: true` means all."""
        lsp = (self.capabilities.meta or {}).get("lsp")
        if self._lsp_timeout is None or not lsp:
            return frozenset()
        known = frozenset(load(LSP_METHODS))
        named = lsp.get("methods") if isinstance(lsp, dict) else None
        return known.intersection(map(str, named)) if isinstance(named, list) else known if lsp is True else frozenset()

    # --- updates ----------------------------------------------------------------------------------------------

    def update(self, update: acp.SessionUpdate, place: int = 0) -> None:
        """Queues a `session/update`; never waits. Plans go as `shown_to` has them.

        `place`: in the session's log; 0: it is not kept, below 0: it could not be stored."""
        if isinstance(update, acp.ToolCall | acp.ToolCallProgress) and update.tool_call_id in self._below:
            return
        if self._several is not None:
            self._several.show(acp.SessionNotification(session_id=self._session_id, update=update), place)
            return
        shown = shown_to(self.plan, update)
        if shown is None:
            return
        note = acp.SessionNotification(session_id=self._session_id, update=shown)
        if not (place and isinstance(shown, acp.UserMessageChunk)):  # The client shows what it says itself.
            self._connection.notify("session/update", note)
        elif self._watches_turns and (mark := self._said.get(shown.message_id or "")) is not None:
            self._connection.notify("session/update", replace(note, meta={"prompt": mark}))

    def hide(self, call_id: str) -> None:
        """The call is one of a sub-agent's that is shown as a session of its own."""
        self._below.add(call_id)

    def update_below(self, session_id: str, update: Any, above: str) -> None:
        """An update of a sub-agent's session; what it is told comes from the session `above`."""
        shown = shown_to(self.plan, update)
        given = to_builtins(shown) if isinstance(shown, acp.UserMessageChunk) else shown
        if isinstance(given, dict) and given.get("sessionUpdate") == "user_message_chunk":
            shown = acp.SessionMessage(
                message_id=given.get("messageId") or session_id,
                sender_session_id=above,
                recipient_session_id=session_id,
                content=[given["content"]],
            )
        if shown is not None:
            note = acp.SessionNotification(session_id=session_id, update=shown)
            self._connection.notify("session/update", note)

    def said(self, message_id: str) -> None:
        """The message of the user with this id comes from who is asking now."""
        if self._several is not None:
            self._several.said(message_id, MARK.get())
        else:
            self._said[message_id] = MARK.get()

    def turn(self, state: dict[str, Any]) -> None:
        """A turn has begun (`state`: `running`) or ended (`idle`, with `stopReason`, or `failed` and the `error`)."""
        if state["state"] == "idle":
            self._said.clear()
        if self._several is not None:
            self._several.tell_others({"turn": state})
        elif self._watches_turns:
            told = acp.SessionInfoUpdate(meta={"turn": state})
            self._connection.notify("session/update", acp.SessionNotification(session_id=self._session_id, update=told))

    def push(self) -> None:
        """Sends what is queued immediately, if the client reads."""
        self._connection.push()

    async def drain(self) -> None:
        """Waits while the client reads more slowly than we write."""
        await self._connection.drain()

    # --- fs ---------------------------------------------------------------------------------------------------

    async def read_text_file(self, path: Path, *, line: int | None = None, limit: int | None = None) -> str:
        """The file as the editor has it. `line` is 1-based, `limit` counts lines (not every client honours them)."""
        self._need(self.plan.reads_files, "fs/read_text_file")
        request = acp.ReadTextFileRequest(session_id=self._session_id, path=str(path), line=line, limit=limit)
        answer = await self._ask("fs/read_text_file", request)
        return str(answer.content)

    async def write_text_file(self, path: Path, content: str) -> None:
        self._need(self.plan.writes_files, "fs/write_text_file")
        request = acp.WriteTextFileRequest(session_id=self._session_id, path=str(path), content=content)
        await self._ask("fs/write_text_file", request)

    # --- terminal ---------------------------------------------------------------------------------------------

    async def create_terminal(
        self,
        command: str,
        args: Sequence[str],
        *,
        cwd: Path,
        env: dict[str, str],
        output_byte_limit: int,
        late: Callable[[], None] = lambda: None,
    ) -> str:
        """Starts a command in the editor and returns the terminal's id immediately. A terminal created after the
        caller stopped waiting is killed and released, and `late` is called."""
        self._need(self.plan.terminals, "terminal/create")
        request = acp.CreateTerminalRequest(
            session_id=self._session_id,
            command=command,
            args=list(args),
            cwd=str(cwd),
            env=[acp.EnvVariable(name=name, value=value) for name, value in env.items()],
            output_byte_limit=output_byte_limit,
        )
        end = partial(self._end_late_terminal, late)
        answer: acp.CreateTerminalResponse = await self._ask("terminal/create", request, late=end)
        return answer.terminal_id

    def _end_late_terminal(self, late: Callable[[], None], result: Any) -> None:
        try:
            terminal_id = decode_result("terminal/create", result, "client").terminal_id
        except AgentError:
            return
        for method, request in (
            ("terminal/kill", acp.KillTerminalRequest(session_id=self._session_id, terminal_id=terminal_id)),
            ("terminal/release", acp.ReleaseTerminalRequest(session_id=self._session_id, terminal_id=terminal_id)),
        ):
            self._connection.tell(method, request)
        late()

    async def terminal_output(self, terminal_id: str) -> acp.TerminalOutputResponse:
        request = acp.TerminalOutputRequest(session_id=self._session_id, terminal_id=terminal_id)
        answer: acp.TerminalOutputResponse = await self._ask("terminal/output", request)
        return answer

    async def wait_for_terminal_exit(self, terminal_id: str) -> acp.WaitForTerminalExitResponse:
        """Waits without a limit: the caller has the command's own timeout."""
        request = acp.WaitForTerminalExitRequest(session_id=self._session_id, terminal_id=terminal_id)
        answer: acp.WaitForTerminalExitResponse = await self._ask("terminal/wait_for_exit", request, bounded=False)
        return answer

    async def kill_terminal(self, terminal_id: str) -> None:
        await self._ask("terminal/kill", acp.KillTerminalRequest(session_id=self._session_id, terminal_id=terminal_id))

    async def release_terminal(self, terminal_id: str) -> None:
        request = acp.ReleaseTerminalRequest(session_id=self._session_id, terminal_id=terminal_id)
        await self._ask("terminal/release", request)

    # --- language servers: the extension `_lsp/*` (docs/lsp-extension.md) ----------------------------------------
    # Positions are LSP's: lines and characters from 0, characters in UTF-16 code units.

    async def diagnostics(self, uri: str | None = None) -> DiagnosticReport:
        """Returns the content of the editor's problems view, of one file or of all."""
        report: DiagnosticReport = await self._ask_lsp("_lsp/diagnostics", {} if uri is None else {"uri": uri})
        return report

    async def hover(self, uri: str, line: int, character: int) -> Hover | None:
        hover: Hover | None = await self._ask_lsp("_lsp/hover", _at(uri, line, character))
        return hover

    async def definition(self, uri: str, line: int, character: int) -> list[Location]:
        found: list[Location] = await self._ask_lsp("_lsp/definition", _at(uri, line, character))
        return found

    async def references(
        self, uri: str, line: int, character: int, *, include_declaration: bool = True
    ) -> list[Location]:
        context = {"context": {"includeDeclaration": include_declaration}}
        found: list[Location] = await self._ask_lsp("_lsp/references", {**_at(uri, line, character), **context})
        return found

    async def document_symbols(self, uri: str) -> list[DocumentSymbol]:
        found: list[DocumentSymbol] = await self._ask_lsp("_lsp/documentSymbols", {"textDocument": {"uri": uri}})
        return found

    async def workspace_symbols(self, query: str) -> list[WorkspaceSymbol]:
        found: list[WorkspaceSymbol] = await self._ask_lsp("_lsp/workspaceSymbols", {"query": query})
        return found

    async def rename(self, uri: str, line: int, character: int, new_name: str) -> WorkspaceEdit:
        """Returns what renaming the symbol at this position would change, in all files; changes nothing."""
        edit: WorkspaceEdit = await self._ask_lsp("_lsp/rename", {**_at(uri, line, character), "newName": new_name})
        return edit

    async def _ask_lsp(self, method: str, params: dict[str, Any]) -> Any:
        self._need(self.answers(method), method)
        try:
            async with asyncio.timeout(self._lsp_timeout):
                result = await self._connection.request(method, {"sessionId": self._session_id, **params})
        except TimeoutError as error:
            raise TimeoutError(f"the client did not answer {method} within {self._lsp_timeout:g} s") from error
        return load(LSP_RESULT)(method, result)

    # --- questions to the user ------------------------------------------------------------------------------

    async def request_permission(
        self, tool_call: acp.ToolCallUpdate, options: Sequence[acp.PermissionOption]
    ) -> acp.RequestPermissionResponse:
        """Waits without a limit, since a user answers. Cancelling tells the client that the question is void."""
        request = acp.RequestPermissionRequest(session_id=self._session_id, tool_call=tool_call, options=list(options))
        request = request if self.clean is None else self.clean(request)
        answer: acp.RequestPermissionResponse = await self._put("session/request_permission", request)
        return answer

    async def elicit(
        self, message: str, form: acp.ElicitationSchema, *, tool_call_id: str | None = None
    ) -> acp.CreateElicitationResponse:
        """Shows a form to the user. Waits without a limit; cancelling tells the client that the question is void."""
        self._need(self.plan.forms, "elicitation/create (form)")
        request = acp.ElicitationFormMode(
            message=message, requested_schema=form, session_id=self._session_id, tool_call_id=tool_call_id
        )
        request = request if self.clean is None else self.clean(request)
        answer: acp.CreateElicitationResponse = await self._put("elicitation/create", request)
        return answer

    async def open_url(self, message: str, url: str, elicitation_id: str) -> acp.CreateElicitationResponse:
        """Asks the user to open a URL; "accept" says that they agreed. Waits as `elicit` does."""
        self._need(self.opens_urls, "elicitation/create (url)")
        request = acp.ElicitationUrlMode(
            message=message, url=url, elicitation_id=elicitation_id, session_id=self._session_id
        )
        answer: acp.CreateElicitationResponse = await self._put("elicitation/create", request)
        return answer

    def url_done(self, elicitation_id: str) -> None:
        """What the user opened a URL for is done."""
        note = acp.CompleteElicitationNotification(elicitation_id=elicitation_id)
        self._connection.notify("elicitation/complete", note)

    # --- helpers ----------------------------------------------------------------------------------------------

    def _need(self, offered: bool, method: str) -> None:
        if not offered:
            raise CapabilityMissing(f"the client does not offer {method}")

    async def _put(self, method: str, request: object) -> Any:
        """Asks the user, without a limit."""
        if self.asking is not None:
            self.asking(request)
        return await self._ask(method, request, bounded=False)

    async def _ask(
        self, method: str, request: object, *, bounded: bool = True, late: Callable[[Any], None] | None = None
    ) -> Any:
        if self.before_asking is not None:
            await self.before_asking()
        if not bounded:
            return decode_result(method, await self._connection.request(method, request), "client")
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._connection.request(method, request, late=late)
        except TimeoutError as error:
            raise TimeoutError(f"the client did not answer {method} within {self._timeout:g} s") from error
        return decode_result(method, result, "client")


def shown_to(plan: RenderingPlan, update: Any) -> Any:
    """An update, or a stored one, for a client with that plan; `None`: it is not for this client. Steps are `plan`
    in the log, and a document where the client takes these; other documents go to no others."""
    given = to_builtins(update) if isinstance(update, PLANS) else update
    kind = given.get("sessionUpdate") if isinstance(given, dict) else ""
    if kind == "plan" and plan.plan_documents:
        return as_document(given)
    return None if kind in ("plan_update", "plan_removed") and not plan.plan_documents else update


def as_document(plan: dict[str, Any]) -> dict[str, Any]:
    """A stored `plan` as `plan_update`; without steps it is taken away."""
    if not (entries := plan.get("entries")):
        return {"sessionUpdate": "plan_removed", "planId": STEPS}
    return {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": STEPS, "entries": entries}}


def _at(uri: str, line: int, character: int) -> dict[str, Any]:
    return {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
