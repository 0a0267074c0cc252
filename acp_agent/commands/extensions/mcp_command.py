"""`acp-coder mcp`: add, list, show and remove MCP servers of the user's configuration file, log in and out."""

from __future__ import annotations

import re
import shlex
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from msgspec.structs import replace

from acp_agent.build.own_credentials import outside, own_keys
from acp_agent.commands.config import config_here
from acp_agent.config.credentials import McpLogins
from acp_agent.config.load import Config, load_config
from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.config.safety_settings import OF_FOLDER
from acp_agent.config.xdg import config_file
from acp_agent.errors import UsageError
from acp_agent.loop.toolbox.session_plugins import SessionPlugins
from acp_agent.loop.toolbox.trust import has_plugins, trusted_files
from acp_agent.loop.toolbox.trusted_programs import programs_here
from acp_agent.mcp.base import Answers, KeeperSettings, ServerSpec, from_config, gather
from acp_agent.mcp.mcp_servers import McpServers, ServerState
from acp_agent.mcp.oauth import login
from acp_agent.opening import open_store
from acp_agent.plugins.installed import Shelf
from acp_agent.plugins.manifest import SERVER_NAME
from acp_agent.plugins.mcp_json import FILE, folder_servers
from acp_agent.safety.environment import safe_environment
from acp_agent.setup.change import read_text, replace_text
from acp_agent.setup.mcp_table import with_server, without_server

LOGIN_TIMEOUT = 600.0
HIDDEN = "(not shown)"


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """0; 1 where `list` finds a server that cannot be connected. Raises UsageError, ConfigError."""
    return VERBS[options.verb](options, environ)


def _add(options: Namespace, environ: Mapping[str, str]) -> int:
    name = options.name
    if SERVER_NAME.fullmatch(name) is None:
        raise UsageError("the name of a server has at most 64 letters, digits, `_`, `-` and `.`")
    file, text = _file(environ)
    if name in load_config(environ).settings.mcp.servers:
        raise UsageError(f"there is a server {name!r} already: `acp-coder mcp remove {name}` first")
    values = _values(options)
    from_config(name, McpServerConfig(**values))
    _write(file, with_server(text, name, values, str(file)))
    _line(f"{name} is in {file}, and used from the next session on. `acp-coder mcp list` tries it.")
    return 0


def _values(options: Namespace) -> dict[str, Any]:
    words = options.words
    if re.match(r"https?://", words[0]):
        if len(words) > 1:
            raise UsageError("nothing follows the URL of a server")
        found: dict[str, Any] = {"url": words[0], "headers": dict(_pairs(options.header, ":", "--header"))}
        if options.env or options.inherit or options.cwd or options.transport == "stdio":
            raise UsageError("--env, --inherit, --cwd and --transport=stdio are for servers that are programs")
    else:
        found = {"command": words[0], "args": words[1:], "env": dict(_pairs(options.env, "=", "--env"))}
        found |= {"inherit": options.inherit, "cwd": options.cwd}
        if options.header or options.transport in ("http", "sse"):
            raise UsageError("--header and --transport=http|sse are for servers with a URL")
    found |= {"transport": options.transport, "allow": options.allow, "deny": options.deny}
    return {key: value for key, value in found.items() if value}


def _pairs(words: list[str], between: str, option: str) -> Iterator[tuple[str, str]]:
    for word in words:
        name, found, value = word.partition(between)
        if not found or not name.strip():
            raise UsageError(f"{option}: {word!r} is not NAME{between}VALUE")
        yield name.strip(), value.strip()


def _list(options: Namespace, environ: Mapping[str, str]) -> int:
    cwd = Path.cwd()
    config = config_here(environ, cwd)
    inherited = _inherited(config, environ)
    known, trouble = _known(config, cwd, environ, inherited)
    specs, more = gather((), known)
    for words in [*trouble, *(words for _, words in more)]:
        _line(words)
    if not known:
        _line("There are no MCP servers. `acp-coder mcp add NAME -- COMMAND` or `acp-coder mcp add NAME URL` adds one.")
    store = open_store(config, environ)
    with closing(store), programs_here(cwd, store, Shelf(environ).is_whole) as programs:
        settings = KeeperSettings.of(
            config.settings.mcp,
            (cwd,),
            inherited,
            outside(config, environ),
            on_change=lambda: None,
            on_trouble=lambda name, words: None,
            answers=Answers(McpLogins(environ)),
            as_trusted=lambda spec: programs.server(known[spec.name].of, spec),
        )
        states = anyio.run(_tried, specs, settings)
    for state in states:
        counts = f"{state.tools} tools, {state.prompts} prompts" if state.state == "ready" else state.words
        _line(f"{state.name}  {state.state}  {counts}  {_place(known[state.name])}")
    for name, entry in known.items():
        if not entry.enabled:
            _line(f"{name}  not enabled  {_place(entry)}")
    return 1 if more or trouble or any(state.state != "ready" for state in states) else 0


