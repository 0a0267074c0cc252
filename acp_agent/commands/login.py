"""`acp-coder login` and `logout`: store or remove a provider's API key. Exit status 0 means done."""

from __future__ import annotations

import getpass
import sys
from argparse import Namespace
from collections.abc import Mapping

from acp_agent.config.credentials import forget_key, host_name, store_key
from acp_agent.config.load import load_config
from acp_agent.config.provider_rows import known
from acp_agent.errors import ConfigError, UsageError


def login(options: Namespace, environ: Mapping[str, str]) -> int:
    name = host_name(options.host) if options.host else _provider(options.provider, environ)
    try:
        # Typed without echo at a terminal; a pipe works too.
        key = getpass.getpass(f"API key for {name}: ") if sys.stdin.isatty() else sys.stdin.readline()
    except EOFError:
        key = ""
    key = key.strip()
    if not key or not key.isprintable() or " " in key:
        raise UsageError("no key given; nothing was changed")
    place = store_key(name, key, environ)
    sys.stderr.write(f"The key for {name} is stored in {place}.\n")
    return 0


def logout(options: Namespace, environ: Mapping[str, str]) -> int:
    name = host_name(options.host) if options.host else _provider(options.provider, environ)
    places = forget_key(name, environ)
    where = f"was removed from {', '.join(places)}" if places else "was not stored"
    sys.stderr.write(f"The key for {name} {where}.\n")
    return 0


def _provider(name: str | None, environ: Mapping[str, str]) -> str:
    settings = load_config(environ).settings
    name = name or settings.chosen_provider
    if settings.provider(name) is None and not known(name):
        raise ConfigError(settings.no_provider(name))
    return name
