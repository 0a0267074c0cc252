"""The HTTP form: each requirement of the draft over a real socket, and the official client for TypeScript."""

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from acp_agent.client.permissions import never_answers
from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.server.documented import checking
from tests.fronts.server.test_house import AUTO, SCRIPT, exists
from tests.fronts.server.test_server import INITIALIZE, Place, editor, served
from tests.waits import until

ROOT = Path(__file__).resolve().parents[3]
SDK = ROOT / "editors/vscode/node_modules/@agentclientprotocol/sdk"
CLIENT = ROOT / "tests/editors/sdk_client.mjs"
EVENTS = {"Accept": "text/event-stream"}


class Over:
    """A client of one connection."""

    def __init__(self, place: Place, web: httpx2.AsyncClient) -> None:
        self.web = web
        self.place = place
        self.id = ""

    @property
    def url(self) -> str:
        return f"{self.place.http}/acp"

    async def post(self, message: Any, session: str = "", **headers: str) -> httpx2.Response:
        named = {"Acp-Connection-Id": self.id} if self.id else {}
        more = {"Acp-Session-Id": session} if session else {}
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        kind = {"Content-Type": "application/json; charset=utf-8"}
        return await self.web.post(self.url, content=content, headers={**kind, **named, **more, **headers})

    async def ask(self, number: int, method: str, params: Any, session: str = "") -> None:
        answer = await self.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, session)
        assert (answer.status_code, answer.content) == (202, b"")

    async def begin(self) -> dict[str, Any]:
        answer = await self.post(INITIALIZE)
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        self.id = answer.headers["acp-connection-id"]
        return dict(answer.json())

    @asynccontextmanager
    async def stream(self, session: str = "") -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        headers = {**EVENTS, "Acp-Connection-Id": self.id, **({"Acp-Session-Id": session} if session else {})}
        async with self.web.stream("GET", self.url, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-cache"
            yield _events(answer)


async def _events(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
        else:
            assert line == "" or line.startswith(":")


@asynccontextmanager
async def over(place: Place, token: str = "") -> AsyncIterator[Over]:
    async with checking(headers={"Authorization": f"Bearer {token or place.token}"}, timeout=20) as web:
        yield Over(place, web)


async def new_session(made: Over, events: AsyncIterator[dict[str, Any]]) -> str:
    await made.ask(1, "session/new", {"cwd": str(made.place.project), "mcpServers": []})
    return str((await anext(events))["result"]["sessionId"])


async def test_a_turn_over_http_and_what_goes_to_which_stream(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), Answer(text="It is made.")]
    async with served(tmp_path, script) as place, over(place) as made:
        assert (await made.begin())["id"] == 0
        async with made.stream() as connection:
            session = await new_session(made, connection)
            # What was said before anybody listened is kept, in order.
            async with made.stream(session) as events:
                assert (await anext(events))["params"]["update"]["sessionUpdate"] == "available_commands_update"
                prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "make it"}]}
                await made.ask(2, "session/prompt", prompt, session)
                async for message in events:
                    if message.get("method") == "session/request_permission":
                        answer = {"jsonrpc": "2.0", "id": message["id"], "result": _allowed(message)}
                        for wrong in ("", "another"):
                            assert (await made.post(answer, wrong)).status_code == 400
                        assert (await made.post(answer, session)).status_code == 202
                    if message.get("id") == 2:
                        assert message["result"]["stopReason"] == "end_turn"
                        break
            assert (place.project / "made").exists()
            await made.ask(3, "session/list", {})
            assert (await anext(connection))["result"]["sessions"][0]["sessionId"] == session
            # A load is answered on the connection's stream, its replay is the session's.
            async with made.stream(session) as events:
                await made.ask(
                    4, "session/load", {"sessionId": session, "cwd": str(place.project), "mcpServers": []}, session
                )
                assert (await anext(connection))["id"] == 4
                kinds = [(await anext(events))["params"]["update"]["sessionUpdate"] for _ in range(3)]
                assert kinds == ["user_message_chunk", "tool_call", "agent_message_chunk"]
            await made.ask(
                5, "session/resume", {"sessionId": session, "cwd": str(place.project), "mcpServers": []}, session
            )
            async with made.stream(session) as events:
                while (await anext(events)).get("id") != 5:
                    pass


