"""An agent, an editor and a model in one process: the highest-level interface that shows all behaviour."""

import asyncio
import atexit
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from acp_agent.agent import Agent
from acp_agent.config.load import load_config
from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.config.xdg import state_dir
from acp_agent.errors import PeerError
from acp_agent.executors.sandbox import probe
from acp_agent.fronts.server.app import Server
from acp_agent.fronts.server.identities import Identities, Identity
from acp_agent.loop.prompts.prompt_text import CONTEXT, END_OF_CONTEXT
from acp_agent.opening import Opening
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import Transport, memory_pair
from acp_agent.store.postgres import Postgres
from acp_agent.store.sqlite import Sqlite
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_editor import FakeEditor, Turn
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, Script
from tests import v2_wire
from tests.executors.sandbox.kit import needs_sandbox
from tests.files import put, puts
from tests.postgres_server import PostgresServer
from tests.v2_wire import V2Wire
from tests.websockets_client import connected

__all__ = [
    "Again", "Answer", "Call", "Rig", "agains", "agent_rig", "another", "asks", "audit", "bash", "cancels",
    "confined", "connect", "put", "puts", "refused", "reloads", "results", "rig", "rounds", "trust", "went",
]  # fmt: skip

BASH = "bash"
on_stdio = pytest.mark.skipif("ACP_TEST_WIRE" in os.environ, reason="a server answers this otherwise")


