"""The kit asks clients: a small one passes all of it, and with one fault fails exactly the question of that fault."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.protocol.profiles import UNNAMED, Quirks
from acp_agent.protocol.transports import memory_pair
from acp_agent.testing.fake_editor import FakeEditor
from acp_conformance.clients.asking_agent import AskingAgent, asked
from acp_conformance.clients.findings import Findings, profile_line
from acp_conformance.kit_run import Result
from tests.conformance.small_client import SmallClient
from tests.forked import COMMAND

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
SMALL = [sys.executable, str(HERE / "small_client.py")]
SDK = HERE.parents[1] / "editors/vscode/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js"
ALL = [each.requirement.id for each in asked()]
FACT = "CINIT-6"
"""The one that no client fails."""

ALSO: dict[str, set[str]] = {"CFS-5": {"CFS-7", "CFS-8"}, "CRPC-1": {"CINIT-5"}, "CTERM-2": {"CTERM-6"}}
"""Questions that a fault breaks besides its own, since one requirement rests on the other."""
ALONE = {"CTERM-1"}
"""Whose faults let most others hang."""
LOSES = {"CRPC-5", "CRPC-7", "CRPC-9", "CUPD-1", "CUPD-2"}
"""Whose faults end the client: what is asked later has no answer."""
HANGS = {"CRPC-1", "CRPC-6", "CRPC-8", "CRPC-10", "CTERM-1", "CTERM-10", "CTERM-12"}
"""Whose faults are found by waiting in vain."""


async def results(tmp_path: Path, fault: str = "", *, only: tuple[str, ...] = (), **options: Any) -> dict[str, Result]:
    """By id; what the agent found about a client with that fault."""
    (cwd := tmp_path / "project").mkdir()
    findings = Findings(tmp_path / "findings")
    ours, theirs = memory_pair()
    agent = AskingAgent(theirs, findings, only=only, seconds=options.pop("seconds", 3.0 if fault in HANGS else 10.0))
    client = SmallClient(ours, cwd, fault, **options)
    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.serve)
            try:
                await client.prompt()
            except Exception:
                if fault not in LOSES:
                    raise
    assert list(cwd.iterdir()) == []
    findings.read()
    missing = findings.missing([id_ for id_ in ALL if not only or id_ in only])
    return findings.results | {each.requirement.id: each for each in missing}


def failed(found: dict[str, Result]) -> dict[str, str]:
    return {id_: each.why for id_, each in found.items() if each.outcome == "failed"}


async def test_a_client_without_faults_passes_everything(tmp_path: Path) -> None:
    found = await results(tmp_path)
    assert failed(found) == {} and [id_ for id_, each in found.items() if each.outcome == "not here"] == [FACT]
    assert [*found] == ALL and all(each.lines for id_, each in found.items() if not id_.startswith("CINIT"))
    assert profile_line("Pear", [*found.values()]) == '"pear": Quirks(),'


@pytest.mark.parametrize("id_", sorted(set(ALL) - {FACT}))
async def test_a_fault_fails_exactly_the_question_of_its_name(id_: str, tmp_path: Path) -> None:
    """The list is that of the questions, so none is without a fault."""
    found = await results(tmp_path, id_, only=(id_,) if id_ in ALONE else ())
    assert failed(found).keys() == {id_} | ALSO.get(id_, set()), failed(found)


async def test_what_is_not_offered_is_asked_once_and_is_no_failure(tmp_path: Path) -> None:
    """Served, refused, or left unanswered: all of it is told."""
    options: Any = {"fs_write": False, "elicitation": None, "unknown_never_answer": True}
    found = await results(tmp_path, only=(FACT, "CFS-1", "CFS-5", "CELIC-1"), seconds=1.0, **options)
    assert found[FACT].outcome == "passed"
    assert found[FACT].why == "`fs/write_text_file`: no answer; `elicitation/create`: no answer"
    assert found["CFS-1"].outcome == "passed"
    assert (found["CFS-5"].outcome, found["CFS-5"].why) == ("not here", "`fs.writeTextFile` is not offered")
    assert found["CELIC-1"].outcome == "not here"


async def test_a_client_that_answers_nothing_is_not_asked_further(tmp_path: Path) -> None:
    nothing: Any = {"fs_read": False, "fs_write": False, "terminal": False, "unknown_never_answer": True}
    found = await results(tmp_path, only=("CRPC-2", "CRPC-3", "CUPD-1"), seconds=0.3, **nothing)
    assert failed(found) == {"CRPC-2": "`kit/unknown` was not answered within 0.3 s"}
    assert found["CUPD-1"].why == "the client answers no request any more"


async def test_the_profile_corrects_what_fails(tmp_path: Path) -> None:
    found = await results(tmp_path, "CTERM-5", only=("CTERM-5", "CFS-5"))
    told = profile_line("CodeCompanion.nvim", [*found.values()])
    row = eval(f"{{{told}}}", {"Quirks": Quirks, "UNNAMED": UNNAMED})
    assert row["codecompanion.nvim"] == Quirks(terminals=False, why="CTERM-5: `exit 3` ended with {'exitCode': 0}")
    assert profile_line("", []) == "UNNAMED: Quirks(),"


async def test_a_person_sends_a_prompt_and_reads_the_report(tmp_path: Path) -> None:
    async with FakeEditor.spawn([COMMAND, "conformance", "agent", "--only", "CFS-1", "--only", "CPERM-1"]) as editor:
        await editor.start()
        await editor.new_session(tmp_path)
        for _ in range(2):
            assert (await editor.prompt("go")).stop_reason == "end_turn"
        assert editor.text().count("- ok      CFS-1    MUST") == 2
        assert "2 passed, 0 failed, 0 not here\n\n```python\n" in editor.text()


def ran(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "conformance", "client", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environ})


@pytest.mark.parametrize("place", [(), ("{agent}",)])
def test_the_command_tells_what_fails_and_writes_a_report(place: tuple[str, ...], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    only = ("--only", "CFS-1", "--only", "CFS-2", "--profile-line", "--report", "json", str(report))
    ended = ran(*only, "--", *SMALL, str(tmp_path), *place, FAULT="CFS-2")
    assert ended.returncode == 1, ended.stderr
    assert "FAILED  CFS-2" in ended.stdout
    assert '1 passed, 1 failed (1 MUST), 0 not here\n"fake-editor": Quirks(),\n' in ended.stdout
    document = json.loads(report.read_text())
    assert document["version"] == "fake-editor 1"
    told = {each["id"]: each for each in document["results"]}
    assert (told["CFS-1"]["outcome"], told["CFS-2"]["outcome"]) == ("passed", "failed")
    assert any('"fs/read_text_file"' in line for line in told["CFS-1"]["wire"])


def test_a_client_that_ends_during_a_question_fails_it(tmp_path: Path) -> None:
    ended = ran("--only", "CUPD-2", "--only", "CPERM-2", "--", *SMALL, str(tmp_path), FAULT="CUPD-2")
    assert ended.returncode == 1, ended.stderr
    assert "FAILED  CUPD-2" in ended.stdout and "0 passed, 1 failed (1 MUST), 1 not here" in ended.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("arguments", "status", "words"), [
    ((), 2, "which client?"), (("--", "kit-no-such-command"), 2, "there is no such command"),
    (("--only", "CFS-0", "--", "true"), 2, "there is no question 'CFS-0'"),
    (("--report", "xml", "file", "--", "true"), 2, "--report is one of json, junit, html"),
    (("--", "sh", "-c", "echo I am lost"), 1, "the client started no agent, or did not initialize it"),
])  # fmt: skip
def test_wrong_usage_is_said(arguments: tuple[str, ...], status: int, words: str) -> None:
    ended = ran(*arguments)
    assert (ended.returncode, words in ended.stderr) == (status, True), ended.stderr


@pytest.mark.skipif(
    not SDK.exists() or not shutil.which("node"), reason="the TypeScript SDK is not installed (make check)"
)
def test_a_client_of_the_typescript_sdk(tmp_path: Path) -> None:
    """What fails is what `sdk_client.mjs`, a client for tests, leaves out; the SDK's part passes."""
    plan = {"sdk": str(SDK), "command": "{agent}", "cwd": str(tmp_path), "prompts": [{"text": "go"}]}
    report = tmp_path / "report.json"
    client = HERE.parent / "editors" / "sdk_client.mjs"
    ended = ran("--report", "json", str(report), "--", "node", str(client), json.dumps(plan))
    assert ended.returncode == 1, ended.stderr
    told = {each["id"]: each["outcome"] for each in json.loads(report.read_text())["results"]}
    files = {"CFS-2", "CFS-4", "CFS-8", "CFS-9"}
    terminals = {"CTERM-7", "CTERM-10", "CTERM-11", "CTERM-12", "CTERM-13"}
    assert {id_ for id_, outcome in told.items() if outcome == "failed"} == files | terminals
    assert {id_ for id_, outcome in told.items() if id_.startswith("CRPC") and outcome != "passed"} <= {"CRPC-5"}
