"""v2 of ACP, by the ids of its requirements: what the suite over `tests/v2_wire` does not see.

`ACP_TEST_WIRE=v2 pytest tests/agent` runs the suite of v1 in v2. Here the kit's client of v2, which checks
every line of the agent, is alone with the wire.
"""

import itertools
import json
import random
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

from acp_agent.opening import Opening
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.transports import Transport, memory_pair
from acp_agent.protocol.v2.dialect import V2
from acp_agent.protocol.v2.patches import MOST_PAIRS, _hunks, patch
from acp_agent.testing.checks import Direction
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, FakeModel, Script
from acp_conformance.v2.v2_client import Answers, ClientV2, allows, chosen, silent, update_of
from tests.agent.kit import asks, bash, environ_for, in_memory
from tests.forked import COMMAND
from tests.fronts.server.test_server import Place as Served
from tests.fronts.server.test_server import editor, served
from tests.websockets_client import connected

BOUND = 60.0
INFO = {"name": "raw", "version": "1"}
TOUCH = bash("touch made")


class Client(ClientV2):
    """The kit's client, which sends what it is told; it answers questions by `answers`, or leaves them open."""

    def __init__(self, transport: Transport, answers: Answers = silent) -> None:
        super().__init__(transport, answers)
        self._ids = itertools.count(1)
        self._news = anyio.Event()

    def _on_line(self, direction: Direction, line: bytes) -> None:
        super()._on_line(direction, line)
        self._news.set()
        self._news = anyio.Event()

    async def run(self) -> None:
        try:
            await self.connection.serve()
        finally:
            assert not self.violations

    @property
    def came(self) -> list[dict[str, Any]]:
        return [line.message for line in self.transcript if line.direction == "from_agent"]

    async def say(self, *messages: dict[str, Any]) -> None:
        """In one write."""
        await self.send(b"\n".join(json.dumps({"jsonrpc": "2.0", **each}).encode() for each in messages))

    async def tell(self, method: str, **params: Any) -> None:
        await self.say({"method": method, "params": params})

    async def begin(self, method: str, **params: Any) -> int:
        id_ = next(self._ids)
        await self.say({"id": id_, "method": method, "params": params})
        return id_

    async def until(self, found: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first message of which that is true, also one that has come."""
        with anyio.fail_after(BOUND):
            while (at := next((each for each in self.came if found(each)), None)) is None:
                await self._news.wait()
        return at

    async def answer(self, id_: int) -> dict[str, Any]:
        return await self.until(lambda each: each.get("id") == id_ and "method" not in each)

    async def ask(self, method: str, **params: Any) -> Any:
        """The result. Fails on an error."""
        answer = await self.answer(await self.begin(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.answer(await self.begin(method, **params))
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def initialize(self, version: int = 2, **more: Any) -> dict[str, Any]:
        params = {"protocolVersion": version, "info": INFO, "capabilities": {}, **more}
        answer = await self.answer(await self.begin("initialize", **params))
        shown: dict[str, Any] = answer.get("result") or answer["error"]
        return shown

    def updates(self, kind: str = "") -> list[dict[str, Any]]:
        return [each for each in map(update_of, self.came) if each and kind in ("", each["sessionUpdate"])]

    def states(self) -> list[tuple[str, str | None]]:
        return [(each["state"], each.get("stopReason")) for each in self.updates("state_update")]

    async def ended(self, times: int = 1) -> dict[str, Any]:
        """The last state of the turn that ends then."""
        await self.until(lambda _: sum("stopReason" in each for each in self.updates("state_update")) >= times)
        ends = [each for each in self.updates("state_update") if "stopReason" in each]
        return ends[times - 1]


class Place:
    command = COMMAND

    def __init__(self, environ: Mapping[str, str], project: Path, model: FakeModel) -> None:
        self.environ, self.project, self.model = environ, project, model

    @asynccontextmanager
    async def client(self, answers: Answers = silent) -> AsyncIterator[Client]:
        flags = {"tools.sandbox.disabled": "true", "providers.default.max_retries": "0"}
        async with in_memory(Opening(self.environ, flags)) as (transport, _), anyio.create_task_group() as tasks:
            client = Client(transport, answers)
            tasks.start_soon(client.run)
            yield client
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def session(self, answers: Answers = silent) -> AsyncIterator[tuple[Client, str]]:
        async with self.client(answers) as client:
            await client.initialize()
            yield client, (await client.ask("session/new", cwd=str(self.project)))["sessionId"]


@asynccontextmanager
async def place(tmp_path: Path, script: Script = ()) -> AsyncIterator[Place]:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    async with FakeModel(script) as model:
        yield Place(environ_for(home, model.base_url), project, model)


@asynccontextmanager
async def hanging(tmp_path: Path) -> AsyncIterator[tuple[Client, str]]:
    """A session whose model says one word and no more."""
    async with place(tmp_path, [Answer(text=("One", " two"), hang_after=1)]) as here, here.session() as opened:
        yield opened


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


# --- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "answered"), [(2, 2), (99, 2), (1, 1)])
async def test_v2_init_2_and_3_the_highest_version_at_or_below_the_one_that_is_asked_for(tmp_path, asked, answered):
    """None below is an error, and the client may ask again."""
    async with place(tmp_path) as here, here.client() as client:
        error = await client.initialize(0)
        assert (error["code"], error["data"]) == (-32022, {"requested": 0, "supported": [1, 2]})
        assert (await client.initialize(asked))["protocolVersion"] == answered


async def test_v2_init_4_to_11_the_answer_has_objects_and_no_marker_of_v1(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.client() as client:
        answer = await client.initialize()
        assert "authMethods" not in answer
        session = answer["capabilities"]["session"]
        assert session.keys() == {"prompt", "mcp", "delete", "additionalDirectories", "systemPrompt", "fork"}
        assert session["systemPrompt"] == {"mode": {"override": {}}}
        assert session["mcp"] == {"stdio": {}, "http": {}}
        assert all(each == {} for each in session["prompt"].values())
        assert (await client.refused("auth/login", methodId="api-key"))["code"] == -32601


async def test_v2_init_6_info_is_needed_for_exactly_2(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.client() as client:
        assert (await client.initialize(2, info=None))["code"] == -32602
        assert (await client.initialize(2, capabilities=7))["code"] == -32602
        assert (await client.initialize(3, info=[], capabilities=7))["protocolVersion"] == 2


async def test_v2_init_7_it_may_be_repeated_until_something_else_is_asked(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.client() as client:
        assert (await client.initialize(1))["protocolVersion"] == 1
        assert (await client.initialize(2))["protocolVersion"] == 2 and (await client.initialize(1))["code"] == -32600
        await client.ask("session/list")
        assert (await client.initialize(2))["code"] == -32600


async def test_off_it_is_not_there(tmp_path: Path) -> None:
    async with (
        place(tmp_path) as here,
        in_memory(Opening(here.environ, {"protocol.v2": "false"})) as (transport, _),
        anyio.create_task_group() as tasks,
    ):
        client = Client(transport)
        tasks.start_soon(client.run)
        assert (await client.initialize(2))["protocolVersion"] == 1
        tasks.cancel_scope.cancel()


def test_a_process_answers_in_v2_and_loads_it_only_then(tmp_path: Path) -> None:
    environ = environ_for(tmp_path, "http://127.0.0.1:9/v1")
    for version in (1, 2):
        asked = {"protocolVersion": version, "info": INFO, "capabilities": {}}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}) + "\n"
        ran = subprocess.run([COMMAND], input=line, capture_output=True, text=True, env=environ, timeout=BOUND)
        assert json.loads(ran.stdout)["result"]["protocolVersion"] == version, ran.stderr


# --- prompts and states --------------------------------------------------------------------------------------------


async def test_v2_pr_1_to_3_a_prompt_is_answered_by_the_id_with_which_it_comes_back(tmp_path: Path) -> None:
    async with hanging(tmp_path) as (client, session):
        answer = await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
        (message,) = client.updates("user_message_chunk")
        assert message["messageId"] == answer["messageId"] and message["content"]["text"] == "Count"
        await client.until(lambda _: client.updates("agent_message_chunk"))
        assert client.states() == [("running", None)]
        await client.tell("session/cancel", sessionId=session)
        assert (await client.ended())["stopReason"] == "cancelled"
        assert client.updates()[-1]["sessionUpdate"] == "state_update"


async def test_v2_pr_4_what_fails_before_is_an_error_and_what_fails_later_is_the_last_state(tmp_path: Path) -> None:
    async with place(tmp_path, []) as here, here.session() as (client, session):
        error = await client.refused("session/prompt", sessionId=session, prompt=[{"type": "smell"}])
        assert error["code"] == -32602
        error = await client.refused("session/prompt", sessionId="none", prompt=text("Hello"))
        assert (error["code"], error["data"]) == (-32002, {"sessionId": "none"})
        assert client.updates("state_update") == client.updates("user_message_chunk") == []
        await client.ask("session/prompt", sessionId=session, prompt=text("Hello"))
        end = await client.ended()
        assert end["stopReason"] == "error" and end["error"]["message"]


@pytest.mark.parametrize("prompt", [[], text("  ")])
async def test_a_prompt_that_says_nothing_ends_at_once(tmp_path: Path, prompt: Any) -> None:
    async with place(tmp_path) as here, here.session() as (client, session):
        answer = await client.ask("session/prompt", sessionId=session, prompt=prompt)
        assert (await client.ended())["stopReason"] == "end_turn"
        assert [each["messageId"] for each in client.updates("user_message")] == [answer["messageId"]]


async def test_v2_pr_8_a_command_goes_the_same_way(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.session() as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("/status"))
        await client.ended()
        assert client.states() == [("running", None), ("idle", "end_turn")]
        (command,) = (
            each
            for each in client.updates("available_commands_update")[-1]["availableCommands"]
            if each["name"] == "mode"
        )
        assert command["type"] == "command" and command["input"]["type"] == "text"


async def test_v2_can_1_prompts_that_wait_are_cancelled_and_were_never_said(tmp_path: Path) -> None:
    async with hanging(tmp_path) as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
        held = await client.begin("session/prompt", sessionId=session, prompt=text("More"))
        withdrawn = await client.begin("session/prompt", sessionId=session, prompt=text("Never"))
        await client.tell("$/cancel_request", requestId=withdrawn)
        assert (await client.answer(withdrawn))["error"]["code"] == -32800
        await client.tell("session/cancel", sessionId=session)
        assert (await client.answer(held))["error"]["code"] == -32800
        await client.ended()
        assert [each["content"]["text"] for each in client.updates("user_message_chunk")] == ["Count"]


async def test_v2_can_1_a_cancel_right_behind_a_prompt_ends_it(tmp_path: Path) -> None:
    async with hanging(tmp_path) as (client, session):
        prompt = {"id": "p", "method": "session/prompt", "params": {"sessionId": session, "prompt": text("Count")}}
        await client.say(prompt, {"method": "session/cancel", "params": {"sessionId": session}})
        assert (await client.until(lambda each: each.get("id") == "p"))["error"]["code"] == -32800
        assert client.updates("user_message_chunk") == client.updates("state_update") == []


async def test_what_is_written_during_a_turn_comes_back(tmp_path: Path) -> None:
    async with place(tmp_path, [asks(TOUCH), "Fine."]) as here, here.session() as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("one"))
        asked = await client.until(lambda each: each.get("method") == "session/request_permission")
        for words in ("two", "three"):
            answer = await client.ask("_session/steering", sessionId=session, prompt=text(words))
            assert answer["outcome"] == "injected"
        await client.say({"id": asked["id"], "result": chosen(asked["params"], "allow_once")})
        await client.ended()
        said = client.updates("user_message_chunk")
        assert [each["content"]["text"] for each in said] == ["one", "two", "three"]
        assert len({each["messageId"] for each in said}) == 3


class Slow:
    """An agent whose turns begin when they are told to, and end when they are cancelled."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self._said = said
        self.asked = anyio.Event()
        self.begins = anyio.Event()

    async def handle_request(self, method: str, params: Any) -> Any:
        self.asked.set()
        try:
            await self.begins.wait()
        finally:  # Too late for a cancel: the message is in the conversation.
            self._said(params["_meta"]["prompt"])

    async def handle_notification(self, method: str, params: Any) -> None:
        raise AssertionError(method)

    def cancel_request(self, method: str, params: Any) -> bool:
        return False


async def test_v2_pr_4_a_cancel_that_comes_too_late_leaves_the_id(tmp_path: Path) -> None:
    ours, theirs = memory_pair()

    def said(mark: str) -> None:
        chunk = {"sessionUpdate": "user_message_chunk", "messageId": "m", "content": text("Hi")[0]}
        connection.notify("session/update", {"sessionId": "s", "update": chunk, "_meta": {"prompt": mark}})

    agent = Slow(said)
    connection = Connection(theirs, agent)
    connection.dialect = V2(agent, connection)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.serve)
        client = Client(ours)
        tasks.start_soon(client.run)
        id_ = await client.begin("session/prompt", sessionId="s", prompt=text("Hi"))
        with anyio.fail_after(BOUND):
            await agent.asked.wait()
        await client.tell("$/cancel_request", requestId=id_)
        assert (await client.answer(id_))["result"] == {"messageId": "m"}
        tasks.cancel_scope.cancel()


