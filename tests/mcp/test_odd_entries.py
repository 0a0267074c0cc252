"""What is wrong with one tool or one block of content costs only that, over each transport."""

import json
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import jsonschema_rs
import pytest
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from acp_agent.mcp.base import ServerSpec
from acp_agent.mcp.input_schema import fitted
from acp_agent.mcp.mending import mended
from tests.mcp.kit import kept, raw
from tests.mcp.test_mcp_transports import SmallServer
from tests.tables import table

OPEN = {"type": "object", "properties": {}, "additionalProperties": True}
EMPTY = {"type": "object", "properties": {}}
A = {"type": "object", "properties": {"a": {"type": "string"}}}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@table(("given", "wanted", "wrong"), [
    (None, OPEN, ["it is missing"]), ([], OPEN, ["it is not an object but []"]),
    (True, OPEN, ["it is not an object but True"]), ("object", OPEN, ["it is not an object but 'object'"]),
    ({}, EMPTY, []), ({"type": None}, EMPTY, ["type"]), ({"type": "string"}, EMPTY, ["type"]),
    ({"type": ["object", "null"]}, EMPTY, []), ({"properties": {"a": {"type": "string"}}}, A, []),
    ({"type": "object", "properties": None}, EMPTY, ["properties"]), (of(a=True, b=False), of(a={}), []),
    (of(a=None, b="string", c=["x"], d={}), of(a={}, b={}, c={}, d={}), [f"properties/{name}" for name in "abc"]),
    (of(a={"type": "str"}), of(a={}), ["properties/a/type"]), (of(a={"type": 7}), of(a={}), ["properties/a/type"]),
    (of(a={"type": []}), of(a={}), ["properties/a/type"]), (of(a={"enum": "x"}), of(a={}), ["properties/a/enum"]),
    (of(a={"required": True}), of(a={}), ["properties/a/required"]),
    ({**A, "required": "a"}, A, ["required"]), ({**A, "required": None}, A, ["required"]),
    ({**A, "required": ["a", 1]}, A, ["required"]), ({**A, "required": ["a"]}, {**A, "required": ["a"]}, []),
    (of(a={"$ref": "#/$defs/A"}), of(a={}), ["properties/a/$ref"]),
    (of(a={"$ref": "https://example.com/a"}), of(a={}), ["properties/a/$ref"]),
    (of(a={"$ref": "#/properties/b"}, b={}), of(a={"$ref": "#/properties/b"}, b={}), []),
    (of(a={"$ref": "#"}), of(a={"$ref": "#"}), []),
    ({**of(a={"$ref": "#/$defs/N"}), "$defs": {"N": False}},
     {**of(a={"$ref": "#/$defs/N"}), "$defs": {"N": {"not": {}}}}, []),
    (of(a={"type": "array", "items": [{}, 1]}), of(a={"type": "array", "prefixItems": [{}, {}]}),
     ["properties/a/items/1"]),
    (of(a={"type": "array", "items": "string"}), of(a={"type": "array"}), ["properties/a/items"]),
    (of(a={"anyOf": [True, {"type": "x"}]}), of(a={"anyOf": [{}, {}]}), ["properties/a/anyOf/1/type"]),
    (of(a={"anyOf": []}), of(a={}), ["properties/a/anyOf"]),
    (of(a={"minimum": "1"}), of(a={}), ["properties/a/minimum"]),
    (of(a={"exclusiveMinimum": True}), of(a={}), ["properties/a/exclusiveMinimum"]),
    (of(a={"maxLength": -1}), of(a={}), ["properties/a/maxLength"]),
    (of(type={"default": {"type": 7}, "const": None}), of(type={"default": {"type": 7}, "const": None}), []),
    ({"$schema": 4, "title": [], **A}, A, ["$schema", "title"]),
    ({"anyOf": [A, {"required": ["b"], **of(b={})}]}, of(a={"type": "string"}, b={}), []),
    ({"$ref": "#/$defs/X", "$defs": {"X": A}}, {**A, "$defs": {"X": A}}, []),
])  # fmt: skip
def test_a_schema_keeps_what_is_valid_in_it(given, wanted, wrong):
    made, told = fitted(given)
    assert (made, told) == (wanted, wrong)
    jsonschema_rs.validator_for(made)
    assert fitted(made) == (made, [])


