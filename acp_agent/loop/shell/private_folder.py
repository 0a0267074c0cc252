"""A folder that only we can access, for the script files and the shell state of one session.

It is locked as long as its session lives, so that another agent can recognise folders left by one that was killed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from acp_agent.safety.folders.paths import Roots, real_path

log = logging.getLogger(__name__)

PREFIX = "acp-coder-"
LOCK = "lock"

PARTS = ("state", "scratch", "scratch/tmp", "scratch/home", "scripts", "sandbox", "trusted")
"""Its folders. A command may write only to `state` and `scratch`."""
CLOSED_PARTS = ("scratch", "scripts", "sandbox", "trusted")
"""Those that commands cannot access, wherever it is. /tmp and the home are in the others."""

OTHER_FOLDERS = ("/var/tmp", "/dev/shm")

SAFE_FOLDER = "/tmp"
"""Used if the system's temporary folder has a name that a shell would split."""

JUST_MADE = 60.0
"""Seconds in which a folder without a lock may be one being created."""


class PrivateFolder:
    """Not inside a folder of the session, if possible. Created when it is first needed."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = -1
        self._ends: list[Callable[[], None]] = []

    @cached_property
    def path(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_parents(self._roots)[0]))
        unnamed = path / f"{LOCK}.new"
        self._lock = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(path / LOCK)  # Another agent that finds one without its lock removes the folder.
        for name in PARTS:
            (path / name).mkdir(mode=0o700)
        return path

    def at_end(self, work: Callable[[], None]) -> None:
        """What is to be done when the session is over."""
        self._ends.append(work)

    def close(self) -> None:
        while self._ends:
            self._ends.pop()()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def others_below(places: Sequence[Path], own: Path) -> list[Path]:
    """Such folders of other sessions of this user, and those of `executors/far`, below one of `places`."""
    found = []
    for parent in map(Path, dict.fromkeys((str(own.parent), tempfile.gettempdir(), SAFE_FOLDER, *OTHER_FOLDERS))):
        if any(parent.is_relative_to(place) for place in places):
            with suppress(OSError), os.scandir(parent) as entries:
                found += [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX)]
    return [path for path in found if path != own]


def _parents(roots: Roots) -> list[str]:
    places = (tempfile.gettempdir(), SAFE_FOLDER, *OTHER_FOLDERS)
    parents = [place for place in places if _may_hold(place, roots)] or [tempfile.gettempdir()]
    return [parent if _is_plain(parent) else SAFE_FOLDER for parent in parents]


def _may_hold(folder: str, roots: Roots) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and not roots.contains(real_path(Path(folder)))


def _is_plain(folder: str) -> bool:
    return folder.replace("/", "").replace("_", "").replace("-", "").replace(".", "").isalnum()


def sweep() -> list[Path]:
    """Removes and returns the folders that killed agents of this user left behind."""
    removed = []
    for parent in dict.fromkeys((tempfile.gettempdir(), SAFE_FOLDER, *OTHER_FOLDERS)):
        try:
            found = [entry for entry in os.scandir(parent) if entry.name.startswith(PREFIX)]
        except OSError:
            continue
        for entry in found:
            try:
                if _is_left(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)
                    removed.append(Path(entry.path))
            except OSError as error:
                log.info("%s was not looked at: %s", entry.path, error)
    return removed


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Whether it is a private folder of ours whose agent is gone."""
    status = entry.stat(follow_symlinks=False)
    if not entry.is_dir(follow_symlinks=False) or status.st_uid != os.getuid():
        return False
    try:
        lock = os.open(os.path.join(entry.path, LOCK), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Just created, or someone else's: only what looks like a session's is ours.
        return time.time() - status.st_mtime > JUST_MADE and os.path.isdir(os.path.join(entry.path, "state"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
