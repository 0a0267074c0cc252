"""What of `PATH` and of the home a command sees, where folders of it are closed to the user."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from acp_agent.executors.far.far_walls import About
from acp_agent.executors.sandbox.toolchains import toolchains

NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may enter any folder."""
    before = os.geteuid()
    os.seteuid(NOBODY if before == 0 else before)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """pytest's own folders are its user's alone."""
    with TemporaryDirectory() as folder:
        path = Path(folder).resolve()
        path.chmod(0o755)
        yield path


def test_an_entry_of_path_in_a_folder_that_may_not_be_entered_is_passed_over(everybodys: Path) -> None:
    closed, opened = everybodys / "closed", everybodys / "opened"
    for folder in (closed, opened):
        (folder / "bin").mkdir(parents=True)
    closed.chmod(0o000)
    with ordinary_user():
        found = toolchains(closed / "home", {"PATH": f"{closed}/bin:{opened}/bin", "GOROOT": f"{closed}/go"})
    closed.chmod(0o700)
    assert opened / "bin" in found
    assert not [path for path in found if path.is_relative_to(closed)]


def test_settings_that_are_too_large_to_be_looked_through_are_not_shown(tmp_path: Path) -> None:
    found = []
    for size in (10, 1_000_001):
        (tmp_path / ".gitconfig").write_text("x" * size)
        found.append(tmp_path / ".gitconfig" in toolchains(tmp_path, {}))
    assert found == [True, False]


def test_what_a_host_says_of_its_sandbox_is_cut_in_sight() -> None:
    said = About("none", trouble=("x" * 300, *("why" for _ in range(31)))).sentences()
    assert (len(said), said[0], said[-1]) == (31, "x" * 199 + "…", "And 2 more.")
