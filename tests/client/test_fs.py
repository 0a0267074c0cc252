"""`fs/*` over the wire: lines, buffers, missing files, odd files."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acp_agent.client import AcpClient, Files
from acp_agent.errors import PeerError
from tests.client.kit import ScriptedAgent, scripted_agent


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
async def agent(files: Files) -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as (agent, transport), AcpClient(transport, files=files):
        yield agent


async def read(agent: ScriptedAgent, path: Path, **params: Any) -> str:
    return str((await agent.ask("fs/read_text_file", path=str(path), **params))["content"])


async def write(agent: ScriptedAgent, path: Path, content: str) -> Any:
    return await agent.ask("fs/write_text_file", path=str(path), content=content)


@pytest.mark.parametrize(("line", "limit", "text"), [
    (None, None, "a\nb\u2028b\r\nc"), (1, None, "a\nb\u2028b\r\nc"), (0, 1, "a\n"), (1, 1, "a\n"),
    (2, 1, "b\u2028b\r\n"), (2, None, "b\u2028b\r\nc"), (None, 2, "a\nb\u2028b\r\n"), (3, 5, "c"), (1, 0, ""),
    (4, 1, ""), (9, None, ""),
])  # fmt: skip
async def test_line_counts_from_one_and_limit_counts_lines(
    agent: ScriptedAgent, tmp_path: Path, line: int | None, limit: int | None, text: str
) -> None:
    """[FS-2]"""
    (file := tmp_path / "f").write_bytes("a\nb\u2028b\r\nc".encode())
    assert await read(agent, file, line=line, limit=limit) == text


async def test_final_line_feed_is_no_line_and_a_missing_file_is_not_found(agent: ScriptedAgent, tmp_path: Path) -> None:
    """[RPC-12]"""
    (tmp_path / "f").write_text("a\nb\n", encoding="utf-8")
    assert await read(agent, tmp_path / "f", line=2, limit=1) == "b\n"
    assert await read(agent, tmp_path / "f", line=2) == "b\n" and await read(agent, tmp_path / "f", limit=2) == "a\nb\n"
    with pytest.raises(PeerError) as caught:
        await read(agent, tmp_path / "none")
    assert caught.value.code == -32002 and caught.value.data == {"uri": str(tmp_path / "none")}


@pytest.mark.parametrize("kind", ["folder", "binary"])
async def test_what_is_no_text_file_is_an_error(agent: ScriptedAgent, tmp_path: Path, kind: str) -> None:
    path = tmp_path
    if kind == "binary":
        (path := tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PeerError) as caught:
        await read(agent, path)
    assert caught.value.code == -32603
    assert str(path) in caught.value.message


async def test_write_makes_parents_keeps_every_character_and_says_why_it_fails(agent: ScriptedAgent, tmp_path: Path):
    file = tmp_path / "a" / "b" / "c.txt"
    assert await write(agent, file, "é\r\n\U0001f600\x00") == {}
    assert file.read_bytes() == "é\r\n\U0001f600\x00".encode()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for path in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(PeerError) as caught:
            await write(agent, path, "x")
        assert caught.value.code == -32603
        assert str(path) in caught.value.message


async def test_unsaved_buffers_are_read_before_the_disk_and_saved_if_wanted(
    agent: ScriptedAgent, files: Files, tmp_path: Path
):
    """[FS-2]"""
    (file := tmp_path / "f").write_text("on disk", encoding="utf-8")
    files.buffers[file] = "one\ntwo\n"
    assert await read(agent, file) == "one\ntwo\n" and await read(agent, file, line=2, limit=1) == "two\n"
    files.buffers[tmp_path / "new"] = "not on disk at all"
    assert await read(agent, tmp_path / "new") == "not on disk at all"
    file = tmp_path / "f"
    files.buffers[file] = "typed"
    await write(agent, file, "written")
    assert file.read_text(encoding="utf-8") == "written"
    assert await read(agent, file) == "written"
    (file := tmp_path / "f").write_text("on disk", encoding="utf-8")
    files.buffers[file] = "typed"
    files.save = False
    await write(agent, file, "written")
    assert file.read_text(encoding="utf-8") == "on disk"
    assert await read(agent, file) == "written"
