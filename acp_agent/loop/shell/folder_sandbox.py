"""This machine's sandbox with the folders of a session: what its commands may touch, and what they have made.

The sandbox is chosen once per process (`executors.sandbox.probe`) by the first task that needs it; what a command may
touch is computed for each command, since files come and go.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from msgspec.structs import replace

from acp_agent.child import User
from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Network
from acp_agent.executors.sandbox.base import Confined, Invocation, Proxied, SandboxPolicy
from acp_agent.executors.sandbox.common_dirs import hold, release
from acp_agent.executors.sandbox.holders import is_held, is_place_holder
from acp_agent.lazy import load
from acp_agent.loop.journal import Journal
from acp_agent.loop.shell.command_policy import TOO_LARGE, CommandPolicy
from acp_agent.loop.shell.private_folder import PARTS, PrivateFolder
from acp_agent.lsp.base import Launch, LspError
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.folders.watch import BESIDE, SLICE, Watch, told

if TYPE_CHECKING:
    from acp_agent.executors.places.base import Elsewhere
    from acp_agent.executors.places.container import Walls
    from acp_agent.executors.sandbox.probe import Found
    from acp_agent.executors.sandbox.proxy.ways import Way
    from acp_agent.loop.shell.git_copies import GitCopies


log = logging.getLogger(__name__)

FIND_USER = "acp_agent.executors.users:find_user"
FOLDER_WATCH, CHANGES = "acp_agent.undo.folder_watch:FolderWatch", "acp_agent.undo.folder_watch:Watch"
GIT_COPIES = "acp_agent.loop.shell.git_copies:GitCopies"
FIND_SANDBOX = "acp_agent.executors.sandbox.probe:find_sandbox"
NAMES_PROGRAMS = "acp_agent.safety.lines.git_folder:names_programs"

LOOK_AGAIN, LOOK_AFTER = 30.0, 1.0
"""Seconds after which the session's folders are scanned again, before and after a command."""

NOT_CONFINED = (
    "No language server was started: some of them run code from the project, and there is no sandbox to confine them. "
    "`lsp.unconfined = true` starts them anyway."
)

GUARD_DISK = "acp_agent.loop.shell.free_disk:guard"
WALLS = "acp_agent.executors.places.container:Walls"


