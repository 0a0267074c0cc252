"""docs/figures.md is what scripts/compare.py makes, of the agents that scripts/install_agents.sh installs."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "figures.md"


def compare(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location("compare", ROOT / "scripts" / "compare.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["compare"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "compare")
    return module


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_has_each_figure_of_each_agent_in_its_pinned_version(monkeypatch):
    of = compare(monkeypatch)
    installed = (ROOT / "scripts" / "install_agents.sh").read_text(encoding="utf-8")
    pinned = {name: re.search(rf"{name}=[^\n]*@([\d.]+)\"?\n", installed) for name in of.PROGRAMS}
    assert all(pinned.values())
    head, _, *figures = rows()
    assert re.fullmatch(r"acp-coder \d+\.\d+\.\d+", head[1])  # Of when it was run: docs/releasing.md.
    assert head[2:] == [f"{name} {found[1]}" for name, found in pinned.items() if found]
    assert [row[0] for row in figures] == list(of.FIGURES.values())
    assert all(re.fullmatch(r"failed|[\d.,]+( – [\d.,]+)?", cell) for row in figures for cell in row[1:])
    assert not any(row[1] == "failed" for row in figures)


def test_a_cell_has_the_spread_of_its_runs(monkeypatch):
    of = compare(monkeypatch)
    assert of.shown([2311.4, 1200.0]) == "1,200 – 2,311"
    assert of.shown([0.514, 0.511]) == "0.51"
    assert of.shown([1.0, "failed"]) == "failed"


def test_the_scripted_model_answers_the_newest_task(monkeypatch, tmp_path):
    of = compare(monkeypatch)
    monkeypatch.setenv("COMPARE_CALL", '["bash", {"command": "true"}]')
    answer = of.answers(tmp_path / "told", "bash")
    tools = [{"name": "bash"}]
    said = {"role": "user", "content": "[[burst 7]]"}
    assert answer({"messages": [said]}).text == "A title"  # Beside a turn: no tools, and nothing is written down.
    assert not (tmp_path / "told").exists()
    assert answer({"tools": tools, "messages": [said]}).deltas == 7
    rounds = [said, {"role": "user", "content": "[[rounds 2]]"}]
    assert answer({"tools": tools, "messages": rounds}).tool_calls[0].name == "bash"
    assert answer({"tools": tools, "messages": [*rounds, {"role": "tool"}]}).tool_calls
    assert answer({"tools": tools, "messages": [*rounds, {"role": "tool"}, {"role": "tool"}]}).text == "Done."
    assert len((tmp_path / "told").read_text().split()) == 4
