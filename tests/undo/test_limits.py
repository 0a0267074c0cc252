"""What is kept has limits: space, age, and a disk that is full or cannot be written to."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.model import UndoConfig
from acp_agent.errors import StoreError
from acp_agent.executors.base import FileVersion
from acp_agent.executors.disk_files import DiskFiles
from acp_agent.undo import contents as contents_module
from acp_agent.undo.base import Change
from acp_agent.undo.contents import ContentError, Contents

from .kit import Bench, tidied


def test_a_thousand_edits_of_a_file_take_little_space(tmp_path: Path) -> None:
    contents = Contents(tmp_path)
    text = b"".join(b"line %d of a file that is edited again and again\n" % number for number in range(2000))[:100_000]
    names, last = [], ""
    for number in range(1000):
        at = (number * 7919) % (len(text) - 50)
        text = text[:at] + b"edit %d" % number + text[at + 8 :]
        last = contents.put(text, last)
        names.append(last)
    assert contents.used() <= 5_000_000
    fresh = Contents(tmp_path)
    assert fresh.get(names[-1]) == text
    assert all(fresh.get(name) for name in names[::97])


def test_a_damaged_content_is_an_error_and_never_restored(tmp_path: Path) -> None:
    name = Contents(tmp_path).put(b"x" * 10_000)
    path = next(path for path in tmp_path.rglob("*") if path.is_file())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ContentError, match="lost|damaged"):
        Contents(tmp_path).get(name)


def test_the_quota_is_kept_and_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, quota=20_000)
    for number in range(10):
        (bench.project / str(number)).write_bytes(os.urandom(10_000))
    bench.by_command("rm *")
    plan = bench.plan(bench.operations())
    assert plan.steps and plan.conflicts
    assert all("undo.quota_bytes" in conflict.why or "not copied" in conflict.why for conflict in plan.conflicts)
    assert bench.contents.used() <= 24_576
    bench.close()


def test_old_operations_and_what_only_they_need_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "YOUNG", 0.0)
    bench = Bench(tmp_path)
    (bench.project / "a").write_bytes(os.urandom(50_000))
    bench.by_command("rm a")
    database, state = tmp_path / "state" / "sessions.db", tmp_path / "state"
    assert tidied(database, state, UndoConfig()) == []
    assert len(bench.operations()) == 1 and bench.contents.used() > 50_000
    time.sleep(0.01)
    assert tidied(database, state, UndoConfig(retention_days=1e-9)) == []
    assert bench.operations() == [] and bench.contents.used() == 0
    bench.close()


def test_above_the_quota_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "YOUNG", 0.0)
    monkeypatch.setattr("acp_agent.undo.tidying.AT_ONCE", 1)
    bench = Bench(tmp_path)
    for number in range(4):
        (bench.project / "a").write_bytes(os.urandom(50_000))
        bench.by_command("rm a", prompt=number + 1)
    tidied(tmp_path / "state" / "sessions.db", tmp_path / "state", UndoConfig(quota_bytes=160_000))
    assert [each.prompt for each in bench.operations()] == [3, 4]
    bench.take_back(bench.operations(4))
    assert (bench.project / "a").exists()
    bench.close()


def test_contents_go_with_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "YOUNG", 0.0)
    bench = Bench(tmp_path)
    (bench.project / "a").write_text("a")
    bench.by_command("rm a")
    bench.store.delete(bench.session_id)
    tidied(tmp_path / "state" / "sessions.db", tmp_path / "state", UndoConfig())
    assert bench.contents.used() == 0
    bench.close()


def test_a_store_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.project / "a").write_text("a")
    bench.by_command("echo b > a")
    bench.store.close()
    with pytest.raises(StoreError):
        bench.take_back([])
    assert (bench.project / "a").read_text() == "b\n"
    bench.looks.close()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_on_a_full_disk_nothing_is_half_restored(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with small_disk(tmp_path / "project"):
        bench = Bench(tmp_path)
        for number in range(8):
            (bench.project / f"{number}.bin").write_bytes(bytes([number]) * 15_000)
        bench.by_command("rm *.bin && echo small > new")
        after = bench.state()
        (bench.project / "filler").write_bytes(b"x" * 100_000)
        with pytest.raises(OSError, match="No space left"):
            bench.take_back(bench.operations())
        now = bench.state()
        del now["filler"]
        assert now == after
        (bench.project / "filler").unlink()
        bench.take_back([each for each in bench.operations() if each.by == "call"])
        assert len(bench.state()) == 8
        bench.close()


@pytest.mark.parametrize("moment", ["while it is written", "in a look that began before it"])
def test_a_look_never_takes_our_own_write_for_a_commands(tmp_path: Path, monkeypatch, moment: str) -> None:
    """Else the file was "changed between two changes", and stayed as a later command left it."""
    bench = Bench(tmp_path)
    (file := bench.project / "a.txt").write_text("before")
    bench.by_command("true")
    seen: list[Change] = []
    if moment == "while it is written":
        write = DiskFiles.write

        async def watched(self: DiskFiles, path: Path, *about: Any, **more: Any) -> FileVersion:
            shown = await write(self, path, *about, **more)
            seen.extend(bench.looks.look(1.0))
            return shown

        monkeypatch.setattr(DiskFiles, "write", watched)
        bench.by_tool(lambda files: files.write(file, "ours"))
    else:
        changed = bench.looks._watch.changed

        def late() -> set[str] | None:
            monkeypatch.undo()
            bench.by_tool(lambda files: files.write(file, "ours"))
            return changed()

        monkeypatch.setattr(bench.looks._watch, "changed", late)
        seen.extend(bench.looks.look(1.0))
    assert (seen, file.read_text()) == ([], "ours")
    file.write_text("formatted")
    (change,) = bench.looks.look(1.0)
    contents = [bench.contents.get(entry.content) for entry in (change.before, change.after) if entry is not None]
    assert contents == [b"ours", b"formatted"]
    bench.close()
