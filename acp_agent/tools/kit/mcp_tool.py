"""Wraps an MCP server's tool as one of ours.

Its parameters are the server's own JSON schema, forwarded to the model; the server validates the arguments. Structured
content that is not as the server's output schema says is passed on, and the model is told. A server's
claims about a tool (such as being read-only) are not trusted: each call needs permission.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, Terminal, TerminalView
from acp_agent.llm.base import ImagePart
from acp_agent.mcp.base import TOOL_CATEGORIES, McpError, McpResult, McpTool, Progress
from acp_agent.mcp.content import one_line, readable
from acp_agent.mcp.names import unique_names
from acp_agent.mcp.output_schema import violation
from acp_agent.safety.access import Access, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, ImageContent, ResourceLink, TextContent, ToolCallContent
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.failures import wrong_arguments
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.repair import in_types
from acp_agent.tools.kit.tool_context import CallHandle, Description, Preview, ToolContext, ToolResult, left_running

if TYPE_CHECKING:
    from acp_agent.mcp.mcp_servers import ServerCall

LARGEST_SCHEMA = 32 * 1024
"""Maximum size of a schema passed on."""
LONGEST_TITLE = 120
LONGEST_PREVIEW = 20_000
"""Characters of the arguments shown with the question."""
SHOWN = 40
"""Characters of an argument in a title."""

KEPT_LINES = 20
"""Lines of progress that are output of a call in the background while it lasts."""

LOOKS = "bash_output"
"""The tool that shows a call in the background."""

StartCall = Callable[[str, str, Mapping[str, Any], Progress], Awaitable["ServerCall[McpResult]"]]
"""`McpServers.start`: server, tool, arguments, progress."""
Limits = tuple[float, float]
"""Seconds after which a call goes on in the background (0: never), and after which it is given up."""


class ServerParams(Params):
    """Any object: the schema is the server's."""

    arguments: dict[str, Any]


