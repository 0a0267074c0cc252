"""Every sample of docs/extending.md runs, and a package of others has the public surface."""

import json
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import acp_agent.api
from acp_agent.lazy import load
from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests import containers
from tests.e2e.kit import COMMAND, environ
from tests.files import put, puts

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
SAMPLE = re.compile(r"^```\w+ sample=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAMPLES = dict(SAMPLE.findall(PAGE))
PACKAGE = ROOT / "tests/api_package"


async def run(argv: list[str], cwd: Path, env: dict[str, str]) -> str:
    """What it prints."""
    with anyio.fail_after(60):
        done = await anyio.run_process(argv, cwd=cwd, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def prompt(home: Path, text: str, base_url: str, *options: str, **more: str) -> str:
    argv = [COMMAND, "prompt", "--yes", *options, text]
    return await run(argv, home / "project", {**environ(home, base_url), **more})


def results(model: FakeModel) -> list[str]:
    return [each["content"] for each in model.requests[-1].body["messages"] if each["role"] == "tool"]


def call(tool: str, /, **arguments: object) -> Answer:
    return Answer(tool_calls=(Call(tool, arguments),))


def test_the_samples_are_those_that_are_run_here():
    assert SAMPLES.keys() == {
        "words.py", "provider", "place", "filters.toml", "hook", "check-push", "plugin.json",
        "skills/deploy/SKILL.md", "front.py",
    }  # fmt: skip


async def test_the_tool_in_ten_lines(tmp_path):
    assert len(SAMPLES["words.py"].splitlines()) <= 11
    site = tmp_path / "site"
    puts(site, {"my_package/__init__.py": "", "my_package/tools.py": SAMPLES["words.py"]})
    put(site / "mine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    points = re.search(r'^\[project\.entry-points\."acp_coder\.tools"\]\n(words = .*)$', PAGE, re.MULTILINE)
    assert points is not None
    put(site / "mine-1.dist-info/entry_points.txt", f"[acp_coder.tools]\n{points[1].replace(chr(34), '')}\n")
    (tmp_path / "project").mkdir()
    async with FakeModel([call("word_count", text="one two"), "done"]) as model:
        await prompt(tmp_path, "go", model.base_url, PYTHONPATH=str(site))
        assert results(model) == ["2"]


async def test_the_provider(tmp_path):
    (tmp_path / "project").mkdir()
    async with FakeModel(["hello"]) as model:
        put(tmp_path / "config.toml", SAMPLES["provider"].replace("https://models.example/v1", model.base_url))
        none = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_MODEL"), "")
        more = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml"), "MINE_KEY": "key-1", **none}
        assert "hello" in await prompt(tmp_path, "hi", "", **more)
        (request,) = model.requests
        assert request.body["model"] == "large" and request.headers["authorization"] == "Bearer key-1"


async def test_the_place(tmp_path):
    if why := containers.missing():
        pytest.skip(why)
    (tmp_path / "project").mkdir()
    text = SAMPLES["place"].replace("docker.io/library/debian:stable-slim", containers.WITH_BASH)
    put(tmp_path / "config.toml", f"{text}arguments = {json.dumps(containers.ARGUMENTS)}\n")
    more = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml"), "ACP_CODER_PLACE": "build"}
    async with FakeModel([call("bash", command="command -v python3 || echo inside"), "done"]) as model:
        await prompt(tmp_path, "go", model.base_url, "--mode", "auto", **more)
        assert "inside" in results(model)[0]


async def test_the_hook(tmp_path):
    (tmp_path / "project").mkdir()
    put(tmp_path / "bin/check-push", SAMPLES["check-push"]).chmod(0o755)
    put(tmp_path / "config.toml", SAMPLES["hook"])
    script = [call("bash", command="git push --force"), call("bash", command="echo git push"), "done"]
    async with FakeModel(script) as model:
        more = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
        await prompt(tmp_path, "go", model.base_url, "--mode", "auto", **more)
        refused, other = results(model)
        assert "The hook `no force` does not allow this call: Do not push by force" in refused
        assert other.strip().startswith("git push")


async def test_the_plugin(tmp_path):
    (tmp_path / "project").mkdir()
    for name in ("plugin.json", "skills/deploy/SKILL.md"):
        put(tmp_path / "source" / name, SAMPLES[name])
    env = environ(tmp_path)
    await run([COMMAND, "plugin", "check", str(tmp_path / "source")], tmp_path, env)
    await run([COMMAND, "plugin", "add", str(tmp_path / "source"), "--yes"], tmp_path, env)
    async with FakeModel([call("skill", name="tools:deploy"), "done"]) as model:
        await prompt(tmp_path, "go", model.base_url)
        assert "look at the dashboard" in results(model)[0]


async def test_the_filter(tmp_path):
    put(tmp_path / ".config/acp-coder/filters.toml", SAMPLES["filters.toml"])
    script = put(
        tmp_path / "project/build.sh", '#!/bin/sh\nfor n in $(seq 90); do echo "[$n/90] compile"; done\necho built\n'
    )
    script.chmod(0o755)
    async with FakeModel([call("bash", command="./build.sh"), "done"]) as model:
        await prompt(tmp_path, "go", model.base_url, "--mode", "auto")
        (said,) = results(model)
        assert "built" in said and "compile" not in said


async def test_the_front(tmp_path):
    (tmp_path / "project").mkdir()
    put(tmp_path / "front.py", SAMPLES["front.py"])
    async with FakeModel([call("bash", command="touch made"), "all done"]) as model:
        env = environ(tmp_path, model.base_url)
        env["PATH"] = f"{Path(COMMAND).parent}:{env['PATH']}"
        said = await run([sys.executable, str(tmp_path / "front.py"), "make it"], tmp_path / "project", env)
    assert said.splitlines()[-1] == "end_turn" and "AgentMessageChunk: all done" in said
    assert (tmp_path / "project/made").exists()


SURFACE = ROOT / "tests/e2e/public_surface.json"


def test_the_public_surface_is_what_it_was_and_imports_nothing_before_it_is_used():
    """A name that is taken away, or moves to another class of things, is another first number of API_VERSION."""
    found = {name: type(load(row)).__name__ for name, row in acp_agent.api.ROWS.items()}
    assert json.loads(SURFACE.read_text()) == {"version": list(acp_agent.api.API_VERSION), "names": found}
    program = "import sys, acp_agent.api; print(sorted(name for name in sys.modules if name.startswith('acp_agent')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert eval(done.stdout) == ["acp_agent", "acp_agent.api", "acp_agent.lazy"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = acp_agent.api.nothing
    assert set(acp_agent.api.__all__) <= set(dir(acp_agent.api))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed by pip beside the agent."""
    site, made = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("built")
    options = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    where = ["--target", str(site), str(made / "package")]
    subprocess.run(["cp", "-r", str(PACKAGE), str(made / "package")], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *where], check=True, timeout=120)
    return site


async def test_a_package_of_others_adds_tools(tmp_path, installed):
    put(tmp_path / "project/a.txt", "a long longest word\n")
    script = [
        call("word_count", text="one two three"), call("word_count", text=" "), call("longest_word", path="a.txt"),
        call("longest_word", path="/etc/passwd"), "done",
    ]  # fmt: skip
    async with FakeModel(script) as model:
        await prompt(tmp_path, "go", model.base_url, "--mode", "ask", PYTHONPATH=str(installed))
        first, second, third, fourth = results(model)
        assert first == "3" and "There is no text. Give some." in second and third == "longest"
        assert "outside this session's folders" in fourth


def test_a_package_of_others_has_types(tmp_path):
    """Its types are checked against the surface by mypy, as an author would."""
    config = put(tmp_path / "mypy.ini", "[mypy]\nstrict = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config), str(PACKAGE / "acp_words")], cwd=ROOT,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
