"""Checks whether the arguments of a command stay inside the session's folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from acp_agent.safety.folders.paths import Roots

EXPANDS = "it uses values known only at run time"
WRITES = "it writes its output to a file"
CHANGES = "it may change something"
OUTSIDE = "it reads outside this session's folders"
NOT_UNDERSTOOD = "the command line could not be understood"

DEV_NULL = "/dev/null"
MAX_GLOB_MATCHES = 1_000
NAME_MAX = 255
MAX_GLOB_PARTS = 2
"""Components of a path with wildcards: each multiplies the folders to search."""
PIECES = re.compile(r"[=@:,]+")
"""Between the parts of an argument of which one may be a path: `--env-file=.env`, `data=@.env`, `HEAD:.env`."""
CODE = re.compile(r"[=@:,\s'\"`;()<>|&{}\[\]]+")
"""The same in code for an interpreter."""
INTERPRETERS = frozenset("sed awk gawk mawk nawk sqlite3".split())
"""Programs whose first argument is code that may name files."""
BRACES = re.compile(r"\{([^{}\s]*(?:,|\.\.)[^{}\s]*)\}")
CLASS = re.compile(r"\[[^\[\]]*\[:\w+:\][^\[\]]*\]")
"""`[[:alpha:]]`, which Python's glob does not know."""
MAX_WORDS = 50
"""Words of a command that may be folders in which the others are looked for."""
BRACKET = re.compile(r"\[[!^]?[\w.-]+\]")

Folders = frozenset[Path]
"""Possible current directories: more than one after a `cd` that may have failed."""


class AsksExactly(Exception):
    """The line must be shown as it is; an answer covers only this line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def paths_inside(arguments: Sequence[str], roots: Roots, folders: Folders) -> bool:
    """Whether every literal argument that may be a path leads into the session's folders."""
    try:
        Reach(roots).check_paths(arguments, folders)
    except AsksExactly:
        return False
    return bool(folders)


def lands(target: str, roots: Roots, folders: Iterable[Path], *, writes: bool) -> bool:
    """Whether a file opened by the shell is within the folders and not hidden or, for writing, not protected."""
    places = list(folders)
    for place in places:
        try:
            path = roots.disk.real_path(place / target)
        except (OSError, ValueError, RuntimeError):
            return False
        if not roots.contains(path) or roots.rules.hides(path):
            return False
        if writes and (roots.rules.protects(path) is not None or roots.disk.kind(path) == "dir"):
            return False
    return bool(places) and not target.startswith("~")


def protected_names(arguments: Iterable[str], roots: Roots, folders: Iterable[Path]) -> list[str]:
    """The protected names that literal arguments lead to, including values of options."""
    found: dict[str, None] = {}
    places = list(folders)
    for argument in dict.fromkeys(arguments):
        for text in dict.fromkeys((argument, argument.partition("=")[2])):
            if not text or (text.startswith("-") and "/" not in text):
                continue
            for place in places:
                try:
                    name = roots.rules.protects(roots.disk.real_path(place / text))
                except (OSError, ValueError, RuntimeError):
                    continue
                if name is not None:
                    found[name] = None
    return list(found)


def key_files(words: Sequence[str], roots: Roots, folders: Iterable[Path], *, literal: bool) -> dict[Path, str]:
    """The key files that the words of a command name, also with wildcards and within code for an interpreter, each with
    its name in the rules. What is not `literal` counts by its name alone, and so does what is relative to an unknown
    folder."""
    found: dict[Path, str] = {}
    places = list(folders) or [roots.cwd]
    # `git -C sub`, `tar -C sub`, `find sub -name x`
    places += [path for place in places for word in words[1:MAX_WORDS] if _is_folder(roots, path := place / word)]
    rules = roots.rules
    code = any(re.fullmatch(r"-\w*[ceE]|--(?:eval|command|print)", word) for word in words)
    code = code or any(word.rpartition("/")[2] in INTERPRETERS for word in words[:1])
    for text in dict.fromkeys(piece for word in words for piece in _pieces(word, code=code) if piece):
        if len(text) > NAME_MAX * 16 or "\0" in text:
            continue
        wild = any(char in text for char in "*?[")
        if text.startswith("~/") and rules.home is not None:
            text = f"{rules.home}{text[1:]}"
        for place in places:
            for path in _matching(roots, place, text) if wild else [place / text]:
                try:
                    path = roots.disk.real_path(path)
                    name = rules.key_file(path)
                except (OSError, ValueError, RuntimeError):
                    continue
                if name is not None and roots.contains(path):
                    found[path] = name
        if not (literal and wild) and "$" in text and (name := rules.key_name(text)) is not None:
            found[roots.cwd / text] = name
    return found


