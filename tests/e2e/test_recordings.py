"""Recordings on the command line: made by one run, played by another."""

import json
import shutil
import socket
from argparse import Namespace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.commands import play
from acp_agent.errors import ProviderError
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel
from tests.agent.kit import put, rig
from tests.forked import forked_command
from tests.llm.kit import collect, make

from .kit import configured, environ, spawned
from .test_cli import run

TOKEN = "gh" + "p_" + "A1b2C3d4E5f6G7h8J9k0" * 2
PROMPT = '{"session":1,"prompt"'
WORK = (
    Answer(
        text=("I lo", "ok."),
        tool_calls=(Call("read", {"path": "a.txt"}), Call("bash", {"command": f"echo hi; echo {TOKEN[:40]}"})),
    ),
    Answer(text="I write.", tool_calls=(Call("write", {"path": "n.txt", "content": "new\n"}),)),
    Answer(text=("Do", "ne.")),
)


def folder(tmp_path: Path, name: str) -> Path:
    put((made := tmp_path / name) / "a.txt", "one\ntwo\nthree\n")
    return made


async def recorded(tmp_path: Path, *options: str, script=WORK, prompt: str = "go", **more: str) -> Path:
    """A recording of a prompt in `tmp_path/first`; `second` is a copy of that folder as it was."""
    first = folder(tmp_path, "first")
    shutil.copytree(first, tmp_path / "second")
    file = tmp_path / "r.jsonl"
    flags = ["--yes", "--cwd", str(first), "--record", str(file), *options]
    async with FakeModel(script) as model:
        done = await anyio.to_thread.run_sync(
            lambda: run(tmp_path, "prompt", *flags, prompt, base_url=model.base_url, **more)
        )
    assert done.returncode in (0, 1), done.stderr
    return file


async def replayed(tmp_path: Path, file: Path, *options: str, **more: str):
    """No server is at the base URL."""
    flags = ["replay", str(file), "--cwd", str(tmp_path / "second"), *options]
    return await anyio.to_thread.run_sync(lambda: run(tmp_path, *flags, **more))


async def test_a_recorded_prompt_is_played_in_another_folder_and_asks_again_without_yes(tmp_path):
    file = await recorded(tmp_path)
    done = await replayed(tmp_path, file)
    assert "I look." in done.stdout and "rejected: nobody to ask" in done.stdout
    assert not (tmp_path / "second/n.txt").exists()
    assert "has no answer to this request" in done.stdout and done.returncode == 1
    done = await replayed(tmp_path, file, "--check", "--yes")
    assert (done.stdout, done.returncode) == ("3 requests, all as recorded\n", 0), done.stderr
    assert (tmp_path / "second/n.txt").read_text() == "new\n"
    text = file.read_text()
    assert TOKEN[:40] not in text and str(tmp_path / "first") not in text
    assert '"text":"I lo"' in text and '"text":"ok."' in text


async def test_what_was_rejected_is_rejected_again_with_yes(tmp_path):
    first = folder(tmp_path, "first")
    shutil.copytree(first, tmp_path / "second")
    file = tmp_path / "r.jsonl"
    async with FakeModel(WORK) as model:
        flags = ["prompt", "--deny", "--cwd", str(first), "--record", str(file), "go"]
        await anyio.to_thread.run_sync(lambda: run(tmp_path, *flags, base_url=model.base_url))
    assert (await replayed(tmp_path, file, "--check", "--yes")).stdout == "3 requests, all as recorded\n"
    assert not (tmp_path / "second/n.txt").exists()


async def test_mode_auto_is_played_only_with_yes(tmp_path):
    file = await recorded(tmp_path, "--mode", "auto")
    done = await replayed(tmp_path, file, "--check")
    assert done.returncode == 1 and "-Mode: Auto" in done.stdout
    assert not (tmp_path / "second/n.txt").exists()
    assert (await replayed(tmp_path, file, "--check", "--yes")).returncode == 0


async def test_changed_files_prompts_and_requests_not_made_are_shown_as_differences(tmp_path):
    file = await recorded(tmp_path)
    lines = file.read_text().splitlines(keepends=True)
    (tmp_path / "second/a.txt").write_text("one\nTWO\nthree\n")
    done = await replayed(tmp_path, file, "--check", "--yes")
    assert done.returncode == 1 and "from request 2 of the recording in message 3 (tool):" in done.stdout
    assert "two" in done.stdout and "TWO" in done.stdout and len(done.stdout.splitlines()) < 30
    (tmp_path / "second/a.txt").write_text("one\ntwo\nthree\n")
    changed = [line.replace('"text":"go"', '"text":"stay"') if line.startswith(PROMPT) else line for line in lines]
    file.write_text("".join(changed))
    done = await replayed(tmp_path, file, "--check", "--yes")
    assert done.returncode == 1 and "in message 1 (user):" in done.stdout
    assert "-content: text: go\n+content: text: stay" in done.stdout
    file.write_text("".join(line for line in lines if not line.startswith(PROMPT)))
    assert "has no prompts" in (await replayed(tmp_path, file, "--check", "--yes")).stderr
    request = next(line for line in lines if line.startswith('{"request"'))
    more = json.loads(request) | {"request": 9, "model": "another"}
    file.write_text("".join([*lines, json.dumps(more) + "\n", '{"answer":9,"events":[]}\n']))
    done = await replayed(tmp_path, file, "--check", "--yes")
    assert done.stdout == "1 of 4 recorded requests were not made; the first is request 9.\n" and done.returncode == 1


