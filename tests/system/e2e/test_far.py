"""The editor's command is `ssh HOST acp-coder`: the agent and the project are on another machine."""

import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call, FakeModel, Script
from tests.e2e.kit import COMMAND, environ, until_gone
from tests.executors.kit import until_exists
from tests.ssh_server import SshServer, missing, ssh_server

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()} (make tools)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as made:
        yield made


@asynccontextmanager
async def far(server: SshServer, tmp_path: Path, script: Script, **more: str) -> AsyncIterator[FakeEditor]:
    """An editor with an agent behind ssh, whose pid is in the file `pid`."""
    (tmp_path / "project").mkdir()
    async with FakeModel(script) as model:
        there = environ(tmp_path, model.base_url, OPENAI_API_KEY="sk-test", **more)
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in there.items())
        command = f"echo $$ >{tmp_path}/pid; exec env {variables} {shlex.quote(str(COMMAND))}"
        async with FakeEditor.spawn(server.argv(command), env=environ(tmp_path), terminal=True) as editor:
            await editor.start()
            yield editor


OF_THE_EDITOR = {"fs/read_text_file", "fs/write_text_file", "terminal/create"}


def asked(editor: FakeEditor) -> set[str]:
    """Methods that the agent has called."""
    lines = [line.message for line in editor.transcript if line.direction == "from_agent"]
    return {str(line["method"]) for line in lines if "method" in line and "id" in line}


def work(path: Path) -> list[Any]:
    write = Call("write", {"path": str(path), "content": "far\n"})
    return [Answer(tool_calls=(write, Call("bash", {"command": f"cat {path}; echo $SSH_CONNECTION | wc -w"}))), "done"]


async def test_the_editors_files_and_terminals_are_left_alone(server: SshServer, tmp_path: Path) -> None:
    path = tmp_path / "project" / "a.txt"
    async with far(server, tmp_path, work(path), ACP_CODER_FAR="true") as editor:
        editor.files.buffers[path] = "of the editor's machine\n"
        await editor.new_session(tmp_path / "project")
        await editor.client.set_session_mode(editor.session_id, "auto")
        assert (await editor.prompt("go")).stop_reason == "end_turn"
        assert path.read_text() == "far\n"
        assert editor.files.buffers[path] == "of the editor's machine\n"
        assert "far\n" in list(editor.tool_calls().values())[1].text() and not asked(editor) & OF_THE_EDITOR


async def test_it_has_to_be_told(server: SshServer, tmp_path: Path) -> None:
    """An editor may as well run on this machine, in a session by ssh."""
    async with far(server, tmp_path, work(tmp_path / "project" / "a.txt")) as editor:
        await editor.new_session(tmp_path / "project")
        await editor.client.set_session_mode(editor.session_id, "auto")
        await editor.prompt("go")
        assert asked(editor) >= {"fs/write_text_file", "terminal/create"}


async def test_a_folder_that_is_not_there_names_the_machine(server: SshServer, tmp_path: Path) -> None:
    async with far(server, tmp_path, [], ACP_CODER_FAR="true") as editor:
        with pytest.raises(Exception, match=r"is not an existing folder on .+, where acp-coder runs"):
            await editor.new_session(tmp_path / "of the editor")


async def test_the_agent_ends_with_the_connection(server: SshServer, tmp_path: Path) -> None:
    async with far(server, tmp_path, [], ACP_CODER_FAR="true") as editor:
        await editor.new_session(tmp_path / "project")
        pid = int(await until_exists(tmp_path / "pid"))
        assert editor.process is not None
        editor.process.kill()
        await until_gone(pid)
