"""What HTTP offers, in OpenAPI 3.1, for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from acp_agent import __version__
from acp_agent.fronts.server.operations import Operation, Problem, parameters

ABOUT = (
    "The sessions of a token's owner over HTTP. The agent itself is at `/acp`: bodies there are those of the Agent "
    "Client Protocol, which its own schema describes."
)
JSON = "application/json"
SCHEMAS = "#/components/schemas/{name}"
RESPONSES = {
    400: "What the address asks for is not within its bounds.",
    401: "There is no token, or it is a wrong one.",
    403: "`Host` or `Origin` is not allowed, or the token's scope does not include this.",
    429: "Too many wrong tokens came from this address.",
    503: "The server is stopping, or what is stored cannot be read now.",
}
"""That any operation may give. 400 only where something can be asked for; all but 403 only where a token is needed."""
LINK = {
    "Link": {
        "description": 'The address of the next page (`rel="next"`), if there is one.',
        "schema": {"type": "string"},
    }
}


def described(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole document."""
    types = list(dict.fromkeys((Problem, *(kind for each in operations for kind in (each.answer, each.other) if kind))))
    schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, of)
    refusals = {
        str(status): {"description": words, "content": {JSON: {"schema": of[Problem]}}}
        for status, words in RESPONSES.items()
    }
    refusals["401"]["headers"] = {"WWW-Authenticate": {"schema": {"const": "Bearer"}}}
    refusals["429"]["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "acp-coder serve", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": refusals,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(operation: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    about = " ".join((operation.words or operation.ask.__doc__ or "").split())
    summary, _, rest = about.partition(". ")
    name = "_".join(
        (operation.method.lower(), *operation.path.replace(".", "/").translate({123: "", 125: ""}).split("/"))
    )
    return {
        "operationId": name.replace("__", "_").strip("_"),
        "summary": summary.removesuffix("."),
        **({"description": rest} if rest else {}),
        "security": [{"token": [operation.scope]}] if operation.scope is not None else [],
        "parameters": list(_parameters(operation)),
        "responses": _responses(operation, of),
    }


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    schemas, required = parameters(operation.asked)
    for name, schema in schemas.items():
        where = "path" if f"{{{name}}}" in operation.path else "query"
        about = schema.pop("description", "")
        told = {"description": about} if about else {}
        yield {"name": name, "in": where, "required": name in required, **told, "schema": schema}


def _responses(operation: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    common = {400} if parameters(operation.asked)[0] else set()
    common |= {403} if operation.scope is None else {401, 403, 429, 503}
    found: dict[str, Any] = {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(common)}
    for status, words in operation.others:
        found[str(status)] = {"description": words, **_content(operation.other, (), of)}
    usual = {"description": HTTPStatus(operation.status).phrase, **_content(operation.answer, operation.kinds, of)}
    if operation.paged:
        usual["headers"] = LINK
    return {str(operation.status): usual, **found}


def _content(kind: Any, texts: Iterable[str], of: dict[Any, Any]) -> dict[str, Any]:
    schemas = {JSON: of[kind]} if kind is not None else {name: {"type": "string"} for name in texts}
    return {"content": {name: {"schema": schema} for name, schema in schemas.items()}} if schemas else {}
