"""Generated files match their sources, and the sources contain what they must."""

import runpy
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from acp_agent.config.model import Settings
from acp_agent.fronts.server.page import FILES
from acp_agent.output.envelope import ShellOutput
from acp_agent.tools.kit.registry import TOOLS
from tests.page_sources import stale_sources

ROOT = Path(__file__).resolve().parents[2]


def guidance(name: str) -> str:
    """The text of a tool for the model, as it lies besides its module."""
    *folders, _ = TOOLS[name].partition(":")[0].split(".")
    return ROOT.joinpath(*folders, f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "generate.py"))


def test_every_generated_file_is_fresh(script: dict[str, Any]) -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in script["render_all"]().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run `make generate`"


def test_the_page_is_built_from_its_sources() -> None:
    assert stale_sources() == [], "run `make page`"
    noted = (ROOT / "editors/vscode/page.sha256").read_text(encoding="utf-8")
    assert all(f"/fronts/server/static/{name}\n" in noted for name, _ in FILES.values())


@pytest.mark.parametrize("name", TOOLS)
def test_the_guidance_of_every_tool_has_the_four_sections_in_order(name: str, script: dict[str, Any]) -> None:
    lines = guidance(name).splitlines()
    places = [
        next((number for number, line in enumerate(lines) if line.startswith(section)), None)
        for section in script["SECTIONS"]
    ]
    assert None not in places, dict(zip(script["SECTIONS"], places, strict=True))
    assert places == sorted(place for place in places if place is not None)
    assert lines[0] and not lines[0].startswith(script["SECTIONS"]), "the first line says what the tool does"


@pytest.mark.parametrize("name", TOOLS)
def test_the_examples_of_every_tool_are_valid_arguments_of_it(name: str) -> None:
    schema = msgspec.json.decode((ROOT / "schemas" / "tool-parameters.schema.json").read_bytes())
    examples = guidance(name).partition("Examples:")[2].split(" ; ")
    assert len(examples) >= 1
    for example in examples:
        jsonschema_rs.validate(schema, {name: msgspec.json.decode(example.strip())})


@pytest.mark.parametrize("name", ["config", "shell-output-envelope", "tool-parameters", "acp-v1", "undo"])
def test_every_published_schema_is_a_json_schema(name: str) -> None:
    jsonschema_rs.validator_for(msgspec.json.decode((ROOT / "schemas" / f"{name}.schema.json").read_bytes()))


def test_the_defaults_of_the_configuration_satisfy_its_schema() -> None:
    schema = msgspec.json.decode((ROOT / "schemas" / "config.schema.json").read_bytes())
    jsonschema_rs.validate(schema, msgspec.to_builtins(Settings()))


def test_a_shell_envelope_satisfies_its_schema() -> None:
    schema = msgspec.json.decode((ROOT / "schemas" / "shell-output-envelope.schema.json").read_bytes())
    jsonschema_rs.validate(schema, ShellOutput("a", "b", None, False).as_json())
