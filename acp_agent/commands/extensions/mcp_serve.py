"""`acp-coder mcp serve`: the agent as an MCP server on stdio."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from acp_agent.errors import UsageError
from acp_agent.lazy import load

SERVE = "acp_agent.fronts.mcp_front:serve"


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """0. Raises UsageError for a folder that is not there."""
    folders = [Path(folder).absolute() for folder in options.folder or ["."]]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--folder: {folder} is not an existing folder")
    load(SERVE)(folders, environ, options.mode)
    return 0
