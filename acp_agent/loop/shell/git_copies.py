"""What a command may do to git's configuration: it gets copies, and what is harmless in them is taken over afterwards.

`git remote add`, `push -u`, `switch` and many more write `.git/config`, where a single line makes git run a program.
The file itself stays read-only as long as anything of the command runs: a prompt or an editor may run git at any
moment. In its place the command sees a copy (`sandbox.base.Copies`). When it has ended, git itself lists the keys of
the copy before and after; keys that are known to run nothing are set in the file, the others are dropped and named.

A folder that is no repository has a private one in the place of `.git`, so `git init` works. It becomes `.git` with the
configuration judged likewise, and without hooks.

The folders of a command are written by it, so nothing in them is trusted: files are read once, only if they are
regular, and git reads what was read, not what is there. The file is written in place: replacing it would remove what
other commands have mounted on it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from acp_agent.disk import Identity
from acp_agent.errors import ExecutorError
from acp_agent.executors.beneath import folder
from acp_agent.executors.sandbox.base import Copies
from acp_agent.executors.sandbox.holders import MODE, is_place_holder
from acp_agent.executors.tree_walk import enter, identity, look
from acp_agent.lazy import load
from acp_agent.own_programs import NoGit, find_git, run_git
from acp_agent.safety.folders.paths import read_regular

IS_PLAIN = "acp_agent.safety.lines.git_folder:is_plain_setting"

MAX_BYTES = 200_000
MOST = 20
"""Repositories whose configuration is copied; that of the others is just protected."""
GIT_PATH = (
    "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin:/home/linuxbrew/.linuxbrew/bin:/run/current-system/sw/bin:"
    "/nix/var/nix/profiles/default/bin"
)
"""Where git is looked for: not in folders that a command may write. Where there is none, nothing is copied."""
SECONDS = 5.0
"""For all of a command's changes together: the agent waits for them."""
MOST_CHANGES = 100
"""Keys and values that one command may change: git is started for each."""
LOCK_ROUNDS, LOCK_PAUSE = 10, 0.05
MOST_NAMED = 10

NOT_TAKEN = ("config", "config.lock", "config.worktree", "commondir", "gitdir")
"""What of a new repository names programs, or another repository that does."""
NEW_TOO = ("extensions.objectformat", "extensions.refstorage")
"""Keys that only a new repository may have: they say how the rest of it is to be read."""
ABOVE = re.compile(r"(\.\./)+(?!\.\.?(/|$))[^-./][^/]*(/[^./][^/]*)*")
"""Where a submodule in `.git/modules` has its files."""

ADDRESS = re.compile(r"remote\..*\.(url|pushurl)", re.DOTALL)
URL = "remote.x.url"
CHOICE = re.compile(r"branch\..*\.(remote|pushremote)|remote\.pushdefault", re.DOTALL)
"""Keys whose value names a remote."""

Settings = dict[str, list[str]]
"""Key -> its values, in their order."""


class Unreadable(Exception):
    """Git could not read a configuration, or set a key in it."""


FAILURES = (Unreadable, ExecutorError, OSError, subprocess.SubprocessError)


