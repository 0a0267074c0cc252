"""The server over real sockets: who gets in, what a connection is, how it ends."""

import json
import os
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import websockets

from acp_agent.commands import servers
from acp_agent.config.load import load_config
from acp_agent.errors import ConfigError, ConnectionClosed
from acp_agent.fronts.server.app import Server
from acp_agent.fronts.server.identities import MINE, Identities
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.agent.kit import another, environ_for
from tests.agent.kit import refused as error
from tests.forked import COMMAND
from tests.fronts.server.documented import checking
from tests.websockets_client import connected

BOUND = 60.0
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


@dataclass
class Place:
    url: str
    http: str
    token: str
    identities: Identities
    environ: dict[str, str]
    model: FakeModel
    project: Path
    stop: anyio.Event = field(default_factory=anyio.Event)
    server: Any = None


@asynccontextmanager
async def served(tmp_path: Path, script: Any = (), *, config: str = "", **more: Any) -> AsyncIterator[Place]:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir(exist_ok=True, parents=True)
    project.mkdir(exist_ok=True)
    (tmp_path / "config.toml").write_text(f"[tools.sandbox]\ndisabled = true\n{config}")
    identities = Identities(tmp_path / "tokens.json")
    token = identities.add("me", **more)
    async with FakeModel(script) as model:
        environ = environ_for(home, model.base_url, ACP_CODER_CONFIG=str(tmp_path / "config.toml"))
        async with running(Place("", "", token, identities, environ, model, project)) as place:
            yield place


@asynccontextmanager
async def running(about: Place) -> AsyncIterator[Place]:
    """A server for that; several may run."""
    listens = socket.create_server(("127.0.0.1", 0))
    server, stop = Server(load_config(about.environ).settings, about.environ, about.identities, listens), anyio.Event()
    where = f"127.0.0.1:{listens.getsockname()[1]}"
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.until, stop)
            try:
                yield replace(about, url=f"ws://{where}/acp", http=f"http://{where}", stop=stop, server=server)
            finally:
                stop.set()


@asynccontextmanager
async def editor(place: Place, token: str = "", **more: Any) -> AsyncIterator[FakeEditor]:
    async with connected(place.url, token or place.token) as transport, FakeEditor(transport, **more) as made:
        await made.start()
        yield made


async def refused(place: Place, url: str = "", **headers: str) -> tuple[int, str]:
    try:
        async with websockets.connect(url or place.url, additional_headers=headers):
            return 101, ""
    except websockets.InvalidStatus as error:
        return error.response.status_code, bytes(error.response.body or b"").decode()


async def test_a_turn_over_a_websocket_and_the_session_is_there_for_the_next_connection(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "echo made >made; echo done"}),)), Answer(text="It is made.")]
    async with served(tmp_path, script) as place:
        async with editor(place) as first:
            session = (await first.new_session(place.project)).session_id
            assert (await first.prompt("make it")).stop_reason == "end_turn" and "It is made." in first.text()
            first.tool_call().assert_finished("completed")
            assert not first.violations
            assert not [line for line in first.transcript if line.message.get("method") == "terminal/create"]
        async with editor(place) as second:
            assert [each.session_id for each in (await second.client.list_sessions()).sessions] == [session]
            await second.load_session(session, place.project)
            assert "It is made." in json.dumps([line.message for line in second.transcript])
    assert (place.project / "made").read_text() == "made\n"


async def test_nobody_gets_in_without_a_token_and_nothing_is_made_for_them(tmp_path: Path) -> None:
    async with served(tmp_path) as place:
        right = f"Bearer {place.token}"
        for headers, status, words in (
            ({}, 401, "a token is needed"), ({"Authorization": "Bearer acp_wrong"}, 401, "a token is needed"),
            ({"Authorization": place.token}, 401, "a token is needed"),
            ({"Authorization": f"Basic {place.token}"}, 401, "a token is needed"),
            ({"Authorization": f"Bearer {'x' * 5000}"}, 401, "a token is needed"),
            ({"Authorization": right, "Origin": "http://evil.example"}, 403, "pages of that origin"),
            ({"Authorization": right, "Origin": "null"}, 403, "pages of that origin"),
            ({"Authorization": right}, 101, ""), ({"Authorization": right, "Origin": place.http}, 101, ""),
        ):  # fmt: skip
            assert (await refused(place, **headers))[0] == status, headers
            assert words in (await refused(place, **headers))[1]
        async with checking() as web:
            for method in ("GET", "POST", "DELETE"):
                answer = await web.request(method, f"{place.http}/acp")
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                answer = await web.request(method, f"{place.http}/acp/ws", headers={"Authorization": right})
                assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
            answer = await web.get(f"{place.http}/healthz", headers={"Host": "rebound.example"})
            assert answer.status_code == 403 and "not known by that name" in answer.text
            answer = await web.get(f"{place.http}/nothing", headers={"Authorization": right})
            assert answer.status_code == 404
    assert not (tmp_path / "home/.local/state/acp-coder/owners").exists()


