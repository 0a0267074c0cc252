"""The kit as tests of pytest, one for each check, named by its id:
`pytest --pyargs acp_conformance.pytest_kit --acp-agent COMMAND`."""

from __future__ import annotations

import os
import shlex

import anyio
import pytest

from acp_agent.errors import UsageError
from acp_conformance.kit_command import program
from acp_conformance.kit_run import AREAS_OF, LEVELS, chosen, run
from acp_conformance.profiles import Profile, profile
from acp_conformance.trial import Check


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = metafunc.config
    if not config.getoption("acp_agent"):
        raise pytest.UsageError("which agent? --acp-agent COMMAND")
    version = config.getoption("acp_protocol")
    areas = {module.__name__: name for name, module in AREAS_OF[version].items()}
    checks = [
        pytest.param(
            check,
            id=check.id,
            marks=(
                getattr(pytest.mark, f"acp_{check.requirement.level}"),
                getattr(pytest.mark, f"acp_{areas[check.run.__module__]}"),
            ),
        )
        for check in chosen(levels=LEVELS[config.getoption("acp_level")], version=version)
    ]
    metafunc.parametrize("check", checks)


@pytest.fixture(scope="session")
def acp_agent_command(pytestconfig: pytest.Config) -> list[str]:
    try:
        return program(shlex.split(pytestconfig.getoption("acp_agent")), os.environ)
    except UsageError as error:
        raise pytest.UsageError(f"--acp-agent: {error}") from error


@pytest.fixture(scope="session")
def acp_agent_profile(pytestconfig: pytest.Config) -> Profile:
    name = pytestconfig.getoption("acp_profile")
    try:
        return profile(name) if name else Profile()
    except UsageError as error:
        raise pytest.UsageError(f"--acp-profile: {error}") from error


def test_requirement(
    check: Check, acp_agent_command: list[str], acp_agent_profile: Profile, pytestconfig: pytest.Config
) -> None:
    """What lines of the wire break besides, on these levels, fails it, too."""
    results = anyio.run(run, acp_agent_command, acp_agent_profile, [check])
    levels = LEVELS[pytestconfig.getoption("acp_level")]
    for result in sorted(results, key=lambda each: each.requirement.id != check.id):
        row = result.requirement
        if result.outcome == "failed" and (row.id == check.id or row.level in levels):
            wire = "\n".join(result.lines)
            pytest.fail(f"{row.id}: {row.sentence}\n{result.why}\n\n{wire}", pytrace=False)
        if result.outcome == "not here" and len(results) == 1:
            pytest.skip(result.why)
