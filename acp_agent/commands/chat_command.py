"""`acp-coder` in a terminal: the chat."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from acp_agent.errors import UsageError
from acp_agent.fronts.terminal.chat_start import ChatJob, open_chat


def bare(arguments: list[str]) -> int:
    """`acp-coder` without anything."""
    return open_chat(ChatJob(Path.cwd(), dict(os.environ)))


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise UsageError(f"{cwd} is not a folder")
    model, environ = options.model, dict(environ)
    if model and options.session is None and not options.newest:
        environ["OPENAI_MODEL"] = model  # A new session starts with it, whether or not the server lists it.
    return open_chat(
        ChatJob(cwd, environ, " ".join(options.text), options.mode, model, options.session, options.newest)
    )


def is_terminal() -> bool:
    """Whether a person is on both sides."""
    return sys.stdin.isatty() and sys.stdout.isatty()