async def test_a_fallback_and_the_error_before_it_are_played(tmp_path):
    config = '[agent]\nfallback_models = ["default/other"]\n[providers.default]\nmax_retries = 0\n'
    (tmp_path / "config.toml").write_text(config)
    script = [Failure(529, {"error": {"message": "overloaded"}}), *WORK]
    file = await recorded(tmp_path, script=script, ACP_CODER_CONFIG=str(tmp_path / "config.toml"))
    assert (await replayed(tmp_path, file, "--check", "--yes")).stdout == "4 requests, all as recorded\n"
    (tmp_path / "second/n.txt").unlink()
    assert "`default/other` goes on" in (await replayed(tmp_path, file, "--yes")).stdout


async def test_sub_agents_that_work_side_by_side_get_their_own_answers(tmp_path):
    agents = [Call("delegate", {"prompt": f"Find {name}.", "title": name}) for name in ("red", "blue", "green")]

    def script(body):
        messages = body["messages"]
        if any("red" in str(message["content"]) and message["role"] == "user" for message in messages):
            return "It is red."
        for name in ("blue", "green"):
            if messages[-1]["role"] == "user" and messages[-1]["content"].endswith(f"Find {name}."):
                return f"It is {name}."
        return "done" if messages[-1]["role"] == "tool" else Answer(tool_calls=tuple(agents))

    file = await recorded(tmp_path, script=script)
    assert file.read_text().count('{"request"') == 5
    assert (await replayed(tmp_path, file, "--check", "--yes")).stdout == "5 requests, all as recorded\n"


async def test_the_provider_replay_answers_in_an_editor(tmp_path):
    file = tmp_path / "r.jsonl"
    async with rig(tmp_path, WORK, environ={"ACP_CODER_RECORD": str(file)}) as r:
        (r.project / "a.txt").write_text("one\n")
        first = await r.editor.prompt("go")
        words = r.editor.text()
    shutil.rmtree(r.project)
    async with rig(tmp_path, (), config=f'[providers.default]\napi = "replay"\nscript = "{file}"\n') as r:
        (r.project / "a.txt").write_text("one\n")
        assert ((await r.editor.prompt("go")).stop_reason, r.editor.text()) == (first.stop_reason, words)
        assert r.model.requests == []
        with pytest.raises(Exception, match="has no answer to this request"):
            await r.editor.prompt("something else")


def test_playing_back_connects_to_nothing(tmp_path, monkeypatch):
    file = anyio.run(lambda: recorded(tmp_path))
    used = []

    def connect(self, address):
        used.append(address)
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: connect(None, a))
    env = environ(tmp_path, ACP_CODER_RECORD="")
    options = Namespace(file=str(file), cwd=str(tmp_path / "second"), check=True, yes=True, timed=False, mode=None)
    assert play.run(options, env) == 0
    assert used == []
    with pytest.raises(ProviderError):  # The control: a model would be connected to.
        anyio.run(collect, make("chat", "http://127.0.0.1:9/v1"))
    assert used


async def test_a_secret_is_not_recorded_even_where_redaction_is_switched_off(tmp_path):
    settings = {**configured(tmp_path, "[secrets]\nredact = false\n"), "OPENAI_API_KEY": "my-own-key-of-no-form"}
    script = [Answer(text=(f"use {TOKEN[:9]}", TOKEN[9:40])), "x"]
    wire = ("--record-wire", str(tmp_path / "r.jsonl"))
    file = await recorded(tmp_path, *wire, script=script, prompt=f"{TOKEN[:40]} my-own-key-of-no-form", **settings)
    text = file.read_text()
    assert TOKEN[:40] not in text and "my-own-key" not in text
    assert TOKEN[9:40] not in text
    assert (await replayed(tmp_path, file, "--check", "--yes", **settings)).stdout == "1 request, all as recorded\n"


async def test_the_wire_is_played_with_its_questions_and_terminals(tmp_path):
    file = tmp_path / "r.jsonl"
    (tmp_path / "project").mkdir()
    (tmp_path / "second").mkdir()
    for name in ("project", "second"):
        (tmp_path / name / "a.txt").write_text(f"one {TOKEN[:40]}\n")
    script = [Answer(tool_calls=(Call("read", {"path": "a.txt"}), Call("bash", {"command": "make hi"}))), *WORK[1:]]
    both = {"ACP_CODER_RECORD": str(file), "ACP_CODER_RECORD_WIRE": str(file)}
    async with spawned(tmp_path, script, command=forked_command(), environ=both, permissions=[allow_once]) as (
        editor,
        _,
    ):
        assert (await editor.prompt("go")).stop_reason == "end_turn"
    text = file.read_text()
    assert '"method":"terminal/create"' in text and '"method":"session/request_permission"' in text
    assert TOKEN[:40] not in text
    refused = await replayed(tmp_path, file, "--check")
    assert "if you trust it" in refused.stderr and refused.returncode == 2
    done = await replayed(tmp_path, file, "--check", "--yes")
    assert (done.stdout, done.returncode) == ("3 requests, all as recorded\n", 0), done.stderr
    assert (tmp_path / "second/n.txt").read_text() == "new\n"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([line.replace('"stopReason":"end_turn"', '"stopReason":"refusal"') for line in lines]))
    (tmp_path / "second/n.txt").unlink()
    differs = await replayed(tmp_path, file, "--check", "--yes")
    assert "-stopReason: refusal\n+stopReason: end_turn" in differs.stdout and differs.returncode == 1


