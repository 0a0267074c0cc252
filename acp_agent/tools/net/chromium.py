"""Finds a Chromium for the tool `browser`. Loads neither Playwright nor the web client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from acp_agent.config.model import BrowserConfig
from acp_agent.own_programs import find_program

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CACHE = "~/.cache/ms-playwright"


def find_chromium(config: BrowserConfig, folders: Sequence[Path] = ()) -> str | None:
    """The program to use; empty if Playwright has its own; `None` if there is none."""
    if config.executable:
        program = os.path.expanduser(config.executable)
        return program if os.access(program, os.X_OK) else None
    for name in PROGRAMS:
        if (found := find_program(name, outside=folders)) is not None:
            return found
    cache = Path(os.path.expanduser(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or CACHE))
    return "" if any(cache.glob("chromium*")) else None


def missing_browser(config: BrowserConfig, folders: Sequence[Path] = ()) -> str | None:
    """Why there is no browser, as a sentence; `None` if there is one. Loads nothing."""
    if find_spec("playwright") is None:
        return "`browser` needs the extra: pip install 'acp-coder[browser]'."
    if find_chromium(config, folders) is None:
        return "`browser` needs a Chromium: install one, or set `tools.browser.executable`."
    return None
