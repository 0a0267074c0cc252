"""`acp-coder man`: the manual page in roff, made from the parser."""

from __future__ import annotations

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping

from acp_agent import __version__
from acp_agent.commands.parser import WELCOME, build_parser

FILES = {
    "~/.config/acp-coder/config.toml": "The configuration; ACP_CODER_CONFIG names another file.",
    ".acp-coder/config.toml": "That of a project, in a trusted folder.",
    "~/.local/state/acp-coder": "Sessions, logs and the audit log.",
}
STATUS = "0, or 2 for a wrong command line or configuration, 1 for other failures."


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    sys.stdout.write("".join(f"{line}\n" for line in page(build_parser())))
    return 0


def page(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f'.TH ACP\\-CODER 1 "" "acp\\-coder {__version__}" "User Commands"'
    yield from (".SH NAME", roff("acp-coder - a coding agent for editors that speak the Agent Client Protocol"))
    yield from (".SH SYNOPSIS", _usage(parser), ".SH DESCRIPTION", roff(parser.description or ""), ".PP", ".nf")
    yield from (roff(line) for line in WELCOME.splitlines() if line.startswith("  "))
    yield from (".fi", ".SH OPTIONS", *_arguments(parser), ".SH COMMANDS", *_commands(parser))
    yield ".SH FILES"
    for name, words in FILES.items():
        yield from (".TP", f".I {roff(name)}", roff(words))
    yield from (".SH EXIT STATUS", roff(STATUS))


def roff(text: str) -> str:
    """The words as a line of text: nothing in them is a request or an escape."""
    text = " ".join(text.split()) if not text.startswith("  ") else text
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\`").replace("'", "\\(aq").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith(".") else text


def _usage(parser: argparse.ArgumentParser) -> str:
    parser.color = False  # type: ignore[attr-defined]  # Python 3.14 would colour it in a terminal.
    return roff(re.sub(r"^usage:", "", parser.format_usage()))


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield from (".TP", f".B {roff(formatter._format_action_invocation(action))}")
            yield roff(formatter._expand_help(action)) if action.help else "\\&"


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {each.dest: each.help or "" for each in action._choices_actions}
            for name, command in action.choices.items():
                words = about.get(name, "")
                yield from (f".SS {roff(command.prog)}", roff(words[:1].upper() + words[1:] + "."), ".PP")
                yield from (_usage(command), *_arguments(command), *_commands(command))
