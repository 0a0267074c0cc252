"""`acp-coder conformance -- COMMAND`: drives an ACP agent and says which requirements it keeps."""

from __future__ import annotations

import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import anyio

from acp_agent.conformance.kit_reports import REPORTS, line, summary
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
    report, file = options.report or ("", "")
    if report and report not in REPORTS:
        raise UsageError(f"--report is one of {', '.join(REPORTS)}, not {report!r}")
    results = anyio.run(run, [str(Path(found).absolute()), *command[1:]], about, checks, _told)
    sys.stdout.write(f"\n{summary(results)}\n")
    if report:
        Path(file).write_text(REPORTS[report](shlex.join(command), _version(command, about), results), encoding="utf-8")
    return int(any(result.outcome == "failed" for result in results))


def _told(result: Result) -> None:
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
