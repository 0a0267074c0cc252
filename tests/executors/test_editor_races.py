"""A command swaps folders for links while the editor, which opens files by name, reads and writes them for us.

`make nightly` races 20,000 times.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from acp_agent.client import fs
from acp_agent.errors import AgentError
from acp_agent.executors.editor.editor_files import EditorFiles
from acp_agent.executors.unmoved import Way, way_to
from acp_agent.testing.fake_model import Call
from tests.agent.kit import results, rig, rounds
from tests.executors.kit import stage
from tests.executors.races import EXCHANGES, exchange, swapping
from tests.nightly import times

pytestmark = pytest.mark.skipif(not EXCHANGES, reason="no renameat2 in this system's library")

ROUNDS = times(100, 20_000)
BOUND = 60 + ROUNDS / 20
LONGEST = max(BOUND, 600)
SECRET, OURS = "tangerine", "inside"


def trap(project: Path, secret: Path) -> tuple[Path, Path]:
    """`a/inside/f`, and a link `a/link` to a folder outside with another `f`."""
    (project / "a" / "inside").mkdir(parents=True)
    secret.mkdir()
    (project / "a" / "inside" / "f").write_text(OURS)
    (secret / "f").write_text(SECRET)
    (project / "a" / "link").symlink_to(secret)
    return project / "a" / "inside", project / "a" / "link"


Act = Callable[[], None]


def while_it_opens(monkeypatch: MonkeyPatch, before: Act, after: Act) -> None:
    """The worst moment: swapped just before the editor opens a file, and back just after."""
    read, write = fs.Files.read, fs.Files.write

    async def caught(self, request):
        before()
        try:
            return await (read if isinstance(request, fs.acp.ReadTextFileRequest) else write)(self, request)
        finally:
            after()

    monkeypatch.setattr(fs.Files, "read", caught)
    monkeypatch.setattr(fs.Files, "write", caught)


def unchecked(monkeypatch: MonkeyPatch) -> None:
    """The control: without the comparison."""
    monkeypatch.setattr(Way, "stands", lambda self, later: True)

    async def yes(*_: object) -> bool:
        return True

    monkeypatch.setattr(EditorFiles, "_is_unmoved", yes)


@pytest.mark.parametrize("controlled", [False, True])
async def test_a_folder_swapped_in_a_read_gives_nothing(tmp_path: Path, monkeypatch: MonkeyPatch, controlled: bool):
    async with rig(tmp_path, rounds(Call("read", {"path": "a/inside/f"})), mode="auto") as r:
        folder, link = trap(r.project, tmp_path / "secret")
        while_it_opens(monkeypatch, lambda: exchange(folder, link), lambda: exchange(folder, link))
        if controlled:
            unchecked(monkeypatch)
        await r.editor.prompt("go")
        assert (SECRET in results(r, 2)[0]) is controlled
        if not controlled:
            assert "changed while the editor read it" in results(r, 2)[0]


@pytest.mark.parametrize("controlled", [False, True])
async def test_a_folder_swapped_while_the_editor_writes_is_told_and_the_file_written_where_it_belongs(
    tmp_path: Path, monkeypatch: MonkeyPatch, controlled: bool
) -> None:
    async with rig(tmp_path, rounds(Call("write", {"path": "a/inside/new", "content": "words"})), mode="auto") as r:
        folder, link = trap(r.project, tmp_path / "secret")
        while_it_opens(monkeypatch, lambda: exchange(folder, link), lambda: exchange(folder, link))
        if controlled:
            unchecked(monkeypatch)
        await r.editor.prompt("go")
        assert (tmp_path / "secret/new").exists(), "it cannot be helped: the editor writes by name"
        assert (folder / "new").exists() is not controlled
        assert ("may have written the text to another place" in results(r, 2)[0]) is not controlled


async def test_a_file_swapped_while_the_editor_reads_gives_nothing(tmp_path: Path, monkeypatch: MonkeyPatch):
    async with rig(tmp_path, rounds(Call("read", {"path": "a/inside/f"})), mode="auto") as r:
        folder, _ = trap(r.project, tmp_path / "secret")
        (folder / "other").symlink_to(tmp_path / "secret/f")
        swap = lambda: exchange(folder / "f", folder / "other")  # noqa: E731
        while_it_opens(monkeypatch, swap, swap)
        await r.editor.prompt("go")
        assert SECRET not in str(r.messages(2))


async def test_unsaved_text_is_read_and_written_while_files_come_and_go(tmp_path: Path, monkeypatch: MonkeyPatch):
    """Once: then it is quiet again."""
    script = rounds(
        Call("read", {"path": "a/inside/f"}),
        Call("edit", {"path": "a/inside/f", "old_string": "unsaved", "new_string": "changed"}),
        Call("read", {"path": "a/inside/f"}),
    )
    buffers = {tmp_path / "project/a/inside/f": "unsaved words"}
    async with rig(tmp_path, script, mode="auto", save=False, buffers=buffers) as r:
        folder, _ = trap(r.project, tmp_path / "secret")
        busy = iter([lambda: (folder / "made").touch()])
        while_it_opens(monkeypatch, lambda: next(busy, lambda: None)(), lambda: None)
        await r.editor.prompt("go")
        first, _, last = results(r, 4)
        assert "unsaved words" in first and "changed words" in last
        assert (folder / "f").read_text() == OURS


async def test_a_folder_that_is_swapped_all_the_time_never_leads_the_editors_reads_out(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    work = tmp_path / "work"
    folder, link = trap(work, tmp_path / "secret")
    async with stage("editor", tmp_path, folders=[work], bound=BOUND, timeout=BOUND) as on:
        naive: set[str] = set()
        ours: list[str] = []
        led_out = 0
        client = on.client
        assert client is not None
        ask = client.read_text_file

        async def counted(path: Path) -> str:
            nonlocal led_out
            text = await ask(path)
            led_out += text == SECRET
            return text

        monkeypatch.setattr(client, "read_text_file", counted)
        with swapping(folder, link):
            for _ in range(100_000):
                naive.add((folder / "f").read_text())
                if len(naive) == 2:
                    break
            for number in range(20 * ROUNDS):
                if number >= ROUNDS and led_out and ours:
                    break
                try:
                    ours.append((await on.files.read(folder / "f")).text)
                except (AgentError, OSError):
                    continue
        assert naive == {OURS, SECRET}, "the control never got out: this race shows nothing"
        assert led_out, "the editor was never led out: this race shows nothing"
        assert set(ours) == {OURS}


async def test_a_write_that_the_editor_was_led_out_with_is_never_called_done(tmp_path: Path) -> None:
    work = tmp_path / "work"
    folder, link = trap(work, tmp_path / "secret")
    async with stage("editor", tmp_path, folders=[work], bound=BOUND, timeout=BOUND) as on:
        for number in range(ROUNDS // 5):
            name, text = f"n{number}", f"words {number}"
            with swapping(folder, link):
                try:
                    written = await on.files.write(folder / name, text)
                    done = written.text == text
                except (AgentError, OSError):
                    done = False
            if done:
                assert (folder / name).read_text() == text
                assert not (tmp_path / "secret" / name).exists() or "another place" in written.remark


async def test_the_same_race_gets_out_without_the_comparison(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    work = tmp_path / "work"
    folder, link = trap(work, tmp_path / "secret")
    unchecked(monkeypatch)
    async with stage("editor", tmp_path, folders=[work], bound=LONGEST, timeout=LONGEST) as on:
        with swapping(folder, link):
            for _ in range(20_000):
                try:
                    if (await on.files.read(folder / "f")).text == SECRET:
                        return
                except (AgentError, OSError):
                    continue
    pytest.fail("the control never got out: the race above shows nothing")


def test_a_way_is_not_settled_right_after_a_change_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").touch()
    for _ in range(1000):
        if (way := way_to(tmp_path / "a/f", [tmp_path])).settled:
            break
    assert way.stands(way_to(tmp_path / "a/f", [tmp_path]))
    (tmp_path / "b").mkdir()
    later = way_to(tmp_path / "a/f", [tmp_path])
    assert not way.stands(later) and not way.stands_above(later)
