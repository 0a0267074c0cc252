"""`acp-coder doctor`: what is configured, what was found and what does not work, one line each."""

from __future__ import annotations

import platform
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import anyio

from acp_agent.commands.config import config_here, rows
from acp_agent.commands.extensions.this_version import version_line
from acp_agent.commands.logs import log_file
from acp_agent.config.credentials import find_key
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderOptions
from acp_agent.config.place_settings import is_host, tmux_session
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.config.xdg import config_file
from acp_agent.errors import ConfigError, ExecutorError, ProviderError, StoreError
from acp_agent.executors.base import Command
from acp_agent.executors.local import LocalCommands
from acp_agent.lazy import load
from acp_agent.llm import base as llm
from acp_agent.llm.choose import choose_api, is_azure, is_loopback, needs_key, shown_url
from acp_agent.llm.lacks.fenced import refuses_tools
from acp_agent.loop.calls.session_rules import audit_path, home_of, roots_of
from acp_agent.loop.options import AUTO_MODEL
from acp_agent.opening import known_models, open_store
from acp_agent.own_programs import find_program
from acp_agent.safety.deciding.audit import AuditLog
from acp_agent.safety.deciding.rule_list import RuleList
from acp_agent.safety.folders.paths import real_path
from acp_agent.undo.base import named

NEWER = "acp_agent.commands.extensions.newer_version:newer_version"
SQLITE_VERSION = "acp_agent.store.sqlite:SQLITE_VERSION"

SESSION_FILTERS = "acp_agent.loop.calls.session_filters:SessionFilters"
REDACTOR = "acp_agent.credentials.redactor:Redactor"
MISSING_BROWSER = "acp_agent.tools.net.chromium:missing_browser"

FOLDER = "acp_agent.loop.shell.private_folder:PrivateFolder"
CONFINEMENT = "acp_agent.loop.shell.confinement:Confinement"
SANDBOX = "acp_agent.loop.shell.folder_sandbox:FolderSandbox"
BUILD_PLACE = "acp_agent.build.open_workspaces:build_place"
SETTLED = "acp_agent.build.host_session:settled"
FIND_USER = "acp_agent.executors.users:find_user"

PACKAGES = (
    "anyio",
    "httpx2",
    "mcp",
    "msgspec",
    "playwright",
    "pydantic",
    "selectolax",
    "tree-sitter",
    "jsonrpcserver",
    "keyring",
)
MODELS_SHOWN = 8
SERVER_SECONDS = 10.0
SHELL_SECONDS = 10.0

LACKS_TOOLS = (
    "the server passes no tools on to the model, so calls are written as text, which works less well; llama.cpp: start "
    "it with --jinja and a model or --chat-template-file that knows tools"
)

READY = 'Ready. Begin with `acp-coder`, or `acp-coder -p "What does this project do?"`.'
OK, BAD, WARN, NOTE = "ok", "BAD", "!", "  "
Line = tuple[str, str, str]
"""Mark, subject, words."""


FIXES = {
    "configuration": "Correct that in the file",
    "provider": "Add it as `[providers.NAME]`, or choose another with `agent.provider`",
    "server": "Start the server, or set OPENAI_BASE_URL to where it is",
    "model": "Set OPENAI_MODEL or `agent.model` to one of those",
    "tools": "Start it that way, or use a model with tool calls",
    "sandbox": "Install bubblewrap, or set `tools.sandbox.strict = false`",
    "policy": "Correct that rule in the configuration",
    "output filters": "Correct that rule in its file",
    "credentials": "Correct `secrets.extra_patterns`",
}
"""What to do about what is wrong; for the others the words say it."""


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """Returns 0 if nothing is bad. The first lines say what is wrong and what to do; the others what was found, with
    `--all` all of it."""
    lines = list(checks(options, environ))
    wrong = [line for mark in (BAD, WARN) for line in lines if line[0] == mark]
    sys.stdout.write("".join(f"{_fix(line)}\n" for line in wrong) or f"{READY}\n")
    sys.stdout.write("\n")
    for mark, subject, words in lines:
        if options.all or mark != NOTE:
            sys.stdout.write(f"{mark:<3} {subject:<16} {words}\n")
    if not options.all:
        sys.stdout.write("\n`acp-coder doctor --all` shows versions, configuration, paths and limits, too.\n")
    return 1 if any(mark == BAD for mark, _, _ in lines) else 0


