"""The project's instructions for agents: `AGENTS.md`, or what stands for it (`project_rules.INSTRUCTION_FILES`).

The files in the session's own folders, and in those above up to the top of their repository, are read when the session
starts and stand at the head of the conversation, the same for the whole session. Those in sub-folders are added to
the first result that touches a file below them. Links that lead out of the session's folders (for those above: out of
the repository) are not followed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.lazy import pattern
from acp_agent.limits.decoding import BOM
from acp_agent.loop.prompts.facts import facts_of
from acp_agent.loop.prompts.project_rules import folders_above, instruction_file
from acp_agent.safety.folders.paths import Roots, read_regular

MARK_CHARS = 12
LOOKALIKE = pattern(
    r"\[(?=(?:end of )?instructions \w{12}\b|context of this session\b|end of context\b)", re.IGNORECASE
)
KEY_SECONDS = 24 * 3600
"""Age at which the key is replaced."""
KEY_BYTES = 16
IMPORTING = frozenset(("CLAUDE.md", "GEMINI.md"))
IMPORT_DEPTH = 5
"""Of files that import files."""
IMPORTED = pattern(r"(?:^|(?<=\s))@([^\s`@]*[^\s`@.,:;!?)])", re.MULTILINE)
CODE = pattern(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[ \t]*$|\Z)|(`+)(?!`).*?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE)

log = logging.getLogger(__name__)


def neutral(text: str) -> str:
    """`text` without the forms of instructions, whatever their mark (a file may come to know it), and of the context
    block."""
    low = text.lower()
    return LOOKALIKE.sub("[not ", text) if "instructions " in low or "context" in low else text


class Instructions:
    """Of one project. `max_bytes` bounds the text of each file and of all at the head together. `state`: the
    agent's own folder, for the key of the `mark`. `limits` says what commands cannot do, in a sentence or two; empty if
    they are not confined."""

    def __init__(
        self, roots: Roots, *, enabled: bool, max_bytes: int, state: Path | None = None, limits: Callable[[], str] = str
    ) -> None:
        self._state = state
        self._roots = roots
        self._enabled = enabled
        self._max_bytes = max_bytes
        self.text = self._of_roots()
        """For the head of the conversation; empty if there are none."""
        self._limits = limits

    @cached_property
    def mark(self) -> str:
        """Of instructions in tool results: what no file of the project can know. For a day it is the same in all
        sessions of a project, so that a server's prompt cache serves a new session, too."""
        text = f"instructions {_key(self._state)} {self._roots.project}"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:MARK_CHARS]

    @cached_property
    def facts(self) -> str:
        """About the project and how commands run in it, as it was at the first prompt."""
        return facts_of(self._roots, self._limits())

    def recall(self, mark: str, facts: str, text: str) -> None:
        """Goes on with what the head of another session's conversation says, if it could still be this one's."""
        if mark == self.mark:
            self.facts, self.text = facts, text

    def _of_roots(self) -> str:
        if not self._enabled:
            return ""
        parts: dict[Path, str] = {}
        left = self._max_bytes
        for root in self._roots.all:
            above = folders_above(root, self._roots)
            own: dict[Path, str] = {}
            for folder in (root, *reversed(above)):  # The nearest counts most, and has room first.
                file = instruction_file(folder, self._roots.disk)
                if file is None or file in parts or left <= 0:
                    continue
                top = None if folder == root else above[0]
                if text := self._read(file, left, top):
                    left -= len(text.encode())
                    shown = self._roots.display(self._roots.disk.real_path(file))
                    own[file] = f"\nProject instructions ({shown}):\n{text}\n"
            parts |= reversed(own.items())
        return "".join(parts.values())

    def for_paths(self, paths: Iterable[Path], known: set[Path]) -> str:
        """Returns the instructions of the folders between the session's and these files, unless their files are in
        `known`, to which they are added."""
        if not self._enabled:
            return ""
        parts = []
        told: set[Path] = set()
        for path in paths:
            for folder in self._between(path):
                file = instruction_file(folder, self._roots.disk)
                if file is None or file in known or file in told:
                    continue
                told.add(file)
                if text := self._read(file, self._max_bytes):
                    shown = self._roots.display(folder)
                    about = f"[instructions {self.mark}: for everything below {shown}/ ({file.name})]"
                    parts.append(f"{about}\n{text}\n[end of instructions {self.mark}]")
        known |= told  # Not before all could be read.
        return "\n".join(parts)

    def _between(self, path: Path) -> list[Path]:
        """The folders from below a root down to `path`, outermost first."""
        folders: list[Path] = []
        for folder in (path, *path.parents):
            if self._roots.is_root(folder):
                return folders[::-1]
            if folder != path or self._roots.disk.kind(path) == "dir":
                folders.append(folder)
        return []

    def _read(self, file: Path, limit: int, top: Path | None = None) -> str:
        def imported(path: Path, left: int) -> str | None:
            return read_text(path, self._roots, left, top) if self._roots.disk.kind(path) == "file" else None

        text = read_text(file, self._roots, limit, top)
        return "" if text is None else with_imports(text.strip(), file, imported, limit)