TOOLS: list[Any] = [
    {"name": "first", "inputSchema": A, "description": "Does it."},
    {"name": "missing"}, {"name": "null", "inputSchema": None}, {"name": "list", "inputSchema": [1]},
    {"name": "yes", "inputSchema": True}, {"name": "typeless", "inputSchema": {"properties": {"a": {}}}},
    {"name": "ref", "inputSchema": of(a={"$ref": "#/$defs/none"}, b={"type": "string"})},
    {"name": "wrong", "inputSchema": {"type": "object", "properties": [], "required": "a", "$schema": 7}},
    {"name": "odd", "description": 7, "title": [], "icons": "x", "annotations": {"readOnlyHint": "yes", "title": 1},
     "_meta": 1, "execution": "now", "outputSchema": [], "inputSchema": {"type": "object"}},
    {"name": "output", "outputSchema": {"type": "object", "properties": 3}, "inputSchema": A},
    {"name": "array", "outputSchema": {"type": "array"}, "inputSchema": A},
    {"description": "nameless"}, {"name": 7, "inputSchema": {}}, "text", None,
    {"name": "returns", "inputSchema": {"type": "object", "additionalProperties": True}},
]  # fmt: skip

UNTYPED, SHOWN = "[content without a type cannot be shown]", "cannot be shown]"
BLOCKS: list[tuple[Any, str]] = [
    ({"type": "text", "text": "good"}, "good"), ({"type": "chart", "data": []}, f"[content of type chart {SHOWN}"),
    ({"text": "no type"}, "no type"), ({}, UNTYPED), ({"type": 7, "text": "x"}, f"[content of type 7 {SHOWN}"),
    (None, UNTYPED), ("bare", "bare"), ({"type": "text"}, f"[content of type text {SHOWN}"),
    ({"type": "text", "text": {"a": 1}}, f"[content of type text {SHOWN}"),
    ({"type": "image", "mimeType": "image/png"}, f"[content of type image {SHOWN}"),
    ({"type": "image", "data": "eA=="}, f"[content of type image {SHOWN}"),
    ({"type": "resource"}, f"[content of type resource {SHOWN}"),
    ({"type": "resource", "resource": {"uri": "x:y"}}, f"[content of type resource {SHOWN}"),
    ({"type": "resource_link", "name": "n"}, f"[content of type resource_link {SHOWN}"),
    ({"type": "text", "text": "noted", "annotations": {"priority": 9}, "_meta": []}, "noted"),
]  # fmt: skip

RESULTS: list[tuple[Any, str]] = [
    ({"content": "bare"}, "bare"), ({"content": {"type": "text", "text": "one"}}, "one"), ({"content": None}, ""),
    ({}, ""), ({"structuredContent": {"a": 1}}, '{"a": 1}'), ({"structuredContent": [1]}, "[1]"),
    ({"content": [{"type": "text", "text": "x"}], "isError": "false", "_meta": 3}, "x"),
]  # fmt: skip