class GitCopies:
    """Of one command."""

    def __init__(
        self, private: Path, repositories: Iterable[Path], missing: Iterable[Path], owner: tuple[int, int] | None = None
    ) -> None:
        """`private`: a folder; gets a folder for this command. `repositories`: git's folders. `missing`: `.git` folders
        that there are not. `owner`: the user and group the command runs as, if not ours."""
        self._folder = private / f"copies-{uuid.uuid4().hex}"
        self._folder.mkdir(mode=0o700)
        self._owner = owner
        self._give(self._folder)
        self._before: dict[Path, bytes] = {}
        self._known: dict[Path, Identity] = {}
        """The folders of the repositories."""
        files: dict[Path, str] = {}
        self.stand_ins: dict[Path, Path] = {}
        self.made: list[Path] = []
        """The repositories that were taken over."""
        self.copies: Copies | None = None
        self._until = 0.0
        try:
            find_git(GIT_PATH)
        except NoGit:
            return
        self._make("copies")
        for number, git in enumerate(repositories):
            if number < MOST and (before := self._first(config := git / "config")) is not None:
                place = self._make(f"copies/{number}")
                (place / "config").write_bytes(before)
                (place / "link").symlink_to(Copies.THERE / str(number) / "config")
                self._give(place / "config")
                self._before[config] = before
                files[config] = str(number)
        for number, git in enumerate(missing):
            self.stand_ins[git] = self._make(f"new/{number}")
        self.copies = Copies(self._folder / "copies", files, self.stand_ins)

    def _first(self, config: Path) -> bytes | None:
        with contextlib.suppress(OSError, ExecutorError), folder(config.parent) as git:
            self._known[config.parent] = identity(os.fstat(git))
            return _read(config.name, git)
        return None

    def _make(self, name: str) -> Path:
        place = self._folder / name
        place.mkdir(mode=0o700, parents=True)
        for each in (place.parent, place):
            self._give(each)
        return place

    def _give(self, path: Path) -> None:
        if self._owner is not None:
            os.chown(path, *self._owner, follow_symlinks=False)

    def take_over(self) -> str:
        """Once nothing of the command runs any more; returns what user and model should know, also what failed."""
        told = []
        self._until = time.monotonic() + SECONDS
        try:
            for config, before in self._before.items():
                assert self.copies is not None
                now = _copy(self.copies.folder / self.copies.files[config])
                if now != before:
                    told.append(self._judge(config, before, now))
            for git, place in self.stand_ins.items():
                if _read(place / "HEAD") and (place / "objects").is_dir() and (place / "refs").is_dir():
                    told.append(self._publish(place, git))
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return "\n".join(words for words in told if words)

    # --- a configuration that there was ------------------------------------------------------------------------

    def _judge(self, config: Path, before: bytes, now: bytes | None) -> str:
        try:
            if now is None:
                raise Unreadable("it is no plain file any more")
            old, new = self._listed(before), self._listed(now)
            changed = {key: new.get(key, []) for key in {**old, **new} if old.get(key) != new.get(key)}
            if kept := _plain(old, changed):
                kept = self._set(config, kept)
        except FAILURES as error:
            return f"Changes of {config} were not taken over: {error}."
        return _refused(config, [key for key in changed if key not in kept])

    def _set(self, config: Path, settings: Settings) -> Settings:
        """Returns what was set."""
        with self._there(config.parent) as git, _locked(git, config, self._until):
            old = _read(config.name, git)
            if old is None:
                raise Unreadable("it is no plain file")
            settings = _with_addresses(self._listed(old), settings)
            content = self._with(old, settings)
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(config.name, flags, dir_fd=git)
            try:
                if os.pwrite(descriptor, content, 0) < len(content):  # What was there has its place.
                    os.pwrite(descriptor, old, 0)
                    os.ftruncate(descriptor, len(old))
                    raise Unreadable("the disk is full")
                os.ftruncate(descriptor, len(content))
            finally:
                os.close(descriptor)
        return settings

    @contextlib.contextmanager
    def _there(self, git: Path) -> Iterator[int]:
        """A handle of the folder, which is the one that it was when the command began."""
        with folder(git) as handle:
            if identity(os.fstat(handle)) != self._known.get(git):
                raise Unreadable("another folder is there by now")
            yield handle

    # --- a repository that there was not -----------------------------------------------------------------------

    def _publish(self, place: Path, git: Path) -> str:
        """Makes the new repository at `place` the one at `git`, which is missing or a place holder of others."""
        try:
            with folder(git.parent) as above:
                left = self._published(place, git, above)
        except FAILURES as error:
            return f"The new git repository {git} was not taken over: {error}."
        self.made.append(git)
        return _refused(git / "config", left)

    def _published(self, place: Path, git: Path, above: int) -> list[str]:
        """`above`: a handle of the folder that it is to be in."""
        found = look(above, git.name)
        held = found is not None and is_place_holder(found)
        if not held:
            os.mkdir(git.name, dir_fd=above)
        handle = enter(above, git.name, str(git))
        there = Path(f"/proc/self/fd/{handle}")  # The folder itself, whatever its name leads to by now.
        taken: list[str] = []
        try:
            if os.listdir(handle):
                raise Unreadable("somebody else has made one there meanwhile")
            os.fchmod(handle, 0o755)
            inner = [place, *_inner(place / "modules")]
            left = [words for each in inner for words in self._disarm(each, git / each.relative_to(place), git)]
            # Without HEAD there is no repository.
            for name in sorted(_names(place), key=lambda name: name == "HEAD"):
                if look(handle, name) is not None:
                    raise Unreadable("somebody else writes there")
                taken.append(name)
                shutil.move(place / name, there / name)
        except FAILURES:
            for name in taken:  # What others have put there stays.
                _remove(there / name)
            if not os.listdir(handle):
                os.fchmod(handle, MODE)
                if not held:
                    os.rmdir(git.name, dir_fd=above)
            raise
        finally:
            os.close(handle)
        return left

    def _disarm(self, git: Path, there: Path, top: Path) -> list[str]:
        """Leaves nothing in the new repository that git would run; returns what was left out. `there`: where it will
        be, in the new repository `top`."""
        settings = self._listed(_read(git / "config") or b"")
        new = {key: found for key, found in settings.items() if _is_new(key, found, there, top)}
        kept = {**_with_addresses({}, _plain({}, settings)), **new}
        for name in NOT_TAKEN:
            _remove(git / name)
        (git / "config").write_bytes(self._with(b"", kept))
        samples = _samples(git / "hooks")
        hooks = _names(git / "hooks") - samples.keys()
        _remove(git / "hooks")
        (git / "hooks").mkdir()
        for name, content in samples.items():
            (git / "hooks" / name).write_bytes(content)
        return [*(key for key in settings if key not in kept), *(f"hooks/{name}" for name in sorted(hooks))]

    # --- git's own reading and writing -------------------------------------------------------------------------

    def _listed(self, content: bytes) -> Settings:
        settings: Settings = {}
        for entry in self._git(content, "--list", "-z")[0].split(b"\0")[:-1]:
            key, given, value = entry.decode("utf-8", "surrogateescape").partition("\n")
            settings.setdefault(key, []).append(value if given else "true")  # As git takes a key without a value.
        return settings

    def _with(self, content: bytes, settings: Settings) -> bytes:
        if sum(1 + len(values) for values in settings.values()) > MOST_CHANGES:
            raise Unreadable("it is too much at once")
        there = self._listed(content)
        for key, values in settings.items():
            if key in there:
                content = self._git(content, "--unset-all", "--", key)[1]
            for value in values:
                content = self._git(content, "--add", "--", key, value)[1]
        return content

    def _git(self, content: bytes, *arguments: str) -> tuple[bytes, bytes]:
        """What `git config` prints for this content, and the content afterwards. It follows no includes and runs
        nothing."""
        if (left := self._until - time.monotonic()) <= 0:
            raise Unreadable("it takes too long")
        with _beside(self._folder) as file:
            file.write_bytes(content)
            done = run_git(["config", "--file", str(file), *arguments], path=GIT_PATH, timeout=left)
            if done.returncode:
                raise Unreadable(f"git cannot read it ({done.stderr.decode('utf-8', 'replace').strip()[:200]})")
            return done.stdout, file.read_bytes()