class ServerTool(Tool[ServerParams]):
    """Created for one tool of one server; `name` is its name for the model."""

    kind = "other"

    def __init__(self, name: str, tool: McpTool, start: StartCall, limits: Limits) -> None:
        self.name = name  # type: ignore[misc]  # a class for each tool would say the same in more words
        self._tool = tool
        self._start = start
        self._limits = limits
        self._server_words = one_line(tool.server, 60)
        self._tool_words = one_line(tool.name, 60)

    def parse(self, arguments: dict[str, Any]) -> ServerParams:
        """Accepts any arguments that include the names required by the schema; values whose form alone is wrong are
        mended."""
        arguments = in_types(arguments, self._tool.parameters)
        required = self._tool.parameters.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        missing = [name for name in names if name not in arguments]
        if missing:
            lines = "\n".join(f"- {name}: is required" for name in missing)
            properties = self._tool.parameters.get("properties")
            known = ", ".join(f"`{name}`" for name in (properties if isinstance(properties, dict) else names))
            raise wrong_arguments(f"The arguments of `{self.name}` are wrong:\n{lines}\nIts parameters are {known}.")
        return ServerParams.model_construct(arguments=arguments)

    def describe(self, params: ServerParams, roots: Roots) -> Description:
        shown = ", ".join(f"{name}={_short(value)}" for name, value in params.arguments.items())
        words = f"{self._server_words}: {self._tool_words}" + (f" ({shown})" if shown else "")
        return Description(one_line(words, LONGEST_TITLE))

    def access(self, params: ServerParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        # Quoted, so that no server's name can look like another's followed by a tool.
        scope = f"mcp {quote(self._tool.server, safe='', errors='replace')} {quote(self._tool.name, errors='replace')}"
        words = f"calls of `{self._tool_words}` of the server {self._server_words}"
        return [ToolAccess(scope=scope, words=words, changes=True, of=self._tool.of)]

    async def preview(self, params: ServerParams, ctx: ToolContext) -> Preview:
        if not params.arguments:
            return Preview()
        shown = ctx.redactor.redact(json.dumps(params.arguments, indent=2, ensure_ascii=False))
        if (more := len(shown) - LONGEST_PREVIEW) > 0:
            shown = f"{shown[:LONGEST_PREVIEW]}\n[... {more} more characters]"
        return Preview((Content(content=TextContent(text=f"```json\n{shown}\n```")),))

    async def run(self, params: ServerParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        (after, limit), waited = self._limits, 0.0
        progress = _Progress(ctx.call)
        try:
            call = await self._start(self._tool.server, self._tool.name, params.arguments, progress.say)
            try:
                if after and after < limit and not await call.over(after):
                    waited = after
                    if (going_on := self._to_background(params, ctx, call, progress, after)) is not None:
                        return going_on
                result = await call.result(limit - waited, waited)
            finally:
                if progress.lines is None:
                    call.cancel()
        except McpError as error:
            raise ToolError(
                self._failed(error),
                TOOL_CATEGORIES[error.code],
                suggestion="Call it again: the server is being restarted." if error.code == "transient" else "",
                retry_after=error.retry_after,
            ) from error
        text = await self._text(result)
        return ToolResult(
            text,
            content=_content(text, result) if result.parts or result.links else None,
            parts=tuple(ImagePart(part.mime_type, part.data) for part in result.parts),
            raw_output=result.structured,
            failed=result.is_error,
        )

    def _to_background(
        self, params: ServerParams, ctx: ToolContext, call: ServerCall[McpResult], progress: _Progress, after: float
    ) -> ToolResult | None:
        """`None`: it has to be waited for, since too many are in the background or the caller could not look at it."""
        if all(entry.name != LOOKS for entry in ctx.offer.sent()):
            return None
        words = f"MCP call {self.describe(params, ctx.roots).title}"
        process = _Process(self, call, progress)
        try:
            run_id = ctx.call.to_background(process, Command(words, ctx.roots.cwd, confined=False))
        except ToolError:
            return None
        progress.lines = deque(maxlen=KEPT_LINES)
        return left_running(run_id, waited=after)

    def _failed(self, error: McpError) -> str:
        return f"The tool `{self._tool_words}` of the MCP server {self._server_words} failed: {error}."

    async def _text(self, result: McpResult) -> str:
        text = result.text or ("" if result.parts else "The tool returned nothing.")
        if self._tool.output is not None and result.structured is not None and not result.is_error:
            wrong = await violation(self._tool.output, result.structured)
            text += f"\n[The structured content is not as the tool's output schema says: {wrong}]" if wrong else ""
        return text

    async def ended(self, call: ServerCall[McpResult]) -> tuple[str, int]:
        """The text of a call in the background, once it has ended, and 0, or 1 if it failed."""
        try:
            result = await call.result(float("inf"))
        except McpError as error:
            return self._failed(error), 1
        images = "\n[an image is not shown: the call went on in the background]" * len(result.parts)
        return f"{await self._text(result)}{images}".strip(), int(result.is_error)


class _Progress:
    """Shows how far a call is: in its card, and once it is in the background, as its output."""

    def __init__(self, call: CallHandle) -> None:
        self._call = call
        self.lines: deque[str] | None = None
        """The last ones, once it is in the background."""

    def say(self, line: str) -> None:
        if self.lines is None:
            self._call.say(line)
        else:
            self.lines.append(f"{line}\n")
            self._call.show(OutputChunk("stdout", f"{line}\n"))


class _Process:
    """Implements `Process` by a call that goes on in the background: it prints its progress, and then what it
    returned."""

    view: TerminalView | None = None
    terminal: Terminal | None = None
    remark = stderr = lost = ""
    truncated = False

    def __init__(self, tool: ServerTool, call: ServerCall[McpResult], progress: _Progress) -> None:
        self._tool = tool
        self._call = call
        self._progress = progress
        self._ended: tuple[str, int] | None = None

    async def output(self) -> AsyncIterator[OutputChunk]:
        await self.wait()
        yield OutputChunk("stdout", self.combined)

    async def wait(self) -> ExitStatus:
        if self._ended is None:
            self._ended = await self._tool.ended(self._call)
        return ExitStatus(self._ended[1])

    async def look(self) -> None: ...

    async def kill(self) -> None:
        self._call.cancel()

    close = kill

    @property
    def combined(self) -> str:
        return self._ended[0] if self._ended is not None else "".join(self._progress.lines or ())

    stdout = combined


def server_tools(tools: Iterable[McpTool], start: StartCall, limits: Limits) -> list[tuple[ToolEntry, ServerTool]]:
    """Returns the registry's entries for the tools of servers, each with the tool itself."""
    known = {(tool.server, tool.name): tool for tool in tools}
    names = unique_names(known)
    return [(_entry(names[pair], tool), ServerTool(names[pair], tool, start, limits)) for pair, tool in known.items()]


def _entry(name: str, tool: McpTool) -> ToolEntry:
    parameters, note = _parameters(tool.parameters)
    title = f"{tool.title}. " if tool.title else ""
    origin = f"(Tool `{one_line(tool.name, 60)}` of the MCP server {one_line(tool.server, 60)}.)"
    description = "\n".join(part for part in (readable(f"{title}{tool.description}").strip(), note, origin) if part)
    return ToolEntry(
        name=name,
        aliases=(),
        kind="other",
        reads_only=False,
        description=description,
        parameters=parameters,
        idempotent=False,
        core=False,
    )


def _parameters(schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The schema if a model's server will accept it, else an open object and a note about it."""
    size = len(json.dumps(schema).encode())
    if size > LARGEST_SCHEMA:
        names = schema.get("properties")
        words = one_line(", ".join(names), 1000) if isinstance(names, dict) else "unknown"
        note = f"(Its schema of {size} bytes is too large to be shown. Its parameters: {words}.)"
        return {"type": "object", "properties": {}, "additionalProperties": True}, note
    made = {**schema, "type": "object"}
    if not isinstance(made.get("properties"), dict):
        made["properties"] = {}
    return made, ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, SHOWN)


def _content(text: str, result: McpResult) -> tuple[ToolCallContent, ...]:
    shown: list[ToolCallContent] = [Content(content=TextContent(text=text))] if text else []
    shown += [Content(content=ImageContent(data=part.data, mime_type=part.mime_type)) for part in result.parts]
    shown += [
        Content(
            content=ResourceLink(
                uri=link.uri,
                name=link.name,
                title=link.title or None,
                description=link.description or None,
                mime_type=link.mime_type or None,
            )
        )
        for link in result.links
    ]
    return tuple(shown)
