"""`acp-coder conformance -- COMMAND`: drives an ACP agent and says which requirements it keeps."""

from __future__ import annotations

import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from acp_agent.conformance.kit_reports import REPORTS, Report, line, summary
from acp_agent.conformance.kit_run import Result, chosen, run
from acp_agent.conformance.profiles import Profile, profile
from acp_agent.errors import UsageError
from acp_agent.own_programs import find_program

LEVELS = {"must": ("must",), "should": ("must", "should"), "all": ("must", "should", "may")}
VERSION_SECONDS = 20


def conformance(options: Namespace, environ: Mapping[str, str]) -> int:
    """0: nothing failed; 1: something did. Raises UsageError."""
    command = options.agent[1:] if options.agent[:1] == ["--"] else options.agent
    if not command:
        raise UsageError("which agent? `acp-coder conformance -- COMMAND ...`")
    if (found := find_program(command[0], environ)) is None:
        raise UsageError(f"{command[0]}: there is no such command")
    about = profile(options.profile) if options.profile else Profile()
    checks = chosen(options.only, LEVELS[options.level])  # type: ignore[arg-type]
    report = report_of(options.report)
    results = anyio.run(run, [str(Path(found).absolute()), *command[1:]], about, checks, told)
    sys.stdout.write(f"\n{summary(results)}\n")
    if report is not None:
        write, file = report
        file.write_text(write(shlex.join(command), _version(command, about), results), encoding="utf-8")
    return int(any(result.outcome == "failed" for result in results))


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
