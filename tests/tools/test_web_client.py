"""The guarded client against a real HTTPS server: where it connects, what it sends and reads, when it stops."""

import gzip
import socket
import tracemalloc
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from acp_agent.config.model import WebConfig
from acp_agent.errors import ToolError
from acp_agent.safety.deciding.network import NetworkPolicy, check_url
from acp_agent.tools.net.web_body import WebAnswer, need_text
from acp_agent.tools.net.web_client import GuardedClient, same_site
from acp_agent.tools.net.web_text import read_link
from tests.tools.web_site import OTHER, PUBLIC, PUBLIC_6, Authority, Proxy, Reply, Site, Web, redirect, serving

BOUND = 60.0


@pytest.fixture
def web(served: tuple[Site, Authority, dict[int, int]]) -> Web:
    site, authority, ports = served
    site.clear()
    return Web(site, authority, ports)


async def get(web: Web, url: str, **config: object) -> WebAnswer:
    return await web.client(**config).request("GET", url)


async def refused(web: Web, url: str, **config: object) -> ToolError:
    with pytest.raises(ToolError) as error:
        await get(web, url, **config)
    return error.value


# --- what is connected to -------------------------------------------------------------------------------------


async def test_the_checked_address_is_connected_to_and_the_name_is_kept(web: Web) -> None:
    answer = await get(web, web.serve("/a", "hello"))
    assert (answer.status, answer.text, answer.url) == (200, "hello", "https://docs.example.com/a")
    assert answer.hops == ("https://docs.example.com/a",)
    assert web.wire.connected == [(PUBLIC, 443)]
    assert web.site.asked[0].host == "docs.example.com" and "acp-coder" in web.site.asked[0].headers["user-agent"]
    assert "cookie" not in web.site.asked[0].headers


