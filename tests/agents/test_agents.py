"""The agents of scripts/install_agents.sh under the kit: what it finds is what docs/conformance.md says of them."""

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from acp_conformance.requirements import requirements
from tests.forked import COMMAND

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / "tests" / ".agents"
RESULTS = INSTALLED / "results"
SDK = INSTALLED / "python-sdk"
IDS = "([A-Z0-9, -]*?) ?"
ROW = re.compile(rf"^\| ([\w-]+) \| ([\d.]+) \| (\d+) \| (\d+) \| {IDS}\| {IDS}\|$", re.MULTILINE)
OF_EDITOR = re.compile(r"^\| ([\w-]+) \| ([\d.]+) \| (ok|FAILED|-) \| (ok|FAILED|-) \| (ok|FAILED|-) \|$", re.MULTILINE)
MARKS = {"passed": "ok", "failed": "FAILED", "not here": "-"}
SECONDS = 2400


def programs(name: str) -> Path:
    return INSTALLED / name / "node_modules" / ".bin"


def of_npm(name: str, program: str) -> list[str]:
    return ["--profile", name, "--", str(programs(name) / program)]


AGENTS: dict[str, list[str]] = {
    "acp-coder": ["--profile", "acp-coder", "--", COMMAND],
    "claude-agent-acp": of_npm("claude-agent-acp", "claude-agent-acp"), "codex-acp": of_npm("codex-acp", "codex-acp"),
    "codex-acp-2": of_npm("codex-acp-2", "codex-acp"), "gemini-cli": of_npm("gemini-cli", "gemini"),
    "opencode": of_npm("opencode", "opencode"), "pi-acp": of_npm("pi-acp", "pi-acp"),
    "python-sdk": ["--", str(SDK / "venv/bin/python"), str(SDK / "source/examples/echo_agent.py")],
    "qwen-code": of_npm("qwen-code", "qwen"),
}  # fmt: skip
"""By the first column of the table: what stands behind `acp-conformance`."""
UNSTEADY: dict[str, dict[str, str]] = {
    "codex-acp": {"TC-4": "A command that ends behind the turn stays `in_progress`, also a short one at times."},
    "gemini-cli": dict.fromkeys(
        ("LOAD-1", "LOAD-2", "LOAD-3", "LOAD-5"), "It finds no session in the minute in which it was made."
    ),
}
"""Of an agent the requirements of which runs differ, and why: another run of their checks decides."""


def table() -> dict[str, list[str]]:
    """The other columns of the page's rows."""
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    return {name: columns for name, *columns in ROW.findall(text.partition("\n## Results\n")[2])}


def outcomes(name: str, *only: str, level: str = "must") -> dict[str, str]:
    """Of a run, by requirement. The report, with the lines of what failed, stays in `RESULTS`."""
    RESULTS.mkdir(exist_ok=True)
    report = RESULTS / f"{name}{'.again' if only else ''}.json"
    options = [word for id_ in only for word in ("--only", id_)]
    ran = subprocess.run(
        [COMMAND, "conformance", "--level", level, "--report", "json", str(report), *options, *AGENTS[name]],
        env={**os.environ, "PATH": f"{programs(name)}:{programs('node')}:{os.environ['PATH']}"}, capture_output=True,
        text=True, timeout=SECONDS,
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stderr
    return {each["id"]: each["outcome"] for each in json.loads(report.read_text())["results"]}


def row(found: dict[str, str]) -> tuple[str, ...]:
    """As the table has it, without name and version; lines of the wire may break what is no MUST, too."""
    musts = [id_ for id_, each in requirements().items() if id_ in found and each.level == "must"]
    counts = Counter(found[id_] for id_ in musts)
    failed = [id_ for id_ in musts if found[id_] == "failed"]
    starred = [", ".join(id_ for id_ in failed if requirements()[id_].implied is implied) for implied in (False, True)]
    return (str(counts["passed"]), str(counts["not here"]), *starred)


def version(name: str) -> str:
    if name == "acp-coder":
        return subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    return re.split("@|==", (INSTALLED / name / ".installed").read_text().strip())[-1]


def test_the_table_has_the_agents_that_are_installed():
    assert {name: version(name) for name in AGENTS} == {name: row[0] for name, row in table().items()}


@pytest.mark.parametrize("name", AGENTS)
def test_the_table_says_what_a_run_says(name: str):
    _, *said = table()[name]
    found = outcomes(name)
    failed = {id_ for column in row(found)[2:] for id_ in column.split(", ")}
    differ = failed ^ {id_ for column in said[2:] for id_ in column.split(", ")}
    if unsteady := sorted(differ & UNSTEADY.get(name, {}).keys()):
        found |= outcomes(name, *unsteady)
    assert list(row(found)) == said, f"look at the lines in {RESULTS / name}.json"


def of_editor() -> dict[str, list[str]]:
    """The other columns of the rows about unsaved text, files and terminals."""
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    return {
        name: columns for name, *columns in OF_EDITOR.findall(text.partition("\n### What they ask of the editor\n")[2])
    }


@pytest.mark.parametrize("name", of_editor())
def test_what_is_said_of_unsaved_text_files_and_terminals_is_what_a_run_says(name: str):
    asked = "FS-2", "FS-3", "TERM-3"
    found = outcomes(name, *asked, level="should")
    assert [version(name), *(MARKS[found[id_]] for id_ in asked)] == of_editor()[name]
