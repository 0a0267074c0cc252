"""A server's process: what it gets from its launch, and how it ends."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from acp_agent.child import one_line
from acp_agent.lsp.base import Launch, LspError
from acp_agent.lsp.lsp_client import start_process


async def run(launch: Launch) -> tuple[str, str]:
    """What it printed until it ended, and the words about its end."""
    process = start_process("it", launch)
    try:
        printed = b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.watch_stderr)
            while chunk := await process.read():
                printed += chunk
            await process.left()
        await process.end()
    finally:
        process.close()
    return printed.decode(), process.end_words()


async def test_a_server_gets_its_folder_its_environment_and_its_descriptors(tmp_path: Path):
    read_end, write_end = os.pipe()
    os.write(write_end, b"handed over")
    os.close(write_end)
    called: list[str] = []
    code = f"import os; print(os.getcwd(), os.environ['WORD'], os.read({read_end}, 99).decode(), len(os.environ) < 4)"
    launch = Launch(
        [sys.executable, "-S", "-c", code], tmp_path, {"WORD": "word"}, pass_fds=(read_end,),
        started=lambda: called.append("started"),
    )  # fmt: skip
    try:
        printed, words = await run(launch)
    finally:
        os.close(read_end)
    assert printed == f"{tmp_path} word handed over True\n"
    assert (words, called) == ("its process exited with code 0", ["started"])


async def test_the_last_words_and_the_signal_of_a_server_are_told(tmp_path: Path):
    code = "import sys; [sys.stderr.write(f'line {n}\\x1b[1m!\\n') for n in range(100_000)]; sys.exit(4)"
    _, words = await run(Launch([sys.executable, "-S", "-c", code], tmp_path, {}))
    told = " / ".join(f"line {n} !" for n in range(99_995, 100_000))
    assert words == f"its process exited with code 4; its last output: {told}"
    _, words = await run(Launch(["/bin/sh", "-c", "kill -SEGV $$"], tmp_path, {}))
    assert words == "its process was killed by SIGSEGV"


@pytest.mark.parametrize("argv", [["/no/such/program"], ["a\0b"]])
def test_a_program_that_cannot_be_started_is_an_error_and_the_launch_goes_on(tmp_path: Path, argv: list[str]):
    called: list[str] = []
    with pytest.raises(LspError, match="the language server it could not be started: "):
        start_process("it", Launch(argv, tmp_path, {}, started=lambda: called.append("started")))
    assert called == ["started"]


def test_long_lines_are_cut():
    assert one_line("a\tb\r\n  c ", 10) == "a b c" and one_line("x" * 20, 10) == "x" * 9 + "…"
