"""Layers -> `Config`: checked values that know where they came from, and errors that name file, line and key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from acp_agent.config.credentials import find_key, stored_names
from acp_agent.config.model import ProviderConfig, Settings, as_choice
from acp_agent.config.other_names import present_names
from acp_agent.config.place_settings import LOCAL, can_be_named, find_place, is_users
from acp_agent.config.safety_settings import OF_FOLDER
from acp_agent.config.sources import ENVIRONMENT_LAYER, Layer, environment_layer, flags_layer, merge, read_file
from acp_agent.config.xdg import config_file
from acp_agent.errors import ConfigError
from acp_agent.lazy import load

SERVERS = "mcp.servers"
PLACES = "places"
KNOWN = "acp_agent.config.provider_rows:added"
FOUND_HERE = "acp_agent.config.provider_rows:FOUND_HERE"
NOBODY_CHOSE = (
    "No model is configured, so `{name}` at {url} is used, which runs on this machine. Name a model in the "
    'configuration (`agent.model = "{name}/..."`) to choose it yourself.'
)


class Key(msgspec.Struct, frozen=True):
    """One key that may be set."""

    name: str
    """Dotted; `NAME` stands for any user-chosen name: `providers.NAME.models`."""
    type: Any
    default: Any
    description: str
    project: bool
    """Whether a project's own file may set it."""


class Config(msgspec.Struct, frozen=True):
    """The effective configuration."""

    settings: Settings
    layers: tuple[Layer, ...]
    """Lowest first, without the defaults."""
    trouble: str = ""
    """Why the project's configuration is not among them although it is trusted."""
    found: tuple[str, ...] = ()
    """The providers that were added from the table of known ones."""
    notes: tuple[str, ...] = ()
    """Keys that have another name here."""

    def in_place(self, place: str) -> Config:
        """The same with another `agent.place`. Raises ConfigError if that is none."""
        settings = self.settings
        if not settings.agent.elsewhere and place != settings.agent.place:
            raise ConfigError(f"`agent.elsewhere` is false: only {settings.agent.place!r} can be had")
        other = msgspec.structs.replace(settings, agent=msgspec.structs.replace(settings.agent, place=place))
        other.place()
        return msgspec.structs.replace(self, settings=other)

    def with_project(self, project: Layer) -> Config:
        """The same in a folder whose own file, this layer, has come to be trusted. Raises ConfigError."""
        at = next(index for index, layer in enumerate(self.layers) if layer.name == ENVIRONMENT_LAYER)
        below = list(self.layers[:at])
        notes, layer = _trusted(project, below)
        layers = [*below, layer, *self.layers[at:]]
        config = msgspec.structs.replace(
            self, settings=_convert(merge(layers), layers), layers=tuple(layers), notes=(*self.notes, *notes)
        )
        return config.in_place(self.settings.agent.place)

    def origin(self, key: str) -> str:
        """Where the value of the dotted `key` came from: `default`, a file with its line, a variable, a flag."""
        for layer in reversed(self.layers):
            if _has(layer.values, key):
                return _where(layer, key)
        return "default"

    def origin_of(self, key: str, index: int) -> str:
        """Where entry `index` of the list `key` is: `config.toml:14`; empty if it was not set."""
        for layer in reversed(self.layers):
            if _has(layer.values, key):
                line = _entry_line(layer.text, key, index)
                return f"{layer.name}:{line}" if line else _where(layer, key)
        return ""


