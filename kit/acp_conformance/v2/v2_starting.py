"""`initialize`, capabilities, authentication, framing: V2-INIT, V2-AUTH, V2-RPC, V2-ERR, V2-ENUM."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NotHere,
    Trial,
    Wrong,
    check,
)
from acp_conformance.v2.v2_client import INFO, at_work, in_session, speaking

UNSUPPORTED = -32022
GONE = {
    "V2-SESS-4": ("session/load",),
    "V2-CFG-4": ("session/set_mode",),
    "V2-TERM-8": ("terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"),
}
"""Methods of v1, and of clients, by the requirement that takes them away."""
V1_MARKERS = ("loadSession", "promptCapabilities", "mcpCapabilities", "sessionCapabilities")


@check("V2-INIT-2")
async def the_highest_version_at_or_below_is_answered(trial: Trial) -> None:
    for asked, wanted in ((2, (2,)), (99, range(2, 100)), (1, (1,))):
        async with speaking(trial, initialize=False) as agent:
            try:
                version = (await agent.initialize(asked)).get("protocolVersion")
            except Wrong as error:
                agent.expect(asked == 1 and error.code == UNSUPPORTED, f"version {asked}: {error}")
                continue
            agent.expect(version in wanted, f"version {asked} was answered with {version!r}")


@check("V2-INIT-3")
async def no_version_below_is_an_error(trial: Trial) -> None:
    async with speaking(trial, initialize=False) as agent:
        params = {"protocolVersion": 0, "info": INFO, "capabilities": {}}
        error = await agent.refused("initialize", params, UNSUPPORTED, why="for version 0")
        data = error.data if isinstance(error.data, dict) else {}
        known = data.get("supported")
        agent.expect(data.get("requested") == 0, f"`requested` is not in the data of the error: {error.data}")
        agent.expect(isinstance(known, list) and 2 in known, f"`supported` of the error is {known!r}")


@check("V2-INIT-4")
async def the_answer_says_who_answers(trial: Trial) -> None:
    async with speaking(trial) as agent:
        info = agent.welcome.get("info")
        named = isinstance(info, dict) and info.get("name") and isinstance(info.get("version"), str)
        agent.expect(named, f"`info` is {info!r}")
        agent.expect(isinstance(agent.welcome.get("capabilities", {}), dict), "`capabilities` is no object")


@check("V2-INIT-5")
async def a_newer_version_may_have_another_shape(trial: Trial) -> None:
    async with speaking(trial, initialize=False) as agent:
        await agent.initialize(99, info=["kit"], capabilities="all", wings={"two": True})


@check("V2-INIT-6")
async def version_2_needs_info(trial: Trial) -> None:
    async with speaking(trial, initialize=False) as agent:
        params = {"protocolVersion": 2, "capabilities": {}}
        await agent.refused("initialize", params, INVALID_PARAMS, why="without `info`")


@check("V2-INIT-7")
async def initialize_may_be_repeated_first(trial: Trial) -> None:
    async with speaking(trial) as agent:
        version = (await agent.initialize()).get("protocolVersion")
        agent.expect(version == 2, f"repeated, it answered version {version!r}")
        params = {"protocolVersion": 1, "info": INFO, "capabilities": {}}
        await agent.refused("initialize", params, INVALID_REQUEST, UNSUPPORTED, why="for 1, after 2,")
        await agent.new_session()


def _markers(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """What stands in capabilities, besides `_meta` and own names."""
    for name, each in value.items():
        if not name.startswith("_"):
            yield f"{at}.{name}", each
            if isinstance(each, dict):
                yield from _markers(each, f"{at}.{name}")


@check("V2-INIT-8")
async def capabilities_are_objects(trial: Trial) -> None:
    async with speaking(trial) as agent:
        for place, value in _markers(agent.welcome.get("capabilities") or {}, "capabilities"):
            agent.expect(not isinstance(value, bool), f"`{place}` is {value!r}, not an object")


@check("V2-INIT-9")
async def sessions_are_whole_or_not_there(trial: Trial) -> None:
    async with speaking(trial) as agent:
        params: dict[str, Any] = {"cwd": str(trial.project), "mcpServers": []}
        if (agent.welcome.get("capabilities") or {}).get("session") is None:
            await agent.refused("session/new", params, METHOD_NOT_FOUND, why="without `session`")
            return
        await agent.new_session()
        await agent.ask("session/list", {})
        await agent.ask("session/resume", {"sessionId": agent.session, **params})
        await agent.ask("session/close", {"sessionId": agent.session})


@check("V2-INIT-10")
async def no_marker_of_v1_is_left(trial: Trial) -> None:
    async with speaking(trial) as agent:
        offered = agent.welcome.get("capabilities") or {}
        old = [name for name in V1_MARKERS if name in offered]
        old += [name for name in ("list", "resume", "close") if name in agent.offers]
        agent.expect(not old, f"`{old[:1]}` does not exist in v2")
        agent.expect("agentCapabilities" not in agent.welcome, "`agentCapabilities` does not exist in v2")


@check("V2-INIT-11")
async def nothing_is_asked_of_the_client_that_it_does_not_offer(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    file.write_text("green\n")
    calls = (trial.tool("read", path=str(file)), trial.tool("write", path=f"{file}2", text="x\n"))
    async with in_session(trial, [*(Answer(tool_calls=(each,)) for each in calls), Answer(text="done")]) as agent:
        await agent.stops("end_turn")
        asked = [line.message for line in agent.transcript if line.direction == "from_agent"]
        methods = {each["method"] for each in asked if isinstance(each, dict) and "id" in each and "method" in each}
        wrong = [each for each in methods - {"session/request_permission"} if not each.startswith("_")]
        agent.expect(not wrong, f"{wrong} was asked of a client that offers nothing")


# --- authentication ----------------------------------------------------------------------------------------------


@check("V2-AUTH-1")
async def methods_have_types_ids_and_names(trial: Trial) -> None:
    async with speaking(trial) as agent:
        methods = agent.welcome.get("authMethods") or []
        for each in methods:
            whole = all(isinstance(each.get(name), str) for name in ("type", "methodId", "name"))
            agent.expect(whole and "id" not in each, f"a way to log in is {each}")
            agent.expect(each["type"] != "terminal", "a terminal is needed, which the client does not offer")


@check("V2-AUTH-2")
async def logins_come_with_both_methods(trial: Trial) -> None:
    async with speaking(trial) as agent:
        params = {"methodId": "kit-no-such-method"}
        if agent.welcome.get("authMethods"):
            for method, given in (("auth/login", params), ("auth/logout", {})):
                try:
                    await agent.ask(method, given)
                except Wrong as error:
                    gone = not error.code or error.code == METHOD_NOT_FOUND
                    agent.expect(not gone, f"`authMethods` are named, and {error}")
        else:
            await agent.refused("auth/login", params, METHOD_NOT_FOUND, why="without `authMethods`")
            await agent.refused("auth/logout", {}, METHOD_NOT_FOUND, why="without `authMethods`")
        for method in ("authenticate", "logout"):
            await agent.refused(method, params, METHOD_NOT_FOUND, why="in v2")


@check("V2-AUTH-3")
async def unknown_logins_are_refused(trial: Trial) -> None:
    async with speaking(trial, initialize=False) as agent:
        await agent.initialize(capabilities={"auth": {"terminal": {}}})
        methods = agent.welcome.get("authMethods") or []
        if not methods:
            raise NotHere("it names no `authMethods`")
        ids = [each["methodId"] for each in methods if each.get("type") == "terminal"]
        for id_ in ("kit-no-such-method", *ids):
            await agent.refused("auth/login", {"methodId": id_}, INVALID_PARAMS, why=f"with {id_!r}")


@check("V2-AUTH-5")
async def variables_of_a_terminal_are_a_list(trial: Trial) -> None:
    async with speaking(trial, initialize=False) as agent:
        await agent.initialize(capabilities={"auth": {"terminal": {}}})
        methods = [each for each in agent.welcome.get("authMethods") or [] if each.get("type") == "terminal"]
        if not methods:
            raise NotHere("it logs nobody in by a terminal")
        for each in methods:
            names = [entry.get("name") for entry in each.get("env") or []]
            agent.expect(len(set(names)) == len(names), f"the variables of {each.get('methodId')!r} are {names}")


# --- errors, framing, open enums ---------------------------------------------------------------------------------


@check("V2-ERR-1")
async def a_withdrawn_prompt_is_answered_as_cancelled(trial: Trial) -> None:
    async with at_work(trial) as agent:
        begun = await agent.held()
        asked = agent.transcript[agent.at(lambda each: "id" in each, direction="to_agent", last=True)].message["id"]
        agent.connection.notify("$/cancel_request", {"requestId": asked})
        await agent.quiet()
        if not begun.over.is_set():
            raise NotHere("it does not hear `$/cancel_request`")
        await agent.withdrawn(begun, "a prompt that was withdrawn")


@check("V2-RPC-1")
async def an_array_is_one_error(trial: Trial) -> None:
    async with speaking(trial) as agent:
        before = agent.seen
        entry = {"jsonrpc": "2.0", "method": "session/new", "params": {"cwd": str(trial.project)}}
        await agent.send(json.dumps([{**entry, "id": 901}, {**entry, "id": 902}]).encode())
        await agent.until(lambda: agent.answers(after=before), "an answer to an array")
        await agent.quiet()
        came = agent.answers(after=before)
        shown = [(each.get("id"), (each.get("error") or {}).get("code")) for each in came]
        agent.expect(shown == [(None, INVALID_REQUEST)], f"an array was answered with {came}")


@check("V2-RPC-2")
async def ids_come_back_as_they_are(trial: Trial) -> None:
    async with speaking(trial) as agent:
        for id_ in (4_000_000_001, -7, "kit"):
            before = agent.seen
            request: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": "session/list", "params": {}}
            await agent.send(json.dumps(request).encode())
            await agent.until(partial(agent.answers, after=before), f"an answer to the id {id_!r}")
            shown = agent.answers(after=before)[0].get("id")
            agent.expect(type(shown) is type(id_) and shown == id_, f"the id {id_!r} came back as {shown!r}")


@check("V2-ENUM-1")
async def only_values_of_the_schema_are_sent(trial: Trial) -> None:
    """What the lines of this turn, and of all others, are held against is `v2_wire`."""
    async with in_session(trial, [Answer(text="Hello.", thought="Hm.")]) as agent:
        await agent.stops("end_turn")


@check("V2-ENUM-3")
async def a_known_tag_with_a_wrong_payload_is_an_error(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="Hello.")]) as agent:
        params = {"sessionId": agent.session, "prompt": [{"type": "text", "words": "hello"}]}
        await agent.refused("session/prompt", params, INVALID_PARAMS, why="with a block of text without `text`")


def _gone(methods: tuple[str, ...]) -> Callable[[Trial], Awaitable[None]]:
    async def are_gone(trial: Trial) -> None:
        async with in_session(trial) as agent:
            params = {"sessionId": agent.session, "cwd": str(trial.project), "modeId": "kit", "terminalId": "kit"}
            for method in methods:
                await agent.refused(method, params, METHOD_NOT_FOUND, why="in v2")

    return are_gone


for _id, _methods in GONE.items():
    check(_id)(_gone(_methods))
