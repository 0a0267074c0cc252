"""Fixtures and hooks for all tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from acp_agent.config import local_servers
from acp_agent.executors.default_signals import default_signals
from acp_agent.testing.fake_editor import FakeEditor
from tests import containers
from tests.postgres_server import MISSING, PostgresServer

default_signals()
"""Nothing depends on who started the tests, as under `nohup`, cron or `cmd &` in a script."""

pytest_plugins = ["acp_agent.testing.plugin"]

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
"""A busy machine is slow; no test fails by the time that an example or its making takes."""

FakeEditor.schema_file = Path(__file__).parents[1] / "schemas" / "acp-v1.schema.json"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def ended_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is ended where its `with` block fails: waiting for one that serves would never end."""
    leave = subprocess.Popen.__exit__

    def ended(self: subprocess.Popen[Any], kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        leave(self, kind, *rest)

    monkeypatch.setattr(subprocess.Popen, "__exit__", ended)


@pytest.fixture(autouse=True)
def no_local_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model servers that happen to run on this machine are not found."""
    monkeypatch.setattr(local_servers, "LOCAL", ())


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if MISSING:
        pytest.skip(MISSING)
    server = PostgresServer()
    yield server
    server.remove()


def pytest_sessionfinish() -> None:
    containers.remove_all()
