"""Keeps a project's modules from standing in for Python's and the agent's."""

from __future__ import annotations

import os
import sys


def python_first() -> None:
    """What the shell's PYTHONPATH adds is looked at last: a project's `json.py` breaks no agent, and packages in it are
    still found."""
    added = {os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    if added and not sys.flags.ignore_environment:
        sys.path.sort(key=lambda each: os.path.abspath(each) in added)
