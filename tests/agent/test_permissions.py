"""Permission: who is asked, what is shown, what an answer means, and what is remembered."""

import anyio
import pytest

from acp_agent.client.permissions import allow_always, allow_once, cancelled, never_answers, reject_always, reject_once
from acp_agent.schema.acp import Diff, SelectedPermissionOutcome, ToolCallProgress
from acp_agent.testing.fake_editor import AnswersError, AnswersGarbage
from acp_agent.testing.fake_model import Answer, Call
from tests.tables import table

from .kit import agent_rig, another, bash, cancels, rig, rounds, went


async def test_the_request_shows_the_exact_command(tmp_path):
    command = "touch 'a b' && echo \"$HOME\""
    async with went(tmp_path, rounds(bash(command))) as r:
        (request,) = r.editor.permission_requests
        assert request.tool_call.title == command
        assert command in request.tool_call.content[0].content.text
        assert request.tool_call.raw_input == {"command": command}
        assert [option.kind for option in request.options] == [
            "allow_once", "allow_always", "reject_once", "reject_always",
        ]  # fmt: skip
        assert len({option.option_id for option in request.options}) == 4
        assert "this exact command in this project" in request.options[1].name


async def test_the_request_shows_the_diff_and_without_a_yes_nothing_is_written(tmp_path):
    async with went(tmp_path, rounds(Call("write", {"path": "n.txt", "content": "x\n"})), otherwise=reject_once) as r:
        r.editor.tool_call().assert_finished("failed")
        assert not (r.project / "n.txt").exists()
        (request,) = r.editor.permission_requests
        diff, why = request.tool_call.content
        assert isinstance(diff, Diff)
        assert why.content.text == "Asked because it changes a file."
        assert (diff.old_text, diff.new_text) == (None, "x\n")
        assert "edits in this project" in request.options[1].name


async def test_nothing_runs_and_the_call_stays_pending_until_the_answer(tmp_path):
    released = anyio.Event()

    async def later(request):
        await released.wait()
        return SelectedPermissionOutcome(option_id="allow_once")

    async with rig(tmp_path, rounds(bash("touch made")), otherwise=later) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.permission_requests)
        assert r.editor.tool_call().statuses == ["pending"]
        assert not (r.project / "made").exists()
        released.set()
        await turn.response()
        r.editor.tool_call().assert_finished("completed")
        assert (r.project / "made").exists()


@table("command", ["ls -la", "git status", "cat a.txt | head -3 && pwd", "grep -rn x ."])
async def test_commands_that_only_look_ask_nobody(again, command):
    async with again(rounds(bash(command)), files={"a.txt": "x\n"}) as r:
        assert r.editor.permission_requests == []


@pytest.mark.parametrize("command", ["cat /etc/passwd", "ls; touch x", "cat a > b", "echo $(touch x)", "ls &"])
async def test_commands_that_do_more_are_asked_about(tmp_path, command):
    async with went(tmp_path, rounds(bash(command)), otherwise=reject_once) as r:
        assert len(r.editor.permission_requests) == 1
        r.editor.tool_call().assert_finished("failed")
        assert "did not allow" in r.messages(2)[-1]["content"]
        assert list(r.project.iterdir()) == []


async def test_an_always_for_a_command_covers_that_sub_command_only(tmp_path):
    commands = ["git add .", "git add -A", "git init -q .", "git add x; touch y"]
    async with went(
        tmp_path, rounds(*map(bash, commands)), permissions=[allow_always, allow_once, allow_once],
        otherwise=reject_once,
    ) as r:  # fmt: skip
        asked = [request.tool_call.title for request in r.editor.permission_requests]
        assert asked == [commands[0], commands[2], commands[3]]
        assert "`git add`" in r.editor.permission_requests[0].options[1].name


async def test_an_always_for_edits_covers_edits_and_no_commands(tmp_path):
    calls = (
        Call("write", {"path": "a.txt", "content": "a"}), Call("write", {"path": "b.txt", "content": "b"}),
        bash("touch c"),
    )  # fmt: skip
    async with went(tmp_path, rounds(*calls), permissions=[allow_always], otherwise=reject_once) as r:
        assert [request.tool_call.kind for request in r.editor.permission_requests] == ["edit", "execute"]
        assert sorted(path.name for path in r.project.iterdir()) == ["a.txt", "b.txt"]


