"""The agent with third-party clients: both official SDKs and acpx. The tests examine what they decoded."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
from acp import schema, text_block

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.e2e.kit import COMMAND, environ
from tests.fronts.server.test_server import served

from .kit import EXTENSION, NODE, NODE_MODULES
from .sdk_client import SdkClient

SECONDS = 60
SDK = EXTENSION / "node_modules" / "@agentclientprotocol" / "sdk" / "dist" / "v1" / "stable" / "acp.js"
ACPX = NODE_MODULES / ".bin" / "acpx"
WORK = [
    Answer(
        thought="I look first.", text=("Look", "ing. "),
        tool_calls=(
            Call("read", {"path": "a.txt"}),
            Call("edit", {"path": "a.txt", "old_string": "unsaved", "new_string": "changed"}),
            Call("bash", {"command": "echo from the terminal; exit 3"}),
        ),
    ),
    Answer(text=("All ", "done.")),
]  # fmt: skip
SILENT = Answer(text=("One", " two"), hang_after=1)
"""Says one delta and no more."""


# --- the Python SDK -----------------------------------------------------------------------------------------------


async def test_the_python_sdk_decodes_text_tools_files_and_terminals(tmp_path, project):
    client = SdkClient()
    file = str(project / "a.txt")
    client.buffers[file] = "unsaved\n"
    async with FakeModel(WORK) as model, client.connected(COMMAND, environ(tmp_path, model.base_url)) as agent:
        assert client.initialized.protocol_version == 1
        assert client.initialized.agent_info is not None and client.initialized.agent_info.name == "acp-coder"
        session = await agent.new_session(cwd=str(project))
        answer = await agent.prompt(session_id=session.session_id, prompt=[text_block("Change it")])
    assert answer.stop_reason == "end_turn"
    assert client.text() == "Looking. All done." and client.text(schema.AgentThoughtChunk) == "I look first."
    read, edit, bash = client.tools().values()
    assert [call[0].kind for call in (read, edit, bash)] == ["read", "edit", "execute"]
    assert [call[-1].status for call in (read, edit, bash)] == ["completed", "completed", "failed"]
    assert "unsaved" in read[-1].content[0].content.text
    diff = edit[-1].content[0]
    assert isinstance(diff, schema.FileEditToolCallContent)
    assert (diff.path, diff.old_text, diff.new_text) == (file, "unsaved\n", "changed\n")
    terminal = bash[-1].content[0]
    assert isinstance(terminal, schema.TerminalToolCallContent)
    assert bash[-1].raw_output["stdout"] == "from the terminal\n"
    assert client.released == [terminal.terminal_id] and client.writes == [(file, "changed\n")]
    assert (project / "a.txt").read_text() == "changed\n"


async def test_the_python_sdk_asks_the_person_with_the_agents_options(tmp_path, project):
    client = SdkClient(allow=False)
    script = [Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), "as you wish"]
    async with FakeModel(script) as model, client.connected(COMMAND, environ(tmp_path, model.base_url)) as agent:
        session = await agent.new_session(cwd=str(project))
        answer = await agent.prompt(session_id=session.session_id, prompt=[text_block("Make it")])
    ((call, options),) = client.asked
    assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once", "reject_always"]
    (updates,) = client.tools().values()
    assert call.tool_call_id == updates[0].tool_call_id
    assert updates[-1].status == "failed"
    assert answer.stop_reason == "end_turn"
    assert client.commands == []
    assert not (project / "made").exists()


async def test_the_python_sdk_cancels_and_loads_the_session_in_a_new_process(tmp_path, project):
    client = SdkClient()
    async with FakeModel([SILENT]) as model, client.connected(COMMAND, environ(tmp_path, model.base_url)) as agent:
        session = (await agent.new_session(cwd=str(project))).session_id
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await client.until(lambda: client.text() == "One")
                await agent.cancel(session_id=session)

            tasks.start_soon(cancel)
            answer = await agent.prompt(session_id=session, prompt=[text_block("Count")])
    assert answer.stop_reason == "cancelled"

    later = SdkClient()
    async with FakeModel(["Three."]) as model, later.connected(COMMAND, environ(tmp_path, model.base_url)) as agent:
        loaded = await agent.load_session(cwd=str(project), session_id=session)
        assert loaded.modes is not None and loaded.modes.current_mode_id == "code"
        assert later.text(schema.UserMessageChunk) == "Count" and later.text() == "One"
        answer = await agent.prompt(session_id=session, prompt=[text_block("Go on")])
    assert answer.stop_reason == "end_turn"
    assert later.text() == "OneThree."


# --- the TypeScript SDK -------------------------------------------------------------------------------------------


async def typescript(tmp_path: Path, model: FakeModel, **plan: Any) -> dict[str, Any]:
    """What `sdk_client.mjs` saw."""
    whole = {"sdk": str(SDK), "command": COMMAND, "cwd": str(tmp_path / "project"), **plan}
    command = [str(NODE), str(Path(__file__).with_name("sdk_client.mjs")), json.dumps(whole)]
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(command, env=environ(tmp_path, model.base_url), check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def text_of(seen: dict[str, Any], kind: str = "agent_message_chunk") -> list[str]:
    return [update["content"]["text"] for update in seen["updates"] if update["sessionUpdate"] == kind]


def tools_of(seen: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What was said of each tool call, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for update in seen["updates"]:
        if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            found.setdefault(update["toolCallId"], []).append(update)
    return list(found.values())


async def test_the_typescript_sdk_decodes_text_tools_files_and_terminals(tmp_path, project):
    file = str(project / "a.txt")
    async with FakeModel(WORK) as model:
        seen = await typescript(tmp_path, model, prompts=[{"text": "Change it"}], buffers={file: "unsaved\n"})
    assert seen["initialized"]["agentInfo"]["name"] == "acp-coder"
    assert [answer["stopReason"] for answer in seen["answers"]] == ["end_turn"]
    assert "".join(text_of(seen)) == "Looking. All done."
    assert text_of(seen, "agent_thought_chunk") == ["I look first."]
    read, edit, bash = tools_of(seen)
    assert [call[0]["kind"] for call in (read, edit, bash)] == ["read", "edit", "execute"]
    assert [call[-1]["status"] for call in (read, edit, bash)] == ["completed", "completed", "failed"]
    assert "unsaved" in read[-1]["content"][0]["content"]["text"]
    assert edit[-1]["content"][0] == {"type": "diff", "path": file, "oldText": "unsaved\n", "newText": "changed\n"}
    assert bash[-1]["content"][0] == {"type": "terminal", "terminalId": "t0"}
    assert bash[-1]["rawOutput"]["stdout"] == "from the terminal\n"
    assert seen["released"] == ["t0"] and seen["writes"] == [[file, "changed\n"]]
    assert (project / "a.txt").read_text() == "changed\n"
    assert seen["exit"] == 0


async def test_the_typescript_sdk_works_over_a_websocket(tmp_path, project):
    """Its remote client, with the files and terminals of this machine, which is the server's, too."""
    file, sdk = str(project / "a.txt"), EXTENSION / "node_modules/@agentclientprotocol/sdk"
    exports = json.loads((sdk / "package.json").read_text())["exports"]["./experimental/ws-client"]
    client, ws = str(sdk / exports["default"]), str(NODE_MODULES / "ws" / "wrapper.mjs")
    async with served(tmp_path, WORK, config="[server]\nnear = true\n") as place:
        remote = {"client": client, "ws": ws, "url": place.url, "token": place.token}
        prompts = [{"text": "Change it"}]
        seen = await typescript(tmp_path, place.model, prompts=prompts, buffers={file: "unsaved\n"}, remote=remote)
    assert "".join(text_of(seen)) == "Looking. All done."
    read, edit, bash = tools_of(seen)
    assert [call[-1]["status"] for call in (read, edit, bash)] == ["completed", "completed", "failed"]
    assert bash[-1]["rawOutput"]["stdout"] == "from the terminal\n"
    assert (project / "a.txt").read_text() == "changed\n"