def _copy(place: Path) -> bytes | None:
    """What the command has left there; a link in its place leads elsewhere."""
    with contextlib.suppress(OSError, ExecutorError), folder(place) as handle:
        return _read("config", handle)
    return None


def _is_plain(key: str, values: Iterable[str]) -> bool:
    """Whether a key runs nothing with any of these values."""
    section, _, rest = key.partition(".")
    middle, dot, name = rest.rpartition(".")
    known = f"{section}.*.{name}" if dot else f"{section}.{name}"
    odd = any(char < " " or "\udc80" <= char <= "\udcff" for char in key)
    is_plain = load(IS_PLAIN)
    return not odd and all(is_plain(known, value) for value in values) and not middle.startswith("-")


def _plain(old: Settings, changed: Settings) -> Settings:
    """The changes that run nothing and lead to no folder where no address did."""
    known = {value for key, values in old.items() if ADDRESS.fullmatch(key) for value in values}
    kept = {}
    for key, values in changed.items():
        judged = {*values, *old.get(key, [])}
        if _is_plain(key, judged - known if ADDRESS.fullmatch(key) else judged):
            kept[key] = values
    return kept


def _with_addresses(there: Settings, changed: Settings) -> Settings:
    """The changes after which each remote that is named has an address, if it has one now."""
    while lost := _nameless({**there, **changed}) - _nameless(there):
        changed = {key: values for key, values in changed.items() if not _leads_to(key, values, lost)}
    return changed


