"""What the server answers, held against its own OpenAPI document."""

import re
import socket
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import msgspec

from acp_agent.config.model import Settings
from acp_agent.fronts.server.app import Server
from acp_agent.fronts.server.identities import Identities


@cache
def server() -> Server:
    """One that serves nobody."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return Server(Settings(), {}, Identities(Path("/nowhere/tokens.json")), bound)


@cache
def document() -> Any:
    return msgspec.json.decode(msgspec.json.encode(server().document()))


def operation(method: str, path: str) -> dict[str, Any] | None:
    """`None`: nothing is at that address, or not by that method."""
    for template, methods in document()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", re.escape(template).replace(r"\{", "{").replace(r"\}", "}")), path):
            found: dict[str, Any] | None = methods.get(method.lower())
            return found
    return None


def check(method: str, path: str, status: int, kind: str, body: bytes) -> None:
    """Fails if the document does not say that this may be answered."""
    if (found := operation(method, path)) is None:
        assert status in (401, 403, 404, 405, 429), (method, path, status)
        return
    answer = found["responses"].get(str(status))
    assert answer is not None, f"{method} {path} is never answered {status}: {body[:500]!r}"
    if "$ref" in answer:
        answer = document()["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    contents = answer.get("content", {})
    if not contents:
        assert path == "/acp" or not body
        return
    written = {name.partition(";")[0]: content for name, content in contents.items()}
    content = written[kind.partition(";")[0]]
    if kind == "application/json":
        schema = {**content["schema"], "components": document()["components"]}
        jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(msgspec.json.decode(body))


async def _checked(answer: httpx2.Response) -> None:
    request = answer.request
    body = b"" if answer.headers.get("content-type", "").startswith("text/event-stream") else await answer.aread()
    check(request.method, request.url.path, answer.status_code, answer.headers.get("content-type", ""), body)


def checking(**more: Any) -> httpx2.AsyncClient:
    """A client that fails where an answer is not as the document has it."""
    return httpx2.AsyncClient(event_hooks={"response": [_checked]}, **more)
