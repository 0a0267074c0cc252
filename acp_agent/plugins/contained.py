"""The files of a plugin, of which none may lead out of its folder. Everything is read once, with bounds."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from acp_agent.errors import AgentError

MAX_FILES = 2_000
MAX_FILE_BYTES = 5_000_000
MAX_BYTES = 50_000_000
LEFT_OUT = frozenset((".git", "node_modules", "__pycache__", ".venv"))
"""Folders that are no part of a plugin."""


class PluginError(AgentError):
    """Why a plugin cannot be used, as a sentence."""


class Files(Mapping[str, bytes]):
    """Relative path -> bytes. `links`: those that lead out of the folder, and were left out."""

    def __init__(self, found: Mapping[str, bytes], executable: frozenset[str], links: tuple[str, ...]) -> None:
        self._found = dict(sorted(found.items()))
        self.executable = executable
        self.links = links

    def __getitem__(self, path: str) -> bytes:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def text(self, path: str) -> str | None:
        """`None` if there is no such file."""
        data = self._found.get(path)
        return None if data is None else data.decode("utf-8", "replace")

    def below(self, folder: str, ending: str = "") -> list[str]:
        """Paths below a folder, relative to it."""
        top = f"{folder.rstrip('/')}/"
        return [path.removeprefix(top) for path in self if path.startswith(top) and path.endswith(ending)]

    @property
    def digest(self) -> str:
        """Changes with every byte, name and permission to run."""
        state = hashlib.sha256()
        for path, data in self._found.items():
            mark = "x" if path in self.executable else "-"
            state.update(f"{mark} {path}\0".encode("utf-8", "surrogateescape"))
            state.update(hashlib.sha256(data).digest())
        return f"sha256:{state.hexdigest()}"


def read_files(folder: Path) -> Files:
    """The files in a folder. Links to files inside it are followed; others are left out.

    Raises PluginError for too many files, too large ones, and what is no file.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise PluginError(f"{folder} is not a folder.")
    found: dict[str, bytes] = {}
    executable: set[str] = set()
    links: list[str] = []
    size = 0
    for top, folders, names in os.walk(root):
        for name in [each for each in folders if os.path.islink(os.path.join(top, each))]:
            links.append(_relative(root, top, name))
        folders[:] = sorted(
            each for each in folders if each not in LEFT_OUT and not os.path.islink(os.path.join(top, each))
        )
        for name in sorted(names):
            path = _relative(root, top, name)
            place = Path(top, name)
            try:
                real = place.resolve(strict=True)
                if not real.is_relative_to(root):
                    links.append(path)
                    continue
                data, runs = _read(real, path)
            except OSError as error:
                raise PluginError(f"{path} cannot be read: {error.strerror or error}.") from error
            size += len(data)
            if len(found) >= MAX_FILES or size > MAX_BYTES:
                raise PluginError(f"It has more than {MAX_FILES} files or {MAX_BYTES} bytes.")
            found[path] = data
            if runs:
                executable.add(path)
    return Files(found, frozenset(executable), tuple(links))


def _relative(root: Path, top: str, name: str) -> str:
    return os.path.relpath(os.path.join(top, name), root)


def _read(real: Path, path: str) -> tuple[bytes, bool]:
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PluginError(f"{path} is no regular file.")
        if status.st_size > MAX_FILE_BYTES:
            raise PluginError(f"{path} has more than {MAX_FILE_BYTES} bytes.")
        return opened.read(MAX_FILE_BYTES), bool(status.st_mode & stat.S_IXUSR)


def write_files(files: Files, folder: Path) -> None:
    """Puts them into a new folder, each as a file of its own. Raises OSError."""
    folder.mkdir(parents=True, mode=0o700)
    for path, data in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o700 if path in files.executable else 0o600)
