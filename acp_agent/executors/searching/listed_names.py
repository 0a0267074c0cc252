"""The paths that `rg --files` lists and the folders they are in, judged by a glob.

In a large repository there are hundreds of thousands and few are wanted, so what is done for each of them costs no
more than a comparison of bytes: a piece of the list without the longest word of the glob is passed over whole, and what
comes behind the results that are kept already is not looked at. The glob itself, in linear time, judges the rest.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import itemgetter

from acp_agent import linear
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import FindQuery, Match
from acp_agent.executors.searching.search_worker import BadGlob, by_name
from acp_agent.executors.tree_walk import Hides

SWAPPED = bytes.maketrans(b"/\0", b"\0/")
"""Makes paths that end with NUL to keys that end with a slash and have NUL between their parts: in the order of bytes a
folder is followed by all that is in it, as in the order of paths."""
NO_WORD = re.compile(r"\\.?|\[.*\]|[*?/\[\]!#\s]", re.DOTALL)
"""What in a glob does not stand for itself."""


def matcher(kind: Callable[..., Callable[[str], bool]], glob: str) -> Callable[[str], bool]:
    """Decides in linear time, since nobody could end it. Raises ExecutorError."""
    try:
        matches = kind(glob, linear.compiled)
    except (BadGlob, linear.PatternError) as error:
        raise ExecutorError(f"The pattern is not a valid glob: {error}.") from error
    return lambda path: matches(path.encode("utf-8", "replace").decode())


class Names:
    """Called with pieces of the list, of any length. Keeps the first results in the order of paths, one more than are
    asked for."""

    def __init__(self, query: FindQuery, hides: Hides | None) -> None:
        """Raises ExecutorError for a bad glob."""
        self._wanted = matcher(by_name, query.pattern)
        self._word = max(map(os.fsencode, NO_WORD.split(query.pattern)), key=len)
        self._folders_only = query.pattern.endswith("/")
        self._root, self._most, self._hides = query.root, query.max_results, hides
        self._top = len(os.fsencode(query.root).rstrip(b"/")) + 1
        self._begun = b""
        self._kept: list[tuple[bytes, Match]] = []

    def __call__(self, piece: bytes) -> None:
        whole, mark, rest = (self._begun + piece).rpartition(b"\0")
        self._begun = rest
        if not mark or self._word not in whole:
            return
        keys = self._with_word(whole.translate(SWAPPED).split(b"/"))
        folders: set[bytes] = set()
        more = set(keys)
        while more := {key.rpartition(b"\0")[0] for key in more if key.find(b"\0", self._top) > 0} - folders:
            folders |= more
        self._keep(self._with_word(folders), "dir")
        if not self._folders_only:
            self._keep(keys, "file")

    def found(self) -> list[Match]:
        return [match for _, match in self._kept]

    def _with_word(self, keys: Iterable[bytes]) -> list[bytes]:
        word, top = self._word, self._top
        return [key for key in keys if key.find(word, top) > 0]

    def _keep(self, keys: list[bytes], kind: str) -> None:
        kept = self._kept
        if len(kept) > self._most:
            last = kept[-1][0]
            keys = [key for key in keys if key < last]
        for key in sorted(keys):
            if len(kept) > self._most and key >= kept[-1][0]:
                break
            at = bisect_left(kept, key, key=itemgetter(0))
            name = os.fsdecode(key[self._top :].replace(b"\0", b"/"))
            if (at < len(kept) and kept[at][0] == key) or not self._wanted(name):
                continue
            path = self._root / name
            if self._hides is None or not self._hides(path):
                kept.insert(at, (key, Match(path, None, kind)))
                del kept[self._most + 1 :]
