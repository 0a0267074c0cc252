"""The sandbox of Linux: bubblewrap (namespaces), a seccomp filter, and Landlock inside.

The command sees an empty file system with only what it may see mounted into it. bubblewrap reads its arguments from a
file, so that neither other users nor the command can see what is hidden where.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import stat
import subprocess
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Confined, Invocation, SandboxKind, SandboxPolicy
from acp_agent.executors.sandbox.ending import end_namespace
from acp_agent.executors.sandbox.holders import hold, release
from acp_agent.executors.sandbox.landlock import DEVICE, INSIDE, READ, WRITE, Rule, abi, inside_words, interpreter
from acp_agent.executors.sandbox.pids import ENTER, door, find_groups, make_group, remove_group
from acp_agent.executors.sandbox.seccomp import write_filter
from acp_agent.executors.sandbox.syscalls import ARCHES, Arch
from acp_agent.executors.sandbox.system import MASKED_PROC, READ_ONLY_PROC
from acp_agent.executors.sandbox.visible_paths import Spot, View, plan

USUAL = Path("/usr/bin/bwrap")
OLDEST = (0, 8)
VERSION_SECONDS = 3.0
INSIDE_THERE = "/run/acp-coder-inside.py"
INFO_FD, FILTER_FD, ARGS_FD = 7, 8, 9
LEAST_LANDLOCK = 2
"""Version 1 does not allow moving files to another folder."""

ALWAYS = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--new-session"),
)
"""The user namespace also for root: without it, its mounts would be the machine's."""

LIMIT = '(ulimit -u {n}) 2>/dev/null && ulimit -u {n} || ulimit -p {n} 2>/dev/null; exec "$@"'
"""For shells with either name of the option."""


