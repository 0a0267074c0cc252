"""What Zed installs the agent from: the archive runs, and manifest and registry entry match it."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import acp_agent
from tests.e2e.kit import environ

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://example.com/acp-coder"
ARCHIVES = f"{REPOSITORY}/releases/v{acp_agent.__version__}"
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


def test_the_archive_runs_and_is_named_by_manifest_and_registry_entry(tmp_path):
    out = tmp_path / "out"
    subprocess.run(
        ["bash", str(ROOT / "scripts" / "make_release.sh"), REPOSITORY, ARCHIVES, str(out)],
        env={**os.environ, "PYTHON": sys.executable}, check=True, timeout=240,
    )  # fmt: skip
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "installed", filter="data")
    done = subprocess.run(
        [str(tmp_path / "installed" / "acp-coder")], input=json.dumps(INITIALIZE).encode() + b"\n",
        capture_output=True, env={**environ(tmp_path), "ACP_CODER_PYTHON": sys.executable}, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["result"]["agentInfo"]["version"] == acp_agent.__version__

    (row,) = tomllib.loads((out / "extension" / "extension.toml").read_text())["agent_servers"].values()
    ((target, place),) = row["targets"].items()
    assert re.fullmatch(r"(linux|darwin|windows)-(x86_64|aarch64)", target)
    assert place["archive"] == f"{ARCHIVES}/{archive.name}" and place["cmd"] == "./acp-coder"
    assert place["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (out / "extension" / row["icon"]).is_file()

    entry = json.loads((out / "registry" / "acp-coder" / "agent.json").read_text())
    assert entry["distribution"]["binary"][target] == place
    assert (out / "registry" / "acp-coder" / "icon.svg").is_file()
