"""Writes what Zed and the ACP registry install from, for all archives of the agent in a folder.

Usage: name_archives.py REPOSITORY ARCHIVES OUT (addresses of the repository and of the folder that the archives will be
found in; the folder that holds them and is written to)."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

ARCHIVE = re.compile(r"acp-coder-\d[\w.]*-(?P<target>(?:linux|darwin|windows)-\w+)\.tar\.gz")
ROOT = Path(__file__).parents[1]


def main(repository: str, archives: str, folder: str) -> None:
    out = Path(folder)
    found = {match["target"]: file for file in sorted(out.iterdir()) if (match := ARCHIVE.fullmatch(file.name))}
    targets = {
        target: {
            "archive": f"{archives.rstrip('/')}/{file.name}",
            "cmd": "./acp-coder",
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for target, file in found.items()
    }
    if not targets:
        sys.exit(f"{out} holds no archive of the agent: scripts/make_release.sh makes one")
    zed, listed = ROOT / "editors" / "zed", ROOT / "registry" / "acp-coder"
    manifest = (zed / "extension.toml").read_text().replace("{{repository}}", repository)
    for target, entry in targets.items():
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
        manifest += f"\n[agent_servers.acp-coder.targets.{target}]\n{lines}"
    agent = json.loads((listed / "agent.json").read_text())
    agent["repository"] = repository
    agent["distribution"]["binary"] = targets
    written = {
        "extension/extension.toml": manifest,
        "extension/icons/acp-coder.svg": (zed / "icons" / "acp-coder.svg").read_text(),
        "registry/acp-coder/agent.json": json.dumps(agent, indent=2) + "\n",
        "registry/acp-coder/icon.svg": (listed / "icon.svg").read_text(),
    }
    for name, text in written.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)


main(*sys.argv[1:])
