"""Measures what the sandbox costs a command: milliseconds more than without, the three measured alternately."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.config.trusted_files import names_of
from acp_agent.executors.base import Command
from acp_agent.executors.sandbox import bubblewrap
from acp_agent.executors.sandbox.base import Confined, Invocation, Proxied, SandboxPolicy
from acp_agent.executors.start import start_confined
from acp_agent.loop.shell.command_policy import START_FILES

ROUNDS = 40
ARGV = ("/bin/bash", "-c", "true")


def sandbox_cost() -> tuple[float, float]:
    """Median ms that bubblewrap with seccomp adds to `bash -c true`, and the same with Landlock inside."""
    kinds = (None, bubblewrap.find(SandboxConfig(landlock=False)), bubblewrap.find(SandboxConfig()))
    times: list[list[float]] = [[] for _ in kinds]
    way = kinds[1].way(None)
    assert way is not None
    with closing(way), tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        root, files, scratch = base / "root", base / "files", base / "scratch"
        for folder in (root, files, scratch, root / ".git", root / ".git" / "hooks"):
            folder.mkdir(mode=0o700)
        policy = SandboxPolicy(
            writable=(root,),
            hidden=(root / ".env",),
            protected=tuple(root / place for place in names_of("protect") if not place.startswith(START_FILES)),
            scratch=scratch,
            home=Path.home().resolve(),
            network=Proxied(way.doors()),
        )
        invocation = Invocation(ARGV, root, dict(os.environ))
        for _ in range(ROUNDS):
            for index, sandbox in enumerate(kinds):
                started = time.perf_counter()
                if sandbox is None:
                    confined = Confined(invocation.argv, invocation.cwd, invocation.env)
                else:
                    confined = sandbox.confine(invocation, policy, files)
                process = start_confined(confined, Command("true", root))
                process.communicate()
                confined.close()
                times[index].append((time.perf_counter() - started) * 1000)
    plain, without, with_landlock = (statistics.median(each) for each in times)
    return without - plain, with_landlock - plain


def available() -> bool:
    """Whether bubblewrap is available."""
    try:
        return subprocess.run(["bwrap", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    print("bubblewrap +%.1f ms, with Landlock +%.1f ms" % sandbox_cost())  # noqa: T201, UP031
