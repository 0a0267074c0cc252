"""How other agents' designs failed their users: each case with what happens here.

Shadow repositories filled disks and broke the user's own; `clean` and `reset` deleted what was the user's; only what
edit tools did was undone; links were followed.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from acp_agent.errors import ExecutorError
from acp_agent.undo.base import Entry
from acp_agent.undo.contents import ContentError, Contents
from acp_agent.undo.elsewhere import _put_below
from acp_agent.undo.file_changes import hunks
from acp_agent.undo.folder_looks import Limits
from acp_agent.undo.merge import merge
from acp_agent.undo.restore import make
from tests.files import put, puts
from tests.repositories import committed, git

from .kit import Bench, as_a_user, small_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def commit_all(bench: Bench) -> None:
    git(bench.project, "init", "-q")
    git(bench.project, "add", "-A")
    git(bench.project, "commit", "-q", "--allow-empty", "-m", "first")
    later = 1_000_000_000_000_000_000 + (bench.project / ".git/index").stat().st_mtime_ns
    os.utime(bench.project / ".git/index", ns=(later, later))  # No file is as young as the index.


def test_files_that_the_agent_never_made_stay(bench: Bench) -> None:
    """`git clean -fd` after a restore deleted a gigabyte of the user's data."""
    (bench.project / "data").mkdir()
    (bench.project / "data" / "mine.bin").write_bytes(b"mine")
    call = bench.by_command("mkdir out && echo made > out/made.txt && echo more >> data/mine.bin")
    (bench.project / "out" / "my own.txt").write_text("mine too")
    assert call and not bench.take_back(bench.operations()).conflicts
    assert (bench.project / "data" / "mine.bin").read_bytes() == b"mine"
    assert (bench.project / "out" / "my own.txt").read_text() == "mine too"
    assert not (bench.project / "out" / "made.txt").exists()
    assert any("not empty" in words for words in bench.told)


def test_what_gitignore_protected_stays_although_gitignore_is_taken_back(bench: Bench) -> None:
    """`.gitignore` was reverted first; then `clean` wiped what it had protected."""
    commit_all(bench)
    bench.by_command("echo secrets > .gitignore")
    (bench.project / "secrets").write_text("the user's")
    bench.take_back(bench.operations())
    assert not (bench.project / ".gitignore").exists() and (bench.project / "secrets").read_text() == "the user's"


def test_the_users_repository_is_never_written_to(bench: Bench) -> None:
    """Nested repositories were renamed and left so; the index and HEAD moved."""
    put(bench.project / "vendor" / "lib.c", "int a;")
    git(bench.project / "vendor", "init", "-q")
    committed(bench.project / "vendor", "-A", message="first")
    (bench.project / "main.c").write_text("int b;")
    commit_all(bench)

    def repositories() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for git in (bench.project / ".git", bench.project / "vendor" / ".git")
            for path in sorted(git.rglob("*"))
            if path.is_file()
        }

    before = repositories()
    bench.by_command("echo 'int c;' >> main.c && rm vendor/lib.c")
    bench.take_back(bench.operations())
    assert repositories() == before
    assert (bench.project / "vendor" / "lib.c").read_text() == "int a;"


COMMIT = "git -c user.name=x -c user.email=x@example.com commit -qm first"


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ("git init -q; echo before > untracked", "echo after > untracked; rm -f nothing"),
        ("", "mkdir -p a/b && touch a/b/c"),
        (
            "echo one > a.txt; echo '#!/bin/sh' > run.sh; chmod 644 run.sh",
            "sed -i s/one/two/ a.txt && chmod +x run.sh && mv a.txt b.txt && ln -s b.txt c && mkdir empty",
        ),
        (
            f"echo .env > .gitignore; git init -q; git add -A; {COMMIT}; echo KEY=1 > .env",
            "rm .env && rm -rf .gitignore",
        ),
        (
            "echo x > target; ln -s target link; ln -s nowhere dangling; echo case > Name; mkdir -m 750 empty",
            "rm link && ln -s elsewhere link && rm dangling && rmdir empty && mv Name name && mkfifo pipe",
        ),
        ("mkdir src; echo mine > src/x", "mv src lib && ln -s lib src"),
    ],
    ids=[
        # Without an identity the checkpoint was empty, and everything untracked was removed with a message of success.
        "in a repository without an identity", "files made since, which `checkout-index -a -f` left",
        "what commands did, where only the edits of tools were taken back",
        "ignored and untracked files, which were lost", "links, modes, folders and what is no file",
        "a folder that became a link",
    ],
)  # fmt: skip
def test_all_is_as_it_was_before_the_command(bench: Bench, before: str, command: str) -> None:
    subprocess.run(["bash", "-ec", before], cwd=bench.project, check=True)
    state = bench.state()
    bench.by_command(command)
    assert bench.state() != state and not bench.take_back(bench.operations()).conflicts
    assert bench.state() == state


