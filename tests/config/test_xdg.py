"""The folders of this program."""

import os
import sys
from pathlib import Path

import platformdirs
import pytest

from acp_agent.config.xdg import config_dir, config_file, ensure_home, state_dir


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs answers")
@pytest.mark.parametrize("variables", [{}, {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, {"XDG_CONFIG_HOME": " "}])
def test_the_places_are_as_in_platformdirs(variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    environ = {"HOME": str(tmp_path), **variables}
    assert config_dir(environ) == platformdirs.user_config_dir("acp-coder", appauthor=False)
    assert state_dir(environ) == platformdirs.user_state_dir("acp-coder", appauthor=False)


def test_the_file_is_below_the_folder_unless_named() -> None:
    assert config_file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}).endswith("acp-coder/config.toml")
    assert config_file({"HOME": "/h", "ACP_CODER_CONFIG": "/x.toml"}) == "/x.toml"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without an entry."""
    monkeypatch.setattr("os.path.expanduser", lambda path: path)


def test_a_user_without_home_and_entry_gets_a_private_folder_and_the_same_again(tmp_path: Path, nobody: None) -> None:
    environ = {"TMPDIR": str(tmp_path), "HOME": ""}
    ensure_home(environ)
    home = Path(environ["HOME"])
    assert home.parent == tmp_path and home.stat().st_mode & 0o777 == 0o700
    again = {"TMPDIR": str(tmp_path)}
    ensure_home(again)
    assert again["HOME"] == str(home)


@pytest.mark.parametrize("trap", ["link", "open to others"])
def test_a_folder_that_others_can_write_to_is_not_taken_for_a_home(tmp_path: Path, nobody: None, trap: str) -> None:
    place = tmp_path / f"acp-coder-home-{os.getuid()}"
    (tmp_path / "theirs").mkdir(mode=0o700)
    if trap == "link":
        place.symlink_to(tmp_path / "theirs")
    else:
        place.mkdir()
        place.chmod(0o777)
    environ = {"TMPDIR": str(tmp_path)}
    ensure_home(environ)
    home = Path(environ["HOME"])
    assert home != place and home.stat().st_mode & 0o777 == 0o700
    home.rmdir()


def test_a_home_that_is_known_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HOME": "/home/ada"}
    ensure_home(environ)
    assert environ == {"HOME": "/home/ada"}
    environ = {}
    monkeypatch.setattr("os.path.expanduser", lambda path: "/home/by-entry")
    ensure_home(environ)
    assert environ == {}
