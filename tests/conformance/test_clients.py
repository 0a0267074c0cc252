"""The kit asks clients: a small one passes all of it, and with one fault fails exactly the question of that fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.conformance.clients.asking_agent import AskingAgent, asked
from acp_agent.conformance.clients.findings import Client, Findings, profile_line
from acp_agent.conformance.kit_run import Result
from acp_agent.protocol.transports import memory_pair
from tests.conformance.small_client import SmallClient

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
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
    cwd = tmp_path / "project"
    cwd.mkdir()
    findings = Findings(tmp_path / "findings")
    ours, theirs = memory_pair()
    seconds = options.pop("seconds", 1.0 if fault in HANGS else 10.0)
    agent = AskingAgent(theirs, findings, only=only, seconds=seconds)
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
    seen = Client()
    for finding in findings.news():
        seen.take(finding)
    rest = seen.rest([id_ for id_ in ALL if not only or id_ in only])
    return seen.results | {each.requirement.id: each for each in rest}


def failed(found: dict[str, Result]) -> dict[str, str]:
    return {id_: each.why for id_, each in found.items() if each.outcome == "failed"}


async def test_a_client_without_faults_passes_everything(tmp_path: Path) -> None:
    found = await results(tmp_path)
    assert failed(found) == {}
    assert [id_ for id_, each in found.items() if each.outcome == "not here"] == [FACT]
    assert [*found] == ALL
    assert all(each.lines for id_, each in found.items() if not id_.startswith("CINIT"))
    assert profile_line("Pear", [*found.values()]) == '"pear": Quirks(),'


@pytest.mark.parametrize("id_", sorted(set(ALL) - {FACT}))
async def test_a_fault_fails_exactly_the_question_of_its_name(id_: str, tmp_path: Path) -> None:
    """The list is that of the questions, so none is without a fault."""
    found = await results(tmp_path, id_, only=(id_,) if id_ in ALONE else ())
    assert failed(found).keys() == {id_} | ALSO.get(id_, set()), failed(found)
