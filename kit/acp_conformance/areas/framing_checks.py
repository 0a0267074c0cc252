"""Transport and JSON-RPC: TR and RPC of the requirements, and EXT."""

from __future__ import annotations

import json
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    PARSE_ERROR,
    Agent,
    Trial,
    check,
)

LONG = 5_000_000
"""Characters."""
NO_ID = "kit: no id"
NOISE = (b"\xff\xfe\x00", b"null", b"[]", b"{}", b'"text"', b'{"id":{}}', b'{"jsonrpc":"1.0","id":1,"method":"x"}')
UNICODE = "zero \x00, bell \x07, \u200f\u202e, \u2028\u2029\u0085, \U0001f600 \u00e4"


async def _answer_to(agent: Agent, line: bytes, *ids: object) -> Any:
    """What a line is answered with, by the id of the answer, one of these."""
    before = agent.seen
    await agent.send(line)

    def found() -> Any:
        lines = [each.message for each in agent.editor.transcript[before:] if each.direction == "from_agent"]
        return next(
            (each for each in lines if _is_answer(each) and any(_same(each.get("id", NO_ID), id_) for id_ in ids)), None
        )

    return await agent.until(found, f"an answer with the id {json.dumps(ids[0])} to {line[:80]!r}")


def _is_answer(message: Any) -> bool:
    return isinstance(message, dict) and "method" not in message


def _same(one: object, other: object) -> bool:
    if one == NO_ID:  # Wrong by itself (RPC-1).
        return other is None
    return type(one) is type(other) and one == other


async def _alive(agent: Agent) -> None:
    """By any answer: some agents have one for every extension method (EXT-3)."""
    await _answer_to(agent, b'{"jsonrpc":"2.0","id":"alive","method":"_kit/ping","params":{}}', "alive")


@check("TR-1", "ACP-TRANSPORT-001")
async def only_messages_on_stdout(trial: Trial) -> None:
    async with trial.agent() as agent:
        await agent.new_session()
        await _alive(agent)
        wrong = [line.message for line in agent.editor.transcript if not isinstance(line.message, dict)]
        agent.expect(not wrong, f"a line of stdout is no message: {wrong[:1]}")


@check("TR-4")
async def long_lines_are_read(trial: Trial) -> None:
    async with trial.agent() as agent:
        line = json.dumps({"jsonrpc": "2.0", "id": "long", "method": "_kit/x", "params": {"text": "x" * LONG}})
        await _answer_to(agent, line.encode(), "long")


@check("TR-5")
async def pathological_json_costs_an_error_at_most(trial: Trial) -> None:
    """The long number is in a message: what a line that is nothing but a number costs is RPC-10's."""
    number = b'{"jsonrpc":"2.0","method":"_kit/x","params":{"n":' + b"1" * 5000 + b"}}"
    async with trial.agent() as agent:
        for line in (b"[" * 100_000, b'{"a":' * 5000, b'{"jsonrpc":"2.0","id":NaN}', number):
            await agent.send(line)
            await _alive(agent)


