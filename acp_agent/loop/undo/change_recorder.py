"""Records what the calls of a session change: those of our own tools exactly, those of whatever runs by looking before
and after."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import anyio
from msgspec import Struct, field

from acp_agent.config.model import UndoConfig
from acp_agent.errors import AgentError
from acp_agent.executors.base import Files
from acp_agent.executors.users import in_thread_as
from acp_agent.lazy import load
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.session_state import SessionState
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.loop.turn_facts import change_note
from acp_agent.safety.access import Access, ExecuteAccess, PathAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.store.operation_store import OperationStore

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import SessionRuns
    from acp_agent.loop.calls.call import Call
    from acp_agent.undo.base import Change, Entry
    from acp_agent.undo.contents import Contents
    from acp_agent.undo.folder_looks import FolderLooks
    from acp_agent.undo.operation_log import Log, Row, Writer
    from acp_agent.undo.pictures import Camera

log = logging.getLogger(__name__)

CAMERA = "acp_agent.undo.pictures:Camera"
CONTENTS = "acp_agent.undo.contents:Contents"
LIMITS = "acp_agent.undo.folder_looks:Limits"
LOG = "acp_agent.undo.operation_log:Log"
LOOKS = "acp_agent.undo.folder_looks:FolderLooks"
NAMED = "acp_agent.undo.base:named"
ROWS_OF = "acp_agent.undo.operation_log:rows_of"
WATCH = "acp_agent.undo.folder_watch:Watch"
RECORDED = "acp_agent.undo.recording_files:RecordingFiles"

PROMPTLY = 0.25
"""Seconds that a call's end waits for what its command changed; the look goes on beside the model's next answer."""
REQUEST_FIRST = 0.1
"""Seconds that the first request of a session has to itself: loading what looks takes time."""
LATE = "What changed before it was looked at cannot be taken back: {} (a command began before the first look was done)."
COMPARE_SECONDS = 30.0
"""Seconds of comparing files with git's contents in a session, when `undo.copy_seconds` is used up."""
TOO_WIDE = "the session's folder is {}, so what commands change in it is not kept"

RECORDERS: WeakSet[ChangeRecorder] = WeakSet()
"""Of all sessions of this process."""


