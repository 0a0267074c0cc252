"""Which paths inside the session's folders are special: unreadable (`deny_read`), or trusted by other programs.

Both apply to tools (through `Roots`) and to commands (through the sandbox's mounts).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.config.safety_settings import KEY_FILES
from acp_agent.config.trusted_files import EVERY_NAME
from acp_agent.disk import HERE
from acp_agent.safety.globs import PathGlobs, covering

if TYPE_CHECKING:
    from acp_agent.disk import Disk

ALWAYS = (".git",)
"""Regardless of the configuration: everything inside `.git`, for tools (git commands may work there)."""

IGNORED = dict.fromkeys((0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF))
"""Characters in names that some file systems (HFS+) do not see."""

WORKTREES = "acp-coder-worktrees"
"""The folder of the worktrees that the agent makes."""
BRANCHES = "acp-coder"
"""Their branches are below it."""

ESCAPED = re.compile(r"\\([0-7]{3})")
MOUNTS = Path("/proc/self/mountinfo")

MOST_LINKS = 40
"""Links followed on the way to one file, as in the kernel."""


class PathRules:
    """`protect`: relative paths, special below every folder. `deny_read`, `allow_read`: globs; deny, then allow.
    `bases`: folders that relative globs refer to."""

    def __init__(
        self,
        protect: Iterable[str] = EVERY_NAME,
        deny_read: Sequence[str] = (),
        allow_read: Sequence[str] = (),
        bases: Sequence[Path] = (),
        home: Path | None = None,
        own: Iterable[Path] = (),
        absolute: Sequence[str] = (),
        policy: Sequence[str] = (),
        forbidden: Iterable[Path] = (),
        key_files: Sequence[str] = KEY_FILES,
        disk: Disk = HERE,
    ) -> None:
        """`own`: the agent's own files and folders: neither read nor changed, nor are links on the way to them.
        `forbidden`: paths that nothing may touch, by `tools.risk.forbidden_paths`. `absolute`: globs of whole paths
        that must not be read. `policy`: globs of those that a policy names: trees which contain them are judged by it.
        `key_files`: as in `tools.files.key_files`. `disk`: on which the session's folders are."""
        self.disk = disk
        self.moved: frozenset[Path] = frozenset()
        """What is hidden by its name, where commands have moved it to."""
        self.given = {"deny_read": list(deny_read), "allow_read": list(allow_read), "absolute": list(absolute)}
        self.given["key_files"] = list(key_files)
        """What hides paths besides `own` and `forbidden`."""
        self._named = covering(policy) if policy else None
        self._key_files = tuple(key_files)
        self.home = home
        self._bases = tuple(bases)
        ways = [(path, Path(os.path.realpath(path))) for path in own]
        self.own = tuple(dict.fromkeys(place for _, place in ways))
        self.forbidden = tuple(forbidden)
        self._forbidden_names = frozenset(map(_folded, self.forbidden))
        self._forbidden_tops = tuple(f"{place}/" for place in self._forbidden_names)
        self._absolute = covering(absolute) if absolute else None
        # In any spelling: on a case-insensitive disk, `.CONFIG` is `.config`.
        self._own_names = frozenset(_folded(place) for place in self.own)
        self._own_tops = tuple(f"{place}/" for place in self._own_names)
        linked = [(link, place) for path, place in ways for link in links_to(path)]
        self.links = tuple(dict.fromkeys(link for link, _ in linked))
        """The links on the way to the agent's own files: who replaces one replaces these."""
        links = [(_folded(link), place) for link, place in linked]
        self._leading = tuple(dict.fromkeys([*((_folded(place), place) for place in self.own), *links]))
        # On a case-insensitive disk, `.GIT/hooks` is what git trusts.
        names = dict.fromkeys(name.casefold().strip("/") for name in (*ALWAYS, *protect))
        self._protected = [name for name in names if name]
        self._deny = PathGlobs(deny_read, bases, home, disk)
        self._allow = PathGlobs(allow_read, bases, home, disk)

    def protects(self, path: Path) -> str | None:
        """The protected name that a resolved path equals or is below, in any folder; ignores case."""
        found = _named(tuple(self._protected)).findall(_plain(str(path)))
        return ALWAYS[0] if ALWAYS[0] in found else next(iter(found), None)

    def key_file(self, path: Path) -> str | None:
        """The name, of the file or a folder of the session above it, because of which a resolved path may keep keys or
        passwords; None also where nothing is."""
        below = (path.relative_to(base) for base in self._bases if base in path.parents)
        name = self.key_name(str(min(below, key=lambda inner: len(inner.parts), default=path)))
        return name if name is not None and self.disk.stands(path) else None

    def key_name(self, text: str) -> str | None:
        """The same for a text, whether or not anything is there."""
        if (found := _named(self._key_files).search(text := _plain(text))) is None:
            return None
        exceptions = tuple(name[1:] for name in self._key_files if name.startswith("!"))
        # An exception counts for a file's own name, not for a folder above it.
        excepted = exceptions and _named(exceptions).search(text.rpartition("/")[2])
        return None if excepted and found.end() == len(text) else found[1]

    def trusted_below(self, path: Path) -> list[Path]:
        """The protected paths whose beginning a path is: `.config/fish` for `.config`, whether or not they exist."""
        parts = tuple(part.casefold() for part in path.parts)
        return [
            path.joinpath(*wanted[length:])
            for wanted in (name.split("/") for name in self._protected if "/" in name)
            for length in range(1, len(wanted))
            if list(parts[-length:]) == wanted[:length]
        ]

    def own_below(self, path: Path) -> list[Path]:
        """The agent's own files that are below a path, whether or not they exist, or reached through a link that is the
        path or below it."""
        here = _folded(path)
        top = f"{here.rstrip('/')}/"
        return list(dict.fromkeys(own for way, own in self._leading if way == here or way.startswith(top)))

    def hides(self, path: Path) -> bool:
        """Whether a resolved path must not be read."""
        if self.moved and not self.moved.isdisjoint((path, *path.parents)):
            return True
        if self._is_own(path) or self._is_forbidden(path) or self._by_policy(path):
            return True
        return bool(self._deny) and self._deny.matches(path) and not self._allow.matches(path)

    def names(self, path: Path) -> bool:
        """Whether a rule of the user's policy names it."""
        return self._named is not None and self._named.match(str(path)) is not None

    def why_hidden(self, path: Path) -> str:
        """The rule that hides `path`, in a few words."""
        if self._is_own(path):
            return "it belongs to the agent"
        if self._is_forbidden(path):
            return "`tools.risk.forbidden_paths`"
        return "`tools.policy`" if self._by_policy(path) else "`tools.files.deny_read`"

    def _is_own(self, path: Path) -> bool:
        text = _folded(path)
        stem, _, number = text.rpartition(".")
        rotated = number.isdigit() and stem in self._own_names
        return rotated or text in self._own_names or text.startswith(self._own_tops)

    def rotated(self) -> list[Path]:
        """What the agent's own files in the session's folders have become since: `audit.jsonl.1`."""
        inside = [path for path in self.own if any(base in path.parents for base in self._bases)]
        found = [path.parent / name for path in inside if path.parent.is_dir() for name in os.listdir(path.parent)]
        return [path for path in found if path.suffix[1:].isdigit() and self._is_own(path)]

    def _is_forbidden(self, path: Path) -> bool:
        text = _folded(path)
        return text in self._forbidden_names or text.startswith(self._forbidden_tops)

    def _by_policy(self, path: Path) -> bool:
        return self._absolute is not None and self._absolute.match(str(path)) is not None

    @property
    def hides_any(self) -> bool:
        """Whether there are patterns, which require scanning folders."""
        return bool(self._deny) or self._absolute is not None

    @property
    def hidden_globs(self) -> tuple[str, ...]:
        """Absolute globs of `deny_read`."""
        return self._deny.absolute


