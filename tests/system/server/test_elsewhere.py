"""The tests of the house and of the HTTP form once more, with two processes: every other connection, or request, is to
the one that does not run the session, or does not have the connection."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.fronts.server import test_house, test_http
from tests.fronts.server.test_server import Place, running, served
from tests.postgres_server import PostgresServer

for module in (test_house, test_http):
    globals().update({name: test for name, test in vars(module).items() if name.startswith("test_")})
del globals()["test_a_server_full_of_connections_still_serves_those_it_has"]  # Each has its own.


class Alternating:
    """Two servers in turn."""

    def __init__(self, one: Place, other: Place) -> None:
        self._one = one
        self._turns = cycle((one, other))

    @property
    def url(self) -> str:
        return next(self._turns).url

    @property
    def http(self) -> str:
        return next(self._turns).http

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)


@pytest.fixture(autouse=True)
def two_processes(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def both(tmp_path: Path, script: Any = (), *, config: str = "", **more: Any) -> AsyncIterator[Alternating]:
        store = f'[store]\nurl = "{postgres.url()}"\nschema = "s{uuid.uuid4().hex[:12]}"\n'
        async with served(tmp_path, script, config=store + config, **more) as one, running(one) as other:
            yield Alternating(one, other)

    for module in (test_house, test_http):
        monkeypatch.setattr(module, "served", both)