def load_config(
    environ: Mapping[str, str] = os.environ, *, project: Layer | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    """Defaults < user file < project file (the layer of a trusted folder, if given) < environment < flags.

    Raises ConfigError naming file, line, key and the nearest valid key.
    """
    layers: list[Layer] = []
    notes: list[str] = []
    if file := read_file(config_file(environ)):
        notes += present_names(file)
        _check(file, project=False)
        layers.append(file)
    if project is not None:
        said, layer = _trusted(project, layers)
        notes += said
        layers.append(layer)
    layers.append(environment_layer(environ))
    if flags:
        notes += present_names(given := flags_layer(flags))
        _check(given, project=False)
        layers.append(given)
    known, found = _known_providers(merge(layers), environ)
    layers[:0] = known
    settings = _convert(merge(layers), layers)
    settings.place()
    _check_owners(settings, layers)
    if known and known[0].origins.get("agent.provider") == load(FOUND_HERE):
        chosen = settings.chosen_provider
        notes.append(NOBODY_CHOSE.format(name=chosen, url=settings.providers[chosen].base_url))
    return Config(settings, tuple(layers), found=found, notes=tuple(notes))


def _known_providers(merged: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[list[Layer], tuple[str, ...]]:
    """What the table of known providers adds, and those of it that the environment has keys of. The table is read only
    if a provider in it may be meant."""
    agent, configured = merged.get("agent", {}), merged.get("providers", {})
    if not isinstance(agent, dict) or not isinstance(configured, dict):
        return [], ()  # What is wrong with them is said by the check.
    chosen, model = str(agent.get("provider", "")), str(agent.get("model", ""))
    listed = agent.get("fallback_models", ())
    fallbacks = [as_choice(str(each)).partition("/")[0] for each in listed] if isinstance(listed, list) else []
    named = chosen not in ("", "default", *configured)
    keys_there = any(name.endswith("_API_KEY") and name != "OPENAI_API_KEY" for name in environ)
    stored = stored_names(environ)
    keys_there = keys_there or bool(stored)
    first = _first_configured(configured, chosen, model, environ) if configured else []
    if not named and not fallbacks and not stored and configured:
        return first, ()
    alone = not configured and not chosen and find_key("default", ProviderConfig(), environ) is None
    local = str(agent.get("find_local_servers", True)).lower() not in ("false", "0")
    by_model = name if (name := as_choice(model).partition("/")[0]) != model else ""
    if not (named or fallbacks or keys_there or by_model or (alone and local)):
        return first, ()
    values, origins, found = load(KNOWN)(
        chosen, by_model, configured, environ, alone=alone, local=local, more=fallbacks, stored=stored
    )
    return [*([Layer("known providers", values, origins=origins)] if values else []), *first], found


def _first_configured(
    configured: Mapping[str, Any], chosen: str, model: str, environ: Mapping[str, str]
) -> list[Layer]:
    """The first of the configured providers is the default where nothing else is."""
    named = as_choice(model).partition("/")[0] in configured
    if chosen or named or "default" in configured or find_key("default", ProviderConfig(), environ) is not None:
        return []
    first = next(iter(configured))
    return [Layer("configuration", {"agent": {"provider": first}}, origins={"agent.provider": "the first configured"})]


def keys(of: Any = Settings, prefix: str = "") -> Iterator[Key]:
    """Every key, in the order of the model."""
    hints = get_type_hints(of, include_extras=True)
    for field in msgspec.structs.fields(of):
        kind, description, project = _unwrap(hints[field.name])
        name = prefix + field.name
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from keys(kind, name + ".")
        elif get_origin(kind) is dict and _is_struct(get_args(kind)[1]):
            yield from keys(get_args(kind)[1], name + ".NAME.")
        else:
            yield Key(name, kind, _default(field), description, project)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unwrap(hint: Any) -> tuple[Any, str, bool]:
    if get_origin(hint) is not Annotated:
        return hint, "", False
    kind, *metas = get_args(hint)
    description = "".join(meta.description or "" for meta in metas)
    project = any((meta.extra or {}).get("project", False) for meta in metas)
    return kind, description, project


# --- checking ----------------------------------------------------------------------------------------------------


@cache
def _known() -> dict[str, Key]:
    return {key.name: key for key in keys()}


def _check(layer: Layer, *, project: bool) -> None:
    known = _known()
    for name in _names(layer.values):
        generic = _generic(name)
        key = known.get(generic) or _table_of(generic)
        if key is None and generic in _tables() and _get(layer.values, name) == {}:
            continue
        if key is None:
            raise ConfigError(_unknown(layer, name, generic, list(known)))
        if project and not key.project:
            raise ConfigError(
                f"{_where(layer, name)}: `{name}` cannot be set by a project, only in your own file or environment"
            )
    if project and is_users(str(_get(layer.values, "agent.place") or "")):
        words = "a project names hosts, dev containers and folders in one by a place in your own configuration only"
        raise ConfigError(f"{_where(layer, 'agent.place')}: `agent.place`: {words}")
    places = _get(layer.values, PLACES)
    for name in places if isinstance(places, dict) else ():
        if not can_be_named(name):
            words = f"`{PLACES}.{name}`: a place cannot be named {LOCAL!r}, and its name has no colon"
            raise ConfigError(f"{_where(layer, f'{PLACES}.{name}')}: {words}")


def _check_owners(settings: Settings, layers: list[Layer]) -> None:
    for name, owner in settings.server.owners.items():
        try:
            find_place(owner.place or LOCAL, settings.places)
        except ConfigError as error:
            key = f"server.owners.{name}.place"
            where = next(_where(layer, key) for layer in reversed(layers) if _has(layer.values, key))
            raise ConfigError(f"{where}: `{key}`: {str(error).removeprefix('`agent.place`: ')}") from error


def _check_named(project: Layer, below: list[Layer]) -> None:
    """A project may name MCP servers and places, but not change the user's: their variables and headers may be keys."""
    for table, kind in ((SERVERS, "server"), (PLACES, "place")):
        named = _get(project.values, table)
        for name in named if isinstance(named, dict) else ():
            if any(_has(layer.values, f"{table}.{name}") for layer in below):
                raise ConfigError(
                    f"{_where(project, f'{table}.{name}')}: `{table}.{name}` is a {kind} in your own configuration, "
                    "which a project cannot change; use another name in the project"
                )


def _trusted(project: Layer, below: list[Layer]) -> tuple[list[str], Layer]:
    """What there is to say of a trusted folder's layer, and the layer as it counts above these. Raises ConfigError."""
    notes = present_names(project)
    _check(project, project=True)
    _check_named(project, below)
    return list(notes), _of_folder(project, below)


def _of_folder(project: Layer, below: list[Layer]) -> Layer:
    """The project's hooks and servers are marked as its own. Its hooks run after the user's, never instead of them, and
    make nothing freer."""
    values, mark = dict(project.values), {"of": OF_FOLDER}
    if isinstance(servers := _get(values, SERVERS), dict):
        marked = {name: {**entry, **mark} if isinstance(entry, dict) else entry for name, entry in servers.items()}
        values["mcp"] = {**values["mcp"], "servers": marked}
    if isinstance(hooks := values.get("hooks"), dict):
        own, joined = _get(merge(below), "hooks") or {}, dict(hooks)
        for name, more in hooks.items():
            if isinstance(more, list):
                stricter = {**mark, "frees": False} if name == "on" else mark
                ours = [{**hook, **stricter} if isinstance(hook, dict) else hook for hook in more]
                joined[name] = [*own.get(name, ()), *ours]
        values["hooks"] = joined
    return Layer(project.name, values, project.text, project.origins)


@cache
def _named_tables() -> tuple[str, ...]:
    """The tables with user-chosen names: `providers`, `mcp.servers`."""
    return tuple(dict.fromkeys(name.partition(".NAME.")[0] for name in _known() if ".NAME." in name))


def _generic(name: str) -> str:
    for table in _named_tables():
        if name.startswith(f"{table}."):
            _, _, rest = name[len(table) + 1 :].partition(".")
            return f"{table}.NAME.{rest}" if rest else f"{table}.NAME"
    return name


def _table_of(name: str) -> Key | None:
    """The free-form table that contains `name`: `headers.X-Y` belongs to `headers`, at any depth."""
    while name := name.rpartition(".")[0]:
        key = _known().get(name)
        if key is not None:
            return key if get_origin(key.type) is dict else None
    return None


@cache
def _tables() -> frozenset[str]:
    """The names of all tables that contain keys."""
    names = [name.split(".") for name in _known()]
    return frozenset(".".join(name[:length]) for name in names for length in range(1, len(name)))


def _unknown(layer: Layer, name: str, generic: str, known: list[str]) -> str:
    tables = _tables()
    if generic in tables:
        return f"{_where(layer, name)}: `{name}` is a table, not a value"
    near = load("difflib:get_close_matches")(generic, [*known, *tables], n=1, cutoff=0.5)
    hint = f"; did you mean `{near[0]}`?" if near else "; see docs/configuration.md for all keys"
    return f"{_where(layer, name)}: unknown key `{name}`{hint}"


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        name = prefix + key
        if isinstance(value, dict) and value:
            yield from _names(value, name + ".")
        else:
            yield name


def _by_sections(merged: dict[str, Any]) -> Settings:
    """Checks only the types of keys that are set: resolving all types would dominate start-up."""
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    if not merged.keys() <= types.keys():
        return msgspec.convert(merged, Settings, strict=True)
    return Settings(**{name: msgspec.convert(value, types[name], strict=True) for name, value in merged.items()})


def _convert(merged: dict[str, Any], layers: list[Layer]) -> Settings:
    try:
        return _by_sections(merged)
    except msgspec.ValidationError:
        # Text from the environment may stand for a number or a boolean; text in a file may not.
        loose = _loosen(merged, layers)
        try:
            return msgspec.convert(loose, Settings, strict=True)
        except msgspec.ValidationError as error:
            raise ConfigError(_invalid(str(error), layers)) from error


def _loosen(merged: dict[str, Any], layers: list[Layer]) -> dict[str, Any]:
    types = {key.name: key.type for key in _known().values()}
    texts: dict[str, Any] = {}
    for layer in layers:
        for name in layer.origins:
            value = _get(merged, name)
            if not isinstance(value, str):
                continue
            if (kind := types.get(_generic(name))) is None:
                continue  # a header: it stays text
            try:
                converted = msgspec.convert(value, kind, strict=False)
            except msgspec.ValidationError:
                converted = value
            table = texts
            *path, last = name.split(".")
            for part in path:
                table = table.setdefault(part, {})
            table[last] = converted
    return merge([Layer("", merged), Layer("", texts)])


def _invalid(message: str, layers: list[Layer]) -> str:
    words, _, path = message.rpartition(" - at `$.")
    path = re.sub(r"\[\d+\]", "", path)  # the place within a list
    name = path.rstrip("`").replace("[...]", "").strip(".")
    if not words:
        return f"configuration: {message}"
    if "..." in path:  # msgspec names the keys of a dict only by `[...]`
        generic = re.compile(re.escape(path.rstrip("`")).replace(re.escape("[...]"), r"\.[^.]+"))
        for layer in layers:
            for candidate in _names(layer.values):
                if generic.fullmatch(candidate):
                    name = candidate
    for layer in reversed(layers):
        if _has(layer.values, name):
            return f"{_where(layer, name)}: `{name}`: {words[0].lower()}{words[1:]}{_choices(name)}"
    table = name
    while "." in table:  # an entry of a list, or of a table with names of the user's
        table = table.rpartition(".")[0]
        for layer in reversed(layers):
            if _has(layer.values, table):
                return f"{_where(layer, table)}: `{name}`: {words[0].lower()}{words[1:]}"
    return f"configuration: `{name}`: {words}"


def _choices(name: str) -> str:
    """The values a key may have, if there are few."""
    key = _known().get(_generic(name)) or _table_of(_generic(name))
    if key is None:
        return ""
    kind = get_args(key.type)[1] if get_origin(key.type) is dict else key.type
    words = [repr(word) for word in get_args(kind) if word] if get_origin(kind) is Literal else []
    return f"; it may be {', '.join(words)}" if words else ""


def _get(values: Mapping[str, Any], key: str) -> Any:
    at: Any = values
    for part in key.split("."):
        if not isinstance(at, Mapping) or part not in at:
            return None
        at = at[part]
    return at


def _has(values: Mapping[str, Any], key: str) -> bool:
    return _get(values, key) is not None


def _where(layer: Layer, key: str) -> str:
    if key in layer.origins:
        return f"{layer.name} ({layer.origins[key]})"
    line = _line(layer.text, layer.renamed.get(key, key))
    return f"{layer.name}:{line}" if line else layer.name


def _entry_line(text: str, key: str, index: int) -> int | None:
    """The line of an entry of a list: its own header (`[[key]]`), else the line within the list on which it begins."""
    headers = [
        number
        for number, line in enumerate(text.split("\n"), 1)
        if (header := re.match(r"\[\[([^\]]+)\]\]", line.strip())) and _dotted(header[1]) == key.split(".")
    ]
    if headers:
        return headers[index] if index < len(headers) else None
    first = _line(text, key)
    if first is None:
        return None
    seen = -1
    for number, line in enumerate(text.split("\n")[first - 1 :], first):
        content = line.partition("=")[2] if number == first else line
        seen += content.count("{") if "{" in content or number > first else 0
        if seen >= index:
            return number
        if content.strip().endswith("]"):
            break
    return first


def _dotted(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]


def _line(text: str, key: str) -> int | None:
    """The line of a TOML text that sets `key`: its own line in its table, else its table's."""
    parts = key.split(".")
    table: list[str] = []
    best: int | None = None
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if header := re.match(r"\[+([^\]]+)\]+", stripped):
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            if table == parts[: len(table)] or (best is None and table[: len(parts)] == parts):
                best = number
        elif assignment := re.match(r"([^=#]+?)\s*=", stripped):
            name = table + [part.strip().strip("\"'") for part in assignment[1].split(".")]
            if name == parts:
                return number
            if name == parts[: len(name)]:
                best = number
    return best
