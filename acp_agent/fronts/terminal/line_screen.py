"""`LineScreen`: lines in and lines out, for a terminal that can do no more (`TERM=dumb`)."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import termios
from collections.abc import Sequence

import anyio
import anyio.to_thread

from acp_agent.fronts.terminal.screens import CommandRow, Pick, Picked, PickRow, ScreenEvent, TerminalStyle


class LineScreen:
    """As `ChatScreen`. Nothing is drawn; a line that ends in a backslash goes on."""

    def __init__(self, style: TerminalStyle) -> None:
        self.style = style
        self._send, self.events = anyio.create_memory_object_stream[ScreenEvent](math.inf)
        self.commands: Sequence[CommandRow] = ()
        self._pending: list[str] = []
        self._one_at_a_time = anyio.Lock()
        self._answers: list[str] | None = None
        """The lines of an answer; None while nothing is asked."""
        self._heard = anyio.Event()
        self._left = anyio.CancelScope()

    def offer(self, commands: Sequence[CommandRow]) -> None:
        self.commands = commands

    @property
    def size(self) -> os.terminal_size:
        return shutil.get_terminal_size()

    def use_vi_keys(self) -> None:
        return

    def print(self, text: str) -> None:
        self._pending.append(text if text.endswith("\n") else f"{text}\n")

    def paint(self, live: str, status: str) -> None:
        if self._pending:
            sys.stdout.write("".join(self._pending))
            sys.stdout.flush()
            self._pending = []

    def give_back(self, text: str) -> None:
        self.print(f"Not done: {text}")

    def clear(self) -> bool:
        return False

    async def ask(self, pick: Pick) -> Picked:
        async with self._one_at_a_time:
            if sys.stdin.isatty():
                termios.tcflush(sys.stdin, termios.TCIFLUSH)  # What was typed before the question does not answer it.
            self._answers = []
            try:
                return await self._picked(pick)
            finally:
                self._answers = None

    async def _picked(self, pick: Pick) -> Picked:
        rows = {str(number): row for number, row in enumerate(pick.rows, 1)}
        rows |= {row.key: row for row in pick.rows if row.key}
        self.print("\n".join([pick.title, *(f"  {number}. {_named(row)}" for number, row in enumerate(pick.rows, 1))]))
        while pick.rows:
            line = await self._line("Your answer: ")
            row = rows.get(line.lower())
            if row is None:
                if not line:
                    return Picked()
                self.print("One of the numbers or letters, please; an empty line answers nothing.")
            elif not row.words:
                return Picked((row.id,))
            else:
                return Picked((row.id,), await self._line(f"{pick.words} "))
        return Picked(("",), words) if (words := await self._line(f"{pick.words} ")) else Picked()

    async def _line(self, prompt: str) -> str:
        self.paint("", "")
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while not self._answers:
            self._heard = anyio.Event()
            await self._heard.wait()
        return self._answers.pop(0).strip()

    def signal(self, sequence: str) -> None:
        sys.stdout.write(sequence)
        sys.stdout.flush()

    async def run(self) -> None:
        with self._left:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._interrupts)
                await self._read()
                tasks.cancel_scope.cancel()
        self.paint("", "")
        self._send.close()

    def leave(self) -> None:
        self._left.cancel()

    async def _read(self) -> None:
        text = ""
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            if self._answers is not None:
                self._answers.append(line)
                self._heard.set()
            elif line.endswith("\\\n"):
                text += f"{line[:-2]}\n"
            else:
                if (text + line).strip():
                    self._send.send_nowait(ScreenEvent("submit", (text + line).rstrip("\n")))
                text = ""
        self._send.send_nowait(ScreenEvent("leave"))

    async def _interrupts(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                self._send.send_nowait(ScreenEvent("cancel"))


def _named(row: PickRow) -> str:
    return f"{row.name} ({row.key})" if row.key else row.name
