"""Random sequences of what the agent writes, what its commands write, what the user types in buffers, saves and changes
on the disk, with undo and redo in between: nothing that the user typed is ever lost."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import Rig, asks, bash, rig
from tests.agent.test_undo import said
from tests.nightly import times

STEPS = 14
KINDS = ("tool", "tool", "command", "types", "types", "saves", "disk", "undo", "undo", "redo")


LEAST = {0: 3, 1: 3, 4: 2, 5: 2}
"""By seed: how many undos and redos do something, so that the sequences are not idle."""


class Run:
    """`save`: whether the editor saves what the agent writes."""

    def __init__(self, r: Rig, chance: random.Random, answers: list[Answer]) -> None:
        self.r = r
        self.chance = chance
        self.answers = answers
        self.count = 0
        self.done: list[str] = []
        self.undone = 0

    @property
    def buffers(self) -> dict[Path, str]:
        return self.r.editor.files.buffers

    def line(self, who: str) -> str:
        self.count += 1
        return f"{who} {self.count}\n"

    def disk(self, path: Path) -> str:
        return path.read_text() if path.exists() else ""

    def shown(self, path: Path) -> str:
        return self.buffers.get(path, self.disk(path))

    def users(self) -> dict[Path, set[str]]:
        """The user's lines, wherever they are."""
        texts = {path: f"{self.disk(path)}{self.buffers.get(path, '')}" for path in self.paths()}
        return {path: {line for line in text.splitlines() if "user" in line} for path, text in texts.items()}

    def paths(self) -> list[Path]:
        return [self.r.project / name for name in ("a.txt", "b.txt")]

    async def step(self) -> None:
        kind, path = self.chance.choice(KINDS), self.chance.choice(self.paths())
        self.done.append(f"{kind} {path.name}")
        match kind:
            case "tool":
                write = Call("write", {"path": str(path), "content": self.shown(path) + self.line("agent")})
                self.answers += [asks(Call("read", {"path": str(path)})), asks(write)]
                await self.r.editor.prompt(f"write {self.count}")
            case "command":
                script = f"echo {self.line('command').rstrip()} >> {path.name}"
                self.answers.append(asks(bash(script)))
                await self.r.editor.prompt(f"run {self.count}")
            case "types":
                self.buffers[path] = self.line("user") + self.shown(path)
            case "saves" if path in self.buffers:
                path.write_text(self.buffers.pop(path))
            case "disk" if path not in self.buffers:
                path.write_text(self.disk(path) + self.line("user"))
            case "undo" | "redo":
                before = self.users()
                told = await said(self.r, f"/{kind} files yes" if kind == "undo" else "/redo yes")
                self.undone += told.startswith(("Taken back", "Done again"))
                after = self.users()
                for each in self.paths():
                    assert before[each] <= after[each], f"{self.done}: lost {before[each] - after[each]}; {told}"


@pytest.mark.parametrize("save", [True, False], ids=["saves at once", "keeps buffers"])
@pytest.mark.parametrize("seed", range(times(3, 12)))
async def test_nothing_that_the_user_typed_is_lost(tmp_path: Path, seed: int, save: bool) -> None:
    answers: list[Answer] = []

    def reply(body: dict[str, Any]) -> Answer | str:
        return answers.pop(0) if answers else "Done."

    model: Callable[[dict[str, Any]], Answer | str] = reply
    async with rig(tmp_path, model, mode="auto", save=save) as r:
        for name in ("a.txt", "b.txt"):
            (r.project / name).write_text("first\n")
        run = Run(r, random.Random(seed), answers)
        for _ in range(STEPS):
            await run.step()
            answers.clear()
        assert run.undone >= LEAST.get(seed, 0), run.done
