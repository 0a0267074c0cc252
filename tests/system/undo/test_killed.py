"""An agent that is killed in the middle of an undo: the next start finishes it."""

import errno
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.model import UndoConfig
from acp_agent.undo.base import Change
from acp_agent.undo.restore import held, make
from tests.nightly import times
from tests.undo.kit import Bench, State, as_a_user, small_bench, tidied

ROUNDS = times(40, 200)
FILES = 25


def finished(folder: Path) -> list[str]:
    """What the next start says of an undo that it finishes."""
    return list(tidied(folder / "state" / "sessions.db", folder / "state", UndoConfig()))


def every_number(works: Callable[[Path, int], bool], more_than: int) -> Callable[[Path], None]:
    """Works with each number up to the first that comes after all changes."""

    def all_of_them(folder: Path) -> None:
        number = 1
        while works(folder / str(number), number):
            number += 1
        assert number > more_than

    return all_of_them


def undo_again(folder: Path, session_id: str, operation: int) -> None:
    """Takes back one operation."""
    bench = Bench(folder, session_id=session_id)
    bench.take_back([each for each in bench.log.operations() if each.id == operation])


def test_what_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(FILES):
        (bench.project / f"{number}.txt").write_text(f"before {number}\n" * 50)
    before = bench.state()
    bench.by_command(
        "for f in *.txt; do echo after > $f; done; rm 3.txt; mkdir -p new/er; mv 4.txt new/er; chmod 600 5.txt"
    )
    after = bench.state()
    chance, middles = random.Random(11), 0
    standing = "after"
    for _ in range(ROUNDS):
        undos = [each for each in bench.log.operations() if each.by == "undo" and each.state == "done"]
        last = undos[-1] if undos else bench.log.operations()[0]
        killed_at(chance.randint(1, 100), partial(undo_again, tmp_path, bench.session_id, last.id))
        middles += bench.state() not in (before, after)
        assert not finished(tmp_path)
        assert not bench.store.operations.running()
        now = bench.state()
        done = [each for each in bench.log.operations() if each.by == "undo"]
        standing = "after" if len(done) % 2 == 0 else "before"
        assert now == (after if standing == "after" else before)
    assert middles > ROUNDS // 2, "it was killed in the middle often enough to mean something"
    bench.close()


def test_a_live_agents_undo_is_left_to_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.project / "a").write_text("a")
    bench.by_command("echo b > a")
    plan = bench.plan(bench.operations())
    undo = bench.log.add_undo("undo", [Change(step.path, step.now, step.then) for step in plan.steps], [1], 0, 0)
    with held(bench.contents.folder.parent, undo) as ours:
        assert ours
        if (child := os.fork()) == 0:
            os._exit(1 if finished(tmp_path) else 0)
        assert os.waitpid(child, 0)[1] == 0
        assert (bench.project / "a").read_text() == "b\n"
    finished(tmp_path)
    assert (bench.project / "a").read_text() == "a"
    bench.close()


CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "symlink", "chmod", "fchmod", "pwrite", "ftruncate")
"""What changes files, of `os`."""

BEFORE = """
for f in a b c over becomes; do echo before $f > $f; done
for f in 1 2 3 4; do yes $f | head -c 3000 > big$f; done
mkdir folder closed; echo x > folder/x; echo y > closed/y; echo z > closed/z; chmod 555 closed
"""
AFTER = """
yes after | head -c 900 > a; rm b; chmod 600 c; ln -s a link
yes new | head -c 3000 > over
mkdir new; mv big1 new; yes made | head -c 3000 > new/made
mv big2 t; mv big3 big2; mv t big3; chmod 600 big4
rm -r folder; yes file | head -c 3000 > folder
rm becomes; mkdir becomes; yes deep | head -c 3000 > becomes/deep; mkfifo becomes/pipe
chmod u+w closed; echo more >> closed/y; rm closed/z; yes in | head -c 3000 > closed/in; chmod 555 closed
mkdir shut; echo s > shut/s; chmod 500 shut
"""


