"""What a release gets of addresses: scripts/addresses.py."""

import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.house.imports import ROOT

REPOSITORY = "https://example.com/acp-coder"
SCRIPT = ROOT / "scripts" / "addresses.py"
CHANGED = (
    "README.md", "pyproject.toml", "kit/README.md", "kit/pyproject.toml", "mkdocs.yml", "editors/vscode/package.json",
    "acp_agent/__init__.py",
)  # fmt: skip


def test_relative_links_become_whole_ones():
    whole = runpy.run_path(str(SCRIPT))["whole"]
    text = "![a [b]](docs/a.svg) [c](../docs/c.md#d) [e](#f) [g](https://h/i)"
    at = f"{REPOSITORY}/{{}}/v1"
    assert whole(text, REPOSITORY, "v1", "kit/") == (
        f"![a [b]]({at.format('raw')}/kit/docs/a.svg) [c]({at.format('blob')}/docs/c.md#d) [e](#f) [g](https://h/i)"
    )


def test_each_file_that_is_to_have_an_address_still_has_the_place_for_it(tmp_path: Path):
    for name in CHANGED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    argv = [sys.executable, str(SCRIPT), REPOSITORY, str(tmp_path)]
    subprocess.run(argv, check=True, timeout=60)
    for name in ("pyproject.toml", "kit/pyproject.toml"):
        project = tomllib.loads((tmp_path / name).read_text(encoding="utf-8"))["project"]
        assert project["urls"]["Source"] == REPOSITORY and project["scripts"]
    again = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1 and "has addresses already" in again.stderr
