"""Helix, Neovim and Emacs with `acp-coder lsp`: real editors, set up by `acp-coder setup`, as a user does."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from acp_agent.testing.fake_model import Answer, Call, Script

from .terminal import Pane, agents_below, editing

APP = "def answer():\n    pass\n\n\nclass Other:\n    pass  # two\n"
EDIT = Call(
    "edit", {"path": "app.py", "old_string": "def answer():\n    pass", "new_string": "def answer():\n    return 42"}
)
WORK = (
    Answer(text="I look first.", tool_calls=(Call("read", {"path": "app.py"}), EDIT)),
    Answer(tool_calls=(Call("bash", {"command": "cat app.py"}),)), Answer(text="The answer is 42 now."),
)  # fmt: skip
HANGS = (Answer(text=("Thinking", " on"), hang_after=1),)


@dataclass
class Editor:
    """How one editor is driven. Each method does what a user would do, and no more."""

    pane: Pane

    async def ready(self) -> None:
        await self.pane.until("def answer")

    async def ask(self, words: str) -> None: ...

    async def actions(self) -> str:
        """Opens the list of code actions; what is there."""
        raise NotImplementedError

    async def choose(self, name: str) -> None:
        """Chooses an option of the question that is there."""
        raise NotImplementedError

    async def accept_preselected(self) -> None:
        self.pane.keys("Enter")

    async def stop(self) -> None: ...

    async def undo(self, again: str = "undo") -> None:
        """Or `redo`."""

    async def save(self) -> None: ...

    async def transcript(self) -> None: ...

    async def quit(self) -> None: ...

    async def edit_without_saving(self, text: str) -> None:
        """Types a line at the top."""


REFUSED = "language server"
"""In what Helix says where a server cannot be asked yet."""


class Helix(Editor):
    def command(self, words: str) -> None:
        self.pane.type(f":{words}")  # No Escape before it: both together would be another key.
        self.pane.keys("Enter")

    async def ready(self) -> None:
        await super().ready()
        await self.pane.until(lambda _: bool(agents_below(self.pane.project)))

    async def ask(self, words: str) -> None:
        """A command is refused as long as the server starts."""
        model, before = self.pane.model, len(self.pane.model.requests)
        while True:
            self.pane.type(f':lsp-workspace-command acpCoder.prompt "{words}"')
            await self.pane.until(lambda seen: f'"{words}"' in seen)
            self.pane.keys("Enter")
            await self.pane.until(lambda seen: f'"{words}"' not in seen)
            if REFUSED not in await self.pane.until(lambda seen: REFUSED in seen or len(model.requests) > before):
                return

    async def actions(self) -> str:
        anything = re.compile(r"Agent: |Ruff: |No code actions|No configured")
        while True:
            self.pane.keys("Space", "a")
            seen = await self.pane.until(lambda seen: anything.search(seen) is not None)
            if "Agent: " in seen:
                return seen
            self.pane.keys("Escape")
            await self.pane.until(lambda seen: re.search(r"Ruff: ", seen) is None)

    async def choose(self, name: str) -> None:
        options = [line.strip() for line in self.pane.text().splitlines()]
        first = next(index for index, option in enumerate(options) if option in ("Reject", "Cancel"))
        for _ in range(options.index(name) - first):
            self.pane.keys("Down")
        self.pane.keys("Enter")

    async def stop(self) -> None:
        self.command("lsp-workspace-command acpCoder.stop")

    async def undo(self, again: str = "undo") -> None:
        self.command(f"lsp-workspace-command acpCoder.{again}")

    async def save(self) -> None:
        self.command("w")

    async def transcript(self) -> None:
        self.command("lsp-workspace-command acpCoder.transcript")

    async def quit(self) -> None:
        self.command("qa!")

    async def edit_without_saving(self, text: str) -> None:
        self.pane.type("ggO")
        await self.pane.until("INS")
        self.pane.type(text)
        await self.pane.until(text)
        self.pane.keys("Escape")
        await self.pane.until("NOR")


class Neovim(Editor):
    def command(self, words: str) -> None:
        self.pane.type(f":{words}")  # No Escape before it: both together would be another key.
        self.pane.keys("Enter")

    async def ready(self) -> None:
        await super().ready()
        while True:
            self.command("lua print('attached', #vim.lsp.get_clients({ name = 'acp_coder', bufnr = 0 }))")
            if "attached 1" in await self.pane.until("attached"):
                break
            await anyio.sleep(0.05)
        self.command("echo ''")

    async def ask(self, words: str) -> None:
        self.command(f"AcpCoder {words}")

    async def actions(self) -> str:
        self.pane.type("gra")
        return await self.pane.until("Code actions:")

    async def choose(self, name: str) -> None:
        found = re.search(rf"(\d+): {re.escape(name)}", self.pane.text())
        assert found, self.pane.text()
        self.pane.type(found[1])
        self.pane.keys("Enter")

    async def accept_preselected(self) -> None:
        """Enter alone puts the question away."""
        self.pane.keys("Enter")

    async def stop(self) -> None:
        self.command("AcpCoderStop")

    async def undo(self, again: str = "undo") -> None:
        self.command(f"AcpCoder{again.title()}")

    async def save(self) -> None:
        """The agent asks for it: `acpCoder/save`."""

    async def transcript(self) -> None:
        self.command("AcpCoderTranscript")

    async def quit(self) -> None:
        self.command("qa!")

    async def edit_without_saving(self, text: str) -> None:
        self.pane.type("ggO" + text)
        await self.pane.until(text)
        self.pane.keys("Escape")
        await self.pane.gone("-- INSERT --")


def last_line(seen: str) -> str:
    return next((line.strip() for line in reversed(seen.splitlines()) if line.strip()), "")


class Emacs(Editor):
    async def command(self, name: str) -> None:
        """Keys are lost where Emacs just then hears of something: the name is typed until it is there."""
        self.pane.keys("M-x")
        await self.pane.until(lambda seen: last_line(seen).startswith("M-x"))
        while True:
            self.pane.type(name)
            with suppress(AssertionError):
                await self.pane.until(lambda seen: last_line(seen).endswith(name), seconds=3)
                break
            assert last_line(self.pane.text()) == "M-x", self.pane.text()
        self.pane.keys("Enter")

    async def ready(self) -> None:
        await super().ready()
        await self.command("acp-coder")
        await self.pane.until("[eglot:")

    async def ask(self, words: str) -> None:
        await self.command("acp-coder-ask")
        await self.pane.until("Ask the agent:")
        self.pane.type(words)
        self.pane.keys("Enter")

    async def actions(self) -> str:
        await self.command("eglot-code-actions")
        await self.pane.until(lambda seen: "action" in last_line(seen).lower())
        self.pane.keys("Tab", "Tab")
        return await self.pane.until("Agent: explain")

    async def choose(self, name: str) -> None:
        await self.pane.until("Choose an option:")
        self.pane.keys("C-a", "C-k")
        self.pane.type(name[:-1])
        self.pane.keys("Tab")
        await self.pane.until(lambda seen: name in last_line(seen))
        self.pane.keys("Enter")

    async def accept_preselected(self) -> None:
        await self.pane.until("Choose an option: Reject")
        self.pane.keys("Enter")

    async def stop(self) -> None:
        await self.command("acp-coder-stop")

    async def undo(self, again: str = "undo") -> None:
        await self.command(f"acp-coder-{again}")

    async def save(self) -> None:
        """The agent asks for it: `acpCoder/save`."""

    async def transcript(self) -> None:
        await self.command("acp-coder-transcript")

    async def quit(self) -> None:
        await self.command("kill-emacs")

    async def edit_without_saving(self, text: str) -> None:
        self.pane.keys("M-<")
        self.pane.type(text)
        self.pane.keys("Enter")


def quiet_emacs(home: Path) -> None:
    (home / ".emacs").write_text("(setq inhibit-startup-screen t make-backup-files nil confirm-kill-processes nil)\n")


HOW = {
    "helix": (Helix, "hx", ("app.py",)), "neovim": (Neovim, "nvim", ("app.py",)),
    "emacs": (Emacs, "emacs", ("-nw", "app.py")),
}  # fmt: skip


@asynccontextmanager
async def open_in(name: str, tmp_path: Path, script: Script, text: str = APP) -> AsyncIterator[Editor]:
    kind, program, arguments = HOW[name]
    config = quiet_emacs if name == "emacs" else lambda home: None
    async with editing(
        tmp_path, program, script, *arguments, files={"app.py": text}, setup=name, config=config
    ) as pane:
        editor = kind(pane)
        await editor.ready()
        yield editor


async def asked(editor: Editor, times: int) -> None:
    """Waits until the model was asked so often."""
    with anyio.fail_after(60):
        while len(editor.pane.model.requests) < times:
            await anyio.sleep(0.03)


async def turn_over(editor: Editor, answer: str) -> None:
    """Waits until the transcript ends with this answer."""
    folder = editor.pane.home / ".local/state/acp-coder/transcripts"
    with anyio.fail_after(60):
        while not any(f"{answer}\n\n## You" in file.read_text() for file in folder.glob("*.md")):
            await anyio.sleep(0.03)


by_editor = pytest.mark.parametrize("name", list(HOW))

QUESTION = {"helix": "Edit app.py", "neovim": "Edit app.py", "emacs": "-    pass"}


@by_editor
async def test_a_turn_is_asked_for_watched_allowed_and_read_again(name, tmp_path):
    async with open_in(name, tmp_path, WORK) as editor:
        pane = editor.pane
        await editor.ask("make it answer 42")
        seen = await pane.until("Reject")
        if name == "helix":  # The others draw nothing else while they ask.
            seen = await pane.until("waits for your answer")
        assert QUESTION[name] in seen and "return 42" in seen
        pane.picture(f"{name}-question", seen)
        if name != "emacs":  # Emacs shows the words of a place where the cursor stands.
            assert "⏳" in seen or "?" in seen
        await editor.choose("Allow once")
        seen = await pane.until(lambda seen: "    return 42" in seen and "Reject" not in seen)
        await editor.save()
        await pane.file("app.py", "return 42")
        if name != "emacs":
            seen = await pane.until("✓ Edit app.py")
        pane.picture(f"{name}-done", seen)
        await asked(editor, 3)
        await editor.transcript()
        seen = await pane.until("The answer is 42 now.")
        pane.picture(f"{name}-transcript", seen)
    results = [message["content"] for message in pane.model.requests[-1].body["messages"] if message["role"] == "tool"]
    if name != "helix":  # Saved before the command ran.
        assert "return 42" in results[-1]


@by_editor
async def test_a_prompt_is_taken_back_once_the_user_has_confirmed_it_and_comes_back(name, tmp_path):
    async with open_in(
        name, tmp_path, (Answer(tool_calls=(Call("read", {"path": "app.py"}), EDIT)), "Done.")
    ) as editor:
        pane = editor.pane
        await editor.ask("make it answer 42")
        await pane.until("Reject")
        await editor.choose("Allow once")
        await pane.until(lambda seen: "    return 42" in seen and "Reject" not in seen)
        await editor.save()
        await pane.file("app.py", "return 42")
        await turn_over(editor, "Done.")
        await editor.undo()
        await pane.until("take back the last prompt")
        await editor.choose("Do it")
        await pane.until(lambda seen: "return 42" not in seen and "Cancel" not in seen and seen.count("    pass") == 2)
        await editor.save()
        await pane.file("app.py", APP)
        await editor.undo("redo")
        await pane.until("do again what was taken back")
        await editor.choose("Do it")
        await pane.until(lambda seen: "    return 42" in seen and "Cancel" not in seen)


async def test_helix_offers_to_ask_the_comment_at_its_cursor(tmp_path):
    async with open_in("helix", tmp_path, (), "# why does this pass?\n" + APP) as editor:
        assert "Ask the agent: why does this pass?" in await editor.actions()


async def test_emacs_asked_before_its_language_client_was_loaded_says_what_to_do(tmp_path):
    async with editing(
        tmp_path, "emacs", (), "-nw", "app.py", files={"app.py": APP}, setup="emacs", config=quiet_emacs
    ) as pane:
        await pane.until("def answer")
        await Emacs(pane).ask("make it answer 42")
        await pane.until(lambda seen: re.search("Say .M-x acp-coder. first", seen) is not None)


@by_editor
async def test_what_is_preselected_changes_nothing(name, tmp_path):
    async with open_in(name, tmp_path, (WORK[0], "Then not.")) as editor:
        await editor.ask("make it answer 42")
        await editor.pane.until("Reject")
        await editor.accept_preselected()
        await editor.pane.gone("Reject")
        await asked(editor, 2)
        await editor.transcript()
        await editor.pane.until("Then not.")
    assert (editor.pane.project / "app.py").read_text() == APP
    results = [item["content"] for item in editor.pane.model.requests[-1].body["messages"] if item["role"] == "tool"]
    assert "did not allow" in results[-1]


@by_editor
async def test_the_agent_reads_what_was_typed_and_not_saved(name, tmp_path):
    async with open_in(name, tmp_path, (Answer(tool_calls=(Call("read", {"path": "app.py"}),)), "Read it.")) as editor:
        await editor.edit_without_saving("UNSAVED = 1")
        await editor.pane.until("UNSAVED = 1")
        await editor.ask("read it")
        await asked(editor, 2)
        results = [item["content"] for item in editor.pane.model.requests[1].body["messages"] if item["role"] == "tool"]
        assert "UNSAVED = 1" in results[0]
        assert "UNSAVED" not in (editor.pane.project / "app.py").read_text()


@by_editor
async def test_a_stop_stops_and_the_next_prompt_works(name, tmp_path):
    async with open_in(name, tmp_path, (*HANGS, "Fresh.")) as editor:
        await editor.ask("think")
        await asked(editor, 1)
        await editor.stop()
        with anyio.fail_after(60):
            await editor.pane.model.answer_closed(1)
        await editor.ask("again")
        await asked(editor, 2)
        await editor.transcript()
        await editor.pane.until("Fresh.")


@by_editor
async def test_the_code_actions_offer_the_agent(name, tmp_path):
    async with open_in(name, tmp_path, ("ok",)) as editor:
        seen = await editor.actions()
        for title in ("Agent: explain", "Agent: show the transcript", "Agent: pick the mode"):
            assert title in seen
        editor.pane.picture(f"{name}-actions", seen)


@by_editor
async def test_nothing_is_left_when_the_editor_ends(name, tmp_path):
    async with open_in(name, tmp_path, HANGS) as editor:
        await editor.ask("think")
        await asked(editor, 1)
        assert agents_below(editor.pane.project)
        await editor.quit()
        await editor.pane.ends()
        with anyio.fail_after(60):
            while agents_below(editor.pane.project):
                await anyio.sleep(0.03)
