"""The process: it starts immediately, exits when it must, and leaves nothing behind."""

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from acp_agent.cli import main
from acp_agent.testing.fake_model import Answer, Call
from tests.files import put
from tests.forked import forked_command

from .kit import COMMAND, configured, environ, spawned

SECONDS = 60
LONGEST = 180

INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'


def run(tmp_path: Path, data: bytes, command: str = COMMAND, **more: str) -> subprocess.CompletedProcess[bytes]:
    """The command with `data` on its stdin, to its end."""
    return subprocess.run(
        [command], input=data, capture_output=True, env=environ(tmp_path, **more), timeout=SECONDS, check=False
    )


class Process(subprocess.Popen[bytes]):
    """The command with these lines on its stdin, which stays open, or is another one."""

    def __init__(self, tmp_path: Path, data: bytes = b"", *, stdin: int = -1, stdout: int = -1, **more: str) -> None:
        super().__init__([COMMAND], stdin=stdin, stdout=stdout, stderr=-1, env=environ(tmp_path, **more))
        if data:
            self.say(data)

    def say(self, data: bytes) -> None:
        assert self.stdin is not None
        self.stdin.write(data)
        self.stdin.flush()

    def hear(self) -> dict:
        assert self.stdout is not None
        return json.loads(self.stdout.readline())

    def is_busy(self, seconds: float = 0.3) -> None:
        with pytest.raises(subprocess.TimeoutExpired):
            self.wait(seconds)

    def ends(self, code: int) -> bytes:
        """With this exit code; what it wrote on stderr."""
        assert self.stderr is not None and self.wait(SECONDS) == code
        if self.stdin is not None:
            self.stdin.close()
        return self.stderr.read()


def request(id_: object, method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, **({"params": params} if params else {})}
    return json.dumps(message).encode() + b"\n"


