"""What a hook adds to a call, and what fifty plugins add to a session."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import anyio

from acp_agent.config.load import load_config
from acp_agent.config.safety_settings import DecidingHook, PluginsConfig
from acp_agent.executors.local import LocalCommands
from acp_agent.loop.hooks.hook_runner import HookRunner
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.toolbox.session_plugins import SessionPlugins
from acp_agent.plugins.contained import read_files
from acp_agent.plugins.installed import Shelf
from acp_agent.plugins.manifest import read_plugin
from acp_agent.safety.folders.paths import Roots

Figure = tuple[str, str, list[float], str]
ROUNDS = 40
PLUGINS = 50
FILES = 20
FACTS = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "true"}}


def measure(home: Path) -> list[Figure]:
    return [*anyio.run(_hook, home), *_plugins(home)]


async def _hook(home: Path) -> list[Figure]:
    commands = LocalCommands()
    runner = HookRunner(lambda: commands, home, dict, lambda of, words: list(words))
    hook = DecidingHook("PreToolUse", command="cat >/dev/null")
    more: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        _alone(hook)
        alone = time.perf_counter() - begun
        begun = time.perf_counter()
        await runner.run(hook, FACTS)
        more.append((time.perf_counter() - begun - alone) * 1000)
    await commands.close()
    return [("a command hook, beyond its own process", "3 ms", more, "ms")]


def _alone(hook: DecidingHook) -> None:
    argv = ["bash", "-c", hook.command]
    subprocess.run(argv, input=json.dumps(FACTS).encode(), stdout=subprocess.PIPE, check=True)


def _plugins(home: Path) -> list[Figure]:
    environ = {"HOME": str(home / "plugins")}
    shelf = Shelf(environ)
    for number in range(PLUGINS):
        source = home / "source" / str(number)
        for each in range(FILES):
            for path, text in (
                (f"commands/c{each}.md", "---\ndescription: A command\n---\nDo something with $ARGUMENTS.\n" * 10),
                ("skills/s/SKILL.md", "---\ndescription: A skill\n---\nAs we do it.\n"),
                (".claude-plugin/plugin.json", json.dumps({"name": f"p{number}"})),
            ):
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                (source / path).write_text(text)
        files = read_files(source)
        shelf.put(read_plugin(files), files, str(source), "")
    roots = Roots(home)
    assert load_config(environ).settings.plugins.enabled
    took: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        plugins = SessionPlugins(PluginsConfig(), environ)
        plugins.lend({}, Library(roots, home / "none", reads=False))
        took.append((time.perf_counter() - begun) * 1000)
        assert not plugins.trouble
    return [(f"{PLUGINS} plugins of {FILES} commands: a session's start", "30 ms", took, "ms")]
