"""Git worktrees for sessions and sub-agents that are not to touch the user's own: made, judged, merged, removed.

Git runs nothing here that a repository names: no hooks, no file system monitor, no filters. Whether something was
changed is judged with an index of our own; on any doubt it was.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from acp_agent.disk import Folder
from acp_agent.errors import ExecutorError, WorktreeError
from acp_agent.executors import beneath
from acp_agent.limits.decoding import read_json
from acp_agent.own_programs import NoGit, run_git
from acp_agent.safety.folders.protect import BRANCHES, WORKTREES
from acp_agent.undo.git_index import ALTERNATES, git_of

PATIENCE = 120.0
"""Seconds to wait for git: a large tree is written."""
MOST_INCLUDED = 20_000
"""Files that are copied in."""
NO_FILE = (ExecutorError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
TRIES, PAUSE = 20, 0.01
JUST_MADE = 60.0
"""Seconds in which a worktree may belong to a sub-agent that is just ending."""
WAITS = 7 * 24 * 3600
"""Seconds that a worktree waits for the session it was made for."""


class Worktree(msgspec.Struct, frozen=True):
    path: str
    git: str
    """Its own folder in the repository."""
    branch: str
    base: str
    """The commit that it began with."""
    top: str
    """The user's work tree."""
    waits: float = 0.0
    """Until when it is kept for a session that is not open yet, in Unix time."""

    @property
    def name(self) -> str:
        return Path(self.path).name


class Hold:
    """Keeps a worktree from being removed, also by other agents. Released with the process."""

    def __init__(self, worktree: Worktree) -> None:
        """Raises OSError while it is being removed."""
        self.worktree = worktree
        self._lock = _lock(Path(worktree.path), fcntl.LOCK_SH | fcntl.LOCK_NB, TRIES)

    def release(self) -> None:
        os.close(self._lock)

    def end(self) -> str:
        """Removes the worktree if nothing was changed in it; else returns what the user should know."""
        self.release()
        return remove(self.worktree)


def folder_of(state: Path) -> Path:
    """Beside the state directory, which no command may see."""
    return Path(os.path.realpath(state.parent)) / WORKTREES


def make(cwd: Folder, state: Path, include: Sequence[str] = (), *, waits: bool = False) -> Hold:
    """A worktree with the last commit of the repository in `cwd`, and the ignored files that `include` names. Takes as
    long as git needs. Raises WorktreeError."""
    try:
        with cwd.entered(Path()) as place:
            return _made(place, cwd.path, state, include, waits)
    except ExecutorError as error:
        raise WorktreeError(str(error)) from error


def _made(place: Path, top: Path, state: Path, include: Sequence[str], waits: bool) -> Hold:
    """`place`: where git runs, which is `top`, whatever has that name by now."""
    base = _looked_at(place, top)
    folder = folder_of(state)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / uuid.uuid4().hex[:8]
    branch = f"{BRANCHES}/{path.name}"
    until = time.time() + WAITS if waits else 0.0
    lock = _lock(path, fcntl.LOCK_SH)
    try:
        _git(place, "worktree", "add", "--quiet", "--no-checkout", "-b", branch, str(path), base)
        admin = (path / ".git").read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        made = Worktree(str(path), admin, branch, base, str(top), until)
        _record(path).write_bytes(msgspec.json.encode(made))
        try:
            _in(made, "reset", "--quiet", "--hard", base)
            _copy_in(place, top, path, include)
            return Hold(made)
        except (OSError, WorktreeError):
            os.close(lock)
            lock = -1
            remove(made, changed=True)  # Half of one is none.
            raise
    finally:
        if lock >= 0:
            os.close(lock)


def of_folder(path: Path) -> Worktree | None:
    """The worktree at `path`, if it is one of ours: git's folder points back, so that no other is ever removed."""
    try:
        found = read_json(_record(path).read_bytes(), type=Worktree)
        back = (Path(found.git) / "gitdir").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None
    ours = path.parent.name == WORKTREES and found.branch == f"{BRANCHES}/{path.name}" and path.is_dir()
    return found if ours and found.path == str(path) and back == f"{path}/.git" else None


def all_of(state: Path, top: Path | None = None) -> list[Worktree]:
    """Those there are, or those of one work tree."""
    found = [of_folder(record.with_suffix("")) for record in sorted(folder_of(state).glob("*.json"))]
    return [each for each in found if each is not None and top in (None, Path(each.top), Path(each.path))]


