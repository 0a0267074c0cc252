"""The table of known servers, `providers.toml`, and what of it is there by the keys in the environment.

Read only when something asks for it: a provider that is not configured is named, a key of one is in the environment, or
a server elsewhere is spoken to. Standard library only: `initialize` may need it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from acp_agent.errors import ConfigError
from acp_agent.lazy import load

PLACE = r"\{([A-Z_|]+)(?:=([^}]*))?\}"
"""In a base URL: the variables of which the first that is set stands there, and what stands there otherwise."""

NAME = r"[a-zA-Z0-9][a-zA-Z0-9-]*([.:][a-zA-Z0-9-]+)*"
"""What may stand there: a region or a project (`example.com:project`), nothing that makes the address another one."""

FOUND_HERE = "found on this machine"
"""Where a provider is from."""
LOCAL_SERVER = "acp_agent.config.local_servers:serves"


class Row(NamedTuple):
    """See the head of `providers.toml`."""

    id: str
    base_url: str
    api: str = ""
    keys: tuple[str, ...] = ()
    url: tuple[str, ...] = ()
    model: str = ""
    cache: str = ""
    thinking: str = "effort"
    ids: str = ""
    lacks: tuple[str, ...] = ()
    documents: bool = False
    local: tuple[str, ...] = ()
    named: bool = False
    hint: str = ""

    def key_in(self, environ: Mapping[str, str]) -> str:
        """The variable that holds its key; empty if none does."""
        return next((name for name in self.keys if environ.get(name, "").strip()), "")

    def address(self, environ: Mapping[str, str]) -> str:
        """Its base URL: the variable's, if there is one. Empty if only a variable could say, and none does."""
        given = next((value for name in self.url if (value := environ.get(name, "").strip())), "")
        if given:
            return _ollama_host(given) if self.id == "ollama" else given
        holes = re.findall(PLACE, self.base_url)
        values = [_first(names, default, environ) for names, default in holes]
        usable = all(re.fullmatch(NAME, value) for value in values)
        return re.sub(PLACE, lambda _: values.pop(0), self.base_url) if usable else ""

    def settings(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """As a table `[providers.NAME]` of the configuration."""
        first = self.keys[0] if self.keys else "OPENAI_API_KEY"
        found = {"base_url": self.address(environ), "api": self.api, "api_key_env": self.key_in(environ) or first}
        return {name: value for name, value in found.items() if value}


def _first(names: str, default: str, environ: Mapping[str, str]) -> str:
    """The first of the variables `A|B` that is set."""
    return next((value for name in names.split("|") if (value := environ.get(name, "").strip())), default)


def _ollama_host(value: str) -> str:
    """`OLLAMA_HOST` as a URL: it may lack the scheme and the port, and be the address that the server binds to."""
    try:
        place = urlsplit(value if "://" in value else f"http://{value}")
    except ValueError:
        return value  # Whoever uses it says that it is no URL.
    host = place.hostname or "127.0.0.1"
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    try:
        port = place.port
    except ValueError:
        port = None
    default = {"http": 80, "https": 443}[place.scheme] if value.startswith(("http://", "https://")) else 11434
    return f"{place.scheme}://{host}:{port or default}{place.path.rstrip('/')}"


@cache
def table() -> dict[str, Row]:
    read = load("tomllib:loads")(Path(__file__).with_name("providers.toml").read_text(encoding="utf-8"))
    rows = {}
    for name, given in read.items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }
        rows[name] = Row(id=name, **fields)
    return rows


def found_in(environ: Mapping[str, str]) -> list[Row]:
    """Those whose keys are in the environment, without those that must be named."""
    return [row for row in table().values() if not row.named and row.key_in(environ) and row.address(environ)]


def known(name: str) -> dict[str, Any]:
    """The settings of a provider of the table; empty if it is none."""
    row = table().get(name)
    return row.settings({}) if row is not None else {}


def row_of(base_url: str) -> Row | None:
    """The row of the server at this address."""
    try:
        host = urlsplit(base_url).netloc.lower()
    except ValueError:
        return None
    return next((row for row in table().values() if host and urlsplit(row.base_url).netloc == host), None)


def added(
    chosen: str,
    named: str,
    configured: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    alone: bool,
    local: bool,
    more: Iterable[str] = (),
    stored: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    """What the table adds to the configuration, the variable that each key of it is due to, and the providers added.

    `chosen` is `agent.provider`: it is added. The one `named` by the model, and those of the environment, are added
    only where none is `configured`, so that nothing changes for those who have one. If there is none (`alone`), the
    model's provider is the default, or else the first with a key, or (`local`) the first server on this machine. `more`
    providers are added where they are known. `stored`: those that `login` has a key of; they count like those of the
    environment, and are added beside configured ones, too.

    Raises ConfigError for a provider whose address only a variable can say, which is not set.
    """
    rows = table()
    wanted = [rows[chosen]] if chosen in rows and chosen not in configured else []
    kept = [row for row in rows.values() if row.id in stored and row.id not in configured and row.address(environ)]
    found: list[Row] = kept if configured else []
    here: list[Row] = []
    agent: dict[str, Any] = {}
    if not configured:
        wanted += [rows[named]] if named in rows and named != chosen else []
        found = [*found_in(environ), *kept]
        if alone and local and not wanted and not found:
            local_ones = [row for row in rows.values() if row.local]
            found = here = [row for row in local_ones if load(LOCAL_SERVER)(row.address(environ), *row.local)]
        if alone and (wanted or found):
            agent = {"agent": {"provider": (wanted or found)[0].id}}
    others = [rows[name] for name in more if name in rows and name not in configured]
    every = list(dict.fromkeys([*wanted, *found, *others]))
    if lost := [row for row in every if not row.address(environ)]:
        raise ConfigError(f"The provider `{lost[0].id}` has no address: set {lost[0].hint}.")
    providers = {row.id: row.settings(environ) for row in every}
    origins = {
        f"providers.{row.id}.{name}": row.key_in(environ) or (FOUND_HERE if row in here else "by name")
        for row in every
        for name in providers[row.id]
    }
    if agent:
        chosen = (wanted or found)[0].id
        origins["agent.provider"] = origins[f"providers.{chosen}.base_url"]
    return ({**agent, "providers": providers} if providers else {}), origins, tuple(providers)
