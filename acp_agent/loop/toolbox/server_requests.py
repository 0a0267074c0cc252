"""What MCP servers ask of the user (elicitation) and of the model (sampling).

The user sees each time which server asks and for what; no answer counts for the next time. A server gets the form or
the text that it asked for, never anything of the session.
"""

from __future__ import annotations

import base64
import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import msgspec

from acp_agent.config.credentials import McpLogins
from acp_agent.errors import AgentError, ConnectionClosed, InvalidParams, StoreError
from acp_agent.lazy import load
from acp_agent.llm.base import (
    AssistantMessage,
    Finished,
    ImagePart,
    Message,
    ModelSettings,
    TextDelta,
    TextPart,
    UserMessage,
)
from acp_agent.mcp.base import McpError
from acp_agent.mcp.content import one_line, read_content, readable
from acp_agent.schema import acp

if TYPE_CHECKING:
    from acp_agent.loop.journal import Journal
    from acp_agent.loop.model.ready_model import SessionModels
    from acp_agent.loop.session_state import SessionState

ASK = "acp_agent.loop.ask:ask_sampling"

LONGEST = 2_000
"""Characters of a server's question."""
LARGEST_PROMPT = 200_000
"""Characters of what a server asks the model."""
MOST_URLS = 100
"""Questions about URLs of which it is remembered that they are not done."""
MAX_TOKENS = 8_192
"""Most tokens of an answer for a server."""


