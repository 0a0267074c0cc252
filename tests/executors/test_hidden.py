"""An executor keeps hidden files hidden, whoever asks: one contract, every backend."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Files, FindQuery, GrepQuery, PartQuery
from tests.executors.kit import Stage, stage
from tests.files import put, puts


def hides(path: Path) -> bool:
    return any(part == "hidden" for part in path.parts)


WORKS: dict[str, Callable[[Files, Path], Awaitable[object]]] = {
    "read_text": lambda files, path: files.read(path),
    "read_bytes": lambda files, path: files.read_bytes(path, 10),
    "read_part": lambda files, path: files.read_part(path, PartQuery(1, 1, 10)),
    "write_text": lambda files, path: files.write(path, "x"),
    "list": lambda files, path: files.list(path.parent / "hidden"),
    "find": lambda files, path: files.find(FindQuery("*", path, 10, 5.0)),
    "grep": lambda files, path: files.grep(GrepQuery("x", path, True, 10, 5.0)),
    "copy": lambda files, path: files.copy(path, path.parent / "new", overwrite=False, max_entries=10),
    "move": lambda files, path: files.move(path, path.parent / "new", overwrite=False, max_entries=10),
    "copy of what holds it": lambda files, path: files.copy(
        path.parent, path.parent.parent / "new", overwrite=False, max_entries=10
    ),
    "move of what holds it": lambda files, path: files.move(
        path.parent, path.parent.parent / "new", overwrite=False, max_entries=10
    ),
}


@pytest.mark.parametrize("name", WORKS)
async def test_what_is_hidden_is_refused(name: str, backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, hides=hides) as on:
        put((folder := on.folder / "tree") / "hidden", "secret")
        with pytest.raises(ExecutorError, match=r"hidden.*deny_read"):
            await WORKS[name](on.files, folder / "hidden")
        assert (folder / "hidden").read_text() == "secret"
        assert not (on.folder / "new").exists()
        assert [path.name for path in folder.iterdir()] == ["hidden"]


async def test_the_editor_is_not_asked_and_a_folder_that_holds_it_can_be_deleted(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, hides=hides) as on:
        (on.folder / "hidden").write_text("secret")
        for work in ("read_text", "write_text"):
            with pytest.raises(ExecutorError):
                await WORKS[work](on.files, on.folder / "hidden")
        if on.editor is not None:
            assert on.asked("fs/read_text_file") == on.asked("fs/write_text_file") == 0
        put(on.folder / "tree" / "hidden", "secret")
        await on.files.remove(on.folder / "tree", max_entries=10)
        assert not (on.folder / "tree").exists()


async def test_listings_and_searches_leave_it_out(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, hides=hides) as on:
        puts(on.folder, {"hidden/f": "words", "shown": "words"})
        assert (await on.files.list(on.folder)).entries == (("shown", "file"),)
        found = await on.files.find(FindQuery("*", on.folder, 10, 10.0))
        assert [match.path.name for match in found.matches] == ["shown"]
        lines = await on.files.grep(GrepQuery("words", on.folder, True, 1, 10.0))
        assert [match.path.name for match in lines.matches] == ["shown"] and not lines.truncated


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
async def test_the_editor_is_not_asked_for_what_is_no_file(on: Stage, kind: str, tmp_path: Path) -> None:
    path = on.folder / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path)
    else:
        path.mkdir()
    for work in ("read_text", "read_bytes", "write_text"):
        with pytest.raises(ExecutorError):
            await WORKS[work](on.files, path)
    if on.editor is not None:
        assert on.asked("fs/read_text_file") == on.asked("fs/write_text_file") == 0
