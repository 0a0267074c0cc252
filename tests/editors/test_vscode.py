"""The extension in the real VS Code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .kit import VsCode, packaged, vscode, working

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def code(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VsCode]:
    """VS Code with the extension installed."""
    async with vscode(tmp_path_factory.mktemp("vscode"), packaged()) as running:
        yield running


async def test_the_extension_is_installed_and_its_views_are_there(code, tmp_path):
    async with working(code, tmp_path) as (window, _):
        await window.open_container("ACP Agent")
        assert await window.eventually(window.views, len) == ["Chat", "Tool Calls", "Sessions"]
