"""Where configuration comes from: files, environment, flags, as plain nested dicts with the origin of each value.

Standard library only, without validation: `initialize` is answered from here before anything heavier is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping

from acp_agent.config.xdg import config_file
from acp_agent.errors import ConfigError
from acp_agent.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


TOML = "tomllib:loads"
PROJECT_FILE = ".acp-coder/config.toml"
"""Below the session's working directory."""

ENVIRONMENT: dict[str, str] = {
    "OPENAI_BASE_URL": "providers.default.base_url",
    "OPENAI_MODEL": "agent.model",
    "HARBOR_ACP_REQUESTED_MODEL": "agent.model",  # Harbor takes one only from the options of `session/new`.
    "ACP_CODER_PROVIDER": "agent.provider",
    "ACP_CODER_API": "providers.default.api",
    "ACP_CODER_SCRIPT": "providers.default.script",
    "ACP_CODER_MODE": "agent.mode",
    "ACP_CODER_FAR": "agent.far",
    "ACP_CODER_REMEMBERED_ANSWERS": "agent.remembered_answers",
    "ACP_CODER_PLACE": "agent.place",
    "ACP_CODER_STORE_URL": "store.url",
    "ACP_CODER_TMUX": "tools.tmux.session",
    "ACP_CODER_THOUGHT_LEVEL": "agent.thought_level",
    "ACP_CODER_MAX_TOOL_ITERATIONS": "agent.max_tool_iterations",
    "ACP_CODER_FIND_LOCAL_SERVERS": "agent.find_local_servers",
    "ACP_CODER_MAX_COST": "agent.max_cost",
    "ACP_CODER_RECORD": "agent.record",
    "ACP_CODER_RECORD_WIRE": "agent.record_wire",
    "ACP_CODER_SCHEDULES": "tools.schedule.enabled",
    "ACP_CODER_STORE": "store.path",
    "ACP_CODER_AUDIT_FILE": "audit.file",
    "ACP_CODER_SANDBOX_DISABLED": "tools.sandbox.disabled",
    "ACP_CODER_LOG_LEVEL": "log.level",
    "ACP_CODER_LOG_FILE": "log.file",
}
"""Environment variable -> the key it sets. `OPENAI_API_KEY` is read where keys are looked up, never copied here."""


class Layer:
    """One source: its values and, for messages, where each can be found."""

    __slots__ = ("name", "origins", "renamed", "text", "values")

    def __init__(
        self, name: str, values: dict[str, Any], text: str = "", origins: dict[str, str] | None = None
    ) -> None:
        self.name = name
        """A file's path, `environment` or `command line`."""
        self.values = values
        self.text = text
        """The file's text, to name lines in errors."""
        self.origins = origins or {}
        """Dotted key -> the environment variable or flag that set it."""
        self.renamed: dict[str, str] = {}
        """Dotted key -> the other name under which the text has it."""


def read_file(path: str) -> Layer | None:
    """Returns the file as a layer, `None` if it does not exist. Raises ConfigError if it is not TOML or cannot be
    read."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse(path, text)


def parse(path: str, text: str) -> Layer:
    """`text` of the file `path` as a layer. Raises ConfigError naming file and line."""
    try:
        return Layer(path, load(TOML)(text.removeprefix("\ufeff")), text)
    except (ValueError, RecursionError) as error:  # tomllib.TOMLDecodeError, which is loaded only here
        words = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{path}: not valid TOML: {words}") from error


def user_layers(environ: Mapping[str, str]) -> list[Layer]:
    """The layers that do not depend on a project, lowest first."""
    file = read_file(config_file(environ))
    return [*([file] if file else []), environment_layer(environ)]


ENVIRONMENT_LAYER = "environment"


def environment_layer(environ: Mapping[str, str]) -> Layer:
    values: dict[str, Any] = {}
    origins = {}
    for variable, key in ENVIRONMENT.items():
        if text := environ.get(variable, "").strip():
            _set(values, key, text)
            origins[key] = variable
    return Layer(ENVIRONMENT_LAYER, values, origins=origins)


def flags_layer(flags: Mapping[str, Any]) -> Layer:
    """Dotted key -> text, as given on the command line, or a list of texts."""
    values: dict[str, Any] = {}
    for key, text in flags.items():
        _set(values, key, text)
    return Layer("command line", values, origins={key: f"--set {key}" for key in flags})


def merge(layers: list[Layer]) -> dict[str, Any]:
    """The layers on top of each other; tables are merged, other values replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        _overlay(merged, layer.values)
    return merged


def _overlay(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, dict):
            table = below.get(key)
            table = dict(table) if isinstance(table, dict) else {}
            _overlay(table, value)
            below[key] = table
        else:
            below[key] = value


def _set(values: dict[str, Any], key: str, text: Any) -> None:
    *tables, last = key.split(".")
    for table in tables:
        values = values.setdefault(table, {})
    values[last] = text