async def test_a_prompt_that_waits_is_answered_when_its_turn_begins(tmp_path: Path) -> None:
    async with place(tmp_path, ["It is one.", "It is two."]) as here, here.session() as (client, session):
        ids = [await client.begin("session/prompt", sessionId=session, prompt=text(each)) for each in ("a", "b")]
        answers = [(await client.answer(id_))["result"]["messageId"] for id_ in ids]
        await client.ended(2)
        assert [each["messageId"] for each in client.updates("user_message_chunk")] == answers
        assert client.states() == [("running", None), ("idle", "end_turn")] * 2


# --- questions and calls --------------------------------------------------------------------------------------------


async def test_v2_perm_a_question_names_the_call_and_the_turn_waits_for_it(tmp_path: Path) -> None:
    async with place(tmp_path, [asks(TOUCH), "It is made."]) as here:
        async with here.session(allows) as (client, session):
            await client.ask("session/prompt", sessionId=session, prompt=text("Make it"))
            await client.ended()
            (asked,) = (each["params"] for each in client.came if each.get("method") == "session/request_permission")
            assert "touch made" in asked["title"]
            call = asked["subject"]["toolCall"]
            assert asked["subject"]["type"] == "tool_call"
            assert call["toolCallId"] == client.updates("tool_call_update")[0]["toolCallId"]
            states = ["running", "requires_action", "running", "idle"]
            assert [state for state, _ in client.states()] == states
        assert (here.project / "made").exists()


