"""A container: one that runs, with the session's folders in it, or one of ours, started from an image.

Ours has the session's folders at the same paths, the user's number and no more rights than the user: no capabilities,
no new privileges, no network unless the configuration gives it one. What `tools.files.deny_read` hides at its
start is empty in it, and what is protected (`tools.sandbox.protect`) cannot be written there. A label says whose it
is; it is removed with the session, or, if the agent was killed, by its own reaper or the next agent (`Engine.sweep`).
"""

from __future__ import annotations

import csv
import io
import logging
import os
import platform
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from msgspec import Struct, field

from acp_agent.child import User
from acp_agent.config.place_settings import PlaceConfig
from acp_agent.disk import Identity, replaced
from acp_agent.errors import ExecutorError
from acp_agent.executors import beneath
from acp_agent.executors.marked import MARK
from acp_agent.executors.places.base import There
from acp_agent.executors.places.engine import NOT_OURS, OWNER, Engine, find_engine, named, owner, runs
from acp_agent.executors.places.starter import PROBE
from acp_agent.executors.sandbox.base import REPLACED
from acp_agent.executors.sandbox.visible_paths import identity_of
from acp_agent.executors.tree_walk import identity
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.executors.places.landlock_there import LandlockThere
    from acp_agent.executors.sandbox.base import SandboxPolicy

log = logging.getLogger(__name__)

LANDLOCK_THERE = "acp_agent.executors.places.landlock_there:LandlockThere"
SESSION = "acp-coder.session"
NAME_CHARS = 8
ANSWERS = 5
"""Lines that `PROBE` prints."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
IDENTITIES = (
    f'cat {BOOT_ID} 2>/dev/null || echo; for p; do i=$(ls -di -- "$p"); '
    'echo ${i%%/*} $(stat -c %d -- "$p" 2>/dev/null); done'
)
"""Prints which kernel it is, and inode and device of each path, which is absolute. Only `stat` tells a device."""
ENDS = "\r\n"
"""Of a line of CSV; what contains one of both is quoted."""
MAIN = f'{MARK}="$0" exec sleep 2147483647'
"""What runs in a container of ours; it has the session's mark, so it ends when the agent does."""


class Walls(Struct, frozen=True):
    """What a container of ours keeps from its commands, as far as it exists at its start."""

    hidden: Sequence[Path] = ()
    protected: Sequence[Path] = ()
    empty: Path = Path("/var/empty")
    """A folder that stands for hidden ones, in which no name can be looked up, or git would take what is in them for
    deleted. (A tmpfs would begin with what it hides, as podman makes it.)"""
    writable: Sequence[Path] = ()
    """Besides the session's folders: of git's, where a worktree has them elsewhere."""
    readable: Sequence[Path] = ()
    opened: Mapping[Path, Identity] = field(default_factory=dict)
    """As in `SandboxPolicy`."""


