"""The sandbox of Linux: bubblewrap (namespaces), a seccomp filter, and Landlock inside.

The command sees an empty file system with only what it may see mounted into it. bubblewrap reads its arguments from a
file, so that neither other users nor the command can see what is hidden where.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import stat
import subprocess
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.bare_program import placed
from acp_agent.executors.sandbox.base import Confined, Copies, Invocation, Proxied, SandboxKind, SandboxPolicy
from acp_agent.executors.sandbox.ending import end_namespace
from acp_agent.executors.sandbox.holders import hold, release
from acp_agent.executors.sandbox.inside import Inside
from acp_agent.executors.sandbox.landlock import DEVICE, READ, WRITE, Rule, abi, kind_of_rule
from acp_agent.executors.sandbox.pids import door, find_groups, make_group, remove_group
from acp_agent.executors.sandbox.seccomp import write_filter
from acp_agent.executors.sandbox.syscalls import ARCHES, Arch
from acp_agent.executors.sandbox.system import MASKED_PROC, READ_ONLY_PROC, own_python
from acp_agent.executors.sandbox.visible_paths import HELD, ROOT, InReach, Spot, View, folders_above, is_below, plan
from acp_agent.lazy import load
from acp_agent.limits.descriptors import restoring

if TYPE_CHECKING:
    from acp_agent.config.safety_settings import SandboxConfig
    from acp_agent.executors.sandbox.proxy.ways import Way

OWN_NETWORK = "acp_agent.executors.sandbox.proxy.ways:OwnNetwork"

USUAL = Path("/usr/bin/bwrap")
OLDEST = (0, 8)
VERSION_SECONDS = 3.0
INSIDE_THERE = "/run/acp-coder-inside"
INFO_FD, FILTER_FD, ARGS_FD, INSIDE_FD = 7, 8, 9, 6
LEAST_LANDLOCK = 2
"""Version 1 does not allow moving files to another folder."""

ALWAYS = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL"),
)
"""The user namespace also for root: without it, its mounts would be the machine's."""

TO_MOUNT = (
    *("--uid", "0", "--gid", "0", "--cap-add", "CAP_SYS_ADMIN"),
    *("--cap-add", "CAP_SYS_RESOURCE", "--cap-add", "CAP_SETFCAP"),
)
"""Lets `inside` mount links to copies, forbid further namespaces and enter one, in which it has nothing of this."""


class Bubblewrap(Struct, frozen=True):
    program: Path
    version: str
    arch: Arch
    landlock: int
    """Version of Landlock used inside; 0: none."""
    groups: Path | None
    """Where control groups can be created."""
    copies: bool = True
    """Whether links to copies can be mounted here."""

    kind: SandboxKind = "bubblewrap"

    def words(self) -> str:
        inside = f" and Landlock (ABI {self.landlock})" if self.landlock else ""
        return f"bubblewrap {self.version} with seccomp{inside}"

    def way(self, user: Mapping[str, Any] | None) -> Way | None:
        made: Way = load(OWN_NETWORK)(self.program, user)
        return made

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        if any(is_below(self.program, path) for path in policy.writable if path != ROOT):
            raise ExecutorError(f"{self.program} is in a folder that commands can write, so it cannot confine them")
        if policy.scratch is not None:
            for name in ("tmp", "home"):
                (policy.scratch / name).mkdir(mode=0o700, exist_ok=True)
        stand_ins = policy.copies.stand_ins if policy.copies is not None else {}
        if not self.copies:
            policy = replace(policy, copies=None)
        more = () if policy.other_user else own_python()
        view = plan(policy, scratch=policy.scratch, more=more, stand_ins=stand_ins)
        if not view.sees(invocation.cwd):
            raise ExecutorError(
                f"commands cannot be run in {invocation.cwd}: it is outside the session's folders, which is all the "
                "sandbox shows (add to them with tools.sandbox.allow_read and allow_write)"
            )
        with contextlib.ExitStack() as stack:
            run = uuid.uuid4().hex
            held = hold(view.missing)
            stack.callback(release, held)
            unheld = {*view.missing}.difference(held)
            found = (_found(spot) if spot.path in unheld else spot for spot in view.spots)
            spots = [spot for spot in found if spot is not None]
            inner = self._inner(spots, policy)
            dies = invocation.by_script or threading.current_thread() is threading.main_thread()
            filter_file = write_filter(folder, self.arch, unix_sockets=policy.unix_sockets)
            words = self._arguments(spots, inner, policy, dies, invocation.in_terminal)
            arguments = os.fsencode("\0".join([*words, "--chdir", str(invocation.cwd), ""]))
            files = {
                "--args": (ARGS_FD, _private(folder / f"bwrap-{run}.args", arguments)),
                "--info-fd": (INFO_FD, _private(folder / f"bwrap-{run}.info", b"")),
            }
            there: tuple[str, ...] = ()
            if (program := self._inside(invocation, spots, inner, policy, filter_file)) is not None:
                files["--ro-bind-data"] = (INSIDE_FD, _private(folder / f"bwrap-{run}.inside", program))
                there = (INSIDE_THERE,)
            for _, path in files.values():
                stack.callback(path.unlink, missing_ok=True)
            if not self.copies:
                files["--seccomp"] = (FILTER_FD, filter_file)
            enter, given = Inside(self.arch), list[str]()
            if policy.max_processes and self.groups is not None and not policy.other_user:
                group = make_group(self.groups, policy.max_processes + 3)  # bubblewrap's own are in it
                if group is not None:
                    stack.callback(remove_group, group)
                    given = [*enter.enter_group(door(group))]
            if isinstance(policy.network, Proxied):
                enter.join(policy.network.doors)
            start = [] if enter.empty else ["", *given]
            stack.callback(end_namespace, files["--info-fd"][1])  # First: what is above is taken away afterwards.
            start.append(str(self.program))
            slots = {}
            for option, (number, _) in files.items():
                if option == "--ro-bind-data":
                    start += ["--perms", "0555"]
                start += [option, str(number)]
                slots[len(start) - 1] = number
                if option == "--ro-bind-data":
                    start.append(INSIDE_THERE)
            argv = (*start, "--", *there, *invocation.argv)
            if not enter.empty:
                program = enter.become(argv[1 + len(given) :], {})
                argv = (str(placed(program, folder / f"bwrap-{run}.enter", stack)), *argv[1:])
            return Confined(
                argv,
                Path("/"),
                _environment(invocation, view),
                dict(files.values()),
                frozenset({INFO_FD}),
                slots,
                killed_at_once=dies,
                cleanup=stack.pop_all().close,
            )

    def _inside(
        self, invocation: Invocation, spots: list[Spot], inner: dict[Path, Spot], policy: SandboxPolicy, filters: Path
    ) -> bytes | None:
        """The program that runs last; `None` where nothing is left for it to do."""
        # Only a control group limits root.
        by_group = (self.groups is not None or os.geteuid() == 0) and not policy.other_user
        limited = policy.max_processes > 0 and not by_group
        inside = Inside(self.arch)
        reach = InReach(policy)
        # First what all the others are in: in another folder nothing must be mounted.
        for spot in spots:
            if spot.path not in inner and spot.path in reach and spot.treatment != "link":
                identity = spot.identity if spot.treatment != "hide" else None
                inside.expect(spot.path, identity, read_only=spot.treatment in ("read", "protect"))
        for spot in inner.values():
            self._mount_inside(inside, spot)
        for spot in inner.values():
            identity = spot.identity if spot.treatment != "hide" else None
            inside.expect(spot.path, identity, read_only=spot.treatment in ("protect", "absent", "hide"))
        if self.copies:
            names = policy.copies.files.items() if policy.copies is not None else ()
            inside.mount_links((Copies.THERE / name / "link", file) for file, name in names)
            inside.bound_namespaces()
            inside.mount_read_only(_kernels_own())
            inside.leave_namespace(*(policy.runs_as or (os.geteuid(), os.getegid())))
        if limited:
            inside.limit_processes(policy.max_processes, resource.getrlimit(resource.RLIMIT_NPROC)[1])
        if self.copies:
            inside.drop_capabilities(is_root=(policy.runs_as or (os.geteuid(),))[0] == 0)
        if self.landlock:
            rules: list[Rule] = [(READ, Path("/")), (DEVICE, Path("/dev")), (WRITE, Path("/dev/shm"))]
            rules.append((DEVICE, Path("/proc")))
            rules += [(WRITE, spot.path) for spot in spots if spot.treatment in ("stand-in", "empty")]
            rules += [kind_of_rule(WRITE, spot.path) for spot in spots if spot.treatment == "write"]
            rules += [(WRITE, Copies.THERE)] if policy.copies is not None else []
            inside.restrict_files(self.landlock, rules)
        if self.copies:
            inside.filter_calls(filters.read_bytes())
        if inside.empty:
            return None
        inside.close_files()
        return inside.become(invocation.argv, invocation.env)

    def _inner(self, spots: Iterable[Spot], policy: SandboxPolicy) -> dict[Path, Spot]:
        """What is mounted behind bubblewrap, once it is known that what it is in is the session's folder: bubblewrap
        makes what it mounts something on if that is missing, also in another folder."""
        if not self.copies:
            return {}
        own = policy.copies.stand_ins.values() if policy.copies is not None else ()
        reach, inner, outer = InReach(policy), dict[Path, Spot](), list[Path]()
        for spot in spots:
            ours = spot.treatment in (*HELD, "hide") or spot.source in own
            if _is_hidden_file(spot) or (ours and spot.path in reach):
                inner[spot.path] = spot
            else:
                outer.append(spot.path)
        around = folders_above(outer)
        return {path: spot for path, spot in inner.items() if str(path) not in around}

    def _mount_inside(self, inside: Inside, spot: Spot) -> None:
        path = str(spot.path)
        if spot.treatment == "hide" and spot.identity is not None:
            inside.expect(spot.path, spot.identity, mounted=False)  # Where it is by now, it would be seen.
        if spot.source is not None:
            inside.mount(_stand_in(spot.source), path)
        elif spot.treatment == "keep":
            inside.mount(path, path)
        elif spot.treatment == "protect":
            inside.mount_read_only([(path, path)], runs=not os.statvfs(path).f_flag & os.ST_NOEXEC)
        elif _is_hidden_file(spot):
            inside.mount_read_only([("/dev/null", path)])
        else:
            inside.mount_empty(path, closed=spot.closed)

    def _arguments(
        self, spots: list[Spot], inner: dict[Path, Spot], policy: SandboxPolicy, dies: bool, in_terminal: bool
    ) -> Iterable[str]:
        yield from ALWAYS
        if not in_terminal:
            yield "--new-session"  # No terminal of somebody else's to type into.
        if self.copies:
            yield from TO_MOUNT
        elif not os.statvfs("/proc/sys/user").f_flag & os.ST_RDONLY:
            yield "--disable-userns"  # A kernel setting does this; otherwise only the filter does.
        if dies:
            yield "--die-with-parent"
        if policy.network == "none":
            yield "--unshare-net"
        whole = spots[0].path == ROOT
        if whole:
            yield from _mount(spots[0])
        yield from ("--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--proc", "/proc")
        if not self.copies:
            for source, name in _kernels_own():
                yield from ("--ro-bind", source, name)
        for spot in spots[1:] if whole else spots:
            if not (whole and spot.treatment == "link") and spot.path not in inner:
                yield from _mount(spot)
        if policy.copies is not None:
            yield from ("--bind", str(policy.copies.folder), str(Copies.THERE))
        for stand_in in (spot.source for spot in inner.values() if spot.source is not None):
            yield from ("--bind", str(stand_in), _stand_in(stand_in))
        for spot in spots:
            if spot.treatment == "hide" and os.path.isdir(spot.path) and spot.path not in inner:
                yield from ("--remount-ro", str(spot.path))
        yield from ("--remount-ro", "/dev")
        if not whole:
            yield from ("--remount-ro", "/")