class FolderSandbox:
    """Of one session, or of a worktree of it."""

    def __init__(
        self,
        config: ToolsConfig,
        roots: Roots,
        environ: Mapping[str, str],
        home: Path | None,
        folder: PrivateFolder,
        journal: Journal | None = None,
        spawn: Callable[[Coroutine[Any, Any, None]], None] | None = None,
    ) -> None:
        """`journal` records the sandbox found, and each repository created by a command whose configuration would make
        git run something. `spawn` runs that check in the background."""
        self._journal = journal
        self._spawn = spawn
        self._looking = False
        self._config = config
        self._roots = roots
        self._environ = environ
        self._home = home
        self.folder = folder
        self.found: Found | None = None
        self._finding = anyio.Lock()
        self.paths = CommandPolicy(config.sandbox, roots, environ, home, folder)
        self._looked: float | None = None
        sandbox = config.sandbox
        names = (*sandbox.protect, *sandbox.protect_existing, *sandbox.report)
        self.folders: Any = load(FOLDER_WATCH)()
        """Which of the session's folders changed: for all who look at them."""
        self._told = False
        """Whether the journal knows which was chosen."""
        self._watch = Watch(roots.real, names, home, is_place_holder, lambda: load(CHANGES)(self.folders))
        self._walking = False
        folder.at_end(self._watch.close)
        self._known: set[Path] = set()
        """Git's folders, and files that point to one, which were there at first or which the user was told of."""

    @property
    def kind(self) -> str:
        """As the audit log has it; "none" also before it is chosen."""
        return "none" if self.found is None else self.found.sandbox.kind

    async def ready(self, place: Elsewhere | None = None) -> Found:
        """Waits until it is known what confines commands: those in `place`, if not on this machine."""
        async with self._finding:
            if self.found is None:
                find: Callable[..., Found] = load(FIND_SANDBOX)
                self.found = await anyio.to_thread.run_sync(find, self._config.sandbox, self._roots.clients)
            found = self.found
            if not self._told and place is None:
                self._told = True
                if self._journal is not None:
                    self._journal.sandbox_found(found)
            if not self._roots.disk.here:
                return found
            if (self.kind if place is None else place.sandbox) == "landlock":
                self.paths.follow()
            if place is not None or self.kind != "none":
                await self._look()
                wait = 0.0 if self._walking else SLICE if self._spawn is not None else math.inf
                await anyio.to_thread.run_sync(self._watch.look, wait)
                self._walk_on()
            return found

    def _walk_on(self) -> None:
        """Lists what is not listed yet beside all else."""
        if self._spawn is not None and not self._watch.walked and not self._walking:
            self._walking = True
            self._spawn(self._walk())

    async def _walk(self) -> None:
        try:
            while not self._watch.walked:
                await anyio.to_thread.run_sync(self._watch.walk_on)
                await anyio.sleep(BESIDE)  # Others want the interpreter, too.
        finally:
            self._walking = False

    def _ended(self) -> None:
        """A command has ended: what it created is checked soon."""
        if self._spawn is not None and not self._looking:
            self._looking = True
            self._spawn(self._look_for_new())

    async def _look_for_new(self) -> None:
        try:
            await anyio.sleep(max(0.0, (self._looked or 0.0) + LOOK_AFTER - anyio.current_time()))
            await self._look_through()
        finally:
            self._looking = False

    async def _look(self) -> None:
        """Finds what commands must not touch; not again immediately if nothing is to be hidden."""
        if self._looked is None or self._roots.rules.hides_any or anyio.current_time() - self._looked > LOOK_AGAIN:
            await self._look_through()

    async def _look_through(self) -> None:
        """The session's folders; reports repositories that are new and name programs."""
        first, self._looked = self._looked is None, anyio.current_time()
        await anyio.to_thread.run_sync(self.paths.look)
        places = [*self.paths.survey.repositories, *self.paths.survey.pointers]
        if first:
            if not self.paths.survey.complete:
                log.warning("%s", TOO_LARGE)
            linked = self.paths.linked()
            there = [place for place in places if not place.is_dir() or (place / "HEAD").exists()]
            self._known = {*there, *linked, *(real_path(place) for place in there)}
            return
        for place in places:  # One that names none may come to name some.
            if self._journal is None or place in self._known:
                continue
            if await anyio.to_thread.run_sync(load(NAMES_PROGRAMS), place, frozenset(self._known)):
                self._known.add(place)
                self._journal.repository_made(place.parent if place.name == ".git" else place)

    async def way(self) -> Way | None:
        """How commands reach a proxy and nothing else; `None` where they cannot be held to one. Raises
        ExecutorError."""
        found, other = await self.ready(), self.user()
        way: Way | None = await anyio.to_thread.run_sync(found.sandbox.way, other.popen if other else None)
        return way

    def user(self) -> User | None:
        """The other user that commands run as, if any. Raises ExecutorError."""
        if (name := self._config.scope.user) and self.paths.other is None:
            self.paths.other = load(FIND_USER)(name)
            if self.paths.other is not None:
                for path in (self.folder.path, *(self.folder.path / part for part in PARTS)):
                    os.chown(path, self.paths.other.uid, self.paths.other.gid)
        return self.paths.other

    def confine(self, invocation: Invocation, command: Command) -> Confined:
        """Returns the confined command to start. Raises ExecutorError if it must not run."""
        self._need_survey()
        if self.found is None:
            raise ExecutorError("the sandbox has not been chosen yet")  # Our bug, never the user's mistake.
        self._roots.need()
        if not command.confined:
            return Confined(invocation.argv, invocation.cwd, invocation.env)
        invocation = self.paths.limited(replace(invocation, cwd=self._roots.as_opened(invocation.cwd)))
        held = hold(self.paths.git_folders()) if self.paths.protects_git else []
        copies: GitCopies | None = None
        network: Network | None = None
        try:
            policy = self.paths.policy()
            if command.network is not None:
                network = command.network()
                policy = replace(
                    policy, network=Proxied(network.doors, network.port), readable=(*policy.readable, *network.readable)
                )
                invocation = replace(invocation, env={**invocation.env, **network.env})
            policy = replace(policy, protected=(*policy.protected, *held))
            if self.paths.protects_git and self.found.sandbox.kind == "bubblewrap":
                copies = self._copies(policy)
                policy = replace(policy, copies=copies.copies)
            confined = self.found.sandbox.confine(invocation, policy, self.folder.path / "sandbox")
        except BaseException:
            release(held)
            if copies is not None:
                copies.take_over()
            if network is not None:
                network.closed()
            raise

        closed, full = False, list[str]()

        def end(why: str) -> None:
            full.append(why)
            confined.close()

        least = self._config.sandbox.min_free_disk
        if self._spawn is not None and least and self.kind == "bubblewrap":
            places = (self.folder.path, *self._roots.real)
            self._spawn(load(GUARD_DISK)(places, least, lambda: not closed, end))
        watched = self.kind != "none"
        if watched:
            self._watch.began()

        def close() -> str:
            nonlocal closed
            confined.close()
            if closed:
                return ""
            closed = True
            release(held)
            words = [copies.take_over()] if copies is not None else []
            words += [network.closed()] if network is not None else []
            words += full
            self._known.update(copies.made if copies is not None else ())  # They name no program.
            if watched:
                self._ended()
                words.append(self._news())
            return "\n".join(filter(None, words))

        return replace(confined, cleanup=close)

    def _need_survey(self) -> None:
        if self._config.sandbox.strict and self._roots.rules.hides_any and not self.paths.survey.complete:
            raise ExecutorError(f"the command was not run: {TOO_LARGE}")

    def policy(self) -> SandboxPolicy:
        """What a command may touch now. Raises ExecutorError if it must not run."""
        self._need_survey()
        return self.paths.policy()

    def walls(self) -> Walls:
        """Of a container that is started now."""
        policy, empty = self.paths.policy(), self.folder.path / "sandbox" / "empty"
        empty.mkdir(mode=0o444, exist_ok=True)
        readable = [place for each in self.paths.repositories() for place in each.readable]
        made: Walls = load(WALLS)(policy.hidden, policy.protected, empty, self.paths.linked(), readable, policy.opened)
        return made

    def watched(self) -> Confined:
        """What is to be closed once a command in the place, which begins now, has ended."""
        self._watch.began()
        left = [self._news]

        def close() -> str:
            self._ended()
            return left.pop()() if left else ""

        return Confined((), Path("/"), {}, cleanup=close)

    def _news(self) -> str:
        """What the commands that have ended may have made of what other programs load, for user and model."""
        made = told(self._watch.ended(0.0 if self._walking else SLICE), self._roots.display, self._roots.rules.protects)
        words = "\n".join(filter(None, (made, self.paths.unwritten())))
        if words and self._journal is not None:
            self._journal.notice(words, tool="bash")
        self._walk_on()
        return words

    def no_servers(self, *, unconfined: bool) -> str | None:
        """Why no language server is started, if known; None if they may be."""
        if not self._roots.disk.here:
            return f"No language server serves files {self._roots.disk.where}."
        if self._config.scope.user:
            return "Language servers are not started as another user (`tools.scope.run_as_user`)."
        if self.found is not None and self.found.sandbox.kind == "none" and not unconfined:
            return NOT_CONFINED
        return None

    async def launch(self, argv: Sequence[str], cwd: Path, *, unconfined: bool) -> Launch:
        """Returns the confined language server to start: it can read what commands can, write nothing, and has no
        network and no unix sockets. Raises LspError if nothing confines it, unless `unconfined`."""
        found = await self.ready()
        if (reason := self.no_servers(unconfined=unconfined)) is not None:
            raise LspError(reason)
        if found.sandbox.kind == "none":
            held = ExitStack()
            try:
                place = held.enter_context(self._roots.entered(cwd))
            except ExecutorError as error:
                raise LspError(f"{argv[0]} was not started: {error}") from error
            return Launch(argv, place, self._environ, started=held.close)
        if self._roots.rules.hides_any and not self.paths.survey.complete:
            raise LspError(f"No language server was started: {TOO_LARGE}.")
        policy = self.paths.policy()
        policy = replace(
            policy,
            writable=(),
            protected=(),
            readable=(*policy.readable, *policy.writable),
            network="none",
            unix_sockets=False,
        )
        invocation = Invocation(tuple(argv), cwd, self._environ)
        try:
            confined = found.sandbox.confine(invocation, policy, self.folder.path / "sandbox")
        except ExecutorError as error:
            raise LspError(f"{argv[0]} was not started: {error}") from error
        try:
            numbers = confined.open_files()
        except OSError as error:
            confined.close()
            raise LspError(f"{argv[0]} was not started: the sandbox could not be set up: {error}") from error

        def started() -> None:
            while numbers:
                os.close(numbers.popitem()[1])

        argv = confined.argv_with(numbers)
        return Launch(
            argv, confined.cwd, confined.env, tuple(numbers.values()), started, lambda: (confined.close(), None)[1]
        )

    def _copies(self, policy: SandboxPolicy) -> GitCopies:
        """Copies of what is protected of git, which the command may change."""
        missing = [git for folder in self._roots.real if not (git := folder / ".git").exists() or is_held(git)]
        repositories = dict.fromkeys([*self.paths.git_folders(), *self.paths.linked()])
        protected = [git for git in repositories if git / "config" in policy.protected]
        made: GitCopies = load(GIT_COPIES)(self.folder.path / "sandbox", protected, missing, policy.runs_as)
        return made