class Bubblewrap(Struct, frozen=True):
    program: Path
    version: str
    arch: Arch
    landlock: int
    """Version of Landlock used inside; 0: none."""
    groups: Path | None
    """Where control groups can be created."""

    kind: SandboxKind = "bubblewrap"

    def words(self) -> str:
        inside = f" and Landlock (ABI {self.landlock})" if self.landlock else ""
        return f"bubblewrap {self.version} with seccomp{inside}"

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        if any(self.program.is_relative_to(path) for path in policy.writable if path != Path("/")):
            raise ExecutorError(f"{self.program} is in a folder that commands can write, so it cannot confine them")
        if policy.other_user and self.landlock and not str(interpreter()[1]).startswith("/usr"):
            return replace(self, landlock=0).confine(invocation, policy, folder)  # Others need not see our Python.
        if policy.scratch is not None:
            for name in ("tmp", "home"):
                (policy.scratch / name).mkdir(mode=0o700, exist_ok=True)
        more = (interpreter()[1],) if self.landlock else ()
        view = plan(policy, scratch=policy.scratch, more=more)
        if not view.sees(invocation.cwd):
            raise ExecutorError(
                f"commands cannot be run in {invocation.cwd}: it is outside the session's folders, which is all the "
                "sandbox shows (add to them with tools.sandbox.allow_read and allow_write)"
            )
        with contextlib.ExitStack() as stack:
            run = uuid.uuid4().hex
            held = hold(view.missing)
            stack.callback(release, held)
            spots = [spot for each in view.spots if (spot := _found(each, held)) is not None]
            arguments = folder / f"bwrap-{run}.args"
            stack.callback(arguments.unlink, missing_ok=True)
            own_thread = threading.current_thread() is threading.main_thread()
            dies = invocation.by_script or own_thread
            with open(os.open(arguments, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(b"".join(os.fsencode(word) + b"\0" for word in self._arguments(spots, policy, dies)))
                file.write(b"--chdir\0" + os.fsencode(invocation.cwd) + b"\0")
            filter_file = write_filter(folder, self.arch, unix_sockets=policy.unix_sockets)
            start: list[str] = []
            limited = self._limited(invocation.argv, policy)
            if policy.max_processes and self.groups is not None and not policy.other_user:
                group = make_group(self.groups, policy.max_processes + 3)  # bubblewrap's own are in it
                if group is not None:
                    stack.callback(remove_group, group)
                    start = ["/bin/sh", "-c", ENTER, "sh", str(door(group))]
            info = folder / f"bwrap-{run}.info"
            stack.callback(info.unlink, missing_ok=True)
            os.close(os.open(info, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            stack.callback(end_namespace, info)  # Before everything else: what is above is taken away afterwards.
            own = {"--info-fd": INFO_FD, "--seccomp": FILTER_FD, "--args": ARGS_FD}
            start.append(str(self.program))
            slots = {}
            for option, number in own.items():
                start += [option, str(number)]
                slots[len(start) - 1] = number
            start.append("--")
            return Confined(
                (*start, *self._inside(spots), *limited),
                Path("/"),
                _environment(invocation, view),
                {INFO_FD: info, FILTER_FD: filter_file, ARGS_FD: arguments},
                frozenset({INFO_FD}),
                slots,
                killed_at_once=dies,
                cleanup=stack.pop_all().close,
            )

    def _limited(self, argv: tuple[str, ...], policy: SandboxPolicy) -> tuple[str, ...]:
        """Only a control group limits root."""
        root_or_group = self.groups is not None or os.geteuid() == 0
        if not policy.max_processes or (root_or_group and not policy.other_user):
            return argv
        return ("/bin/sh", "-c", LIMIT.format(n=policy.max_processes), "sh", *argv)

    def _inside(self, spots: Iterable[Spot]) -> list[str]:
        if not self.landlock:
            return []
        rules: list[Rule] = [(READ, Path("/")), (DEVICE, Path("/dev")), (WRITE, Path("/dev/shm"))]
        rules.append((DEVICE, Path("/proc")))
        rules += [(WRITE, spot.path) for spot in spots if spot.treatment in ("write", "stand-in", "empty")]
        return [str(interpreter()[0]), "-I", "-S", INSIDE_THERE, *inside_words(self.landlock, rules), "--"]

    def _arguments(self, spots: list[Spot], policy: SandboxPolicy, dies: bool) -> Iterable[str]:
        yield from ALWAYS
        if not os.statvfs("/proc/sys/user").f_flag & os.ST_RDONLY:
            yield "--disable-userns"  # A kernel setting does this; otherwise only the filter does.
        if dies:
            yield "--die-with-parent"
        if not policy.network:
            yield "--unshare-net"
        whole = any(spot.path == Path("/") for spot in spots)
        if whole:
            yield from _mount(spots[0])
        yield from ("--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--proc", "/proc")
        is_root = os.geteuid() == 0
        for name in READ_ONLY_PROC if is_root else READ_ONLY_PROC[:1]:
            if os.path.exists(name):
                yield from ("--ro-bind", name, name)
        for name in MASKED_PROC if is_root else ():
            if os.path.exists(name):
                yield from ("--ro-bind", "/dev/null", name)
        for spot in spots[1:] if whole else spots:
            if not (whole and spot.treatment == "link"):
                yield from _mount(spot)
        if self.landlock:
            yield from ("--ro-bind", str(INSIDE), INSIDE_THERE)
        for spot in spots:
            if spot.treatment == "hide" and spot.path.is_dir():
                yield from ("--remount-ro", str(spot.path))
        yield from ("--remount-ro", "/dev")
        if not whole:
            yield from ("--remount-ro", "/")


def _found(spot: Spot, held: list[Path]) -> Spot | None:
    """Paths that needed no placeholder: something is there by now and is protected, or nothing can be there."""
    if spot.treatment != "absent" or spot.path in held:
        return spot
    return Spot(spot.path, "protect") if os.path.lexists(spot.path) else None


def _mount(spot: Spot) -> Iterable[str]:
    path = str(spot.path)
    match spot.treatment:
        case "link":
            return ("--symlink", os.readlink(path), path)
        case "read" | "protect":
            return ("--ro-bind", path, path)
        case "write" | "keep":
            return ("--bind", path, path)
        case "stand-in":
            return ("--bind", str(spot.source), path)
        case "empty":
            return ("--perms", "1777" if path.endswith("tmp") else "0755", "--tmpfs", path)
        case "absent":
            return ("--perms", "0555", "--tmpfs", path)  # as good as read-only: what is put there is nowhere
        case "hide":
            if spot.path.is_dir():
                return ("--perms", "0555", "--tmpfs", path)
            return ("--ro-bind", "/dev/null", path)  # Without devices in it, that cannot even be opened.


def _environment(invocation: Invocation, view: View) -> dict[str, str]:
    """Only the command's environment: everything in the sandbox can read what bubblewrap was started with."""
    env = dict(invocation.env)
    for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
        if name in env and not view.sees(Path(env[name])):
            del env[name]  # Programs look into the default then, which is there.
    return env


def find(config: SandboxConfig) -> Bubblewrap:
    """Raises ExecutorError with the reason if none is usable. May take a while: run it in a thread."""
    if platform.system() != "Linux":
        raise ExecutorError("bubblewrap runs only on Linux")
    arch = ARCHES.get(platform.machine())
    if arch is None:
        raise ExecutorError(f"there is no seccomp filter for this architecture ({platform.machine()})")
    program = _program()
    version = _version(program)
    landlock = abi() if config.landlock else 0
    return Bubblewrap(
        program,
        version,
        arch,
        landlock if landlock >= LEAST_LANDLOCK else 0,
        find_groups() if config.max_processes > 0 else None,
    )


def _program() -> Path:
    candidates = [USUAL]
    own = [Path.cwd(), Path.home()]
    other = shutil.which("bwrap")
    if other is not None:
        path = Path(other).resolve()
        if not any(path.is_relative_to(folder) for folder in own):
            candidates.append(path)
    for path in candidates:
        try:
            found = path.stat()
        except OSError:
            continue
        if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise ExecutorError(f"{path} is setuid, which is not used: a bug in it would run as root")
        if os.access(path, os.X_OK):
            return path
    raise ExecutorError("bubblewrap is not installed: apt-get install bubblewrap (or your system's package manager)")


def _version(program: Path) -> str:
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, env={}, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ExecutorError(f"{program} cannot be run: {error}") from error
    numbers = re.search(r"(\d+)\.(\d+)(\.\d+)*", answer)
    if numbers is None:
        raise ExecutorError(f"{program} does not report its version")
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise ExecutorError(f"{program} is version {numbers[0]}; 0.8 or newer is needed")
    return numbers[0]
