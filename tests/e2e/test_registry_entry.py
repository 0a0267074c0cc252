"""What the CI of the ACP registry asks of an entry and its agent, except that its packages are published."""

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

import acp_agent
from acp_agent.testing.fake_model import FakeModel
from tests.e2e.kit import COMMAND
from tests.house.imports import ROOT

ENTRY = ROOT / "registry" / "acp-coder"
NEEDED = {"id", "name", "version", "description", "distribution"}
DRAWN = re.compile(r"(currentColor|none|inherit)", re.IGNORECASE)
INITIALIZE = {
    "protocolVersion": 1, "clientInfo": {"name": "registry", "version": "1.0.0"},
    "clientCapabilities": {
        "terminal": True, "fs": {"readTextFile": True, "writeTextFile": True},
        "_meta": {"terminal_output": True, "terminal-auth": True},
    },
}  # fmt: skip


def test_the_entry_is_complete_of_this_version_and_its_icon_small_and_of_one_colour():
    entry = json.loads((ENTRY / "agent.json").read_text())
    assert entry.keys() >= NEEDED and all(entry[name] for name in NEEDED)
    assert re.fullmatch("[a-z][a-z0-9-]*", entry["id"]) and entry["id"] == ENTRY.name
    assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"]) and entry["version"] == acp_agent.__version__
    assert entry["distribution"] == {"uvx": {"package": f"acp-coder=={acp_agent.__version__}"}}
    text = (ENTRY / "icon.svg").read_text()
    assert "<!--" not in text and "<style" not in text and "style=" not in text
    root = ElementTree.fromstring(text)
    assert (root.tag.rpartition("}")[2], root.get("width"), root.get("height")) == ("svg", "16", "16")
    drawn = [each.get(name) for each in root.iter() for name in ("fill", "stroke") if each.get(name)]
    assert "currentColor" in drawn and all(DRAWN.fullmatch(colour) for colour in drawn)


@pytest.mark.parametrize("local", [False, True])
async def test_the_handshake_offers_a_login(tmp_path: Path, local: bool):
    """In an empty home, with nothing configured and with a local model; the first line of stdout is the answer."""
    environ = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
    environ |= {"HOME": str(tmp_path), "TERM": "dumb", "ACP_CODER_KEYRING": "0"}
    async with FakeModel(()) as model:
        if local:
            environ |= {"OPENAI_BASE_URL": model.base_url, "OPENAI_MODEL": "fake-model"}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
        ran = subprocess.run(
            [COMMAND], input=line + "\n", cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60
        )
    methods = json.loads(ran.stdout.splitlines()[0])["result"]["authMethods"]
    assert methods and all(method["id"] and method["name"] for method in methods)
    assert any(method.get("type", "agent") in ("agent", "terminal") for method in methods)
