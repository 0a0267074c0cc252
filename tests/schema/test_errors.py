"""How a wrong document is answered, and which wrong values the schema tells readers to ignore."""

from typing import Any

import pytest
from msgspec import UNSET

from acp_agent.errors import AgentError, InvalidParams, LocalProtocolError, MethodNotFound
from acp_agent.schema import acp
from acp_agent.schema.decode import MESSAGE_LIMIT, MalformedResult, Side, decode_params, decode_result

STDIO = {"name": "a", "command": "b", "args": [], "env": []}
TEXT = {"type": "text", "text": "t"}


def prompt(*blocks: object) -> dict[str, Any]:
    return {"sessionId": "s", "prompt": list(blocks)}


def servers(*found: object) -> dict[str, Any]:
    return {"cwd": "/p", "mcpServers": list(found)}


LINES = {"sessionId": "s", "path": "/a"}
WRONG: list[tuple[str, object, str]] = [
    ("session/prompt", prompt({"type": "text", "text": 5}), "$.prompt[0].text: expected str, got int"),
    ("session/prompt", prompt(TEXT, {"type": "text"}), "missing required field `text` at `$.prompt[1]`"),
    ("session/prompt", prompt({"text": "t"}), "missing required field `type` at `$.prompt[0]`"),
    ("session/prompt", prompt({"type": "smell"}), "$.prompt[0].type: unknown value 'smell'"),
    ("session/prompt", prompt("hello"), "$.prompt[0]: expected object, got str"),
    ("session/prompt", prompt(None), "$.prompt[0]: expected object, got null"),
    ("session/prompt", {"sessionId": "s", "prompt": "hello"}, "$.prompt: expected array, got str"),
    ("session/prompt", {"sessionId": "s", "prompt": None}, "$.prompt: expected array, got null"),
    ("session/prompt", {"sessionId": 1, "prompt": []}, "$.sessionId: expected str, got int"),
    ("session/prompt", {"sessionId": None, "prompt": []}, "$.sessionId: expected str, got null"),
    ("session/prompt", None, "missing required field `sessionId` at `$`"),
    ("session/prompt", ["s", []], "$: expected object, got array"),
    (
        "session/prompt", prompt({"type": "resource", "resource": {"uri": "u"}}),
        "missing required field `text` or `blob` at `$.prompt[0].resource`",
    ),
    (
        "session/prompt", prompt({"type": "resource", "resource": {"uri": "u", "blob": 3}}),
        "$.prompt[0].resource.blob: expected str, got int",
    ),
    ("session/new", servers(STDIO, {**STDIO, "command": 3}), "$.mcpServers[1].command: expected str, got int"),
    (
        "session/new", servers({**STDIO, "env": [{"name": "A"}]}),
        "missing required field `value` at `$.mcpServers[0].env[0]`",
    ),
    ("session/new", servers({"name": "a"}), "missing required field `command` at `$.mcpServers[0]`"),
    ("session/new", servers({"name": "a", "type": "pigeon"}), "$.mcpServers[0].type: unknown value 'pigeon'"),
    ("session/new", servers(7), "$.mcpServers[0]: expected object, got int"),
    ("session/new", {"cwd": "/p"}, "missing required field `mcpServers` at `$`"),
    ("session/new", {"cwd": "/p", "mcpServers": {}}, "$.mcpServers: expected array, got object"),
    ("initialize", {}, "missing required field `protocolVersion` at `$`"),
    ("initialize", {"protocolVersion": True}, "$.protocolVersion: expected int, got bool"),
    ("initialize", {"protocolVersion": 1.0}, "$.protocolVersion: expected int, got float"),
    ("initialize", {"protocolVersion": "1"}, "$.protocolVersion: expected int, got str"),
    ("initialize", {"protocolVersion": None}, "$.protocolVersion: expected int, got null"),
    ("initialize", {"protocolVersion": -1}, "$.protocolVersion: expected int >= 0"),
    ("initialize", {"protocolVersion": 65536}, "$.protocolVersion: expected int <= 65535"),
    ("fs/read_text_file", {**LINES, "line": -1}, "$.line: expected int >= 0"),
    ("fs/read_text_file", {**LINES, "line": 2**32}, "$.line: expected int <= 4294967295"),
    ("fs/read_text_file", {**LINES, "limit": True}, "$.limit: expected int | null, got bool"),
    ("fs/read_text_file", {**LINES, "limit": 1.5}, "$.limit: expected int | null, got float"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "params", "problem"), WRONG)
