"""A tool's input schema as models' servers accept it: one that is not valid makes them refuse whole requests.

Whatever is not valid JSON Schema is left out at its place, so that the rest still describes the tool, as are references
to what is not there. Combinations at the top and boolean schemas of properties are written without them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acp_agent.mcp.content import one_line

TYPES = frozenset("string number integer boolean object array null".split())
ONE = frozenset(
    "items additionalProperties not if then else contains propertyNames unevaluatedItems unevaluatedProperties".split()
)
"""Keywords with a schema."""
MANY = frozenset("anyOf oneOf allOf prefixItems".split())
"""With a list of schemas."""
NAMED = frozenset("properties patternProperties $defs definitions dependentSchemas".split())
"""With schemas by name."""
COMBINED = ("allOf", "anyOf", "oneOf")


TEXTS = "title description format pattern $schema $id $anchor $comment".split()
SIZES = "minLength maxLength minItems maxItems minProperties maxProperties".split()
NUMBERS = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()
FLAGS = "uniqueItems deprecated readOnly writeOnly".split()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_type(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else _is_words(value) and bool(value) and set(value) <= TYPES


_RULES: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "required": _is_words,
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_is_words, value.values())),
    **dict.fromkeys(TEXTS, lambda value: isinstance(value, str)),
    **dict.fromkeys(SIZES, _is_size),
    **dict.fromkeys(NUMBERS, _is_number),
    **dict.fromkeys(FLAGS, lambda value: isinstance(value, bool)),
}


def fitted(schema: Any) -> tuple[dict[str, Any], list[str]]:
    """The schema of an object, and where in the given one something was not valid; a schema that is none accepts any
    arguments."""
    if not isinstance(schema, dict):
        said = "it is missing" if schema is None else f"it is not an object but {one_line(repr(schema), 40)}"
        return {"type": "object", "properties": {}, "additionalProperties": True}, [said]
    wrong: list[str] = []
    made = _at_top(_fitted(schema, (), schema, wrong))
    kind = made.get("type", "object")
    if kind != "object" and "object" not in kind:
        wrong.append("type")
    return {**made, "type": "object", "properties": made.get("properties", {})}, wrong


def _at_top(schema: dict[str, Any]) -> dict[str, Any]:
    """Without what models' servers do not accept at the top: its properties are still those of the combined schemas."""
    made = {key: value for key, value in schema.items() if key not in (*COMBINED, "enum", "not", "$ref")}
    parts = [_target(schema["$ref"], schema)] if "$ref" in schema else []
    parts += [part for key in COMBINED for part in schema.get(key, ())]
    for part in parts:
        found = _target(part.get("$ref"), schema) or part if isinstance(part, dict) else {}
        properties = found.get("properties") if isinstance(found, dict) else None
        if isinstance(properties, dict):
            made["properties"] = {**properties, **made.get("properties", {})}
    return made


def _fitted(schema: dict[str, Any], at: tuple[str, ...], top: dict[str, Any], wrong: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in schema.items():
        here = (*at, key)
        if key in NAMED and isinstance(value, dict):
            parts = {name: _part(each, (*here, name), top, wrong) for name, each in value.items()}
            left = {name: part for name, part in parts.items() if part is not False or key != "properties"}
            made[key] = {name: _written(part) for name, part in left.items()}
        elif key in MANY and isinstance(value, list) and value:
            made[key] = _list(value, here, top, wrong)
        elif key == "items" and isinstance(value, list):  # As earlier drafts write `prefixItems`.
            made |= {"prefixItems": _list(value, here, top, wrong)} if value else {}
        elif key in ONE and isinstance(value, dict | bool):
            made[key] = _part(value, here, top, wrong)
        elif key == "$ref" and _target(value, top) is not None:
            made[key] = value
        elif key in NAMED or key in MANY or key in ONE or key == "$ref" or not _RULES.get(key, lambda _: True)(value):
            wrong.append("/".join(here))
        else:
            made[key] = value
    return made


def _list(values: list[Any], at: tuple[str, ...], top: dict[str, Any], wrong: list[str]) -> list[Any]:
    return [_written(_part(each, (*at, str(number)), top, wrong)) for number, each in enumerate(values)]


def _written(part: dict[str, Any] | bool) -> dict[str, Any]:
    """A boolean schema as an object."""
    return part if isinstance(part, dict) else {} if part else {"not": {}}


def _part(value: Any, at: tuple[str, ...], top: dict[str, Any], wrong: list[str]) -> dict[str, Any] | bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _fitted(value, at, top, wrong)
    wrong.append("/".join(at))
    return {}


def _target(reference: Any, top: dict[str, Any]) -> Any:
    """What a reference to a part of the same schema means; `None` if there is nothing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = top
    for name in reference[1:].split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict | bool) and reference[1:2] in ("", "/") else None
