"""What it costs to record changes, and to take them back."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import anyio

from acp_agent.executors.base import Files
from acp_agent.executors.disk_files import DiskFiles, LocalDisk
from acp_agent.store.base import SessionRecord
from acp_agent.store.stores import sqlite_store
from acp_agent.undo.base import Change
from acp_agent.undo.contents import Contents
from acp_agent.undo.folder_looks import FolderLooks, Limits
from acp_agent.undo.operation_log import Log, rows_of
from acp_agent.undo.pictures import Camera
from acp_agent.undo.recording_files import RecordingFiles
from acp_agent.undo.restore import make
from acp_agent.undo.undo_plan import make_plan

Figure = tuple[str, str, list[float], str]
LIMITS = Limits(60_000, 2_000_000)
FOLDERS, FILES = 2500, 20
MEDIA, MEDIA_SIZE = 2000, 5_000_000


class _Nobody:
    def changing(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        return nullcontext()

    def changed(self, changes: Sequence[Change]) -> None:
        pass

    def not_kept(self, words: str) -> None:
        raise AssertionError(words)


def measure(home: Path) -> list[Figure]:
    store = sqlite_store(home / "undo.db")
    session = str(uuid.uuid4())
    store.create(SessionRecord(session, str(home)))
    log, contents = Log(store.operations, session), Contents(home / "contents")
    try:
        return [
            *_writes(home, log, contents),
            *_undo(home, log, contents),
            *_repository(home),
            *_media(home),
            _edits(home),
        ]
    finally:
        store.close()


def _ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def _writes(home: Path, log: Log, contents: Contents) -> list[Figure]:
    """Writes of a file of 10 kB, alternately recorded and not."""
    path = home / "written" / "file.py"
    local, camera = DiskFiles(LocalDisk(os.environ)), Camera(contents, 64_000_000)

    async def rounds() -> list[float]:
        added = []
        for number in range(100):
            took: list[float] = []
            writer = log.begin(1, str(uuid.uuid4()), "call", "write")
            kinds: tuple[Files, ...] = (local, RecordingFiles(local, camera, writer, _Nobody()))
            for files in kinds:
                text = "".join(f"line {line} {number} {len(took)}\n" for line in range(800))[:10_000]
                begun = time.perf_counter()
                await files.write(path, text)
                took.append((time.perf_counter() - begun) * 1000)
            added.append(took[1] - took[0])
        return added[10:]

    return [("a recorded write of 10 kB, added", "1 ms", anyio.run(rounds), "ms")]


def _undo(home: Path, log: Log, contents: Contents) -> list[Figure]:
    """Taking back a command that changed 100 files."""
    project, camera, samples = home / "changed", Camera(contents, 64_000_000), []
    project.mkdir()
    for number in range(100):
        (project / f"{number}.py").write_text(f"before {number}\n" * 300)
    looks = FolderLooks([project], contents, LIMITS)
    for round_ in range(5):
        looks.look(5.0, report=False)
        for number in range(100):
            (project / f"{number}.py").write_text(f"after {number} {round_}\n" * 300)
        log.begin(2 + round_, str(uuid.uuid4()), "call", "command").changed(rows_of(looks.look(5.0)))
        operations = [each for each in log.operations() if each.prompt == 2 + round_]
        begun = time.perf_counter()
        plan = make_plan(log.changes(operations), camera.take, contents, merging=False)
        undo = log.add_undo("", [Change(step.path, step.now, step.then) for step in plan.steps], [], 0, 0)
        make(plan.steps, camera)
        log.settle(undo)
        samples.append((time.perf_counter() - begun) * 1000)
        assert len(plan.steps) == 100
    looks.close()
    return [("undo of 100 files", "300 ms", samples, "ms")]


def _whole(looks: FolderLooks) -> None:
    """The first look, to its end."""
    looks.look(0.0)
    while looks.look_on():
        pass


def _repository(home: Path) -> list[Figure]:
    project = home / "repository"
    for number in range(FOLDERS):
        folder = project / f"a{number % 50}" / f"b{number}"
        folder.mkdir(parents=True)
        for file in range(FILES):
            (folder / f"f{file}.py").write_text(f"x = {number * file}\n")
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    environ |= {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=project, env=environ, check=True)
    os.utime(project / ".git" / "index")
    first, compared, warm = [], [], []
    for _ in range(5):
        looks = FolderLooks([project], Contents(home / "none"), LIMITS)
        first.append(_ms(lambda looks=looks: _whole(looks)))  # type: ignore[misc]
        compared.append(_ms(lambda looks=looks: looks.copy_on(60.0)))  # type: ignore[misc]
        assert not looks.uncovered()
        for number in range(5):
            path = project / "a1" / "b1" / f"f{number}.py"
            before = _ms(lambda looks=looks: looks.look(0.2, report=False))  # type: ignore[misc]
            path.write_text(f"{time.time_ns()}\n")
            warm.append(before + _ms(lambda looks=looks: looks.look(0.0)))  # type: ignore[misc]
        looks.close()
    return [
        ("first look at a repository of 50,000 files", "400 ms", first, "ms"),
        ("its files compared with git's blobs, beside the model's answer", "2000 ms", compared, "ms"),
        ("looks around a command in it, warm", "20 ms", warm, "ms"),
    ]


def _media(home: Path) -> list[Figure]:
    folder, contents = home / "media", Contents(home / "no contents")
    folder.mkdir()
    for number in range(MEDIA):
        with open(folder / f"{number}.mp4", "wb") as file:
            file.truncate(MEDIA_SIZE)
    against = []
    for _ in range(5):
        looks = FolderLooks([folder], contents, LIMITS)
        took = _ms(lambda looks=looks: _whole(looks))  # type: ignore[misc]
        against.append(took / _ms(lambda: [os.lstat(folder / f"{number}.mp4") for number in range(MEDIA)]))
        assert contents.used() == 0 and looks.uncovered()
        looks.close()
    return [("first look at 10 GB of media, against its stat calls", "", against, "times")]


def _edits(home: Path) -> Figure:
    contents, last = Contents(home / "edits"), ""
    text = b"".join(b"line %d of a file that is edited again and again\n" % number for number in range(3000))[:100_000]
    for number in range(1000):
        at = (number * 7919) % (len(text) - 50)
        text = text[:at] + b"edit %d" % number + text[at + 8 :]
        last = contents.put(text, last)
    return "1,000 edits of a file of 100 kB, on the disk", "5 MB", [contents.used() / 1e6], "MB"
