"""What the kit's agent found out about a client: a file of JSON lines, read while it is written, and a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from acp_conformance.clients.client_trial import QUESTIONS
from acp_conformance.kit_run import Result


class Finding(Struct, frozen=True, omit_defaults=True):
    """A line: one of these."""

    client: tuple[str, str] | None = None
    """Its name and version, once it has initialized the agent."""
    prompted: bool = False
    result: Result | None = None


class Findings:
    """`file`: where they are written, and read; None: nowhere."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._read = 0
        self.client: tuple[str, str] | None = None
        self.prompted = False
        self.results: dict[str, Result] = {}

    def write(self, finding: Finding) -> None:
        """At once: the client may end the agent at any time."""
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(finding) + b"\n")

    def read(self) -> list[Finding]:
        """What was written since the last time."""
        if self._file is None or not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole + end)
        news = [msgspec.json.decode(line, type=Finding) for line in whole.splitlines()]
        for finding in news:
            self.client = finding.client if self.client is None else self.client
            self.prompted = self.prompted or finding.prompted
            if finding.result is not None:
                self.results[finding.result.requirement.id] = finding.result
        return news

    def missing(self, ids: Sequence[str]) -> list[Result]:
        """For those of these questions that have no result: during the first of them the client went away."""
        without = [QUESTIONS[id_].requirement for id_ in ids if id_ not in self.results]
        return [
            Result(each, "not here", "it did not come to that")
            if number
            else Result(each, "failed", "the client went away")
            for number, each in enumerate(without)
        ]


RESTS_ON: dict[str, tuple[str, ...]] = {
    "reads_files": ("CFS-1",),
    "writes_files": ("CFS-5", "CFS-6"),
    "terminals": ("CTERM-1", "CTERM-3", "CTERM-4", "CTERM-5"),
    "forms": ("CELIC-1",),
}
"""What an agent must do without (a field of `protocol.profiles.Quirks`), if one of these fails."""
LONGEST_WHY = 60


def profile_line(name: str, results: Sequence[Result]) -> str:
    """The client's row of `protocol.profiles.PROFILES`."""
    failed = {each.requirement.id: each for each in results if each.outcome == "failed"}
    wrong = {field: next((failed[id_] for id_ in ids if id_ in failed), None) for field, ids in RESTS_ON.items()}
    without = {field: result for field, result in wrong.items() if result is not None}
    key = json.dumps(name.lower(), ensure_ascii=False) if name else "UNNAMED"
    if not without:
        return f"{key}: Quirks(),"
    why = "; ".join(f"{each.requirement.id}: {each.why[:LONGEST_WHY]}" for each in without.values())
    fields = ", ".join(f"{field}=False" for field in without)
    return f"{key}: Quirks({fields}, why={json.dumps(why, ensure_ascii=False)}),"
