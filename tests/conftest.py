"""Fixtures and hooks for all tests."""

import functools
import gc
import inspect
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from acp_agent.config import local_servers
from acp_agent.executors.default_signals import default_signals
from acp_agent.testing.fake_editor import FakeEditor
from tests import containers, tiers
from tests.nightly import NIGHTLY, examples
from tests.postgres_server import MISSING, PostgresServer

default_signals()
"""Nothing depends on who started the tests, as under `nohup`, cron or `cmd &` in a script."""

gc.disable()  # Until all tests are collected: pytest_collection_finish.

pytest_plugins = ["acp_agent.testing.plugin"]

settings.register_profile(
    "house", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow],
    derandomize=not NIGHTLY,  # By day red means that the change is wrong; new examples are looked for at night.
)  # fmt: skip
settings.load_profile("house")
"""A busy machine is slow; no test fails by the time that an example or its making takes."""

FakeEditor.schema_file = Path(__file__).parents[1] / "schemas" / "acp-v1.schema.json"


STARTS = tiers.Starts()


def pytest_configure(config: pytest.Config) -> None:
    """The product runs as it is: pytest would rewrite it all, since one of its modules is a plugin, and rewriting two
    modules in two threads fails at times ("AST constructor recursion depth mismatch")."""
    rewritten = config.pluginmanager.rewrite_hook._must_rewrite  # type: ignore[attr-defined]
    rewritten -= {"acp_agent", "acp_conformance"}
    rewritten.add("acp_agent.testing")
    _need_programs_in_temporary_folders()


def _need_programs_in_temporary_folders() -> None:
    """Tests put programs of their own there; where that is forbidden (`noexec`), they take another folder."""
    if os.statvfs(tempfile.gettempdir()).f_flag & getattr(os, "ST_NOEXEC", 0):
        os.environ["TMPDIR"], tempfile.tempdir = "/var/tmp", None


def pytest_collection_finish() -> None:
    """Thousands of tests are never garbage: looking through them again and again takes a quarter of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


BOUNDED = {"client", "executors", "llm", "loop", "lsp", "mcp", "protocol", "tools"}
LONGEST = 120.0
"""A module may have its own, those of other folders, too."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """An async test that takes longer has failed, and what it has opened is closed as always."""
    if not isinstance(item, pytest.Function) or not inspect.iscoroutinefunction(item.obj):
        return
    folders = item.path.relative_to(Path(__file__).parent).parts
    test, seconds = item.obj, getattr(item.module, "LONGEST", 0.0 if BOUNDED.isdisjoint(folders) else LONGEST)
    if not seconds:
        return

    @functools.wraps(test)
    async def bounded(**given: Any) -> None:
        with anyio.fail_after(seconds):
            await test(**given)

    item.obj = bounded


@pytest.fixture(autouse=True)
def in_its_tier(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of the first tier that starts what belongs to another one fails."""
    STARTS.watching, STARTS.wrong = tiers.is_first(request.path), []
    yield
    STARTS.watching = False
    assert not STARTS.wrong, f"{'; '.join(STARTS.wrong)}: that belongs to tests/system (tests/tiers.py)"


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
    monkeypatch.setattr(local_servers, "serves", lambda *_: False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if MISSING:
        pytest.skip(MISSING)
    server = PostgresServer()
    yield server
    server.remove()


def pytest_sessionfinish() -> None:
    containers.remove_all()
