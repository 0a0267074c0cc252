"""The credentials that the agent itself has: they are redacted wherever they occur."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from acp_agent.config.credentials import McpLogins, host_key, stored_keys
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig, Settings
from acp_agent.credentials.redactor import SHORTEST_OWN, own_values
from acp_agent.credentials.values import is_credential
from acp_agent.lazy import pattern
from acp_agent.schema import acp

SIGNS = pattern(r"(?i)sig(?:nature)?$|^(?:code|key|auth)$")
"""Parameters that let in."""
LONG = 16
"""Characters of a word that no text has by chance."""
STORE_URL = "ACP_CODER_STORE_URL"
"""It may have a password."""


def own_credentials(
    settings: Settings, environ: Mapping[str, str], more: Sequence[Mapping[str, str]] = (), urls: Sequence[str] = ()
) -> tuple[str, ...]:
    """Keys of providers and hosts, tokens of logins, what variables, headers and addresses of MCP servers hold, and
    what `more` and `urls` of these do."""
    variables = [environ, *(server.env for server in settings.mcp.servers.values())]
    keys = [provider.api_key for provider in settings.providers.values()] + stored_keys(environ)
    known: list[Any] = [*settings.providers.values(), *settings.mcp.servers.values(), *settings.hooks.on]
    keys += [word for some in (*(each.headers for each in known), *more) for word in _of_headers(some)]
    keys += [word for each in settings.providers.values() if not each.api_key_env for word in _letting_in(each.headers)]
    servers = settings.mcp.servers.values()
    keys += [each.client_secret for each in servers]
    keys += [word for some in (*(each.env for each in servers), *more) for word in _letting_in(some)]
    keys += [word for url in (*(each.url for each in servers), *urls) if url for word in _of_query(url)]
    keys += _password(settings.store.url or environ.get(settings.store.url_env, ""))
    logins = McpLogins(environ)
    keys += [word for server in settings.mcp.servers.values() if server.url for word in logins.tokens(server.url)]
    keys += [host_key(each.host, each.env, environ) for each in settings.network.credentials.values()]
    return tuple(dict.fromkeys([*(value for some in variables for value in own_values(some)), *filter(None, keys)]))


def of_session(settings: Settings, environ: Mapping[str, str], mcp_servers: Sequence[acp.McpServer]) -> tuple[str, ...]:
    """As `own_credentials`, with those that the client's MCP servers have."""
    named = [getattr(server, where, ()) for server in mcp_servers for where in ("env", "headers")]
    urls = [getattr(server, "url", "") for server in mcp_servers]
    return own_credentials(settings, environ, [{item.name: item.value for item in some} for some in named], urls)


def _of_headers(headers: Mapping[str, str]) -> list[str]:
    """Words of headers that may name a credential, `Bearer` and the like left out."""
    named = own_values({name.replace("-", "_"): value for name, value in headers.items()})
    schemes = [value for name, value in headers.items() if name.lower() in ("authorization", "cookie")]
    return [*named, *(value.rpartition(" ")[2] for value in (*named, *schemes))]


def _letting_in(headers: Mapping[str, str]) -> list[str]:
    """Where no name says what is a key: long words with digits, of headers that are not known to say something else."""
    values = [value for name, value in headers.items() if not name.lower().startswith("anthropic-")]
    words = [each for each in values if len(each) >= LONG and re.search(r"^\S*\d\S*$", each)]
    return [each for each in words if is_credential(each, quoted=True)]


def _of_query(url: str) -> list[str]:
    """What an address says behind `?`: signatures and tokens."""
    given = dict(parse_qsl(url.partition("?")[2].partition("#")[0]))
    signed = [value for name, value in given.items() if SIGNS.search(name) and len(value) >= SHORTEST_OWN]
    return [*signed, *own_values(given), *_letting_in(given)]


def _password(url: str) -> list[str]:
    """Of an address, as it stands there and as it is meant."""
    user, at, _ = url.rpartition("@")
    word = user.partition("://")[2].partition(":")[2] if at else ""
    return [word, unquote(word)]


def outside(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the agent's own keys."""
    hidden = own_keys(config)
    return {name: value for name, value in environ.items() if name not in hidden}


def own_keys(config: Config) -> frozenset[str]:
    """The variables that hold the agent's own keys, which no command of the model needs."""
    providers = (ProviderConfig(), *config.settings.providers.values())
    credentials = config.settings.network.credentials.values()
    variables = (each.env for each in credentials if each.env)
    return frozenset(
        (
            *variables,
            *(provider.api_key_env for provider in providers),
            config.settings.tools.web.brave_key_env,
            config.settings.store.url_env,
            STORE_URL,
        )
    )
