"""`acp-coder prompt`: one prompt in the terminal, with live tool status."""

from __future__ import annotations

import os
import select
import shlex
import stat
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from acp_agent.commands.parser import agent_variables
from acp_agent.errors import UsageError
from acp_agent.fronts.headless import CLOSED_STATUS, UNANSWERED_STATUS, Answers, Ended, Headless, run_headless
from acp_agent.fronts.terminal.chat_start import open_chat
from acp_agent.fronts.terminal.screens import ChatJob
from acp_agent.fronts.view import AnswerView, JsonView, PipeOut, PlainView, ResultView, TerminalView, View

STDIN_SECONDS = 3.0
"""How long it is waited for the first of what is piped in, beside a prompt."""
MAX_PIPED = 10_000_000
"""Characters of it."""


def chat(options: Namespace, environ: Mapping[str, str]) -> int:
    """`acp-coder chat`."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a chat needs a terminal; `acp-coder -p` answers one prompt without one")
    cwd, environ, model = _where(options, environ)
    text = " ".join(options.text)
    return open_chat(ChatJob(cwd, environ, text, options.mode, model, options.session, options.newest))


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    text = _prompt(options.text)
    if not text.strip():
        raise UsageError("the prompt is empty")
    cwd, environ, model = _where(options, environ)
    form = options.output_format
    answers: Answers = "nobody"
    if options.yes:
        answers = "allow"
    elif options.deny:
        answers, environ["ACP_CODER_REMEMBERED_ANSWERS"] = "deny", "false"
    elif sys.stdin.isatty() and form == "text":
        answers = "person"
    job = Headless(
        text, cwd, environ, options.mode, model, options.session, answers, options.newest,
        keep_running=options.keep_running,
    )  # fmt: skip
    ended = run_headless(job, _view(environ, form))
    if ended.status == CLOSED_STATUS:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # What Python flushes at its end.
        return ended.status
    if form == "text":
        _say(ended, options.cwd)
    for each in ended.running:
        name = f"`{each.command}` (process {each.pid})"
        words = f"goes on: {name}. Its output: {each.file}. Stop it: kill -- -{each.pid}"
        why = "the sandbox ends it" if options.keep_running else "`--keep-running` leaves it running"
        ends = f"ends with this run: {name}; {why}"
        sys.stderr.write(f"In the background, {words if each.file else ends}.\n")
    return ended.status


def _where(options: Namespace, environ: Mapping[str, str]) -> tuple[Path, dict[str, str], str | None]:
    """The folder, the agent's environment, and the model to switch to, if that is not of a new session."""
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise UsageError(f"{cwd} is not a folder")
    given = {**environ, **agent_variables(options.record, options.record_wire, options.place, options.tmux)}
    if options.model and options.session is None and not options.newest:
        return cwd, {**given, "OPENAI_MODEL": options.model}, None  # Whether or not the server lists it.
    return cwd, given, options.model


def _prompt(words: Sequence[str]) -> str:
    """The words, and what is piped in."""
    text = "" if list(words) == ["-"] else " ".join(words)
    if sys.stdin.isatty():
        return text
    piped = ""
    if not text or stat.S_ISREG(os.fstat(0).st_mode) or _comes():
        piped = sys.stdin.buffer.read(MAX_PIPED + 1).decode("utf-8", "replace")
    if len(piped) > MAX_PIPED:
        raise UsageError(f"more than {MAX_PIPED:,} bytes are piped in; put them into a file and name it in the prompt")
    return "\n\n".join(part for part in (text, piped.strip("\n")) if part.strip())


def _comes() -> bool:
    """Whether something is piped in; an input that stays open and empty is not waited for."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if poll.poll(STDIN_SECONDS * 1000):
        return True
    sys.stderr.write("Nothing is piped in, so only the words are the prompt (`< /dev/null` does not wait).\n")
    return False


def _say(ended: Ended, cwd: str | None) -> None:
    if ended.words:
        sys.stderr.write(f"{ended.words[:1].upper()}{ended.words[1:]}.\n")
    if ended.status == UNANSWERED_STATUS:
        sys.stderr.write("Something was not done because nobody could be asked: --yes allows it, --mode auto too.\n")
    if ended.session_id:
        where = f"--cwd {shlex.quote(cwd)} " if cwd else ""
        sys.stderr.write(f'Continue with: acp-coder prompt {where}--session {ended.session_id} "..."\n')


def in_session(options: Namespace, session_id: str, cwd: str, environ: Mapping[str, str]) -> int:
    """Runs a slash command in a stored session: `acp-coder sessions undo ID [WORDS]`."""
    if not Path(cwd).is_dir():
        raise UsageError(f"the session's folder {cwd} is not there any more")
    text = " ".join([f"/{options.verb}", *getattr(options, "words", [])])
    answers: Answers = "person" if sys.stdin.isatty() else "nobody"
    job = Headless(text, Path(cwd), environ, session=session_id, answers=answers, needs_login=False)
    return run_headless(job, view_for(environ)).status


def view_for(environ: Mapping[str, str]) -> View:
    """All of it on stdout: a live terminal, or plain lines."""
    if not sys.stdout.isatty() or environ.get("TERM", "dumb") == "dumb":
        return PlainView(PipeOut(sys.stdout))
    return TerminalView(PipeOut(sys.stdout), colour=not environ.get("NO_COLOR"))


def _view(environ: Mapping[str, str], form: str) -> View:
    """Where stdout is no terminal it gets the answer alone."""
    if form == "json":
        return ResultView(PipeOut(sys.stdout), PipeOut(sys.stderr))
    if form == "stream-json":
        return JsonView(PipeOut(sys.stdout))
    if sys.stdout.isatty():
        return view_for(environ)
    coloured = sys.stderr.isatty() and environ.get("TERM", "dumb") != "dumb" and not environ.get("NO_COLOR")
    return AnswerView(PipeOut(sys.stdout), PipeOut(sys.stderr), colour=coloured)
