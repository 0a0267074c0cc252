"""Commands in a real container that runs already, each confined by Landlock."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import allow_once
from acp_agent.executors.places import landlock_there
from acp_agent.executors.sandbox.landlock import READ, WRITE, abi
from acp_agent.executors.sandbox.landlock_alone import LEAST
from acp_agent.testing.fake_model import Answer, Call
from tests import containers
from tests.agent.kit import asks, audit, put, results, went
from tests.agent.test_background import model, result
from tests.system.agent.kit import bash
from tests.system.agent.test_terminals import in_terminal, line, look


@pytest.fixture
def project(tmp_path: Path) -> Path:
    put((made := tmp_path / "project") / ".env", "KEY=tangerine")
    return made


@pytest.fixture
def config(tmp_path: Path) -> str:
    if why := containers.missing():
        pytest.skip(why)
    if abi() < LEAST:
        pytest.skip("this kernel has no Landlock")
    name = containers.running(tmp_path.parent)
    place = f'[places.web]\ncontainer = "{name}"\nlandlock = true\n[agent]\nplace = "web"\n'
    return f'{place}[tools.files]\ndeny_read = [".env"]\n'


async def test_landlock_holds_commands_in_a_container_that_runs_already(tmp_path: Path, config: str, project: Path):
    """As the program that begins, in a terminal, and in what a command leaves for the program that reads its state."""
    link = "trap - EXIT; for f in $TMPDIR/../state/*; do ln -sf $PWD/.env $f; cp -P $f $f.cwd; done; ls $f"
    tries = "echo >made; echo x >/etc/x; echo x >/tmp/x; ls -a $TMPDIR/..; echo >$TMPDIR/y; echo >~/z; export A=papaya"
    script = [
        bash(f"cat .env; {tries}; false"), bash(f"echo $A; {link}"), bash("env; pwd"),
        bash("cat .env; env", outside_sandbox=True), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=config, otherwise=allow_once, sandbox=True) as r:
        first, second, third, outside = results(r)
        assert "tangerine" not in first + second + third and "Permission denied" in first
        assert "/etc/x: Permission denied" in first and "/tmp/x: Permission denied" in first
        assert "The command ran in a sandbox" in first and "papaya" in second and "tangerine" not in third
        assert "tangerine" in outside and "papaya" not in outside
        await r.editor.prompt("/place")
        assert (
            "Landlock confines each command" in r.editor.text() and "is protected here is not there" in r.editor.text()
        )
    assert (project / "made").exists()
    assert {entry["sandbox"] for entry in audit(tmp_path) if entry.get("sandbox")} == {
        "container web: landlock", "container web",
    }  # fmt: skip


async def test_a_terminal_in_a_container_is_held_by_landlock_too(tmp_path: Path, config: str, project: Path) -> None:
    program = "cat .env; echo $A $TERM; echo x >/etc/x; read line; echo got $line; read x"
    script = [bash("export A=papaya"), in_terminal(program), line("mango"), look(delay=0.5), "done"]
    kwargs: Any = {"config": config, "otherwise": allow_once, "sandbox": True}
    async with went(tmp_path, model(*script), **kwargs) as r:
        screen = result(r, 5)
        assert "papaya xterm-256color" in screen and "got mango" in screen
        assert "tangerine" not in screen and "/etc/x: Permission denied" in screen


async def test_landlock_that_fails_runs_nothing(
    tmp_path: Path, config: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock_there.LandlockThere, "_rules", lambda *_: iter([(READ | WRITE, Path("/"))]))
    for version, words in ((7, "it does not keep a command from writing"), (0, "the kernel has no Landlock")):
        monkeypatch.setattr(landlock_there, "abi", lambda version=version: version)
        async with went(tmp_path, [bash("touch made"), Answer(text="ok")], config=config, otherwise=allow_once) as r:
            said = next(message["content"] for message in r.messages(2) if message["role"] == "tool")
            assert f"Landlock cannot be used in container web: {words}" in said and "`landlock = false`" in said
            assert not (project / "made").exists()


async def test_what_is_hidden_stays_so_wherever_a_command_moves_it(tmp_path: Path, config: str, project: Path) -> None:
    """Also for the file tools, which know it by its name only."""
    put(project / "keys" / "one", "KEY=tangerine")
    (project / "sub").mkdir()
    config = config.replace('[".env"]', '[".env", "keys/**"]')
    script = [
        bash("mv .env x; ln x y; mv keys locks; cat x y locks/one"),
        bash("cat x y locks/one; mv x z; ln z a; mv y sub/y"), bash("cat a y z sub/y locks/one"),
        asks(Call("read", {"path": "z"}), Call("read", {"path": "locks/one"})),
        bash("mkdir n; ln a n/x; ln locks/one n/one; ls n"), bash("cat n/x n/one"),
        bash("rm -rf n a y z; echo mandarin >z; echo $?"), bash("cat z"), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=config, otherwise=allow_once, sandbox=True) as r:
        said = results(r)
        assert not [words for words in said if "tangerine" in words]
        assert "`tools.files.deny_read`" in said[3] and "`tools.files.deny_read`" in said[4] and "mandarin" in said[-1]


async def test_many_files_beside_a_hidden_one_leave_the_rest_writable(tmp_path: Path, config: str, project: Path):
    """Each has a rule of its own, and a container may have a thousand files open."""
    for number in range(1500):
        (project / f"file-{number}").touch()
    script = [bash("ulimit -n; echo made >made && cat .env"), Answer(text="ok")]
    async with went(tmp_path, script, config=config, otherwise=allow_once, sandbox=True) as r:
        said = r.messages(2)[-1]["content"]
        assert said.startswith("1024\n") and "tangerine" not in said
    assert (project / "made").read_text() == "made\n"


async def test_what_is_hidden_is_so_wherever_the_container_has_it_mounted(tmp_path: Path, config: str, project: Path):
    """As a dev container has: the project at a second path; and a folder above it at another."""
    (project / "a").write_text("plain")
    more = ("--volume", f"{project}:/workspaces/p", "--volume", f"{tmp_path}:/all")
    name = containers.start(tmp_path.parent, containers.WITH_BASH, *more)
    try:
        place = f'[places.web]\ncontainer = "{name}"\nlandlock = true\n[agent]\nplace = "web"\n'
        script = [
            bash("cat /workspaces/p/.env /all/project/.env; cat /workspaces/p/a /all/project/a"), Answer(text="ok"),
        ]  # fmt: skip
        settings = f'{place}[tools.files]\ndeny_read = [".env"]\n'
        async with went(tmp_path, script, config=settings, otherwise=allow_once, sandbox=True) as r:
            said = r.messages(2)[-1]["content"]
            assert "tangerine" not in said and said.count("Permission denied") == 2 and "plainplain" in said
            assert ".acp-coder-" in containers.podman("exec", name, "ls", "-a", "/tmp")
        assert ".acp-coder-" not in containers.podman("exec", name, "ls", "-a", "/tmp")
    finally:
        containers.remove(name)


async def test_who_only_looks_leaves_nothing_in_the_container(tmp_path: Path, config: str, project: Path) -> None:
    name = containers.running(tmp_path.parent)
    before = containers.podman("exec", name, "ls", "-a", "/tmp").split()
    async with went(tmp_path, [], config=config, sandbox=True, prompt="/place") as r:
        assert "Landlock confines each command" in r.editor.text()
    assert containers.podman("exec", name, "ls", "-a", "/tmp").split() == before
