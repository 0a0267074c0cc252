"""`session/new`, `resume`, `list`, `close`, `delete`: V2-SESS, V2-MCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.areas.session_checks import MOMENT
from acp_conformance.trial import INVALID_PARAMS, NOT_FOUND, REST, UNKNOWN, Trial, check
from acp_conformance.v2.v2_client import AgentV2, at_work, in_session, speaking, update_of

START = {"type": "start"}
SAID = ("first", "The pear ", "second", "The plum ")


@check("V2-SESS-1")
async def servers_may_be_left_out(trial: Trial) -> None:
    async with in_session(trial) as agent:
        where = {"cwd": str(trial.project)}
        lists: tuple[dict[str, Any], ...] = ({}, {"mcpServers": []})
        made = [await agent.ask("session/new", {**where, **more}) for more in lists]
        ids = [each.get("sessionId") for each in made]
        agent.expect(all(ids) and ids[0] != ids[1], f"the ids of two sessions are {ids}")


def _lists(agent: AgentV2, opened: dict[str, Any]) -> None:
    agent.expect("modes" not in opened, "`modes` does not exist in v2")
    for name in ("configOptions", "availableCommands"):
        agent.expect(isinstance(opened.get(name, []), list), f"`{name}` is {opened.get(name)!r}")


@check("V2-SESS-2")
async def a_new_session_has_lists_and_no_modes(trial: Trial) -> None:
    async with speaking(trial) as agent:
        _lists(agent, await agent.new_session())


@asynccontextmanager
async def _again(trial: Trial) -> AsyncIterator[tuple[AgentV2, list[dict[str, Any]]]]:
    """A new process for a session with two turns, and the updates that told of those."""
    async with in_session(trial, [Answer(text=SAID[1]), Answer(text=SAID[3])]) as agent:
        await agent.stops("end_turn", SAID[0])
        await agent.stops("end_turn", SAID[2], times=2)
        told = agent.updates()
        session = agent.session
        await agent.quiet(REST)
    async with speaking(trial) as agent:
        agent.session = session
        yield agent, told


async def _resumed(agent: AgentV2, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer, and the updates of the session before it."""
    params = {"sessionId": agent.session, "cwd": str(agent.trial.project), **more}
    answered: dict[str, Any] = await agent.ask("session/resume", params)
    lines = [line.message for line in agent.transcript[: agent.answer_at("session/resume")]]
    return answered, [found for each in lines if isinstance(each, dict) and (found := update_of(each))]


