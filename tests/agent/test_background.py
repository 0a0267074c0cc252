"""Background commands: what the user and the model learn of them, when, and that nothing is left behind."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from acp_agent.schema.acp import Terminal, ToolCallUpdate
from acp_agent.testing.fake_model import Answer, Call
from tests.executors.kit import alive, until_exists
from tests.waits import until

from .kit import Rig, asks, bash, cancels, on_stdio, rig, went, with_each_editor

RUN_ID = re.compile(r"run_id=([0-9a-f-]{36})")
LISTS_LATER = Answer(tool_calls=(Call("bash_list", {}),), hang_before=True)


def model(*steps: Answer | str | Callable[[list[str]], Answer]) -> Callable[[dict[str, Any]], Answer | str]:
    """A model that answers with one step after the other; a step may need the run_ids it was given so far."""
    left = iter(steps)

    def reply(body: dict[str, Any]) -> Answer | str:
        step = next(left)
        if not callable(step):
            return step
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        return step([found for text in results if isinstance(text, str) for found in RUN_ID.findall(text)])

    return reply


def output(which: int = -1, **more: object) -> Callable[[list[str]], Answer]:
    return lambda runs: asks(Call("bash_output", {"run_id": runs[which], **more}))


def kill(runs: list[str]) -> Answer:
    return asks(Call("bash_kill", {"run_id": runs[-1]}))


def result(r: Rig, number: int) -> str:
    """The last tool result of the n-th request."""
    return str(next(message["content"] for message in reversed(r.messages(number)) if message["role"] == "tool"))


def started(r: Rig, number: int, index: int = -1) -> str:
    """The run_id the model was given before its n-th request."""
    results = [message["content"] for message in r.messages(number) if message["role"] == "tool"]
    found = RUN_ID.search(results[index])
    assert found is not None, results
    return found[1]


def told(r: Rig, number: int) -> str:
    """What the last user message of the n-th request says."""
    content = next(message for message in reversed(r.messages(number)) if message["role"] == "user")["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


async def ended(r: Rig, count: int = 1) -> list[ToolCallUpdate]:
    """The updates that told of the end of background runs, once there are so many."""

    def found() -> list[Any]:
        ends = [
            update
            for update in r.editor.updates[r.editor.session_id]
            if isinstance(update, ToolCallUpdate) and "background" in (update.meta or {})
        ]
        return ends if len(ends) >= count else []

    return await r.editor.wait_until(found)


def said(r: Rig) -> str:
    return str(r.editor.text())


# --- what is told ------------------------------------------------------------------------------------------------


@with_each_editor
async def test_the_end_between_turns_is_shown_at_once_and_told_to_the_model_once(tmp_path, editor):
    go = tmp_path / "go"
    command = f"echo begun; until [ -e {go} ]; do sleep 0.01; done; echo finished; exit 3"
    script = [asks(bash(command, background=True)), "started", "heard", "nothing new"]
    async with went(tmp_path, script, mode="auto", **editor) as r:
        call = r.editor.tool_call()
        call.assert_finished("completed")
        run_id = started(r, 2)
        assert call.raw_output == {"run_id": run_id, "background": True}
        assert result(r, 2) == f"[background] started run_id={run_id}"

        go.touch()
        (end,) = await ended(r)
        assert end.tool_call_id == call.id
        assert not end.status
        assert end.meta["background"] == {"run_id": run_id, "exit_code": 3}
        assert end.raw_output["exit_code"] == 3 and "begun\nfinished" in end.raw_output["stdout"]
        await r.editor.wait_until(lambda: "Background command finished" in said(r))
        assert "(exit code 3)" in said(r)
        r.editor.tool_call().assert_finished("completed")

        await r.editor.prompt("and?")
        assert told(r, 3).startswith(f"[background complete] run_id={run_id} exit_code=3\nbegun\nfinished")
        assert told(r, 3).rstrip().endswith("and?")
        await r.editor.prompt("more?")
        assert "background complete" not in told(r, 4)


async def test_the_terminal_stays_in_the_card_and_is_released_after_its_last_update(tmp_path):
    go = tmp_path / "go"
    script = [asks(bash(f"until [ -e {go} ]; do sleep 0.01; done", background=True)), "started"]
    async with went(tmp_path, script, mode="auto") as r:
        (shown,) = r.editor.tool_call().content
        assert isinstance(shown, Terminal)
        assert not r.editor.lines("from_agent", "terminal/release")
        go.touch()
        (end,) = await ended(r)
        assert end.content == [shown]
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/release"))
        methods = [message.get("method") for message in r.editor.lines("from_agent")]
        last_card = max(
            index
            for index, message in enumerate(r.editor.lines("from_agent"))
            if message.get("params", {}).get("update", {}).get("sessionUpdate") == "tool_call_update"
        )
        assert last_card < methods.index("terminal/release")


@pytest.mark.parametrize("meta", [False, True], ids=["content", "display terminal"])
async def test_without_terminals_the_output_comes_into_the_card_while_it_runs(tmp_path, meta):
    go = tmp_path / "go"
    command = f"echo begun; until [ -e {go} ]; do sleep 0.01; done; echo finished"
    script = [asks(bash(command, background=True)), "started"]
    async with went(tmp_path, script, mode="auto", terminal=False, terminal_output_meta=meta) as r:

        def live(update) -> bool:
            if not isinstance(update, ToolCallUpdate):
                return False
            data = (update.meta or {}).get("terminal_output", {}).get("data", "")
            return "begun" in (data if meta else str(update.content or ""))

        await r.editor.wait_for(live)
        assert r.editor.tool_call().status == "completed"
        go.touch()
        (end,) = await ended(r)
        if meta:
            assert end.meta["terminal_exit"] == {"terminal_id": end.tool_call_id, "exit_code": 0, "signal": None}
            assert end.content == [Terminal(terminal_id=end.tool_call_id)]
        else:
            assert r.editor.tool_call().text() == "begun\nfinished"


async def test_an_end_within_a_turn_is_shown_in_the_card_alone_and_told_at_the_next_turn(tmp_path):
    script = [asks(bash("echo quick", background=True)), Answer(text="still here", hang_before=True), "later"]
    async with rig(tmp_path, script, mode="auto") as r:
        turn = r.editor.begin("go")
        await r.model.wait_for_request(2)
        await ended(r)
        r.model.release()
        await turn.response()
        assert "Background command finished" not in said(r)
        await r.editor.prompt("and?")
        assert "exit_code=0\nquick" in told(r, 3)


@with_each_editor
async def test_what_bash_output_has_shown_to_its_end_is_not_told_again(tmp_path, editor):
    script = model(asks(bash("echo one; echo two", background=True)), output(wait="30s", tail=1), "seen", "later")
    async with went(tmp_path, script, mode="auto", **editor) as r:
        assert result(r, 3) == "[exit_code=0]\n[1 lines before]\ntwo"
        await ended(r)
        await r.editor.prompt("and?")
        assert "background complete" not in told(r, 4)


async def test_clear_forgets_what_ended_and_tells_what_still_runs_with_its_command(tmp_path):
    go = tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.01; done; echo done"
    script = model(asks(bash("echo old", background=True), bash(wait, background=True)), "started", "heard")
    async with went(tmp_path, script, mode="auto") as r:
        await ended(r)
        await r.editor.prompt("/clear")
        go.touch()
        await ended(r, 2)
        await r.editor.prompt("and?")
        assert "old" not in told(r, 3) and f"exit_code=0\n[command: {wait}]\ndone" in told(r, 3)


async def test_a_background_command_reads_the_shells_variables_and_leaves_none(tmp_path):
    script = model(
        asks(bash("cd sub; export X=kept")),
        asks(bash("echo $X $(basename $PWD) $ACP_CODER_SESSION_ID; cd ..; export X=lost", background=True)),
        output(wait=True), asks(bash("echo $X $(basename $PWD)", wait="10m")), "done",
    )  # fmt: skip
    more = {"config": "[tools.bash]\nturn_context = true\n", "files": {"sub/a": ""}}
    async with went(tmp_path, script, mode="auto", **more) as r:
        assert result(r, 4) == f"[exit_code=0]\nkept sub {r.editor.session_id}", "the turn's variables, too"
        assert result(r, 5) == "kept sub\n", "an ordinary call, as it ends within its wait"
        assert list(r.editor.tool_calls().values())[-1].raw_output["exit_code"] == 0


# --- waiting -----------------------------------------------------------------------------------------------------


@with_each_editor
async def test_a_command_that_outlives_its_wait_goes_on_in_the_background(tmp_path, editor):
    go = tmp_path / "go"
    command = f"echo begun; until [ -e {go} ]; do sleep 0.01; done; echo finished"
    async with went(tmp_path, [asks(bash(command, wait=0.5)), "waiting", "heard"], mode="auto", **editor) as r:
        run_id = started(r, 2)
        assert result(r, 2) == f"begun\n[background] still running after 0.5 s and continues: run_id={run_id}"
        assert r.editor.tool_call().raw_output == {"run_id": run_id, "background": True}
        r.editor.tool_call().assert_finished("completed")
        go.touch()
        (end,) = await ended(r)
        assert end.raw_output["stdout"].replace("\r", "") == "begun\nfinished\n"
        await r.editor.prompt("and?")
        assert "exit_code=0\nbegun\nfinished" in told(r, 3)


# --- the other tools ---------------------------------------------------------------------------------------------


async def test_the_tools_for_runs_are_there_from_the_start_for_the_servers_prompt_cache(tmp_path):
    unknown = asks(Call("bash_output", {"run_id": "gone"}))
    script = [asks(bash("true", background=True)), asks(Call("bash_list", {})), "done", "looks", unknown, "done"]
    async with went(tmp_path, script, mode="auto") as r:
        assert {"bash_output", "bash_kill", "bash_list"} <= r.tool_names(1)
        assert r.request(1)["tools"] == r.request(2)["tools"] == r.request(3)["tools"]
        assert result(r, 3).startswith(started(r, 2)) and result(r, 3).endswith("] true")
        await r.editor.client.set_session_mode(r.editor.session_id, "ask")
        await r.editor.prompt("look")
        assert "bash" not in r.tool_names(4)
        await r.editor.prompt("and the other")
        assert "no background command with the run_id 'gone'" in result(r, 6)
        assert "Runs end with their session" in result(r, 6) and started(r, 2) in result(r, 6)


@with_each_editor
async def test_bash_output_shows_what_was_printed_so_far(tmp_path, editor):
    ready = tmp_path / "ready"
    command = f"echo begun; echo x > {ready}; exec sleep 600"
    script = model(asks(bash(command, background=True)), LISTS_LATER, output(), "done")
    async with rig(tmp_path, script, mode="auto", **editor) as r:
        turn = r.editor.begin("go")
        await until_exists(ready)
        r.model.release()
        await turn.response()
        assert re.fullmatch(r"\[running for \d+\.\d s\]\nbegun", result(r, 4))


@with_each_editor
async def test_bash_kill_ends_the_command_and_its_children_without_asking(tmp_path, editor):
    pids = tmp_path / "pids"
    command = f"sleep 600 & echo $$ $! > {pids}; wait"
    script = model(asks(bash(command, background=True)), LISTS_LATER, kill, "killed", "later")
    async with rig(tmp_path, script, **editor) as r:
        turn = r.editor.begin("go")
        mine = [int(pid) for pid in (await until_exists(pids)).split()]
        r.model.release()
        await turn.response()
        assert "killed by `bash_kill`" in result(r, 4)
        await until(lambda: not any(map(alive, mine)))
        assert len(r.editor.permission_requests) == 1, "only `bash` itself is asked about"
        (end,) = await ended(r)
        assert end.meta["background"]["exit_code"] is None
        await r.editor.prompt("and?")
        assert "background complete" not in told(r, 5)


# --- limits and ends ---------------------------------------------------------------------------------------------


async def test_more_than_the_limit_do_not_run_at_once(tmp_path):
    runs = [bash("exec sleep 600", background=True) for _ in range(9)]
    async with went(tmp_path, model(asks(*runs), kill, asks(bash("true", background=True)), "done"), mode="auto") as r:
        results = [message["content"] for message in r.messages(2) if message["role"] == "tool"]
        ids = [match[1] for text in results[:8] if (match := RUN_ID.search(text))]
        assert len(ids) == 8
        assert "the limit of 8 background commands is reached" in results[8]
        assert all(run_id in results[8] for run_id in ids)
        assert "bash_kill" in results[8]
        assert "[background] started" in result(r, 4)


@with_each_editor
async def test_a_command_that_runs_too_long_is_killed_with_exit_code_124(tmp_path, editor):
    script = [asks(bash("echo begun; exec sleep 600", background=True)), "started", "heard"]
    async with went(tmp_path, script, mode="auto", config="[tools.bash]\nbackground_timeout = 0.5\n", **editor) as r:
        (end,) = await ended(r)
        assert end.meta["background"]["exit_code"] == 124
        assert end.raw_output["exit_code"] == 124
        assert "ran longer than 0.5 s" in r.editor.tool_call().text()
        await r.editor.prompt("and?")
        assert "exit_code=124 (killed: it ran longer than 0.5 s)\nbegun" in told(r, 3)


async def test_a_cancelled_turn_leaves_what_runs_in_the_background(tmp_path):
    go = tmp_path / "go"
    script = model(
        asks(bash(f"until [ -e {go} ]; do sleep 0.01; done; echo finished", background=True)),
        asks(bash("exec sleep 600")), "heard",
    )  # fmt: skip
    async with rig(tmp_path, script, mode="auto") as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: len(r.editor.lines("from_agent", "terminal/create")) == 2)
        await cancels(r, turn)
        go.touch()
        (end,) = await ended(r)
        assert end.raw_output["exit_code"] == 0
        await r.editor.prompt("and?")
        assert "exit_code=0\nfinished" in told(r, 3)


def shows_output(line: dict[str, Any]) -> bool:
    """Whether the line is an update of a command's live output."""
    update = line.get("params", {}).get("update", {})
    return update.get("sessionUpdate") == "tool_call_update" and "status" not in update and "begun" in repr(update)