async def test_always_is_remembered_by_the_project_and_not_elsewhere(tmp_path):
    calls = rounds(Call("write", {"path": "a.txt", "content": "a"}))
    async with went(tmp_path, [*calls, *calls, *calls], otherwise=allow_always) as r:
        (r.project / "a.txt").unlink()
        async with another(r.environ, otherwise=reject_once) as other:
            await other.new_session(r.project)
            await other.prompt("go")
            assert other.permission_requests == []
            (elsewhere := tmp_path / "elsewhere").mkdir()
            await other.new_session(elsewhere)
            await other.prompt("go")
            assert len(other.permission_requests) == 1


async def test_never_is_remembered_too(tmp_path):
    calls = [bash("touch x"), bash("touch x")]
    async with went(tmp_path, rounds(*calls), permissions=[reject_always], otherwise=allow_once) as r:
        assert len(r.editor.permission_requests) == 1
        assert not (r.project / "x").exists()


@table("bad", [
    AnswersError(-32603, "oops"), AnswersGarbage(),
    AnswersGarbage({"outcome": {"outcome": "selected", "optionId": "sudo"}}),
    AnswersGarbage({"outcome": {"outcome": "selected"}}), AnswersGarbage({"outcome": {"outcome": "allowed"}}),
    AnswersGarbage({"outcome": "allow_once"}), AnswersGarbage({"optionId": "allow_once"}), AnswersGarbage(None),
    AnswersGarbage([]), AnswersGarbage("allow_once"),
])  # fmt: skip
async def test_an_error_or_garbage_is_never_approval(again, bad):
    async with again(rounds(bash("touch x")), prompt=None) as r:
        r.editor.misbehave["session/request_permission"] = bad
        await r.editor.prompt("go")
        r.editor.tool_call().assert_finished("failed")
        assert not (r.project / "x").exists()


async def test_the_outcome_cancelled_ends_the_turn_without_an_error(tmp_path):
    async with went(tmp_path, [*rounds(bash("touch x")), "again"], otherwise=cancelled, ends="cancelled") as r:
        r.editor.tool_call().assert_finished("failed")
        assert not (r.project / "x").exists()
        assert len(r.model.requests) == 1
        r.editor.client.permissions = allow_once
        await r.editor.prompt("again")


async def test_a_pending_question_does_not_hold_a_cancel_up_and_is_withdrawn(tmp_path):
    async with rig(tmp_path, rounds(bash("touch x")), otherwise=never_answers) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.permission_requests)
        await cancels(r, turn)
        r.editor.tool_call().assert_finished("failed")
        assert any(line.get("method") == "$/cancel_request" for line in r.editor.lines("from_agent"))


async def test_the_mode_auto_asks_nothing(tmp_path):
    calls = (bash("touch made"), Call("write", {"path": "w.txt", "content": "w"}))
    async with went(tmp_path, rounds(*calls), mode="auto", otherwise=reject_once) as r:
        assert r.editor.permission_requests == []
        assert (r.project / "made").exists()


@pytest.mark.parametrize("mode", ["ask", "architect"])
async def test_reading_modes_offer_no_changing_tool_and_refuse_one_that_is_called(tmp_path, mode):
    calls = (bash("touch x"), Call("write", {"path": "w", "content": "w"}), Call("read", {"path": "a.txt"}))
    async with went(tmp_path, rounds(*calls), mode=mode, files={"a.txt": "a"}) as r:
        offered = r.tool_names(1)
        assert offered >= {"read", "grep", "find_path", "list_directory"}
        assert not offered & {"bash", "edit", "write"}
        assert ("plan" in offered) == (mode == "architect")
        statuses = [call.status for call in r.editor.tool_calls().values()]
        assert statuses == ["failed", "failed", "completed"]
        assert r.editor.permission_requests == []
        assert not (r.project / "x").exists()