@pytest.mark.parametrize(
    "answer", [{"outcome": {"outcome": "maybe"}}, {"outcome": {"outcome": "selected", "optionId": "sudo"}}, None]
)
async def test_v2_perm_5_an_odd_answer_is_never_a_yes(tmp_path: Path, answer: Any) -> None:
    async with place(tmp_path, [asks(TOUCH), "As you wish."]) as here:

        async def answers(params: dict[str, Any]) -> Any:
            return answer

        async with here.session(answers) as (client, session):
            await client.ask("session/prompt", sessionId=session, prompt=text("Make it"))
            await client.ended()
        assert not (here.project / "made").exists()


async def test_v2_can_3_and_5_a_cancel_withdraws_the_question_itself(tmp_path: Path) -> None:
    async with place(tmp_path, [asks(TOUCH)]) as here, here.session() as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Make it"))
        asked = await client.until(lambda each: each.get("method") == "session/request_permission")
        await client.tell("session/cancel", sessionId=session)
        assert (await client.ended())["stopReason"] == "cancelled"
        gone = await client.until(lambda each: each.get("method") == "$/cancel_request")
        assert gone["params"] == {"requestId": asked["id"]}
        assert client.updates("tool_call_update")[-1]["status"] == "cancelled"
        await client.say({"id": asked["id"], "result": chosen(asked["params"], "allow_once")})
        assert (await client.ask("session/list"))["sessions"]
        assert not (here.project / "made").exists()


