"""`acp-coder hooks list` and `hooks test`: which hooks there are, and what they say of an event. The hooks do run."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import anyio

from acp_agent.commands.explain_policy import Asker
from acp_agent.config.safety_settings import DecidingHook, HookEvent, HooksConfig
from acp_agent.errors import HookFailed, ToolError, UsageError
from acp_agent.executors.local import LocalCommands
from acp_agent.limits.decoding import read_loose_json
from acp_agent.loop.hooks.call_patterns import our_tool
from acp_agent.loop.hooks.deciding_hooks import Decided, DecidingHooks
from acp_agent.loop.hooks.hook_names import in_our_names
from acp_agent.loop.hooks.hook_protocol import HookAnswer
from acp_agent.loop.hooks.hook_runner import HookRunner
from acp_agent.loop.hooks.hooks import PERMISSION_MODES, told_lines
from acp_agent.loop.toolbox.session_plugins import SessionPlugins
from acp_agent.loop.toolbox.trust import has_plugins
from acp_agent.loop.toolbox.trusted_programs import programs_here
from acp_agent.opening import open_store
from acp_agent.plugins.installed import Shelf
from acp_agent.safety.deciding.subjects import CallFacts, touched
from acp_agent.safety.folders.paths import real_path

CALL_ID = "test"


class _Shown(HookRunner, frozen=True):
    """Prints what each hook says."""

    async def run(self, hook: DecidingHook, facts: Mapping[str, Any]) -> HookAnswer:
        _line(f"asked: {hook.called}")
        try:
            answer = await HookRunner.run(self, hook, facts)
        except HookFailed as error:
            _line(f"  failed: {error}")
            raise
        for words, said in (
            ("says", f"{answer.effect} {answer.reason}".strip()),
            ("changes the input to", "" if answer.changed is None else json.dumps(answer.changed, ensure_ascii=False)),
            ("adds for the model", answer.context),
            ("tells you", answer.message),
            ("ends the turn", answer.stops or ("yes" if answer.stops is not None else "")),
        ):
            if said:
                _line(f"  {words}: {said}")
        return answer


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """0. Raises UsageError, ConfigError."""
    cwd = real_path(Path(options.cwd or Path.cwd()))
    if not cwd.is_dir():
        raise UsageError(f"--cwd: {cwd} is not an existing folder")
    asker = Asker(cwd, getattr(options, "mode", None), environ)
    config = asker.config.settings.hooks
    commands = LocalCommands(environ=environ, folders=(cwd,))
    mode = PERMISSION_MODES[asker.mode.id]
    about = {"session_id": CALL_ID, "transcript_path": "", "cwd": str(cwd), "permission_mode": mode}
    plugins = SessionPlugins(asker.config.settings.plugins, environ) if has_plugins(environ) else None
    store = open_store(asker.config, environ)
    with closing(store), programs_here(cwd, store, Shelf(environ).is_whole) as programs:
        runner = _Shown(lambda: commands, cwd, dict, programs.words)
        hooks = _hooks(asker, plugins, runner, about)
        return _listed(config, hooks) if options.verb == "list" else _tried(options, hooks, asker)


def _hooks(asker: Asker, plugins: SessionPlugins | None, runner: HookRunner, about: Mapping[str, str]) -> DecidingHooks:
    config = asker.config.settings.hooks
    return DecidingHooks(
        [*config.on, *(() if plugins is None else plugins.hooks)],
        runner,
        lambda: about,
        clean=str,
        tell=lambda words: None,
        note=lambda words, **about: None,
        max_context=config.max_context_chars,
    )


def _listed(config: HooksConfig, hooks: DecidingHooks) -> int:
    lines = [*told_lines(config), *hooks.lines()]
    _line("\n".join(lines) or "There are no hooks: `[[hooks.on]]` in the configuration adds one.")
    return 0


def _tried(options: Namespace, hooks: DecidingHooks, asker: Asker) -> int:
    if options.event not in get_args(HookEvent):
        raise UsageError(f"there is no event {options.event!r}: {', '.join(get_args(HookEvent))}")
    try:
        given = read_loose_json(options.input)
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise UsageError("--input is not a JSON object")
    for line in hooks.trouble:
        _line(line)
    anyio.run(_test, options, given, hooks, asker)
    return 0


async def _test(options: Namespace, given: dict[str, Any], hooks: DecidingHooks, asker: Asker) -> None:
    event: HookEvent = options.event
    if event not in ("PreToolUse", "PostToolUse", "PermissionRequest"):
        facts = {name: value for name, value in given.items() if name != "hook_event_name"}
        done = await hooks.tell(event, options.kind, **facts)
        _line(_outcome(done) or "nothing is decided")
        return
    tool = our_tool(options.tool)
    entry = asker.registry.find(tool)
    if entry is None:
        raise UsageError(f"there is no tool {options.tool!r}")
    tool, given = entry.name, in_our_names(entry.name, given) if tool != options.tool else given

    async def spellings(arguments: dict[str, Any]) -> tuple[str, ...] | None:
        made = asker.registry.tool(tool)
        try:
            params = made.parse(arguments)
            accesses = made.access(params, asker.roots, asker.roots.cwd, asker.config.settings.tools)
        except ToolError as error:
            raise HookFailed(str(error)) from error
        return touched(CallFacts(tool, arguments, accesses), asker.roots)

    call = CallFacts(tool, given, (), CALL_ID)
    try:
        before = await spellings(given)
    except HookFailed as error:
        raise UsageError(f"--input: {error}") from error
    if event == "PostToolUse":
        done = await hooks.post_tool_use(call, {"content": "", "success": True}, before)
        _line("\n".join(done.context) or "nothing is added for the model")
        return
    if event == "PermissionRequest":
        done = await hooks.permission_request(call, before)
        _line(_outcome(done) or "the user is asked")
        return
    done = await hooks.pre_tool_use(call, spellings)
    _line(_outcome(done) or "the hooks decide nothing")
    arguments = done.arguments or given
    if done.arguments is not None:
        _line(f"input: {json.dumps(arguments, ensure_ascii=False)}")
    _line("\n".join(asker(tool, json.dumps(arguments), done.said).lines))


def _outcome(done: Decided) -> str:
    said = done.said
    return "" if said is None else f"the hooks say {said.effect}{said.because} ({said.rule})"


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