def _allowed(message: dict[str, Any]) -> dict[str, Any]:
    options = message["params"]["options"]
    return {
        "outcome": {"outcome": "selected", "optionId": next(o["optionId"] for o in options if "allow" in o["kind"])}
    }


async def test_bad_requests_get_the_status_of_the_draft_and_cost_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, config="[limits]\nmax_line_bytes = 100000\n") as place, over(place) as made:
        for message, status, words in (
            (b"not json", 400, "the body is not JSON"), (b"[" * 100_001, 413, "longer than 100000 bytes"),
            (b"[" * 90_000, 400, "the body is not JSON"), (b"3", 400, "one JSON-RPC message"),
            ([INITIALIZE], 501, "batches"), ({**INITIALIZE, "id": None}, 400, "with an id"),
            ({"jsonrpc": "2.0", "method": "initialize"}, 400, "with an id"),
            ({"jsonrpc": "2.0", "id": 1, "method": "session/list"}, 400, "`acp-connection-id` is missing"),
        ):  # fmt: skip
            answer = await made.post(message)
            assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text
            assert "acp-connection-id" not in answer.headers
        answer = await made.post(INITIALIZE, **{"Content-Type": "text/plain"})
        assert answer.status_code == 415
        answer = await made.post({**INITIALIZE, "params": {"protocolVersion": "x"}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32602)
        assert "acp-connection-id" not in answer.headers
        await until(lambda: not place.server._http._connections)
        made.id = "nothing"
        listing = {"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}}
        assert (await made.post(listing)).status_code == 404
        assert (await made.web.get(made.url, headers={**EVENTS, "Acp-Connection-Id": made.id})).status_code == 404
        assert (await made.web.delete(made.url, headers={"Acp-Connection-Id": made.id})).status_code == 404
        assert (await made.web.delete(made.url)).status_code == 400
        assert (await made.web.get(made.url, headers=EVENTS)).status_code == 400
        made.id = ""
        await made.begin()
        assert (await made.post(INITIALIZE)).status_code == 400
        named = {"Acp-Connection-Id": made.id}
        assert (await made.web.get(made.url, headers={**named, "Accept": "text/html"})).status_code == 406
        assert (await made.web.put(made.url, headers=named)).status_code == 405
        assert (await made.post(listing, "x" * 1025)).status_code == 400
        prompt = {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": "a", "prompt": []}}
        assert (await made.post(prompt)).status_code == 400
        assert (await made.post(prompt, "b")).status_code == 400
        assert (await made.post({"jsonrpc": "2.0", "method": "session/cancel"})).status_code == 400
        assert (
            await made.post({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 9}}, "z")
        ).is_success
        async with made.stream() as first:
            assert (await made.web.get(made.url, headers={**EVENTS, **named})).status_code == 409
            assert (await made.post(listing)).status_code == 202  # All of that has done no harm.
            assert (await anext(first))["result"] == {"sessions": []}
        # Somebody else's token does not reach it.
        async with over(place, place.identities.add("other")) as other:
            other.id = made.id
            assert (await other.post(listing)).status_code == 404
            assert (await other.web.delete(other.url, headers=named)).status_code == 404
        assert (await made.web.delete(made.url, headers=named)).status_code == 202
        assert (await made.web.delete(made.url, headers=named)).status_code == 404


async def test_nobody_gets_to_the_http_form_from_another_page_or_without_a_token(tmp_path: Path) -> None:
    async with served(tmp_path) as place, over(place) as made:
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 403),
            ({"Authorization": "Bearer wrong"}, 401),
        ):  # fmt: skip
            assert (await made.post(INITIALIZE, **headers)).status_code == status
            for method in ("GET", "DELETE"):
                assert (await made.web.request(method, made.url, headers=headers)).status_code == status
        assert not place.server._http._connections


