"""What the kit's agent found out about a client: a file of JSON lines, read while it is written, and a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.conformance.clients.client_trial import QUESTIONS
from acp_agent.conformance.kit_run import Result


class About(Struct, frozen=True, tag="about"):
    """The client, by its `initialize`."""

    name: str = ""
    version: str = ""
    offers: dict[str, Any] = {}


class Begun(Struct, frozen=True, tag="begun"):
    """The next question; without a result the client went away during it."""

    id: str


class Found(Struct, frozen=True, tag="found"):
    result: Result


class Over(Struct, frozen=True, tag="over"):
    """All was asked."""


Finding = About | Begun | Found | Over


class Findings:
    """`file`: where they are written; None: nowhere."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._read = 0

    def write(self, finding: Finding) -> None:
        """At once: the client may end the agent at any time."""
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(finding) + b"\n")

    def news(self) -> list[Finding]:
        """What was written since the last time."""
        if self._file is None or not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")
        self._read += len(whole[0] + whole[1])
        return [msgspec.json.decode(line, type=Finding) for line in whole[0].splitlines()]


class Client:
    """What is known of it so far."""

    def __init__(self) -> None:
        self.about: About | None = None
        self.results: dict[str, Result] = {}
        self.over = False
        self.begun = ""
        """The question that was asked last."""

    def take(self, finding: Finding) -> None:
        match finding:
            case About():
                self.about = self.about or finding
            case Begun(id_):
                self.begun = id_
            case Found(result):
                self.results[result.requirement.id] = result
            case Over():
                self.over = True

    def rest(self, ids: Sequence[str]) -> list[Result]:
        """For those of these questions that have no result."""
        missing = [id_ for id_ in ids if id_ not in self.results]
        gone = Result(QUESTIONS[self.begun].requirement, "failed", "the client went away") if self.begun else None
        return [
            gone
            if gone is not None and id_ == self.begun
            else Result(QUESTIONS[id_].requirement, "not here", "it did not come to that")
            for id_ in missing
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
