"""`acp-coder prompt`: one prompt in the terminal, with live tool status."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from acp_agent.commands.parser import agent_variables
from acp_agent.errors import UsageError
from acp_agent.fronts.headless import Answers, Headless, run_headless
from acp_agent.fronts.view import JsonView, PlainView, TerminalView, View


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    text = sys.stdin.read() if options.text == "-" else options.text
    if not text.strip():
        raise UsageError("the prompt is empty")
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise UsageError(f"{cwd} is not a folder")
    answers: Answers = "nobody"
    if options.yes:
        answers = "allow"
    elif options.deny:
        answers = "deny"
    elif sys.stdin.isatty() and not options.json:
        answers = "person"
    model = options.model
    environ = {
        **environ,
        **agent_variables(options.record, options.record_wire, options.place, options.tmux),
    }
    if model and options.session is None and not options.newest:
        environ["OPENAI_MODEL"] = model  # A new session starts with it, whether or not the server lists it.
        model = None
    job = Headless(text, cwd, environ, options.mode, model, options.session, answers, options.newest)
    ended = run_headless(job, view_for(environ, json=options.json))
    if ended.words and not options.json:
        sys.stderr.write(f"{ended.words[:1].upper()}{ended.words[1:]}.\n")
    if ended.session_id and not options.json:
        where = f"--cwd {shlex.quote(options.cwd)} " if options.cwd else ""
        sys.stderr.write(f'Go on with: acp-coder prompt {where}--session {ended.session_id} "..."\n')
    return ended.status


def in_session(options: Namespace, session_id: str, cwd: str, environ: Mapping[str, str]) -> int:
    """Runs a slash command in a stored session: `acp-coder sessions undo ID [WORDS]`."""
    if not Path(cwd).is_dir():
        raise UsageError(f"the session's folder {cwd} is not there any more")
    text = " ".join([f"/{options.verb}", *getattr(options, "words", [])])
    answers: Answers = "person" if sys.stdin.isatty() else "nobody"
    job = Headless(text, Path(cwd), environ, session=session_id, answers=answers, needs_login=False)
    return run_headless(job, view_for(environ, json=False)).status


def view_for(environ: Mapping[str, str], *, json: bool) -> View:
    """JSON lines, a live terminal, or plain lines, depending on stdout, TERM and NO_COLOR."""
    if json:
        return JsonView(sys.stdout)
    if not sys.stdout.isatty() or environ.get("TERM", "dumb") == "dumb":
        return PlainView(sys.stdout)
    return TerminalView(sys.stdout, colour=not environ.get("NO_COLOR"))
