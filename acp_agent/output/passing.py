"""Finds lines about passed tests in a test runner's output, for `test_summary`.

Only lines of a certain form are selected. Everything else stays, so a failure's report is never touched. Supports
cargo test, nextest, pytest (also with xdist), go test (plain, -v, -json), jest, vitest, unittest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp_agent.limits.decoding import read_loose_json
from acp_agent.linear import compiled
from acp_agent.output.cut import Confidence, Cut, Omission
from acp_agent.output.error_lines import is_passing_line

PASSED = Omission("line of a passing test", "lines of passing tests")
SKIPPED = Omission("skipped test", "skipped tests")
PROGRESS = Omission("line of progress", "lines of progress")

CARGO_PROGRESS = compiled(
    r"^\s*(?:Compiling|Checking|Downloaded|Downloading|Fresh|Adding|Locking|Updating|Blocking|Building|Dirty) "
)
DOTS = compiled(r"^(?:\S+\.py )?[.sx]+ *(?:\[ *\d+%\])?$")
NODE_ID = compiled(r"^\S+\.py::\S+ *$")
SUMMARY = compiled(
    r"(?m)^test result: |^\s*Summary \[|^(?:=+ )?(?:.*, )?\d+ "
    r"(?:passed|failed|errors?|skipped|deselected|xfailed|warnings?)"
    r"\b.* in "
    r"|^(?:=+ )?no tests ran\b|^(?:ok  |FAIL|---)\t?\s?\S+|^PASS$|^FAIL$|^\? +\t|^Tests?:? +\d+ |^Tests:\s+|^\s*Tests  "
    r"|^Ran \d+ tests?\b|^\{.*\"Action\":\"(?:pass|fail|skip)\",\"Package\":\"[^\"]*\",\"Elapsed\""
)
GO_RUN = compiled(r"^=== (?:RUN|PAUSE|CONT|NAME) +(\S+)$")
GO_END = compiled(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(")
GO_PACKAGE_END = compiled(r"^(?:PASS|FAIL|ok  \t.*|FAIL\t.*|exit status \d+|panic: .*)$")


def test_summary_of(lines: Sequence[str]) -> Cut:
    """Returns the lines that may be removed. Full if the runner's own summary is present, Partial without (it was
    killed), Fallback if no test runner is recognised."""
    text = "\n".join(lines)
    if text.startswith('{"Time":') or '\n{"Time":' in text:
        dropped = _go_json(lines)
    elif "=== RUN" in text:
        dropped = _go_verbose(lines)
    else:
        dropped = _line_by_line(lines, xdist="[gw" in text)
    summary = SUMMARY.search(text) is not None
    if not summary and not any(omission is not PROGRESS for omission in dropped.values()):
        return Cut("Fallback")
    confidence: Confidence = "Full" if summary else "Partial"
    return Cut(confidence, dropped)


def _line_by_line(lines: Sequence[str], *, xdist: bool) -> dict[int, Omission]:
    dropped: dict[int, Omission] = {}
    for place, line in enumerate(lines):
        if "::" in line and is_passing_line(line):
            dropped[place] = _kind(line)
        elif not line or line[0] in "_E>|":
            continue
        elif xdist and NODE_ID.search(line) is not None:
            dropped[place] = PROGRESS
        elif (omission := _plain(line)) is not None:
            dropped[place] = omission
    return dropped


def _plain(line: str) -> Omission | None:
    if is_passing_line(line):
        return _kind(line)
    if CARGO_PROGRESS.search(line) is not None:
        return PROGRESS
    return PASSED if DOTS.search(line) is not None else None


def _kind(line: str) -> Omission:
    """The kind of a line for which `is_passing_line` is true."""
    skipped = " ... ignored" in line or (" PASSED" not in line and any(word in line for word in (" SKIP", " XFAIL")))
    return SKIPPED if skipped else PASSED


def _go_verbose(lines: Sequence[str]) -> dict[int, Omission]:
    """`go test -v`: a test's log is between its lines and belongs to it."""
    dropped: dict[int, Omission] = {}
    logged: dict[str, list[int]] = {}
    current = ""
    for place, line in enumerate(lines):
        if (run := GO_RUN.search(line)) is not None:
            current = run.group(1)
            dropped[place] = PROGRESS
        elif (end := GO_END.search(line)) is not None:
            current = end.group(2)
            if end.group(1) == "FAIL":
                continue
            dropped[place] = PASSED if end.group(1) == "PASS" else SKIPPED
            for log in logged.pop(current, ()):
                dropped[log] = dropped[place]
        elif GO_PACKAGE_END.search(line) is not None:
            current = ""
            if is_passing_line(line):
                dropped[place] = PASSED
        elif current:
            logged.setdefault(current, []).append(place)
        elif is_passing_line(line):
            dropped[place] = PASSED
    return dropped


def _go_json(lines: Sequence[str]) -> dict[int, Omission]:
    """`go test -json`: one event per line; those of tests that end with "pass" are removed, those of packages stay."""
    events: dict[tuple[str, str], list[int]] = {}
    ends: dict[tuple[str, str], str] = {}
    for place, line in enumerate(lines):
        event = _event(line)
        test = event.get("Test")
        if not isinstance(test, str):
            continue
        key = (str(event.get("Package")), test)
        events.setdefault(key, []).append(place)
        if event.get("Action") in ("pass", "fail", "skip"):
            ends[key] = event["Action"]
    dropped: dict[int, Omission] = {}
    for key, places in events.items():
        if ends.get(key) in ("pass", "skip"):
            dropped.update(dict.fromkeys(places, PASSED if ends[key] == "pass" else SKIPPED))
    return dropped


def _event(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        event = read_loose_json(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
