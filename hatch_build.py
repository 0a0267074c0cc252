"""Writes the commit that a wheel or source archive is built from into it, for `acp-coder --version`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Commit(BuildHookInterface[BuilderConfig]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install goes on with its checkout, so it asks that; so does an archive, which brings the file."""
        commit = os.environ.get("ACP_CODER_COMMIT") or self._head()
        if version == "editable" or not commit:
            return
        self._made = Path(tempfile.mkdtemp()) / "COMMIT"
        self._made.write_text(f"{commit}\n", encoding="utf-8")
        build_data["force_include"][str(self._made)] = "acp_agent/COMMIT"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if made := getattr(self, "_made", None):
            made.unlink()
            made.parent.rmdir()

    def _head(self) -> str:
        if not (Path(self.root) / ".git").exists():
            return ""
        try:
            asked = ["git", "-C", self.root, "rev-parse", "HEAD"]
            return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""
