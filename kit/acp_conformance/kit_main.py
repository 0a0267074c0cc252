"""`acp-conformance`: its command line and exit status. `acp-coder conformance` passes its arguments on to this."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from acp_agent import __version__
from acp_agent.errors import AgentError, UsageError
from acp_agent.lazy import load

COMMANDS = {
    "": ("acp_conformance.kit_command:conformance", "drive any ACP agent and say which requirements it keeps"),
    "client": ("acp_conformance.clients.client_command:client", "ask an ACP client everything: what it really does"),
    "agent": ("acp_conformance.clients.client_command:agent", "an agent that asks the client everything"),
}
"""By the first word: what runs it, and what it does. An agent of that name stands behind `--`."""
EPILOG = "Clients are asked by `acp-conformance client`; its agent is `acp-conformance agent`."
SIGNALS = "acp_agent.executors.default_signals:default_signals"
FAILURE_STATUS, USAGE_STATUS, INTERRUPTED_STATUS = 1, 2, 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _add_kit_options(parser: argparse.ArgumentParser) -> None:
    """Of `acp-conformance -- COMMAND`."""
    _add_report(parser)
    parser.add_argument(
        "--only", action="append", default=[], metavar="AREA", help="an area, or the id of a requirement"
    )
    parser.add_argument("--level", choices=("must", "should", "all"), default="should", help="up to which level")
    parser.add_argument(
        "--protocol", type=int, choices=(1, 2), default=1, help="version of the protocol (2 is a draft)"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="how the agent is told of the scripted model; or a .toml file"
    )
    parser.add_argument(
        "--tck", metavar="COMMAND", help="also run acp-tck, which this starts, and set it beside the checks"
    )
    parser.add_argument("agent", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="how the agent is started")


def _add_client_options(parser: argparse.ArgumentParser) -> None:
    """Of `acp-conformance client -- CLIENT`."""
    _add_report(parser)
    parser.add_argument("--profile-line", action="store_true", help="print the client's row for protocol/profiles.py")
    _add_questions(parser)
    parser.add_argument(
        "client", nargs=argparse.REMAINDER, metavar="-- CLIENT ...", help="how it is started; {agent} is the agent"
    )


def _add_asking_options(parser: argparse.ArgumentParser) -> None:
    """Of `acp-conformance agent`."""
    parser.add_argument("findings", nargs="?", metavar="FILE", help="write what it finds there, too")
    _add_questions(parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", nargs=2, metavar=("KIND", "FILE"), help="write a report: html, json or junit")


def _add_questions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="a question, by its requirement")
    parser.add_argument("--seconds", type=float, default=10.0, help="that an answer may take (default: %(default)g)")


ADDS = {"": _add_kit_options, "client": _add_client_options, "agent": _add_asking_options}
"""By the first word: adds the options. `acp-coder` completes them."""


def parser(word: str) -> argparse.ArgumentParser:
    """Of the command that begins with this word."""
    made = _Parser(
        prog=f"acp-conformance {word}".rstrip(), description=COMMANDS[word][1], epilog=None if word else EPILOG
    )
    made.add_argument("--version", action="version", version=f"acp-conformance {__version__}")
    ADDS[word](made)
    return made


def read_options(arguments: list[str]) -> tuple[str, argparse.Namespace]:
    """The command's first word, and its options. Raises UsageError."""
    word = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    return word, parser(word).parse_args(arguments[1:] if word else arguments)


def main(argv: list[str] | None = None) -> int:
    """The exit status: 0 nothing failed, 1 something did, 2 with one sentence for a wrong command line."""
    load(SIGNALS)()
    try:
        word, options = read_options(sys.argv[1:] if argv is None else argv)
        return int(load(COMMANDS[word][0])(options, os.environ))
    except UsageError as error:
        sys.stderr.write(f"acp-conformance: {error}\n")
        return USAGE_STATUS
    except AgentError as error:
        sys.stderr.write(f"acp-conformance: {error}\n")
        return FAILURE_STATUS
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        sys.stderr.close()  # Python would complain once more when it flushes stdout at exit.
        return FAILURE_STATUS
