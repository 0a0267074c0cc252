"""A session on another machine: a real OpenSSH server on loopback, as the user and the model see it."""

import json
import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pytest import MonkeyPatch

from acp_agent.build import builder
from acp_agent.client.permissions import allow_always, allow_once
from acp_agent.commands.parser import agent_variables
from acp_agent.config.load import load_config
from acp_agent.config.place_settings import PlaceConfig
from acp_agent.disk import LocalDisk
from acp_agent.errors import ConfigError, ExecutorError, PeerError
from acp_agent.executors.far.far_disk import FarDisk
from acp_agent.executors.places.host import Host
from acp_agent.executors.places.ssh import Ssh
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.shell.workspaces import Workspaces
from acp_agent.safety.deciding.deciders import Deciders
from acp_agent.schema import acp
from acp_agent.testing.fake_model import Answer
from tests.agent.kit import agent_rig, put, puts, results, rig, went
from tests.agent.test_background import model
from tests.executors.kit import alive, until_dead, until_exists
from tests.system.agent.kit import bash, on_host, tool, worked_there
from tests.waits import until


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Path]:
    """The session's folder on the host."""
    (folder := tmp_path / "there").mkdir()
    yield folder


@pytest.fixture
def config(there: Path) -> str:
    return on_host(there)


def ssh_children() -> list[int]:
    """The links of this process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "ssh" and int(rest.split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


async def test_commands_and_files_are_there_and_everybody_is_told_so(tmp_path: Path, config: str, there: Path) -> None:
    (there / "sub").mkdir()
    async with worked_there(tmp_path, config, there, "on host far", "pwd; cd sub; touch made") as (r, told):
        assert str(there) in told[0] and str(there) in json.dumps(r.request(1)["messages"])
        assert (there / "sub" / "made").exists()
        assert f"files are there: {there} (" in await r.says("/place")


async def test_answers_and_memories_hold_for_the_folder_on_that_host(tmp_path: Path, config: str, there: Path) -> None:
    local = config.replace('place = "build"', 'place = "local"')
    for settings, times in ((config, 1), (local, 1), (config, 0), (local, 0)):
        script = [tool("write", path=f"new{times}{settings is config}.txt", content="x"), Answer(text="ok")]
        async with went(tmp_path, script, config=settings, permissions=[allow_always] * times) as r:
            r.editor.tool_call().assert_finished("completed")
            assert len(r.editor.permission_requests) == times


async def test_paths_are_judged_by_the_disk_over_there(tmp_path: Path, config: str, there: Path) -> None:
    """What is a link out of the folder there is none here, and the other way round."""
    (tmp_path / "secret").write_text("tangerine")
    (there / "way").symlink_to(tmp_path)
    (there / ".env").write_text("KEY=tangerine")
    (there / "keys").mkdir()
    (there / "keys" / "alias").symlink_to("../.env")
    script = [
        tool("read", path="way/secret"), tool("read", path=".env"), tool("read", path="keys/alias"),
        tool("write", path="way/made", content="x"), tool("delete_path", path="keys"), Answer(text="ok"),
    ]  # fmt: skip
    hidden = '[tools.files]\ndeny_read = [".env"]\n'
    async with rig(tmp_path, script, config=config + hidden, mode="auto", permissions=[allow_once] * 3) as r:
        put(r.project / "way" / "secret", "local")
        await r.editor.prompt("go")
        said = results(r)
        assert "outside this session's folders" in said[0] and "outside this session's folders" in said[3]
        assert not any("tangerine" in text or "local" in text for text in said)
        assert not (tmp_path / "made").exists()
        assert (there / ".env").exists() and not (there / "keys").exists()


async def test_instructions_and_skills_are_those_over_there(tmp_path: Path, config: str, there: Path) -> None:
    puts(there, {"sub/AGENTS.md": "Say tangerine in sub.", "sub/a.txt": "one\n"})
    (skill := there / ".agents" / "skills" / "fruit").mkdir(parents=True)
    puts(skill, {"SKILL.md": "---\nname: fruit\ndescription: about fruit\n---\nPeel the mango.\n", "more.txt": "x"})
    put(there / ".git" / "HEAD", "ref: refs/heads/orchard\n")
    script = [tool("read", path="sub/a.txt"), tool("skill", name="fruit"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, files={"AGENTS.md": "Say nonsense."}) as r:
        first, results = json.dumps(r.request(1)["messages"]), json.dumps(r.messages(3))
        assert "nonsense" not in results
        assert "Git branch at the start: orchard" in first
        assert "Say tangerine in sub." in results and "Peel the mango." in results and "more.txt" in results


async def test_a_host_that_hangs_holds_up_neither_a_stop_nor_other_sessions(tmp_path: Path, config: str, there: Path):
    (there / "a.txt").write_text("one\n")
    script = [tool("read", path="a.txt"), tool("read", path="a.txt"), Answer(text="ok"), Answer(text="again")]
    async with went(tmp_path, script, config=config, prompt="/status") as r:
        links = ssh_children()
        assert links
        for link in links:
            os.kill(link, signal.SIGSTOP)
        try:
            turn = r.editor.begin("go")
            await r.editor.wait_until(lambda: len(r.model.requests) == 1)
            await r.editor.request("session/list", {})
            r.editor.cancel()
            assert (await turn.response()).stop_reason == "cancelled"
        finally:
            for link in links:
                os.kill(link, signal.SIGCONT)
        assert "ok" in await r.says("once more")


@pytest.mark.parametrize("mode", ["code", "auto"])
async def test_a_host_that_cannot_be_reached_runs_nothing_here(tmp_path: Path, config: str, mode: str) -> None:
    settings = config.replace('host = "far"', 'host = "nowhere.invalid"')
    async with rig(tmp_path, [bash("touch made"), Answer(text="ok")], config=settings, mode=mode) as r:
        with pytest.raises(PeerError, match="host nowhere.invalid cannot be used"):
            await r.editor.prompt("go")
        assert list(r.project.iterdir()) == []


async def test_another_user_cannot_be_had_there(tmp_path: Path, config: str) -> None:
    settings = f'{config}[tools.scope]\nenabled = true\nrun_as_user = "nobody"\n'
    async with rig(tmp_path, [Answer(text="ok")], config=settings) as r:
        with pytest.raises(PeerError, match="`tools.scope.run_as_user` is not held"):
            await r.editor.prompt("go")


async def test_a_folder_that_the_host_lacks_is_one_sentence(tmp_path: Path, config: str, there: Path) -> None:
    there.rmdir()
    async with rig(tmp_path, [Answer(text="ok")], config=config) as r:
        with pytest.raises(PeerError, match=f"host far has no folder {there}; another one is named by"):
            await r.editor.prompt("go")
        there.mkdir()
        assert "ok" in await r.says("go")
        links = set(ssh_children())
    assert links and not links & set(ssh_children())


async def test_the_host_can_be_named_on_the_command_line(tmp_path: Path, config: str, there: Path) -> None:
    """With a folder, or with the one that `paths` gives; a link in a prompt is the editor's."""
    (there / "a.txt").write_text("over there\n")
    mapped = config.replace(f'root = "{there}"', f'paths = {{ "{tmp_path}/project" = "{there}" }}')
    for place, settings in ((f"ssh:build:{there}", config.replace(f'root = "{there}"\n', "")), ("ssh:build", mapped)):
        script = [tool("read", path="a.txt"), Answer(text="ok")]
        settings = settings.replace('place = "build"', "")
        async with rig(tmp_path, script, config=settings, environ={"ACP_CODER_PLACE": place}) as r:
            await r.editor.prompt([acp.ResourceLink(uri=(r.project / "a.txt").as_uri(), name="a.txt")])
            sent = json.dumps(r.messages(len(r.model.requests)))
            assert "over there" in sent and "it cannot be read" not in sent