async def test_a_report_is_a_folder_of_files_to_read_without_credentials(tmp_path):
    file = await recorded(tmp_path)
    (tmp_path / "config.toml").write_text(
        '[providers.default]\napi_key = "my-own-key-of-no-form"\n[agent]\ninstructions = "Be my-own-key-of-no-form."\n'
    )
    settings = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml"), "ACP_CODER_LOG_FILE": str(tmp_path / "agent.log")}
    (tmp_path / "agent.log").write_text(f"WARNING the key {TOKEN[:40]} was refused\n")
    file.write_text(file.read_text().replace("I lo", f"{TOKEN[:40]} I lo"))
    done = await anyio.to_thread.run_sync(lambda: run(tmp_path, "report", str(file), **settings))
    assert done.returncode == 0, done.stderr
    assert "Nothing was sent." in done.stdout
    files = {each.name: each.read_text() for each in (tmp_path / "acp-coder-report").iterdir()}
    assert set(files) == {"recording.jsonl", "doctor.txt", "log.txt"} and "was refused" in files["log.txt"]
    assert "agent.instructions" in files["doctor.txt"] and "acp-coder" in files["doctor.txt"]
    for text in files.values():
        assert TOKEN[:40] not in text and "my-own-key" not in text
    again = await anyio.to_thread.run_sync(lambda: run(tmp_path, "report", str(file), **settings))
    assert again.returncode == 2 and "exists already" in again.stderr


async def test_a_stored_session_is_exported_as_a_recording_and_played(tmp_path):
    await recorded(tmp_path)
    listed = await anyio.to_thread.run_sync(lambda: run(tmp_path, "sessions", "list"))
    file = tmp_path / "session.jsonl"
    id_ = listed.stdout.split()[0]
    done = await anyio.to_thread.run_sync(lambda: run(tmp_path, "sessions", "export", id_, str(file)))
    assert done.stdout == f"{file}: 3 requests\n"
    assert TOKEN[:40] not in file.read_text()
    played = await replayed(tmp_path, file, "--check", "--yes")
    assert (played.stdout, played.returncode) == ("3 requests, all as recorded\n", 0)


async def test_wrong_uses_of_recordings_are_said_in_a_sentence(tmp_path):
    (tmp_path / "second").mkdir()
    (tmp_path / "other.txt").write_text("hello\n")
    for file, words in ((tmp_path / "none", "cannot be read"), (tmp_path / "other.txt", "is not a recording")):
        done = await replayed(tmp_path, file)
        assert (done.returncode, done.stdout) == (2, "") and words in done.stderr
    before = await anyio.to_thread.run_sync(lambda: run(tmp_path, "--record", "x", "prompt", "go"))
    assert "--record stands behind the command" in before.stderr and before.returncode == 2
    other = await anyio.to_thread.run_sync(lambda: run(tmp_path, "--ssh", "x", "doctor"))
    assert "--ssh is an option of `acp-coder` and `acp-coder prompt`, not of doctor" in other.stderr


async def test_the_agent_itself_takes_the_option(tmp_path):
    file = tmp_path / "r.jsonl"
    start = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    done = await anyio.to_thread.run_sync(
        lambda: run(tmp_path, "--record-wire", str(file), stdin=json.dumps(start) + "\n")
    )
    assert '"protocolVersion":1' in done.stdout
    wire = [json.loads(line) for line in file.read_text().splitlines()][1:]
    assert [(line["wire"], line["message"]["id"]) for line in wire] == [("in", 0), ("out", 0)]


async def test_a_turn_that_the_user_cancelled_is_played_on_the_wire(tmp_path):
    file = tmp_path / "r.jsonl"
    (tmp_path / "second").mkdir()
    both = {"ACP_CODER_RECORD": str(file), "ACP_CODER_RECORD_WIRE": str(file)}
    held = Answer(text=("Some ", "words ", "more"), hang_after=2)
    async with spawned(tmp_path, [held, "Next."], command=forked_command(), environ=both) as (editor, _):
        turn = editor.begin("go")
        await editor.wait_until(lambda: "Some words" in editor.text())
        editor.cancel()
        assert (await turn.response()).stop_reason == "cancelled"
        await editor.prompt("again")
    assert '"cut":true' in file.read_text()
    done = await replayed(tmp_path, file, "--check", "--yes")
    assert (done.stdout, done.returncode) == ("2 requests, all as recorded\n", 0)
