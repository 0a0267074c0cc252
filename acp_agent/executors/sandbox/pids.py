"""How many processes a command may have: its own control group, if this machine lets us create one.

The alternative, a limit on the user's processes, counts per user namespace and does not affect root.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import signal
import subprocess
import time
from functools import cache
from pathlib import Path

from acp_agent.limits.descriptors import restoring

ENTER = 'echo 0 >"$1" || exit 126; shift; exec "$@"'
"""A line of sh that joins the group whose `door` is its first argument and becomes the others."""

PREFIX = "acp-coder."
MOUNTS = Path("/sys/fs/cgroup")
SECONDS = 2.0
KILL_ROUNDS, KILL_PAUSE = 20, 0.002

_numbers = itertools.count(1)
_left: list[Path] = []
"""Groups whose last processes were still on their way out."""


@cache
def find_groups() -> Path | None:
    """A folder in which a group can be created, entered and limited; tested once."""
    for base in _candidates():
        if not os.access(base, os.W_OK):
            continue
        _remove_stale(base)
        group = make_group(base, 100)
        if group is None:
            continue
        try:
            entered = subprocess.run(
                ["/bin/sh", "-c", ENTER, "sh", str(door(group)), "true"],
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
                **restoring(),
            )
        except (OSError, subprocess.SubprocessError):
            continue
        finally:
            remove_group(group)
        if entered.returncode == 0:
            return base
    return None


def _candidates() -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if controllers == "":
            for mount in (MOUNTS, MOUNTS / "unified"):
                if os.path.exists(mount / "cgroup.controllers"):
                    own = mount / below
                    # Next to our own group: a group with processes cannot delegate its controllers.
                    found += [own, own.parent] if below else [own]
        elif "pids" in controllers.split(","):
            found += [MOUNTS / controllers / below, MOUNTS / controllers]
    return found


def make_group(base: Path, most: int) -> Path | None:
    """A group for one command, `None` if that fails."""
    _remove_left()
    group = base / f"{PREFIX}{os.getpid()}.{started(os.getpid())}.{next(_numbers)}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        # Not write_text: that would make a file where the kernel has none.
        with open(os.open(group / "pids.max", os.O_WRONLY), "w", encoding="ascii") as file:
            file.write(str(most))
    except OSError:
        remove_group(group)
        return None
    return group


def door(group: Path) -> Path:
    """The file a process writes 0 to, to join the group. With `tasks` (cgroup v1), the kernel moves only the requesting
    thread, without waiting several milliseconds for the others."""
    tasks = group / "tasks"
    return tasks if os.path.exists(tasks) else group / "cgroup.procs"


def end_group(group: Path) -> None:
    """Sends SIGKILL to everything in it until it is empty."""
    for _ in range(KILL_ROUNDS):
        try:
            members = (group / "cgroup.procs").read_text(encoding="ascii").split()
        except OSError:
            return
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(KILL_PAUSE)


def remove_group(group: Path) -> None:
    """Removes it, now or, where processes in it are still ending, with the next one."""
    try:
        group.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        if not _left:
            atexit.register(_remove_left)
        _left.append(group)


def _remove_left() -> None:
    atexit.unregister(_remove_left)
    for group in tuple(_left):
        _left.remove(group)
        remove_group(group)


def _remove_stale(base: Path) -> None:
    """Groups of agents that no longer exist."""
    for group in base.glob(f"{PREFIX}*"):
        pid, _, rest = group.name.removeprefix(PREFIX).partition(".")
        if pid.isdigit() and started(int(pid)) != rest.partition(".")[0]:
            with contextlib.suppress(OSError):
                group.rmdir()


def started(pid: int) -> str:
    """Start time of the process, which distinguishes it from another with its number. Empty: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
