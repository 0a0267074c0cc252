"""What is kept of the files that a look knows: git's blobs that their bytes hashed to, or copies.

Blocking; the caller has the lock of the looks, but for `check_git`.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.executors.tree_walk import Hides
from acp_agent.undo.base import NOTHING, Change, Entry
from acp_agent.undo.contents import ContentError
from acp_agent.undo.git_blobs import Tracked, read_blobs, read_index, read_sizes, state_of_index, tracked
from acp_agent.undo.git_index import git_of, name_of
from acp_agent.undo.listings import NO_BLOB, Changed, Key, Listing, Listings, is_as, key_at, key_of, mark_of_key
from acp_agent.undo.pictures import HIDDEN, TOO_LONG, Camera

IN_GIT = "git "
MANY = 200
"""Files without a copy, from which on git's index is read again: it may know them."""
MOST_KEPT = 500
"""Changes of one look of which what became of a file is kept, to show and to merge it."""
MANY_CHANGES = "more than 500 files were changed at once"
NOT_YET = "it was not copied in time (`undo.copy_seconds`)"
NAMED = 3
"""Files that are named without a copy."""
BATCH = 5_000
"""Blobs of which git is asked at a time."""


class KeptCopies:
    """Of the files in `folders`. `waited_for`: whether somebody waits for the lock."""

    def __init__(
        self,
        folders: Listings,
        camera: Camera,
        hides: Hides | None,
        programs_not_in: Sequence[Path],
        lock: AbstractContextManager[object],
        waited_for: Callable[[], bool],
    ) -> None:
        self._folders = folders
        self._camera = camera
        self._hides = hides
        self._programs_not_in = programs_not_in
        self._lock = lock
        self._waited_for = waited_for
        self._tracked: dict[str, Tracked | None] = {}
        """By folder: the repository that it belongs to, if any."""
        self._reading: tuple[str, Generator[None, None, Tracked]] | None = None
        """The folder whose repository's index is being read."""
        self._copies: dict[str, tuple[Key, str]] = {}
        """What is kept of each file: the name of a content, or (`IN_GIT`) of a blob that its bytes hashed to, if
        that is not in the listing."""
        self._pending: dict[str, Key] = {}
        """Files to be copied."""
        self._unsure: Counter[str] = Counter()
        """By folder: how many files are as git's index says, whose content is to be compared with the name of git's
        blob."""
        self._unchecked: list[tuple[str, bytes]] = []
        """Files of whose blobs it is not known whether git can give them back."""
        self._links: dict[str, Entry] = {}
        self._unkept: dict[str, str] = {}
        """Files that are not copied, and why."""

    @property
    def left(self) -> bool:
        """Whether something is to be copied or compared."""
        return bool(self._pending or self._unsure)

    @property
    def uncompared(self) -> bool:
        return bool(self._unsure)

    def check_due(self) -> bool:
        """Whether git is to be asked."""
        return len(self._unchecked) > (BATCH if self.left else 0)

    def reasons(self) -> Iterator[tuple[list[str], int, str]]:
        """The first files without a copy, how many there are, and why."""
        some = list(islice(self._unsure_files(), NAMED))
        yield sorted([*self._pending, *some])[:NAMED], len(self._pending) + self._unsure.total(), NOT_YET
        for why in dict.fromkeys(self._unkept.values()):
            paths = sorted(path for path in self._unkept if self._unkept[path] == why)
            yield paths[:NAMED], len(paths), why

    def release(self) -> None:
        """The first look is done."""
        for each in self._tracked.values():
            if each is not None:
                each.release()

    def gone(self, folder: str) -> None:
        """It is not looked at any more."""
        self._unsure.pop(folder, None)

    def note(self, path: str, key: Key | None, content: str) -> None:
        """What our own tools have made of it: this is kept. `None`: nothing."""
        self._forget_file(path)
        if key is not None:
            self._copies[path] = (key, content)

    def _unsure_files(self) -> Iterator[str]:
        for folder in sorted(self._unsure):
            if (listing := self._folders.get(folder)) is not None:
                yield from (f"{folder}/{name}" for name in sorted(_unsure(listing)))

    def put(self, folder: str, listing: Listing) -> None:
        """Keeps what is in a folder now."""
        self._folders.put(folder, listing)
        if unsure := sum(1 for _ in _unsure(listing)):
            self._unsure[folder] = unsure
        else:
            self._unsure.pop(folder, None)

    def keep_blob(self, path: str, key: Key, listing: Listing) -> None:
        """Notes what git has of a file that is not so any more."""
        sure, blob = listing.in_git.get(path.rpartition("/")[2], (False, b""))
        if sure:
            self._copies[path] = (key, f"{IN_GIT}{blob.hex()}")

    def repository(self, folder: str) -> Tracked | None:
        """The one that `folder` belongs to, which may be above the session's folders; its index is read when the first
        folder of it is seen."""
        at, git = self._top(folder)
        if at not in self._tracked:
            self._tracked[at] = None if git is None else tracked(at, git)
        for each in _up_to(folder, at):
            self._tracked.setdefault(each, self._tracked[at])
        return self._tracked[at]

    def _top(self, folder: str) -> tuple[str, Path | None]:
        """The nearest folder above of which it is known what it belongs to, or the top of a repository, and that."""
        at = folder
        while at not in self._tracked:
            if (git := git_of(Path(at))) is not None:
                return at, git
            if at.count("/") < 2:
                break
            at = at.rpartition("/")[0]
        return at, None

    def has_index(self, folder: str, end: float) -> bool:
        """Whether what a folder belongs to is known, after reading its index until then."""
        at, git = self._top(folder)
        if at in self._tracked or git is None:
            return True
        if self._reading is None or self._reading[0] != at:
            self._reading = at, read_index(at, git)
        try:
            while time.monotonic() < end and not self._waited_for():
                next(self._reading[1])
        except StopIteration as done:
            self._tracked[at], self._reading = done.value, None
        return self._reading is None

    def check_git(self) -> None:
        """Files that git's blobs cannot give back are to be copied: a partial clone has not all of them."""
        with self._lock:
            unchecked, self._unchecked = self._unchecked, []
            of: dict[Path, tuple[Tracked, list[tuple[str, bytes]]]] = {}
            for path, blob in unchecked:
                if (repository := self.repository(path.rpartition("/")[0])) is not None:
                    of.setdefault(repository.git, (repository, []))[1].append((path, blob))
        for git, (_, files) in of.items():
            there = read_sizes(git, (blob for _, blob in files), self._programs_not_in)
            with self._lock:
                for path in [path for path, blob in files if blob not in there]:
                    self._doubt(path)

    def _doubt(self, path: str) -> None:
        """What git has of a file is not to be used."""
        folder, _, name = path.rpartition("/")
        listing = self._folders.get(folder)
        if listing is None or (key := listing.entries.get(name)) is None or not listing.in_git.get(name, NO_BLOB)[1]:
            return
        listing.in_git[name] = NO_BLOB
        self.put(folder, listing)
        self.want(path, key, None)

    def want(self, path: str, key: Key, repository: Tracked | None) -> None:
        """Notes that a file is to be copied, unless git or an earlier copy has it; a link's target is noted here."""
        self._forget_file(path)
        if stat.S_ISLNK(key[0]):
            try:
                self._links[path] = Entry("link", target=os.readlink(path))
            except OSError:
                pass
        if not stat.S_ISREG(key[0]):
            return
        if self._copies.get(path, (None,))[0] == key:
            return
        if repository is not None and self._is_in_index(path, key, repository):
            return
        if key[1] > self._camera.limit:
            self._unkept[path] = TOO_LONG.format(self._camera.limit)
        elif self._hides is not None and self._hides(Path(path)):
            self._unkept[path] = HIDDEN
        else:
            self._pending[path] = key

    def _is_in_index(self, path: str, key: Key, repository: Tracked) -> bool:
        """Whether git's index has the file as it is; then it is to be compared."""
        folder, _, name = path.rpartition("/")
        listing = self._folders.get(folder)
        if listing is None or listing.entries.get(name) != key:
            return False
        if (blob := repository.blobs(folder).get(name)) is None or not is_as(key, blob):
            return False
        listing.in_git[name] = (False, blob[3])
        self._unsure[folder] += 1
        self._folders.put(folder, listing)
        return True

    def _forget_file(self, path: str) -> None:
        self._pending.pop(path, None)
        self._unkept.pop(path, None)

    def copy(self, seconds: float, most: float = math.inf, *, copies: bool = True) -> None:
        """For at most so many seconds, and not while others wait. `most`: files that are compared, if there are not
        more. `copies`: whether files are copied, too."""
        if len(self._pending) > MANY:
            self._read_indexes_again()
        end, compares = time.monotonic() + seconds, self._unsure.total() <= most
        while time.monotonic() < end and not self._waited_for():
            if self._pending and copies:
                path, key = next(iter(self._pending.items()))
                del self._pending[path]
                self._copy_one(path, key)
            elif self._unsure and compares:
                self._compare(next(reversed(self._unsure)), end)
            else:
                break

    def _compare(self, folder: str, end: float) -> None:
        """Sees whether git's blobs are what the files of a folder have, if these still are as they were seen; else they
        are copied."""
        if (listing := self._folders.get(folder)) is None:
            self._unsure.pop(folder, None)
            return
        copied = []
        for name, blob in list(_unsure(listing).items()):
            path, key = f"{folder}/{name}", listing.entries[name]
            listing.in_git[name] = NO_BLOB
            if key[1] <= self._camera.limit:
                try:
                    content, seen = _content(path, key[1])
                except OSError as error:
                    self._unkept[path] = f"it cannot be read ({error.strerror or error})"
                    continue
                if seen != key:  # The next look tells.
                    continue
                if name_of(content) == blob:
                    listing.in_git[name] = (True, blob)
                    self._unchecked.append((path, blob))
                    continue
            copied.append((path, key))
            if self._waited_for() or time.monotonic() > end:
                break
        self.put(folder, listing)
        for path, key in copied:
            self.want(path, key, None)

    def _copy_one(self, path: str, key: Key) -> None:
        """Copies a file if it still is as `key` says."""
        try:
            entry = self._camera.take(Path(path))
        except (OSError, ExecutorError):
            return
        if entry.content and key_at(path) == key:
            self._copies[path] = (key, entry.content)
        else:
            self._unkept[path] = entry.why or NOT_YET

    def _read_indexes_again(self) -> None:
        stale = {each.folder for each in self._tracked.values() if each and state_of_index(each.git) != each.index}
        if stale:
            self._tracked = {k: each for k, each in self._tracked.items() if each and each.folder not in stale}
        for path, key in list(self._pending.items()):
            folder = path.rpartition("/")[0]
            repository = self.repository(folder)
            if repository is not None and self._is_in_index(path, key, repository):
                del self._pending[path]

    def forget(self, changed: Changed) -> list[Change]:
        for path, _, key in changed:
            self._forget_file(path)
            if key is not None and not stat.S_ISDIR(key[0]):
                self.want(path, key, self.repository(path.rpartition("/")[0]))
            elif key is None:
                self._copies.pop(path, None)
        return []

    def as_changes(self, changed: Changed) -> list[Change]:
        if not changed:
            return []
        merged: dict[str, tuple[Key | None, Key | None]] = {}
        for path, old, key in changed:  # A folder in the place of another: what was below, and what is.
            merged[path] = (merged[path][0] if path in merged else old, key)
        changed = [(path, old, key) for path, (old, key) in merged.items()]
        blobs = self._blobs((path, old) for path, old, _ in changed if old is not None)
        found: list[Change] = []
        for path, old, key in changed:
            before = NOTHING if old is None else self._entry(path, old, blobs)
            self._forget_file(path)
            try:
                after = NOTHING if key is None else self._after(path, key, before, keep=len(found) < MOST_KEPT)
            except (OSError, ExecutorError) as error:
                after = Entry("other", why=str(error))
            if key is not None and after.content:
                self._copies[path] = (key, after.content)
            elif after.why == MANY_CHANGES:
                self._unkept[path] = MANY_CHANGES
            elif key is not None and not stat.S_ISDIR(key[0]):
                self.want(path, key, self.repository(path.rpartition("/")[0]))
            if key is None:
                self._copies.pop(path, None)
                self._links.pop(path, None)
            if not before.same(after):
                found.append(Change(Path(path), before, after))
        return found

    def _after(self, path: str, key: Key, before: Entry, *, keep: bool) -> Entry:
        """What is at `path` now. Without `keep` the content of a file is neither read nor kept: it is when the file is
        restored, and until then its time tells whether it is still the same."""
        if keep or not stat.S_ISREG(key[0]):
            return self._camera.take(Path(path), like=before.content)
        return Entry("file", stat.S_IMODE(key[0]), key[1], mark=mark_of_key(key), why=MANY_CHANGES)

    def _blobs(self, old: Iterable[tuple[str, Key]]) -> dict[bytes, bytes]:
        """What git has of these files."""
        wanted: dict[Path, set[bytes]] = {}
        for path, key in old:
            repository = self.repository(path.rpartition("/")[0])
            known, name = self._copies.get(path, (None, ""))
            if repository is not None and known == key and name.startswith(IN_GIT):
                wanted.setdefault(repository.git, set()).add(bytes.fromhex(name.removeprefix(IN_GIT)))
        found: dict[bytes, bytes] = {}
        for git, names in wanted.items():
            found |= read_blobs(git, names, self._programs_not_in)
        return found

    def _entry(self, path: str, key: Key, blobs: dict[bytes, bytes]) -> Entry:
        """What was at `path` when it was as `key` says."""
        mode = stat.S_IMODE(key[0])
        if stat.S_ISDIR(key[0]):
            return Entry("dir", mode)
        if stat.S_ISLNK(key[0]):
            return self._links.get(path, Entry("link", why="its target is not known"))
        if not stat.S_ISREG(key[0]):
            return Entry("other", mode, why="it is no file")
        known, name = self._copies.get(path, (None, ""))
        why = ""
        if known == key and not name.startswith(IN_GIT):
            return Entry("file", mode, key[1], name)
        if known == key:
            content = blobs.get(bytes.fromhex(name.removeprefix(IN_GIT)))
            if content is not None:
                try:
                    return Entry("file", mode, key[1], self._camera.contents.put(content))
                except ContentError as error:
                    why = str(error)
            else:
                why = "git has not kept it"
        else:
            why = self._unkept.get(path, NOT_YET)
        return Entry("file", mode, key[1], mark=mark_of_key(key), why=why)


def _content(path: str, size: int) -> tuple[bytes, Key]:
    """What a file has, and how it was before and after that was read. Raises OSError, also where it changes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        before = key_of(os.fstat(descriptor))
        content = file.read(size + 1) if stat.S_ISREG(before[0]) else None
        if content is None or len(content) != size or key_of(os.fstat(descriptor)) != before:
            raise OSError("it changes")
    return content, before


def _unsure(listing: Listing) -> dict[str, bytes]:
    """By name: the blobs that files are to be compared with."""
    return {name: blob for name, (sure, blob) in listing.in_git.items() if blob and not sure}


def _up_to(folder: str, above: str) -> Iterator[str]:
    """`folder` and those above it, below `above`."""
    while len(folder) > len(above):
        yield folder
        folder = folder.rpartition("/")[0]
