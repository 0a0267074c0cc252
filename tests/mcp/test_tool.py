"""A server's tool as one of our tools: all steps of a call, on a real server and on fake ones."""

import json
from typing import Any

import jsonschema_rs
import pytest

from acp_agent.errors import ToolError
from acp_agent.llm.base import ImagePart
from acp_agent.mcp.base import TOOL_CATEGORIES, McpError, McpResult, McpTool
from acp_agent.mcp.output_schema import LARGEST
from acp_agent.safety.access import Ask, Deny, ToolAccess
from acp_agent.safety.deciding.decide import decide
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.mcp_tool import LARGEST_SCHEMA, ServerTool, server_tools
from acp_agent.tools.kit.tool_context import Preview
from tests.tools.kit import bench

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}


LIMITS = (0.0, 15.0)


class Ended:
    """A call that has ended."""

    def __init__(self, result: McpResult | McpError) -> None:
        self._result = result

    async def over(self, limit: float) -> bool:
        return True

    async def result(self, limit: float, waited: float = 0.0) -> McpResult:
        if isinstance(self._result, McpError):
            raise self._result
        return self._result

    def cancel(self) -> None: ...


async def start(server: str, name: str, arguments: Any, progress: Any) -> Any:
    return Ended(McpResult(json.dumps([server, name, arguments])))


def made(tool: McpTool, result: McpResult | McpError | None = None) -> ServerTool:
    async def other(server: str, name: str, arguments: Any, progress: Any) -> Any:
        return Ended(result or McpResult(""))

    return ServerTool("mcp_s_t", tool, start if result is None else other, LIMITS)


def tool(name: str = "t", server: str = "s", schema: dict[str, Any] = SCHEMA, **changed: Any) -> McpTool:
    return McpTool(server, name, "", "Does it.", schema, **changed)


async def run(tool: ServerTool, tmp_path, **arguments: Any):
    async with bench(tmp_path) as b:
        params = tool.parse(arguments)
        tool.describe(params, b.ctx.roots)
        b.accesses(tool, params)
        return await tool.run(params, b.ctx, Preview())


async def test_the_tools_of_a_real_server_go_the_whole_way(server, tmp_path):
    tools = {
        entry.name: (entry, tool) for entry, tool in server_tools(server.servers.tools(), server.servers.start, LIMITS)
    }
    entry, echo = tools["mcp_raw_echo"]
    assert (echo.name, echo.kind, entry.kind, entry.reads_only, entry.core) == (
        "mcp_raw_echo", "other", "other", False, False,
    )  # fmt: skip
    assert entry.description == "Does echo.\n(Tool `echo` of the MCP server raw.)"
    assert (await run(echo, tmp_path, x=1)).text == '{"x": 1}'
    mixed = await run(tools["mcp_raw_mixed"][1], tmp_path)
    assert [type(part) for part in mixed.parts] == [ImagePart] and mixed.content is not None
    assert [type(block.content).__name__ for block in mixed.content] == ["TextContent", "ImageContent", "ResourceLink"]
    assert mixed.content[2].content.uri == "file:///b.txt"
    assert (await run(tools["mcp_raw_fails"][1], tmp_path)).failed
    assert (await run(tools["mcp_raw_structured"][1], tmp_path)).raw_output == {"answer": 42}
    with pytest.raises(ToolError, match="The tool `error` of the MCP server raw failed: as you wished") as error:
        await run(tools["mcp_raw_error"][1], tmp_path, code=-32602)
    assert error.value.category == "invalid_parameters"


@pytest.mark.parametrize("code", TOOL_CATEGORIES)
async def test_every_code_becomes_its_category(code, tmp_path):
    with pytest.raises(ToolError) as error:
        await run(made(tool(), McpError(code, "why", retry_after=3.0)), tmp_path, a="x")
    assert (error.value.category, error.value.retry_after) == (TOOL_CATEGORIES[code], 3.0)


def test_missing_arguments_are_told_by_name():
    with pytest.raises(ToolError, match="- a: is required") as error:
        made(tool()).parse({"b": 1})
    assert error.value.category == "invalid_parameters" and "`a`, `b`" in str(error.value)
    assert made(tool()).parse({"a": "x", "model_config": 1, "_": 2}).arguments["model_config"] == 1