async def test_what_looks_at_this_machine_is_left_out(tmp_path: Path, config: str, there: Path) -> None:
    async with went(tmp_path, [bash("touch made"), Answer(text="ok")], config=config, permissions=[allow_once]) as r:
        names = {each["function"]["name"] for each in r.model.requests[0].body["tools"]}
        assert not names & {"diagnostics", "definition", "references", "rename", "hover", "symbols"}
        for command, words in (
            ("/undo", "the files are on host far"), ("/worktree", "no worktrees on host far"),
            ("/doctor", "No sandbox there: turned off by tools.sandbox.disabled"),
        ):  # fmt: skip
            assert words in await r.says(command), command


def test_ssh_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[places.build]\nkind = "ssh"\nhost = "ci@b7"\n[places.web]\nimage = "x"\n')
    for given, host, root in (
        ("build", "ci@b7", ""), ("build:/srv", "ci@b7", "/srv"), ("me@other:work/app", "me@other", "work/app"),
        ("me@[::1]:/srv", "me@::1", "/srv"),
    ):  # fmt: skip
        environ = {"ACP_CODER_CONFIG": str(file), **agent_variables(None, None, f"ssh:{given}")}
        place = load_config(environ).settings.place()
        assert place is not None and (place[1].kind, place[1].host, place[1].root) == ("ssh", host, root)
    place = load_config({"ACP_CODER_CONFIG": str(file), "ACP_CODER_PLACE": "ssh:[container:web]:/srv"}).settings.place()
    assert place is not None and (place[1].kind, place[1].host) == ("ssh", "container:web")
    for given, words in ((":/srv", "names no host"), ("web", "is a place of the kind `container`")):
        with pytest.raises(ConfigError, match=words):
            load_config({"ACP_CODER_CONFIG": str(file), "ACP_CODER_PLACE": f"ssh:{given}"})
    file.write_text('[places.build]\nkind = "ssh"\n[agent]\nplace = "build"\n')
    with pytest.raises(ConfigError, match="names no `host`"):
        load_config({"ACP_CODER_CONFIG": str(file)})


