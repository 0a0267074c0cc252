"""Patterns of rules: `*` matches anything, including spaces and slashes; `?` one character; `[ab]` one of these.

Matching takes time proportional to pattern and text: the expressions from `fnmatch` do not backtrack.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.disk import HERE

if TYPE_CHECKING:
    from acp_agent.disk import Disk

FLAGS = re.IGNORECASE | re.DOTALL
WILD = frozenset("*?[")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern), FLAGS)


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches all of `text`, ignoring case. `cargo *` also matches `cargo`."""
    return _matches(pattern, text) or (pattern.endswith(" *") and _matches(pattern[:-2], text))


def _matches(pattern: str, text: str) -> bool:
    """Matches; avoids compiling the many patterns that are a name, or a part of one."""
    bare = pattern.removesuffix("*").removeprefix("*")
    if WILD.isdisjoint(bare) and pattern.isascii() and text.isascii():
        same, bare = text.lower(), bare.lower()
        if pattern.startswith("*"):
            return bare in same if pattern.endswith("*") else same.endswith(bare)
        return same.startswith(bare) if pattern.endswith("*") else same == bare
    return _compiled(pattern).match(text) is not None


def matches_any(patterns: Iterable[str], text: str) -> bool:
    return _sorted(tuple(patterns)).match(text)


class _Sorted:
    """Patterns by what they are: a name, the beginning, the end or a part of one are found by a text's own methods."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._names, self._parts, self._others = set[str](), list[str](), list[str]()
        starts, ends = list[str](), list[str]()
        for pattern in patterns:
            low, bare = pattern.lower(), pattern.lower().removesuffix("*").removeprefix("*")
            if not pattern.isascii() or not WILD.isdisjoint(bare) or pattern.endswith(" *"):
                self._others.append(pattern)
            elif low.startswith("*"):
                (self._parts if low.endswith("*") else ends).append(bare)
            elif low.endswith("*"):
                starts.append(bare)
            else:
                self._names.add(low)
        self._starts, self._ends, self._patterns = tuple(starts), tuple(ends), patterns

    def match(self, text: str) -> bool:
        if not text.isascii():
            return any(matches(pattern, text) for pattern in self._patterns)
        low = text.lower()
        return (
            low in self._names
            or low.startswith(self._starts)
            or low.endswith(self._ends)
            or any(part in low for part in self._parts)
            or any(matches(pattern, text) for pattern in self._others)
        )


_sorted = lru_cache(maxsize=256)(_Sorted)


class PathGlobs:
    """Globs of paths. A relative pattern applies below each of `bases`, at any depth if it has no slash, as in
    `.gitignore`; `~` is the home folder. What matches a folder matches everything below it."""

    def __init__(self, patterns: Sequence[str], bases: Sequence[Path], home: Path | None, disk: Disk = HERE) -> None:
        """`disk`: on which the bases are, and links are followed."""
        tops = [_literal(base, disk) for base in bases] if patterns else []
        self._globs = [glob for pattern in patterns for glob in _absolute(pattern, tops, home, disk)]

    def __bool__(self) -> bool:
        return bool(self._globs)

    def matches(self, path: Path) -> bool:
        """Whether a resolved absolute path, or a folder above it, matches."""
        return bool(self._globs) and self._pattern.match(str(path)) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return covering(self._globs)

    @property
    def absolute(self) -> tuple[str, ...]:
        """The patterns as absolute globs."""
        return tuple(self._globs)


def covering(globs: Iterable[str]) -> re.Pattern[str]:
    """An expression for the paths that match one of the globs, and everything below them.

    Case is ignored: on a case-insensitive disk a path may be spelled either way.
    """
    both = [fnmatch.translate(text) for glob in globs for text in (glob, f"{glob}/*")]
    return re.compile("|".join(both) or r"(?!)", FLAGS)


def _absolute(pattern: str, tops: Sequence[str], home: Path | None, disk: Disk) -> list[str]:
    """`tops`: the bases, as they stand in a glob."""
    pattern = pattern.rstrip("/") or "/"
    if pattern == "~" or pattern.startswith("~/"):
        return [] if home is None else [_resolved(f"{_literal(home, disk)}{pattern[1:]}", disk)]
    if pattern.startswith("/"):
        return [_resolved(pattern, disk)]
    while pattern.startswith(("./", "**/")):
        anywhere = pattern.startswith("**/")
        pattern = pattern.partition("/")[2]
        if anywhere:
            return [glob for top in tops for glob in (f"{top}/{pattern}", f"{top}/*/{pattern}")]
    if "/" in pattern:
        return [f"{top}/{pattern}" for top in tops]
    return [glob for top in tops for glob in (f"{top}/{pattern}", f"{top}/*/{pattern}")]


def whole_globs(patterns: Sequence[str], bases: Sequence[Path], home: Path | None, disk: Disk = HERE) -> list[str]:
    """Globs of whole paths for those of a policy: a relative one is below each of `bases`, as in `PathGlobs`; one that
    begins with `*` stands for any path."""
    tops = [_literal(base, disk) for base in bases]
    found: list[str] = []
    for pattern in patterns:
        if pattern.startswith("*"):
            found.append(pattern)
        else:
            found += map(os.path.normpath, _absolute(os.path.normpath(pattern), tops, home, disk))
    return found


def _literal(path: Path, disk: Disk) -> str:
    try:
        path = disk.real_path(path)
    except OSError:  # A loop of links leads nowhere.
        pass
    return re.sub(r"([*?\[])", r"[\1]", str(path).rstrip("/"))


def _resolved(pattern: str, disk: Disk) -> str:
    """Follows links in the part before the first wildcard, since paths are compared resolved."""
    wild = re.search(r"[*?\[]", pattern)
    if wild is None:
        return _literal(Path(pattern), disk)
    folder, slash, rest = pattern[: wild.start()].rpartition("/")
    return f"{_literal(Path(folder or '/'), disk)}{slash}{rest}{pattern[wild.start() :]}"
