"""The generated file is what the script generates from the pinned schema."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_acp_py_is_what_the_script_generates() -> None:
    for path, text in runpy.run_path(str(ROOT / "scripts" / "generate_acp.py"))["render"]().items():
        assert text == path.read_text(encoding="utf-8"), "run `make generate`"