@check("TR-6")
async def text_is_not_changed(trial: Trial) -> None:
    async with trial.agent([Answer(text=f"said: {UNICODE}")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn", UNICODE)
        sent = agent.asked_of_model()
        agent.expect(json.dumps(UNICODE, ensure_ascii=False)[1:-1] in sent, "the prompt came to the model changed")
        agent.expect(UNICODE in agent.text(), f"the model's text came to the client changed: {agent.text()!r}")


@check("TR-7")
async def lone_surrogates_break_nothing(trial: Trial) -> None:
    """A parse error is an answer, too: RFC 8259 leaves open what a reader does with them."""
    async with trial.agent([Answer(text="ok")] * 3) as agent:
        await agent.new_session()
        params = {"sessionId": agent.session, "prompt": [{"type": "text", "text": "half: ?"}]}
        line = json.dumps({"jsonrpc": "2.0", "id": "half", "method": "session/prompt", "params": params})
        line = line.replace("half: ?", "half: \\ud83d")
        await _answer_to(agent, line.encode(), "half", None)
        await _alive(agent)


@check("TR-8")
async def empty_lines_and_carriage_returns_are_tolerated(trial: Trial) -> None:
    async with trial.agent() as agent:
        before = agent.seen
        for line in (b"", b"\r", b"   "):
            await agent.send(line)
        await _answer_to(agent, b'{"jsonrpc":"2.0","id":"cr","method":"_kit/x"}\r', "cr")
        answers = [each for each in agent.editor.transcript[before:] if each.direction == "from_agent"]
        agent.expect(len(answers) == 1, f"an empty line was answered: {answers[0].message}")


@check("RPC-2")
async def what_is_no_json_is_a_parse_error(trial: Trial) -> None:
    async with trial.agent() as agent:
        answer = await _answer_to(agent, b'{"jsonrpc": "2.0", ', None)
        code = (answer.get("error") or {}).get("code")
        agent.expect(code == PARSE_ERROR, f"a line that is no JSON was answered with {answer}, not {PARSE_ERROR}")
        await _alive(agent)


@check("RPC-3")
async def what_is_no_request_is_invalid(trial: Trial) -> None:
    async with trial.agent() as agent:
        for line, id_ in ((b'{"jsonrpc":"2.0","id":"n","method":7}', "n"), (b'{"jsonrpc":"2.0"}', None), (b"7", None)):
            answer = await _answer_to(agent, line, id_)
            code = (answer.get("error") or {}).get("code")
            agent.expect(code == INVALID_REQUEST, f"{line.decode()} was answered with {answer}, not {INVALID_REQUEST}")


@check("RPC-4", "ACP-JSONRPC-004")
async def unknown_methods_are_not_found(trial: Trial) -> None:
    async with trial.agent() as agent:
        for method in ("session/fly", "fly", "fs/read_text_file"):
            await agent.refused(method, {}, METHOD_NOT_FOUND)


@check("RPC-5")
async def params_of_the_wrong_shape_are_invalid(trial: Trial) -> None:
    """Among them a relative `cwd`, if it is refused (NEW-3); what does not exist may be -32002."""
    async with trial.agent() as agent:
        project = str(trial.project)
        wrong: tuple[Any, ...] = ({}, [], {"cwd": 7, "mcpServers": []}, {"cwd": project, "mcpServers": "none"})
        for params in wrong:
            await agent.refused("session/new", params, INVALID_PARAMS, why=f"with {params}")
        await agent.refused("session/prompt", {"sessionId": 7, "prompt": []}, INVALID_PARAMS, why="with the session 7")
        relative = agent.ask("session/new", {"cwd": "project", "mcpServers": []})
        await agent.answered(relative, INVALID_PARAMS, NOT_FOUND)


@check("RPC-6", "ACP-JSONRPC-001")
async def ids_are_echoed(trial: Trial) -> None:
    async with trial.agent() as agent:
        for id_ in ("a string", 0, -7, 2**53, "7"):
            line = json.dumps({"jsonrpc": "2.0", "id": id_, "method": "_kit/x", "params": {}})
            await _answer_to(agent, line.encode(), id_)


@check("RPC-7", "ACP-JSONRPC-003")
async def notifications_are_not_answered(trial: Trial) -> None:
    async with trial.agent() as agent:
        before = agent.seen
        for method in ("_kit/x", "session/fly", "session/new", "session/prompt"):
            agent.editor.notify(method, {})
        await _alive(agent)
        await agent.quiet()
        answers = [each.message for each in agent.editor.transcript[before:] if each.direction == "from_agent"]
        wrong = [
            each for each in answers if isinstance(each, dict) and "method" not in each and each.get("id") != "alive"
        ]
        agent.expect(not wrong, f"a notification was answered: {wrong[:1]}")


@check("RPC-8")
async def answers_to_nothing_are_dropped(trial: Trial) -> None:
    async with trial.agent() as agent:
        before = agent.seen
        for line in (
            b'{"jsonrpc":"2.0","id":12345,"result":{}}',
            b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":""}}',
        ):
            await agent.send(line)
        await _alive(agent)
        lines = [each.message for each in agent.editor.transcript[before:] if each.direction == "from_agent"]
        wrong = [each for each in lines if isinstance(each, dict) and each.get("id") in (12345, "x")]
        agent.expect(not wrong, f"an answer was answered: {wrong[:1]}")


@check("RPC-10")
async def no_input_ends_the_process(trial: Trial) -> None:
    async with trial.agent() as agent:
        for line in NOISE:
            await agent.send(line)
        await _alive(agent)
        await agent.new_session()


@check("RPC-14")
async def a_turn_does_not_hold_up_others(trial: Trial) -> None:
    async with trial.agent([Answer(text="one", hang_before=True), Answer(text="two")]) as agent:
        await agent.new_session()
        first = agent.session
        async with agent.turn("go", session=first) as turn:
            await agent.until(lambda: agent.asked, "a request to the model")
            await agent.new_session()
            await _alive(agent)
            agent.expect(not turn.over.is_set(), "the turn is over")
            agent.model.release()


@check("EXT-1")
async def meta_is_accepted_everywhere(trial: Trial) -> None:
    async with trial.agent(initialize=False) as agent:
        meta = {"_meta": {"kit.example": {"deep": [1, None]}, "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}}
        await agent.initialize(**meta)
        await agent.new_session(**meta)


@check("EXT-3")
async def unknown_extension_methods_are_not_found(trial: Trial) -> None:
    async with trial.agent() as agent:
        await agent.refused("_kit.example/do", {"a": 1}, METHOD_NOT_FOUND)


@check("EXT-4")
async def unknown_notifications_are_ignored(trial: Trial) -> None:
    async with trial.agent() as agent:
        for method in ("_kit.example/did", "$/kit", "session/flew"):
            agent.editor.notify(method, {"sessionId": "nobody's"})
        await _alive(agent)
        await agent.new_session()