def test_small_frames_do_not_wait_for_the_acknowledgement_of_those_before() -> None:
    with servers._bound("127.0.0.1", 0) as listens, socket.create_connection(listens.getsockname()):
        accepted, _ = listens.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_wrong_tokens_are_bounded_for_each_address(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nmax_wrong_tokens = 3\n") as place:
        for _ in range(3):
            assert (await refused(place, Authorization="Bearer wrong"))[0] == 401
        assert (await refused(place, Authorization="Bearer wrong"))[0] == 429
        async with checking() as web:
            answer = await web.get(f"{place.http}/acp", headers={"Authorization": f"Bearer {place.token}"})
            assert answer.status_code == 429 and 1 <= int(answer.headers["retry-after"]) <= 61


async def test_what_is_one_owners_does_not_exist_for_another(tmp_path: Path) -> None:
    async with served(tmp_path, [Answer(text="one"), Answer(text="two")]) as place:
        other = place.identities.add("other")
        async with editor(place) as mine, editor(place, other) as theirs:
            session = (await mine.new_session(place.project)).session_id
            await mine.prompt("go")
            assert (await theirs.request("session/list", {}))["sessions"] == []
            about = {"sessionId": session, "cwd": str(place.project), "mcpServers": []}
            missing = {**about, "sessionId": "8c62c600-83ac-48c7-ad28-53d12270df8f"}
            for method in ("session/load", "session/resume"):
                said = []
                for params in (about, missing):
                    with pytest.raises(Exception, match="does not exist") as raised:
                        await theirs.request(method, params)
                    said.append(str(raised.value).replace(str(params["sessionId"]), "ID"))
                assert said[0] == said[1]
            await theirs.request("session/delete", {"sessionId": session})
            assert [each["sessionId"] for each in (await mine.request("session/list", {}))["sessions"]] == [session]


async def test_a_token_opens_only_its_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "work", tmp_path / "workshop"
    for folder in (inside / "app", outside):
        folder.mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    async with served(tmp_path) as place:
        token = place.identities.add("narrow", (str(inside.resolve()),))
        async with editor(place, token) as narrow:
            for folder in (inside, inside / "app"):
                await narrow.new_session(folder)
            for folder in (outside, inside / "link", inside / "..", Path("/")):
                with pytest.raises(Exception, match="none of the folders that may be opened"):
                    await narrow.new_session(folder)
            more = {"cwd": str(inside), "mcpServers": [], "additionalDirectories": [str(outside)]}
            with pytest.raises(Exception, match=r"additionalDirectories\[0\].*none of the folders"):
                await narrow.request("session/new", more)


async def test_a_token_takes_no_session_of_other_folders_from_who_runs_it(tmp_path: Path) -> None:
    """The lease stays free for another process."""
    inside, outside = tmp_path / "work", tmp_path / "other"
    inside.mkdir()
    outside.mkdir()
    async with served(tmp_path, ["Hello."]) as place:
        async with editor(place, place.token) as wide:
            session = (await wide.new_session(outside)).session_id
            await wide.prompt("go")
            await wide.request("session/close", {"sessionId": session})
        async with editor(place, place.identities.add("narrow", (str(inside.resolve()),), owner="me")) as narrow:
            (file,) = (tmp_path / "home").rglob("sessions.db")
            with closing(sqlite_store(file)) as store:
                await narrow.request("session/delete", {"sessionId": session})
                assert store.get(session) is not None and store.leases.holder(session) == ""
                for method in ("session/load", "session/resume"):
                    with pytest.raises(Exception, match="does not exist"):
                        await narrow.request(method, {"sessionId": session, "cwd": str(inside), "mcpServers": []})
                    assert store.leases.holder(session) == ""


async def test_a_session_goes_from_the_server_to_a_terminal_and_back_without_being_closed(tmp_path: Path) -> None:
    script = ["one", "two", "three", "four", Answer(text=("a", "b"), hang_after=1), "six"]
    async with served(tmp_path, script) as place, AsyncExitStack() as more:
        page, watching = [await more.enter_async_context(editor(place, place.token)) for _ in range(2)]
        session = (await page.new_session(place.project)).session_id
        await page.prompt("first")
        await watching.load_session(session, place.project)
        (file,) = (tmp_path / "home").rglob("sessions.db")
        local = await more.enter_async_context(another({**place.environ, "ACP_CODER_STORE": str(file)}))
        await local.load_session(session, place.project)
        await local.prompt("second")
        with error(-32603, "continued in a terminal or an editor. What was said there is shown now: send it again."):
            await page.prompt("third")
        for each in (page, watching):
            await each.wait_for(lambda update: "two" in str(getattr(update, "content", "")))
        await page.prompt("third, again")
        with error(-32603, "was continued by another acp-coder"):
            await local.prompt("with an old memory")
        await local.load_session(session, place.project)
        await local.prompt("fourth")
        await page.load_session(session, place.project)  # It is read anew.
        turn = page.begin("fifth")
        await place.model.wait_for_request(5)
        with error(-32603, f"works in it now (process {os.getpid()})"):
            await local.prompt("while the page's turn runs")
        place.model.release()
        assert (await turn.response()).stop_reason == "end_turn"
        users = [each["content"] for each in place.model.requests[4].body["messages"] if each["role"] == "user"]
        said = [words.rpartition("\n\n")[2] for words in users]
        assert said == ["first", "second", "third, again", "fourth", "fifth"]


async def test_while_a_turn_runs_in_a_terminal_the_server_says_so(tmp_path: Path) -> None:
    script = ["one", Answer(text=("a", "b"), hang_after=1), "three"]
    async with served(tmp_path, script) as place, editor(place, place.token) as page, AsyncExitStack() as more:
        session = (await page.new_session(place.project)).session_id
        await page.prompt("first")
        (file,) = (tmp_path / "home").rglob("sessions.db")
        local = await more.enter_async_context(another({**place.environ, "ACP_CODER_STORE": str(file)}))
        await local.load_session(session, place.project)
        turn = local.begin("second")
        await place.model.wait_for_request(2)
        with error(-32603, "Another acp-coder works in it now"):
            await page.prompt("meanwhile")
        await page.request("session/close", {"sessionId": session})
        with error(-32603, "an acp-coder on stdio works in it"):
            await page.load_session(session, place.project)
        place.model.release()
        assert (await turn.response()).stop_reason == "end_turn"
        await page.load_session(session, place.project)
        await page.prompt("third")


async def test_the_sessions_of_a_user_in_the_terminal_in_editors_and_on_the_server_are_one_list(tmp_path: Path) -> None:
    async with served(tmp_path, ["from the editor", "from the page", "again"], owner=MINE) as place:
        async with editor(place) as page, another(place.environ) as local:
            written = (await local.new_session(place.project)).session_id
            await local.prompt("one")
            begun = (await page.new_session(place.project)).session_id
            await page.prompt("two")
            await page.request("session/close", {"sessionId": begun})
            for one in (page, local):
                listed = await one.request("session/list", {})
                assert [each["sessionId"] for each in listed["sessions"]] == [begun, written]
            await page.load_session(written, place.project)
            assert "from the editor" in page.text()
            assert (await page.prompt("go on")).stop_reason == "end_turn"
        async with editor(place, place.identities.add("wall", owner="me", scope="watch")) as wall:  # As `me` reaches.
            assert len((await wall.request("session/list", {}))["sessions"]) == 2
        async with editor(place, place.identities.add("other")) as other:
            assert (await other.request("session/list", {}))["sessions"] == []
    listed = subprocess.run(
        [COMMAND, "sessions", "list"], env=place.environ, capture_output=True, text=True, check=True
    )
    assert begun[:8] in listed.stdout and written[:8] in listed.stdout


async def test_frames_that_are_no_messages_are_answered_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with served(tmp_path) as place, connected(place.url, place.token) as transport:
        client = transport.socket
        assert client.response is not None and len(client.response.headers["acp-connection-id"]) == 36
        await client.send(json.dumps(INITIALIZE, indent=2))
        assert json.loads(await client.recv())["result"]["protocolVersion"] == 1
        for frame, code in (("[]", -32600), ("{", -32700), ("7", -32600), ("", -32700), ("\n", -32700)):
            await client.send(b"binary frames are ignored")
            await client.send(frame)
            answer = json.loads(await client.recv())
            assert (answer["id"], answer["error"]["code"]) == (None, code), frame
        await client.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}}))
        assert json.loads(await client.recv())["result"] == {"sessions": []}