def _spoken(updates: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Who, the message's id, and text."""
    found = []
    for each in updates:
        who, _, kind = str(each.get("sessionUpdate")).partition("_")
        if who in ("user", "agent") and kind in ("message", "message_chunk"):
            content = each.get("content") or []
            for block in content if isinstance(content, list) else [content]:
                found.append((who, str(each.get("messageId")), str(block.get("text", ""))))
    return found


@check("V2-SESS-5")
async def without_a_cursor_nothing_is_replayed(trial: Trial) -> None:
    async with _again(trial) as (agent, _):
        wants: tuple[dict[str, Any], ...] = ({}, {"replayFrom": None})
        for more in wants:
            _, updates = await _resumed(agent, **more)
            await agent.quiet()
            spoken = _spoken(updates)
            agent.expect(not spoken, f"a message was replayed that nobody asked for: {spoken[:1]}")


@check("V2-SESS-6")
async def all_is_replayed_in_order_before_the_answer(trial: Trial) -> None:
    async with _again(trial) as (agent, _):
        _, updates = await _resumed(agent, replayFrom=START)
        text = "".join(f"[{who}]{words}" for who, _, words in _spoken(updates))
        places = [text.find(words) for words in SAID]
        agent.expect(-1 not in places, f"not all that was said is replayed before the answer: {text}")
        agent.expect(places == sorted(places), f"the replay is not in the order in which it was said: {text}")


@check("V2-SESS-7")
async def other_cursors_are_refused(trial: Trial) -> None:
    async with _again(trial) as (agent, _):
        params = {"sessionId": agent.session, "cwd": str(trial.project)}
        for cursor in ({"type": "kit"}, {"type": "_kit"}, {}, "start"):
            why = f"from {cursor!r}"
            await agent.refused("session/resume", {**params, "replayFrom": cursor}, INVALID_PARAMS, why=why)
        agent.expect(not _spoken(agent.updates()), "a refused resume replayed something")


@check("V2-SESS-8")
async def the_state_comes_before_the_answer(trial: Trial) -> None:
    async with _again(trial) as (agent, _):
        for more in ({"replayFrom": START}, {}):
            before = agent.seen
            await _resumed(agent, **more)
            lines = agent.transcript[before : agent.answer_at("session/resume")]
            updates = [update_of(line.message) for line in lines if line.direction == "from_agent"]
            kinds = [each.get("sessionUpdate") for each in updates]
            agent.expect("state_update" in kinds, f"resumed with {more}, no state came before the answer")
            behind = _spoken(updates[kinds.index("state_update") :])
            agent.expect(not behind, f"the state came before this was replayed: {behind[:1]}")


@check("V2-SESS-9")
async def replayed_messages_keep_their_ids(trial: Trial) -> None:
    async with _again(trial) as (agent, told):
        _, updates = await _resumed(agent, replayFrom=START)
        before, after = ({(who, id_) for who, id_, _ in _spoken(each)} for each in (told, updates))
        agent.expect(before <= after, f"these ids are not in the replay: {sorted(before - after)}")


@check("V2-SESS-12")
async def a_resume_is_answered_like_a_new_session(trial: Trial) -> None:
    async with _again(trial) as (agent, _):
        answered, _ = await _resumed(agent)
        _lists(agent, answered)


@check("V2-SESS-13")
async def the_list_is_of_one_folder(trial: Trial) -> None:
    inner = trial.project / "inner"
    inner.mkdir()
    async with speaking(trial, [Answer(text="one"), Answer(text="two")]) as agent:
        ids = []
        for folder in (trial.project, inner):
            await agent.new_session(cwd=str(folder))
            await agent.stops("end_turn")
            ids.append(agent.session)
        await agent.quiet(REST)
        listed = (await agent.ask("session/list", {"cwd": str(trial.project)}))["sessions"]
        found = [each.get("sessionId") for each in listed]
        agent.expect(ids[0] in found, "a session is not listed for its folder")
        agent.expect(ids[1] not in found, "a session of a folder below is listed, too")
        for each in listed:
            at = each.get("updatedAt")
            agent.expect(at is None or MOMENT.fullmatch(str(at)), f"`updatedAt` is {at!r}")


@check("V2-SESS-14")
async def nothing_comes_behind_a_close(trial: Trial) -> None:
    async with at_work(trial) as agent:
        await agent.ask("session/close", {"sessionId": agent.session})
        after = agent.answer_at("session/close")
        agent.model.release()
        await agent.quiet()
        late = agent.updates(after=after)
        agent.expect(not late, f"came behind the answer of `session/close`: {late[:1]}")


@check("V2-SESS-15")
async def a_close_ends_the_work_first(trial: Trial) -> None:
    async with at_work(trial) as agent:
        await agent.ask("session/close", {"sessionId": agent.session})
        ends = [each for each in agent.updates("state_update") if each.get("stopReason") == "cancelled"]
        agent.expect(ends, "no `idle` with `cancelled` came")
        agent.expect(agent.end_at() < agent.answer_at("session/close"), "it came behind the answer")


@check("V2-SESS-16")
async def a_close_cancels_prompts_that_wait(trial: Trial) -> None:
    async with at_work(trial) as agent:
        begun = await agent.held()
        await agent.ask("session/close", {"sessionId": agent.session})
        await agent.withdrawn(begun, "a prompt that waited for a session that was closed")


@check("V2-SESS-17")
async def closing_what_is_not_open_succeeds(trial: Trial) -> None:
    async with in_session(trial) as agent:
        for session in (UNKNOWN, agent.session, agent.session):
            await agent.ask("session/close", {"sessionId": session})


@check("V2-SESS-18")
async def an_unknown_session_is_named(trial: Trial) -> None:
    async with in_session(trial) as agent:
        await agent.ask("session/close", {"sessionId": agent.session})
        where = {"cwd": str(trial.project)}
        for session in (UNKNOWN, agent.session):
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "hello?"}]}
            asked = [("session/prompt", prompt)]
            if session == UNKNOWN:
                asked.append(("session/resume", {"sessionId": session, **where}))
            for method, params in asked:
                error = await agent.refused(method, params, NOT_FOUND, why="for a session that is not open")
                named = isinstance(error.data, dict) and error.data.get("sessionId") == session
                agent.expect(named, f"the data of the error to `{method}` is {error.data!r}")


@check("V2-SESS-19")
async def what_is_deleted_is_not_listed(trial: Trial) -> None:
    async with speaking(trial, [Answer(text="one")]) as agent:
        agent.needs("delete")
        await agent.new_session()
        await agent.stops("end_turn")
        await agent.quiet(REST)
        await agent.ask("session/delete", {"sessionId": agent.session})
        listed = (await agent.ask("session/list", {}))["sessions"]
        agent.expect(agent.session not in [each.get("sessionId") for each in listed], "it is still listed")


@check("V2-MCP-1")
async def servers_have_known_types(trial: Trial) -> None:
    async with in_session(trial) as agent:
        where = {"cwd": str(trial.project)}
        wrong: tuple[dict[str, Any], ...] = (
            {"type": "sse", "name": "kit", "url": "http://127.0.0.1:9/sse"},
            {"type": "kit", "name": "kit", "url": "http://127.0.0.1:9"},
        )
        for each in wrong:
            params = {**where, "mcpServers": [each]}
            await agent.refused("session/new", params, INVALID_PARAMS, why=f"with a server of type {each.get('type')}")
        if agent.has("mcp", "stdio"):
            server = {"type": "stdio", "name": "kit", "command": "/bin/true"}
            await agent.ask("session/new", {**where, "mcpServers": [server]})
