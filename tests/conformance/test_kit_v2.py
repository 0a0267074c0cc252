"""The kit in v2 checks itself, as in v1."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acp_agent.conformance.kit_run import chosen, run
from acp_agent.conformance.profiles import profile
from acp_agent.conformance.trial import CHECKS
from tests.conformance.test_kit import SMALL, failed, ran, small
from tests.forked import COMMAND

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
SMALL_V2 = [sys.executable, str(HERE / "small_agent_v2.py")]
ALL = chosen(levels=("must", "should", "may"), version=2)
NOT_OURS = {"V2-AUTH-3", "V2-AUTH-5", "V2-PERM-3", "V2-CFG-3"}
"""What this agent does not offer: where no login is needed there is none; it asks about calls, has no such option."""


async def test_an_agent_without_faults_passes_everything() -> None:
    results = await run(SMALL_V2, small(), ALL)
    assert failed(results) == {}
    assert [each.requirement.id for each in results if each.outcome == "not here"] == []
    assert len(results) == len(ALL)


@pytest.mark.parametrize("id_", [each.id for each in ALL])
async def test_a_fault_is_found_by_the_check_of_its_name_alone(id_: str) -> None:
    """The list is that of the checks, so none is without a fault."""
    results = await run(SMALL_V2, small(id_), [CHECKS[id_]])
    assert set(failed(results)) == {id_}, failed(results)


async def test_a_fault_breaks_no_other_check() -> None:
    for id_, area in (("V2-SESS-6", "sessions"), ("V2-TC-4", "calls"), ("V2-CAN-3", "life"), ("V2-CFG-2", "options")):
        results = await run(SMALL_V2, small(id_), chosen([area], version=2))
        assert set(failed(results)) == {id_}, failed(results)


async def test_this_agent_keeps_all_of_it() -> None:
    results = await run([COMMAND], profile("acp-coder-v2"), ALL)
    assert failed(results) == {}
    assert {each.requirement.id for each in results if each.outcome == "not here"} == NOT_OURS


def test_the_command_asks_for_the_version() -> None:
    about = ("--protocol", "2", "--profile", str(HERE / "small.toml"))
    ended = ran(*about, "--only", "V2-INIT-4", "--", *SMALL_V2)
    assert (ended.returncode, "ok      V2-INIT-4" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    ended = ran(*about, "--", *SMALL)
    assert (ended.returncode, ended.stdout) == (1, "The agent speaks version 1 of the protocol, not 2.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "INIT-2"), "there is no area or check 'INIT-2'; areas are starting, sessions, turns"),
        (("--tck", sys.executable), "--tck is for version 1"),
    ],
)
def test_wrong_usage_is_said(arguments: tuple[str, ...], words: str) -> None:
    ended = ran("--protocol", "2", *arguments, "--", *SMALL_V2)
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr
