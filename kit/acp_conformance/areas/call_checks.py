"""Tool calls and permissions: TC and PERM."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.testing.fake_answers import Answer, Call
from acp_agent.testing.fake_editor import AnswersError, AnswersGarbage
from acp_conformance.trial import (
    DONE,
    REST,
    RESULT,
    SECONDS,
    Agent,
    NotHere,
    Trial,
    Wrong,
    cancelled_after,
    check,
    same_file,
)

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
FINAL = ("completed", "failed")


@check("TC-1")
async def calls_are_told(trial: Trial) -> None:
    async with trial.agent([trial.runs("echo kit"), DONE]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        first = agent.updates("tool_call")
        agent.expect(len(first) == 1, f"{len(first)} `tool_call`s were told for one call of the model")
        agent.expect(first[0].get("toolCallId") and first[0].get("title"), f"no id or title: {first[0]}")


@check("TC-2")
async def the_kind_is_a_known_one(trial: Trial) -> None:
    async with trial.agent([trial.runs("echo kit"), DONE]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        kind = agent.only_call().get("kind", "other")
        agent.expect(kind in KINDS, f"`kind` is {kind!r}")


@check("TC-3")
async def ids_are_unique_whatever_the_model_says(trial: Trial) -> None:
    """Also behind a load, as far as it replays calls. Servers of Chat Completions repeat ids, those of Gemini leave
    them out, the others are known not to."""
    call = trial.tool("shell", command="echo kit")
    unlike = iter(("kit_1", "kit_2", "kit_3"))

    def calls() -> Answer:
        given = {"chat": "same", "gemini": None}.get(trial.profile.api, next(unlike))
        return Answer(tool_calls=(Call(call.name, call.arguments, id=given),))

    async with trial.agent([calls(), DONE, calls(), DONE]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        await agent.stops("end_turn")
        ids = [update.get("toolCallId") for update in agent.updates("tool_call")]
        agent.expect(len(ids) == len(set(ids)) == 2, f"the ids of two calls are {ids}")
        if not agent.has("loadSession"):
            return
        session = agent.session
        await agent.quiet(REST)
    async with trial.agent([calls(), DONE]) as agent:
        agent.session = session
        load = agent.ask("session/load", {"sessionId": session, "cwd": str(trial.project), "mcpServers": []})
        if await agent.answered(load) is None:
            return  # LOAD-1
        replayed, after = agent.calls(), agent.seen
        await agent.stops("end_turn")
        new = [update.get("toolCallId") for update in agent.updates("tool_call", after=after)]
        agent.expect(not replayed.keys() & {*map(str, new)}, f"a new call has the id of a replayed one: {new}")


@check("TC-4")
async def the_status_goes_forward(trial: Trial) -> None:
    async with trial.agent([trial.runs("echo kit"), DONE]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        statuses = agent.only_call()["statuses"]
        order = [("pending", "in_progress", "completed", "failed").index(each) for each in statuses]
        agent.expect(statuses and statuses[-1] in FINAL, f"the call ended as {statuses}")
        agent.expect(order == sorted(order), f"the statuses were {statuses}")


@check("TC-5")
async def calls_that_cannot_be_done_fail_and_the_turn_goes_on(trial: Trial) -> None:
    trial.tool("shell", command="")
    async with trial.agent([Answer(tool_calls=(Call("kit_no_such_tool", {"a": 1}),)), DONE]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        told = len(agent.asked) > 1 and RESULT.search(agent.asked_of_model(1)) is not None
        agent.expect(told, "the model was not told that there is no such tool")
        open_ = [call for call in agent.calls().values() if (call["statuses"] or [""])[-1] != "failed"]
        agent.expect(not open_, f"a call of a tool that does not exist is {open_[:1]}")


@check("TC-6")
async def changes_of_files_are_diffs(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    script = [Answer(tool_calls=(trial.tool("write", path=str(file), text="green\n"),)), DONE]
    async with trial.agent(script) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        call = agent.only_call()
        agent.expect(call["statuses"][-1:] == ["completed"], f"the call ended as {call['statuses']}")
        diffs = [each for each in call.get("content") or [] if each.get("type") == "diff"]
        agent.expect(diffs, f"a new file is told without a diff: {call.get('content')}")
        agent.expect(Path(diffs[0]["path"]).is_absolute(), f"its path is {diffs[0]['path']!r}")
        agent.expect(diffs[0].get("newText") == "green\n", f"its new text is {diffs[0].get('newText')!r}")
        agent.expect(not diffs[0].get("oldText"), f"its old text is {diffs[0].get('oldText')!r}")


@check("TC-8")
async def locations_name_the_files(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    file.write_text("green\n")
    async with trial.agent([Answer(tool_calls=(trial.tool("read", path=str(file)),)), DONE]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        paths = [each.get("path") for each in agent.only_call().get("locations") or []]
        agent.expect(any(same_file(path, file) for path in paths), f"the locations are {paths}")


@check("TC-12")
async def commands_do_not_share_stdin_or_stdout(trial: Trial) -> None:
    async with trial.agent([trial.runs("read -t 2 line; echo kit"), DONE], terminal=False) as agent:
        await agent.new_session()
        before = agent.seen  # A banner is TR-1's.
        await agent.stops("end_turn", seconds=40)
        wrong = [line.message for line in agent.editor.transcript[before:] if not isinstance(line.message, dict)]
        agent.expect(not wrong, f"a command wrote to the agent's stdout: {wrong[:1]}")


async def _ran(trial: Trial, **editor: Any) -> tuple[Agent, bool]:
    """Runs a turn in which the model wants a command to be run; whether it was."""
    marker = trial.project / "kit-marker"
    async with trial.agent([trial.runs("touch kit-marker", asks=True), DONE], **editor) as agent:
        await agent.new_session()
        await agent.asks_first()
        await agent.prompt(seconds=40)
        if not agent.requests("session/request_permission"):
            raise NotHere("it runs commands without asking")
        return agent, marker.exists()


@check("PERM-2")
async def questions_have_options(trial: Trial) -> None:
    agent, _ = await _ran(trial)
    for asked in agent.requests("session/request_permission"):
        ids = [option.get("optionId") for option in asked["options"]]
        agent.expect(len(set(ids)) == len(ids) and ids, f"the options' ids are {ids}")
        kinds = {option.get("kind") for option in asked["options"]}
        known = {"allow_once", "allow_always", "reject_once", "reject_always"}
        agent.expect(kinds <= known, f"the options' kinds are {kinds}")
        agent.expect(all(option.get("name") for option in asked["options"]), "an option has no name")


@check("PERM-3")
async def what_is_asked_about_was_told_before(trial: Trial) -> None:
    agent, _ = await _ran(trial)
    asked = agent.requests("session/request_permission")[0]
    told = [line.message for line in agent.editor.transcript if line.direction == "from_agent"]
    ids = []
    for message in told:
        if isinstance(message, dict) and message.get("method") == "session/request_permission":
            break
        update = ((message.get("params") or {}) if isinstance(message, dict) else {}).get("update") or {}
        ids += [update["toolCallId"]] if update.get("sessionUpdate") == "tool_call" else []
    call = asked["toolCall"]
    agent.expect(call["toolCallId"] in ids or call.get("title"), f"nothing says what is asked about: {call}")


@check("PERM-4")
async def nothing_runs_before_the_answer(trial: Trial) -> None:
    """What comes behind the client's `cancelled` is no part of it: CAN-4."""
    marker, gone = trial.project / "kit-marker", anyio.Event()
    async with trial.agent([trial.runs("touch kit-marker", asks=True), DONE], otherwise=cancelled_after(gone)) as agent:
        await agent.new_session()
        await agent.asks_first()
        async with agent.turn() as turn:
            await agent.until(lambda: turn.over.is_set() or agent.requests("session/request_permission"), "a question")
            if turn.over.is_set():
                raise NotHere("it runs commands without asking")
            await agent.quiet()
            agent.expect(not marker.exists(), "the command ran before the question was answered")
            for call in agent.calls().values():
                statuses = call["statuses"]
                agent.expect(statuses in ([], ["pending"]), f"while the question waited the call was {statuses}")
            agent.editor.cancel()
            gone.set()


