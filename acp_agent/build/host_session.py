"""Lets a session be where its files are, too, on another machine or in a container, before its parts are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acp_agent.build.own_credentials import outside
from acp_agent.config.load import Config
from acp_agent.config.place_settings import is_host
from acp_agent.config.xdg import config_dir, data_dir, state_dir
from acp_agent.errors import ExecutorError
from acp_agent.lazy import load
from acp_agent.loop.calls.session_rules import session_rules
from acp_agent.loop.judging import judged
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.skills import read_skills
from acp_agent.safety.folders.paths import Roots

if TYPE_CHECKING:
    from acp_agent.executors.places.host import Host


HOST = "acp_agent.executors.places.host:Host"
FAR_WALLS = "acp_agent.executors.far.far_walls:FarWalls"
SIDE_WALLS = "acp_agent.loop.shell.side_walls:SideWalls"
WALLS_SENT = (
    "acp_agent.config.safety_settings",
    "acp_agent.config.trusted_files",
    "acp_agent.executors.sandbox.bare_program",
    "acp_agent.executors.sandbox.base",
    "acp_agent.executors.sandbox.bubblewrap",
    "acp_agent.executors.sandbox.common_dirs",
    "acp_agent.executors.sandbox.ending",
    "acp_agent.executors.sandbox.holders",
    "acp_agent.executors.sandbox.inside",
    "acp_agent.executors.sandbox.landlock",
    "acp_agent.executors.sandbox.landlock_alone",
    "acp_agent.executors.sandbox.noop",
    "acp_agent.executors.sandbox.pids",
    "acp_agent.executors.sandbox.probe",
    "acp_agent.executors.sandbox.seatbelt",
    "acp_agent.executors.sandbox.seccomp",
    "acp_agent.executors.sandbox.syscalls",
    "acp_agent.executors.sandbox.system",
    "acp_agent.executors.sandbox.toolchains",
    "acp_agent.executors.sandbox.visible_paths",
    "acp_agent.legible",
    "acp_agent.loop.shell.command_paths",
    "acp_agent.loop.shell.command_policy",
    "acp_agent.loop.shell.held_files",
    "acp_agent.loop.shell.private_folder",
    "acp_agent.loop.shell.side_walls",
    "acp_agent.safety.folders.paths",
    "acp_agent.safety.folders.protect",
    "acp_agent.safety.folders.repository",
    "acp_agent.safety.folders.survey",
    "acp_agent.safety.globs",
    "acp_agent.undo.git_index",
)
"""What `SIDE_WALLS` needs there besides what is there already."""


async def reached(config: Config, opened: Roots, environ: Mapping[str, str]) -> tuple[Roots, Host | None]:
    """The folders of a session where its place is, and the host, reached, if they are on one. `opened`: those that it
    was opened with, or what was made of them.

    Raises ExecutorError with a sentence.
    """
    settings, here = config.settings, opened.here
    place = settings.place()
    if place is None or not is_host(place):
        return here, None
    host: Host = load(HOST)(place, here.all, outside(config, environ))
    if settings.tools.scope.user:
        words = "commands there run as the user that its place names, so `tools.scope.run_as_user` is not held"
        raise ExecutorError(f"{host.words} cannot be used: {words}")
    try:
        roots = await settled(host, config, here, environ)
        await judged(roots, partial(_asked, config, roots, environ))
    except BaseException:
        await host.end()
        raise
    return roots, host


async def settled(host: Host, config: Config, here: Roots, environ: Mapping[str, str]) -> Roots:
    """The session's folders on a host, with their rules; what confines commands there is known to the host then.
    Raises ExecutorError with a sentence."""
    await host.reached()
    roots = Roots(host.folders[0], host.folders[1:], disk=host.disk, named=host.named, here=here)

    def find_rules() -> None:
        roots.rules = session_rules(config, roots, environ, host.home)

    await judged(roots, find_rules)
    if host.walled:
        host.walls = load(FAR_WALLS)(host.link, SIDE_WALLS, WALLS_SENT, _walls_given(config, roots, host))
    return roots


def _walls_given(config: Config, roots: Roots, host: Host) -> dict[str, Any]:
    """As `SideWalls` gets it."""
    there = host.link.there
    environ = dict(there.environ) if there is not None else {}
    sandbox = config.settings.tools.sandbox
    asked = {"strict": True, "disabled": False} if host.contained else {}  # By `landlock` of its place.
    # Nobody there asks about hosts.
    network = "allow" if sandbox.network == "allow" else "deny"
    own = [config_dir(environ), state_dir(environ), data_dir(environ)]
    return {
        "folders": [str(folder) for folder in roots.all],
        "home": str(host.home),
        "environ": environ,
        "sandbox": {**msgspec.to_builtins(sandbox), "network": network, **asked},
        "rules": {**roots.rules.given, "own": own, "forbidden": [str(path) for path in roots.rules.forbidden]},
    }


def _asked(config: Config, roots: Roots, environ: Mapping[str, str]) -> None:
    """What the parts ask when they are built, asked in a thread, so that it is known in the event loop."""
    _ = build_instructions(config, roots, Path(state_dir(environ))).facts
    if config.settings.agent.skills:
        read_skills(roots)
        Library(roots, Path(config_dir(environ)), reads=True)


def build_instructions(config: Config, roots: Roots, state: Path, limits: Callable[[], str] = str) -> Instructions:
    agent = config.settings.agent
    enabled, most = agent.instruction_files, agent.max_instruction_bytes
    return Instructions(roots, enabled=enabled, max_bytes=most, state=state, limits=limits)