async def _tried(specs: Sequence[ServerSpec], settings: KeeperSettings) -> tuple[ServerState, ...]:
    """What became of each server when it was connected."""
    servers = McpServers(specs, settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        try:
            await servers.settled()
            states = servers.states()
        finally:
            with anyio.CancelScope(shield=True):
                await servers.close()
    return states


def _known(
    config: Config, cwd: Path, environ: Mapping[str, str], inherited: Mapping[str, str]
) -> tuple[dict[str, McpServerConfig], list[str]]:
    """Those that a session here would have, and what is wrong with others."""
    settings = config.settings
    store = open_store(config, environ)
    try:
        data = trusted_files(str(cwd), store).get(FILE, b"") if settings.agent.trust else b""
    finally:
        store.close()
    found, trouble = folder_servers(data, inherited) if data else ({}, [])
    found = {name: replace(entry, of=OF_FOLDER) for name, entry in found.items()}
    if has_plugins(environ):
        found |= SessionPlugins(settings.plugins, environ).servers
    return {**found, **settings.mcp.servers}, trouble


def _inherited(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    bash = config.settings.tools.bash
    return safe_environment(environ, bash.environment, bash.environment_extra, own_keys(config))


def _get(options: Namespace, environ: Mapping[str, str]) -> int:
    entry = _configured(options.name, environ)
    _line(f"{options.name}  {_place(entry)}")
    for key in entry.__struct_fields__:
        value = getattr(entry, key)
        if key in ("env", "headers"):  # They may hold credentials.
            value = dict.fromkeys(value, HIDDEN)
        elif key == "client_secret" and value:
            value = HIDDEN
        if value and key not in ("command", "args", "url"):
            _line(f"  {key} = {value}")
    return 0


def _remove(options: Namespace, environ: Mapping[str, str]) -> int:
    _configured(options.name, environ)
    file, text = _file(environ)
    _write(file, without_server(text, options.name, str(file)))
    _line(f"{options.name} is removed from {file}.")
    return 0


def _configured(name: str, environ: Mapping[str, str]) -> McpServerConfig:
    servers = load_config(environ).settings.mcp.servers
    if name not in servers:
        known = ", ".join(servers) or "there are none"
        raise UsageError(f"there is no server {name!r} in your configuration ({known})")
    return servers[name]


def _file(environ: Mapping[str, str]) -> tuple[Path, str]:
    file = Path(config_file(environ)).resolve()
    return file, read_text(file) or ""


def _write(file: Path, text: str) -> None:
    try:
        replace_text(file, text, 0o600)
    except OSError as error:
        raise UsageError(f"{file} could not be written: {error.strerror}") from error


def _place(entry: McpServerConfig) -> str:
    return entry.url or shlex.join([entry.command, *entry.args])


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _login(options: Namespace, environ: Mapping[str, str]) -> int:
    spec = from_config(options.name, _configured(options.name, environ))

    async def show(url: str) -> None:
        _line(f"Log in at {url}")
        if not options.no_browser:
            await anyio.to_thread.run_sync(webbrowser.open, url)

    anyio.run(login, spec, McpLogins(environ), show, LOGIN_TIMEOUT)
    _line(f"You are logged in at {options.name}.")
    return 0


def _logout(options: Namespace, environ: Mapping[str, str]) -> int:
    places = McpLogins(environ).forget(_configured(options.name, environ).url)
    where = f"was removed from {', '.join(places)}" if places else "was not stored"
    _line(f"The login at {options.name} {where}.")
    return 0


VERBS: dict[str, Callable[[Namespace, Mapping[str, str]], int]] = {
    "add": _add,
    "list": _list,
    "get": _get,
    "remove": _remove,
    "login": _login,
    "logout": _logout,
}
