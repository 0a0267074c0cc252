"""`acp-coder login` and `logout`: store or remove a provider's API key. Exit status 0 means done.

The server is asked for its list of models with the key: one that it refuses is not stored, one that cannot be checked
is, and that is said.
"""

from __future__ import annotations

import getpass
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping

import anyio
from msgspec import convert
from msgspec.structs import replace

from acp_agent.commands.extensions.list_models import listed
from acp_agent.config.credentials import find_key, forget_key, host_name, store_key
from acp_agent.config.load import load_config
from acp_agent.config.model import ProviderConfig, Settings
from acp_agent.config.provider_rows import known, table
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import ConfigError, ProviderError, UsageError
from acp_agent.llm.choose import choose_api, is_loopback, shown_url

MAY_DO_LITTLE = "HTTP 403"
"""What errors say of a key that is right but may not list the models."""


def login(options: Namespace, environ: Mapping[str, str]) -> int:
    if options.list:
        for name, about in _choices(environ):
            sys.stdout.write(f"{name}  {about}\n")
        return 0
    if options.host:
        name = host_name(options.host)
    elif (named := options.name or options.provider) is None and _at_terminal():
        name = _picked(environ)
    else:
        name = _provider(named, environ)
    try:
        # Typed without echo at a terminal; a pipe works too.
        key = getpass.getpass(f"API key for {name}: ") if sys.stdin.isatty() else sys.stdin.readline()
    except EOFError:
        key = ""
    key = key.strip()
    if not key or not key.isprintable() or " " in key:
        raise UsageError("no key given; nothing was changed")
    checked = "" if options.host or options.unchecked else _checked(name, key, environ)
    place = store_key(name, key, environ)
    sys.stderr.write(f"The key for {name} is stored in {place}.{checked}\n")
    if not options.host and (unused := _unused(name, key, environ)):
        sys.stderr.write(f"{unused}\n")
    return 0


def logout(options: Namespace, environ: Mapping[str, str]) -> int:
    name = host_name(options.host) if options.host else _provider(options.name or options.provider, environ)
    places = forget_key(name, environ)
    where = f"was removed from {', '.join(places)}" if places else "was not stored"
    sys.stderr.write(f"The key for {name} {where}.\n")
    return 0


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _provider(name: str | None, environ: Mapping[str, str]) -> str:
    settings = load_config(environ).settings
    name = name or settings.chosen_provider
    if settings.provider(name) is None and not known(name):
        raise ConfigError(f"{settings.no_provider(name)}; `acp-coder login --list` has the known ones")
    return name


# --- which provider ----------------------------------------------------------------------------------------------


def _choices(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The configured providers and the known ones that take a key, with where they are and whether they have one."""
    settings = load_config(environ).settings
    own = {settings.chosen_provider: settings.provider(settings.chosen_provider), **settings.providers}
    if not (default := own.get("default", ProviderConfig())) or not default.base_url:
        own.pop("default", None)  # Without a name it is `openai`.
    rows = {name: convert(row.settings(environ), ProviderConfig) for name, row in table().items() if row.keys}
    for name, provider in {**{name: each for name, each in own.items() if each is not None}, **rows}.items():
        if provider.base_url and is_loopback(provider.base_url):
            continue
        key = find_key(name, provider, environ)
        yield name, f"{shown_url(provider.base_url)}{f' (has a key: {key.origin})' if key is not None else ''}"


def _picked(environ: Mapping[str, str]) -> str:
    """The one whose number or name is typed."""
    names = []
    for number, (name, about) in enumerate(_choices(environ), 1):
        names.append(name)
        sys.stderr.write(f"{number:3}. {name:<12} {about}\n")
    while True:
        sys.stderr.write(f"Whose key? 1 to {len(names)}, or a name: ")
        sys.stderr.flush()
        if not (line := sys.stdin.readline()):
            raise UsageError("no provider chosen; nothing was changed")
        typed = line.strip()
        if typed.isdecimal() and 0 < int(typed) <= len(names):
            return names[int(typed) - 1]
        if typed:
            try:
                return _provider(typed, environ)
            except ConfigError as error:
                sys.stderr.write(f"{error}\n")


# --- the server's word -------------------------------------------------------------------------------------------


def _settings(name: str, settings: Settings, environ: Mapping[str, str]) -> ProviderConfig:
    found = settings.provider(name)
    return convert(table()[name].settings(environ), ProviderConfig) if found is None else found


def _checked(name: str, key: str, environ: Mapping[str, str]) -> str:
    """What the server says of the key, in words. Raises UsageError if it refuses it, and the user does not insist."""
    settings = replace(_settings(name, load_config(environ).settings, environ), models=[])
    api = settings.api or choose_api(settings.base_url)
    if WIRE_APIS[api].lists == "never" or (name in table() and not settings.base_url):
        return " It was not checked: there is no request for that without a cost."
    server = shown_url(settings.base_url) or "OpenAI"
    try:
        count = len(anyio.run(listed, name, settings, key))
    except ProviderError as error:
        if error.kind != "auth" or MAY_DO_LITTLE in str(error):
            return f" It was not checked: {error}"
        _insist(f"{error.fact or error}")
        return ""
    except ConfigError as error:
        return f" It was not checked: {error}."
    try:
        anyio.run(listed, name, settings, None)
    except (ProviderError, ConfigError):
        return f" {server} accepts it, and lists {count} model{'s' * (count != 1)}."
    return f" It was not checked: {server} lists its models without a key, too."


def _insist(refusal: str) -> None:
    """Raises UsageError unless a user at a terminal wants it stored all the same."""
    if _at_terminal():
        sys.stderr.write(f"{refusal} Store it all the same? y/N: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise UsageError("nothing was stored")
    raise UsageError(f"{refusal} Nothing was stored; `--unchecked` stores it all the same")


def _unused(name: str, key: str, environ: Mapping[str, str]) -> str:
    """What to do if sessions would not use this key."""
    settings = load_config(environ).settings
    found = find_key(name, _settings(name, settings, environ), environ)
    if found is not None and found.value != key:
        return f"Not this key is used but that of the {found.origin}."
    if settings.chosen_provider == name:
        return ""
    other = f"New sessions begin with {settings.chosen_provider}"
    return f"{other}; `--model {name}:MODEL` uses {name} once, `acp-coder config set agent.provider {name}` always."
