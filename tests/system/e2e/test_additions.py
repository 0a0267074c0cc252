"""What it takes to add a tool, and a provider: the files that CONTRIBUTING.md lists, and no others.

In a copy of the tree both are added (`added/`), the generated files are written, and what enumerates tools and
providers is run there. How many lines and short files the product may have is no part of this (`test_figures.py`,
`test_fewer_files_are_short`).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ADDED = Path(__file__).with_name("added")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = (
    "acp_agent", "docs", "kit", "schemas", "scripts", "tests", "editors/vscode/package.json",
    "editors/vscode/src/core/undoMethods.ts",
)  # fmt: skip
MOST_OF_A_TOOL, MOST_OF_A_PROVIDER = 6, 4

WHOLE = {
    "acp_agent/tools/checksum.py": "checksum.py", "acp_agent/tools/checksum.md": "checksum.md",
    "tests/tools/test_checksum.py": "checksum_in_a_turn.py", "acp_agent/llm/gateway.py": "gateway.py",
    "acp_agent/testing/fake_gateway.py": "fake_gateway.py",
}  # fmt: skip
"""New files -> their text in `added/`."""
ROWS = {
    "acp_agent/tools/kit/registry.py": [
        ("TOOLS: dict[str, str] = {\n", '    "checksum": "acp_agent.tools.checksum:Checksum",\n'),
        ('    "create_directory delete_path ', '"\n    "checksum '),
    ],
    "acp_agent/tools/user_words.toml": [('bash = "Runs a command."\n', 'checksum = "Computes a checksum."\n')],
    "acp_agent/config/wire_apis.py": [
        ("WIRE_APIS = {\n", '    "gateway": WireApi(\n        "llm.gateway:GatewayProvider", "a gateway",\n'
         '        fake="acp_agent.testing.fake_gateway:Gateway", hosts=(".gateway.example.com",),\n    ),\n'),
    ],
    "CHANGELOG.md": [("## [Unreleased]\n", "\nAdded.\n")],
}  # fmt: skip
"""Changed files -> what stands after which words."""


def section(title: str) -> str:
    return GUIDE.partition(f"### {title}\n")[2].partition("\n### ")[0]


def listed(title: str, name: str) -> list[str]:
    """The files to write by hand."""
    return [path.replace("NAME", name) for path in re.findall(r"^\d\. `(\S+)`", section(title), re.MULTILINE)]


def written(title: str, name: str) -> set[str]:
    """The files that the commands below the list write."""
    below = re.split(r"^\d\. .*\n", section(title), flags=re.MULTILINE)[-1]
    named = re.findall(r"writes ((?:`\S+`(?:, |,\n)?)+)", below)
    return {path.replace("NAME", name) for words in named for path in re.findall(r"`(\S+)`", words)}


def copied(into: Path) -> dict[str, bytes]:
    """A copy of the tree that tests run in, and what it holds."""
    command = ["git", "ls-files", "-coz", "--exclude-standard", *COPIED, "*.md", "*.toml", "Makefile"]
    tracked = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in tracked.stdout.decode().rstrip("\0").split("\0"):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, into / name, follow_symlinks=False)
    return contents(into)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if ".pytest_cache" not in path.parts}


def add(tree: Path, name: str) -> None:
    if name in WHOLE:
        shutil.copy(ADDED / WHOLE[name], tree / name)
        return
    text = (tree / name).read_text(encoding="utf-8")
    for before, row in ROWS[name]:
        assert text.count(before) == 1, (name, before)
        text = text.replace(before, before + row)
    (tree / name).write_text(text, encoding="utf-8")


def runs(tree: Path, *arguments: str, **environ: str) -> str:
    """What Python says that runs this in the tree."""
    own = tree.with_name(f"{tree.name}-own")  # Not that of other runs, which remove old folders in it.
    own.mkdir(exist_ok=True)
    about = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DEBUG_TEMPROOT": str(own)}
    about |= environ
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=tree, env=about, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def passed(tree: Path, *arguments: str, **environ: str) -> int:
    """How many tests of the tree do."""
    said = runs(tree, "-m", "pytest", "-n", "0", "-v", "-p", "no:cacheprovider", *arguments, **environ)
    return int(re.findall(r"(\d+) passed", said)[-1])


def test_a_tool_and_a_provider_are_the_files_that_are_listed(tmp_path: Path):
    before = copied(tmp_path)
    tool, provider = listed("A tool", "checksum"), listed("A provider", "gateway")
    assert 3 <= len(tool) <= MOST_OF_A_TOOL and 3 <= len(provider) <= MOST_OF_A_PROVIDER
    assert {*tool, *provider} == {*WHOLE, *ROWS}
    for name in dict.fromkeys([*tool, *provider]):
        add(tmp_path, name)
    assert runs(tmp_path, "-c", "import acp_agent; print(acp_agent.__file__)").startswith(str(tmp_path))
    runs(tmp_path, "scripts/generate.py")
    assert passed(tmp_path, "tests/llm/test_contract.py", "-k", "golden and gateway", UPDATE_GOLDEN="1") == 1
    after = contents(tmp_path)
    changed = {name for name, content in after.items() if before.get(name) != content}
    assert changed - {*tool, *provider} == written("A tool", "checksum") | written("A provider", "gateway")
    assert before.keys() <= after.keys()

    house = ("generated", "house", "limits", "ratchets")
    assert (
        passed(
            tmp_path,
            *(f"tests/house/test_{name}.py" for name in house),
            "-k",
            "not files_are_short and not page_is_built",
        )
        > 100
    )
    of_tools = ("tests/tools/test_contract.py", "tests/tools/test_deny_read.py", "tests/loop/test_offer.py")
    assert passed(tmp_path, *of_tools, "-k", "checksum or every_tool or known") > 5  # Tools are rows of a table.
    assert passed(tmp_path, "tests/tools/test_checksum.py") == 1
    of_providers = ("tests/llm/test_contract.py", "tests/llm/test_translate.py", "tests/agent/test_wire_apis.py")
    assert passed(tmp_path, *of_providers, "-k", "gateway or one_history") > 50
    choice = "from acp_agent.llm.choose import choose_api; print(choose_api('https://eu.gateway.example.com/v1'))"
    assert runs(tmp_path, "-c", choice).strip() == "gateway"


@pytest.mark.parametrize("title", ["A tool", "A provider"])
def test_every_file_that_is_listed_and_is_there_is_one_to_change(title: str):
    there = {name for name in listed(title, "NAME") if "NAME" not in name}
    assert there and there <= ROWS.keys() and all((ROOT / name).is_file() for name in there)