def _fix(line: Line) -> str:
    mark, subject, words = line
    told = f"{'Not ready' if mark == BAD else 'Look at'}: {subject}: {words.partition(chr(10))[0].rstrip('.')}."
    return f"{told} {FIXES[subject]}, then run `acp-coder doctor` again." if subject in FIXES else told


def checks(options: Namespace, environ: Mapping[str, str]) -> Iterator[Line]:
    python = f"Python {platform.python_version()} ({sys.executable})"
    yield OK, "acp-coder", f"{version_line()}, {python}, {platform.platform()}"
    if "PYTHONHOME" in environ:
        words = "PYTHONHOME is set: with one of another Python, Python itself ends before the agent begins"
        yield WARN, "Python", f"{words}. Let the editor start `{sys.executable} -I -m acp_agent`"
    if options.updates:
        yield NOTE, "updates", load(NEWER)()
    yield NOTE, "packages", ", ".join(_versions())
    file = config_file(environ)
    yield NOTE, "configuration", file if Path(file).exists() else f"{file} (does not exist; defaults are used)"
    try:
        config = config_here(environ)
    except (ConfigError, StoreError) as error:
        yield BAD, "configuration", str(error)
        return
    for key, value in rows(config):
        if (origin := config.origin(key)) != "default":
            yield NOTE, "", f"{key} = {value}  # {origin}"
    for note in config.notes:
        yield NOTE, "", note
    yield from _provider(config, options, environ)
    yield _store(config, environ)
    log = log_file(config.settings.log, environ)
    yield NOTE, "log", str(log) if log is not None else "stderr only"
    yield from anyio.run(_shell, environ)
    yield from _confinement(config, environ)
    yield _audit(config, environ)
    rg = find_program("rg", environ, (Path.cwd(),))
    yield OK if rg else NOTE, "ripgrep", rg or "not found; `grep` uses a slower built-in search"
    missing = load(MISSING_BROWSER)(config.settings.tools.browser)
    yield OK if missing is None else NOTE, "browser", missing or "found"
    yield from _outputs(config, environ)
    yield from _mcp(config, environ)


def _confinement(config: Config, environ: Mapping[str, str]) -> Iterator[Line]:
    """Reports what confines commands here (found by trying) and what they may touch in this folder."""
    tools = config.settings.tools
    roots = roots_of(config, real_path(Path.cwd()), environ)
    with closing(load(FOLDER)(roots)) as folder:
        made = load(SANDBOX)(tools, roots, environ, home_of(environ), folder)
        lines = anyio.run(load(CONFINEMENT)(tools, roots, made).lines)
        found = made.found
        if (place := config.settings.place()) is not None:
            settle = partial(load(SETTLED), config=config, here=roots, environ=environ)
            there = load(BUILD_PLACE)(place, "doctor", roots, environ, made)
            yield from anyio.run(_place, there, settle if is_host(place) else None)
    confined = found.sandbox.kind != "none"
    for number, words in enumerate(lines):
        if number == 0:
            bad = not confined and not found.disabled and tools.sandbox.strict
            mark = OK if confined else BAD if bad else NOTE if found.disabled else WARN
            yield mark, "sandbox", words.removeprefix("Sandbox: ")
        else:
            yield NOTE, "", words
    if session := tmux_session(config.settings.place(), tools.tmux):
        if find_program("tmux", environ, (Path.cwd(),)) is None:
            yield (BAD, "tmux", "there is no `tmux` here, so nothing runs in a terminal (`tools.tmux.session`)")
        else:
            left_out = "; not with `tools.scope.run_as_user`" if tools.scope.user else ""
            yield OK, "tmux", f"terminals are shown in the session {session}{left_out}"
    if tools.scope.user:
        try:
            user = load(FIND_USER)(tools.scope.user)
        except ExecutorError as error:
            yield BAD, "tools run as", str(error)
        else:
            yield OK, "tools run as", user.name if user is not None else "you"
    rules = RuleList.compile(tools, environ, origin=config.origin_of)
    count = sum(rule.name != "default" for rule in rules.of("policy"))
    yield BAD if rules.trouble else OK, "policy", "\n".join(rules.trouble) or f"{count} rules"
    yield OK, "permissions", f"{sum(map(len, tools.permissions.values()))} rules"


