"""Benchmarks in a large repository: what each thing costs there, beside what does no more than it must. `make
bench-scale`, or `scripts/bench_scale.py [--files NUMBER] [--rounds NUMBER] [NAME ...]`.

Prints one table and asserts nothing. The repository is generated once for each size, in `.bench/`. Each measurement is
a row of `MEASUREMENTS`: its name, what is measured, and its yardstick, which are run in turn, and warm. All that is
measured runs in this process; its memory is the peak since it began, so give one name to know that of one.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from acp_agent.executors.base import FindQuery, GrepQuery
from acp_agent.executors.disk_files import DiskFiles, LocalDisk
from acp_agent.safety.folders.protect import PathRules

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".bench"
SIZES = (1_000, 30_000, 300_000)
PER_FOLDER = 20
WIDE = 3
"""Of all entries, one in so many are in one wide folder beside the repository: 100,000 of 300,000."""
MOST, SECONDS = 500, 120.0
"""Results that are asked for, as `tools.files.max_results`; and how long a search may take."""
LINES = "".join(f"def function_{number}(value):\n    return value + {number}\n" for number in range(15))
RG = ("rg", "--no-config", "--hidden", "--glob=!.git", "--no-messages")


@dataclass(frozen=True)
class Place:
    """A generated repository."""

    repository: Path
    wide: Path
    """A folder with many files."""


Work = Callable[[Place], None]


@dataclass(frozen=True)
class Measurement:
    name: str
    work: Work
    yardstick: Work | None
    """What does no more than it must; `None`: the figure stands alone."""
    goal: str


def generated(files: int) -> Place:
    place = Place(PLACE / f"{files}" / "repository", PLACE / f"{files}" / "wide")
    done = PLACE / f"{files}" / "done"
    if done.exists():
        return place
    for number in range(files):
        folder = number // PER_FOLDER
        path = place.repository / f"part{folder // 400:03}" / f"module{folder:05}" / f"file{number:06}.py"
        if number % PER_FOLDER == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# file {number}\n{LINES}")
    (place.repository / "part000" / "module00000" / "file000007.py").write_text("the_only_needle = 1\n")
    (place.repository / ".gitignore").write_text("*.log\nbuild/\n")
    (place.repository / ".git").mkdir(exist_ok=True)
    place.wide.mkdir(exist_ok=True)
    for number in range(files // WIDE):
        (place.wide / f"entry{number:06}").touch()
    done.touch()
    return place


def _rg(*arguments: str) -> Work:
    def run(place: Place) -> None:
        subprocess.run([*RG, *arguments, str(place.repository)], stdout=subprocess.DEVNULL, check=False)

    return run


def _files(folder: Path) -> tuple[DiskFiles, PathRules]:
    """As a session has it."""
    rules = PathRules(bases=[folder], home=Path.home(), own=[Path.home() / ".config" / "acp-coder"])
    return DiskFiles(LocalDisk(os.environ), rules.hides), rules


def _find(pattern: str) -> Work:
    def run(place: Place) -> None:
        _ran(_files(place.repository)[0].find, FindQuery(pattern, place.repository, MOST, SECONDS))

    return run


def _grep(pattern: str) -> Work:
    def run(place: Place) -> None:
        files, rules = _files(place.repository)
        skips = lambda path: rules.key_file(path) is not None  # noqa: E731
        _ran(files.grep, GrepQuery(pattern, place.repository, True, MOST, SECONDS, skips=skips))

    return run


def _ran(what: Callable[..., object], *arguments: object) -> None:
    anyio.run(what, *arguments)  # type: ignore[arg-type]


MEASUREMENTS = (
    Measurement("find_path, one file", _find("file000007.py"), _rg("--files"), "1.5 times `rg --files`"),
    Measurement("find_path, all files", _find("*.py"), _rg("--files"), "1.5 times `rg --files`"),
    Measurement("grep, one hit", _grep("the_only_needle"), _rg("the_only_needle"), "1.2 times `rg`"),
    Measurement("grep, a hit in each file", _grep("return value"), _rg("return value"), "none: it ends early"),
    Measurement(
        "list_directory, wide folder",
        lambda place: _ran(_files(place.wide)[0].list, place.wide, MOST),
        lambda place: deque(os.scandir(place.wide), 0).clear(),
        "150 ms",
    ),
)


def _milliseconds(work: Work, place: Place) -> float:
    began = time.perf_counter()
    work(place)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--files", type=int, action="append", help=f"files in the repository; without it {SIZES}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", help="beginnings of names of measurements; without any, all")
    options = parser.parse_args()
    chosen = [row for row in MEASUREMENTS if row.name.startswith(tuple(options.names) or "")]
    sys.stdout.write(f"{'files':>8}  {'measurement':32} {'ms':>8} {'beside':>8} {'times':>6} {'peak MiB':>9}  goal\n")
    for files in options.files or SIZES:
        place = generated(files)
        for row in chosen:
            works = [row.work, *([row.yardstick] if row.yardstick else [])]
            took = [[_milliseconds(work, place) for work in works] for _ in range(options.rounds + 1)][1:]
            ours, *beside = map(statistics.median, zip(*took, strict=True))
            other = [f"{beside[0]:8.0f}", f"{ours / beside[0]:6.2f}"] if beside else [" " * 8, " " * 6]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            sys.stdout.write(f"{files:>8}  {row.name:32} {ours:8.0f} {' '.join(other)} {peak:9.0f}  {row.goal}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
