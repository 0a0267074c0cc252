"""The options of `pytest_kit`, and its markers. Every run of pytest loads this where the package is installed, so it
imports nothing before the options are given."""

from __future__ import annotations

import pytest

from acp_agent.lazy import load

AREAS = ("acp_conformance.areas:AREAS", "acp_conformance.v2:AREAS_V2")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acp-conformance", "conformance of agents to ACP: --pyargs acp_conformance.pytest_kit")
    group.addoption("--acp-agent", metavar="COMMAND", default="", help="how the agent is started")
    group.addoption("--acp-profile", metavar="NAME", default="", help="how it is told of the scripted model")
    group.addoption("--acp-protocol", type=int, choices=(1, 2), default=1, help="version of the protocol")
    group.addoption("--acp-level", choices=("must", "should", "all"), default="should", help="up to which level")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("acp_agent"):
        for name in {"must", "should", "may", *load(AREAS[0]), *load(AREAS[1])}:
            config.addinivalue_line("markers", f"acp_{name}: a requirement of ACP of this level or area")
