"""The plugins that the user has added: what was shown to them and accepted, by its digest.

The index is in the state folder, which no tool and no command changes; the files of plugins are in the data folder, so
that programs can read them. A plugin whose files are not those that were accepted is not used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.config.safety_settings import DecidingHook
from acp_agent.config.xdg import data_dir, plugin_index
from acp_agent.limits.decoding import read_json
from acp_agent.plugins.contained import Files, PluginError, read_files, write_files
from acp_agent.plugins.manifest import Plugin, expanded

log = logging.getLogger(__name__)

SCHEMA = 1
OF_PLUGIN = "plugin "
"""Begins the `of` of what a plugin has."""


class Installed(Struct, frozen=True):
    plugin: Plugin
    digest: str
    source: str
    """As given to `plugin add`."""
    at: str = ""
    """Which state of it: a commit, a version."""
    look: str = ""
    """Sizes, times and numbers of its files when they were put there."""


class _Index(Struct):
    schema: int = SCHEMA
    plugins: dict[str, Installed] = {}


class Shelf:
    """The plugins of a user."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._index = Path(plugin_index(environ))
        self._data = Path(data_dir(environ))

    def folder(self, name: str) -> Path:
        """Where its files are."""
        return self._data / "plugins" / name

    def data(self, name: str) -> Path:
        """Its own folder, which stays when it is updated."""
        return self._data / "plugin-data" / name

    def all(self) -> dict[str, Installed]:
        """By name. Raises PluginError for an index that cannot be read."""
        try:
            text = self._index.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise PluginError(f"{self._index} cannot be read: {error.strerror or error}.") from error
        try:
            index = read_json(text, type=_Index)
        except msgspec.DecodeError as error:
            raise PluginError(f"{self._index}: {error}.") from error
        if index.schema != SCHEMA:
            raise PluginError(f"{self._index} was written by another version of acp-coder.")
        return index.plugins

    def put(self, plugin: Plugin, files: Files, source: str, at: str) -> None:
        """Adds it, or replaces the one of its name. Raises PluginError if that cannot be written."""
        place = self.folder(plugin.name)
        new, old = place.with_name(f".{plugin.name}.new"), place.with_name(f".{plugin.name}.old")
        try:
            msgspec.json.encode(plugin)
        except UnicodeEncodeError as error:
            raise PluginError(f"{plugin.name} has a name or text that is no Unicode.") from error
        try:
            for left in (new, old):
                shutil.rmtree(left, ignore_errors=True)
            write_files(files, new)
            if place.exists():
                place.rename(old)
            new.rename(place)
            shutil.rmtree(old, ignore_errors=True)
            self._write({**self.all(), plugin.name: Installed(plugin, files.digest, source, at, _look(place))})
        except OSError as error:
            raise PluginError(f"{plugin.name} cannot be stored: {error.strerror or error}.") from error

    def remove(self, name: str) -> None:
        """Raises PluginError if there is none."""
        known = self.all()
        if known.pop(name, None) is None:
            raise PluginError(f"There is no plugin `{name}`.")
        self._write(known)
        for folder in (self.folder(name), self.data(name)):
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, plugins: Mapping[str, Installed]) -> None:
        self._index.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self._index.with_suffix(f".{os.getpid()}")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(_Index(plugins=dict(plugins))), indent=1))
        new.chmod(0o600)
        new.replace(self._index)

    def usable(self, disabled: Sequence[str]) -> tuple[list[Installed], list[str]]:
        """Those that are as they were accepted, with their folders in their hooks and servers; and what is wrong with
        others, in sentences."""
        try:
            known = self.all()
        except PluginError as error:
            return [], [f"The plugins cannot be used: {error}"]
        found, trouble = [], []
        for name, each in known.items():
            if name in disabled:
                continue
            if self._is_whole(name, each):
                found.append(replace(each, plugin=self._placed(each.plugin)))
            else:
                words = f"The files of the plugin `{name}` are not those that you accepted, so it is not used"
                trouble.append(f"{words}: `acp-coder plugin update {name}` shows the difference.")
        return found, trouble

    def is_whole(self, of: str) -> bool:
        """Whether the files of the plugin that something is of are those that were accepted."""
        name = of.removeprefix(OF_PLUGIN)
        try:
            each = self.all().get(name)
        except PluginError:
            return False
        return each is not None and self._is_whole(name, each)

    def _is_whole(self, name: str, each: Installed) -> bool:
        return _look(self.folder(name)) == each.look or self._digest(name) == each.digest

    def _digest(self, name: str) -> str:
        try:
            return read_files(self.folder(name)).digest
        except PluginError as error:
            log.warning("the plugin %s: %s", name, error)
            return ""

    def _placed(self, plugin: Plugin) -> Plugin:
        root, data = str(self.folder(plugin.name)), str(self.data(plugin.name))
        of = f"{OF_PLUGIN}{plugin.name}"
        return replace(
            plugin,
            hooks=tuple(_hook(hook, root, data, of) for hook in plugin.hooks),
            servers={
                f"{plugin.name}-{name}": _server(server, root, data, of) for name, server in plugin.servers.items()
            },
            skills={name: f"{root}/{path}" for name, path in plugin.skills.items()},
        )


def _hook(hook: DecidingHook, root: str, data: str, of: str) -> DecidingHook:
    env = {"CLAUDE_PLUGIN_ROOT": root, "PLUGIN_ROOT": root, "PLUGIN_DATA": data}
    return replace(hook, command=expanded(hook.command, root, data), env={**hook.env, **env}, frees=False, of=of)


def _server(server: McpServerConfig, root: str, data: str, of: str) -> McpServerConfig:
    if server.url:
        return server
    return replace(
        server,
        of=of,
        command=expanded(server.command, root, data),
        args=[expanded(word, root, data) for word in server.args],
        env={
            **{name: expanded(value, root, data) for name, value in server.env.items()},
            "PLUGIN_ROOT": root,
            "CLAUDE_PLUGIN_ROOT": root,
            "PLUGIN_DATA": data,
        },
        cwd=expanded(server.cwd, root, data) or root,
    )


def _look(folder: Path) -> str:
    """Places, sizes, times and numbers of all that is in a folder: the same only if nothing was changed."""
    found: list[str] = []
    for top, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for path in sorted(os.path.join(top, name) for name in (*names, *links)):
            try:
                status = os.lstat(path)
            except OSError:
                return ""
            numbers = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
            found.append(f"{os.path.relpath(path, folder)} {numbers}")
    return hashlib.sha256("\n".join(found).encode("utf-8", "surrogateescape")).hexdigest()
