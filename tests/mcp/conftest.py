"""Servers shared by several tests."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

import acp_agent.mcp.mcp_client  # noqa: F401 - loaded ahead, so that no short timeout has to wait for it
from tests.mcp.kit import HERE, kept, raw


@pytest.fixture
async def server():
    async with kept(raw()) as k:
        yield k


def _over_http(kind: str) -> Iterator[str]:
    command = [sys.executable, str(HERE / "good_server.py"), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
        process.kill()


@pytest.fixture(scope="session")
def http_url() -> Iterator[str]:
    yield from _over_http("http")


@pytest.fixture(scope="session")
def sse_url() -> Iterator[str]:
    yield from _over_http("sse")


@pytest.fixture(scope="session")
def modern_url() -> Iterator[str]:
    yield from _over_http("modern")
