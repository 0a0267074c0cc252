"""Recognises lines that report a failure. All filters rely on this: such a line is never lost.

Prefers false positives: a harmless mention of an error costs a line, a lost error costs a turn. Only lines that
certainly report success are excluded: counts of zero (`0 errors`; each count is judged separately), passed tests with
the word in their name, and packages of that name.

Rows of a `kubectl get` table report failures through their columns, so they are judged together with the header.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from acp_agent.linear import Match, at_first_use

CHUNK = 500
"""Lines searched at once: most parts of most outputs have no error."""

WORDS = (
    r"\berror|[a-z0-9]+error\b|error:|\berr\b|ERR!|\bfail|\bfatal|panic|exception|traceback|\bassert|denied|\bcannot\b"
    r"|\bcan't\b|\bcan ?not\b|could ?n[o']t|\bcould not\b|unable to|not found|no such|\bundefined\b|\babort|\bkilled\b"
    r"|segmentation fault|segfault|core dumped|conflict|refused|timed out|\btimeout\b|\binvalid\b|unresolved|caused by"
    r"|\bnon-?zero\b|exit(?:ed|s)?(?: with)?(?: code| status)[:=]? ?-?[1-9]|unhandled|uncaught|critical|\bsevere\b"
    r"|\bemerg"
    r"|out of memory|oom-?kill|backoff|evicted|not ok\b|\bcrash|corrupt|permission|unreachable|unexpected|unrecognized"
    r"|unknown (?:option|command|flag|argument)|does not (?:exist|match|satisfy)|doesn't (?:exist|match)|violat"
    r"|is not recognized|\bmissing\b|mismatch|stack ?overflow|\bdeadlock|\bincompatible\b|\bbroken\b|\bnot allowed\b"
    r"|\bno rule to make\b|illegal instruction|bad system call|breakpoint trap|stack smashing|data race"
    r"|connection reset|name or service not known|\bexceed(?:ed|s)\b|: is a directory|keyboardinterrupt|\brejected\b"
    r"|\bnot ?ready\b|\brc ?[=:] ?-?[1-9]|\bexited \([1-9]|\bsignal:? (?:\d|sig|killed)|no space left"
)
"""Matched case-insensitively."""
TOO_COMMON = frozenset(("Success", "Is a directory"))


def _system_words() -> str:
    """The C library's message for each error number, and the numbers' names, as a pattern."""
    said = {os.strerror(number) for number in errno.errorcode} - TOO_COMMON
    texts = sorted(text for text in said if " " in text and text.replace(" ", "").replace("-", "").isalpha())
    return f"(?i:{'|'.join(texts)})|\\b(?:{'|'.join(sorted(errno.errorcode.values()))})\\b"


ERROR = at_first_use(
    rf"(?i:{WORDS})|_error\b|_ERROR|(?m:^E {{3}})|(?m:^[EF]\d{{4}} \d)|(?m:^\s*[✗✘✕✖⨯×❌⛔])"
    r"|\b(?:ENO[A-Z]+|ECONN[A-Z]+|ERESOLVE|EINTEGRITY|EUSAGE|ETARGET)\b|\bErr[A-Z]\w+|\bExit [1-9]"
    r"|(?m:(?:^|: )\*\*\* )|\b[A-Z]\w+Sanitizer\b|(?m:^Terminated)"
    rf"|{_system_words()}"
)
COUNTED = r"errors?|failures?|failed|failing|fail|conflicts?|invalid|missing|unreachable|timeouts|rejected"
NO_COUNT = at_first_use(rf"(?i)(?:^|[,;:(|=] *|\bwith |\bfound |\band )0 (?:\w+ )?(?:{COUNTED})\b")
COUNT_OF_NONE = at_first_use(
    r"(?i)\b(?:errors|failures|failed|fail|conflicts|invalid|missing|unreachable|timeouts|rejected)\"?[:=] ?0"
)
NEXT_COUNT = at_first_use(r"^\"?(?:$|[,;)|}\]\s]+(?:$|[\"{\[(]*\w+\"?[:=]))")
"""The text after a count: nothing, or the name of the next one."""
NAME_ENDS = at_first_use(r"^\"? ?[:=]")
BEHIND = 200
"""Characters after a count that are examined."""
NOTHING_WRONG = at_first_use(
    r"(?i)\b(?:no|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|conflicts?|crashes|panics|exceptions)\b"
    r"|(?:^| )(?:--[a-z][\w-]+|-W[\w=-]+)"
)
"""Phrases that report success, and options in quoted commands (`-Werror`, `--no-fail-fast`)."""
PACKAGE = at_first_use(
    r"^\s*(?:Compiling|Checking|Downloaded|Downloading|Fresh|Adding|Locking|Documenting|Updating) "
    r"[\w-]+ v\d\S*(?: \([^)]*\))?$"
    r"|^(?:Collecting|Using cached|Downloading|Installing|Requirement already satisfied:|  Downloading|  Using cached) "
    r"[\w.-]+\S*"
    r"(?: \([^)]*\))?(?: in \S+)?(?: \([^)]*\))?$"
)
PASSING = at_first_use(
    r"^test \S+(?: - [\w ]+| \(line \d+\)| - \S+ \(line \d+\)(?: - [\w ]+)?)* \.\.\. (?:ok|ignored(?:, .*)?)$"
    r"|^\s*(?:PASS|SKIP) \[ *[\d.]+s\] "
    r"|^\s*--- (?:PASS|SKIP): \S+ \([\d.]+s\)$|^=== (?:RUN|PAUSE|CONT|NAME) +\S+$"
    # Not coverage, which is a result.
    r"|^ok  \t\S+\t[^\t]*$|^\? +\t\S+\t\[no test files\]"
    r"|^\{.*\"Action\":\"(?:start|run|pass|skip|pause|cont)\".*\}$"
    r"|^\{.*\"Action\":\"output\".*\"Output\":\"(?:=== (?:RUN|PAUSE|CONT|NAME)|\s*--- (?:PASS|SKIP))[^\"]*\"\}$"
    r"|^\s+[✓√] |^ ?PASS +\S+(?: \([\d.]+ m?s\))?$"
    r"|^\w+ \([\w.]+\)(?: \.\.\. |.* \.\.\. )ok$"
)
XDIST = at_first_use(r"^\[gw\d+\] \[ *\d+%\] (?:PASSED|SKIPPED|XFAIL) \S+::.*$")

ROW = at_first_use(r"(?m)^\S+ +(?:\S+ +)?(\d{1,6})/(\d{1,6}) +(?:\d+ |[A-Z]\w*[:\w]* ).*\d+[smhdy]\w*(?: |$)")
"""A row of `kubectl get --no-headers`, which ends in an age."""
TABLE = at_first_use(rf"(?m)^NAME(?:SPACE)? |{ROW.pattern}")
COLUMN = at_first_use(r"[A-Z][A-Z()-]*(?: [A-Z()-]+)*")
MAX_ROW = 10_000
FINISHED = frozenset(("complete", "completed", "succeeded"))
WELL = FINISHED | {"running", "ready", "active", "bound", "available", "deployed", "healthy", "true"}


def looks_like_error(line: str) -> bool:
    """Whether the line says that something went wrong, in any program's wording."""
    if ERROR.search(line) is None:
        return False
    if is_passing_line(line) or PACKAGE.search(line) is not None:
        return False
    rest = _without_success(line)
    return rest == line or ERROR.search(rest) is not None


