"""The web tools: what they request, report and send."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.model import WebConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import NetworkAccess
from acp_agent.tools.kit.tool_context import ToolResult
from acp_agent.tools.net import web_text
from acp_agent.tools.net.web_access import WebAccess
from acp_agent.tools.net.web_page import page_text, select
from tests.tables import table
from tests.tools.kit import Bench, bench
from tests.tools.web_site import PUBLIC, Authority, Reply, Site, Web, redirect

PAGE = """<!doctype html><html><head><title> The  docs </title><base href="/guide/"><style>p {}</style></head><body>
<header><a href="/">Home</a></header><nav>Menu</nav>
<main><h1>Hello <em>you</em></h1>
<p>Some <b>bold</b> text, <a href="page.html?a=1&amp;b=2">a link</a>, <a href="#here">a place</a>,
<a href="javascript:alert(1)">a script</a>. Call <code>foo(<span>1</span>)</code>.</p>
<ul><li>one</li><li><p>two</p><ul><li>deep</li></ul></li></ul><ol><li>first</li><li>second</li></ol>
<pre><code>def f():
    return 1
</code></pre>
<table><tr><th>name</th><th>size</th></tr><tr><td>a</td><td><p>1</p><p>MB</p></td></tr></table>
<p hidden>hidden one</p><div style="display: none">hidden two</div><div aria-hidden="true">hidden three</div>
<script>hidden("four")</script><button>hidden five</button><p>line<br>break</p><a href="/card"><h2>Card</h2></a>
<p>And so that the main part is long enough to be one, here are some more words, which nobody needs to read at all.</p>
</main><footer>Imprint</footer></body></html>"""

PAGE_TEXT = """# Hello you

