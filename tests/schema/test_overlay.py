"""What is added to the pinned schema for what became stable since: its requirements, their source, and how sure."""

import json
from collections.abc import Iterator
from typing import Any

from acp_agent.schema import acp
from acp_agent.testing.checks import with_drafts
from acp_conformance.requirements import requirements
from acp_conformance.v2.v2_wire import schema
from tests.house.imports import ROOT

PINNED = ROOT / "schemas" / "acp-v1.schema.json"
OVERLAY: dict[str, Any] = json.loads((ROOT / "schemas" / "acp-v1-1.34.overlay.json").read_text(encoding="utf-8"))


def additions() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from OVERLAY["$defs"].items()
    for of, properties in OVERLAY["properties"].items():
        yield from ((f"{of}.{name}", each) for name, each in properties.items())
    for of, variants in OVERLAY["variants"].items():
        yield from ((of, each) for each in variants)


def test_each_addition_names_requirements_and_each_of_these_its_source_and_how_sure_it_is() -> None:
    named = {row for _, each in additions() for row in each["x-rows"]}
    assert all(each["x-rows"] for _, each in additions())
    assert named == OVERLAY["rows"].keys() <= requirements().keys()
    assert {(bool(row["source"]), row["sure"] in ("yes", "old")) for row in OVERLAY["rows"].values()} == {(True, True)}


def test_it_says_nothing_that_the_pin_says() -> None:
    """So that it goes with the next pin."""
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))["$defs"]
    assert not OVERLAY["$defs"].keys() & pinned.keys()
    assert not [
        name for of, each in OVERLAY["properties"].items() for name in each.keys() & pinned[of]["properties"].keys()
    ]


def test_generator_kit_and_fakes_read_it() -> None:
    assert "systemPrompt" in with_drafts(PINNED)["$defs"]["NewSessionRequest"]["properties"]
    assert "system_prompt" in acp.NewSessionRequest.__struct_fields__


def test_the_overlay_of_v2_names_its_rows_and_takes_the_rest_from_v1() -> None:
    text = (ROOT / "schemas" / "acp-v2-preview.overlay.json").read_text(encoding="utf-8")
    overlay = json.loads(text)
    pinned = json.loads((ROOT / "schemas" / "acp-v2.schema.json").read_text(encoding="utf-8"))["$defs"]
    shared = overlay["from_v1"]
    parts = [*overlay["$defs"].values(), *overlay["properties"]["PromptRequest"].values(), shared]
    parts += overlay["variants"]["SessionUpdate"]
    assert {row for part in parts for row in part["x-rows"]} == overlay["rows"].keys() <= requirements().keys()
    assert {row["sure"] for row in overlay["rows"].values()} == {"yes"}
    assert set(shared["$defs"]) <= OVERLAY["$defs"].keys() and not set(shared["$defs"]) & pinned.keys()
    assert {"replay_complete", "plan_removed"} <= schema()[1].keys()
