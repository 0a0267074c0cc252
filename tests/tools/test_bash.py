"""bash: what the model and the person are told of a command."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from acp_agent.config.model import BashConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import OutputChunk
from acp_agent.safety.access import ExecuteAccess
from tests.tools.kit import bench

pytestmark = pytest.mark.anyio


async def test_output_goes_to_the_model_the_person_and_the_envelope(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        result = await on.call("bash", command="echo out; echo err >&2")
        assert sorted(result.text.splitlines()) == ["err", "out"]
        assert result.raw_output == {"stdout": "out\n", "stderr": "err\n", "exit_code": 0, "truncated": False}
        assert not result.failed
        assert {OutputChunk("stdout", "out\n"), OutputChunk("stderr", "err\n")} == set(on.chunks)


@pytest.mark.parametrize(
    ("command", "text", "exit_code"),
    [
        ("echo x; exit 3", "x\n[exit code 3]", 3),
        ("printf x; false", "x\n[exit code 1]", 1),
        ("exit 2", "[exit code 2]", 2),
        ("true", "[no output, exit code 0]", 0),
        ("echo x", "x\n", 0),
        ("printf x", "x\n", 0),
    ],
)
async def test_the_exit_code_is_told_when_it_matters(command: str, text: str, exit_code: int, tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        result = await on.call("bash", command=command)
        assert result.text == text
        assert result.raw_output["exit_code"] == exit_code
        assert result.failed == (exit_code != 0)


async def test_a_signal_is_a_failure_without_exit_code(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        result = await on.call("bash", command=f"kill -{signal.SIGKILL} $$")
        assert result.text == "[killed by SIGKILL]"
        assert result.raw_output["exit_code"] is None
        assert result.failed


async def test_a_timeout_keeps_the_output_and_says_what_to_do(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        result = await on.call("bash", command="echo before; sleep 600", timeout=0.5)
        assert result.text.startswith("before\n[killed: the command ran longer than 0.5 s.")
        assert "Give a longer `timeout`" in result.text
        assert result.raw_output["exit_code"] is None
        assert result.failed


async def test_the_configured_timeouts_bound_what_is_asked(tmp_path: Path) -> None:
    async with bench(tmp_path, bash=BashConfig(timeout=0.2, max_timeout=0.4)) as on:
        assert "longer than 0.2 s" in (await on.call("bash", command="sleep 600")).text
        assert "longer than 0.4 s" in (await on.call("bash", command="sleep 600", timeout=500)).text


async def test_the_next_command_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        (on.folder / "sub").mkdir()
        await on.call("bash", command="cd sub; export X=1")
        assert on.access("bash", command="ls") == [ExecuteAccess("ls", on.folder / "sub")]
        assert (await on.call("bash", command="pwd; echo $X")).text == f"{on.folder / 'sub'}\n1\n"


async def test_big_output_is_marked_as_truncated(tmp_path: Path) -> None:
    async with bench(tmp_path, bash=BashConfig(output_limit=1024)) as on:
        result = await on.call("bash", command="seq 1 10000")
        assert result.raw_output["truncated"] is True
        assert "characters omitted" in result.raw_output["stdout"]
        assert len(result.text) < 1200


@pytest.mark.parametrize(("command", "words"), [("  \n", "empty"), ("ls\0", "NUL"), ("ls \ud800", "unicode")])
async def test_commands_that_cannot_run_are_refused(command: str, words: str, tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        with pytest.raises(ToolError, match=words):
            on.access("bash", command=command)


async def test_a_folder_that_is_gone_is_told_in_words(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        on.folder.rmdir()
        with pytest.raises(ExecutorError, match="does not exist"):
            await on.call("bash", command="ls")