class ServerRequests:
    """Of one session. The methods take and return MCP's JSON; they raise McpError."""

    def __init__(self, session: SessionState, models: SessionModels, journal: Journal, logins: McpLogins) -> None:
        self.logins = logins
        self._session = session
        self._models = models
        self._journal = journal
        self._one = anyio.Lock()
        """The user is asked about one thing of the servers at a time."""
        self._urls: dict[str, tuple[str, str]] = {}
        """Server and its own id of each question about a URL, by our id; that of a login is empty."""

    @property
    def asks_user(self) -> bool:
        """Whether the client can ask the user at all."""
        client = self._session.client
        return client.plan.forms or client.opens_urls

    async def show(self, server: str, url: str) -> None:
        """Has the user open the URL of a login; without waiting for the answer, which the browser gives."""
        client, words = self._session.client, f"Log in at the MCP server {one_line(server, 60)}."
        if client.opens_urls:
            answer = await self._ask_url(server, "", words, url)
            if answer.action != "accept":
                raise McpError("policy_blocked", "the user does not log in")
        else:
            self._session.outbox.say(f"{words} Open {url} in a browser on this machine.\n")

    async def _ask_url(self, server: str, theirs: str, words: str, url: str) -> acp.CreateElicitationResponse:
        ours = str(uuid.uuid4())
        self._urls[ours] = server, theirs
        answer = acp.CreateElicitationResponse(action="cancel")
        try:
            answer = await self._session.client.open_url(words, url, ours)
        finally:
            if answer.action != "accept":
                self._urls.pop(ours, None)
            elif len(self._urls) > MOST_URLS:
                del self._urls[next(iter(self._urls))]
        return answer

    def url_done(self, server: str, theirs: str) -> None:
        """The user has done at a URL what a server asked for."""
        for ours in [ours for ours, question in self._urls.items() if question == (server, theirs)]:
            del self._urls[ours]
            self._session.client.url_done(ours)

    async def elicit(self, server: str, params: dict[str, Any]) -> dict[str, Any]:
        client = self._session.client
        asks = readable(str(params.get("message", "")))
        asks = asks if len(asks) <= LONGEST else f"{asks[:LONGEST]}…"
        words = f"The MCP server {one_line(server, 60)} asks: {asks}"
        answer: acp.CreateElicitationResponse | None = None
        try:
            async with self._one:
                with anyio.move_on_after(self._session.config.settings.tools.ask_timeout):
                    if params.get("mode") == "url":
                        answer = await self._open(server, words, params)
                    elif client.plan.forms:
                        form = msgspec.convert(_titled(params.get("requestedSchema")), acp.ElicitationSchema)
                        answer = await client.elicit(words, form)
                    else:
                        return {"action": "decline"}
        except msgspec.ValidationError as error:
            raise McpError("invalid_input", f"the form cannot be shown: {error}") from error
        except AgentError as error:
            raise McpError("server_error", f"the user could not be asked: {error}") from error
        self._journal.notice(f"the MCP server {one_line(server, 60)} asked the user: {answer and answer.action}")
        if answer is None or answer.action not in ("accept", "decline"):
            return {"action": "cancel"}
        content = answer.content if answer.action == "accept" and params.get("mode") != "url" else None
        return {"action": answer.action, **({} if content is None else {"content": content})}

    async def _open(self, server: str, words: str, params: dict[str, Any]) -> acp.CreateElicitationResponse:
        url = str(params.get("url", ""))
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("https", "http") or not parts.hostname or not url.isprintable():
            raise McpError("invalid_input", "the URL is not one of http or https")
        if not self._session.client.opens_urls:
            return acp.CreateElicitationResponse(action="decline")
        return await self._ask_url(server, str(params.get("elicitationId", "")), words, url)

    async def sample(self, server: str, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session
        clean, name = session.outbox.clean, one_line(server, 60)
        system = clean(readable(str(params.get("systemPrompt") or "")))
        messages = [_message(each, clean) for each in params.get("messages", ())]
        shown = "\n\n".join([*([f"[system] {system}"] if system else []), *map(_shown, messages)])
        if not messages or len(shown) > LARGEST_PROMPT:
            raise McpError("invalid_input", f"a prompt has between 1 and {LARGEST_PROMPT} characters")
        try:
            async with self._one:
                allowed = await load(ASK)(
                    session.outbox,
                    name,
                    session.choices.shown(),
                    shown,
                    timeout=session.config.settings.tools.ask_timeout,
                )
            self._journal.notice(f"the MCP server {name} asked the model: {'allowed' if allowed else 'refused'}")
            if not allowed:
                raise McpError("policy_blocked", "the user does not let the model answer")
            model = await self._models.ready(session.choices.model)
            limit = min(int(params.get("maxTokens") or MAX_TOKENS), MAX_TOKENS)
            settings = ModelSettings(model.id, system=system, max_output_tokens=limit)
            said: list[str] = []
            stop = "endTurn"
            async with aclosing(model.stream(messages, (), settings)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        said.append(event.text)
                    elif isinstance(event, Finished) and event.reason == "length":
                        stop = "maxTokens"
        except ConnectionClosed as error:
            raise McpError("transient", "the session is closed") from error
        except (AgentError, StoreError, InvalidParams) as error:
            raise error if isinstance(error, McpError) else McpError("server_error", str(error)) from error
        finally:
            session.report_cost()
        content = {"type": "text", "text": "".join(said)}
        return {"role": "assistant", "content": content, "model": model.id, "stopReason": stop}


def _titled(schema: Any) -> Any:
    """A form with the titles of its choices where ACP has them; MCP had them in `enumNames` before 2025-11-25."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return schema
    made = {}
    for name, each in properties.items():
        values, titles = (each.get("enum"), each.get("enumNames")) if isinstance(each, dict) else (None, None)
        if isinstance(values, list) and isinstance(titles, list) and len(values) == len(titles):
            choices = [{"const": value, "title": title} for value, title in zip(values, titles, strict=True)]
            each = {**{key: value for key, value in each.items() if key != "enum"}, "oneOf": choices}
        made[name] = each
    return {**schema, "properties": made}


def _message(raw: dict[str, Any], clean: Any) -> Message:
    content = raw.get("content")
    text, images = read_content(content if isinstance(content, list) else [content or {}], LARGEST_PROMPT)
    if raw.get("role") == "assistant":
        return AssistantMessage(clean(text))
    parts = [ImagePart(image.mime_type, image.data) for image in images]
    return UserMessage((*([TextPart(clean(text))] if text else []), *parts))


def _shown(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return f"[assistant] {message.text}"
    parts = message.content
    return "\n".join(
        part.text if isinstance(part, TextPart) else f"[image, {len(base64.b64decode(part.data))} bytes]"
        for part in parts
        if isinstance(part, TextPart | ImagePart)
    )