@check("PERM-5")
async def what_is_allowed_runs(trial: Trial) -> None:
    agent, ran = await _ran(trial, otherwise=allow_once)
    agent.expect(ran, "the command was allowed and did not run")


@check("PERM-6")
async def what_is_rejected_does_not_run(trial: Trial) -> None:
    agent, ran = await _ran(trial, otherwise=reject_once)
    agent.expect(not ran, "the command was rejected and ran")
    for call in agent.calls().values():
        agent.expect(call["statuses"][-1:] == ["failed"], f"the rejected call ended as {call['statuses']}")


@check("PERM-7")
async def cancelled_means_not_run(trial: Trial) -> None:
    """In the order of clients that do as the page says: they cancel the turn, and answer what is asked then."""
    marker, gone = trial.project / "kit-marker", anyio.Event()
    script = [trial.runs("touch kit-marker", asks=True), DONE]
    async with trial.agent(script, otherwise=cancelled_after(gone)) as agent:
        await agent.new_session()
        await agent.asks_first()
        async with agent.turn() as turn:
            await agent.until(lambda: turn.over.is_set() or agent.requests("session/request_permission"), "a question")
            agent.editor.cancel()
            gone.set()
        if not agent.requests("session/request_permission"):
            raise NotHere("it runs commands without asking")
        agent.expect(not marker.exists(), "the question was answered `cancelled` and the command ran")
        agent.expect(turn.reason == "cancelled", f"the turn ended with {turn.answer}")


ODD: tuple[Any, ...] = (
    AnswersError(),
    AnswersGarbage({}),
    AnswersGarbage(None),
    AnswersGarbage({"outcome": {"outcome": "selected", "optionId": "kit-no-such-option"}}),
    AnswersGarbage({"outcome": {"outcome": "yes"}}),
    AnswersGarbage({"outcome": "selected"}),
    AnswersGarbage({"outcome": {"outcome": "cancelled"}}),
)


@check("PERM-8")
async def nothing_else_is_taken_as_approval(trial: Trial) -> None:
    """That the turn ends is no part of it."""
    marker = trial.project / "kit-marker"
    async with trial.agent(trial.keeps_asking("touch kit-marker")) as agent:
        for odd in ODD:
            await agent.new_session()
            await agent.asks_first()
            agent.editor.misbehave["session/request_permission"] = odd
            before = len(agent.requests("session/request_permission"))
            with suppress(Wrong):
                await agent.prompt(seconds=SECONDS)
            if len(agent.requests("session/request_permission")) == before:
                raise NotHere("it runs commands without asking")
            agent.expect(not marker.exists(), f"the command ran after the question was answered with {odd}")
