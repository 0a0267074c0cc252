"""How the commands of a session are confined: the sandbox of this machine with the session's folders.

The sandbox is looked for once in a process (`executors.sandbox.probe`), by the first who waits for it; what a command
may touch is worked out anew for each, since files come and go.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command
from acp_agent.executors.sandbox.base import Confined, Invocation, SandboxPolicy
from acp_agent.lazy import load
from acp_agent.safety.paths import Roots, real_path
from acp_agent.safety.protect import git_places
from acp_agent.safety.survey import Survey, survey

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.probe import Found
    from acp_agent.executors.users import User

__all__ = ["START_FILES", "Confinement"]

log = logging.getLogger(__name__)

FIND_USER = "acp_agent.executors.users:find_user"
FIND_SANDBOX = "acp_agent.executors.sandbox.probe:find_sandbox"
TOOLCHAINS = "acp_agent.executors.sandbox.toolchains:toolchains"

LOOK_AGAIN = 30.0
"""Seconds after which the session's folders are looked through again."""

COMMON_DIR = "commondir"
"""In a repository's folder: names another one, whose configuration counts."""

OWN_PARTS = ("state", "scratch", "scratch/tmp", "scratch/home", "scripts", "sandbox")
"""Of the session's private folder."""

START_FILES = (".bash", ".profile", ".zsh", ".zprofile", ".zlogin", ".config/fish")


