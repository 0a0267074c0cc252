"""Landlock and seccomp without namespaces: for kernels and containers that refuse them.

Limits of Landlock: a writable folder is writable as a whole, so nothing in it is protected; the machine's /tmp and
processes are visible; modes and times of this user's files can be changed anywhere. See the table in docs/sandbox.md.
"""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Confined, Invocation, SandboxKind, SandboxPolicy
from acp_agent.executors.sandbox.landlock import (
    DEVICE,
    INSIDE,
    READ,
    READ_DIR,
    WRITE,
    Rule,
    abi,
    inside_words,
    interpreter,
)
from acp_agent.executors.sandbox.pids import ENTER, door, end_group, find_groups, make_group, remove_group
from acp_agent.executors.sandbox.seccomp import write_filter
from acp_agent.executors.sandbox.syscalls import ARCHES, Arch
from acp_agent.executors.sandbox.system import READABLE, link_targets, secrets

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

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        name = uuid.uuid4().hex
        with contextlib.ExitStack() as stack:
            scratch = policy.scratch or folder / f"scratch-{name}"
            for place in (scratch, scratch / "tmp", scratch / "home"):
                place.mkdir(mode=0o700, exist_ok=True)
            if policy.scratch is None:
                stack.callback(_remove_tree, scratch)
            spec = folder / f"landlock-{name}.spec"
            stack.callback(spec.unlink, missing_ok=True)
            words = inside_words(self.version, _rules(policy, scratch))
            with open(os.open(spec, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(b"".join(os.fsencode(word) + b"\0" for word in words))
            bpf = write_filter(folder, self.arch, unix_sockets=policy.unix_sockets, network=policy.network)
            start: list[str] = []
            if policy.max_processes and self.groups is not None:
                group = make_group(self.groups, policy.max_processes)
                if group is not None:
                    stack.callback(remove_group, group)
                    stack.callback(end_group, group)  # There is no namespace that would end.
                    start = ["/bin/sh", "-c", ENTER, "sh", str(door(group))]
            start += [str(interpreter()[0]), "-I", "-S", str(INSIDE)]
            start += ["spec", str(spec), "filter", str(bpf), "caps", "drop", "--"]
            env = {**invocation.env, "TMPDIR": str(scratch / "tmp")}
            if policy.home is not None and not any(policy.home.is_relative_to(path) for path in policy.writable):
                env["HOME"] = str(scratch / "home")
            return Confined((*start, *invocation.argv), invocation.cwd, env, cleanup=stack.pop_all().close)


def _rules(policy: SandboxPolicy, scratch: Path) -> Iterator[Rule]:
    hidden = [*secrets(), *policy.hidden]
    readable = [*map(Path, READABLE), *link_targets(), interpreter()[1], *policy.readable, *policy.writable]
    for path in readable:
        yield from _reading(path, [place for place in hidden if place.is_relative_to(path)])
    for path in policy.writable:
        if path not in hidden:
            yield (WRITE, path)
    for path in (scratch / "tmp", scratch / "home", Path("/dev/shm")):
        yield (READ | WRITE, path)
    yield (READ, Path("/proc"))
    for path in DEVICES:
        yield (DEVICE, path)


def _reading(path: Path, hidden: list[Path]) -> Iterator[Rule]:
    """Rules only allow: around what is hidden, everything else is allowed by name. Names can be listed all the same."""
    if not hidden:
        yield (READ, path)
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
