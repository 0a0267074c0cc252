"""What is read is written back unchanged; what is written is valid according to the schema."""

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import jsonschema_rs
import msgspec
import pytest
from msgspec.structs import fields

from acp_agent.schema import acp, decode
from acp_agent.schema.acp import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_METHODS, AcpObject, WithMeta
from acp_agent.schema.decode import Side, decode_params, decode_result
from acp_agent.testing.checks import with_drafts
from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
DEFS: dict[str, Any] = with_drafts(ROOT / "schemas" / "acp-v1.schema.json")["$defs"]
MESSAGES: dict[Side, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "messages.json").read_text(encoding="utf-8")
)
SENT = [(side, method) for side, methods in MESSAGES.items() for method in methods]
STRUCTS = {
    name: value
    for name, value in vars(acp).items()
    if isinstance(value, type) and issubclass(value, AcpObject) and value not in (AcpObject, WithMeta)
}
CAPTURED = sorted((ROOT / "tests" / "captured").glob("acp-*.json"))

UNIONS = {
    "ContentBlock": acp.ContentBlock, "ToolCallContent": acp.ToolCallContent, "SessionUpdate": acp.SessionUpdate,
    "SessionConfigOption": acp.SessionConfigOption, "RequestPermissionOutcome": acp.RequestPermissionOutcome,
    "CreateElicitationRequest": acp.CreateElicitationRequest, "McpServer": acp.McpServer, "AuthMethod": acp.AuthMethod,
    "EmbeddedResourceResource": acp.EmbeddedResourceResource,
    "ElicitationPropertySchema": acp.ElicitationPropertySchema, "MultiSelectItems": acp.MultiSelectItems,
}  # fmt: skip