def answers(done: subprocess.CompletedProcess[bytes]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


async def test_a_whole_turn_over_real_pipes(tmp_path):
    script = [Answer(tool_calls=(Call("bash", {"command": "echo hi > made; cat made"}),)), "done"]
    async with spawned(tmp_path, script) as (editor, _):
        assert (await editor.prompt("go")).stop_reason == "end_turn"
        editor.tool_call().assert_finished("completed")
        assert (tmp_path / "project" / "made").read_text() == "hi\n"
        assert editor.text() == "done"


NOPE, LIST = request(1, "nope"), request(2, "session/list")


@pytest.mark.parametrize(("data", "codes"), [
    (b"", {}), (INITIALIZE, {0: None}), (INITIALIZE.rstrip(), {0: None}), (NOPE.rstrip(), {1: -32601}),
    (INITIALIZE + LIST + NOPE, {0: None, 1: -32601, 2: None}), (INITIALIZE + NOPE.rstrip(), {0: None, 1: -32601}),
], ids=[
    "nothing", "one", "one without its end", "an unknown one without its end", "several", "the last without its end",
])  # fmt: skip
def test_what_was_piped_in_is_answered_and_its_end_ends_the_process(tmp_path, data, codes):
    done = run(tmp_path, data, forked_command())
    assert (done.returncode, done.stderr) == (0, b"")
    assert {a["id"]: a.get("error", {}).get("code") for a in answers(done)} == codes


@pytest.mark.parametrize(("line", "code"), [
    (b"garbage\n", -32700), (b"[]\n", -32600), (b'{"jsonrpc":"2.0","id":1,"method":"nope"}\n', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n', -32602), (b"\xff\xfe\n", -32700),
    (b"[" * 100_000 + b"\n", -32700),
])  # fmt: skip
def test_a_bad_first_line_is_answered_and_the_next_is_served(tmp_path, line, code):
    found = answers(run(tmp_path, line + INITIALIZE, forked_command()))
    assert found[0]["error"]["code"] == code and found[-1]["result"]["protocolVersion"] == 1


def test_stdin_may_be_a_file(tmp_path):
    (tmp_path / "in").write_bytes(INITIALIZE + LIST)
    with (tmp_path / "in").open("rb") as stdin, Process(tmp_path, stdin=stdin.fileno()) as process:
        assert [process.hear()["id"] for _ in range(2)] == [0, 2]
        process.ends(0)


def test_the_configuration_counts_from_the_first_line_on(tmp_path):
    broken = configured(tmp_path, "this is = no toml =\n")
    assert broken["ACP_CODER_CONFIG"] in answers(run(tmp_path, INITIALIZE, **broken))[0]["error"]["message"]
    limit = configured(tmp_path, "[limits]\nmax_line_bytes = 70000\n")
    found = answers(run(tmp_path, INITIALIZE + b" " * 80_000 + b"\n" + LIST, **limit))
    assert any("longer than 70000 bytes" in str(answer.get("error")) for answer in found)
    assert any(answer.get("id") == 2 for answer in found)


@pytest.mark.parametrize(("text", "mode"), [("[protocol]\nunstable = true\n", "ask"), ("", "code")])
def test_opt_8_a_first_session_takes_values_of_options_also_before_the_event_loop(tmp_path, text, mode):
    """Not while drafts are off, whatever stands there."""
    values = [{"configId": "mode", "value": "ask"}]
    new = request(1, "session/new", cwd=str(tmp_path), mcpServers=[], configOptions=values if text else 7)
    found = answers(run(tmp_path, INITIALIZE + new, **configured(tmp_path, text)))
    (made,) = [each["result"] for each in found if each.get("id") == 1]
    assert made["modes"]["currentModeId"] == mode


def test_what_the_shells_pythonpath_adds_stands_in_for_nothing_and_a_byte_order_mark_is_none(tmp_path):
    for name in ("json", "logging", "asyncio", "msgspec", "tomllib"):
        put(tmp_path / "lib" / name / "__init__.py", "raise SystemExit(9)\n")
    more = configured(tmp_path, "\ufeff[agent]\nmode = 'ask'\n")
    done = run(tmp_path, INITIALIZE + LIST, PYTHONPATH=str(tmp_path / "lib"), **more)
    assert (done.returncode, done.stderr) == (0, b"") and all("result" in answer for answer in answers(done))


def test_on_windows_it_says_where_it_runs(monkeypatch, capsys):
    monkeypatch.setattr("acp_agent.cli.os", SimpleNamespace(name="nt", environ={}))
    assert main([]) == 1
    assert "Use it in WSL" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_first_session_ends_it_with_zero(tmp_path, number):
    # The handlers are set before the first read; a line that is read proves that they are.
    with Process(tmp_path, INITIALIZE) as process:
        process.hear()
        process.send_signal(number)
        process.ends(0)


def test_a_closed_stdout_ends_an_idle_process(tmp_path):
    read, write = os.pipe()
    with Process(tmp_path, INITIALIZE, stdout=write) as process:
        os.close(write)
        assert b"protocolVersion" in os.read(read, 65536)
        os.close(read)
        assert b"Traceback" not in process.ends(1)


async def test_logs_go_to_a_file_and_stderr_and_hold_no_key(tmp_path):
    secret = "sk-test-0123456789abcdef"
    async with spawned(tmp_path, ["ok"], environ={"ACP_CODER_LOG_LEVEL": "debug", "OPENAI_API_KEY": secret}) as (
        editor, _,
    ):  # fmt: skip
        await editor.send_line(b'{"not": "a message", "key": "%s"}' % secret.encode())
        await editor.prompt(f"my key is {secret}")
        await editor.process.end()
        stderr = editor.process.stderr
    log = (tmp_path / ".local" / "state" / "acp-coder" / "agent.log").read_text()
    assert "malformed input" in log
    assert "malformed input" in stderr
    assert secret not in log + stderr
    editor.violations.clear()


async def test_sessions_survive_the_process(tmp_path):
    async with spawned(tmp_path, ["remembered"]) as (editor, _):
        await editor.prompt("hi")
        session_id = editor.session_id
    async with spawned(tmp_path, []) as (editor, _):
        assert session_id in [session.session_id for session in (await editor.client.list_sessions()).sessions]
        await editor.load_session(session_id, tmp_path / "project")
        assert editor.text() == "remembered"


async def test_commands_see_neither_the_agents_own_key_nor_the_protocols_lines(tmp_path):
    script = [Answer(tool_calls=(Call("bash", {"command": "cat; echo [$OPENAI_API_KEY] [$DEBUG]"}),)), "done", "more"]
    more = {"OPENAI_API_KEY": "sk-test-not-a-key", "DEBUG": "kept"}
    async with spawned(tmp_path, script, terminal=False, environ=more) as (editor, _):
        await editor.prompt("go")
        assert editor.tool_call().raw_output["stdout"] == "[] [kept]\n"
        await editor.prompt("again")
