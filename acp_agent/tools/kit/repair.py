"""Repairs almost correct arguments from a model, once, before the failure is reported. Pure.

Only the form is repaired (the spelling of a name, JSON inside a string), never the meaning: missing values stay
missing, and ambiguous ones are rejected.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from acp_agent.limits.decoding import read_loose_json
from acp_agent.tools.kit.registry import plain_name

SYNONYMS: dict[str, tuple[str, ...]] = {
    "path": ("file_path", "filepath", "filename", "file", "target_file", "notebook_path", "directory", "dir", "folder"),
    "cell": ("cell_id",),
    "old_string": ("old_str", "old_text", "old", "search"),
    "new_string": ("new_str", "new_text", "new", "replacement", "replace", "content"),
    "content": ("contents", "text", "file_text", "data"),
    "source": ("src", "from", "source_path", "old_path", "path", "file", "file_path", "filename", "old_name", "old"),
    "destination": ("dst", "dest", "to", "target", "destination_path", "new_path", "new_name", "new", "name"),
    "command": ("cmd", "command_line", "commandline", "shell_command", "cmdline"),
    "pattern": ("regex", "glob_pattern", "query", "search_pattern"),
    "query": ("q", "search_query", "question"),
    "url": ("uri", "link", "address"),
    "glob": ("include", "file_pattern", "include_pattern"),
    "prompt": ("task", "instructions", "description"),
    "select": ("selector", "css", "css_selector"),
    "timeout": ("timeout_seconds", "timeout_secs"),
}
"""Parameter -> names used by other agents."""


METADATA = frozenset(
    "risk mutation privesc why approved requires_approval description explanation reason justification".split()
)
"""Parameters that other agents' tools have for describing a call. They do not change what the call does."""

DURATION = r"(?i)(\d+(?:\.\d+)?)\s*(s|sec|secs|seconds?|m|min|mins|minutes?|h|hours?)"


NOTHING = ("", "null", "None", None)
"""What models send for no arguments."""


def read_arguments(text: str) -> Any:
    """The model's arguments as an object or a string; their text if they are neither."""
    if text.strip() in NOTHING:
        return {}
    try:
        value = read_loose_json(text, strict=False)
        if isinstance(value, str) and value.lstrip()[:1] == "{":
            with suppress(ValueError):
                value = read_loose_json(value, strict=False)  # Encoded twice.
    except ValueError:
        return text
    if value in NOTHING:
        return {}
    return value if isinstance(value, dict | str) else text


def repair(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments in the form required by the object's JSON schema; `None` if nothing could be repaired."""
    properties = _properties(schema)
    repaired: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None and _is_optional(name, schema):
            continue  # Models trained on strict schemas send every parameter.
        if name in METADATA and name not in properties:
            continue
        if type(value) is int and value == 0 and _means_nothing(name, schema):
            continue
        known = name if name in properties else _known_name(name, properties, arguments)
        if known is None:
            repaired |= {} if value is None else {name: value}
        elif known in repaired:
            return None  # Two arguments for one parameter: it is unclear which is meant.
        else:
            repaired[known] = _in_type(value, properties[known])
    return repaired if repaired != arguments or list(repaired) != list(arguments) else None


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _is_optional(name: str, schema: dict[str, Any]) -> bool:
    """Whether `null` for that parameter is the same as leaving it out."""
    required, known = schema.get("required"), _properties(schema).get(name)
    return known is not None and not (isinstance(required, list) and name in required) and "null" not in _types(known)


def _means_nothing(name: str, schema: dict[str, Any]) -> bool:
    """Whether 0 for that parameter can only mean that nothing is wished: it is optional, and the least is above 0."""
    known = _properties(schema).get(name)
    if not isinstance(known, dict) or name in schema.get("required", ()):
        return False
    options = known["anyOf"] if isinstance(known.get("anyOf"), list) else [known]
    return any(isinstance(option, dict) and option.get("minimum", 0) > 0 for option in options)


def in_types(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The arguments with each value in the type that the schema wants there, as far as only its form is wrong."""
    properties = _properties(schema)
    return {
        name: _in_type(value, properties[name]) if name in properties else value
        for name, value in arguments.items()
        if value is not None or not _is_optional(name, schema)
    }


def _known_name(name: str, properties: dict[str, Any], arguments: dict[str, Any]) -> str | None:
    snake = plain_name(name)
    candidates = [snake, *(known for known, others in SYNONYMS.items() if snake in others)]
    found = [known for known in candidates if known in properties and known not in arguments]
    return found[0] if len(found) == 1 else None


def _in_type(value: Any, schema: dict[str, Any]) -> Any:
    wanted = _types(schema)
    if isinstance(value, str) and not wanted & {"string"}:
        text = value.strip()
        try:
            decoded = read_loose_json(text)
        except ValueError:
            lowered = text.lower()
            decoded = {"true": True, "yes": True, "false": False, "no": False, "none": None}.get(lowered, value)
        kinds = {_type_of(decoded)} | ({"number"} if isinstance(decoded, int) else set())
        if kinds & wanted:
            return decoded
        if wanted & {"number", "integer"} and (duration := re.fullmatch(DURATION, text)) is not None:
            seconds = float(duration[1]) * {"s": 1, "m": 60, "h": 3600}[duration[2][0].lower()]
            return int(seconds) if seconds.is_integer() else seconds
    if "array" in wanted and not isinstance(value, list) and "object" not in wanted and value is not None:
        return [value]
    return value


def _types(schema: Any) -> set[str]:
    """The types a schema allows; `string` if it does not say, so that nothing is decoded unnecessarily."""
    if not isinstance(schema, dict):  # JSON Schema allows `true` and `false`, too.
        return {"string"}
    if isinstance(schema.get("anyOf"), list):
        return {name for option in schema["anyOf"] for name in _types(option)}
    kind = schema.get("type")
    if isinstance(kind, list):
        return {name for name in kind if isinstance(name, str)}
    return {kind} if isinstance(kind, str) else {"string"}


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if value is None:
        return "null"
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "string"
