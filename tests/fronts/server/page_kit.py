"""A visit of the page of `acp-coder serve`: the real Chromium, on the real server."""

import fcntl
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from acp_agent.config.model import BrowserConfig
from acp_agent.testing.fake_model import Answer, Call
from acp_agent.tools.net.chromium import find_chromium
from tests.fronts.server.test_server import Place, served
from tests.page_sources import ROOT, stale_sources

CHROMIUM = find_chromium(BrowserConfig())
ALONE = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
DESK, PHONE = {"width": 1200, "height": 800}, {"width": 360, "height": 640}
PATIENCE = 8_000
"""Milliseconds for what the page shows."""
AXE = ROOT / "editors/vscode/node_modules/axe-core/axe.min.js"
AUTO, ASK = '[agent]\nmode = "auto"\n', '[agent]\nmode = "code"\n'
WATCH = (
    "window.violations = []; addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective))"
)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; scripts/install_tools.sh has it")


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The page as its sources are now."""
    with open(tmp_path_factory.getbasetemp().parent / "page.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stale_sources():
            subprocess.run(["bash", "scripts/build_page.sh"], cwd=ROOT, check=True, capture_output=True)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM or None, args=list(ALONE))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visit:
    """A page, with whom it has asked and what it was forbidden."""

    page: Page
    place: Place
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def button(self, name: str | re.Pattern[str]) -> Any:
        return self.page.get_by_role("button", name=name)

    @property
    def box(self) -> Any:
        return self.page.get_by_role("combobox", name=re.compile("Message to"))

    async def begin(self, *said: str) -> None:
        """A session, and a prompt in it, if one is given: as `send`."""
        await self.page.get_by_label("Folder on the server").fill(str(self.place.project))
        await self.button("Begin").click()
        await expect(self.box).to_be_focused()
        if said:
            await self.send(*said)

    async def send(self, text: str, *answers: str) -> None:
        """Then waits until these are said."""
        await self.box.fill(text)
        await self.box.press("Enter")
        for answer in answers:
            await self.says(answer)

    async def says(self, text: str) -> None:
        await expect(self.page.get_by_role("log")).to_contain_text(text)

    async def clean(self) -> None:
        """Nothing was forbidden by the policy, nothing has thrown, and nobody else was asked."""
        assert await self.page.evaluate("violations") == [] and self.wrong == []
        assert [url for url in self.asked if not url.startswith((self.place.http, "data:", "blob:"))] == []


async def visit_of(place: Place, context: BrowserContext, address: str = "") -> Visit:
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    found = Visit(page, place)
    page.on("request", lambda request: found.asked.append(request.url))
    page.on("pageerror", lambda error: found.wrong.append(str(error)))
    await page.add_init_script(WATCH)
    await page.goto(address or f"{place.http}/#token={place.token}")
    return found


@asynccontextmanager
async def visiting(
    tmp_path: Path, script: Any = (), config: str = AUTO, viewport: Any = DESK, **more: Any
) -> AsyncIterator[Visit]:
    expect.set_options(timeout=PATIENCE)
    async with served(tmp_path, script, config=config) as place, chromium() as browser:
        found = await visit_of(place, await browser.new_context(viewport=viewport, **more))
        yield found
        await found.clean()


def bash(command: str, then: str = "Done.") -> list[Answer]:
    return [Answer(tool_calls=(Call("bash", {"command": command}),)), Answer(text=then)]
