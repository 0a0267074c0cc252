"""A session whose commands run in a real container, as the user and the model see it."""

import json
import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.client.permissions import allow_always, allow_once, reject_once
from acp_agent.commands.parser import agent_variables, build_parser
from acp_agent.config.load import _check, load_config
from acp_agent.config.place_settings import PlaceConfig, find_place
from acp_agent.config.sources import parse
from acp_agent.errors import ConfigError, PeerError
from acp_agent.executors.places.container import Container
from acp_agent.executors.places.dev_container import DevContainer
from acp_agent.loop.calls.call_permissions import Permissions
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.shell.workspaces import Workspace, Workspaces
from acp_agent.safety.access import Ask, ExecuteAccess
from acp_agent.safety.deciding.deciders import CallFacts
from acp_agent.safety.folders.paths import Roots
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_model import Answer
from tests import containers
from tests.agent.kit import agent_rig, audit, environ_for, put, puts, results, rig, went
from tests.agent.test_background import model
from tests.executors.kit import until_dead, until_exists
from tests.repositories import repository
from tests.system.agent.kit import bash, doctor, in_container, tool


@pytest.fixture
def config() -> str:
    return in_container()


async def test_commands_run_in_the_container_and_everybody_is_told_so(tmp_path: Path, config: str) -> None:
    script = [bash("touch made; cat /etc/passwd"), bash("touch more"), bash("mkdir other"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, permissions=[allow_always] * 3) as r:
        result = next(message["content"] for message in r.messages(2) if message["role"] == "tool")
        assert "root:x:0:0:root:/root:/bin/sh" in result
        assert (r.project / "made").exists() and (r.project / "more").exists()
        assert "Commands run in container web" in json.dumps(r.request(1)["messages"])
        asked = r.editor.permission_requests
        lines = ("touch made; cat /etc/passwd", "touch more", "mkdir other")
        assert [request.tool_call.title for request in asked] == [f"{line} (in container web)" for line in lines]
        assert all(any("in container web" in option.name for option in request.options) for request in asked)
        assert "always allow `in:'container web (" in await r.says("/permissions")
        assert "The container is the wall" in await r.says("/place")
        assert not [line for line in r.editor.transcript if line.message.get("method") == "terminal/create"]
        mine = [name for name in containers.names() if name.startswith(f"acp-coder-{r.editor.session_id[:8]}")]
        assert len(mine) == 1
    assert mine[0] not in containers.names()
    assert {entry["sandbox"] for entry in audit(tmp_path) if entry.get("sandbox")} == {"container web"}


async def test_what_was_always_allowed_in_one_place_is_asked_in_another(tmp_path: Path, config: str) -> None:
    for where, times in (("local", 1), ("web", 1), ("local", 0), ("web", 0)):
        script = [bash("touch made"), Answer(text="ok")]
        settings = config.replace('place = "web"', f'place = "{where}"')
        async with went(tmp_path, script, config=settings, permissions=[allow_always] * times) as r:
            r.editor.tool_call().assert_finished("completed")
            assert len(r.editor.permission_requests) == times, where


async def test_in_the_container_protected_files_are_read_only_and_hidden_ones_empty(tmp_path: Path, config: str):
    project = tmp_path / "project"
    (project / ".git" / "hooks").mkdir(parents=True)
    puts(project, {".git/HEAD": "ref: refs/heads/main\n", ".env": "KEY=tangerine", "keys/one": "KEY=tangerine"})
    (project / "both.sh").write_text("cat .[e]nv key[s]/one; echo x >.git/hooks/post-commit || echo refused")
    hidden = '[tools.files]\ndeny_read = [".env", "keys/**"]\n'
    script = [bash("sh both.sh"), Answer(text="ok")]
    async with went(tmp_path, script, config=config + hidden, permissions=[allow_once]) as r:
        (result,) = results(r, 2)
        assert "refused" in result and "tangerine" not in result
        assert list((project / ".git" / "hooks").iterdir()) == []


async def test_below_a_repositorys_root_the_container_has_its_git_and_can_read_the_rest(tmp_path: Path, config: str):
    root = repository(tmp_path / "project")
    for name in ("inner/a", "other/b", "other/.env", "keys/one"):
        put(root / name, "tangerine\n" if name[-1] in "ve" else "lemon\n")
    command = (
        "cat ../other/b ../other/.env ../keys/one; ls -d ../keys/one; echo x >../other/b || echo refused; "
        "echo x >../.git/made && echo x >../.git/hooks/made || echo refused; echo x > new"
    )
    config += f'[tools.files]\ndeny_read = ["{root}/keys"]\n'
    async with agent_rig(tmp_path, [bash(command), "ok"], config=config, permissions=[allow_once]) as r:
        await r.editor.new_session(root / "inner")
        await r.editor.prompt("go")
        (said,) = results(r)
        assert "lemon" in said and "tangerine" not in said and said.count("refused\n") == 2
        assert "keys/one: Permission denied" in said, "git does not take it for deleted"
    assert (root / "other/b").read_text() == "lemon\n"
    assert (root / ".git/made").exists() and (root / "inner/new").exists()


@pytest.mark.parametrize("mode", ["code", "auto"])
async def test_a_place_that_cannot_be_had_runs_nothing_here(tmp_path: Path, mode: str) -> None:
    environ = {"ACP_CODER_PLACE": "container:no-such-image"}
    script = [bash("touch made"), Answer(text="ok")]
    async with went(tmp_path, script, environ=environ, mode=mode, permissions=[allow_once] * 2) as r:
        (result,) = results(r, 2)
        assert "no-such-image" in result or "nothing to run containers with" in result
        assert "Nothing was run, here or there" in result
        assert not (r.project / "made").exists()


def test_a_project_may_name_a_place_but_not_change_the_users(tmp_path: Path) -> None:
    (file := tmp_path / "config.toml").write_text('[places.web]\nimage = "x"\n')
    environ = {"ACP_CODER_CONFIG": str(file)}
    named = parse(".acp-coder/config.toml", '[agent]\nplace = "own"\n[places.own]\nimage = "y"\n')
    assert load_config(environ, project=named).settings.place() == ("own", PlaceConfig(image="y"))
    for text, words in (
        ('[places.web]\nimage = "y"\n', "is a place in your own configuration"),
        ('[places.own]\nengine = "./docker"\n', "cannot be set by a project"),
        ('[places.own]\narguments = ["--privileged"]\n', "cannot be set by a project"),
        ('[places.own]\nenv = ["TOKEN"]\n', "cannot be set by a project"),
        ('[places.own]\nnetwork = "host"\n', "cannot be set by a project"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(environ, project=parse(".acp-coder/config.toml", text))


def test_container_on_the_command_line_is_a_place_a_container_or_an_image(tmp_path: Path) -> None:
    parsed = build_parser().parse_args(["prompt", "x", "--container", "web"])
    assert agent_variables(None, None, parsed.place) == {"ACP_CODER_PLACE": "container:web"}
    (file := tmp_path / "config.toml").write_text('[places.web]\nimage = "x"\n')
    parsed = build_parser().parse_args(["prompt", "x", "--devcontainer", str(tmp_path)])
    assert parsed.place == f"devcontainer:{tmp_path}"
    environ = {"ACP_CODER_CONFIG": str(file), "ACP_CODER_PLACE": "devcontainer:/srv/app"}
    place = PlaceConfig(kind="devcontainer", folder="/srv/app")
    assert load_config(environ).settings.place() == ("app", place)
    for name, found in (("web", PlaceConfig(image="x")), ("a:1", PlaceConfig(container="a:1", image="a:1"))):
        environ = {"ACP_CODER_CONFIG": str(file), **agent_variables(None, None, f"container:{name}")}
        assert load_config(environ).settings.place() == (name, found)


def test_doctor_names_the_place(tmp_path: Path, config: str) -> None:
    file = tmp_path / "config.toml"
    environ = {**environ_for(tmp_path, "http://127.0.0.1:9"), "ACP_CODER_CONFIG": str(file)}
    for text, words in (
        (config, r"place .*Commands run in container web \(podman, shell /bin/bash\)"),
        (config.replace("image", "container"), r"BAD +place +podman has no container 'acp-coder-test:bash'"),
    ):
        file.write_text(text)
        assert re.search(words, said := doctor(environ, tmp_path)), said


async def choose(editor: Any, place: str) -> list[str]:
    """Sets the option; the places that the answer lists, the chosen one first."""
    wanted = {"sessionId": editor.session_id, "configId": "place", "value": place}
    answer = await editor.request("session/set_config_option", wanted)
    (option,) = [each for each in answer["configOptions"] if each["id"] == "place"]
    return [option["currentValue"], *(each["value"] for each in option["options"])]


async def test_a_session_goes_from_place_to_place_and_stays_there(tmp_path: Path, config: str) -> None:
    script = [bash("touch one; cat /etc/passwd"), Answer(text="first"), bash("cat /etc/passwd"), Answer(text="second")]
    local = config.replace('place = "web"', 'place = "local"')
    async with rig(tmp_path, script, config=local, permissions=[allow_once] * 2) as r:
        session = r.editor.session_id
        await r.editor.prompt("go")
        assert await choose(r.editor, "web") == ["web", "local", "web"]
        assert "The container is the wall" in await r.says("/place")
        await r.editor.prompt("go on")
        said = results(r, 4)
        assert "root:x:0:0:root:/root:/bin/sh" not in said[0] and "root:x:0:0:root:/root:/bin/sh" in said[1]
        assert "first" in json.dumps(r.messages(4))
        assert "Commands run in container web" in r.context(4)
        with pytest.raises(PeerError, match="'wbe' is not in the configuration; configured: local, web"):
            await choose(r.editor, "wbe")
        mine = [name for name in containers.names() if name.startswith(f"acp-coder-{session[:8]}")]
        assert len(mine) == 1
    async with rig(tmp_path, [Answer(text="third")], config=local) as r:
        await r.editor.load_session(session, r.project)
        await r.editor.prompt("/place", session_id=session)
        assert "Commands run in container web" in r.editor.text(session_id=session)
        await r.editor.prompt("/place local", session_id=session)
        assert "container web" not in r.editor.text(session_id=session).rpartition("Sandbox")[2]
        assert mine[0] not in containers.names()
        await r.editor.prompt("on", session_id=session)
        assert "first" in json.dumps(r.request(1)["messages"]) and "second" in json.dumps(r.request(1)["messages"])
    gone = local.replace("[places.web]", "[places.other]")
    async with rig(tmp_path, [Answer(text="x")], config=gone, environ={"ACP_CODER_PLACE": "local"}) as r:
        await r.editor.load_session(session, r.project)
    with closing(sqlite_store(tmp_path / "home/.local/state/acp-coder/sessions.db")) as store:
        store.change(session, place="web")
    async with rig(tmp_path, [Answer(text="x")], config=gone) as r:
        with pytest.raises(PeerError, match="The place that was chosen for this session cannot be had: .*'web'"):
            await r.editor.load_session(session, r.project)


async def test_a_place_is_not_changed_under_a_running_turn(tmp_path: Path, config: str) -> None:
    local = config.replace('place = "web"', 'place = "local"')
    async with rig(tmp_path, [bash("sleep 60"), Answer(text="ok")], config=local, mode="auto") as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: "in_progress" in str(r.editor.tool_calls()))
        with pytest.raises(PeerError, match="A turn is running"):
            await choose(r.editor, "web")
        r.editor.cancel()
        assert (await turn.response()).stop_reason == "cancelled"


async def test_without_places_there_is_no_choice_and_an_unknown_one_is_a_sentence(tmp_path: Path) -> None:
    async with rig(tmp_path, [Answer(text="ok")]) as r:
        answer = await r.editor.request("session/new", {"cwd": str(r.project), "mcpServers": []})
        assert [each["id"] for each in answer["configOptions"]] == ["mode", "model", "thought_level"]
    (file := tmp_path / "config.toml").write_text('[places.web]\nimage = "x"\n[agent]\nplace = "wbe"\n')
    with pytest.raises(ConfigError, match=r"'wbe' is not in the configuration; configured: local, web"):
        load_config({"ACP_CODER_CONFIG": str(file)})


async def test_a_single_call_runs_in_another_place_with_a_shell_of_its_own(tmp_path: Path, config: str) -> None:
    local = config.replace('place = "web"', 'place = "local"')
    script = [
        bash("cat /etc/passwd; mkdir in; cd in; pwd", place="web"), bash("pwd; touch here"),
        bash("pwd; touch more", place="web"), bash("pwd", place="nowhere"), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=local, mode="auto", permissions=[allow_always] * 3) as r:
        said = results(r, 5)
        assert "root:x:0:0:root:/root:/bin/sh" in said[0]
        assert str(r.project / "in") not in said[1] and str(r.project / "in") in said[2]
        assert (r.project / "here").exists() and (r.project / "in" / "more").exists()
        assert "No single call can run in the place `nowhere`; it can in `local`, `web`." in said[3]
        asked = r.editor.permission_requests
        assert [request.tool_call.title for request in asked] == [
            "cat /etc/passwd; mkdir in; cd in; pwd (in container web)", "pwd; touch more (in container web)",
        ]  # fmt: skip
        words = "it runs in container web, not where the session is"
        assert all(words in str(request.tool_call.content) for request in asked)
        (tool,) = [each["function"] for each in r.request(1)["tools"] if each["function"]["name"] == "bash"]
        assert tool["parameters"]["properties"]["place"]["enum"] == ["web"]
        assert "in:'container web (" in await r.says("/permissions")
        session = r.editor.session_id
    assert not [name for name in containers.names() if name.startswith(f"acp-coder-{session[:8]}")]
    assert [entry["sandbox"] for entry in audit(tmp_path) if entry.get("sandbox")] == [
        "container web", "none", "container web",
    ]  # fmt: skip


async def test_a_container_is_not_left_without_a_question(tmp_path: Path, config: str) -> None:
    script = [bash("cat /etc/hostname", place="local"), bash("touch made"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, mode="auto", permissions=[reject_once]) as r:
        (asked,) = r.editor.permission_requests
        assert asked.tool_call.title == "cat /etc/hostname (on this machine)"
        assert "it runs on this machine, not where the session is" in str(asked.tool_call.content)
        assert (r.project / "made").exists()


async def test_a_sub_agent_works_in_the_place_that_is_named_for_it(tmp_path: Path, config: str) -> None:
    local = config.replace('place = "web"', 'place = "local"')
    script = [
        tool("delegate", prompt="look", title="look", place="web"), bash("cat /etc/passwd"),
        Answer(text="it says: done"), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=local, mode="auto", permissions=[allow_once]) as r:
        (result,) = results(r, 3)
        assert "root:x:0:0:root:/root:/bin/sh" in result
        assert "Sub-agent: look (in container web)" in [call.title for call in r.editor.tool_calls().values()]


class _Named:
    lacks_walls, sandbox = False, ""

    def __init__(self, words: str) -> None:
        self.words, self.where, self.identity = words, f"in {words}", words


@given(st.text(), st.text(), st.lists(st.text(min_size=1), min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_what_is_remembered_answers_in_its_place_only(one: str, other: str, scopes: list[str], more: list[str]) -> None:
    def remembered(words: str, scopes: list[str]) -> set[str]:
        call = CallFacts("bash", {}, [ExecuteAccess("x", Path("/"))], place=_Named(words))
        ask = Ask("", tuple(scopes), "these", wider=(scopes[0], "all"))
        placed = Permissions.placed(None, call, ask)  # type: ignore[arg-type]
        assert placed.wider is not None and placed.scope_words == f"these in {words}"
        return {*placed.scopes, placed.wider[0]}

    local = CallFacts("bash", {}, [ExecuteAccess("x", Path("/"))])
    assert Permissions.placed(None, local, Ask("", tuple(scopes), "these")).scopes == tuple(scopes)  # type: ignore[arg-type]
    if one != other:
        assert not remembered(one, scopes) & remembered(other, more)


async def test_what_runs_in_a_place_ends_when_the_session_leaves_it(tmp_path: Path) -> None:
    script = [bash("echo $$ >pid; exec sleep 1000", background=True), Answer(text="ok"), Answer(text="still here")]
    async with went(tmp_path, script, mode="auto") as r:
        pid = int(await until_exists(r.project / "pid"))
        await r.editor.prompt("/place local")
        await until_dead(pid)
        assert "still here" in await r.says("on")


async def test_nothing_is_typed_into_the_sessions_terminal_from_another_place(tmp_path: Path, config: str) -> None:
    """There other rules hold for it."""
    claim = {"risk": "low", "mutation": True, "privesc": False, "why": "To go on"}
    local = config.replace('place = "web"', 'place = "local"')
    runs: list[str] = []

    def delegates(found: list[str]) -> Answer:
        runs.extend(found)
        return tool("delegate", prompt=f"type into {runs[0]}", title="type", place="web")

    def types(_: list[str]) -> Answer:
        return tool("send_keys", target=runs[0], literal_text="touch made", enter=True, **claim)

    script: list[Any] = [bash("exec bash --norc", terminal=True), delegates, types, "done", "done"]
    async with went(tmp_path, model(*script), config=local, mode="auto", otherwise=allow_once) as r:
        assert "nothing can be typed into it from `web`" in json.dumps(r.messages(4))
        assert not (r.project / "made").exists()


async def test_a_call_that_leaves_a_container_is_held_to_this_machines_network(tmp_path: Path, config: str) -> None:
    script = [bash("echo through=$HTTPS_PROXY", place="local"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, mode="auto", sandbox=True, otherwise=allow_once) as r:
        assert "through=http://" in json.dumps(r.messages(2))


def test_dev_containers_of_one_name_are_others(tmp_path: Path) -> None:
    made = []
    for folder in ("one/app", "two/app"):
        name, config = find_place(f"devcontainer:{tmp_path / folder}", {}) or ("", PlaceConfig())
        made.append(DevContainer(name, config, "session", [tmp_path], {}))
    assert made[0].words == made[1].words == "dev container app" and made[0].identity != made[1].identity


@pytest.mark.parametrize(("text", "words"), [
    ('[places."a:b"]\nimage = "x"\n', "its name has no colon"),
    ('[places.local]\nimage = "x"\n', "cannot be named 'local'"),
    ('[places.far]\nkind = "ssh"\nhost = "h"\nlinger = 0\n', ">= 15"),
    ('[places.far]\nkind = "ssh"\nhost = "h"\npaths = {"src" = "/src"}\n', "no absolute path"),
    ('[places.far]\nkind = "ssh"\nhost = "h"\npaths = {"~nobody-here/src" = "/src"}\n', "no absolute path"),
])  # fmt: skip
def test_what_cannot_be_a_place_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (file := tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_config({"ACP_CODER_CONFIG": str(file)})
    assert "config.toml" in str(caught.value)


def test_a_project_puts_nothing_else_in_the_place_of_what_the_user_named(tmp_path: Path) -> None:
    theirs = {"web": PlaceConfig(kind="devcontainer"), "box": PlaceConfig(image="other")}
    assert find_place("container:web", theirs) == ("web", PlaceConfig(container="web", image="web"))
    made = [Container("box", config, "s", [tmp_path], {}) for config in (theirs["box"], PlaceConfig(image="mine"))]
    assert made[0].identity != made[1].identity
    (project := tmp_path / "project" / ".acp-coder").mkdir(parents=True)
    for place in ("ssh:root@elsewhere", "devcontainer:/somewhere"):
        (project / "config.toml").write_text(f'[agent]\nplace = "{place}"\n')
        with pytest.raises(ConfigError, match="in your own configuration only"):
            _check(parse("config.toml", (project / "config.toml").read_text()), project=True)


def test_a_shell_elsewhere_finds_back_to_the_sessions_own(tmp_path: Path) -> None:
    made: list[str] = []
    nothing: Any = None

    def with_these_files(name: str) -> Workspace:
        made.append(name)
        return Workspace(name, project, nothing, nothing, nothing)

    project: Any = SimpleNamespace(folder=SimpleNamespace(path=tmp_path), roots=Roots(tmp_path))
    opens: Any = SimpleNamespace(with_these_files=with_these_files)
    own = Workspace("box", project, nothing, nothing, nothing)
    workspaces = Workspaces(own, ["local"], (), opens)
    shell = Shell(workspaces, own, RunningTurn("s"), nothing)
    local = shell.at("local")
    back = local.at("box")
    assert (back.place, back.workspace, local.places) == ("box", own, ("box",))
    assert len({shell.state, local.state, back.state}) == 3
    assert made == ["local"]
