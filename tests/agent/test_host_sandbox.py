"""What confines commands on another machine: a real OpenSSH server on loopback, and the sandbox that works there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.build import host_session
from acp_agent.client.permissions import allow_once
from acp_agent.executors.far import program
from acp_agent.testing.fake_model import Answer, Call
from tests import ssh_server
from tests.agent.test_background import model, result
from tests.agent.test_terminals import in_terminal, line, look
from tests.executors.sandbox.kit import needs_sandbox

from .kit import Rig, rig


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Path]:
    """The session's folder on the host."""
    needs_sandbox()
    folder = tmp_path / "there"
    folder.mkdir()
    (tmp_path / "outside").write_text("tangerine")
    yield folder


@pytest.fixture
def config(there: Path) -> str:
    if why := ssh_server.missing():
        pytest.skip(f"not installed: {why}")
    server = ssh_server.running()
    arguments = json.dumps(["-F", str(server.config)])
    return (
        f'[places.build]\nkind = "ssh"\nhost = "{server.host}"\nroot = "{there}"\narguments = {arguments}\n'
        '[agent]\nplace = "build"\n[tools.files]\ndeny_read = [".env"]\n'
    )


def bash(command: str, **more: Any) -> Answer:
    return Answer(tool_calls=(Call("bash", {"command": command, **more}),))


def results(r: Rig) -> list[str]:
    return [message["content"] for message in r.messages(len(r.model.requests)) if message["role"] == "tool"]