def is_changed(worktree: Worktree) -> bool:
    """Whether it has commits, changes, or new files that are not ignored; true if that is not known."""
    return _has_commits(worktree) or _is_dirty(worktree)


def merge_command(worktree: Worktree) -> str:
    """The command with which the user takes over what was done in it."""
    path, top = shlex.quote(worktree.path), shlex.quote(worktree.top)
    commit = f"git -C {path} add -A && git -C {path} commit -m 'Work of the agent' && " if _is_dirty(worktree) else ""
    return f"{commit}git -C {top} merge {worktree.branch}"


def words_of(worktree: Worktree) -> str:
    name = f"The worktree {worktree.path} (branch {worktree.branch})"
    return f"{name} has changes. To merge them:\n{merge_command(worktree)}"


def remove(worktree: Worktree, *, changed: bool = False) -> str:
    """Removes it with its branch, unless it is in use or (without `changed`) something was changed in it; then says
    so."""
    path = Path(worktree.path)
    if not changed and is_changed(worktree):  # Before it is locked: what stays can be opened meanwhile.
        return words_of(worktree)
    try:
        lock = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB, TRIES)
    except OSError:
        return f"The worktree {path} is in use."
    try:
        if not changed and is_changed(worktree):
            return words_of(worktree)
        _git(
            Path(worktree.top),
            "update-ref",
            "-d",
            f"refs/heads/{worktree.branch}",
            *([] if changed else [worktree.base]),
        )
        shutil.rmtree(path)
        shutil.rmtree(worktree.git)
        _record(path).unlink()
        path.with_suffix(".lock").unlink()
    except (OSError, WorktreeError) as error:
        return f"The worktree {path} could not be removed: {error}."
    finally:
        os.close(lock)
    return ""


def left_of(state: Path, top: Path) -> list[str]:
    """What nobody works in any more and has changes, in words with the command that merges it."""
    return [words_of(each) for each in all_of(state, top) if not _in_use(each) and is_changed(each)]


def command(state: Path, top: Path, rest: str) -> str:
    """`/worktree`, and `/worktree remove NAME [yes]`."""
    known = {each.name: each for each in all_of(state, top)}
    verb, _, name = rest.partition(" ")
    name, _, sure = name.strip().partition(" ")
    if verb == "remove" and name in known:
        told = remove(known[name], changed=sure.strip() == "yes")
        return f"{told}\n`/worktree remove {name} yes` drops the changes." if told else f"Removed: {known[name].path}."
    if rest:
        return f"There is no worktree `{name}`. `/worktree` lists them, `/worktree remove NAME` removes one."
    if not known:
        return "The agent has made no worktree of this project. `/fork worktree` begins a session in one."
    return "\n".join(_line(each) for each in known.values())


def _line(worktree: Worktree) -> str:
    state = "in use, " if _in_use(worktree) else ""
    if not is_changed(worktree):
        return f"- `{worktree.name}`: {state}unchanged ({worktree.path})"
    return f"- `{worktree.name}`: {state}changed ({worktree.path}). To merge it: `{merge_command(worktree)}`"


def _in_use(worktree: Worktree) -> bool:
    try:
        os.close(_lock(Path(worktree.path), fcntl.LOCK_EX | fcntl.LOCK_NB))
    except OSError:
        return True
    return False


def sweep(state: Path) -> None:
    """Removes what killed agents left and nothing was changed in."""
    for worktree in all_of(state):
        try:
            made = _record(Path(worktree.path)).stat().st_mtime
        except OSError:
            continue  # Another agent has removed it.
        if max(worktree.waits, made + JUST_MADE) < time.time():
            remove(worktree)


# --- git ---------------------------------------------------------------------------------------------------------


def _looked_at(cwd: Path, folder: Path) -> str:
    """The commit that is checked out in `folder`, which has to be the top of a work tree."""
    bare = _git(cwd, "rev-parse", "--is-bare-repository", why=f"{folder} is in no git repository that can be used")
    if bare.strip() == "true":
        raise WorktreeError(f"{folder} is a bare repository; open a session in a work tree of it")
    top = Path(_git(cwd, "rev-parse", "--show-toplevel").removesuffix("\n"))
    if top != folder:
        raise WorktreeError(f"{folder} is not the top of its repository; open the session in {top}")
    base = _git(cwd, "rev-parse", "--verify", "HEAD^{commit}", why="the repository has no commit yet; make one").strip()
    if _git(cwd, "ls-tree", base, "--", ".gitmodules"):
        raise WorktreeError("the repository has submodules, of which git makes no worktrees")
    common = _git(cwd, "rev-parse", "--path-format=absolute", "--git-common-dir").removesuffix("\n")
    git = git_of(Path(os.path.realpath(top)))
    real = None if git is None else Path(os.path.realpath(git))
    if real is None or Path(os.path.realpath(common)) not in (real, real.parent.parent):
        raise WorktreeError("its `.git` leads to a repository that does not name this folder as its work tree")
    if os.path.lexists(Path(common, ALTERNATES)):
        raise WorktreeError("the repository takes objects from another one (`objects/info/alternates`)")
    if Path(common, "reftable").is_dir():
        raise WorktreeError("the repository keeps its branches in tables (`extensions.refStorage`)")
    return base


