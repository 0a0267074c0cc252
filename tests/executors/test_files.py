"""Reading and writing text: one contract, every backend."""

import errno
import os
import stat
import struct
from pathlib import Path

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors import files
from acp_agent.executors.base import NO_FILE, ChangedMeanwhile, FileStat, Listing, PartQuery
from acp_agent.executors.beneath import ACL
from tests.executors.kit import Stage, stage


def unwritable(folder: Path) -> Path:
    """A folder in which we may make nothing: a locked one, or for root a part of the kernel's own tree."""
    if os.geteuid() == 0:
        return Path("/sys/kernel")
    (locked := folder / "locked").mkdir(mode=0o555)
    return locked


@pytest.mark.parametrize(
    "text", ["", "a\n", "no newline", "a\r\nb\r\n", "mixed\r\nends\n\r", "ünï💡\n", "\ufeffbom\n", "\t"]
)
async def test_text_is_read_and_written_as_it_is(on: Stage, text: str) -> None:
    (path := on.folder / "f.txt").write_bytes(b"before")
    shown = text.removeprefix("\ufeff")
    assert (await on.files.write(path, text)).text == shown
    assert path.read_bytes() == text.encode()
    assert (await on.files.read(path)).text == shown


def acl(group: int, user: int = 4321) -> bytes:
    """As the kernel has it: the owner, a user, the group, the mask, others."""
    entries = ((1, 6, -1), (2, 6, user), (4, group, -1), (0x10, 6, -1), (0x20, 4, -1))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


async def test_extended_attributes_and_access_control_lists_are_kept_and_none_is_added(on: Stage, backend: str) -> None:
    if backend in ("ssh without Python", "busybox"):
        pytest.skip("a place without Python keeps owner and mode")
    kept, plain = on.folder / "kept", on.folder / "plain"
    kept.write_text("old")
    plain.write_text("old")
    try:
        os.setxattr(kept, "user.origin", b"\0somewhere")
        os.setxattr(kept, ACL, acl(group=0))
        os.setxattr(on.folder, "system.posix_acl_default", acl(group=6))
    except OSError:
        pytest.skip("this file system has none")
    plain.chmod(0o660)
    for path in (kept, plain):
        await on.files.write(path, "new")
        assert path.read_text() == "new"
    assert (os.getxattr(kept, "user.origin"), os.getxattr(kept, ACL)) == (b"\0somewhere", acl(group=0))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o664  # The group's bits are the mask.
    assert (os.listxattr(plain), stat.S_IMODE(plain.stat().st_mode)) == ([], 0o660)


