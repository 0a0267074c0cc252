"""Runs checks, a few at a time, each with an agent, a folder and a home of its own."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import anyio
from msgspec import Struct

from acp_agent.errors import AgentError, UsageError
from acp_agent.testing.fake_editor import FakeEditor
from acp_conformance.areas import AREAS
from acp_conformance.profiles import Profile
from acp_conformance.requirements import V2, Level, Requirement, requirements, schema_file
from acp_conformance.trial import CHECKS, Check, NotHere, Trial, Wrong
from acp_conformance.v2 import AREAS_V2

Outcome = Literal["passed", "failed", "not here"]

LEVELS: dict[str, tuple[Level, ...]] = {
    "must": ("must",),
    "should": ("must", "should"),
    "all": ("must", "should", "may"),
}
AT_ONCE = max(2, os.cpu_count() or 1)
CHECK_SECONDS, MOST_STARTS = 120.0, 10
"""For a check, and how often one starts the agent: what that may take comes on top."""
MOST_LINES, LONGEST_LINE = 400, 2000
"""Of the wire that a result keeps."""
AREAS_OF = {1: AREAS, 2: AREAS_V2}
"""By version of the protocol."""
NAMED = re.compile(r"from_agent: ((?:V2-)?[A-Z]+-\d+): ")
"""With which the sentences of v2 about lines begin: the requirement that is broken."""
SCHEMA = re.compile("SessionNotification")
SAME = re.compile(r"was final \((\w+)\) and became \1$")
"""A status that is told again went nowhere."""
UNASKED = "which is not open"
UNANNOUNCED = "permission asked for a tool call that was not announced"
"""No fault of its own: the question may announce it (PERM-3, whose check looks for a title)."""
WIRE: tuple[tuple[str, str], ...] = (
    (r"fs/\w+ was not offered", "FS-1"),
    (r"terminal/\w+ was not offered", "TERM-1"),
    (r"elicitation .*was not offered", "ELIC-1"),
    (r"notice was not offered", "NOTE-1"),
    (r"compaction\w* was not offered", "COMP-1"),
    (r"plan_\w+ was not offered", "PLAN-1"),
    (r"plans are shown by", "PLAN-9"),
    (r"a plan names a relative path", "PLAN-6"),
    (r"SessionNotification.*\"type\": *\"file\"", "PLAN-7"),
    (r"before the answer that names it", "NEW-10"),
    (r"tool call .* was announced before", "TC-3"),
    (r"tool call .* (was final|went back)", "TC-4"),
    (r"update of tool call .*, which was not announced", "TC-3"),
    (r"names a relative path", "TR-9"),
    (r"terminal/\w+: terminal|embeds terminal", "TERM-5"),
    (r"permission options are not unique|RequestPermissionRequest", "PERM-2"),
    (r"not JSON|not an object", "TR-1"),
    (UNASKED, "PR-1"),
    (r"is already in use", "RPC-6"),
    (r"no such method of a client", "EXT-3"),
    (r"SessionNotification", "UPD-1"),
    (r"", "RPC-1"),
)
"""What is wrong with a line (`testing.checks`) -> the requirement that it breaks."""


class Result(Struct, frozen=True):
    requirement: Requirement
    outcome: Outcome
    why: str = ""
    tck: tuple[str, ...] = ()
    seconds: float = 0.0
    lines: tuple[str, ...] = ()
    """What went over the wire, if it failed."""


def chosen(areas: Iterable[str] = (), levels: Iterable[Level] = ("must", "should"), version: int = 1) -> list[Check]:
    """The checks of these areas (all), or requirements by id, and levels. Raises UsageError."""
    wanted = list(areas)
    known = AREAS_OF[version]
    checks = [id_ for id_ in requirements() if id_ in CHECKS and id_.startswith(V2) == (version == 2)]
    ids = {id_ for id_ in wanted if id_ in checks}
    if unknown := [name for name in wanted if name not in known and name not in ids]:
        raise UsageError(f"there is no area or check {unknown[0]!r}; areas are {', '.join(known)}")
    modules = {known[name].__name__ for name in wanted if name in known}
    return [
        CHECKS[id_]
        for id_ in checks
        if (not wanted or id_ in ids or CHECKS[id_].run.__module__ in modules)
        and (id_ in ids or CHECKS[id_].requirement.level in levels)
    ]


async def run(
    command: Sequence[str], profile: Profile, checks: Sequence[Check], told: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """The results, in the order of the checks; requirements that lines of the wire break are added behind them. `told`
    gets each once it is known."""
    FakeEditor.schema_file = schema_file("acp-v1.schema.json")
    results: dict[str, Result] = {}
    broken: dict[str, tuple[str, tuple[str, ...]]] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(check: Check) -> None:
        async with limiter:
            result, wrong, lines = await _run(command, profile, check)
        for sentence in wrong:
            broken.setdefault(_breaks(sentence), (f"{sentence} (in the check of {check.id})", lines))
        results[check.id] = result
        told(result)

    async with anyio.create_task_group() as tasks:
        for check in checks:
            tasks.start_soon(one, check)
    for id_, (why, lines) in broken.items():
        before = results.get(id_)
        if before is None or before.outcome != "failed":
            results[id_] = Result(requirements()[id_], "failed", why, before.tck if before else (), 0.0, lines)
            told(results[id_])
    return [results[id_] for id_ in requirements() if id_ in results]


async def _run(command: Sequence[str], profile: Profile, check: Check) -> tuple[Result, list[str], tuple[str, ...]]:
    begun = time.monotonic()
    outcome: Outcome = "passed"
    why = ""
    with tempfile.TemporaryDirectory(prefix="acp-kit-", ignore_cleanup_errors=True) as folder:
        trial = Trial(command, profile, Path(folder))
        try:
            with anyio.fail_after(CHECK_SECONDS + MOST_STARTS * profile.seconds):
                await check.run(trial)
        except BaseException as error:  # noqa: BLE001 - What is no judgement is raised again.
            outcome, why = judged(error)
    lines = tuple(writable(line[:LONGEST_LINE]) for line in trial.lines[-MOST_LINES:])
    seconds = time.monotonic() - begun
    kept = lines if outcome == "failed" else ()
    return Result(check.requirement, outcome, writable(why), check.tck, seconds, kept), _counted(trial), lines


def writable(text: str) -> str:
    """Without lone surrogates, which checks send and agents send back."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _counted(trial: Trial) -> list[str]:
    """What was wrong with lines, without what only follows from something else."""
    unknown = any(SCHEMA.search(each) for each in trial.violations)  # Then its tool call is not known, either.
    asked = {each.rpartition(" ")[2] for each in trial.violations if UNANNOUNCED in each}

    def follows(sentence: str) -> bool:
        return (
            (trial.raw and UNASKED in sentence)
            or (trial.versions and "result of initialize" in sentence)
            or (unknown and "not announced" in sentence)
            or UNANNOUNCED in sentence
            or SAME.search(sentence) is not None
            or any(f"update of tool call {id_}, which was not announced" in sentence for id_ in asked)
        )

    return [each for each in trial.violations if not follows(each)]


def judged(error: BaseException) -> tuple[Outcome, str]:
    """Raises what is no judgement."""
    if isinstance(error, BaseExceptionGroup):
        inner = [each for each in error.exceptions if not isinstance(each, anyio.get_cancelled_exc_class())]
        if inner:
            return judged(inner[0])
    if isinstance(error, NotHere):
        return "not here", str(error)
    if isinstance(error, Wrong):
        return "failed", str(error)
    if isinstance(error, TimeoutError):
        return "failed", "it took too long"
    if isinstance(error, AgentError):
        return "failed", f"{error}"
    if isinstance(error, AttributeError | LookupError | TypeError):  # What checks take for granted in a message.
        return "failed", f"what came cannot be read: {error!r}"
    raise error


def _breaks(sentence: str) -> str:
    if named := NAMED.match(sentence):
        return named[1]
    return next(id_ for pattern, id_ in WIRE if re.search(pattern, sentence))
