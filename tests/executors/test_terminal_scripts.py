"""The scripts by which a terminal of another machine begins, run by a shell here."""

import os
import subprocess
from pathlib import Path

from acp_agent.executors.base import Command
from acp_agent.executors.places.far_terminal import confined_script, terminal_script

NAMES = ("plain", "a b", "it's $HOME", '"; touch made; "', "-x", "new\nline")


def run(script: bytes, folder: Path) -> str:
    (file := folder / "script").write_bytes(script)
    done = subprocess.run(["bash", str(file)], capture_output=True, text=True, cwd="/", timeout=30, check=False)
    assert done.returncode == 0 and not file.exists(), done.stderr
    return done.stdout


def test_they_begin_in_the_folder_with_the_variables_whatever_they_are_called(tmp_path: Path) -> None:
    for name in NAMES:
        (cwd := tmp_path / name).mkdir()
        command = Command('pwd; printf %s "$TOLD"', cwd, env={"TOLD": name})
        assert run(terminal_script(command, "bash", os.environ), tmp_path) == f"{cwd}\n{name}"
        argv = ["bash", "-c", 'pwd; printf %s "$TOLD"; cat <&9']
        (held := tmp_path / "held").write_text(name)
        script = confined_script(argv, str(cwd), {"TOLD": name, "PATH": os.environ["PATH"]}, [(9, str(held), False)])
        assert run(script, tmp_path) == f"{cwd}\n{name}{name}"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted((*NAMES, "held"))