async def test_a_name_is_resolved_once_and_by_nobody_else(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[object] = []
    real = socket.getaddrinfo

    def watched(host: object, *rest: Any, **more: Any) -> Any:
        names.append(host)
        return real(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    await get(web, web.serve("/a", "hello"))
    assert web.lookups == ["docs.example.com"]
    assert "docs.example.com" not in names


async def test_a_name_that_changes_its_address_is_held_to_the_first(web: Web) -> None:
    web.records["docs.example.com"] = [[PUBLIC], ["127.0.0.1"]]
    assert (await get(web, web.serve("/a", "hello"))).text == "hello"
    assert web.wire.connected == [(PUBLIC, 443)]
    assert (await refused(web, "https://docs.example.com/a")).category == "policy_blocked"
    assert web.wire.connected == [(PUBLIC, 443)]


async def test_each_hop_is_resolved_anew(web: Web) -> None:
    web.records["docs.example.com"] = [[PUBLIC], ["10.0.0.1"]]
    web.serve("/b", "secret")
    assert (await refused(web, web.serve("/a", redirect("/b")))).category == "policy_blocked"
    assert web.lookups == ["docs.example.com"] * 2
    assert [asked.path for asked in web.site.asked] == ["/a"]


@pytest.mark.parametrize("bad", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "::1", "fd00::1", "2002::1"])
@pytest.mark.parametrize("first", [True, False])
async def test_one_private_record_blocks_all(web: Web, bad: str, first: bool) -> None:
    web.records["docs.example.com"] = [[bad, PUBLIC] if first else [PUBLIC, bad]]
    error = await refused(web, web.serve("/a", "hello"))
    assert error.category == "policy_blocked"
    assert bad in str(error)
    assert web.wire.connected == []


async def test_a_private_host_may_be_asked_when_it_is_named(web: Web) -> None:
    web.records["search.lan"] = [["127.0.0.1"]]
    web.serve("/a", "inner")
    assert (await refused(web, "https://search.lan/a")).category == "policy_blocked"
    port = web.ports[443]
    assert (await get(web, f"https://search.lan:{port}/a", private_hosts=["search.lan"])).text == "inner"
    assert web.wire.connected == [("127.0.0.1", port)]


async def test_http_is_only_for_named_hosts(web: Web) -> None:
    web.serve("/a", "plain")
    assert (await refused(web, "http://docs.example.com/a")).category == "policy_blocked"
    assert (await get(web, "http://docs.example.com/a", http_hosts=["docs.example.com"])).text == "plain"
    assert web.wire.connected == [(PUBLIC, 80)]


async def test_an_address_that_is_down_is_followed_by_the_next(web: Web) -> None:
    web.records["docs.example.com"] = [[PUBLIC_6, OTHER, PUBLIC]]
    web.dead |= {PUBLIC_6, OTHER}
    assert (await get(web, web.serve("/a", "hello"))).text == "hello"
    assert [address for address, _ in web.wire.connected] == [PUBLIC_6, OTHER, PUBLIC]
    assert len(web.site.asked) == 1
    web.dead.add(PUBLIC)
    error = await refused(web, "https://docs.example.com/a")
    assert error.category == "network_error"
    assert "docs.example.com" in str(error)


async def test_an_address_as_the_host_is_checked_against_the_certificate(web: Web) -> None:
    web.serve("/a", "by number")
    assert (await get(web, f"https://{OTHER}/a")).text == "by number"
    assert web.site.asked[0].host == OTHER and web.lookups == []
    assert "certificate" in str(await refused(web, f"https://{PUBLIC}/a"))
    await get(web, "https://docs.example.com:8443/a")
    assert web.site.asked[-1].host == "docs.example.com:8443", "a port is part of it"


@pytest.mark.parametrize(("url", "category", "words"), [
    ("https://unlisted.example.com/", "permanent_failure", "certificate"),
    ("https://nowhere.example.com/", "network_error", "nowhere.example.com"),
])  # fmt: skip
async def test_a_certificate_for_another_name_and_a_name_that_is_unknown_are_refused(web, url, category, words) -> None:
    web.records["unlisted.example.com"] = [[PUBLIC]]
    error = await refused(web, url)
    assert error.category == category and words in str(error)
    assert web.site.asked == []


async def test_an_unknown_authority_is_refused(web: Web) -> None:
    client = GuardedClient(WebConfig(), resolve=web.resolve, backend=web.wire)
    with pytest.raises(ToolError, match="certificate") as error:
        await client.request("GET", web.serve("/a", "hello"))
    assert error.value.category == "permanent_failure" and web.site.asked == []


async def test_the_certificates_are_read_at_the_first_request_only(web: Web) -> None:
    made: list[int] = []

    def context() -> object:
        made.append(1)
        return web.authority.client()

    client = GuardedClient(WebConfig(), resolve=web.resolve, ssl_context=context, backend=web.wire)  # type: ignore[arg-type]
    assert made == []
    for _ in range(2):
        await client.request("GET", web.serve("/a", "hello"))
    assert made == [1]


async def test_the_target_can_be_located_without_asking_it(web: Web) -> None:
    target, addresses = await web.client().locate("https://docs.example.com/a")
    assert (target.host, addresses) == ("docs.example.com", (PUBLIC,))
    with pytest.raises(ToolError):
        await web.client().locate("https://localhost/")


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"])
async def test_proxies_of_the_environment_are_ignored(web: Web, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await get(web, web.serve("/a", "direct"))).text == "direct"


async def test_a_configured_proxy_is_asked_for_the_checked_address(web: Web) -> None:
    asked: list[tuple[str, str]] = []
    with serving(type("TestProxy", (Proxy,), {"asked": asked, "port": web.ports[443]})) as port:
        answer = await get(web, web.serve("/a", "tunnelled"), proxy=f"http://me:word@127.0.0.1:{port}")
        assert answer.text == "tunnelled"
        assert asked == [(f"{PUBLIC}:443", "Basic bWU6d29yZA==")]
        web.records["docs.example.com"] = [["10.0.0.1"]]
        error = await refused(web, "https://docs.example.com/a", proxy=f"http://127.0.0.1:{port}")
        assert error.category == "policy_blocked"
    assert len(asked) == 1
    assert "proxy-authorization" not in web.site.asked[0].headers


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense", "http://[::1"])
async def test_a_proxy_that_is_none_is_told(web: Web, proxy: str) -> None:
    assert "tools.web.proxy" in str(await refused(web, web.serve("/a", "x"), proxy=proxy))


# --- redirects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["/b", "b", "?x=1", "//docs.example.com/b", "https://docs.example.com/b#part"])
async def test_redirects_are_followed_from_where_they_stand(web: Web, location: str) -> None:
    web.serve("/b", "there")
    web.serve("/dir/b", "there")
    start = web.serve("/dir/a" if location in ("b",) else "/a", redirect(location))
    if location == "?x=1":
        web.site.replies["/a"] = redirect("/b")
    answer = await get(web, start)
    assert answer.text == "there"
    assert answer.hops[0] == start and answer.hops[-1] == answer.url and len(answer.hops) == 2


@pytest.mark.parametrize("location", [
    "https://127.0.0.1/", "https://169.254.169.254/latest/meta-data", "https://2130706433/", "https://localhost/",
    "https://[::1]/", "http://docs.example.com/b", "file:///etc/passwd", "https://user:pw@other.example.com/",
    "//0x7f.1/",
])  # fmt: skip
async def test_a_redirect_to_a_forbidden_place_is_refused_and_the_way_is_told(web: Web, location: str) -> None:
    web.serve("/b", "plain")
    start = web.serve("/a", redirect(location))
    error = await refused(web, start)
    assert error.category == "policy_blocked"
    assert start in str(error) and "pw" not in str(error)
    assert len(web.site.asked) == 1


@pytest.mark.parametrize(("start", "target", "followed"), [
    ("docs.example.com", "docs.example.com:8443", True), ("docs.example.com", "example.com", True),
    ("docs.example.com", "www.docs.example.com", True), ("example.com", "other.example.com", True),
    ("www.example.com", "docs.example.com", True), ("docs.example.com", "other.example.com", False),
    ("docs.example.com", "elsewhere.net", False), ("docs.example.com", "evildocs.example.com", False),
    ("example.com", "notexample.com", False), ("www.com", "elsewhere.com", False), (OTHER, PUBLIC, False),
    (OTHER, f"{OTHER}:8443", True),
])  # fmt: skip
def test_a_redirect_leads_on_within_the_host_that_was_asked_for(start: str, target: str, followed: bool) -> None:
    policy = NetworkPolicy.from_config(WebConfig())
    first, second = check_url(f"https://{start}/", policy), check_url(f"https://{target}/", policy)
    assert same_site(first, second) == same_site(second, first) == followed


async def test_a_redirect_to_another_host_names_it_and_stops(web: Web) -> None:
    web.serve("/there", "there")
    target = "https://search.example.net/there?q=" + "x" * 600
    start = web.serve("/a", redirect(target))
    for status in (302, 303):
        web.serve("/a", redirect(target, status))
        with pytest.raises(ToolError, match="on another host; call it with that URL") as error:
            await web.client().request("GET" if status == 302 else "POST", start, body=None)
        assert error.value.category == "policy_blocked"
        assert f"{start} redirects to {target} on another host" in str(error.value)
    assert web.lookups == ["docs.example.com"] * 2
    assert (await web.client().request("GET", start, any_host=True)).text == "there"
    web.serve("/c", redirect("https://other.example.com/there"))
    told = await refused(web, web.serve("/a", redirect("https://example.com/c")))
    assert "other.example.com" in str(told), "the host that was asked for counts and not the last one"


async def test_at_most_so_many_redirects_are_followed(web: Web) -> None:
    for number in range(5):
        web.serve(f"/{number}", redirect(f"/{number + 1}"))
    web.serve("/5", "end")
    error = await refused(web, "https://docs.example.com/0")
    assert "more than 3 redirects" in str(error)
    assert " -> ".join(f"https://docs.example.com/{number}" for number in range(4)) in str(error)
    assert len(web.site.asked) == 4
    assert (await get(web, "https://docs.example.com/2")).text == "end"
    assert (await get(web, "https://docs.example.com/0", max_redirects=5)).text == "end"
    web.serve("/b", redirect("/a"))
    assert "circle" in str(await refused(web, web.serve("/a", redirect("/b"))))


async def test_a_redirect_without_a_place_is_an_answer(web: Web) -> None:
    answer = await get(web, web.serve("/a", "odd", status=302))
    assert (answer.status, answer.text) == (302, "odd")
    with pytest.raises(ToolError, match="302"):
        need_text(answer)


@pytest.mark.parametrize(("status", "method", "then", "body"), [
    (301, "POST", "GET", b""), (302, "POST", "GET", b""), (303, "POST", "GET", b""), (303, "PUT", "GET", b""),
    (303, "HEAD", "HEAD", b""), (302, "PUT", "PUT", b"data"), (307, "POST", "POST", b"data"),
    (308, "POST", "POST", b"data"), (301, "HEAD", "HEAD", b""),
])  # fmt: skip
async def test_a_redirect_changes_the_method_as_it_should(web: Web, status: int, method: str, then: str, body) -> None:
    web.serve("/b", "there")
    start = web.serve("/a", redirect("/b", status))
    sent = None if method == "HEAD" else b"data"
    answer = await web.client().request(method, start, body=sent, headers={"Content-Type": "text/x", "X-Key": "k"})
    assert answer.status == 200
    last = web.site.asked[-1]
    assert (last.path, last.method, last.body) == ("/b", then, body)
    assert last.headers["x-key"] == "k"
    assert ("content-type" in last.headers) == (then == method)


async def test_credentials_stay_with_their_origin(web: Web) -> None:
    web.records["other.example.com"] = [[OTHER]]
    headers = {"Authorization": "Bearer t", "Cookie": "c=1", "X-Api-Key": "k", "X-Own": "o", "Accept": "text/x"}
    web.serve("/same", "same")
    web.serve("/other", "other")
    for place in ("/same", "https://other.example.com/other", "https://docs.example.com:8443/other"):
        await web.client().request("GET", web.serve("/a", redirect(place)), headers=headers, any_host=True)
        got = web.site.asked[-1].headers
        kept = {name for name in ("authorization", "cookie", "x-api-key", "x-own") if name in got}
        assert kept == ({"authorization", "cookie", "x-api-key", "x-own"} if place == "/same" else set())
        assert got["accept"] == "text/x"


async def test_what_was_sent_is_not_carried_to_another_place(web: Web) -> None:
    start = web.serve("/a", redirect("https://other.example.com/b", 307))
    with pytest.raises(ToolError, match=r"other\.example\.com") as error:
        await web.client().request("POST", start, body=b"secret")
    assert error.value.category == "policy_blocked"
    assert len(web.site.asked) == 1


# --- sizes and times ------------------------------------------------------------------------------------------


async def test_a_long_answer_is_cut(web: Web) -> None:
    url = web.serve("/a", "x" * 5000)
    answer = await get(web, url, max_body_bytes=1024)
    assert answer.truncated and answer.text == "x" * 1024
    whole = await get(web, url, max_body_bytes=5000)
    assert (whole.truncated, len(whole.text or "")) == (False, 5000)


async def test_an_answer_that_unpacks_to_too_much_is_cut_on_the_way(web: Web) -> None:
    url = web.serve("/a", gzip.compress(bytes(64 * 1024 * 1024), 6), headers={"Content-Encoding": "gzip"})
    client = web.client()
    await client.locate(url)
    tracemalloc.start()
    try:
        answer = await client.request("GET", url)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.truncated
    assert len(answer.text or "") == 1_048_576
    assert peak < 16 * 1024 * 1024


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_packed_answers_are_unpacked(web: Web, coding: str, pack: object) -> None:
    assert callable(pack)
    assert (await get(web, web.serve("/a", pack(b"packed"), headers={"Content-Encoding": coding}))).text == "packed"


@pytest.mark.parametrize(("body", "headers", "category", "words"), [
    *((b"?", {"Content-Encoding": coding}, "permanent_failure", "encoding") for coding in ("br", "gzip, gzip", "x-y")),
    (b"no gzip", {"Content-Encoding": "gzip"}, "server_error", ""),
    ("short", {"Content-Length": "100"}, "network_error", ""),
])  # fmt: skip
async def test_an_answer_that_is_packed_as_nobody_asked_for_or_broken_is_refused(web, body, headers, category, words):
    error = await refused(web, web.serve("/a", body, headers=headers))
    assert error.category == category and words in str(error)


async def test_the_deadline_holds_for_a_server_that_stops_in_the_middle_and_for_all_hops_together(web: Web) -> None:
    web.serve("/b", Reply("half", hangs=True))
    error = await refused(web, web.serve("/a", redirect("/b")), timeout=1.0)
    assert error.category == "timeout"
    assert "https://docs.example.com/a -> https://docs.example.com/b" in str(error)
    assert await anyio.to_thread.run_sync(web.site.left.wait, BOUND)


async def test_the_deadline_holds_for_the_lookup(web: Web) -> None:
    async def never(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    client = GuardedClient(WebConfig(timeout=0.1), resolve=never, ssl_context=web.authority.client, backend=web.wire)
    with pytest.raises(ToolError) as error:
        await client.request("GET", "https://docs.example.com/")
    assert error.value.category == "timeout"


async def test_a_cancelled_request_hangs_up(web: Web) -> None:
    url = web.serve("/a", Reply("half", hangs=True))
    async with anyio.create_task_group() as group:
        group.start_soon(web.client().request, "GET", url)
        assert await anyio.to_thread.run_sync(web.site.hanging.wait, BOUND)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(web.site.left.wait, BOUND)


# --- text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("content_type", "body", "text"), [
    ("text/plain; charset=utf-8", "grün".encode(), "grün"),
    ("text/plain; charset=ISO-8859-1", b"gr\xfcn \x80", "grün €"),
    ("text/plain; charset=windows-1251", "мир".encode("cp1251"), "мир"),
    ('text/html; charset="shift_jis"', "日本".encode("shift_jis"), "日本"),
    ("text/html", b'<meta charset="koi8-r">' + "мир".encode("koi8-r"), '<meta charset="koi8-r">мир'),
    ("text/html", b"\xef\xbb\xbfbom", "bom"), ("text/plain; charset=latin-1", b"\xff\xfeh\0i\0", "hi"),
    ("text/plain", b"bad \xff byte", "bad \ufffd byte"), ("text/plain; charset=punycode", b"abc-", "abc-"),
    ("text/plain; charset=unicode_escape", rb"\x41", r"\x41"), ("text/plain; charset=zlib", b"abc", "abc"),
    ("text/plain; charset=nonsense", "grün".encode(), "grün"),
    ("application/xml", b'<?xml version="1.0" encoding="ISO-8859-15"?>\xa4', None),
    ("application/json", b'{"a": 1}', '{"a": 1}'), ("application/vnd.api+json; charset=utf-8", b"{}", "{}"),
    ("image/svg+xml", b"<svg/>", "<svg/>"), ("application/javascript", b"let a", "let a"),
    ("application/x-www-form-urlencoded", b"a=1", "a=1"), (None, b"no type", "no type"),
])  # fmt: skip
async def test_text_is_read_in_its_charset(web: Web, content_type: str | None, body: bytes, text: str | None) -> None:
    answer = await get(web, web.serve("/a", body, content_type))
    assert need_text(answer) == (text or '<?xml version="1.0" encoding="ISO-8859-15"?>€')


