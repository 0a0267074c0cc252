"""Each backend beyond this machine and the editor, once: run, write, find, kill. `tests/system` has all of it."""

from pathlib import Path

import pytest

from acp_agent.executors.base import Command, ExitStatus, FindQuery
from tests.executors.kit import COMMANDS_ELSEWHERE, FILES_ELSEWHERE, run, stage, until_exists


@pytest.mark.parametrize("backend", COMMANDS_ELSEWHERE)
async def test_a_backend_runs_writes_finds_and_kills(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path) as on:
        ended = await run(on.commands, "echo one; echo two >&2; exit 3", on.folder)
        assert (ended.stdout, ended.stderr, ended.status) == ("one\n", "two\n", ExitStatus(3))
        if backend in FILES_ELSEWHERE:
            file = on.folder / "deep" / "ü b.txt"
            assert (await on.files.write(file, "needle\n")).text == "needle\n"
            assert (file.read_text(), (await on.files.read(file)).text) == ("needle\n", "needle\n")
            found = await on.files.find(FindQuery("*.txt", on.folder, 10, 20.0))
            assert [match.path for match in found.matches] == [file]
        process = await on.commands.run(Command("echo $$ > pid; sleep 600", on.folder))
        pid = int(await until_exists(on.folder / "pid"))
        await process.kill()
        assert (await process.wait()).exit_code != 0
        await on.until_dead(pid)
        await process.close()