def _private(path: Path, content: bytes) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path


def _found(spot: Spot) -> Spot | None:
    """Of a path that needed no placeholder: something is there by now and is protected, or nothing can be there."""
    return Spot(spot.path, "protect") if os.path.lexists(spot.path) else None


def _kernels_own() -> list[tuple[str, str]]:
    """What takes the place of files of the kernel's, read-only."""
    is_root = os.geteuid() == 0
    kept = [(name, name) for name in (READ_ONLY_PROC if is_root else READ_ONLY_PROC[:1])]
    masked = [("/dev/null", name) for name in (MASKED_PROC if is_root else ())]
    return [pair for pair in (*kept, *masked) if os.path.exists(pair[1])]


def _stand_in(source: Path) -> str:
    """Where it is until it is mounted in its place; nobody can put a link there, since it is a mount itself."""
    return f"{Copies.THERE}-{source.name}"


def _is_hidden_file(spot: Spot) -> bool:
    return spot.treatment == "hide" and not os.path.isdir(spot.path)


def _mount(spot: Spot) -> Iterable[str]:
    path, treatment = str(spot.path), spot.treatment
    if treatment == "link":
        return ("--symlink", os.readlink(path), path)
    if treatment in ("read", "protect"):
        return ("--ro-bind", path, path)
    if treatment in ("write", "keep"):
        return ("--bind", path, path)
    if treatment == "stand-in":
        return ("--bind", str(spot.source), path)
    if treatment == "empty":
        return ("--perms", "1777" if path.endswith("tmp") else "0755", "--tmpfs", path)
    if treatment == "absent" or os.path.isdir(spot.path):
        # As good as read-only: what is put there is nowhere.
        return ("--perms", "0444" if spot.closed else "0555", "--tmpfs", path)
    return ("--ro-bind", "/dev/null", path)  # Hidden. Without devices in it, that cannot even be opened.


