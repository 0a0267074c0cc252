"""What Harbor's runner asks of the agent, in the kind of container that benchmarks have."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent import __version__
from acp_agent.lazy import load
from acp_agent.testing.fake_answers import Usage
from acp_agent.testing.fake_model import Answer, Call, FakeModel, Script
from evals.harbor.start import command, jobs
from evals.tasks import Place, chosen, set_up
from evals.tasks import check as check_task
from tests.agent.kit import another

from .bare_root import ROOT, bare
from .harbor_steps import candidates

LAUNCHER = '#!/usr/bin/env sh\nset -eu\ncd {cwd}\nPATH={bin}:$PATH\nexport PATH\nexec acp-coder "$@"\n'
"""As Harbor writes it for an agent from a repository: the agent starts in its own folder."""


MANIFEST = json.loads((ROOT / "harbor-agent.json").read_text())
ENTRY = json.loads((ROOT / "evals" / "harbor" / "agent.json").read_text())


def bash(command: str) -> Call:
    return Call("bash", {"command": command})


PRICES = """
[[agent.prices]]
model = "default/wanted-model"
input = 2
cached = 0.2
output = 10
"""


async def trial(tmp_path: Path, script: Script, **environ: str) -> dict[str, Any]:
    """The summary of a trial of the task `fix-bug` in the bare root, with the model's `requests` and `solved`."""
    (task,) = chosen(["fix-bug"])
    place = Place(tmp_path / "place")
    set_up(task, place)
    assert not check_task(task, place)
    launcher = place.project / ".launch.sh"
    launcher.write_text(LAUNCHER.format(cwd=ROOT / "evals", bin=Path(sys.executable).parent))
    launcher.chmod(0o755)
    (tmp_path / "config.toml").write_text(PRICES)
    async with FakeModel(script, models=("first-model", "wanted-model")) as model:
        command = [
            sys.executable, "-m", "tests.system.evals.harbor_steps", "/app/.launch.sh", task.instruction, "/app/.out",
        ]  # fmt: skip
        words = bare(
            place.project, command, PYTHONPATH=str(ROOT), OPENAI_BASE_URL=model.base_url,
            OPENAI_API_KEY="sk-of-the-benchmark", ACP_CODER_CONFIG="/settings/config.toml", **environ,
        )  # fmt: skip
        # Not in the project: Landlock alone closes a folder around what commands must not write.
        words[words.index("--") : words.index("--")] = [
            "--ro-bind", str(tmp_path / "config.toml"), "/settings/config.toml",
        ]  # fmt: skip
        with anyio.fail_after(60):
            ran = await anyio.run_process(words, check=False, stderr=subprocess.STDOUT)
        assert ran.returncode == 0, ran.stdout.decode()[-3000:]
        requests = [request.body for request in model.requests]
    return {**json.loads((place.project / ".out").read_text()), "requests": requests, "solved": check_task(task, place)}


async def test_a_task_goes_from_red_to_green_in_a_bare_container(tmp_path):
    fixed = {"path": "/app/pages.py", "old_string": "number * size", "new_string": "(number - 1) * size"}
    usage = Usage(1_000, 20, 600)
    script = [
        Answer(tool_calls=(bash("python3 -m unittest 2>&1"),), usage=usage),
        Answer(tool_calls=(Call("read", {"path": "/app/pages.py"}),), usage=usage),
        Answer(
            tool_calls=(Call("edit", fixed), bash("sed -i 's|items // size|-(-items // size)|' pages.py")), usage=usage
        ),
        Answer(tool_calls=(bash("python3 -m unittest 2>&1"), Call("grep", {"pattern": "def page"})), usage=usage),
        Answer(text="Fixed: both tests pass.", usage=usage),
    ]
    server = {"name": "good", "command": sys.executable, "args": ["-m", "tests.mcp.good_server", "stdio"], "env": []}
    done = await trial(
        tmp_path, script, HARBOR_ACP_REQUESTED_MODEL="default/wanted-model",
        HARBOR_ACP_MCP_SERVERS_JSON=json.dumps([server]),
    )  # fmt: skip
    results = [message["content"] for message in done["requests"][-1]["messages"] if message["role"] == "tool"]
    assert done["solved"], "\n---\n".join(results)
    assert "FAILED" in results[0] and "OK" in results[-2] and "pages.py:5:" in results[-1], results
    assert done["said"].endswith("Fixed: both tests pass.") and done["answer"]["stopReason"] == "end_turn"
    assert done["chosen"] == "default/wanted-model" and {body["model"] for body in done["requests"]} == {"wanted-model"}
    assert any("good" in tool["function"]["name"] for tool in done["requests"][-1]["tools"]), "the MCP server's tools"
    counts = done["answer"]["usage"]
    assert (counts["inputTokens"], counts["outputTokens"], counts["cachedReadTokens"]) == (5_000, 100, 3_000)
    assert done["usage_update"]["used"] > 0 and done["asked"] >= 1
    # Five calls of 400 new tokens, 600 cached ones and 20 of the answer.
    cost = done["usage_update"]["cost"]
    assert (round(cost["amount"], 6), cost["currency"]) == (5 * (400 * 2 + 600 * 0.2 + 20 * 10) / 1e6, "USD")


