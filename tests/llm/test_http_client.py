"""Requests to a model server over bare TCP: what is on the wire, and through which proxy."""

import gzip
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError
from acp_agent.llm.chat import ChatProvider
from acp_agent.llm.provider_errors import tls_error
from acp_agent.llm.transport.http_client import FAILURES, HttpClient

from .kit import failure


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


TLS = b"\x16\x03"
"""How an encrypted connection begins."""


@asynccontextmanager
async def server(response: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Gives the port and the heads of the requests."""
    heads: list[bytes] = []

    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received and not received.startswith(TLS):
                received += await stream.receive()
            heads.append(received)
            await stream.send(response)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), heads
        tasks.cancel_scope.cancel()


def ok(body: bytes, *headers: str) -> bytes:
    lines = ("HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def fetch(url: str, *, proxied: bool = False, headers: dict[str, str] | None = None) -> bytes:
    client = HttpClient(url, connect_timeout=5, idle_timeout=5, proxied=proxied)
    async with aclosing(client), aclosing(await client.send("GET", url, headers or {})) as response:
        assert response.status == 200
        return await response.read(1000)


@pytest.mark.parametrize(("path", "target"), [
    ("", b"/"), ("/v1/models", b"/v1/models"), ("/a b/é", b"/a%20b/%C3%A9"),
    ("/v1?api-version=1 2", b"/v1?api-version=1%202"), ("/a%20b", b"/a%20b"),
])  # fmt: skip
async def test_the_target_is_what_may_stand_in_a_request(path: str, target: bytes) -> None:
    async with server(ok(b"here")) as (port, heads):
        assert await fetch(f"http://127.0.0.1:{port}{path}") == b"here"
    lines = heads[0].split(b"\r\n")
    assert lines[0] == b"GET " + target + b" HTTP/1.1" and b"Host: 127.0.0.1:%d" % port in lines
    assert b"Accept-Encoding: identity" in lines


async def test_a_name_and_password_in_the_base_url_are_sent_as_basic_authentication() -> None:
    async with server(ok(b"")) as (port, heads):
        await fetch(f"http://ann:p%40ss@127.0.0.1:{port}/", headers={"Authorization": "Bearer key"})
    assert b"Authorization: Basic YW5uOnBAc3M=" in heads[0] and b"Bearer" not in heads[0] and b"ann" not in heads[0]


@pytest.mark.parametrize("coding", ["gzip", "GZip"])
async def test_a_body_that_a_proxy_compressed_unasked_is_unpacked(coding: str) -> None:
    async with server(ok(gzip.compress(b"data: [DONE]"), f"Content-Encoding: {coding}")) as (port, _):
        assert await fetch(f"http://127.0.0.1:{port}") == b"data: [DONE]"


@pytest.mark.parametrize(("coding", "body"), [("br", b"xx"), ("gzip", b"no gzip")])
async def test_a_body_that_cannot_be_unpacked_is_a_failure_that_says_so(coding: str, body: bytes) -> None:
    async with server(ok(body, f"Content-Encoding: {coding}")) as (port, _):
        with pytest.raises(FAILURES, match="encoded as 'br'|compression of the response is broken"):
            await fetch(f"http://127.0.0.1:{port}")


async def test_the_proxy_gets_requests_and_tunnels_what_is_encrypted(monkeypatch: pytest.MonkeyPatch):
    async with server(ok(b"by proxy")) as (port, heads):
        monkeypatch.setenv("http_proxy", f"http://ann:pass@127.0.0.1:{port}")
        assert await fetch("http://models.invalid/v1", proxied=True) == b"by proxy"
    assert heads[0].startswith(b"GET http://models.invalid/v1 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic YW5uOnBhc3M=" in heads[0]
    async with server(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as (port, heads):
        monkeypatch.setenv("ALL_PROXY", f"127.0.0.1:{port}")
        with pytest.raises(FAILURES, match="407"):
            await fetch("https://models.invalid/v1", proxied=True)
    assert heads[0].startswith(b"CONNECT models.invalid:443 HTTP/1.1\r\n")


@pytest.mark.parametrize("excepted", ["127.0.0.1", "*", "127.0.0.1:PORT"])
async def test_no_proxy_is_obeyed(monkeypatch: pytest.MonkeyPatch, excepted: str) -> None:
    async with server(ok(b"direct")) as (port, heads):
        monkeypatch.setenv("http_proxy", "http://proxy.invalid:1")
        monkeypatch.setenv("no_proxy", f"example.org,{excepted}".replace("PORT", str(port)))
        assert await fetch(f"http://127.0.0.1:{port}/v1", proxied=True) == b"direct"
    assert heads[0].startswith(b"GET /v1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("proxy", "words"), [("ftp://proxy.example", "no known kind"), ("socks5://proxy.example", "pip install socksio")]
)
def test_an_unusable_proxy_is_an_error_of_the_configuration(monkeypatch: pytest.MonkeyPatch, proxy: str, words: str):
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(ConfigError, match=words):
        ChatProvider(ProviderOptions(name="there", base_url="https://models.example/v1"))


SECRET = "hunter2"


async def told(base_url: str, **options: Any) -> str:
    """The words of the error that a request ends in."""
    settings: dict[str, Any] = {"name": "fake", "max_retries": 0, "connect_timeout": 5, "idle_timeout": 5}
    try:
        provider = ChatProvider(ProviderOptions(base_url=base_url, **settings | options))
        async with aclosing(provider):
            return str(await failure(provider))
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("base_url", [
    f"http://ann:{SECRET}@127.0.0.1:1/v1", f"http://127.0.0.1:1/v1?key={SECRET}",
    f"http://ann:x#{SECRET}@127.0.0.1:1/v1", f"http://ann:x/{SECRET}@127.0.0.1:1/v1", f"ann:{SECRET}@127.0.0.1:many/v1",
    f"ftp://ann:{SECRET}@127.0.0.1/v1",
])  # fmt: skip
async def test_an_error_never_quotes_the_credentials_of_a_base_url(base_url: str) -> None:
    words = await told(base_url)
    assert "127.0.0.1" in words and SECRET not in words


@pytest.mark.parametrize("proxy", [f"http://ann:{SECRET}#@127.0.0.1:1", f"http://ann:x@127.0.0.1:{SECRET}"])
async def test_an_error_never_quotes_the_credentials_of_a_proxy(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    words = await told("http://example.com/v1")
    assert "proxy" in words and SECRET not in words


@pytest.mark.parametrize("value", [f" {SECRET}", f"{SECRET} ", f"{SECRET}\n"])
async def test_an_error_never_quotes_a_header(value: str) -> None:
    async with server(ok(b"")) as (port, _):
        words = await told(f"http://127.0.0.1:{port}/v1", headers={"X-Key": value})
    assert "header contains characters" in words and SECRET not in words


async def test_a_redirect_a_plain_server_none_at_all_and_a_bad_certificate_are_told_apart() -> None:
    away = (
        b"HTTP/1.1 302 Found\r\nLocation: https://ann:hunter2@b.example/v1?token=hunter2\r\nContent-Length: 0\r\n\r\n"
    )
    async with server(away) as (port, _):
        words = await told(f"http://127.0.0.1:{port}/v1")
    assert "redirects to https://b.example/v1 (HTTP 302)" in words
    async with server(ok(b"")) as (port, _):
        assert "begin the base URL with `http://`" in await told(f"https://127.0.0.1:{port}/v1")
    assert "no server listens" in await told("https://127.0.0.1:1/v1")
    cause = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)"
    assert "is not trusted" in (words := str(tls_error("p", "https://a", cause))) and "set SSL_CERT_FILE" in words
