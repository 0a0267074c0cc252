"""`session/new`, `load`, `resume`, `list`, `close`, `delete`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import (
    DONE,
    INVALID_PARAMS,
    NOT_FOUND,
    REST,
    UNKNOWN,
    Agent,
    NotHere,
    Trial,
    Wrong,
    check,
    same_file,
)

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


@check("NEW-1", "ACP-SESSION-001")
async def a_new_session_has_an_id(trial: Trial) -> None:
    folder = trial.project / "first"
    folder.mkdir()
    async with trial.agent() as agent:
        made = (await agent.new_session(cwd=str(folder))).get("sessionId")
        agent.expect(isinstance(made, str) and made, f"`sessionId` is {made!r}")


@check("NEW-2")
async def ids_are_unique(trial: Trial) -> None:
    made: list[str] = []
    for _ in range(2):
        async with trial.agent() as agent:
            for _ in range(3):
                made.append((await agent.new_session())["sessionId"])
    agent.expect(len(set(made)) == len(made), f"an id was given twice: {sorted(made)}")


@check("NEW-3")
async def a_relative_cwd_is_refused(trial: Trial) -> None:
    """With any code: the page demands an absolute path, and names no code for another one. RPC-5 looks at the code."""
    async with trial.agent() as agent:
        for cwd in ("project", "./project", ""):
            await agent.refused("session/new", {"cwd": cwd, "mcpServers": []}, why=f"with the cwd {cwd!r}")


@check("NEW-5")
async def cwd_is_where_commands_run(trial: Trial) -> None:
    other = trial.project.parent / "other"
    other.mkdir()
    async with trial.agent([trial.runs("pwd >here"), DONE]) as agent:
        await agent.new_session(cwd=str(other))
        await agent.stops("end_turn")
        here = other / "here"
        agent.expect(here.exists(), "a command did not run in the session's cwd")
        agent.expect(same_file(here.read_text().strip(), other), f"`pwd` was {here.read_text()!r}")


@check("NEW-9")
async def sessions_are_apart(trial: Trial) -> None:
    async with trial.agent([Answer(text="one"), Answer(text="two")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn", "the word is plum")
        await agent.new_session()
        await agent.stops("end_turn", "hello")
        agent.expect("plum" not in agent.asked_of_model(), "what was said in one session was sent with another")


async def _told(trial: Trial, *capability: str, words: str = "what about the pear?") -> str:
    """A session with a turn, of a process that has ended."""
    async with trial.agent([Answer(text="The pear is ripe.")]) as agent:
        agent.needs(*(capability or ("loadSession",)))
        await agent.new_session()
        await agent.stops("end_turn", words)
        await agent.quiet(REST)
        return agent.session


def _named(trial: Trial, session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(trial.project), "mcpServers": []}


async def _loaded(agent: Agent, session: str) -> dict[str, Any]:
    params = _named(agent.trial, session)
    agent.session = session
    answered: dict[str, Any] = await agent.ask("session/load", params)
    return answered


@check("LOAD-1")
async def load_works_if_it_is_offered(trial: Trial) -> None:
    """What is not offered no client may ask for, so an agent may answer as it likes."""
    async with trial.agent() as agent:
        agent.needs("loadSession")
    session = await _told(trial, words="and the plum?")
    async with trial.agent() as agent:
        await _loaded(agent, session)


@check("LOAD-2")
async def the_whole_conversation_is_replayed_in_order(trial: Trial) -> None:
    script = [Answer(text="The pear "), Answer(text="The plum ")]
    async with trial.agent(script) as agent:
        agent.needs("loadSession")
        await agent.new_session()
        await agent.stops("end_turn", "first")
        await agent.stops("end_turn", "second")
        session = agent.session
        await agent.quiet(REST)
    async with trial.agent() as agent:
        await _loaded(agent, session)
        await agent.quiet(1.0)  # What comes so late breaks LOAD-3 alone.
        said = []
        for update in agent.updates():
            if update["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk"):
                said.append((update["sessionUpdate"][0], str((update.get("content") or {}).get("text", ""))))
        text = "".join(f"[{who}]{words}" for who, words in said)
        order = [text.find(word) for word in ("first", "The pear", "second", "The plum")]
        agent.expect(-1 not in order, f"not all that was said is replayed: {text}")
        agent.expect(order == sorted(order), f"the replay is not in the order in which it was said: {text}")


@check("LOAD-3")
async def nothing_of_the_replay_comes_behind_the_answer(trial: Trial) -> None:
    session = await _told(trial)
    async with trial.agent() as agent:
        answered = await _loaded(agent, session)
        agent.expect(isinstance(answered, dict) or answered is None, f"it was answered with {answered!r}")
        after = agent.seen
        await agent.quiet(1.0)
        late = [each for each in agent.updates(after=after) if each["sessionUpdate"].endswith("message_chunk")]
        agent.expect(not late, f"came behind the answer of `session/load`: {late[:1]}")


@check("LOAD-5")
async def the_next_prompt_has_the_earlier_context(trial: Trial) -> None:
    session = await _told(trial)
    async with trial.agent([Answer(text="Yes.")]) as agent:
        await _loaded(agent, session)
        await agent.stops("end_turn", "sure?")
        sent = agent.asked_of_model()
        agent.expect(
            "The pear is ripe." in sent and "what about the pear?" in sent,
            "the model was not sent what was said before",
        )


@check("LOAD-7")
async def an_unknown_session_is_not_loaded(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("loadSession")
        for session in (UNKNOWN, "../../etc/passwd", ""):
            params = _named(trial, session)
            await agent.refused("session/load", params, NOT_FOUND, INVALID_PARAMS, why=f"of {session!r}")


@check("LOAD-8")
async def the_cwd_of_a_load_is_checked(trial: Trial) -> None:
    """With any code, like that of `session/new`."""
    session = await _told(trial)
    async with trial.agent() as agent:
        await agent.refused("session/load", {"sessionId": session, "cwd": "project", "mcpServers": []})


@check("RES-1")
async def resume_replays_nothing(trial: Trial) -> None:
    session = await _told(trial, "sessionCapabilities", "resume")
    async with trial.agent() as agent:
        agent.session = session
        await agent.ask("session/resume", _named(trial, session))
        await agent.quiet()
        agent.expect("pear" not in agent.text(), "`session/resume` replayed the conversation")


@check("RES-2")
async def a_resumed_session_has_its_context(trial: Trial) -> None:
    session = await _told(trial, "sessionCapabilities", "resume")
    async with trial.agent([Answer(text="Yes.")]) as agent:
        agent.session = session
        await agent.ask("session/resume", _named(trial, session))
        await agent.stops("end_turn", "sure?")
        agent.expect("The pear is ripe." in agent.asked_of_model(), "the model was not sent what was said before")


@check("RES-3")
async def an_unknown_session_is_not_resumed(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "resume")
        await agent.refused("session/resume", _named(trial, UNKNOWN))


async def _listed(agent: Agent, **params: Any) -> list[dict[str, Any]]:
    """All pages."""
    found: list[dict[str, Any]] = []
    for _ in range(1000):
        answered = await agent.ask("session/list", params)
        sessions = answered.get("sessions")
        agent.expect(isinstance(sessions, list), f"`session/list` was answered with {answered}")
        found += sessions
        if not (cursor := answered.get("nextCursor")):
            return found
        params = {**params, "cursor": cursor}
    raise Wrong("`nextCursor` never ends")


async def _listed_in_time(agent: Agent, **params: Any) -> list[dict[str, Any]]:
    """All pages, with the agent's session among them if it comes soon: it may be written down behind the answer."""
    with anyio.move_on_after(REST):
        while agent.session not in [each.get("sessionId") for each in await _listed(agent, **params)]:
            await agent.quiet()
    return await _listed(agent, **params)