def _has_commits(worktree: Worktree) -> bool:
    try:
        head = _in(worktree, "symbolic-ref", "HEAD").strip()
        return head != f"refs/heads/{worktree.branch}" or _in(worktree, "rev-parse", head).strip() != worktree.base
    except WorktreeError:
        return True


def _is_dirty(worktree: Worktree) -> bool:
    index = Path(f"{worktree.path}.{uuid.uuid4().hex}.index")
    own = {"GIT_INDEX_FILE": str(index)}
    try:
        _in(worktree, "read-tree", "HEAD", env=own)
        return bool(_in(worktree, "status", "--porcelain", "-uall", "--ignore-submodules=all", env=own))
    except WorktreeError:
        return True
    finally:
        index.unlink(missing_ok=True)


def _in(worktree: Worktree, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Does not look at the worktree's own `.git`, which what ran there may have replaced."""
    places = [f"--git-dir={worktree.git}", f"--work-tree={worktree.path}"]
    return _run([*places, *arguments], worktree.path, {**_safely(worktree.path, places), **(env or {})})


def _git(folder: Path, *arguments: str, why: str = "") -> str:
    return _run(arguments, str(folder), _safely(str(folder)), why=why)


def _safely(folder: str, places: Sequence[str] = ()) -> dict[str, str]:
    """Variables with which git runs no filters that the repository's configuration names. Not `-c`, which ends a name
    at its first `=`; and names that differ in their case are two filters."""
    listed = dict.fromkeys(_run([*places, "config", "-z", "--name-only", "--list"], folder).split("\0"))
    if any(name.lower().startswith(("include.", "includeif.")) for name in listed):
        raise WorktreeError("the repository's configuration includes other files, which may be anywhere")
    filters = [name for name in listed if name.lower().startswith("filter.")]
    found = {"GIT_CONFIG_COUNT": str(len(filters))}
    for number, name in enumerate(filters):
        found[f"GIT_CONFIG_KEY_{number}"] = name
        found[f"GIT_CONFIG_VALUE_{number}"] = "false" if name.lower().endswith(".required") else ""
    return found


def _run(arguments: Sequence[str], folder: str, env: Mapping[str, str] | None = None, why: str = "") -> str:
    try:
        done = run_git(arguments, timeout=PATIENCE, cwd=folder, outside=[Path(folder)], more=env)
    except NoGit as error:
        raise WorktreeError(str(error)) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise WorktreeError(why or f"git could not be run: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[:300]
        raise WorktreeError(f"{why} (git: {said})" if why else f"git failed: {said}")
    return os.fsdecode(done.stdout)


# --- files -------------------------------------------------------------------------------------------------------


def _copy_in(place: Path, top: Path, path: Path, include: Iterable[str]) -> None:
    """Ignored files that the user wants in every worktree; links are left out."""
    for pattern in include:
        shown = [f":(glob){pattern}", f":(glob){pattern.rstrip('/')}/**"]
        names = _git(place, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", *shown).split("\0")
        if len(names) > MOST_INCLUDED:
            raise WorktreeError(f"`{pattern}` (`worktree.include`) names more than {MOST_INCLUDED} files")
        for name in names:
            source, target = top / name, path / name
            if not name or target.exists():
                continue
            with suppress(*NO_FILE), beneath.folder(source.parent) as above, beneath.regular(above, source) as file:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(f"/proc/self/fd/{file}" if sys.platform == "linux" else source, target)


def _record(path: Path) -> Path:
    return path.with_suffix(".json")


def _lock(path: Path, how: int, tries: int = 1) -> int:
    """Several `tries` outlast somebody who only looks whether it is locked. Raises OSError."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    for left in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, how)
            break
        except OSError:
            if not left:
                os.close(descriptor)
                raise
            time.sleep(PAUSE)
    return descriptor
