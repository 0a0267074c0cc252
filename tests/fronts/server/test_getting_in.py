"""How a browser gets in: the page's files for anybody, and a cookie that counts only for the page itself."""

import os
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest

from acp_agent.fronts.server.page import NOT_HERE, POLICY, Page
from tests.forked import COMMAND
from tests.fronts.server.documented import checking

from .test_server import refused, served


def port_of(http: str) -> str:
    return http.rpartition(":")[2]


async def test_a_token_becomes_a_cookie_that_no_script_reads_and_no_other_site_gets(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\npage_days = 3\n") as place, checking() as web:
        name = f"acp-coder-{port_of(place.http)}"
        bearer = {"Authorization": f"Bearer {place.token}"}
        answer = await web.post(f"{place.http}/login", headers={**bearer, "Origin": place.http})
        assert answer.status_code == 204
        assert answer.headers["set-cookie"] == (
            f"{name}={place.token}; Path=/; Max-Age={3 * 24 * 3600}; HttpOnly; SameSite=Strict"
        )
        behind = f"https://127.0.0.1:{port_of(place.http)}"
        answer = await web.post(f"{place.http}/login", headers={**bearer, "Origin": behind})
        assert answer.headers["set-cookie"].endswith("; Secure")
        assert (await web.post(f"{place.http}/login", headers={"Origin": place.http})).status_code == 401
        wrong = {"Authorization": "Bearer wrong", "Cookie": f"{name}={place.token}", "Origin": place.http}
        assert (await web.post(f"{place.http}/login", headers=wrong)).status_code == 401
        answer = await web.post(f"{place.http}/logout", headers={"Origin": place.http})
        assert answer.status_code == 204 and answer.headers["set-cookie"].startswith(f"{name}=; Path=/; Max-Age=0;")
        assert (await web.get(f"{place.http}/login", headers=bearer)).status_code == 405


async def test_the_cookie_counts_only_where_the_browser_says_that_our_page_asks(tmp_path: Path) -> None:
    async with served(tmp_path, config='[server]\norigins = ["http://friend.example"]\n') as place:
        cookie = {"Cookie": f"other=1; acp-coder-{port_of(place.http)}={place.token}"}
        rows = {
            "our page's WebSocket": ({"Origin": place.http}, 101), "nothing said": ({}, 401),
            "our page reads": ({"Sec-Fetch-Site": "same-origin"}, 101),
            "another port of this host": ({"Sec-Fetch-Site": "same-site"}, 401),
            "an address that was typed": ({"Sec-Fetch-Site": "none"}, 401),
            "a page elsewhere": ({"Origin": "http://evil.example"}, 403),
            "a frame without an origin": ({"Origin": "null"}, 403),
            "one of `server.origins`": ({"Origin": "http://friend.example", "Sec-Fetch-Site": "same-origin"}, 401),
        }  # fmt: skip
        for name, (headers, status) in rows.items():
            assert (await refused(place, **cookie, **headers))[0] == status, name
        wrong = {"Cookie": f"acp-coder-{port_of(place.http)}=wrong", "Origin": place.http}
        for headers in (wrong, {"Cookie": f"acp-coder-1={place.token}", "Origin": place.http}):
            assert (await refused(place, **headers))[0] == 401


async def test_wrong_cookies_are_bounded_as_wrong_tokens_are(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nmax_wrong_tokens = 2\n") as place:
        wrong = {"Cookie": f"acp-coder-{port_of(place.http)}=wrong", "Origin": place.http}
        assert [(await refused(place, **wrong))[0] for _ in range(3)] == [401, 401, 429]


def test_the_first_start_shows_a_link_that_logs_in_and_later_ones_where_the_page_is(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    for first in (True, False):
        with subprocess.Popen([COMMAND, "serve", "--port", "0"], env=environ, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            lines = [run.stdout.readline().strip() for _ in range(3 if first else 2)]
            run.terminate()
        token = lines[0].split(": ")[1] if first else ""
        address = lines[-2].split()[-1].replace("ws://", "http://").removesuffix("acp")
        assert lines[-1] == f"Page for browsers: {address}{f'#token={token}' if first else ''}"


def test_a_request_that_is_never_whole_does_not_keep_a_server_that_is_told_to_stop(tmp_path: Path) -> None:
    """Uvicorn would wait for it as long as it takes."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    with subprocess.Popen([COMMAND, "serve", "--port", "0"], env=environ, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        token = run.stdout.readline().split(": ")[1].strip()
        port = int(port_of(run.stdout.readline().strip()).partition("/")[0])
        head = f"POST /acp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head.encode())
            assert client.recv(12) == b"HTTP/1.1 100"  # It waits for the rest.
            run.terminate()
            assert run.wait(20) == 0


async def test_without_a_page_there_is_no_login_either(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\npage = false\n") as place:
        for method, path in (("GET", "/"), ("GET", "/page.js"), ("POST", "/login"), ("POST", "/logout")):
            asked = httpx2.Request(method, place.http + path, headers={"Authorization": f"Bearer {place.token}"})
            async with httpx2.AsyncClient() as web:
                assert (await web.send(asked)).status_code == 404


@pytest.mark.parametrize("accepts", ["", "gzip, br"])
async def test_files_are_served_with_a_strict_policy_and_asked_for_once(tmp_path: Path, accepts: str) -> None:
    page = Page(1, tmp_path)
    missing = page.file("/", {}, False)
    assert (missing.status, missing.body.decode()) == (503, NOT_HERE)
    (tmp_path / "index.html").write_text("<p>one")
    (tmp_path / "icon.png").write_bytes(b"PNG")
    asked = {"accept-encoding": accepts}
    first = page.file("/", asked, False)
    headers = dict(first.headers)
    assert (first.status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"] == POLICY and "unsafe" not in POLICY
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    assert ("Content-Encoding" in headers) == bool(accepts)
    again = page.file("/", {**asked, "if-none-match": f'"x", W/{headers["ETag"]}'}, False)
    assert (again.status, again.body) == (304, b"")
    (tmp_path / "index.html").write_text("<p>another")
    assert page.file("/", {**asked, "if-none-match": headers["ETag"]}, False).status == 200
    assert "Content-Encoding" not in dict(page.file("/icon.png", asked, False).headers)
