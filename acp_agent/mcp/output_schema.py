"""Checks structured content against a tool's output schema. Both are a server's, so the check is bounded.

It runs in a thread: a schema may be costly. Patterns are not checked: a server could hang us with one.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.to_thread

from acp_agent.lazy import load
from acp_agent.mcp.content import one_line

LIMIT = 2.0
"""Seconds that a check may take."""
LARGEST = 200_000
"""Bytes of schema and content together; more is not checked."""

VALIDATOR_FOR = "jsonschema.validators:validator_for"
REGISTRY = "referencing:Registry"
BEST = "jsonschema.exceptions:best_match"
NOT_ONE = "jsonschema.exceptions:SchemaError"
UNRESOLVED = "referencing.exceptions:Unresolvable"


async def violation(schema: dict[str, Any], value: Any) -> str:
    """What of the content is not as the schema says; empty if nothing is, or if it cannot be checked."""
    if len(json.dumps(schema)) + len(json.dumps(value)) > LARGEST:
        return ""
    with anyio.move_on_after(LIMIT):
        return await anyio.to_thread.run_sync(_violation, _without_patterns(schema), value, abandon_on_cancel=True)
    return ""


def _violation(schema: dict[str, Any], value: Any) -> str:
    try:
        kind = load(VALIDATOR_FOR)(schema)
        kind.check_schema(schema)
        # The empty registry: references lead to the schema itself, never to the network.
        found = load(BEST)(kind(schema, registry=load(REGISTRY)()).iter_errors(value))
    except ArithmeticError:  # Of a number too large for a division.
        return ""
    except (load(NOT_ONE), load(UNRESOLVED), RecursionError, TypeError, ValueError) as error:
        return f"the schema is not valid: {one_line(str(error), 200)}"
    if found is None:
        return ""
    where = "/".join(str(part) for part in found.absolute_path)
    return one_line(f"{f'{where}: ' if where else ''}{found.message}", 300)


def _without_patterns(schema: Any) -> Any:
    match schema:
        case {"patternProperties": {}}:  # What is left of it would say something else.
            return {}
        case dict():
            return {
                key: value if key in ("const", "enum") else _without_patterns(value)
                for key, value in schema.items()
                if key != "pattern" or not isinstance(value, str)
            }
        case list():
            return [_without_patterns(each) for each in schema]
    return schema
