"""The kit checks itself: a small agent passes all of it, and with one fault fails exactly the check of that fault."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from acp_agent.commands.extensions.completions import candidates
from acp_agent.commands.parser import build_parser
from acp_agent.commands.parser import run as run_command
from acp_conformance.kit_run import LEVELS, Result, chosen, run
from acp_conformance.profiles import Profile, profile
from acp_conformance.requirements import V2, requirements
from acp_conformance.tck import DIFFERS
from acp_conformance.trial import CHECKS
from tests.forked import COMMAND, forked_command
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
SMALL = [sys.executable, str(HERE / "small_agent.py")]

OWN = [id_ for id_ in CHECKS if not id_.startswith(V2)]
ALSO = {"INIT-1": {"RPC-1"}, "PLAN-1": {"PLAN-2"}, "PR-13": {"CAN-6"}, "TC-2": {"UPD-1"}, "TC-12": {"TR-1"}}
"""What a fault breaks besides its own check: capabilities that are no object and a kind that does not exist are against
the schema, too; who gets documents gets no checklist; another session is disturbed only if turns run at once; output of
a command on stdout is no message."""


def forked(script: str = SMALL[1]) -> list[str]:
    """The agents of a run share a process that has imported everything."""
    return [forked_command(script)]


def small(fault: str = "") -> Profile:
    about = profile(str(HERE / "small.toml"))
    return Profile(name=about.name, api=about.api, environment={**about.environment, "FAULT": fault}, tools=about.tools)


def failed(results: list[Result]) -> dict[str, str]:
    return {each.requirement.id: each.why for each in results if each.outcome == "failed"}


async def test_an_agent_without_faults_passes_everything() -> None:
    results = await run(forked(), small(), chosen(levels=LEVELS["all"]))
    assert failed(results) == {} and [each.requirement.id for each in results if each.outcome == "not here"] == []
    assert len(results) == len(OWN)


@pytest.mark.parametrize("id_", sorted(OWN))
async def test_a_fault_fails_the_check_of_its_name(id_: str) -> None:
    """The list is that of the checks, so none is without a fault. At night it meets all checks, and fails no other."""
    wanted = {id_} | ALSO.get(id_, set())
    checks = [CHECKS[each] for each in OWN if NIGHTLY or each in wanted]
    results = await run(forked(), small(id_), checks)
    assert set(found := failed(results)) == wanted, found


@pytest.mark.parametrize(("id_", "area"), [
    ("RPC-3", "framing"), ("INIT-4", "starting"), ("NEW-3", "sessions"), ("PR-5", "turns"), ("TC-3", "calls"),
    ("FS-2", "client"), ("CFG-2", "options"), ("CAN-3", "life"),
])  # fmt: skip
async def test_a_fault_breaks_no_other_check_of_its_area(id_: str, area: str) -> None:
    results = await run(forked(), small(id_), chosen([area], levels=LEVELS["all"]))
    assert set(found := failed(results)) == {id_}, found


async def test_a_second_fault_of_a_check_is_found() -> None:
    for id_, where, why in (
        ("TC-3", "behind a load", "a new call has the id of a replayed one"),
        ("PR-10", "in silence", "the model's server refused, nothing was said, and it ended with"),
    ):
        assert why in failed(await run(forked(), small(f"{id_} {where}"), [CHECKS[id_]]))[id_]


async def test_what_is_left_open_is_no_fault() -> None:
    for what, ids in (
        ("no capabilities", ["INIT-1", "LOAD-1"]), ("status told again", ["TC-4", "TC-3"]), ("LOAD-1", ["TC-3"]),
        ("gives way", ["PR-12"]), ("waits for another answer", ["PERM-8"]),
        ("asks again and again", ["STOP-2", "STOP-4"]), ("listed late", ["LIST-2", "LIST-3", "CLOSE-4"]),
    ):  # fmt: skip
        assert failed(await run(forked(), small(what), [CHECKS[id_] for id_ in ids])) == {}, what


async def test_an_agent_that_wants_a_login_fails_no_check_for_that() -> None:
    results = await run(forked(), small("wants a login"), chosen(["sessions"], levels=LEVELS["all"]))
    assert failed(results) == {}
    assert {each.why for each in results if each.requirement.id in ("NEW-1", "NEW-3", "NEW-7")} == {
        "it needs a login; give a --profile"
    }


async def test_this_agent_keeps_all_of_it() -> None:
    results = await run([forked_command()], profile("acp-coder"), chosen(levels=LEVELS["all"]))
    assert failed(results) == {} and [each.requirement.id for each in results if each.outcome == "not here"] == []


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "conformance", *arguments], capture_output=True, text=True, timeout=120)


def test_the_command_tells_what_fails_and_writes_a_report(tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.toml"
    faulty.write_text((HERE / "small.toml").read_text().replace("[environment]", '[environment]\nFAULT = "NEW-3"'))
    for kind in ("json", "junit", "html"):
        report = str(tmp_path / kind)
        ended = ran(
            "--only", "NEW-3", "--only", "NEW-1", "--profile", str(faulty), "--report", kind, report, "--", *SMALL
        )
        assert ended.returncode == 1, ended.stderr
        assert "FAILED  NEW-3" in ended.stdout and "1 passed, 1 failed (1 MUST), 0 not here" in ended.stdout
    told = {each["id"]: each for each in json.loads((tmp_path / "json").read_text())["results"]}
    assert told["NEW-1"]["outcome"] == "passed" and told["NEW-3"]["outcome"] == "failed"
    assert "was answered with a result, not an error" in told["NEW-3"]["why"]
    assert any('"session/new"' in line for line in told["NEW-3"]["wire"])
    suite = ElementTree.fromstring((tmp_path / "junit").read_text())
    assert (suite.get("tests"), suite.get("failures"), len(suite.findall("testcase/failure"))) == ("2", "1", 1)
    assert "<h1>ACP conformance of" in (tmp_path / "html").read_text()


TCK = shlex.join([sys.executable, str(HERE / "small_tck.py")])


def ran_with_tck(tmp_path: Path, says: str, *more: str) -> subprocess.CompletedProcess[str]:
    about = tmp_path / "small.toml"
    about.write_text((HERE / "small.toml").read_text().replace("[environment]", f'[environment]\nTCK = "{says}"'))
    checks = ("--only", "NEW-1", "--only", "LOAD-3", "--only", "INIT-2")
    return ran(*checks, "--profile", str(about), "--tck", TCK, *more, "--", *SMALL)


def test_another_kit_stands_beside_it(tmp_path: Path) -> None:
    ended = ran_with_tck(tmp_path, "PASS", "--report", "json", str(tmp_path / "json"))
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "[ACP-INIT-002]" in ended.stdout  # Its id, with the check that means the same.
    words = " ".join(ended.stdout.partition("acp-tck 0.1.0\n")[2].split())
    assert "PASS ACP-CANCEL-001 CAN-1 PASS ACP-INIT-002 INIT-2 ok FAIL" in words
    assert "FAIL ACP-LOAD-002 LOAD-3 ok DIFFERS (stricter than the specification:" in words
    assert "PASS ACP-PROMPT-001 PR-1 (ours also looks for a second answer)" in words
    assert "PASS ACP-STDERR-001 (ours has no check for this)" in words
    rows = {row["id"]: row for row in json.loads((tmp_path / "json").read_text())["acp-tck"]["requirements"]}
    assert (rows["ACP-SESSION-001"]["ours"], rows["ACP-SESSION-001"]["beside"]) == ("NEW-1", "NEW-1 ok")


@pytest.mark.parametrize("kind", ["junit", "html"])
def test_what_another_kit_fails_counts(tmp_path: Path, kind: str) -> None:
    """Unless it is stricter than the specification."""
    ended = ran_with_tck(tmp_path, "FAIL", "--report", kind, str(tmp_path / "report"))
    assert (ended.returncode, "NEW-1 ok DIFFERS" in ended.stdout) == (1, True), ended.stderr
    report = (tmp_path / "report").read_text()
    if kind == "html":
        assert "<h2>acp-tck 0.1.0</h2>" in report and "The text of ACP-LOAD-002." in report
        return
    suite = ElementTree.fromstring(report)
    failed = [case.get("name", "") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["ACP-SESSION-001 The text of ACP-SESSION-001."]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("9", "1", "1")


def test_the_ids_of_another_kit_are_named_once_and_it_has_to_write_a_report(tmp_path: Path) -> None:
    ended = ran_with_tck(tmp_path, "silent")
    assert (ended.returncode, "wrote no report, and said:\nnothing to report" in ended.stderr) == (2, True)
    named = [id_ for check in CHECKS.values() for id_ in check.tck]
    assert len(named) == len(set(named)) and not {*named} & DIFFERS.keys()
    assert {id_ for id_, _ in DIFFERS.values()} <= requirements().keys()


def test_without_a_profile_what_needs_a_model_is_left_out() -> None:
    ended = ran("--only", "PR-3", "--only", "NEW-1", "--", *SMALL)
    assert ended.returncode == 0
    assert "it is not known how to tell this agent of a model server; give a --profile" in ended.stdout


@pytest.mark.parametrize(("arguments", "words"), [
    ((), "which agent?"), (("--", "kit-no-such-command"), "there is no such command"),
    (("--only", "wings", "--", *SMALL), "there is no area or check 'wings'"),
    (("--profile", "nobody", "--", *SMALL), "there is no profile 'nobody'"),
    (("--tck", "kit-no-such-command", "--", *SMALL), "kit-no-such-command: there is no such command"),
    (("--report", "xml", "file", "--", *SMALL), "--report is one of json, junit, html"),
])  # fmt: skip
def test_wrong_usage_is_said(arguments: tuple[str, ...], words: str) -> None:
    ended = ran(*arguments)
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr


def test_without_its_package_it_says_which(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    assert run_command(["conformance", "--", *SMALL]) == 2
    assert "`pip install jsonschema-rs`" in capsys.readouterr().err


def test_where_the_kit_is_not_installed_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "acp_conformance", None)
    assert run_command(["conformance", "--level", "must", "--", *SMALL]) == 2
    said = capsys.readouterr().err
    assert said.startswith("acp-coder: the conformance kit is a package of its own. `uvx acp-conformance -- COMMAND` ")
    assert [word for word, _ in candidates(build_parser(), ["conformance", ""])] == ["client", "agent"]
    assert [word for word, _ in candidates(build_parser(), ["conformance", "--l"])] == []
