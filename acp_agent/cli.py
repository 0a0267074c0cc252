"""The command line. Bare `acp-coder` speaks ACP on stdin and stdout, or opens the chat if these are a terminal; the
rest are sub-commands.

Imports only what the bare command needs, which must answer `initialize` within milliseconds.
"""

from __future__ import annotations

import os
import sys

from acp_agent.config.xdg import ensure_home
from acp_agent.lazy import load

WINDOWS = "acp-coder: it does not run on Windows itself: neither its shell nor its sandbox is there. Use it in WSL.\n"
SIGNALS = "acp_agent.executors.default_signals:default_signals"
STDIO = "acp_agent.commands.stdio:run"
PARSER = "acp_agent.commands.parser:run"
CHAT = "acp_agent.fronts.terminal.chat_start:bare"


def main(argv: list[str] | None = None) -> int:
    """The exit status."""
    if os.name == "nt":
        sys.stderr.write(WINDOWS)
        return 1
    _python_first()
    load(SIGNALS)()
    ensure_home(os.environ)
    arguments = sys.argv[1:] if argv is None else argv
    row = PARSER if arguments else CHAT if os.isatty(0) and os.isatty(1) else STDIO
    return int(load(row)(arguments))


def _python_first() -> None:
    """What the shell's PYTHONPATH adds is looked at last: a project's `json.py` breaks no agent, and packages in it are
    still found. An interpreter that ignores PYTHONHOME (`-I`) passes it to no other."""
    if sys.flags.ignore_environment:
        os.environ.pop("PYTHONHOME", None)
    added = {os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    if added and not sys.flags.ignore_environment:
        sys.path.sort(key=lambda each: os.path.abspath(each) in added)


if __name__ == "__main__":
    sys.exit(main())
