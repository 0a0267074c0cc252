"""Tables `[mcp.servers.NAME]` of the user's configuration file; comments and order are kept (tomlkit)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from acp_agent.errors import UsageError
from acp_agent.limits.decoding import read_toml


def with_server(text: str, name: str, values: Mapping[str, Any], file: str) -> str:
    """`text` with the server. Raises UsageError for what cannot be edited."""
    document = _parsed(text, file)
    table = tomlkit.table()
    for key, value in values.items():
        table[key] = tomlkit.item(value) if not isinstance(value, Mapping) else _inline(value)
    try:
        servers = document.setdefault("mcp", tomlkit.table(is_super_table=True))
        servers.setdefault("servers", tomlkit.table(is_super_table=True))[name] = table
    except (TOMLKitError, TypeError, ValueError, AttributeError) as error:
        raise _unfit(file) from error
    wanted = read_toml(text)
    wanted.setdefault("mcp", {}).setdefault("servers", {})[name] = dict(values)
    return _checked(document, wanted, file)


def with_key(text: str, name: str, value: str, file: str) -> str:
    """`text` with the dotted key set; what is no TOML is a text. Raises UsageError for what cannot be edited."""
    try:
        wanted: Any = read_toml(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        wanted = value
    document, after = _parsed(text, file), read_toml(text)
    *tables, last = name.split(".")
    shown: Any = document
    inside: Any = after
    try:
        for table in tables:
            shown = shown.setdefault(table, tomlkit.table(is_super_table=table != tables[-1]))
            inside = inside.setdefault(table, {})
        shown[last] = inside[last] = wanted
    except (TOMLKitError, TypeError, ValueError, AttributeError) as error:
        raise _unfit(file) from error
    return _checked(document, after, file)


def without_server(text: str, name: str, file: str) -> str:
    """`text` without the server, which it has. Raises UsageError for what cannot be edited."""
    document = _parsed(text, file)
    wanted = read_toml(text)
    del wanted["mcp"]["servers"][name]
    try:
        document["mcp"]["servers"].pop(name)
    except (TOMLKitError, TypeError, ValueError, AttributeError) as error:
        raise _unfit(file) from error
    return _checked(document, wanted, file)


def _inline(values: Mapping[str, str]) -> Any:
    table = tomlkit.inline_table()
    table.update(values)
    return table


def _parsed(text: str, file: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"{file}: not valid TOML ({error}); fix it first, nothing was changed") from error


def _checked(document: tomlkit.TOMLDocument, wanted: dict[str, Any], file: str) -> str:
    """The text of a document that says what is wanted and nothing else."""
    after = tomlkit.dumps(document)
    try:
        same = _full(read_toml(after)) == _full(wanted)
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise _unfit(file)
    return after


def _full(values: dict[str, Any]) -> dict[str, Any]:
    """Without empty tables, which say nothing."""
    mcp = {key: value for key, value in values.get("mcp", {}).items() if value != {} or key != "servers"}
    return {**{key: value for key, value in values.items() if key != "mcp"}, **({"mcp": mcp} if mcp else {})}


def _unfit(file: str) -> UsageError:
    return UsageError(f"{file}: its `mcp` tables are written in a way that cannot be edited here; nothing was changed")
