"""The credentials that the agent itself has: they are redacted wherever they occur."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from acp_agent.config.credentials import McpLogins, host_key, stored_keys
from acp_agent.config.model import Settings
from acp_agent.credentials.redactor import own_values
from acp_agent.credentials.values import is_credential

LONG = 16
"""Characters of a word that no text has by chance."""


def own_credentials(
    settings: Settings, environ: Mapping[str, str], more: Sequence[Mapping[str, str]] = ()
) -> tuple[str, ...]:
    """Keys of providers and hosts, tokens of logins, what variables and headers hold, and what `more` of both do."""
    variables = [environ, *(server.env for server in settings.mcp.servers.values())]
    keys = [provider.api_key for provider in settings.providers.values()] + stored_keys(environ)
    known: list[Any] = [*settings.providers.values(), *settings.mcp.servers.values(), *settings.hooks.on]
    keys += [word for some in (*(each.headers for each in known), *more) for word in _of_headers(some)]
    keys += [word for each in settings.providers.values() if not each.api_key_env for word in _letting_in(each.headers)]
    keys += _password(settings.store.url or environ.get(settings.store.url_env, ""))
    logins = McpLogins(environ)
    keys += [word for server in settings.mcp.servers.values() if server.url for word in logins.tokens(server.url)]
    keys += [host_key(each.host, each.env, environ) for each in settings.network.credentials.values()]
    return tuple(dict.fromkeys([*(value for some in variables for value in own_values(some)), *filter(None, keys)]))


def _of_headers(headers: Mapping[str, str]) -> list[str]:
    """Words of headers that may name a credential, `Bearer` and the like left out."""
    named = own_values({name.replace("-", "_"): value for name, value in headers.items()})
    schemes = [value for name, value in headers.items() if name.lower() in ("authorization", "cookie")]
    return [*named, *(value.rpartition(" ")[2] for value in (*named, *schemes))]


def _letting_in(headers: Mapping[str, str]) -> list[str]:
    """Of a provider that needs no key: long words with digits, of headers that are not known to say something else."""
    values = [value for name, value in headers.items() if not name.lower().startswith("anthropic-")]
    words = [each for each in values if len(each) >= LONG and re.search(r"^\S*\d\S*$", each)]
    return [each for each in words if is_credential(each, quoted=True)]


def _password(url: str) -> list[str]:
    """Of an address, as it stands there and as it is meant."""
    user, at, _ = url.rpartition("@")
    word = user.partition("://")[2].partition(":")[2] if at else ""
    return [word, unquote(word)]