def test_the_user_there_can_be_named_apart() -> None:
    way = Host(("b", PlaceConfig(kind="ssh", host="far", user="ci")), (), {"PATH": os.environ["PATH"]}).link.way
    argv = way.argv("true")
    assert argv[argv.index("-l") + 1] == "ci" and argv.index("-l") < argv.index("--")
    assert way.identity != Ssh("far", os.environ).identity


async def test_a_session_goes_to_a_host_and_back_even_if_it_is_away(tmp_path: Path, config: str, there: Path) -> None:
    more = '[places.gone]\nkind = "ssh"\nhost = "nowhere.invalid"\n'
    script = [bash("touch one"), Answer(text="ok"), bash("touch two"), Answer(text="ok")]
    settings = config.replace('place = "build"', 'place = "local"') + more
    async with went(tmp_path, script, config=settings, permissions=[allow_once] * 2, prompt="/place build") as r:
        assert "Commands run on host far" in r.editor.text()
        await r.editor.prompt("go")
        assert (there / "one").exists()
        links = set(ssh_children())
        assert "host nowhere.invalid cannot be used" in await r.says("/place gone")
        with pytest.raises(PeerError, match="host nowhere.invalid"):
            await r.editor.prompt("go")
        await r.says("/place local", "go")
        assert (r.project / "two").exists()
        assert sorted(path.name for path in there.iterdir()) == ["one"]
        assert links and not links & set(ssh_children())