async def test_a_file_is_written_with_its_folders_under_any_name_and_nothing_is_left_beside_it(on: Stage) -> None:
    await on.files.write(on.folder / "f.txt", "x" * 100_000)
    assert [path.name for path in on.folder.iterdir()] == ["f.txt"]
    path = on.folder / "a" / "b" / "c.txt"
    assert (await on.files.write(path, "x")).text == "x"
    assert path.read_text() == "x"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    (path := on.folder / "run.sh").write_text("old")
    path.chmod(0o754)
    await on.files.write(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o754
    path = on.folder / ("n" * 250)
    assert (await on.files.write(path, "x")).text == "x"
    now = (await on.files.write(on.folder / "f", "a\ud800b")).text
    assert (on.folder / "f").read_bytes() == b"a?b"
    assert now == "a?b"


async def test_what_cannot_be_read_written_or_listed_is_told_in_words(on: Stage) -> None:
    with pytest.raises(FileNotFoundError) as error:
        await on.files.read(on.folder / "missing")
    assert error.value.filename == str(on.folder / "missing")
    with pytest.raises(FileNotFoundError):
        await on.files.read_bytes(on.folder / "missing", 10)
    (on.folder / "d").mkdir()
    with pytest.raises(ExecutorError, match="directory"):
        await on.files.read(on.folder / "d")
    with pytest.raises(ExecutorError, match=r"directory|refused"):
        await on.files.write(on.folder / "d", "x")
    assert (on.folder / "d").is_dir()
    (on.folder / "f").write_text("x")
    with pytest.raises(ExecutorError):
        await on.files.write(on.folder / "f" / "g.txt", "x")
    assert await on.files.stat(on.folder / "f" / "g.txt") is None
    with pytest.raises(FileNotFoundError):
        await on.files.read(on.folder / "f" / "g.txt")
    with pytest.raises(ExecutorError, match="f: "):
        await on.files.list(on.folder / "f")
    with pytest.raises(FileNotFoundError):
        await on.files.list(on.folder / "missing")
    locked = unwritable(on.folder)
    with pytest.raises(ExecutorError, match="Permission denied|Read-only"):
        await on.files.write(locked / "f", "x")
    (path := on.folder / "f.bin").write_bytes(b"\x00\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        await on.files.read(path)
    assert await on.files.read_bytes(path, 2) == b"\x00\xff"
    assert await on.files.read_bytes(path, 100) == b"\x00\xff\xfe"


async def test_a_link_in_the_place_of_a_checked_path_is_not_followed(on: Stage) -> None:
    (on.folder / "target").write_text("old")
    (on.folder / "link").symlink_to("target")
    with pytest.raises(ExecutorError, match="it is a link now"):
        await on.files.write(on.folder / "link", "new")
    with pytest.raises(ExecutorError, match="it is a link now"):
        await on.files.read(on.folder / "link")
    assert (on.folder / "link").is_symlink() and (on.folder / "target").read_text() == "old"


async def test_stat_and_list_tell_kinds_without_following(on: Stage) -> None:
    (on.folder / "d").mkdir()
    (on.folder / "f").write_text("abc")
    (on.folder / "to-dir").symlink_to("d")
    (on.folder / "dangling").symlink_to("nowhere")
    os.mkfifo(on.folder / "pipe")
    all_of_them = await on.files.list(on.folder)
    assert all_of_them.entries == (
        ("d", "dir"), ("dangling", "symlink"), ("f", "file"), ("pipe", "other"), ("to-dir", "symlink"),
    )  # fmt: skip
    assert await on.files.list(on.folder, 3) == Listing(all_of_them.entries[:3], 2)
    assert await on.files.stat(on.folder / "f") == FileStat("file", 3)
    assert await on.files.stat(on.folder / "missing") is None
    dangling = await on.files.stat(on.folder / "dangling")
    assert dangling is not None and dangling.kind == "symlink"


async def test_what_somebody_else_wrote_is_never_written_over(on: Stage) -> None:
    path, new = on.folder / "f", on.folder / "new"
    path.write_text("one")
    version = await on.files.read(path)
    again = await on.files.write(path, "two", version)
    assert (await on.files.write(path, "three", again)).text == path.read_text() == "three"
    for expected in (version, again, NO_FILE):
        with pytest.raises(ChangedMeanwhile, match="changed by someone else"):
            await on.files.write(path, "four", expected)
    path.write_bytes(b"\x00\xff")
    with pytest.raises(ChangedMeanwhile):
        await on.files.write(path, "four", again)
    assert path.read_bytes() == b"\x00\xff"
    path.unlink()
    with pytest.raises(ChangedMeanwhile):
        await on.files.write(path, "four", again)
    assert not path.exists()
    assert (await on.files.write(new, "five", NO_FILE)).text == new.read_text() == "five"


async def test_the_other_names_of_a_file_keep_what_was_there(on: Stage, tmp_path: Path) -> None:
    """They may be in a package manager's store, or outside the session's folders."""
    (path := on.folder / "f").write_text("old")
    os.link(path, tmp_path / "other")
    written = await on.files.write(path, "new")
    assert (path.read_text(), (tmp_path / "other").read_text()) == ("new", "old")
    assert "a file of its own now" in written.remark
    assert not (await on.files.write(path, "newer")).remark


async def test_a_file_with_other_names_is_not_written(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if backend not in ("local", "editor"):
        return  # There another process does it.
    async with stage(backend, tmp_path) as on:
        (path := on.folder / "f").write_text("old")
        os.link(path, tmp_path / "other")
        monkeypatch.setattr(files, "_replace", lambda *_: False)
        with pytest.raises(ExecutorError, match="has other names"):
            await on.files.write(path, "new")
        assert path.read_text() == "old"


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EACCES])
async def test_a_file_that_cannot_be_replaced_is_written_in_place(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(name: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        raise OSError(number, os.strerror(number))

    async with stage(backend, tmp_path) as on:
        (path := on.folder / "f").write_text("a longer text than the new one")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refuse)
            await on.files.write(path, "new")
        assert path.read_text() == "new"
        assert [entry.name for entry in on.folder.iterdir()] == ["f"]


async def test_a_pipe_is_not_replaced_by_a_file(backend: str, tmp_path: Path) -> None:
    if backend == "editor":
        return  # The editor decides.
    async with stage(backend, tmp_path) as on:
        os.mkfifo(on.folder / "pipe")
        with pytest.raises(ExecutorError, match="not a regular file"):
            await on.files.write(on.folder / "pipe", "x")
        assert (on.folder / "pipe").is_fifo()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_the_owner_of_a_file_is_kept(backend: str, tmp_path: Path) -> None:
    if backend == "editor":
        return  # The editor decides.
    async with stage(backend, tmp_path) as on:
        (path := on.folder / "f").write_text("old")
        os.chown(path, 65534, 65534)
        await on.files.write(path, "new")
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


@pytest.mark.parametrize(("query", "first", "data"), [
    (PartQuery(1, 2, 99), 1, "one\ntwo\n"), (PartQuery(3, 9, 99), 3, "thrée\nfour"), (PartQuery(4, 1, 99), 4, "four"),
    (PartQuery(-1, 9, 100), -1, "four"), (PartQuery(-3, 2, 100), -3, "two\nthrée\n"), (PartQuery(2, 1, 2), 2, "tw"),
    (PartQuery(3, 1, 5, skip=2), 3, "rée\n"), (PartQuery(-2, 1, 100, skip=1), -2, "hrée\n"),
])  # fmt: skip
async def test_a_part_of_a_file_is_read(on: Stage, query: PartQuery, first: int, data: str) -> None:
    (path := on.folder / "log").write_text("one\ntwo\nthrée\nfour")
    part = await on.files.read_part(path, query)
    assert (part.first, part.size) == (first, 19)
    assert part.text.removesuffix("\n") == data.removesuffix("\n")  # Busybox ends the last line, too.
    path.write_text("one\ntwo\n")
    assert (await on.files.read_part(path, PartQuery(-1, 9, 100))).text == "two\n"
    assert (await on.files.read_part(path, PartQuery(-9, 9, 100))).text == "one\ntwo\n"
    with pytest.raises(ExecutorError, match="line 3 does not exist"):
        await on.files.read_part(path, PartQuery(3, 1, 100))


def test_a_part_is_found_across_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sed` and `tail` find it."""
    text = "".join(f"{'x' * (n % 7)}{n}\n" for n in range(40)) + "end"
    (path := tmp_path / "f").write_text(text)
    lines = text.splitlines(keepends=True)
    for block in (1, 2, 5, 64, 1 << 20):
        monkeypatch.setattr(files, "BLOCK", block)
        for number in range(1, len(lines) + 1):
            head, _, data = files.part(path, number, 2, 1000, 0, 9.0).partition(b"\n")
            assert (head, data) == (f"{number} {len(text)}".encode(), "".join(lines[number - 1 : number + 1]).encode())
            head, _, data = files.part(path, -number, 2, 1000, 0, 9.0).partition(b"\n")
            assert data.decode() == "".join(lines[-number:][:2])
    with pytest.raises(ExecutorError, match="beyond"):
        files.part(path, 40, 1, 9, 0, -1.0)
    with pytest.raises(ExecutorError, match="too long a part"):
        files.part(path, -40, 1, 9, 0, -1.0)