class Container:
    """Of one session."""

    lacks_walls, over = False, ""

    def __init__(
        self,
        name: str,
        config: PlaceConfig,
        session_id: str,
        folders: Sequence[Path],
        environ: Mapping[str, str],
        walls: Callable[[], Walls] = Walls,
        user: Callable[[], User | None] = lambda: None,
        policy: Callable[[], SandboxPolicy] | None = None,
    ) -> None:
        """`folders`: resolved. `environ`: for the engine's program. `policy`: what commands may touch now."""
        self.words, self.identity = named(name, config)
        self.where = f"in {self.words}"
        self.mark = uuid.uuid4().hex
        self.env = tuple(config.env)
        self.environ = environ
        self._config = config
        self._session = session_id
        self._folders = list(folders)
        self._walls = walls
        self._user = user
        self.landlock: LandlockThere | None = None
        if config.landlock and policy is not None:
            self.landlock = load(LANDLOCK_THERE)(self, policy, self._folders)
        self._engine: Engine | None = None
        self._there: There | None = None
        self._id = ""
        self._as = config.user
        """The user there, if not ours."""
        self._begun = ""
        """The name of the one that we started."""
        self._meant: dict[str, Identity] = {}
        """What is mounted at each place in it."""
        self._read_only: list[Path] = []
        """Of the session's folders, in one that runs already."""
        self._finding = anyio.Lock()

    @property
    def sandbox(self) -> str:
        return "none" if self.landlock is None else "landlock"

    async def ready(self) -> There:
        async with self._finding:
            if self._there is None:
                await self._found()
                self._there = await anyio.to_thread.run_sync(self._prepared)
            return self._there

    async def _found(self) -> None:
        """What comes before a container is looked for."""

    def argv(self, *argv: str, reads: bool = False, terminal: bool = False) -> tuple[str, ...]:
        assert self._engine is not None
        user = () if self._engine.keeps_id and not self._as else ("--user", self._as or self._numbers())
        streams = (*(("--interactive",) if reads else ()), *(("--tty",) if terminal else ()))
        return (self._engine.program, "exec", *streams, *user, self._id, *argv)

    async def watch(self, tell: Callable[[str], None]) -> None:
        """There is no way that could be lost: it is on this machine."""

    def cwd(self, folder: Path) -> Path:
        return folder if self._begun else Path(os.path.realpath(folder))

    def lost(self) -> None:
        self._there = None

    async def end(self) -> bool:
        with anyio.CancelScope(shield=True):
            async with self._finding:
                ours, there, self._there = bool(self._begun), self._there, None
                if ours and self._engine is not None:
                    await anyio.to_thread.run_sync(self._remove, self._engine)
                elif there is not None and self.landlock is not None and self._engine is not None:
                    await anyio.to_thread.run_sync(self._clear, self._engine, there.scratch)
        return ours

    def _clear(self, engine: Engine, folder: str) -> None:
        try:
            engine.ask(*self.argv("rm", "-rf", "--", folder)[1:])
        except ExecutorError as error:
            log.warning("%s could not be removed in %s: %s", folder, self.words, error)

    def _remove(self, engine: Engine) -> None:
        try:
            engine.ask("rm", "--force", "--volumes", "--", self._begun)
        except ExecutorError as error:
            log.warning("the container %s could not be removed: %s", self._begun, error)
        self._begun = ""

    async def lines(self) -> list[str]:
        there = await self.ready()
        assert self._engine is not None
        shell = there.shell if there.bash else f"{there.shell}; there is no bash, so commands are those of sh"
        lines = [f"Commands run in {self.words} ({self._engine.name}, shell {shell}). The container is the wall."]
        if self.landlock is not None:
            await self.landlock.ready(there)
            lines.append(
                "Landlock confines each command: it writes only what it may write here, has a home and a TMPDIR of its "
                "own, and does not see what is hidden."
            )
        if not self._begun:
            without = "is hidden or protected here is neither"
            hidden = without if self.landlock is None else "is protected here is not"
            lines.append(f"{NOT_OURS}, and what {hidden} there.")
            lines += [
                f"Commands there cannot write to {folder}: it is mounted read-only." for folder in self._read_only
            ]
            return lines
        network = "none" if self._config.network == "none" else f"`{self._config.network}` of {self._engine.name}"
        lines.append(f"Network: {network}. No capabilities, no new privileges, your user.")
        lines.append(f"Mounted: {', '.join(map(str, self._folders))}.")
        walls = self._walls()
        if walls.hidden or walls.protected:
            lines.append(
                f"Hidden or protected there: {len(walls.hidden)} and {len(walls.protected)} paths, as far as they "
                "existed at its start."
            )
        return lines

    # --- finding it; these block ------------------------------------------------------------------------------

    def _prepared(self) -> There:
        engine = self._engine = find_engine(self._config.engine, self.environ, self._folders)
        try:
            for left in engine.sweep():
                log.info("removed the container %s, left by an agent that was killed", left)
        except ExecutorError as error:
            log.warning("containers that were left behind could not be looked for: %s", error)
        if self._begun:
            if runs(engine.awake(self._begun)):
                return self._probed(engine)
            self._remove(engine)
        config = self._config
        found = engine.running(config.container) if config.container else None
        if found is not None:
            self._id = self._attached(found)
        elif config.image:
            self._id = self._start(engine)
        elif config.container:
            raise engine.none_of(config.container)
        else:
            raise ExecutorError(f"the {self.words} has neither `container` nor `image` in the configuration")
        if self.landlock is not None:
            self.landlock.mounts.clear()
            for mount in (engine.look("container", self._id) or {}).get("Mounts") or ():
                if (source := mount.get("Source")) and (target := mount.get("Destination")):
                    self.landlock.mounts[Path(target)] = Path(os.path.realpath(source))
        there = self._probed(engine)
        if self._begun:
            self._compare(engine)
        return there

    def _attached(self, found: Mapping[str, Any]) -> str:
        name = self._config.container
        self._read_only.clear()
        mounts = {Path(str(mount.get("Destination"))): mount for mount in found.get("Mounts") or ()}
        for folder in self._folders:
            top, source = _mounted(folder, mounts)
            if source != folder:
                words = f"the container {name!r} does not have {folder} at the same path"
                raise ExecutorError(f"{words}{self._instead(folder, mounts)}")
            if top is not None and mounts[top].get("RW") is False:
                self._read_only.append(folder)
        return str(found.get("Id") or name)

    def _instead(self, folder: Path, mounts: Mapping[Path, Mapping[str, Any]]) -> str:
        """What to do where a folder is not at the same path, or is elsewhere there."""
        sources = {target: Path(os.path.realpath(str(mount.get("Source")))) for target, mount in mounts.items()}
        spots = [top / folder.relative_to(each) for top, each in sources.items() if folder.is_relative_to(each)]
        spot = next((each for each in spots if _mounted(each, mounts)[1] == folder), None)
        known = "name its folder there" if spot is None else f"it is at {spot} there"
        first = f"`--container {self._config.container}:{spot or 'DIR'}`, or `root` of its place"
        return f"; {known}: {first if folder == self._folders[0] else '`paths` of its place'}"

    def _start(self, engine: Engine) -> str:
        config, image = self._config, self._config.image
        if engine.look("image", image) is None:
            known = f" and no container {config.container!r}" if config.container else ""
            raise ExecutorError(f"{engine.name} has no image {image!r}{known}; fetch it: `{engine.name} pull {image}`")
        self._begun = f"acp-coder-{self._session[:NAME_CHARS]}-{uuid.uuid4().hex[:NAME_CHARS]}"
        argv = ["run", "--detach", "--rm", "--init", "--pull", "never", "--name", self._begun]
        argv += ["--label", f"{SESSION}={self._session}", "--label", f"{OWNER}={owner()}"]
        argv += ["--user", self._numbers(), *(("--userns", "keep-id") if engine.keeps_id else ())]
        argv += ["--security-opt", "no-new-privileges", "--cap-drop", "all", "--network", config.network]
        argv += [*self._mounts(), "--entrypoint", "sh", *config.arguments, "--", image, "-c", MAIN, self.mark]
        engine.ask(*argv)
        return self._begun

    def _mounts(self) -> list[str]:
        walls = self._walls()
        seen = [*walls.readable, *self._folders, *walls.writable]
        sources = {path: (path, path not in walls.readable) for path in seen}
        for path in (*walls.protected, *walls.hidden):
            inside = any(path.is_relative_to(folder) for folder in seen)
            if not inside or os.path.islink(path) or not os.path.exists(path):
                continue
            source = path if path not in walls.hidden else walls.empty if os.path.isdir(path) else Path("/dev/null")
            sources[path] = source, False
        self._meant = {str(path): identity_of(source) for path, (source, _) in sources.items()}
        mounts = [_mount(source, path, writes=writes) for path, (source, writes) in sources.items()]
        return [part for mount in mounts for part in ("--mount", mount)]

    def _compare(self, engine: Engine) -> None:
        """Is mounted what was meant? The engine has opened it anew, by its name. Another kernel (a virtual machine's)
        has other numbers for devices. Raises ExecutorError if not."""
        if not self._meant or platform.system() != "Linux":
            return
        boot, *said = engine.ask(*self.argv("sh", "-c", IDENTITIES, "sh", *self._meant)[1:]).splitlines()
        here = boot == BOOT_ID.read_text(encoding="ascii").strip()
        for (place, (device, inode)), found in zip(self._meant.items(), said, strict=True):
            there = found.split()
            if there[:1] != [str(inode)] or (here and there[1:] not in ([], [str(device)])):
                self._remove(engine)
                raise ExecutorError(f"{place} {REPLACED}")

    def _numbers(self) -> str:
        """Of the user there who is the user here."""
        user = self._user()
        if user is None and self._engine is not None and self._engine.root_is_user:
            return "0:0"
        return f"{os.getuid()}:{os.getgid()}" if user is None else f"{user.uid}:{user.gid}"

    def _probed(self, engine: Engine) -> There:
        nonce = uuid.uuid4().hex
        with ExitStack() as made:
            opened = self._walls().opened
            tokens = (_token(folder, opened.get(folder), nonce, made) for folder in self._folders)
            seen = [str(name) for name in tokens if name is not None]
            try:
                answer = engine.ask(*self.argv("sh", "-c", PROBE, "sh", nonce, *seen)[1:])
            except ExecutorError as error:
                raise ExecutorError(f"no command can be run in {self.words}: {error}") from error
        lines = answer.partition(f"{nonce}\n")[2].splitlines()
        if len(lines) < ANSWERS or lines[0].rpartition("/")[2] not in ("bash", "sh"):
            raise ExecutorError(f"no command can be run in {self.words}: its shell did not answer as a shell does")
        shell, path, scratch, home, missing = lines[:ANSWERS]
        if missing:
            raise ExecutorError(
                f"no command can be run in {self.words}: its {os.path.dirname(missing)} is not this machine's "
                f"({engine.name} seems to run on another one)"
            )
        if not scratch:
            raise ExecutorError(f"no command can be run in {self.words}: it has no folder for temporary files")
        return There(shell, path, f"{scratch.rstrip('/')}/.acp-coder-{self.mark}", home)


