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
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.tree_walk import Hides
from acp_agent.undo.base import NOTHING, Change, Entry, named
from acp_agent.undo.contents import ContentError, Contents
from acp_agent.undo.folder_watch import Watch
from acp_agent.undo.git_blobs import Blob, Tracked, read_blobs, read_sizes, state_of_index, tracked
from acp_agent.undo.git_index import git_of, name_of
from acp_agent.undo.pictures import HIDDEN, TOO_LONG, Camera

LATER = frozenset(
    {"node_modules", ".venv", "venv", "target", "__pycache__", ".tox", ".cache", "dist", "build", ".next"}
)
"""Folders that are looked at last: programs make their contents again."""
GIT, IN_GIT = ".git", "git "
MANY = 200
"""Files without a copy, from which on git's index is read again: it may know them."""
MOST_KEPT = 500
"""Changes of one look of which what became of a file is kept, to show and to merge it."""
MANY_CHANGES = "more than 500 files were changed at once"
NOT_YET = "it was not copied in time (`undo.copy_seconds`)"
SLICE = 0.05
"""Seconds for which a look may have to wait while files are copied."""

Key = tuple[int, int, int, int, int]
"""Mode, size, times of content and inode (ns), inode. Of a folder without what changes with its entries."""


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
        self._programs_not_in = list(folders)
        self._limits = limits
        self._hides = hides
        self._skips = frozenset(map(str, skips))
        self.camera = Camera(contents, limits.file_bytes, hides)
        self._watch = watch or Watch()
        self._lock = threading.Lock()
        self._folders: dict[str, dict[str, Key]] = {}
        self._linked: set[str] = set()
        """Folders with files that have other names: a change by such a name is not told."""
        self._count = 0
        self.left_out = LeftOut()
        self._tracked: dict[str, Tracked | None] = {}
        """By folder: the repository that it belongs to, if any."""
        self._copies: dict[str, tuple[Key, str]] = {}
        """What is kept of each file: the name of a content, or (`IN_GIT`) of a blob that its bytes hashed to."""
        self._pending: dict[str, Key] = {}
        """Files to be copied."""
        self._unsure: dict[str, Key] = {}
        """Files that are as git's index says, whose content is to be compared with the name of git's blob."""
        self._links: dict[str, Entry] = {}
        self._unkept: dict[str, str] = {}
        """Files that are not copied, and why."""
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
        with self._lock:
            changed: list[tuple[str, Key | None, Key | None]] = []
            if not self.begun:
                self.begun = True
                self._scan(self._tops, changed)
                changed.clear()
            else:
                self._absorb()
                dirty = self._watch.changed()
                again = {self._own.again.popleft() for _ in range(len(self._own.again))}
                for folder in self._watch.lost & self._folders.keys():
                    self._watch.add(folder)
                self._watch.lost.clear()
                if dirty is None:
                    self._rescan(list(self._folders), changed)
                    self._scan([top for top in self._tops if top not in self._folders], changed)
                else:
                    self._rescan([*dirty, *((self._linked | again) - dirty)], changed)
            changes = self._as_changes(changed) if report else self._forget(changed)
            self._copy(seconds)
            return changes

    def copy_on(self, seconds: float) -> None:
        """Copies what has no copy yet, for at most so many seconds; what git has of the others is checked first."""
        self._check_git()
        end = time.monotonic() + seconds
        while (self._pending or self._unsure) and (left := end - time.monotonic()) > 0:
            with self._lock:
                self._copy(min(left, SLICE))

    @property
    def partial(self) -> bool:
        """Whether folders are left out."""
        return bool(self.left_out.folders)

    def beyond(self) -> str:
        """The folders that are left out, and why."""
        beyond = list(self.left_out.folders)
        why = f"more than {self._limits.entries} files and folders (`undo.max_entries`)"
        return f"{named(sorted(beyond))}: {why}" if beyond else ""

    def uncovered(self) -> list[str]:
        """What commands may change without a way back, and why."""
        with self._lock:
            parts: list[tuple[list[str], str]] = [
                (sorted([*self._pending, *self._unsure]), NOT_YET),
            ]
            for why in dict.fromkeys(self._unkept.values()):
                parts.append((sorted(path for path in self._unkept if self._unkept[path] == why), why))
        return list(filter(None, [self.beyond(), *(f"{named(paths)}: {why}" for paths, why in parts if paths)]))

    def _scan(self, folders: Iterable[str], changed: list[tuple[str, Key | None, Key | None]]) -> None:
        """Looks at these folders, which are new, and all below them."""
        first, later = deque(folders), deque[str]()
        while first or later:
            folder = (first or later).popleft()
            if folder in self._folders or folder in self._skips:
                continue
            repository = self._repository(folder)
            known = repository.folders if repository is not None else None
            blobs = repository.blobs if repository is not None else {}
            self._watch.add(folder)
            if (found := self._read(folder, self._limits.entries - self._count)) is None:
                self._watch.drop(folder)
                self.left_out.folders.append(folder)
                continue
            self._folders[folder] = found
            self._count += len(found)
            for name, key in found.items():
                path = f"{folder}/{name}"
                changed.append((path, None, key))
                if stat.S_ISDIR(key[0]):
                    last = path not in known if known else name in LATER
                    (later if last else first).append(path)
                elif (blob := blobs.get(path)) is not None and blob[:3] == (key[1] & 0xFFFFFFFF, key[2], key[3]):
                    self._unsure[path] = key
                else:
                    self._want(path, key, repository)

    def _read(self, folder: str, most: int) -> dict[str, Key] | None:
        """The folder's entries; `None` if there are more than `most`."""
        found: dict[str, Key] = {}
        try:
            with os.scandir(folder) as listed:
                for entry in listed:
                    if entry.name == GIT:
                        continue
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    found[entry.name] = _key_of(seen)
                    if seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode):
                        self._linked.add(folder)
                    if len(found) > most:
                        return None
        except PermissionError:  # What is in it has not gone: it is what it was when it could last be read.
            return self._folders.get(folder, found)
        except OSError:
            pass
        return found

    def _rescan(self, folders: Iterable[str], changed: list[tuple[str, Key | None, Key | None]]) -> None:
        new: list[str] = []
        for folder in folders:
            if (before := self._folders.get(folder)) is None:
                continue
            self._linked.discard(folder)
            now = self._read(folder, self._limits.entries - self._count + len(before))
            if now is None:
                self._gone(folder, changed=None)
                self.left_out.folders.append(folder)
                continue
            self._folders[folder] = now
            ours = self._own.now()
            for name in before.keys() | now.keys():
                old, key = before.get(name), now.get(name)
                if old == key:
                    continue
                path = f"{folder}/{name}"
                if path in ours:
                    now.pop(name, None)
                    now.update({} if old is None else {name: old})
                    continue
                if _is_other_folder(old, key):
                    self._gone(path, changed)
                changed.append((path, old, key))
                if _is_other_folder(key, old):
                    new.append(path)
            self._count += len(now) - len(before)
        self._scan(new, changed)

    def _absorb(self) -> None:
        while self._own.done:
            path, entry = self._own.done.popleft()
            folder = self._folders.get(str(path.parent))
            if folder is None:
                continue
            found, was = _key(str(path)), folder.get(path.name)
            if entry.kind == "file" and entry.mark and (found is None or _mark(found) != entry.mark):
                self._count += was is None  # Somebody has changed it again since: that is to be found.
                folder[path.name] = left = _key_of_entry(entry)
                self._copies[str(path)] = (left, entry.content)
                continue
            if _is_other_folder(was, found):
                self._gone(str(path), None)
            self._count += (found is not None) - (was is not None)
            if found is None:
                folder.pop(path.name, None)
                self._forget_file(str(path))
                continue
            folder[path.name] = found
            if stat.S_ISDIR(found[0]):
                self._scan([str(path)], [])
            elif entry.content and entry.mark == _mark(found):
                self._forget_file(str(path))
                self._copies[str(path)] = (found, entry.content)
            else:
                self._want(str(path), found, self._repository(str(path.parent)))

    def _gone(self, folder: str, changed: list[tuple[str, Key | None, Key | None]] | None) -> None:
        """The folder is not there any more, or no longer looked at; `changed` takes what was below it."""
        below = [folder]
        for each in below:
            entries = self._folders.pop(each, {})
            self._watch.drop(each)
            self._linked.discard(each)
            self._count -= len(entries)
            for name, key in entries.items():
                if stat.S_ISDIR(key[0]):
                    below.append(f"{each}/{name}")
                if changed is not None:
                    changed.append((f"{each}/{name}", key, None))

    # --- contents ---------------------------------------------------------------------------------------------

    def _repository(self, folder: str) -> Tracked | None:
        """The one that `folder` belongs to, which may be above the session's folders; its index is read when the first
        folder of it is seen."""
        at = folder
        while at not in self._tracked:
            if (git := git_of(Path(at))) is not None:
                self._tracked[at] = tracked(at, git)
            elif at.count("/") < 2:
                self._tracked[at] = None
            else:
                at = at.rpartition("/")[0]
                continue
            break
        for each in _up_to(folder, at):
            self._tracked.setdefault(each, self._tracked[at])
        return self._tracked[at]

    def _check_git(self) -> None:
        """Files that git's blobs cannot give back are to be copied."""
        with self._lock:
            unchecked = {each.folder: each for each in self._tracked.values() if each and not each.checked}
        for repository in unchecked.values():
            names = [blob[3] for blob in list(repository.blobs.values())]
            sizes = read_sizes(repository.git, names, self._programs_not_in)
            with self._lock:
                repository.checked = True
                wrong = [path for path, blob in repository.blobs.items() if not _is_whole(blob, sizes)]
                for path in wrong:
                    del repository.blobs[path]
                    if self._copies.get(path, (None, ""))[1].startswith(IN_GIT):
                        del self._copies[path]
                    folder, _, name = path.rpartition("/")
                    if (key := self._folders.get(folder, {}).get(name)) is not None:
                        self._want(path, key, repository)

    def _blob(self, path: str, key: Key, repository: Tracked | None) -> Blob | None:
        """Git's copy of a file that is as `key` says, if the index tells the truth."""
        blob = repository.blobs.get(path) if repository is not None else None
        return blob if blob is not None and blob[:3] == (key[1] & 0xFFFFFFFF, key[2], key[3]) else None

    def _want(self, path: str, key: Key, repository: Tracked | None) -> None:
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
        if self._blob(path, key, repository) is not None:
            self._unsure[path] = key
            return
        if key[1] > self._limits.file_bytes:
            self._unkept[path] = TOO_LONG.format(self._limits.file_bytes)
        elif self._hides is not None and self._hides(Path(path)):
            self._unkept[path] = HIDDEN
        else:
            self._pending[path] = key

    def _forget_file(self, path: str) -> None:
        self._pending.pop(path, None)
        self._unsure.pop(path, None)
        self._unkept.pop(path, None)

    def _copy(self, seconds: float) -> None:
        if len(self._pending) > MANY:
            self._read_indexes_again()
        end = time.monotonic() + seconds
        while (self._pending or self._unsure) and time.monotonic() < end:
            if self._pending:
                path, key = next(iter(self._pending.items()))
                del self._pending[path]
                self._copy_one(path, key)
            else:
                self._compare(*self._unsure.popitem())

    def _compare(self, path: str, key: Key) -> None:
        """Sees whether git's blob is what the file has, if it still is as `key` says; else the file is copied."""
        repository = self._repository(path.rpartition("/")[0])
        if repository is None or (blob := self._blob(path, key, repository)) is None:
            return self._want(path, key, None)
        if key[1] <= self._limits.file_bytes:
            try:
                content, seen = _content(path, key[1])
            except OSError as error:
                self._unkept[path] = f"it cannot be read ({error.strerror or error})"
                return None
            if seen != key:  # The next look tells.
                return None
            if name_of(content) == blob[3]:
                self._copies[path] = (key, f"{IN_GIT}{blob[3].hex()}")
                return None
        del repository.blobs[path]
        return self._want(path, key, repository)

    def _copy_one(self, path: str, key: Key) -> None:
        """Copies a file if it still is as `key` says."""
        try:
            entry = self.camera.take(Path(path))
        except (OSError, ExecutorError):
            return
        if entry.content and _key(path) == key:
            self._copies[path] = (key, entry.content)
        else:
            self._unkept[path] = entry.why or NOT_YET

    def _read_indexes_again(self) -> None:
        stale = {each.folder for each in self._tracked.values() if each and state_of_index(each.git) != each.index}
        if stale:
            self._tracked = {k: each for k, each in self._tracked.items() if each and each.folder not in stale}
        for path, key in list(self._pending.items()):
            if self._blob(path, key, self._repository(path.rpartition("/")[0])) is not None:
                del self._pending[path]
                self._unsure[path] = key

    # --- changes ----------------------------------------------------------------------------------------------

    def _forget(self, changed: list[tuple[str, Key | None, Key | None]]) -> list[Change]:
        for path, _, key in changed:
            self._forget_file(path)
            if key is not None and not stat.S_ISDIR(key[0]):
                self._want(path, key, self._repository(path.rpartition("/")[0]))
        return []

    def _as_changes(self, changed: list[tuple[str, Key | None, Key | None]]) -> list[Change]:
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
                self._want(path, key, self._repository(path.rpartition("/")[0]))
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
            return self.camera.take(Path(path), like=before.content)
        return Entry("file", stat.S_IMODE(key[0]), key[1], mark=_mark(key), why=MANY_CHANGES)

    def _blobs(self, old: Iterable[tuple[str, Key]]) -> dict[bytes, bytes]:
        """What git has of these files."""
        wanted: dict[Path, set[bytes]] = {}
        for path, key in old:
            repository = self._repository(path.rpartition("/")[0])
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
                    return Entry("file", mode, key[1], self.camera.contents.put(content))
                except ContentError as error:
                    why = str(error)
            else:
                why = "git has not kept it"
        else:
            why = self._unkept.get(path, NOT_YET)
        return Entry("file", mode, key[1], mark=_mark(key), why=why)


