"""Private folders: who owns one, and what happens to those left by a killed agent."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from acp_agent.loop.shell import private_folder
from acp_agent.loop.shell.private_folder import LOCK, PREFIX, PrivateFolder, sweep
from acp_agent.safety.folders.paths import Roots

HOLD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from pathlib import Path
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.safety.folders.paths import Roots
held = PrivateFolder(Roots(Path(sys.argv[2])))
print(held.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder for temporary files that there is."""
    (folder := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(private_folder, "SAFE_FOLDER", str(folder))
    monkeypatch.setattr(private_folder, "OTHER_FOLDERS", ())
    return folder


def roots(tmp_path: Path) -> Roots:
    (tmp_path / "project").mkdir(exist_ok=True)
    return Roots(tmp_path / "project")


def test_a_folder_is_for_its_owner_alone_and_goes_with_it(place: Path, tmp_path: Path) -> None:
    made = PrivateFolder(roots(tmp_path))
    assert made.path.parent == place
    assert made.path.stat().st_mode & 0o777 == 0o700
    made.close()
    assert not made.path.exists()


def test_what_a_killed_agent_left_is_removed_and_what_is_in_use_stays(place: Path, tmp_path: Path) -> None:
    mine = PrivateFolder(roots(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place), str(tmp_path / "project")], stdin=-1, stdout=-1, text=True
    )
    try:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        assert theirs.parent == place
        assert sweep() == [], "both are in use"
        process.kill()
        process.wait(20)
        assert sweep() == [theirs]
        assert not theirs.exists()
        assert mine.path.exists()
    finally:
        process.kill()
        process.communicate()
        mine.close()


def test_a_folder_that_is_being_made_stays(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another agent may look at any moment."""
    real, found = fcntl.flock, []

    def flock(lock: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            found.append(sweep())
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    made = PrivateFolder(roots(tmp_path))
    assert made.path.is_dir() and found == [[]]
    assert sweep() == []
    made.close()


def test_folders_that_are_no_private_ones_stay(place: Path, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "kept").touch()
    (outside / LOCK).touch()
    (place / f"{PREFIX}link").symlink_to(outside)
    (place / f"{PREFIX}new").mkdir()
    (place / f"{PREFIX}file").touch()
    (place / "others").mkdir()
    os.utime(place / f"{PREFIX}new", (0, 0))
    assert sweep() == []
    assert (outside / "kept").exists()
    assert len(list(place.iterdir())) == 4


def test_a_lock_that_is_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    (left := place / f"{PREFIX}strange").mkdir()
    (target := tmp_path / "target").touch()
    (left / LOCK).symlink_to(target)
    assert sweep() == []
    assert left.exists()