def test_the_message_names_the_place_and_what_was_expected(method: str, params: object, problem: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        decode_params(method, params, "client" if method.startswith("fs/") else "agent")
    assert caught.value.code == -32602 and caught.value.message == f"Invalid params: {problem}"


def test_an_unknown_word_of_a_closed_set_is_refused_where_it_is_required() -> None:
    option = {"optionId": "o", "name": "n", "kind": "allow_sometimes"}
    params = {"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [option]}
    with pytest.raises(InvalidParams, match=r"\$\.options\[0\]\.kind: unknown value 'allow_sometimes'"):
        decode_params("session/request_permission", params, "client")
    with pytest.raises(MalformedResult, match=r"\$\.stopReason: unknown value 'tired'"):
        decode_result("session/prompt", {"stopReason": "tired"}, "agent")


def test_the_message_stays_short_when_the_value_is_long() -> None:
    with pytest.raises(InvalidParams) as caught:
        decode_params("session/prompt", prompt({"type": "x" * 100_000}), "agent")
    assert len(caught.value.message) < MESSAGE_LIMIT + 50


@pytest.mark.parametrize(("method", "side"), [("session/nap", "agent"), ("session/prompt", "client"), ("", "agent")])
def test_an_unknown_method_is_not_found(method: str, side: Side) -> None:
    with pytest.raises(MethodNotFound):
        decode_params(method, {}, side)


@pytest.mark.parametrize("method", ["authenticate", "logout", "session/close", "session/set_mode"])
def test_a_null_result_means_done(method: str) -> None:
    assert decode_result(method, None, "agent") == acp.AGENT_METHODS[method].result()


def test_a_missing_result_is_malformed_and_one_of_a_notification_our_own_mistake() -> None:
    assert decode_result("fs/write_text_file", None, "client") == acp.WriteTextFileResponse()
    with pytest.raises(MalformedResult) as caught:
        decode_result("fs/read_text_file", None, "client")
    assert isinstance(caught.value, AgentError)
    assert str(caught.value) == "Malformed result of fs/read_text_file: missing required field `content` at `$`"
    for method in ("session/cancel", "session/nap"):
        with pytest.raises(LocalProtocolError):
            decode_result(method, {}, "agent")


def capabilities(given: object) -> acp.ClientCapabilities:
    params = {"protocolVersion": 1, "clientCapabilities": given}
    found = decode_params("initialize", params, "agent").client_capabilities
    assert isinstance(found, acp.ClientCapabilities)
    return found


@pytest.mark.parametrize("given", [None, False, "yes", 3, [], {}, {"fs": None, "terminal": None, "elicitation": False}])
def test_wrong_capabilities_count_as_unsupported(given: object) -> None:
    assert capabilities(given) == acp.ClientCapabilities()
    assert capabilities(given).fs == acp.FileSystemCapabilities(read_text_file=False, write_text_file=False)


def test_one_wrong_capability_does_not_hide_the_others() -> None:
    given = {
        "fs": {"readTextFile": True, "writeTextFile": "true"}, "terminal": 1,
        "session": {"configOptions": {"boolean": False}, "compaction": {}, "notices": True},
        "elicitation": {"form": {"_meta": 4}, "url": 5}, "_meta": "garbage",
    }  # fmt: skip
    assert capabilities(given) == acp.ClientCapabilities(
        fs=acp.FileSystemCapabilities(read_text_file=True),
        session=acp.ClientSessionCapabilities(
            config_options=acp.SessionConfigOptionsCapabilities(), compaction=acp.CompactionCapabilities()
        ),
        elicitation=acp.ElicitationCapabilities(form=acp.ElicitationFormCapabilities()),
    )


def test_a_wrong_meta_is_dropped_and_null_lists_are_empty() -> None:
    params = {"sessionId": "s", "prompt": [{**TEXT, "_meta": 3, "annotations": {"_meta": []}}], "_meta": "x"}
    assert decode_params("session/prompt", params, "agent") == acp.PromptRequest(
        session_id="s", prompt=[acp.TextContent(text="t", annotations=acp.Annotations())]
    )
    nulls = {"cwd": "/p", "mcpServers": None, "additionalDirectories": None}
    assert decode_params("session/new", nulls, "agent") == acp.NewSessionRequest(cwd="/p", mcp_servers=[])
    value = decode_params("session/new", servers({**STDIO, "args": None, "env": None}), "agent")
    assert value.mcp_servers == [acp.McpServerStdio(name="a", command="b", args=[], env=[])]
    with pytest.raises(InvalidParams, match=r"\$\.additionalDirectories: expected array, got str"):
        decode_params("session/new", {**servers(), "additionalDirectories": "/x"}, "agent")


def update(**given: Any) -> Any:
    return decode_params("session/update", {"sessionId": "s", "update": given}, "client").update


def test_wrong_items_kinds_and_options_are_skipped() -> None:
    entry = {"content": "c", "priority": "low", "status": "pending"}
    plan = update(sessionUpdate="plan", entries=[entry, 3, {**entry, "status": "asleep"}, {**entry, "_meta": 1}])
    assert plan.entries == [acp.PlanEntry(content="c", priority="low", status="pending")] * 2
    assert update(sessionUpdate="plan", entries="none").entries == []
    call = update(
        sessionUpdate="tool_call", toolCallId="t", title="T", kind="dance", status=None,
        content=[{"type": "content", "content": TEXT}, {"type": "hologram"}], locations=[{"path": "/a", "line": -1}],
    )  # fmt: skip
    assert call.kind is UNSET and call.status is UNSET
    assert call.content == [acp.Content(content=acp.TextContent(text="t"))]
    assert call.locations == [acp.ToolCallLocation(path="/a")]
    assert update(sessionUpdate="tool_call_update", toolCallId="t", kind="dance").kind is UNSET
    group = {"group": "g", "name": "G", "options": [1, {"value": "v", "name": "n", "description": 4}]}
    option = {"id": "i", "name": "n", "type": "select", "currentValue": "v", "options": [group], "category": 5}
    value = decode_result("session/set_config_option", {"configOptions": [option, {"type": "dial"}]}, "agent")
    assert value.config_options == [
        acp.SessionConfigSelect(
            id="i", name="n", current_value="v",
            options=[
                acp.SessionConfigSelectGroup(
                    group="g", name="G", options=[acp.SessionConfigSelectOption(value="v", name="n")]
                )
            ],
        )
    ]  # fmt: skip
    params = {"mode": "form", "message": "m", "sessionId": "s", "requestedSchema": {"type": 5, "title": "T"}}
    assert decode_params("elicitation/create", params, "client").requested_schema == acp.ElicitationSchema(title="T")


def test_reading_changes_nothing_and_paths_are_those_of_the_document() -> None:
    params = {"protocolVersion": 1, "clientCapabilities": {"terminal": "x", "_meta": 3}}
    decode_params("initialize", params, "agent")
    assert params == {"protocolVersion": 1, "clientCapabilities": {"terminal": "x", "_meta": 3}}
    params = {"cwd": "/p", "_meta": 4, "mcpServers": [{**STDIO, "_meta": 5}, {**STDIO, "args": [1]}]}
    with pytest.raises(InvalidParams, match=r"\$\.mcpServers\[1\]\.args\[0\]: expected str, got int"):
        decode_params("session/new", params, "agent")
