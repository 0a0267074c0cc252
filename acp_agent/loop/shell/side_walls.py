"""What confines a session's commands on its host; runs there, sent by `executors/far`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Confined, Invocation
from acp_agent.executors.sandbox.common_dirs import hold, release
from acp_agent.executors.sandbox.probe import find_sandbox
from acp_agent.loop.shell.command_policy import TOO_LARGE, CommandPolicy
from acp_agent.loop.shell.private_folder import PrivateFolder, sweep
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.folders.protect import PathRules

LOOK_AGAIN = 30.0
"""Seconds after which the session's folders are scanned again where nothing is to be hidden."""


class SideWalls:
    """Of one session. Blocks."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """`given`: `folders`; `home`; `environ`; `sandbox`, the settings by name; `rules`, what `PathRules` gets."""
        sweep()
        config: Any = SimpleNamespace(**given["sandbox"])
        folders, home = [Path(folder) for folder in given["folders"]], real_path(Path(given["home"]))
        rules, real = dict(given["rules"]), [real_path(folder) for folder in folders]
        own, forbidden = (list(map(Path, rules.pop(name))) for name in ("own", "forbidden"))
        self._rules = PathRules((), bases=real, home=home, own=own, forbidden=forbidden, **rules)
        roots = Roots(folders[0], folders[1:], self._rules)
        self._found = find_sandbox(config, real)
        self._strict = config.strict
        self._private = PrivateFolder(roots)
        _ = self._private.path  # Made now, not by the first threads that ask for it.
        self._policy = CommandPolicy(config, roots, given["environ"], home, self._private)
        if self._found.sandbox.kind == "landlock":
            self._policy.follow()
        self._looking = threading.Lock()
        self._looked: float | None = None

    @property
    def about(self) -> dict[str, Any]:
        """As `far_walls.About`."""
        found = self._found
        about = {"kind": found.sandbox.kind, "words": found.words, "trouble": list(found.trouble)}
        return {**about, "disabled": found.disabled}

    def lines(self) -> list[str]:
        """What commands may touch, for the user."""
        self.look()
        return self._policy.lines()

    @property
    def states(self) -> Path:
        """Where commands may leave the state of their shell."""
        return self._private.path / "state"

    @property
    def scripts(self) -> Path:
        """Where commands may do nothing: for what runs unconfined."""
        return self._private.path / "scripts"

    def confine(
        self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], *, in_terminal: bool = False
    ) -> Confined:
        """`in_terminal`: a script of a terminal starts it. After `look`; not in two threads at a time. Raises
        ExecutorError if it must not run."""
        invocation = Invocation(tuple(argv), Path(cwd), environ, by_script=in_terminal, in_terminal=in_terminal)
        if self._strict and self._rules.hides_any and not self._policy.survey.complete:
            raise ExecutorError(f"the command was not run: {TOO_LARGE}")
        held = hold(self._policy.git_folders()) if self._policy.protects_git else []
        try:
            policy = self._policy.policy()
            policy = replace(policy, protected=(*policy.protected, *held))
            folder = self._private.path / "sandbox"
            confined = self._found.sandbox.confine(self._policy.limited(invocation), policy, folder)
        except BaseException:
            release(held)
            raise

        def close() -> str:
            said = confined.close()
            while held:
                release([held.pop()])
            return said

        return replace(confined, cleanup=close)

    def look(self) -> None:
        """Finds what is to be hidden and protected, if that may be others than before."""
        with self._looking:
            now = time.monotonic()
            if self._looked is None or self._rules.hides_any or now - self._looked > LOOK_AGAIN:
                self._policy.look()
                self._looked = now

    def close(self) -> None:
        """Once nothing of the session runs any more."""
        self._private.close()