async def _place(place: Any, settle: Callable[[Any], Awaitable[object]] | None) -> list[Line]:
    try:
        if settle is not None:
            await settle(place)
        first, *more = await place.lines()
        return [(OK, "place", first), *((NOTE, "", words) for words in more)]
    except ExecutorError as error:
        return [(BAD, "place", str(error))]
    finally:
        await place.end()


def _audit(config: Config, environ: Mapping[str, str]) -> Line:
    path = audit_path(config, environ)
    if path is None:
        return NOTE, "audit log", "switched off (`audit.enabled`)"
    why = AuditLog(path, config.settings.audit, str, lambda words: None).why_not()
    return (OK, "audit log", str(path)) if why is None else (BAD, "audit log", why)


def _outputs(config: Config, environ: Mapping[str, str]) -> Iterator[Line]:
    filters = load(SESSION_FILTERS)(config.settings.tools.filters, environ)
    trouble = list(filters.trouble())
    if config.settings.tools.filters.enabled:
        words = "\n".join(trouble) or f"{len(filters.get().names)} rules"
        yield BAD if trouble else OK, "output filters", words
    else:
        yield NOTE, "output filters", "switched off"
    secrets = config.settings.secrets
    wrong = load(REDACTOR)(extra_patterns=secrets.extra_patterns).trouble
    if not secrets.redact:
        switched_off = "NOT redacted for model, editor, log and database (`secrets.redact = false`)"
        yield NOTE, "credentials", switched_off
    else:
        yield BAD if wrong else OK, "credentials", "\n".join(wrong) or "redacted for model, editor and disk"


def _mcp(config: Config, environ: Mapping[str, str]) -> Iterator[Line]:
    for name, server in config.settings.mcp.servers.items():
        if not server.enabled:
            yield NOTE, f"MCP {name}", "not enabled"
        elif server.command:
            found = find_program(server.command, environ, (Path.cwd(),))
            yield OK if found else BAD, f"MCP {name}", found or f"the program {server.command!r} was not found"
        else:
            yield OK if server.url else BAD, f"MCP {name}", server.url or "neither `command` nor `url` is set"