def read_text(file: Path, roots: Roots, limit: int, top: Path | None = None) -> str | None:
    """`top`: of the repository that the file is in, if it is above the session's folder."""
    try:
        real = roots.disk.real_path(file)
        if not roots.contains(real) and not (top is not None and _is_of(top, real)):
            log.warning("%s leads out of the session's folders and is not read", file)
            return None
        if roots.rules.hides(real):
            log.warning("%s is hidden by `tools.files.deny_read` and is not read", file)
            return None
        if roots.rules.key_file(real) is not None:
            log.warning("%s may keep keys or passwords (`tools.files.key_files`) and is not read", file)
            return None
        data = roots.disk.head(real, limit + 1)
    except (OSError, ExecutorError) as error:
        log.warning("%s cannot be read: %s", file, error)
        return None
    text = data[:limit].decode("utf-8", "replace").removeprefix(BOM)
    return f"{text}\n[... the rest is left out: more than {limit} bytes]" if len(data) > limit else text


def with_imports(text: str, file: Path, read: Callable[[Path, int], str | None], limit: int) -> str:
    """The text, and below it that of each file that it names, and that these name; in code nothing is named. `read`:
    the text of a file in at most so many bytes, `None` if it is not there or not to be read."""
    parts, left, seen = [text], limit - len(text.encode()), {file}

    def add(said: str, of: Path, depth: int) -> None:
        nonlocal left
        for name, path in _named(said, of):
            if path in seen or left <= 0:
                continue
            seen.add(path)
            if (found := read(path, left)) is None:
                continue
            parts.append(f"[@{name}]\n{found.strip()}")
            left -= len(found.encode())
            if depth < IMPORT_DEPTH:
                add(found, path, depth + 1)

    if file.name in IMPORTING:
        add(text, file, 1)
    return "\n\n".join(parts)


def _named(text: str, file: Path) -> Iterator[tuple[str, Path]]:
    for name in IMPORTED.findall(CODE.sub("", text)):
        if "." in name or "/" in name:  # Else it is somebody's name.
            yield name, Path(os.path.normpath(file.parent / name))


def _is_of(top: Path, file: Path) -> bool:
    """Whether a file is in a repository, and nobody else's."""
    return top in file.parents and ".git" not in file.parts and file.stat().st_uid == top.stat().st_uid


def _key(folder: Path | None) -> str:
    """The key in the agent's own folder; where there is none, one of this process."""
    fresh = os.urandom(KEY_BYTES).hex()
    if folder is None:
        return fresh
    file, new = folder / "instructions.key", folder / f"instructions.key.{os.getpid()}"
    try:
        found = file.lstat()
        is_young = 0 <= time.time() - found.st_mtime < KEY_SECONDS
        if (
            is_young
            and not found.st_mode & 0o077
            and len(known := read_regular(file, 2 * KEY_BYTES) or b"") == 2 * KEY_BYTES
        ):
            return known.decode()
    except (OSError, UnicodeDecodeError):
        pass
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(fresh)
        new.replace(file)
    except OSError as error:
        log.info("the key of instruction marks could not be kept: %s", error)
    return fresh