LIST = {"jsonrpc": "2.0", "id": 1, "method": "session/list"}


@pytest.mark.parametrize(("settings", "frames", "code"), [
    ("", ["{"], 1002), ("", [json.dumps(LIST)], 1002), ("", [json.dumps({**INITIALIZE, "id": None})], 1002),
    ("", [json.dumps({"jsonrpc": "2.0", "method": "initialize"})], 1002),
    ("[server]\ninitialize_timeout = 0.2\n", [], 1002),
    ("[limits]\nmax_line_bytes = 65536\n", [json.dumps(INITIALIZE), '"' + "x" * 70_000 + '"'], 1009),
])  # fmt: skip
async def test_a_bad_first_or_long_frame_closes_the_socket(tmp_path: Path, settings: str, frames: list[str], code: int):
    async with served(tmp_path, config=settings) as place, connected(place.url, place.token) as transport:
        with pytest.raises(websockets.ConnectionClosed) as raised:
            for frame in frames:
                await transport.socket.send(frame)
            while True:
                await transport.socket.recv()
        assert raised.value.rcvd is not None and raised.value.rcvd.code == code


async def test_connections_are_bounded_for_each_token_and_in_all(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nmax_connections = 3\nmax_connections_per_token = 2\n") as place:
        other = place.identities.add("other")
        async with editor(place), editor(place):
            status, words = await refused(place, Authorization=f"Bearer {place.token}")
            assert status == 503 and "this token has 2 connections" in words
            async with editor(place, other):
                status, words = await refused(place, Authorization=f"Bearer {other}")
                assert status == 503 and "there are 3 connections" in words
        async with editor(place):
            pass


async def test_connections_that_say_nothing_or_half_of_it_are_given_up_and_keep_nobody_out(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nmax_connections = 20\ninitialize_timeout = 0.5\n") as place:
        streams = [await anyio.connect_tcp("127.0.0.1", int(place.http.rpartition(":")[2])) for _ in range(200)]
        for stream in streams[:100]:
            with suppress(anyio.BrokenResourceError):
                await stream.send(b"GET /acp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        for stream in streams:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                assert not await stream.receive()
            await stream.aclose()
        async with editor(place) as made:
            assert (await made.client.list_sessions()).sessions == []


async def test_a_link_that_is_cut_ends_the_turn_and_its_commands_if_so_configured(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch begun; exec sleep 7071"}),)), Answer(text="never")]
    async with served(tmp_path, script, config="[server]\nalone = false\n") as place:
        async with connected(place.url, place.token) as transport, FakeEditor(transport) as made:
            await made.start()
            await made.new_session(place.project)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_swallowed, made)
                while not (place.project / "begun").exists():
                    await anyio.sleep(0.01)
                transport.close()
        while subprocess.run(["pgrep", "-f", "sleep 7071"], capture_output=True, check=False).stdout:
            await anyio.sleep(0.02)


async def _swallowed(made: FakeEditor) -> None:
    with pytest.raises(ConnectionClosed):
        await made.prompt("go")


async def test_a_server_that_stops_says_so_and_answers_what_runs(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch begun; sleep 60"}),)), Answer(text="never")]
    async with (
        served(tmp_path, script) as place, connected(place.url, place.token) as transport,
        FakeEditor(transport) as made,
    ):  # fmt: skip
        await made.start()
        await made.new_session(place.project)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stopped, place)
            answer = await made.prompt("go")
        assert answer.stop_reason == "cancelled"
        await transport.socket.wait_closed()
        assert transport.socket.close_code == 1001


async def _stopped(place: Place) -> None:
    while not (place.project / "begun").exists():
        await anyio.sleep(0.01)
    place.stop.set()


async def test_what_is_public_says_little(tmp_path: Path) -> None:
    async with served(tmp_path) as place, checking() as web:
        about = (await web.get(f"{place.http}/.well-known/acp.json")).json()
        assert about["protocol"] == "acp" and about["transports"]["websocket"] == {"url": "/acp"}
        health = (await web.get(f"{place.http}/healthz")).json()
        assert set(health) == {"status", "version", "uptime_secs"} and health["status"] == "ok"
        assert str(tmp_path) not in json.dumps(about)
    async with served(tmp_path / "other", config="[server]\ndiscovery = false\n") as place, httpx2.AsyncClient() as web:
        assert (await web.get(f"{place.http}/.well-known/acp.json")).status_code == 404


async def test_the_official_python_client_works_over_a_websocket(tmp_path: Path) -> None:
    sdk, ws = import_module("acp"), import_module("acp.ws")  # Here: a second for each process that collects the tests.

    class Client:
        said = ""

        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            if isinstance(update, sdk.schema.AgentMessageChunk):
                self.said += update.content.text

    async with served(tmp_path, [Answer(text="It is here.")]) as place:
        headers = {"Authorization": f"Bearer {place.token}"}
        stream, client = await ws.create_websocket_stream(place.url, headers=headers), Client()
        agent = sdk.connect_to_agent(client, stream)
        await agent.initialize(protocol_version=sdk.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=str(place.project), mcp_servers=[])
        answer = await agent.prompt(session_id=session.session_id, prompt=[sdk.text_block("go")])
        assert (answer.stop_reason, client.said) == ("end_turn", "It is here.")
        await agent.close()


async def test_history_is_the_owners_alone_in_pages_and_as_text(tmp_path: Path) -> None:
    async with served(tmp_path, [Answer(text=f"answer {number}") for number in range(6)]) as place:
        other = place.identities.add("other")
        async with checking(headers={"Authorization": f"Bearer {place.token}"}) as web:
            assert (await web.get(f"{place.http}/sessions")).json() == []
            ids = []
            for _ in range(3):
                async with editor(place) as made:
                    ids.append((await made.new_session(place.project)).session_id)
                    for text in ("first", "second"):
                        await made.prompt(text)
            seen = await paged(web, place, "/sessions?limit=2")
            assert [each["id"] for each in seen] == ids[::-1]
            assert {(each["turns"], each["cwd"]) for each in seen} == {(2, str(place.project))}
            assert (await web.get(f"{place.http}/sessions?cwd=/nowhere")).json() == []
            one = f"{place.http}/sessions/{ids[0]}"
            assert (await web.get(one)).json() == seen[-1]
            events = await paged(web, place, f"/sessions/{ids[0]}/messages?limit=3")
            assert len(events) == seen[-1]["message_count"]
            chunks = [each["payload"] for each in events if each["event_type"].endswith("message_chunk")]
            assert "".join(each["content"]["text"] for each in chunks) == "firstanswer 0secondanswer 1"
            assert [each["seq"] for each in events] == sorted({each["seq"] for each in events})
            exported = await web.get(f"{one}/export")
            assert exported.headers["content-type"].startswith("text/markdown")
            assert "> first" in exported.text and "answer 1" in exported.text
            lines = [json.loads(line) for line in (await web.get(f"{one}/export?format=jsonl")).text.splitlines()]
            assert lines[0]["payload"]["id"] == ids[0] and len(lines) > len(events)
            for path, status, words in (
                ("/sessions/x", 400, "is a UUID"), (f"/sessions/{uuid.uuid4()}", 404, "no such session"),
                (f"/sessions/{uuid.uuid4()}/messages", 404, "no such session"),
                (f"/sessions/{ids[0]}/messages?after=-1", 400, "`after` is a number"),
                (f"/sessions/{ids[0]}/messages?limit=9999999", 400, "`limit` is a number"),
                (f"/sessions/{ids[0]}/export?format=pdf", 400, "`format` is one of jsonl, markdown"),
                ("/sessions?cursor=%00", 400, "`cursor` is none"),
                ("/sessions?limit=0", 400, "`limit` is a number from 1"),
            ):  # fmt: skip
                answer = await web.get(place.http + path)
                assert (answer.status_code, words in answer.json()["error"]) == (status, True), path
            theirs = {"Authorization": f"Bearer {other}"}
            for method, path in (("GET", ""), ("GET", "/messages"), ("GET", "/export"), ("DELETE", "")):
                assert (await web.request(method, one + path, headers=theirs)).status_code == 404
            assert (await web.get(f"{place.http}/sessions", headers=theirs)).json() == []
            async with editor(place) as made:
                await made.load_session(ids[0], place.project)
                answer = await web.delete(one)
                assert answer.status_code == 409 and "the session is in use" in answer.text
            while (answer := await web.delete(one)).status_code == 409:  # The agent still closes it.
                await anyio.sleep(0.02)
            assert answer.status_code == 204
            assert (await web.get(one)).status_code == 404
            assert (await web.post(f"{place.http}/sessions")).status_code == 405


async def paged(web: httpx2.AsyncClient, place: Place, url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while url:
        answer = await web.get(place.http + url)
        found += answer.json()
        url = str(answer.links.get("next", {}).get("url", ""))
    return found


def ran(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    argv = [COMMAND, "serve", *arguments]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=BOUND, check=False)


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
def test_a_mounted_file_of_tokens_may_be_its_groups_to_read_and_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token = Identities(file).add("me")
    for owner, mode, right in (
        (0, 0o600, True), (0, 0o440, False), (65534, 0o440, True), (65534, 0o444, False), (65534, 0o460, False),
    ):  # fmt: skip
        os.chown(file, owner, -1)
        file.chmod(mode)
        try:
            found = Identities(file).find(token)
            assert right and found is not None, oct(mode)
        except ConfigError as error:
            assert not right and "others may read" in str(error), oct(mode)


def test_what_a_revoked_token_opens_is_known_at_once(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "tokens.json")
    token, kept = identities.add("one"), identities.add("two")
    found = identities.find(token)
    assert found is not None and found.name == "one"
    Identities(tmp_path / "tokens.json").revoke("one")
    assert identities.find(token) is None and identities.find(kept) is not None and identities.find("") is None


async def test_what_the_server_counts_is_told_to_prometheus_without_a_name(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "echo secret; false"}),)), Answer(text="It is done.")]
    async with served(tmp_path, script) as place:
        async with editor(place) as made:
            await made.new_session(place.project)
            await made.prompt("go")
            async with checking() as web:
                assert (await web.get(f"{place.http}/metrics")).status_code == 401
                answer = await web.get(f"{place.http}/metrics", headers={"Authorization": f"Bearer {place.token}"})
        assert answer.headers["content-type"].startswith("text/plain; version=1.0.0")
        lines = [line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#")]
        found = {name: float(value) for name, _, value in lines}
        for name, value in (
            ("acp_coder_connections", 1), ("acp_coder_sessions", 1), ("acp_coder_turns_running", 0),
            ('acp_coder_turns_total{reason="end_turn"}', 1), ('acp_coder_tokens_total{kind="input"}', 20),
            ('acp_coder_tokens_total{kind="output"}', 10), ("acp_coder_turn_seconds_count", 1),
            ("acp_coder_tool_call_seconds_count", 1), ("acp_coder_first_word_seconds_count", 1),
            ('acp_coder_refused_total{status="401"}', 1),
        ):  # fmt: skip
            assert found[name] == value, name
        assert sum(value for name, value in found.items() if name.startswith("acp_coder_tool_calls_total")) == 1
        for word in ("secret", "project", "me", made.session_id):
            assert f'"{word}"' not in answer.text


async def test_the_words_of_what_was_shown_are_found_again_by_who_may_see_it(tmp_path: Path) -> None:
    script = ["The heron stands in the reeds.", "A heron again, and an otter.", "Nothing of that."]
    async with served(tmp_path, script) as place:
        (inner := place.project / "inner").mkdir()
        phone = place.identities.add("phone", (str(inner),), owner="me")
        stranger = place.identities.add("stranger")
        ids = []
        async with editor(place) as made:
            for folder in (place.project, inner, place.project):
                ids.append((await made.new_session(folder)).session_id)
                await made.prompt("look")

        async def found(query: str, token: str = place.token, status: int = 200) -> Any:
            async with checking(headers={"Authorization": f"Bearer {token}"}) as web:
                answer = await web.get(f"{place.http}/search{query}")
            assert answer.status_code == status, answer.text
            return answer.json() if status != 200 else [row["session"] for row in answer.json()]

        assert await found("?q=heron") == [ids[1], ids[0]] and await found("?q=HERON%20otter") == [ids[1]]
        assert await found(f"?q=heron&session={ids[0]}") == [ids[0]] and await found("?q=heron", phone) == [ids[1]]
        assert await found("?q=heron", stranger) == [] and await found("?q=%22%29%20OR%20*%20NEAR(") == []
        for query, words in (
            ("", "`q` is missing"), ("?q=%20", "`q` is missing"), ("?q=a&limit=0", "`limit` is a number"),
            ("?q=a&before=x", "`before` is a number"), ("?q=a&session=x", "is a UUID"),
        ):  # fmt: skip
            assert words in (await found(query, status=400))["error"]
        async with checking(headers={"Authorization": f"Bearer {place.token}"}) as web:
            rows = await paged(web, place, "/search?q=heron&limit=1")
        assert [row["session"] for row in rows] == [ids[1], ids[0]] and "heron" in rows[0]["snippet"]
