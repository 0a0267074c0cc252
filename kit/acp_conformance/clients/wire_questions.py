"""How a client begins, and what it does with requests, notifications and lines of any kind: CINIT, CRPC, CUPD."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from acp_conformance.clients.client_trial import ClientTrial, question
from acp_conformance.trial import INVALID_PARAMS, METHOD_NOT_FOUND, SECONDS, NotHere, Wrong

BIG = 4 * 1024 * 1024
BASELINE = ("text", "resource_link")
"""Content that every agent takes."""
REQUEST_CANCELLED = -32800


def _params(trial: ClientTrial, method: str) -> list[dict[str, Any]]:
    return [params if isinstance(params, dict) else {} for name, params in trial.came if name == method]


@question("CINIT-1")
async def it_begins_in_order(trial: ClientTrial) -> str:
    methods = [method for method, _ in trial.came]
    version = _params(trial, "initialize")[:1]
    trial.expect(methods[:1] == ["initialize"], f"it began with `{methods[0]}`")
    trial.expect(type(version[0].get("protocolVersion")) is int, f"`initialize` was {json.dumps(version[0])[:300]}")
    trial.expect(trial.session in trial.sessions, f"it prompted in {trial.session!r}, which is not open")
    return f"it offers {json.dumps(trial.offers)}"


@question("CINIT-2")
async def it_says_who_it_is(trial: ClientTrial) -> str:
    info = next(iter(_params(trial, "initialize")), {}).get("clientInfo")
    named = isinstance(info, dict) and info.get("name") and info.get("version")
    trial.expect(named, f"`clientInfo` is {json.dumps(info)[:300]}")
    return json.dumps(info)


@question("CINIT-3")
async def its_sessions_are_legal(trial: ClientTrial) -> None:
    for params in _params(trial, "session/new"):
        trial.expect(Path(str(params.get("cwd"))).is_absolute(), f"`cwd` is {params.get('cwd')!r}")
        servers = params.get("mcpServers")
        trial.expect(isinstance(servers, list), f"`mcpServers` is {json.dumps(servers)[:300]}")
        others = [server for server in servers or [] if not isinstance(server, dict) or "command" not in server]
        trial.expect(not others, f"MCP servers that are not on stdio: {json.dumps(others)[:300]}")


@question("CINIT-4")
async def its_prompts_are_what_the_agent_takes(trial: ClientTrial) -> None:
    for params in _params(trial, "session/prompt"):
        blocks = params.get("prompt") or []
        kinds = [block.get("type") for block in blocks if isinstance(block, dict)]
        trial.expect(
            all(kind in BASELINE for kind in kinds),
            f"a prompt has {', '.join(map(str, kinds))}; only text and links may",
        )


@question("CRPC-1")
async def answers_have_the_id_of_the_request(trial: ClientTrial) -> None:
    method, params = await trial.living()
    for id_ in ("kit", -7, 2**53 - 1):
        await trial.send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
        answer = await trial.until(partial(trial.answers.pop, id_, None), f"no answer has the id {id_!r}")
        trial.expect(type(answer["id"]) is type(id_), f"{id_!r} was answered as {answer['id']!r}")


@question("CRPC-2")
async def unknown_requests_are_refused(trial: ClientTrial) -> None:
    for method in ("kit/unknown", "_kit/unknown"):
        await trial.denied(method, METHOD_NOT_FOUND)


@question("CRPC-3")
async def wrong_parameters_are_refused(trial: ClientTrial) -> None:
    await trial.denied("session/request_permission", INVALID_PARAMS, why="without `toolCall`", options="all of them")


@question("CRPC-4")
async def unknown_notifications_are_ignored(trial: ClientTrial) -> None:
    await trial.living()
    trial.answers.clear()
    for method in ("kit/unknown", "_kit/unknown", "$/kit_unknown"):
        trial.notify(method, sessionId=trial.session)
    await trial.living()
    trial.expect(not trial.answers, f"a notification was answered: {json.dumps([*trial.answers.values()])[:300]}")


@question("CRPC-5")
async def lines_that_are_no_messages_are_survived(trial: ClientTrial) -> str:
    await trial.living()
    trial.answers.clear()
    for line in (b'{"jsonrpc": "2.0", "method"', b"kit: a line of a log", b"[]", b"42", b'{"jsonrpc": "2.0"}'):
        await trial.send(line)
        await trial.living()
    answer = trial.answers.get(None)
    return f"it answers them with {json.dumps(answer)[:200]}" if answer else "it does not answer them"


@question("CRPC-6")
async def big_lines_are_read(trial: ClientTrial) -> None:
    method, params = await trial.living()
    await trial.answered(trial.ask(method, {**params, "_meta": {"kit": "x" * BIG}}, seconds=2 * SECONDS))


@question("CRPC-7")
async def answers_to_nothing_are_dropped(trial: ClientTrial) -> None:
    await trial.living()
    for id_ in (4711, "kit"):
        await trial.send({"jsonrpc": "2.0", "id": id_, "result": {}})
        await trial.send({"jsonrpc": "2.0", "id": id_, "error": {"code": -32603, "message": "kit"}})
    await trial.living()


@question("CRPC-8", "terminal")
async def cancelled_requests_are_answered(trial: ClientTrial) -> str:
    async with trial.terminal(trial.waits()) as id_:
        number, answered = await trial.waiting(id_)
        trial.notify("$/cancel_request", requestId=number)
        ignored = False
        try:
            answer = await trial.until(answered, "no answer", seconds=SECONDS / 4)
        except Wrong:
            ignored = True
            trial.go()
            answer = await trial.until(answered, "a cancelled request was not answered when it was done, either,")
        trial.go()
        code = (answer.get("error") or {}).get("code")
        trial.expect(code in (None, REQUEST_CANCELLED), f"the cancelled request was answered with the error {code}")
        return "it ignores the notification" if ignored else f"it answers with {code or 'a result'}"


@question("CRPC-9")
async def cancelling_what_is_not_there_is_ignored(trial: ClientTrial) -> None:
    for id_ in ("kit-none", 4711):
        trial.notify("$/cancel_request", requestId=id_)
    await trial.living()


@question("CRPC-10", "terminal")
async def waiting_holds_nothing_up(trial: ClientTrial) -> None:
    await trial.living()
    async with trial.terminal(trial.waits()) as id_:
        _, answered = await trial.waiting(id_)
        try:
            await trial.living()
        except Wrong as error:
            raise Wrong("while `terminal/wait_for_exit` waited, nothing else was answered") from error
        finally:
            trial.go()
        await trial.until(answered, "`terminal/wait_for_exit` was not answered")


def _updates(trial: ClientTrial) -> list[tuple[str, dict[str, Any]]]:
    """Every kind that the client may be sent."""
    text = {"type": "text", "text": "kit"}
    file = str(trial.folder / "pear.txt")
    diff = {"type": "diff", "path": file, "oldText": "green\n", "newText": "yellow\n"}
    entry = {"content": "Ask", "priority": "high", "status": "in_progress"}
    about = {"title": "Show", "kind": "edit", "status": "pending", "locations": [{"path": file, "line": 1}]}
    updates: list[tuple[str, dict[str, Any]]] = [
        ("user_message_chunk", {"content": text}),
        ("agent_thought_chunk", {"content": text, "messageId": "kit-thought"}),
        ("agent_message_chunk", {"content": {"type": "resource_link", "uri": f"file://{file}", "name": "pear.txt"}}),
        ("tool_call", {"toolCallId": "kit-shown", **about, "rawInput": {"path": file}}),
        ("tool_call_update", {"toolCallId": "kit-shown", "status": "in_progress", "content": [diff]}),
        ("tool_call_update", {"toolCallId": "kit-shown", "content": [{"type": "content", "content": text}]}),
        ("tool_call_update", {"toolCallId": "kit-shown", "status": "completed", "rawOutput": {"kit": True}}),
        ("plan", {"entries": [entry]}),
        ("plan", {"entries": []}),
        ("available_commands_update", {"availableCommands": [{"name": "kit", "description": "Ask again"}]}),
        ("current_mode_update", {"currentModeId": "again"}),
        ("config_option_update", {"configOptions": []}),
        ("session_info_update", {"title": "Conformance"}),
        ("usage_update", {"used": 1, "size": 1000, "cost": {"amount": 0.01, "currency": "USD"}}),
    ]
    if trial.has("session", "notices"):
        updates += [("notice", {"severity": "info", "title": "kit"})]
    if trial.has("session", "compaction"):
        updates += [("compaction_update", {"compactionId": "kit", "status": "completed"})]
    return updates


@question("CUPD-1")
async def all_kinds_of_updates_are_taken(trial: ClientTrial) -> None:
    for kind, update in _updates(trial):
        trial.update(kind, **update)
    await trial.living()
    if trial.has("terminal"):
        async with trial.terminal("echo kit") as id_:
            shown = [{"type": "terminal", "terminalId": id_}]
            trial.update("tool_call", toolCallId="kit-terminal", title="Print", kind="execute", content=shown)
            await trial.exit(id_)
            trial.update("tool_call_update", toolCallId="kit-terminal", status="completed")
        await trial.living()


@question("CUPD-2")
async def unknown_kinds_of_updates_are_passed_over(trial: ClientTrial) -> None:
    for kind in ("kit_unknown", "_kit_unknown"):
        trial.update(kind, content={"type": "text", "text": "kit"})
    await trial.living()


@question("CUPD-3")
async def more_than_the_schema_names_is_accepted(trial: ClientTrial) -> None:
    """A request is answered as it is without that."""
    more = {"_meta": {"kit": {"deep": [1, None]}, "traceparent": "00-0-0-00"}, "kitUnknown": 1}
    trial.update("agent_thought_chunk", content={"type": "text", "text": "kit", **more}, **more)
    method, params = await trial.living()
    told = []
    for given in (params, {**params, **more}):
        try:
            await trial.ask(method, given)
            told.append(0)
        except Wrong as error:
            told.append(error.code)
    trial.expect(told[0] == told[1], f"`{method}` with `_meta` and unknown members was answered with {told[1]}")


PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "fs.readTextFile": ("fs/read_text_file", {"path": "{folder}/pear.txt"}),
    "fs.writeTextFile": ("fs/write_text_file", {"path": "{folder}/probe.txt", "content": "kit\n"}),
    "terminal": ("terminal/create", {"command": "true"}),
    "elicitation.form": (
        "elicitation/create",
        {"mode": "form", "message": "kit", "requestedSchema": {"type": "object", "properties": {}}},
    ),
}
"""What asks for something by the name of its capability."""


@question("CINIT-6")
async def what_is_not_offered_is_refused(trial: ClientTrial) -> str:
    """The one question that no agent may ask otherwise."""
    off = [name for name in PROBES if not trial.has(*name.split("."))]
    if not off:
        raise NotHere("it offers everything")
    told = []
    for name in off:
        method, params = PROBES[name]
        filled = {key: str(each).format(folder=trial.folder) if key == "path" else each for key, each in params.items()}
        try:
            error = await trial.denied(method, **filled)
            told.append(f"`{method}`: error {error.code}")
        except Wrong as error:
            told.append(f"`{method}`: {'no answer' if 'was not answered' in str(error) else 'it is served'}")
    return "; ".join(told)


@question("CINIT-5")
async def its_lines_are_valid(trial: ClientTrial) -> None:
    """Of all that came so far: nearly the last question."""
    if trial.violations is None:
        raise NotHere("the package jsonschema-rs is not installed")
    trial.expect(not trial.violations, "; ".join(trial.violations[:5]))
