"""`acp-coder plugin`: add, list, show, update, remove and check plugins.

Nothing of one counts before it was shown whole and accepted.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from acp_agent.commands.setup import agreed
from acp_agent.errors import UsageError
from acp_agent.plugins.contained import Files, PluginError, read_files
from acp_agent.plugins.installed import Installed, Shelf
from acp_agent.plugins.manifest import Plugin, read_plugin
from acp_agent.plugins.plugin_sources import Found, fetch
from acp_agent.plugins.shown import described, difference

REFUSED = 1


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """0; 1 for a plugin that was not accepted or, with `check`, is not as it should be. Raises PluginError."""
    shelf = Shelf(environ)
    return VERBS[options.verb](options, shelf, environ)


def _add(options: Namespace, shelf: Shelf, environ: Mapping[str, str]) -> int:
    return _accept(options, shelf, _absolute(options.source), fetch(options.source, environ), None)


def _update(options: Namespace, shelf: Shelf, environ: Mapping[str, str]) -> int:
    status = 0
    for name in [options.name] if options.name else list(shelf.all()):
        known = _known(shelf, name)
        found = fetch(known.source, environ)
        if found.files.digest == known.digest and _same(shelf, known):
            _line(f"{name} is as it was.")
            continue
        status = max(status, _accept(options, shelf, known.source, found, known))
    return status


def _same(shelf: Shelf, known: Installed) -> bool:
    try:
        return read_files(shelf.folder(known.plugin.name)).digest == known.digest
    except PluginError:
        return False


def _accept(options: Namespace, shelf: Shelf, source: str, found: Found, known: Installed | None) -> int:
    plugin = read_plugin(found.files)
    there = shelf.all().get(plugin.name)
    if known is None and there is not None:
        raise PluginError(f"There is a plugin `{plugin.name}` already, of {there.source}: update or remove that.")
    if known is not None and plugin.name != known.plugin.name:
        raise PluginError(f"It is called `{plugin.name}` now: remove `{known.plugin.name}` and add it again.")
    if known is not None:
        try:
            old = read_files(shelf.folder(plugin.name))
        except PluginError:
            old = Files({}, frozenset(), ())
        _line("\n".join(difference(old, found.files)))
    _line("\n".join(described(plugin, found.files)))
    if not _agreed(options, found.files.digest):
        _line("Nothing was changed.")
        return REFUSED
    shelf.put(plugin, found.files, source, found.at)
    _line(f"{plugin.name} is used from the next session on.")
    return 0


def _agreed(options: Namespace, digest: str) -> bool:
    """Raises UsageError if nobody can be asked."""
    if options.digest:
        if options.digest != digest:
            _line(f"Its digest is {digest}, not {options.digest}.")
        return bool(options.digest == digest)
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked: look at it, then give --digest {digest}")
    return agreed("Use exactly these files?")


def _list(options: Namespace, shelf: Shelf, environ: Mapping[str, str]) -> int:
    for name, each in shelf.all().items():
        at = f" at {each.at}" if each.at else ""
        _line(f"{name} {each.plugin.version}".strip() + f"  {each.source}{at}  {each.digest[:19]}")
    _, trouble = shelf.usable(())
    for words in trouble:
        _line(words)
    return 0


def _show(options: Namespace, shelf: Shelf, environ: Mapping[str, str]) -> int:
    known = _known(shelf, options.name)
    files = read_files(shelf.folder(options.name))
    _line("\n".join(described(known.plugin, files)))
    if files.digest != known.digest:
        _line("These are not the files that you accepted, so it is not used.")
    return 0


def _remove(options: Namespace, shelf: Shelf, environ: Mapping[str, str]) -> int:
    shelf.remove(options.name)
    _line(f"{options.name} is removed, with its data.")
    return 0


def _check(options: Namespace, shelf: Shelf, environ: Mapping[str, str]) -> int:
    """For authors."""
    files = read_files(Path(options.source))
    plugin = read_plugin(files)
    _line("\n".join(described(plugin, files)))
    return 1 if plugin.trouble or _empty(plugin) else 0


def _empty(plugin: Plugin) -> bool:
    has = any((plugin.skills, plugin.commands, plugin.agents, plugin.hooks, plugin.servers))
    if not has:
        _line("There is nothing in it: no skills, commands, sub-agents, hooks or MCP servers.")
    return not has


def _known(shelf: Shelf, name: str) -> Installed:
    found = shelf.all().get(name)
    if found is None:
        raise PluginError(f"There is no plugin `{name}`.")
    return found


def _absolute(source: str) -> str:
    """A folder or file as it will be found from elsewhere, too."""
    where, mark, part = source.partition("#")
    path = Path(where).expanduser()
    return f"{path.resolve()}{mark}{part}" if path.exists() else source


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


VERBS: dict[str, Callable[[Namespace, Shelf, Mapping[str, str]], int]] = {
    "add": _add,
    "list": _list,
    "show": _show,
    "update": _update,
    "remove": _remove,
    "check": _check,
}
