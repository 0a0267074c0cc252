"""One connection to an MCP server, using the `mcp` package (2.x). Loaded lazily in a thread: the import takes a second.

The package's scopes are entered and left in the task that uses `connect`. Failures are raised as `McpError` only.

We offer servers the session's folders as `roots`, `elicitation` if the user can be asked, and `sampling` to those that
the user lets ask the model.

Over HTTP the package negotiates: `server/discover` first, as the protocol without a handshake (2026-07-28) wants, then
`initialize`. Other servers first get `initialize`, which all that are in use answer, and `server/discover` if they
refuse it: some are slow to start, and some answer nothing else before it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp.client._input_required import InputRequiredRoundsExceededError, run_input_required_driver
from mcp.client._probe import negotiate_auto
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from acp_agent import __version__
from acp_agent.mcp.base import Answer, McpError, McpPrompt, McpResult, McpTool, Progress, PromptArgument
from acp_agent.mcp.content import one_line, progress_line, read_content, read_result
from acp_agent.mcp.link import Link
from acp_agent.mcp.mcp_errors import TRACE, Trace, failure, first_failure
from acp_agent.mcp.mcp_transports import Watched, transport
from acp_agent.mcp.mending import mended
from acp_agent.mcp.server_tasks import CLAIMS, EXTENSION, CallTask, finished

if TYPE_CHECKING:
    from mcp.client._transport import WriteStream
    from mcp.shared.message import SessionMessage

log = logging.getLogger(__name__)

T = TypeVar("T")
ResultT = TypeVar("ResultT", bound=types.Result)
PageT = TypeVar("PageT", bound=types.PaginatedResult)

PAGES = 50
"""Pages of a list that are requested."""
ENTRIES = 1000
"""Tools or prompts accepted from one server."""
DESCRIPTION = 4096
"""Characters kept of a description."""
URLS = 5
"""URLs that the user may have to open before a call."""
URL_WAIT = 60.0
"""Seconds that it then waits to be told that the user is done; servers need not tell."""
ROUNDS = 10
"""Times that a server may ask for more before it answers a request."""
LISTEN_AGAIN, LISTEN_SELDOM = 1.0, 300.0
"""Seconds after which a lost stream of a server's changes is opened again, at first and at last."""
GREETINGS = {"initialize": LATEST_HANDSHAKE_VERSION, "server/discover": LATEST_MODERN_VERSION}
"""Requests by which a version begins to hold."""
RESULTS: dict[Any, TypeAdapter[Any]] = {
    types.CallToolResult: TypeAdapter(CallTask | types.CallToolResult | types.InputRequiredResult),
    types.GetPromptResult: TypeAdapter(types.GetPromptResult | types.InputRequiredResult),
    types.ReadResourceResult: TypeAdapter(types.ReadResourceResult | types.InputRequiredResult),
}
"""Of requests for which a server may ask for more first (2026-07-28)."""