async def test_the_typescript_sdk_asks_the_person_with_the_agents_options(tmp_path, project):
    async with FakeModel([Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), "as you wish"]) as model:
        seen = await typescript(tmp_path, model, prompts=[{"text": "Make it"}], allow=False)
    (asked,) = seen["asked"]
    kinds = [option["kind"] for option in asked["options"]]
    assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
    (updates,) = tools_of(seen)
    assert asked["toolCall"]["toolCallId"] == updates[0]["toolCallId"]
    assert updates[-1]["status"] == "failed"
    assert seen["commands"] == []
    assert not (project / "made").exists()


async def test_the_typescript_sdk_cancels_and_loads_the_session_in_a_new_process(tmp_path, project):
    async with FakeModel([SILENT]) as model:
        first = await typescript(tmp_path, model, prompts=[{"text": "Count", "cancelAt": "One"}])
    assert [answer["stopReason"] for answer in first["answers"]] == ["cancelled"]
    session = first["session"]["sessionId"]
    async with FakeModel(["Three."]) as model:
        later = await typescript(tmp_path, model, load=session, prompts=[{"text": "Go on"}])
    assert later["session"]["modes"]["currentModeId"] == "code" and text_of(later, "user_message_chunk") == ["Count"]
    assert text_of(later) == ["One", "Three."] and [answer["stopReason"] for answer in later["answers"]] == ["end_turn"]


