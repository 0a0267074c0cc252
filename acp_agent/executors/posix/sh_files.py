"""Files of a host without Python: what `files` and `disk` do here, asked of a shell over there."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat
import uuid
from collections.abc import Collection, Iterator, Mapping
from glob import has_magic
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from acp_agent.disk import MAX_NAME
from acp_agent.errors import ExecutorError
from acp_agent.executors import encodings
from acp_agent.executors.base import EntryKind, FileStat
from acp_agent.executors.beneath import Swapped, what_it_is
from acp_agent.executors.files import kind_of, lines_in, written
from acp_agent.executors.posix.sh_program import DENIED, IRREGULAR, MISSING, NO_FOLDER, words
from acp_agent.executors.posix.sh_shell import Failed, ShShell

if TYPE_CHECKING:
    from acp_agent.disk import Kind

AT_ONCE = 100
"""Files that one question is about."""


class Seen(Struct, frozen=True):
    """What a path is, by lstat, as far as it is told."""

    st_mode: int
    st_size: int
    st_dev: int = 0
    st_ino: int = 0
    changed: int = 0
    """Seconds."""
    links: int = 1
    owner: str = ""
    """`UID:GID`."""

    @property
    def identity(self) -> tuple[int, int]:
        return self.st_dev, self.st_ino


class ShFiles:
    def __init__(self, shell: ShShell) -> None:
        self._shell = shell

    def asked(self, path: Path, body: str, data: bytes | None = None, *, once: bool = False) -> bytes:
        """What is printed by `body`, which is about `path`. Raises as the functions of `files`."""
        try:
            return self._shell.once(body, data) if once else self._shell.ask(body, data)
        except Failed as error:
            mode = ""
            if error.code == IRREGULAR and (seen := self.look(path)) is not None:
                mode = f"{seen.st_mode:x}"
            raise error.about(path, mode) from error

    # --- as `files` -----------------------------------------------------------------------------------------------

    def read(self, path: Path, limit: int = -1) -> bytes:
        leaf, some = _leaf(path), "" if limit < 0 else f" | head -c {limit}"
        try:
            return self.asked(path, f"{_at(path)}; plain {leaf}; [ -r {leaf} ] || exit {DENIED}; rd {leaf}{some}")
        except NotADirectoryError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error

    def part(self, path: Path, first: int, count: int, most: int, skip: int, seconds: float) -> bytes:
        """`first` below 0 stays so."""
        leaf, last = _leaf(path), first + count - 1
        lines = f"sed -n '{first},{last}p;{last}q'" if first > 0 else f"tail -n {-first} | head -n {count}"
        cut = f"tail -c +{skip + 1} | head -c {most}"
        told = self.asked(path, f"{_at(path)}; plain {leaf}; stat -c %s {leaf}; rd {leaf} | {lines} | {cut}")
        if told.endswith(b"\n") and told.count(b"\n") == 1 and first > 1 and not skip:
            raise ExecutorError(f"{path}: line {first} does not exist")
        return f"{first} ".encode() + told

    def look(self, path: Path) -> Seen | None:
        """`None` where there is nothing."""
        try:
            told = self._shell.ask(f"{_at(path)}; look {_leaf(path)}").split()
        except Failed as error:
            if error.code in (MISSING, NO_FOLDER):
                return None
            raise error.about(path) from error
        mode, size, changed, device, node, links, user, group = (each.decode() for each in told)
        return Seen(int(mode, 16), int(size), int(device), int(node), int(changed), int(links), f"{user}:{group}")

    def look_at(self, path: Path) -> FileStat | None:
        found = self.look(path)
        return None if found is None else FileStat(kind_of(found.st_mode), found.st_size)

    def need_plain(self, path: Path) -> None:
        try:
            self.asked(path, f"{_at(path)}; plain {_leaf(path)}")
        except (FileNotFoundError, NotADirectoryError):
            return

    def entries(self, path: Path, most: int | None = None) -> tuple[list[tuple[str, EntryKind]], int]:
        mark = uuid.uuid4().hex
        told = self.asked(path, f"at {words(path)}; within {mark}")
        found = sorted((name, kind_of(int(mode, 16))) for (mode,), name in _records(told, mark, 1))
        return found[:most], len(found[most:]) if most is not None else 0

    def kinds(self, paths: Collection[Path]) -> dict[Path, EntryKind]:
        found = {}
        for path, told in self._each(paths, lambda path: f"{_at(path)} && stat -c %f {_leaf(path)}"):
            if mode := told.strip():
                found[path] = kind_of(int(mode, 16))
        return found

    def lines_of(self, wanted: Mapping[Path, Collection[int]]) -> dict[Path, dict[int, str]]:
        found: dict[Path, dict[int, str]] = {path: {} for path in wanted}

        def ask(path: Path) -> str:
            *some, last = (f"{number}p" for number in sorted(wanted[path]))
            script = ";".join([*some, f"{last.removesuffix('p')}{{p;q;}}"])
            here = f"{_at(path)}; plain {_leaf(path)}"
            return f"{here}; rd {_leaf(path)} | head -c 2 | od -An -tx1; rd {_leaf(path)} | sed -n '{script}'"

        for path, told in self._each([path for path in wanted if wanted[path]], ask):
            head, _, text_of = told.partition(b"\n")
            if head.replace(b" ", b"") in (mark.hex().encode() for mark in encodings.UTF_16):
                found[path] = lines_in(io.BytesIO(self.read(path)), wanted[path])
                continue
            lines = text_of.split(b"\n")
            for number, line in zip(sorted(wanted[path]), lines[:-1] if lines[-1] == b"" else lines, strict=False):
                text = line.decode("utf-8", encodings.OR_SINGLE_BYTE)
                found[path][number] = text.removeprefix(encodings.BYTE_ORDER) if number == 1 else text
        return found

    def _each(self, paths: Collection[Path], body: object) -> Iterator[tuple[Path, bytes]]:
        """What is printed for each; nothing for those of which there is nothing to tell."""
        pending = iter(paths)
        while some := list(islice(pending, AT_ONCE)):
            mark = uuid.uuid4().hex
            parts = [f"( {body(path)} ) 2>/dev/null; echo {mark}" for path in some]  # type: ignore[operator]
            told = self._shell.ask("; ".join(parts)).split(f"{mark}\n".encode())
            yield from zip(some, told, strict=False)

    def write_text(self, path: Path, text: str, old: encodings.Encoding) -> tuple[str, str]:
        data, now = encodings.encoded(text, old)
        seen = self.look(path)
        self._write(path, data, seen)
        shared = seen is not None and stat.S_ISREG(seen.st_mode) and seen.links > 1
        return written(data, old, now, shared=shared)

    def _write(self, path: Path, data: bytes, old: Seen | None) -> None:
        if old is not None and not stat.S_ISREG(old.st_mode):
            if stat.S_ISLNK(old.st_mode):
                raise Swapped(path)
            what = what_it_is(old.st_mode)
            more = "" if stat.S_ISDIR(old.st_mode) else ", not a regular file"
            raise OSError(errno.EINVAL, f"it is {what}{more}, so nothing was written")
        like = () if old is None else (f"{stat.S_IMODE(old.st_mode):o}", old.owner, old.links)
        beside = f".{path.name[:40]}.{uuid.uuid4().hex[:12]}"
        self.asked(path, f"put {words(path.parent, path.name, beside, *like)}", data, once=True)

    # --- as `disk` ------------------------------------------------------------------------------------------------

    def real_path(self, path: Path) -> Path:
        if max((len(os.fsencode(part)) for part in path.parts), default=0) > MAX_NAME:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
        try:
            told = self._shell.ask(f"real {words(path)}")
        except Failed as error:
            if error.code == IRREGULAR:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
            raise error.about(path) from error
        return Path(os.path.normpath(os.fsdecode(told) or "/"))

    def kind(self, path: Path) -> Kind | None:
        told = self.asked(path, f"kind {words(path)}").decode().strip()
        return told if told in ("dir", "file", "other") else None  # type: ignore[return-value]

    def stands(self, path: Path) -> bool:
        return self._is(path, f"[ -e {words(path)} ] || [ -L {words(path)} ]")

    def is_link(self, path: Path) -> bool:
        return self._is(path, f"[ -L {words(path)} ]")

    def _is(self, path: Path, test: str) -> bool:
        return self.asked(path, f"if {test}; then echo y; fi") == b"y\n"

    def matches(self, pattern: str, folder: Path, most: int) -> list[str]:
        found = [""]
        for part in pattern.split("/"):
            below = []
            for base in found:
                if not has_magic(part):
                    below.append(f"{base}{part}")
                elif self.kind(folder / base) == "dir":
                    names = [name for name, _ in self.names(folder / base, most)]
                    below += [f"{base}{name}" for name in fnmatch.filter(names, part)]
            found = [f"{name}/" for name in below]
        whole = [name[:-1] for name in found]
        return [name for name in whole if has_magic(pattern.rpartition("/")[2]) or self.stands(folder / name)][:most]

    def text(self, path: Path, limit: int) -> str:
        return self._whole(path, limit).decode("utf-8", "surrogateescape")

    def head(self, path: Path, most: int) -> bytes:
        return self.read(path, most)

    def holds(self, path: Path, wanted: bytes, limit: int) -> bool:
        return wanted in self._whole(path, limit)

    def _whole(self, path: Path, limit: int) -> bytes:
        data = self.asked(path, f"text {words(path, limit + 1)}")
        if len(data) > limit:
            raise ValueError("too large")
        return data

    def names(self, folder: Path, most: int) -> list[tuple[str, bool]]:
        mark = uuid.uuid4().hex
        told = self.asked(folder, f"cd {words(folder)} || no {words(folder)}; within {mark}")
        return [(name, stat.S_ISDIR(int(mode, 16))) for (mode,), name in islice(_records(told, mark, 1), most)]

    def below(self, path: Path, most: int) -> list[tuple[str, int]] | None:
        found = []
        for name, seen in self.tree(path, strict=False):
            found.append((name, seen.st_mode))
            if len(found) > most + 1:
                return None
        return found

    def tree(self, path: Path, *, strict: bool = True) -> Iterator[tuple[str, Seen]]:
        """Each entry of a tree, relative to it and beginning with itself (empty), folders before what they contain.
        Nothing, if there is none. `strict`: raises what keeps us from reading one."""
        mark, end = uuid.uuid4().hex, "" if strict else " 2>/dev/null || :"
        leaf = _leaf(path)
        try:
            told = self.asked(
                path, f"{_at(path)}; {{ [ ! -e {leaf} ] && [ ! -L {leaf} ]; }} || below {mark} {leaf}{end}"
            )
        except (FileNotFoundError, NotADirectoryError):
            return
        for (mode, size, device, node, links, changed), name in _records(told, mark, 6):
            seen = Seen(int(mode, 16), int(size), int(device), int(node), int(changed), int(links))
            yield name[len(path.name) :].lstrip("/"), seen


def _here(path: Path) -> str:
    return f"./{path.name}" if path.name else "."


def _leaf(path: Path) -> str:
    return words(_here(path))


def _at(path: Path) -> str:
    return f"at {words(path.parent)}"


def _records(told: bytes, mark: str, fields: int) -> Iterator[tuple[list[str], str]]:
    """Of lines that begin with `mark`: the fields, and the name behind them, which may have line feeds. Without the
    `./` before it."""
    for record in told.split(mark.encode())[1:]:
        *values, name = record.removesuffix(b"\n").split(b" ", fields)
        yield [value.decode() for value in values], os.fsdecode(name).removeprefix("./")
