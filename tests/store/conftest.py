"""The store's tests, on a file of SQLite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acp_agent.store.session_store import SessionStore
from acp_agent.store.stores import postgres_store, sqlite_store

Open = Callable[[], SessionStore]


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, str]:
    """A store that is not there yet: a path and nothing, or a url and a schema (`tests/system/store`)."""
    return str(tmp_path / "deep" / "sessions.db"), ""


def open_at(place: tuple[str, str], **bounds: float) -> SessionStore:
    where, schema = place
    return postgres_store(where, schema, **bounds) if schema else sqlite_store(Path(where), **bounds)  # type: ignore[arg-type]


@pytest.fixture
def opened(place: tuple[str, str]) -> Iterator[Open]:
    """Opens the same store, each time again."""
    stores: list[SessionStore] = []

    def make() -> SessionStore:
        stores.append(open_at(place))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Open) -> SessionStore:
    return opened()
