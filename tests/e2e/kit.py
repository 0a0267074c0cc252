"""The installed command over real pipes."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import FakeModel, Script
from tests.forked import COMMAND

__all__ = ["COMMAND", "alive", "configured", "environ", "spawned", "until_gone"]


def environ(home: Path, base_url: str = "http://127.0.0.1:9/v1", **more: str) -> dict[str, str]:
    """Nothing of the user who runs the tests is found; byte code may be written. Commands are not confined."""
    return {
        "ACP_CODER_SANDBOX_DISABLED": "true", "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": base_url, "OPENAI_MODEL": "fake-model", "ACP_CODER_KEYRING": "0",
        "TMPDIR": tempfile.gettempdir(), **more,
    }  # fmt: skip


def configured(home: Path, text: str) -> dict[str, str]:
    """The variable that names a configuration of this text."""
    (file := home / "config.toml").write_text(text)
    return {"ACP_CODER_CONFIG": str(file)}


@asynccontextmanager
async def spawned(tmp_path: Path, script: Script = (), **editor: Any) -> AsyncIterator[tuple[FakeEditor, FakeModel]]:
    """The agent as a child process with a session in `tmp_path/project`; its process is `editor.process`.

    `start`: the params of `initialize`, word for word; `command`: the program, if it is another."""
    more, start, command = editor.pop("environ", {}), editor.pop("start", None), editor.pop("command", COMMAND)
    (project := tmp_path / "project").mkdir(exist_ok=True)
    async with (
        FakeModel(script) as model,
        FakeEditor.spawn([command], env=environ(tmp_path, model.base_url, **more), **editor) as fake,
    ):
        await fake.start(start)
        await fake.new_session(project)
        yield fake, model


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def until_gone(pid: int) -> None:
    """Waits, for a bounded time, until the process has ended: a signal is not its end."""
    with anyio.fail_after(60):
        while alive(pid):
            await anyio.sleep(0.01)