async def test_the_event_loop_waits_for_no_host(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    asked: list[tuple[Any, ...]] = []
    ask = FarDisk._asked

    def watched(self: FarDisk, *question: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and question not in self._known:
            asked.append(question)
        return ask(self, *question)

    monkeypatch.setattr(FarDisk, "_asked", watched)
    puts(there, {"sub/AGENTS.md": "Be brief.", "sub/a.txt": "one\n"})
    patch = "*** Begin Patch\n*** Update File: sub/a.txt\n@@\n-two\n+three\n*** End Patch"
    script = [
        tool("read", path="sub/a.txt"), tool("edit", path="sub/a.txt", old_string="one", new_string="two"),
        tool("apply_patch", input=patch), bash("cd sub; git status; rm -r missing*; find . -name '*.txt'"),
        tool("list_directory", path="."), tool("grep", pattern="three", path="."),
        tool("find_path", pattern="**/*.txt"), tool("write", path="sub/new/b.txt", content="x"),
        tool("move_path", source="sub/new", destination="moved"),
        tool("copy_path", source="moved", destination="sub/copy"), tool("delete_path", path="sub/copy"),
        Answer(text="ok"),
    ]  # fmt: skip
    async with rig(tmp_path, script, config=config, otherwise=allow_once) as r:
        uri = (r.project / "sub" / "a.txt").as_uri()
        await r.editor.prompt([acp.TextContent(text="go"), acp.ResourceLink(uri=uri, name="a.txt")])
        for call in r.editor.tool_calls().values():
            if not call.title.startswith("cd sub"):
                call.assert_finished("completed")
    assert (there / "moved" / "b.txt").exists()
    assert asked == []


async def test_a_lost_connection_is_said_while_the_call_goes_on(tmp_path: Path, config: str, there: Path) -> None:
    script = [bash("touch begun; while [ ! -e go ]; do sleep 0.05; done; echo ended"), Answer(text="ok")]
    async with rig(tmp_path, script, config=config, permissions=[allow_once]) as r:
        turn = r.editor.begin("go")
        await until((there / "begun").exists)
        for link in ssh_children():
            os.kill(link, signal.SIGKILL)
        await r.editor.wait_until(lambda: "host far was reached again after" in str(r.editor.transcript))
        (there / "go").touch()
        await turn.response()
        assert "the connection to host far was lost; what runs there goes on" in str(r.editor.transcript)
        r.editor.tool_call().assert_finished("completed")
        (result,) = results(r, 2)
        assert "ended" in result and "no output is missing" in result


async def test_a_mode_chosen_meanwhile_counts(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    begun, chosen = threading.Event(), threading.Event()
    decide = Deciders.decide

    def slow(*arguments: Any, **options: Any) -> Any:
        if not begun.is_set():
            begun.set()
            assert chosen.wait(20)
        return decide(*arguments, **options)

    monkeypatch.setattr(Deciders, "decide", slow)
    async with rig(tmp_path, [bash("touch made"), Answer(text="ok")], config=config, mode="auto") as r:
        turn = r.editor.begin("go")
        assert await anyio.to_thread.run_sync(begun.wait, 20)
        await r.editor.request("session/set_mode", {"sessionId": r.editor.session_id, "modeId": "ask"})
        chosen.set()
        await turn.response()
        r.editor.tool_call().assert_finished("failed")
        assert not (there / "made").exists()


async def test_a_place_that_is_configured_wrong_breaks_no_session_that_is_not_there(tmp_path: Path) -> None:
    config = '[places.half]\nkind = "ssh"\n[places.web]\nimage = "x"\n'
    async with went(tmp_path, [Answer(text="ok")], config=config) as r:
        (tool,) = [each["function"] for each in r.request(1)["tools"] if each["function"]["name"] == "bash"]
        assert tool["parameters"]["properties"]["place"]["enum"] == ["web"]
        assert (await r.says("/place half")).endswith("`places.half` is of the kind `ssh` and names no `host`")


async def test_hidden_files_are_found_by_links(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    """Not by those of this machine, which may have a link where the host has a folder."""
    realpath, real_path = os.path.realpath, LocalDisk.real_path
    moved = lambda path: Path(str(path).replace(str(there), "/elsewhere"))  # noqa: E731
    monkeypatch.setattr(LocalDisk, "real_path", lambda self, path: real_path(self, moved(path)))
    monkeypatch.setattr(os.path, "realpath", lambda path, **options: realpath(moved(path), **options))
    (there / ".env").write_text("KEY=tangerine")
    hidden = '[tools.files]\ndeny_read = [".env"]\n'
    async with went(tmp_path, [tool("read", path=".env"), Answer(text="ok")], config=config + hidden) as r:
        assert "tangerine" not in json.dumps(r.messages(2)) and "deny_read" in json.dumps(r.messages(2))


async def test_hosts_of_one_name_that_are_reached_in_other_ways_share_no_answers(tmp_path: Path, config: str) -> None:
    other = config.replace('"-F"', '"-o", "ConnectTimeout=9", "-F"')
    for name, settings, times in (("a", config, 1), ("b", other, 1), ("c", config, 0)):
        script = [bash("touch made"), tool("write", path=name, content="x"), Answer(text="ok")]
        async with went(tmp_path, script, config=settings, otherwise=allow_always) as r:
            asked = [str(request.tool_call.title) for request in r.editor.permission_requests]
            assert len([title for title in asked if title.startswith("Write")]) == times


async def test_folders_that_the_host_lacks_are_there_again_on_this_machine(tmp_path: Path, config: str) -> None:
    put((more := tmp_path / "more") / "a.txt", "tangerine")
    paths = f'paths = {{"{more}" = "/nowhere/there"}}\n'
    settings = config.replace('place = "build"', 'place = "local"').replace("arguments", f"{paths}arguments")
    async with agent_rig(tmp_path, [tool("read", path=str(more / "a.txt")), Answer(text="ok")], config=settings) as r:
        await r.editor.new_session(r.project, additional_directories=[more])
        await r.editor.prompt("/place build")
        assert "files are there" in r.editor.text() and str(more) not in r.editor.text()
        await r.says("/place local", "go")
        assert "tangerine" in json.dumps(r.messages(2))


async def test_a_failed_session_leaves_no_connection(
    tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch
) -> None:
    before = set(ssh_children())
    with monkeypatch.context() as patched:

        def broken(*arguments: Any) -> Any:
            raise ExecutorError("it broke")

        patched.setattr(builder, "build_parts", broken)
        async with rig(tmp_path, [bash("touch made"), Answer(text="ok")], config=config, otherwise=allow_once) as r:
            with pytest.raises(PeerError, match="it broke"):
                await r.editor.prompt("go")
            assert set(ssh_children()) == before
            patched.undo()
            await r.editor.prompt("go")
            assert (there / "made").exists()


async def test_a_host_lost_late_undoes_nothing(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    def lost(*arguments: Any) -> str:
        raise ExecutorError("host far did not answer")

    monkeypatch.setattr(Instructions, "for_paths", lost)
    (there / "a.txt").write_text("one\n")
    script = [tool("edit", path="a.txt", old_string="one", new_string="two"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, otherwise=allow_once) as r:
        r.editor.tool_call().assert_finished("completed")
        assert (there / "a.txt").read_text() == "two\n"


async def test_a_stopped_move_ends_what_it_began_to_end(tmp_path: Path, config: str, monkeypatch: MonkeyPatch):
    ends, go_on, close = anyio.Event(), anyio.Event(), Workspaces.close

    async def slow(self: Workspaces) -> None:
        ends.set()
        await go_on.wait()
        await close(self)

    monkeypatch.setattr(Workspaces, "close", slow)
    async with rig(tmp_path, [bash("touch made"), Answer(text="ok")], config=config, otherwise=allow_once) as r:
        await r.editor.prompt("/place")
        assert ssh_children()
        turn = r.editor.begin("/place local")
        await ends.wait()
        r.editor.cancel()
        go_on.set()
        assert (await turn.response()).stop_reason == "cancelled"
        assert ssh_children() == []
        await r.editor.prompt("go")
        assert (r.project / "made").exists()


async def test_single_commands_and_sub_agents_run_on_another_host(tmp_path: Path, config: str, there: Path) -> None:
    """Each is asked about in every mode: it leaves the place that the user has chosen."""
    (there / "words.txt").write_text("tangerine")
    local = config.replace('place = "build"', 'place = "local"\nmode = "auto"')
    script = [
        tool("bash", command="pwd; touch made; export KEPT=kept; cd /tmp", place="build"),
        tool("bash", command="echo $KEPT; pwd", place="build"), bash("pwd; echo ${KEPT:-none}"),
        tool("delegate", prompt="read words.txt", place="build"), tool("read", path="words.txt"),
        tool("write", path="new.txt", content="fresh\n"), Answer(text="It says tangerine."), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=local, permissions=[allow_once] * 9) as r:
        said = results(r)
        assert str(there) in said[0]
        assert "kept" in said[1] and "/tmp" in said[1]
        assert str(r.project) in said[2] and "none" in said[2] and "tangerine" in said[3]
        assert [request.tool_call.title for request in r.editor.permission_requests] == [
            "pwd; touch made; export KEPT=kept; cd /tmp (on host far)", "echo $KEPT; pwd (on host far)",
            "Sub-agent: read words.txt (on host far)", "Write new.txt (on host far) (sub-agent: read words.txt)",
        ]  # fmt: skip
        assert (there / "made").exists() and (there / "new.txt").read_text() == "fresh\n"
        assert list(r.project.iterdir()) == []
        assert len(ssh_children()) == 1, "one connection for all of them"
    assert ssh_children() == []


async def test_a_single_command_stays_in_the_background_of_another_host(tmp_path: Path, config: str, there: Path):
    local = config.replace('place = "build"', 'place = "local"\nmode = "auto"')
    command = "echo $$ > pid; echo began; exec sleep 1000"

    def looks(found: list[str]) -> Answer:
        return tool("bash_output", run_id=found[0])

    script: list[Any] = [tool("bash", command=command, place="build", background=True), looks, "done"]
    async with went(tmp_path, model(*script), config=local, permissions=[allow_once]) as r:
        pid = int(await until_exists(there / "pid"))
        title = f"{command} (on host far)"
        assert [request.tool_call.title for request in r.editor.permission_requests] == [title]
        assert "began" in json.dumps(r.messages(3)[-1]) and alive(pid)
    await until_dead(pid)


@pytest.mark.parametrize(("more", "why"), [
    ({"terminal": True}, "A program in a terminal runs where the session is (`local`)"),
    ({"place": "local"}, "a hook cannot move a call to another place"),
], ids=lambda value: "" if isinstance(value, str) else next(iter(value)))  # fmt: skip
async def test_no_hook_gives_commands_more(tmp_path: Path, config: str, there: Path, more: dict[str, Any], why: str):
    said = json.dumps({"hookSpecificOutput": {"updatedInput": {"command": "touch made", "place": "build", **more}}})
    hook = f'[[hooks.on]]\nevent = "PreToolUse"\ncommand = {json.dumps(f"printf %s {shlex.quote(said)}")}\n'
    local = config.replace('place = "build"', 'place = "local"\nmode = "auto"') + hook
    script = [tool("bash", command="touch plain", place="build"), Answer(text="ok")]
    async with went(tmp_path, script, config=local, permissions=[allow_once]) as r:
        assert why in str(r.editor.permission_requests[0].tool_call.content)
    assert [entry.name for entry in there.iterdir()] == ["plain"]


async def test_single_commands_run_here_or_nowhere_if_a_host_is_not_reached(tmp_path: Path, config: str, there: Path):
    gone = config.replace('host = "far"', 'host = "no-such-host.invalid"').replace('place = "build"', 'place = "local"')
    script = [tool("bash", command="touch made", place="build"), bash("echo here"), Answer(text="ok")]
    async with went(tmp_path, script, config=gone) as r:
        said = results(r, 3)
        assert "no-such-host.invalid" in said[0] and "Nothing was run, here or there" in said[0] and "here" in said[1]
        assert list(r.project.iterdir()) == []
    script = [tool("bash", command="pwd", place="local"), bash("pwd"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, permissions=[allow_once] * 2) as r:
        said = results(r, 3)
        assert str(r.project) in said[0]
        assert str(there) in said[1]


async def test_leaving_is_asked_about_always_and_in_worktrees(tmp_path: Path, config: str, there: Path) -> None:
    """An "always" of a session there counts for none that goes there; a sub-agent in a worktree here has left, too."""
    async with rig(tmp_path, [bash("touch a"), Answer(text="ok")], config=config, permissions=[allow_always]) as r:
        await r.editor.prompt("go")
    local = config.replace('place = "build"', 'place = "local"\nmode = "auto"')
    script = [tool("bash", command="touch b", place="build"), Answer(text="ok")]
    async with went(tmp_path, script, config=local, permissions=[allow_once]) as r:
        assert [request.tool_call.title for request in r.editor.permission_requests] == ["touch b (on host far)"]
    assert sorted(entry.name for entry in there.iterdir()) == ["a", "b"]
    for command in ("git init -q .", "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"):
        assert os.system(f"cd {tmp_path}/project && {command}") == 0
    script = [
        tool("delegate", prompt="do", place="local", isolation="worktree"), bash("touch here"), Answer(text="done"),
        Answer(text="ok"),
    ]  # fmt: skip
    away = config.replace('place = "build"', 'place = "build"\nmode = "auto"')
    async with went(tmp_path, script, config=away, permissions=[allow_once] * 2) as r:
        titles = [str(request.tool_call.title) for request in r.editor.permission_requests]
        assert [title.split(" (")[0] for title in titles] == ["Sub-agent: do", "touch here"]
        assert all("on this machine" in title for title in titles)