class Disk:
    """Instead of the n-th change of a file `fails` is called."""

    def __init__(self, number: int, fails: Callable[[], None]) -> None:
        self.count = 0
        self._number = number
        self._fails = fails
        self._real = {name: getattr(os, name) for name in CALLS}

    def __enter__(self) -> "Disk":
        for name in CALLS:
            setattr(os, name, partial(self._call, name))
        return self

    def __exit__(self, *_: object) -> None:
        for name in CALLS:
            setattr(os, name, self._real[name])

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.count += 1
        if self.count == self._number:
            self._fails()
        if name == "pwrite":  # Not all at once.
            arguments = (arguments[0], arguments[1][:400], arguments[2])
        return self._real[name](*arguments, **named)


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Whether a process that does this was killed before its n-th change of a file."""
    if (child := os.fork()) == 0:
        failed = 1
        try:
            with Disk(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                work()
            failed = 0
        finally:
            if failed:
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the undo failed"
    return status != 0


def changed_files(bench: Bench) -> tuple[State, State]:
    bench.by_command(BEFORE)
    before = bench.state()
    bench.by_command(AFTER, prompt=2)
    return before, bench.state()


def test_whichever_change_fails_nothing_is_restored_and_files_that_are_not_kept_are_the_same() -> None:
    as_a_user(every_number(failed, more_than=25))


def failed(folder: Path, number: int) -> bool:
    """False once the undo is done all the same."""
    bench = small_bench(folder)
    _, after = changed_files(bench)
    plan = bench.plan(bench.operations(2))
    same = unkept(bench)

    def fails() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "any")

    try:
        with Disk(number, fails):
            make(plan.steps, bench.camera)
    except OSError as error:
        assert error.errno == errno.EIO and ".undo-" not in str(error) and ".aside-" not in str(error)
        assert bench.state() == after, number
        assert unkept(bench) == same, number
        return True
    finally:
        bench.close()
    return False


def unkept(bench: Bench) -> dict[str, tuple[int, ...]]:
    found = {path: path.lstat() for path in bench.project.rglob("*")}
    return {
        str(path): (seen.st_mode, seen.st_ino, seen.st_mtime_ns)
        for path, seen in found.items()
        if seen.st_size > 1000 and path.is_file()
    }


def test_what_the_user_made_after_the_kill_stays_and_so_does_what_was_set_aside(tmp_path: Path) -> None:
    bench = small_bench(tmp_path)
    (bench.project / "a").write_text("before")
    (bench.project / "b").write_text("before")
    bench.by_command("echo after > a; head -c 3000 /dev/zero > b")
    assert killed_at(4, lambda: bench.take_back(bench.operations()))
    assert len(bench.state()) == 3 and not (bench.project / "b").exists(), "b is set aside, one is written beside"
    for name in ("a", "b"):
        (bench.project / name).write_text("the user's")
    first, second, third = sorted(finished(tmp_path))
    assert "a was changed meanwhile and left alone" in first and "b was changed meanwhile" in second
    aside = next(path for path in bench.project.iterdir() if path.name.startswith("."))
    assert f"what was {bench.project / 'b'} is kept as {aside}" in third
    assert aside.read_bytes() == bytes(3000)
    assert {path.read_text() for path in bench.project.iterdir() if path != aside} == {"the user's"}
    bench.close()


def test_killed_before_any_of_its_changes_an_undo_is_finished_and_nothing_is_left_beside() -> None:
    as_a_user(every_number(killed_and_finished, more_than=40))


def killed_and_finished(folder: Path, number: int) -> bool:
    """False if the undo makes less than `number` changes."""
    bench = small_bench(folder)
    before, after = changed_files(bench)
    assert before != after

    def undo() -> None:
        plan = bench.take_back(bench.operations(2), prompt=2)
        assert not plan.conflicts, plan.conflicts
        assert not bench.told

    def finish() -> None:
        assert not (words := finished(folder)), words

    killed = killed_at(number, undo)
    if killed:
        killed_at(1 + number % 5, finish)
        finish()
    assert bench.state() == before, number
    bench.close()
    return killed


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file")
def test_a_file_that_cannot_be_replaced_is_written_in_place_also_by_who_is_killed(tmp_path: Path) -> None:
    killed, number = True, 0
    while killed:
        number += 1
        bench = Bench(tmp_path / str(number))
        (path := bench.project / "mounted").write_bytes(b"before" * 500)
        bench.by_command("touch other; head -c 500 mounted > part; cat part > mounted; chmod 640 mounted", prompt=2)
        (bench.project / "source").write_bytes(path.read_bytes())
        subprocess.run(["mount", "--bind", bench.project / "source", path], check=True)
        try:
            path.chmod(0o640)
            killed = killed_at(number, lambda: bench.take_back(bench.operations(2), prompt=2))  # noqa: B023
            assert not (words := finished(tmp_path / str(number))), words
            assert path.read_bytes() == b"before" * 500 and path.stat().st_mode & 0o777 == 0o644
        finally:
            subprocess.run(["umount", "-l", path], check=True)
            bench.close()
    assert number > 12