class Confinement:
    """Of one session. `folder`: private, existing; what a command may write of it is `state` and `scratch` below it."""

    def __init__(
        self,
        config: ToolsConfig,
        roots: Roots,
        environ: Mapping[str, str],
        home: Path | None,
        folder: Path,
        told: Callable[[Found], None],
    ) -> None:
        """`told` is called once with what was found."""
        self._config = config
        self._roots = roots
        self._environ = environ
        self._home = home
        self._folder = folder
        self._told = told
        self.found: Found | None = None
        self._finding = anyio.Lock()
        self._readable: tuple[Path, ...] | None = None
        self.links: list[Path] = []
        """Protected paths that are links: what they lead to is protected, they themselves are not."""
        for name in OWN_PARTS:
            (folder / name).mkdir(mode=0o700)
        self._other: User | None = None
        self._survey = Survey()
        self._looked: float | None = None

    @property
    def kind(self) -> str:
        """As the audit log has it."""
        return "none" if self.found is None else self.found.sandbox.kind

    async def ready(self) -> Found:
        """Waits until it is known what confines commands."""
        async with self._finding:
            if self.found is None:
                self.found = await load(FIND_SANDBOX)(self._config.sandbox)
                self._told(self.found)
            await self._look()
            return self.found

    async def _look(self) -> None:
        """Through the session's folders, for what commands are to be kept from; not again at once where nothing is
        to be hidden."""
        if self.found is None or self.found.sandbox.kind == "none":
            return
        now = anyio.current_time()
        if self._looked is not None and not self._roots.rules.hides_any and now - self._looked < LOOK_AGAIN:
            return
        self._survey = await anyio.to_thread.run_sync(survey, self._roots)
        if self._looked is None and not self._survey.complete:
            log.warning("the folders are too large to be looked through: not all repositories in them are protected")
        self._looked = now

    async def lines(self) -> list[str]:
        """What confines commands and what they may touch, for the person."""
        found = await self.ready()
        policy, config = self.policy(), self._config.sandbox
        lines = [f"Sandbox: {found.words}.", *found.trouble]
        if found.disabled or found.sandbox.kind == "none":
            return lines
        network, sockets = (("allowed" if on else "none") for on in (policy.network, policy.unix_sockets))
        lines.append(f"Network: {network}; unix sockets: {sockets}.")
        lines.append(f"May be written: {_names(policy.writable, self._folder)}.")
        lines.append(f"Protected in them: {', '.join(config.protect) or 'nothing'}.")
        if self.links:
            lines.append(
                f"Not protected from being replaced, since they are links: {_names(tuple(self.links), self._folder)}."
            )
        if policy.hidden:
            lines.append(f"Hidden (`deny_read`): {_names(policy.hidden, self._folder)}.")
        if config.allow_read:
            lines.append(f"Further readable: {', '.join(config.allow_read)}.")
        if config.strict:
            lines.append("Strict: without a sandbox no command runs.")
        return lines

    def limits(self) -> str:
        """For the model, when a command failed for what may be the sandbox's doing; empty where there is none."""
        config = self._config.sandbox
        if self.found is None or self.found.sandbox.kind == "none":
            return ""
        network = "" if config.allow_network else " There is no network."
        ask = (
            "Only the person can change that."
            if config.strict
            else "If that is why it failed and there is no other way, call it again with `outside_sandbox`: the person "
            "is asked."
        )
        return (
            "The command ran in a sandbox: it can change only what is below the session's folders, less what other "
            f"programs trust there (.git/hooks, .git/config, …), and does not see other people's files.{network} {ask}"
        )

    def user(self) -> User | None:
        """Whom commands run as, where that is somebody else. Raises ExecutorError."""
        if (name := self._config.scope.run_as_user) and self._other is None:
            self._other = load(FIND_USER)(name)
            if self._other is not None:
                for path in (self._folder, *(self._folder / part for part in OWN_PARTS)):
                    os.chown(path, self._other.uid, self._other.gid)
        return self._other

    def confine(self, invocation: Invocation, command: Command) -> Confined:
        """The command as it is to be started. Raises ExecutorError where it must not run."""
        if self.found is None:
            raise ExecutorError("the sandbox has not been looked for yet")  # A mistake of ours, never of the person's.
        if not command.confined:
            return Confined(invocation.argv, invocation.cwd, invocation.env)
        confined = self.found.sandbox.confine(invocation, self.policy(), self._folder / "sandbox")
        absent = [path for folder in self._git_folders() if not (path := folder / COMMON_DIR).exists()]

        def close() -> None:
            confined.close()
            for path in absent:
                _discard(path)

        return replace(confined, cleanup=close)

    def _git_folders(self) -> list[Path]:
        """Of the repositories that stand in the session's folders."""
        own = [folder / ".git" for folder in self._roots.real]
        return [path for path in dict.fromkeys([*own, *self._survey.repositories]) if path.is_dir()]

    def policy(self) -> SandboxPolicy:
        """What a command may touch now."""
        config, roots = self._config.sandbox, self._roots
        folders = [real_path(root) for root in roots.all]
        protected = [path for folder in folders for path in self._protected(folder)]
        writable = [*folders, *self._existing(config.allow_write), self._folder / "state"]
        for folder in folders:
            places, special = git_places(folder)
            writable += places
            protected += special
        if ".git/config" in config.protect or ".git/hooks" in config.protect:
            protected += self._survey.special()
        if self._readable is None:
            other = self._other  # Who need not be able to see what is installed in our home.
            home, environ = (self._home, self._environ) if other is None else (other.home, {})
            self._readable = load(TOOLCHAINS)(home, environ)
        return SandboxPolicy(
            writable=tuple(dict.fromkeys(writable)),
            readable=tuple(
                dict.fromkeys([*self._readable, *self._existing(config.allow_read), self._folder / "scripts"])
            ),
            hidden=self._survey.hidden,
            protected=tuple(dict.fromkeys(protected)),
            network=config.allow_network,
            unix_sockets=config.allow_unix_sockets,
            scratch=self._folder / "scratch",
            home=self._home if self._other is None else self._other.home,
            max_processes=config.max_processes,
            other_user=self._other is not None,
        )

    def _protected(self, folder: Path) -> list[Path]:
        """What stays as it is below one of the session's folders, also where it does not exist yet.

        What a shell reads at its start counts in the person's home only, unless it is there. A link can be replaced
        whatever is done about what it leads to; so where nothing stricter is asked for, that is what is protected.
        """
        found = []
        for name in self._config.sandbox.protect:
            path = folder / name.strip("/")
            if path == folder or (name.startswith(START_FILES) and folder != self._home and not path.exists()):
                continue
            linked = any(os.path.islink(step) for step in (path, *path.parents) if folder in step.parents)
            if not linked or self._config.sandbox.strict:
                found.append(path)
                continue
            if path not in self.links:
                self.links.append(path)
                log.warning("%s is a link, which commands in the sandbox could replace", path)
            target = real_path(path)
            if target.exists() and any(root in target.parents for root in self._roots.real):
                found.append(target)
        return found

    def _existing(self, texts: list[str]) -> list[Path]:
        found = []
        for text in texts:
            path = Path(text)
            if text.startswith("~") and self._home is not None:
                path = self._home / text[1:].lstrip("/")
            if path.is_absolute() and path.exists():
                found.append(real_path(path))
        return found


def _discard(path: Path) -> None:
    """A file by which a repository would take its configuration from elsewhere. No place holder can keep it from being
    made, since git does not work with one; so it goes with the command that made it."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("%s was made by a command and cannot be removed: %s", path, error)
        return
    log.warning("%s was made by a command and is removed: git would take its configuration from there", path)


MAX_NAMED = 10


def _names(paths: tuple[Path, ...], private: Path) -> str:
    """For people; the session's own private folder is nothing to them."""
    shown = [str(path) for path in paths if private not in path.parents]
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return (", ".join(shown[:MAX_NAMED]) or "nothing") + more
