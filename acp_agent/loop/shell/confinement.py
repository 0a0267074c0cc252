"""What confines the commands of a workspace: this machine's sandbox, or the walls of its place."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.child import one_line
from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import BY_PROXY, NO_NETWORK, ONLY_WRITABLE
from acp_agent.executors.sandbox.base import REPLACED
from acp_agent.lazy import load
from acp_agent.legible import size_words
from acp_agent.loop.journal import Journal
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.safety.folders.paths import Roots

if TYPE_CHECKING:
    from acp_agent.executors.far.far_walls import FarWalls
    from acp_agent.executors.places.base import Elsewhere
    from acp_agent.executors.sandbox.probe import Found

HOSTS_ASKED = "They reach the network through a proxy (HTTPS_PROXY, ALL_PROXY); the user is asked about each new host."
DENIED_PATHS = "acp_agent.tools.kit.sandbox_limits:denied_paths"
LANDLOCK = "acp_agent.executors.sandbox.landlock:abi"
KERNEL_LOG, LEAST_LOGGING = Path("/var/log/audit/audit.log"), 7
"""Where the kernel records what Landlock denies, from this version of Landlock on."""

MOST_PROTECTED = 3
"""Names of protected paths at the head of a conversation."""


class Confinement:
    """Of one workspace. `place`: where commands run, if not on this machine; `far`: what confines them where that is
    another machine."""

    def __init__(
        self,
        config: ToolsConfig,
        roots: Roots,
        sandbox: FolderSandbox,
        journal: Journal | None = None,
        place: Elsewhere | None = None,
        far: FarWalls | None = None,
    ) -> None:
        self._config = config
        self._roots = roots
        self.sandbox = sandbox
        self._journal = journal
        self.place = place
        self._far = far

    @property
    def over(self) -> str:
        """Why nothing runs in its place any more until the session begins there anew; empty while it does."""
        return "" if self.place is None else self.place.over

    @property
    def kind(self) -> str:
        """As the audit log has it."""
        return self.sandbox.kind if self.place is None else self.place.words

    def confines(self, *, in_terminal: bool) -> bool:
        """Whether commands are confined here, `in_terminal`: those in the editor's terminal."""
        return self.place is None and self.kind != "none" and (self._config.sandbox.editor_terminal or not in_terminal)

    async def ready(self) -> Found:
        """Waits until it is known what confines commands."""
        if self._far is not None:
            await self._far.ready()
        return await self.sandbox.ready(self.place)

    async def lines(self) -> list[str]:
        """Describes what confines commands and what they may touch, for the user."""
        found = await self.ready()
        if self.place is not None:
            try:
                return await self.place.lines()
            except ExecutorError as error:
                return [f"Commands cannot run {self.place.where}: {error}."]
        lines, unix = [f"Sandbox: {found.words}.", *found.trouble], self._config.sandbox.allow_unix_sockets
        if found.disabled or found.sandbox.kind == "none":
            return lines
        lines.append(f"Network: {await self._network()}. Unix sockets: {'allowed' if unix else 'none'}.")
        lines += self.sandbox.paths.lines()
        kernel = os.access(KERNEL_LOG, os.R_OK) and load(LANDLOCK)() >= LEAST_LOGGING
        lines.append(
            "What is denied to commands is recognised in their output and logged (`denied_paths` in the audit log)"
            + (f"; the kernel records what Landlock denies in {KERNEL_LOG}." if kernel else ".")
        )
        lines.append(self._disk())
        return lines

    def _disk(self) -> str:
        least = self._config.sandbox.min_free_disk if self.kind == "bubblewrap" else 0
        ended = f"A command is ended when less than {size_words(least)} of disk are left."
        return ended if least else "Nothing limits the disk."

    async def _network(self) -> str:
        """What commands have of it, found by trying, and what cannot be held."""
        network = self._config.sandbox.network
        if network in ("allow", "deny"):
            return {"allow": "all of it", "deny": "none"}[str(network)]
        why = "it cannot hold commands to a proxy"
        try:
            way = await self.sandbox.way()
        except ExecutorError as error:
            way, why = None, str(error)
        if way is None:
            return f'none, since {why} (`tools.sandbox.network = "allow"`: all of it)'
        way.close()
        hosts = f"only {', '.join(network)}" if isinstance(network, list) else "you are asked about each new host"
        held = "" if way.own else "; not held: connections to the proxy's own port number on other machines"
        return f"{hosts}; what an allowed host passes on to others is not seen{held}"

    def for_prompt(self) -> str:
        """What commands cannot do, for the model. Does not wait until it is known what confines them."""
        where, config = "", self._config.sandbox
        if self.place is not None:
            same = "with the session's folders at the same paths" if self._roots.disk.here else "where the files are"
            where = f"Commands run {self.place.where}, {same}."
        kind = self.place.sandbox if self.place is not None else self.sandbox.kind if self.sandbox.found else ""
        known = self.place is not None or platform.system() in ("Linux", "Darwin")
        if config.disabled or kind == "none" or not known:
            return where
        names = ", ".join([*config.protect[:MOST_PROTECTED], *(["…"] if len(config.protect) > MOST_PROTECTED else [])])
        but = f", not what programs trust ({names})" if names and kind != "landlock" else ""
        network = self._network_words(HOSTS_ASKED)
        has = "" if kind else " if that machine has one" if where else " if this machine has one"
        begins = f"{where[:-1]}, in a sandbox" if where else "Commands run in a sandbox"
        sees = "do not see what is hidden" if self._in_container else "see nothing else of the home folder"
        they = f"they change only {self._changeable}{but}, and {sees}."
        return f"{begins}{has}: {they}{network}{self._git}"

    @property
    def _git(self) -> str:
        words = self.sandbox.paths.git_words() if self._roots.disk.here else ""
        return f" {words}" if words else ""

    @property
    def _in_container(self) -> bool:
        return self.place is not None and self._far is None

    def _network_words(self, asked: str) -> str:
        """What commands have of it; `asked`: through a proxy, which there is on this machine only."""
        if self._in_container:
            return ""  # It is the container's.
        network = "deny" if self._far is not None and self._config.sandbox.network != "allow" else None
        words = {"allow": "", "deny": f" {NO_NETWORK}"}
        return words.get(network or str(self._config.sandbox.network), f" {asked}")

    @property
    def _changeable(self) -> str:
        """What of the session's folders commands can change, in words."""
        names = self._config.sandbox.writable
        return f"what {ONLY_WRITABLE} names ({', '.join(names)})" if names else "files in the session's folders"

    def limits(self) -> str:
        """For the model, when a command may have failed because of the sandbox; empty without one."""
        config = self._config.sandbox
        kind = self.sandbox.kind if self.place is None else self.place.sandbox
        if kind in ("", "none"):
            return ""
        network = self._network_words(BY_PROXY)
        ask = (
            "Only the user can change that."
            if config.strict
            else "If that is why it failed and there is no other way, repeat it with `outside_sandbox`: the user is "
            "asked."
        )
        but = (
            ", except files that other programs trust (.git/hooks, .vscode, …; while a command runs, empty folders "
            "take the place of missing ones)"
        )
        but = "" if kind == "landlock" else but
        sees = "what is hidden by the configuration" if self._in_container else "files elsewhere"
        return (
            f"The command ran in a sandbox: it can change only {self._changeable}{but}, and cannot see {sees}."
            f"{network}{self._git} {ask}"
        )

    def denied(self, output: str, cwd: Path) -> tuple[str, ...]:
        """The paths that a confined command, run in `cwd`, says were denied to it by the sandbox."""
        limits = self.limits()
        if self._journal is not None and limits and REPLACED in output:
            self._journal.notice(f"Possibly an attack: {one_line(output, 400)}", tool="bash")
        found: tuple[str, ...] = load(DENIED_PATHS)(output, limits, cwd, self._roots) if limits else ()
        return found
