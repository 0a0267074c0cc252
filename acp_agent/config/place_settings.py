"""`[places.NAME]`: where commands may run besides this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Literal

import msgspec

from acp_agent.config.language_settings import key
from acp_agent.errors import ConfigError


class PlaceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["container", "devcontainer"], key("What it is.", project=True)] = "container"
    container: Annotated[
        str,
        key("A running container that has the session's folders at the same paths; it is left as it is.", project=True),
    ] = ""
    image: Annotated[
        str, key("Without such a container: an image, from which one is started for the session.", project=True)
    ] = ""
    folder: Annotated[
        str, key("Of a dev container: the folder with its `devcontainer.json`. Empty: the session's folder.")
    ] = ""
    engine: Annotated[str, key("`podman`, `docker` or `nerdctl`, or its path. Empty: the first of them found.")] = ""
    network: Annotated[str, key("Network of a started container: `none`, or the engine's name of one.")] = "none"
    env: Annotated[list[str], key("Variables of this machine that commands there get; no others.")] = []
    arguments: Annotated[list[str], key("More arguments for the engine's `run`; they may lift its limits.")] = []


Place = tuple[str, PlaceConfig]
"""Its name in words for the user, and what it is found by."""


def find_place(wanted: str, places: Mapping[str, PlaceConfig]) -> Place | None:
    """`None`: this machine. Raises ConfigError."""
    if wanted.startswith("devcontainer:"):
        folder = wanted.removeprefix("devcontainer:")
        return PurePath(folder).name or folder, PlaceConfig(kind="devcontainer", folder=folder)
    name = wanted.removeprefix("container:")
    if wanted == "local":
        return None
    if name == wanted and name not in places:
        known = ", ".join(["local", *places])
        raise ConfigError(f"`agent.place`: {name!r} is not in the configuration; configured: {known}")
    return name, places.get(name) or PlaceConfig(container=name, image=name)
