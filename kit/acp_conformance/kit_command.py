"""`acp-conformance -- COMMAND`: drives an ACP agent and says which requirements it keeps."""

from __future__ import annotations

import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from acp_agent.errors import UsageError
from acp_agent.own_programs import find_program
from acp_agent.testing.checks import missing
from acp_conformance.kit_reports import REPORTS, Report, line, summary, their_line
from acp_conformance.kit_run import LEVELS, Result, chosen, run
from acp_conformance.profiles import Profile, profile
from acp_conformance.tck import run_tck
from acp_conformance.v2.v2_client import VERSION, spoken

VERSION_SECONDS = 20


def conformance(options: Namespace, environ: Mapping[str, str]) -> int:
    """0: nothing failed; 1: something did. Raises UsageError."""
    command = options.agent[1:] if options.agent[:1] == ["--"] else options.agent
    if not command:
        raise UsageError("which agent? `acp-conformance -- COMMAND ...`")
    agent = program(command, environ)
    about = profile(options.profile) if options.profile else Profile()
    checks = chosen(options.only, LEVELS[options.level], options.protocol)
    report = report_of(options.report)
    if why := missing():
        raise UsageError(why)
    if options.protocol == VERSION:
        if options.tck:
            raise UsageError("--tck is for version 1")
        if says := anyio.run(spoken, agent, about):
            sys.stdout.write(f"{says}\n")
            return 1
    theirs = anyio.run(run_tck, program(shlex.split(options.tck), environ), agent, about) if options.tck else None
    results = anyio.run(run, agent, about, checks, told)
    sys.stdout.write(f"\n{summary(results)}\n")
    if theirs is not None:
        lines = "\n".join(their_line(row, results) for row in theirs.rows)
        sys.stdout.write(f"\nacp-tck {theirs.version}\n{lines}\n")
    if report is not None:
        write, file = report
        file.write_text(write(shlex.join(command), _version(command, about), results, theirs), encoding="utf-8")
    return int(any(result.outcome == "failed" for result in results) or (theirs is not None and theirs.failed))


def program(command: list[str], environ: Mapping[str, str]) -> list[str]:
    """The same with the program's path. Raises UsageError."""
    if not command or (found := find_program(command[0], environ)) is None:
        raise UsageError(f"{' '.join(command[:1])}: there is no such command")
    return [str(Path(found).absolute()), *command[1:]]


def report_of(given: Sequence[str] | None) -> tuple[Report, Path] | None:
    """What follows `--report`. Raises UsageError."""
    if given is None:
        return None
    kind, file = given
    if kind not in REPORTS:
        raise UsageError(f"--report is one of {', '.join(REPORTS)}, not {kind!r}")
    return REPORTS[kind], Path(file)


def told(result: Result) -> None:
    sys.stdout.write(f"{line(result)}\n")
    sys.stdout.flush()


def _version(command: list[str], about: Profile) -> str:
    if not about.version:
        return ""
    try:
        ran = subprocess.run(
            [command[0], *about.version],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (ran.stdout.strip() or ran.stderr.strip()).partition("\n")[0]
