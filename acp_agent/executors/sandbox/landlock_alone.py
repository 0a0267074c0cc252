"""Landlock and seccomp without namespaces: for kernels and containers that refuse them.

Limits of Landlock: a writable folder is writable as a whole, so nothing in it is protected; the machine's /tmp and
processes are visible; modes and times of this user's files can be changed anywhere. See the table in docs/sandbox.md.
"""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from acp_agent.disk import Identity
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.bare_program import placed
from acp_agent.executors.sandbox.base import Confined, Invocation, Proxied, SandboxKind, SandboxPolicy
from acp_agent.executors.sandbox.inside import Inside
from acp_agent.executors.sandbox.landlock import DEVICE, READ, READ_DIR, WRITE, Rule, abi, kind_of_rule
from acp_agent.executors.sandbox.pids import door, end_group, find_groups, make_group, remove_group
from acp_agent.executors.sandbox.seccomp import Sockets, write_filter
from acp_agent.executors.sandbox.syscalls import ARCHES, Arch
from acp_agent.executors.sandbox.system import READABLE, link_targets, now, own_python, secrets
from acp_agent.executors.sandbox.visible_paths import InReach, check_opened, identity_of
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.config.safety_settings import SandboxConfig
    from acp_agent.executors.sandbox.proxy.ways import Way

MACHINE_LOOPBACK = "acp_agent.executors.sandbox.proxy.ways:MachineLoopback"

PORTS = 4
"""From this one on, it decides about TCP ports."""
LEAST = 3
"""Older ones let a command empty any file of this user's."""

DEVICES = tuple(
    Path("/dev", name) for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd")
)


class LandlockAlone(Struct, frozen=True):
    version: int
    arch: Arch
    groups: Path | None

    kind: SandboxKind = "landlock"

    def words(self) -> str:
        return f"Landlock (ABI {self.version}) and seccomp, without namespaces"

    def way(self, user: Mapping[str, Any] | None) -> Way | None:
        if self.version < PORTS:
            return None
        made: Way = load(MACHINE_LOOPBACK)(user)
        return made

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        name = uuid.uuid4().hex
        with contextlib.ExitStack() as stack:
            scratch = policy.scratch or folder / f"scratch-{name}"
            for place in (scratch, scratch / "tmp", scratch / "home"):
                place.mkdir(mode=0o700, exist_ok=True)
            if policy.scratch is None:
                stack.callback(_remove_tree, scratch)
            inside = Inside(self.arch)
            entered: tuple[str, ...] = ()
            if policy.max_processes and self.groups is not None:
                group = make_group(self.groups, policy.max_processes)
                if group is not None:
                    stack.callback(remove_group, group)
                    stack.callback(end_group, group)  # There is no namespace that would end.
                    entered = inside.enter_group(door(group))
            inside.drop_capabilities(is_root=os.geteuid() == 0 and not policy.other_user)
            port = policy.network.port if isinstance(policy.network, Proxied) else 0
            inside.restrict_files(self.version, _rules(policy, scratch), port, _meant(policy))
            reach: Sockets = "tcp" if isinstance(policy.network, Proxied) else policy.network
            bpf = write_filter(folder, self.arch, unix_sockets=policy.unix_sockets, network=reach)
            inside.filter_calls(bpf.read_bytes())
            env = {**invocation.env, "TMPDIR": str(scratch / "tmp")}
            if policy.home is not None and not any(policy.home.is_relative_to(path) for path in policy.writable):
                env["HOME"] = str(scratch / "home")
            program = placed(inside.become(invocation.argv, env), folder / f"landlock-{name}", stack)
            return Confined(
                (str(program), *entered, *invocation.argv), invocation.cwd, env, cleanup=stack.pop_all().close
            )


def _meant(policy: SandboxPolicy) -> dict[Path, Identity]:
    """What may be at the paths that commands could have changed. Raises ExecutorError."""
    reach = InReach(policy)
    places = (path for path in (*policy.readable, *policy.writable) if path in reach and os.path.lexists(path))
    meant = {path: identity_of(path) for path in places}
    check_opened(policy)
    return meant


def _rules(policy: SandboxPolicy, scratch: Path) -> Iterator[Rule]:
    hidden = (*secrets(), *policy.hidden)
    system = (*map(Path, READABLE), *link_targets(), *own_python())
    inside = tuple(place for place in hidden if any(place.is_relative_to(path) for path in system))
    yield from _system_rules(system, inside, now())
    for path in (*policy.readable, *policy.writable):
        yield from _reading(path, [place for place in hidden if place.is_relative_to(path)])
    for path in policy.writable:
        if path not in hidden:
            yield kind_of_rule(WRITE, path)
    for path in (scratch / "tmp", scratch / "home", Path("/dev/shm")):
        yield (READ | WRITE, path)
    yield (READ, Path("/proc"))
    for path in DEVICES:
        yield kind_of_rule(DEVICE, path)


@lru_cache(maxsize=4)
def _system_rules(system: tuple[Path, ...], hidden: tuple[Path, ...], now: int) -> tuple[Rule, ...]:
    """Kept for a while: what is allowed is what was there, so nothing new gets visible."""
    return tuple(rule for path in system for rule in _reading(path, [p for p in hidden if p.is_relative_to(path)]))


def _reading(path: Path, hidden: list[Path]) -> Iterator[Rule]:
    """Rules only allow: around what is hidden, everything else is allowed by name. Names can be listed all the same."""
    if not hidden:
        yield kind_of_rule(READ, path)
        return
    if path in hidden:
        return
    try:
        with os.scandir(path) as entries:
            children = [Path(entry.path) for entry in entries if not entry.is_symlink()]
    except OSError:
        return
    yield (READ_DIR, path)
    for child in children:
        yield from _reading(child, [place for place in hidden if place.is_relative_to(child)])


def _remove_tree(folder: Path) -> None:
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                if os.path.isdir(path) and not os.path.islink(path):
                    os.rmdir(path)
                else:
                    os.unlink(path)
    with contextlib.suppress(OSError):
        folder.rmdir()


def find(config: SandboxConfig) -> LandlockAlone:
    """Raises ExecutorError with the reason if the kernel lacks support."""
    if platform.system() != "Linux":
        raise ExecutorError("Landlock exists only on Linux")
    arch = ARCHES.get(platform.machine())
    if arch is None:
        raise ExecutorError(f"there is no seccomp filter for this architecture ({platform.machine()})")
    version = abi()
    if version == 0:
        raise ExecutorError("the kernel has no Landlock, or it is disabled (boot with lsm=landlock,...)")
    if version < LEAST:
        raise ExecutorError(
            f"the kernel's Landlock is too old to be used alone (ABI {version}; {LEAST} comes with Linux 6.2)"
        )
    return LandlockAlone(version, arch, find_groups() if config.max_processes else None)
