"""Files by folder handles: what was checked is what is opened, even if swapped meanwhile. Both ways to a handle."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors import beneath, files, tree
from acp_agent.executors.beneath import Swapped
from acp_agent.safety.folders.paths import Roots
from tests.executors.races import EXCHANGES, ends_soon, exchange, swapping

pytestmark = pytest.mark.skipif(not EXCHANGES, reason="no renameat2 in this system's library")

TRIES = 1000
MOST_TRIES = 100_000
"""Where the machine has shown only one side of a race for that long, there is none."""


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How folders are reached."""
    if request.param == "walk":
        monkeypatch.setattr(beneath, "kernel_walks", lambda: False)
    elif not beneath.kernel_walks():
        pytest.skip("no openat2 here")
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`app/inside/f` and `outside/f`, and a link `app/link` to `outside`."""
    (tmp_path / "app" / "inside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "app" / "inside" / "f").write_text("inside")
    (tmp_path / "outside" / "f").write_text("a secret outside")
    (tmp_path / "app" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "app" / "file-link").symlink_to(tmp_path / "outside" / "f")
    return tmp_path


def outside(place: Path) -> dict[str, str]:
    """All that is outside; a folder as an empty text."""
    return {path.name: path.read_text() if path.is_file() else "" for path in (place / "outside").iterdir()}


UNTOUCHED = {"f": "a secret outside"}


def test_a_folder_is_reached_by_its_name_and_made_for_what_is_written(place: Path) -> None:
    with beneath.folder(place / "app" / "inside") as handle:
        assert os.fstat(handle).st_ino == (place / "app" / "inside").stat().st_ino
    with beneath.folder(Path("/")) as handle:
        assert os.fstat(handle).st_ino == Path("/").stat().st_ino
    files.write(place / "app" / "a" / "b" / "f", b"x")
    assert (place / "app" / "a" / "b" / "f").read_bytes() == b"x"


def test_no_handle_is_left_open(place: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    files.read(place / "app" / "inside" / "f")
    files.write(place / "app" / "inside" / "g", b"x")
    files.write(place / "app" / "inside" / "g", b"y")
    files.entries(place / "app")
    for path in (place / "app" / "link" / "f", place / "app" / "file-link", place / "app" / "no" / "f"):
        with pytest.raises((ExecutorError, FileNotFoundError)):
            files.read(path)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "work",
    [
        lambda path: files.read(path / "f"), lambda path: files.write(path / "f", b"x"),
        lambda path: files.write(path / "new", b"x"), lambda path: files.write(path / "new" / "deep", b"x"),
        lambda path: files.look_at(path / "f"), lambda path: files.need_plain(path / "f"),
        lambda path: files.entries(path),
    ],
    ids=["read", "write", "write new", "write deep", "stat", "need_plain", "list"],
)  # fmt: skip
def test_a_link_on_the_way_ends_the_work_in_words(work: Callable[[Path], object], place: Path) -> None:
    with pytest.raises(Swapped, match="changed while it was opened: it is a link now; nothing was done"):
        work(place / "app" / "link")
    assert outside(place) == UNTOUCHED


def test_a_link_as_the_last_name_is_not_followed(place: Path) -> None:
    path = place / "app" / "file-link"
    for work in (lambda: files.read(path), lambda: files.write(path, b"x"), lambda: files.need_plain(path)):
        with pytest.raises(Swapped):
            work()
    found = files.look_at(path)
    assert found is not None and found.kind == "symlink"
    assert outside(place) == UNTOUCHED


def test_what_is_missing_is_missing(place: Path) -> None:
    for path in (place / "no", place / "no" / "f", place / "app" / "inside" / "f" / "below"):
        with pytest.raises(FileNotFoundError) as error:
            files.read(path)
        assert error.value.filename == str(path)
        assert files.look_at(path) is None
        files.need_plain(path)
    with pytest.raises(FileNotFoundError):
        files.entries(place / "no")
    with pytest.raises(NotADirectoryError):
        files.entries(place / "app" / "inside" / "f")


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the address may be short only
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except OSError:
        pytest.skip("no device can be made here")


@pytest.mark.parametrize(("make", "word"), [(os.mkfifo, "a pipe"), (_socket, "a socket"), (_device, "a device")])
def test_what_is_no_regular_file_is_neither_read_nor_written(make: Callable[[Path], None], word: str, place: Path):
    path = place / "app" / "odd"
    make(path)
    kind = stat.S_IFMT(path.lstat().st_mode)
    works: list[Callable[[], object]] = [
        lambda: files.read(path), lambda: files.read(path, 10), lambda: files.need_plain(path),
        lambda: files.write(path, b"x"),
    ]  # fmt: skip
    for work in works:
        error = ends_soon(work)
        assert isinstance(error, ExecutorError | OSError) and f"{word}, not a regular file" in str(error)
    assert stat.S_IFMT(path.lstat().st_mode) == kind
    assert [name for name in os.listdir(path.parent) if name.startswith(".")] == []


def swap_at_open(monkeypatch: pytest.MonkeyPatch, path: Path, other: Path) -> list[str]:
    """Swaps the two once, after the last look at `path` and before it is opened."""
    real = os.open
    swapped: list[str] = []

    def swap_then_open(name: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if name == path.name and not swapped:
            swapped.append(name)
            exchange(path, other)
        return real(name, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_then_open)
    return swapped


def test_a_pipe_that_takes_a_file_s_place_is_not_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "app" / "inside" / "f"
    os.mkfifo(place / "app" / "pipe")
    swapped = swap_at_open(monkeypatch, path, place / "app" / "pipe")
    error = ends_soon(lambda: files.read(path))
    assert swapped
    assert isinstance(error, ExecutorError) and "a pipe, not a regular file" in str(error)


def test_a_link_that_takes_a_file_s_place_is_not_followed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "app" / "inside" / "f"
    swapped = swap_at_open(monkeypatch, path, place / "app" / "file-link")
    with pytest.raises(Swapped):
        files.read(path)
    assert swapped


@pytest.mark.parametrize("other", ["file-link", "other"])
def test_what_takes_a_file_s_place_is_not_written_in_place(other: str, place: Path, monkeypatch: pytest.MonkeyPatch):
    path = place / "app" / "inside" / "f"
    monkeypatch.setattr(files, "_replace", lambda *_: False)  # so it is not replaced but written
    (place / "app" / "other").write_text("of somebody else")
    swapped = swap_at_open(monkeypatch, path, place / "app" / other)
    with pytest.raises(ExecutorError):
        files.write(path, b"x")
    assert swapped
    assert outside(place) == UNTOUCHED
    assert path.read_text() == ("of somebody else" if other == "other" else UNTOUCHED["f"])


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here")
@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/version", "/sys/kernel/uevent_seqnum"])
def test_the_kernel_s_own_files_are_not_opened(path: str) -> None:
    if not Path(path).exists():
        pytest.skip("not here")
    real = Path(os.path.realpath(path))
    works: list[Callable[[], object]] = [
        lambda: files.read(real), lambda: files.need_plain(real), lambda: files.write(real, b"x"),
    ]  # fmt: skip
    for work in works:
        with pytest.raises(ExecutorError, match="belongs to the kernel"):
            work()


def test_a_swap_between_check_and_use_leads_a_naive_open_out_and_not_ours(place: Path) -> None:
    """The same swap in the same moment, without luck: the control first."""
    path = Roots(place / "app").resolve("inside/f")
    exchange(place / "app" / "inside", place / "app" / "link")
    assert path.read_text() == "a secret outside"
    with pytest.raises(Swapped):
        files.read(path)
    with pytest.raises(Swapped):
        files.write(path, b"x")
    path.with_name("naive").write_text("got out")
    assert outside(place) == {**UNTOUCHED, "naive": "got out"}


def test_a_folder_that_is_swapped_all_the_time_never_leads_a_read_out(place: Path) -> None:
    path = place / "app" / "inside" / "f"
    naive: set[str] = set()
    ours: set[bytes] = set()
    noticed = 0
    with swapping(place / "app" / "inside", place / "app" / "link"):
        for _ in range(MOST_TRIES):
            naive.add(path.read_text())
            if len(naive) == 2:
                break
        for number in range(MOST_TRIES):
            if number >= TRIES and ours and noticed:
                break
            try:
                ours.add(files.read(path))
                found = files.look_at(path)
                assert found is not None and found.size == len("inside")
                assert files.entries(path.parent) == ([("f", "file")], 0)
            except Swapped:
                noticed += 1
    assert "a secret outside" in naive, "the control never got out: this race shows nothing"
    assert ours == {b"inside"}
    assert noticed


def test_a_folder_that_is_swapped_all_the_time_never_leads_a_write_out(place: Path) -> None:
    folder = place / "app" / "inside"
    with swapping(folder, place / "app" / "link"):
        for number in range(MOST_TRIES):
            (folder / "naive").write_text(str(number))
            if (place / "outside" / "naive").exists():
                break
        noticed = wrote = 0
        for number in range(MOST_TRIES):
            if number >= TRIES and wrote and noticed:
                break
            try:
                files.write(folder / f"n{number % 10}", b"ours")
                wrote += 1
                tree.make_directory(folder / "made" / str(number % 10))
            except ExecutorError:
                noticed += 1
    assert outside(place) == {**UNTOUCHED, "naive": outside(place)["naive"]}
    assert noticed
    assert any(path.name.startswith("n") and path.read_bytes() == b"ours" for path in folder.iterdir())
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
def test_a_file_that_is_swapped_is_never_written_through(in_place: bool, place: Path, monkeypatch: pytest.MonkeyPatch):
    path = place / "app" / "inside" / "f"
    if in_place:
        monkeypatch.setattr(files, "_replace", lambda *_: False)
    noticed = wrote = 0
    link = place / "app" / "file-link"
    with swapping(path, link) as still:
        for number in range(MOST_TRIES):
            if number >= TRIES and wrote and noticed:
                break
            if not (path.is_symlink() or link.is_symlink()):
                with still:
                    if not link.is_symlink():  # it was replaced by what was written: a new one
                        link.unlink()
                        link.symlink_to(place / "outside" / "f")
            try:
                files.write(path, b"ours %d" % number)
                wrote += 1
            except ExecutorError:
                noticed += 1
    assert outside(place) == UNTOUCHED
    assert wrote
    assert noticed