def _content(path: str, size: int) -> tuple[bytes, Key]:
    """What a file has, and how it was before and after that was read. Raises OSError, also where it changes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        before = _key_of(os.fstat(descriptor))
        content = file.read(size + 1) if stat.S_ISREG(before[0]) else None
        if content is None or len(content) != size or _key_of(os.fstat(descriptor)) != before:
            raise OSError("it changes")
    return content, before


def _is_whole(blob: Blob, sizes: dict[bytes, int]) -> bool:
    """Whether git can give back the file, byte for byte."""
    size = sizes.get(blob[3])
    return size is not None and size & 0xFFFFFFFF == blob[0]


def _up_to(folder: str, above: str) -> Iterator[str]:
    """`folder` and those above it, below `above`."""
    while len(folder) > len(above):
        yield folder
        folder = folder.rpartition("/")[0]


def _is_other_folder(one: Key | None, other: Key | None) -> bool:
    """Whether `one` is a folder, and `other` not the same."""
    if one is None or not stat.S_ISDIR(one[0]):
        return False
    return other is None or not stat.S_ISDIR(other[0]) or one[4] != other[4]


def _key_of(seen: os.stat_result) -> Key:
    if stat.S_ISDIR(seen.st_mode):
        return seen.st_mode, 0, 0, 0, seen.st_ino
    return seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def _key_of_entry(entry: Entry) -> Key:
    """Of a file that is not there as such any more."""
    inode, size, mtime = map(int, entry.mark.split(":"))
    return stat.S_IFREG | entry.mode, size, mtime, 0, inode


def _mark(key: Key) -> str:
    """As `pictures.mark_of`."""
    return f"{key[4]}:{key[1]}:{key[2]}"


def _key(path: str) -> Key | None:
    try:
        return _key_of(os.lstat(path))
    except OSError:
        return None
