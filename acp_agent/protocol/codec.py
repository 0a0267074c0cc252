"""Encodes and merges messages once msgspec is loaded: ACP's Structs as well as plain JSON data."""

from __future__ import annotations

from typing import Any

import msgspec

from acp_agent.protocol.peer import encode_json
from acp_agent.schema.acp import AgentMessageChunk, AgentThoughtChunk, SessionNotification, TextContent

_encoder = msgspec.json.Encoder()
_Chunk = AgentMessageChunk | AgentThoughtChunk

MAX_MERGED_CHARS = 64 * 1024
"""A merged text chunk does not grow beyond this, which keeps messages at a reasonable size."""


def encode(value: object) -> bytes:
    """`value` as JSON in UTF-8; text without a UTF-8 form (lone surrogates) is replaced, never refused."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return encode_json(msgspec.to_builtins(value))


def coalesce_updates(method: str, last: Any, new: Any) -> Any:
    """Merges two adjacent text chunks of one message into one `session/update`; `None` if they must stay separate."""
    if method != "session/update":
        return None
    if not isinstance(last, SessionNotification) or not isinstance(new, SessionNotification):
        return None
    if last.session_id != new.session_id or not _joinable(last.meta, new.meta):
        return None
    a, b = last.update, new.update
    if not isinstance(a, _Chunk) or not isinstance(b, _Chunk) or type(a) is not type(b):
        return None
    if a.message_id != b.message_id or a.meta != b.meta:
        return None
    one, two = a.content, b.content
    if not isinstance(one, TextContent) or not isinstance(two, TextContent):
        return None
    if one.annotations != two.annotations or one.meta != two.meta or len(one.text) + len(two.text) > MAX_MERGED_CHARS:
        return None
    text = TextContent(text=one.text + two.text, annotations=one.annotations, meta=one.meta)
    merged = type(a)(content=text, message_id=a.message_id, meta=a.meta)
    return SessionNotification(session_id=last.session_id, update=merged, meta=new.meta)


def _joinable(last: dict[str, Any] | None, new: dict[str, Any] | None) -> bool:
    """Places in the log are not the same; that of the later one counts."""
    return last == new or (last is not None and new is not None and last.keys() == new.keys() == {"seq"})
