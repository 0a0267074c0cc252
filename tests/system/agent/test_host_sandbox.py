"""What confines commands on another machine: a real OpenSSH server on loopback, and the sandbox that works there."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from pytest import MonkeyPatch

from acp_agent.build import host_session
from acp_agent.client.permissions import allow_once
from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.far import program, remote_commands, side
from acp_agent.executors.far.far_peer import STATE
from acp_agent.testing.fake_model import Answer
from tests.agent.kit import audit, put, results, rig, went
from tests.agent.test_background import model, result
from tests.executors.sandbox.kit import needs_sandbox
from tests.processes import running
from tests.repositories import committed, git, repository
from tests.system.agent.kit import bash, doctor, on_host
from tests.system.agent.test_terminals import in_terminal, line, look
from tests.waits import until


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Path]:
    """The session's folder on the host."""
    needs_sandbox()
    (folder := tmp_path / "there").mkdir()
    (tmp_path / "outside").write_text("tangerine")
    yield folder


@pytest.fixture
def config(there: Path) -> str:
    return on_host(there) + '[tools.files]\ndeny_read = [".env"]\n'


@contextmanager
def sent(monkeypatch: MonkeyPatch, old: str, new: str) -> Iterator[None]:
    """The program that is sent to the host has something else in place of that."""
    source = program._source
    monkeypatch.setattr(program, "_source", lambda module: source(module).replace(old, new))
    for kept in (program._prelude, program.sources):
        kept.cache_clear()
    yield
    for kept in (program._prelude, program.sources):
        kept.cache_clear()