def test_a_link_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    put((outside := tmp_path / "outside") / "file", "outside")
    put(bench.project / "folder" / "file", "before")
    bench.by_command("echo after > folder/file")
    shutil.rmtree(bench.project / "folder")
    (bench.project / "folder").symlink_to(outside)
    plan = bench.take_back(bench.operations())
    assert (outside / "file").read_text() == "outside"
    assert [conflict.path for conflict in plan.conflicts] == [bench.project / "folder" / "file"]


def test_a_socket_that_was_removed_is_named_as_lost(bench: Bench) -> None:
    with socket.socket(socket.AF_UNIX) as server, chdir(bench.project):
        server.bind("s")
        bench.by_command("rm s")
    plan = bench.plan(bench.operations())
    assert [conflict.why for conflict in plan.conflicts] == ["it cannot be made again: it is no file"]


def test_what_the_user_changed_between_two_commands_is_not_lost(bench: Bench) -> None:
    (bench.project / "a").write_text("a\n")
    bench.by_command("echo b >> a")
    (bench.project / "a").write_text("a\nb\nmine\n")
    bench.by_command("echo c >> a")
    assert [conflict.path.name for conflict in bench.take_back(bench.operations()).conflicts] == ["a"]
    assert (bench.project / "a").read_text() == "a\nb\nmine\nc\n"


def test_large_files_cost_no_copy_and_are_named(tmp_path: Path) -> None:
    """Shadow repositories of media folders took 170 GB and hours."""
    bench = Bench(tmp_path, limits=Limits(1000, 1000))
    for number in range(20):
        with open(bench.project / f"{number}.mp4", "wb") as file:
            file.truncate(500_000_000)
    bench.by_command("rm 3.mp4 && mv 4.mp4 moved.mp4 && echo > small")
    assert bench.contents.used() < 10_000
    assert any("larger than 1000 bytes" in words for words in bench.looks.uncovered())
    assert [conflict.path.name for conflict in bench.take_back(bench.operations()).conflicts] == ["3.mp4"]
    assert (bench.project / "4.mp4").exists() and not (bench.project / "moved.mp4").exists()
    bench.close()


def test_where_git_has_other_contents_it_is_not_relied_on(bench: Bench) -> None:
    """A blob of Git LFS is a pointer of 130 bytes, not the file."""
    git(bench.project, "init", "-q")
    git(bench.project, "config", "filter.other.clean", "tr a-z A-Z")
    puts(bench.project, {".gitattributes": "*.txt filter=other\n", "a.txt": "as it is on the disk"})
    commit_all(bench)
    bench.looks.look(1.0)
    assert bench.contents.used() > 0
    bench.by_command("rm a.txt")
    bench.take_back(bench.operations())
    assert (bench.project / "a.txt").read_text() == "as it is on the disk"


