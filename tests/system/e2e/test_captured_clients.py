"""Whole turns with every client whose `initialize` was recorded, imitating its behaviour, as real processes."""

from pathlib import Path

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.protocol.profiles import rendering_plan
from acp_agent.schema.acp import AgentMessageChunk, Plan, ResourceLink, TextContent, UserMessageChunk
from acp_agent.testing.fake_model import Call
from tests.agent.kit import asks, bash, put
from tests.e2e.kit import until_gone
from tests.system.e2e.captured import Talk, recorded, talking
from tests.waits import until

by_client = pytest.mark.parametrize("file", recorded(), ids=lambda file: file.stem)

TEXT = "one\ntwo\nthree\nfour\n"
READ = Call("read", {"path": "a.txt"})
EDIT = Call("edit", {"path": "a.txt", "old_string": "two", "new_string": "zwei"})


def clean(talk: Talk) -> None:
    talk.editor.assert_tool_calls_finished()
    talk.editor.assert_clean()


@by_client
async def test_a_file_is_read_edited_and_read_again(file, tmp_path):
    script = [asks(Call("read", {"path": "a.txt", "offset": 2, "limit": 2})), asks(READ, EDIT), asks(READ), "done"]
    async with talking(file, tmp_path, script) as talk:
        (talk.project / "a.txt").write_text(TEXT)
        assert (await talk.editor.prompt("go")).stop_reason == "end_turn"
        assert (talk.project / "a.txt").read_text() == TEXT.replace("two", "zwei")
        part, whole, _, after = talk.results(4)
        assert "two" in part and "three" in part and "one" not in part and "four" not in part
        assert "one" in whole and "four" in whole and "zwei" in after and "two" not in after
        changed = talk.editor.tool_calls()
        assert [call.status for call in changed.values()] == ["completed"] * 4
        diff = next(item for call in changed.values() if call.kind == "edit" for item in call.content)
        assert (diff.old_text, diff.new_text) == (TEXT, TEXT.replace("two", "zwei"))
        clean(talk)


@by_client
async def test_new_folders_missing_files_and_a_folder_beside_the_project(file, tmp_path):
    """acpx shows nothing outside of the session's folder, also where the session has more of them."""
    put((beside := tmp_path / "beside") / "c.txt", "from beside\n")
    reads = [Call("read", {"path": path}) for path in ("none.txt", str(beside / "c.txt"))]
    new = Call("write", {"path": "new/deep/b.txt", "content": "äöü 🎈\n"})
    empty = Call("write", {"path": "other/empty.txt", "content": ""})
    async with talking(file, tmp_path, [asks(*reads), asks(new, empty), "done"]) as talk:
        await talk.editor.new_session(talk.project, additional_directories=[beside])
        await talk.editor.prompt("go")
        missing, other = talk.results(3)[:2]
        assert "none.txt does not exist" in missing
        assert "from beside" in other
        assert (talk.project / "new/deep/b.txt").read_text() == "äöü 🎈\n"
        assert (talk.project / "other/empty.txt").read_text() == "" and not (talk.project / "none.txt").exists()
        states = [call.status for call in talk.editor.tool_calls().values()]
        assert states == ["failed", "completed", "completed", "completed"]
        clean(talk)


