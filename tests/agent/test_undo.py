"""Taking back what the agent did: `/checkpoints`, `/undo`, `/redo`, `/diff`, and the methods that clients call."""

import os
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import msgspec
import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.errors import PeerError
from acp_agent.loop.undo import undo_commands
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import AnswersError
from acp_agent.testing.fake_model import Answer, Call
from acp_agent.undo.contents import Contents
from acp_agent.undo.folder_looks import FolderLooks
from acp_agent.undo.operation_log import Log
from acp_agent.undo.restore import recover
from tests.repositories import git
from tests.waits import until

from .kit import Rig, agent_rig, asks, cancels, put, refused, rig, went

SCHEMA = msgspec.json.decode((Path(__file__).parents[2] / "schemas" / "undo.schema.json").read_bytes())


def write(path: Path | str, content: str) -> Answer:
    return asks(Call("write", {"path": str(path), "content": content}))


def read(path: Path | str) -> Answer:
    return asks(Call("read", {"path": str(path)}))


def bash(command: str) -> Answer:
    return asks(Call("bash", {"command": command}))


def picks(option: str) -> Any:
    async def answer(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        return acp.SelectedPermissionOutcome(option_id=option)

    return answer


@asynccontextmanager
async def changed(
    tmp_path: Path, *answers: Answer | str, prompts: Sequence[str] = ("Change it.",), **more: Any
) -> AsyncIterator[Rig]:
    """After these prompts, in auto mode."""
    async with rig(tmp_path, [*answers, "Done."], mode="auto", **more) as made:
        for prompt in prompts:
            await made.editor.prompt(prompt)
        yield made


async def said(r: Rig, prompt: str) -> str:
    """What the agent says to one prompt."""
    before = len(r.editor.text())
    await r.editor.prompt(prompt)
    return r.editor.text()[before:].strip()


def asked(r: Rig, number: int) -> list[str]:
    """Roles and the user's words of the n-th request."""
    return [
        message["content"] if message["role"] == "user" else message["role"]
        for message in r.messages(number)
        if message["role"] != "system"
    ]


async def test_a_prompt_is_taken_back_with_everything_it_changed(tmp_path):
    script = [write("a.txt", "new\n"), bash("echo more >> b.txt; mkdir d; mv c.txt d"), "Done.", "Next."]
    async with went(tmp_path, script, mode="auto", files={"b.txt": "b\n", "c.txt": "c\n"}, prompt="Change it.") as r:
        assert {path.name for path in r.project.iterdir()} == {"a.txt", "b.txt", "d"}
        r.editor.permissions.append(picks("both"))
        words = await said(r, "/undo")
        assert words.startswith(
            "Taken back: prompt 1 (Change it.). 4 files restored; the conversation goes on from before"
        )
        assert {path.name: path.read_text() for path in r.project.iterdir()} == {"b.txt": "b\n", "c.txt": "c\n"}
        shown = r.editor.permission_requests[-1].tool_call
        diffs = [each for each in shown.content if isinstance(each, acp.Diff)]
        assert {(str(Path(each.path).relative_to(r.project)), each.old_text, each.new_text) for each in diffs} == {
            ("a.txt", "new\n", ""), ("b.txt", "b\nmore\n", "b\n"), ("c.txt", None, "c\n"), ("d/c.txt", "c\n", ""),
        }  # fmt: skip
        assert await said(r, "Go on.") == "Next."
        note, prompt = asked(r, 4)[0].split("]")
        assert "took back: prompt 1" in note and prompt.strip() == "Go on."


async def test_redo_brings_files_and_conversation_back(tmp_path):
    async with changed(tmp_path, write("a.txt", "new\n"), "Done.", "Next.") as r:
        await said(r, "/undo yes")
        assert not (r.project / "a.txt").exists()
        assert (await said(r, "/redo yes")).startswith("Done again: prompt 1 (Change it.)")
        assert (r.project / "a.txt").read_text() == "new\n"
        await said(r, "Go on.")
        assert asked(r, 3)[:4] == ["Change it.", "assistant", "tool", "assistant"]
        assert await said(r, "/redo yes") == "There is no undo to take back."
        audit = (Path(r.environ["HOME"]) / ".local/state/acp-coder/audit.jsonl").read_text()
        assert "undo by the user: Taken back: prompt 1" in audit and "undo by the user: Done again" in audit


async def test_only_files_or_only_the_conversation(tmp_path):
    async with changed(tmp_path, write("a.txt", "new\n"), "Done.", "Next.") as r:
        await said(r, "/undo files yes")
        assert not (r.project / "a.txt").exists()
        await said(r, "Go on.")
        assert asked(r, 3)[:4] == ["Change it.", "assistant", "tool", "assistant"]
        await said(r, "/redo yes")
        assert (r.project / "a.txt").exists()
        await said(r, "/undo 1 conversation yes")
        assert (r.project / "a.txt").exists()
        await said(r, "Once more.")
        assert len(asked(r, 4)) == 1 and "files stay" in asked(r, 4)[0]


async def test_one_call_is_taken_back_by_its_id_and_later_changes_stay(tmp_path):
    async with changed(tmp_path, write("a.txt", "a\n"), write("b.txt", "b\n")) as r:
        first, _ = r.editor.tool_calls()
        await said(r, f"/undo {first} yes")
        assert [path.name for path in r.project.iterdir()] == ["b.txt"]


async def test_what_redo_cannot_make_again_and_hard_links_are_named_before_they_are_changed(tmp_path):
    command = "head -c 3000 /dev/zero > large; mkfifo pipe; head -c 3000 /dev/zero > a; echo more >> linked; mv b c"
    config = "[undo]\nmax_file_bytes = 1000\nmax_tool_file_bytes = 1000\n"
    async with rig(tmp_path, [bash(command), "Done."], mode="auto", config=config) as r:
        for name in ("a", "linked"):
            (r.project / name).write_text("before\n")
        (r.project / "b").write_bytes(b"b" * 3000)
        os.link(r.project / "linked", tmp_path / "other name")
        await r.editor.prompt("Change it.")
        r.editor.permissions.append(picks("files"))
        await said(r, "/undo")
        shown = r.editor.permission_requests[-1].tool_call.content[0].content.text.splitlines()
        again = [line.split(":")[0].rpartition("/")[2] for line in shown if "cannot be made again by /redo" in line]
        assert sorted(again) == ["a", "large", "pipe"], shown
        (line,) = [line for line in shown if "hard link" in line]
        assert line.endswith("/linked: changed (a hard link: it may become a file of its own)")
        assert {path.name for path in r.project.iterdir()} == {"a", "b", "linked"}
        assert (r.project / "linked").read_text() == (r.project / "a").read_text() == "before\n"


async def test_a_prompt_in_the_middle_goes_with_all_after_it(tmp_path):
    script = [write("a.txt", "1\n"), "One.", write("a.txt", "2\n"), "Two.", write("a.txt", "3\n")]
    async with changed(tmp_path, *script, prompts=("one", "two", "three")) as r:
        await said(r, "/undo 2 yes")
        assert (r.project / "a.txt").read_text() == "1\n"
        assert "taken back" in (await said(r, "/checkpoints")).split("2. ")[1]


async def test_checkpoints_list_prompts_with_files_and_lines(tmp_path):
    script, prompts = [read("a.txt"), write("a.txt", "1\n2\n"), "One."], ("Write a file.", "Thanks.")
    async with changed(tmp_path, *script, prompts=prompts, files={"a.txt": "0\n"}) as r:
        await said(r, "/help")
        lines = (await said(r, "/checkpoints")).splitlines()
        assert [line[2:5] + line.split(" ", 4)[4] for line in lines if line.startswith("- ")] == [
            "1. Write a file.: 1 file (+2 -1)", "2. Thanks.: no files",
        ]  # fmt: skip


async def test_nothing_happens_without_a_yes_and_an_editor_that_cannot_ask_is_told_the_word(tmp_path):
    async def fails(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        raise PeerError(-32601, "Method not found")

    async with changed(tmp_path, write("a.txt", "new\n"), permissions=[reject_once], otherwise=fails) as r:
        assert await said(r, "/undo") == "Nothing was changed. `/undo 1 yes` does it without a question."
        options = {option.option_id for option in r.editor.permission_requests[0].options}
        assert options == {"both", "files", "conversation", "keep"}
        assert "Your editor cannot ask: `/undo 1 yes`" in await said(r, "/undo")
        assert (r.project / "a.txt").exists()


async def test_an_editor_with_forms_is_asked_by_one(tmp_path):
    async def answer(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        assert isinstance(request, acp.ElicitationFormMode) and request.requested_schema.properties is not None
        choice = request.requested_schema.properties["choice"]
        assert isinstance(choice, acp.StringPropertySchema) and choice.enum is not None
        return acp.CreateElicitationResponse(action="accept", content={"choice": choice.enum[1]})

    async with changed(tmp_path, write("a.txt", "new\n"), elicitation=answer) as r:
        assert "1 file restored." in await said(r, "/undo")
        assert not (r.project / "a.txt").exists()


async def test_what_the_user_changed_is_named_and_left_or_merged(tmp_path):
    """A merge takes back no more than was asked for."""
    async with changed(tmp_path, bash("sed -i s/2/two/ a.txt"), files={"a.txt": "1\n2\n3\n4\n5\n"}) as r:
        (path := r.project / "a.txt").write_text("1\ntwo\n3\n4\nfive\n")
        r.editor.permissions.append(picks("keep"))
        await said(r, "/undo")
        assert "it was changed since" in r.editor.permission_requests[-1].tool_call.content[0].content.text
        assert path.read_text() == "1\ntwo\n3\n4\nfive\n"
        r.editor.permissions += [picks("merge")] * 2
        await said(r, "/undo")
        assert path.read_text() == "1\n2\n3\n4\nfive\n"
        await said(r, "/redo yes")
        words = await said(r, "/undo 1 files")
        assert path.read_text() == "1\n2\n3\n4\nfive\n" and "conversation" not in words
        assert (await call(r, "_session/checkpoints"))["checkpoints"][0]["cut"] is False
        path.write_text("1\n2\n3\n4\n5\n")
        await said(r, "/redo")
        names = [option.name for option in r.editor.permission_requests[-1].options]
        assert names == ["Do again files only, keep what you changed since", "Change nothing"]


async def test_each_redo_restores_its_own_cut_of_the_conversation_or_none(tmp_path):
    script = [write("a.txt", "1\n"), "One.", write("b.txt", "2\n"), "Two."]
    async with changed(tmp_path, *script, prompts=("one", "two")) as r:
        await said(r, "/undo 2 yes")
        await said(r, "/undo 1 yes")
        await said(r, "/redo files yes")
        words = await said(r, "/redo yes")
        assert "1 file restored." in words and sorted(path.name for path in r.project.iterdir()) == ["a.txt", "b.txt"]
        assert [each["cut"] for each in (await call(r, "_session/checkpoints"))["checkpoints"]] == [True, True]


async def test_a_cut_conversation_is_not_restored_once_the_model_was_asked(tmp_path):
    async with went(tmp_path, ["One.", "Two."], mode="auto", prompt="one") as r:
        await said(r, "/undo yes")
        await r.editor.prompt("two")
        assert "since the model was last asked" in await said(r, "/redo yes")


async def test_checkpoints_say_what_of_a_prompt_was_taken_back(tmp_path):
    script = [write("a.txt", "1\n"), "One.", write("b.txt", "2\n"), "Two.", write("c.txt", "3\n")]
    async with changed(tmp_path, *script, prompts=("one", "two", "three")) as r:
        await said(r, "/undo 3 yes")
        await said(r, "/undo 2 conversation yes")
        file, both = "1 file (+1 -0)", ", files and conversation taken back"
        for lines in ([file, f"{file}, conversation taken back", file + both], [f"{file}, files taken back"]):
            found = (await said(r, "/checkpoints")).splitlines()
            assert [line.split(": ")[1] for line in found if line.startswith("- ")][: len(lines)] == lines
            await said(r, "/undo 1 files yes")
        assert list(r.project.iterdir()) == [], "files of a prompt that was cut, too"


async def test_unsaved_text_of_the_editor_comes_back(tmp_path):
    path = tmp_path / "project" / "a.txt"
    edit = asks(Call("edit", {"path": str(path), "old_text": "unsaved", "new_text": "edited"}))
    files, buffers = {"a.txt": "saved\n"}, {path: "unsaved\n"}
    async with changed(tmp_path, read(path), edit, files=files, buffers=buffers) as r:
        assert path.read_text() == "edited\n"
        await said(r, "/undo yes")
        assert path.read_text() == "unsaved\n", r.editor.text()


async def test_unsaved_changes_made_since_are_a_conflict(tmp_path):
    path = tmp_path / "project" / "a.txt"
    async with changed(tmp_path, read(path), write(path, "agent\n"), files={"a.txt": "before\n"}) as r:
        r.editor.files.buffers[path] = "agent\nand mine\n"
        assert "the editor has unsaved changes of it" in await said(r, "/undo files yes")
        assert (path.read_text(), r.editor.files.buffers[path]) == ("agent\n", "agent\nand mine\n")


async def test_what_is_typed_while_the_question_is_open_is_not_overwritten(tmp_path):
    path = tmp_path / "project" / "a.txt"

    async def types(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        path.write_text("agent\nand mine\n")
        return acp.SelectedPermissionOutcome(option_id="files")

    async with changed(tmp_path, read(path), write(path, "agent\n"), files={"a.txt": "before\n"}) as r:
        r.editor.permissions.append(types)
        assert "changed in the last moment, so nothing was restored" in await said(r, "/undo")
        assert path.read_text() == "agent\nand mine\n"


async def test_what_was_taken_back_with_older_changes_is_not_brought_back(tmp_path):
    script = [read("a.txt"), write("a.txt", "1\n"), "One.", read("a.txt"), write("a.txt", "2\n"), "Two."]
    script += [read("a.txt"), write("a.txt", "3\n")]
    async with changed(tmp_path, *script, prompts=("one", "two"), files={"a.txt": "0\n"}) as r:
        path = r.project / "a.txt"
        await call(r, "_session/undo", to=1, what="files")
        assert "Nothing is left to take back" in await said(r, "/undo 2 files yes")
        assert (await call(r, "_session/changes", since=2))["changes"] == []
        await call(r, "_session/redo")
        await call(r, "_session/undo", to=2, what="files")
        assert path.read_text() == "1\n"
        await call(r, "_session/redo")
        await call(r, "_session/undo", path=str(path), since=1)
        assert path.read_text() == "0\n"
        await said(r, "/undo 2 files yes")
        assert path.read_text() == "0\n"
        await r.editor.prompt("three")
        with pytest.raises(PeerError, match="it was changed between two changes of the agent"):
            await call(r, "_session/undo", to=2, what="files")
        assert path.read_text() == "3\n"
        await call(r, "_session/undo", to=3, what="files")
        assert path.read_text() == "0\n"


async def test_a_call_that_was_taken_back_alone_does_not_come_back_with_the_next_prompt(tmp_path):
    script = [bash("sed -i s/1/one/ a.txt"), "One.", bash("sed -i s/5/five/ a.txt")]
    async with changed(tmp_path, *script, prompts=("one", "two"), files={"a.txt": "1\n2\n3\n4\n5\n"}) as r:
        path = r.project / "a.txt"
        first, _ = r.editor.tool_calls()
        await said(r, f"/undo {first} merge yes")
        assert path.read_text() == "1\n2\n3\n4\nfive\n"
        with pytest.raises(PeerError, match="it was changed since; `merge` takes back only the agent's part"):
            await call(r, "_session/undo", to=2, what="files")
        await said(r, "/undo 2 files merge yes")
        assert path.read_text() == "1\n2\n3\n4\n5\n"


@pytest.mark.parametrize("by_call", [False, True])
async def test_many_changes_of_one_command_are_taken_back_again_after_a_redo(tmp_path, monkeypatch, by_call):
    monkeypatch.setattr("acp_agent.undo.kept_copies.MOST_KEPT", 5)
    change = bash("for n in $(seq 20); do echo after > $n; echo new > new$n; done")
    async with changed(tmp_path, change, files={str(number): "before\n" for number in range(1, 21)}) as r:
        (first,) = r.editor.tool_calls()
        target = {"call": first} if by_call else {"to": 1, "what": "files"}
        for _ in range(2):
            assert (await call(r, "_session/undo", **target))["conflicts"] == []
            assert {path.read_text() for path in r.project.iterdir()} == {"before\n"}
            await call(r, "_session/redo")
            assert (r.project / "20").read_text() == "after\n"
            assert len(list(r.project.iterdir())) == 40


async def test_odd_digits_are_no_numbers(tmp_path):
    async with went(tmp_path, ["One."], prompt="one") as r:
        for command in ("/undo \u00b2", "/diff \u00b2", "/fork \u00b2", f"/undo {'9' * 5000}"):
            assert await said(r, command), command


async def test_a_fork_after_an_undo_lives(tmp_path):
    async with changed(tmp_path, "One.", "Two.", prompts=("one", "two")) as r:
        await said(r, "/undo 2 conversation yes")
        asked = {"sessionId": r.editor.session_id, "cwd": str(r.project), "mcpServers": []}
        made = (await r.editor.request("session/fork", asked))["sessionId"]
        await r.editor.load_session(made, r.project)
        assert "1. " in await said(r, "/checkpoints")


async def test_a_change_that_the_editor_keeps_unsaved_is_taken_back_in_the_buffer(tmp_path):
    path = tmp_path / "project" / "a.txt"
    more = {"files": {"a.txt": "saved\n"}, "buffers": {path: "saved\n"}}
    async with changed(tmp_path, read(path), write(path, "agent\n"), save=False, **more) as r:
        assert (path.read_text(), r.editor.files.buffers[path]) == ("saved\n", "agent\n")
        await said(r, "/undo files yes")
        assert (path.read_text(), r.editor.files.buffers[path]) == ("saved\n", "saved\n")


async def test_changes_that_the_user_saved_later_are_taken_back_and_redone_saved_or_not(tmp_path):
    path = tmp_path / "project" / "a.txt"
    script = [read(path), write(path, "one\n"), "One.", write(path, "two\n"), "Two."]
    async with rig(tmp_path, script, mode="auto", save=False) as r:
        buffers = r.editor.files.buffers
        path.write_text("before\n")
        buffers[path] = "before\n"
        for prompt in ("Change it.", "Again."):
            await r.editor.prompt(prompt)
            path.write_text(buffers[path])  # The user saves what the agent wrote.
        await call(r, "_session/undo", to=1, what="files")
        assert (path.read_text(), buffers[path]) == ("two\n", "before\n")
        await call(r, "_session/redo")
        assert (path.read_text(), buffers[path]) == ("two\n", "two\n")
        await call(r, "_session/undo", to=1, what="files")
        path.write_text(buffers[path])
        await call(r, "_session/redo")
        assert buffers[path] == "two\n"
        path.write_text("two\nmine\n")
        buffers[path] = "two\nmine\n"
        with pytest.raises(PeerError, match="it was changed since"):
            await call(r, "_session/undo", to=1, what="files")
        assert (path.read_text(), buffers[path]) == ("two\nmine\n", "two\nmine\n")


async def test_an_editor_that_refuses_to_write_leaves_nothing_half_restored(tmp_path):
    command = bash("for f in a b c; do echo after > $f; done; echo new > d")
    async with changed(tmp_path, command, files=dict.fromkeys("abc", "before\n")) as r:
        r.editor.misbehave["fs/write_text_file"] = AnswersError(code=-32603, message="out of order")
        words = await said(r, "/undo both yes")
        assert words.startswith("Nothing was restored: ") and "out of order" in words
        assert {path.name: path.read_text() for path in r.project.iterdir()} == {
            "a": "after\n", "b": "after\n", "c": "after\n", "d": "new\n",
        }  # fmt: skip
        del r.editor.misbehave["fs/write_text_file"]
        await said(r, "/undo both yes")
        assert {path.name: path.read_text() for path in r.project.iterdir()} == dict.fromkeys("abc", "before\n")


async def test_after_a_restart_all_is_still_known(tmp_path):
    async with changed(tmp_path, write("a.txt", "new\n")) as r:
        session = r.editor.session_id
    async with agent_rig(tmp_path, ["Next.", "Last."]) as r:
        await r.editor.load_session(session, r.project)
        await said(r, "/undo yes")
        assert not (r.project / "a.txt").exists()
    async with agent_rig(tmp_path, ["Next."]) as r:
        await r.editor.load_session(session, r.project)
        shown = [update for update in r.editor.updates[session] if isinstance(update, acp.UserMessageChunk)]
        assert shown == []
        await said(r, "Go on.")
        assert len(asked(r, 1)) == 1 and "took back" in asked(r, 1)[0], "the model is told after a restart, too"


async def test_without_a_login_what_was_done_is_taken_back(tmp_path):
    async with changed(tmp_path, write("a.txt", "new\n")) as r:
        session = r.editor.session_id
    async with agent_rig(tmp_path, environ={"OPENAI_BASE_URL": "https://api.openai.com/v1"}) as r:
        with pytest.raises(PeerError, match="OPENAI_API_KEY"):
            await r.editor.client.resume_session(session, r.project)
        await r.editor.client.resume_session(session, r.project, meta={"login": "later"})
        r.editor.session_id = session
        assert "1 file restored" in await said(r, "/undo yes")
        with pytest.raises(PeerError, match="OPENAI_API_KEY"):
            await r.editor.prompt("Go on.")


async def test_diff_shows_all_changes_over_several_edits_and_commands(tmp_path):
    async with changed(tmp_path, write("a.txt", "1\n"), bash("echo 2 >> a.txt; echo x > gone; rm gone")) as r:
        assert await said(r, "/diff") == "1 file changed in this session (+2 -0)."
        card = list(r.editor.tool_calls().values())[-1]
        assert [(each.old_text, each.new_text) for each in card.content if isinstance(each, acp.Diff)] == [
            (None, "1\n2\n")
        ]


async def test_what_is_not_covered_is_said_in_the_result_and_in_checkpoints(tmp_path):
    config, files = "[undo]\nmax_file_bytes = 10\n", {"big.txt": "more than ten bytes"}
    async with changed(tmp_path, bash("echo x > big.txt"), config=config, files=files) as r:
        assert "Cannot be taken back" in r.editor.tool_call().text()
        words = await said(r, "/checkpoints")
        assert "big.txt (it is larger than 10 bytes)" in words


async def test_what_cannot_be_restored_is_said_by_the_undo_itself(tmp_path):
    config, files = "[undo]\nmax_file_bytes = 10\n", {"big.txt": "more than ten bytes"}
    async with changed(tmp_path, bash("echo x > big.txt"), config=config, files=files) as r:
        words = await said(r, "/undo yes")
        assert words.startswith("Taken back: prompt 1 (Change it.). The conversation goes on from before prompt 1")
        assert (
            "Left alone:" in words and "big.txt: its earlier content was not kept: it is larger than 10 bytes" in words
        )


async def test_folders_in_which_nobody_looks_are_named_by_the_first_command_and_by_the_undo(tmp_path):
    files = {f"d{n}/f{m}.txt": "x" for n in range(4) for m in range(20)}
    script = [bash("for each in d*; do echo more >> $each/f1.txt; done"), bash("true")]
    async with changed(tmp_path, *script, config="[undo]\nmax_entries = 50\n", files=files) as r:
        assert r.editor.text().count("What commands change there cannot be taken back: ") == 1
        words = await said(r, "/undo yes")
        assert "Not covered, if a command changed it: " in words and "`undo.max_entries`" in words
        left = [f"d{n}" for n in range(4) if (r.project / f"d{n}/f1.txt").read_text() != "x"]
        assert left and all(str(r.project / name) in words for name in left)


async def test_files_of_a_sub_agent_go_with_its_call(tmp_path):
    delegate = asks(Call("delegate", {"prompt": "Write it.", "description": "write", "tools": ["write"]}))
    async with changed(tmp_path, delegate, write("a.txt", "x\n"), "Written.") as r:
        assert (r.project / "a.txt").exists(), r.editor.text()
        first = next(iter(r.editor.tool_calls()))
        words = await said(r, f"/undo {first} yes")
        assert not (r.project / "a.txt").exists(), words


async def test_switched_off_nothing_is_kept(tmp_path):
    async with changed(tmp_path, write("a.txt", "x\n"), config="[undo]\nenabled = false\n") as r:
        assert "`undo.enabled" in await said(r, "/undo yes")
        assert not (Path(r.environ["HOME"]) / ".local/state/acp-coder/undo").exists()


# --- the extension methods ---------------------------------------------------------------------------------------


async def call(r: Rig, method: str, **params: Any) -> Any:
    """Checked against the published schema, as far as it is answered."""
    asked = {"sessionId": r.editor.session_id, **params}
    answered = await r.editor.request(method, asked)
    shapes = SCHEMA["x-methods"][method]
    for shape, value in (("params", asked), ("result", answered)):
        jsonschema_rs.validate({**shapes[shape], "$defs": SCHEMA["$defs"]}, value)
    return answered


async def test_clients_list_preview_undo_and_redo(tmp_path):
    async with changed(tmp_path, write("a.txt", "1\n2\n")) as r:
        assert (r.editor.initialized.agent_capabilities.meta or {})["undo"] == {"version": 1}
        (checkpoint,) = (await call(r, "_session/checkpoints"))["checkpoints"]
        assert (checkpoint["prompt"], checkpoint["title"], checkpoint["undone"]) == (1, "Change it.", False)
        assert checkpoint["cut"] is False
        file = {"path": str(r.project / "a.txt"), "added": 2, "removed": 0, "kind": "created", "cache": False}
        assert checkpoint["files"] == [file]
        seen = await call(r, "_session/undo", to=1, dryRun=True)
        assert seen["done"] is False and (r.project / "a.txt").exists()
        assert [(each["kind"], each["oldText"], each["newText"]) for each in seen["changes"]] == [
            ("deleted", "1\n2\n", None)
        ]
        assert (await call(r, "_session/undo", to=1, what="both"))["done"] is True
        assert not (r.project / "a.txt").exists()
        after = await call(r, "_session/checkpoints")
        assert after["redo"] is True and after["checkpoints"][0]["cut"] is True
        await call(r, "_session/redo")
        assert (r.project / "a.txt").read_text() == "1\n2\n"


async def test_what_programs_make_again_is_listed_last_and_not_counted_and_is_taken_back(tmp_path):
    made = ("__pycache__/a.pyc", "pkg/.pytest_cache/v/x", "build/z.py", ".ci/z.yml")
    line = "; ".join(f"mkdir -p {os.path.dirname(name)}; echo 1 > {name}" for name in made)
    async with rig(tmp_path, [bash(f"{line}; echo 1 > zoo.py"), "Done."], mode="auto") as r:
        await r.editor.prompt("Change it.")
        listed = (await call(r, "_session/changes"))["changes"]
        (checkpoint,) = (await call(r, "_session/checkpoints"))["checkpoints"]
        for files in (listed, checkpoint["files"]):
            told = [(os.path.relpath(each["path"], r.project), each["cache"]) for each in files]
            # A folder of a project may be called `build`.
            assert {name for name, cache in told[:3] if not cache} == {"build/z.py", ".ci/z.yml", "zoo.py"}
            assert {name for name, cache in told[3:] if cache} == set(made[:2])
        assert "3 files (+3 -0)" in await said(r, "/checkpoints")
        assert "3 files changed in this session (+3 -0)." in await said(r, "/diff")
        seen = await call(r, "_session/undo", to=1, what="files", dryRun=True)
        assert sum(each["cache"] for each in seen["changes"]) == 2
        await call(r, "_session/undo", to=1, what="files")
        assert not any((r.project / name).exists() for name in (*made, "zoo.py"))


async def test_an_undo_that_has_just_begun_is_not_finished_as_that_of_a_process_that_ended(tmp_path, monkeypatch):
    finished: list[threading.Thread] = []
    original = Log.add_undo

    def add_undo(self: Log, *arguments: Any) -> int:
        added = original(self, *arguments)
        contents = Contents(tmp_path / "home/.local/state/acp-coder/undo/contents")
        finished.append(threading.Thread(target=recover, args=(self._store, contents)))
        finished[-1].start()
        finished[-1].join(0.3)
        return added

    monkeypatch.setattr(Log, "add_undo", add_undo)
    async with changed(tmp_path, write("a.txt", "1\n")) as r:
        assert (await call(r, "_session/undo", to=1))["done"] is True
        assert not (r.project / "a.txt").exists()
        await call(r, "_session/redo")
        assert (r.project / "a.txt").read_text() == "1\n"
        for each in finished:
            await anyio.to_thread.run_sync(each.join, 10)
        assert len(finished) == 2 and not any(each.is_alive() for each in finished)


async def test_a_hunk_of_a_file_in_another_encoding_is_reverted_in_it(tmp_path):
    async with rig(tmp_path, [bash("cat new > a.txt; rm new"), "Done."], mode="auto") as r:
        (path := r.project / "a.txt").write_text("eins\r\nzwei\r\ndrei\r\n", encoding="utf-16", newline="")
        (r.project / "new").write_text("eins\r\nZWEI\r\ndrei\r\nvier\r\n", encoding="utf-16", newline="")
        await r.editor.prompt("Change it.")
        changes = (await call(r, "_session/changes"))["changes"]
        await revert(r, next(each for each in changes if each["path"] == str(path)), 0)
        assert path.read_bytes().decode("utf-16") == "eins\r\nzwei\r\ndrei\r\nvier\r\n"


async def test_a_hunk_is_reverted_and_redone(tmp_path):
    old, new = "1\n2\n3\f3\n4\n5\n6\n", "1\ntwo\n3\f3\n4\nfive\n6\n"
    async with changed(tmp_path, read("a.txt"), write("a.txt", new), files={"a.txt": old}) as r:
        path = r.project / "a.txt"
        (change,) = (await call(r, "_session/changes"))["changes"]
        assert [hunk["oldStart"] for hunk in change["hunks"]] == [2, 5]
        await revert(r, change, 1)
        assert path.read_text() == "1\ntwo\n3\f3\n4\n5\n6\n"
        await call(r, "_session/redo")
        assert path.read_text() == new
        await revert(r, change, 1)
        await said(r, "/undo 1 files yes")
        assert path.read_text() == old, "without a merge"
        for _ in range(2):
            await call(r, "_session/redo")
        await call(r, "_session/undo", path=str(path))
        assert path.read_text() == old


async def test_a_file_taken_back_leaves_its_calls_other_files_and_each_undo_is_redone(tmp_path):
    async with changed(tmp_path, bash("echo a > a.txt; echo b > b.txt")) as r:
        a, b = r.project / "a.txt", r.project / "b.txt"
        for path in (a, b):
            await call(r, "_session/undo", path=str(path), since=1)
            assert not path.exists()
            (checkpoint,) = (await call(r, "_session/checkpoints"))["checkpoints"]
            assert checkpoint["undone"] is False
        await call(r, "_session/redo")
        assert (a.exists(), b.exists()) == (False, True)
        await call(r, "_session/undo", to=1, what="files")
        assert (await call(r, "_session/checkpoints"))["checkpoints"][0]["undone"] is True
        for there in ((False, True), (True, True)):
            await call(r, "_session/redo")
            assert (a.exists(), b.exists()) == there
        assert (await call(r, "_session/checkpoints"))["redo"] is False


async def revert(r: Rig, change: dict[str, Any], *hunks: int, **params: Any) -> Any:
    expect = [change["hunks"][hunk]["id"] for hunk in hunks]
    return await call(r, "_session/undo", path=change["path"], hunks=hunks, expect=expect, **params)


async def test_a_hunk_is_known_by_its_lines_and_never_another_one_in_its_place(tmp_path):
    new = "1\ntwo\n3\n4\nfive\n6\n"
    async with changed(tmp_path, read("a.txt"), write("a.txt", new), files={"a.txt": "1\n2\n3\n4\n5\n6\n"}) as r:
        path = r.project / "a.txt"
        (change,) = (await call(r, "_session/changes"))["changes"]
        with pytest.raises(PeerError, match=r"expect: the `id` of each of the `hunks`"):
            await call(r, "_session/undo", path=str(path), hunks=[0])
        await revert(r, change, 0)
        with pytest.raises(PeerError, match="Ask for its changes again"):
            await revert(r, change, 0)
        assert path.read_text() == "1\n2\n3\n4\nfive\n6\n"
        await revert(r, change, 1)
        assert path.read_text() == "1\n2\n3\n4\n5\n6\n"


async def test_the_only_hunk_of_a_file_that_came_or_went_is_all_of_it(tmp_path):
    async with rig(tmp_path, [bash("echo new > new.txt; rm old.sh"), "Done."], mode="auto") as r:
        new, old = r.project / "new.txt", r.project / "old.sh"
        old.write_text("old\n")
        old.chmod(0o750)
        await r.editor.prompt("Change it.")
        for change in (await call(r, "_session/changes"))["changes"]:
            await revert(r, change, 0)
        assert (new.exists(), old.read_text(), old.stat().st_mode & 0o777) == (False, "old\n", 0o750)
        await call(r, "_session/redo")
        await call(r, "_session/redo")
        assert (new.read_text(), old.exists()) == ("new\n", False)
        new.write_text("new\nmine\n")
        change = next(c for c in (await call(r, "_session/changes"))["changes"] if c["path"] == str(new))
        with pytest.raises(PeerError, match="changed since"):
            await revert(r, change, 0)
        assert new.read_text() == "new\nmine\n"


@pytest.mark.parametrize("opened_by_link", [False, True])
async def test_a_file_is_found_by_another_path_of_its_folder(tmp_path, opened_by_link):
    (link := tmp_path / "link").symlink_to(tmp_path / "project")
    async with changed(tmp_path, write("a.txt", "1\n"), folder=link if opened_by_link else None) as r:
        (change,) = (await call(r, "_session/changes"))["changes"]
        await revert(r, {**change, "path": str(link / "a.txt")}, 0)
        assert not (r.project / "a.txt").exists()
        await call(r, "_session/redo")
        await revert(r, change, 0)
        assert not (r.project / "a.txt").exists()


async def test_a_hunk_is_reverted_in_the_files_encoding_although_the_text_is_not_saved(tmp_path):
    path, new = tmp_path / "project" / "a.txt", "eins\nZWEI\ndrei\nvier\n"
    async with rig(tmp_path, [read(path), write(path, new), "Done."], mode="auto") as r:
        path.write_text(new.lower(), encoding="utf-16")
        await r.editor.prompt("Change it.")
        assert path.read_bytes().decode("utf-16") == new
        (change,) = (await call(r, "_session/changes"))["changes"]
        r.editor.files.buffers[path] = f"{new}unsaved\n"
        await revert(r, change, 0)
        assert path.read_bytes().decode("utf-16") == "eins\nzwei\ndrei\nvier\nunsaved\n"


def shown_lines(change: dict[str, Any]) -> tuple[str, str, int, int]:
    return change["oldText"], change["newText"], change["added"], change["removed"]


async def test_changes_of_the_user_are_not_shown_as_the_agents(tmp_path):
    script = [bash("sed -i s/2/two/ a.txt; echo 1 > b.txt; echo x >> c.txt"), "One.", bash("sed -i s/5/five/ a.txt")]
    async with rig(tmp_path, [*script, "Two."], mode="auto") as r:
        a, b, c = (r.project / name for name in ("a.txt", "b.txt", "c.txt"))
        a.write_text("1\n2\n3\n4\n5\n6\n7\n")
        c.write_text("c\n")
        await r.editor.prompt("one")
        a.write_text("1\ntwo\n3\n4\n5\n6\n7\nbetween\n")
        await r.editor.prompt("two")
        a.write_text("above\n" + a.read_text())
        b.write_text("1 and mine\n")
        changes = {each["path"]: each for each in (await call(r, "_session/changes"))["changes"]}
        assert {Path(path).name: each["mixed"] for path, each in changes.items()} == {
            "a.txt": True, "b.txt": True, "c.txt": False,
        }  # fmt: skip
        now = "above\n1\ntwo\n3\n4\nfive\n6\n7\nbetween\n"
        assert shown_lines(changes[str(a)]) == ("above\n1\n2\n3\n4\n5\n6\n7\nbetween\n", now, 2, 2)
        assert shown_lines(changes[str(b)]) == (None, "1\n", 1, 0), "what the agent left, if it cannot be told apart"
        assert shown_lines(changes[str(c)]) == ("c\n", "c\nx\n", 1, 0)
        words = await said(r, "/diff")
        assert words.startswith("3 files changed in this session (+4 -2).")
        assert "Changes that are not the agent's are also in" in words
        assert str(a) in words and str(b) in words and str(c) not in words
        a.write_text("1\n2\n3\n4\n5\n6\n7\n")
        left = (await call(r, "_session/changes"))["changes"]
        assert {each["path"] for each in left} == {str(b), str(c)}, "what the user has taken back is no change"


async def test_a_hunk_is_reverted_in_the_text_as_it_is_now(tmp_path):
    new = "1\ntwo\n3\n4\n5\nsix\n7\n"
    async with changed(tmp_path, read("a.txt"), write("a.txt", new), files={"a.txt": "1\n2\n3\n4\n5\n6\n7\n"}) as r:
        (path := r.project / "a.txt").write_text("mine\n" + new)
        (change,) = (await call(r, "_session/changes"))["changes"]
        r.editor.files.buffers[path] = f"unsaved\nmine\n{new}"
        await revert(r, change, 1)
        assert path.read_text() == "unsaved\nmine\n1\ntwo\n3\n4\n5\n6\n7\n"


async def test_a_hunk_whose_lines_the_user_changed_is_left_alone_and_the_others_are_not(tmp_path):
    new = "1\ntwo\n3\n4\n5\nsix\n7\n"
    async with changed(tmp_path, read("a.txt"), write("a.txt", new), files={"a.txt": "1\n2\n3\n4\n5\n6\n7\n"}) as r:
        (path := r.project / "a.txt").write_text(new.replace("two", "TWO"))
        (change,) = (await call(r, "_session/changes"))["changes"]
        assert shown_lines(change) == ("1\n2\n3\n4\n5\n6\n7\n", new, 2, 2) and change["mixed"] is True
        with pytest.raises(PeerError, match="changed since"):
            await revert(r, change, 0)
        await revert(r, change, 1)
        assert path.read_text() == "1\nTWO\n3\n4\n5\n6\n7\n"


async def test_bad_parameters_are_refused_with_a_reason(tmp_path):
    async with changed(tmp_path, write("a.txt", "x\n")) as r:
        for params in (
            {"to": 7}, {"to": -1}, {"to": "x"}, {"path": "relative"}, {"hunks": [-1], "path": "/x"},
            {"hunks": [0], "expect": ["x"]}, {"what": "all"}, {"call": "nobody"},
        ):  # fmt: skip
            with refused(-32602):
                assert not await call(r, "_session/undo", **params), params
        assert (r.project / "a.txt").exists()


# --- whatever else runs ------------------------------------------------------------------------------------------


async def test_what_the_users_hooks_change_after_a_call_goes_with_it(tmp_path):
    config = '[[hooks.file_changed]]\ncommand = "echo formatted >> $ACP_CODER_FILE"\n'
    async with changed(tmp_path, write("a.txt", "a\n"), config=config) as r:
        assert (r.project / "a.txt").read_text() == "a\nformatted\n"
        words = await said(r, "/undo files yes")
        assert not (r.project / "a.txt").exists(), words


async def test_what_a_command_in_the_background_changes_is_taken_back_only_by_its_call(tmp_path):
    wait = "until [ -e go ]; do sleep 0.01; done; echo built > out.txt; rm go; until [ -e end ]; do sleep 0.01; done"
    background = asks(Call("bash", {"command": wait, "background": True}))
    async with went(tmp_path, [background, "Started.", "Next."], mode="auto", prompt="Start it.") as r:
        (first,) = r.editor.tool_calls()
        (r.project / "go").touch()
        await until((r.project / "out.txt").exists)
        await until(lambda: not (r.project / "go").exists())
        assert "Nothing is left to take back" in await said(r, "/undo 1 files yes")
        assert (r.project / "out.txt").exists(), "it could be the user's"
        await r.editor.prompt("Next.")
        one, *_, two = (await call(r, "_session/checkpoints"))["checkpoints"]
        assert [Path(each["path"]).name for each in one["files"]] == ["out.txt"] and two["files"] == []
        words = await said(r, f"/undo {first} yes")
        assert list(r.project.iterdir()) == [], words
        (r.project / "end").touch()


async def test_what_another_sessions_tools_write_meanwhile_is_not_the_commands(tmp_path):
    command = bash("echo 1 > a.txt; until [ -e go ]; do sleep 0.01; done; rm go")
    async with rig(tmp_path, [command, write("b.txt", "2\n"), "Second.", "First."], mode="auto") as r:
        first = r.editor.session_id
        turn = r.editor.begin("one")
        await until((r.project / "a.txt").exists)
        await r.editor.new_session(r.project)
        await r.editor.client.set_session_mode(r.editor.session_id, "auto")
        await r.editor.prompt("two")
        (r.project / "go").touch()
        await turn.response()
        found = await r.editor.request("_session/changes", {"sessionId": first})
        assert [Path(each["path"]).name for each in found["changes"]] == ["a.txt"]


async def test_what_the_user_does_between_two_calls_is_the_users(tmp_path):
    async with rig(tmp_path, [bash("echo 1 > a.txt"), "One.", bash("echo 2 > b.txt"), "Two."], mode="auto") as r:
        await r.editor.prompt("one")
        (r.project / "mine.txt").write_text("mine")
        (r.project / "a.txt").unlink()
        await r.editor.prompt("two")
        await said(r, "/undo 1 files yes")
        assert {path.name for path in r.project.iterdir()} == {"mine.txt"}


async def test_an_undo_while_a_turn_runs_is_refused_and_a_command_that_is_stopped_is_taken_back_too(tmp_path):
    async with rig(tmp_path, [bash("echo half > a.txt; touch there; while :; do sleep 0.05; done")], mode="auto") as r:
        turn = r.editor.begin("Do it.")
        await until((r.project / "there").exists)
        with pytest.raises(PeerError, match="A turn is running"):
            await call(r, "_session/undo")
        assert (await call(r, "_session/checkpoints"))["checkpoints"], "looking is possible"
        await cancels(r, turn)
        await said(r, "/undo 1 files yes")
        assert list(r.project.iterdir()) == []


@pytest.mark.parametrize("in_editor", [False, True])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_it_is_shown_how_far_a_long_undo_is_and_cancelled_it_leaves_all_as_it_was(
    tmp_path, monkeypatch, cancelled, in_editor
):
    monkeypatch.setattr("acp_agent.loop.undo.undoing.TOLD", 4)
    monkeypatch.setattr("acp_agent.loop.undo.undoing.OFTEN", 1)
    monkeypatch.setattr("acp_agent.undo.restore.MANY", 5)
    files = {str(number): "before\n" for number in range(10)}
    change = bash("for n in $(seq 0 9); do echo after > $n; done")
    async with changed(tmp_path, change, files=files, fs_read=in_editor, fs_write=in_editor) as r:
        inode, told = (r.project / "0").stat().st_ino, undo_commands._tell

        def tell(session, card, count, done):
            told(session, card, count, done)
            if cancelled:
                session.queue.cancel()

        monkeypatch.setattr(undo_commands, "_tell", tell)
        answered = await r.editor.prompt("/undo yes")
        assert answered.stop_reason == ("cancelled" if cancelled else "end_turn")
        card = list(r.editor.tool_calls().values())[-1]
        end, title = ("failed", ": 4 of 10") if cancelled else ("completed", ": 8 of 10")
        assert card.status == end and "in_progress" in card.statuses and card.title.endswith(title)
        assert {path.read_text() for path in r.project.iterdir()} == {"after\n" if cancelled else "before\n"}
        if not cancelled:
            assert (r.project / "0").stat().st_ino == inode, "many small files are written in place"
            return
        assert r.editor.text().endswith("Nothing was restored: it was cancelled.")
        monkeypatch.undo()
        assert (await said(r, "/undo yes")).startswith("Taken back")
        assert {path.read_text() for path in r.project.iterdir()} == {"before\n"}


async def test_of_many_changed_files_the_first_are_compared_and_the_others_named(tmp_path, monkeypatch):
    for name in ("loop.undo.undoing", "loop.undo.undo_commands", "undo.file_changes"):
        monkeypatch.setattr(f"acp_agent.{name}.MOST_FILES", 3)
    files = {str(number): "before\n" for number in range(5)}
    async with changed(tmp_path, bash("for n in 0 1 2 3 4; do echo after >> $n; done"), files=files) as r:
        assert await said(r, "/diff") == "5 files changed in this session (+3 -0 in the first 3 of them)."
        card = list(r.editor.tool_calls().values())[-1]
        assert len([each for each in card.content if isinstance(each, acp.Diff)]) == 3
        assert card.text().count(": changed (more than 500 files changed, so this one is not shown)") == 2
        found = (await call(r, "_session/changes"))["changes"]
        assert [(each["shown"], each["mixed"]) for each in found] == [(True, False)] * 3 + [(False, False)] * 2
        mine = Path(found[-1]["path"])
        mine.write_text("mine\n")
        found = (await call(r, "_session/changes"))["changes"]
        assert [each["mixed"] for each in found] == [False] * 4 + [True]
        await said(r, "/undo yes")
        assert {path.read_text() for path in r.project.iterdir() if path != mine} == {"before\n"}
        assert mine.read_text() == "mine\n"


async def test_in_the_home_folder_commands_are_not_covered_and_that_is_said(tmp_path):
    home = tmp_path / "home"
    async with changed(tmp_path, bash("echo 1 > a.txt"), write(home / "b.txt", "2\n"), folder=home) as r:
        assert "what commands change in it is not kept" in await said(r, "/checkpoints")
        await said(r, "/undo 1 files yes")
        assert (home / "a.txt").exists() and not (home / "b.txt").exists()


async def test_compaction_and_clear_do_not_stand_in_the_way(tmp_path):
    script = [write("a.txt", "1\n"), "One.", "Two.", "A summary.", "Three."]
    async with changed(tmp_path, *script, prompts=("one", "two")) as r:
        before = r.messages(3)
        await said(r, "/clear")
        await said(r, "/undo 2 conversation yes")
        await r.editor.prompt("three")
        last = r.messages(len(r.model.requests))
        assert last[: len(before) - 1] == before[:-1], "what the model knew before prompt 2, to the byte"


SERVER = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "w", "version": "1"}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "put", "description": "Puts.", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        pathlib.Path(sys.argv[1]).write_text("by the server")
        result = {"content": [{"type": "text", "text": "put"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_what_an_mcp_server_changes_goes_with_its_call(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    path = tmp_path / "project/a.txt"
    arguments = [str(tmp_path / "server.py"), str(path)]
    servers = [acp.McpServerStdio(name="w", command=sys.executable, args=arguments, env=[])]
    async with changed(tmp_path, asks(Call("mcp_w_put", {})), mcp_servers=servers, files={"a.txt": "before"}) as r:
        assert path.read_text() == "by the server", r.editor.text()
        words = await said(r, "/undo files yes")
        assert path.read_text() == "before", words


async def test_another_users_files_are_kept_and_restored_as_theirs(open_folder):
    config = '[tools.scope]\nrun_as_user = "nobody"\n'
    script = [bash("echo after > a.txt; echo new > b.txt"), read("a.txt"), write("a.txt", "written\n"), "Done."]
    async with rig(open_folder, script, mode="auto", config=config) as r:
        r.project.chmod(0o777)
        (r.project / "a.txt").write_text("before\n")
        (r.project / "a.txt").chmod(0o666)
        await r.editor.prompt("Change it.")
        assert (r.project / "a.txt").read_text() == "written\n", r.editor.text()
        words = await said(r, "/undo files yes")
        assert (r.project / "a.txt").read_text() == "before\n", words
        assert not (r.project / "b.txt").exists()


async def test_changes_in_a_folder_that_is_not_to_be_written_to_are_shown_and_reverted(open_folder):
    config = '[tools.scope]\nrun_as_user = "nobody"\n'
    async with rig(open_folder, [bash("echo after > d/a.txt"), "Done."], mode="auto", config=config) as r:
        path = r.project / "d" / "a.txt"
        put(path, "before\n")
        path.chmod(0o666)
        path.parent.chmod(0o555)
        await r.editor.prompt("Change it.")
        (change,) = (await call(r, "_session/changes"))["changes"]
        assert shown_lines(change) == ("before\n", "after\n", 1, 1)
        await revert(r, change, 0)
        assert path.read_text() == "before\n"


@pytest.mark.parametrize("by_method", [False, True])
async def test_a_fork_in_a_worktree_has_the_files_of_its_prompt(tmp_path, by_method):
    script = [write("a.txt", "1\n"), "One.", write("b/c.txt", "2\n"), bash("echo 3 > a.txt; rm tracked"), "Two."]
    async with rig(tmp_path, script, mode="auto", files={"tracked": "committed"}) as r:
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            git(r.project, *command)
        await r.says("one", "two")
        if by_method:
            meta = {"fork": {"to": 2}, "isolation": "worktree"}
            asked = {"sessionId": r.editor.session_id, "cwd": str(r.project), "mcpServers": [], "_meta": meta}
            assert (await r.editor.request("session/fork", asked))["sessionId"]
        else:
            assert "as they were then" in await said(r, "/fork 2 worktree")
        (worktree,) = (tmp_path / "home/.local/state/acp-coder-worktrees").glob("????????")
        assert (worktree / "a.txt").read_text() == "1\n" and (worktree / "tracked").read_text() == "committed"
        assert not (worktree / "b").exists()
        assert (r.project / "a.txt").read_text() == "3\n"


async def test_nothing_is_looked_at_again_and_again_when_all_is_kept(tmp_path: Path, monkeypatch: Any) -> None:
    looks: list[bool] = []
    copy = FolderLooks.copy_beside

    def counted(self: FolderLooks, *, copies: bool) -> bool:
        looks.append(copies)
        return copy(self, copies=copies)

    monkeypatch.setattr(FolderLooks, "copy_beside", counted)
    async with changed(tmp_path, bash("sleep 0.3"), files={"a": "a\n"}):
        pass
    assert 1 <= len(looks) <= 8
