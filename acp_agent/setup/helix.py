"""Helix's `languages.toml`: adds the server, and its name after those of each language.

Comments and order are kept (tomlkit). A language's `language-servers` replaces Helix's own list, so that list is read
from Helix (`hx --health LANGUAGE`), or else taken from version 25.07.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import ParseError
from tomlkit.items import AoT, Array, Comment, Table

from acp_agent.errors import UsageError
from acp_agent.toml_table import toml_table

SERVER = "acp-coder"

OURS = "added by acp-coder setup"
"""Marks a list that was added for a language."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ANSWER_SECONDS = 5.0


@cache
def known() -> dict[str, tuple[str, ...]]:
    """Languages that the agent is offered in, with the servers that Helix 25.07 has for them."""
    return toml_table(__file__, dict[str, tuple[str, ...]])


Servers = Callable[[str], Sequence[str]]


def ask_helix(program: str) -> Servers:
    """Asks Helix for the servers of a language; falls back to the known list."""

    def servers(language: str) -> Sequence[str]:
        try:
            done = subprocess.run(
                [program, "--health", language],
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=ANSWER_SECONDS,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return known().get(language, ())
        lines = COLOURS.sub("", done.stdout).splitlines()
        if not lines or not lines[0].startswith("Configured language servers"):
            return known().get(language, ())
        names = []
        for line in lines[1:]:
            if not line.startswith("  "):
                break
            found = re.match(r"\s+\S+ ([\w.+-]+):", line)
            if found and found[1] != SERVER:
                names.append(found[1])
        return names

    return servers


def add(text: str, server: dict[str, Any], servers: Servers, file: str) -> str:
    """`text` with the server, behind the servers of each known language. Raises UsageError for what is not TOML."""
    document = _parsed(text, file)
    table = document.setdefault("language-server", tomlkit.table(is_super_table=True))
    table[SERVER] = _table(server)
    languages = document.get("language")
    if languages is None:
        languages = tomlkit.aot()
        document.append("language", languages)
    by_name = {str(item.get("name")): item for item in cast("list[Any]", languages)}
    for name in known():
        item = by_name.get(name)
        if item is None:
            item = tomlkit.table()
            item["name"] = name
            ours = tomlkit.array()
            ours.extend([*servers(name), SERVER])
            item["language-servers"] = ours.comment(OURS)
            languages.append(item)
        elif SERVER not in _names(names := item.get("language-servers")):
            if names is None:
                item["language-servers"] = [*servers(name), SERVER]
            else:
                names.append(SERVER)
    after = tomlkit.dumps(document)
    _parsed(after, file)
    return after


def remove(text: str, file: str) -> str:
    """`text` without the server, and without the languages that were added for it."""
    document = _parsed(text, file)
    if not _has_ours(document):
        return text
    if (table := document.get("language-server")) is not None:
        table.pop(SERVER, None)
        if not table:
            document.pop("language-server")
    languages = document.get("language")
    for item in list(languages or ()):
        names = item.get("language-servers")
        if SERVER not in _names(names):
            continue
        ours = OURS in names.trivia.comment and set(item) == {"name", "language-servers"}
        # What a user has written behind it counts as part of it.
        if ours and not any(isinstance(part, Comment) for _, part in item.value.body):
            cast("list[Any]", languages).remove(item)
        else:
            names.remove(next(name for name in names if _name(name) == SERVER))
    if languages is not None and not languages:
        document.pop("language")
    return tomlkit.dumps(document)


def _has_ours(document: tomlkit.TOMLDocument) -> bool:
    servers, languages = document.get("language-server"), document.get("language")
    named = [item.get("language-servers") for item in languages or () if isinstance(item, dict)]
    return SERVER in (servers or ()) or any(SERVER in _names(names) for names in named)


def _parsed(text: str, file: str) -> tomlkit.TOMLDocument:
    try:
        document = tomlkit.parse(text)
    except ParseError as error:
        raise UsageError(f"{file}: not valid TOML ({error}); fix it first, nothing was changed") from error
    servers, languages = document.get("language-server"), document.get("language")
    lists = (
        []
        if languages is None
        else [item.get("language-servers") for item in languages]
        if isinstance(languages, AoT)
        else [0]
    )
    if not isinstance(servers, Table | OutOfOrderTableProxy | None) or not all(
        isinstance(names, Array | None) for names in lists
    ):
        raise UsageError(
            f"{file}: only `[language-server.NAME]` and `[[language]]` with `language-servers = [...]` can be added "
            "to; nothing was changed"
        )
    return document


def _table(values: dict[str, Any]) -> Any:
    table = tomlkit.table()
    for name, value in values.items():
        table[name] = value
    return table


def _name(entry: Any) -> str:
    """A server is named by text, or by a table that also says for which features."""
    return str(entry.get("name")) if isinstance(entry, dict) else str(entry)


def _names(entries: Any) -> list[str]:
    return [_name(entry) for entry in entries or ()]