async def test_commands_there_are_held_as_they_are_here(tmp_path: Path, config: str, there: Path) -> None:
    (there / ".env").write_text("KEY=mandarin")
    (there / "sub" / ".git" / "hooks").mkdir(parents=True)
    (there / "sub" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tries = [
            "echo made >inside && echo wrote",
            "cat .env",
            "cat ../outside",
            "echo broken >../outside",
            "echo evil >sub/.git/hooks/post-commit",
            "echo evil >.git/hooks/post-commit",
            f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected",
            "ls ~ | wc -l",
            "kill -9 $PPID",
            "export FRUIT=papaya; cd sub",
        ]
        script = [bash("; ".join(tries)), bash("echo $FRUIT; pwd; touch here; touch /etc/made"), Answer(text="ok")]
        async with rig(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
            await r.editor.prompt("go")
            first, second = results(r)
            assert "wrote" in first
            assert "0\n" in first
            assert not [word for word in ("tangerine", "mandarin", "connected") if word in first]
            assert "papaya" in second and f"{there}/sub" in second
            assert "in a sandbox if that machine has one" in json.dumps(r.messages(1))
            assert "The command ran in a sandbox" in second and "There is no network." in second
            await r.editor.prompt("/place")
            assert "Sandbox there: bubblewrap" in r.editor.text()
    assert (there / "inside").read_text() == "made\n"
    assert (there / "sub" / "here").exists()
    assert (tmp_path / "outside").read_text() == "tangerine"
    assert not list(there.rglob("post-commit"))
    log = tmp_path / "home/.local/state/acp-coder/audit.jsonl"
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert {entry["sandbox"] for entry in entries if entry.get("sandbox")} == {"host far: bubblewrap"}


async def test_outside_of_it_only_with_a_question_and_nothing_left_for_it_by_others(
    tmp_path: Path, config: str, there: Path
) -> None:
    """A confined command leaves a state that would run something, and a link in its place."""
    plants = "trap - EXIT; export PATH=/nowhere; cd ..; ls /tmp/acp-coder-*/state/* >names"
    script = [
        bash(f"cd {there}; {plants}; exit 0"),
        bash('echo "PATH is $PATH"; pwd; echo broken >../made', outside_sandbox=True),
        Answer(text="ok"),
    ]
    asked: list[str] = []

    async def once(request: Any) -> Any:
        asked.append(request.tool_call.title)
        return await allow_once(request)

    async with rig(tmp_path, script, config=config, mode="auto", permissions=[once], sandbox=True) as r:
        await r.editor.prompt("go")
        _, second = results(r)
        assert "/nowhere" not in second and str(there) in second
    assert len(asked) == 1
    assert (tmp_path / "made").read_text() == "broken\n"


async def test_the_file_of_the_shells_state_is_not_followed_if_it_is_a_link(
    tmp_path: Path, config: str, there: Path
) -> None:
    """Who reads it is not confined."""
    (tmp_path / "outside").write_text("export FRUIT=tangerine\n")
    link = f"trap - EXIT; for f in /tmp/acp-coder-*/state/*; do ln -sf {tmp_path}/outside $f; cp $f $f.cwd; done"
    script = [bash("export A=1"), bash(f"{link}; ls -l /tmp/acp-coder-*/state"), bash("env"), Answer(text="ok")]
    async with rig(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
        await r.editor.prompt("go")
        _, second, third = results(r)
        assert f"-> {tmp_path}/outside" in second
        assert "tangerine" not in third
    assert (tmp_path / "outside").read_text() == "export FRUIT=tangerine\n"


async def test_a_program_in_a_terminal_there_is_confined(tmp_path: Path, config: str, there: Path) -> None:
    program = "echo broken >../outside; touch inside; echo $FRUIT $TERM; read line; echo got $line; cat .env; read x"
    (there / ".env").write_text("KEY=mandarin")
    script = [bash("export FRUIT=papaya"), in_terminal(program), line("mango"), look(delay=0.5), "done"]
    kwargs: Any = {"config": config, "mode": "auto", "otherwise": allow_once, "sandbox": True}
    async with rig(tmp_path, model(*script), **kwargs) as r:
        await r.editor.prompt("go")
        screen = result(r, 5)
        assert "papaya xterm-256color" in screen and "got mango" in screen
        assert "mandarin" not in screen
    assert (there / "inside").exists()
    assert (tmp_path / "outside").read_text() == "tangerine"
    assert sorted(path.name for path in there.iterdir()) == [".env", "inside"]


async def test_a_stop_ends_all_of_a_confined_command_there(tmp_path: Path, config: str, there: Path) -> None:
    """What left its group and its terminal, too; and its place holders are gone."""
    script = [bash("setsid sleep 7061 & (sleep 7062 &) ; touch begun; sleep 7063"), Answer(text="ok")]
    async with rig(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(r.editor.prompt, "go")
            with anyio.fail_after(20):
                while not (there / "begun").exists():
                    await anyio.sleep(0.01)
            r.editor.cancel()
        assert not [line for line in commands() if "sleep 706" in line]
        assert sorted(path.name for path in there.iterdir()) == ["begun"]


async def test_strict_runs_nothing_where_nothing_confines(
    tmp_path: Path, config: str, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code that is sent cannot be used there."""
    monkeypatch.setattr(host_session, "WALLS_SENT", ("acp_agent.loop.shell.side_walls",))
    strict = config + "[tools.sandbox]\nstrict = true\n"
    async with rig(
        tmp_path, [bash("touch made"), Answer(text="ok")], config=strict, permissions=[allow_once], sandbox=True
    ) as r:
        await r.editor.prompt("go")
        (said,) = results(r)
        assert "no sandbox works on host far" in said and "ModuleNotFoundError" in said
        await r.editor.prompt("/doctor")
        assert "Nothing confines commands there" in r.editor.text()
    assert list(there.iterdir()) == []


def commands() -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


async def test_that_nothing_confines_commands_there_is_said_with_the_first(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_session, "WALLS_SENT", ())
    script = [bash("touch one"), bash("touch two"), Answer(text="ok")]
    asked: list[str] = []

    async def once(request: Any) -> Any:
        asked.append(request.tool_call.content[-1].content.text)
        return await allow_once(request)

    async with rig(tmp_path, script, config=config, mode="auto", permissions=[once], sandbox=True) as r:
        await r.editor.prompt("go")
    (words,) = asked
    assert "nothing confines the command" in words


async def test_without_bubblewrap_it_is_landlock(
    tmp_path: Path, config: str, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = program._source
    monkeypatch.setattr(program, "_source", lambda module: source(module).replace("bwrap", "nowhere"))
    program.sources.cache_clear()
    (there / ".env").write_text("KEY=mandarin")
    script = [bash("touch inside; echo broken >../outside; cat .env; cat ../outside; cat x"), Answer(text="ok")]
    try:
        async with rig(tmp_path, script, config=config, mode="auto", sandbox=True) as r:
            await r.editor.prompt("go")
            (said,) = results(r)
            assert "tangerine" not in said and "mandarin" not in said and "Permission denied" in said
            await r.editor.prompt("/place")
            assert "Sandbox there: Landlock" in r.editor.text() and "is not installed" in r.editor.text()
    finally:
        program.sources.cache_clear()
    assert (there / "inside").exists()
    assert (tmp_path / "outside").read_text() == "tangerine"


async def test_a_host_that_answers_nonsense_about_its_sandbox_runs_nothing(
    tmp_path: Path, config: str, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = program._source
    lying = lambda module: source(module).replace('"kind": found.sandbox.kind', '"kind": 7')  # noqa: E731
    monkeypatch.setattr(program, "_source", lying)
    program.sources.cache_clear()
    try:
        script = [bash("touch made"), Answer(text="ok")]
        async with rig(tmp_path, script, config=config, mode="auto", otherwise=allow_once, sandbox=True) as r:
            await r.editor.prompt("go")
            assert "host far gave an answer that is none" in results(r)[0]
    finally:
        program.sources.cache_clear()
    assert list(there.iterdir()) == []


@pytest.mark.parametrize("network", ["allow", "deny"])
async def test_the_network_there_is_all_or_none(tmp_path: Path, config: str, network: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = [bash(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected"), Answer(text="ok")]
        settings = f'{config}[tools.sandbox]\nnetwork = "{network}"\n'
        async with rig(tmp_path, script, config=settings, mode="auto", otherwise=allow_once, sandbox=True) as r:
            await r.editor.prompt("go")
            assert ("connected" in results(r)[0]) is (network == "allow")