class Client:
    """An established connection. Its methods raise McpError."""

    def __init__(
        self, link: Link, session: ClientSession, urls: set[tuple[str, anyio.Event]], odd: dict[str, None]
    ) -> None:
        """`urls`: ids of questions, each with what is set once the user has done at the URL what it is for."""
        self.fresh_until = float("inf")
        """When lists that it was given are to be asked for again (`ttlMs`), by anyio's clock."""
        self.odd = odd
        """Clauses about entries of its lists that are not as they should be."""
        self._link = link
        self._session = session
        self._urls = urls

    async def tools(self) -> tuple[McpTool, ...]:
        capabilities = self._session.server_capabilities
        if capabilities is None or capabilities.tools is None:
            return ()
        listed = await self._all(self._session.list_tools, lambda page: page.tools, "tools")
        found = {tool.name: self._tool(tool) for tool in listed}
        return tuple(found.values())

    async def prompts(self) -> tuple[McpPrompt, ...]:
        capabilities = self._session.server_capabilities
        if capabilities is None or capabilities.prompts is None:
            return ()
        listed = await self._all(self._session.list_prompts, lambda page: page.prompts, "prompts")
        found = {prompt.name: self._prompt(prompt) for prompt in listed}
        return tuple(found.values())

    async def resources(self) -> list[tuple[str, str]]:
        """The URI, or the template of one, and the name of each resource that the server lists."""
        capabilities = self._session.server_capabilities
        if capabilities is None or capabilities.resources is None:
            return []
        session = self._session
        listed = await self._all(session.list_resources, lambda page: page.resources, "resources")
        templates = await self._all(
            session.list_resource_templates, lambda page: page.resource_templates, "templates of resources"
        )
        found = [(each.uri, each.title or each.name) for each in listed]
        return found + [(each.uri_template, each.title or each.name) for each in templates]

    async def call(self, name: str, arguments: Mapping[str, Any], say: Progress) -> McpResult:
        """Notifies the server when cancelled."""
        params = types.CallToolRequestParams(name=name, arguments=_clean(arguments))

        async def show(progress: float, total: float | None, message: str | None) -> None:
            say(progress_line(progress, total, message))

        async def request() -> types.CallToolResult:
            asked = types.CallToolRequest(params=params)
            answer: Any = await self._ask(asked, types.CallToolResult, progress_callback=show)
            if isinstance(answer, CallTask):
                with self._words():
                    answer = await finished(self._session, answer, self._answered, say)
            return answer  # type: ignore[no-any-return]

        try:
            result = await request()
        except McpError as error:
            if not await self._opened(error.__cause__):
                raise
            result = await request()
        return read_result(_json(result), self._link.max_bytes)

    async def _opened(self, error: BaseException | None) -> bool:
        """Has the user open the URLs without which the server will not answer (error -32042); whether there are any.
        Raises McpError if the user does not."""
        answer = self._link.answers.elicit
        if not isinstance(error, MCPError) or error.code != types.URL_ELICITATION_REQUIRED or answer is None:
            return False
        try:
            wanted = types.ElicitationRequiredErrorData.model_validate(error.error.data).elicitations[:URLS]
        except ValueError as wrong:
            raise failure(wrong, self._link, Trace()) from wrong
        events = {(str(each.elicitation_id), anyio.Event()) for each in wanted}  # Several calls may need the same.
        self._urls.update(events)
        try:
            for each in wanted:
                asked = await answer(self._link.spec.name, each.model_dump(mode="json", by_alias=True))
                if asked.get("action") != "accept":
                    words = f"the user has to open {one_line(each.url, 500)} first ({one_line(each.message, 500)})"
                    raise McpError("policy_blocked", words)
            with anyio.move_on_after(URL_WAIT):
                for _, event in events:
                    await event.wait()
        finally:
            self._urls.difference_update(events)
        return bool(wanted)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> list[tuple[str, str]]:
        """Returns (role, text) of its messages."""
        params = types.GetPromptRequestParams(name=name, arguments=_clean(arguments) or None)
        result = await self._ask(types.GetPromptRequest(params=params), types.GetPromptResult)
        left = self._link.max_bytes
        messages: list[tuple[str, str]] = []
        for message in _json(result)["messages"]:
            text, images = read_content([message["content"]], left)
            left = max(left - len(text), 0)
            messages.append((message["role"], text or ("[an image is not shown]" if images else "")))
        return messages

    async def resource(self, uri: str, limit: int) -> str:
        """The text of a resource, about `limit` bytes at most."""
        request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
        result = await self._ask(request, types.ReadResourceResult)
        contents = [{"type": "resource", "resource": each} for each in _json(result)["contents"]]
        text, images = read_content(contents, limit)
        return "\n".join([text, *("[an image is not shown]" for _ in images)]).strip()

    async def _ask(self, request: Any, kind: type[ResultT], **options: Any) -> ResultT:
        """The result, after all that the server asks for first: answered as its own requests are."""
        session = self._session

        async def send(responses: types.InputResponses | None, state: str | None) -> Any:
            more = {"input_responses": responses, "request_state": state}
            again = request.model_copy(update={"params": request.params.model_copy(update=more)})
            return await session.send_request(again, RESULTS[kind], **options)

        with self._words():
            first = await session.send_request(request, RESULTS[kind], **options)
            if not isinstance(first, types.InputRequiredResult):
                return first  # type: ignore[no-any-return]
            try:
                done: ResultT = await run_input_required_driver(
                    first, dispatch=self._answered, retry=send, max_rounds=ROUNDS
                )
            except InputRequiredRoundsExceededError as error:
                words = f"it asked for something {ROUNDS} times and did not answer"
                raise McpError("server_error", words) from error
            return done

    async def _answered(self, key: str, wanted: types.InputRequest) -> types.InputResponse | types.ErrorData:
        context = ClientRequestContext(session=self._session, request_id=key)
        return await self._session.dispatch_input_request(context, wanted)

    async def listen(self) -> None:
        """Hears of changes of its lists, on a stream that it has for that (2026-07-28)."""
        pause = LISTEN_AGAIN
        while self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with listen(self._session, tools_list_changed=True, prompts_list_changed=True) as changes:
                    async for _ in changes:
                        pause = LISTEN_AGAIN  # Not before: who ends it at once would be asked each second.
                        self._link.on_lists()
                return  # The server wants no more of it.
            except (ListenNotSupportedError, MCPError) as error:
                log.info("%s has no stream of changes: %s", self._link.spec.name, error)
                return
            except (SubscriptionLost, TimeoutError):
                await anyio.sleep(pause)
                pause = min(2 * pause, LISTEN_SELDOM)
                self._link.on_lists()  # What changed meanwhile was not told.

    async def _all(
        self, ask: Callable[..., Awaitable[PageT]], entries: Callable[[PageT], list[T]], what: str
    ) -> list[T]:
        found: list[T] = []
        cursor: str | None = None
        for _ in range(PAGES):
            with self._words():
                page = await ask(params=types.PaginatedRequestParams(cursor=cursor))
            found += entries(page)
            if isinstance(page, types.CacheableResult) and page.ttl_ms:
                now = anyio.current_time()
                before = self.fresh_until if self.fresh_until > now else float("inf")  # Until it is read, it is old.
                self.fresh_until = min(before, now + page.ttl_ms / 1000)
            cursor = page.next_cursor
            if cursor is None or len(found) >= ENTRIES:
                break
        if cursor is not None or len(found) > ENTRIES:
            self.odd[f"only the first {len(found[:ENTRIES])} of its {what} are taken"] = None
        return found[:ENTRIES]

    def _tool(self, tool: types.Tool) -> McpTool:
        hints = tool.annotations or types.ToolAnnotations()
        return McpTool(
            self._link.spec.name,
            tool.name,
            one_line(tool.title or hints.title or "", 200),
            _bounded(tool.description or ""),
            tool.input_schema,
            tool.output_schema,
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        )

    def _prompt(self, prompt: types.Prompt) -> McpPrompt:
        arguments = tuple(
            PromptArgument(argument.name, one_line(argument.description or "", 500), bool(argument.required))
            for argument in prompt.arguments or ()
        )
        title, description = one_line(prompt.title or "", 200), one_line(prompt.description or "", 1000)
        return McpPrompt(self._link.spec.name, prompt.name, title, description, arguments)

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Runs a request and converts its failures to McpError."""
        trace = Trace()
        token = TRACE.set(trace)
        try:
            yield
        except (MCPError, ValueError, OSError) as error:
            raise failure(error, self._link, trace) from error
        finally:
            TRACE.reset(token)


class _Mending(JSONRPCDispatcher):
    """Leaves out of each result what the package would refuse it as a whole for."""

    def __init__(self, incoming: Watched, outgoing: WriteStream[SessionMessage]) -> None:
        super().__init__(incoming, outgoing)
        self.odd: dict[str, None] = {}
        self._version = LATEST_HANDSHAKE_VERSION

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **rest: Any
    ) -> dict[str, Any]:
        result = await super().send_raw_request(method, params, opts, **rest)
        if method in GREETINGS:
            self._version = GREETINGS[method]
        return mended(method, self._version, result, lambda words: self.odd.update({words: None}))


class _Session(ClientSession):
    def __init__(self, link: Link, trace: Trace, **about: Any) -> None:
        super().__init__(**about)
        self._link = link
        self._trace = trace

    async def send_discover(self, version: str) -> Any:
        """Raises McpError if the server wants a login: that says nothing of its protocol, and `initialize` may be open
        to all."""
        try:
            return await super().send_discover(version)
        except MCPError as error:
            if self._trace.status == HTTPStatus.UNAUTHORIZED:
                raise failure(error, self._link, self._trace) from error
            raise


@asynccontextmanager
async def connect(link: Link) -> AsyncGenerator[Client]:
    """Yields a client of the server; calls `link.on_end` when the server is gone.

    Raises McpError if the connection fails, or, when the block is left, if it was lost.
    """
    trace = Trace()
    TRACE.set(trace)
    urls: set[tuple[str, anyio.Event]] = set()
    roots = types.ListRootsResult.model_validate(
        {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in link.folders]}
    )

    async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:
        return roots

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        assert link.answers.elicit is not None
        return await _answered(link, link.answers.elicit, params, types.ElicitResult)

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        assert link.answers.sample is not None
        return await _answered(link, link.answers.sample, params, types.CreateMessageResult)

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.PromptListChangedNotification):
            link.on_lists()
        elif isinstance(message, types.ElicitCompleteNotification):
            done = message.params.elicitation_id
            link.answers.url_done(link.spec.name, done)
            for waited, event in urls:
                if waited == done:
                    event.set()
        elif isinstance(message, types.LoggingMessageNotification):
            words = message.params.data if isinstance(message.params.data, str) else json.dumps(message.params.data)
            log.info("%s: %s", link.spec.name, one_line(words, 500))
            link.log(one_line(words, 500))

    try:
        async with (
            transport(link) as (incoming, outgoing),
            _Session(
                link,
                trace,
                dispatcher=(wire := _Mending(Watched(incoming, link.ended), outgoing)),
                sampling_callback=sample if link.answers.sample is not None else None,
                elicitation_callback=elicit if link.answers.elicit is not None else None,
                list_roots_callback=list_roots,
                message_handler=hear,
                extensions={EXTENSION: {}},
                result_claims=CLAIMS,
                client_info=types.Implementation(name="acp-coder", version=__version__),
            ) as session,
        ):
            await _greet(session, negotiates=link.spec.transport == "http")
            trace.status = None
            client = Client(link, session, urls, wire.odd)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.listen)
                try:
                    yield client
                finally:
                    tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise failure(first_failure(group), link, trace) from group
    except (MCPError, httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        raise failure(error, link, trace) from error
    if link.lost is not None:
        raise link.lost


async def _answered(
    link: Link, answer: Answer, params: types.RequestParams, kind: type[ResultT]
) -> ResultT | types.ErrorData:
    try:
        raw = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        return kind.model_validate(await answer(link.spec.name, raw))
    except McpError as error:
        code = types.INVALID_PARAMS if error.code == "invalid_input" else types.INVALID_REQUEST
        return types.ErrorData(code=code, message=str(error))


async def _greet(session: ClientSession, *, negotiates: bool) -> None:
    try:
        if negotiates:
            await negotiate_auto(session)
            return
        try:
            await session.initialize()
        except MCPError as error:
            try:
                await session.discover()
            except MCPError:
                raise error from None
    except RuntimeError as error:  # A version that the package does not know.
        raise McpError("server_error", str(error)) from error


# --- values -----------------------------------------------------------------------------------------------------------


def _json(model: types.Result) -> dict[str, Any]:
    data: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return data


def _clean(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a form JSON can carry: a model may write NaN and half a surrogate pair."""
    data = json.dumps(dict(arguments), ensure_ascii=False).encode("utf-8", "replace")
    cleaned: dict[str, Any] = json.loads(data, parse_constant=lambda _: None)
    return cleaned


def _bounded(text: str) -> str:
    return text if len(text) <= DESCRIPTION else f"{text[: DESCRIPTION - 1]}…"