@check("LIST-1", "ACP-LIST-001")
async def sessions_are_listed(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "list")
        await _listed(agent)


@check("LIST-2")
async def entries_have_an_id_and_a_folder(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")]) as agent:
        agent.needs("sessionCapabilities", "list")
        await agent.new_session()
        await agent.stops("end_turn")
        listed = await _listed_in_time(agent)
        agent.expect(
            agent.session in [each.get("sessionId") for each in listed], f"the session is not listed: {listed}"
        )
        for each in listed:
            agent.expect(Path(each.get("cwd", "")).is_absolute(), f"`cwd` is {each.get('cwd')!r}")
            at = each.get("updatedAt")
            agent.expect(at is None or MOMENT.fullmatch(str(at)), f"`updatedAt` is not ISO 8601: {at!r}")


@check("LIST-3")
async def cwd_filters_the_list(trial: Trial) -> None:
    other = trial.project.parent / "other"
    other.mkdir()
    async with trial.agent([Answer(text="ok")] * 2) as agent:
        agent.needs("sessionCapabilities", "list")
        for folder in (trial.project, other):
            await agent.new_session(cwd=str(folder))
            await agent.stops("end_turn")
        listed = await _listed_in_time(agent, cwd=str(other))
        ids = [each.get("sessionId") for each in listed]
        agent.expect(ids == [agent.session], f"the list of {other} has {ids}, not only {agent.session}")


@check("LIST-4", "ACP-LIST-002")
async def no_match_is_an_empty_list(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "list")
        listed = await _listed(agent, cwd=str(trial.project.parent / "nobody"))
        agent.expect(listed == [], f"a folder without sessions has {listed}")


@check("LIST-6")
async def a_wrong_cursor_is_an_error(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "list")
        await agent.refused("session/list", {"cursor": "kit: not a cursor"})


@check("LIST-7")
async def sessions_of_earlier_processes_are_listed(trial: Trial) -> None:
    session = await _told(trial)
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "list")
        for _ in range(2):
            ids = [each.get("sessionId") for each in await _listed(agent)]
            agent.expect(
                ids.count(session) == 1, f"the session of an earlier process is {ids.count(session)} times in the list"
            )


