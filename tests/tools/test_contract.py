"""The contract of every tool: one suite over the whole registry."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from acp_agent.errors import ToolError
from acp_agent.safety.access import PANED, PLACE, RISK_METADATA
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Tool
from acp_agent.tools.kit.registry import TOOLS, ToolEntry
from tests.tables import table
from tests.tools.kit import REGISTRY

ENTRIES = REGISTRY.entries()
by_entry = table("entry", ENTRIES)

SOME: dict[str, dict[str, Any]] = {
    entry.name: json.loads(entry.description.partition("Examples: ")[2].split(" ; ")[0]) for entry in ENTRIES
}
"""Arguments of each tool: the first of its examples."""
STRANGE = [
    "", ".", "..", "\0", "a\0b", "\ud800", "~", "x" * 10_000, "ü\n\t", "/", "//", "file:///x", "file://", "C:\\x",
]  # fmt: skip


def test_the_table_and_the_definitions_name_the_same_tools_and_no_two_share_a_name_or_alias() -> None:
    assert [entry.name for entry in ENTRIES] == list(TOOLS)
    names = [name for entry in ENTRIES for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))


@by_entry
def test_a_tool_is_found_by_its_name_and_its_aliases(entry: ToolEntry) -> None:
    assert all(REGISTRY.find(name) is entry for name in (entry.name, *entry.aliases))
    assert REGISTRY.find("no such tool") is None and REGISTRY.find("") is None


@by_entry
def test_the_definition_is_what_the_class_says(entry: ToolEntry) -> None:
    tool = REGISTRY.tool(entry.name)
    assert isinstance(tool, Tool)
    assert REGISTRY.tool(entry.name) is tool
    assert (tool.name, tool.aliases, tool.kind, tool.reads_only) == (
        entry.name, entry.aliases, entry.kind, entry.reads_only,
    )  # fmt: skip
    # Demanded only where the user wants it; taken, but not told.
    more = {
        "bash": {*RISK_METADATA, PLACE}, "delegate": {PLACE}, "edit": {"cell"}, "grep": {"limit", "only_files"},
        "skill": {"file"},
    }  # fmt: skip
    hidden = more.get(entry.name, set()) | {*PANED.get(entry.name, {})}
    assert [name for name in tool.Params.model_fields if name not in hidden] == list(entry.parameters["properties"])


@by_entry
def test_the_schema_is_closed_described_and_valid(entry: ToolEntry) -> None:
    jsonschema_rs.validator_for(entry.parameters)
    assert entry.parameters["type"] == "object" and entry.parameters["additionalProperties"] is False
    assert "$defs" not in entry.parameters and "title" not in entry.parameters
    for name, schema in entry.parameters["properties"].items():
        assert schema.get("description"), name
        assert "title" not in schema, name
    jsonschema_rs.validate(entry.parameters, SOME[entry.name])


@by_entry
def test_guidance_is_there(entry: ToolEntry) -> None:
    for section in ("When to use:", "When not to use:", "Disambiguation:", "Examples:"):
        assert section in entry.description
    assert entry.definition.description == entry.description


@by_entry
def test_an_example_that_is_copied_names_nothing_that_is_not_there(entry: ToolEntry) -> None:
    """A small model copied `pytest -x tests/test_api.py` and `src/app.py` into its calls: placeholders instead."""
    for text in entry.description.partition("Examples: ")[2].split(" ; "):
        for name, value in json.loads(text).items():
            if name in ("path", "source", "destination", "url", "id", "run_id", "old_string", "symbol"):
                assert value in (".", "lsp") or value.startswith("<"), (entry.name, name, value)


@by_entry
def test_wrong_and_missing_arguments_are_told_by_name(entry: ToolEntry) -> None:
    tool = REGISTRY.tool(entry.name)
    first = next(iter(entry.parameters["properties"]), None)
    wrong = {} if first is None else {first: {"not": "right"}}
    with pytest.raises(ToolError, match=f"The arguments of `{entry.name}` are wrong") as error:
        tool.parse({**SOME[entry.name], **wrong, "invented": 1})
    assert error.value.category == "invalid_parameters"
    text = str(error.value)
    assert first is None or f"- {first}: " in text
    assert "- invented: " in text
    assert all(f"`{name}`" in text for name in entry.parameters["properties"])
    assert "pydantic" not in text and error.value.suggestion == "Call it again."
    assert error.value.shown and first not in error.value.shown.split()
    if required := entry.parameters.get("required", []):
        with pytest.raises(ToolError) as error:
            tool.parse({})
        assert all(f"- {name}: " in str(error.value) for name in required)


@by_entry
@table("text", STRANGE)
def test_describing_never_fails(entry: ToolEntry, text: str, tmp_path: Path) -> None:
    tool = REGISTRY.tool(entry.name)
    for name, schema in entry.parameters["properties"].items():
        if schema.get("type") != "string":
            continue
        try:
            params = tool.parse({**SOME[entry.name], name: text})
        except ToolError:
            continue
        description = tool.describe(params, Roots(tmp_path))
        assert isinstance(description.title, str)
        assert all(location.path.is_absolute() for location in description.locations)


def test_loading_all_tools_ahead_is_harmless() -> None:
    for load in REGISTRY.loaders():
        load()
    assert {REGISTRY.tool(entry.name).name for entry in ENTRIES} == set(TOOLS)
