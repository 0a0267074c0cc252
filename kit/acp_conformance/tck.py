"""`--tck COMMAND`: the conformance kit of the protocol's project, acp-tck, beside this one.

It is started as its command, with the agent behind the same model server, and its JSON report is read: each of its
requirements stands beside ours. Checks name the ids that mean the same (`trial.check`); `DIFFERS` says how the others
differ. Nothing of it is copied here but its ids.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct

from acp_agent.errors import UsageError
from acp_agent.testing.fake_answers import Answer
from acp_conformance.profiles import Profile
from acp_conformance.trial import CHECKS, Trial

LONG_PROMPT = "kit: tell a long story"
"""What is answered until it is cancelled."""
HELLO, STORY = Answer(text="Hello."), Answer(text=("Once ", "upon ", "a time."), hang_after=1)
TCK_SECONDS = 3600.0
COUNTS = ("MANDATORY", "CAPABILITY")
"""Tiers of which a failure counts; the others are advice, and what it found."""

STRICTER = {
    "ACP-LOAD-002": (
        "LOAD-3",
        "stricter than the specification: any update within two seconds of a load fails it, also one that is no part "
        "of the replay, such as `available_commands_update`; ours looks for messages",
    ),
}
"""Id -> ours, and what it asks for besides the specification: a failure counts for nothing."""
DIFFERS = {
    **STRICTER,
    "ACP-AUTH-001": ("AUTH-1", "ours also wants names"),
    "ACP-AUTH-004": ("AUTH-7", "ours only looks whether `logout` is refused where it is not offered"),
    "ACP-CANCEL-002": ("CAN-5", "ours cancels while a command runs, and prompts again"),
    "ACP-CLIENTCAP-001": ("FS-1", "ours offers each mix of reading and writing, and has files read and written"),
    "ACP-CLIENTCAP-002": ("TERM-1", "ours has a command run, and wants it to end well"),
    "ACP-CLIENTCAP-003": ("ELIC-1", "ours looks at each line of each check, and fails only then"),
    "ACP-CLOSE-001": ("CLOSE-1", "ours closes while a turn runs"),
    "ACP-CONFIG-001": ("CFG-1", "ours also wants unique ids, and names"),
    "ACP-EXT-001": ("EXT-3", "ours wants -32601"),
    "ACP-INFO-INVALIDREQ-001": ("RPC-3", "it fails nobody for this"),
    "ACP-INFO-PARSE-001": ("RPC-2", "it fails nobody for this"),
    "ACP-INFO-UNKNOWNSESSION-001": ("PR-2", "it fails nobody for this"),
    "ACP-INIT-001": ("INIT-1", "ours also wants `agentCapabilities`"),
    "ACP-JSONRPC-002": ("RPC-1", "ours looks at each line of each check, and fails only then"),
    "ACP-JSONRPC-005": ("RPC-10", "ours sends what is no request at all"),
    "ACP-LOAD-001": (
        "LOAD-1",
        "ours loads in another process, and looks whether it is refused where it is not offered",
    ),
    "ACP-LOAD-003": ("LOAD-3", "ours takes null, which the page showed once"),
    "ACP-META-001": ("EXT-1", "ours sends `_meta` with `initialize` and `session/new`"),
    "ACP-MODES-001": ("MODE-1", "ours also wants unique ids"),
    "ACP-PROMPT-001": ("PR-1", "ours also looks for a second answer"),
    "ACP-PROMPT-003": ("PR-3", "ours also looks whether it reaches the model"),
    "ACP-PROMPTCAP-001": ("PR-4", "ours also looks whether it reaches the model"),
    "ACP-PROMPTCAP-003": ("PR-4", "ours also looks whether it reaches the model"),
    "ACP-RESUME-001": ("RES-1", "ours resumes in another process"),
    "ACP-RESUME-002": ("RES-1", "ours also looks behind the answer"),
    "ACP-SESSION-002": ("NEW-2", "ours also compares the ids of two processes"),
    "ACP-SHUTDOWN-001": ("END-1", "ours closes stdin while a turn runs, and wants status 0"),
}
"""Id -> the nearest of ours, and how they differ."""


class Theirs(Struct, frozen=True):
    """A requirement of acp-tck, and what came of it."""

    id: str
    tier: str
    status: Literal["PASS", "FAIL", "SKIPPED", "NOT_TESTED"]
    text: str
    why: str
    ours: str
    """The id of ours that means the same, or of the nearest; empty if there is none."""
    note: str
    """How they differ."""

    @property
    def counts(self) -> bool:
        return self.status == "FAIL" and self.tier in COUNTS and self.id not in STRICTER


class Tck(Struct, frozen=True):
    version: str
    rows: tuple[Theirs, ...]

    @property
    def failed(self) -> bool:
        return any(row.counts for row in self.rows)


class _Test(Struct):
    message: str = ""
    status: str = ""


class _Row(Struct):
    id: str
    tier: str
    status: Literal["PASS", "FAIL", "SKIPPED", "NOT_TESTED"]
    text: str = ""
    tests: list[_Test] = []


class _Report(Struct):
    requirements: list[_Row]
    tck_version: str = ""


async def run_tck(command: Sequence[str], agent: Sequence[str], profile: Profile) -> Tck:
    """Runs it in the agent's environment, which the agent gets from it. Raises UsageError if it writes no report."""
    with tempfile.TemporaryDirectory(prefix="acp-kit-", ignore_cleanup_errors=True) as folder:
        trial, report = Trial(agent, profile, Path(folder)), Path(folder, "report.json")
        async with trial.model(_said) as (_, environ):
            options = ["--report-json", str(report), "--agent-cwd", str(trial.project), "--cancel-prompt", LONG_PROMPT]
            options += ["--timeout", f"{max(30.0, profile.seconds):g}"]
            arguments = [*command, *options, "--", *trial.command]
            try:
                with anyio.fail_after(TCK_SECONDS):
                    ran = await anyio.run_process(
                        arguments, env=environ, cwd=folder, check=False, stderr=subprocess.STDOUT
                    )
            except (OSError, TimeoutError) as error:
                raise UsageError(f"--tck: {command[0]}: {error or 'it took too long'}") from error
        try:
            text = await anyio.Path(report).read_bytes()
        except FileNotFoundError as error:
            said = ran.stdout.decode("utf-8", "replace")[-2000:]
            raise UsageError(f"--tck: {command[0]} wrote no report, and said:\n{said}") from error
        return _read(text)


def _said(body: dict[str, Any]) -> Answer:
    return STORY if LONG_PROMPT in json.dumps(body) else HELLO


def _read(text: bytes) -> Tck:
    try:
        report = msgspec.json.decode(text, type=_Report)
    except msgspec.DecodeError as error:
        raise UsageError(f"--tck: its report cannot be read: {error}") from error
    same = {id_: check.id for check in CHECKS.values() for id_ in check.tck}
    return Tck(report.tck_version, tuple(_theirs(row, same) for row in report.requirements))


def _theirs(row: _Row, same: Mapping[str, str]) -> Theirs:
    ours, note = (same[row.id], "") if row.id in same else DIFFERS.get(row.id, ("", "ours has no check for this"))
    why = next((test.message for test in row.tests if test.status == row.status and test.message), "")
    return Theirs(row.id, row.tier, row.status, row.text, why, ours, note)
