"""The credentials that the agent itself has: they are redacted wherever they occur."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from acp_agent.config.credentials import McpLogins, host_key, stored_keys
from acp_agent.config.model import Settings
from acp_agent.credentials.redactor import own_values


def own_credentials(
    settings: Settings, environ: Mapping[str, str], more: Sequence[Mapping[str, str]] = ()
) -> tuple[str, ...]:
    """Keys of providers and hosts, and what variables hold: the agent's, those of MCP servers, and `more`."""
    variables = [environ, *(server.env for server in settings.mcp.servers.values()), *more]
    keys = [provider.api_key for provider in settings.providers.values()] + stored_keys(environ)
    keys += [word for each in settings.providers.values() for word in _of_headers(each.headers)]
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


def _password(url: str) -> list[str]:
    """Of an address, as it stands there and as it is meant."""
    user, at, _ = url.rpartition("@")
    word = user.partition("://")[2].partition(":")[2] if at else ""
    return [word, unquote(word)]
