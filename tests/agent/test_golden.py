"""Every kind of message the agent sends, whole, against golden JSON (see `tests/golden/README.md`)."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.own_programs import find_bash
from acp_agent.testing.fake_model import Answer, Call, Usage
from acp_agent.tools.kit.registry import TOOLS

from .kit import another, bash, environ_for, on_stdio, rig

GOLDEN = Path(__file__).parents[1] / "golden"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
NOT_HERE = {
    "bash_output", "bash_kill", "bash_list", "capture_pane", "send_keys", "tmux_create_session", "tmux_kill_session",
    "tmux_create_pane", "tmux_kill_pane", "definition", "references", "symbols", "hover", "rename", "skill",
    "switch_mode",
}  # fmt: skip
"""Tools that this project and this mode do not have; all others are named, in their order."""
NAMED = ", ".join(name for name in TOOLS if name not in NOT_HERE)
SCRIPT_FILE = re.compile(r"/[^\"]*/acp-coder-[^\"/]+/scripts/command-\d+\.sh")

SCRIPT = [
    Answer(
        thought="I should look.", text="Working.",
        tool_calls=(
            Call("plan", {"entries": [{"content": "Look", "status": "in_progress"}]}), Call("read", {"path": "a.txt"}),
            Call("edit", {"path": "a.txt", "old_string": "one", "new_string": "two"}), bash("echo hi; touch made"),
            Call("grep", {"pattern": "two"}), Call("nonsense", {}),
        ),
        usage=Usage(100, 10),
    ),
    Answer(text="Done."), Answer(text="never said", hang_before=True),
]  # fmt: skip


def normal(message: dict[str, Any], project: Path) -> Any:
    text = json.dumps(message, ensure_ascii=False, sort_keys=True)
    text = SCRIPT_FILE.sub("<script>", text)
    text = text.replace(f'"{find_bash()}"', '"<bash>"')
    text = text.replace(f"The tools are: {NAMED}.", "The tools are: <names>.")
    text = text.replace(str(project), "<project>").replace(str(project.parent), "<folder>")
    found = json.loads(TIME.sub("<time>", UUID.sub("<id>", text)))
    if "id" in found:
        found["id"] = "<n>"
    return found


def key_of(message: dict[str, Any], asked: dict[Any, str], tools: dict[str, str]) -> str:
    if "method" in message:
        update = message["params"].get("update")
        if update is None:
            return str(message["method"])
        tool = tools.get(update.get("toolCallId", ""), "")
        parts = ["update", update["sessionUpdate"], tool, update.get("status", "")]
        parts += [item["type"] for item in update.get("content", []) if isinstance(item, dict)]
        return ".".join(part for part in parts if part)
    method = asked.get(message["id"], "unknown")
    return f"{method}.error.{message['error']['code']}" if "error" in message else f"{method}.result"


def collect(lines_out: list[dict[str, Any]], lines_in: list[dict[str, Any]], project: Path) -> dict[str, Any]:
    asked = {line["id"]: line["method"] for line in lines_out if "id" in line and "method" in line}
    found: dict[str, Any] = {}
    updates = [line["params"]["update"] for line in lines_in if line.get("method") == "session/update"]
    tools = {update["toolCallId"]: update["name"] for update in updates if update["sessionUpdate"] == "tool_call"}
    for message in lines_in:
        key = key_of(message, asked, tools).replace("/", "-").replace("$", "")
        found.setdefault(key, normal(message, project))
    return found


async def conversation(tmp_path: Path) -> dict[str, Any]:
    async with rig(tmp_path, SCRIPT) as r:
        editor = r.editor
        (r.project / "a.txt").write_text("one\n")
        await editor.prompt("Change it")
        await editor.prompt("/status")
        turn = editor.begin("wait")
        await r.model.wait_for_request(3)
        editor.cancel()
        await turn.response()
        client, session = editor.client, editor.session_id
        await client.set_session_mode(session, "architect")
        await client.set_config_option(session, "mode", "ask")
        await client.list_sessions()
        await client.close_session(session)
        await editor.load_session(session, r.project)
        await client.close_session(session)
        await editor.resume_session(session, r.project)
        await client.delete_session(session)
        for method, params in (
            ("session/prompt", {"sessionId": "gone", "prompt": []}),
            ("session/new", {"cwd": "relative", "mcpServers": []}), ("nonsense", {}),
        ):  # fmt: skip
            with pytest.raises(PeerError):
                await editor.request(method, params)
        return collect(editor.lines("to_agent"), editor.lines("from_agent"), r.project)


async def remote(tmp_path: Path) -> dict[str, Any]:
    """An agent whose model needs a login."""
    async with another(environ_for(tmp_path, "https://models.invalid/v1"), terminal_auth=True) as editor:
        with pytest.raises(PeerError):
            await editor.request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        await editor.client.logout()
        found = collect(editor.lines("to_agent"), editor.lines("from_agent"), tmp_path)
    return {f"remote.{key}": value for key, value in found.items()}


@on_stdio
async def test_every_message_is_as_it_was(tmp_path):
    (tmp_path / "remote").mkdir()
    found = {**await conversation(tmp_path), **await remote(tmp_path / "remote")}
    if os.environ.get("UPDATE_GOLDEN"):
        for file in GOLDEN.glob("*.json"):
            file.unlink()
        for key, message in found.items():
            text = json.dumps(message, indent=2, ensure_ascii=False, sort_keys=True)
            (GOLDEN / f"{key}.json").write_text(text + "\n", encoding="utf-8")
    golden = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in GOLDEN.glob("*.json")}
    assert sorted(found) == sorted(golden)
    for key, message in golden.items():
        assert found[key] == message, key
