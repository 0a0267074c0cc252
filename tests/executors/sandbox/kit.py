"""Attacks, each run with and without the sandbox, as root and as an ordinary user."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ORDINARY = 61_234
"""A user that nothing belongs to."""
TREE = Path(__file__).resolve().parents[3]
BUBBLEWRAP = ("bubblewrap", "bubblewrap alone")
WITH_COPIES = ("bubblewrap with copies", "bubblewrap alone with copies")
"""Where git's configuration is a link to a copy."""
ALL = (*BUBBLEWRAP, "landlock")

USERS = {"root": 0, "ordinary": ORDINARY} if os.geteuid() == 0 else {"ordinary": os.geteuid()}


TRUE = "/bin/true"
"""The system's, whatever a test has put into PATH."""


@cache
def no_sandbox() -> str:
    """Why there is nothing to attack; empty where there is."""
    try:
        done = subprocess.run(
            ["/usr/bin/bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", TRUE],
            capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def needs_sandbox() -> None:
    reason = no_sandbox()
    if not reason:
        return
    if "amespace" not in reason and "not permitted" not in reason:
        pytest.fail(f"the sandbox cannot be tested: {reason} (scripts/install_tools.sh installs bubblewrap)")
    message = f"THE SANDBOX IS NOT TESTED: the kernel refuses namespaces: {reason}"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(message, stacklevel=2)
    sys.__stderr__.write(f"\n*** {message} ***\n")  # type: ignore[union-attr]
    pytest.skip(message)


@dataclass
class Done:
    code: int
    out: str
    err: str
    left: list[str]
    config: str
    """Git's configuration in the folder, as it is afterwards."""
    reached: list[str]
    """Sockets outside that somebody connected or sent something to."""


class Runner:
    def __init__(self, uid: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.executors.sandbox.runner", str(uid)], cwd=TREE, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.answer() == "ready"

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the runner ended"
        return json.loads(line)

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def run(self, script: str, sandbox: str | None, **policy: Any) -> Done:
        return Done(**self.ask(script=script, sandbox=sandbox, policy=policy))

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def runner(user: str) -> Iterator[Runner]:
    needs_sandbox()
    started = Runner(USERS[user])
    try:
        yield started
    finally:
        started.close()