# --- acpx ---------------------------------------------------------------------------------------------------------


class Acpx:
    """The command in a project, with a session; its agent asks the model at `base_url`."""

    def __init__(self, tmp_path: Path, base_url: str) -> None:
        self._command = [str(NODE), str(ACPX), "--agent", COMMAND, "--cwd", str(tmp_path / "project")]
        self._command += ["--approve-all", "--format", "json", "--ttl", "30"]
        self._env = environ(tmp_path, base_url, PATH=f"{NODE.parent}{os.pathsep}{os.environ['PATH']}")

    async def __call__(self, *arguments: str) -> list[dict[str, Any]]:
        """What it writes: one JSON object a line."""
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process([*self._command, *arguments], env=self._env, stdin=DEVNULL, check=False)
        said = done.stdout.decode()
        assert done.returncode == 0, said + done.stderr.decode()
        return [json.loads(line) for line in said.splitlines() if line]

    def begun(self, *arguments: str) -> Any:
        """The command without waiting for its end, its output to be read."""
        return anyio.open_process([*self._command, *arguments], env=self._env, stdin=DEVNULL, stdout=PIPE)


@asynccontextmanager
async def acpx_session(tmp_path: Path, model: FakeModel) -> AsyncIterator[Acpx]:
    acpx = Acpx(tmp_path, model.base_url)
    await acpx("sessions", "new")
    try:
        yield acpx
    finally:
        with anyio.CancelScope(shield=True):
            await acpx("sessions", "close")


def updates_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {"updates": [line["params"]["update"] for line in lines if line.get("method") == "session/update"]}


def stop_reasons(lines: list[dict[str, Any]]) -> list[str]:
    results = [line.get("result") or {} for line in lines]
    return [result["stopReason"] for result in results if "stopReason" in result]


async def test_acpx_prompts_serves_files_and_terminals_and_goes_on_with_the_session(tmp_path, project):
    calls = (Call("read", {"path": "a.txt"}), Call("bash", {"command": "echo from the terminal"}))
    script = [Answer(text="Looking. ", tool_calls=calls), "Done.", "Again."]
    async with FakeModel(script) as model, acpx_session(tmp_path, model) as acpx:
        lines = await acpx("prompt", "Look at it")
        assert stop_reasons(lines) == ["end_turn"]
        seen = updates_of(lines)
        assert text_of(seen) == ["Looking. ", "Done."]
        read, bash = tools_of(seen)
        assert [call[-1]["status"] for call in (read, bash)] == ["completed", "completed"]
        assert "saved" in read[-1]["content"][0]["content"]["text"]
        assert bash[-1]["rawOutput"]["stdout"] == "from the terminal\n"
        asked = {line.get("method") for line in lines}
        # The session was made by another process of the agent.
        assert {"session/resume", "fs/read_text_file", "terminal/create", "terminal/release"} <= asked

        lines = await acpx("prompt", "And again")
        assert text_of(updates_of(lines)) == ["Again."]
        remembered = json.dumps(model.requests[-1].body["messages"])
        assert "Look at it" in remembered and "And again" in remembered


async def test_acpx_cancels_a_turn(tmp_path, project):
    async with FakeModel([SILENT]) as model, acpx_session(tmp_path, model) as acpx:
        with anyio.fail_after(SECONDS):
            async with await acpx.begun("prompt", "Count") as process:
                said = b""
                cancelled = False
                async for chunk in process.stdout:
                    said += chunk
                    if not cancelled and b'"One"' in said:
                        cancelled = True
                        await acpx("cancel")
        lines = [json.loads(line) for line in said.decode().splitlines() if line]
        assert stop_reasons(lines) == ["cancelled"] and text_of(updates_of(lines)) == ["One"]
