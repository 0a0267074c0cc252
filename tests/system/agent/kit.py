"""Sessions whose commands run elsewhere: on a real OpenSSH server on loopback, and in real containers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from acp_agent.testing.fake_model import Answer, Call
from tests import containers, ssh_server
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
    argv = [COMMAND, "doctor", "--offline"]
    return subprocess.run(argv, env=environ, cwd=cwd, capture_output=True, text=True, check=False).stdout
