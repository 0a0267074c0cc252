"""What is in a plugin: Agent Plugins 1.0.0 (https://agent-plugins.org) and Claude Code's plugins, from its files. Pure.

What is wrong with a part of it is said with its file, and the rest goes on. A manifest that is wrong is a PluginError.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.config.safety_settings import DecidingHook, HookEvent, divided
from acp_agent.limits.decoding import read_loose_json
from acp_agent.plugins.contained import Files, PluginError

SCHEMAS = "https://agent-plugins.org/schemas/1.0.0/"
SCHEMA = re.compile(r"https://agent-plugins\.org/schemas/(1\.\d+\.\d+)/(plugin|mcp)\.schema\.json")
MANIFEST, CLAUDE_MANIFEST = "plugin.json", ".claude-plugin/plugin.json"
FIELDS: dict[str, type] = {
    "$schema": str,
    "name": str,
    "version": str,
    "description": str,
    "author": dict,
    "homepage": str,
    "repository": str,
    "license": str,
    "keywords": list,
    "extensions": dict,
}
"""Of `plugin.json` by Agent Plugins, section 5.2."""
NAME = re.compile(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]{0,62}[a-z0-9])?")
SERVER_NAME = re.compile(r"[\w.-]{1,64}")
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
ROOT, DATA, CLAUDE_ROOT = "${PLUGIN_ROOT}", "${PLUGIN_DATA}", "${CLAUDE_PLUGIN_ROOT}"
RESERVED = frozenset(("PLUGIN_ROOT", "PLUGIN_DATA"))


class Plugin(Struct, frozen=True):
    """As it is written: placeholders for its folder stand in `hooks` and `servers`."""

    name: str
    version: str = ""
    description: str = ""
    skills: dict[str, str] = {}
    """Name -> path of its SKILL.md."""
    commands: dict[str, str] = {}
    """Path below its folder of commands -> text."""
    agents: dict[str, str] = {}
    hooks: tuple[DecidingHook, ...] = ()
    servers: dict[str, McpServerConfig] = {}
    trouble: tuple[str, ...] = ()
    """What of it is not used, and why."""


def read_plugin(files: Files) -> Plugin:
    """Raises PluginError for what is no plugin."""
    trouble = [f"{path}: leads out of the plugin and is left out" for path in files.links]
    portable = MANIFEST in files and _is_portable(files)
    if portable:
        facts = _portable(files, trouble)
    elif CLAUDE_MANIFEST in files or MANIFEST not in files:
        facts = _claude(files)
    else:
        raise PluginError(f"{MANIFEST}: `$schema` is not {SCHEMAS}plugin.schema.json.")
    claude = _object(files, CLAUDE_MANIFEST) if CLAUDE_MANIFEST in files else {}
    reader = _Reader(files, claude, trouble)
    servers = reader.portable_servers() if portable else reader.claude_servers()
    return Plugin(
        facts["name"],
        facts.get("version", ""),
        facts.get("description", ""),
        dict(reader.skills(portable)),
        reader.markdown("commands"),
        reader.markdown("agents"),
        tuple(reader.hooks(facts["name"])),
        servers,
        tuple(trouble),
    )


def read_hooks(data: bytes, where: str, name: str) -> tuple[list[DecidingHook], list[str]]:
    """The hooks of a `settings.json` of Claude Code, named after `name`, and what is wrong with others."""
    files, trouble = Files({where: data}, frozenset(), ()), list[str]()
    try:
        table = _object(files, where).get("hooks", {})
    except PluginError as error:
        return [], [str(error)]
    return list(_Reader(files, {}, trouble)._hooks_in({"hooks": table}, where, name)), trouble


def expanded(text: str, root: str, data: str) -> str:
    """With the plugin's folders in the places for them. What is put in is not looked at again."""
    places = {ROOT: root, DATA: data, CLAUDE_ROOT: root}
    return re.sub("|".join(map(re.escape, places)), lambda match: places[match[0]], text)


def _is_portable(files: Files) -> bool:
    facts = _object(files, MANIFEST)
    return CLAUDE_MANIFEST not in files or str(facts.get("$schema", "")).startswith("https://agent-plugins.org/")


