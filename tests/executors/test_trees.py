"""Processes started by a local command end with it, wherever they went. (The editor's terminals are its own affair.)"""

from pathlib import Path

import pytest

from acp_agent.executors.base import Command, ExitStatus, Offer
from tests.executors.kit import alive, run, stage, until_dead, until_exists

pytestmark = pytest.mark.parametrize("backend", ["local", "editor"])


async def test_a_killed_tree_is_dead_to_the_last_child(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, offer=Offer()) as on:
        commands = on.commands
        script = (
            "setsid bash -c 'echo $$ > setsid; sleep 600' & "
            "(bash -c 'echo $$ > nested; sleep 600' &) ; "
            "python3 -c 'import os\n"
            "if os.fork() == 0:\n"
            "  os.setsid()\n"
            "  if os.fork() == 0:\n"
            '    open("daemon", "w").write(str(os.getpid()))\n'
            '    os.execvp("sleep", ["sleep", "600"])\n\' ; '
            "trap '' TERM; sleep 600"
        )
        process = await commands.run(Command(script, on.folder))
        pids = [int(await until_exists(on.folder / name)) for name in ("setsid", "nested", "daemon")]
        await process.kill()
        for pid in pids:
            await until_dead(pid)
        await process.close()


async def test_closing_the_executor_kills_what_commands_left_running(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, offer=Offer()) as on:
        assert (await run(on.commands, "setsid sleep 600 & echo $! > pid", on.folder)).status == ExitStatus(0)
        pid = int(await until_exists(on.folder / "pid"))
        assert alive(pid)
        await on.commands.close()
        await until_dead(pid)
        await on.commands.close()
