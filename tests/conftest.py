"""Fixtures and hooks for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_agent.testing.fake_editor import FakeEditor

pytest_plugins = ["acp_agent.testing.plugin"]

FakeEditor.schema_file = Path(__file__).parents[1] / "schemas" / "acp-v1.schema.json"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
