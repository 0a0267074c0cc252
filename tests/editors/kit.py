"""The real VS Code: its server under Node and its workbench in headless Chromium.

One `VsCode` serves a whole module of tests; each test opens a `Window` (see `window.py`) on a folder of its own, in a
browser context of its own, so that nothing a test did in the workbench is there for the next.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import anyio.abc
from playwright.async_api import Browser, BrowserContext, ViewportSize, async_playwright

from acp_agent.testing.fake_model import FakeModel, Script
from tests.e2e.kit import COMMAND, environ

from .window import Window

__all__ = ["EXTENSION", "NODE", "NODE_MODULES", "VsCode", "agent_settings", "packaged", "vscode", "working"]

HERE = Path(__file__).parent
FAILURES = HERE / ".failures"
"""What is kept of tests that failed, one folder for each."""
NODE_MODULES = HERE.parent / ".editors" / "node_modules"
"""What scripts/install_editors.sh installs."""
NODE = NODE_MODULES / "node" / "bin" / "node"
SERVER = NODE_MODULES / "code-server" / "lib" / "vscode" / "out" / "server-main.js"
EXTENSION = HERE.parents[1] / "editors" / "vscode"
CHROMIUM_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
TRACES = bool(os.environ.get("ACP_TEST_TRACES"))
"""Whether Playwright's traces are kept of tests that failed: its film of each window takes a tenth of the processor."""
SECONDS = 60
"""Bound of what happens once for a module: the start of the server, an installation."""

SETTINGS: dict[str, Any] = {
    "security.workspace.trust.enabled": False, "workbench.startupEditor": "none", "workbench.tips.enabled": False,
    "workbench.enableExperiments": False, "workbench.colorTheme": "Default Dark Modern",
    "workbench.secondarySideBar.defaultVisibility": "hidden", "workbench.reduceMotion": "on",
    "workbench.editor.enablePreview": False, "chat.disableAIFeatures": True, "telemetry.telemetryLevel": "off",
    "update.mode": "none", "extensions.autoCheckUpdates": False, "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True, "git.openRepositoryInParentFolders": "never",
    # The browser's workbench saves by itself where nothing is said: no buffer would ever be dirty.
    "files.autoSave": "off", "editor.minimap.enabled": False, "editor.stickyScroll.enabled": False,
    # What is typed is what is in the editor.
    "editor.autoClosingBrackets": "never", "editor.autoIndent": "none",
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    # Terminals are drawn as elements, whose text can be read.
    "terminal.integrated.gpuAcceleration": "off",
}  # fmt: skip


def agent_settings(home: Path, model: FakeModel, **environment: str) -> dict[str, Any]:
    """The extension's settings: this repository's agent against `model`, with nothing of the user who runs it."""
    return {
        "acpCoder.command": COMMAND, "acpCoder.arguments": [],
        "acpCoder.environment": environ(home, model.base_url, **environment),
    }  # fmt: skip


def packaged() -> Path:
    """The extension's .vsix, made again where a source is newer than it."""
    vsix = EXTENSION / "acp-coder.vsix"
    sources = [EXTENSION / "package.json", *EXTENSION.glob("*.mjs")]
    sources += [file for folder in ("src", "media") for file in (EXTENSION / folder).rglob("*") if file.is_file()]
    if not vsix.exists() or vsix.stat().st_mtime < max(file.stat().st_mtime for file in sources):
        subprocess.run(["npm", "run", "--silent", "package"], cwd=EXTENSION, check=True, timeout=4 * SECONDS)
    return vsix