class ChangeRecorder:
    """Of one project. `state`: the folder of everything that lasts. `spawn` runs something beside the session."""

    def __init__(
        self,
        session: SessionState,
        roots: Roots,
        store: OperationStore,
        sandbox: FolderSandbox,
        turn: RunningTurn,
        runs: SessionRuns,
        config: UndoConfig,
        state: Path,
        home: Path | None,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._session = session
        self._roots = roots
        self.store = store
        self._sandbox = sandbox
        self._turn = turn
        self._runs = runs
        self._config = config
        self.state = state
        self._home = home
        self._spawn = spawn
        RECORDERS.add(self)
        self._copy_left, self._compare_left = 0.0, COMPARE_SECONDS
        self._running: list[Call] = []
        """Calls that something may be running for."""
        self._prompts: dict[str, int] = {}
        """By call: the prompt that it belongs to."""
        self._beside: list[bool] = []
        """Whether something goes on beside."""
        self._background = ""
        """The call whose command was running in the background at the last look."""
        self.trouble = ""
        """Why nothing is kept, if that is so."""

    @property
    def enabled(self) -> bool:
        return self._config.enabled and self._roots.disk.here

    @property
    def why_not(self) -> str:
        """Why it is not."""
        disk = self._roots.disk
        return "`undo.enabled = false`" if disk.here else f"the files are {disk.where}"

    # --- the parts, made when first needed --------------------------------------------------------------------

    @cached_property
    def log(self) -> Log:
        return cast("Log", load(LOG)(self.store, self._session.id))

    @cached_property
    def contents(self) -> Contents:
        return cast("Contents", load(CONTENTS)(self.state / "undo" / "contents", quota=self._config.quota_bytes))

    @cached_property
    def camera(self) -> Camera:
        """For our own tools."""
        hides = self._roots.rules.hides
        return cast("Camera", load(CAMERA)(self.contents, self._config.max_tool_file_bytes, hides))

    @cached_property
    def looks(self) -> FolderLooks | None:
        roots = self._roots
        for folder in roots.real:
            if folder == Path("/") or folder == self._home or (self._home is not None and folder in self._home.parents):
                self.trouble = TOO_WIDE.format(folder)
                return None
        limits = load(LIMITS)(self._config.max_entries, self._config.max_file_bytes)
        watch, skips = load(WATCH)(self._sandbox.folders), [self.state]
        hides = roots.rules.hides
        return cast(
            "FolderLooks", load(LOOKS)(roots.real, self.contents, limits, hides=hides, skips=skips, watch=watch)
        )

    @cached_property
    def _looking(self) -> anyio.Lock:
        return anyio.Lock()

    # --- what our own tools do --------------------------------------------------------------------------------

    def files(self, call: Call, files: Files) -> Files:
        """Those of one call: what it changes is recorded."""
        if not self.enabled:
            return files
        about = self.camera, self._writer(call), _Listener(self, call), self._sandbox.user
        return cast("Files", load(RECORDED)(files, *about))

    def _writer(self, call: Call) -> Writer:
        if call.outcome.writer is None:
            title, above = call.name, tuple[str, ...]()
            if call.ready is not None:
                title, above = call.ready.description.title, call.ready.above
            title = self._session.outbox.clean(title)
            call.outcome.writer = self.log.begin(self._session.turns, "/".join((*above, call.id)), "call", title)
        return cast("Writer", call.outcome.writer)

    # --- what runs --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A turn has begun: looks beside the model's first answer."""
        self._copy_left = self._config.copy_seconds
        if self.enabled:
            self._spawn(self._look_beside())

    async def _look_beside(self) -> None:
        if "looks" not in vars(self):
            await anyio.sleep(REQUEST_FIRST)
        await self._look(None, 0.0)

    async def window(self, call: Call, accesses: Sequence[Access], *, hooks: bool) -> Window | None:
        """To be opened before a call runs; `None` if nothing but our own tools can change files. `hooks`: whether the
        user's own commands run before or after it."""
        runs = any(isinstance(access, ExecuteAccess | ToolAccess) for access in accesses)
        writes = any(isinstance(access, PathAccess) and access.mode != "read" for access in accesses)
        if not self.enabled or not (runs or (hooks and writes)):
            return None
        await self._look(None, self._config.look_seconds)
        beside = [each for other in RECORDERS if other._overlaps(self) for each in other._running]
        for each in beside:
            each.outcome.looked.alone = False
        call.outcome.looked.began_early = self.looks is not None and self.looks.unfinished
        call.outcome.looked.alone = not beside and not self._runs.running_call(self._roots)
        self._running.append(call)
        self._prompts[call.id] = self._session.turns
        return Window(self, call)

    def note(self, call: Call) -> str:
        """What its command changed, for the model; empty if nobody looked."""
        return change_note(call, self.contents) if self.enabled else ""

    def _overlaps(self, other: ChangeRecorder) -> bool:
        """Whether both look at some folder."""
        ours, theirs = self._roots, other._roots
        return any(map(ours.contains, theirs.real)) or any(map(theirs.contains, ours.real))

    def closed(self, call: Call) -> None:
        """The call is over, with its window."""
        if call in self._running:
            self._running.remove(call)

    async def _look(self, call: Call | None, seconds: float) -> bool:
        """Records what changed since the last look: for `call`, else for a command in the background, else for nobody:
        then the user did it. False if nobody could look."""
        try:
            async with self._looking:
                if self.looks is None:
                    return False
                self._roots.need()
                if call is None and self._running:
                    call = self._running[-1]  # What changes while it runs is its doing.
                background, self._background = self._background, self._runs.running_call(self._roots)
                of = "" if call is not None else background or self._background
                report = call is not None or bool(of)
                changes, rows = await self._in_thread(lambda looks: _with_rows(looks.look(seconds, report=report)))
                if late := self.looks.late():
                    self._session.outbox.tell(LATE.format(load(NAMED)(late)))
                if call is not None:
                    call.outcome.looked.whole = not (self.looks.partial or call.outcome.looked.began_early)
                    if self.looks.left_out.folders and not self.looks.left_out.told:
                        self.looks.left_out.told = True
                        self._session.outbox.tell(f"What commands change there cannot be taken back: {self.beyond()}.")
                if changes:
                    await self._note(call, of, changes, rows)
            self._look_on()
        except (AgentError, OSError) as error:
            self.trouble = str(error)
            log.warning("what commands change cannot be taken back: %s", error)
            return False
        return True

    async def _note(self, call: Call | None, of: str, changes: Sequence[Change], rows: Sequence[Row]) -> None:
        lost = [f"{change.path} ({change.before.why})" for change in changes if change.before.why]
        self._turn.facts.made(changes)
        if call is not None:
            call.outcome.looked.changes += changes
            writer = self._writer(call)
        else:
            prompt = self._prompts.get(of, self._session.turns)
            writer = self.log.begin(prompt, of, "background", "in the background")
        words = f"Cannot be taken back: {load(NAMED)(lost)}." if lost else ""
        await writer.do(writer.changed, rows, words)
        if words and call is not None:
            call.outcome.looked.uncovered = words

    def _look_on(self) -> None:
        """Goes on with the first look, and then with copying, beside all else."""
        if self.looks is not None and not self._beside and (self.looks.unfinished or self._copy_left):
            self._beside.append(True)
            self._spawn(self._go_on())

    async def _go_on(self) -> None:
        """In pieces, with pauses: what waits for the interpreter waits for one of them."""
        try:
            left = True
            while left:
                began = time.monotonic()
                if cast("FolderLooks", self.looks).unfinished:
                    await self._in_thread(lambda looks: looks.look_on())
                else:
                    left = await self._copied()
                await anyio.sleep(time.monotonic() - began)
        finally:
            self._copy_left = 0.0
            self._beside.clear()

    async def _copied(self) -> bool:
        """Copies for a moment, or, when the time for it is used up, compares with git only; whether something is
        left."""
        copies, began = self._copy_left > 0, time.monotonic()
        if not copies and self._compare_left <= 0:
            return False
        left = await self._in_thread(lambda looks: looks.copy_beside(copies=copies))
        took = time.monotonic() - began
        if copies:
            self._copy_left -= took
        else:
            self._compare_left -= took
        return bool(left)

    async def _in_thread(self, work: Callable[[FolderLooks], Any]) -> Any:
        looks = self.looks
        assert looks is not None
        return await in_thread_as(self._sandbox.user(), lambda: work(looks))

    async def settled(self) -> None:
        """Waits until everything that was changed is in the log."""
        if self.enabled:
            await self._look(None, self._config.look_seconds)

    def uncovered(self) -> list[str]:
        """What commands can change without a way back, and why."""
        if not self.enabled:
            return [f"nothing is kept ({self.why_not})"]
        if self.trouble:
            return [self.trouble]
        return [] if self.looks is None else self.looks.uncovered()

    def beyond(self) -> str:
        """The folders in which nobody looks, and why; empty if there are none."""
        return "" if not self.enabled or self.trouble or self.looks is None else self.looks.beyond()

    def absorb(self, entries: Sequence[tuple[Path, Entry]]) -> None:
        """These were changed by our own tools: no command of any session did it."""
        for looks in _all_looks():
            looks.absorb(entries)

    @contextmanager
    def held(self, paths: Sequence[Path]) -> Iterator[None]:
        """Our own tools are changing these, and `absorb` follows."""
        with ExitStack() as held:
            for looks in _all_looks():
                held.enter_context(looks.held(paths))
            yield

    async def close(self) -> None:
        if "looks" in vars(self) and self.looks is not None:
            self.looks.close()


def _all_looks() -> list[FolderLooks]:
    """Of all sessions of this process that have begun to look."""
    found = (vars(recorder).get("looks") for recorder in RECORDERS)
    return [looks for looks in found if looks is not None]


def _with_rows(changes: Sequence[Change]) -> tuple[Sequence[Change], Sequence[Row]]:
    return changes, load(ROWS_OF)(changes) if changes else ()


class Window(Struct):
    """The time in which a call runs."""

    recorder: ChangeRecorder
    call: Call
    _ended: anyio.Event = field(default_factory=anyio.Event)

    async def look(self) -> None:
        """The command has ended; waits a moment for what it changed."""
        self._ended = anyio.Event()
        self.call.outcome.looked.done = False
        self.recorder._spawn(self._look())
        with anyio.move_on_after(PROMPTLY):
            await self._ended.wait()

    async def _look(self) -> None:
        try:
            self.call.outcome.looked.done = await self.recorder._look(self.call, 0.0)
        finally:
            self._ended.set()


class _Listener:
    """What `RecordingFiles` tells."""

    def __init__(self, recorder: ChangeRecorder, call: Call) -> None:
        self._recorder = recorder
        self._call = call
        self.changing = recorder.held

    def changed(self, changes: Sequence[Change]) -> None:
        self._recorder.absorb([(each.path, each.after) for each in changes if each.after is not None])
        new = [each for each in changes if each.after is not None and not each.before.same(each.after)]
        self._recorder._turn.facts.made(new)

    def not_kept(self, words: str) -> None:
        self._call.outcome.looked.uncovered = words
        writer = cast("Writer", self._call.outcome.writer)
        writer.later(partial(writer.say, words), partial(log.warning, "%s"))
