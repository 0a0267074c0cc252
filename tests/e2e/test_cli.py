"""The command line, as a user uses it."""

import functools
import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel
from acp_agent.testing.fake_openai import ChatCompletions
from tests.forked import forked_command

from ..agent.kit import without_context
from .kit import configured, environ

SECONDS = 180


def run(home: Path, *arguments: str, stdin: str = "", base_url: str = "", **more: str):
    env = environ(home, base_url, **more) if base_url else environ(home, **more)
    return subprocess.run(
        [forked_command(), *arguments], input=stdin, capture_output=True, text=True, env=env, timeout=SECONDS,
        check=False, cwd=home,
    )  # fmt: skip


def first_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[0]


async def ran(model, home, *arguments, **more):
    """The same beside a running model."""
    return await anyio.to_thread.run_sync(lambda: run(home, *arguments, base_url=model.base_url, **more))


async def session_of(model, home, **more) -> str:
    """The newest."""
    return (await ran(model, home, "sessions", "list", **more)).stdout.split()[0]


def text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


WRITE = Answer(text="I write.", tool_calls=(Call("write", {"path": "n.txt", "content": "new\n"}),))


async def test_prompt_shows_lines_and_ends_with_the_stop_reason(tmp_path):
    async with FakeModel([WRITE, "Done."]) as model:
        done = await ran(model, tmp_path, "prompt", "--yes", "go")
        assert done.returncode == 0, done.stderr
        assert done.stdout == "I write.\nDone.\n"
        assert "Write n.txt" in done.stderr and "+new" in done.stderr and "\x1b" not in done.stderr
        assert (tmp_path / "n.txt").read_text() == "new\n"


@pytest.mark.parametrize(("flags", "status"), [(["--deny"], 0), ([], 7)])
async def test_prompt_without_a_person_rejects_what_is_asked(tmp_path, flags, status):
    async with FakeModel([WRITE, "As you like."]) as model:
        done = await ran(model, tmp_path, "prompt", *flags, "go")
        assert done.returncode == status and "rejected" in done.stderr and "not allowed" not in done.stderr
        assert not (tmp_path / "n.txt").exists()


async def test_prompt_json_gives_every_update_as_a_line(tmp_path):
    async with FakeModel([WRITE, "Done."]) as model:
        done = await ran(model, tmp_path, "prompt", "--json", "--mode", "auto", "go")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        kinds = [line["update"]["sessionUpdate"] for line in lines if "update" in line]
        assert "tool_call" in kinds and "tool_call_update" in kinds and "agent_message_chunk" in kinds
        written = [{"path": str(tmp_path / "n.txt"), "change": "created"}]
        assert lines[-1].pop("usage")["totalTokens"] > 0
        assert lines[-1] == {"stopReason": "end_turn", "sessionId": lines[0]["sessionId"], "files": written}
        assert done.stderr == ""


@pytest.mark.parametrize(("answer", "status"), [
    (Answer(text="x", finish="length"), 3), (Answer(tool_calls=(Call("list_directory", {}),), repeat=True), 4),
    (Answer(text="", refusal="no", finish="content_filter"), 5), (Failure(401, {"error": {"message": "bad key"}}), 1),
])  # fmt: skip
async def test_prompt_exit_status(tmp_path, answer, status):
    async with FakeModel([answer]) as model:
        done = await ran(model, tmp_path, "prompt", "go", ACP_CODER_MAX_TOOL_ITERATIONS="2")
        assert done.returncode == status
        if status == 1:
            assert "bad key" in done.stderr and done.stdout == ""


PRICED = '[[agent.prices]]\nmodel = "default/*"\noutput = 2000000\n'


@pytest.mark.parametrize("flags", [["--yes"], []])
async def test_prompt_ends_at_the_limit_of_the_cost_with_a_status_of_its_own(tmp_path, flags):
    config = {**configured(tmp_path, PRICED), "ACP_CODER_MAX_COST": "1"}
    async with FakeModel([Answer(tool_calls=(Call("list_directory", {}),)), "never"]) as model:
        done = await ran(model, tmp_path, "prompt", *flags, "go", **config)
        assert done.returncode == 6, done.stdout
        assert "Stopped: this session has cost $10.00; the limit is $1.00 (`agent.max_cost`)." in done.stdout
        assert len(model.requests) == 1
        assert "  $10.00  " in (await ran(model, tmp_path, "sessions", "list", **config)).stdout


