"""What the agent asks of the client: FS, TERM, RPC-9, INIT-9."""

from __future__ import annotations

from itertools import product
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_agent.testing.fake_editor import AnswersError
from acp_conformance.trial import DONE, NotHere, Trial, check

SAYS = "printf 'kit-%s' says"
"""What it prints is not in it, so it tells that it ran."""
FILES = ("fs/read_text_file", "fs/write_text_file")


async def _does(trial: Trial, calls: Any, **editor: Any) -> Any:
    """A turn with one call of a tool; the agent, and the call."""
    async with trial.agent([Answer(tool_calls=(calls,)), DONE], **editor) as agent:
        await agent.new_session()
        await agent.stops("end_turn", seconds=40)
        calls_ = list(agent.calls().values())
        agent.expect(len(calls_) == 1, f"{len(calls_)} tool calls were told, not one")
        return agent, calls_[0]


@check("FS-1")
async def files_of_the_client_are_used_only_if_offered(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    for reads, writes in product((False, True), repeat=2):
        file.write_text("green\n")
        options = {"fs_read": reads, "fs_write": writes}
        agent, call = await _does(trial, trial.tool("read", path=str(file)), **options)
        agent.expect(reads or not agent.requests(FILES[0]), "`fs/read_text_file` without `fs.readTextFile`")
        agent.expect(call["statuses"][-1:] == ["completed"], f"with {options} reading ended as {call['statuses']}")
        agent, call = await _does(trial, trial.tool("write", path=str(file) + "2", text="x\n"), **options)
        agent.expect(writes or not agent.requests(FILES[1]), "`fs/write_text_file` without `fs.writeTextFile`")


@check("FS-2")
async def unsaved_buffers_are_read(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    file.write_text("on disk\n")
    agent, _ = await _does(trial, trial.tool("read", path=str(file)), buffers={file: "in the kit's buffer\n"})
    agent.expect("in the kit's buffer" in agent.asked_of_model(), "the unsaved text of a buffer was not read")


@check("FS-3")
async def writes_go_through_the_client(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    agent, call = await _does(trial, trial.tool("write", path=str(file), text="green\n"))
    written = [each for each in agent.requests(FILES[1]) if each.get("content") == "green\n"]
    agent.expect(call["statuses"][-1:] == ["completed"], f"writing ended as {call['statuses']}")
    agent.expect(written, "a file was written past a client that offers `fs.writeTextFile`")


@check("FS-4")
async def an_error_of_the_client_fails_the_call_alone(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    write = trial.tool("write", path=str(file), text="green\n")
    agent, call = await _does(trial, write, misbehave={FILES[1]: AnswersError(-32603, "kit: the disk is full")})
    if not agent.requests(FILES[1]):
        raise NotHere("it does not write through the client")
    agent.expect(
        call["statuses"][-1:] == ["failed"], f"the client could not write and the call ended as {call['statuses']}"
    )


@check("RPC-9")
async def no_answer_of_the_client_breaks_more_than_its_operation(trial: Trial) -> None:
    async with trial.agent([trial.runs("echo kit"), DONE, Answer(text="Hello.")]) as agent:
        await agent.new_session()
        for method in ("terminal/create", "session/request_permission"):
            agent.editor.misbehave[method] = AnswersError(-32603, "kit: out of order")
        await agent.answered(agent.prompt(seconds=40))
        agent.editor.misbehave.clear()
        agent.say([Answer(text="Hello.")])
        await agent.stops("end_turn", "and now?")


@check("INIT-9")
async def every_mix_of_capabilities_works(trial: Trial) -> None:
    for reads, writes, terminal in product((False, True), repeat=3):
        options = {"fs_read": reads, "fs_write": writes, "terminal": terminal}
        async with trial.agent([trial.runs(SAYS), DONE], **options) as agent:
            await agent.new_session()
            await agent.stops("end_turn", seconds=40)
            agent.expect("kit-says" in agent.asked_of_model(), f"with {options} a command had no output")


@check("TERM-1")
async def terminals_are_used_only_if_offered(trial: Trial) -> None:
    agent, call = await _does(trial, trial.tool("shell", command="echo kit"), terminal=False)
    lines = [line for line in agent.editor.lines("from_agent") if isinstance(line, dict)]
    used = [line["method"] for line in lines if str(line.get("method")).startswith("terminal/")]
    agent.expect(not used, f"{used[:1]} without `terminal`")
    agent.expect(call["statuses"][-1:] == ["completed"], f"without terminals a command ended as {call['statuses']}")


async def _in_terminal(trial: Trial, command: str = "echo kit", **editor: Any) -> tuple[Any, dict[str, Any]]:
    agent, call = await _does(trial, trial.tool("shell", command=command), **editor)
    if not agent.requests("terminal/create"):
        raise NotHere("it does not use the client's terminals")
    return agent, call


@check("TERM-2")
async def terminals_are_made_with_all_they_need(trial: Trial) -> None:
    agent, _ = await _in_terminal(trial, "echo where")
    made = agent.requests("terminal/create")[0]
    agent.expect(made.get("sessionId") == agent.session, f"`sessionId` is {made.get('sessionId')!r}")
    agent.expect(str(made.get("cwd", "/")).startswith("/"), f"`cwd` is {made.get('cwd')!r}")
    agent.expect(isinstance(made.get("command"), str) and made["command"], f"`command` is {made.get('command')!r}")


@check("TERM-3")
async def output_and_exit_reach_the_model(trial: Trial) -> None:
    agent, _ = await _in_terminal(trial, f"{SAYS}; exit $((3 + 4))")
    sent = agent.asked_of_model()
    agent.expect("kit-says" in sent, "the terminal's output did not reach the model")
    agent.expect("7" in sent, "the exit status did not reach the model")


@check("TERM-4")
async def terminals_are_embedded_in_the_call(trial: Trial) -> None:
    agent, _ = await _in_terminal(trial)
    shown = [
        each
        for update in agent.updates()
        if update.get("sessionUpdate") in ("tool_call", "tool_call_update")
        for each in update.get("content") or []
        if each.get("type") == "terminal"
    ]
    agent.expect(shown, "no tool call shows the terminal")


@check("TERM-5")
async def terminals_are_released_once(trial: Trial) -> None:
    agent, _ = await _in_terminal(trial)
    await_ids = [each["terminalId"] for each in agent.requests("terminal/release")]
    agent.expect(len(await_ids) == len(agent.requests("terminal/create")), f"released were {await_ids}")
    agent.expect(len(set(await_ids)) == len(await_ids), f"a terminal was released twice: {await_ids}")


@check("TERM-9")
async def a_terminal_that_cannot_be_made_fails_the_call_or_is_done_without(trial: Trial) -> None:
    misbehave = {"terminal/create": AnswersError(-32603, "kit: no more terminals")}
    agent, call = await _in_terminal(trial, misbehave=misbehave)
    agent.expect(call["statuses"][-1:] in (["failed"], ["completed"]), f"the call ended as {call['statuses']}")