@pytest.mark.parametrize(("arguments", "title"), [
    ({}, "s: t"), ({"a": "x", "b": [1]}, "s: t (a=x, b=[1])"),
    ({"a": "line\nline \x1b[31mred"}, "s: t (a=line line red)"), ({"a": "x" * 100}, f"s: t (a={'x' * 39}…)"),
    ({"a": "\ud800"}, "s: t (a=?)"),
])  # fmt: skip
def test_a_title_is_one_short_line(arguments, title, tmp_path):
    t = made(tool(schema={"type": "object"}))
    assert t.describe(t.parse(arguments), Roots(tmp_path)).title == title


async def test_every_call_is_asked_about_whatever_the_server_claims(tmp_path):
    async with bench(tmp_path) as b:
        t = made(tool(read_only_hint=True))
        (access,) = b.accesses(t, t.parse({"a": ""}))
        assert access == ToolAccess("mcp s t", "calls of `t` of the server s", changes=True)
        assert isinstance(decide([access], b.ctx.roots, mode="code", may_change=True), Ask)
        assert isinstance(decide([access], b.ctx.roots, mode="ask", may_change=False), Deny)
    pairs = [("a b", "c"), ("a", "b c"), ("a", "b/c"), ("a/b", "c"), ("a%20b", "c")]
    async with bench(tmp_path) as b:
        tools = [made(tool(name, server)) for server, name in pairs]
        scopes = {access.scope for t in tools for access in b.accesses(t, t.parse({"a": ""}))}
    assert len(scopes) == len(pairs)


@pytest.mark.parametrize(("schema", "parameters"), [
    (SCHEMA, SCHEMA), ({"type": "object"}, {"type": "object", "properties": {}}),
    ({"type": "string"}, {"type": "string"} | {"type": "object", "properties": {}}),
    (
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "null"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "null"}}},
    ),
])  # fmt: skip
def test_a_schema_is_passed_on_as_an_object(schema, parameters):
    ((entry, _),) = server_tools([tool(schema=schema)], start, LIMITS)
    assert entry.parameters == parameters
    jsonschema_rs.validator_for(entry.parameters)


def test_large_schemas_are_named_instead_and_tools_of_one_name_have_two():
    large = {"type": "object", "properties": {"first": {"description": "x" * LARGEST_SCHEMA}, "second": {}}}
    ((entry, _),) = server_tools([tool(schema=large)], start, LIMITS)
    assert entry.parameters == {"type": "object", "properties": {}, "additionalProperties": True}
    assert "Its parameters: first, second." in entry.description
    pairs = server_tools([tool(server="a.b"), tool(server="a_b")], start, LIMITS)
    assert len({entry.name for entry, _ in pairs}) == 2 and all(entry.name == t.name for entry, t in pairs)


OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(("schema", "value", "told"), [
    (OUTPUT, {"n": 1}, ""), (OUTPUT, {"n": "x"}, "n: 'x' is not of type 'integer'"),
    (OUTPUT, {}, "'n' is a required property"), ({"type": "nothing"}, {}, "the schema is not valid"),
    ({"$ref": "https://example.com/schema"}, {}, "the schema is not valid"),
    ({"$schema": "http://["}, {}, "the schema is not valid"), ({"$schema": []}, {}, "the schema is not valid"),
    ({"properties": {"n": {"multipleOf": 0.1}}}, {"n": 10**400}, ""),
    ({"properties": {"n": {"pattern": "(a+)+$"}}}, {"n": "a" * 60 + "b"}, ""),
    ({"patternProperties": {"(a+)+$": False}, "additionalProperties": False}, {"a" * 60 + "b": 1}, ""),
    (OUTPUT, {"n": "x" * LARGEST}, ""),
])  # fmt: skip
async def test_structured_content_that_is_not_as_its_schema_says_is_passed_on_and_told(schema, value, told, tmp_path):
    done = await run(made(tool(output=schema), McpResult("ok", structured=value)), tmp_path, a="x")
    assert (done.raw_output, done.failed) == (value, False)
    assert done.text == "ok" or told in done.text
    assert ("output schema says" in done.text) == bool(told)
