"""Opens the chat: first the input, then, while the user types, what is behind it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from acp_agent.config.xdg import state_dir
from acp_agent.fronts.terminal.screens import ChatJob, ChatScreen, TerminalStyle
from acp_agent.lazy import load

LIVE_SCREEN = "acp_agent.fronts.terminal.live_screen:LiveScreen"
LINE_SCREEN = "acp_agent.fronts.terminal.line_screen:LineScreen"
HISTORY = "acp_agent.fronts.terminal.prompt_completion:FolderHistory"
PROGRAM = "acp_agent.fronts.terminal.chat_program:ChatProgram"


def open_chat(job: ChatJob) -> int:
    """The exit status."""
    return anyio.run(_open, job)


def bare(arguments: list[str]) -> int:
    """`acp-coder` without anything, in a terminal."""
    return open_chat(ChatJob(Path.cwd(), dict(os.environ)))


async def _open(job: ChatJob) -> int:
    style = TerminalStyle.of(job.environ)
    if job.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        screen: ChatScreen = load(LINE_SCREEN)(style)
    else:
        screen = load(LIVE_SCREEN)(style, job.cwd, load(HISTORY)(Path(state_dir(os.environ)), job.cwd))
    status = 0
    async with anyio.create_task_group() as tasks:
        begun: list[Any] = []

        async def work() -> None:
            nonlocal status
            try:
                program = (await anyio.to_thread.run_sync(load, PROGRAM))(job, screen)
                begun.append(program)
                status = await program.run()
            finally:
                screen.leave()

        tasks.start_soon(work)
        await screen.run()
        for program in begun:
            sys.stdout.write(program.farewell)
            sys.stdout.flush()
        if not begun:
            tasks.cancel_scope.cancel()
    return status
