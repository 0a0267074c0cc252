"""A plugin for people: what runs and when, what it adds, and how two states of it differ. Pure."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator

from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.legible import legible
from acp_agent.plugins.contained import Files
from acp_agent.plugins.manifest import Plugin

CHARS = 4_000
"""Of a command line that is shown in a list."""


def described(plugin: Plugin, files: Files) -> Iterator[str]:
    """Lines. What runs programs comes first."""
    for line in _lines_about(plugin, files):
        yield legible(" ".join(line.split()))


def _lines_about(plugin: Plugin, files: Files) -> Iterator[str]:
    yield f"{plugin.name} {plugin.version}".strip() + (f": {plugin.description}" if plugin.description else "")
    yield f"digest: {files.digest}"
    if plugin.hooks or any(not server.url for server in plugin.servers.values()):
        yield "It runs programs with your privileges, outside the sandbox:"
        for hook in plugin.hooks:
            when = f"{hook.event}{f' {hook.matcher}' if hook.matcher not in ('', '*') else ''}"
            touching = f" touching {hook.pattern}" if hook.pattern else ""
            yield f"- at {when}{touching}: {_line(hook.command or hook.url)}"
        for name, server in plugin.servers.items():
            if not server.url:
                yield f"- in every session, as the MCP server {name}: {_line(_program(server))}"
    else:
        yield "It runs no programs of its own."
    for name, server in plugin.servers.items():
        if server.url:
            headers = "".join(f", {header}: {value}" for header, value in server.headers.items())
            yield f"It connects to the MCP server {name}: {server.url}{headers}"
    for what, names in (
        ("Commands", [f"/{plugin.name}:{path.removesuffix('.md').replace('/', ':')}" for path in plugin.commands]),
        ("Sub-agents", [f"@{plugin.name}:{path.removesuffix('.md')}" for path in plugin.agents]),
        ("Skills", [f"/{plugin.name}:{name}" for name in plugin.skills]),
    ):
        if names:
            yield f"{what}, whose text the model reads: {', '.join(names)}"
    for words in plugin.trouble:
        yield f"not used: {words}"
    yield f"Files ({len(files)}):"
    for path, data in files.items():
        yield f"- {path} ({len(data)} bytes{', can be run' if path in files.executable else ''})"


def _program(server: McpServerConfig) -> str:
    variables = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
    return " ".join([*variables, server.command, *(shlex.quote(word) for word in server.args)])


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CHARS else f"{line[:CHARS]}…"


def difference(old: Files, new: Files) -> Iterator[str]:
    """Lines of a unified diff; of binary files their sizes."""
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        modes = [path in files.executable for files in (old, new)]
        if before == after and modes[0] == modes[1]:
            continue
        if before is not None and after is not None and modes[0] != modes[1]:
            yield f"{legible(path)}: can {'now' if modes[1] else 'no longer'} be run"
        texts = [_lines(data) for data in (before, after)]
        if None in texts:
            sizes = [0 if data is None else len(data) for data in (before, after)]
            yield f"{legible(path)}: {sizes[0]} bytes became {sizes[1]} bytes (binary)"
            continue
        one, other = ("/dev/null" if data is None else legible(path) for data in (before, after))
        yield from map(legible, difflib.unified_diff(texts[0] or [], texts[1] or [], one, other, lineterm=""))


def _lines(data: bytes | None) -> list[str] | None:
    """`None` for what is no text."""
    try:
        return [] if data is None else data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
