"""`acp-coder policy explain` and `policy test`: what the active rules say about calls, without making them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import msgspec

from acp_agent.commands.config import config_here
from acp_agent.config.load import load_config
from acp_agent.errors import ConfigError, ToolError, UsageError
from acp_agent.limits.decoding import read_toml
from acp_agent.loop.calls.dry_run import Checked, check_call
from acp_agent.loop.calls.session_rules import home_of, roots_of
from acp_agent.loop.modes import MODES, Mode
from acp_agent.loop.policy_commands import learned_words
from acp_agent.opening import open_store
from acp_agent.safety.deciding.deciders import Deciders
from acp_agent.safety.deciding.own_names import with_own_names
from acp_agent.safety.deciding.subjects import SaidByHook
from acp_agent.safety.folders.paths import real_path
from acp_agent.tools.kit.registry import SessionRegistry, builtin_registry


class _Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    expect: str
    command: str = ""
    tool: str = ""
    arguments: dict[str, object] = {}
    rule: str = ""
    """Must occur in the rule that decided."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    test: list[_Test]


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """`explain`: 0; `test`: 0 where every verdict is the expected one, else 1. Raises UsageError, ConfigError."""
    cwd = real_path(Path(options.cwd or Path.cwd()))
    if not cwd.is_dir():
        raise UsageError(f"--cwd: {cwd} is not an existing folder")
    if options.verb == "learned":
        store = open_store(load_config(environ), environ)
        try:
            sys.stdout.write(learned_words(store.trajectories, str(cwd), " ".join(options.rest)) + "\n")
        finally:
            store.close()
        return 0
    ask = Asker(cwd, options.mode, environ)
    if options.verb == "explain":
        if not options.text.strip():
            raise UsageError("nothing to explain: give a command line, or with --tool the arguments of a call as JSON")
        tool = options.tool or "bash"
        arguments = options.text if options.tool else json.dumps({"command": options.text})
        sys.stdout.write("\n".join(ask(tool, arguments).lines) + "\n")
        return 0
    return _test(Path(options.file), ask)


class Asker:
    """The deciders of a session in `cwd`."""

    def __init__(self, cwd: Path, mode: str | None, environ: Mapping[str, str]) -> None:
        self.config = config = config_here(environ, cwd)
        settings = config.settings
        tools = settings.tools
        self.roots = roots = roots_of(config, cwd, environ)
        self.registry = SessionRegistry(builtin_registry())
        tools = with_own_names(tools, self._own_name)
        self._deciders = Deciders.from_config(tools, roots, environ, home_of(environ), config.origin_of)
        self.mode: Mode = MODES[mode or settings.agent.mode]  # type: ignore[index]
        self._tools = tools
        if trouble := self._deciders.rules.trouble:
            raise ConfigError("\n".join(trouble))

    def _own_name(self, name: str) -> str:
        entry = self.registry.find(name)
        return name if entry is None else entry.name

    def __call__(self, tool: str, arguments: str, hooked: SaidByHook | None = None) -> Checked:
        """Raises UsageError for a call that cannot be."""
        try:
            return check_call(self.registry, self._tools, self._deciders, self.mode, tool, arguments, hooked)
        except ToolError as error:
            raise UsageError(str(error)) from error


def _test(file: Path, ask: Asker) -> int:
    failed = 0
    tests = _read(file)
    for number, test in enumerate(tests, 1):
        arguments: Mapping[str, object] = test.arguments if test.tool else {"command": test.command}
        checked = ask(test.tool or "bash", json.dumps(arguments))
        what = test.command or f"{test.tool} {json.dumps(test.arguments)}"
        good = checked.outcome == test.expect and test.rule in checked.rule
        failed += not good
        mark = "ok " if good else "BAD"
        wanted = "" if good else f", expected {test.expect}" + (f" by a rule with {test.rule!r}" if test.rule else "")
        sys.stdout.write(f"{mark} {number}. {what}: {checked.outcome}{wanted}  [{checked.rule or 'no rule'}]\n")
    sys.stdout.write(f"{len(tests) - failed} of {len(tests)} as expected\n")
    return 1 if failed else 0


def _read(file: Path) -> list[_Test]:
    try:
        tests = msgspec.convert(read_toml(file.read_text(encoding="utf-8")), _File).test
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(
            f"{file}: {error} (each [[test]] has `command`, or `tool` and `arguments`, and `expect`)"
        ) from error
    if not tests:
        raise UsageError(f"{file}: it contains no [[test]]")
    for number, test in enumerate(tests, 1):
        if bool(test.command) == bool(test.tool):
            raise UsageError(f"{file}: test {number}: give either `command` or `tool` and `arguments`")
        if test.expect not in ("allow", "ask", "deny"):
            raise UsageError(f"{file}: test {number}: `expect` may be 'allow', 'ask', 'deny'")
    return tests