@by_client
async def test_line_ends_and_what_is_no_utf_8_are_not_lost(file, tmp_path):
    """Toad gives files without either."""
    latin = "café\ntwo\n".encode("latin-1")
    change = {"old_string": "two", "new_string": "zwei"}
    reads = [Call("read", {"path": name}) for name in ("latin.txt", "dos.txt")]
    edits = [Call("edit", {"path": name, **change}) for name in ("latin.txt", "dos.txt")]
    async with talking(file, tmp_path, [asks(*reads), asks(*edits), "done"]) as talk:
        (talk.project / "latin.txt").write_bytes(latin)
        (talk.project / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
        await talk.editor.prompt("go")
        assert (talk.project / "latin.txt").read_bytes() == latin.replace(b"two", b"zwei")
        assert (talk.project / "dos.txt").read_bytes() == b"one\r\nzwei\r\n"
        assert [call.status for call in talk.editor.tool_calls().values()] == ["completed"] * 4
        clean(talk)


@by_client
async def test_commands_tell_output_folder_and_exit_status(file, tmp_path):
    script = [asks(bash("printf 'a\\nb c\\n'; pwd; echo \"it's $((40 + 2))\" >&2; exit 3")), asks(bash("true")), "done"]
    async with talking(file, tmp_path, script) as talk:
        await talk.editor.prompt("go")
        failed, passed = talk.results(3)
        assert "a\nb c\n" in failed and "\r" not in failed
        assert str(talk.project) in failed and "it's 42" in failed and "3" in failed
        assert "3" not in passed
        assert bool(talk.asked("terminal/create")) == talk.said.client_capabilities.terminal
        assert len(talk.asked("terminal/release")) == len(talk.asked("terminal/create"))
        clean(talk)


@by_client
async def test_a_cancelled_command_is_killed_and_the_next_prompt_works(file, tmp_path):
    script = [asks(bash("echo $$ > pid.tmp && mv pid.tmp pid && sleep 1000")), asks(bash("echo back")), "done"]
    async with talking(file, tmp_path, script) as talk:
        turn = talk.editor.begin("go")
        await talk.editor.wait_until(
            lambda: any(call.status == "in_progress" for call in talk.editor.tool_calls().values())
        )
        pid = await written(talk.project / "pid")
        talk.editor.cancel()
        assert (await turn.response()).stop_reason == "cancelled"
        await until_gone(int(pid))
        assert (await talk.editor.prompt("again")).stop_reason == "end_turn" and "back" in talk.results(3)[-1]
        clean(talk)


async def written(path: Path) -> str:
    await until(path.exists)
    return path.read_text().strip()


@by_client
async def test_what_is_rejected_is_not_done(file, tmp_path):
    script = [asks(READ, EDIT), asks(bash("touch made")), "done"]
    async with talking(file, tmp_path, script, otherwise=reject_once) as talk:
        (talk.project / "a.txt").write_text(TEXT)
        assert (await talk.editor.prompt("go")).stop_reason == "end_turn" and len(talk.editor.permission_requests) == 2
        assert (talk.project / "a.txt").read_text() == TEXT and not (talk.project / "made").exists()
        assert all("not allow" in result for result in talk.results(3)[1:])
        assert not talk.asked("fs/write_text_file") and not talk.asked("terminal/create")
        clean(talk)


@by_client
async def test_a_plan_is_seen_and_a_question_is_answered(file, tmp_path):
    steps = [{"content": "Look around", "status": "in_progress"}, {"content": "Mend it", "status": "pending"}]
    question = Call("ask_user", {"question": "Which colour?", "choices": ["red", "green"]})
    async with talking(file, tmp_path, [asks(Call("plan", {"entries": steps})), asks(question), "done"]) as talk:
        assert (await talk.editor.prompt("go")).stop_reason == "end_turn"
        shown, asked = talk.editor.tool_calls().values()
        plan = rendering_plan(talk.said.client_capabilities, talk.said.client_info)
        plans = [item for item in talk.editor.updates[talk.editor.session_id] if isinstance(item, Plan)]
        assert [entry.content for entry in plans[-1].entries] == ["Look around", "Mend it"]
        assert ("Look around" in shown.text()) != plan.plans  # Where no plan is drawn, the steps stand in the call.
        assert "red" in talk.results(3)[1] and "green" not in talk.results(3)[1]
        assert bool(talk.editor.elicitations) == (talk.said.client_capabilities.elicitation is not None)
        assert asked.status == "completed"
        clean(talk)


@by_client
async def test_a_mention_reaches_the_model_and_the_status_tells_what_the_client_does(file, tmp_path):
    async with talking(file, tmp_path, ["seen"]) as talk:
        (path := talk.project / "with space.txt").write_text("x\n")
        link = ResourceLink(name=path.name, uri=talk.client.mentions(path), mime_type="text/plain")
        await talk.editor.prompt([TextContent(text="look at this"), link])
        (message,) = [item for item in talk.model.requests[0].body["messages"] if item["role"] == "user"]
        assert str(path) in str(message["content"]) and "cannot be read" not in str(message["content"])
        await talk.editor.prompt("/status")
        status = talk.editor.text()
        plan = rendering_plan(talk.said.client_capabilities, talk.said.client_info)
        assert f"The editor ({talk.name}) offers: reading buffers" in status
        assert ("writing buffers" in status) == plan.writes_files and ("terminals" in status) == plan.terminals
        assert all(words in status for words in plan.corrected)
        assert len(talk.model.requests) == 1
        clean(talk)


@by_client
async def test_a_session_goes_on_in_a_second_process(file, tmp_path):
    async with talking(file, tmp_path, [asks(READ, EDIT), "All done."]) as talk:
        (talk.project / "a.txt").write_text(TEXT)
        await talk.editor.prompt("change it")
        session = talk.editor.session_id
        before = talk.editor.tool_calls()
    async with talking(file, tmp_path, ["I remember."]) as talk:
        await talk.editor.load_session(session, talk.project)
        replayed = talk.editor.updates[session]
        assert [item.content.text for item in replayed if isinstance(item, UserMessageChunk)] == ["change it"]
        assert "".join(item.content.text for item in replayed if isinstance(item, AgentMessageChunk)) == "All done."
        assert [(call.title, call.status) for call in talk.editor.tool_calls().values()] == [
            (call.title, call.status) for call in before.values()
        ]
        assert (await talk.editor.prompt("what did you do?")).stop_reason == "end_turn" and len(talk.results(1)) == 2
        clean(talk)