def _versions() -> Iterator[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"
    yield f"SQLite {load(SQLITE_VERSION)}"


def _provider(config: Config, options: Namespace, environ: Mapping[str, str]) -> Iterator[Line]:
    name = config.settings.chosen_provider
    settings = config.settings.provider(name)
    known = {each: config.settings.providers[each].api_key_env for each in config.found}
    if keys := [f"{each} ({variable})" for each, variable in known.items() if environ.get(variable)]:
        yield NOTE, "known providers", f"keys found: {', '.join(keys)}; the default is {name}"
    if local := [f"{each} at {config.settings.providers[each].base_url}" for each in found_here(config, environ)]:
        yield OK, "local servers", f"found: {', '.join(local)}; the default is {name}"
    if settings is None:
        yield BAD, "provider", config.settings.no_provider(name)
        return
    api = settings.api or choose_api(settings.base_url)
    label = "" if name == "default" else f"{name}: "
    yield OK, "provider", f"{label}{api} at {shown_url(settings.base_url) or 'the OpenAI API'}"
    key = find_key(name, settings, environ)
    if key is not None:
        yield OK, "key", f"found: {key.origin}"
    elif not settings.api_key_env or not needs_key(settings.base_url, api):
        yield OK, "key", "not needed"
    else:
        yield BAD, "key", f"not found: set {settings.api_key_env}, or run `acp-coder login`"
        return
    if options.offline:
        yield NOTE, "server", "not contacted (--offline)"
        return
    made = ProviderOptions.of(name, settings, key.value if key else None, max_retries=0)
    model = known_models(config)[0].partition("/")[2]
    auto = settings.tool_calling == "auto"
    line, models, lacks_tools = anyio.run(_server, WIRE_APIS[api].load(), made, model, auto)
    yield line
    if not is_azure(settings.base_url):  # It lists models, and is asked for deployments.
        yield from _model(model, [info.id for info in models])
    if lacks_tools:
        yield WARN, "tools", lacks_tools


def found_here(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """The providers that were added without a key and without being named: servers on this machine."""
    for name in config.found:
        settings = config.settings.providers[name]
        if not needs_key(settings.base_url) and not environ.get(settings.api_key_env):
            yield name


def _model(model: str, listed: Sequence[str]) -> Iterator[Line]:
    """Compares the configured model with those the server lists, if any. Ollama's names may leave out a tag."""
    if model == AUTO_MODEL or not listed:
        return
    if model in listed or f"{model}:latest" in listed:
        yield OK, "model", model
    else:
        yield WARN, "model", f"the server does not list {model!r}, only {named(listed, MODELS_SHOWN)}"


async def _server(
    make: type[llm.Provider], options: ProviderOptions, model: str, auto: bool
) -> tuple[Line, Sequence[llm.ModelInfo], str]:
    """The line about the server, the models it lists, and how it lacks tools (with `auto`)."""
    try:
        provider: llm.Provider = make(options)  # type: ignore[call-arg]
    except ConfigError as error:
        return (BAD, "server", str(error)), (), ""
    lacks_tools = ""
    try:
        with anyio.fail_after(SERVER_SECONDS):
            models = await provider.models()
        used = [info for info in models if model in (info.id, AUTO_MODEL)][:1]
        if auto and used:
            asked = is_loopback(options.base_url) and await _refuses_tools(provider, used[0].id)
            lacks_tools = LACKS_TOOLS if used[0].tools is False or asked else ""
    except ProviderError as error:
        return (BAD, "server", str(error)), (), ""
    except TimeoutError:
        return (BAD, "server", f"no answer within {SERVER_SECONDS:g} s"), (), ""
    finally:
        await provider.aclose()
    listed = [info.id for info in models]
    words = f"reachable, {len(listed)} models: {named(listed, MODELS_SHOWN)}"
    return (OK, "server", words), models, lacks_tools


async def _refuses_tools(provider: llm.Provider, model: str) -> bool:
    """Asks the model for one token, with a tool: what a server of this machine does not charge for."""
    tool = llm.ToolDefinition("time", "Returns the time.", {"type": "object", "properties": {}})
    settings = llm.ModelSettings(model, max_output_tokens=1)
    with anyio.move_on_after(SERVER_SECONDS):
        try:
            hello = [llm.UserMessage((llm.TextPart("Hello"),))]
            async with aclosing(provider.stream(hello, [tool], settings)) as events:
                async for _ in events:
                    return False
        except ProviderError as error:
            return refuses_tools(error)
    return False


def _store(config: Config, environ: Mapping[str, str]) -> Line:
    try:
        store = open_store(config, environ)
    except StoreError as error:
        return BAD, "sessions", str(error)
    try:
        count = store.count()
    except StoreError as error:
        return BAD, "sessions", str(error)
    finally:
        store.close()
    return OK, "sessions", f"{count} in {store.where}"


async def _shell(environ: Mapping[str, str]) -> list[Line]:
    commands = LocalCommands(environ=environ, folders=(Path.cwd(),))
    with anyio.move_on_after(SHELL_SECONDS):
        process = await commands.run(Command('printf "%s\\n%s" "$BASH_VERSION" "$PATH"', Path.cwd()))
        try:
            status = await process.wait()
            bash, _, path = process.stdout.partition("\n")
            if status.exit_code != 0:
                return [(BAD, "shell", process.stderr)]
            return [(OK, "shell", f"bash {bash}"), (NOTE, "", f"PATH {path}")]
        finally:
            await process.close()
    return [(BAD, "shell", f"bash did not answer within {SHELL_SECONDS:g} s")]