@check("CLOSE-1", "ACP-CLOSE-002")
async def close_cancels_the_turn(trial: Trial) -> None:
    async with trial.agent([Answer(text="never", hang_before=True)]) as agent:
        agent.needs("sessionCapabilities", "close")
        await agent.new_session()
        async with agent.turn() as turn:
            await agent.until(lambda: agent.asked, "a request to the model")
            await agent.ask("session/close", {"sessionId": agent.session})
        agent.expect(turn.reason == "cancelled", f"the turn of a closed session ended with {turn.answer}")


@check("CLOSE-2")
async def a_closed_session_takes_no_requests(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")]) as agent:
        agent.needs("sessionCapabilities", "close")
        await agent.new_session()
        await agent.ask("session/close", {"sessionId": agent.session})
        blocks = [{"type": "text", "text": "hello?"}]
        await agent.refused("session/prompt", {"sessionId": agent.session, "prompt": blocks}, why="of a closed session")


@check("CLOSE-4")
async def a_closed_session_stays_in_history(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")]) as agent:
        agent.needs("sessionCapabilities", "close")
        agent.needs("sessionCapabilities", "list")
        await agent.new_session()
        await agent.stops("end_turn")
        await agent.ask("session/close", {"sessionId": agent.session})
        ids = [each.get("sessionId") for each in await _listed_in_time(agent)]
        agent.expect(agent.session in ids, "the closed session is not listed any more")


@check("DEL-1", "ACP-DELETE-001")
async def a_session_is_deleted(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "delete")
        await agent.new_session()
        answered = await agent.ask("session/delete", {"sessionId": agent.session})
        agent.expect(isinstance(answered, dict), f"`session/delete` was answered with {answered!r}")


@check("DEL-2")
async def a_deleted_session_is_not_listed(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")]) as agent:
        agent.needs("sessionCapabilities", "delete")
        agent.needs("sessionCapabilities", "list")
        await agent.new_session()
        await agent.stops("end_turn")
        await agent.ask("session/delete", {"sessionId": agent.session})
        session = agent.session
        listed = [each.get("sessionId") for each in await _listed(agent)]
        agent.expect(session not in listed, "it is still listed")
    async with trial.agent() as agent:
        agent.expect(
            session not in [each.get("sessionId") for each in await _listed(agent)], "the next process lists it"
        )


@check("DEL-3", "ACP-DELETE-002")
async def what_is_not_there_is_deleted_silently(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.needs("sessionCapabilities", "delete")
        await agent.ask("session/delete", {"sessionId": UNKNOWN})


@check("NEW-7")
async def servers_of_other_kinds_do_no_harm(trial: Trial) -> None:
    async with trial.agent() as agent:
        server = {"type": "http", "name": "kit", "url": "http://127.0.0.1:9/mcp", "headers": []}
        params = {"cwd": str(trial.project), "mcpServers": [server]}
        if agent.has("mcpCapabilities", "http"):
            await agent.ask("session/new", params, seconds=3 * agent.patience())
            return
        raise NotHere("`mcpCapabilities.http` is not offered")


PROMPTED = "the kit's word is tangerine"


def _prompted(mode: str | None = "append", *blocks: dict[str, Any]) -> dict[str, Any]:
    """Params with a system prompt."""
    content = [*blocks] or [{"type": "text", "text": PROMPTED}]
    return {"systemPrompt": {"content": content, **({} if mode is None else {"mode": mode})}}


def _takes_prompts(agent: Agent) -> None:
    agent.needs("sessionCapabilities", "systemPrompt")


async def _unopened(agent: Agent, field: dict[str, Any], why: str) -> None:
    """No session is made with that, nor loaded, if one can be. With any code: the specification names none."""
    params = {"cwd": str(agent.trial.project), "mcpServers": [], **field}
    await agent.refused("session/new", params, why=why)
    if agent.has("loadSession") and agent.session:
        await agent.refused("session/load", {**params, "sessionId": agent.session}, why=why)


@check("SYS-1")
async def a_system_prompt_is_taken_if_it_is_offered(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")]) as agent:
        _takes_prompts(agent)
        offered = agent.offers["sessionCapabilities"]["systemPrompt"]
        agent.expect(isinstance(offered, dict), f"`systemPrompt` is {offered!r}")
        await agent.new_session(**_prompted())
        await agent.stops("end_turn")
        agent.expect(PROMPTED in agent.asked_of_model(), "the model was not told it")


@check("SYS-8")
async def an_unknown_mode_of_a_system_prompt_is_refused(trial: Trial) -> None:
    async with trial.agent() as agent:
        _takes_prompts(agent)
        modes: list[str | None] = [None, "kit-no-such-mode", "_kit"]
        if not agent.has("sessionCapabilities", "systemPrompt", "mode", "override"):
            modes.append("override")
        for mode in modes:
            await _unopened(agent, _prompted(mode), f"with the mode {mode!r}")


@check("SYS-9")
async def other_blocks_in_a_system_prompt_are_refused(trial: Trial) -> None:
    async with trial.agent() as agent:
        _takes_prompts(agent)
        for block in (
            {"type": "resource_link", "name": "x", "uri": "file:///x"}, {"type": "kit-no-such-block", "text": "x"},
        ):  # fmt: skip
            await _unopened(agent, _prompted("append", {"type": "text", "text": "x"}, block), f"with `{block['type']}`")


@check("SYS-11")
async def nothing_is_left_by_a_system_prompt_that_was_refused(trial: Trial) -> None:
    """A session that is open goes on as it was."""
    async with trial.agent([Answer(text="ok"), Answer(text="ok")]) as agent:
        _takes_prompts(agent)
        await agent.new_session(**_prompted())
        await agent.stops("end_turn")
        listed = await _listed_in_time(agent) if agent.has("sessionCapabilities", "list") else []
        await _unopened(agent, _prompted("kit-no-such-mode"), "with an unknown mode")
        seen = agent.seen
        await agent.quiet()
        strange = [line.message for line in agent.transcript[seen:] if "session/update" in str(line.message)]
        agent.expect(not strange, f"an update came for no session: {strange}")
        if agent.has("sessionCapabilities", "list"):
            ids = {each.get("sessionId") for each in await _listed(agent)}
            agent.expect(ids == {each.get("sessionId") for each in listed}, "a session is listed that was refused")
        await agent.stops("end_turn")
        agent.expect(PROMPTED in agent.asked_of_model(), "the open session has lost its own")
