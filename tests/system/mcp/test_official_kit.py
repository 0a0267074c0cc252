"""The official conformance kit of MCP against the agent: as a client in sessions, and as a server (`mcp serve`).

What does not pass is named in `docs/internals/mcp.md`, with the reason; nothing else may fail, and nothing named there
may pass."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest
import uvicorn

from acp_agent.client.permissions import allow_always
from acp_agent.fronts.mcp_front import McpFront
from acp_agent.schema import acp
from tests.agent.kit import Answer, Call, Rig, rig
from tests.mcp.oauth_server import browse

ROOT = Path(__file__).parents[3]
KIT = ROOT / "tests/.node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NODE = ROOT / "tests/.node-program/node_modules/node/bin"
REVISIONS = ("2025-11-25", "2026-07-28")
AT_ONCE = 4
LONGEST = 900.0
DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The kit wants this one."""
LOGINS = 3
WANTED = "`/mcp login kit`"


def of_kit(*arguments: str, out: Path, port: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The checks of each scenario that the kit ran."""
    path = f"{NODE}{os.pathsep}{os.environ['PATH']}"
    node = shutil.which("node", path=path)
    assert node is not None
    assert KIT.exists(), "`make tools` installs it"
    words = [node, str(KIT), *arguments, "-o", str(out), "--timeout", "300000"]
    environ = {**os.environ, "PATH": path, "SCENARIO_PORT": str(port)}
    subprocess.run(words, env=environ, capture_output=True, timeout=LONGEST, check=False)
    found = {}
    for checks in out.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(checks.parent.relative_to(out)))
        found[
            name.removeprefix(
                "server-",
            )
            if arguments[0] == "server"
            else name
        ] = json.loads(checks.read_text())
    return found


def failing(found: Mapping[str, list[dict[str, Any]]]) -> set[str]:
    wrong = ("FAILURE", "WARNING")
    return {name for name, checks in found.items() if not checks or any(each["status"] in wrong for each in checks)}


def named(heading: str, revision: str) -> set[str]:
    """The scenarios in the table below that heading; those of another revision have it behind them."""
    text = (ROOT / "docs/internals/mcp.md").read_text().partition(f"### {heading}\n")[2].partition("\n#")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    found = [each for cell in cells for each in re.findall(r"`([^`]+)`(?: \(([\d-]+)\))?", cell)]
    return {name for name, of in found if of in ("", revision)}


# --- client -------------------------------------------------------------------------------------------------------


def sample(schema: Mapping[str, Any]) -> Any:
    """A value that a schema has."""
    if "default" in schema or "enum" in schema:
        return schema.get("default", schema.get("enum", [None])[0])
    if "properties" in schema:
        return {key: sample(value) for key, value in schema["properties"].items()}
    return {"integer": 2, "number": 2, "boolean": True, "array": [], "object": {}}.get(schema.get("type", ""), "a")


class Scenario:
    """One, as the kit describes it: the model calls each tool that the server has."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.url, self.name, self.context = about["url"], about["name"], about["context"]

    @property
    def config(self) -> str:
        lines = [f'url = "{self.url}"']
        if self.name == "auth/basic-cimd":
            lines.append(f'client_id = "{DOCUMENT}"')
        lines += [f'{key} = "{self.context[key]}"' for key in ("client_id", "client_secret") if key in self.context]
        return "[mcp.servers.kit]\n" + "\n".join(lines)

    def answer(self, body: Mapping[str, Any]) -> Answer | str:
        last = body["messages"][-1]
        if last["role"] != "user":
            return "done"
        tools = {each["function"]["name"]: each["function"]["parameters"] for each in body.get("tools", ())}
        theirs = {name.removeprefix("mcp_kit_"): of for name, of in tools.items() if name.startswith("mcp_kit_")}
        given = {each["name"]: each["arguments"] for each in self.context.get("toolCalls", ())}
        if "json_schema_echo" in theirs:
            given["json_schema_echo"] = {"schema": theirs["json_schema_2020_12_tool"]}
        calls = [Call(f"mcp_kit_{name}", given.get(name, sample(schema))) for name, schema in theirs.items()]
        return Answer(tool_calls=tuple(calls)) if calls else "done"

    async def run(self, folder: Path) -> None:
        async with rig(folder, self.answer, config=self.config, elicitation=elicited, otherwise=allow_always) as made:
            for _ in range(LOGINS):
                if WANTED not in await self._prompt(made):
                    return
                before = len(made.editor.text())
                while WANTED in (await made.says("/mcp login kit"))[before:] and before < len(made.editor.text()):
                    before = len(made.editor.text())

    async def _prompt(self, made: Rig) -> str:
        said, calls = len(made.editor.text()), len(made.editor.tool_calls())
        await made.editor.prompt("go")
        results = [call.text() for call in list(made.editor.tool_calls().values())[calls:]]
        return made.editor.text()[said:] + "".join(results)


async def elicited(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
    """The user logs in where asked, and accepts what forms have filled in."""
    if isinstance(request, acp.ElicitationUrlMode):
        Thread(target=browse, args=(request.url,), daemon=True).start()
        return acp.CreateElicitationResponse(action="accept")
    assert isinstance(request, acp.ElicitationFormMode)
    fields = request.requested_schema.properties or {}
    filled = {name: getattr(field, "default", None) for name, field in fields.items()}
    return acp.CreateElicitationResponse(
        action="accept", content={name: value for name, value in filled.items() if value is not None}
    )


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_agent_as_a_client_passes_all_scenarios_but_those_that_the_docs_name(revision: str, tmp_path: Path):
    slots, numbers = anyio.CapacityLimiter(AT_ONCE), iter(range(1000))

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream, slots:
            about = json.loads(await stream.receive(1_000_000))
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            await Scenario(about).run(folder)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    command = f"{shutil.which('python3')} -S {Path(__file__).with_name('scenario.py')}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        found = await anyio.to_thread.run_sync(
            lambda: of_kit("client", "--requirements", revision, "--command", command, out=tmp_path / "out", port=port)
        )
        tasks.cancel_scope.cancel()
    assert len(found) > 20
    assert failing(found) == named("Client scenarios", revision) & set(found)


# --- server -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_agent_as_a_server_passes_all_scenarios_but_those_that_the_docs_name(revision: str, tmp_path: Path):
    app = McpFront([tmp_path], os.environ, None).server.streamable_http_app()
    with socket.create_server(("127.0.0.1", 0)) as listens:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = Thread(target=server.run, kwargs={"sockets": [listens]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listens.getsockname()[1]}/mcp"
            found = of_kit("server", "--url", url, "--requirements", revision, out=tmp_path / "out")
        finally:
            server.should_exit = True
            thread.join()
    assert len(found) > 20
    assert failing(found) == named("Server scenarios", revision) & set(found)
