"""Editors in a terminal: real ones (tests/.editors/bin) in tmux, set up by `acp-coder setup`, the agent behind them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from acp_agent.testing.fake_model import FakeModel, Script

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parents[1] / ".editors" / "bin"
BIN = Path(sys.executable).parent
SECONDS = 60
COLUMNS, LINES = 110, 32
FAILURES = Path(__file__).parent / ".failures"
DOCUMENTS = ROOT / "docs" / "editors"
"""Where `ACP_CODER_SCREENSHOTS=1` writes what the tests saw."""


@dataclass
class Pane:
    """A terminal with an editor in it."""

    socket: str
    home: Path
    project: Path
    model: FakeModel

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.socket, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
        return done.stdout

    def keys(self, *keys: str) -> None:
        """Keys by tmux's names (`Enter`, `Escape`, `C-x`)."""
        self.tmux("send-keys", "-t", "editor", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", "editor", "-l", text)

    def text(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "editor")

    async def until(self, what: str | Callable[[str], bool], *, seconds: float = SECONDS) -> str:
        """What is there once it holds `what`. Fails with what stood there instead."""
        seen = ""
        with anyio.move_on_after(seconds):
            while True:
                seen = await anyio.to_thread.run_sync(self.text)
                if what in seen if isinstance(what, str) else what(seen):
                    return seen
                await anyio.sleep(0.03)
        raise AssertionError(f"{what!r} never stood there, but:\n{seen}")

    async def press(self, key: str, what: str) -> str:
        """Presses the key until `what` is there: a program that closes a list may drop what comes meanwhile."""
        for _ in range(4):
            self.keys(key)
            with suppress(AssertionError):
                return await self.until(what, seconds=SECONDS / 8)
        return await self.until(what)

    async def gone(self, what: str) -> str:
        return await self.until(lambda seen: what not in seen)

    async def file(self, name: str, text: str) -> None:
        """Waits until the file on disk holds `text`."""
        path = self.project / name
        with anyio.move_on_after(SECONDS):
            while True:
                if path.exists() and text in path.read_text(encoding="utf-8"):
                    return
                await anyio.sleep(0.03)
        raise AssertionError(f"{name} never held {text!r}, but:\n{path.read_text() if path.exists() else None}")

    async def ends(self) -> None:
        """Waits until the editor has ended."""
        with anyio.fail_after(SECONDS):
            while "editor" in self.tmux("list-sessions"):
                await anyio.sleep(0.03)

    def picture(self, name: str, seen: str) -> None:
        """Keeps what is there for the documents, where they have a place for it."""
        if not os.environ.get("ACP_CODER_SCREENSHOTS"):
            return
        for folder, short in ((self.project, "~/project"), (self.home, "~")):  # As wide as before: there are frames.
            seen = re.sub(rf"{re.escape(str(folder))}([^\s`]*)", partial(_shortened, short), seen)  # fmt: skip
        text = re.sub(
            r"\n(~?\n){3,}", "\n\n", "\n".join(line.rstrip() for line in seen.splitlines()).strip("\n") + "\n"
        )
        for file in DOCUMENTS.glob("*.md"):
            before = file.read_text(encoding="utf-8")
            after = re.sub(
                rf"(<!-- pane: {name} -->\n`````text\n).*?(`````\n)", lambda found: found[1] + text + found[2],
                before, flags=re.DOTALL,
            )  # fmt: skip
            if after != before:
                file.write_text(after, encoding="utf-8")


def _shortened(short: str, found: re.Match[str]) -> str:
    return f"{short}{found[1]}".ljust(len(found[0]))


def agents_below(folder: Path) -> set[int]:
    """The processes of the agent that work in the folder."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if b"acp" in (place / "cmdline").read_bytes() and Path(os.readlink(place / "cwd")).is_relative_to(folder):
                found.add(int(place.name))
        except OSError:
            continue
    return found


@asynccontextmanager
async def editing(
    tmp_path: Path, editor: str, script: Script, *arguments: str, files: Mapping[str, str], setup: str | None = None,
    config: Callable[[Path], None] = lambda home: None,
) -> AsyncIterator[Pane]:  # fmt: skip
    """`editor` with `arguments` in a project with `files`, set up by `acp-coder setup`."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    for name, text in files.items():
        (project / name).write_text(text, encoding="utf-8")
    async with FakeModel(script) as model:
        environ = {
            "HOME": str(home), "PATH": f"{PROGRAMS}:{BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "SHELL": "/bin/sh", "OPENAI_BASE_URL": model.base_url,
            "OPENAI_MODEL": "fake-model", "ACP_CODER_KEYRING": "0", "ACP_CODER_SANDBOX_DISABLED": "true",
        }  # fmt: skip
        config(home)
        subprocess.run(
            [str(BIN / "acp-coder"), "setup", setup or editor, "--yes"], env=environ, check=True, capture_output=True,
            timeout=60,
        )  # fmt: skip
        socket = f"acp-{os.getpid()}-{editor}"
        pane = Pane(socket, home, project, model)
        subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True, check=False, timeout=20)
        subprocess.run(
            ["tmux", "-L", socket, "-f", "/dev/null", "new-session", "-d", "-s", "editor"]
            + ["-x", str(COLUMNS), "-y", str(LINES), "-c", str(project), str(PROGRAMS / editor), *arguments],
            env=environ, check=True, timeout=20,
        )  # fmt: skip
        pane.tmux("set-option", "-s", "escape-time", "0")
        try:
            yield pane
        except BaseException:
            FAILURES.mkdir(exist_ok=True)
            (FAILURES / f"{editor}.txt").write_text(pane.text(), encoding="utf-8")
            for log in home.rglob("*.log"):
                shutil.copy(log, FAILURES / f"{editor}-{log.name}")
            raise
        finally:
            pane.tmux("kill-server")
            with anyio.move_on_after(10, shield=True):
                while agents_below(project):
                    await anyio.sleep(0.05)
