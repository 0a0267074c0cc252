"""Unions without a tag on every variant are decided by the keys."""

import json
from typing import Any

import msgspec
import pytest

from acp_agent.errors import InvalidParams
from acp_agent.schema import acp
from acp_agent.schema.decode import decode_params, decode_result

META = {"_meta": {"vendor/key": {"deep": [1]}}}


def server(document: dict[str, Any]) -> Any:
    return decode_params("session/new", {"cwd": "/p", "mcpServers": [document]}, "agent").mcp_servers[0]


def resource(document: dict[str, Any]) -> Any:
    block = {"type": "resource", "resource": document}
    return decode_params("session/prompt", {"sessionId": "s", "prompt": [block]}, "agent").prompt[0].resource


def auth_method(document: dict[str, Any]) -> Any:
    return decode_result("initialize", {"protocolVersion": 1, "authMethods": [document]}, "agent").auth_methods[0]


def select_options(document: list[Any]) -> Any:
    option = {"id": "o", "name": "n", "type": "select", "currentValue": "v", "options": document}
    return decode_result("session/set_config_option", {"configOptions": [option]}, "agent").config_options[0].options


def form_property(document: dict[str, Any]) -> Any:
    schema = {"type": "object", "properties": {"p": document}}
    params = {"mode": "form", "message": "m", "sessionId": "s", "requestedSchema": schema}
    return decode_params("elicitation/create", params, "client").requested_schema.properties["p"]


def multi_select_items(document: dict[str, Any]) -> Any:
    return form_property({"type": "array", "items": document}).items


HTTP = {"name": "a", "url": "https://a", "headers": [{"name": "X", "value": "y"}]}
STDIO = {"name": "a", "command": "b", "args": ["c"], "env": [{"name": "X", "value": "y"}]}

VARIANTS = [
    (server, {"type": "http", **HTTP}, acp.McpServerHttp), (server, {"type": "sse", **HTTP}, acp.McpServerSse),
    (server, STDIO, acp.McpServerStdio), (resource, {"uri": "u", "text": "t"}, acp.TextResourceContents),
    (resource, {"uri": "u", "blob": "t"}, acp.BlobResourceContents),
    (auth_method, {"id": "i", "name": "n"}, acp.AuthMethodAgent),
    (auth_method, {"type": "terminal", "id": "i", "name": "n"}, acp.AuthMethodTerminal),
    (form_property, {"type": "string", "enum": ["a"]}, acp.StringPropertySchema),
    (form_property, {"type": "number", "minimum": 0.5}, acp.NumberPropertySchema),
    (form_property, {"type": "integer", "minimum": 1}, acp.IntegerPropertySchema),
    (form_property, {"type": "boolean", "default": True}, acp.BooleanPropertySchema),
    (form_property, {"type": "array", "items": {"type": "string", "enum": ["a"]}}, acp.MultiSelectPropertySchema),
    (multi_select_items, {"type": "string", "enum": ["a"]}, acp.StringMultiSelectItems),
    (multi_select_items, {"anyOf": [{"const": "a", "title": "A"}]}, acp.TitledMultiSelectItems),
]  # fmt: skip


@pytest.mark.parametrize(("read", "document", "variant"), VARIANTS)
def test_the_variant_is_chosen_and_meta_kept(read: Any, document: dict[str, Any], variant: type) -> None:
    value = read({**document, **META, "fieldOfTheFuture": {"x": 1}})
    assert type(value) is variant
    assert json.loads(msgspec.json.encode(value)) == {**document, **META}


def test_an_instance_of_a_variant_is_an_instance_of_its_union() -> None:
    value: object = server(STDIO)
    assert isinstance(value, acp.McpServer) and not isinstance(value, acp.AuthMethod)


@pytest.mark.parametrize(("read", "document", "variant"), [
    (server, {**STDIO, "type": "stdio"}, acp.McpServerStdio),
    (auth_method, {"type": "agent", "id": "i", "name": "n"}, acp.AuthMethodAgent),
    (auth_method, {"type": "env_var", "id": "i", "name": "n"}, acp.AuthMethodAgent),
    (resource, {"uri": "u", "text": None, "blob": "b"}, acp.BlobResourceContents),
])  # fmt: skip
def test_more_than_the_schema_asks_for_is_read_too(read: Any, document: dict[str, Any], variant: type) -> None:
    assert type(read(document)) is variant


