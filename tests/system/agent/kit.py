"""Sessions whose commands run elsewhere: on a real OpenSSH server on loopback, and in real containers."""

import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.testing.fake_model import Answer, Call
from tests import containers, ssh_server
from tests.agent.kit import Rig, audit, puts, results, went
from tests.forked import COMMAND


def on_host(folder: Path) -> str:
    """The configuration of a session in `folder` on the host `far`, which is the place `build`."""
    if why := ssh_server.missing():
        pytest.skip(f"not installed: {why}")
    server = ssh_server.running()
    arguments = json.dumps(["-F", str(server.config)])
    return (
        f'[places.build]\nkind = "ssh"\nhost = "{server.host}"\nroot = "{folder}"\narguments = {arguments}\n'
        '[agent]\nplace = "build"\n'
    )


def in_container() -> str:
    """The configuration of a session whose commands run in a container of its own, which is the place `web`."""
    if why := containers.missing():
        pytest.skip(why)
    arguments = json.dumps(list(containers.ARGUMENTS))
    return f'[places.web]\nimage = "{containers.WITH_BASH}"\narguments = {arguments}\n[agent]\nplace = "web"\n'


def tool(name: str, /, **arguments: Any) -> Answer:
    return Answer(tool_calls=(Call(name, arguments),))


def bash(command: str, **more: Any) -> Answer:
    return tool("bash", command=command, **more)


def doctor(environ: Mapping[str, str], cwd: Path) -> str:
    """What `acp-coder doctor` says."""
    argv = [COMMAND, "doctor", "--offline", "--all"]
    return subprocess.run(argv, env=environ, cwd=cwd, capture_output=True, text=True, check=False).stdout


@asynccontextmanager
async def worked_there(
    tmp_path: Path, config: str, there: Path, where: str, command: str, *more: Answer
) -> AsyncIterator[tuple[Rig, list[str]]]:
    """After a turn with a command and file tools, all of which has happened in `there`, and everybody was told so. What
    the model read of each call. `where`: as in "on host far"."""
    puts(there, {"AGENTS.md": "Always say tangerine.", "old.txt": "one\ntwo\n"})
    script = [
        bash(command), tool("write", path="new.txt", content="fresh\n"), tool("read", path="old.txt"),
        tool("grep", pattern="tw", path="."), tool("edit", path="old.txt", old_string="two", new_string="three"),
        *more, Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=config, permissions=[allow_always] * 6) as r:
        told = results(r)
        assert "one" in told[2] and "old.txt:2:two" in told[3]
        assert (there / "new.txt").read_text() == "fresh\n" and (there / "old.txt").read_text() == "one\nthree\n"
        assert list(r.project.iterdir()) == []
        first = json.dumps(r.request(1)["messages"])
        assert f"Commands run {where}, where the files are" in first and "tangerine" in first
        asked = r.editor.permission_requests
        assert [request.tool_call.title for request in asked] == [f"{command} ({where})", f"Write new.txt ({where})"]
        assert all(any(where in option.name for option in request.options) for request in asked)
        yield r, told
        methods = {line.message.get("method") for line in r.editor.transcript}
        assert not methods & {"terminal/create", "fs/read_text_file", "fs/write_text_file"}
    assert {entry["sandbox"] for entry in audit(tmp_path) if entry.get("sandbox")} == {where.partition(" ")[2]}
