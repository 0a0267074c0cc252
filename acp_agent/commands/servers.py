"""Servers: `acp-coder serve` (clients on other machines, and their tokens), `acp-coder lsp` (a language server)."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from acp_agent import tracing
from acp_agent.commands.logs import set_up_logs
from acp_agent.config.load import load_config
from acp_agent.config.model import LogConfig, Settings
from acp_agent.config.xdg import state_dir
from acp_agent.errors import ConfigError, UsageError
from acp_agent.fronts.headless import AGENT_COMMAND
from acp_agent.fronts.server import COUNTS
from acp_agent.fronts.server.entrance import is_loopback
from acp_agent.fronts.server.identities import FIRST, MINE, Identities
from acp_agent.lazy import load
from acp_agent.limits.descriptors import raise_limit
from acp_agent.opening import store_url
from acp_agent.safety.folders.paths import real_path

LSP_SERVER = "acp_agent.fronts.lsp_server.server:serve"
SERVER = "acp_agent.fronts.server.app:Server"
WORKERS = "acp_agent.fronts.server.workers:Workers"
BACKLOG = 1024
TRACES_SECONDS = 5.0
"""For the last traces to be sent."""


def serve(options: Namespace, environ: Mapping[str, str]) -> int:
    """Raises UsageError, ConfigError."""
    identities = Identities(Path(options.token_file or f"{state_dir(environ)}/tokens.json").absolute())
    if options.what == "token":
        return _tokens(identities, options)
    config = load_config(environ)
    settings = config.settings
    host, port = options.host or settings.server.host, settings.server.port if options.port is None else options.port
    if bool(options.cert) != bool(options.key):
        raise UsageError("--cert and --key belong together")
    if not (is_loopback(host) or options.cert or options.without_tls):
        raise UsageError(
            f"{host} can be reached from other machines, and without TLS anybody in between can read the token: give "
            "--cert and --key, or --without-tls behind a proxy that has TLS"
        )
    if options.workers < 1:
        raise UsageError("--workers is a number from 1")
    if options.workers > 1 and not store_url(config, environ):
        raise UsageError("several workers need a store that they share, on PostgreSQL: set `store.url`")
    with ExitStack() as until_the_end:
        if options.workers > 1:  # They count together, in a folder.
            os.environ[COUNTS] = until_the_end.enter_context(TemporaryDirectory(prefix="acp-coder-"))
            until_the_end.callback(os.environ.pop, COUNTS, "")
        return _serve(options, environ, settings, identities, (host, port))


def _serve(
    options: Namespace, environ: Mapping[str, str], settings: Settings, identities: Identities, where: tuple[str, int]
) -> int:
    try:
        make = load(SERVER)
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: `pip install 'acp-coder[serve]'`") from error
    if options.cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.cert, options.key)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{options.cert} and {options.key} cannot be used for TLS: {error}") from error
    raise_limit()
    set_up_logs(settings.log, environ, settings.secrets)
    with _bound(*where) as listens:
        name, port = listens.getsockname()[:2]
        at = f"{'s' if options.cert else ''}://{f'[{name}]' if ':' in name else name}:{port}"
        fragment = ""  # Of an address it is what no browser sends and no server writes down.
        if not identities.known():
            token = identities.add(FIRST, owner="" if FIRST in settings.server.owners else MINE)
            fragment = f"#token={token}"
            sys.stdout.write(f"Token {FIRST!r}, shown only now: {token}\n")
        sys.stdout.write(f"Serving ACP at ws{at}/acp\n")
        if settings.server.page:
            sys.stdout.write(f"Page for browsers: http{at}/{fragment}\n")
        sys.stdout.flush()

        def work(ends: int = -1) -> None:
            tracing.begin(environ)
            server = make(settings, environ, identities, listens)
            try:
                anyio.run(server.serve, options.cert or "", options.key or "", ends)
            finally:
                tracing.end(TRACES_SECONDS)

        if options.workers > 1:
            return int(load(WORKERS)(options.workers, work).run())
        work()
    return 0


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # So has what it accepts, which asyncio leaves out.
        return bound
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"{host}:{port} cannot be listened on: {error}") from error


def _tokens(identities: Identities, options: Namespace) -> int:
    if options.verb == "list":
        if options.name:
            raise UsageError("`acp-coder serve token list` takes no name")
        for identity in identities.known():
            folders = ", ".join(identity.folders) or "any folder"
            whose = " for you" if identity.of == MINE else f" for {identity.of}" if identity.of else ""
            sys.stdout.write(f"{identity.name}{whose}  may {identity.scope}  {folders}  since {identity.made}\n")
        return 0
    if not options.name:
        raise UsageError(f"whose? `acp-coder serve token {options.verb} NAME`")
    if options.verb == "revoke":
        identities.revoke(options.name)
        return 0
    if options.mine and options.owner:
        raise UsageError("--mine and --owner exclude each other")
    owner = MINE if options.mine else options.owner
    opened = [real_path(Path(folder).absolute()) for folder in options.folder]
    if missing := [str(folder) for folder in opened if not folder.is_dir()]:
        raise UsageError(f"{missing[0]} is not a folder")
    sys.stdout.write(f"{identities.add(options.name, tuple(map(str, opened)), options.scope, owner)}\n")
    return 0


def lsp(options: Namespace, environ: Mapping[str, str]) -> int:
    """The agent, or the ACP agent behind `--`, on stdin and stdout. Returns 0 if the editor sent `shutdown` before
    `exit`, as LSP specifies."""
    try:
        settings = load_config(environ).settings
    except ConfigError:  # Reported where it is used: by the agent.
        settings = Settings(log=LogConfig(file="-"))
    set_up_logs(settings.log, environ, settings.secrets)
    given = list(options.agent)
    argv = given[1:] if given[:1] == ["--"] else given
    return int(load(LSP_SERVER)(argv or AGENT_COMMAND, environ))