@pytest.mark.parametrize("read", [form_property, multi_select_items])
def test_a_type_of_the_future_stays_as_it_is(read: Any) -> None:
    document = {"type": "colour", "palette": ["a"]}
    assert read(document) == document


def test_select_options_are_flat_or_grouped() -> None:
    flat = [{"value": "v", "name": "n"}]
    assert select_options(flat) == [acp.SessionConfigSelectOption(value="v", name="n")]
    assert select_options([{"group": "g", "name": "n", "options": flat}]) == [
        acp.SessionConfigSelectGroup(group="g", name="n", options=[acp.SessionConfigSelectOption(value="v", name="n")])
    ]
    assert select_options([]) == []


@pytest.mark.parametrize(("given", "value"), [
    ({"value": "big"}, "big"), ({"type": "boolean", "value": True}, True), ({"type": "boolean", "value": False}, False),
    ({"type": "a type of the future", "value": "x"}, "x"),
])  # fmt: skip
def test_a_config_option_is_set_to_a_word_or_a_boolean(given: dict[str, Any], value: object) -> None:
    params = {"sessionId": "s", "configId": "c", **given}
    request = decode_params("session/set_config_option", params, "agent")
    assert request.value == value
    assert json.loads(msgspec.json.encode(request)) == params


@pytest.mark.parametrize("given", [{"value": True}, {"value": 1}, {"type": "boolean"}, {"value": None}])
def test_a_config_option_is_set_to_nothing_else(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match="value"):
        decode_params("session/set_config_option", {"sessionId": "s", "configId": "c", **given}, "agent")


FORM = {"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}}
URL = {"mode": "url", "message": "m", "elicitationId": "e", "url": "https://example.com"}


@pytest.mark.parametrize("scope", [{"sessionId": "s"}, {"sessionId": "s", "toolCallId": "t"}, {"requestId": 4}])
@pytest.mark.parametrize(("document", "variant"), [(FORM, acp.ElicitationFormMode), (URL, acp.ElicitationUrlMode)])
def test_an_elicitation_is_of_a_session_or_a_request(document: dict[str, Any], variant: type, scope: dict[str, Any]):
    value = decode_params("elicitation/create", {**document, **scope, **META}, "client")
    assert type(value) is variant
    given = json.loads(msgspec.json.encode(value))
    assert given.pop("requestedSchema", None) in (None, {"type": "object"})  # an empty `properties` is the default
    assert given == {key: part for key, part in (document | scope | META).items() if key != "requestedSchema"}


def test_an_elicitation_needs_a_scope_and_its_content_keeps_its_types() -> None:
    with pytest.raises(InvalidParams, match="one of `sessionId` and `requestId` is required"):
        decode_params("elicitation/create", FORM, "client")
    content = {"a": "1", "b": 1, "c": 1.5, "d": True, "e": ["x"]}
    value = decode_result("elicitation/create", {"action": "accept", "content": content}, "client")
    assert [type(part) for part in value.content.values()] == [str, int, float, bool, list]


@pytest.mark.parametrize("action", ["accept", "decline", "cancel", "an action of the future"])
def test_every_answer_to_an_elicitation_is_read(action: str) -> None:
    value = decode_result("elicitation/create", {"action": action, **META}, "client")
    assert value.action == action
    assert json.loads(msgspec.json.encode(value)) == {"action": action, **META}


@pytest.mark.parametrize(("outcome", "value"), [
    ({"outcome": "cancelled"}, acp.CancelledPermissionOutcome()),
    ({"outcome": "selected", "optionId": "o"}, acp.SelectedPermissionOutcome(option_id="o")),
])  # fmt: skip
def test_a_permission_is_cancelled_or_selected(outcome: dict[str, Any], value: object) -> None:
    assert decode_result("session/request_permission", {"outcome": outcome}, "client").outcome == value


def test_chunks_of_user_agent_and_thought_are_three_types() -> None:
    for tag, variant in (
        ("user_message_chunk", acp.UserMessageChunk), ("agent_message_chunk", acp.AgentMessageChunk),
        ("agent_thought_chunk", acp.AgentThoughtChunk),
    ):  # fmt: skip
        update = {"sessionUpdate": tag, "content": {"type": "text", "text": "t"}}
        value = decode_params("session/update", {"sessionId": "s", "update": update}, "client").update
        assert value == variant(content=acp.TextContent(text="t"))
