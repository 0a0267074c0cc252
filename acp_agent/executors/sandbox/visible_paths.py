"""Decides which paths a command sees, and how: one decision for each path, parents before what is below them.

The order matters: a mount covers everything mounted below it earlier. So both a secret in a writable folder and a
writable folder in a hidden one come out right.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.disk import Identity, replaced
from acp_agent.errors import ExecutorError
from acp_agent.executors.beneath import folder
from acp_agent.executors.sandbox.base import SandboxPolicy
from acp_agent.executors.sandbox.holders import is_place_holder
from acp_agent.executors.sandbox.system import link_targets, secrets
from acp_agent.executors.sandbox.system import readable as system_paths
from acp_agent.executors.tree_walk import identity

Treatment = Literal["link", "read", "write", "keep", "stand-in", "empty", "protect", "absent", "hide"]
"""`link`: a link as it is outside; `keep`: as its surroundings, but it cannot be renamed; `stand-in`: another folder
(`source`) in its place, writable; `empty`: an empty folder, writable; `protect`: read-only;
`absent`: nothing that could be written, where nothing is."""

ORDER: tuple[Treatment, ...] = ("link", "read", "empty", "stand-in", "keep", "write", "protect", "absent", "hide")
STRENGTH = {treatment: place for place, treatment in enumerate(ORDER)}
"""The last treatment of a path wins."""

HELD: tuple[Treatment, ...] = ("keep", "protect", "absent")
"""Whether it is only there because something above may be written."""

ROOT = Path("/")
TEMPORARY = ("/tmp", "/var/tmp")


def is_below(path: Path, folder: Path) -> bool:
    """`path.is_relative_to(folder)` of absolute paths, in a tenth of the time."""
    text, top = str(path), str(folder)
    return text == top or text.startswith(top if top == "/" else f"{top}/")


class Spot(Struct, frozen=True):
    path: Path
    treatment: Treatment
    source: Path | None = None
    identity: Identity | None = None
    """Of what was judged, where commands could put something else there: nothing else may be mounted."""
    closed: bool = False
    """Whether no name can be looked up in a hidden folder, in which nothing is seen."""


class View(Struct, frozen=True):
    spots: tuple[Spot, ...]
    """Parents first."""
    missing: tuple[Path, ...]
    """Protected but missing: the topmost missing part of each, to be created so that it can be mounted."""

    def at(self, path: Path) -> Spot | None:
        """Returns the rule that decides about `path`."""
        for spot in reversed(self.spots):
            if is_below(path, spot.path):
                return spot
        return None

    def sees(self, path: Path) -> bool:
        """Whether a command finds there what is there outside, or what earlier commands left in its stead."""
        spot = self.at(path)
        if spot is None or spot.treatment == "hide":
            return False
        if spot.path == path:
            return True
        if spot.source is not None:
            return os.path.exists(spot.source / path.relative_to(spot.path))
        return spot.treatment != "empty"


def plan(
    policy: SandboxPolicy, *, scratch: Path | None, more: Iterable[Path] = (), stand_ins: Mapping[Path, Path] = {}
) -> View:
    """The view that `policy` requires. `more`: further paths that must be readable. `stand_ins`: as of `Copies`. Raises
    ExecutorError if a path cannot be protected."""
    spots = {path: Spot(path, "link" if is_link else "read") for path, is_link in system_paths()}
    spots[Path("/run")] = Spot(Path("/run"), "empty")
    for path in (*link_targets(), *more):
        _put(spots, path, "read")
    for path in {Path(os.path.realpath(name)) for name in TEMPORARY}:
        _put(spots, path, "stand-in" if scratch else "empty", scratch / "tmp" if scratch else None)
    if policy.home is not None and policy.home != Path("/"):
        _put(spots, policy.home, "stand-in" if scratch else "empty", scratch / "home" if scratch else None)

    readable = [path for path in policy.readable if os.path.exists(path)]
    writable = [path for path in policy.writable if os.path.exists(path)]
    for path in (*readable, *writable):
        if os.path.realpath(path) != str(path):
            raise ExecutorError(f"{path} has become a link, or is behind one, so it cannot be made visible to commands")
    check_opened(policy)
    for path in readable:
        spots[path] = Spot(path, "read")
    for path in writable:
        spots[path] = Spot(path, "write")

    missing: list[Path] = []
    for path in policy.protected:
        missing += _protect(path, writable, spots)
    for path, source in stand_ins.items():
        if (spot := spots.get(path)) is not None and spot.treatment == "absent":
            spots[path] = Spot(path, "stand-in", source)
    for path in (*secrets(), *policy.hidden):
        if os.path.lexists(path) and _is_shown(path, spots):
            _put(spots, path, "hide")
            _keep_above(path, writable, spots)
    for path in [path for path, spot in spots.items() if spot.treatment in HELD]:
        if _surrounding(path, spots) == "hide":
            del spots[path]
    ordered = sorted(spots.values(), key=lambda spot: (str(spot.path).count("/"), str(spot.path)))
    needed = [spot for spot in ordered if spot.treatment != "read" or _above(spot.path, spots) != "read"]
    reach = InReach(policy)
    within = folders_above(spot.path for spot in needed)
    needed = [_identified(spot) if spot.path in reach else spot for spot in needed]
    needed = [
        replace(spot, closed=True) if spot.treatment == "hide" and str(spot.path) not in within else spot
        for spot in needed
    ]
    return View(tuple(needed), tuple(path for path in dict.fromkeys(missing) if path in spots))


def folders_above(paths: Iterable[Path]) -> set[str]:
    """What any of the paths is below, but for the root; as text, since a Path for each takes long."""
    found = set[str]()
    for path in paths:
        above = str(path).rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found


class InReach:
    """Paths at which a command could put something else, or could have been let to."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self._tops = tuple(f"{top}/" for top in (*policy.writable, *policy.opened) if top != ROOT)

    def __contains__(self, path: Path) -> bool:
        return f"{path}/".startswith(self._tops)


