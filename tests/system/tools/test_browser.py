"""The browser on a real Chromium: what it shows, and that nothing bypasses the guard."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import msgspec
import pytest

from acp_agent.config.model import BrowserConfig, WebConfig
from acp_agent.errors import ToolError
from acp_agent.llm.base import ImagePart
from acp_agent.safety.access import NetworkAccess, NoAccess
from acp_agent.tools.net.browser_session import BrowserSession
from acp_agent.tools.net.chromium import find_chromium, missing_browser
from acp_agent.tools.net.web_client import GuardedClient
from tests.processes import running
from tests.tools.kit import Bench, bench
from tests.waits import until

pytestmark = pytest.mark.skipif(find_chromium(BrowserConfig()) is None, reason="no Chromium (make tools)")

PAGES = {
    "/": """<html><head><title>Start</title></head><body><h1>Hello</h1><p id=made></p>
        <a href="/next">Next page</a> <a href="https://example.com/x">Elsewhere</a>
        <form action="/found"><input name="q"></form><button onclick="document.title='Clicked'">Press</button>
        <script>document.getElementById('made').textContent = 'made by a script'</script></body></html>""",
    "/next": "<title>Next</title><p>You came further.</p>",
    "/sneaky": """<title>Sneaky</title><p id=p>waiting</p><script>
        fetch('http://127.0.0.1:{secret}/').then(() => p.textContent = 'LEAKED', () => p.textContent = 'blocked')
        </script><img src="http://localhost:{secret}/img"><iframe src="http://127.0.0.1:{secret}/frame"></iframe>""",
    "/hanging": """<title>Hanging</title><p id=p>there</p><img src="/never"><input name="q">
        <button onclick="p.textContent = 'pressed'">Press</button>""",
    "/away": "REDIRECT",
    "/frame-away": "<title>Top</title><meta http-equiv=refresh content='0;url=file:///etc/passwd'><p>still here</p>",
}


class Site(ThreadingHTTPServer):
    daemon_threads = True
    asked: list[str]
    secret: int = 0
    closing: threading.Event


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self):
        path, _, query = self.path.partition("?")
        self.server.asked.append(self.path)
        if path == "/never":
            self.server.closing.wait(60)
            return
        if path == "/file":
            self.send_response(200)
            self.send_header("Content-Type", "application/zip")
            self.send_header("Content-Disposition", "attachment; filename=a.zip")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"PK")
            return
        page = f"<title>Found</title><p>asked for {query}</p>" if path == "/found" else PAGES.get(path)
        if page == "REDIRECT":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.secret}/")
            self.end_headers()
            return
        body = (page or "nothing here").replace("{secret}", str(self.server.secret)).encode()
        self.send_response(200 if page else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[Site, Site]]:
    """One that may be asked (as `site.test`), and a secret one that may not."""
    with Site(("127.0.0.1", 0), Handler) as public, Site(("127.0.0.1", 0), Handler) as secret:
        for site in (public, secret):
            site.asked = []
            site.closing = threading.Event()
            threading.Thread(target=site.serve_forever, daemon=True).start()
        public.secret = secret.server_address[1]
        yield public, secret
        public.closing.set()
        public.shutdown()
        secret.shutdown()


@pytest.fixture
def site(sites: tuple[Site, Site]) -> Site:
    return sites[0]


async def resolve(host: str, port: int):
    assert host == "site.test"
    return ["127.0.0.1"]


@asynccontextmanager
async def browsing(tmp_path: Path, **changes: object) -> AsyncIterator[Bench]:
    client = GuardedClient(WebConfig(http_hosts=["site.test"], private_hosts=["site.test"]), resolve=resolve)
    browser = BrowserSession(client, msgspec.structs.replace(BrowserConfig(), **changes))
    async with bench(tmp_path) as tools, anyio.create_task_group() as tasks:
        tools.web.client, tools.web.browser = client, browser
        tasks.start_soon(browser.live)
        yield tools
        tasks.cancel_scope.cancel()


def url(site: Site, path: str = "/") -> str:
    return f"http://site.test:{site.server_address[1]}{path}"


async def test_a_page_is_opened_read_clicked_and_typed_into(tmp_path, site):
    async with browsing(tmp_path) as tools:
        opened = await tools.call("browser", action="open", url=url(site))
        assert "Title: Start" in opened.text and "made by a script" in opened.text
        links = (await tools.call("browser", action="links")).text
        assert f"- [Next page]({url(site, '/next')})" in links and "- [Elsewhere](https://example.com/x)" in links
        assert "Title: Clicked" in (await tools.call("browser", action="click", selector="text=Press")).text
        found = await tools.call("browser", action="type", selector="input[name=q]", text="acp\n")
        assert "asked for q=acp" in found.text
        shot = await tools.call("browser", action="screenshot")
        assert isinstance(shot.parts[0], ImagePart) and shot.content[1].content.mime_type == "image/png"
        assert (await tools.call("browser", action="close")).text == "The browser is closed."


async def test_nothing_a_page_asks_for_goes_past_the_guard(tmp_path, sites):
    site, secret = sites
    async with browsing(tmp_path) as tools:
        opened = await tools.call("browser", action="open", url=url(site, "/sneaky"))
        assert "requests of the page were refused" in opened.text
        with anyio.fail_after(60):
            while "blocked" not in (text := (await tools.call("browser", action="text")).text):
                assert "LEAKED" not in text
        assert secret.asked == []


@pytest.mark.parametrize("target", [
    "http://127.0.0.1:{secret}/", "http://localhost:{secret}/", "http://0x7f.1:{secret}/", "http://[::1]:{secret}/",
    "http://2130706433:{secret}/", "file:///etc/passwd", "chrome://version", "javascript:alert(1)",
    "http://169.254.169.254/", "not a url",
])  # fmt: skip
async def test_what_may_not_be_asked_is_refused_before_a_browser_is_started(tmp_path, sites, target):
    _, secret = sites
    async with browsing(tmp_path) as tools:
        with pytest.raises(ToolError) as error:
            await tools.call("browser", action="open", url=target.replace("{secret}", str(secret.server_address[1])))
        assert error.value.category in ("policy_blocked", "invalid_parameters")
        assert tools.web.browser.url == ""
        assert secret.asked == []


async def test_a_redirect_to_a_forbidden_place_is_refused(tmp_path, sites):
    site, secret = sites
    async with browsing(tmp_path) as tools:
        result = await tools.call("browser", action="open", url=url(site, "/away"))
        assert result.failed and "refused" in result.text
        await tools.call("browser", action="open", url=url(site, "/frame-away"))
        assert "root:" not in (await tools.call("browser", action="text")).text
        assert secret.asked == []


async def test_errors_are_told_in_words_and_the_browser_goes_on(tmp_path, site):
    async with browsing(tmp_path, timeout=5.0) as tools:
        with pytest.raises(ToolError, match="No page is open"):
            await tools.call("browser", action="text")
        missing = await tools.call("browser", action="open", url=url(site, "/gone"))
        assert missing.failed and "[HTTP status 404]" in missing.text
        with pytest.raises(ToolError, match="browser action failed"):
            await tools.call("browser", action="click", selector="][")
        assert "Title: Start" in (await tools.call("browser", action="open", url=url(site))).text


async def test_an_unused_browser_is_closed_and_started_again_when_it_is_needed(tmp_path, site):
    async with browsing(tmp_path, idle_timeout=0.05) as tools:
        await tools.call("browser", action="open", url=url(site))
        await until(lambda: not tools.web.browser.url)
        assert "Title: Start" in (await tools.call("browser", action="open", url=url(site))).text


@pytest.fixture
def profiles(monkeypatch) -> Iterator[Path]:
    """The folder of the browser's profiles: its processes name it."""
    folder = Path(tempfile.mkdtemp(prefix="browser-", dir="/tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def kill(marked: str) -> None:
    for process in running(marked):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


async def test_no_process_and_no_profile_is_left_behind(tmp_path, site, profiles):
    async with browsing(tmp_path) as tools:
        await tools.call("browser", action="open", url=url(site))
        assert list(profiles.glob("acp-coder-browser-*")) and running(str(profiles))
    assert not list(profiles.glob("acp-coder-browser-*")) and not running(str(profiles))


async def test_what_a_call_touches_is_the_host_and_sending_is_more_than_looking(tmp_path):
    async with browsing(tmp_path) as tools:
        (opening,) = tools.access("browser", action="open", url="https://Example.com/a")
        assert opening == NetworkAccess("example.com", "the browser opens https://Example.com/a")
        assert tools.access("browser", action="click", selector="a") == [NoAccess()]


@pytest.mark.parametrize(
    "arguments", [{"action": "open"}, {"action": "click"}, {"action": "type", "selector": "a"}, {"action": "fly"}]
)
async def test_what_an_action_needs_is_told(tmp_path, arguments):
    async with browsing(tmp_path) as tools:
        with pytest.raises(ToolError, match="arguments of `browser` are wrong"):
            await tools.call("browser", **arguments)


async def test_a_browser_that_does_not_start_is_told_in_words_each_time(tmp_path, site):
    (broken := tmp_path / "chromium").write_text("#!/bin/sh\necho no display >&2\nexit 1\n")
    broken.chmod(0o755)
    async with browsing(tmp_path, executable=str(broken)) as tools:
        for _ in range(2):
            with pytest.raises(ToolError, match="could not be started"):
                await tools.call("browser", action="open", url=url(site))


@pytest.mark.parametrize("broken", ["folder", "proxy", "driver"])
async def test_a_start_that_fails_in_any_way_is_told_and_the_next_one_works(tmp_path, site, monkeypatch, broken):
    def no_listener(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    def no_driver() -> None:
        raise ZeroDivisionError("strange")

    async with browsing(tmp_path) as tools:
        with monkeypatch.context() as patch:
            if broken == "folder":
                patch.setattr("tempfile.tempdir", "/nowhere")
            elif broken == "proxy":
                patch.setattr("socket.create_server", no_listener)
            else:
                patch.setattr("playwright.async_api.async_playwright", no_driver)
            with anyio.fail_after(60), pytest.raises(ToolError, match="could not be started: .*(nowhere|open|strange)"):
                await tools.call("browser", action="open", url=url(site))
        assert "Title: Start" in (await tools.call("browser", action="open", url=url(site))).text


async def test_who_waits_for_a_browser_hears_that_the_session_ended():
    browser = BrowserSession(GuardedClient(WebConfig()), BrowserConfig())
    told: list[str] = []

    async def use() -> None:
        with pytest.raises(ToolError) as error:
            await browser.do(lambda page: page.title())
        told.append(str(error.value))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as users, anyio.create_task_group() as tasks:
            tasks.start_soon(browser.live)
            await anyio.lowlevel.checkpoint()
            users.start_soon(use)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await use()
    assert told == ["The browser is closed."] * 2


async def test_a_browser_that_was_killed_is_started_again_by_the_next_call(tmp_path, site, profiles):
    async with browsing(tmp_path) as tools:
        await tools.call("browser", action="open", url=url(site))
        kill(str(profiles))
        await until(lambda: not tools.web.browser.url)
        with pytest.raises(ToolError, match="No page is open"):
            await tools.call("browser", action="text")
        assert "Title: Start" in (await tools.call("browser", action="open", url=url(site))).text


async def test_a_call_during_which_the_browser_dies_is_told_so(tmp_path, site, profiles):
    async with browsing(tmp_path) as tools:
        await tools.call("browser", action="open", url=url(site))

        async def die(page) -> None:
            kill(str(profiles))
            await page.evaluate("() => new Promise(() => 0)")

        with anyio.fail_after(60), pytest.raises(ToolError, match="has ended"):
            await tools.web.browser.do(die)
        assert "Title: Start" in (await tools.call("browser", action="open", url=url(site))).text


async def test_a_page_with_an_image_that_never_comes_works(tmp_path, site, monkeypatch):
    monkeypatch.setattr("acp_agent.tools.web.browser.SETTLE_TIMEOUT", 0.2)
    async with browsing(tmp_path, timeout=5.0) as tools:
        assert "there" in (await tools.call("browser", action="open", url=url(site, "/hanging"))).text
        assert "pressed" in (await tools.call("browser", action="click", selector="text=Press")).text
        assert "pressed" in (await tools.call("browser", action="type", selector="[name=q]", text="a\n")).text


async def test_a_download_is_told_to_be_none_of_the_browsers_things(tmp_path, site):
    async with browsing(tmp_path) as tools:
        with pytest.raises(ToolError, match="a file to download, not a page") as error:
            await tools.call("browser", action="open", url=url(site, "/file"))
        assert "`fetch`" in error.value.suggestion


async def test_before_it_clicks_or_types_it_shows_what_and_where(tmp_path, site):
    async with browsing(tmp_path) as tools:
        with pytest.raises(ToolError, match="No page is open"):
            await tools.preview("browser", action="click", selector="a")
        assert (await tools.preview("browser", action="open", url=url(site))).content == ()
        await tools.call("browser", action="open", url=url(site))
        (shown,) = (await tools.preview("browser", action="click", selector="text=Press")).content
        assert shown.content.text == f"Clicks `text=Press` on {url(site)}"
        (shown,) = (await tools.preview("browser", action="type", selector="[name=q]", text="the words\n")).content
        assert shown.content.text == f"Types into `[name=q]` on {url(site)}, then presses Enter:\n\nthe words"


async def test_profiles_of_processes_that_are_gone_are_removed(tmp_path, site, profiles):
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone, ours, others = (
        profiles / f"acp-coder-browser-{ended.pid}-x", profiles / "acp-coder-browser-1-x", profiles / "other",
    )  # fmt: skip
    for folder in (gone, ours, others):
        folder.mkdir()
    async with browsing(tmp_path) as tools:
        await tools.call("browser", action="open", url=url(site))
        assert [folder.exists() for folder in (gone, ours, others)] == [False, True, True]


def test_without_a_chromium_the_tool_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert find_chromium(BrowserConfig()) is None and "install one" in missing_browser(BrowserConfig())
    assert find_chromium(BrowserConfig(executable="/nowhere/chromium")) is None