@cache
def validator(definition: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": DEFS})


def written(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def members(union: Any) -> tuple[Any, ...]:
    return getattr(union, "variants", None) or get_args(union)


def definitions_of(struct: type[AcpObject]) -> list[str]:
    """The definitions an instance has to satisfy: its own, and the unions it is a variant of."""
    own = [struct.__name__] if struct.__name__ in DEFS else []
    return own + [name for name, union in UNIONS.items() if struct in members(union)]


def sample(kind: Any, full: bool) -> Any:
    """A value of a type: with every field where `full`, otherwise with the required ones only."""
    if kind is Any:
        return {"any": ["thing", None]} if full else None
    if get_origin(kind) is Annotated:
        return "text" if get_args(kind)[0] is str else 7 if full else 0
    if get_origin(kind) is Literal:
        return get_args(kind)[-1 if full else 0]
    if get_origin(kind) is list:
        return [sample(item, full) for item in variants_of(get_args(kind)[0])] if full else []
    if get_origin(kind) is dict:
        return {f"key{n}": sample(v, full) for n, v in enumerate(variants_of(get_args(kind)[1]))} if full else {}
    if kind is acp.SessionConfigSelectOptions:
        return [sample(acp.SessionConfigSelectGroup, full)] if full else []
    if variants_of(kind) != (kind,):
        return sample(variants_of(kind)[-1 if full else 0], full)
    if isinstance(kind, type) and issubclass(kind, AcpObject):
        return sample_struct(kind, full)
    if kind is dict:
        return {"type": "a type of the future"}
    simple: dict[Any, Any] = {str: "text", int: -3, float: 2.5, bool: True, type(None): None}
    return simple[kind]


def variants_of(kind: Any) -> tuple[Any, ...]:
    found = getattr(kind, "variants", None)
    if found is None and get_args(kind) and get_origin(kind) not in (list, dict, Annotated, Literal):
        found = tuple(part for part in get_args(kind) if part not in (type(None), msgspec.UnsetType))
    return tuple(found) if found else (kind,)


def sample_struct(struct: type[AcpObject], full: bool) -> AcpObject:
    wanted = {f.name: sample(f.type, full) for f in fields(struct) if full or f.required}
    if struct is acp.SetSessionConfigOptionRequest:
        wanted |= {"type": "boolean", "value": True} if full else {"value": "text"}
    if "session_id" in struct.__struct_fields__ and struct.__struct_config__.tag_field == "mode":
        wanted |= {"session_id": "s"} if full else {"request_id": None}
    return struct(**wanted)


def test_every_method_has_messages_and_every_object_a_struct() -> None:
    assert set(MESSAGES["agent"]) == set(AGENT_METHODS) and set(MESSAGES["client"]) == set(CLIENT_METHODS)
    methods = {schema["x-method"] for schema in DEFS.values() if "x-method" in schema}
    assert methods == {*AGENT_METHODS, *CLIENT_METHODS, *PROTOCOL_METHODS}
    envelopes = {"AgentRequest", "AgentNotification", "ClientRequest", "ClientNotification"}
    inlined = {"ElicitationSessionScope", "ElicitationRequestScope", "ElicitationAcceptAction"}
    objects = {name for name, schema in DEFS.items() if schema.get("type") == "object"}
    markers = {name for name in objects if set(DEFS[name].get("properties", ())) == {"_meta"}}
    assert objects - envelopes - inlined - markers - set(UNIONS) <= set(STRUCTS)
    assert written(acp.ToolCallUpdate(tool_call_id="t")) == {"toolCallId": "t"}
    assert written(acp.ToolCallProgress(tool_call_id="t")) == {"sessionUpdate": "tool_call_update", "toolCallId": "t"}


@pytest.mark.parametrize(("side", "method"), SENT)
def test_params_are_read_and_written_again_unchanged(side: Side, method: str) -> None:
    params = MESSAGES[side][method]["params"]
    value = decode_params(method, params, side)
    for definition in definitions_of(type(value)):
        validator(definition).validate(params)
    assert written(value) == params


@pytest.mark.parametrize(("side", "method"), [sent for sent in SENT if "result" in MESSAGES[sent[0]][sent[1]]])
def test_results_are_read_and_written_again_unchanged(side: Side, method: str) -> None:
    result = MESSAGES[side][method]["result"]
    value = decode_result(method, result, side)
    validator(type(value).__name__).validate(result)
    assert written(value) == result


@pytest.mark.parametrize("request_id", [None, 0, -1, "a"])
def test_cancel_request_keeps_the_id_as_it_is(request_id: object) -> None:
    for side in ("agent", "client"):
        assert written(decode_params("$/cancel_request", {"requestId": request_id}, side)) == {"requestId": request_id}


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_initialize_params_of_real_editors_are_read(path: Path) -> None:
    params = json.loads(path.read_text(encoding="utf-8"))
    value = decode_params("initialize", params, "agent")
    given = params["clientCapabilities"].get("fs", {})
    assert value.client_capabilities.fs.read_text_file is given.get("readTextFile", False)
    assert value.client_capabilities.terminal is params["clientCapabilities"].get("terminal", False)


@table("full", [False, True])
@table("name", STRUCTS)
def test_every_object_is_written_as_the_schema_allows_and_read_again(name: str, full: bool) -> None:
    value = sample_struct(STRUCTS[name], full)
    document = written(value)
    for definition in definitions_of(STRUCTS[name]):
        validator(definition).validate(document)
    assert msgspec.convert(document, STRUCTS[name], dec_hook=decode._read_untagged) == value


@pytest.mark.parametrize("name", UNIONS)
def test_every_variant_of_a_union_is_told_from_the_others(name: str) -> None:
    for variant in members(UNIONS[name]):
        for full in (False, True):
            value = sample(variant, full)
            document = written(value)
            validator(name).validate(document)
            assert msgspec.convert(document, UNIONS[name], dec_hook=decode._read_untagged) == value


def test_absent_null_and_given_stay_apart_in_patches() -> None:
    assert written(acp.SessionInfoUpdate()) == {"sessionUpdate": "session_info_update"}
    assert written(acp.SessionInfoUpdate(title=None))["title"] is None
    read = decode_params(
        "session/update", {"sessionId": "s", "update": {"sessionUpdate": "session_info_update", "title": None}},
        "client",
    ).update  # fmt: skip
    assert read.title is None and read.updated_at is msgspec.UNSET
