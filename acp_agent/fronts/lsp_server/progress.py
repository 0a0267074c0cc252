"""Work-done progress: one item for the turn and one for each tool call that runs long enough to be seen.

An item exists once the editor has agreed to it (`window/workDoneProgress/create`), so its messages are stored and sent
when allowed.
"""

from __future__ import annotations

from itertools import count

import anyio.abc
from lsprotocol import types
from msgspec import Struct

from acp_agent.fronts.lsp_server.lsp_editor import Editor
from acp_agent.fronts.lsp_server.status import Board, one_line

NEW_LINES = 3
"""Calls that get an item per drawing: a turn with thousands of quick ones must not fill the screen."""

PREFIX = "acp-coder/"


class _Line(Struct):
    token: str
    title: str
    message: str = ""
    said: str = ""
    begun: bool = False
    ended: bool = False
    refused: bool = False


class Progress:
    def __init__(self, editor: Editor, tasks: anyio.abc.TaskGroup) -> None:
        self._editor = editor
        self._tasks = tasks
        self._numbers = count(1)
        self._turn: _Line | None = None
        self._calls: dict[str, _Line] = {}
        self._seen: set[str] = set()
        """Calls that were considered already."""

    def is_ours(self, token: str | int) -> bool:
        """Whether it belongs to something running: cancelling it stops the turn."""
        lines = [*self._calls.values(), *([self._turn] if self._turn is not None else [])]
        return any(line.token == token for line in lines)

    def begin_turn(self, title: str) -> None:
        self.end_turn("")
        self._seen.clear()
        if self._editor.shows_progress:
            self._turn = self._create(f"Agent: {one_line(title, 60)}")

    def end_turn(self, words: str) -> None:
        for line in self._calls.values():
            self._end(line, "")
        self._calls.clear()
        if self._turn is not None:
            self._end(self._turn, words)
            self._turn = None

    def draw(self, board: Board) -> None:
        """Shows the calls in their current state."""
        if self._turn is None:
            return
        for call_id, line in list(self._calls.items()):
            call = board.calls.get(call_id)
            if call is None or call.ended:
                self._end(line, "" if call is None else call.shown)
                del self._calls[call_id]
            else:
                self._say(line, "waits for your answer" if call.waiting else "")
        new = 0
        running = 0
        newest = ""
        for call in board.running():
            running += 1
            newest = call.label
            if call.id not in self._seen and new < NEW_LINES:
                new += 1
                self._seen.add(call.id)
                self._calls[call.id] = self._create(one_line(call.title, 60))
        more = f" and {running - 1} more" if running > 1 else ""
        self._say(self._turn, f"{newest}{more}" if running else f"{len(board.calls)} done" if board.calls else "")

    # --- one item ---------------------------------------------------------------------------------------------

    def _create(self, title: str) -> _Line:
        line = _Line(f"{PREFIX}{next(self._numbers)}", title)
        self._tasks.start_soon(self._begin, line)
        return line

    async def _begin(self, line: _Line) -> None:
        params = types.WorkDoneProgressCreateParams(token=line.token)
        if not await self._editor.try_to_ask(types.WINDOW_WORK_DONE_PROGRESS_CREATE, params):
            line.refused = True
            return
        line.begun = True
        line.said = line.message
        begin = types.WorkDoneProgressBegin(title=line.title, cancellable=True, message=line.message or None)
        self._notify(line, begin)
        if line.ended:
            self._notify(line, types.WorkDoneProgressEnd(message=line.message or None))

    def _say(self, line: _Line, message: str) -> None:
        line.message = message
        if line.begun and not line.ended and message != line.said:
            line.said = message
            self._notify(line, types.WorkDoneProgressReport(cancellable=True, message=message))

    def _end(self, line: _Line, message: str) -> None:
        line.message = message
        if line.begun and not line.ended:
            self._notify(line, types.WorkDoneProgressEnd(message=message or None))
        line.ended = True

    def _notify(self, line: _Line, value: object) -> None:
        self._editor.notify(types.PROGRESS, types.ProgressParams(token=line.token, value=value))
