"""The kit as tests of pytest, run as its users do."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SMALL = shlex.join([sys.executable, str(HERE / "small_agent.py")])
KIT = ("--pyargs", "acp_conformance.pytest_kit")


def ran(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "--strict-markers", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    """A profile of an agent with a fault and without a known tool that reads."""
    text = (HERE / "small.toml").read_text()
    file = tmp_path / "faulty.toml"
    file.write_text(text.partition("[tools.read]")[0].replace("[environment]", '[environment]\nFAULT = "NEW-3"'))
    return str(file)


def test_each_check_is_a_test_of_its_name(tmp_path: Path, faulty: str) -> None:
    agent = ("--acp-agent", SMALL, "--acp-profile", faulty)
    status, said = ran(tmp_path, *KIT, *agent, "-v", "-k", "NEW-3 or LIST-1 or FS-2")
    assert status == 1, said
    for words in (
        "test_requirement[NEW-3] FAILED", "[LIST-1] PASSED", "[FS-2] SKIPPED", "1 failed, 1 passed, 1 skipped",
    ):  # fmt: skip
        assert words in said, said
    assert "NEW-3: `cwd` must be absolute" in said and "was answered with a result, not an error" in said
    assert '"method": "session/new"' in said or '"method":"session/new"' in said  # The wire.


def test_markers_choose_areas_and_levels(tmp_path: Path) -> None:
    agent = ("--acp-agent", SMALL, "--collect-only", "-q")
    _, all_ = ran(tmp_path, *KIT, *agent, "--acp-level", "all")
    _, some = ran(tmp_path, *KIT, *agent, "-m", "acp_options and acp_must")
    assert "[NEW-10]" in all_ and "[CFG-2]" in all_
    assert "[CFG-2]" in some and "[NEW-10]" not in some and "[NEW-1]" not in some
    _, other = ran(tmp_path, *KIT, *agent, "--acp-protocol", "2", "-m", "acp_questions")
    assert "[V2-PERM-1]" in other and "[V2-INIT-2]" not in other and "[PERM-2]" not in other


@pytest.mark.parametrize(("arguments", "words"), [
    (KIT, "which agent? --acp-agent COMMAND"),
    ((*KIT, "--acp-agent", "kit-no-such-command", "-k", "NEW-1"), "--acp-agent: kit-no-such-command: there is no such"),
    ((*KIT, "--acp-agent", SMALL, "--acp-profile", "nobody", "-k", "NEW-1"), "there is no profile 'nobody'"),
])  # fmt: skip
def test_wrong_usage_is_said(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    status, said = ran(tmp_path, *arguments)
    assert status != 0 and words in said, said


def test_other_runs_of_pytest_load_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\n"
        "def test_other():\n"
        "    loaded = {name for name in sys.modules if name.startswith('acp_conformance.')}\n"
        "    assert loaded == {'acp_conformance.pytest_options'} and 'anyio' not in sys.modules\n"
    )
    status, said = ran(tmp_path, "-p", "no:anyio", "-p", "no:hypothesispytest")
    assert status == 0 and "1 passed" in said, said