@pytest.mark.parametrize("how", ["core.autocrlf=true", "core.autocrlf=input", "* text=auto", "* text eol=crlf"])
def test_line_endings_that_git_changes_come_back(bench: Bench, how: str) -> None:
    """A blob has other line endings than the file: what git gives back would be another file."""
    git(bench.project, "init", "-q")
    if how.startswith("core."):
        git(bench.project, "config", *how.split("="))
    else:
        (bench.project / ".gitattributes").write_text(f"{how}\n")
    (bench.project / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (bench.project / "same.txt").write_bytes(b"one line without an end")
    commit_all(bench)
    bench.looks.look(0.0)
    bench.looks.copy_on(5.0)
    assert not bench.looks.uncovered()
    assert bench.contents.used() == 4096  # A block: `same.txt` is in git.
    bench.by_command("echo > a.txt; echo > same.txt")
    assert not bench.take_back(bench.operations()).conflicts
    assert (bench.project / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert (bench.project / "same.txt").read_bytes() == b"one line without an end"


def test_what_git_has_lost_is_copied_in_time(bench: Bench) -> None:
    """A partial clone has no blobs for what it has not fetched."""
    (bench.project / "a.txt").write_text("kept")
    commit_all(bench)
    shutil.rmtree(bench.project / ".git" / "objects")
    bench.looks.look(0.0)
    bench.looks.copy_on(5.0)
    bench.by_command("echo > a.txt")
    bench.take_back(bench.operations())
    assert (bench.project / "a.txt").read_text() == "kept"


def test_a_file_that_only_looks_as_git_has_it_is_copied(bench: Bench) -> None:
    (path := bench.project / "a").write_text("committed")
    commit_all(bench)
    seen = path.stat()
    path.write_text("the users")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    bench.by_command("echo changed > a")
    bench.take_back(bench.operations())
    assert path.read_text() == "the users"


def test_names_that_are_no_text_are_taken_back(bench: Bench) -> None:
    before = {b"\xff\xfe", b"new\nline", b"b\xc3\xa4r"}
    for name in before:
        with open(os.fsencode(bench.project) + b"/" + name, "wb") as file:
            file.write(name)
    bench.by_command("rm -- *; mkdir $'\\xfd'; echo x > $'\\xfd/\\xfc'")
    bench.take_back(bench.operations())
    assert set(os.listdir(os.fsencode(bench.project))) == before


def test_what_changes_a_file_right_after_our_own_tool_is_found(bench: Bench) -> None:
    """A formatter, a hook: they may be done before it is looked again."""
    bench.looks.look(1.0)
    path = bench.project / "a"
    bench.by_tool(lambda files: files.write(path, "tool\n"))
    path.write_text("tool\nformatted\n")
    (change,) = bench.looks.look(1.0)
    assert bench.contents.get(change.before.content) == b"tool\n"
    path.unlink()
    (change,) = bench.looks.look(1.0)
    assert change.before.size == len("tool\nformatted\n") and change.after is not None and change.after.kind == "none"


def test_files_that_take_long_to_compare_are_one_hunk() -> None:
    old = "".join(f"value {number}\n\n}}\n" for number in range(1000))
    new = "".join(f"    value {number}\n\n}}\n" for number in range(1000))
    assert hunks(old, new) == ((1, 3000, 1, 3000),)
    assert merge(old, new, old + "more\n") is None


@pytest.mark.parametrize(("ours", "theirs", "merged"), [
    ("a\nX\nc\n", "a\nX\nc\n", "a\nX\nc\n"), ("X\nb\nc\n", "a\nb\nY\n", "X\nb\nY\n"), ("a\nX\nc\n", "a\nY\nc\n", None),
    ("a\nX\nc\n", "a\nb\nc\n", "a\nX\nc\n"), ("a\nb\nc\n", "a\nY\nc\n", "a\nY\nc\n"),
    ("X\nb\nc\n", "X\nb\nY\n", "X\nb\nY\n"),
])  # fmt: skip
def test_changes_of_two_are_merged_where_they_agree_or_are_apart(ours: str, theirs: str, merged: str | None) -> None:
    assert merge("a\nb\nc\n", ours, theirs) == merged


def test_a_users_file_that_the_agent_linked_to_is_not_written_through_the_link(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("the user's")
    (bench.project / "a").write_text("before")
    bench.by_command("ln -f ../outside a")
    bench.take_back(bench.operations())
    assert (bench.project / "a").read_text() == "before"
    assert (tmp_path / "outside").read_text() == "the user's"


def test_hard_links_come_apart_and_that_is_said(bench: Bench, tmp_path: Path) -> None:
    (bench.project / "a").write_text("before")
    os.link(bench.project / "a", tmp_path / "outside")
    bench.by_command("echo after > a")
    words = bench.plan(bench.operations()).remarks()
    assert words == {bench.project / "a": "a hard link: it may become a file of its own"}
    bench.take_back(bench.operations())
    assert (bench.project / "a").read_text() == "before"
    assert (tmp_path / "outside").read_text() == "after\n"


def test_a_later_step_that_fails_leaves_files_that_are_not_kept_untouched(tmp_path: Path) -> None:
    bench = small_bench(tmp_path)
    puts(bench.project, {"a": "before", "z": "the other content"})
    bench.by_command("head -c 3000 /dev/zero > new; head -c 3000 /dev/zero > a; rm z")
    (step,) = (step for step in bench.plan(bench.operations()).steps if step.path.name == "z")
    (tmp_path / "state/undo/contents" / step.then.content[:2] / step.then.content[2:]).unlink()
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in bench.project.iterdir()}
    with pytest.raises(ContentError):
        bench.take_back(bench.operations())
    assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in bench.project.iterdir()} == before
    bench.close()


def test_what_changed_while_the_question_was_open_stops_the_undo_before_it_begins(bench: Bench) -> None:
    for name in ("a", "b"):
        (bench.project / name).write_text("before")
    bench.by_command("echo after > a; echo after > b")
    plan = bench.plan(bench.operations())
    first, last = (step.path for step in plan.steps)
    time = first.stat().st_mtime_ns
    last.write_text("mine")
    with pytest.raises(ExecutorError, match="changed in the last moment"):
        make(plan.steps, bench.camera)
    assert (first.read_text(), first.stat().st_mtime_ns, last.read_text()) == ("after\n", time, "mine")


def test_a_folder_that_was_made_for_an_undo_that_failed_is_gone(bench: Bench, tmp_path: Path) -> None:
    (bench.project / "d").mkdir()
    for name in ("d/a", "b"):
        (bench.project / name).write_text(f"before {name}")
    bench.by_command("rm d/a b")
    (bench.project / "d").rmdir()
    steps = sorted(bench.plan(bench.operations()).steps, key=lambda step: step.path.name)
    content = steps[-1].then.content
    (tmp_path / "state/undo/contents" / content[:2] / content[2:]).unlink()
    with pytest.raises(ContentError):
        make(steps, bench.camera)
    assert bench.state() == {}


def test_in_a_folder_that_cannot_be_read_any_more_nothing_is_lost() -> None:
    def shut(folder: Path) -> None:
        bench = small_bench(folder)
        puts(bench.project, {"d/f": "before", "e": "before"})
        before = bench.state()
        bench.by_command("echo after > e; chmod 000 d")
        bench.take_back(bench.operations())
        assert bench.state() == before
        bench.by_command("echo after > d/f", prompt=2)
        bench.take_back(bench.operations(2))
        assert bench.state() == before
        bench.close()

    as_a_user(shut)


def test_the_file_that_cannot_be_restored_is_named(tmp_path: Path) -> None:
    def denied(folder: Path) -> None:
        bench = small_bench(folder)
        bench.by_command("mkdir d; echo > d/f; chmod 444 d/f", prompt=1)
        bench.by_command("chmod 644 d/f; echo more > d/f; chmod 444 d/f", prompt=2)
        plan = bench.plan(bench.operations(2))
        (bench.project / "d").chmod(0o555)
        with pytest.raises(PermissionError, match=r"/d/f'$"):
            make(plan.steps, bench.camera)
        assert (bench.project / "d" / "f").read_text() == "more\n"
        assert (bench.project / "d").stat().st_mode & 0o777 == 0o555
        bench.close()

    as_a_user(denied)


def test_what_is_in_a_folder_that_became_unreadable_has_not_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root, who reads every folder, the system's refusal is played."""
    if os.geteuid() == 0:
        scan = os.scandir

        def refuses(path: str) -> object:
            if not isinstance(path, int) and os.stat(path).st_mode & 0o777 == 0:
                raise PermissionError(13, "Permission denied", path)
            return scan(path)

        monkeypatch.setattr("acp_agent.undo.folder_looks.os.scandir", refuses)
    put(bench.project / "d" / "a", "mine")
    bench.by_command("chmod 000 d")
    (change,) = bench.log.changes(bench.operations())
    assert change.path == bench.project / "d"
    assert not bench.take_back(bench.operations()).conflicts
    assert (bench.project / "d" / "a").read_text() == "mine"


def test_read_only_folders_are_made_elsewhere_with_what_is_in_them() -> None:
    def work(folder: Path) -> None:
        contents = Contents(folder / "contents")
        (folder / "there").mkdir()
        closed = {folder / "top/d": Entry("dir", 0o555), folder / "top/d/e": Entry("dir", 0o500)}
        file = {folder / "top/d/e/a": Entry("file", 0o444, 1, contents.put(b"a"))}
        assert _put_below({**file, **closed}, folder / "top", folder / "there", contents) == []
        assert (folder / "there/d/e/a").read_text() == "a"
        assert [(folder / "there" / name).stat().st_mode & 0o777 for name in ("d", "d/e")] == [0o555, 0o500]
        for name in ("d", "d/e"):
            (folder / "there" / name).chmod(0o700)

    as_a_user(work)