@with_each_editor
@pytest.mark.parametrize("how", ["close", pytest.param("load", marks=on_stdio), "end"])
async def test_what_runs_in_the_background_ends_with_its_session(tmp_path, editor, how):
    pids = tmp_path / "pids"
    script = [asks(bash(f"echo begun; sleep 600 & echo $$ $! > {pids}; wait", background=True)), "started", "again"]
    async with went(tmp_path, script, mode="auto", **editor) as r:
        mine = [int(pid) for pid in (await until_exists(pids)).split()]
        session = r.editor.session_id
        if not editor.get("terminal", True):  # Else what it prints may come while the session is being loaded again.
            await r.editor.wait_until(lambda: any(shows_output(line) for line in r.editor.lines("from_agent")))
        if how == "close":
            await r.editor.client.close_session(session)
        if how != "end":
            await r.editor.load_session(session, r.project)
            call = r.editor.tool_call()
            call.assert_finished("completed")
            assert "begun" in call.text()
            await r.editor.prompt("and?")
            assert "background complete" not in told(r, 3)
    await until(lambda: not any(map(alive, mine)))


@with_each_editor
async def test_a_loaded_session_shows_how_the_command_ended(tmp_path, editor):
    async with went(tmp_path, [asks(bash("echo out; exit 3", background=True)), "started"], mode="auto", **editor) as r:
        await ended(r)
        await r.editor.load_session(r.editor.session_id, r.project)
        call = r.editor.tool_call()
        call.assert_finished("completed")
        assert "out" in call.text()
        assert call.raw_output["exit_code"] == 3


async def test_a_command_for_a_terminal_is_refused_before_anybody_is_asked(tmp_path):
    async with went(tmp_path, [asks(bash("vim a.txt")), "done"]) as r:
        assert result(r, 2).startswith("[tool_error] The command was not run: ")
        assert "suggestion: Change files with `edit` or `write`." in result(r, 2)
        assert r.editor.permission_requests == []


async def test_terminal_programs_may_be_allowed(tmp_path):
    config = "[tools.bash]\nrefuse_interactive = false\n"
    async with went(tmp_path, [asks(bash("python3")), "done"], config=config, mode="auto") as r:
        assert result(r, 2) == "[no output, exit code 0]"
