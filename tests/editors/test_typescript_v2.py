"""The official TypeScript SDK's client of v2, which checks the handshake, the capabilities and each message."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import anyio

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.e2e.kit import COMMAND, environ
from tests.editors.kit import EXTENSION, NODE
from tests.editors.test_clients import SECONDS, SILENT

SDK = EXTENSION / "node_modules" / "@agentclientprotocol" / "sdk" / "dist" / "v2" / "stable" / "acp.js"
WORK = [
    Answer(
        text=("Look", "ing. "),
        tool_calls=(
            Call("read", {"path": "a.txt"}),
            Call("edit", {"path": "a.txt", "old_string": "saved", "new_string": "changed"}),
            Call("bash", {"command": "printf 'from \\303\\251 terminal\\n'; exit 3"}),
        ),
    ),
    Answer(text=("All ", "done.")),
]


async def driven(tmp_path: Path, model: FakeModel, **plan: Any) -> dict[str, Any]:
    plan = {"sdk": SDK.as_uri(), "command": COMMAND, "cwd": str(tmp_path / "project"), **plan}
    (config := tmp_path / "config.toml").write_text("[protocol]\nv2 = true\n")
    env = {**environ(tmp_path, model.base_url), "ACP_CODER_CONFIG": str(config)}
    command = [str(NODE), str(Path(__file__).with_name("sdk_client_v2.mjs")), json.dumps(plan)]
    with anyio.fail_after(SECONDS):
        ran = await anyio.run_process(command, env=env, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    seen: dict[str, Any] = json.loads(ran.stdout)
    assert seen["exit"] == 0
    return seen


def said(seen: dict[str, Any], kind: str = "agent_message_chunk") -> str:
    return "".join(each["content"]["text"] for each in seen["updates"] if each["sessionUpdate"] == kind)


def of_kind(seen: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [each for each in seen["updates"] if each["sessionUpdate"] == kind]


async def test_it_sees_files_commands_questions_and_the_states_of_the_turn(tmp_path: Path, project: Path) -> None:
    async with FakeModel(WORK) as model:
        seen = await driven(tmp_path, model, prompts=[{"text": "Change it"}])
    assert seen["initialized"]["protocolVersion"] == 2 and said(seen) == "Looking. All done."
    assert said(seen, "user_message_chunk") == "Change it"
    (message,) = of_kind(seen, "user_message_chunk")
    assert message["messageId"] == seen["answers"][0]["messageId"]
    assert seen["ends"][0]["stopReason"] == "end_turn"
    calls: dict[str, dict[str, Any]] = {}
    for update in of_kind(seen, "tool_call_update"):
        calls.setdefault(update["toolCallId"], {}).update(update)
    read, edit, bash = calls.values()
    assert [call["status"] for call in (read, edit, bash)] == ["completed", "completed", "failed"]
    (diff,) = (each for each in edit["content"] if each["type"] == "diff")
    assert diff["changes"] == [{"operation": "modify", "path": str(project / "a.txt"), "fileType": "text"}]
    assert "-saved\n+changed\n" in diff["patch"]["text"]
    (terminal,) = (each["terminalId"] for each in bash["content"] if each["type"] == "terminal")
    data = b"".join(base64.b64decode(each["data"]) for each in of_kind(seen, "terminal_output_chunk"))
    assert data == "from é terminal\r\n".encode()
    updates = [each for each in of_kind(seen, "terminal_update") if each["terminalId"] == terminal]
    assert updates[-1]["exitStatus"] == {"exitCode": 3}
    assert {each["subject"]["type"] for each in seen["asked"]} == {"tool_call"}
    states = [each["state"] for each in of_kind(seen, "state_update")]
    assert states[0] == "running" and "requires_action" in states and states[-1] == "idle"
    assert (project / "a.txt").read_text() == "changed\n"


async def test_it_cancels_and_resumes_the_session_in_a_new_process(tmp_path: Path, project: Path) -> None:
    async with FakeModel([SILENT]) as model:
        first = await driven(tmp_path, model, prompts=[{"text": "Count", "cancelAt": "One"}])
    assert [each["stopReason"] for each in first["ends"]] == ["cancelled"]
    async with FakeModel(["Three."]) as model:
        later = await driven(tmp_path, model, resume=first["session"]["sessionId"], prompts=[{"text": "Go on"}])
    assert said(later, "user_message_chunk") == "CountGo on" and said(later) == "OneThree."
    assert [each["stopReason"] for each in later["ends"]] == ["end_turn"]
    kept, _ = (each["messageId"] for each in of_kind(later, "user_message_chunk"))
    assert kept == first["answers"][0]["messageId"]


async def test_a_model_that_fails_ends_the_turn_with_its_error(tmp_path: Path, project: Path) -> None:
    async with FakeModel([]) as model:
        seen = await driven(tmp_path, model, prompts=[{"text": "Hello"}])
    assert seen["answers"][0]["messageId"] and seen["ends"][0]["stopReason"] == "error"
    assert seen["ends"][0]["error"]["message"]