@pytest.mark.parametrize(
    "content_type", ["image/png", "application/octet-stream", "application/pdf", "font/woff", None]
)
async def test_what_is_no_text_is_not_read(web: Web, content_type: str | None) -> None:
    answer = await get(web, web.serve("/a", b"\x89PNG\0\0", content_type))
    assert answer.text is None
    with pytest.raises(ToolError, match="not text"):
        need_text(answer)


@pytest.mark.parametrize(("status", "category"), [
    (422, "invalid_parameters"), (403, "policy_blocked"), (429, "rate_limited"), (503, "server_error"),
    (404, "permanent_failure"),
])  # fmt: skip
async def test_a_bad_status_becomes_its_category(web: Web, status: int, category: str) -> None:
    url = web.serve("/a", "the server's own words", status=status)
    with pytest.raises(ToolError) as error:
        await read_link(web.client(), url, 1000)
    assert error.value.category == category
    assert str(status) in str(error.value) and url in str(error.value) and "the server's own words" in str(error.value)


async def test_the_time_to_wait_is_told_by_number_or_by_date(web: Web) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for header, low, high in (("7", 7, 7), (later, 3000, 3600), ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0)):
        url = web.serve("/a", "slow down", status=429, headers={"Retry-After": header})
        with pytest.raises(ToolError) as error:
            await read_link(web.client(), url, 1000)
        assert error.value.retry_after is not None
        assert low <= error.value.retry_after <= high
    url = web.serve("/a", "slow down", status=429, headers={"Retry-After": "soon"})
    with pytest.raises(ToolError) as error:
        await read_link(web.client(), url, 1000)
    assert error.value.retry_after is None


async def test_a_link_is_read_as_text_or_refused_in_words(web: Web) -> None:
    web.serve("/b", "<title>T</title><main><h1>Head</h1><p>" + "word " * 100 + "</p></main>", "text/html")
    text = await read_link(web.client(), web.serve("/a", redirect("/b")), 60)
    assert text.startswith(
        "https://docs.example.com/b\n(redirected from https://docs.example.com/a)\nTitle: T\n\n# Head"
    )
    assert "[cut after 60 characters" in text
    for url in ("https://localhost/", "http://docs.example.com/", "nonsense", "https://nowhere.example.com/"):
        with pytest.raises(ToolError):
            await read_link(web.client(), url, 100)


async def test_the_default_certificates_are_those_of_the_system(tmp_path: Path) -> None:
    client = GuardedClient(WebConfig())
    assert (await client._tls()).verify_mode == httpx2.create_ssl_context().verify_mode
    assert (await client._tls()).check_hostname
