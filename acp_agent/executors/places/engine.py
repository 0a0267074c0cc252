"""The program that runs containers: podman, docker or nerdctl, which take the same commands."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.child import one_line
from acp_agent.config.place_settings import PlaceConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.pids import started
from acp_agent.limits.decoding import read_loose_json
from acp_agent.limits.descriptors import restoring
from acp_agent.own_programs import find_program

ENGINES = ("podman", "docker", "nerdctl")
SECONDS = 60.0
"""For one of its commands, which never fetches an image."""
WORDS = 300
STOPPED, LACKS = "does not run", "has no container"
MISSING = ("no such", "not found", "not known")
NOT_OURS = "It was not started by acp-coder: its network, its rights and what it can see are its own"
OWNER = "acp-coder.owner"
"""The label of the containers that we start: the machine, the process number and the start time of the agent."""


class Engine(Struct, frozen=True):
    program: str
    """Its absolute path."""
    environ: Mapping[str, str]
    root_is_user: bool = False
    """Whether root in a container is the user here (docker and nerdctl without root)."""

    @property
    def name(self) -> str:
        return os.path.basename(self.program)

    @property
    def keeps_id(self) -> bool:
        """Whether it has to be asked to let the user in a container be the one of that number here."""
        return self.name == "podman" and os.geteuid() != 0

    def ask(self, *arguments: str) -> str:
        """What it prints. Raises ExecutorError with its last line. Blocks."""
        try:
            done: subprocess.CompletedProcess[bytes] = subprocess.run(
                [self.program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=dict(self.environ),
                cwd="/",
                timeout=SECONDS,
                start_new_session=True,
                check=False,
                **restoring(),
            )
        except (OSError, ValueError) as error:
            raise ExecutorError(f"{self.program} could not be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise ExecutorError(f"{self.name} {arguments[0]} did not answer within {SECONDS:g} s") from error
        if done.returncode != 0:
            said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
            words = one_line(said[-1], WORDS) if said else f"exit code {done.returncode}"
            raise ExecutorError(f"{self.name} {arguments[0]}: {words}")
        return done.stdout.decode("utf-8", "replace")

    def look(self, kind: str, name: str) -> dict[str, Any] | None:
        """What it knows of a container or an image; `None` if there is none of that name. Raises ExecutorError."""
        try:
            found = read_loose_json(self.ask("inspect", "--type", kind, "--", name))
        except ExecutorError as error:
            if any(words in str(error).lower() for words in MISSING):
                return None
            raise
        except ValueError as error:
            raise ExecutorError(f"{self.name} inspect: its answer is not JSON") from error
        return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else None

    def awake(self, name: str) -> dict[str, Any] | None:
        """The same of a container. Raises ExecutorError if it is paused: what runs there has not ended."""
        found = self.look("container", name)
        if found is not None and "paused" in str((found.get("State") or {}).get("Status")).lower():
            words = f"the container {name!r} is paused, and what runs there waits; go on: `{self.name} unpause {name}`"
            raise ExecutorError(words)
        return found

    def running(self, name: str) -> dict[str, Any] | None:
        """The same of a container. Raises ExecutorError with a sentence if it does not run."""
        found = self.awake(name)
        if found is not None and not runs(found):
            raise ExecutorError(f"the container {name!r} {STOPPED}; start it: `{self.name} start {name}`")
        return found

    def none_of(self, name: str) -> ExecutorError:
        return ExecutorError(f"{self.name} {LACKS} {name!r}")

    def sweep(self) -> list[str]:
        """Removes the containers that killed agents of this machine left behind, and returns their names. Never
        others'. Raises ExecutorError."""
        removed = []
        for name in self.ask("ps", "--all", "--quiet", "--filter", f"label={OWNER}").split():
            found = self.look("container", name) or {}
            labels = (found.get("Config") or {}).get("Labels") or {}
            if is_left(str(labels.get(OWNER, ""))):
                self.ask("rm", "--force", "--volumes", "--", name)
                removed.append(str(found.get("Name", name)).lstrip("/"))
        return removed


def find_engine(wanted: str, environ: Mapping[str, str], outside: Iterable[Path]) -> Engine:
    """Raises ExecutorError if there is none."""
    for name in (wanted,) if wanted else ENGINES:
        if (found := find_program(name, environ, outside)) is not None:
            engine = Engine(found, environ)
            options = "" if engine.name == "podman" else engine.ask("info", "--format", "{{json .SecurityOptions}}")
            return replace(engine, root_is_user="rootless" in options)
    what = f"the program {wanted!r} was not found" if wanted else f"none of {', '.join(ENGINES)} was found"
    raise ExecutorError(f"there is nothing to run containers with: {what}")


def runs(found: Mapping[str, Any] | None) -> bool:
    """Whether a container does, of which `look` has found that."""
    return found is not None and bool((found.get("State") or {}).get("Running"))


def named(name: str, config: PlaceConfig) -> tuple[str, str]:
    """What a container is called, and what answers are kept for."""
    words, what = f"container {name}", config.container or config.image
    found = words if what in ("", name) else f"{words} ({what})"
    return words, f"{found} as {config.user}" if config.user else found


def owner() -> str:
    """This process, as a label."""
    return f"{_machine()} {os.getpid()} {started(os.getpid())}"


def is_left(label: str) -> bool:
    """Whether the agent of that label, on this machine, is gone."""
    machine, _, rest = label.partition(" ")
    pid, _, start = rest.partition(" ")
    return machine == _machine() and pid.isdigit() and start != "" and started(int(pid)) != start


def _machine() -> str:
    """Distinguishes machines, and containers on one, that may use the same engine."""
    inside = os.readlink("/proc/self/ns/pid") if os.path.exists("/proc/self") else ""
    return f"{platform.node()}/{inside}".replace(" ", "_")
