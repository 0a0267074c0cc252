"""Links in a prompt, and the web tools as editor and model see them."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.schema.acp import ResourceLink, TextContent
from acp_agent.testing.fake_model import Call

from .kit import asks, rig, went

OPEN = '[tools.web]\nprivate_hosts = ["localhost"]\nhttp_hosts = ["localhost"]\n'


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<html><head><title>T</title></head><body><main><p>The answer is 42.</p></main></body></html>"
        self.send_response(200 if self.path == "/page" else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()


def link(uri: str) -> ResourceLink:
    return ResourceLink(name="docs", uri=uri)


async def test_a_linked_page_reaches_the_model_and_the_person_sees_what_was_fetched(tmp_path, site):
    async with went(tmp_path, ["ok"], config=OPEN, prompt=[TextContent(text="see"), link(f"{site}/page")]) as r:
        assert "The answer is 42." in str(r.messages(1)[-1]["content"])
        (call,) = r.editor.tool_calls().values()
        call.assert_finished("completed")
        assert call.title == f"Read the linked page {site}/page"
        assert r.editor.permission_requests == []


@pytest.mark.parametrize(("uri", "words"), [
    ("{site}/missing", "404"), ("http://169.254.169.254/latest/meta-data", "could not be read"),
    ("https://127.1/x", "could not be read"), ("https://user:pw@example.com/", "could not be read"),
])  # fmt: skip
async def test_a_page_that_may_not_or_cannot_be_read_is_said_so_and_the_prompt_goes_on(tmp_path, site, uri, words):
    async with rig(tmp_path, ["ok"], config=OPEN) as r:
        prompt = [TextContent(text="see"), link(uri.replace("{site}", site))]
        assert (await r.editor.prompt(prompt)).stop_reason == "end_turn"
        assert words in str(r.messages(1)[-1]["content"])
        (call,) = r.editor.tool_calls().values()
        call.assert_finished("failed")


async def test_a_file_link_that_leads_out_is_marked_and_not_read(tmp_path):
    (tmp_path / "secret").write_text("tangerine")
    links = [link(f"file://{tmp_path}/{name}") for name in ("secret", "project/in.txt")]
    async with went(tmp_path, ["ok"], prompt=links) as r:
        told = str(r.messages(1)[-1]["content"])
        assert told.count("outside this session's folders") == 1 and "tangerine" not in told


async def test_nothing_is_fetched_where_fetch_is_switched_off(tmp_path, site):
    config = OPEN.replace("[tools.web]", '[tools]\ndisabled = ["fetch"]\n[tools.web]')
    async with went(tmp_path, ["ok"], config=config, prompt=[link(f"{site}/page")]) as r:
        assert "The answer" not in str(r.messages(1)[-1]["content"]) and r.editor.tool_calls() == {}


async def test_where_nothing_may_change_fetching_is_asked_about_by_host_and_nothing_is_sent(tmp_path, site):
    fetch, again = (asks(Call("fetch", {"url": f"{site}/{name}"})) for name in ("page", "other"))
    send = asks(Call("http_request", {"method": "POST", "url": f"{site}/page", "body": "x"}))
    async with went(tmp_path, [fetch, again, send, "done"], config=OPEN, mode="ask", otherwise=allow_always) as r:
        assert "The answer is 42." in r.messages(2)[-1]["content"]
        (asked,) = r.editor.permission_requests
        assert f"Always allow fetches from {site.partition('://')[2]}" in [option.name for option in asked.options]
        assert "http_request" not in r.tool_names(1) and "policy_blocked" in r.messages(4)[-1]["content"]


async def test_a_page_from_memory_says_how_old_it_is(tmp_path, site):
    fetch = asks(Call("fetch", {"url": f"{site}/page"}))
    async with went(tmp_path, [fetch, asks(Call("list_directory", {})), fetch, "done"], config=OPEN, mode="auto") as r:
        again = r.messages(4)[-1]["content"]
        assert again.startswith("[cached: the same call returned this ")
        assert "unchanged" not in again
