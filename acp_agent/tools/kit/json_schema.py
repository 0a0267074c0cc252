"""The JSON schema of parameters, in the form models like."""

from __future__ import annotations

from typing import Any


def parameters_of(schema: dict[str, Any]) -> dict[str, Any]:
    """pydantic's schema with references inlined and without titles."""
    definitions = schema.pop("$defs", {})
    cleaned: dict[str, Any] = _cleaned(schema, definitions)
    cleaned.pop("description", None)
    if "properties" not in cleaned:
        cleaned["properties"] = {}
    return cleaned


def _cleaned(schema: Any, definitions: dict[str, Any], *, names: bool = False) -> Any:
    """`names`: the keys of `schema` are parameter names rather than JSON Schema keywords."""
    if isinstance(schema, list):
        return [_cleaned(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = definitions[schema["$ref"].removeprefix("#/$defs/")]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return {
        key: _cleaned(value, definitions, names=key == "properties" and not names)
        for key, value in schema.items()
        if names or key != "title"
    }
