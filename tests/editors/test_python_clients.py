"""Toad and marimo, as they come from PyPI, with our agent (scripts/install_python_clients.sh)."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import getpid
from pathlib import Path

import anyio
import pytest

from acp_agent.testing.fake_model import Answer, Call, FakeModel, Script
from tests.e2e.kit import COMMAND, alive, environ

from .terminal import COLUMNS, LINES, Pane, agents_below

pytestmark = pytest.mark.anyio

TOAD = Path(__file__).parents[1] / ".editors" / "toad" / "bin" / "toad"
APP = "def answer():\n    pass\n"
EDIT = Call("edit", {"path": "app.py", "old_string": "    pass", "new_string": "    return 42"})
NEW = Call("write", {"path": "new/folder/made.txt", "content": "made\n"})
READY = "How can I help you"


def bash(command: str) -> Call:
    return Call("bash", {"command": command})


# --- Toad ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def toad(tmp_path: Path, script: Script) -> AsyncIterator[Pane]:
    """Toad in a terminal, in `tmp_path/project`, with the agent behind it."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    (project / "app.py").write_text(APP, encoding="utf-8")
    async with FakeModel(script) as model:
        pane = Pane(f"acp-{getpid()}-toad", home, project, model)
        new = ["new-session", "-d", "-s", "editor", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(project)]
        subprocess.run(
            ["tmux", "-L", pane.socket, "-f", "/dev/null", *new, str(TOAD), "acp", COMMAND, str(project)],
            env=environ(home, model.base_url, TERM="xterm-256color", SHELL="/bin/sh"),
            check=True,
            timeout=20,
        )
        try:
            await pane.until(READY)
            yield pane
        finally:
            pane.tmux("kill-server")
            with anyio.move_on_after(10, shield=True):
                while agents_below(project):
                    await anyio.sleep(0.05)


async def ask(pane: Pane, words: str) -> None:
    pane.type(words)
    await pane.until(words)
    pane.keys("Enter")


def results(pane: Pane) -> list[str]:
    """What the tools have told the model by now."""
    messages = pane.model.requests[-1].body["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


async def test_toad_shows_the_diff_and_what_is_allowed_is_done(tmp_path):
    script = [
        Answer(text="I look first.", tool_calls=(Call("read", {"path": "app.py"}), EDIT)),
        Answer(tool_calls=(bash("cat app.py; echo 'it''s' > seen.txt"), NEW)),
        "The answer is 42 now.",
    ]
    async with toad(tmp_path, script) as pane:
        await ask(pane, "make it answer 42")
        seen = await pane.until(lambda text: "Allow once" in text and "return 42" in text)
        assert "pass" in seen
        assert (pane.project / "app.py").read_text() == APP
        pane.picture("toad-question", seen)
        pane.type("a")
        await pane.until("Asked because it writes")
        pane.type("a")
        await pane.until(lambda text: "Allow once" in text and "made.txt" in text)
        pane.type("a")
        seen = await pane.until("The answer is 42 now.")
        assert "Write new/folder/made.txt ✔" in seen
        pane.picture("toad-done", seen)
        assert (pane.project / "app.py").read_text() == APP.replace("pass", "return 42")
        assert (pane.project / "new/folder/made.txt").read_text() == "made\n"
        assert (pane.project / "seen.txt").read_text() == "its\n"
        assert "    return 42\n" in results(pane)[2]


async def test_what_is_rejected_in_toad_changes_nothing(tmp_path):
    async with toad(tmp_path, [Answer(tool_calls=(Call("read", {"path": "app.py"}), EDIT)), "Then not."]) as pane:
        await ask(pane, "make it answer 42")
        await pane.until(lambda text: "Allow once" in text and "return 42" in text)
        pane.type("r")
        await pane.until("Then not.")
        assert "not allow" in results(pane)[1]
        assert (pane.project / "app.py").read_text() == APP


async def test_a_command_that_is_cancelled_in_toad_ends_and_the_next_prompt_works(tmp_path):
    script = [Answer(tool_calls=(bash("echo $$ > pid; exec sleep 1000"),)), "Back again."]
    async with toad(tmp_path, script) as pane:
        await ask(pane, "wait")
        await pane.until("Allow once")
        pane.type("a")
        await pane.file("pid", "\n")
        pid = int((pane.project / "pid").read_text())
        pane.keys("Escape")
        await pane.until("again to cancel")
        pane.keys("Escape")
        with anyio.fail_after(10):
            while alive(pid):
                await anyio.sleep(0.02)
        await ask(pane, "and now")
        await pane.until("Back again.")


async def test_toad_shows_a_plan_and_what_the_agent_says_of_it(tmp_path):
    steps = [{"content": "Look around", "status": "in_progress"}, {"content": "Mend it", "status": "pending"}]
    async with toad(tmp_path, [Answer(tool_calls=(Call("plan", {"entries": steps}),)), "Planned."]) as pane:
        await ask(pane, "plan it")
        seen = await pane.until("Planned.")
        assert "Mend it" in seen and "No plan yet" not in seen
        await ask(pane, "/status")
        await pane.until("The editor (toad) offers: reading buffers, writing buffers, terminals")