async def test_prompt_reads_stdin_and_goes_on_with_a_session(tmp_path):
    async with FakeModel(["one", "two"]) as model:
        await ran(model, tmp_path, "prompt", "-", stdin="from stdin")
        done = await ran(model, tmp_path, "prompt", "--session", await session_of(model, tmp_path), "again")
        assert "two" in done.stdout
        assert len(model.requests[1].body["messages"]) == 4


async def test_prompt_ends_with_what_was_changed_and_what_failed(tmp_path):
    edit = Answer(tool_calls=(Call("edit", {"path": "gone.txt", "old_string": "a", "new_string": "b"}),))
    async with FakeModel([edit, WRITE, "ok", edit, "It failed.", "It is not done."]) as model:
        done = await ran(model, tmp_path, "prompt", "--yes", "go")
        assert "Changed: n.txt; 1 call failed.\nContinue with" in done.stderr
        done = await ran(model, tmp_path, "prompt", "--json", "--yes", "go")
        last = json.loads(done.stdout.splitlines()[-1])
        assert (last["stopReason"], last["failedCalls"]) == ("end_turn", 1)


async def test_prompt_goes_on_with_the_newest_session_of_the_folder_and_names_it_at_the_end(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    async with FakeModel(["one", "two", "three", "four"]) as model:
        none = await ran(model, tmp_path, "prompt", "--continue", "--cwd", str(here), "go")
        assert (none.returncode, none.stdout) == (2, "") and f"there is no session in {here}" in none.stderr
        first = await ran(model, tmp_path, "prompt", "--cwd", str(here), "first")
        assert first.stdout == "one\n"
        session_id = await session_of(model, tmp_path)
        assert f"acp-coder prompt --cwd {here} --session {session_id} " in first.stderr
        await ran(model, tmp_path, "prompt", "--cwd", str(elsewhere), "another folder's")
        done = await ran(model, tmp_path, "prompt", "--continue", "--cwd", str(here), "second")
        assert done.stdout == "three\n", done.stderr
        assert done.stderr == first.stderr
        assert [text(message) for message in without_context(model.requests[2].body["messages"])[1:]] == [
            "first", "one", "second",
        ]  # fmt: skip


Cue = tuple[str, str | Callable[[], object]]
"""What is waited for on the screen, and what is then typed or done."""


async def on_a_terminal(model: FakeModel, home: Path, arguments: Sequence[str], *cues: Cue, **more: str):
    """The exit status and everything that was written; each cue is looked for after the one before it."""

    program = forked_command()

    def talk() -> tuple[int, str]:
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(home)
            os.execve(program, [program, *arguments], environ(home, model.base_url, **{"TERM": "xterm", **more}))
        shown, at, waiting = "", 0, list(cues)
        try:
            while data := _read(fd, shown):
                shown += data.decode("utf-8", "replace")
                while waiting and (found := shown.find(waiting[0][0], at)) >= 0:
                    at = found + len(waiting[0][0])
                    act = waiting.pop(0)[1]
                    act() if callable(act) else os.write(fd, act.encode())
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(fd)  # That hangs up, so not before it has ended.

    return await anyio.to_thread.run_sync(talk)


def _read(fd: int, shown: str) -> bytes:
    """What comes next; nothing at the end."""
    assert select.select([fd], [], [], SECONDS)[0], f"nothing more came behind {shown!r}"
    with suppress(OSError):  # The other end is closed.
        return os.read(fd, 4096)
    return b""


async def test_prompt_on_a_terminal_spins_and_asks(tmp_path):
    async with FakeModel([WRITE, "Done."]) as model:
        status, shown = await on_a_terminal(model, tmp_path, ["prompt", "go"], ("1 to 4:", "nonsense\n1\n"))
        assert status == 0 and "⠋" in shown and "✓" in shown and "Make this change?" in shown
        assert "Always allow edits in this project" in shown and "Please answer y/N or 1 to 4:" in shown
        assert shown.index("+new") < shown.index("1. Allow once (y)")
        assert shown.count("+new") == 1  # The result does not repeat what the question showed.
        assert "permission:" not in shown
        assert (tmp_path / "n.txt").exists()


async def test_a_question_on_a_terminal_shows_the_whole_command_or_change_and_its_end_last(tmp_path):
    command = "".join(f"echo {number}\n" for number in range(29)) + "rm -f precious\x07\u200b"
    write = Call("write", {"path": "n.txt", "content": "".join(f"new {number}\n" for number in range(90))})
    script = [Answer(tool_calls=(Call("bash", {"command": command}),)), Answer(tool_calls=(write,)), "Done."]
    async with FakeModel(script) as model:
        cues = (("y/N or 1 to", "n\n"), ("1 to 4: ", "n\n"))
        status, shown = await on_a_terminal(model, tmp_path, ["prompt", "go"], *cues, TERM="dumb")
    assert status == 0
    lines = [line.strip() for line in shown.replace("\r", "").split("\n")]
    asked = lines.index("Run this?")
    end = asked - lines[asked::-1].index("rm -f precious\\x07\\u200b")
    assert lines[end - 29 : end] == [f"echo {number}" for number in range(29)]
    assert lines[end + 1].startswith("Asked because ") and lines[asked - 1] == lines[end + 1]
    assert "+new 0\r\n  +new 1\r\n" in shown and "+new 89" in shown and "more lines" not in shown and "Done." in shown
    assert not {"\x1b", "⠋"} & set(shown), "a terminal that knows no escape sequences gets none"


@pytest.mark.parametrize(("typed", "written"), [("y", True), ("n", False), ("", False), ("3", False)])
async def test_a_question_on_a_terminal_is_answered_by_a_letter_a_number_or_enter_for_no(tmp_path, typed, written):
    async with FakeModel([WRITE, "Done."]) as model:
        status, shown = await on_a_terminal(model, tmp_path, ["prompt", "go"], ("y/N or 1 to 4:", f"{typed}\n"))
        assert status == 0
        assert ("Allow once\x1b" if written else "Reject\x1b") in shown
        assert (tmp_path / "n.txt").exists() == written


async def test_what_was_typed_before_a_question_and_the_end_of_input_allow_nothing(tmp_path):
    async with FakeModel([WRITE]) as model:
        status, shown = await on_a_terminal(model, tmp_path, ["prompt", "go"], ("⠋", "y\n"), ("1 to 4:", "\x04"))
        assert status == 130 and "not answered" in shown
        assert not (tmp_path / "n.txt").exists()


async def test_prompt_on_a_terminal_shows_the_model_at_work_and_a_command_s_output_as_it_comes(tmp_path):
    bash = Answer(tool_calls=(Call("bash", {"command": "seq 30; until [ -e go ]; do sleep 0.05; done; echo gone on"}),))
    slow = Answer(text=("Done.\n", "Bye."), delay=0.5)
    async with FakeModel([Answer(text="I run it.", hang_before=True), bash, slow]) as model:
        prompt = ["prompt", "--yes", "go"]
        working = ("fake-model \x1b[2m", functools.partial(anyio.from_thread.run_sync, model.release))
        assert (await on_a_terminal(model, tmp_path, prompt, working, ("I run it.", "")))[0] == 0
        live = (("| 30", (tmp_path / "go").touch), ("| gone on", ""), (" s, 16 tokens", ""), ("Bye.", ""))
        status, shown = await on_a_terminal(model, tmp_path, prompt, *live, NO_COLOR="1")
        assert status == 0 and " s, 16 tokens" in shown and "| 25\r\n" in shown[: shown.index("✓")]
        assert "| 24\r\n" not in shown[: shown.index("✓")]
        assert "\x1b[3" not in shown  # No colours.


async def test_a_sentence_without_a_command_is_a_prompt(tmp_path):
    async with FakeModel(["Fixed."]) as model:
        done = await ran(model, tmp_path, "fix it", "--deny")
        assert (done.returncode, done.stdout) == (0, "Fixed.\n"), done.stderr
        assert text(without_context(model.requests[0].body["messages"])[-1]) == "fix it"


async def test_sessions_are_shown_exported_and_deleted(tmp_path):
    async with FakeModel([WRITE, "Done."]) as model:
        await ran(model, tmp_path, "prompt", "--yes", "Write something")
        session_id = await session_of(model, tmp_path)
        shown = (await ran(model, tmp_path, "sessions", "show", session_id[:8])).stdout
        assert "# Write something" in shown and "[ok] Write n.txt" in shown
        done = await ran(model, tmp_path, "sessions", "export", session_id)
        exported = [json.loads(line) for line in done.stdout.splitlines()]
        assert exported[0]["kind"] == "session"
        assert {line["kind"] for line in exported[1:]} == {"turn", "update", "message"}
        assert (await ran(model, tmp_path, "sessions", "delete", session_id)).returncode == 0
        assert (await ran(model, tmp_path, "sessions", "list")).stdout == ""


async def test_a_session_is_taken_back_without_an_editor(tmp_path):
    async with FakeModel([WRITE, "Done."]) as model:
        await ran(model, tmp_path, "prompt", "--yes", "Write something")
        session_id = await session_of(model, tmp_path)
        (written,) = tmp_path.rglob("n.txt")
        listed = (await ran(model, tmp_path, "sessions", "checkpoints", session_id[:8])).stdout
        assert "Write something: 1 file (+1 -0)" in listed
        asked = await ran(model, tmp_path, "sessions", "undo", session_id)
        assert "`/undo 1 yes` does it without a question" in asked.stdout and written.exists()
        done = await ran(model, tmp_path, "sessions", "undo", session_id, "1", "files", "yes")
        assert "1 file restored" in done.stdout and not written.exists(), done.stdout + done.stderr
        official = "https://api.openai.com/v1"  # Without a key.
        await ran(model, tmp_path, "sessions", "redo", session_id, "yes", OPENAI_BASE_URL=official)
        assert written.read_text() == "new\n"


@pytest.mark.parametrize("arguments", [
    ["nonsense"], ["prompt"], ["prompt", " "], ["prompt", "--mode", "fast", "x"], ["prompt", "--yes", "--deny", "x"],
    ["prompt", "--continue", "--session", "1", "x"], ["prompt", "--cwd", "/does/not/exist", "x"], ["sessions"],
    ["sessions", "show", "nope"], ["sessions", "delete", ""], ["--nonsense"], ["login", "--provider", "nope"],
    ["config"],
])  # fmt: skip
def test_a_wrong_command_line_is_one_sentence_and_status_two(tmp_path, arguments):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("acp-coder: ")
    assert done.stderr.count("\n") == 1


def test_config_names_what_is_wrong_and_where_values_come_from(tmp_path):
    wrong = configured(tmp_path, "[tools.bash]\n\ntimout = 3\n")
    done = run(tmp_path, "config", "show", **wrong)
    assert done.returncode == 2
    words = ":3: unknown key `tools.bash.timout`; did you mean `tools.bash.timeout`?"
    assert wrong["ACP_CODER_CONFIG"] + words in done.stderr
    config = configured(tmp_path, '[agent]\nmode = "ask"\n[providers.default]\napi_key = "sk-test-not-a-key"\n')
    done = run(tmp_path, "config", "show", "--origin", **config)
    assert f'agent.mode = "ask"    # {config["ACP_CODER_CONFIG"]}:2' in done.stdout
    assert 'agent.model = "fake-model"    # environment (OPENAI_MODEL)' in done.stdout
    assert "tools.bash.timeout = 60.0    # default" in done.stdout and "sk-test" not in done.stdout


def test_help_and_a_word_that_is_no_command_name_the_commands(tmp_path):
    assert "prompt" in run(tmp_path, "--help").stdout
    assert "did you mean `acp-coder doctor`?" in run(tmp_path, "docter").stderr
    assert '`acp-coder -p "fix"`' in run(tmp_path, "fix").stderr


def test_login_keeps_the_key_privately_and_logout_forgets_it(tmp_path):
    done = run(tmp_path, "login", stdin="sk-test-not-a-key\n")
    assert done.returncode == 0
    file = tmp_path / ".config" / "acp-coder" / "credentials.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == {"default": "sk-test-not-a-key"}
    assert "sk-test" not in done.stdout + done.stderr
    assert run(tmp_path, "logout").returncode == 0
    assert json.loads(file.read_text()) == {}


@pytest.mark.parametrize("typed", ["", "\n", "two words\n"])
def test_login_without_a_key_changes_nothing(tmp_path, typed):
    assert run(tmp_path, "login", stdin=typed).returncode == 2 and not (tmp_path / ".config").exists()


async def test_doctor_says_what_works(tmp_path):
    async with FakeModel([]) as model:
        done = await ran(model, tmp_path, "doctor")
        assert done.returncode == 0, done.stdout
        assert first_line(done).startswith("Ready. Begin with `acp-coder`") and "BAD" not in done.stdout
        wall = ("PATH", "agent.log", "OPENAI_BASE_URL")
        assert not [words for words in wall if words in done.stdout] and "acp-coder doctor --all" in done.stdout
        shown = (await ran(model, tmp_path, "doctor", "--all")).stdout
        for words in ("reachable, 1 models: fake-model", "not needed", "bash", *wall):
            assert words in shown and (words in wall or words in done.stdout)


def test_doctor_names_keys_and_servers_and_hides_what_they_are_given(tmp_path):
    keys = {"ANTHROPIC_API_KEY": "x", "GROQ_API_KEY": "y", "OPENAI_MODEL": "", "OPENAI_BASE_URL": ""}
    done = run(tmp_path, "doctor", "--offline", "--all", **keys)
    words = "keys found: anthropic (ANTHROPIC_API_KEY), groq (GROQ_API_KEY); the default is anthropic"
    assert words in done.stdout and "anthropic: messages at https://api.anthropic.com/v1" in done.stdout
    config = configured(
        tmp_path,
        '[mcp.servers.good]\ncommand = "sh"\nenv = { TOKEN = "tangerine" }\n'
        '[mcp.servers.bad]\ncommand = "no-such-program"\n'
        '[mcp.servers.web]\nurl = "https://example.com/mcp"\nheaders = { Authorization = "tangerine" }\n',
    )
    shown = run(tmp_path, "doctor", "--offline", **config).stdout
    assert "ok  MCP good" in shown and "BAD MCP bad          the program 'no-such-program' was not found" in shown
    assert "ok  MCP web" in shown
    listed = run(tmp_path, "config", "show", **config).stdout
    assert 'mcp.servers.good.env = "(set)"' in listed
    assert "tangerine" not in shown + listed


async def test_doctor_warns_of_a_model_that_the_server_does_not_list(tmp_path):
    async with FakeModel([], models=["one", "two:latest", *(f"a{n}" for n in range(7))]) as model:
        done = await ran(model, tmp_path, "doctor", OPENAI_MODEL="three")
        assert done.returncode == 0
        listed = "only one, two:latest, a0, a1, a2, a3, a4, a5 and 1 more"
        assert f"!   model            the server does not list 'three', {listed}\n" in done.stdout
        assert first_line(done).startswith("Look at: model: the server does not list 'three'")
        assert "OPENAI_MODEL" in first_line(done)
        for known in ("two", ""):  # A name without Ollama's tag, and no name at all.
            done = await ran(model, tmp_path, "doctor", OPENAI_MODEL=known)
            assert first_line(done).startswith("Ready. "), done.stdout


REFUSED = Failure(500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}})


