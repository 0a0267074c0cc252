"""A whole process with 1,024 descriptors: what one owner's or session's commands hold, nobody else notices."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.fronts.server.identities import Identities
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.agent.kit import environ_for
from tests.executors.sandbox.kit import needs_sandbox
from tests.forked import COMMAND
from tests.system.agent.test_held_connections import HOLD
from tests.waits import until
from tests.websockets_client import connected

BOUND = 60.0
FEW = ["bash", "-c", 'ulimit -n 1024; exec "$@"', "-"]
UNBOUNDED = """
import sys
from acp_agent.limits import shares
shares.fits = lambda *_: 10**9
shares.few_left = lambda: ""
from acp_agent.cli import main
main(sys.argv[1:])
"""
"""The agent without what this is about: with it, the configuration bounds no more than it says."""
CONFIG = "[agent]\nmode = 'auto'\n[tools.sandbox]\npublish_ports = false\n[network]\n"
HOLDERS, EACH = 7, 128


def answered(body: dict[str, Any]) -> Answer:
    """A prompt is a command, in the background if it begins with `&`; what it said is the answer."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return Answer(text=f"It said: {last['content']}")
    line = (last["content"] if isinstance(last["content"], str) else last["content"][-1]["text"]).rpartition("\n")[2]
    return Answer(tool_calls=(Call("bash", {"command": line.lstrip("&"), "background": line.startswith("&")}),))


@asynccontextmanager
async def begun(tmp_path: Path, *, bounded: bool) -> AsyncIterator[tuple[list[str], dict[str, str], Path]]:
    """A command line up to its arguments, its environment, and the project."""
    needs_sandbox()
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project):
        folder.mkdir()
    (project / "hold.py").write_text(HOLD)
    high = "".join(f"max_connections_per_{of} = 100000\n" for of in ("session", "owner", "process"))
    (tmp_path / "config.toml").write_text(CONFIG + ("" if bounded else high))
    async with FakeModel(answered) as model:
        program = [COMMAND] if bounded else [sys.executable, "-c", UNBOUNDED]
        environ = environ_for(home, model.base_url, ACP_CODER_CONFIG=str(tmp_path / "config.toml"))
        with anyio.fail_after(BOUND * 2):
            yield [*FEW, *program], environ, project


async def hold(editor: FakeEditor, project: Path, process: int, session: str = "") -> None:
    """All that is to be had, and more."""
    for number in range(HOLDERS):
        await editor.prompt(f"&python3 hold.py {EACH} 300 >said{number}", session_id=session or None)
    said = [project / f"said{number}" for number in range(HOLDERS)]

    def done() -> bool:
        everything = len(os.listdir(f"/proc/{process}/fd")) > 1015
        return everything or all(file.exists() and file.stat().st_size for file in said)

    await until(done, seconds=BOUND)


async def works(editor: FakeEditor, project: Path, word: str) -> bool:
    """Whether one who holds nothing can open a session and run a command."""
    try:
        with anyio.fail_after(BOUND / 3):
            await editor.new_session(project)
            await editor.prompt(f"echo {word}")
    except (Exception, BaseExceptionGroup):  # noqa: BLE001 - Whatever it is that fails.
        return False
    return f"It said: {word}" in editor.text()


async def told(editor: FakeEditor, session: str = "") -> bool:
    """Whether the one who holds it all is told so."""
    await editor.prompt("python3 hold.py 1 0", session_id=session or None)
    return "connections of commands are the most that" in editor.text(session_id=session or None)


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "control"])
async def test_one_owners_commands_take_nothing_of_another_owner(tmp_path: Path, bounded: bool) -> None:
    identities = Identities(tmp_path / "tokens.json")
    mine, other = identities.add("mine"), identities.add("other")
    async with begun(tmp_path, bounded=bounded) as (argv, environ, project):
        argv += ["serve", "--port", "0", "--token-file", str(tmp_path / "tokens.json")]
        with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as run:
            try:
                assert run.stdout is not None
                url = (await anyio.to_thread.run_sync(run.stdout.readline)).split()[-1]
                async with connected(url, mine) as transport, FakeEditor(transport) as holder:
                    await holder.start()
                    await holder.new_session(project)
                    await hold(holder, project, run.pid)
                    assert not bounded or await told(holder), holder.text()
                    assert await _got_in(url, other, project) is bounded
            finally:
                run.kill()
    if bounded:
        audit = (tmp_path / "home/.local/state/acp-coder/owners/other/audit.jsonl").read_text()
        assert audit.count('"event":"result"') == 3


async def _got_in(url: str, token: str, project: Path) -> bool:
    try:
        for word in ("one", "two", "three"):
            async with connected(url, token) as transport, FakeEditor(transport) as editor:
                await editor.start()
                if not await works(editor, project, word):
                    return False
    except (Exception, BaseExceptionGroup):  # noqa: BLE001 - Whatever it is that fails.
        return False
    return True


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "control"])
async def test_one_sessions_commands_take_nothing_of_another_session(tmp_path: Path, bounded: bool) -> None:
    async with begun(tmp_path, bounded=bounded) as (argv, environ, project):
        went = False
        try:
            async with FakeEditor.spawn(argv, env=environ, cwd=project) as editor:
                await editor.start()
                session = (await editor.new_session(project)).session_id
                assert editor.process is not None
                await hold(editor, project, editor.process.pid, session)
                assert not bounded or await told(editor, session)
                went = await works(editor, project, "one") and await works(editor, project, "two")
        except (Exception, BaseExceptionGroup):
            if bounded:
                raise
        assert went is bounded
    if bounded:
        assert (tmp_path / "home/.local/state/acp-coder/audit.jsonl").read_text().count(
            '"event":"result"'
        ) == HOLDERS + 3


@pytest.mark.parametrize("most", [64, 40, 24])
async def test_with_few_descriptors_it_works_or_says_what_is_too_few(tmp_path: Path, most: int) -> None:
    async with begun(tmp_path, bounded=True) as (argv, environ, project):
        argv[2] = argv[2].replace("1024", str(most))
        with (tmp_path / "said").open("w") as said:
            run = await anyio.open_process(
                [*argv, "prompt", "--yes", "echo works"], env=environ, cwd=project, stderr=said
            )
            assert run.stdout is not None
            out = b"".join([each async for each in run.stdout])
            await run.wait()
        text = out.decode() + (tmp_path / "said").read_text()
        assert "Traceback" not in text
        worked = "It said: works" in text
        assert worked and "are needed" not in text if most == 64 else "64 are needed: `ulimit -n`" in text, text
