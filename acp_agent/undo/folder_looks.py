"""What commands change below the session's folders, found by looking before and after.

A look reads what a folder's entries are (size, times, inode), and compares. The contents from before are those of git
(`git_blobs`) or copies made when a file was first seen. Blocking; one thread at a time (`Looks` has a lock).
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from acp_agent.executors.tree_walk import Hides
from acp_agent.safety.folders.watch import BESIDE
from acp_agent.undo.base import CACHES, Change, Entry, named
from acp_agent.undo.contents import Contents
from acp_agent.undo.first_look import GIT, FirstLook
from acp_agent.undo.folder_watch import Watch
from acp_agent.undo.git_blobs import Blob, Tracked
from acp_agent.undo.kept_copies import KeptCopies
from acp_agent.undo.listings import (
    NO_BLOB,
    Changed,
    InGit,
    Key,
    Listing,
    Listings,
    is_as,
    key_at,
    key_of,
    key_of_entry,
    mark_of_key,
)
from acp_agent.undo.pictures import Camera

LATER = CACHES | {"target", "dist", "build"}
"""Folders that are looked at last."""
NOT_SEEN = "it was not looked at in time"
SLICE = 0.05
"""Seconds for which a look may have to wait while files are copied."""

PIECE = 0.1
"""Seconds of the first look that the first command waits for, if it takes longer."""
FEW = 400
"""Files that are compared with git's blobs while a command waits; more are compared beside it."""


class Limits(Struct, frozen=True):
    entries: int
    file_bytes: int


class _OwnWrites:
    """What our own tools change, told while others look; nothing here waits."""

    def __init__(self) -> None:
        self.done: deque[tuple[Path, Entry]] = deque()
        """What they made of paths, not yet absorbed."""
        self._held: Counter[str] = Counter()
        """Paths that they are changing."""
        self.again: deque[str] = deque()
        """Folders of these, to be looked at once more."""

    @contextmanager
    def held(self, paths: Collection[Path]) -> Iterator[None]:
        names = [str(path) for path in paths]
        self._held.update(names)
        try:
            yield
        finally:
            self.again.extend(str(path.parent) for path in paths)
            self._held.subtract(names)
            for name in names:
                if not self._held[name]:
                    del self._held[name]

    def now(self) -> set[str]:
        """What they are changing, or have changed since this look began. To be asked after a folder was read, and in
        this order: what is no longer held has been absorbed."""
        held = set(self._held)
        return held.union(str(path) for path, _ in list(self.done))


class LeftOut(Struct):
    folders: list[str] = []
    told: bool = False
    """Whether the user knows of them."""


