"""Random sequences of what the agent, its commands and the user do, with undo and redo in between: nothing of the
user's is ever changed by an undo or a redo, and without the user in between all is as it was, byte for byte."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from acp_agent.errors import ExecutorError
from acp_agent.undo.recording_files import RecordingFiles
from tests.files import put
from tests.nightly import times

from .kit import Bench, State

SEQUENCES = times(60)
NAMES = ("a", "b", "d/a", "d/e/b", "d")
CHANGES = ("write", "write", "append", "remove", "mode", "link", "folder", "move")


class Run:
    def __init__(self, folder: Path, *, watching: bool = True) -> None:
        self.bench = Bench(folder, watching=watching)
        self.count = 0
        self.prompt = 0
        self.before: dict[int, State] = {}
        """By prompt."""
        self.users: set[str] = set()
        """Paths that the user changed after the last recorded change."""
        self.interfered = 0
        """The last prompt before which the user did something."""
        self.redoable: list[State] = []

    def content(self, who: str) -> str:
        self.count += 1
        return f"{who} {self.count}\n"

    def change(self, how: tuple[Any, ...], who: str) -> None:
        """Done on the disk, as far as it can be."""
        path = self.bench.project / how[1]
        try:
            match how[0]:
                case "write":
                    put(path, self.content(who))
                case "append":
                    with open(path, "a") as file:
                        file.write(self.content(who))
                case "remove":
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                case "mode":
                    path.chmod(0o700 if path.is_dir() else 0o640)
                case "link":
                    path.symlink_to("a")
                case "folder":
                    path.mkdir(parents=True)
                case "move":
                    os.rename(path, self.bench.project / how[2])
                case "tree":
                    put(path / "in" / "it" / "file", self.content(who))
                case "exchange":
                    other, third = self.bench.project / how[2], self.bench.project / f"third {self.count}"
                    path.rename(third)
                    other.rename(path)
                    third.rename(other)
        except OSError:
            pass

    async def by_tool(self, how: tuple[Any, ...], files: RecordingFiles) -> None:
        path = self.bench.project / how[1]
        try:
            match how[0]:
                case "write" | "append":
                    await files.write(path, self.content("tool"))
                case "remove":
                    await files.remove(path, max_entries=100)
                case "folder":
                    await files.make_directory(path)
                case "move":
                    await files.move(path, self.bench.project / how[2], overwrite=True, max_entries=100)
        except (OSError, ExecutorError):
            pass

    def step(self, kind: str, what: Any) -> None:
        bench, before = self.bench, self.bench.state()
        if kind in ("tool", "command"):
            self.prompt += 1
            self.before[self.prompt] = before
            work: Callable[[RecordingFiles], Any] = lambda files: self.by_tool(what, files)  # noqa: E731
            if kind == "tool":
                bench.by_tool(work, self.prompt)
            else:
                bench.by_program(lambda: self.change(what, "command"), self.prompt)
            self.users -= changed(before, bench.state())
            self.redoable.clear()
        elif kind == "user":
            self.change(what, "user")
            if touched := changed(before, bench.state()):
                self.users |= touched
                self.interfered = self.prompt + 1
                self.redoable.clear()
        elif kind == "undo":
            first = max(1, self.prompt + 1 - what)
            operations = bench.operations(first)
            if not operations:
                return
            bench.take_back(operations, prompt=self.prompt)
            self.check(before, bench.state())
            if self.interfered <= first:
                assert bench.state() == self.before[first]
            self.redoable.append(before)
        elif self.redoable:
            bench.redo(self.prompt)
            self.check(before, bench.state())
            if self.interfered == 0:
                assert bench.state() == self.redoable[-1]
            self.redoable.clear()

    def check(self, before: State, after: State) -> None:
        lost = changed(before, after) & self.users
        # A folder that the user removed comes back if what the agent removed from it does.
        lost = {path for path in lost if path in before or after[path][0] != "dir"}
        assert not lost, f"changed although it was the user's: {lost}"


def changed(before: State, after: State) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def steps(chance: random.Random) -> Iterator[tuple[str, Any]]:
    for _ in range(chance.randint(5, 25)):
        kind = chance.choice(("tool", "command", "command", "user", "undo", "redo"))
        if kind == "undo":
            yield kind, chance.randint(1, 4)
        elif kind == "redo":
            yield kind, None
        else:
            yield kind, (chance.choice(CHANGES), chance.choice(NAMES), chance.choice(NAMES))


def test_undo_never_touches_what_is_the_users(tmp_path: Path) -> None:
    for seed in range(SEQUENCES):
        run = Run(tmp_path / str(seed), watching=seed % 3 > 0)
        done = []
        try:
            for step in steps(random.Random(seed)):
                done.append(step)
                run.step(*step)
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {done}") from error
        finally:
            run.bench.close()