def _environment(invocation: Invocation, view: View) -> dict[str, str]:
    """Only the command's environment: everything in the sandbox can read what bubblewrap was started with."""
    env = dict(invocation.env)
    for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
        if name in env and not view.sees(Path(env[name])):
            del env[name]  # Programs look into the default then, which is there.
    return env


def find(config: SandboxConfig, other: str | None = None) -> Bubblewrap:
    """`other`: the program on PATH. Raises ExecutorError with the reason if none is usable. May take a while: run it in
    a thread."""
    if platform.system() != "Linux":
        raise ExecutorError("bubblewrap runs only on Linux")
    arch = ARCHES.get(platform.machine())
    if arch is None:
        raise ExecutorError(f"there is no seccomp filter for this architecture ({platform.machine()})")
    program = _program(other)
    version = _version(program)
    landlock = abi() if config.landlock else 0
    return Bubblewrap(
        program,
        version,
        arch,
        landlock if landlock >= LEAST_LANDLOCK else 0,
        find_groups() if config.max_processes > 0 else None,
    )


def _program(other: str | None) -> Path:
    candidates = [USUAL]
    own = [Path.cwd(), Path.home()]
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
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            env={},
            check=False,
            **restoring(),
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ExecutorError(f"{program} cannot be run: {error}") from error
    numbers = re.search(r"(\d+)\.(\d+)(\.\d+)*", answer)
    if numbers is None:
        raise ExecutorError(f"{program} does not report its version")
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise ExecutorError(f"{program} is version {numbers[0]}; 0.8 or newer is needed")
    return numbers[0]
