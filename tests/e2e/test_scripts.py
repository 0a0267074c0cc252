"""`acp-coder -p` in scripts and pipes, with real programs beside it."""

import json
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread

from acp_agent.testing.fake_model import Answer, FakeModel

from .kit import COMMAND, environ
from .test_cli import WRITE, session_of

SECONDS = 60


async def sh(model: FakeModel, home: Path, line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash in which `acp-coder` is the command."""
    env = environ(home, model.base_url, **more)
    env["PATH"] = f"{Path(COMMAND).parent}:{env['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=home, env=env, capture_output=True, text=True, timeout=SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return await anyio.to_thread.run_sync(run)


async def test_stdout_is_the_answer_alone_and_json_is_one_object(tmp_path):
    script = [Answer(text="I write.", thought="hm", tool_calls=WRITE.tool_calls), "Done."]
    async with FakeModel([*script, *script]) as model:
        done = await sh(model, tmp_path, "acp-coder -p go --output-format json")
        result = json.loads(done.stdout)
        assert done.returncode == 7 and result["denied"] == ["Write n.txt"] and result["files"] == []
        assert "hm" in done.stderr and "nobody could be asked" not in done.stdout
        done = await sh(model, tmp_path, "acp-coder -p -y go --output-format=json 2>/dev/null")
        result = json.loads(done.stdout)
        assert (done.returncode, result["text"], result["stopReason"], result["cost"]) == (0, "Done.", "end_turn", 0.0)
        assert result["files"] == [{"path": str(tmp_path / "n.txt"), "change": "created"}] and result["denied"] == []
        assert result["usage"]["totalTokens"] > 0 and result["sessionId"] == await session_of(model, tmp_path)


async def test_a_closed_pipe_stops_the_turn_quietly(tmp_path):
    slow = Answer(deltas=3000, delta_text="line {number}\n", interval_ms=5, tool_calls=WRITE.tool_calls)
    async with FakeModel([slow, "never"]) as model:
        done = await sh(model, tmp_path, "acp-coder -p -y go | head -3; echo ${PIPESTATUS[0]}")
        assert done.stdout == "line 0\nline 1\nline 2\n141\n" and done.stderr == ""
        assert len(model.requests) == 1 and not (tmp_path / "n.txt").exists()
