"""Editors in practice: the quirks of real clients, and how each is handled."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import ConnectionClosed, ExecutorError
from acp_agent.executors.base import ChangedMeanwhile, Command, ExitStatus, Offer
from acp_agent.executors.editor.editor_terminals import NotStarted
from acp_agent.testing.fake_editor import AnswersError, NeverAnswers
from tests.e2e.kit import alive, until_gone
from tests.executors.kit import collect, run, stage, until_exists

NOT_FOUND = AnswersError(-32601, "Method not found")


async def test_what_is_not_offered_is_never_asked(tmp_path: Path) -> None:
    offer: dict[str, Any] = {"terminal": False, "fs_read": False, "fs_write": False}
    async with stage("editor", tmp_path, offer=Offer(), **offer) as on:
        assert (await run(on.commands, "echo x", on.folder)).stdout == "x\n"
        await on.files.write(on.folder / "f", "x")
        assert (await on.files.read(on.folder / "f")).text == "x" and on.editor is not None
        assert on.editor.transcript == []


async def test_a_command_is_one_script_that_means_the_same_joined_for_a_shell(tmp_path: Path) -> None:
    for joined in (False, True):
        async with stage("editor", tmp_path, join_for_shell=joined) as on:
            assert (await run(on.commands, """echo "a  b" 'c;d' $((1+1)) | cat""", on.folder)).stdout == "a  b c;d 2\n"
    async with stage("editor", tmp_path, crlf_output=True) as on:
        assert (await run(on.commands, "echo a; echo b", on.folder)).stdout == "a\nb\n"


async def test_a_terminal_is_shown_and_released_exactly_once(tmp_path: Path) -> None:
    async with stage("editor", tmp_path) as on:
        process = await on.commands.run(Command("echo x", on.folder))
        assert process.view is not None and process.view.terminal_id == "term-1"
        await process.wait()
        assert on.asked("terminal/release") == 0
        await process.close()
        await process.close()
        assert on.asked("terminal/release") == 1 and on.asked("terminal/kill") == 0 and on.editor is not None
        assert on.editor.terminals.open == 0 and list(on.scripts.iterdir()) == []


async def test_a_wait_that_is_never_answered_after_a_kill_does_not_hang(tmp_path: Path) -> None:
    async with stage("editor", tmp_path, wait_never_answers_after_kill=True) as on:
        process = await on.commands.run(Command("echo x; echo 1 > ready; sleep 600", on.folder))
        await until_exists(on.folder / "ready")
        with anyio.move_on_after(0.05):
            await process.wait()
        await process.kill()
        assert process.stdout == "x\n"
        assert (await process.wait()).exit_code != 0
        await process.close()
        assert on.asked("terminal/release") == 1


ON_THE_WAY_OUT = ["terminal/kill", "terminal/output", "terminal/release"]


@pytest.mark.parametrize(("method", "trouble"), [
    *((method, NeverAnswers()) for method in [*ON_THE_WAY_OUT, "terminal/wait_for_exit"]),
    *((method, AnswersError()) for method in ON_THE_WAY_OUT),
])  # fmt: skip
async def test_a_client_that_fails_holds_nothing(method: str, trouble: AnswersError | NeverAnswers, tmp_path: Path):
    async with stage("editor", tmp_path, misbehave={method: trouble}) as on:
        process = await on.commands.run(Command("echo 1 > ready; sleep 600", on.folder))
        await until_exists(on.folder / "ready")
        with anyio.move_on_after(0.05):
            await process.wait()
        await process.kill()
        await process.close()
        assert list(on.scripts.iterdir()) == []


@pytest.mark.parametrize("kills", [True, False], ids=["killed", "closed while it runs"])
async def test_what_a_client_does_not_kill_is_killed_here(kills: bool, tmp_path: Path) -> None:
    async with stage("editor", tmp_path, nothing_is_killed=True) as on:
        process = await on.commands.run(Command("sleep 600 & echo $$ $! > made; mv made pids; wait", on.folder))
        await until_exists(on.folder / "pids")
        if kills:
            await process.kill()
        await process.close()
        for pid in (on.folder / "pids").read_text().split():
            await until_gone(int(pid))


async def test_only_the_command_that_is_killed_ends(tmp_path: Path) -> None:
    async with stage("editor", tmp_path, nothing_is_killed=True) as on:
        one, two = [
            await on.commands.run(Command(f"echo $$ > made{name}; mv made{name} {name}; sleep 600", on.folder))
            for name in ("one", "two")
        ]
        for name in ("one", "two"):
            await until_exists(on.folder / name)
        await one.kill()
        await until_gone(int((on.folder / "one").read_text()))
        assert alive(int((on.folder / "two").read_text()))
        await two.kill()
        await one.close()
        await two.close()


async def test_a_client_without_wait_for_exit_is_polled_and_a_lost_terminal_told(tmp_path: Path) -> None:
    async with stage("editor", tmp_path, misbehave={"terminal/wait_for_exit": NOT_FOUND}) as on:
        ended = await run(on.commands, "echo x; exit 3", on.folder)
        assert (ended.stdout, ended.status) == ("x\n", ExitStatus(3))
    async with stage("editor", tmp_path, misbehave={"terminal/wait_for_exit": AnswersError()}) as on:
        process = await on.commands.run(Command("echo x", on.folder))
        with pytest.raises(ExecutorError, match="lost the terminal"):
            await process.wait()
        await process.close()


async def test_a_terminal_that_cannot_be_made_is_replaced_here_unless_it_may_be_there(tmp_path: Path) -> None:
    async with stage("editor", tmp_path, timeout=0.2, misbehave={"terminal/create": NeverAnswers()}) as on:
        with pytest.raises(ExecutorError, match="unknown") as error:
            await on.commands.run(Command("echo y >> log", on.folder))
        assert not isinstance(error.value, NotStarted)
        assert not (on.folder / "log").exists()
    async with stage("editor", tmp_path, misbehave={"terminal/create": AnswersError()}) as on:
        process = await on.commands.run(Command("echo x; echo y >> log", on.folder))
        assert process.view is None
        assert (await collect(process)).stdout == "x\n"
        assert (on.folder / "log").read_text() == "y\n" and list(on.scripts.iterdir()) == []


async def test_nothing_runs_here_and_nothing_is_left_after_the_connection_has_ended(tmp_path: Path) -> None:
    async with stage("editor", tmp_path) as on:
        assert on.connection is not None
        on.connection.close()
        with pytest.raises(ConnectionClosed):
            await on.commands.run(Command("echo y >> log", on.folder))
        assert not (on.folder / "log").exists() and list(on.scripts.iterdir()) == []
    async with stage("editor", tmp_path) as on:
        process = await on.commands.run(Command("sleep 600", on.folder))
        assert on.connection is not None
        on.connection.close()
        await process.close()
        assert list(on.scripts.iterdir()) == []


async def test_a_missing_file_that_reads_empty_or_is_not_taken_is_that_of_the_disk(tmp_path: Path) -> None:
    async with stage("editor", tmp_path, missing_file_reads_empty=True) as on:
        with pytest.raises(FileNotFoundError):
            await on.files.read(on.folder / "missing")
        (on.folder / "empty").touch()
        assert (await on.files.read(on.folder / "empty")).text == ""
    async with stage("editor", tmp_path, misbehave={"fs/read_text_file": AnswersError(-32602)}) as on:
        (on.folder / "f").write_text("disk")
        assert (await on.files.read(on.folder / "f")).text == "disk"
        assert (await on.files.write(on.folder / "f", "text")).text == "text" and on.asked("fs/write_text_file") == 0


@pytest.mark.parametrize("failure", [AnswersError(), NOT_FOUND, NeverAnswers()])
async def test_a_read_that_fails_is_answered_by_the_disk(failure: AnswersError | NeverAnswers, tmp_path: Path) -> None:
    async with stage("editor", tmp_path, timeout=0.2, misbehave={"fs/read_text_file": failure}) as on:
        (on.folder / "f").write_text("disk")
        assert (await on.files.read(on.folder / "f")).text == "disk"
        with pytest.raises(FileNotFoundError):
            await on.files.read(on.folder / "missing")


@pytest.mark.parametrize("client", [
    {"write_does_nothing": True}, {"write_answers_null": True}, {"misbehave": {"fs/write_text_file": NOT_FOUND}}, {},
], ids=[
    "a write that does nothing", "an answer of null", "what is offered and not served", "an editor as it should be",
])  # fmt: skip
async def test_text_is_on_the_disk_whatever_the_client_makes_of_it(client: dict[str, Any], tmp_path: Path) -> None:
    async with stage("editor", tmp_path, **client) as on:
        (on.folder / "f").write_text("old")
        (on.folder / "same").write_text("text")
        for path in (on.folder / "f", on.folder / "same", on.folder / "new" / "g"):
            assert (await on.files.write(path, "text")).text == "text"
            assert path.read_text() == "text"
        assert on.asked("fs/write_text_file") == 3


async def test_a_write_that_stays_in_the_buffer_is_not_made_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "work" / "f"
    buffers = {path: "typed"}
    async with stage("editor", tmp_path, buffers=buffers, save=False) as on:
        path.write_text("disk")
        assert (await on.files.write(path, "text")).text == "text"
        assert path.read_text() == "disk"
        assert buffers == {path: "text"}


@pytest.mark.parametrize(
    ("trouble", "words"), [(AnswersError(), r"the editor refused to write .*out of order"), (NeverAnswers(), "unknown")]
)
async def test_a_failed_write_is_told_and_not_forced(trouble: AnswersError | NeverAnswers, words: str, tmp_path: Path):
    async with stage("editor", tmp_path, timeout=0.2, misbehave={"fs/write_text_file": trouble}) as on:
        with pytest.raises(ExecutorError, match=words):
            await on.files.write(on.folder / "f", "text")
        assert not (on.folder / "f").exists()


@pytest.mark.parametrize("failure", [AnswersError(), NeverAnswers()])
async def test_a_buffer_that_was_not_read_is_not_overwritten(failure: AnswersError | NeverAnswers, tmp_path: Path):
    path = tmp_path / "work" / "f"
    buffers = {path: "typed"}
    failing = {"fs/read_text_file": failure}
    async with stage("editor", tmp_path, timeout=0.2, buffers=buffers, save=False, misbehave=failing) as on:
        path.write_text("disk")
        assert (await on.files.read(path)).text == "disk"
        with pytest.raises(ExecutorError, match="may have unsaved changes, so nothing was written"):
            await on.files.write(path, "text")
        assert (buffers, path.read_text()) == ({path: "typed"}, "disk")
        assert on.editor is not None
        path.unlink()
        if isinstance(failure, AnswersError):  # Clients report a missing file in many ways.
            with pytest.raises(FileNotFoundError):
                await on.files.read(path)
            assert (await on.files.write(path, "typed")).text == "typed"
        on.editor.misbehave.clear()
        assert (await on.files.read(path)).text == "typed"
        assert (await on.files.write(path, "typed on")).text == "typed on"


@pytest.mark.parametrize(("disk", "buffer", "client", "read"), [
    (b"saved", "unsaved", {}, "unsaved"), (b"a\r\nb\nc\r\n", None, {"reads_lossy": True}, "a\r\nb\nc\r\n"),
    (b"a\r\nb\r\n", "a\nb\nc\n", {}, "a\nb\nc\n"), (b"caf\xe9\n", "café\n", {}, "café\n"),
], ids=[
    "unsaved text", "line ends that the client lost", "line ends of unsaved text", "decoded its own way",
])  # fmt: skip
async def test_what_is_read_is_what_the_person_sees_with_the_line_ends_it_has(
    disk: bytes, buffer: str | None, client: dict[str, Any], read: str, tmp_path: Path
) -> None:
    file = tmp_path / "work" / "f"
    async with stage("editor", tmp_path, buffers={} if buffer is None else {file: buffer}, **client) as on:
        file.write_bytes(disk)
        assert (await on.files.read(file)).text == read


@pytest.mark.parametrize("again", [False, True])
async def test_what_the_editor_has_is_what_is_expected_whatever_the_disk_has(again: bool, tmp_path: Path) -> None:
    new, open_one, odd = (tmp_path / "work" / name for name in ("new", "open", "odd"))
    async with stage("editor", tmp_path, buffers={new: "typed", open_one: "typed", odd: "shown"}) as on:
        open_one.write_text("saved")
        odd.write_bytes(b"\x00\x01")
        for path in (new, open_one, odd):
            version = await on.files.read(path)
            assert (await on.files.write(path, "ours", version, again=again)).text == "ours"
        assert on.editor is not None
        version = await on.files.read(open_one)
        on.editor.files.buffers[open_one] = "typed on"
        if again:
            with pytest.raises(ChangedMeanwhile):
                await on.files.write(open_one, "ours again", version)


@pytest.mark.parametrize("how", ["ignore", "replace"])
async def test_a_file_that_the_client_could_not_decode_is_read_and_written_on_the_disk(how: str, tmp_path: Path):
    file = tmp_path / "work" / "f"
    async with stage("editor", tmp_path, buffers={file: b"caf\xe9\n".decode("utf-8", how)}) as on:
        file.write_bytes(b"caf\xe9\r\n")
        read = await on.files.read(file)
        assert read.text == "café\r\n" and "the file on the disk is used" in read.remark
        written = await on.files.write(file, "thé\r\n")
        assert written.text == "thé\r\n" and file.read_bytes() == b"th\xe9\r\n"
        assert "the file on the disk is used" in written.remark and on.asked("fs/write_text_file") == 0


async def test_only_unsaved_changes_that_were_not_decoded_are_kept_from_being_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "work" / "f"
    async with stage("editor", tmp_path, buffers={file: "caf\ufffd and typed\n"}) as on:
        file.write_bytes(b"caf\xe9\n")
        with pytest.raises(ExecutorError, match="has unsaved changes"):
            await on.files.read(file)
        with pytest.raises(ExecutorError, match="has unsaved changes"):
            await on.files.write(file, "x")
        assert file.read_bytes() == b"caf\xe9\n"
    file = tmp_path / "work" / "f"
    async with stage("editor", tmp_path, buffers={file: "typed \ufffd"}) as on:
        file.write_bytes(b"\xef\xbb\xbfsaved")
        assert (await on.files.read(file)).text == "typed \ufffd"
        assert (await on.files.write(file, "text")).text == "text"
        assert (on.asked("fs/write_text_file"), file.read_bytes()) == (1, b"\xef\xbb\xbftext")


@pytest.mark.parametrize("old", ["café".encode("cp1252"), "café".encode("utf-8-sig"), "café".encode("utf-16")])
async def test_a_client_that_writes_utf8_does_not_change_the_encoding_of_a_file(old: bytes, tmp_path: Path) -> None:
    file = tmp_path / "work" / "f"
    async with stage("editor", tmp_path, buffers={file: "café, unsaved"}) as on:
        file.write_bytes(old)
        assert (await on.files.read(file)).text == "café, unsaved"
        assert (await on.files.write(file, "thé")).text == "thé" and on.asked("fs/write_text_file") == 1
        assert file.read_bytes() == old.replace("caf".encode("utf-16-le"), "th".encode("utf-16-le")).replace(
            b"caf", b"th"
        )