class VsCode:
    """A running server and browser."""

    def __init__(self, root: Path, browser: Browser, url: str) -> None:
        self.root = root
        """Holds `home`, the server's data and the installed extensions."""
        self.url = url
        self._browser = browser

    def write_settings(self, settings: dict[str, Any]) -> None:
        """The settings of the kit and these. Open windows see the change."""
        text = json.dumps({**SETTINGS, **settings}, indent=2)
        # Of settings with the scope "machine" the remote window reads only the second file, of others it prefers it.
        for folder in ("User", "Machine"):
            file = self.root / "user" / folder / "settings.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    @asynccontextmanager
    async def window(self, folder: Path, settings: dict[str, Any] | None = None) -> AsyncIterator[Window]:
        """A window on a folder (or a `.code-workspace` file), ready to be used.

        When the body raises, a screenshot and the logs are kept, and the error says where.
        """
        self.write_settings(settings or {})
        context = await self._browser.new_context(
            viewport=ViewportSize(width=1400, height=900), permissions=["clipboard-read", "clipboard-write"]
        )
        try:
            if TRACES:
                await context.tracing.start(screenshots=True)
            page = await context.new_page()
            kind = "workspace" if folder.suffix == ".code-workspace" else "folder"
            window = Window(page, f"{self.url}/?{urlencode({kind: str(folder)})}", self.write_settings, settings or {})
            try:
                await window.open()
                yield window
            except Exception as error:
                error.add_note(f"screenshot and logs: {await self._keep(context, window)}")
                raise
        finally:
            await context.close()

    async def _keep(self, context: BrowserContext, window: Window) -> Path:
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].rpartition(" ")[0]
        folder = FAILURES / re.sub(r"[^\w.-]+", "_", test)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (FAILURES / ".gitignore").write_text("*\n", encoding="utf-8")
        with anyio.move_on_after(SECONDS):
            await window.page.screenshot(path=folder / "screenshot.png")
            if TRACES:
                await context.tracing.stop(path=folder / "trace.zip")
        shutil.copytree(self.root / "user" / "logs", folder / "logs", dirs_exist_ok=True)
        return folder


@asynccontextmanager
async def working(
    code: VsCode, tmp_path: Path, script: Script = (), *, files: dict[str, str] | None = None,
    settings: dict[str, Any] | None = None, **environment: str,
) -> AsyncIterator[tuple[Window, FakeModel]]:  # fmt: skip
    """A window on `tmp_path/project`, which holds `files`, whose agent's model follows the script.

    `settings` are VS Code's, `environment` is the agent's.
    """
    project = tmp_path / "project"
    for name, text in (files or {}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    project.mkdir(exist_ok=True)
    async with FakeModel(script) as model:
        agent = agent_settings(tmp_path, model, **environment)
        async with code.window(project, {**agent, **(settings or {})}) as window:
            yield window, model


@asynccontextmanager
async def vscode(root: Path, *extensions: Path) -> AsyncIterator[VsCode]:
    """The server with these .vsix files installed, and a browser."""
    (home := root / "home").mkdir(parents=True)
    environment = {
        "HOME": str(home), "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
    }  # fmt: skip
    folders = [f"--user-data-dir={root / 'user'}", f"--server-data-dir={root / 'server'}"]
    folders += [f"--extensions-dir={root / 'extensions'}"]
    command = [str(NODE), str(SERVER), "--accept-server-license-terms", *folders]
    for extension in extensions:
        with anyio.fail_after(SECONDS):
            await anyio.run_process([*command, "--install-extension", str(extension), "--force"], env=environment)
    async with AsyncExitStack() as stack:
        listening = ["--without-connection-token", "--host=127.0.0.1", "--port=0"]
        process = await stack.enter_async_context(
            await anyio.open_process([*command, *listening], env=environment, stderr=subprocess.STDOUT)
        )
        stack.callback(process.terminate)
        with anyio.fail_after(SECONDS):
            port = await _port(process)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(_drain, process)
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=_chromium(), args=CHROMIUM_ARGUMENTS)
        stack.push_async_callback(browser.close)
        yield VsCode(root, browser, f"http://127.0.0.1:{port}")


def _chromium() -> str:
    for name in ("chromium", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise RuntimeError("no chromium on PATH: run scripts/install_tools.sh")


async def _port(process: anyio.abc.Process) -> int:
    """The port the server says it listens on."""
    assert process.stdout is not None
    said = ""
    async for chunk in process.stdout:
        said += chunk.decode("utf-8", "replace")
        if found := re.search(r"agent listening on (\d+)", said):
            return int(found[1])
    raise RuntimeError(f"VS Code's server did not start: {said}")


async def _drain(process: anyio.abc.Process) -> None:
    assert process.stdout is not None
    async for _ in process.stdout:
        pass
