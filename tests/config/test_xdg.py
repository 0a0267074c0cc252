"""The folders of this program."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from acp_agent.config.xdg import config_dir, config_file, state_dir


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs answers")
@pytest.mark.parametrize("variables", [{}, {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, {"XDG_CONFIG_HOME": " "}])
def test_the_places_are_those_of_platformdirs(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