def _pieces(word: str, *, code: bool) -> Iterator[str]:
    """What may be a path in a word, with its braces expanded as bash does."""
    spelled = [word.removeprefix("~+/")]
    for text in spelled:
        if (match := BRACES.search(text)) is not None and len(spelled) < MAX_GLOB_MATCHES:
            parts = match[1].split(",") if "," in match[1] else ["?"]
            spelled += [text[: match.start()] + part + text[match.end() :] for part in parts]
        yield text
        yield from (piece.lstrip("-+") for piece in (CODE if code or "$" in text else PIECES).split(text))


def _matching(roots: Roots, place: Path, pattern: str) -> list[Path]:
    """What a pattern matches, as far as that can be found quickly."""
    pattern = CLASS.sub("?", pattern)
    if sum(any(char in part for char in "*?[") for part in pattern.split("/")) > MAX_GLOB_PARTS or "**" in pattern:
        return []
    try:
        found = roots.disk.matches(pattern, place, MAX_GLOB_MATCHES)
    except (OSError, ValueError, RuntimeError, re.error):
        return []
    return [place / name for name in found]


def _is_folder(roots: Roots, path: Path) -> bool:
    try:
        return roots.disk.kind(path) == "dir"
    except OSError:
        return False


class Reach:
    """The checks of one session. Raises AsksExactly for anything that leads outside."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def check_paths(self, arguments: Iterable[str], folders: Folders, reason: str = OUTSIDE) -> None:
        for argument in dict.fromkeys(arguments):
            if argument.startswith("-") and argument != "-":
                name, equals, value = argument.partition("=")
                if equals:
                    self.check_path(value, folders)
                if not name.startswith("--") and ("/" in name or ".." in name):
                    raise AsksExactly(reason)  # A value attached to its option: where it begins is not known here.
                if not name.startswith("--"):
                    self._check_glued(argument, folders)
            else:
                self.check_path(argument, folders)
                if "=" in argument:
                    self.check_path(argument.partition("=")[2], folders)

    def _check_glued(self, argument: str, folders: Folders) -> None:
        """Checks that a value attached to its option is not a link pointing outside, wherever it begins."""
        for start in range(max(2, len(argument) - NAME_MAX), len(argument)):
            name = argument[start:]
            if "/" not in name and any(self._roots.disk.is_link(folder / name) for folder in folders):
                self.check_path(name, folders)

    def check_path(self, text: str, folders: Folders) -> None:
        if text in ("", "-", DEV_NULL):
            return
        if text.startswith("~"):
            raise AsksExactly(OUTSIDE)
        if not all(self.is_inside(folder / text) for folder in folders):
            raise AsksExactly(OUTSIDE)

    def is_inside(self, path: Path) -> bool:
        try:
            real = self._roots.disk.real_path(path)
            return self._roots.contains(real) and not self._roots.rules.hides(real)
        except (OSError, ValueError, RuntimeError):
            return False

    def check_glob(self, pattern: str, folders: Folders) -> None:
        """Checks that everything a pattern matches is inside, and none of it looks like an option."""
        wide = BRACKET.sub("?", pattern)
        components = wide.split("/")
        wild = [part for part in components if "*" in part or "?" in part]
        if "[" in wide or len(wild) > MAX_GLOB_PARTS:
            raise AsksExactly(NOT_UNDERSTOOD)
        if wide.startswith("/") or ".." in components or any(part.startswith(".") for part in wild):
            raise AsksExactly(OUTSIDE)
        for folder in folders:
            try:
                found = self._roots.disk.matches(wide, folder, MAX_GLOB_MATCHES + 1)
            except (OSError, ValueError, re.error) as error:
                raise AsksExactly(NOT_UNDERSTOOD) from error
            if len(found) > MAX_GLOB_MATCHES or any(name.startswith("-") for name in found):
                raise AsksExactly(NOT_UNDERSTOOD)
            for name in found:
                self.check_path(name, folders)
