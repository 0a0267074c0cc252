"""`acp-coder config`: every key, its value, its origin and the rules that it became; the user's file and its keys."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from acp_agent.config.load import Config, load_config
from acp_agent.config.safety_settings import plain_url
from acp_agent.config.xdg import config_file
from acp_agent.errors import ConfigError, UsageError
from acp_agent.lazy import load
from acp_agent.limits.descriptors import restoring
from acp_agent.loop.toolbox.trust import project_layer
from acp_agent.opening import open_store
from acp_agent.safety.deciding.rule_list import RuleList

WITH_KEY = "acp_agent.setup.mcp_table:with_key"
READ_TEXT = "acp_agent.setup.change:read_text"
HIDDEN = ("api_key", "client_secret", "env", "headers")
"""Keys whose values are not shown."""
OTHER_KEYS = {"tools.risk": "tools.risk.block_high_risk_commands", "default": "tools.policy.default"}
"""Names of rules that do not begin with their key."""


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    file = Path(config_file(environ))
    if options.verb == "path":
        sys.stdout.write(f"{file}\n")
    elif options.verb == "set":
        text = load(WITH_KEY)(load(READ_TEXT)(file) or "", options.key, options.value, str(file))
        file.parent.mkdir(parents=True, exist_ok=True)
        _replace(file, text, environ)
        sys.stdout.write(f"{options.key} is set in {file}.\n")
    elif options.verb == "edit":
        file.parent.mkdir(parents=True, exist_ok=True)
        editor = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
        if subprocess.run([*shlex.split(editor), str(file)], check=False, **restoring()).returncode:
            raise UsageError(f"{editor} failed; it is $EDITOR")
        load_config(environ)
    elif options.verb == "check":
        notes = config_here(environ).notes
        sys.stdout.writelines(f"{note}\n" for note in notes)
        sys.stdout.write(
            f"{file} has no errors.\n" if file.exists() else f"{file} does not exist; the defaults are used.\n"
        )
    else:
        return _show(options, environ)
    return 0


def _replace(file: Path, text: str, environ: Mapping[str, str]) -> None:
    """Writes a configuration that was found to be right. Raises ConfigError, and has written nothing then."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        if file.exists():
            shutil.copymode(file, fresh)
        load_config({**environ, "ACP_CODER_CONFIG": str(fresh)})
        fresh.replace(file.resolve())
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(fresh), str(file))) from error
    finally:
        fresh.unlink(missing_ok=True)


def _show(options: Namespace, environ: Mapping[str, str]) -> int:
    config = config_here(environ)
    rules = RuleList.compile(config.settings.tools, environ, origin=config.origin_of).rules
    for key, value in rows(config):
        if options.changed and config.origin(key) == "default":
            continue
        origin = f"    # {config.origin(key)}" if options.origin else ""
        sys.stdout.write(f"{key} = {value}{origin}\n")
        made = (rule for rule in rules if OTHER_KEYS.get(rule.name, re.sub(r"\[\d+\]$", "", rule.name)) == key)
        sys.stdout.writelines(f"    # {rule.section}: {rule}\n" for rule in made)
    return 0


def config_here(environ: Mapping[str, str], folder: Path | None = None) -> Config:
    """The effective configuration in a folder (the current one), including the folder's own if it is trusted."""
    config = load_config(environ)
    store = open_store(config, environ)
    try:
        layer = project_layer(str(folder or Path.cwd()), store)
    finally:
        store.close()
    return config if layer is None else load_config(environ, project=layer)


def rows(config: Config) -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as TOML would write them; secrets are named, not shown."""
    settings = msgspec.to_builtins(config.settings)
    settings["providers"].setdefault("default", msgspec.to_builtins(config.settings.provider("default")))
    yield from _flat(settings, "")


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if name in HIDDEN or prefix + name == "store.url":
            yield prefix + name, '"(set)"' if value else '""'
        elif isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            if isinstance(value, list):
                value = [_masked(each) if isinstance(each, dict) else each for each in value]
            elif name == "url" and value:
                value = plain_url(value)
            yield prefix + name, msgspec.json.encode(value).decode()


def _masked(table: dict[str, Any]) -> dict[str, Any]:
    shown = {name: "(set)" if name in HIDDEN and value else value for name, value in table.items()}
    return {**shown, "url": plain_url(table["url"])} if table.get("url") else shown
