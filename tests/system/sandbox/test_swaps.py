"""Somebody swaps the folders of two sessions for links, all the time, while their commands run and more are opened."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.executors.sandbox.kit import TREE, USERS, needs_sandbox
from tests.nightly import times

from .swaps import NAIVE

ROUNDS = times(200)
SECONDS = 90 * times(1)


def race(user: str, kind: str, rounds: int = ROUNDS) -> dict[str, Any]:
    needs_sandbox()
    argv = [sys.executable, "-m", "tests.system.sandbox.swaps", str(USERS[user]), kind, str(rounds)]
    done = subprocess.run(argv, cwd=TREE, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_nothing_gets_out_of_the_folders_as_they_were_opened(user: str, kind: str) -> None:
    found = race(user, kind)
    assert (found["leaked"], found["changed"]) == ([], [])
    assert {"ran", "refused", "replaced", "opened", "not opened"} <= found["counts"].keys()  # There was a race.


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_where_names_are_trusted_it_gets_out(kind: str) -> None:
    assert race("ordinary", f"{kind}{NAIVE}", 1)["leaked"]
