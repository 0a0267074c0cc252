"""A project for clients; one VS Code for all tests of a module, as starting it takes some seconds."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .kit import VsCode, packaged, vscode


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (folder := tmp_path / "project").mkdir()
    (folder / "a.txt").write_text("saved\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
async def code(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VsCode]:
    """VS Code with the extension installed."""
    async with vscode(tmp_path_factory.mktemp("vscode"), packaged()) as running:
        yield running
