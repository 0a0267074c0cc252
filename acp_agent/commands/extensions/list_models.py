"""`acp-coder models`: what can be chosen here, as the servers list it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

import anyio

from acp_agent.commands.config import config_here
from acp_agent.config.credentials import find_key
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig, ProviderOptions
from acp_agent.config.provider_rows import row_of
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.llm.base import Provider
from acp_agent.llm.choose import choose_api, needs_key, shown_url
from acp_agent.llm.provider_errors import server_label
from acp_agent.loop.options import shown_model

SERVER_SECONDS = 10.0
"""How long a server may take to list its models."""


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """0 if each server that was asked has answered. Raises ConfigError for a provider that is not configured."""
    config = config_here(environ)
    settings = config.settings
    names = (
        [options.provider] if options.provider else list(dict.fromkeys([settings.chosen_provider, *settings.providers]))
    )
    if settings.provider(names[0]) is None:
        raise ConfigError(settings.no_provider(names[0]))
    status = 0
    for name in names:
        label = server_label(name, (settings.provider(name) or ProviderConfig()).base_url)
        try:
            models = anyio.run(_choices, config, name, environ)
        except (ConfigError, ProviderError) as error:
            sys.stderr.write(f"{label}: {str(error).removeprefix(f'{label}: ')}\n")
            status = 1
            continue
        if name == "default" and len(names) > 1:
            sys.stderr.write(f"default is {label}\n")
        for model in models:
            used = " (in use)" if f"{name}/{model}" == settings.choice(settings.agent.model) else ""
            sys.stdout.write(f"{shown_model(f'{name}/{model}', [f'{each}/' for each in names])}{used}\n")
    return status


async def _choices(config: Config, name: str, environ: Mapping[str, str]) -> Sequence[str]:
    """The configured models, then those that the server lists; the one that is taken without a choice is the first."""
    settings = config.settings.provider(name) or ProviderConfig()
    api, named = settings.api or choose_api(settings.base_url), "" if name == "default" else f" --provider {name}"
    key = find_key(name, settings, environ)
    if key is None and settings.api_key_env and needs_key(settings.base_url, api):
        raise ConfigError(f"no API key: set {settings.api_key_env}, or run `acp-coder login{named}`")
    found = dict.fromkeys([*settings.models, *await listed(name, settings, key.value if key else None)])
    first = "" if (row := row_of(settings.base_url)) is None else row.model
    return sorted(found, key=lambda model: model != first)


async def listed(name: str, settings: ProviderConfig, key: str | None) -> Sequence[str]:
    """What the server lists. Raises ConfigError, ProviderError."""
    provider: Provider = WIRE_APIS[settings.api or choose_api(settings.base_url)].load()(
        ProviderOptions.of(name, settings, key, max_retries=0)
    )
    try:
        with anyio.fail_after(SERVER_SECONDS):
            return [info.id for info in await provider.models()]
    except TimeoutError:
        where = shown_url(settings.base_url) or "the server"
        raise ConfigError(f"{where} did not answer within {SERVER_SECONDS:g} s") from None
    finally:
        await provider.aclose()