def error_lines(lines: Sequence[str], among: Iterable[int] | None = None) -> Iterator[int]:
    """Indices of the lines that look like errors, in the order of `among` (all lines by default)."""
    places = iter(range(len(lines)) if among is None else among)
    while chunk := list(islice(places, CHUNK)):
        if ERROR.search("\n".join([lines[place] for place in chunk])) is not None:
            yield from (place for place in chunk if looks_like_error(lines[place]))


def _without_success(line: str) -> str:
    """The line without phrases that report success. Each count is removed separately, whatever the next one says."""
    if "0 " in line:
        none = [count for count in NO_COUNT.finditer(line) if NAME_ENDS.search(_behind(line, count)) is None]
        line = _cut_out(line, none)
    if any(zero in line for zero in (":0", "=0", ": 0", "= 0")):
        none = [count for count in COUNT_OF_NONE.finditer(line) if NEXT_COUNT.search(_behind(line, count)) is not None]
        line = _cut_out(line, none)
    return line if NOTHING_WRONG.search(line) is None else NOTHING_WRONG.sub("", line)


def _behind(line: str, count: Match) -> str:
    rest = line[count.end() : count.end() + BEHIND]
    return rest if len(rest) < BEHIND else rest + "…"


def _cut_out(line: str, counts: Iterable[Match]) -> str:
    kept, at = [], 0
    for count in counts:
        kept.append(line[at : count.start()])
        at = count.end()
    return "".join([*kept, line[at:]])


