"""The kit as a distribution: what it takes along of the agent, what it needs, and how names in it are rewritten."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from hatch_wire import AGENT, KIT, contents, reached, rewritten

from .imports import ROOT, parsed

TAKEN = {
    "__init__.py", "child.py", "client", "config", "errors.py", "executors", "lazy.py", "limits", "own_programs.py",
    "protocol", "schema", "testing",
}  # fmt: skip
"""What it has of the agent, by the first part of the path."""


def test_the_kit_takes_along_the_wire_and_little_else():
    files = [file for file in reached(ROOT) if file.is_relative_to(ROOT / AGENT)]
    assert {file.relative_to(ROOT / AGENT).parts[0] for file in files} == TAKEN
    assert [file.stem for file in files if file.parent.name == "executors"] == ["__init__", "default_signals"]
    assert [file.stem for file in files if file.parent.name == "config"] == ["__init__", "wire_apis"]
    lines = sum(file.read_text(encoding="utf-8").count("\n") for file in files)
    sys.stdout.write(f"modules of the agent in the kit: {len(files)}, lines: {lines}\n")
    assert len(files) < 40 and lines < 7_100


def test_the_kit_declares_what_it_imports_with_the_versions_of_the_agent():
    """pytest is there where the tests of the kit are run by it."""
    imported = set()
    for file in reached(ROOT):
        for node in ast.walk(parsed(file)):
            match node:
                case ast.Import(names=names):
                    imported |= {each.name for each in names}
                case ast.ImportFrom(module=str(module)):
                    imported.add(module)
                case ast.Call(func=ast.Name(id="load"), args=[ast.Constant(value=str(row)), *_]):
                    imported.add(row.partition(":")[0])
    tops = {name.partition(".")[0] for name in imported} - {*sys.stdlib_module_names, AGENT, KIT, "pytest"}
    found = {distribution for top in tops for distribution in packages_distributions()[top]}
    asked = tomllib.loads((ROOT / "kit" / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {_name(each) for each in asked} == {_name(each) for each in found}
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {*asked} <= {*ours["project"]["dependencies"], *ours["dependency-groups"]["dev"]}


def _name(asked: str) -> str:
    return re.split(r"[<>=\[ ]", asked)[0].lower().replace("_", "-")


def test_nothing_of_what_is_built_names_the_agent_outside_of_texts():
    for name, content in contents(ROOT).items():
        for node in ast.walk(ast.parse(content)) if name.endswith(".py") else ():
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert f"import {AGENT}" not in ast.unparse(node) and f"from {AGENT}" not in ast.unparse(node), name
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.fullmatch(rf"{AGENT}(\.\w+)+(:\w+)?|{AGENT}:\w+", node.value), name


@pytest.mark.parametrize(("source", "becomes"), [
    ("from acp_agent import __version__\n", "from acp_conformance._wire import __version__\n"),
    ("if x:\n    from acp_agent.a import (\n        acp_agent,\n    )\n",
     "if x:\n    from acp_conformance._wire.a import (\n        acp_agent,\n    )\n"),
    ('"""ü"""; A, B = "acp_agent.a:b", load("acp_agent:c")\n',
     '"""ü"""; A, B = "acp_conformance._wire.a:b", load("acp_conformance._wire:c")\n'),
    ("import acp_agents.a\nfrom acp_agent_x import y\nZ = 'acp_agent.a', 'acp_agents:b'\n",
     "import acp_agents.a\nfrom acp_agent_x import y\nZ = 'acp_agent.a', 'acp_agents:b'\n"),
    ('"""`acp_agent.a:b`\nfrom acp_agent import x\n"""\n', '"""`acp_agent.a:b`\nfrom acp_agent import x\n"""\n'),
])  # fmt: skip
def test_imports_and_rows_are_rewritten_and_nothing_else(source: str, becomes: str):
    assert rewritten(source, "m.py") == becomes


def test_an_import_that_binds_the_name_is_refused():
    with pytest.raises(ValueError, match="m.py:2: write `from acp_agent import"):
        rewritten("import ast\nimport acp_agent.errors\n", "m.py")


def test_the_kit_is_licensed_as_the_agent_is_and_its_page_is_short():
    assert (ROOT / "kit" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (ROOT / "kit" / "README.md").read_text(encoding="utf-8").count("\n") <= 60