@lru_cache(maxsize=64)
def _named(names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds one of the names (several parts: with slashes; `*`: anything) at any place of a path."""
    wanted = [re.escape(name.casefold()).replace(r"\*", "[^/]*") for name in names if not name.startswith("!")]
    return re.compile(rf"(?:\A|/)({'|'.join(wanted) or '(?!)'})(?=/|\Z)")


def _plain(text: str) -> str:
    return text.translate(IGNORED).casefold()


def _folded(path: Path) -> str:
    return str(path).casefold()


def links_to(path: Path) -> Iterator[Path]:
    """The links that are followed on the way to an absolute path, each where it really is."""
    here, todo = path.anchor, list(reversed(path.parts[1:]))  # Texts: this is done for many paths at a session's start.
    left = MOST_LINKS
    while todo and left:
        name = todo.pop()
        if name == "..":
            here = os.path.dirname(here)
            continue
        entry = os.path.join(here, name)
        try:
            target = Path(os.readlink(entry))
        except OSError:
            here = entry
            continue
        yield Path(entry)
        left -= 1
        here = target.anchor or here
        todo += reversed(target.parts[1:] if target.anchor else target.parts)


def _below(path: str, folder: str) -> str | None:
    """What is left of an absolute path in a folder, "" for the folder itself; None if it is not there."""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else "" if path + "/" == start else None


def _plain_octal(field: str) -> str:
    return ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), field) if "\\" in field else field


def also_mounted(paths: Iterable[Path], table: Path = MOUNTS) -> list[Path]:
    """Other places where the same files are mounted, or what is in them: a bind mount is no link."""
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    rows = [line.split(" ", 5) for line in lines]
    # Device, its folder that is mounted, and where. Later mounts cover earlier ones. There may be thousands.
    mounts = [(row[2], _plain_octal(row[3]), _plain_octal(row[4])) for row in rows if len(row) > 4]
    found = []
    for path in map(os.path.realpath, paths):
        over = [mount for mount in reversed(mounts) if _below(path, mount[2]) is not None]
        if not over:
            continue
        device, top, point = max(over, key=lambda mount: len(mount[2]))
        inner = os.path.join(top, _below(path, point) or "").rstrip("/") or "/"
        for other, root, place in mounts:
            if other == device and (rest := _below(inner, root)) is not None:
                found.append(Path(place, rest))
            elif other == device and _below(root, inner) is not None:
                found.append(Path(place))
    return list(dict.fromkeys(found))


def configured_folders(texts: Sequence[str]) -> list[Path]:
    """The existing folders of `tools.files.allowed_paths`; `~` is the home folder."""
    paths = [Path(text).expanduser() for text in texts if text.strip()]
    return [path for path in paths if path.is_absolute() and os.path.isdir(path)]