def unready_rows(lines: Sequence[str]) -> Iterator[int]:
    """Indices of unhealthy rows in `kubectl get` tables and similar ones: READY is `n/m` with n below m, or STATUS is
    not that of a healthy object."""
    if TABLE.search("\n".join(lines)) is None:
        return
    columns: dict[str, tuple[int, int]] = {}
    for place, line in enumerate(lines):
        if line.startswith(("NAME ", "NAMESPACE ")):
            columns = _columns(line)
        elif not line.strip():
            columns = {}
        elif columns and _is_aligned(line, columns):
            if _is_unready(line, columns):
                yield place
        elif "/" in line and (row := ROW.search(line)) is not None and _is_short(row.group(1), row.group(2)):
            yield place


def _columns(head: str) -> dict[str, tuple[int, int]]:
    """Start and end of each column; empty if the table has no status column."""
    starts = [(word.group(), word.start()) for word in COLUMN.finditer(head)]
    ends = [start for _, start in starts[1:]] + [MAX_ROW]
    columns = {name: (start, end) for (name, start), end in zip(starts, ends, strict=True)}
    return columns if columns.keys() & {"READY", "STATUS"} else {}


def _is_aligned(row: str, columns: dict[str, tuple[int, int]]) -> bool:
    starts = [columns[name][0] for name in ("READY", "STATUS") if name in columns]
    return all(row[start - 1 : start + 1].lstrip() == row[start : start + 1].strip() != "" for start in starts)


def _is_unready(row: str, columns: dict[str, tuple[int, int]]) -> bool:
    cells = {name: row[start:end].strip() for name, (start, end) in columns.items()}
    status, ready = cells.get("STATUS", ""), cells.get("READY", "")
    if status and status.lower() not in WELL:
        return True
    if status.lower() in FINISHED:
        return False
    count, slash, of = ready.partition("/")
    return _is_short(count, of if slash else cells.get("DESIRED", "")) or ready in ("False", "Unknown")


def _is_short(count: str, of: str) -> bool:
    """Whether there are fewer than expected."""
    return count.isdecimal() and of.isdecimal() and (len(count), count) < (len(of), of)


def is_passing_line(line: str) -> bool:
    """Whether the line only says that one test passed or was skipped, whatever the test's name."""
    if "::" in line and _is_passing_pytest(line):
        return True
    return PASSING.search(line) is not None


def _is_passing_pytest(line: str) -> bool:
    """`tests/a.py::test_b PASSED   [ 12%]`, from `pytest -v`. Uses plain comparisons: there may be 100,000 of them."""
    head = line
    if line.endswith("%]"):
        head = line[: line.rfind("[")].rstrip()
        if not line[len(head) :].strip("[ %]").isdigit():
            return False
    elif line.startswith("[gw"):
        return XDIST.search(line) is not None
    if head.endswith((" PASSED", " SKIPPED", " XFAIL")):
        return True
    word = head.rfind(" SKIPPED (")
    return word > 0 and head.endswith(")")
