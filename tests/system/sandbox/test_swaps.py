"""Somebody swaps the folders of two sessions for links, all the time, while their commands run and more are opened."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.executors.sandbox.kit import TREE, USERS, needs_sandbox
from tests.nightly import times

from .swaps import NAIVE, PLACES, Race, put

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


NAMES = st.sampled_from([*PLACES, "sub/deep", "made", "pkg/.git/config", "pkg/.git/commondir", ".vscode", "sub/.git"])
TARGETS = st.sampled_from(["../out", "../out/.git", "../../out", "../out/secret", "..", "../..", "/", "sub", "."])
ACT = st.one_of(
    st.tuples(st.just("link"), NAMES, TARGETS), st.tuples(st.just("move"), NAMES, NAMES),
    st.tuples(st.just("exchange"), NAMES, NAMES),
    st.tuples(st.sampled_from(["folder", "file", "repository"]), NAMES, st.just("")),
)  # fmt: skip
STEP = st.tuples(st.integers(0, 5), st.lists(ACT, max_size=3), st.lists(ACT, max_size=2), st.one_of(st.none(), NAMES))


def act(project: Path, acts: list[tuple[str, str, str]]) -> None:
    """As a hostile command does; what cannot be done is left out."""
    for what, name, other in acts:
        path = project / name
        whole = path if what in ("file", "repository") else path.parent  # Which it writes through.
        if not all(Path(os.path.realpath(each)).is_relative_to(project) for each in (whole, (project / other).parent)):
            continue  # The sandbox that it is in itself does not let it.
        with suppress(OSError, ValueError):
            if what == "link":
                aside = Path(tempfile.mktemp(dir=project, prefix="aside-"))
                if path.is_symlink() or path.exists():
                    path.rename(aside)
                path.symlink_to(os.path.relpath(project / other, path.parent) if other.startswith("..") else other)
            elif what == "move":
                path.rename(project / other)
            elif what == "exchange":
                aside = Path(tempfile.mktemp(dir=project, prefix="aside-"))
                path.rename(aside)
                (project / other).rename(path)
                aside.rename(project / other)
            elif what == "folder":
                path.mkdir()
            elif what == "file":
                path.write_text("x")
            else:
                for part in ("objects", "refs", "hooks"):
                    (path / ".git" / part).mkdir(parents=True)
                put(path / ".git/HEAD", "ref: refs/heads/main\n")
                put(path / ".git/config", "[core]\n\tbare = false\n")


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
@settings(max_examples=times(12, 400))
@given(steps=st.lists(STEP, min_size=2, max_size=5))
def test_whatever_is_swapped_nothing_gets_out(kind: str, steps: list[Any]) -> None:
    """Sessions are opened and run commands, in turn with what a hostile command does to their folders."""
    needs_sandbox()
    made = tempfile.TemporaryDirectory(prefix="acp-swaps-", ignore_cleanup_errors=True)
    with made as folder, closing(Race(Path(os.path.realpath(folder)), kind)) as race:
        for number, before, between, opens in steps:
            act(race.project, before)
            if opens is not None and (opened := race.open(opens)) is not None:
                race.sessions.append(race.session(opened))
            roots, session = race.sessions[int(number) % len(race.sessions)]
            race.round(roots, session, partial(act, race.project, between))
        assert (race.leaked, race.changed()) == ([], [])
