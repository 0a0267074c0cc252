"""Creating, removing, moving and copying: one contract, every backend; and interference by others."""

import contextlib
import errno
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pytest import MonkeyPatch

from acp_agent.errors import ExecutorError
from acp_agent.executors import tree
from acp_agent.executors.base import Tally
from acp_agent.executors.tree_walk import MAX_DEPTH
from tests.executors.kit import Stage, stage
from tests.files import puts
from tests.nightly import NIGHTLY

MOST = 1000


def plant(folder: Path) -> Path:
    """A folder with two files, a folder and a link in it."""
    (folder / "sub").mkdir(parents=True)
    puts(folder, {"a.txt": "aaa", "sub/run.sh": "#!/bin/sh\n"})
    (folder / "sub" / "run.sh").chmod(0o754)
    (folder / "link").symlink_to("a.txt")
    for path in (folder / "a.txt", folder / "sub" / "run.sh", folder / "sub"):
        os.utime(path, ns=(10**18, 10**18 + 123))
    return folder


PLANTED = Tally(2, 2, 1, 13)


def picture(folder: Path) -> dict[str, tuple[int, str]]:
    """Name, mode, content of all below."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        held = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        found[str(path.relative_to(folder))] = (mode, held)
    return found


def no_check() -> None: ...


async def test_files_links_and_folders_are_removed(on: Stage, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    plant(precious)
    plant(on.folder / "d")
    (on.folder / "d" / "out").symlink_to(precious)
    (on.folder / "out").symlink_to(precious)
    assert await on.files.remove(on.folder / "out", max_entries=MOST) == Tally(links=1)
    assert await on.files.remove(on.folder / "d", max_entries=MOST) == Tally(2, 2, 2, 13)
    assert list(on.folder.iterdir()) == []
    assert len(picture(precious)) == 4
    with pytest.raises(FileNotFoundError):
        await on.files.remove(on.folder / "d", max_entries=MOST)


async def test_a_copy_is_the_same_with_modes_times_and_links(on: Stage, backend: str) -> None:
    source = plant(on.folder / "d")
    (source / "out").symlink_to("../../outside")
    to = on.folder / "x" / "copy"
    assert await on.files.copy(source, to, overwrite=False, max_entries=MOST) == Tally(2, 2, 2, 13)
    assert picture(to) == picture(source)
    for name in ("a.txt", "sub", "sub/run.sh"):
        exact = 1 if backend != "busybox" else 10**9  # Its `cp` keeps the second.
        assert (to / name).stat().st_mtime_ns // exact == (10**18 + 123) // exact, name
    assert os.listdir(on.folder / "x") == ["copy"], "nothing is left beside it"


@pytest.mark.parametrize("operation", ["move", "copy"])
async def test_nothing_is_replaced_unless_told(on: Stage, operation: str) -> None:
    for name in ("f", "g"):
        (on.folder / name).write_text(name)
    plant(on.folder / "d")
    (on.folder / "e").mkdir()
    (on.folder / "e" / "old").touch()
    run = getattr(on.files, operation)
    for source, to in (("f", "g"), ("d", "e")):
        with pytest.raises(ExecutorError, match="exists already"):
            await run(on.folder / source, on.folder / to, overwrite=False, max_entries=MOST)
    for source, to in (("f", "d"), ("d", "f")):
        with pytest.raises(ExecutorError, match="not replaced with"):
            await run(on.folder / source, on.folder / to, overwrite=True, max_entries=MOST)
    before = picture(on.folder / "d")
    await run(on.folder / "f", on.folder / "g", overwrite=True, max_entries=MOST)
    await run(on.folder / "d", on.folder / "e", overwrite=True, max_entries=MOST)
    assert (on.folder / "g").read_text() == "f" and picture(on.folder / "e") == before
    assert set(os.listdir(on.folder)) == {"move": {"g", "e"}, "copy": {"f", "g", "d", "e"}}[operation]


@pytest.mark.parametrize("operation", ["move", "copy"])
async def test_a_folder_goes_neither_into_itself_nor_over_what_holds_it(on: Stage, operation: str) -> None:
    source = plant(on.folder / "d")
    before = picture(on.folder)
    run = getattr(on.files, operation)
    for a, b, words in (
        (source, source, "both source and destination"), (source, source / "sub" / "new" / "d", "is inside"),
        (source / "sub", source, "contains"),
    ):  # fmt: skip
        with pytest.raises(ExecutorError, match=words):
            await run(a, b, overwrite=True, max_entries=MOST)
    assert picture(on.folder) == before


async def test_a_folder_is_moved_with_parents_made_unless_it_has_too_many_entries(on: Stage) -> None:
    before = picture(plant(on.folder / "d"))
    with pytest.raises(ExecutorError, match="more than 4 entries"):
        await on.files.remove(on.folder / "d", max_entries=4)
    for operation in (on.files.move, on.files.copy):
        with pytest.raises(ExecutorError, match="more than 4 entries"):
            await operation(on.folder / "d", on.folder / "e", overwrite=False, max_entries=4)
    assert picture(on.folder / "d") == before
    assert os.listdir(on.folder) == ["d"]
    to = on.folder / "x" / "y"
    assert await on.files.move(on.folder / "d", to, overwrite=False, max_entries=MOST) == PLANTED
    assert picture(to) == before
    assert not (on.folder / "d").exists()


async def test_pipes_sockets_and_devices_are_not_copied(on: Stage) -> None:
    os.mkfifo(on.folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener, chdir(on.folder):
        listener.bind("sock")
    plant(on.folder / "d")
    os.mkfifo(on.folder / "d" / "p")
    for name, words in (("pipe", "is a pipe"), ("sock", "is a socket"), ("d", "d/p is a pipe")):
        with pytest.raises(ExecutorError, match=words):
            await on.files.copy(on.folder / name, on.folder / "new", overwrite=False, max_entries=MOST)
    with pytest.raises(ExecutorError, match="is a device"):
        await on.files.copy(Path("/dev/null"), on.folder / "new", overwrite=False, max_entries=MOST)
    assert set(os.listdir(on.folder)) == {"pipe", "sock", "d"}
    await on.files.move(on.folder / "pipe", on.folder / "p2", overwrite=False, max_entries=MOST)
    assert (await on.files.remove(on.folder / "p2", max_entries=MOST)).files == 1


async def test_capital_letters_alone_may_change_and_a_folder_is_made_with_its_parents(on: Stage) -> None:
    (on.folder / "readme.md").write_text("x")
    await on.files.move(on.folder / "readme.md", on.folder / "README.md", overwrite=False, max_entries=MOST)
    assert os.listdir(on.folder) == ["README.md"]
    assert await on.files.make_directory(on.folder / "a" / "b" / "c") == 3
    assert await on.files.make_directory(on.folder / "a" / "b" / "c") == 0
    (on.folder / "f").touch()
    with pytest.raises(ExecutorError, match="f is not a folder"):
        await on.files.make_directory(on.folder / "f" / "g")


async def test_a_cancelled_copy_leaves_nothing_behind(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    async with stage("local", tmp_path) as on:
        plant(on.folder / "d")
        reached, go_on = threading.Event(), threading.Event()
        symlink = os.symlink

        def waits(*args: object, **more: object) -> None:
            reached.set()
            assert go_on.wait(10)
            symlink(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "symlink", waits)
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                await on.files.copy(on.folder / "d", on.folder / "e", overwrite=False, max_entries=MOST)

            tasks.start_soon(work)
            await anyio.to_thread.run_sync(reached.wait, 10)
            tasks.cancel_scope.cancel()
            go_on.set()
        assert os.listdir(on.folder) == ["d"]


def interfere(patch: MonkeyPatch, number: int, what: Callable[[], object]) -> None:
    """Right after the system was asked for the `number`th time what something is, or to open it: `what` happens."""
    calls = iter(range(1, 10**6))

    def after(real: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **more: Any) -> Any:
            answer = real(*args, **more)
            if next(calls) == number:
                what()
            return answer

        return asked

    patch.setattr(os, "stat", after(os.stat))
    patch.setattr(os, "open", after(os.open))


def swap(folder: Path, target: Path) -> None:
    """The folder is a link to `target` all of a sudden."""
    os.rename(folder, f"{folder}.was")
    os.symlink(target, folder)


@pytest.mark.parametrize("operation", ["remove", "move", "copy", "move far"])
@pytest.mark.parametrize("which", ["top/d/sub", "top/d", "top"])
def test_a_swapped_folder_leads_nowhere(operation: str, which: str, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    if operation == "move far":
        no_links_and_renames(monkeypatch)
    swapped, step = 0, 1 if NIGHTLY else 2
    for moment in range(1, 60, step):
        base = tmp_path / str(moment)
        outside = base / "outside"
        for place in (outside, outside / "d", outside / "sub", outside / "d" / "sub"):
            plant(place / "theirs")
            (place / "a.txt").write_text("secret")
        plant(base / "top" / "d")
        before = picture(outside)
        happened: list[bool] = []

        def interference(base: Path = base, outside: Path = outside, happened: list[bool] = happened) -> None:
            with contextlib.suppress(FileNotFoundError):  # the work was faster
                swap(base / which, outside)
                happened.append(True)

        with monkeypatch.context() as patch:
            interfere(patch, moment, interference)
            with contextlib.suppress(ExecutorError, FileNotFoundError):
                if operation == "remove":
                    tree.remove(base / "top" / "d", MOST, no_check)
                else:
                    run = tree.copy if operation == "copy" else tree.move
                    run(base / "top" / "d", base / "new" / "e", False, MOST, no_check)
        swapped += len(happened)
        assert picture(outside) == before, moment
        if (base / "new").exists():
            assert "secret" not in {held for _, held in picture(base / "new").values()}, moment
    assert swapped > 10 // step


def no_links_and_renames(monkeypatch: MonkeyPatch) -> None:
    """As if the first name of the destination were on another file system."""
    link, rename = os.link, os.rename

    def beside(name: Any) -> bool:
        return str(name).startswith(".")

    def fails_to_link(name: Any, to: Any, **more: Any) -> None:
        if not beside(name):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(name, to, **more)

    def fails_to_rename(name: Any, to: Any, **more: Any) -> None:
        if more and not beside(name) and not beside(to):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(name, to, **more)

    monkeypatch.setattr(os, "link", fails_to_link)
    monkeypatch.setattr(os, "rename", fails_to_rename)


@pytest.fixture(params=["another disk", "pretended"])
def far(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: MonkeyPatch) -> Iterator[Path]:
    """A folder that nothing can be renamed to."""
    if request.param == "pretended":
        no_links_and_renames(monkeypatch)
        (tmp_path / "far").mkdir()
        yield tmp_path / "far"
        return
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here: /dev/shm is missing or the same as that of the tests")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)


def test_a_move_to_another_file_system_is_a_copy_and_a_removal(far: Path, tmp_path: Path) -> None:
    before = picture(plant(tmp_path / "d"))
    (tmp_path / "f").write_text("f")
    assert tree.move(tmp_path / "d", far / "x" / "e", False, MOST, no_check) == PLANTED
    assert tree.move(tmp_path / "f", far / "f", False, MOST, no_check) == Tally(1, 0, 0, 1)
    assert picture(far / "x" / "e") == before
    assert not (tmp_path / "d").exists() and not (tmp_path / "f").exists()
    plant(tmp_path / "d")
    with pytest.raises(ExecutorError, match="exists already"):
        tree.move(tmp_path / "d", far / "x" / "e", False, MOST, no_check)
    (far / "x" / "e" / "old").touch()
    tree.move(tmp_path / "d", far / "x" / "e", True, MOST, no_check)
    assert picture(far / "x" / "e") == before
    assert os.listdir(far / "x") == ["e"]


def test_a_far_move_that_fails_loses_nothing(far: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    before = picture(plant(tmp_path / "d"))

    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(ExecutorError, match="No space left"):
        tree.move(tmp_path / "d", far / "e", False, MOST, no_check)
    assert picture(tmp_path / "d") == before
    assert "e" not in os.listdir(far)


def test_what_is_written_during_a_far_move_stays(far: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    plant(tmp_path / "d")
    symlink = os.symlink

    def types(*args: Any, **more: Any) -> None:
        """When the copy is at the link, somebody writes: to a file that may be copied already, and to a new one."""
        symlink(*args, **more)
        puts(tmp_path, {"d/a.txt": "typed by a user", "d/new": "new"})

    monkeypatch.setattr(os, "symlink", types)
    monkeypatch.setattr(os, "listdir", lambda of, real=os.listdir: sorted(real(of)))
    with pytest.raises(ExecutorError, match="changed while"):
        tree.move(tmp_path / "d", far / "e", False, MOST, no_check)
    assert (tmp_path / "d" / "a.txt").read_text() == "typed by a user" and (tmp_path / "d" / "new").read_text() == "new"
    assert not (tmp_path / "d" / "sub").exists()
    assert (far / "e" / "a.txt").read_text() == "aaa"


def test_what_appears_at_the_destination_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: MonkeyPatch):
    (tmp_path / "f").write_text("mine")
    link = os.link

    def first(*args: Any, **more: Any) -> None:
        (tmp_path / "g").write_text("theirs")
        link(*args, **more)

    monkeypatch.setattr(os, "link", first)
    for operation in (tree.move, tree.copy):
        (tmp_path / "g").unlink(missing_ok=True)
        with pytest.raises(ExecutorError, match="exists already"):
            operation(tmp_path / "f", tmp_path / "g", False, MOST, no_check)
        assert (tmp_path / "f").read_text() == "mine" and (tmp_path / "g").read_text() == "theirs"
        assert len(os.listdir(tmp_path)) == 2


def test_two_names_of_one_file_and_a_link_are_replaced_themselves(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    os.link(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ExecutorError, match="exists already"):
        tree.move(tmp_path / "a", tmp_path / "b", False, MOST, no_check)
    tree.copy(tmp_path / "a", tmp_path / "b", True, MOST, no_check)
    assert (tmp_path / "a").stat().st_ino != (tmp_path / "b").stat().st_ino
    os.link(tmp_path / "a", tmp_path / "c")
    tree.move(tmp_path / "a", tmp_path / "c", True, MOST, no_check)
    assert set(os.listdir(tmp_path)) == {"b", "c"}
    assert (tmp_path / "c").read_text() == "x"
    puts(tmp_path, {"target": "precious", "f": "new"})
    (tmp_path / "link").symlink_to("target")
    tree.copy(tmp_path / "f", tmp_path / "link", True, MOST, no_check)
    assert not (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "precious"


def test_the_rights_of_a_stranger_are_not_lent_by_a_copy(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "f").chmod(0o4755)
    tree.copy(tmp_path / "f", tmp_path / "g", False, MOST, no_check)
    assert stat.S_IMODE((tmp_path / "g").stat().st_mode) == 0o4755
    if os.geteuid() == 0:
        os.chown(tmp_path / "f", 12345, 12345)
        (tmp_path / "f").chmod(0o4755)

        def refused(*args: object) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "fchown", refused)
        tree.copy(tmp_path / "f", tmp_path / "h", False, MOST, no_check)
        assert stat.S_IMODE((tmp_path / "h").stat().st_mode) == 0o755


def test_a_removal_that_fails_says_how_far_it_came(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    plant(tmp_path / "d")

    def busy(*args: object, **more: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "rmdir", busy)
    with pytest.raises(ExecutorError, match=r"d/sub: Device or resource busy \(deleted before that: "):
        tree.remove(tmp_path / "d", MOST, no_check)


def test_folders_that_are_too_deep_are_refused_while_all_is_there(tmp_path: Path) -> None:
    (deep := tmp_path / "d" / "/".join("x" * (MAX_DEPTH + 2))).mkdir(parents=True)
    with pytest.raises(ExecutorError, match="folders deep"):
        tree.remove(tmp_path / "d", MOST, no_check)
    assert deep.exists()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    plant(tmp_path / "d")
    tree.copy(tmp_path / "d", tmp_path / "e", False, MOST, no_check)
    tree.move(tmp_path / "e", tmp_path / "f", False, MOST, no_check)
    for wrong in (tmp_path / "missing", tmp_path / "missing" / "x", tmp_path / "d" / "a.txt" / "x"):
        with pytest.raises((FileNotFoundError, ExecutorError)):
            tree.copy(wrong, tmp_path / "g", False, MOST, no_check)
    tree.remove(tmp_path / "f", MOST, no_check)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("operation", ["remove", "move", "copy", "replaced"])
def test_what_was_not_judged_stays_and_nothing_is_half_done(operation: str, tmp_path: Path) -> None:
    """It appears when the walk is at the last entry of the tree."""
    source, to = plant(tmp_path / "d"), tmp_path / "e"
    if operation == "replaced":
        plant(to)
    target = to if operation == "replaced" else source
    planted: list[Path] = []
    names: list[str] = []

    def judged(doing: str, path: Path, mode: int) -> None:
        if path.name == "special":
            raise ExecutorError(f"{doing} {path}")
        names.append(path.name)
        if not planted and len(names) >= len(list(target.rglob("*"))) and target.is_dir():
            planted.append(target / "sub" / "special")
            planted[0].write_text("s")

    before = picture(tmp_path)
    with pytest.raises(ExecutorError, match="special"):
        if operation == "remove":
            tree.remove(source, MOST, no_check, judged)
        elif operation == "copy":
            tree.copy(source, to, False, MOST, no_check, judged=judged)
        else:
            tree.move(source, to, operation == "replaced", MOST, no_check, judged=judged)
    after = picture(tmp_path)
    assert planted
    assert after.pop(str(planted[0].relative_to(tmp_path))) and after == before


@pytest.mark.parametrize("kind", ["link", "folder"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_becomes_something_else_is_not_moved(kind: str, overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "elsewhere").mkdir()

    def judged(doing: str, path: Path, mode: int) -> None:
        if doing == "write" and stat.S_ISLNK(mode):
            raise ExecutorError("a link")
        if (tmp_path / "f").is_file():
            (tmp_path / "f").unlink()
            (tmp_path / "f").symlink_to("elsewhere") if kind == "link" else (tmp_path / "f").mkdir()

    with pytest.raises(ExecutorError, match="a link|replaced"):
        tree.move(tmp_path / "f", tmp_path / "g", overwrite, MOST, no_check, judged=judged)
    assert not os.path.lexists(tmp_path / "g")