# --- sessions ------------------------------------------------------------------------------------------------------


async def test_v2_can_7_methods_of_v1_are_gone_and_single_items_are_not_cancelled(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.session() as (client, session):
        for method in ("session/load", "session/set_mode", "authenticate", "logout"):
            error = await client.refused(method, sessionId=session, cwd=str(here.project))
            assert error["code"] == -32601, method
        for method, params in (("tool_call/cancel", {"toolCallId": "x"}), ("terminal/cancel", {"terminalId": "x"})):
            error = await client.refused(method, sessionId=session, **params)
            assert error["code"] == -32602, "v2-can-7: single items are not cancelled"


@pytest.mark.parametrize(("replay", "code"), [
    ({"type": "start"}, 0), (None, 0), ({"type": "end"}, -32602), ({"type": "_own"}, -32602), ("start", -32602),
])  # fmt: skip
async def test_v2_sess_5_to_8_what_is_replayed(tmp_path: Path, replay: Any, code: int) -> None:
    async with place(tmp_path, ["It is one."]) as here:
        async with here.session() as (client, session):
            said = await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
            await client.ended()
        async with here.client() as client:
            await client.initialize()
            params = {"sessionId": session, "cwd": str(here.project), "replayFrom": replay}
            if code:
                assert (await client.refused("session/resume", **params))["code"] == code
                assert client.updates() == []
                return
            resumed = await client.begin("session/resume", **params)
            answer = await client.answer(resumed)
            before = client.came[: client.came.index(answer)]
            kinds = [each["params"]["update"]["sessionUpdate"] for each in before if "params" in each]
            replayed = ["user_message_chunk", "agent_message_chunk"] if replay else []
            assert kinds[:2] == replayed or not replay
            assert "state_update" in kinds
            assert client.states() == [("idle", None)]
            assert [each["messageId"] for each in client.updates("user_message_chunk")] == [
                said["messageId"] for _ in replayed[:1]
            ]


async def test_v2_sess_14_to_17_a_close_ends_the_turn_first_and_then_nothing_is_said(tmp_path: Path) -> None:
    async with hanging(tmp_path) as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
        held = await client.begin("session/prompt", sessionId=session, prompt=text("More"))
        closed = await client.answer(await client.begin("session/close", sessionId=session))
        assert closed["result"] == {}
        before = client.came[: client.came.index(closed)]
        ends = [each for each in before if each.get("params", {}).get("update", {}).get("stopReason") == "cancelled"]
        assert ends
        assert (await client.answer(held))["error"]["code"] == -32800
        assert await client.ask("session/close", sessionId=session) == {}
        assert await client.ask("session/close", sessionId="none") == {}
        error = await client.refused("session/prompt", sessionId=session, prompt=text("Hello"))
        assert (error["code"], error["data"]) == (-32002, {"sessionId": session})
        after = client.came[client.came.index(closed) :]
        assert not [each for each in after if each.get("method") == "session/update"]


async def test_v2_cfg_options_have_types_and_the_mode_is_one(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.client() as client:
        await client.initialize()
        made = await client.ask("session/new", cwd=str(here.project), mcpServers=[])
        assert "modes" not in made
        (mode,) = (each for each in made["configOptions"] if each.get("category") == "mode")
        given = {"sessionId": made["sessionId"], "configId": mode["configId"]}
        changed = await client.ask("session/set_config_option", **given, type="id", value="ask")
        assert {each["configId"]: each["currentValue"] for each in changed["configOptions"]}["mode"] == "ask"
        for wrong in ({"value": "code"}, {"type": "text", "value": "code"}, {"type": "boolean", "value": "code"}):
            assert (await client.refused("session/set_config_option", **given, **wrong))["code"] == -32602
        assert (await client.refused("session/set_config_option", **given, type="boolean", value=True))[
            "code"
        ] == -32602


async def test_v2_mcp_1_servers_of_unknown_types_are_refused_and_their_lists_may_be_left_out(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.client() as client:
        await client.initialize()
        for server in ({"type": "sse", "name": "a", "url": "http://x"}, {"name": "a", "command": "/bin/a"}, 7):
            error = await client.refused("session/new", cwd=str(here.project), mcpServers=[server])
            assert error["code"] == -32602, server
        servers = [{"type": "stdio", "name": "a", "command": "/bin/true"}]
        assert (await client.ask("session/new", cwd=str(here.project), mcpServers=servers))["sessionId"]


# --- on a server: clients of both versions at one session ------------------------------------------------------------


@asynccontextmanager
async def old_and_new(
    tmp_path: Path, script: Script, answers: Answers = silent
) -> AsyncIterator[tuple[Served, FakeEditor, Client, str]]:
    """A session that an editor has begun, and a client of v2 that has resumed it."""
    async with served(tmp_path, script) as here, editor(here) as old, of_v2(here, answers) as client:
        assert (await client.initialize())["protocolVersion"] == 2
        session = (await old.new_session(here.project)).session_id
        await client.ask("session/resume", sessionId=session, cwd=str(here.project))
        yield here, old, client, session


@asynccontextmanager
async def of_v2(here: Served, answers: Answers = silent) -> AsyncIterator[Client]:
    """A client of a server."""
    async with connected(here.url, here.token) as transport, anyio.create_task_group() as tasks:
        client = Client(transport, answers)
        tasks.start_soon(client.run)
        yield client
        tasks.cancel_scope.cancel()


async def test_clients_of_v1_and_v2_see_one_session(tmp_path: Path) -> None:
    script: Script = [asks(TOUCH), "It is one.", "It is two.", "It is three."]
    async with old_and_new(tmp_path, script, allows) as (here, old, client, session):
        answer = await client.ask("session/prompt", sessionId=session, prompt=text("one"))
        await client.ended()
        assert client.updates("user_message_chunk")[0]["messageId"] == answer["messageId"]
        await old.wait_until(lambda: old.text() == "It is one.")
        assert (await old.prompt("two")).stop_reason == "end_turn"
        await client.ended(2)
        assert [each["content"]["text"] for each in client.updates("user_message_chunk")] == ["one", "two"]
        assert client.states()[0] == ("idle", None)
        assert [end for _, end in client.states() if end] == ["end_turn", "end_turn"]
        again = await client.ask(
            "session/resume", sessionId=session, cwd=str(here.project), replayFrom={"type": "start"}
        )
        assert again["configOptions"]


async def test_v2_sess_16_a_prompt_that_waits_for_anothers_turn_ends_with_a_close(tmp_path: Path) -> None:
    script = [Answer(text=("One", " two"), hang_after=1)]
    async with old_and_new(tmp_path, script) as (_, old, client, session), anyio.create_task_group() as tasks:
        tasks.start_soon(old.prompt, "one")
        await client.until(lambda _: client.updates("agent_message_chunk"))
        held = await client.begin("session/prompt", sessionId=session, prompt=text("two"))
        closed = await client.answer(await client.begin("session/close", sessionId=session))
        assert (await client.answer(held))["error"]["code"] == -32800
        old.cancel()
        await client.ask("session/list")
        after = client.came[client.came.index(closed) :]
        assert not [each for each in after if each.get("method") == "session/update"]
        tasks.cancel_scope.cancel()


# --- patches -------------------------------------------------------------------------------------------------------


TEXTS = [
    "", "one\n", "one\ntwo\n", "one\ntwo", "two\r\n", "a\fb\x0bc\u2028d\n", "é\n\n\nü",
    "".join(f"{n}\n" for n in range(50)),
]  # fmt: skip


def applied(made: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "apply", "-p0", "--unsafe-paths", "--whitespace=nowarn", "-"]
    return subprocess.run(command, input=made.encode(), cwd=folder, capture_output=True)


@pytest.mark.parametrize("name", ["a.txt", "with space.txt", 'q"uote\\.txt', "é.txt", "tab\t.txt"])
def test_git_applies_each_patch(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    (tmp_path / "other").touch()  # Git removes folders that are empty then.
    for old, new in itertools.product([None, *TEXTS], [*TEXTS, None]):
        made = patch(str(file), old, new)
        if (old or "") == (new or ""):
            assert made == ""
            continue
        file.unlink(missing_ok=True)
        if old is not None:
            file.write_bytes(old.encode())
        ran = applied(made, tmp_path)
        assert ran.returncode == 0, (old, new, ran.stderr, made)
        assert (file.read_bytes().decode() if file.exists() else None) == new


class Line(str):
    __slots__ = ()
    looks: ClassVar[int] = 0

    def __hash__(self) -> int:
        Line.looks += 1
        return super().__hash__()


NUMBERS = [str(each) for each in range(3_000)]


@pytest.mark.parametrize(("old", "new"), [
    (NUMBERS, [line for each in NUMBERS for line in (each, "")]),
    (NUMBERS, [f"{each}{' ' * (at % 2)}" for at, each in enumerate(NUMBERS)]), (NUMBERS, NUMBERS[::-1]),
    (NUMBERS[:90] * 40, [*NUMBERS[45:90], "new", *NUMBERS[:45]] * 40),
], ids=["a line between all", "every other line", "turned around", "repeated pieces"])  # fmt: skip
def test_comparing_takes_about_as_long_as_reading(old: list[str], new: list[str]) -> None:
    Line.looks = 0
    assert list(_hunks([Line(f"{each}\n") for each in old], [Line(f"{each}\n") for each in new]))
    assert Line.looks < 20 * (len(old) + len(new))


@pytest.mark.parametrize("most", [0, 20, MOST_PAIRS])
def test_git_applies_patches_of_texts_that_were_not_compared_to_the_end(tmp_path: Path, monkeypatch, most: int) -> None:
    monkeypatch.setattr("acp_agent.protocol.v2.patches.MOST_PAIRS", most)
    file = tmp_path / "a.txt"
    numbers = random.Random(7)
    for _ in range(20):
        old = [f"{numbers.randrange(9)}\n" for _ in range(40)]
        new = [each for each in old if numbers.random() < 0.9 or each == "0\n"] + ["end"]
        new[3:3] = [f"{numbers.randrange(9)}{numbers.choice(('', 'x'))}\n" for _ in range(9)]
        file.write_text("".join(old))
        made = patch(str(file), "".join(old), "".join(new))
        ran = applied(made, tmp_path)
        assert (ran.returncode, file.read_text()) == (0, "".join(new)), (made, ran.stderr)


def test_a_large_file_has_no_patch() -> None:
    assert patch("/a", "a\n" * 200_000, "b\n") == ""