@pytest.mark.parametrize("refusal", ["in words", "in its properties"])
async def test_doctor_says_that_a_server_has_no_tools(tmp_path, refusal):
    known = [{"id": "fake-model", "owned_by": "llamacpp"}]
    async with FakeModel([REFUSED] * 2 if refusal == "in words" else [], models=known) as model:
        if refusal == "in its properties":
            model.speaking(ChatCompletions).properties = {"chat_template_caps": {"supports_tools": False}}
        done = await ran(model, tmp_path, "doctor")
        assert "!   tools            the server passes no tools on to the model" in done.stdout, done.stdout
        assert first_line(done).startswith("Look at: tools: ")


def test_doctor_begins_with_what_is_bad_and_what_to_do(tmp_path):
    for text, bad, fix in (
        ("[agent]\nmoode = 1\n", "BAD configuration", "Correct that in the file"),
        ('[agent]\nprovider = "nope"\n', "BAD ", "[providers.NAME]"),
        ('[providers.default]\nbase_url = "https://models.invalid/v1"\n', "BAD key", "acp-coder login"),
        ('[providers.default]\nbase_url = "http://127.0.0.1:9/v1"\n', "BAD server", "Start the server"),
        ('[mcp.servers.bad]\ncommand = "no-such-program"\n', "BAD MCP bad", "no-such-program"),
    ):
        config = configured(tmp_path, text)
        offline = ["--offline"] if "mcp" in text else []
        done = run(tmp_path, "doctor", *offline, **config, **{} if "mcp" in text else {"OPENAI_BASE_URL": ""})
        assert done.returncode == 1, done.stdout
        assert first_line(done).startswith("Not ready: "), done.stdout
        assert fix in first_line(done) and bad in done.stdout


