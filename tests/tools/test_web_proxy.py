"""The browser's proxy behind another proxy: failed connections are closed and reported."""

from collections.abc import Sequence

import anyio
import anyio.abc
import pytest

from acp_agent.config.model import WebConfig
from acp_agent.proxying import MAX_HEAD
from acp_agent.tools.net.web_client import GuardedClient
from acp_agent.tools.net.web_proxy import GuardedProxy
from tests.tools.web_site import PUBLIC

BOUND = 60.0


async def resolve(host: str, port: int) -> Sequence[str]:
    return [PUBLIC]


async def refuses(host: str) -> str:
    return "No." if host == "docs.example.com" else ""


async def test_a_host_that_a_rule_refuses_is_not_reached_by_what_a_page_loads() -> None:
    proxy = GuardedProxy(GuardedClient(WebConfig(), resolve=resolve), refuses=refuses)
    proxy.want("docs.example.com")
    async with proxy.serve() as own, await anyio.connect_tcp("127.0.0.1", own) as browser:
        await browser.send(b"CONNECT docs.example.com:443 HTTP/1.1\r\n\r\n")
        answer = b"".join([chunk async for chunk in browser])
    assert answer.startswith(b"HTTP/1.1 403") and answer.endswith(b"No.\n")
    assert proxy.refused == ["https://docs.example.com:443/: No."]


@pytest.mark.parametrize(("says", "words"), [
    (b"HTTP/1.1 403 No\r\n\r\n", b"the proxy 127.0.0.1 answered"),
    (b"x" * (MAX_HEAD + 1), b"the proxy 127.0.0.1 answered"),
    (b"HTTP/1.1 200", b"the proxy 127.0.0.1 closed the connection"),
])  # fmt: skip
async def test_a_proxy_that_opens_no_way_is_told_and_hung_up_on(says: bytes, words: bytes) -> None:
    asked: list[bytes] = []
    left = anyio.Event()

    async def upstream(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            asked.append(await stream.receive())
            try:
                await stream.send(says)
                await stream.send_eof()
                while True:
                    await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                left.set()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    proxy = GuardedProxy(GuardedClient(WebConfig(), resolve=resolve), upstream=f"http://127.0.0.1:{port}")
    proxy.want("docs.example.com")
    async with listener, anyio.create_task_group() as tasks, proxy.serve() as own:
        tasks.start_soon(listener.serve, upstream)
        async with await anyio.connect_tcp("127.0.0.1", own) as browser:
            await browser.send(b"CONNECT docs.example.com:443 HTTP/1.1\r\n\r\n")
            answer = b""
            while words not in answer:
                answer += await browser.receive()
        await left.wait()
        tasks.cancel_scope.cancel()
    assert asked == [f"CONNECT {PUBLIC}:443 HTTP/1.1\r\nHost: {PUBLIC}:443\r\n\r\n".encode()]
    assert answer.startswith(b"HTTP/1.1 403")
    assert len(proxy.refused) == 1