def off_the_loop(work: Callable[..., Any]) -> Callable[..., Any]:
    """Fails where the agent waits for its database on the event loop."""

    @wraps(work)
    def checked(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        while "acp_agent/store/" in frame.f_code.co_filename or "contextlib" in frame.f_code.co_filename:
            assert frame.f_back is not None
            frame = frame.f_back
        on_it = asyncio._get_running_loop() is not None and "acp_agent/" in frame.f_code.co_filename
        assert not on_it, f"{frame.f_code.co_qualname} waits for the database on the event loop"
        return work(*args, **kwargs)

    return checked


for name in ("rows", "change", "write"):
    for database in (Sqlite, Postgres):
        setattr(database, name, off_the_loop(getattr(database, name)))
STORE = os.environ.get("ACP_TEST_STORE", "sqlite")
"""`postgres`: each home has a schema on a real server."""
WIRE = os.environ.get("ACP_TEST_WIRE", "memory")
"""`websocket`: the agent is at the other end of a real one; `v2`: it speaks v2 of ACP."""


with_each_editor = pytest.mark.parametrize(
    "editor", [{"terminal": True}, {"terminal": False}, {"terminal": False, "terminal_output_meta": True}],
    ids=["terminals", "nothing", "display"],
)  # fmt: skip
in_a_file = pytest.mark.skipif(STORE != "sqlite", reason="it is about the file of the store")


@cache
def postgres_server() -> PostgresServer:
    server = PostgresServer()
    atexit.register(server.remove)
    return server


def without_context(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a request without the context block at the head of the conversation."""
    found = list(messages)
    at = next((at for at, each in enumerate(found) if each["role"] == "user"), None)
    if at is None:
        return found
    content = found[at]["content"]
    if isinstance(content, str) and content.startswith(CONTEXT[:20]):
        rest: Any = content.partition(f"{END_OF_CONTEXT}\n")[2].removeprefix("\n")
    elif not isinstance(content, str) and content and content[0].get("text", "").startswith(CONTEXT[:20]):
        rest = content[1:]
    else:
        return found
    found[at : at + 1] = [{**found[at], "content": rest}] if rest else []
    return found


@dataclass
class Rig:
    editor: FakeEditor
    model: FakeModel
    agent: Agent
    project: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def request(self, number: int) -> dict[str, Any]:
        """The body of the n-th model call, counted from 1."""
        return self.model.requests[number - 1].body

    def messages(self, number: int) -> list[dict[str, Any]]:
        """Of that call, without the context block at the head of the conversation."""
        return without_context(self.request(number)["messages"])

    def context(self, number: int = 1) -> str:
        """The context block of that call."""
        first = next(each["content"] for each in self.request(number)["messages"] if each["role"] == "user")
        text = str(first if isinstance(first, str) else first[0]["text"])
        assert text.startswith(CONTEXT[:20])
        return text[: text.index(END_OF_CONTEXT)]

    async def says(self, *prompts: Any) -> str:
        """All text the agent has sent, after these prompts, one after the other."""
        for prompt in prompts:
            await self.editor.prompt(prompt)
        return self.editor.text()

    def tool_names(self, number: int) -> set[str]:
        return {tool["function"]["name"] for tool in self.request(number).get("tools", [])}


def environ_for(home: Path, base_url: str, **more: str) -> dict[str, str]:
    """An environment in which nothing of the user who runs the tests is found."""
    return {
        "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "OPENAI_BASE_URL": base_url,
        "OPENAI_MODEL": "fake-model", "ACP_CODER_KEYRING": "0", **more,
    }  # fmt: skip


@cache
def _made_store() -> bytes:
    """A store in which nothing is. Making its tables takes a sixth of a plain turn; `store` has the tests of that."""
    with TemporaryDirectory() as folder:
        sqlite_store(path := Path(folder, "sessions.db")).close()
        return path.read_bytes()


def _put_store(path: Path) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(0o600)
        path.write_bytes(_made_store())


@asynccontextmanager
async def connect(environ: Mapping[str, str], **editor: Any) -> AsyncIterator[tuple[FakeEditor, Agent]]:
    """An agent with that environment and an editor, connected; nothing has been said yet. `sandbox`: whether commands
    are confined, `finish_check`: whether the end of a turn is checked, which most of these tests are not about
    (`test_safety`, `e2e` and `executors/sandbox` are; `test_turn_facts`)."""
    flags = {"mcp.prompt_wait": "30"}  # Seconds: a busy machine takes its time.
    if not editor.pop("finish_check", False):
        flags["agent.finish_check"] = "false"  # A script of replies has none for it.
    if editor.pop("sandbox", False):
        if [kind for kind, _ in probe._candidates(SandboxConfig())][:1] == ["bubblewrap"]:
            needs_sandbox()
    else:
        flags["tools.sandbox.disabled"] = "true"
    config = Path(environ.get("ACP_CODER_CONFIG", "/dev/null"))
    other = "XDG_STATE_HOME" in environ or (config.is_file() and b"[store]" in config.read_bytes())
    if STORE == "sqlite" and not other:
        _put_store(Path(state_dir(environ), "sessions.db"))
    if STORE == "postgres":
        schema = hashlib.sha256(environ["HOME"].encode()).hexdigest()[:32]
        flags |= {"store.url": postgres_server().url(), "store.schema": f"t_{schema}"}
    if WIRE == "v2":
        flags["protocol.v2"] = "true"
    wire = {"websocket": over_websocket, "v2": in_v2}.get(WIRE, in_memory)
    async with wire(Opening(environ, flags)) as (ours, agent), FakeEditor(ours, **editor) as fake:
        yield fake, agent


@asynccontextmanager
async def another(environ: Mapping[str, str], **editor: Any) -> AsyncIterator[FakeEditor]:
    """The editor alone; `initialize` has been done."""
    async with connect(environ, **editor) as (fake, _):
        await fake.start()
        yield fake


@contextmanager
def refused(code: int, words: str = "") -> Iterator[None]:
    """What is asked within is answered by this error."""
    with pytest.raises(PeerError) as error:
        yield
    assert error.value.code == code
    assert words in error.value.message


@asynccontextmanager
async def in_memory(opening: Opening) -> AsyncIterator[tuple[Transport, Agent]]:
    agent = Agent(opening)
    theirs, ours = memory_pair()
    connection = Connection(theirs, agent, peer=Peer(encode=encode), coalesce=coalesce_updates)
    agent.attach(connection)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.serve)
        try:
            yield ours, agent
        finally:
            connection.close()
            with anyio.CancelScope(shield=True), anyio.fail_after(60):
                await agent.close()


@asynccontextmanager
async def in_v2(opening: Opening) -> AsyncIterator[tuple[Transport, Agent]]:
    async with in_memory(opening) as (ours, agent):
        wire = V2Wire(ours)
        yield wire, agent
    v2_wire.check(wire)


class _Served(Server):
    """Whose owners all have that opening."""

    def __init__(self, opening: Opening, *about: Any) -> None:
        super().__init__(*about)
        self._theirs = opening
        self.process = "all"  # Two agents with one session are what they are on stdio.

    def opening(self, owner: str) -> Opening:
        return self._theirs


class _Later:
    """The agent, once its client has sent `initialize`."""

    def __init__(self, server: Server) -> None:
        self._make, self._made = server.agent, list[Agent]()
        server.agent = self._keep  # type: ignore[method-assign]

    def _keep(self, identity: Identity, **more: Any) -> Any:
        self._made.append(self._make(identity, **more))
        return self._made[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made[0], name)


@asynccontextmanager
async def over_websocket(opening: Opening) -> AsyncIterator[tuple[Transport, Agent]]:
    """By the server of `acp-coder serve`, on loopback."""
    with TemporaryDirectory() as folder:
        identities, stop = Identities(Path(folder, "tokens.json")), anyio.Event()
        token, listens = identities.add("me"), socket.create_server(("127.0.0.1", 0))
        server = _Served(opening, load_config({}).settings, opening.environ, identities, listens)
        agent: Any = _Later(server)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.until, stop)
            try:
                async with connected(f"ws://127.0.0.1:{listens.getsockname()[1]}/acp", token) as ours:
                    yield ours, agent
            finally:
                stop.set()


@asynccontextmanager
async def agent_rig(tmp_path: Path, script: Script = (), **editor: Any) -> AsyncIterator[Rig]:
    """Model, agent and editor; `initialize` has been done. `environ`: more variables. `config`: text of a file."""
    more = dict(editor.pop("environ", {}))
    if config := editor.pop("config", ""):
        more["ACP_CODER_CONFIG"] = str(tmp_path / "config.toml")
        (tmp_path / "config.toml").write_text(config)
    models: Sequence[str] = editor.pop("models", ("fake-model",))
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    async with FakeModel(script, models=models) as model:
        environ = environ_for(home, model.base_url, **more)
        async with connect(environ, **editor) as (fake, agent):
            await fake.start()
            yield Rig(fake, model, agent, project, environ)


@asynccontextmanager
async def rig(tmp_path: Path, script: Script = (), **editor: Any) -> AsyncIterator[Rig]:
    """The same with a session in `project`, or in `folder`. `mode`: its mode. `files`: text of files, put in `project`
    then. `before`: called with `project` then. `mcp_servers`: of the client."""
    mode, files, before = editor.pop("mode", None), editor.pop("files", {}), editor.pop("before", None)
    servers, folder = editor.pop("mcp_servers", ()), editor.pop("folder", None)
    async with agent_rig(tmp_path, script, **editor) as made:
        await made.editor.new_session(folder or made.project, mcp_servers=servers)
        await begins(made, mode, files, before)
        yield made


async def begins(
    made: Rig, mode: str | None, files: Mapping[str, str], before: Callable[[Path], object] | None
) -> None:
    """What a new session and its folder have before the first prompt."""
    if mode is not None:
        await made.editor.client.set_session_mode(made.editor.session_id, mode)
    puts(made.project, files)
    if before is not None:
        before(made.project)


@asynccontextmanager
async def went(
    tmp_path: Path, script: Script = (), *, prompt: Any = "go", ends: Any = "end_turn", **editor: Any
) -> AsyncIterator[Rig]:
    """The same after one turn. `ends`: why that has ended."""
    async with rig(tmp_path, script, **editor) as made:
        assert (await made.editor.prompt(prompt)).stop_reason == ends
        yield made


class Again:
    """`went` for the rows of a `table`: one agent, and for each row a session, an empty project and a script."""

    def __init__(self, made: Rig, replies: list[Any]) -> None:
        self._made, self._replies = made, replies

    @asynccontextmanager
    async def __call__(
        self, script: Sequence[Any] = (), *, mode: str | None = None, files: Mapping[str, str] | None = None,
        before: Callable[[Path], object] | None = None, permissions: Sequence[Any] = (), prompt: Any = "go",
        ends: Any = "end_turn",
    ) -> AsyncIterator[Rig]:  # fmt: skip
        """`prompt`: None if the row has its own."""
        made, self._replies[:] = self._made, script
        shutil.rmtree(made.project)
        made.project.mkdir()
        made.model.requests.clear()
        made.editor.permission_requests.clear()
        made.editor.permissions[:] = permissions
        await made.editor.new_session(made.project)
        await begins(made, mode, files or {}, before)
        if prompt is not None:
            assert (await made.editor.prompt(prompt)).stop_reason == ends
        yield made
        await made.editor.client.close_session(made.editor.session_id)


@asynccontextmanager
async def agains(tmp_path: Path, **editor: Any) -> AsyncIterator[Again]:
    """Takes what `agent_rig` takes, but for the script."""
    replies: list[Any] = []
    used_up = Failure(500, {"error": {"message": "the script is used up"}})
    async with agent_rig(tmp_path, lambda body: replies.pop(0) if replies else used_up, **editor) as made:
        yield Again(made, replies)


async def cancels(made: Rig, turn: Turn) -> None:
    made.editor.cancel()
    assert (await turn.response()).stop_reason == "cancelled"


async def reloads(made: Rig) -> str:
    """Closes the session and loads it, so that only what was stored is shown; its id."""
    session = made.editor.session_id
    await made.editor.client.close_session(session)
    made.editor.updates.clear()
    await made.editor.load_session(session, made.project)
    return session


@asynccontextmanager
async def confined(tmp_path: Path, *calls: Call | str, **editor: Any) -> AsyncIterator[Rig]:
    """After a turn in which nobody was asked and commands (the strings) ran in the sandbox, not in the editor's
    terminals."""
    script = rounds(*(bash(call) if isinstance(call, str) else call for call in calls))
    async with went(tmp_path, script, **{"mode": "auto", "sandbox": True, "terminal": False, **editor}) as made:
        yield made


async def trust(r: Rig) -> str:
    """Trusts the folder, by the mark that `/trust` shows."""
    await r.editor.prompt("/trust")
    mark = r.editor.text().rpartition("/trust yes ")[2].partition("`")[0]
    await r.editor.prompt(f"/trust yes {mark}")
    return mark


def asks(*calls: Call) -> Answer:
    return Answer(tool_calls=calls)


def bash(command: str, **more: object) -> Call:
    return Call("bash", {"command": command, **more})


def rounds(*calls: Call) -> list[Answer | str]:
    return [*(Answer(tool_calls=(call,)) for call in calls), "done"]


def results(made: Rig, number: int | None = None) -> list[str]:
    """What the n-th request, or the last, has of tools."""
    number = len(made.model.requests) if number is None else number
    return [message["content"] for message in made.messages(number) if message["role"] == "tool"]


def audit(tmp_path: Path) -> list[dict[str, Any]]:
    """The lines of the agent's log."""
    log = tmp_path / "home/.local/state/acp-coder/audit.jsonl"
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
