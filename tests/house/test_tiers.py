"""The first tier stays quick: what its tests may not start (`tests/tiers.py` watches them), and not import."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.imports import ROOT
from tests.tiers import AGENT, HEAVY, Starts, is_first, serves

OF_OTHER_TIERS = (
    "tests.containers", "tests.ssh_server", "tests.postgres_server", "tests.system", "tests.smoke", "playwright",
)  # fmt: skip


def imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_no_test_of_the_first_tier_imports_what_belongs_to_another() -> None:
    wrong, seen = [], 0
    listed = subprocess.run(
        ["git", "ls-files", "tests/**test_*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for file in map(ROOT.joinpath, listed.stdout.splitlines()):
        if is_first(file):
            seen += 1
            wrong += [f"{file}: {name}" for name in imported(file) if name.startswith(OF_OTHER_TIERS)]
    assert seen > 100
    assert not wrong


@pytest.mark.parametrize("argv", [["tmux", "-V"], ["/usr/sbin/sshd", "-?"], ["podman", "ps"]])
def test_a_heavy_program_is_noticed(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Starts()
    watch.watching = True
    try:
        watch.heard("subprocess.Popen", (argv[0], argv, None, None))
        watch.heard("subprocess.Popen", (sys.executable, [sys.executable, "-c", "pass"], None, None))
    finally:
        watch.watching = False
    assert len(watch.wrong) == 1 and watch.wrong[0].split()[-1] in HEAVY


def test_two_agents_at_a_time_are_noticed(tmp_path: Path) -> None:
    (agent := tmp_path / AGENT).write_text("#!/bin/sh\necho ready\nread line\n")
    agent.chmod(0o755)
    watch = Starts()
    watch.watching = True
    try:
        with subprocess.Popen([agent, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
            assert first.stdout is not None and first.stdout.readline() == b"ready\n"
            watch.heard("subprocess.Popen", (str(agent), [str(agent)], None, None))
            first.communicate()
        watch.heard("subprocess.Popen", (str(agent), [str(agent)], None, None))
    finally:
        watch.watching = False
    assert watch.wrong == ["it runs two agents at a time"]
    assert [serves([AGENT, *rest.split()]) for rest in ("", "--verbose", "config show", "serve --port 0")] == [
        True, True, False, True,
    ]  # fmt: skip


def test_what_changed_decides_which_tiers_run() -> None:
    tiers = runpy.run_path(str(ROOT / "scripts/affected.py"))["tiers"]
    for changed, wanted in (
        ([], []), (["README.md"], ["check"]), (["acp_agent/loop/session.py", "docs/undo.md"], ["check", "test"]),
        (["acp_agent/executors/far/side.py"], ["check", "test", "test-system"]),
        (["acp_agent/protocol/v2/dialect.py"], ["check", "test", "test-v2", "test-conformance"]),
        (["kit/acp_conformance/tck.py"], ["check", "test", "test-conformance"]),
        (["tests/models/kit.py", "tests/system/undo/test_killed.py"], ["check", "test-system", "test-models"]),
    ):  # fmt: skip
        assert tiers(changed) == wanted, changed
    order = runpy.run_path(str(ROOT / "scripts/affected.py"))["ORDER"]
    assert not [each for each in order if f"\n{each}:" not in (ROOT / "Makefile").read_text(encoding="utf-8")]


CASE = '<testcase classname="tests.a" name="{}" time="{}">{}</testcase>'
CASES = [
    ("test_one", 2, ""), ("test_two", 9, "<failure/>"), ("test_three", 1, "<skipped/>"), ("test_two", 1, "<error/>"),
]  # fmt: skip


def test_the_table_of_tiers_ends_with_the_counts_and_fails_with_a_tier(tmp_path: Path) -> None:
    (tmp_path / "check.seconds").write_text("70\n")
    (tmp_path / "test.seconds").write_text("12\n")
    (tmp_path / "test.xml").write_text(f"<testsuites>{''.join(CASE.format(*each) for each in CASES)}</testsuites>")
    program = [sys.executable, str(ROOT / "scripts/tier_table.py"), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "1 passed, 1 failed, 1 skipped"
    assert "FAILED test: tests.a::test_two" in lines and "test_two 10, test_one 2" in done.stdout
    (tmp_path / "check.failed").touch()
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "1 passed, 2 failed, 1 skipped"
