"""Which special paths a call touches that deletes, moves or copies a whole tree.

Special are the agent's own files, hidden ones (`deny_read`), key files, and those that other programs trust or a
policy names. A tree is
judged by everything in it, at each place where it is or will be, and by what it covers: a link or a file at a path
stands for everything below, and who deletes a folder deletes what appears in it before that. Judged twice: `special_in`
before the question, `Judged` for each entry while it is done; what was not judged then must not be touched.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from acp_agent.errors import ExecutorError
from acp_agent.safety.access import Access, PathAccess
from acp_agent.safety.folders.protect import PathRules

Mode = Literal["read", "write", "delete"]


class TooMany(Exception):
    """A tree contains more entries than may be looked at."""


def special_in(source: Path, places: Sequence[tuple[Mode, Path]], rules: PathRules, most: int) -> list[PathAccess]:
    """The accesses to special paths, the topmost ones. `source`: the tree as it is; `places`: what happens to it (or to
    what it is copied to) where. Raises TooMany for a tree of more than `most` entries."""
    found: dict[PathAccess, None] = {}
    trusted: set[PathAccess] = set()
    hidden: set[PathAccess] = set()
    if (entries := rules.disk.below(source, most)) is None:
        raise TooMany
    for relative, mode in entries:
        for doing, place in places:
            path = place / relative if relative else place
            this, above = PathAccess(doing, path), PathAccess(doing, path.parent)
            if above in hidden:
                hidden.add(this)
                continue
            specials = list(_touches(rules, doing, path, mode, above in trusted))
            found |= dict.fromkeys(PathAccess(doing, special, in_tree=True) for special in specials)
            if path in specials and rules.hides(path):
                hidden.add(this)
            elif path in specials or above in trusted:
                trusted.add(this)
    for doing, place in places:
        if doing == "delete":
            found |= dict.fromkeys(PathAccess(doing, own, in_tree=True) for own in rules.own_below(place))
    return list(found)


class Judged:
    """The accesses of a call, to be checked for each entry just before it is touched."""

    def __init__(self, accesses: Iterable[Access], rules: PathRules) -> None:
        paths = [access for access in accesses if isinstance(access, PathAccess)]
        self._rules = rules
        self._trusted = {(access.mode, access.path) for access in paths if access.in_tree}

    def __call__(self, doing: Mode, path: Path, mode: int) -> None:
        """Raises ExecutorError if that touches something special that was not judged. `mode`: as from `stat`."""
        for special in _touches(self._rules, doing, path, mode, False):
            known = any((doing, place) in self._trusted for place in (special, *special.parents))
            if not known or self._rules.hides(special):
                raise ExecutorError(f"{special} must not be touched without asking; it has appeared in the meantime")


def _touches(rules: PathRules, doing: Mode, path: Path, mode: int, below_trusted: bool) -> Iterator[Path]:
    """The special paths that an entry of this kind is or stands for. `below_trusted`: it is below a known one."""
    if rules.hides(path):
        yield path
        return
    if doing != "read" and not stat.S_ISDIR(mode):
        yield from rules.own_below(path)
    if rules.names(path):
        yield path
        return
    if below_trusted:
        return
    if doing != "write" and rules.key_file(path) is not None:
        yield path
    elif doing == "read":
        return
    elif rules.protects(path) is not None:
        yield path
    elif stat.S_ISLNK(mode):
        yield from rules.trusted_below(path)
