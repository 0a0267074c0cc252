"""Toad and marimo, as they come from PyPI, with our agent (scripts/install_python_clients.sh)."""

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from playwright.async_api import Locator, Page, async_playwright

from acp_agent.testing.fake_model import Answer, Call, FakeModel, Script
from tests.e2e.kit import COMMAND, environ, until_gone

from .kit import CHROMIUM_ARGUMENTS, NODE, _chromium
from .terminal import COLUMNS, LINES, Pane, agents_below

INSTALLED = Path(__file__).parents[1] / ".editors"
TOAD = INSTALLED / "toad" / "bin" / "toad"
MARIMO = INSTALLED / "marimo" / "bin" / "marimo"
BRIDGE = INSTALLED / "bridge" / "node_modules" / "stdio-to-ws" / "dist" / "main.js"
SECONDS = 60
APP = "def answer():\n    pass\n"
EDIT = Call("edit", {"path": "app.py", "old_string": "    pass", "new_string": "    return 42"})
NEW = Call("write", {"path": "new/folder/made.txt", "content": "made\n"})
READY = "How can I help you"


NOTEBOOK = """import marimo

app = marimo.App()


@app.cell
def _():
    number = 1
    return
"""


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
        pane = Pane(f"acp-{os.getpid()}-toad", home, project, model)
        new = ["new-session", "-d", "-s", "editor", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(project)]
        subprocess.run(
            ["tmux", "-L", pane.socket, "-f", "/dev/null", *new, str(TOAD), "acp", COMMAND, str(project)],
            env=environ(home, model.base_url, TERM="xterm-256color", SHELL="/bin/sh"), check=True, timeout=20,
        )  # fmt: skip
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


def results(model: FakeModel) -> list[str]:
    """What the tools have told the model by now."""
    return [message["content"] for message in model.requests[-1].body["messages"] if message["role"] == "tool"]


async def test_toad_shows_the_diff_and_what_is_allowed_is_done(tmp_path):
    script = [
        Answer(text="I look first.", tool_calls=(Call("read", {"path": "app.py"}), EDIT)),
        Answer(tool_calls=(bash("cat app.py; echo 'it''s' > seen.txt"), NEW)), "The answer is 42 now.",
    ]  # fmt: skip
    async with toad(tmp_path, script) as pane:
        await ask(pane, "make it answer 42")
        seen = await pane.until(lambda text: "Approval request" in text and "return 42" in text)
        assert "pass" in seen
        assert (pane.project / "app.py").read_text() == APP
        pane.picture("toad-question", seen)
        pane.type("a")
        await pane.until("Asked because its output goes to a file")
        pane.type("a")
        await pane.until(lambda text: "Approval request" in text and "made.txt" in text)
        pane.type("a")
        seen = await pane.until("The answer is 42 now.")
        assert "Write new/folder/made.txt ✔" in seen
        pane.picture("toad-done", seen)
        assert (pane.project / "app.py").read_text() == APP.replace("pass", "return 42")
        assert (pane.project / "new/folder/made.txt").read_text() == "made\n"
        assert (pane.project / "seen.txt").read_text() == "its\n" and "    return 42\n" in results(pane.model)[2]


async def test_what_is_rejected_in_toad_changes_nothing(tmp_path):
    async with toad(tmp_path, [Answer(tool_calls=(Call("read", {"path": "app.py"}), EDIT)), "Then not."]) as pane:
        await ask(pane, "make it answer 42")
        await pane.until(lambda text: "Approval request" in text and "return 42" in text)
        pane.type("r")
        await pane.until("Then not.")
        assert "not allow" in results(pane.model)[1] and (pane.project / "app.py").read_text() == APP


async def test_a_command_that_is_cancelled_in_toad_ends_and_the_next_prompt_works(tmp_path):
    async with toad(tmp_path, [Answer(tool_calls=(bash("echo $$ > pid; exec sleep 1000"),)), "Back again."]) as pane:
        await ask(pane, "wait")
        await pane.until("Allow once")
        pane.type("a")
        await pane.file("pid", "\n")
        pid = int((pane.project / "pid").read_text())
        pane.keys("Escape")
        await pane.until("again to cancel")
        pane.keys("Escape")
        await until_gone(pid)
        await ask(pane, "and now")
        await pane.until("Back again.")


async def test_toad_shows_a_plan_and_what_the_agent_says_of_it(tmp_path):
    steps = [{"content": "Look around", "status": "in_progress"}, {"content": "Fix it", "status": "pending"}]
    async with toad(tmp_path, [Answer(tool_calls=(Call("plan", {"entries": steps}),)), "Planned."]) as pane:
        await ask(pane, "plan it")
        seen = await pane.until("Planned.")
        assert "Fix it" in seen and "No plan yet" not in seen
        pane.type("/")
        await pane.until("fuzzy search")
        pane.type("status")
        await pane.until(lambda text: "Show session, model" in text and "List the commands" not in text)
        pane.keys("Enter")
        await pane.until("❯ /status")
        await pane.press("Enter", "The editor (toad) offers: reading buffers, writing")


# --- marimo --------------------------------------------------------------------------------------------------------


AGENT, AGENT_PORT = "cursor", 3025
"""marimo knows some agents, each by a port of its own where a bridge must stand; nothing else makes one of them."""

