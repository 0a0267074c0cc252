"""The first tier stays quick: what its tests may not start (`tests/tiers.py` watches them), and not import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import AGENT, HEAVY, TESTS, Starts, is_first, serves

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
    for file in TESTS.rglob("test_*.py"):
        if "node_modules" in file.parts or any(part.startswith(".") for part in file.relative_to(TESTS).parts):
            continue
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
    agent = tmp_path / AGENT
    agent.write_text("#!/bin/sh\necho ready\nread line\n")
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
