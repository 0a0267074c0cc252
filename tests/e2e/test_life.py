"""The process: it starts immediately, exits when it must, and leaves nothing behind."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest

from acp_agent.cli import main
from acp_agent.errors import ConnectionClosed
from acp_agent.schema.acp import AgentMessageChunk, McpServerStdio
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.executors.sandbox.kit import needs_sandbox
from tests.files import put
from tests.mcp.kit import HERE

from .kit import COMMAND, alive, configured, environ, spawned

SECONDS = 60
LONGEST = 180

INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'


def run(tmp_path: Path, data: bytes, **more: str) -> subprocess.CompletedProcess[bytes]:
    """The command with `data` on its stdin, to its end."""
    return subprocess.run(
        [COMMAND], input=data, capture_output=True, env=environ(tmp_path, **more), timeout=SECONDS, check=False
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


async def end(editor: FakeEditor, how: str) -> None:
    """By the end of its stdin, by a signal, or killed."""
    process = editor.process
    assert process is not None
    if how == "stdin":
        await process.end()
        return
    os.kill(process.pid, signal.SIGTERM if how == "signal" else signal.SIGKILL)
    await process.wait()


def request(id_: object, method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, **({"params": params} if params else {})}
    return json.dumps(message).encode() + b"\n"


def new_session(id_: object, cwd: object) -> bytes:
    return request(id_, "session/new", cwd=str(cwd), mcpServers=[])


def answers(done: subprocess.CompletedProcess[bytes]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


def answered(tmp_path: Path, data: bytes, count: int) -> list[dict]:
    """The first answers to these lines; what has none at the end of stdin is cancelled."""
    with Process(tmp_path, data) as process:
        found: list[dict] = []
        while len(found) < count:
            found += [message] if "id" in (message := process.hear()) else []
        assert process.stdin is not None
        process.stdin.close()
        process.ends(0)
    return found


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
    done = run(tmp_path, data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert {a["id"]: a.get("error", {}).get("code") for a in answers(done)} == codes


@pytest.mark.parametrize(("line", "code"), [
    (b"garbage\n", -32700), (b"[]\n", -32600), (b'{"jsonrpc":"2.0","id":1,"method":"nope"}\n', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n', -32602), (b"\xff\xfe\n", -32700),
    (b"[" * 100_000 + b"\n", -32700),
])  # fmt: skip
def test_a_bad_first_line_is_answered_and_the_next_is_served(tmp_path, line, code):
    found = answers(run(tmp_path, line + INITIALIZE))
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


def test_an_isolated_interpreter_ignores_the_shells_pythonhome_and_passes_it_on_to_none(tmp_path):
    command = [sys.executable, "-I", "-m", "acp_agent"]
    env = environ(tmp_path, PYTHONHOME=str(tmp_path), **configured(tmp_path, "[providers.default]\nmax_retries = 0\n"))
    done = subprocess.run(command, input=INITIALIZE + LIST, capture_output=True, env=env, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and all("result" in answer for answer in answers(done))
    asked = [*command, "prompt", "--json", "hello"]
    done = subprocess.run(asked, capture_output=True, env=env, timeout=SECONDS, check=False, text=True)
    assert "init_fs_encoding" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_first_session_ends_it_with_zero(tmp_path, number):
    # The handlers are set before the first read; a line that is read proves that they are.
    with Process(tmp_path, INITIALIZE) as process:
        process.hear()
        process.send_signal(number)
        process.ends(0)


def busy(tmp_path: Path) -> tuple[Answer, Path]:
    """A turn that has started a process tree which writes its pids."""
    pids = tmp_path / "pids"
    command = f"setsid sh -c 'echo $$ >>{pids}; sleep 600' & echo $$ >>{pids}; sleep 600"
    return Answer(tool_calls=(Call("bash", {"command": command}),)), pids


async def _pids(pids: Path) -> list[int]:
    while not pids.exists() or len(pids.read_text().split()) < 2:
        await anyio.sleep(0.01)
    return [int(pid) for pid in pids.read_text().split()]


async def _all_gone(started: list[int]) -> None:
    while any(alive(pid) for pid in started):
        await anyio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None])
async def test_a_signal_or_the_end_of_stdin_during_a_turn_ends_it_and_leaves_no_child(tmp_path, number):
    answer, pids = busy(tmp_path)
    async with spawned(tmp_path, [answer], terminal=False) as (editor, _):
        turn = editor.begin("go")
        started = await _pids(pids)
        if number is None:
            await editor.process.end()
            with pytest.raises(ConnectionClosed), anyio.fail_after(SECONDS):
                await turn.response()
        else:
            os.kill(editor.process.pid, number)
            assert (await turn.response()).stop_reason == "cancelled"
        assert await editor.process.wait() == 0
        if number is not None:
            editor.assert_tool_calls_finished()
        await _all_gone(started)


async def test_the_end_of_stdin_while_the_model_streams(tmp_path):
    async with spawned(tmp_path, [Answer(text=("Well, ", "b"), hang_after=1)]) as (editor, model):
        turn = editor.begin("go")
        await editor.wait_for(lambda u: isinstance(u, AgentMessageChunk))
        await editor.process.end()
        assert editor.process.returncode == 0
        with pytest.raises(ConnectionClosed), anyio.fail_after(SECONDS):
            await turn.response()
        await model.answer_closed(1)


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


async def test_the_agent_works_while_nobody_reads_its_stderr(tmp_path):
    """A pipe of 64 KiB that is never read, and a log line for each of many malformed lines."""
    read, write = os.pipe()
    with subprocess.Popen(
        [COMMAND], stdin=-1, stdout=-1, stderr=write, env=environ(tmp_path, ACP_CODER_LOG_LEVEL="debug")
    ) as process:
        os.close(write)
        assert process.stdin is not None and process.stdout is not None
        lines = b"this is no message, and each such line is logged\n" * 2000

        def send() -> None:
            process.stdin.write(INITIALIZE + lines)
            process.stdin.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, send)
            answered = await anyio.to_thread.run_sync(process.stdout.read)
        assert answered.count(b"-32700") == 2000
        assert process.wait(SECONDS) == 0
    os.close(read)


def test_sessions_that_are_asked_for_at_once_are_answered_in_order_also_after_one_that_fails(tmp_path):
    """The first of them is answered before there is an event loop, what fails is not."""
    many = [new_session(1, tmp_path), new_session(2, tmp_path / "none"), new_session(3, tmp_path), LIST]
    first, failed, second, listed = answered(tmp_path, INITIALIZE + b"".join(many), 5)[1:]
    assert (first["id"], failed["id"], second["id"]) == (1, 2, 3)
    assert "is not an existing folder" in failed["error"]["message"]
    known = {session["sessionId"] for session in listed["result"]["sessions"]}
    assert known == {first["result"]["sessionId"], second["result"]["sessionId"]}
    assert first["result"].keys() == second["result"].keys()
    found = answered(tmp_path, INITIALIZE + request(1, "session/new", cwd=7) + new_session(2, tmp_path), 3)
    assert found[1]["error"]["code"] == -32602 and found[2]["result"]["sessionId"]


def test_a_session_that_cannot_be_made_is_answered_at_once_and_later(tmp_path):
    lines = INITIALIZE + new_session(1, tmp_path) + new_session(2, tmp_path)
    with Process(tmp_path, lines, **configured(tmp_path, '[store]\npath = "~nosuchuser/x.db"')) as process:
        _, first, second = (process.hear() for _ in range(3))
        process.stdin.close()  # What has no answer by then is cancelled.
        process.ends(0)
    assert (first["id"], first["error"]) == (1, second["error"]) and first["error"]["code"] == -32603


def test_early_answers_that_nobody_reads_do_not_hold_the_process(tmp_path):
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    with Process(tmp_path, INITIALIZE + new_session(1, tmp_path), stdout=write) as process:
        process.stdin.close()
        process.ends(1)
    os.close(read)
    os.close(write)


async def test_commands_see_neither_the_agents_own_key_nor_the_protocols_lines(tmp_path):
    script = [Answer(tool_calls=(Call("bash", {"command": "cat; echo [$OPENAI_API_KEY] [$DEBUG]"}),)), "done", "more"]
    more = {"OPENAI_API_KEY": "sk-test-not-a-key", "DEBUG": "kept"}
    async with spawned(tmp_path, script, terminal=False, environ=more) as (editor, _):
        await editor.prompt("go")
        assert editor.tool_call().raw_output["stdout"] == "[] [kept]\n"
        await editor.prompt("again")


def test_pipes_that_do_not_block_are_waited_for(tmp_path):
    stdin, to_agent = os.pipe()
    from_agent, stdout = os.pipe()
    os.set_blocking(stdin, False)
    os.set_blocking(stdout, False)
    with Process(tmp_path, stdin=stdin, stdout=stdout) as process:
        os.close(stdin)
        os.close(stdout)
        process.is_busy()  # It reads, and there is nothing yet.
        os.write(to_agent, INITIALIZE)
        assert b"protocolVersion" in os.read(from_agent, 65536)
        os.close(to_agent)
        assert process.ends(0) == b""
    os.close(from_agent)


@pytest.mark.parametrize(("number", "first"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_signal_ends_it_while_a_session_waits_for_the_database(tmp_path, number, first):
    """It would wait for ten minutes in SQLite, where no handler runs. The first is answered without an event loop."""
    database = tmp_path / "sessions.db"
    config = configured(tmp_path, f'[store]\npath = "{database}"\nbusy_timeout = 600.0\n')
    assert len(answers(run(tmp_path, INITIALIZE + new_session(1, tmp_path), **config))) >= 2
    other = sqlite3.connect(database, isolation_level=None)
    with closing(other), Process(tmp_path, INITIALIZE, **config) as process:
        if not first:
            process.say(new_session(1, tmp_path))
            while "sessionId" not in process.hear().get("result", {}):
                pass
        other.execute("BEGIN IMMEDIATE")
        process.say(new_session(2, tmp_path))
        process.is_busy(0.5)  # It has come to the database by then.
        process.send_signal(number)
        process.ends(0)


@pytest.mark.parametrize("how", ["stdin", "signal", "kill"])
async def test_what_runs_on_in_the_background_servers_and_browsers_go_with_the_agent(tmp_path, how, request):
    notes = tmp_path / "notes"
    server = McpServerStdio(
        name="raw", command=sys.executable, args=["-S", str(HERE / "raw_server.py"), "good", str(notes)], env=[]
    )
    start = Call("bash", {"command": f"echo $$ > {tmp_path / 'pid'}; exec sleep 600", "background": True})
    leave = Call("bash", {"command": f"sleep 600 & echo $! > {tmp_path / 'left'}"})
    look = Call("browser", {"action": "open", "url": "http://localhost:9/"})
    script = [Answer(tool_calls=(start, leave, Call("mcp_raw_echo", {}), look)), "done"]
    web = '[tools.web]\nhttp_hosts = ["localhost"]\nprivate_hosts = ["localhost"]\n'
    config = configured(tmp_path, f"{web}[mcp]\nprompt_wait = 60\n")
    profiles = Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(profiles, ignore_errors=True))
    more = {**config, "ACP_CODER_MODE": "auto", "TMPDIR": str(profiles)}
    async with spawned(tmp_path, script, terminal=False, environ=more) as (editor, _):
        await editor.new_session(tmp_path / "project", mcp_servers=[server])
        assert (await editor.prompt("go")).stop_reason == "end_turn"
        while not (tmp_path / "pid").exists():
            await anyio.sleep(0.01)
        server_pid = int(notes.read_text().split()[1])
        commands = [int((tmp_path / name).read_text()) for name in ("pid", "left")]
        browser = _with_words(str(profiles))
        assert all(alive(pid) for pid in (server_pid, *commands))
        await end(editor, how)
        await _all_gone([server_pid, *browser])
        if how == "kill":  # Nobody can run after that; what reads from us ends by itself.
            for pid in commands:
                os.kill(pid, signal.SIGKILL)
        await _all_gone(commands)


@pytest.mark.parametrize("how", ["stdin", "signal", "kill"])
async def test_nothing_of_a_confined_command_outlives_the_agent_whatever_happens_to_it(tmp_path, how):
    needs_sandbox()
    mark = f"600.{os.getpid()}{len(how)}"
    tree = f"setsid sleep {mark} & (env -i setsid sh -c 'sleep {mark}; :' &) ; echo started > up; sleep {mark}"
    script = [Answer(tool_calls=(Call("bash", {"command": tree}),)), "done"]
    more = {"ACP_CODER_SANDBOX_DISABLED": "false", "ACP_CODER_MODE": "auto"}
    async with spawned(tmp_path, script, terminal=False, environ=more) as (editor, _):
        await editor.new_session(tmp_path / "project")
        editor.begin("go")
        while not (tmp_path / "project/up").exists() or len(_with_words(f"sleep\0{mark}")) < 3:
            await anyio.sleep(0.01)
        started = _with_words(mark)
        assert len(started) > 3
        await end(editor, how)
        await _all_gone(started)


def _with_words(words: str) -> list[int]:
    """The processes whose command line holds `words`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and words.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_prompt_that_the_end_of_stdin_interrupts_is_answered_cancelled(tmp_path):
    with Process(tmp_path, INITIALIZE + new_session(1, tmp_path)) as process:
        answer = {}
        while answer.get("id") != 1:
            answer = process.hear()
        blocks = [{"type": "text", "text": "hi"}]
        process.say(request(2, "session/prompt", sessionId=answer["result"]["sessionId"], prompt=blocks))
        process.stdin.close()
        found = [json.loads(line) for line in process.stdout]
        assert [a["result"] for a in found if a.get("id") == 2] == [{"stopReason": "cancelled"}]
        process.ends(0)


async def test_language_servers_end_with_the_agent_however_it_ends(tmp_path):
    def running() -> list[int]:
        """The servers that are in the project's folder."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes()
                if b"langserver" in line and os.readlink(folder / "cwd") == str(tmp_path / "project"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    hover = Answer(tool_calls=(Call("hover", {"path": "a.py", "symbol": "value"}),))
    put(tmp_path / "project" / "a.py", "value = 1\n")
    config = configured(tmp_path, "[lsp]\nunconfined = true\nrequest_timeout = 30\n")
    more = {**config, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"}
    for how in ("stdin", "kill"):
        async with spawned(tmp_path, [hover, "done"], environ=more) as (editor, _):
            await editor.prompt("go")
            assert "value" in str(editor.tool_call().content)
            assert running()
            await end(editor, how)
        while running():
            await anyio.sleep(0.02)