class FolderLooks:
    """Below `folders`. `skips`: folders of our own that may lie there."""

    def __init__(
        self,
        folders: Sequence[Path],
        contents: Contents,
        limits: Limits,
        *,
        hides: Hides | None = None,
        skips: Iterable[Path] = (),
        watch: Watch | None = None,
    ) -> None:
        self._tops = [str(folder) for folder in folders if not any(above in folder.parents for above in folders)]
        self._limits = limits
        self._skips = frozenset(map(str, skips))
        self.camera = Camera(contents, limits.file_bytes, hides)
        self._watch = watch or Watch()
        self._lock = threading.Lock()
        self._waiting = 0
        """Who waits for it."""
        self._folders = Listings()
        self._first = FirstLook()
        self._told = True
        """Whether the watch told what changes when it was last asked."""
        self._linked: set[str] = set()
        """Folders with files that have other names: a change by such a name is not told."""
        self.left_out = LeftOut()
        self._kept = KeptCopies(
            self._folders, self.camera, hides, list(folders), self._lock, lambda: bool(self._waiting)
        )
        self._own = _OwnWrites()
        self.begun = False

    def absorb(self, entries: Iterable[tuple[Path, Entry]]) -> None:
        """What our own tools have made of these paths is no news. Does not wait."""
        if self.begun:
            self._own.done.extend(entries)

    def held(self, paths: Collection[Path]) -> AbstractContextManager[None]:
        """While our own tools change these paths, and until that was absorbed, no look takes it for a command's doing.
        Does not wait."""
        return self._own.held(paths)

    def close(self) -> None:
        with self._lock:
            self._watch.close()

    # --- looking ----------------------------------------------------------------------------------------------

    def look(self, seconds: float, *, report: bool = True) -> list[Change]:
        """What changed since the last look; nothing the first time. Then copies what has no copy, for at most so many
        seconds. `report`: whether the changes are of interest, with their contents."""
        with self._now():
            changed: Changed = []
            if not self.begun:
                self.begun = True
                self._first.begin(self._tops)
            else:
                self._absorb()
                dirty = self._watch.changed()
                self._told = self._watch.tells
                again = {self._own.again.popleft() for _ in range(len(self._own.again))}
                again |= self._watch.take_lost(self._folders)
                if dirty is None:
                    self._rescan(list(self._folders), changed)
                    self._scan([top for top in self._tops if top not in self._folders], changed)
                else:
                    self._rescan([*dirty, *((self._linked | again) - dirty)], changed)
            self._look_on(PIECE if seconds and not self._first.waited else BESIDE)
            self._first.waited |= seconds > 0
            self._first.looked()
            changes = self._kept.as_changes(changed) if report else self._kept.forget(changed)
            self._kept.copy(seconds, FEW)
            return changes

    @contextmanager
    def _now(self) -> Iterator[None]:
        """For one who is waited for: what goes on beside stops soon."""
        self._waiting += 1
        with self._lock:
            self._waiting -= 1
            yield

    @property
    def unfinished(self) -> bool:
        """Whether the first look goes on."""
        return self._first.unfinished

    def look_on(self) -> bool:
        """Goes on with the first look for a moment; whether something is left of it."""
        with self._lock:
            self._look_on(BESIDE)
            return self.unfinished

    def _look_on(self, seconds: float) -> None:
        if not self.unfinished:
            return
        end, first = time.monotonic() + seconds, self._first
        while first.unfinished and time.monotonic() < end and not self._waiting:
            found: Changed = []
            if not self._kept.has_index(first.next, end):
                break
            self._scan_one(folder := first.take(), found, first.first, first.later)
            first.seen(folder, found)
        if not self.unfinished:
            self._kept.release()

    def late(self) -> list[str]:
        """Files that were changed while commands ran, before they were looked at; told once."""
        with self._lock:
            found, self._first.late = self._first.late, []
            return found

    def copy_on(self, seconds: float) -> None:
        """Finishes the first look. Then copies what has no copy yet, for at most so many seconds, and sees what of the
        rest git has."""
        while self.look_on():
            pass
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.copy_beside(min(left, SLICE)):
            pass
        self._kept.check_git()

    def copy_beside(self, seconds: float = BESIDE, *, copies: bool = True) -> bool:
        """The same for a moment; whether something is left. `copies`: whether files are copied, or only compared."""
        with self._lock:
            self._kept.copy(seconds, copies=copies)
        left = self._kept.left if copies else self._kept.uncompared
        if not left or self._kept.check_due():
            self._kept.check_git()
        return left

    @property
    def partial(self) -> bool:
        """Whether folders are left out, or not looked at yet."""
        return bool(self.left_out.folders) or self.unfinished

    def beyond(self) -> str:
        """The folders that are left out, and why."""
        beyond = list(self.left_out.folders)
        why = f"more than {self._limits.entries} files and folders (`undo.max_entries`)"
        return f"{named(sorted(beyond))}: {why}" if beyond else ""

    def uncovered(self) -> list[str]:
        """What commands may change without a way back, and why."""
        with self._lock:
            left = sorted(self._first.left)
            parts = [*self._kept.reasons(), (left, len(left), NOT_SEEN)]
        words = (f"{named(paths, count=count)}: {why}" for paths, count, why in parts if count)
        return list(filter(None, [self.beyond(), *words]))

    def _scan(self, folders: Iterable[str], changed: Changed) -> None:
        """Looks at these folders, which are new, and all below them."""
        first, later = deque(folders), deque[str]()
        while first or later:
            self._scan_one((first or later).popleft(), changed, first, later)

    def _scan_one(self, folder: str, changed: Changed, first: deque[str], later: deque[str]) -> None:
        """Looks at a folder, if it is not known; those in it are to be looked at."""
        if folder in self._folders or folder in self._skips:
            return
        repository = self._kept.repository(folder)
        blobs = repository.blobs(folder) if repository is not None else {}
        self._watch.add(folder)
        listing = self._read(folder, self._most, blobs, repository)
        if listing is None:
            self._watch.drop(folder)
            self.left_out.folders.append(folder)
            return
        self._kept.put(folder, listing)
        for name, key in listing.entries.items():
            path = f"{folder}/{name}"
            changed.append((path, None, key))
            if stat.S_ISDIR(key[0]):
                last = not repository.has(path) if repository is not None and repository.places else name in LATER
                (later if last else first).append(path)
            elif name not in listing.in_git:
                self._kept.want(path, key, None)

    def _cost(self, listing: Listing) -> int:
        """What counts of a folder: where nothing tells what changes, all of it is read each time."""
        return listing.others if self._told else len(listing.entries)

    @property
    def _most(self) -> int:
        """How much more may be looked at."""
        return self._limits.entries - (self._folders.others if self._told else self._folders.entries)

    def _read(
        self, folder: str, most: int, blobs: Mapping[str, Blob], repository: Tracked | None, old: Listing | None = None
    ) -> Listing | None:
        """The folder's entries; `None` if more than `most` of them count. Those are in git that are as their `blobs`
        say, or were (`old`)."""
        entries: dict[str, Key] = {}
        in_git: dict[str, InGit] = {}
        listing = Listing(entries, in_git)
        try:
            with os.scandir(folder) as listed:
                for entry in listed:
                    if entry.name == GIT:
                        continue
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    name = entry.name
                    entries[name] = key = key_of(seen)
                    if (blob := blobs.get(name)) is not None and is_as(key, blob):
                        in_git[name] = (False, blob[3])
                    elif old is not None and (known := old.in_git.get(name)) is not None:
                        in_git[name] = known if old.entries[name] == key else NO_BLOB
                    elif repository is not None and stat.S_ISDIR(key[0]) and repository.has(f"{folder}/{name}"):
                        in_git[name] = NO_BLOB
                    if seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode):
                        self._linked.add(folder)
                    if self._cost(listing) > most:
                        return None
        except PermissionError:  # What is in it has not gone: it is what it was when it could last be read.
            return self._folders.get(folder) or listing
        except OSError:
            pass
        return listing

    def _rescan(self, folders: Iterable[str], changed: Changed) -> None:
        new: list[str] = []
        for folder in folders:
            if (before := self._folders.get(folder)) is None:
                continue
            self._linked.discard(folder)
            now = self._read(folder, self._most + self._cost(before), {}, None, before)
            if now is None:
                self._gone(folder, changed=None)
                self.left_out.folders.append(folder)
                continue
            ours = self._own.now()
            for name in before.entries.keys() | now.entries.keys():
                old, key = before.entries.get(name), now.entries.get(name)
                if old == key:
                    continue
                path = f"{folder}/{name}"
                if path in ours:
                    now.entries.pop(name, None)
                    now.entries.update({} if old is None else {name: old})
                    now.in_git.pop(name, None)
                    now.in_git.update({name: before.in_git[name]} if name in before.in_git else {})
                    continue
                if _is_other_folder(old, key):
                    self._gone(path, changed)
                if old is not None:
                    self._kept.keep_blob(path, old, before)
                if key is None and self._first.was_holder(path):
                    continue
                changed.append((path, old, key))
                if _is_other_folder(key, old):
                    new.append(path)
            self._kept.put(folder, now)
        if not self._first.was_unfinished:
            return self._scan(new, changed)
        # What is in a new folder may only have been moved there, from where nobody has looked.
        found: Changed = []
        waits = set(self._first.left)
        self._scan([path for path in new if path not in waits], found)
        changed += [each for each in found if each[2] is not None and each[2][3] >= self._first.since]
        return None

    def _absorb(self) -> None:
        while self._own.done:
            path, entry = self._own.done.popleft()
            above, name = str(path.parent), path.name
            if (folder := self._folders.get(above)) is None:
                continue
            found, was = key_at(str(path)), folder.entries.get(name)
            if was is not None:
                self._kept.keep_blob(str(path), was, folder)
            changed_since = entry.kind == "file" and entry.mark and (found is None or mark_of_key(found) != entry.mark)
            left = key_of_entry(entry) if changed_since else found  # Another's change since is to be found.
            if left is None:
                folder.entries.pop(name, None)
                folder.in_git.pop(name, None)
            else:
                folder.entries[name] = left
                if name in folder.in_git and left != was:
                    folder.in_git[name] = NO_BLOB
            self._folders.put(above, folder)
            if not changed_since and _is_other_folder(was, found):
                self._gone(str(path), None)
            if changed_since or (found is not None and entry.content and entry.mark == mark_of_key(found)):
                self._kept.note(str(path), left, entry.content)
            elif found is None:
                self._kept.note(str(path), None, "")
            elif stat.S_ISDIR(found[0]):
                self._scan([str(path)], [])
            elif found != was:
                self._kept.want(str(path), found, self._kept.repository(above))

    def _gone(self, folder: str, changed: Changed | None) -> None:
        """The folder is not there any more, or no longer looked at; `changed` takes what was below it."""
        below = [folder]
        for each in below:
            if (listing := self._folders.pop(each)) is None:
                continue
            self._watch.drop(each)
            self._linked.discard(each)
            self._kept.gone(each)
            for name, key in listing.entries.items():
                path = f"{each}/{name}"
                if stat.S_ISDIR(key[0]):
                    below.append(path)
                if changed is not None:
                    self._kept.keep_blob(path, key, listing)
                    changed.append((path, key, None))


def _is_other_folder(one: Key | None, other: Key | None) -> bool:
    """Whether `one` is a folder, and `other` not the same."""
    if one is None or not stat.S_ISDIR(one[0]):
        return False
    return other is None or not stat.S_ISDIR(other[0]) or one[4] != other[4]
