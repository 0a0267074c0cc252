"""The kit in v2 checks itself, as in v1."""

import sys
from pathlib import Path
from typing import Any

import pytest

from acp_conformance.kit_run import chosen, run
from acp_conformance.profiles import profile
from acp_conformance.trial import CHECKS
from acp_conformance.v2.v2_wire import WireV2
from tests.conformance.test_kit import SMALL, failed, forked, ran, small
from tests.forked import forked_command

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
SMALL_V2 = [sys.executable, str(HERE / "small_agent_v2.py")]
ALL = chosen(levels=("must", "should", "may"), version=2)


def asks(params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}


def says(kind: str, **update: Any) -> dict[str, Any]:
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **update}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


NOT_OURS = {"V2-AUTH-3", "V2-AUTH-5", "V2-PERM-3", "V2-CFG-3"}
"""What this agent does not offer: where no login is needed there is none; it asks about calls, has no such option."""


async def test_an_agent_without_faults_passes_everything() -> None:
    results = await run(forked(SMALL_V2[1]), small(), ALL)
    assert failed(results) == {} and [each.requirement.id for each in results if each.outcome == "not here"] == []
    assert len(results) == len(ALL)


@pytest.mark.parametrize("id_", [each.id for each in ALL])
async def test_a_fault_is_found_by_the_check_of_its_name_alone(id_: str) -> None:
    """The list is that of the checks, so none is without a fault."""
    results = await run(forked(SMALL_V2[1]), small(id_), [CHECKS[id_]])
    assert set(failed(results)) == {id_}, failed(results)


async def test_a_fault_breaks_no_other_check() -> None:
    for id_, area in (("V2-SESS-6", "sessions"), ("V2-TC-4", "calls"), ("V2-CAN-3", "life"), ("V2-CFG-2", "options")):
        results = await run(forked(SMALL_V2[1]), small(id_), chosen([area], version=2))
        assert set(failed(results)) == {id_}, failed(results)


async def test_this_agent_keeps_all_of_it() -> None:
    results = await run([forked_command()], profile("acp-coder-v2"), ALL)
    assert failed(results) == {} and {each.requirement.id for each in results if each.outcome == "not here"} == NOT_OURS


FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
STEP = {"content": "a", "priority": "low", "status": "pending"}


@pytest.mark.parametrize(("line", "breaks"), [
    (asks({**FORM, "sessionId": "s"}), ""), (asks({**FORM, "requestId": 1}), ""),
    (asks({**FORM, "requestId": 2}), "V2-ELIC-1: it names request 2"),
    (asks({**FORM, "sessionId": "s", "mode": "url", "url": "https://a.example", "elicitationId": "e"}), "V2-ELIC-1"),
    (asks({**FORM, "sessionId": "s", "requestedSchema": {"type": "object"}}), "V2-ELIC-1"),
    (says("plan", entries=[STEP]), "V2-PLAN-1: there is no update"),
    (says("plan_update", plan={"type": "items", "entries": [STEP]}), "V2-PLAN-1"),
    (says("plan_update", plan={"type": "items", "planId": "p", "entries": [STEP]}), ""),
    (says("plan_update", plan={"type": "items", "planId": "p", "entries": [{**STEP, "status": "_own"}]}), ""),
    (says("plan_update", plan={"type": "items", "planId": "p", "entries": [{**STEP, "priority": "x"}]}), "V2-PLAN-2"),
    (says("session_info_update", title=None, updatedAt="2026-01-01T00:00:00+01:00"), ""),
    (says("session_info_update", updatedAt="2026-01-01T00:00:00"), "V2-INFO-1"),
    (says("usage_update", used=1), "V2-USE-1"), (says("notice", severity="info", title=""), "V2-NOTE-1"),
    (says("notice", severity="_own", title="a"), ""), (says("compaction_update", compactionId="c"), "V2-COMP-1"),
])  # fmt: skip
def test_lines_that_no_tool_leads_to_are_held_against_their_rules(line: dict[str, Any], breaks: str) -> None:
    wire = WireV2()
    offers = {"protocolVersion": 2, "capabilities": {"elicitation": {"form": {}}}}
    list(wire.check("to_agent", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": offers}))
    found = list(wire.check("from_agent", line))
    assert len(found) == (1 if breaks else 0), found
    assert not found or found[0].startswith(breaks)


def test_the_command_asks_for_the_version() -> None:
    about = ("--protocol", "2", "--profile", str(HERE / "small.toml"))
    ended = ran(*about, "--only", "V2-INIT-4", "--", *SMALL_V2)
    assert (ended.returncode, "ok      V2-INIT-4" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    ended = ran(*about, "--", *SMALL)
    assert (ended.returncode, ended.stdout) == (1, "The agent speaks version 1 of the protocol, not 2.\n")


@pytest.mark.parametrize(("arguments", "words"), [
    (("--only", "INIT-2"), "there is no area or check 'INIT-2'; areas are starting, sessions, turns"),
    (("--tck", sys.executable), "--tck is for version 1"),
])  # fmt: skip
def test_wrong_usage_is_said(arguments: tuple[str, ...], words: str) -> None:
    ended = ran("--protocol", "2", *arguments, "--", *SMALL_V2)
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr
