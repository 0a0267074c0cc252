"""`acp-coder -p` in scripts and pipes, with real programs beside it."""

import os
import signal
from pathlib import Path

import pytest

from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel
from tests.agent.kit import without_context
from tests.e2e.kit import alive, configured
from tests.e2e.test_cli import WRITE, on_a_terminal, session_of, text
from tests.e2e.test_scripts import sh


def said(model: FakeModel, number: int = 0) -> str:
    return text(without_context(model.requests[number].body["messages"])[-1])


async def test_what_is_piped_in_belongs_to_the_prompt(tmp_path):
    (tmp_path / "log").write_text("boom\n")
    lines = {
        "cat log | acp-coder -p explain this": "explain this\n\nboom", "acp-coder -p < log": "boom",
        "cat log | acp-coder prompt -": "boom",
        "acp-coder -m fake-model -p 'explain this' < log": "explain this\n\nboom",
        "cat log | acp-coder fix the test": "fix the test\n\nboom", "acp-coder -p -- --yes?": "--yes?",
    }  # fmt: skip
    async with FakeModel(lambda _: "ok") as model:
        for line, prompt in lines.items():
            done = await sh(model, tmp_path, line)
            assert (done.returncode, done.stdout) == (0, "ok\n"), f"{line}: {done.stderr}"
            assert said(model, -1) == prompt, line


async def test_deny_refuses_what_was_always_allowed(tmp_path):
    async with FakeModel([WRITE, "Written."] * 3) as model:
        await on_a_terminal(model, tmp_path, ["prompt", "go"], ("1 to 4:", "2\n"))
        (tmp_path / "n.txt").unlink()
        assert (await sh(model, tmp_path, "acp-coder -p go")).returncode == 0 and (tmp_path / "n.txt").exists()
        (tmp_path / "n.txt").unlink()
        done = await sh(model, tmp_path, "acp-coder -p --deny go")
        assert done.returncode == 0 and "rejected (--deny)" in done.stderr and not (tmp_path / "n.txt").exists()


async def test_background_processes_are_named_and_can_be_left_running(tmp_path):
    start = Answer(tool_calls=(Call("bash", {"command": "echo up; exec sleep 600", "background": True}),))
    async with FakeModel([start, "Started.", start, "Started."]) as model:
        done = await sh(model, tmp_path, "acp-coder -p -y go")
        assert "ends with this run: `echo up; exec sleep 600` (process " in done.stderr
        ended = int(done.stderr.split("(process ")[1].split(")")[0])
        assert not alive(ended)
        done = await sh(model, tmp_path, "acp-coder -p -y --keep-running go")
        stop = done.stderr.split("Stop it: kill -- -")[1].split(".")[0]
        left, file = int(stop), Path(done.stderr.split("Its output: ")[1].split(". Stop")[0])
        try:
            assert alive(left) and file.read_text() == "up\n"
        finally:
            os.killpg(left, signal.SIGKILL)
            file.unlink()


async def test_configuration_models_and_sessions_from_the_command_line(tmp_path):
    async with FakeModel(["ok"], models=("fake-model", "other")) as model:
        file = tmp_path / ".config" / "acp-coder" / "config.toml"
        assert (await sh(model, tmp_path, "acp-coder config path")).stdout == f"{file}\n"
        done = await sh(
            model, tmp_path, "acp-coder config set agent.mode ask && acp-coder config set agent.max_cost 2.5"
        )
        assert done.returncode == 0 and file.read_text() == '[agent]\nmode = "ask"\nmax_cost = 2.5\n'
        done = await sh(model, tmp_path, "acp-coder config set agent.mode fast")
        assert done.returncode == 2 and f"{file}:2" in done.stderr and '"ask"' in file.read_text()
        shown = (await sh(model, tmp_path, "acp-coder config show --changed")).stdout
        assert 'agent.mode = "ask"\n' in shown and "undo.enabled" not in shown
        done = await sh(model, tmp_path, "EDITOR='sed -i s/ask/fast/' acp-coder config edit")
        assert done.returncode == 2 and "agent.mode" in done.stderr
        assert (await sh(model, tmp_path, "acp-coder config check")).returncode == 2
        file.unlink()
        assert (await sh(model, tmp_path, "acp-coder config check")).returncode == 0
        listed = (await sh(model, tmp_path, "acp-coder models")).stdout
        assert listed == "fake-model (in use)\nother\n"
        await sh(model, tmp_path, "acp-coder -p go")
        session = await session_of(model, tmp_path)
        await sh(model, tmp_path, f"acp-coder sessions rename {session[:8]} A better title")
        assert "A better title" in (await sh(model, tmp_path, "acp-coder sessions list")).stdout
        await sh(model, tmp_path, "acp-coder -p /cost")  # What the program itself answers leaves no session.
        shown = (await sh(model, tmp_path, "script -qec 'acp-coder sessions list' /dev/null")).stdout.splitlines()
        assert shown[0].split() == ["ID", "LAST", "USED", "PROMPTS", "COST", "FOLDER", "TITLE"] and len(shown) == 2
        assert shown[1].startswith(f"{session[:8]}  20") and shown[1].endswith("  ~       A better title")