Some bold text, [a link](https://docs.example.com/guide/page.html?a=1&b=2), a place, a script. Call `foo(1)`.

- one
- two
  - deep

1. first
2. second

```
def f():
    return 1
```

name | size
a | 1 MB

line
break

## [Card](https://docs.example.com/card)

And so that the main part is long enough to be one, here are some more words, which nobody needs to read at all."""

DUCKDUCKGO = """<html><body><div class="serp__results"><div class="results">
<div class="result results_links result--ad"><h2 class="result__title"><a class="result__a"
 href="https://duckduckgo.com/y.js?ad_domain=shop.example">Buy Tokio</a></h2><a class="result__snippet">Cheap.</a></div>
<div class="result results_links web-result"><h2 class="result__title"><a class="result__a" rel="nofollow"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftokio.rs%2Fa%3Fb%3D1%26c%3D2&amp;rut=abc">Tokio &amp; <b>Rust</b></a></h2>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">An <b>event-driven</b> platform</a></div>
<div class="result results_links web-result"><h2 class="result__title"><a class="result__a"
 href="https://docs.rs/tokio">docs.rs</a></h2></div>
<div class="result results_links web-result"><h2 class="result__title"><a class="result__a"
 href="https://docs.rs/tokio">the same once more</a></h2></div>
</div></div></body></html>"""

DUCKDUCKGO_OTHERWISE = """<html><body><a href="https://duckduckgo.com/settings">Settings</a><a href="/about">About</a>
<section><a href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftokio.rs%2F"><img></a>
<a href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftokio.rs%2F">Tokio</a></section>
<section><a href="https://docs.rs/tokio">docs.rs</a></section></body></html>"""


@dataclass
class Surfing:
    bench: Bench
    web: Web
    secrets: dict[str, str]

    def configure(self, **config: Any) -> None:
        self.bench.config = replace_web(self.bench, WebConfig(**config))
        self.bench.web = WebAccess(self.bench.config, self.secrets)
        self.bench.web.client = self.web.client(**config)

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await self.bench.call(name, **arguments)

    async def fails(self, name: str, **arguments: Any) -> ToolError:
        with pytest.raises(ToolError) as error:
            await self.call(name, **arguments)
        return error.value

    def access(self, name: str, **arguments: Any) -> NetworkAccess:
        [access] = self.bench.access(name, **arguments)
        assert isinstance(access, NetworkAccess)
        return access


def replace_web(made: Bench, config: WebConfig) -> Any:
    fields = {name: getattr(made.config, name) for name in made.config.__struct_fields__}
    return type(made.config)(**{**fields, "web": config})


@pytest.fixture
async def surf(served: tuple[Site, Authority, dict[int, int]], tmp_path: Path) -> AsyncIterator[Surfing]:
    site, authority, ports = served
    site.clear()
    async with bench(tmp_path) as made:
        surfing = Surfing(made, Web(site, authority, ports), {})
        surfing.configure()
        yield surfing


# --- fetch ----------------------------------------------------------------------------------------------------


async def test_fetch_gives_the_main_text_of_a_page(surf: Surfing) -> None:
    url = surf.web.serve("/guide/start", PAGE, "text/html; charset=utf-8")
    assert (await surf.call("fetch", url=url)).text == f"{url}\nTitle: The docs\n\n{PAGE_TEXT}"
    url = surf.web.serve("/a.json", '{"a":\n  [1]}', "application/json")
    assert (await surf.call("fetch", url=url)).text == f'{url}\n\n{{"a":\n  [1]}}', "other text as it is"


async def test_fetch_gives_so_much_and_says_when_there_is_more(surf: Surfing) -> None:
    text = "".join(f"{number:04}\n" for number in range(4000))
    url = surf.web.serve("/long.txt", text)
    short = (await surf.call("fetch", url=url)).text
    assert text[:8000] in short and text[:8001] not in short and "[cut after 8000 characters" in short
    assert text in (await surf.call("fetch", url=url, max_chars=100_000)).text
    surf.configure(max_body_bytes=1024)
    assert "its end is missing" in (await surf.call("fetch", url=url)).text


async def test_fetch_asks_for_the_host_before_it_asks_the_host(surf: Surfing) -> None:
    access = surf.access("fetch", url="https://DOCS.example.com./a")
    assert (access.host, access.what, access.sends) == ("docs.example.com", "GET https://docs.example.com/a", False)
    for url in ("https://localhost/", "https://0x7f.1/", "http://docs.example.com/", "nonsense"):
        with pytest.raises(ToolError):
            surf.access("fetch", url=url)
    assert surf.web.lookups == []


@pytest.mark.parametrize("name", ["fetch", "web_scrape", "http_request"])
async def test_an_open_redirect_sends_nothing_to_a_host_nobody_asked_for(surf: Surfing, name: str) -> None:
    target = "https://search.example.net/b?secret=1"
    url = surf.web.serve("/url", redirect(target))
    more = {"web_scrape": {"select": "p"}, "http_request": {"method": "GET"}}.get(name, {})
    error = await surf.fails(name, url=url, **more)
    assert error.category == "policy_blocked"
    assert target in str(error)
    assert [asked.path for asked in surf.web.site.asked] == ["/url"]


async def test_fetch_tells_what_became_of_a_page_that_is_not_there(surf: Surfing) -> None:
    error = await surf.fails("fetch", url="https://docs.example.com/none")
    assert (error.category, "404" in str(error)) == ("permanent_failure", True)
    surf.web.serve("/picture", b"\x89PNG", "image/png")
    assert "image/png" in str(await surf.fails("fetch", url="https://docs.example.com/picture"))


def test_a_page_without_a_main_part_is_read_as_a_whole() -> None:
    page = "<body><nav>menu</nav><div>one</div><article>a</article><article>b</article><p role=dialog>x</p></body>"
    assert page_text(page, "https://e.example/", 1000).text == "one\n\na\n\nb"
    assert page_text(
        "<p>before</p><main>tiny</main><p>after, which is longer</p>", "https://e.example/", 1000
    ).text == ("before\n\ntiny\n\nafter, which is longer")


@pytest.mark.parametrize("html", ["", "<", "no tags", "<table><td>", "</p></p>", "<a href='http://[x'>y</a>", "\0"])
def test_any_html_can_be_read(html: str) -> None:
    assert isinstance(page_text(html, "https://e.example/", 100).text, str)


def test_the_depth_and_the_length_of_a_page_are_no_matter() -> None:
    deep = page_text("<div>" * 5_000 + "<a href='/x'>deep</a>", "https://e.example/", 1000)
    assert "deep" in deep.text
    long = page_text("<p>word</p>" * 5_000, "https://e.example/", 500)
    assert (len(long.text), long.truncated) == (500, True)


async def test_a_page_that_takes_too_long_to_take_apart_is_given_up(surf: Surfing, monkeypatch) -> None:
    monkeypatch.setattr(web_text, "READING_TIMEOUT", 0.01)
    url = surf.web.serve("/deep", "<div>" * 15_000, "text/html")
    assert "too deeply nested" in str(await surf.fails("fetch", url=url))
    assert "too deeply nested" in str(await surf.fails("web_scrape", url=url, select="p"))


# --- web_scrape -----------------------------------------------------------------------------------------------


@table(("arguments", "values"), [
    ({"select": "li"}, ["one", "two deep", "deep", "first", "second"]), ({"select": "h1"}, ["Hello you"]),
    ({"select": "title"}, ["The docs"]),
    ({"select": "main > p a", "extract": "attr:href"}, ["page.html?a=1&b=2", "#here", "javascript:alert(1)"]),
    ({"select": "main > p a", "extract": "attr:HREF", "limit": 1}, ["page.html?a=1&b=2"]),
    ({"select": "b", "extract": "html"}, ["<b>bold</b>"]), ({"select": "b", "extract": "attr:none"}, [""]),
    ({"select": "tr:nth-child(2) td"}, ["a", "1 MB"]), ({"select": "li", "limit": 2}, ["one", "two deep"]),
    ({"select": "video"}, []),
])  # fmt: skip
async def test_web_scrape_gives_what_the_selector_finds(surf: Surfing, arguments, values: list[str]) -> None:
    url = surf.web.serve("/page", PAGE, "text/html")
    result = await surf.call("web_scrape", url=url, **arguments)
    assert result.raw_output == values
    assert all(f"{number}. {value}" in result.text for number, value in enumerate(values, 1))
    if not values:
        assert "Nothing on" in result.text


async def test_web_scrape_gives_ten_and_says_how_many_there_are(surf: Surfing) -> None:
    url = surf.web.serve("/page", "<i>x</i>" * 25, "text/html")
    result = await surf.call("web_scrape", url=url, select="i")
    assert len(result.raw_output) == 10
    assert "[10 of 25 elements" in result.text
    surf.configure(scrape_limit=3)
    assert len((await surf.call("web_scrape", url=url, select="i")).raw_output) == 3


@pytest.mark.parametrize("selector", ["p[", "", ">>", "a:nope(", "123", "\ud800"])
async def test_a_selector_that_is_none_is_told_before_the_page_is_asked(surf: Surfing, selector: str) -> None:
    url = surf.web.serve("/page", PAGE, "text/html")
    error = await surf.fails("web_scrape", url=url, select=selector)
    assert error.category == "invalid_parameters"
    assert "CSS selector" in str(error)
    assert surf.web.site.asked == []


async def test_what_is_to_be_extracted_must_be_one_of_three(surf: Surfing) -> None:
    for extract in ("markdown", "attr:", "attr:a b", ""):
        assert (await surf.fails("web_scrape", url="https://a.com", select="p", extract=extract)).category == (
            "invalid_parameters"
        )


def test_the_text_of_an_element_keeps_words_apart_and_together() -> None:
    [element], _ = select("<div>Price: <b>5</b>.00<p>x</p><i>y</i>z<br>end</div>", "div", 1)
    assert element.text == "Price: 5.00 x yz end"


# --- http_request ---------------------------------------------------------------------------------------------


async def test_http_request_sends_what_it_is_given_and_gives_the_whole_answer(surf: Surfing) -> None:
    url = surf.web.serve("/items", '{"id": 1}', "application/json", status=201, headers={"X-Made": "yes"})
    result = await surf.call(
        "http_request", method="POST", url=url, headers={"X-Key": "k"}, body={"name": "ä", "n": [1]}
    )
    asked = surf.web.site.asked[0]
    assert (asked.method, asked.path, json.loads(asked.body)) == ("POST", "/items", {"name": "ä", "n": [1]})
    assert (asked.headers["content-type"], asked.headers["x-key"]) == ("application/json", "k")
    assert result.text.startswith(f"201 {url}\n")
    assert "x-made: yes" in result.text
    assert result.text.endswith('\n\n{"id": 1}') and result.raw_output["status"] == 201 and not result.failed


@pytest.mark.parametrize("status", [400, 404, 429, 500])
async def test_a_bad_status_is_a_result_of_http_request(surf: Surfing, status: int) -> None:
    url = surf.web.serve("/a", "words of the server", status=status)
    result = await surf.call("http_request", method="GET", url=url)
    assert result.failed and result.text.startswith(f"{status} ")
    assert "words of the server" in result.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"])
async def test_http_request_knows_the_methods(surf: Surfing, method: str) -> None:
    url = surf.web.serve("/a", "body")
    result = await surf.call("http_request", method=method, url=url)
    assert surf.web.site.asked[0].method == method
    assert result.text.endswith("\n\n" if method == "HEAD" else "\n\nbody")
    surf.web.serve("/a", b"\x89PNG", "image/png")
    shown = (await surf.call("http_request", method=method, url=url)).text
    assert method == "HEAD" or shown.endswith("[image/png, not shown]")


@pytest.mark.parametrize(("body", "content_type"), [
    ('{"a": 1}', "application/json"), ("a=1", "text/plain; charset=utf-8"), ("", "text/plain; charset=utf-8"),
])  # fmt: skip
async def test_a_body_gets_a_type_unless_it_has_one(surf: Surfing, body: str, content_type: str) -> None:
    url = surf.web.serve("/a", "x")
    await surf.call("http_request", method="POST", url=url, body=body)
    await surf.call("http_request", method="POST", url=url, body=body, headers={"content-TYPE": "text/own"})
    assert [asked.headers["content-type"] for asked in surf.web.site.asked] == [content_type, "text/own"]
    assert [asked.body.decode() for asked in surf.web.site.asked] == [body, body]


@pytest.mark.parametrize("headers", [
    {"Host": "evil.com"}, {"content-length": "0"}, {"Connection": "x"}, {"Transfer-Encoding": "chunked"},
    {"Proxy-Authorization": "x"}, {"Upgrade": "h2c"}, {"": "x"}, {"a b": "x"}, {"a:": "x"},
    {"X-A": "x\r\nHost: evil.com"}, {"X-A": "x\0"}, {"X-A": "日本"}, {"X-A\n": "x"},
])  # fmt: skip
async def test_headers_that_are_not_the_models_to_set_are_refused(surf: Surfing, headers: dict[str, str]) -> None:
    url = surf.web.serve("/a", "x")
    assert (await surf.fails("http_request", method="GET", url=url, headers=headers)).category == "invalid_parameters"
    assert surf.web.site.asked == []


@pytest.mark.parametrize(("arguments", "sends"), [
    ({"method": "GET"}, False), ({"method": "HEAD", "headers": {"Accept": "text/plain"}}, False),
    ({"method": "OPTIONS"}, False), ({"method": "POST"}, True), ({"method": "PUT"}, True), ({"method": "DELETE"}, True),
    ({"method": "GET", "body": "x"}, True), ({"method": "GET", "body": ""}, True),
    ({"method": "GET", "headers": {"authorization": "x"}}, True), ({"method": "GET", "headers": {"Cookie": "x"}}, True),
    ({"method": "GET", "headers": {"X-Own": "x"}}, True),
])  # fmt: skip
async def test_a_request_that_gives_something_away_says_so(surf: Surfing, arguments, sends: bool) -> None:
    access = surf.access("http_request", url="https://docs.example.com/a", **arguments)
    assert access == NetworkAccess("docs.example.com", f"{arguments['method']} https://docs.example.com/a", sends)


async def test_http_request_is_behind_the_same_guard(surf: Surfing) -> None:
    surf.web.records["docs.example.com"] = [["192.168.0.1"]]
    error = await surf.fails("http_request", method="POST", url="https://docs.example.com/", body="x")
    assert error.category == "policy_blocked"
    assert surf.web.wire.connected == []


# --- web_search -----------------------------------------------------------------------------------------------


async def test_duckduckgo_gives_titles_addresses_and_snippets(surf: Surfing) -> None:
    surf.web.serve("/html/", DUCKDUCKGO, "text/html")
    result = await surf.call("web_search", query="tokio & rust")
    assert result.text == (
        "1. Tokio & Rust\n   https://tokio.rs/a?b=1&c=2\n   An event-driven platform\n"
        "2. docs.rs\n   https://docs.rs/tokio"
    )
    assert result.raw_output[0] == {
        "title": "Tokio & Rust", "url": "https://tokio.rs/a?b=1&c=2", "snippet": "An event-driven platform",
    }  # fmt: skip
    asked = surf.web.site.asked[0]
    assert (asked.host, asked.path) == ("html.duckduckgo.com", "/html/?q=tokio+%26+rust")
    surf.web.serve("/html/", DUCKDUCKGO_OTHERWISE, "text/html")
    result = await surf.call("web_search", query="tokio")
    assert result.text == "1. Tokio\n   https://tokio.rs/\n2. docs.rs\n   https://docs.rs/tokio", "by its links"


async def test_no_more_results_than_configured_are_given_and_none_is_no_failure(surf: Surfing) -> None:
    links = "".join(f'<a href="https://{number}.example.org/">{number}</a>' for number in range(30))
    surf.web.serve("/html/", links, "text/html")
    assert len((await surf.call("web_search", query="x")).raw_output) == 8
    surf.configure(max_search_results=2)
    assert len((await surf.call("web_search", query="x")).raw_output) == 2
    surf.web.serve("/html/", '<div class="no-results">No results.</div>', "text/html")
    result = await surf.call("web_search", query="xyzzy")
    assert (result.text.startswith("No results for 'xyzzy'"), result.raw_output) == (True, [])


async def test_duckduckgo_that_wants_a_person_is_told_as_too_many_requests(surf: Surfing) -> None:
    surf.web.serve("/html/", '<form id="challenge-form"></form>', "text/html", status=202)
    assert (await surf.fails("web_search", query="x")).category == "rate_limited"
    surf.web.serve("/html/", "<p>something else</p>", "text/html")
    assert (await surf.fails("web_search", query="x")).category == "server_error"


async def test_searxng_on_a_private_host_is_asked_where_it_is_configured(surf: Surfing) -> None:
    results = [
        {"title": "Tokio", "url": "https://tokio.rs", "content": "An <b>event</b> &amp; platform"},
        {"title": "No address"}, "nonsense", {"title": "Docs", "url": "https://docs.rs", "content": None},
    ]  # fmt: skip
    surf.web.serve("/sx/search", json.dumps({"results": results}), "application/json")
    surf.web.records["search.lan"] = [["10.0.0.7"]]
    surf.configure(search_provider="searxng", searxng_url="https://search.lan/sx/")
    assert (await surf.fails("web_search", query="x")).category == "policy_blocked"
    surf.configure(
        search_provider="searxng", searxng_url="http://search.lan/sx/", private_hosts=["search.lan"],
        http_hosts=["search.lan"],
    )  # fmt: skip
    result = await surf.call("web_search", query="x y")
    assert result.text == "1. Tokio\n   https://tokio.rs\n   An event & platform\n2. Docs\n   https://docs.rs"
    assert surf.web.site.asked[0].path == "/sx/search?q=x+y&format=json"
    assert surf.web.wire.connected == [("10.0.0.7", 80)]


async def test_searxng_that_gives_no_json_is_told(surf: Surfing) -> None:
    surf.configure(search_provider="searxng")
    assert "searxng_url" in str(await surf.fails("web_search", query="x"))
    surf.configure(search_provider="searxng", searxng_url="https://search.example.net")
    surf.web.serve("/search", "forbidden", status=403)
    assert "format `json`" in str(await surf.fails("web_search", query="x"))
    for body in ("<html>", "[]", "null", '{"results": 1}'):
        surf.web.serve("/search", body, "application/json")
        assert (await surf.fails("web_search", query="x")).category == "server_error"


async def test_brave_is_asked_with_the_key_of_the_person(surf: Surfing) -> None:
    found = {
        "web": {"results": [{"title": "Tokio", "url": "https://tokio.rs", "description": "<strong>Event</strong>"}]}
    }
    surf.web.serve("/res/v1/web/search", json.dumps(found), "application/json")
    surf.configure(search_provider="brave", brave_key_env="MY_KEY")
    error = await surf.fails("web_search", query="x")
    assert (error.category, "MY_KEY" in str(error), surf.web.site.asked) == ("policy_blocked", True, [])
    surf.secrets["MY_KEY"] = "geheim"
    assert (await surf.call("web_search", query="x")).text == "1. Tokio\n   https://tokio.rs\n   Event"
    asked = surf.web.site.asked[0]
    assert (asked.host, asked.headers["x-subscription-token"]) == ("api.search.brave.com", "geheim")
    assert asked.path == "/res/v1/web/search?q=x&count=8"
    surf.web.serve("/res/v1/web/search", '{"query": {}}', "application/json")
    assert (await surf.call("web_search", query="x")).raw_output == []
    surf.web.serve("/res/v1/web/search", Reply("slow", status=429, headers={"Retry-After": "3"}))
    error = await surf.fails("web_search", query="x")
    assert (error.category, error.retry_after, "geheim" in str(error)) == ("rate_limited", 3.0, False)


async def test_the_key_does_not_follow_a_redirect_to_another_host(surf: Surfing) -> None:
    surf.secrets["BRAVE_API_KEY"] = "geheim"
    surf.configure(search_provider="brave")
    surf.web.serve("/res/v1/web/search", redirect("https://other.example.com/elsewhere"))
    surf.web.serve("/elsewhere", '{"web": {"results": []}}', "application/json")
    await surf.call("web_search", query="x")
    assert surf.web.site.asked[1].host == "other.example.com"
    assert "x-subscription-token" not in surf.web.site.asked[1].headers


async def test_a_search_asks_for_the_engine_by_name(surf: Surfing) -> None:
    access = surf.access("web_search", query="some words")
    assert access == NetworkAccess("html.duckduckgo.com", "a search for 'some words'")
    assert surf.web.records["html.duckduckgo.com"] == [[PUBLIC]]