def test_the_demo_mends_the_sample_or_fails(tmp_path):
    done = run(tmp_path, "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with recorded answers" in done.stdout and "FAILED (failures=2)" in done.stdout
    assert "The sample's tests: red before, green after." in done.stdout
    assert not (tmp_path / ".local").exists()
    # A `python3` that always fails, on the path before the real one, stands for a sample that cannot be repaired.
    (broken := tmp_path / "bin").mkdir()
    (broken / "python3").write_text("#!/bin/sh\nexit 1\n")
    (broken / "python3").chmod(0o755)
    done = run(tmp_path, "demo", PATH=f"{broken}:{os.environ['PATH']}")
    assert done.returncode != 0 and "still red" in done.stdout


def test_prompt_in_a_session_that_does_not_exist_is_a_usage_error(tmp_path):
    done = run(tmp_path, "prompt", "--session", "nope", "go", base_url="http://127.0.0.1:9/v1")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "acp-coder: session 'nope' does not exist; `acp-coder sessions list` shows them\n"


def test_login_and_doctor_mean_the_provider_that_the_model_names(tmp_path):
    remote = '[agent]\nmodel = "remote:m"\n[providers.remote]\nbase_url = "https://models.invalid/v1"\n'
    settings = {**configured(tmp_path, remote), "OPENAI_MODEL": ""}
    assert "BAD key" in run(tmp_path, "doctor", "--offline", **settings).stdout
    assert "The key for remote is stored" in run(tmp_path, "login", stdin="sk-test-not-a-key\n", **settings).stderr
    shown = run(tmp_path, "doctor", "--offline", **settings).stdout
    assert "remote: chat at https://models.invalid/v1" in shown and "BAD" not in shown


async def test_sessions_in_a_terminal_have_one_line_each_however_long_their_titles_are(tmp_path):
    async with FakeModel(["ok"]) as model:
        assert (await ran(model, tmp_path, "prompt", "a title of words " * 9)).returncode == 0
        status, shown = await on_a_terminal(model, tmp_path, ["sessions", "list"], COLUMNS="60")
    head, row = shown.splitlines()
    assert status == 0 and head.startswith("ID        LAST USED") and len(row) <= 60 and "  a title" in row


async def test_a_provider_that_is_not_configured_is_told_with_those_that_are(tmp_path):
    missing = Failure(404, {"error": {"message": "no such model", "code": "model_not_found"}})
    async with FakeModel([missing, "ok"]) as model:
        here = f'[providers.here]\nbase_url = "{model.base_url}"\n[agent]\nprovider = "here"\n'
        settings = {**configured(tmp_path, here), "OPENAI_BASE_URL": ""}
        told = "the provider {!r} is not in the configuration; configured: {}"
        done = await ran(model, tmp_path, "prompt", "--model", "nope:m", "go", **settings)
        assert done.returncode == 1 and "no such model" in done.stderr
        assert told.format("nope", "here") in done.stderr
        done = await ran(model, tmp_path, "login", "--provider", "nope", **settings)
        assert told.format("nope", "here") in done.stderr
        assert (await ran(model, tmp_path, "sessions", "list", **settings)).stdout == ""  # Nothing was said in any.
        assert (await ran(model, tmp_path, "prompt", "go", **settings)).stdout == "ok\n"
        configured(tmp_path, here.replace("here", "there"))
        done = await ran(model, tmp_path, "prompt", "--continue", "go", **settings)
        assert done.returncode == 1
        assert told.format("here", "there") in done.stderr


async def test_the_responses_api_of_another_server_than_openais_is_asked_for_its_model(tmp_path):
    async with FakeModel(["ok"], models=["its-own"]) as model:
        done = await ran(model, tmp_path, "prompt", "go", OPENAI_MODEL="", ACP_CODER_API="responses")
        assert done.returncode == 0, done.stdout
        assert model.requests[0].path.endswith("/responses") and model.requests[0].body["model"] == "its-own"


async def test_context_knows_the_window_in_a_fresh_process(tmp_path):
    async with FakeModel(["ok"], models=[{"id": "fake-model", "context_length": 32768}]) as model:
        await ran(model, tmp_path, "prompt", "go")
        for api in ("chat", "responses"):
            done = await ran(model, tmp_path, "prompt", "--continue", "/context", ACP_CODER_API=api)
            assert "The model can hold 32,768 tokens" in done.stdout


async def test_prompt_with_yes_leaves_a_question_unanswered(tmp_path):
    ask = Answer(tool_calls=(Call("ask_user", {"question": "Delete all?", "choices": ["yes", "no"]}),))
    async with FakeModel([ask, "As you like."]) as model:
        done = await ran(model, tmp_path, "prompt", "--yes", "go")
        assert done.returncode == 0, done.stderr
        assert "not answered: nobody to ask" in done.stderr
        assert "declined to answer" in model.requests[1].body["messages"][-1]["content"]
