"""`acp-coder setup`, as a user runs it."""

import json
import os
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from acp_agent.setup.editor_table import config_path, editors, folder
from tests.files import put
from tests.forked import COMMAND as PROGRAM
from tests.forked import forked_command

ROOT = Path(__file__).parents[2]


def run(home: Path, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return subprocess.run(
        [forked_command(), "setup", *arguments], env=environ, input=answer, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip


def where(home: Path, name: str) -> Path:
    return config_path(editors()[name], {"HOME": str(home)})


def written(home: Path, name: str, text: str) -> Path:
    """The person's own configuration of that editor."""
    return put(where(home, name), text)


@pytest.mark.parametrize("name", list(editors()))
def test_an_editor_is_set_up_and_taken_back_from_nothing(tmp_path, name):
    done = run(tmp_path, name, "--yes")
    path = where(tmp_path, name)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert PROGRAM in text and "{{" not in text
    assert f"+++ {path}" in done.stdout and editors()[name].then in done.stdout
    assert "nothing to write" in run(tmp_path, name, "--yes").stdout
    back = run(tmp_path, name, "--undo", "--yes")
    assert back.returncode == 0, back.stderr
    assert not path.exists()
    again = run(tmp_path, name, "--undo", "--yes")
    assert again.returncode == 2 and "nothing to undo" in again.stderr


BEFORE = {
    "zed": '{\n  // my theme\n  "theme": "Gruvbox",\n}\n', "vscode": '{ "editor.fontSize": 13 }',
    "jetbrains": '{"agent_servers": {"other": {"command": "/bin/other"}}}', "emacs": "(setq inhibit-startup-screen t)",
    "helix": '[[language]]\nname = "python"\nlanguage-servers = ["pylsp"] # mine\n',
}  # fmt: skip


@pytest.mark.parametrize("name", list(BEFORE))
def test_a_persons_file_is_what_it_was_byte_by_byte_after_the_way_back(tmp_path, name):
    path = written(tmp_path, name, BEFORE[name])
    path.chmod(0o600)
    assert run(tmp_path, name, "--yes").returncode == 0
    assert path.read_text() != BEFORE[name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(tmp_path, name, "--program", "/opt/other", "--yes").returncode == 0  # Once more, for another program.
    assert "/opt/other" in path.read_text() and PROGRAM not in path.read_text()
    assert run(tmp_path, name, "--undo", "--yes").returncode == 0
    assert path.read_text() == BEFORE[name]


@pytest.mark.parametrize(("name", "line"), [
    ("zed", '{ "added": true,'), ("emacs", ";; added\n"), ("helix", '[[language]]\nname = "brainfuck"\n\n'),
])  # fmt: skip
def test_what_was_written_since_stays_when_it_is_taken_back(tmp_path, name, line):
    path = written(tmp_path, name, BEFORE[name])
    run(tmp_path, name, "--yes")
    text = path.read_text()
    path.write_text(line + text.removeprefix("{") if name == "zed" else line + text)
    assert run(tmp_path, name, "--undo", "--yes").returncode == 0
    after = path.read_text()
    assert PROGRAM not in after
    assert line.split('"')[1] in after if name != "emacs" else line in after
    assert {"zed": "// my theme", "emacs": "inhibit-startup-screen", "helix": '["pylsp"] # mine'}[name] in after


def test_without_a_terminal_and_without_yes_nothing_is_written(tmp_path):
    done = run(tmp_path, "zed", answer="y\n")
    assert done.returncode == 0 and "Nothing was written" in done.stdout and "+++" in done.stdout
    assert not where(tmp_path, "zed").exists() and "Nothing was written" in run(tmp_path, "zed", "--dry-run").stdout


@pytest.mark.parametrize(("name", "text", "words"), [
    ("zed", "{ broken", "fix it first"), ("neovim", "-- mine\n", "not written by `acp-coder setup`"),
])  # fmt: skip
def test_what_is_malformed_or_of_the_persons_own_is_left_alone(tmp_path, name, text, words):
    path = written(tmp_path, name, text)
    done = run(tmp_path, name, "--yes")
    assert done.returncode == 2 and words in done.stderr
    assert path.read_text() == text
    assert name != "zed" or "unreadable" in run(tmp_path).stdout


def test_a_configuration_that_is_a_link_stays_one(tmp_path):
    path = where(tmp_path, "zed")
    path.parent.mkdir(parents=True)
    (tmp_path / "dotfiles.json").write_text("{}")
    path.symlink_to(tmp_path / "dotfiles.json")
    assert run(tmp_path, "zed", "--yes").returncode == 0
    assert path.is_symlink() and "acp-coder" in (tmp_path / "dotfiles.json").read_text()


def test_the_list_says_which_are_set_up(tmp_path):
    run(tmp_path, "helix", "--yes")
    rows = {line.split()[0]: line for line in run(tmp_path).stdout.splitlines()}
    assert "set up" in rows["helix"] and "set up" not in rows["zed"]
    assert set(editors()) <= set(rows)
    wrong = run(tmp_path, "vim")
    assert wrong.returncode == 2 and "known are zed" in wrong.stderr


def test_a_wheel_ships_what_the_setup_reads():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    expected = {"editors.toml", *(row.template for row in editors().values())}
    of_editors = {name: to for name, to in shipped["force-include"].items() if name.startswith("editors/")}
    assert of_editors == {f"editors/{name}": f"acp_agent/_editors/{name}" for name in expected}
    assert folder() == ROOT / "editors"


@pytest.mark.parametrize("row", editors().values(), ids=editors())
def test_each_row_is_whole(row):
    assert row.config.keys() == {"linux", "macos", "windows"}
    assert row.starts.endswith(".") or row.starts.endswith(").")
    assert row.then and row.capabilities
    assert (ROOT / row.docs).is_file()
    assert (folder() / row.template).is_file()
    for platform in ("linux", "darwin", "win32"):
        assert config_path(row, {"HOME": "/home/me", "APPDATA": "C:/Users/me/AppData"}, platform).is_absolute() or (
            platform == "win32" and os.name != "nt"
        )


def test_zed_and_jetbrains_get_an_absolute_path(tmp_path):
    for name in ("zed", "jetbrains"):
        run(tmp_path, name, "--yes")
        value = json.loads(where(tmp_path, name).read_text())["agent_servers"]["acp-coder"]
        assert Path(value["command"]).is_absolute() and value["args"] == []


@pytest.mark.parametrize("name", ["neovim", "codecompanion"])
def test_what_a_person_wrote_into_our_file_is_kept(tmp_path, name):
    assert run(tmp_path, name, "--yes").returncode == 0
    path = where(tmp_path, name)
    mine = "-- mine\nvim.o.number = true\n"
    path.write_text(mine + path.read_text().replace(PROGRAM, "/old/acp-coder") + mine)
    assert run(tmp_path, name, "--yes").returncode == 0
    text = path.read_text()
    assert text.startswith(mine) and text.endswith(mine) and text.count("setup: begin") == 1 and PROGRAM in text
    path.write_text(text + "-- last\n")
    assert run(tmp_path, name, "--undo", "--yes").returncode == 0
    assert path.read_text() == f"{mine}{mine}-- last\n"


def test_marked_lines_are_found_when_the_editor_has_saved_other_line_ends(tmp_path):
    assert run(tmp_path, "emacs", "--yes").returncode == 0
    path = where(tmp_path, "emacs")
    path.write_bytes(b"; mine\r\n" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert "nothing to write" in run(tmp_path, "emacs", "--yes").stdout
    assert run(tmp_path, "emacs", "--undo", "--yes").returncode == 0
    assert path.read_bytes() == b"; mine\r\n"


@pytest.mark.parametrize("name", ["zed", "emacs", "helix", "neovim"])
def test_taking_back_takes_all_back_when_it_was_set_up_twice_with_a_change_between(tmp_path, name):
    path = where(tmp_path, name)
    assert run(tmp_path, name, "--yes", "--program", "/old/acp-coder").returncode == 0
    mine = {"zed": "// mine\n", "emacs": "; mine\n", "helix": "# mine\n", "neovim": "-- mine\n"}[name]
    path.write_text(mine + path.read_text())
    assert run(tmp_path, name, "--yes").returncode == 0 and run(tmp_path, name, "--undo", "--yes").returncode == 0
    assert "acp-coder" not in path.read_text() and mine in path.read_text()
