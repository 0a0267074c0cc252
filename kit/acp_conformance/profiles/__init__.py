"""How agents are told of the scripted model server: a TOML file for each known one beside this module."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from acp_agent.errors import UsageError

FOLDER = Path(__file__).parent
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "NODE_PATH", "VIRTUAL_ENV")
"""Variables that an agent gets from ours; everything else is the profile's."""


ToolKind = Literal["shell", "read", "write", "asks", "plan", "no_plan", "proposal", "question", "delegate"]


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool of the agent's, and its arguments, with `{command}`, `{path}`, `{text}` and the like in them."""

    name: str
    arguments: dict[str, Any]
    mode: str = ""
    """The mode of the session in which the agent has it, if it has not in its first one."""

    def call(self, **values: str) -> tuple[str, dict[str, Any]]:
        return self.name, _filled(self.arguments, values)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts may name `{base_url}` (of the model server, with `/v1`), `{root_url}` (without), `{model}` and `{home}`."""

    name: str = ""
    version: list[str] = []
    """Arguments, instead of the command's own, that print its version."""
    api: Literal["", "chat", "responses", "messages", "gemini"] = ""
    """Of the model server; empty: the agent cannot be told of one."""
    arguments: list[str] = []
    """Behind the command."""
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    """Files of its home -> their text."""
    tools: dict[ToolKind, Tool] = {}
    """That run a command line `{command}`, read a file `{path}`, write `{text}` to one. `asks`: one that it asks about
    before it runs the command line, if it does not with `shell`. `plan`: one that shows the steps `{first}`, which is
    `{status}`, and `{second}`; `no_plan`: one that takes them away; `proposal`: one that shows a plan `{text}` in
    Markdown for the user to approve. `question`: one that asks the user `{text}`. `delegate`: one that has a sub-agent
    do `{text}`."""
    asks: dict[str, Any] = {}
    """What makes it ask before it runs a command: `mode`, an id for `session/set_mode`."""
    asides: bool = False
    """Whether it also asks the model for other things than turns (titles): those requests are without the tool for
    commands."""
    seconds: float = 10.0
    """That an answer, or anything else that is waited for, may take at least: slow agents start for long."""
    notes: str = ""


def profile(name: str) -> Profile:
    """By name, or by the path of a file. Raises UsageError."""
    file = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Profile)
    except FileNotFoundError as error:
        known = ", ".join(sorted(each.stem for each in FOLDER.glob("*.toml")))
        raise UsageError(
            f"there is no profile {name!r}; known are {known}, or give the path of a .toml file"
        ) from error
    except (msgspec.DecodeError, OSError) as error:
        raise UsageError(f"{file}: {error}") from error


def environment(of: Profile, values: Mapping[str, str]) -> dict[str, str]:
    """What the agent is started with. `values`: what the profile's texts may name."""
    ours = {name: os.environ[name] for name in KEPT if name in os.environ}
    home = values["home"]
    return {**ours, "HOME": home, **{name: _filled(text, values) for name, text in of.environment.items()}}


def write_files(of: Profile, values: Mapping[str, str]) -> None:
    for name, text in of.files.items():
        file = Path(values["home"], name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled(text, values), encoding="utf-8")


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    """Texts in it, with the values put in for their names."""
    if isinstance(value, dict):
        return {name: _filled(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace(f"{{{name}}}", text)
    return value
