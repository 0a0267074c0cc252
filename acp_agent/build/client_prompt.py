"""The system prompt that a client gives a session, checked and redacted: the field `systemPrompt` of ACP.

It is checked before a session is made, closed or changed, so that a wrong one leaves all as it was. What is not
understood is an error, never read as something else. It decides nothing but what the model reads: tools, permissions,
modes and the trust of folders do not look at it. `loop/prompts` puts it into requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from acp_agent.build.own_credentials import of_session
from acp_agent.config.model import Settings
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import InvalidParams
from acp_agent.schema import acp
from acp_agent.store.base import ClientPrompt

MAX_BYTES = 256 * 1024
"""Of its text in UTF-8."""
MODES: dict[str, Literal["append", "override"]] = {"append": "append", "override": "override"}


def client_prompt(
    field: acp.SystemPrompt | None,
    meta: Mapping[str, Any] | None,
    mcp_servers: Sequence[acp.McpServer],
    settings: Settings,
    environ: Mapping[str, str],
) -> ClientPrompt | None:
    """What a request says of it: `field`, else what `_meta.systemPrompt` adds, a convention from before there was the
    field. Raises InvalidParams."""
    stated = _of_field(field) if field is not None else _of_meta(meta)
    if stated is None:
        return None
    if (size := len(stated.text.encode("utf-8", "replace"))) > MAX_BYTES:
        raise InvalidParams(f"Invalid params: $.systemPrompt: {size:,} bytes; at most {MAX_BYTES:,} are taken")
    values, secrets = of_session(settings, environ, mcp_servers), settings.secrets
    redactor = Redactor(values=values, extra_patterns=secrets.extra_patterns, enabled=secrets.redact)
    return ClientPrompt(stated.mode, redactor.redact(stated.text))


def _of_field(field: acp.SystemPrompt) -> ClientPrompt:
    if (mode := MODES.get(field.mode)) is None:
        words = f"{field.mode[:100]!r} is not known, only 'append' and 'override'"
        raise InvalidParams(f"Invalid params: $.systemPrompt.mode: {words}")
    texts = []
    for index, block in enumerate(field.content):
        if not isinstance(block, acp.TextContent):
            raise InvalidParams(f"Invalid params: $.systemPrompt.content[{index}]: only `text` is taken")
        texts.append(block.text.strip("\n"))
    text = "\n\n".join(text for text in texts if text.strip())
    if not text:
        raise InvalidParams("Invalid params: $.systemPrompt.content: it says nothing")
    return ClientPrompt(mode, text)


def _of_meta(meta: Mapping[str, Any] | None) -> ClientPrompt | None:
    """A string, or an object with `append`; anything else there is somebody else's."""
    given = (meta or {}).get("systemPrompt")
    text = given.get("append") if isinstance(given, dict) else given
    return ClientPrompt("append", text.strip("\n")) if isinstance(text, str) and text.strip() else None
