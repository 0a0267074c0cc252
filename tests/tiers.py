"""Which tests may start what.

The first tier (`make test`) starts no container, no sshd, no tmux, no PostgreSQL, no browser, and one agent process at
a time. `tests/system` may, and `tests/smoke`, which has some of them once."""

import os
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
HEAVY = {"podman", "docker", "sshd", "tmux", "postgres", "initdb", "pg_ctl", "chromium", "google-chrome", "chrome"}
"""Programs whose tests belong to the second tier."""
AGENT = "acp-coder"
OTHER_TIERS = ("system", "smoke", "editors", "models", "agents", "release", "conformance")
"""Folders of tests that `make test` does not run, or where these programs are what is tested."""


def is_first(path: Path) -> bool:
    """Whether a file of tests belongs to the first tier."""
    return path.relative_to(TESTS).parts[0] not in OTHER_TIERS


class Starts:
    """What a test has started that its tier may not have. There is one, since Python cannot remove an audit hook."""

    def __init__(self) -> None:
        self.watching = False
        self.wrong: list[str] = []
        sys.addaudithook(self.heard)

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen" or not self.watching:
            return
        argv = arguments[1]
        argv = [argv] if isinstance(argv, str | bytes | os.PathLike) else argv
        words = [os.fsdecode(word) for word in argv]
        names = {os.path.basename(word) for word in (os.fsdecode(arguments[0] or words[0]), *words[:1])}
        if heavy := names & HEAVY:
            self.wrong.append(f"it starts {heavy.pop()}")
        if AGENT in names and serves(words) and any(serves(each) for each in children()):
            self.wrong.append("it runs two agents at a time")


def serves(argv: list[str]) -> bool:
    """Whether that is an agent, or a server, which stays; not `acp-coder config` and the like."""
    at = next((place for place, word in enumerate(argv) if os.path.basename(word) == AGENT), None)
    return at is not None and ([word for word in argv[at + 1 :] if not word.startswith("-")] or ["serve"])[0] == "serve"


def children() -> list[list[str]]:
    """The command lines of this process's children that live."""
    found = []
    for tasks in Path("/proc/self/task").glob("*/children"):
        for pid in tasks.read_text().split():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found.append([os.fsdecode(word) for word in line.split(b"\0")[:-1]])
    return found
