"""Benchmarks of a command's round in a large repository: the real agent, with its sandbox, its undo and its watch.

`scripts/bench_scale_rounds.py [--files NUMBER ...] [--rounds NUMBER] [--keep FOLDER]`. Prints one table and asserts
nothing. A round is a turn with one `true` less one without a call; the first is that of a new session. The repository
is generated and committed once for each size, in `.bench/rounds/`, or in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench

SIZES = (1_000, 300_000)
PER_FOLDER = 100
MANY = 20_000
GOALS = {
    "a round": "25 ms",
    "the first command": "150 ms",
    "a command that changes many files": "1,000 ms of 20,000 files",
    "/diff of them": "1,000 ms",
    "/undo of them": "5,000 ms",
    "peak memory": "110 MiB",
}
ANSWER: dict[str, Any] = {"text": "Done."}


def bash(line: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "bash", "arguments": json.dumps({"command": line})}]}


def git(folder: Path, *arguments: str) -> None:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    environ |= {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", "-c", "gc.auto=0", *arguments], cwd=folder, env=environ, check=True, capture_output=True)


def generated(place: Path, files: int) -> Path:
    folder = place / str(files)
    if not (folder / ".git" / "done").exists():
        for number in range(files):
            path = folder / f"a{number // PER_FOLDER % 50}" / f"b{number // PER_FOLDER}" / f"f{number % PER_FOLDER}.py"
            if number % PER_FOLDER == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"value = {number}\n" * 5)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
            git(folder, *command)
        (folder / ".git" / "done").touch()
    git(folder, "reset", "-q", "--hard")
    git(folder, "clean", "-qfdx")
    time.sleep(1)
    git(folder, "status")  # No file is as young as the index.
    return folder


class Rounds:
    """One agent in a repository."""

    def __init__(self, home: Path, project: Path, script: Sequence[dict[str, Any]]) -> None:
        self.model = bench.Model(home, script)
        self.client = bench.Client(home, self.model.base_url)
        self.client.project = project
        self.client.initialize()
        self.session, _ = self.client.new_session()
        self.client.set_mode(self.session, "auto")

    def close(self) -> None:
        self.client.close()
        self.model.close()


def rounds(project: Path, count: int) -> dict[str, float]:
    """The first command and later ones, in ms, and the peak memory then in MiB."""
    home = Path(tempfile.mkdtemp(prefix="bench-rounds-"))
    script = [ANSWER, ANSWER, bash("true"), ANSWER, *[ANSWER, bash("true"), ANSWER] * count]
    agent = Rounds(home, project, script)
    try:
        asked, took = agent.model.direct([bench.user()]), list[float]()
        agent.model.direct([bench.user()])
        first = agent.client.prompt(agent.session)
        time.sleep(3)
        for _ in range(count):
            plain = agent.client.prompt(agent.session)
            took.append(agent.client.prompt(agent.session) - plain - asked)
            time.sleep(0.3)
        return {
            "a round": statistics.median(took),
            "the first command": first,
            "peak memory": agent.client.peak_memory(),
        }
    finally:
        agent.close()
        shutil.rmtree(home, ignore_errors=True)


def many(project: Path, files: int) -> dict[str, float]:
    """A command that changes many files, what shows it, and what takes it back; each with what git or a shell needs for
    no more than that."""
    home = Path(tempfile.mkdtemp(prefix="bench-many-"))
    line = f"find . -name '*.py' | head -{files} | xargs sed -i '1s/^/changed = 1\\n/'"
    agent = Rounds(home, project, [bash("true"), ANSWER, bash(line), ANSWER, *[ANSWER] * 4])
    found: dict[str, float] = {}

    def beside(name: str, *command: str) -> None:
        began = time.perf_counter()
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)
        found[f"{name}, times `{' '.join(command[:2])}`"] = found[name] / (time.perf_counter() - began) / 1000

    try:
        agent.client.prompt(agent.session)
        time.sleep(3 + files / 2000)
        found["a command that changes many files"] = agent.client.prompt(agent.session)
        found["/diff of them"] = agent.client.prompt(agent.session, "/diff")
        beside("/diff of them", "git", "diff", "--stat")
        found["/undo of them"] = agent.client.prompt(agent.session, "/undo files yes")
        git(project, "checkout", "-q", ".")
        beside("a command that changes many files", "sh", "-c", line)
        beside("/undo of them", "git", "checkout", "-q", ".")
        found["peak memory, many files"] = agent.client.peak_memory()
        return found
    finally:
        agent.close()
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--files", type=int, action="append", help=f"files in the repository; without it {SIZES}")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keep", type=Path, default=bench.ROOT / ".bench" / "rounds", help="where they are generated")
    parser.add_argument("--many", action="store_true", help=f"also what changed files cost, at most {MANY}")
    options = parser.parse_args()
    sys.stdout.write(f"{'files':>8}  {'measurement':66} {'figure':>8}  goal\n")
    for files in options.files or SIZES:
        project = generated(options.keep, files)
        found = rounds(project, options.rounds)
        if options.many:
            found |= many(project, min(files, MANY))
        for name, figure in found.items():
            digits = 1 if "times" in name else 0
            sys.stdout.write(f"{files:>8}  {name:66} {figure:8.{digits}f}  {GOALS.get(name, '')}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
