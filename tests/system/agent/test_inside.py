"""A session whose commands and files are in a running container: a real one, as the user and the model see it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.commands.parser import agent_variables, build_parser
from acp_agent.config.load import load_config
from acp_agent.config.place_settings import PlaceConfig, find_place
from acp_agent.config.sources import parse
from acp_agent.errors import ConfigError, PeerError
from acp_agent.testing.fake_model import Answer
from tests import containers
from tests.agent.kit import agent_rig, environ_for, put, rig, went
from tests.agent.test_background import model, result
from tests.executors.kit import until_exists
from tests.system.agent.kit import bash, doctor, tool, worked_there
from tests.system.agent.test_terminals import in_terminal, line, look
from tests.waits import until

ROOT = Path(__file__).parents[3]
BUSYBOX = "busybox"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The project, which the container has at /app."""
    (folder := tmp_path / "there").mkdir()
    return folder


@pytest.fixture
def name(there: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """`BUSYBOX`: of a container that has nothing else, else of one with Python."""
    if why := containers.missing():
        pytest.skip(why)
    if getattr(request, "param", "") == BUSYBOX:
        name = containers.start(there, containers.PLAIN, "--env", "FRUIT=papaya", at="/app")
    else:
        name = containers.with_python(there)
    yield name
    containers.remove(name)


@pytest.fixture
def config(name: str) -> str:
    return f'[places.web]\ncontainer = "{name}"\nroot = "/app"\n[agent]\nplace = "web"\n'


def ours(name: str) -> list[str]:
    """Processes in the container that are not its own."""
    own = ("sleep 100000", "catatonit", "podman-init", "/dev/init", "/run/podman-init", "sh -c for f in")
    return [line for line in containers.processes(name) if line.strip() and not any(each in line for each in own)]


def files_of(name: str) -> str:
    """What is in its folder for temporary files."""
    return containers.podman("exec", name, "ls", "-A", "/tmp")


async def until_nothing_is_left(name: str) -> None:
    await until(lambda: not (ours(name) or files_of(name)))


@pytest.mark.parametrize("name", ["with Python", BUSYBOX], indirect=True)
async def test_commands_and_files_are_there_and_everybody_is_told_so(
    tmp_path: Path, config: str, there: Path, name: str, request: pytest.FixtureRequest
) -> None:
    (there / ".env").write_text("KEY=banana")
    command = "pwd; echo $FRUIT; cat .e*; touch made; ls / | grep -x work"
    hidden, reads = config + '[tools.files]\ndeny_read = [".env"]\n', tool("read", path=".env")
    async with worked_there(tmp_path, hidden, there, "in container web", command, reads) as (r, told):
        assert "/app\npapaya\nKEY=banana\n" in told[0] and "deny_read" in told[5] and "banana" not in told[5]
        assert (there / "made").exists()
        said = await r.says("/place")
        assert "Commands run in container web, and files are there: /app (" in said
        assert ("no Python" in said) == (BUSYBOX in request.node.name)
        assert "The container is the wall" in said and "It was not started by acp-coder" in said
        assert "commands there can read it" in said
        assert "no worktrees in container web" in await r.says("/worktree")
        assert ours(name) and files_of(name)
    await until_nothing_is_left(name)


async def test_the_folder_can_be_named_on_the_command_line_or_by_paths(tmp_path: Path, name: str, there: Path) -> None:
    put(there / "sub" / "a.txt", "over there\n")
    mapped = f'[places.web]\ncontainer = "{name}"\npaths = {{ "{tmp_path}/project" = "/app" }}\n'
    for place, file in ((f"container:{name}:/app/sub", "a.txt"), ("container:web", "sub/a.txt")):
        script = [tool("read", path=file), Answer(text="ok")]
        async with went(tmp_path, script, config=mapped, environ={"ACP_CODER_PLACE": place}) as r:
            assert "over there" in json.dumps(r.messages(2))


@pytest.mark.parametrize("mode", ["code", "auto"])
async def test_what_is_not_there_is_one_sentence_and_nothing_runs(tmp_path: Path, name: str, there: Path, mode: str):
    stopped = f"{name}-stopped"
    containers.podman("create", "--name", stopped, containers.PLAIN, "true")
    try:
        for place, words in (
            ("no-such:/app", "podman has no container 'no-such'; with files in it, it has to be one that was started"),
            (f"{stopped}:/app", f"the container '{stopped}' does not run; start it: `podman start {stopped}`"),
            (
                f"{name}:/nowhere",
                f"has no folder /nowhere; another one is named by `--container {name}:DIR`, `root` or",
            ),
        ):
            script = [bash("touch made"), Answer(text="ok")]
            async with rig(tmp_path, script, environ={"ACP_CODER_PLACE": f"container:{place}"}, mode=mode) as r:
                with pytest.raises(PeerError, match=re.escape(words)) as raised:
                    await r.editor.prompt("go")
                assert "\n" not in str(raised.value)
                assert list(r.project.iterdir()) == []
        assert list(there.iterdir()) == []
        await until_nothing_is_left(name)
    finally:
        containers.remove(stopped)


async def test_a_container_is_found_again_once_there_is_another(tmp_path: Path, config: str, name: str, there: Path):
    script = [bash("echo x >one; sleep 60"), Answer(text="ok"), bash("touch two"), Answer(text="ok")]
    async with rig(tmp_path, script, config=config, mode="auto", otherwise=allow_once) as r:
        turn = r.editor.begin("go")
        with anyio.fail_after(60):
            await until_exists(there / "one")
        containers.remove(name)
        await turn.response()
        with pytest.raises(PeerError, match=f"podman has no container '{name}'"):
            await r.editor.prompt("go on")
        containers.with_python(there, "/app", "--name", name)
        assert "what ran there has ended" in json.dumps(r.messages(2))
        await r.editor.prompt("go on")
        assert (there / "two").exists()
        assert "echo x >one" in json.dumps(r.messages(3))
    await until_nothing_is_left(name)


KILLED = """
import os, sys
import anyio
from acp_agent.config.place_settings import PlaceConfig
from acp_agent.executors.base import Command
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.remote_commands import RemoteCommands
from acp_agent.executors.places.engine import is_left, owner
from acp_agent.executors.places.inside_container import Inside
from pathlib import Path
async def main():
    way = Inside("web", PlaceConfig(container=sys.argv[1], root="/app"), os.environ, ())
    commands = RemoteCommands(FarLink(way, owner(), is_left, float(sys.argv[2])))
    await commands.run(Command("setsid sleep 7050 & sleep 7051 & echo x >ready; sleep 7052", Path("/app")))
    await anyio.sleep(60)
anyio.run(main)
"""


@pytest.mark.parametrize("linger", [0.5, 600.0])
async def test_what_a_killed_agent_left_ends(tmp_path: Path, config: str, name: str, there: Path, linger: float):
    with subprocess.Popen([sys.executable, "-c", KILLED, name, str(linger)], cwd=ROOT) as agent:
        try:
            with anyio.fail_after(60):
                await until_exists(there / "ready")
        finally:
            agent.kill()
    if linger > 60:
        assert any("sleep 7052" in each for each in ours(name))
        async with went(tmp_path, [Answer(text="ok")], config=config):
            await until(lambda: not any("sleep 705" in each for each in ours(name)))
    await until_nothing_is_left(name)


async def test_a_program_in_a_terminal_is_there_too(tmp_path: Path, config: str, there: Path, name: str) -> None:
    script = [in_terminal('read -r x; echo "got $x in $PWD"; tty; sleep 1000'), line("mango"), look(delay=0.5), "done"]
    async with went(tmp_path, model(*script), config=config, mode="auto", otherwise=allow_once) as r:
        assert "got mango in /app" in result(r, 4)
    await until_nothing_is_left(name)


async def test_landlock_confines_commands_where_it_is_asked_for(tmp_path: Path, config: str, there: Path) -> None:
    (there / ".env").write_text("KEY=tangerine")
    hidden = '[tools.files]\ndeny_read = [".env"]\n'
    held = config.replace('root = "/app"', 'root = "/app"\nlandlock = true')
    script = [bash("cat .e*; touch made; touch /elsewhere"), Answer(text="ok")]
    async with went(tmp_path, script, config=held + hidden, mode="auto", otherwise=allow_once, sandbox=True) as r:
        said = await r.says("/place")
        assert "tangerine" not in json.dumps(r.messages(2))
        if "Sandbox there" not in said:
            assert "no command runs without one" in json.dumps(r.messages(2))
            pytest.skip("no sandbox works in a container here")
        assert (there / "made").exists()
        assert "/elsewhere': Permission denied" in r.messages(2)[-1]["content"]
        assert "commands there can read it" not in said


def test_doctor_names_the_place(tmp_path: Path, config: str) -> None:
    environ = {**environ_for(tmp_path, "http://127.0.0.1:9"), "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    for text, words in (
        (config, r"ok +place +Commands run in container web, and files are there: /app"),
        (config.replace("/app", "/nowhere"), r"BAD +place +container web has no folder /nowhere"),
    ):
        (tmp_path / "config.toml").write_text(text)
        assert re.search(words, said := doctor(environ, tmp_path)), said


async def test_there_are_no_worktrees(tmp_path: Path) -> None:
    async with agent_rig(tmp_path, config='[places.in]\ncontainer = "x"\nroot = "/app"\n[agent]\nplace = "in"\n') as r:
        with pytest.raises(PeerError, match="no worktrees where files are not this machine's"):
            asked = {"cwd": str(r.project), "mcpServers": [], "_meta": {"isolation": "worktree"}}
            await r.editor.request("session/new", asked)


def test_container_with_a_folder_on_the_command_line() -> None:
    parsed = build_parser().parse_args(["prompt", "x", "--container", "web-1:/app"])
    assert agent_variables(None, None, parsed.place) == {"ACP_CODER_PLACE": "container:web-1:/app"}
    places = {
        "web": PlaceConfig(container="web-1", image="img", user="app"), "own": PlaceConfig(image="img"),
        "far": PlaceConfig(kind="ssh", host="h"),
    }  # fmt: skip
    for given, found in (
        ("web-1:/app", PlaceConfig(container="web-1", root="/app")),
        ("web:/a:b/c", PlaceConfig(container="web-1", user="app", root="/a:b/c")),
        ("far:/app", PlaceConfig(container="far", root="/app")),
        *(
            (name, PlaceConfig(container=name, image=name))
            for name in ("node:22", "localhost:5000/img:1", "a/b@sha:1f")
        ),
    ):
        place = find_place(f"container:{given}", places)
        assert place is not None and place[1] == found
    for given, words in (
        (":/x", "names no container: NAME or NAME:DIR is expected"), ("web-1:./app", "does not begin with /"),
        ("web-1:~/app", "does not begin with /"), ("web-1:app/src", "does not begin with /"),
        ("own:/app", "in a container that was started already, which `container` names"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            find_place(f"container:{given}", places)


def test_what_only_the_user_may_set_and_what_cannot_be(tmp_path: Path) -> None:
    environ = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    for text in (
        '[places.own]\ncontainer = "x"\nroot = "/app"\n', '[places.own]\ncontainer = "x"\npaths = {"/a" = "/app"}\n',
        '[places.own]\ncontainer = "x"\nuser = "root"\n', '[agent]\nplace = "container:x:/app"\n',
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="cannot be set by a project|in your own configuration only"):
            load_config(environ, project=parse(".acp-coder/config.toml", text))
    for text, words in (
        ('[places.web]\nkind = "devcontainer"\nroot = "/app"\n', r"config.toml:1: .*no `root` or `paths`"),
        ('[places.web]\nkind = "devcontainer"\nuser = "me"\n', r"config.toml:1: .*a user of its own"),
        ('[places.web]\nimage = "x"\nroot = "/a"\n[agent]\nplace = "web"\n', "in a container that was started already"),
    ):
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_config(environ)