def _object(files: Files, path: str) -> dict[str, Any]:
    try:
        value = read_loose_json(files[path])
    except ValueError as error:
        raise PluginError(f"{path}: not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise PluginError(f"{path}: not an object.")
    return value


def _version(facts: Mapping[str, Any], kind: str) -> str | None:
    """The later version of the format that a file names, empty for 1.0.0; `None` if it is another format."""
    found = SCHEMA.fullmatch(str(facts.get("$schema", "")))
    if found is None or found[2] != kind:
        return None
    return "" if found[1] == "1.0.0" else found[1]


def _portable(files: Files, trouble: list[str]) -> dict[str, Any]:
    facts = _object(files, MANIFEST)
    if (version := _version(facts, "plugin")) is None:
        raise PluginError(f"{MANIFEST}: this version of Agent Plugins is not supported: {facts.get('$schema')!r}.")
    if version:
        trouble.append(f"{MANIFEST}: it is of Agent Plugins {version}, of which what 1.0.0 has is used")
    for name in [name for name in facts if name not in FIELDS]:
        trouble.append(f"{MANIFEST}: `{name}` is no field of it and is ignored")
    if not isinstance(facts.get("extensions", {}), dict):
        trouble.append(f"{MANIFEST}: `extensions` is not an object and is ignored")
        del facts["extensions"]
    for name, kind in FIELDS.items():
        if name in facts and not isinstance(facts[name], kind):
            raise PluginError(f"{MANIFEST}: `{name}` has the wrong type.")
    if not all(isinstance(word, str) for word in facts.get("keywords", ())):
        raise PluginError(f"{MANIFEST}: `keywords` are texts.")
    author = facts.get("author", {})
    if author.keys() - {"name", "email", "url"} or not all(isinstance(value, str) for value in author.values()):
        raise PluginError(f"{MANIFEST}: `author` has `name`, `email` and `url`, which are texts.")
    return _named(facts, MANIFEST)


def _claude(files: Files) -> dict[str, Any]:
    if CLAUDE_MANIFEST not in files:
        raise PluginError(f"There is neither {MANIFEST} nor {CLAUDE_MANIFEST} in it.")
    facts = _object(files, CLAUDE_MANIFEST)
    for name in ("version", "description"):
        if not isinstance(facts.get(name, ""), str):
            raise PluginError(f"{CLAUDE_MANIFEST}: `{name}` is not text.")
    return _named(facts, CLAUDE_MANIFEST)


def _named(facts: dict[str, Any], path: str) -> dict[str, Any]:
    name = facts.get("name")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        words = (
            "`name` has 1 to 64 of a-z, 0-9, `-` and `.`, begins and ends with one of the former, without `--` and `..`"
        )
        raise PluginError(f"{path}: {words}.")
    return facts


class _Reader:
    """`claude`: the other manifest, which may name further places."""

    def __init__(self, files: Files, claude: Mapping[str, Any], trouble: list[str]) -> None:
        self._files = files
        self._claude = claude
        self._trouble = trouble

    def _places(self, key: str, usual: str) -> list[str]:
        """Where a kind of component is: the usual place, and those that the manifest of Claude Code names."""
        named = self._claude.get(key)
        listed = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        found = [usual]
        for place in listed:
            path = self._inside(place)
            if path is None:
                self._trouble.append(f"{CLAUDE_MANIFEST}: `{key}`: {place!r} is no path in the plugin and is ignored")
            else:
                found.append(path)
        return list(dict.fromkeys(found))

    def _inside(self, place: object) -> str | None:
        if not isinstance(place, str) or not place.startswith("./"):
            return None
        path = posixpath.normpath(place)
        return None if path.startswith("..") else path

    def skills(self, portable: bool) -> Iterator[tuple[str, str]]:
        places = ["skills"] if portable else self._places("skills", "skills")
        for place in places:
            for path in self._files.below(place, "/SKILL.md"):
                name = path.removesuffix("/SKILL.md")
                if "/" not in name:
                    yield name, f"{place}/{path}"

    def markdown(self, kind: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for place in self._places(kind, kind):
            if place.endswith(".md"):
                text = self._files.text(place)
                found |= {} if text is None else {posixpath.basename(place): text}
                continue
            for path in self._files.below(place, ".md"):
                found.setdefault(path, self._files.text(f"{place}/{path}") or "")
        return found

    # --- hooks ------------------------------------------------------------------------------------------------

    def hooks(self, plugin: str) -> Iterator[DecidingHook]:
        inline = self._claude.get("hooks")
        if isinstance(inline, dict):
            yield from self._hooks_in(inline, CLAUDE_MANIFEST, plugin)
        for path in self._places("hooks", "hooks/hooks.json") if not isinstance(inline, dict) else ["hooks/hooks.json"]:
            if path in self._files:
                try:
                    yield from self._hooks_in(_object(self._files, path), path, plugin)
                except PluginError as error:
                    self._trouble.append(str(error).rstrip("."))

    def _hooks_in(self, value: Mapping[str, Any], where: str, plugin: str) -> Iterator[DecidingHook]:
        table = value.get("hooks", value)
        for event, groups in table.items() if isinstance(table, dict) else ():
            if event not in get_args(HookEvent):
                self._trouble.append(f"{where}: the event {event!r} is not supported")
                continue
            for group in groups if isinstance(groups, list) else [None]:
                facts = group if isinstance(group, dict) else {}
                entries, matcher = facts.get("hooks"), facts.get("matcher", "")
                if not isinstance(entries, list):
                    self._trouble.append(f"{where}: {event}: each entry has `hooks`, a list")
                    continue
                for number, entry in enumerate(entries, 1):
                    name = f"{plugin}: {event} {number}"
                    made = self._hook(event, matcher, entry, f"{where}: {event}", name)
                    if made is not None:
                        yield made

    def _hook(self, event: HookEvent, matcher: object, entry: object, where: str, name: str) -> DecidingHook | None:
        entry = entry if isinstance(entry, dict) else {}
        kind, condition = entry.get("type", "command"), entry.get("if")
        pattern = ""
        if kind not in ("command", "http"):
            self._trouble.append(f"{where}: hooks of type {kind!r} are not supported")
            return None
        if condition is not None:
            tool, named = divided(condition) if isinstance(condition, str) else ("", "")
            if not tool:
                self._trouble.append(f"{where}: `if` is not understood: {condition!r}; the hook is asked always")
            else:
                matcher, pattern = tool, "" if named == "*" else named
        wanted = {
            "event": event,
            "name": name,
            "matcher": matcher,
            "pattern": pattern,
            "timeout": entry.get("timeout", 60),
            "command": entry.get("command", "") if kind == "command" else "",
            "url": entry.get("url", "") if kind == "http" else "",
            "headers": entry.get("headers", {}) if kind == "http" else {},
        }
        try:
            return msgspec.convert(wanted, DecidingHook)
        except msgspec.ValidationError as error:
            self._trouble.append(f"{where}: {error}")
            return None

    # --- MCP servers ------------------------------------------------------------------------------------------

    def portable_servers(self) -> dict[str, McpServerConfig]:
        """By Agent Plugins, section 7.2."""
        if "mcp.json" not in self._files:
            return {}
        try:
            value = _object(self._files, "mcp.json")
        except PluginError as error:
            self._trouble.append(str(error).rstrip("."))
            return {}
        servers = value.get("mcpServers")
        if _version(value, "mcp") is None or value.keys() - {"$schema", "mcpServers"}:
            self._trouble.append(f"mcp.json: it has `$schema` ({SCHEMAS}mcp.schema.json) and `mcpServers` only")
            return {}
        if not isinstance(servers, dict):
            self._trouble.append("mcp.json: `mcpServers` is not an object")
            return {}
        return self._servers("mcp.json", servers, _portable_server)

    def _servers(
        self, where: str, servers: object, read: Callable[[str, object], McpServerConfig]
    ) -> dict[str, McpServerConfig]:
        """Those of a table that can be read; what is wrong with others is told."""
        found: dict[str, McpServerConfig] = {}
        for name, entry in servers.items() if isinstance(servers, dict) else ():
            try:
                found[name] = read(name, entry)
            except ValueError as error:
                self._trouble.append(f"{where}: {name}: {error}")
        return found

    def claude_servers(self) -> dict[str, McpServerConfig]:
        found: dict[str, McpServerConfig] = {}
        named = self._claude.get("mcpServers")
        tables: list[tuple[str, Any]] = [(CLAUDE_MANIFEST, named)] if isinstance(named, dict) else []
        for path in self._places("mcpServers", ".mcp.json") if not isinstance(named, dict) else [".mcp.json"]:
            if path in self._files:
                try:
                    value = _object(self._files, path)
                except PluginError as error:
                    self._trouble.append(str(error).rstrip("."))
                    continue
                tables.append((path, value.get("mcpServers", value)))
        for where, servers in tables:
            for name, server in self._servers(where, servers, claude_server).items():
                found.setdefault(name, server)
        return found


def claude_server(name: str, entry: object) -> McpServerConfig:
    """A server of `.mcp.json`. Raises ValueError, whose text says what is wrong."""
    _check_name(name)
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    kind = entry.get("type") or ("stdio" if entry.get("command") else "http")
    kinds = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}
    if kind not in kinds:
        raise ValueError(f"servers of type {kind!r} are not supported")
    wanted = {key: entry[key] for key in ("command", "args", "env", "url", "headers", "cwd") if key in entry}
    if isinstance(login := entry.get("oauth"), dict):
        names = {"clientId": "client_id", "callbackPort": "callback_port"}
        wanted |= {ours: login[theirs] for theirs, ours in names.items() if theirs in login}
    made = _converted({**wanted, "transport": kinds[kind]})
    if not (made.command if kind == "stdio" else made.url):
        raise ValueError("`command` is not set" if kind == "stdio" else "`url` is not set")
    return made


def _portable_server(name: str, entry: object) -> McpServerConfig:
    _check_name(name)
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    kind = entry.get("type")
    fields = {
        "stdio": {"command", "args", "env", "cwd"},
        "streamable-http": {"url", "headers"},
        "sse": {"url", "headers"},
    }
    if kind not in fields:
        raise ValueError(f"`type` is one of {', '.join(fields)}")
    if unknown := entry.keys() - fields[kind] - {"type"}:
        raise ValueError(f"`{sorted(unknown)[0]}` is no field of a server of type {kind}")
    if kind == "stdio":
        return _program(entry)
    made = _converted({**entry, "type": None, "transport": "http" if kind == "streamable-http" else "sse"})
    _check_url(made.url)
    names = [header.lower() for header in made.headers]
    if len(set(names)) < len(names) or not all(HEADER.fullmatch(header) for header in made.headers):
        raise ValueError("`headers` are not valid header fields, each once")
    if any(re.search(r"[\r\n\0]", value) for value in made.headers.values()):
        raise ValueError("the value of a header is not valid")
    return made


def _program(entry: Mapping[str, Any]) -> McpServerConfig:
    command, cwd = entry.get("command"), entry.get("cwd", ROOT)
    if not isinstance(command, str) or not command:
        raise ValueError("`command` is not set")
    if command.startswith("./"):
        if posixpath.normpath(command).startswith(".."):
            raise ValueError("`command` leads out of the plugin")
        command = f"{ROOT}/{posixpath.normpath(command)}"
    elif "/" in command or " " in command or "$" in command:
        raise ValueError("`command` is the name of a program, or a path that begins with ./")
    if not isinstance(cwd, str):
        raise ValueError("`cwd` is not text")
    base, _, rest = cwd.partition("/")
    base = ROOT if base == "." else base
    if base not in (ROOT, DATA) or posixpath.normpath(f"./{rest}").startswith(".."):
        raise ValueError(f"`cwd` is a path in the plugin (./, {ROOT}) or in {DATA}")
    if RESERVED & set(entry.get("env") or ()):
        raise ValueError("`env` sets PLUGIN_ROOT or PLUGIN_DATA")
    wanted = {key: entry[key] for key in ("args", "env") if key in entry}
    return _converted({**wanted, "command": command, "cwd": f"{base}/{rest}".rstrip("/"), "transport": "stdio"})


def _converted(wanted: Mapping[str, Any]) -> McpServerConfig:
    given = {key: value for key, value in wanted.items() if value is not None}
    try:
        return msgspec.convert(given, McpServerConfig)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _check_name(name: str) -> None:
    if SERVER_NAME.fullmatch(name) is None:
        raise ValueError("the name of a server has at most 64 letters, digits, `_`, `-` and `.`")


def _check_url(text: str) -> None:
    try:
        url = urlsplit(text)
        host, user = url.hostname, url.username
    except ValueError as error:
        raise ValueError(f"`url` is no URL: {error}") from error
    if not host or url.scheme not in ("http", "https") or user is not None or "#" in text:
        raise ValueError("`url` is an http or https URL without a user and without `#`")
    if url.scheme == "http" and not _is_here(host):
        raise ValueError("`url` is not https, and its host is not this machine")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