def _identified(spot: Spot) -> Spot:
    judged = ("read", "write", "keep", "protect", "hide")
    if spot.treatment not in judged or (spot.treatment == "hide" and os.path.islink(spot.path)):
        return spot
    return replace(spot, identity=identity_of(spot.path))


def check_opened(policy: SandboxPolicy) -> None:
    """Raises ExecutorError if something else is where a folder of the session was."""
    for path, meant in policy.opened.items():
        if os.path.lexists(path) and identity_of(path) != meant:
            raise ExecutorError(replaced(path))


def identity_of(path: Path) -> Identity:
    """Of what is there, reached without following a link. Raises ExecutorError."""
    try:
        with folder(path.parent) as above:
            found = os.stat(path.name or ".", dir_fd=above, follow_symlinks=False)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be made visible to commands: {error.strerror}") from error
    if stat.S_ISLNK(found.st_mode):
        raise ExecutorError(f"{path} has become a link, so it cannot be made visible to commands")
    return identity(found)


def _above(path: Path, spots: dict[Path, Spot]) -> Treatment | None:
    """Returns how the nearest folder above `path` is treated."""
    return next((spot.treatment for parent in path.parents if (spot := spots.get(parent)) is not None), None)


def _put(spots: dict[Path, Spot], path: Path, treatment: Treatment, source: Path | None = None) -> None:
    there = spots.get(path)
    if there is None or STRENGTH[treatment] >= STRENGTH[there.treatment]:
        spots[path] = Spot(path, treatment, source)


def _surrounding(path: Path, spots: dict[Path, Spot]) -> Treatment | None:
    """Returns how the nearest folder above `path` is treated; placeholders are left out."""
    for parent in path.parents:
        spot = spots.get(parent)
        if spot is not None and spot.treatment not in HELD:
            return spot.treatment
    return None


def _is_shown(path: Path, spots: dict[Path, Spot]) -> bool:
    """Whether something of this machine is at `path`: else there is nothing to hide."""
    there = spots.get(path)
    treatment = there.treatment if there is not None else _surrounding(path, spots)
    return treatment is not None and treatment not in ("empty", "stand-in", "hide", "link")


def _keep_above(path: Path, writable: list[Path], spots: dict[Path, Spot]) -> None:
    """Pins every folder above a hidden path that could be renamed: under another name it would be visible."""
    for part in _steps(path, writable)[:-1]:
        _put(spots, part, "keep")


def _steps(path: Path, writable: list[Path]) -> list[Path]:
    """`path`, behind the folders above it in the topmost writable one; nothing if it is in none."""
    tops = [len(folder.parts) for folder in writable if folder != path and is_below(path, folder)]
    return [Path(*path.parts[:depth]) for depth in range(min(tops) + 1, len(path.parts) + 1)] if tops else []


def _protect(path: Path, writable: list[Path], spots: dict[Path, Spot]) -> list[Path]:
    """Pins `path` and every folder above it that could be renamed. Returns what has to be created for that."""
    for part in _steps(path, writable):
        if part in spots and spots[part].treatment == "read" and part != path:
            return []  # read-only already
        try:
            found = part.lstat()
        except FileNotFoundError:
            _put(spots, part, "absent")
            return [part]
        except PermissionError:
            return []  # Where the agent cannot look, a command of the same user cannot write.
        if stat.S_ISLNK(found.st_mode):
            raise ExecutorError(
                f"{part} is a link and {path} is protected: a command could replace the link. Replace it with its "
                "target, or remove it from tools.sandbox.protect"
            )
        if is_place_holder(found):
            _put(spots, part, "absent")
            return [part]
        if part == path or not stat.S_ISDIR(found.st_mode):
            # Where a file is, nothing can be below it; but the file could be replaced by a folder.
            _put(spots, part, "protect")
            return []
        _put(spots, part, "keep")
    return []
