"""`http_request`: make a request with any method, headers and body, and return the whole answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.safety.access import Access, NetworkAccess
from acp_agent.safety.deciding.network import NetworkPolicy, check_url
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.failures import classify_http_status
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.net.web_body import WebAnswer

LONGEST_PREVIEW = 20_000
"""Characters of a request shown with the question."""

READING = frozenset(("GET", "HEAD", "OPTIONS"))

NOT_YOURS = frozenset(
    """
    accept-encoding connection content-length expect host keep-alive proxy-authenticate proxy-authorization
    proxy-connection te trailer transfer-encoding upgrade
    """.split()
)
"""Headers that belong to the connection, not to the request."""

HARMLESS = frozenset(
    """
    accept accept-language cache-control content-type if-match if-modified-since if-none-match if-unmodified-since
    origin pragma range referer user-agent
    """.split()
)
"""Headers that reveal nothing about the user. Any other may be a key."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class HttpRequestParams(Params):
    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = Field(description="The method.")
    url: str = Field(description="The URL, beginning with https://.")
    headers: dict[str, str] | None = Field(default=None, description="Headers to send, by name.")
    body: str | dict[str, Any] | None = Field(
        default=None, description="What to send: a string as is; an object as JSON."
    )


class HttpRequest(Tool[HttpRequestParams]):
    name = "http_request"
    verbatim = True
    title = "{method} {url}"
    kind = "fetch"

    def access(self, params: HttpRequestParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        target = check_url(params.url, NetworkPolicy.from_config(config.web))
        _check_headers(params.headers or {})
        names = {name.lower() for name in params.headers or {}}
        sends = params.method not in READING or params.body is not None or not names <= HARMLESS
        return [NetworkAccess(target.authority, f"{params.method} {target.url}", sends)]

    async def preview(self, params: HttpRequestParams, ctx: ToolContext) -> Preview:
        """Shows the request as it will be sent, for the question."""
        headers = "".join(f"{name}: {value}\n" for name, value in (params.headers or {}).items())
        body = (_body(params) or b"").decode()
        shown = f"{params.method} {params.url}\n{headers}" + (f"\n{body}" if body else "")
        shown = ctx.redactor.redact(shown)
        if len(shown) > LONGEST_PREVIEW:
            shown = f"{shown[:LONGEST_PREVIEW]}\n[... {len(shown) - LONGEST_PREVIEW} more characters]"
        return Preview((Content(content=TextContent(text=f"```http\n{shown.rstrip()}\n```")),))

    async def run(self, params: HttpRequestParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        headers = dict(params.headers or {})
        _check_headers(headers)
        body = _body(params)
        if body is not None and "content-type" not in {name.lower() for name in headers}:
            headers["content-type"] = _type_of(params.body)
        answer = await ctx.web.client.request(params.method, params.url, headers=headers, body=body)
        return ToolResult(
            _words(answer),
            raw_output={"status": answer.status, "url": answer.url, "headers": dict(answer.headers)},
            failed=answer.status >= 400,
            error=_error(answer.status) if answer.status >= 400 else None,
        )


def _error(status: int) -> ToolError:
    return ToolError(f"the server answered with the status {status}", classify_http_status(status))


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if name.lower() in NOT_YOURS:
            raise ToolError(f"The header {name} is set by the connection. Leave it out.", "invalid_parameters")
        if _NAME.fullmatch(name) is None:
            raise ToolError(f"{name[:100]!a} is not a valid header name.", "invalid_parameters")
        if len(value) > 8192 or not all(char == "\t" or (char.isprintable() and char <= "\xff") for char in value):
            raise ToolError(
                f"The value of the header {name} contains line breaks or invalid characters, or is longer than 8192.",
                "invalid_parameters",
            )


def _body(params: HttpRequestParams) -> bytes | None:
    if params.body is None:
        return None
    text = params.body if isinstance(params.body, str) else json.dumps(params.body, ensure_ascii=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError("The body contains a lone surrogate.", "invalid_parameters") from error


def _type_of(body: object) -> str:
    if not isinstance(body, str):
        return "application/json"
    try:
        read_loose_json(body)
    except ValueError:
        return "text/plain; charset=utf-8"
    return "application/json"


def _words(answer: WebAnswer) -> str:
    lines = [f"{answer.status} {answer.url}"]
    if len(answer.hops) > 1:
        lines.append("(through " + " -> ".join(answer.hops[:-1]) + ")")
    lines += [f"{name}: {value}" for name, value in answer.headers[:60]]
    body = f"[{answer.content_type or 'binary data'}, not shown]" if answer.text is None else answer.text
    if answer.truncated:
        body += "\n[the response was too long; its end is missing]"
    return "\n".join(lines) + "\n\n" + body
