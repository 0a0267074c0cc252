"""`acp-conformance client -- CLIENT ...` and `acp-conformance agent`: what a client really does."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from acp_agent.child import signal_group
from acp_agent.errors import AgentError, UsageError
from acp_agent.own_programs import find_program
from acp_agent.protocol.transports import stdio
from acp_conformance.clients.asking_agent import AskingAgent, asked
from acp_conformance.clients.client_trial import PEOPLE
from acp_conformance.clients.findings import Findings, profile_line
from acp_conformance.kit_command import report_of, told
from acp_conformance.kit_reports import summary

PLACE = "{agent}"
LOOK, LEAVE = 0.05, 5.0
"""Seconds between two looks at the findings, and that the client has to end itself."""
STARTS = 60.0
"""Seconds besides those for an answer in which something new must be found."""
LAST_OUTPUT = 2_000


def agent(options: Namespace, environ: Mapping[str, str]) -> int:
    """The agent, on stdin and stdout."""
    anyio.run(_serve, options, Path(options.findings).absolute() if options.findings else None)
    return 0


async def _serve(options: Namespace, file: Path | None) -> None:
    await AskingAgent(stdio(), Findings(file), only=options.only, seconds=options.seconds).serve()


def client(options: Namespace, environ: Mapping[str, str]) -> int:
    """0: nothing failed; 1: something did. Raises UsageError, and AgentError if the client does not prompt."""
    command = options.client[1:] if options.client[:1] == ["--"] else options.client
    if not command:
        raise UsageError(f"which client? `acp-conformance client -- CLIENT ... {PLACE}`")
    if (found := find_program(command[0], environ)) is None:
        raise UsageError(f"{command[0]}: there is no such command")
    ids = [each.requirement.id for each in asked(options.only)]
    report = report_of(options.report)
    with tempfile.TemporaryDirectory(prefix="acp-kit-", ignore_cleanup_errors=True) as folder:
        launcher = _launcher(Path(folder), options)
        argv = [str(Path(found).absolute()), *command[1:]]
        filled = [each.replace(PLACE, launcher) for each in argv]
        with Path(folder, "output").open("w+b") as output:
            seen = Findings(Path(folder, "findings"))
            _drive(filled if filled != argv else [*argv, launcher], output.fileno(), seen, len(ids), options.seconds)
            output.seek(0)
            said = output.read()[-LAST_OUTPUT:].decode("utf-8", "replace").strip()
    if seen.client is None:
        raise AgentError(f"the client started no agent, or did not initialize it; its last output: {said}")
    if not seen.prompted:
        raise AgentError(f"the client sent no prompt; its last output: {said}")
    for result in seen.missing(ids):
        seen.results[result.requirement.id] = result
        told(result)
    results = [seen.results[id_] for id_ in ids]
    sys.stdout.write(f"\n{summary(results)}\n")
    if options.profile_line:
        sys.stdout.write(f"{profile_line(seen.client[0], results)}\n")
    if report is not None:
        write, file = report
        file.write_text(write(shlex.join(command), " ".join(seen.client), results, None), encoding="utf-8")
    return int(any(result.outcome == "failed" for result in results))


def _launcher(folder: Path, options: Namespace) -> str:
    """A program that starts the agent: one word, which a client may quote or split as it likes."""
    command = [sys.executable, "-P", "-m", "acp_conformance", "agent", "--seconds", str(options.seconds)]
    command += [word for id_ in options.only for word in ("--only", id_)]
    launcher = folder / "agent"
    launcher.write_text(f"#!/bin/sh\nexec {shlex.join([*command, str(folder / 'findings')])}\n", encoding="utf-8")
    launcher.chmod(0o700)
    return str(launcher)


def _drive(argv: Sequence[str], output: int, seen: Findings, number: int, seconds: float) -> None:
    """Runs the client until it ends, or nothing is found any more; tells each of this number of results."""
    ended, until = False, time.monotonic() + STARTS
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            while not ended and time.monotonic() < until:
                ended = process.poll() is not None
                for finding in seen.read():
                    over = len(seen.results) == number
                    until = time.monotonic() + (LEAVE if over else STARTS + 2 * PEOPLE * seconds)
                    if finding.result is not None:
                        told(finding.result)
                if not ended:
                    time.sleep(LOOK)
            until = time.monotonic() + LEAVE
            while ended and signal_group(process.pid, 0) and time.monotonic() < until:  # The agent tidies up.
                time.sleep(LOOK)
        finally:
            signal_group(process.pid, signal.SIGKILL)
