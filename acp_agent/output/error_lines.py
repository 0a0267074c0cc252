"""Which lines tell of a failure. The promise of all filters hangs on this: such a line is never lost.

Rather one line too many: a mention of an error in a harmless place costs a line, a lost error costs a turn. What is
excused is what certainly tells of success: counts of nothing (`0 errors`), tests that passed and carry the word in
their name, and a package that is called so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from acp_agent.linear import at_first_use

__all__ = ["error_lines", "is_passing_line", "looks_like_error"]

CHUNK = 500
"""Lines searched at once: most outputs have no error in most places."""

WORDS = (
    r"\berror|[a-z0-9]+error\b|error:|\berr\b|ERR!|\bfail|\bfatal|panic|exception|traceback|\bassert|denied|\bcannot\b"
    r"|\bcan't\b|\bcan ?not\b|could ?n[o']t|\bcould not\b|unable to|not found|no such|\bundefined\b|\babort|\bkilled\b"
    r"|segmentation fault|segfault|core dumped|conflict|refused|timed out|\btimeout\b|\binvalid\b|unresolved|caused by"
    r"|\bnon-?zero\b|exit(?:ed)? (?:with )?(?:code|status):? -?[1-9]|unhandled|uncaught|critical|\bsevere\b|\bemerg"
    r"|out of memory|oom-?kill|backoff|evicted|not ok\b|\bcrash|corrupt|permission|unreachable|unexpected|unrecognized"
    r"|unknown (?:option|command|flag|argument)|does not (?:exist|match|satisfy)|doesn't (?:exist|match)|violat"
    r"|is not recognized|\bmissing\b|mismatch|stack ?overflow|\bdeadlock|\bincompatible\b|\bbroken\b|\bnot allowed\b"
)
ERROR = at_first_use(
    rf"(?i:{WORDS})|_error\b|_ERROR|(?m:^E {{3}})|(?m:^[EF]\d{{4}} \d)|(?m:^\s*[✗✘✕×❌] )"
    r"|\bE(?:NO[A-Z]+|ACCES|PERM|CONN[A-Z]+|RESOLVE|EXIST|INTEGRITY|TIMEDOUT|BUSY|MFILE|USAGE|TARGET)\b"
)
NOTHING_WRONG = at_first_use(
    r"(?i)(?:^|[,;:(|=] *|\bwith |\bfound |\band )0 (?:\w+ )?(?:errors?|failures?|failed|failing|conflicts?|invalid)\b"
    r"|(?i)\b(?:no|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|conflicts?|crashes|panics|exceptions)\b"
    r"|(?i)\b(?:errors|failures|failed|fail|conflicts|invalid|missing|unreachable|timeouts)\"?[:=] ?0"
    r"(?:$|[,;)|}\s]+(?:$|\w+\"?[:=]))"
    r"|(?:^| )(?:--[a-z][\w-]+|-W[\w=-]+)"
)
"""Said of success, and options of commands that are shown (`-Werror`, `--no-fail-fast`)."""
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
    r"|^ok  \t\S+\t|^\? +\t\S+\t\[no test files\]"
    r"|^\{.*\"Action\":\"(?:start|run|pass|skip|pause|cont)\".*\}$"
    r"|^\{.*\"Action\":\"output\".*\"Output\":\"(?:=== (?:RUN|PAUSE|CONT|NAME)|\s*--- (?:PASS|SKIP))[^\"]*\"\}$"
    r"|^\s+[✓√] |^ ?PASS +\S+(?: \([\d.]+ m?s\))?$"
    r"|^\w+ \([\w.]+\)(?: \.\.\. |.* \.\.\. )ok$"
)
XDIST = at_first_use(r"^\[gw\d+\] \[ *\d+%\] (?:PASSED|SKIPPED|XFAIL) \S+::.*$")


def looks_like_error(line: str) -> bool:
    """Whether the line tells that something went wrong, in whatever program's words."""
    if ERROR.search(line) is None:
        return False
    if is_passing_line(line) or PACKAGE.search(line) is not None:
        return False
    if NOTHING_WRONG.search(line) is None:
        return True
    return ERROR.search(NOTHING_WRONG.sub("", line)) is not None


def error_lines(lines: Sequence[str], among: Iterable[int] | None = None) -> Iterator[int]:
    """Places of the lines that look like errors, in the order of `among` (all lines by default)."""
    places = iter(range(len(lines)) if among is None else among)
    while chunk := list(islice(places, CHUNK)):
        if ERROR.search("\n".join([lines[place] for place in chunk])) is not None:
            yield from (place for place in chunk if looks_like_error(lines[place]))


def is_passing_line(line: str) -> bool:
    """Whether the line says of one test that it passed or was skipped, and nothing else: whatever the test's name."""
    if "::" in line and _is_passing_pytest(line):
        return True
    return PASSING.search(line) is not None


def _is_passing_pytest(line: str) -> bool:
    """`tests/a.py::test_b PASSED   [ 12%]`, as of `pytest -v`. By plain comparisons: there may be 100,000 of them."""
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
