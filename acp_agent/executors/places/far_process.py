"""A command in a place: the pipes of the program, here, that brought it there.

What it says of itself stands between markers that nobody else knows and is cut out of the streams (see `starter`).
Over there may be somebody who lies: what is behind the end is bounded, and only the state of the command's own shell is
taken from it.
"""

from __future__ import annotations

import signal
import subprocess

import anyio

from acp_agent.child import signal_group, signal_name
from acp_agent.executors.base import Command, ExitStatus, StreamName
from acp_agent.executors.local import LocalProcess
from acp_agent.executors.places.reaper import Reaper
from acp_agent.executors.sandbox.base import Confined
from acp_agent.executors.shell_state import MAX_PATH_BYTES, MAX_STATE_BYTES, keep_state

LEAVES = 0.5
"""Seconds for the program here to end once the command has."""
BEGINS = 10.0
"""Seconds until a command has begun that is to be killed."""
ENDS = 2.0
"""Seconds for the news of a kill to get here."""
FIELDS = 3
SIGNALLED = 128


class FarProcess(LocalProcess):
    """A running command over there."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        mark: str,
        command: Command,
        grace: float,
        nonce: str,
        reaper: Reaper,
        ending: Confined | None = None,
    ) -> None:
        self._marker = b"\x1e" + nonce.encode("ascii")
        self._held: dict[StreamName, bytes] = {"stdout": b"", "stderr": b""}
        self._done: set[StreamName] = set()
        self._trailer = b""
        self._group: int | None = None
        self._status: ExitStatus | None = None
        """Once it has ended."""
        self._killed = False
        self._command = command
        self._reaper = reaper
        self._where = reaper.place.words
        super().__init__(popen, mark, command.output_limit, grace, ending)

    async def wait(self) -> ExitStatus:
        while self._status is None:
            await self._step()
        return self._status

    async def kill(self) -> None:
        if self._ended:
            await self._reaper.finish(self._mark, 0)
            return
        self._killed = True
        with anyio.move_on_after(BEGINS):
            while self._group is None and not self._ended:
                await self._step()
        if not await self._reaper.finish(self._mark, self._group or 0):
            self.remark = f"it is not known whether all that it started in {self._where} was ended"
        with anyio.move_on_after(ENDS):
            await self.wait()
        signal_group(self._popen.pid, signal.SIGKILL)
        with anyio.move_on_after(self._grace):
            await self.wait()

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def _complete(self) -> bool:
        return self._done == {"stdout", "stderr"} and self._trailer.count(self._marker) >= FIELDS

    async def _step(self) -> None:
        if not self._complete:
            await super()._step()
        if self._complete and not self._ended:
            # Something in the background may hold the streams, and so the program here.
            with anyio.move_on_after(LEAVES):
                while not self._ended:
                    await super()._step()
            if not self._ended:
                signal_group(self._popen.pid, signal.SIGKILL)
                while not self._ended:
                    await super()._step()
        if self._ended and self._status is None:
            self._status = self._told()

    def _take(self, stream: StreamName, data: bytes) -> None:
        if stream in self._done:
            if stream == "stderr" and len(self._trailer) < MAX_STATE_BYTES + 2 * MAX_PATH_BYTES:
                self._trailer += data
            return
        held = self._held[stream] + data
        text, found, rest = held.partition(self._marker)
        if found and stream == "stderr" and self._group is None and (not rest or rest[:1] == b"B"):
            group, newline, after = rest[1:].partition(b"\n")
            if newline:
                self._group = int(group) if group.isdigit() else 0
                held = text + after
                text, found, rest = held.partition(self._marker)
            elif data:
                self._held[stream] = held
                return
        if found:
            self._done.add(stream)
            self._trailer += rest if stream == "stderr" else b""
            self._held[stream] = b""
        else:
            kept = begun(held, self._marker) if data else 0
            text, self._held[stream] = held[: len(held) - kept], held[len(held) - kept :]
        if text:
            super()._take(stream, text)
        if found or not data:
            super()._take(stream, b"")

    def _told(self) -> ExitStatus:
        """How it ended, by its trailer, from which the state of its shell is kept."""
        fields = self._trailer.split(self._marker)
        code = fields[0].removeprefix(b"E")
        if len(fields) <= FIELDS or not code.isdigit():
            self._reaper.lost()
            if self._killed:
                return ExitStatus(None, "SIGKILL")
            told = "before it began" if self._group is None else "before its end was told"
            self.remark = f"the connection to {self._where} ended {told}"
            return ExitStatus()
        _, cwd, state, *_ = fields
        keep_state(self._command, state, cwd, self._where)
        number = int(code[:4]) & 0xFF
        if self._killed and number > SIGNALLED:
            return ExitStatus(None, signal_name(number - SIGNALLED))
        return ExitStatus(number)


def begun(data: bytes, marker: bytes) -> int:
    """How many bytes at the end may be the beginning of the marker."""
    at = data.rfind(marker[:1], max(0, len(data) - len(marker) + 1))
    return len(data) - at if at >= 0 and marker.startswith(data[at:]) else 0
