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

import anyio
import anyio.to_thread
import pytest

from acp_agent.errors import ConnectionClosed
from acp_agent.schema.acp import AgentMessageChunk, McpServerStdio
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.e2e.kit import COMMAND, alive, configured, environ, spawned
from tests.e2e.test_life import INITIALIZE, LIST, SECONDS, Process, answers, request, run
from tests.executors.sandbox.kit import needs_sandbox
from tests.files import put
from tests.mcp.kit import HERE

LONGEST = 180


async def end(editor: FakeEditor, how: str) -> None:
    """By the end of its stdin, by a signal, or killed."""
    process = editor.process
    assert process is not None
    if how == "stdin":
        await process.end()
        return
    os.kill(process.pid, signal.SIGTERM if how == "signal" else signal.SIGKILL)
    await process.wait()


def new_session(id_: object, cwd: object) -> bytes:
    return request(id_, "session/new", cwd=str(cwd), mcpServers=[])


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


def test_an_isolated_interpreter_ignores_the_shells_pythonhome_and_passes_it_on_to_none(tmp_path):
    command = [sys.executable, "-I", "-m", "acp_agent"]
    env = environ(tmp_path, PYTHONHOME=str(tmp_path), **configured(tmp_path, "[providers.default]\nmax_retries = 0\n"))
    done = subprocess.run(command, input=INITIALIZE + LIST, capture_output=True, env=env, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and all("result" in answer for answer in answers(done))
    asked = [*command, "prompt", "--json", "hello"]
    done = subprocess.run(asked, capture_output=True, env=env, timeout=SECONDS, check=False, text=True)
    assert "init_fs_encoding" not in done.stderr


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