def _nameless(settings: Settings) -> set[str]:
    """Remotes that are named but have no address: git takes such a name for a folder, and runs its hooks."""
    named = {value for key, values in settings.items() if CHOICE.fullmatch(key) for value in values}
    known = {name for name in named if settings.get(f"remote.{name}.url") or _is_plain(URL, [name])}
    return named - known - {"."}


def _leads_to(key: str, values: list[str], remotes: set[str]) -> bool:
    """Whether it is because of this change that one of these remotes is named or has no address."""
    return bool(CHOICE.fullmatch(key) and remotes & {*values}) or key in {f"remote.{name}.url" for name in remotes}


def _is_new(key: str, values: list[str], git: Path, top: Path) -> bool:
    if key in NEW_TOO:
        return True
    if key != "core.worktree" or git == top:
        return False
    places = [Path(os.path.normpath(git / value)) for value in values if ABOVE.fullmatch(value)]
    inside = [place for place in places if top.parent in place.parents and top not in (place, *place.parents)]
    return len(inside) == len(values)


def _inner(modules: Path) -> Iterator[Path]:
    """The submodules' repositories."""
    if modules.is_symlink():
        modules.unlink()
    for here, folders, files in os.walk(modules):
        if "HEAD" in files and "objects" in folders:
            yield Path(here)


def _refused(config: Path, keys: list[str]) -> str:
    if not keys:
        return ""
    shown = ", ".join(f"`{key[:80]}`" for key in keys[:MOST_NAMED])
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return (
        f"Not taken over into {config}, since it can make git run programs, or is not known not to: {shown}{more}. "
        "Ask the user to set it if it is needed."
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _samples(hooks: Path) -> dict[str, bytes]:
    found = {}
    for name in _names(hooks):
        if name.endswith(".sample") and (content := _read(hooks / name)) is not None:
            found[name] = content
    return found


def _names(place: Path) -> set[str]:
    """What is in a folder; nothing in what is none, or a link to one."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        return set(os.listdir(descriptor))
    finally:
        os.close(descriptor)


def _read(path: str | Path, folder: int | None = None) -> bytes | None:
    try:
        return read_regular(path, MAX_BYTES, folder)
    except OSError:
        return None


@contextlib.contextmanager
def _locked(git: int, config: Path, until: float) -> Iterator[None]:
    """As git locks it; waits a little, and not after `until`. Raises Unreadable."""
    lock = f"{config.name}.lock"
    for _ in range(LOCK_ROUNDS):
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=git)
            break
        except FileExistsError:
            time.sleep(max(0.0, min(LOCK_PAUSE, until - time.monotonic())))
    else:
        raise Unreadable(f"another git has it locked ({config.parent / lock})")
    try:
        yield
    finally:
        made = os.fstat(descriptor)
        os.close(descriptor)
        with contextlib.suppress(OSError):
            there = os.stat(lock, dir_fd=git, follow_symlinks=False)
            if stat.S_ISREG(there.st_mode) and there.st_ino == made.st_ino:
                os.unlink(lock, dir_fd=git)


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    file = place / f"read-{uuid.uuid4().hex}"
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)