@asynccontextmanager
async def over(transport: str):
    if transport == "stdio":
        yield raw(json.dumps(TOOLS))
        return
    server = SmallServer()
    server.tools = TOOLS
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield ServerSpec("raw", "http", url=f"http://127.0.0.1:{port}/mcp")
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_one_odd_tool_or_block_costs_only_itself(transport):
    async with over(transport) as spec, kept(spec) as k:
        tools = {tool.name: tool for tool in k.servers.tools()}
        assert list(tools) == [
            tool["name"] for tool in TOOLS if isinstance(tool, dict) and type(tool.get("name")) is str
        ]
        assert (tools["first"].parameters, tools["first"].description) == (A, "Does it.")
        assert tools["ref"].parameters == of(a={}, b={"type": "string"})
        assert tools["missing"].description == "(What is not valid in its schema is left out: it is missing.)"
        assert tools["wrong"].description.endswith("left out: properties, required, $schema.)")
        assert (tools["odd"].description, tools["odd"].read_only_hint, tools["odd"].output) == ("", None, None)
        ((_, words),) = k.troubles
        assert words.startswith(
            "The MCP server raw: the schema of its tool `missing` is not valid (it is missing); the schema of its tool"
        )
        assert words.endswith("; and 6 more (`/mcp log`).")
        log = k.servers.log("raw")
        assert "one of its tools is not valid and left out: 7" in log
        assert "not all that it says of `odd` is valid" in log
        result = await k.call("raw", "returns", {"result": {"content": [block for block, _ in BLOCKS]}})
        assert result.text == "\n".join(text for _, text in BLOCKS)
        for given, text in RESULTS:
            result = await k.call("raw", "returns", {"result": given})
            assert (result.text, result.is_error) == (text, False), given
        assert len(k.troubles) == 1


async def test_a_list_that_is_too_long_is_said_to_be_cut(monkeypatch):
    monkeypatch.setattr("acp_agent.mcp.mcp_client.ENTRIES", 2)
    async with over("stdio") as spec, kept(spec) as k:
        assert len(k.servers.tools()) == 2
        assert "only the first 2 of its tools are taken" in k.servers.log("raw")


@table(("method", "given", "wanted"), [
    ("tools/list", {"tools": None}, {"tools": []}),
    ("tools/list", {"tools": [], "nextCursor": 7, "_meta": "x"}, {"tools": []}),
    ("prompts/list", {"prompts": [{}, {"name": "p", "arguments": [3]}]}, {"prompts": [{"name": "p"}]}),
    ("prompts/get", {"messages": ["x", {"role": "user", "content": {"type": "z"}}]},
     {"messages": [{"role": "user", "content": {"type": "text", "text": text}}
                   for text in (UNTYPED, f"[content of type z {SHOWN}")]}),
    ("resources/list", {"resources": [{"name": "n"}, {"name": "x", "uri": "x:y", "size": "big"}]},
     {"resources": [{"name": "x", "uri": "x:y"}]}),
    ("resources/read", {"contents": [{"uri": "x:y", "text": "a"}, {"uri": "x:z"}]},
     {"contents": [{"uri": "x:y", "text": "a"}, {"uri": "x:z", "text": UNTYPED}]}),
    ("initialize", {"tools": 1}, {"tools": 1}),
    ("tools/call", {"resultType": "input_required"}, {"resultType": "input_required"}),
])  # fmt: skip
def test_other_results_are_mended_as_well(method, given, wanted):
    made = mended(method, LATEST_HANDSHAKE_VERSION, given, lambda words: None)
    if method not in ("initialize", "tools/call", "prompts/get"):
        wanted = {**wanted, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert made == wanted


async def test_a_list_counts_whatever_its_server_says_of_how_long_it_holds():
    """`ttlMs` of 2026-07-28: what is no number of milliseconds says nothing."""
    for odd in ({}, {"ttlMs": None}, {"ttlMs": -1}, {"ttlMs": "60 s"}, {"ttlMs": 1.5}, {"cacheScope": 7}):
        found = mended("tools/list", LATEST_MODERN_VERSION, {"tools": [TOOLS[0]], **odd}, lambda _: None)
        assert len(found["tools"]) == 1 and (found["ttlMs"], found["cacheScope"]) == (0, "private")
    for more in ('{"ttlMs": -1}', '{"ttlMs": "60 s"}', f'{{"ttlMs": 1{"0" * 400}}}'):
        async with kept(raw(more)) as k:
            assert k.names == ["echo"] and not k.troubles
