"""docs/acp.md has a row for every method and update of the schema of ACP v1, of the drafts served, and of ours."""

import json
from typing import Any

from acp_agent.agent import Agent
from acp_agent.schema import acp, lsp_types
from tests.house.imports import ROOT

STABLE: dict[str, Any] = json.loads((ROOT / "schemas" / "acp-v1.schema.json").read_text())["$defs"]
DRAFTS, SINCE = (
    json.loads((ROOT / "schemas" / name).read_text())
    for name in ("acp-v1-drafts.schema.json", "acp-v1-1.34.overlay.json")
)


def rows(section: str = "") -> dict[str, list[str]]:
    """Name -> the row's other cells: v1, since, ours, v2, ours in v2, clients."""
    text = (ROOT / "docs" / "acp.md").read_text(encoding="utf-8")
    lines = text.partition(f"## {section}")[2].partition("\n## " if section else "\0")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    names = [name.strip("`") for name, *_ in cells if name != "`sessionUpdate`"]
    assert len(set(names)) == len(names) and {len(row) for row in cells} == {7}
    return {row[0].strip("`"): row[1:] for row in cells}


def methods(definitions: dict[str, Any]) -> set[str]:
    return {definition["x-method"] for definition in definitions.values() if "x-method" in definition}


def updates(variants: list[Any]) -> set[str]:
    return {each["properties"]["sessionUpdate"]["const"] for each in variants}


def test_the_page_has_what_the_schemas_have_and_says_what_is_served():
    found = rows()
    stable = methods(STABLE) | updates([*STABLE["SessionUpdate"]["oneOf"], *SINCE["variants"]["SessionUpdate"]])
    drafts = methods(DRAFTS["$defs"]) | updates(DRAFTS["variants"].get("SessionUpdate", []))
    assert {name for name, row in found.items() if row[0] == "stable"} == stable
    assert drafts <= {name for name, row in found.items() if row[0] == "draft"}
    assert all(found[name][1] for name in stable)  # Since when.
    served = {"initialize", "session/cancel", *Agent()._methods, *acp.PROTOCOL_METHODS, *lsp_types.NOTIFICATIONS}
    assert {name for name, row in rows("Asked of the agent").items() if not row[2].startswith("no")} == served
    assert {*acp.CLIENT_METHODS, *lsp_types.METHODS} == rows("Asked of the client").keys()
