"""The walks of docs/architecture.md: what they name exists, and a real call takes that path."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import agent_rig

from .imports import PACKAGE, ROOT

MOST_FILES = 25
"""On the way of a bash call, from the model's answer to its process."""


def walks() -> dict[str, list[tuple[str, str]]]:
    """Title -> file and name of each step."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    titles = re.split(r"^### (.+)$", text.partition("## Four walks")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]
    steps = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)
    return {title: steps.findall(body) for title, body in zip(titles[::2], titles[1::2], strict=True)}


@pytest.mark.parametrize("title", walks())
def test_what_a_walk_names_is_there(title: str) -> None:
    assert len(walks()[title]) >= 5
    for file, name in walks()[title]:
        found: Any = import_module("acp_agent." + file.removesuffix(".py").replace("/", "."))
        for step in name.split("."):
            assert hasattr(found, step), f"{file}: there is no {name}"
            found = getattr(found, step)


def test_there_are_four_walks_and_the_way_of_a_bash_call_is_short() -> None:
    assert len(walks()) == 4
    files = {file for file, _ in walks()["A bash call to its process"]}
    sys.stdout.write(f"files on the way of a bash call (at most {MOST_FILES}): {len(files)}\n")
    assert len(files) <= MOST_FILES


async def test_a_bash_call_goes_the_way_that_its_walk_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[str] = []
    held: list[str] = []
    """The files whose functions wait for the process: the way itself."""
    popen = subprocess.Popen.__init__

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            visited.append(str(file.relative_to(PACKAGE)))

    def started(process: Any, args: Any, *more: Any, **options: Any) -> None:
        if "a-mark-of-ours" in str(args) and not held:
            frame: FrameType | None = sys._getframe()
            while frame is not None:
                file = Path(frame.f_code.co_filename)
                if file.is_relative_to(PACKAGE):
                    held.append(str(file.relative_to(PACKAGE)))
                frame = frame.f_back
            sys.setprofile(None)
        popen(process, args, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", started)
    script: list[Any] = [Answer(tool_calls=(Call("bash", {"command": "echo a-mark-of-ours"}),)), "done"]
    async with agent_rig(tmp_path, script, terminal=False) as rig:
        await rig.editor.new_session(rig.project)
        sys.setprofile(note)
        try:
            await rig.editor.prompt("go", seconds=60)
        finally:
            sys.setprofile(None)
    steps = [file for file, _ in walks()["A bash call to its process"]]
    assert held, "the command was started by this process"
    assert set(held) - {"loop/session.py", "loop/turns/session_turns.py", "agent.py", "protocol/connection.py"} <= set(
        steps
    )
    assert not [file for file in steps if file not in visited], "a walk names files that a call does not come through"
