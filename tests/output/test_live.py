"""The rules applied to programs run now, so that changed wording of a new version is noticed."""

import os
import subprocess
import sys
from pathlib import Path

from acp_agent.output.filters import Filtered, load_filters
from acp_agent.output.sanitize import sanitize_output
from tests.repositories import committed, git

FILTERS, _ = load_filters(max_diff_lines=100)


def filtered(command: str, *argv: str, cwd: Path) -> tuple[str, Filtered]:
    environ = os.environ | {"LC_ALL": "C", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for name in [name for name in environ if name.startswith("PYTEST")]:
        del environ[name]
    run = subprocess.run(
        argv, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    text = sanitize_output(run.stdout.decode())
    return text, FILTERS.apply(text, command, exit_code=run.returncode)


def test_git_status_and_diff_of_a_real_repository(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("".join(f"{number}\n" for number in range(300)))
    committed(tmp_path, ".", message="first")
    (tmp_path / "one.txt").write_text("".join(f"changed {number}\n" for number in range(300)))
    (tmp_path / "two.txt").write_text("".join(f"{number}\n" for number in range(290)))
    (tmp_path / "new.txt").touch()
    _, status = filtered("git status", "git", "status", cwd=tmp_path)
    assert status.confidence == "Full" and "(use" not in status.text and "On branch main" in status.text
    assert " modified: one.txt\n modified: two.txt\n" in status.text and " new.txt\n" in status.text
    text, diff = filtered("git diff", "git", "diff", cwd=tmp_path)
    assert diff.confidence == "Partial" and diff.lines_after <= 102
    for line in text.split("\n"):
        assert not line.startswith(("diff ", "@@ ", "--- a", "+++ b")) or line in diff.text


def test_pytest_of_a_real_run(tmp_path):
    (tmp_path / "test_x.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_fine(n):\n    pass\n"
        "def test_wrong():\n    print('said before')\n    assert 'three' == 'four'\n"
    )
    alone = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"  # The plugins of our own tests are most of its time.
    argv = ("env", alone, sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider")
    _, run = filtered("pytest -v", *argv, cwd=tmp_path)
    assert run.confidence == "Full" and "[... 50 lines of passing tests left out ...]" in run.text
    assert "test_x.py::test_wrong FAILED" in run.text and "E       AssertionError: assert 'three' == 'four'" in run.text
    assert "said before" in run.text and "1 failed, 50 passed" in run.text


def test_make_of_a_real_build_that_fails_in_the_middle(tmp_path):
    rules = "\n".join(
        f"t{number}:\n\techo building {number} {'&& false' if number == 60 else ''}" for number in range(120)
    )
    (tmp_path / "Makefile").write_text(f"all: {' '.join(f't{number}' for number in range(120))}\n{rules}\n")
    _, run = filtered("make", "make", "-k", cwd=tmp_path)
    assert run.confidence == "Partial" and run.lines_after < 70 and "Makefile:" in run.text
    assert "t60] Error 1" in run.text
