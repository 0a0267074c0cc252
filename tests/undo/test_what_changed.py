"""What changed is told by the system, and never less than a look at everything finds."""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_agent.safety.folders.watch import YOUNG
from acp_agent.undo import folder_looks
from acp_agent.undo.contents import Contents
from acp_agent.undo.folder_looks import FolderLooks, Limits
from acp_agent.undo.folder_watch import OVERFLOW, FolderWatch, Watch
from tests.files import put
from tests.nightly import examples
from tests.repositories import git

from .kit import Bench, state_of
from .test_others_failures import commit_all
from .test_sequences import CHANGES, NAMES, Run, changed

WAYS = (*CHANGES, "exchange", "tree")
PLACES = (*NAMES, "d/e", "d/e/x", ".hidden/x", "ignored/x", "ignored/y/z")


def changes(run: Run, chance: random.Random) -> None:
    """Something that a command may do."""
    run.change((chance.choice(WAYS), chance.choice(PLACES), chance.choice(PLACES)), "command")


class Racing(Watch):
    """While a folder is begun to be watched, something happens, so many times."""

    left = 0

    def __init__(self, owner: FolderWatch, happens: Callable[[], None]) -> None:
        super().__init__(owner)
        self._happens = happens

    def add(self, folder: str) -> None:
        for work in (lambda: None, lambda: super(Racing, self).add(folder)):
            work()
            if self.left > 0:
                self.left -= 1
                self._happens()


@pytest.mark.parametrize("how", ["told", "asked", "racing", "overflow"])
def test_nothing_is_missed_that_a_look_at_everything_finds(tmp_path: Path, how: str) -> None:
    """Also where something changes while the watch is set, and where two ask one watch at different times."""
    for seed in range(examples(25)):
        chance, run, owner = random.Random(seed), Run(folder := tmp_path / str(seed)), FolderWatch()
        project = run.bench.project
        for place in ("d/e/b", ".hidden/x", "ignored/x"):
            put(project / place, "x")
        (project / ".gitignore").write_text("ignored\n")
        if seed % 2:
            git(project, "init", "-q")
            git(project, "add", "-A")
        watch = Racing(owner, partial(changes, run, chance))
        if how == "asked":
            watch.close()
        looks = FolderLooks([project], Contents(folder / "contents"), Limits(1000, 1000), watch=watch)
        slow = FolderLooks([project], Contents(folder / "slow"), Limits(1000, 1000), watch=Watch(owner))
        looks.look(1.0)
        slow.look(1.0)
        begun, every = state_of(project), set[Path]()
        for number in range(12):
            before = state_of(project)
            for _ in range(chance.randint(1, 4)):
                changes(run, chance)
            if how == "overflow":
                owner._take(-1, OVERFLOW)
            watch.left = chance.randint(1, 3) if how == "racing" else 0
            found = {change.path for change in looks.look(1.0)}
            watch.left = 0
            found |= {change.path for change in looks.look(1.0)} if how == "racing" else set()
            assert {project / path for path in changed(before, state_of(project))} <= found, (seed, number)
            every |= found
        late = {change.path for change in slow.look(1.0)}
        assert {project / path for path in changed(begun, state_of(project))} <= late & every
        assert not looks.look(1.0) and not slow.look(1.0), "it was told"
        looks.close()
        slow.close()
        run.bench.close()
        assert not owner._of


def test_after_a_command_only_the_folders_are_read_in_which_something_changed(tmp_path: Path, monkeypatch) -> None:
    bench = Bench(tmp_path)
    for number in range(200):
        put(bench.project / str(number) / "file", "x")
    bench.looks.look(1.0)
    read, reads = list[str](), bench.looks._read

    def noted(folder: str, *more: Any) -> Any:
        read.append(folder)
        return reads(folder, *more)

    monkeypatch.setattr(bench.looks, "_read", noted)
    bench.by_command("true")
    bench.by_command("echo y > 7/file; mkdir 8/new")
    assert sorted(read) == [f"{bench.project}/{each}" for each in ("7", "8", "8/new")]
    bench.close()


def test_tracked_files_are_covered_beyond_the_number_of_entries_and_others_within_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limits=Limits(60, 1000))
    for count, folders in ((200, range(10)), (80, ("wide",))):
        for number in range(count):
            path = bench.project / str(folders[number % len(folders)]) / f"{number}"
            put(path, f"committed {number}\n")
        if count == 200:
            commit_all(bench)
    (bench.project / "9" / "untracked").write_text("mine")
    bench.looks.look(1.0)
    bench.looks.copy_on(5.0)
    assert bench.looks.uncovered() == [f"{bench.project}/wide: more than 60 files and folders (`undo.max_entries`)"]
    assert bench.contents.used() == 4096, "a block: git has all but one file"
    before = bench.state()
    bench.by_command("rm -r 3; for n in 4/*; do echo changed > $n; done; mv 5 six; chmod 600 7/*; echo x > 9/untracked")
    assert not bench.take_back(bench.operations()).conflicts and bench.state() == before
    bench.close()
    asking = Bench(tmp_path, limits=Limits(60, 1000), session_id=bench.session_id, watching=False)
    asking.looks.look(1.0)
    assert "max_entries" in asking.looks.beyond(), "where all is read each time, all counts"
    asking.close()


def test_a_command_may_begin_before_the_first_look_is_done_and_what_was_not_seen_is_named(
    tmp_path, monkeypatch
) -> None:
    bench = Bench(tmp_path)
    for name in ("a/b", "c/d", "e/f", "old/deep"):
        put(bench.project / name / "x", "before")
    git(bench.project, "init", "-q")
    while os.stat(bench.project / "old/deep/x").st_ctime_ns >= time.time_ns() - 2 * YOUNG:
        pass
    scan, looks = bench.looks._scan_one, bench.looks

    def one(*about: Any) -> None:
        scan(*about)
        looks._waiting = 1  # So the first look stops.

    monkeypatch.setattr(looks, "_scan_one", one)
    looks.look(0.0, report=False)
    looks._waiting = 0
    monkeypatch.undo()
    assert looks.unfinished and looks.partial
    assert any("not looked at in time" in each and "/a, " in each for each in looks.uncovered())
    (bench.project / "c/d/x").write_text("by the command")
    (bench.project / "e/f").rename(bench.project / "e/g")
    (bench.project / "old").rename(bench.project / "moved")
    (bench.project / "new").write_text("by the command")
    monkeypatch.setattr(folder_looks, "BESIDE", 0.0)
    found = [change.path.name for change in looks.look(0.0)]
    assert sorted(found) == ["moved", "new", "old"], "what is in a folder that was moved is nobody's"
    monkeypatch.undo()
    while looks.look_on():
        pass
    late = looks.late()
    assert {bench.project / each for each in ("c/d/x", "e", "e/g", "old")} == set(map(Path, late))
    assert not looks.late() and not looks.unfinished
    before = bench.state()
    bench.by_command("rm -r a; echo more > c/d/x; mv e/g e/h; mv moved again")
    assert not bench.take_back(bench.operations()).conflicts and bench.state() == before
    bench.close()
