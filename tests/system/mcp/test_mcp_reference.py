"""Reference servers of PyPI, `mcp-server-git` and `mcp-server-time`, in sessions."""

import json
import subprocess
import sys

from acp_agent.client.permissions import allow_always
from acp_agent.schema.acp import McpServerStdio
from acp_agent.testing.fake_model import Call
from tests.agent.kit import rounds, went


def reference(name: str, *args: str) -> McpServerStdio:
    return McpServerStdio(name=name, command=sys.executable, args=["-m", f"mcp_server_{name}", *args], env=[])


async def test_the_git_server_works_in_the_sessions_repository_alone(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for folder in (tmp_path / "project", elsewhere):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    here = str(tmp_path / "project")
    script = rounds(
        Call("mcp_git_git_add", {"repo_path": here, "files": ["new.txt"]}),
        Call("mcp_git_git_status", {"repo_path": here}), Call("mcp_git_git_status", {"repo_path": str(elsewhere)}),
        Call("mcp_git_git_commit", {"repo_path": here}),
    )  # fmt: skip
    more = {"files": {"new.txt": "new\n"}, "mcp_servers": [reference("git", "--repository", here)]}
    async with went(tmp_path, script, otherwise=allow_always, **more) as r:
        added, status, other, commit = r.editor.tool_calls().values()
        for call in (added, status):
            call.assert_finished("completed")
        assert "new file:   new.txt" in status.text()
        assert "new.txt" in r.messages(3)[-1]["content"]
        other.assert_finished("failed")
        commit.assert_finished("failed")
        assert "arguments that do not fit" in commit.text()
        assert "message: is required" in str(r.model.requests[-1].body["messages"])


async def test_the_time_server_answers_and_its_errors_are_told(tmp_path):
    arguments = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    script = rounds(
        Call("mcp_time_convert_time", arguments), Call("mcp_time_convert_time", {**arguments, "time": "25:00"})
    )
    async with went(tmp_path, script, otherwise=allow_always, mcp_servers=[reference("time")]) as r:
        good, bad = r.editor.tool_calls().values()
        assert json.loads(good.text())["target"]["timezone"] == "Asia/Tokyo"
        bad.assert_finished("failed")
        assert "Invalid time format" in r.messages(3)[-1]["content"]