async def test_commands_there_are_held_as_they_are_here(tmp_path: Path, config: str, there: Path) -> None:
    (there / ".env").write_text("KEY=mandarin")
    (there / "sub" / ".git" / "hooks").mkdir(parents=True)
    (there / "sub" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tries = [
            "echo made >inside && echo wrote", "cat .env", "cat ../outside", "echo broken >../outside",
            "echo evil >sub/.git/hooks/post-commit", "echo evil >.git/hooks/post-commit",
            f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected", "ls ~ | wc -l", "kill -9 $PPID",
            "export FRUIT=papaya; cd sub",
        ]  # fmt: skip
        script = [bash("; ".join(tries)), bash("echo $FRUIT; pwd; touch here; touch /etc/made"), Answer(text="ok")]
        async with went(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
            first, second = results(r)
            assert "wrote" in first and "0\n" in first
            assert not [word for word in ("tangerine", "mandarin", "connected") if word in first]
            assert "papaya" in second and f"{there}/sub" in second
            assert "in a sandbox if that machine has one" in json.dumps(r.request(1)["messages"])
            assert "The command ran in a sandbox" in second and "There is no network." in second
            assert "Sandbox there: bubblewrap" in await r.says("/place")
    assert (there / "inside").read_text() == "made\n" and (there / "sub" / "here").exists()
    assert (tmp_path / "outside").read_text() == "tangerine"
    assert not list(there.rglob("post-commit"))
    assert {entry["sandbox"] for entry in audit(tmp_path) if entry.get("sandbox")} == {"host far: bubblewrap"}


async def test_outside_of_it_only_with_a_question_and_nothing_left_for_it(tmp_path: Path, config: str, there: Path):
    """A confined command leaves a state that would run something, and a link in its place."""
    plants = "trap - EXIT; export PATH=/nowhere; cd ..; ls /tmp/acp-coder-*/state/* >names"
    script = [
        bash(f"cd {there}; {plants}; exit 0"),
        bash('echo "PATH is $PATH"; pwd; echo broken >../made', outside_sandbox=True), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=config, mode="auto", permissions=[allow_once], sandbox=True) as r:
        _, second = results(r)
        assert "/nowhere" not in second and str(there) in second
        assert len(r.editor.permission_requests) == 1
    assert (tmp_path / "made").read_text() == "broken\n"


async def test_the_file_of_the_shells_state_is_not_followed_if_it_is_a_link(tmp_path: Path, config: str, there: Path):
    """Who reads it is not confined."""
    (tmp_path / "outside").write_text("export FRUIT=tangerine\n")
    link = f"trap - EXIT; for f in /tmp/acp-coder-*/state/*; do ln -sf {tmp_path}/outside $f; cp $f $f.cwd; done"
    script = [bash("export A=1"), bash(f"{link}; ls -l /tmp/acp-coder-*/state"), bash("env"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
        _, second, third = results(r)
        assert f"-> {tmp_path}/outside" in second and "tangerine" not in third
    assert (tmp_path / "outside").read_text() == "export FRUIT=tangerine\n"


async def test_a_program_in_a_terminal_there_is_confined(tmp_path: Path, config: str, there: Path) -> None:
    program = "echo broken >../outside; touch inside; echo $FRUIT $TERM; read line; echo got $line; cat .env; read x"
    (there / ".env").write_text("KEY=mandarin")
    script = [bash("export FRUIT=papaya"), in_terminal(program), line("mango"), look(delay=0.5), "done"]
    kwargs: Any = {"config": config, "mode": "auto", "otherwise": allow_once, "sandbox": True}
    async with went(tmp_path, model(*script), **kwargs) as r:
        screen = result(r, 5)
        assert "papaya xterm-256color" in screen and "got mango" in screen and "mandarin" not in screen
    assert (there / "inside").exists()
    assert (tmp_path / "outside").read_text() == "tangerine"
    assert sorted(path.name for path in there.iterdir()) == [".env", "inside"]


async def test_a_stop_ends_all_of_a_confined_command_there(tmp_path: Path, config: str, there: Path) -> None:
    """What left its group and its terminal, too; and its place holders are gone."""
    script = [bash("setsid sleep 7061 & (sleep 7062 &) ; touch begun; sleep 7063"), Answer(text="ok")]
    async with rig(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(r.editor.prompt, "go")
            await until((there / "begun").exists)
            r.editor.cancel()
        assert not running("sleep 706")
        assert sorted(path.name for path in there.iterdir()) == ["begun"]


async def test_strict_runs_nothing_unconfined(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    """The code that is sent cannot be used there."""
    monkeypatch.setattr(host_session, "WALLS_SENT", ("acp_agent.loop.shell.side_walls",))
    strict = config + "[tools.sandbox]\nstrict = true\n"
    async with went(
        tmp_path, [bash("touch made"), Answer(text="ok")], config=strict, permissions=[allow_once], sandbox=True
    ) as r:
        (said,) = results(r)
        assert "no sandbox works on host far" in said and "ModuleNotFoundError" in said
        assert "Nothing confines commands there" in await r.says("/doctor")
    assert list(there.iterdir()) == []


async def test_that_nothing_confines_is_said_with_the_first(tmp_path: Path, config: str, monkeypatch: MonkeyPatch):
    monkeypatch.setattr(host_session, "WALLS_SENT", ())
    script = [bash("touch one"), bash("touch two"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, mode="auto", permissions=[allow_once], sandbox=True) as r:
        (asked,) = r.editor.permission_requests
        assert "nothing confines the command" in str(asked.tool_call.content)


async def test_without_bubblewrap_is_landlock(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    (there / ".env").write_text("KEY=mandarin")
    tries = "touch inside; echo broken >../outside; cat .env; cat ../outside; mv .env x; cat x"
    script = [bash(tries), bash("ls; cat x"), Answer(text="ok")]
    with sent(monkeypatch, "bwrap", "nowhere"):
        async with went(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
            said, moved = results(r)
            assert "x\n" in moved and "mandarin" not in moved and "Permission denied" in moved
            assert "tangerine" not in said and "mandarin" not in said and "Permission denied" in said
            await r.editor.prompt("/place")
            assert "Sandbox there: Landlock" in r.editor.text() and "is not installed" in r.editor.text()
    assert (there / "inside").exists()
    assert (tmp_path / "outside").read_text() == "tangerine"


async def test_below_the_root_of_a_repository_there_git_works(tmp_path: Path, there: Path) -> None:
    for name in ("inner/a", "other/b", "other/.env"):
        put(there / name, "mandarin\n")
    repository(there)
    committed(there, "inner", "other/b", message="two")
    (there / "inner/AGENTS.md").write_text("x\n")
    tries = (
        "echo x >>a; git -c user.name=a -c user.email=a@b commit -qam made; git log --format=%s; cat ../other/.env; "
        "(echo x >../other/b; echo x >../.git/hooks/post-commit; git config core.pager x) 2>&1"
    )
    script = [bash(tries), Answer(text="ok")]
    async with went(tmp_path, script, config=on_host(there / "inner"), mode="auto", sandbox=True) as r:
        (said,) = results(r)
        assert "made\ntwo\n" in said and "mandarin" not in said
        assert f"The git repository's root is {there}." in json.dumps(r.request(1)["messages"])
    assert git(there, "status", "--porcelain").split() == ["??", "inner/AGENTS.md", "??", "other/.env"]
    assert not list(there.rglob("post-commit")) and "pager" not in (there / ".git/config").read_text()


async def test_nonsense_about_sandboxes_runs_nothing(
    tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch
):
    with sent(monkeypatch, '"kind": found.sandbox.kind', '"kind": 7'):
        script = [bash("touch made"), Answer(text="ok")]
        async with went(tmp_path, script, config=config, mode="auto", otherwise=allow_once, sandbox=True) as r:
            assert "host far gave an answer that is none" in results(r)[0]
    assert list(there.iterdir()) == []
    with sent(monkeypatch, '"cwd": str(confined.cwd)', '"cwd": [1]'):
        kwargs: Any = {"config": config, "mode": "auto", "otherwise": allow_once, "sandbox": True}
        async with went(tmp_path, model(in_terminal("touch made"), "done"), **kwargs) as r:
            assert "host far gave an answer that is none" in result(r, 2)
            assert list(there.iterdir()) == []


@pytest.mark.parametrize("network", ["allow", "deny"])
async def test_the_network_there_is_all_or_none(tmp_path: Path, config: str, network: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = [bash(f"(exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}) && echo connected"), Answer(text="ok")]
        settings = f'{config}[tools.sandbox]\nnetwork = "{network}"\n'
        async with went(tmp_path, script, config=settings, mode="auto", otherwise=allow_once, sandbox=True) as r:
            assert ("connected" in results(r)[0]) is (network == "allow")


async def test_the_agents_folders_there_are_out_of_reach_even_if_writable(tmp_path: Path, config: str, there: Path):
    """What lies in them runs unconfined."""
    tries = "cd /tmp; ls -d acp-coder-*; for f in acp-coder-far-*; do echo evil >$f/evil && echo wrote; done; echo end"
    settings = f'{config}[tools.sandbox]\nallow_write = ["/tmp"]\n'
    script = [bash(tries), bash("ls /tmp/acp-coder-*/scripts/* /tmp/acp-coder-*/search.pyz"), Answer(text="ok")]
    async with went(tmp_path, script, config=settings, mode="auto", otherwise=allow_once, sandbox=True) as r:
        first, second = results(r)
        assert "acp-coder-far-" in first and "end" in first and "wrote" not in first
        assert "[exit code 2]" in second
    assert not list(Path("/tmp").glob("acp-coder-*/evil"))


async def test_nothing_is_left_of_a_terminal_there(tmp_path: Path, config: str, there: Path, monkeypatch: MonkeyPatch):
    """The place holders of what is protected and missing."""
    script = [in_terminal("ls -A; read line"), look(delay=0.5), line("mango"), "done"]
    kwargs: Any = {"config": config, "mode": "auto", "otherwise": allow_once, "sandbox": True}
    async with went(tmp_path, model(*script), **kwargs) as r:
        assert ".vscode" in result(r, 3)
        await until(lambda: not list(there.iterdir()))
    monkeypatch.setattr(remote_commands, "START_THERE", "tests.system.agent.test_host_sandbox:does_not_start")
    async with went(tmp_path, model(in_terminal("ls -A; read line"), "done"), **kwargs) as r:
        assert "nothing starts here" in result(r, 2)
        assert list(there.iterdir()) == []


def does_not_start(*_: Any, **__: Any) -> Any:
    raise ExecutorError("nothing starts here")


async def test_nothing_is_left_of_what_prints_into_a_closed_session(tmp_path: Path, config: str, there: Path) -> None:
    script = [bash("touch begun; yes", background=True), Answer(text="ok")]
    async with went(tmp_path, script, config=config, mode="auto", otherwise=allow_once, sandbox=True):
        await until((there / "begun").exists)
    assert [path.name for path in there.iterdir()] == ["begun"]


async def test_a_sandbox_that_is_turned_off_is_turned_off_there(tmp_path: Path, config: str, there: Path) -> None:
    settings = f"{config}[tools.sandbox]\nstrict = true\n"
    async with went(tmp_path, [bash("touch made"), Answer(text="ok")], config=settings, mode="auto") as r:
        assert "No sandbox there: turned off by tools.sandbox.disabled." in await r.says("/place")
    assert not r.editor.permission_requests
    assert (there / "made").exists()


async def test_what_holds_there_is_said_and_what_does_not(tmp_path: Path, config: str, there: Path) -> None:
    (there / ".vscode").symlink_to(tmp_path)
    (there / ".env").touch()
    async with went(tmp_path, [], config=config, sandbox=True, prompt="/place") as r:
        said = r.editor.text()
    assert "Sandbox there: bubblewrap" in said and "Network: none. Unix sockets: none." in said
    assert f"Writable: {there}" in said and "Protected in them: .git/hooks" in said
    assert f"Hidden (`deny_read`): {there}/.env" in said
    assert f"Links, so they can be replaced despite the protection: {there}/.vscode" in said


def test_doctor_names_the_sandbox_there(tmp_path: Path, config: str, there: Path) -> None:
    file, home = tmp_path / "config.toml", tmp_path / "home"
    file.write_text(config)
    home.mkdir()
    said = doctor({"PATH": os.environ["PATH"], "HOME": str(home), "ACP_CODER_CONFIG": str(file)}, tmp_path)
    assert "Sandbox there: bubblewrap" in said and f"Writable: {there}" in said


# --- many at a time: the program there begins and ends commands in threads ------------------------------------------


@pytest.fixture
def serves(tmp_path: Path, there: Path, monkeypatch: MonkeyPatch) -> Iterator[side.Side]:
    """The program, with its walls, in this process."""
    monkeypatch.setattr(side, "learn", lambda _: None)
    (tmp_path / "keeper").mkdir()
    made = side.Side("mark", tmp_path / "keeper", 60.0)
    sandbox = {**msgspec.to_builtins(ToolsConfig().sandbox), "network": "deny"}
    rules = {"deny_read": [".env"], "allow_read": [], "absolute": [], "own": [], "forbidden": []}
    given = {"folders": [str(there)], "home": str(tmp_path), "environ": dict(os.environ), "sandbox": sandbox}
    assert made._find_walls(host_session.SIDE_WALLS, {**given, "rules": rules}, b"")["kind"] == "bubblewrap"
    yield made
    made.close()


def begins(number: int, command: str, there: Path) -> dict[str, Any]:
    argv, env = ["/bin/sh", "-c", command], {"PATH": os.environ["PATH"], "ACP_CODER_MARK": f"mark.{number}"}
    return {"run": number, "argv": argv, "env": env, "cwd": str(there), "confined": True}


def test_many_begin_at_a_time_and_the_last_one_clears_up(serves: side.Side, there: Path) -> None:
    put(there / ".git/HEAD", "ref: refs/heads/main\n")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: serves._start(begins(number, f"echo >made-{number}", there)), range(40)))
        ended = time.monotonic() + 60
        while serves._runs and time.monotonic() < ended:
            time.sleep(0.01)
    assert {path.name for path in there.iterdir()} == {".git", *(f"made-{number}" for number in range(40))}
    assert {path.name for path in (there / ".git").iterdir()} == {"HEAD"}


def test_no_command_begins_before_what_is_to_be_hidden_is_known(serves: side.Side, there: Path) -> None:
    walls, looking, goes_on, order = serves._walls, threading.Event(), threading.Event(), list[str]()
    look = walls._policy.look

    def slow() -> None:
        looking.set()
        assert goes_on.wait(20)
        look()
        order.append("looked")

    walls._policy.look = slow
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(walls.look)
        assert looking.wait(20)
        second = pool.submit(walls.look)
        assert not wait([second], timeout=0.1).done
        assert not order
        goes_on.set()
        first.result(20)
        second.result(20)
    assert order


def test_the_state_of_an_unconfined_command_is_not_where_confined_ones_write(serves: side.Side, there: Path) -> None:
    for number, confined in ((1, True), (2, False)):
        serves._start({**begins(number, f"echo {STATE} >&2; sleep 30", there), "state": "", "confined": confined})
    (mine,) = serves._walls.states.iterdir()
    assert mine.name.startswith("state-")
    assert [path.name for path in serves._folder.iterdir() if path.name.startswith("state-")]


def test_whatever_goes_wrong_is_an_answer_and_nothing_begins_after_the_end(
    serves: side.Side, monkeypatch: MonkeyPatch, there: Path
):
    said: list[Any] = []
    monkeypatch.setattr(serves.peer, "send", said.append)

    def fails() -> None:
        raise AssertionError("that cannot be")

    serves._answer(7, fails)
    assert said == [{"id": 7, "error": "executor", "words": "AssertionError: that cannot be"}]
    serves.close()
    with pytest.raises(ExecutorError, match="the session has ended"):
        serves._start(begins(1, "touch made", there))
    assert list(there.iterdir()) == []