async def test_a_mode_switched_during_a_turn_counts_at_once(tmp_path):
    async with rig(tmp_path, rounds(bash("touch x"), bash("touch y"))) as r:

        async def switch(request):
            await r.editor.client.set_session_mode(r.editor.session_id, "ask")
            return SelectedPermissionOutcome(option_id="allow_once")

        r.editor.permissions.append(switch)
        await r.editor.prompt("go")
        assert list(r.project.iterdir()) == []  # an approval given before the switch does not outlive it
        assert "bash" in r.tool_names(1) and "bash" not in r.tool_names(2)


@pytest.mark.parametrize(("name", "how"), [
    ("edit", {"old_string": "one", "new_string": "two"}), ("write", {"content": "two"}),
])  # fmt: skip
async def test_a_file_that_changes_while_the_person_thinks_is_not_overwritten(tmp_path, name, how):
    script = rounds(Call("read", {"path": "a.txt"}), Call(name, {"path": "a.txt", **how}))
    async with rig(tmp_path, script, files={"a.txt": "one\n"}) as r:

        async def meanwhile(request):
            (r.project / "a.txt").write_text("one and more\n")
            return SelectedPermissionOutcome(option_id="allow_once")

        r.editor.permissions.append(meanwhile)
        await r.editor.prompt("go")
        changed = list(r.editor.tool_calls().values())[-1]
        changed.assert_finished("failed")
        assert "changed by someone else in the meantime" in changed.text()
        assert (r.project / "a.txt").read_text() == "one and more\n"


async def test_the_shown_diff_stands_in_the_last_update(tmp_path):
    async with went(tmp_path, rounds(Call("write", {"path": "n.txt", "content": "x\n"}))) as r:
        updates = [u for u in r.editor.updates[r.editor.session_id] if isinstance(u, ToolCallProgress)]
        assert [type(item) for item in updates[-1].content] == [Diff]


async def test_an_always_for_edits_covers_the_projects_own_files_only(tmp_path):
    (extra := tmp_path / "extra").mkdir()
    paths = ["a.txt", str(extra / "b.txt"), ".git/config", ".acp-coder/config.toml", "sub/.vscode/tasks.json", "c.txt"]
    calls = [Call("write", {"path": path, "content": "x"}) for path in paths]
    async with agent_rig(tmp_path, rounds(*calls), otherwise=allow_always) as r:
        await r.editor.new_session(r.project, additional_directories=[extra])
        await r.editor.prompt("go")
        asked = [request.tool_call.title for request in r.editor.permission_requests]
        assert asked == [f"Write {path}" for path in paths[:-1]]
        assert f"edits of {extra / 'b.txt'}" in r.editor.permission_requests[1].options[1].name


@pytest.mark.parametrize("fs_write", [True, False])
async def test_a_folder_that_becomes_a_link_while_the_person_thinks_is_not_followed(tmp_path, fs_write):
    (outside := tmp_path / "outside").mkdir()

    async def swap(request):
        (tmp_path / "project" / "d").rmdir()
        (tmp_path / "project" / "d").symlink_to(outside)
        return SelectedPermissionOutcome(option_id="allow_once")

    call = Call("write", {"path": "d/new.txt", "content": "x"})
    async with rig(tmp_path, rounds(call), otherwise=swap, fs_read=fs_write, fs_write=fs_write) as r:
        (r.project / "d").mkdir()
        await r.editor.prompt("go")
        r.editor.tool_call().assert_finished("failed")
        assert list(outside.iterdir()) == []


async def test_a_question_cannot_be_made_to_look_like_another_by_characters_that_nobody_sees(tmp_path):
    reversing, erasing = "a\u202egnp.sh", "ls \x1b[2K\rrm -rf x"
    calls = (Call("write", {"path": reversing, "content": "x"}), bash(erasing))
    async with went(tmp_path, [Answer(tool_calls=calls), "done"]) as r:
        titles = [call.title for call in r.editor.tool_calls().values()]
        assert titles == ["Write a\\u202egnp.sh", "ls \\x1b[2K\\x0drm -rf x"]
        write, run = r.editor.permission_requests
        assert [write.tool_call.title, run.tool_call.title] == titles
        shown = str([(request.options, request.tool_call.content[-1]) for request in (write, run)])
        assert "\u202e" not in shown and "\x1b" not in shown
        assert run.tool_call.raw_input == {"command": erasing}, "programs get what runs"
        assert (r.project / reversing).exists()