def _mounted(path: Path, mounts: Mapping[Path, Mapping[str, Any]]) -> tuple[Path | None, Path | None]:
    """By what a path there is mounted, and what it is on this machine."""
    top = next((each for each in (path, *path.parents) if each in mounts), None)
    if top is None:
        return None, None
    return top, Path(os.path.realpath(Path(str(mounts[top].get("Source"))) / path.relative_to(top)))


def _mount(source: Path, target: Path, *, writes: bool) -> str:
    """The value of `--mount`, which is a line of CSV."""
    line = io.StringIO()
    rest = () if writes else ("readonly",)
    csv.writer(line, lineterminator=ENDS).writerow(("type=bind", f"source={source}", f"target={target}", *rest))
    return line.getvalue().removesuffix(ENDS)


def _token(path: Path, meant: Identity | None, nonce: str, made: ExitStack) -> Path | None:
    """A file in the folder, by which it is known again; `None` where none can be made. Raises ExecutorError if
    something else is where the session had its folder."""
    name = f".acp-coder-{nonce}"
    try:
        above = made.enter_context(beneath.folder(path))
        if meant is not None and identity(os.fstat(above)) != meant:
            raise ExecutorError(replaced(path))
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=above))
    except OSError:
        return None
    made.callback(_unlink, name, above)
    return path / name


def _unlink(name: str, above: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)