async def test_a_model_that_the_server_does_not_list_is_told_before_it_is_asked_with_the_nearest(tmp_path):
    listed = ("qwen3-coder", "claude-x-5-20261001", "mistral:7b", "tiny:latest")
    async with FakeModel(lambda _: "ok", models=listed) as model:
        done = await sh(model, tmp_path, "acp-coder -p --model qwen3-codr hi")
        assert done.stdout == "ok\n" and model.requests[-1].body["model"] == "qwen3-codr"
        server = model.base_url.split("/")[2]
        words = f"The server at {server} does not list the model `qwen3-codr`; the nearest: `qwen3-coder`."
        assert done.stderr.splitlines()[0].strip() == words
        for name in ("qwen3-coder", "claude-x-5", "claude-x-5-latest", "mistral:7b", "tiny"):
            done = await sh(model, tmp_path, f"acp-coder -p --model {name} hi")
            assert done.stdout == "ok\n" and "does not list" not in done.stderr, name
            assert model.requests[-1].body["model"] == name
        before = len(model.requests)
        done = await sh(model, tmp_path, "acp-coder -p -c --model qwen3-codr hi")
        assert done.returncode == 1 and len(model.requests) == before
        assert "There is no model 'qwen3-codr'; the nearest: qwen3-coder" in done.stderr
        done = await sh(model, tmp_path, "acp-coder -p -c '/model mistral:7b'")
        assert done.stdout == "Model: `mistral:7b`.\n"


async def test_a_server_without_a_list_changes_nothing(tmp_path):
    async with FakeModel(lambda _: "ok", models=Failure(404, {"error": {"message": "no such path"}})) as model:
        for line in ("acp-coder -p --model qwen3-codr hi", "acp-coder -p -c --model other:7b hi"):
            done = await sh(model, tmp_path, line)
            assert done.stdout == "ok\n" and "list" not in done.stderr and "nearest" not in done.stderr
        assert [each.body["model"] for each in model.requests] == ["qwen3-codr", "other:7b"]


async def test_a_model_in_the_configuration_is_named_with_its_line(tmp_path):
    async with FakeModel(lambda _: "ok") as model:
        text = (
            f'[agent]\nmodel = "nope:m2"\n[providers.one]\nbase_url = "{model.base_url}"\n'
            f'[providers.two]\nbase_url = "{model.base_url}"\nmodels = ["m2", "m3"]\n'
        )
        settings = {**configured(tmp_path, text), "OPENAI_BASE_URL": "", "OPENAI_MODEL": ""}
        done = await sh(model, tmp_path, "acp-coder -p hi", **settings)
        assert f"{settings['ACP_CODER_CONFIG']}:2: one does not list the model `nope:m2`;" in done.stderr
        configured(tmp_path, text.replace("nope:m2", "m2"))
        done = await sh(model, tmp_path, "acp-coder -p hi", **settings)
        assert f"{settings['ACP_CODER_CONFIG']}:2: one does not list the model `m2`; " in done.stderr
        assert "the nearest: `two/m2`." in done.stderr
        configured(tmp_path, text.replace("nope:m2", "two/m3").replace("[agent]", '[agent]\nprovider = "one"'))
        done = await sh(model, tmp_path, "acp-coder -p hi", **settings)
        assert f"{settings['ACP_CODER_CONFIG']}:3: one does not list the model `two/m3`; " in done.stderr
        assert "the nearest: `two:m3`." in done.stderr
        configured(tmp_path, text.replace("nope:m2", "two/m3"))
        done = await sh(model, tmp_path, "acp-coder -p hi", **settings)
        assert done.stdout == "ok\n" and model.requests[-1].body["model"] == "m3" and "list" not in done.stderr


@pytest.mark.parametrize("line", ["demo | head -n 20", "man | true", "config show | true", "doctor | true"])
async def test_a_closed_pipe_ends_any_command_quietly_as_a_shell_counts_it(tmp_path, line):
    async with FakeModel() as model:
        done = await sh(model, tmp_path, f"acp-coder {line} > /dev/null; echo ${{PIPESTATUS[0]}}")
        assert (done.stdout, done.stderr) == ("141\n", "")