REMEMBERED = {
    "marimo:sidebar": {"selectedPanel": "ai", "isSidebarOpen": True, "isDeveloperPanelOpen": False},
    "marimo:chrome:ai-panel-tab": "agents",
    "marimo:acp:sessions:v1": {
        "sessions": [{"agentId": AGENT, "tabId": "t", "title": "New", "createdAt": 1, "lastUsedAt": 1}],
        "activeTabId": "t",
    },
}
"""What the browser keeps of an earlier visit: the panel is open, with a session of that agent."""


@dataclass
class Notebook:
    """marimo's page with its panel for agents."""

    page: Page
    project: Path
    model: FakeModel

    @property
    def panel(self) -> Locator:
        return self.page.locator("#app-chrome-sidebar")

    async def ask(self, words: str) -> None:
        await self.panel.get_by_text("Agent is connected").wait_for()
        box = self.panel.locator("[contenteditable=true]:visible").last
        await box.fill(words)
        await box.press("Enter")

    async def choose(self, question: str, option: str) -> None:
        """Answers the permission request that shows `question`."""
        await self.panel.get_by_text(question).first.wait_for()
        await self.panel.get_by_role("button", name=option, exact=True).click()

    async def says(self, words: str) -> None:
        await self.panel.get_by_text(words).first.wait_for()


@asynccontextmanager
async def marimo(tmp_path: Path, script: Script) -> AsyncIterator[Notebook]:
    """marimo with a notebook in Chromium, and the agent behind marimo's bridge."""
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".config" / "marimo").mkdir(parents=True)
    (home / ".config" / "marimo" / "marimo.toml").write_text("[experimental]\nexternal_agents = true\n")
    project.mkdir()
    (project / "app.py").write_text(NOTEBOOK, encoding="utf-8")
    async with FakeModel(script) as model, AsyncExitStack() as stack:
        port = free_port()
        environment = environ(home, model.base_url)
        serve = ["--headless", "--no-token", "--skip-update-check", "--port", str(port)]
        await stack.enter_async_context(running([str(MARIMO), "edit", "app.py", *serve], project, environment))
        bridge = [str(NODE), str(BRIDGE), "--quiet", "--port", str(AGENT_PORT), COMMAND]
        await stack.enter_async_context(running(bridge, project, environment))
        for each in (port, AGENT_PORT):
            await listening(each)
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=_chromium(), args=CHROMIUM_ARGUMENTS)
        stack.push_async_callback(browser.close)
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(SECONDS * 1000)
        kept = json.dumps({key: json.dumps(value) for key, value in REMEMBERED.items()})
        await page.add_init_script(f"for (const [k, v] of Object.entries({kept})) localStorage.setItem(k, v);")
        await page.goto(f"http://127.0.0.1:{port}/")
        yield Notebook(page, project, model)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def listening(port: int) -> None:
    with anyio.fail_after(SECONDS):
        while True:
            try:
                stream = await anyio.connect_tcp("localhost", port)
            except OSError:
                await anyio.sleep(0.05)
            else:
                await stream.aclose()
                return


@asynccontextmanager
async def running(argv: list[str], folder: Path, environment: Mapping[str, str]) -> AsyncIterator[None]:
    async with await anyio.open_process(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None
    ) as process:
        try:
            yield
        finally:
            process.terminate()
            with anyio.move_on_after(10, shield=True):
                await process.wait()


async def test_marimo_shows_the_change_and_what_is_allowed_is_on_disk(tmp_path):
    edit = Call("edit", {"path": "app.py", "old_string": "number = 1", "new_string": "number = 42"})
    script = [
        Answer(text="I look first.", tool_calls=(Call("read", {"path": "app.py"}), edit)),
        Answer(tool_calls=(NEW, bash("cat app.py new/folder/made.txt > seen.txt"))), "The number is 42 now.",
    ]  # fmt: skip
    async with marimo(tmp_path, script) as notebook:
        await notebook.ask("make it 42")
        await notebook.says("Permission Request")
        assert (notebook.project / "app.py").read_text() == NOTEBOOK
        await notebook.choose("number = 42", "Allow once")
        await notebook.choose("made.txt", "Allow once")
        await notebook.choose("Asked because its output goes to a file", "Allow once")
        await notebook.says("The number is 42 now.")
        assert (notebook.project / "app.py").read_text() == NOTEBOOK.replace("number = 1", "number = 42")
        assert (notebook.project / "seen.txt").read_text().endswith("return\nmade\n")
        assert str(notebook.project / "app.py") in str(notebook.model.requests[0].body["messages"][-1]["content"])


async def test_what_is_rejected_in_marimo_changes_nothing(tmp_path):
    edit = Call("edit", {"path": "app.py", "old_string": "number = 1", "new_string": "number = 42"})
    async with marimo(tmp_path, [Answer(tool_calls=(Call("read", {"path": "app.py"}), edit)), "Then not."]) as notebook:
        await notebook.ask("make it 42")
        await notebook.choose("number = 42", "Reject")
        await notebook.says("Then not.")
        assert (notebook.project / "app.py").read_text() == NOTEBOOK and "not allow" in results(notebook.model)[1]