def test_the_bare_root_is_bare(tmp_path):
    script = "for name in git rg bwrap login; do command -v $name; done; echo ${HOME-no home}; ls / /etc; id -u; id -un"
    ran = subprocess.run(bare(tmp_path, ["bash", "-c", script]), capture_output=True, text=True)
    lines = ran.stdout.splitlines()
    assert lines[0] == "no home" and lines[-1] == "0", "root, without a name"
    assert "app" in lines and not {"home", "etc"} & set(lines), lines
    assert "cannot find name" in ran.stderr


async def test_harbor_finds_a_model_whose_server_has_not_been_asked_for_its_list(tmp_path):
    wanted, key = "anthropic/claude-of-tomorrow", {"ANTHROPIC_API_KEY": "sk-of-the-benchmark"}
    found = []
    for more in ({}, {"HARBOR_ACP_REQUESTED_MODEL": wanted}):
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ACP_CODER_KEYRING": "0", **key, **more}
        async with another(environ) as editor:
            session = await editor.client.new_session(tmp_path)
            option = next(option for option in session.config_options if option.category == "model")
            found.append(candidates(wanted, option))
    assert found == [[], [wanted]], "without the variable Harbor would go on with another model and not say so"


def test_the_manifests_are_of_this_version_and_a_checkout_is_taken_without_links():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert MANIFEST["version"] == ENTRY["version"] == __version__
    assert MANIFEST["runtime"]["entrypoint"] == ["acp-coder"] and "acp-coder" in scripts
    assert ENTRY["distribution"]["local"]["args"][-1] == "acp-coder"
    assert (MANIFEST["runtime"]["project"], MANIFEST["runtime"]["lockfile"]) == (".", "uv.lock")
    staged = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = staged.splitlines()
    assert 0 < len(lines) < 10_000
    assert not [line for line in lines if line.startswith("120000")]


def test_keys_reach_harbor_by_their_names_only():
    environ = {"ANTHROPIC_API_KEY": "sk-ant-12345", "OPENAI_BASE_URL": "", "HOME": "/home/ada"}
    words = command("terminal-bench", "anthropic/claude-opus-5", environ, more=["-l", "5"])
    assert "ANTHROPIC_API_KEY=${ANTHROPIC_API_KEY}" in words and "sk-ant-12345" not in " ".join(words)
    assert not [word for word in words if word.startswith(("OPENAI_", "HOME"))] and words[-2:] == ["-l", "5"]
    source = command("own", "openai/gpt-5.1", {}, source="https://example.org/agent.git", ref="v1")
    assert 'source={"repo_url": "https://example.org/agent.git", "ref": "v1"}' in source and "--mounts" not in source


@pytest.mark.parametrize("job", jobs())
def test_the_job_files_name_a_dataset(job):
    read = load("yaml:safe_load")((ROOT / "evals" / "harbor" / f"{job}.yaml").read_text())
    (dataset,) = read["datasets"]
    assert set(dataset) in ({"name", "version"}, {"path"}) and read["environment"] == {"type": "docker"}
    assert (ROOT / dataset.get("path", "evals")).is_dir()
    assert f"JOB={job} " in (ROOT / "evals" / "README.md").read_text()