async def test_a_client_that_ends_its_connection_stops_its_turn_and_one_that_is_lost_does_not(tmp_path: Path) -> None:
    for ended in (True, False):
        config = f"{AUTO}[server]\nhttp_idle_timeout = 1.5\n"
        async with served(tmp_path / str(ended), SCRIPT, config=config) as place, over(place) as made:
            await made.begin()
            async with made.stream() as connection:
                session = await new_session(made, connection)
                prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
                await made.ask(2, "session/prompt", prompt, session)
                await exists(place.project / "begun")
                if ended:
                    await made.web.delete(made.url, headers={"Acp-Connection-Id": made.id})
            while place.server._open:
                await anyio.sleep(0.01)
            async with editor(place, otherwise=never_answers) as later:
                status = (await _loaded(later, session, place)).status
                if ended:
                    await later.wait_until(lambda made=later: made.tool_call().status in ("failed", "completed"))  # type: ignore[misc]
                    assert later.tool_call().status == "failed"
                else:
                    assert status == "in_progress"
                    (place.project / "go").touch()
                    await later.wait_until(lambda made=later: "It is done." in made.text())  # type: ignore[misc]


async def _loaded(made: Any, session: str, place: Place) -> Any:
    made.updates.clear()
    await made.load_session(session, place.project)
    return made.tool_call()


async def test_a_server_full_of_connections_still_serves_those_it_has(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nmax_connections = 1\n") as place, over(place) as made:
        await made.begin()
        async with over(place) as more:
            assert (await more.post(INITIALIZE)).status_code == 503
        async with made.stream() as events:
            await made.ask(1, "session/list", {})
            assert (await anext(events))["id"] == 1


async def test_a_server_that_stops_ends_the_streams(tmp_path: Path) -> None:
    async with served(tmp_path) as place, over(place) as made:
        await made.begin()
        async with made.stream() as events:
            place.stop.set()
            with suppress(httpx2.RemoteProtocolError):
                assert [message async for message in events] == []


async def test_the_official_client_for_typescript_drives_it(tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None or not SDK.exists():
        pytest.skip("Node.js or the SDK of editors/vscode is not installed")
    script = [Answer(tool_calls=(Call("bash", {"command": "echo hi >made"}),)), Answer(text="It is made."), "Again."]
    async with served(tmp_path, script) as place:
        exports = json.loads((SDK / "package.json").read_text())["exports"]
        module = {name: str(SDK / exports[name]["default"]) for name in (".", "./experimental/http-client")}
        remote = {"client": module["./experimental/http-client"], "url": f"{place.http}/acp", "token": place.token}

        async def run(**more: Any) -> dict[str, Any]:
            plan = {"sdk": module["."], "cwd": str(place.project), "remote": remote, **more}
            done = await anyio.run_process([node, str(CLIENT), json.dumps(plan)], env=dict(os.environ), check=False)
            assert done.returncode == 0, done.stderr.decode()
            return dict(json.loads(done.stdout))

        seen = await run(prompts=[{"text": "make it"}])
        assert [answer["stopReason"] for answer in seen["answers"]] == ["end_turn"]
        assert len(seen["asked"]) == 1 and (place.project / "made").read_text() == "hi\n"
        seen = await run(prompts=[{"text": "and again"}], load=seen["session"]["sessionId"])
        kinds = [update["sessionUpdate"] for update in seen["updates"]]
        assert kinds[0] == "user_message_chunk" and "tool_call" in kinds
        assert [answer["stopReason"] for answer in seen["answers"]] == ["end_turn"]
