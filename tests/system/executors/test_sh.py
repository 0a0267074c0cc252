"""A host without Python: a POSIX shell over there. (Commands, files, trees and searches: the contract, with `kit`.)"""

import os
import random
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus, FindQuery, GrepQuery
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.places.engine import is_left, owner
from acp_agent.executors.posix import sh_shell
from acp_agent.executors.posix.sh_program import PREFIX, words
from acp_agent.executors.posix.sh_side import ShSide
from tests.executors.kit import run
from tests.files import put, puts
from tests.system.executors.test_far import Remote, over
from tests.waits import until

SHELLS = {"dash": ("dash",), "bash": ("bash", "--posix"), "busybox": ("busybox", "sh")}


class Local:
    """A shell of this machine, for one that is elsewhere."""

    words, where, identity = "host here", "on host here", "here"

    def __init__(self, *shell: str, before: tuple[str, ...] = (), environ: dict[str, str] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self._shell, self._before = shell, before

    def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
        if argv[0] == "python3":
            return ("sh", "-c", "exit 127")
        return (*self._before, *(self._shell if argv[0] == "sh" else argv[:1]), *argv[1:])


def side(remote: Remote) -> ShSide:
    assert isinstance(remote.link._peer, ShSide)
    return remote.link._peer


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found = SHELLS[request.param]
    if shutil.which(found[0]) is None:
        pytest.skip(f"not installed: {found[0]}")
    return found


async def test_any_posix_shell_will_do(shell: tuple[str, ...], tmp_path: Path) -> None:
    async with over(Local(*shell)) as remote:
        script, env = "echo out; echo err >&2; cd /; umask; exit 3", {"A": "it's\n$A"}
        ended = await run(remote.commands, script, tmp_path, env=env)
        umask = os.umask(0)
        os.umask(umask)
        assert (ended.status, ended.stdout, ended.stderr) == (ExitStatus(3), f"out\n{umask:04o}\n", "err\n")
        text = "".join(f"{number} ünï \\n %s $A `x`\r\n" for number in range(20_000))
        await remote.files.write(tmp_path / "new" / "f", text)
        assert (await remote.files.read(tmp_path / "new" / "f")).text == text
        await remote.files.move(tmp_path / "new", tmp_path / "moved", overwrite=False, max_entries=10)
        await remote.files.copy(tmp_path / "moved", tmp_path / "copied", overwrite=False, max_entries=10)
        assert (await remote.files.list(tmp_path / "copied")).entries == (("f", "file"),)
        await remote.files.remove(tmp_path / "moved", max_entries=10)
        assert sorted(os.listdir(tmp_path)) == ["copied"]


NAMES = (
    "a b", "it's", 'say "x"', "$HOME", "`id`", "-rf", "*", "new\nline", "ends\n", "\\n", "ü", "\udcff\udcfe", "#", "~",
)  # fmt: skip


async def test_any_name_is_only_a_name(shell: tuple[str, ...], tmp_path: Path) -> None:
    async with over(Local(*shell)) as remote:
        for number, name in enumerate(NAMES):
            folder = tmp_path / str(number) / name
            await remote.files.write(folder / name, name.encode(errors="replace").decode())
            assert (await remote.files.list(folder)).entries == ((name, "file"),)
            assert await remote.files.stat(folder / name) is not None
            await remote.files.move(folder, folder.with_name("x"), overwrite=False, max_entries=9)
            await remote.files.copy(folder.with_name("x"), folder, overwrite=False, max_entries=9)
            await remote.files.remove(folder.with_name("x"), max_entries=9)
            assert os.listdir(folder.parent) == [name]
            ended = await run(remote.commands, "pwd; printf .", folder)
            assert ended.stdout == f"{os.fsencode(folder).decode(errors='replace')}\n."
    with pytest.raises(ValueError, match="null byte"):
        words("a\0b")


async def test_the_disk_is_what_it_is_here(shell: tuple[str, ...], tmp_path: Path) -> None:
    from acp_agent.disk import HERE
    from acp_agent.executors.far.far_disk import FarDisk

    (tmp_path / "d" / ".e").mkdir(parents=True)
    puts(tmp_path, {"d/f.txt": "text", "d/.e/g.txt": "more"})
    for name, target in (("dl", "d"), ("fl", "d/f.txt"), ("dang", "d/none/x"), ("up", "d/.e/.."), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "far").symlink_to("/nowhere/at/all")
    paths = [
        "", "d", "dl", "dl/f.txt", "fl", "dang", "dang/y", "up", "up/f.txt", "none/x/y", "far", "far/z", "d/f.txt/x",
    ]  # fmt: skip
    link = FarLink(Local(*shell), owner(), is_left, 60.0)
    disk = FarDisk(link)
    try:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(link.ready)

            def same() -> None:
                for path in [*(tmp_path / each for each in paths), Path("/"), Path("/proc/self/../self")][:-1]:
                    for name in ("real_path", "kind", "stands", "is_link"):
                        assert getattr(disk, name)(path) == getattr(HERE, name)(path), (name, path)
                for pattern in ("*", "*/*.txt", "d/*/g*", "d/f.txt", "none", "[df]l", "*/.e", "."):
                    found = disk.matches(pattern, tmp_path, 100)
                    assert sorted(found) == sorted(HERE.matches(pattern, tmp_path, 100)), pattern
                assert sorted(disk.names(tmp_path / "dl", 9)) == sorted(HERE.names(tmp_path / "dl", 9))
                assert (
                    dict(disk.below(tmp_path / "d", 9) or ()).keys() == dict(HERE.below(tmp_path / "d", 9) or ()).keys()
                )
                assert disk.below(tmp_path / "d", 2) is None and disk.below(tmp_path / "none", 2) == []
                assert disk.text(tmp_path / "fl", 4) == "text" and disk.head(tmp_path / "d" / "f.txt", 2) == b"te"
                assert disk.holds(tmp_path / "fl", b"ex", 9) and not disk.holds(tmp_path / "fl", b"xe", 9)
                for path in (tmp_path / "loop", tmp_path / ("n" * 300)):
                    with pytest.raises(OSError):
                        disk.real_path(path)
                for path, error in ((tmp_path / "none", FileNotFoundError), (tmp_path / "d", IsADirectoryError)):
                    with pytest.raises(OSError) as raised:
                        disk.text(path, 9)
                    assert raised.value.errno == error(error).errno or isinstance(raised.value, OSError)
                with pytest.raises(ValueError, match="too large"):
                    disk.text(tmp_path / "fl", 3)

            await anyio.to_thread.run_sync(same)
    finally:
        await anyio.to_thread.run_sync(link.close)


async def test_what_changes_something_is_done_once_however_often_the_link_is_lost(tmp_path: Path) -> None:
    chance, over_there = random.Random(7), threading.Event()
    async with over(Local("dash")) as remote:
        await remote.link.reached()
        its = side(remote)._shell

        def cut() -> None:
            while not over_there.wait(0.05 + chance.random() * 0.2):
                if (started := its._started) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(started._popen.pid, signal.SIGKILL)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            for number in range(40):
                name, text = tmp_path / f"f{number}", f"{number}" * (1 + number * 1000)
                try:
                    await remote.files.write(name, text)
                    await remote.files.move(name, tmp_path / f"g{number}", overwrite=False, max_entries=9)
                except ExecutorError as error:
                    assert "whether it was done is not known" in str(error)
                    continue
                assert (tmp_path / f"g{number}").read_text() == text
        finally:
            over_there.set()
            await anyio.to_thread.run_sync(thread.join)
        assert len([name for name in os.listdir(tmp_path) if name.startswith("g")]) > 20
        assert remote.link.losses > 3


def as_nobody() -> tuple[str, ...]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be somebody else (with setpriv)")
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


async def test_what_cannot_be_replaced_is_written_in_place_or_not_at_all(tmp_path: Path) -> None:
    before = as_nobody()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder != Path("/") and str(folder).count("pytest"):
            folder.chmod(0o755)
    for name, mode in (("plain", 0o644), ("linked", 0o644), ("read-only", 0o444)):
        (tmp_path / name).write_text("a longer text than the new one")
        os.chown(tmp_path / name, 65534, 65534)
        (tmp_path / name).chmod(mode)
    os.link(tmp_path / "linked", tmp_path / "other")
    async with over(Local("sh", before=before, environ={"PATH": os.environ["PATH"], "HOME": "/"})) as remote:
        assert (await remote.files.write(tmp_path / "plain", "new")).text == "new"
        assert (tmp_path / "plain").read_text() == "new"

        async def words_of(name: str, words: str) -> None:
            with pytest.raises(ExecutorError, match=words):
                await remote.files.write(tmp_path / name, "new")

        await words_of("linked", "has other names")
        await words_of("read-only", "read-only")
        await words_of("none", "Permission denied")
        assert (tmp_path / "linked").read_text() == (tmp_path / "read-only").read_text() != "new"
    assert sorted(os.listdir(tmp_path)) == ["linked", "other", "plain", "read-only"]


async def test_a_swapped_folder_leads_nowhere(tmp_path: Path) -> None:
    """While others swap it again and again."""
    outside, inside = tmp_path / "outside", tmp_path / "in"
    put(outside / "d" / "f", "theirs")
    inside.mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            shutil.rmtree(inside / "d", ignore_errors=True)
            with suppress(OSError):
                (inside / "d").symlink_to(outside / "d")
            with suppress(OSError):
                (inside / "d").unlink()
            with suppress(OSError):
                put(inside / "d" / "f", "ours")

    thread = threading.Thread(target=swap)
    async with over(Local("dash")) as remote:
        await remote.link.reached()
        thread.start()
        try:
            seen: set[str] = set()
            for number in range(150):
                with suppress(ExecutorError, FileNotFoundError):
                    seen.add((await remote.files.read(inside / "d" / "f")).text)
                with suppress(ExecutorError, FileNotFoundError):
                    await remote.files.write(inside / "d" / "f", f"new {number}")
                with suppress(ExecutorError, FileNotFoundError):
                    await remote.files.remove(inside / "d" / "f", max_entries=9)
        finally:
            stop.set()
            await anyio.to_thread.run_sync(thread.join)
    assert "theirs" not in seen
    assert (outside / "d" / "f").read_text() == "theirs"
    assert os.listdir(outside / "d") == ["f"]


LIES = (
    "cat /dev/zero", "exit 5", "echo no",
    # It begins as it should, and then says what nobody asked for.
    'while read -r l; do n=; for w in $l; do if [ "$n" = q ]; then printf "\\n%s 0 \\n" "$w"; fi; n=$w; done; done',
)  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
async def test_a_shell_that_lies_is_told_in_a_sentence(lie: str, tmp_path: Path) -> None:
    async with over(Local("sh", "-c", lie, "sh")) as remote:
        with pytest.raises((ExecutorError, FileNotFoundError)):
            await remote.files.read(tmp_path / "x")
        with pytest.raises(ExecutorError):
            await remote.commands.run(Command("touch made", tmp_path))
    assert not os.listdir(tmp_path)


async def test_a_shell_that_is_not_told_the_key_runs_nothing(tmp_path: Path) -> None:
    """What stands in a file that is written is never taken for a question."""
    async with over(Local("dash")) as remote:
        await remote.link.reached()
        evil = "".join(f"{word} touch {tmp_path}/made\n" for word in ("", "K", "q 1", side(remote)._shell._key[:-1]))
        await remote.files.write(tmp_path / "f", evil * 1000)
        started = side(remote)._shell._started
        assert started is not None
        started.write(evil.encode())
        assert (await remote.files.read(tmp_path / "f")).text == evil * 1000
    assert os.listdir(tmp_path) == ["f"]


async def test_no_folder_is_left_and_only_our_own_dead_are_ended(tmp_path: Path) -> None:
    put((foreign := Path("/tmp") / f"{PREFIX}foreign{uuid.uuid4().hex}") / "owner", "another-machine/pid:[1] 1 1\n")
    try:
        async with over(Local("dash")) as remote:
            await run(remote.commands, "true", tmp_path)
            folder = Path(side(remote)._state.folder)
            assert folder.stat().st_mode & 0o777 == 0o700
        assert foreign.exists() and not folder.exists()
    finally:
        shutil.rmtree(foreign)
    assert not subprocess.run(["pgrep", "-f", folder.name], capture_output=True, check=False).stdout


async def test_lines_are_found_again_whatever_their_encoding(shell: tuple[str, ...], tmp_path: Path) -> None:
    words = "erste\nzweite Zeile über alles\r\ndritte"
    for name, codec in (("utf8", "utf-8"), ("mark", "utf-8-sig"), ("wide", "utf-16")):
        (tmp_path / name).write_bytes(words.encode(codec))
    (tmp_path / "none").write_bytes(b"")
    async with over(Local(*shell)) as remote:
        found = await remote.files.grep(GrepQuery("zweite .* über", tmp_path, True, 10, 20.0))
        assert [(match.path.name, match.line) for match in found.matches] == [
            (name, 2) for name in ("mark", "utf8", "wide")
        ]
        found = await remote.files.find(FindQuery("*n*", tmp_path, 10, 20.0))
        assert [match.path.name for match in found.matches] == ["none"]
        there = await remote.link.reached()
        remote.link.there = msgspec.structs.replace(there, programs={**there.programs, "rg": ""})
        found = await remote.files.grep(GrepQuery("zweite .* ü", tmp_path, True, 10, 20.0))
        assert [(match.path.name, match.line) for match in found.matches] == [("mark", 2), ("utf8", 2)] and found.note


async def test_what_does_not_fit_over_there_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full: none of the data gets lost without a word, and none of it is run."""
    small, work = tmp_path / "small", tmp_path / "work"
    small.mkdir()
    work.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", small], check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    monkeypatch.setattr(sh_shell, "TOPS", (str(small),))
    try:
        async with over(Local("dash")) as remote:
            (work / "f").write_text("old")
            with pytest.raises(ExecutorError, match="No space left"):
                await remote.files.write(work / "f", f"touch {work}/made\n" * 100_000)
            assert (work / "f").read_text() == "old"
            await remote.files.write(work / "f", "new")
            assert (work / "f").read_text() == "new"
        assert os.listdir(work) == ["f"]
    finally:
        subprocess.run(["umount", small], check=True)


async def test_a_command_that_is_killed_before_it_has_begun_does_not_run(shell: tuple[str, ...], tmp_path: Path):
    async with over(Local(*shell)) as remote:
        for number in range(10):
            process = await remote.commands.run(Command(f"sleep 0.3; touch made{number}", tmp_path))
            await process.kill()
            await process.close()
        await run(remote.commands, "sleep 0.4", tmp_path)
    assert os.listdir(tmp_path) == []


async def test_only_our_own_folders_are_taken_for_ours(tmp_path: Path) -> None:
    victim = subprocess.Popen(["sleep", "600"])
    planted = Path("/tmp") / f"{PREFIX}+{uuid.uuid4().hex}"
    dead = Path("/tmp") / f"{PREFIX}{uuid.uuid4().hex}"
    try:
        puts(dead, {"owner": f"{owner().split()[0]} 999999999 1\n", "mark": uuid.uuid4().hex + "\n"})
        planted.mkdir()
        for name in ("owner", "mark"):
            (planted / name).symlink_to(dead / name)
        (planted / "keeper.pid").write_text(f"{victim.pid}\n")
        if os.geteuid() == 0:
            os.chown(planted, 65534, 65534)
        async with over(Local("dash")) as remote:
            await remote.link.reached()
            await until(lambda: not dead.exists())
            await run(remote.commands, "true", tmp_path)
        assert os.geteuid() != 0 or victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
        shutil.rmtree(planted, ignore_errors=True)
        shutil.rmtree(dead, ignore_errors=True)
