"""One VS Code for all tests of a module: starting it takes some seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .kit import VsCode, packaged, vscode


@pytest.fixture(scope="module")
async def code(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VsCode]:
    """VS Code with the extension installed."""
    async with vscode(tmp_path_factory.mktemp("vscode"), packaged()) as running:
        yield running
