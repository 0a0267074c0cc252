"""Takes back what a session's calls did: finds out what that means, shows it, does it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import AgentError, ConnectionClosed, ExecutorError, StoreError
from acp_agent.executors.encodings import decoded, encoded
from acp_agent.executors.users import in_thread_as
from acp_agent.loop.memory.rewinding import Prompt, RewindError, check_unrewind, prompts_of
from acp_agent.loop.session import Session
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.undo.change_recorder import ChangeRecorder
from acp_agent.schema.undo_methods import ChangedFile, UndoCheckpoint, What
from acp_agent.undo.base import NOTHING, Change, Entry, Operation, is_cache, named
from acp_agent.undo.contents import ContentError
from acp_agent.undo.file_changes import MOST_FILES, FileChange, file_change, parts_of, without
from acp_agent.undo.merge import merge
from acp_agent.undo.pictures import put
from acp_agent.undo.recording_files import with_unsaved
from acp_agent.undo.restore import beginning, held, make
from acp_agent.undo.undo_plan import Conflict, Plan, Step, by_path, make_plan
from acp_agent.undo.what_stands import standing

if TYPE_CHECKING:
    from acp_agent.undo.operation_log import Log

T = TypeVar("T")
Tell = Callable[[int], None]
log = logging.getLogger(__name__)

AT_ONCE = 16
"""Files that the editor is asked about at the same time."""
MOST_NAMED = 20
OFTEN, TOLD = 100, 1_000
"""Files after which it is asked whether an undo was cancelled, and told how far it is."""
MOST_KNOWN = 2_000
"""Changes of files that are remembered as they are shown."""


class UndoError(AgentError):
    """It cannot be taken back; in words for the user."""


class Target(Struct, frozen=True):
    """What is to be taken back: a prompt and all after it, one call, or what a file became since a prompt."""

    prompt: int = 0
    call: str = ""
    path: Path | None = None
    hunks: tuple[int, ...] = ()
    """Of the file's changes; empty: all."""
    expect: tuple[str, ...] = ()
    """What each of these is known by (`hunk_ids`)."""
    redo: bool = False


class Prepared(Struct, frozen=True):
    target: Target
    operations: tuple[Operation, ...]
    plan: Plan
    files: tuple[FileChange, ...]
    """From what is to what will be."""
    title: str
    rewinds: int = 0
    """The prompt from which on the conversation can be cut, or is restored; 0: it cannot."""


class Undoing:
    """Of one session."""

    def __init__(
        self,
        session: Session,
        recorder: ChangeRecorder,
        shell: Shell,
        tell_model: Callable[[str], None],
        notice: Callable[[str], None],
    ) -> None:
        """`tell_model`: what the model is told before the next prompt. `notice`: for the audit log."""
        self._session = session
        self._recorder = recorder
        self._shell = shell
        self._tell_model = tell_model
        self._notice = notice
        self._known: dict[tuple[Path, Entry, Entry], FileChange | None] = {}

    @property
    def _log(self) -> Log:
        return self._recorder.log

    # --- what there is ----------------------------------------------------------------------------------------

    async def checkpoints(self) -> list[UndoCheckpoint]:
        """Prompts to which one can go back, oldest first."""
        await self._recorder.settled()
        operations = await self._log.do(self._log.operations)
        by_operation = await self._log.do(self._log.changes_by_operation, operations)
        found = []
        for prompt in prompts_of(await self._session.stored()):
            made = [each for each in operations if each.prompt == prompt.number and each.by != "undo"]
            if not made and prompt.is_command:
                continue
            changes = [change for each in made for change in by_operation[each.id]]
            files = await self._thread(partial(self._net, changes))
            calls = [each for each in made if each.by == "call"]
            undone = bool(calls) and all(each.state == "taken back" for each in calls)
            uncovered = [*dict.fromkeys(each.uncovered for each in made if each.uncovered)]
            told = (prompt.number, prompt.time, prompt.title, prompt.message_id, undone, prompt.cut)
            changed = [ChangedFile(str(each.path), each.kind, each.added, each.removed, each.cache) for each in files]
            found.append(UndoCheckpoint(*told, changed, uncovered))
        return found

    def uncovered(self) -> list[str]:
        return self._recorder.uncovered()

    def beyond(self) -> list[str]:
        """What is said with each restoring in a folder that is too large to be looked at as a whole."""
        words = self._recorder.beyond()
        return [f"Not covered, if a command changed it: {words}."] if words else []

    async def changes(
        self, since: int = 0, until: int | None = None, call: str = ""
    ) -> tuple[tuple[FileChange, ...], list[str]]:
        """What the agent changed from before prompt `since` to after prompt `until` (`None`: to now, that is what is
        left of it), or by one call; and what is not covered."""
        await self._recorder.settled()
        every = await self._log.do(self._log.operations)
        operations = [each for each in every if until is None or each.prompt <= until]
        chosen = [each for each in operations if (_is_of(each, call) if call else _is_since(each, since))]
        theirs = [each for each in chosen if each.by != "background"]
        looks = partial(self._log.changes, chosen) if call else partial(self._standing, operations, theirs)
        changes = await self._log.do(looks)
        uncovered = [each.uncovered for each in chosen if each.uncovered]
        calls = await self._log.do(self._calls_by_path, chosen)
        done = by_path(changes)
        rest = {path: done[path][-1].after or NOTHING for path in list(done)[MOST_FILES:]}
        now = await self._now([*done], rest) if until is None and not call else None
        found = await self._thread(lambda: self._net(changes, now, calls, rest))
        return found, [*dict.fromkeys(uncovered), *self.uncovered()]

    def _standing(self, operations: Sequence[Operation], chosen: Sequence[Operation]) -> list[Change]:
        first = min((each.id for each in chosen), default=0)
        changes = self._log.changes_by_operation([each for each in operations if each.id >= first])
        return standing(operations, changes, {each.id for each in chosen}, self._recorder.contents)

    def _calls_by_path(self, operations: Sequence[Operation]) -> dict[Path, tuple[str, ...]]:
        calls: dict[Path, tuple[str, ...]] = {}
        found = self._log.changes_by_operation(operations)
        for operation in operations:
            for change in found[operation.id]:
                if operation.call and operation.call not in calls.get(change.path, ()):
                    calls[change.path] = (*calls.get(change.path, ()), operation.call)
        return calls

    def _net(
        self,
        changes: Sequence[Change],
        now: dict[Path, Entry] | None = None,
        calls: dict[Path, tuple[str, ...]] | None = None,
        rest: Container[Path] | None = None,
    ) -> tuple[FileChange, ...]:
        """What these changes amount to, file by file; `now`: what is left of it; `rest`: not compared."""
        found, display = [], self._shell.roots.display
        rest = {*[*by_path(changes)][MOST_FILES:]} if rest is None else rest
        for path, part in parts_of(changes, now, self._recorder.contents).items():
            compared = self._shown(path, part.old, part.new) if path not in rest else None
            if (shown := compared or file_change(path, part.old, part.new, None)) is not None:
                by = (calls or {}).get(path, ())
                found.append(replace(shown, calls=by, mixed=part.mixed, cache=is_cache(display(path))))
        return tuple(sorted(found, key=lambda each: each.cache))

    def _shown(self, path: Path, before: Entry, after: Entry) -> FileChange | None:
        """Remembered: lists of many prompts are asked for again and again."""
        key = (path, before, after)
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = file_change(path, before, after, self._recorder.contents)
        return self._known[key]

    async def can_redo(self) -> bool:
        return _last_undo(await self._log.do(self._log.operations)) is not None

    # --- what taking back means -------------------------------------------------------------------------------

    async def prepare(self, target: Target, *, merging: bool = False) -> Prepared:
        """Raises UndoError where there is nothing to take back."""
        if not self._recorder.enabled:
            raise UndoError(f"Nothing is kept that could be taken back ({self._recorder.why_not}).")
        await self._recorder.settled()
        operations = await self._log.do(self._log.operations)
        if target.redo:
            return await self._prepare_redo(operations, merging)
        every = prompts_of(await self._session.stored())
        prompts = [prompt for prompt in every if not prompt.cut]
        if target.call:
            return await self._prepare_call(target, operations, merging)
        if target.path is not None:
            return await self._prepare_path(target, target.path, operations, merging)
        number = target.prompt or _last(operations, prompts)
        prompt = next((prompt for prompt in every if prompt.number == number), None)
        if prompt is None:
            raise UndoError(
                f"There is no prompt {number} to go back to; `/checkpoints` lists them."
                if number
                else "There is nothing to take back yet."
            )
        chosen = [each for each in operations if _is_since(each, number) and each.by != "background"]
        changes = await self._log.do(self._standing, operations, chosen)
        title, rewinds = f"prompt {number} ({prompt.title})", 0 if prompt.cut else number
        return await self._prepared(replace(target, prompt=number), chosen, changes, title, merging, rewinds=rewinds)

    async def _prepare_redo(self, operations: Sequence[Operation], merging: bool) -> Prepared:
        if (last := _last_undo(operations)) is None:
            raise UndoError("There is no undo to take back.")
        rewinds, why = last.rewound, ""
        try:
            if rewinds:
                check_unrewind(await self._session.stored(), rewinds)
        except RewindError as error:
            rewinds, why = 0, str(error)
        changes = await self._log.do(self._log.changes, [last])
        prepared = await self._prepared(Target(redo=True), [last], changes, last.title, merging, rewinds=rewinds)
        if why and not (prepared.plan.steps or prepared.plan.conflicts):
            raise UndoError(f"The conversation cannot be restored: {why}.")
        return prepared

    async def _prepare_call(self, target: Target, operations: Sequence[Operation], merging: bool) -> Prepared:
        chosen = [each for each in operations if _is_of(each, target.call)]
        if not chosen:
            raise UndoError(f"No call with the id {target.call} has changed anything that is kept.")
        changes = await self._log.do(self._standing, operations, chosen)
        return await self._prepared(target, chosen, changes, f"the call {chosen[0].title}", merging)

    async def _prepare_path(
        self, target: Target, path: Path, operations: Sequence[Operation], merging: bool
    ) -> Prepared:
        chosen = [each for each in operations if _is_since(each, target.prompt) and each.by != "background"]
        found = await self._log.do(self._standing, operations, chosen)
        changes = [change for change in found if change.path == path]
        if not changes:
            raise UndoError(f"The agent has not changed {path} since then.")
        if not target.hunks:
            return await self._prepared(target, (), changes, str(path), merging)  # Its calls' other files stay.
        now = await self._now([path])
        step = await self._thread(lambda: self._without(path, changes, now, target))
        plan = Plan((step,))
        return Prepared(target, (), plan, self._files(plan), f"changes of {path}")

    def _without(self, path: Path, changes: Sequence[Change], entries: dict[Path, Entry], target: Target) -> Step:
        """The file without these hunks, in its encoding. Raises UndoError."""
        contents = self._recorder.contents
        part, now = parts_of(changes, entries, contents).get(path), entries.get(path)
        change = self._shown(path, part.old, part.new) if part is not None else None
        try:
            if part is None or change is None or now is None:
                raise LookupError
            wanted = without(change, tuple(zip(target.hunks, target.expect, strict=True)))
            if change.kind != "changed" and part.new is now:
                return Step(path, now, part.old)  # All of it: the file goes, or comes back.
            if not part.old.kind == part.new.kind == now.kind == "file":
                raise UndoError(f"{path} was changed since; nothing was restored.")
            if not now.content:
                raise ContentError(now.why)
            disk = decoded(contents.get(now.content))
            text = decoded(contents.get(now.unsaved)).text if now.unsaved else disk.text
            merged = wanted if text == change.new else merge(change.new or "", text, wanted)
            if merged is None:
                raise UndoError(f"These lines of {path} were changed since; nothing was restored.")
            data, encoding = encoded(merged, disk.encoding)
            if encoding != disk.encoding:
                raise UndoError(f"{path} is in {disk.encoding.name}, which lacks a character of its text.")
            return Step(path, now, Entry("file", now.mode, len(data), contents.put(data, now.content)))
        except LookupError:
            words = f"{path} has no such change any more: it was changed since. Ask for its changes again."
            raise UndoError(words) from None
        except (ContentError, UnicodeError) as error:
            raise UndoError(f"These changes of {path} cannot be taken back: {error}.") from error

    async def _prepared(
        self,
        target: Target,
        undone: Sequence[Operation],
        changes: Sequence[Change],
        title: str,
        merging: bool,
        *,
        rewinds: int = 0,
    ) -> Prepared:
        now = await self._now([change.path for change in changes])
        plan = await self._thread(lambda: self._plan(changes, now, merging))
        files = await self._thread(lambda: self._files(plan))
        return Prepared(target, tuple(undone), plan, files, title, rewinds)

    def _plan(self, changes: Sequence[Change], now: dict[Path, Entry], merging: bool) -> Plan:
        def entry(path: Path) -> Entry:
            if path not in now:
                raise ExecutorError("it cannot be looked at")
            return now[path]

        return make_plan(changes, entry, self._recorder.contents, merging=merging)

    def _files(self, plan: Plan) -> tuple[FileChange, ...]:
        contents = self._recorder.contents
        shown = (
            file_change(step.path, step.now, step.then, contents if number < MOST_FILES else None)
            for number, step in enumerate(plan.steps)
        )
        known, display = plan.remarks(), self._shell.roots.display
        return tuple(
            replace(
                each,
                words="; ".join(filter(None, (each.words, known.get(each.path)))),
                cache=is_cache(display(each.path)),
            )
            for each in shown
            if each is not None
        )

    async def _now(self, paths: Sequence[Path], rest: Mapping[Path, Entry] | None = None) -> dict[Path, Entry]:
        """What is at these paths, with the editor's text where that differs; without those that cannot be read. `rest`:
        what was last known of some whose contents need not be kept."""
        paths, rest = list(dict.fromkeys(paths)), rest or {}
        found = await self._thread(lambda: self._pictures(paths, rest))
        if not self._shell.offer.read_text:
            return found
        limit = anyio.CapacityLimiter(AT_ONCE)

        async def ask(path: Path, entry: Entry) -> None:
            async with limit:
                try:
                    shown = (await self._shell.files.read(path)).text
                except ConnectionClosed:
                    raise
                except (AgentError, OSError, UnicodeDecodeError):
                    return
                found[path] = with_unsaved(entry, shown, self._recorder.contents)

        async with anyio.create_task_group() as tasks:
            for path, entry in list(found.items()):
                if entry.kind == "file" and entry.content and path not in rest:
                    tasks.start_soon(ask, path, entry)
        return found

    def _pictures(self, paths: Sequence[Path], rest: Mapping[Path, Entry]) -> dict[Path, Entry]:
        found = {}
        for path in paths:
            anyio.from_thread.check_cancelled()
            try:
                found[path] = self._recorder.camera.take(path, keep=path not in rest, known=rest.get(path, NOTHING))
            except (AgentError, OSError) as error:
                log.info("%s: %s", path, error)
        return found

    # --- taking back ------------------------------------------------------------------------------------------

    async def carry_out(self, prepared: Prepared, what: What, tell: Tell = lambda done: None) -> str:
        """Does it; returns what was done, in words. Raises UndoError: then nothing was done, also if the turn was
        cancelled meanwhile. `tell`: called now and then with how many files are done."""
        files = what != "conversation" and bool(prepared.plan.steps)
        cut = prepared.rewinds if what != "files" else 0
        if not files and not cut:
            raise UndoError("There is nothing to restore." if not prepared.plan.conflicts else _left(prepared.plan))
        if cut:
            await self._turn_back(cut, forth=prepared.target.redo)
        left: list[str] = []
        try:
            steps = prepared.plan.steps if files else ()
            with anyio.CancelScope(shield=True):
                undoes = prepared.operations if what != "conversation" or prepared.target.redo else ()
                left = await self._restore(prepared.title, undoes, steps, cut, tell)
        except (AgentError, OSError) as error:
            if cut:
                with anyio.CancelScope(shield=True):
                    await self._turn_back(cut, forth=not prepared.target.redo)
            raise UndoError(f"Nothing was restored: {error}.") from error
        done = _done_words(prepared, files=files, cut=bool(cut))
        self._tell_model(_for_model(prepared, files=files, cut=bool(cut)))
        self._notice(f"undo by the user: {done}")
        lost = [f"- {words}" for words in left]
        if files or not prepared.plan.steps:
            lost = [*([_left(prepared.plan)] if prepared.plan.conflicts else []), *lost, *self.beyond()]
        return "\n".join([done, *lost])

    async def _turn_back(self, number: int, *, forth: bool) -> None:
        try:
            await self._session.turn_back(number, forth=forth)
        except AgentError as error:
            raise UndoError(f"The conversation cannot be changed: {error}.") from error

    async def _restore(
        self, title: str, undoes: Sequence[Operation], steps: Sequence[Step], cut: int, tell: Tell
    ) -> list[str]:
        changes = [Change(step.path, step.now, step.then) for step in steps]
        ids, log_ = [each.id for each in undoes], self._log
        folder = self._recorder.contents.folder.parent
        with self._recorder.held([step.path for step in steps]), ExitStack() as holding:
            with ExitStack() as begins:
                await anyio.to_thread.run_sync(begins.enter_context, beginning(folder))
                operation = await log_.do(log_.add_undo, title, changes, ids, cut, self._session.turns)
                holding.enter_context(held(folder, operation))
            try:
                left = await self._make(steps, tell)
            except BaseException:
                await log_.do(log_.drop, operation)
                raise
            self._recorder.absorb([(step.path, step.then) for step in steps])
        try:
            await log_.do(log_.settle, operation)
        except StoreError as error:
            log.warning("the undo is done, and will be noted at the next start: %s", error)
        return left

    async def _make(self, steps: Sequence[Step], tell: Tell) -> list[str]:
        """The editor's buffers first; if anything fails, or the turn is cancelled, all is as it was."""
        shown: list[tuple[Step, str]] = []

        def goes_on(done: int) -> None:
            if self._session.queue.cancelled:
                raise ExecutorError("it was cancelled")
            if done % TOLD == 0 < done:
                tell(done)

        def made(done: int) -> None:
            if done % OFTEN == 0:
                anyio.from_thread.run_sync(goes_on, len(shown) + done)

        try:
            for step in steps:
                if (text := await self._thread(partial(self._for_editor, step))) is not None:
                    await self._need_same(step, text[0])
                    goes_on(len(shown))
                    shown.append((step, text[0]))
                    await self._shell.files.write(step.path, text[1])
            in_editor = {step.path for step, _ in shown}
            rest = [step for step in steps if step.path not in in_editor]
            left = await self._thread(lambda: make(rest, self._recorder.camera, made))
            await self._thread(lambda: self._settle_buffers([step for step, _ in shown]))
            return left
        except (AgentError, OSError):
            for step, before in reversed(shown):
                try:
                    await self._shell.files.write(step.path, before)
                except (AgentError, OSError):
                    await self._thread(partial(self._put_back, step))
            raise

    async def _need_same(self, step: Step, shown: str) -> None:
        """The question may have been open for long: what the user typed meanwhile is not overwritten."""
        now = await self._thread(lambda: self._recorder.camera.take(step.path, keep=False))
        if not now.same(step.now) or (await self._shell.files.read(step.path)).text != shown:
            raise ExecutorError(f"{step.path} changed in the last moment, so nothing was restored")

    def _put_back(self, step: Step) -> None:
        """On the disk: the editor does not."""
        try:
            put(step.path, step.now, self._recorder.contents)
        except (AgentError, OSError) as error:
            log.warning("%s could not be put back: %s", step.path, error)

    def _for_editor(self, step: Step) -> tuple[str, str] | None:
        """The texts that the editor shows and is to show, if it is to restore the file."""
        if not self._shell.offer.write_text or {step.now.kind, step.then.kind} != {"file"}:
            return None
        contents = self._recorder.contents
        try:
            now = decoded(contents.get(step.now.unsaved or step.now.content)).text
            return now, decoded(contents.get(step.then.content)).text
        except (ContentError, UnicodeError):
            return None

    def _settle_buffers(self, steps: Sequence[Step]) -> None:
        """What the editor has saved otherwise (its mode, encoding, formatting) becomes what it was."""
        camera = self._recorder.camera
        for step in steps:
            now = camera.take(step.path)
            if not now.same(step.then) and not now.same(step.now):
                make([Step(step.path, now, step.then)], camera)

    async def _thread(self, work: Callable[[], T]) -> T:
        return await in_thread_as(self._shell.confinement.sandbox.user(), work)


def _last_undo(operations: Sequence[Operation]) -> Operation | None:
    """The last undo that still stands; a redo is none."""
    by_id = {each.id: each for each in operations}
    for each in reversed(operations):
        redoes = any(by_id[number].by == "undo" for number in each.undoes if number in by_id)
        if each.by == "undo" and each.state == "done" and not redoes:
            return each
    return None


def _is_since(operation: Operation, prompt: int) -> bool:
    return operation.by != "undo" and operation.prompt >= prompt


def _is_of(operation: Operation, call: str) -> bool:
    """Whether it is of this call, or of one of its sub-agent's."""
    return call in operation.call.split("/")


def _last(operations: Sequence[Operation], prompts: Sequence[Prompt]) -> int:
    """The last prompt with something to take back."""
    standing = {prompt.number for prompt in prompts}
    changed = [each.prompt for each in operations if each.by == "call" and each.state == "done"]
    said = [prompt.number for prompt in prompts if not prompt.is_command]
    return max([number for number in changed if number in standing] + said, default=0)


def _done_words(prepared: Prepared, *, files: bool, cut: bool) -> str:
    count = len(prepared.files)
    verb = "Done again" if prepared.target.redo else "Taken back"
    parts = [f"{count} file{'s' if count != 1 else ''} restored"] if files else []
    if cut:
        restored = "the conversation goes on as before the undo"
        back = (
            f"the conversation goes on from before prompt {prepared.rewinds}; the model knows nothing of what follows"
        )
        parts.append(restored if prepared.target.redo else back)
    return f"{verb}: {prepared.title}. {'; '.join(parts).capitalize()}."


def _left(plan: Plan) -> str:
    lines = [f"- {conflict_words(each)}" for each in plan.conflicts[:MOST_NAMED]]
    if len(plan.conflicts) > MOST_NAMED:
        lines.append(f"- and {len(plan.conflicts) - MOST_NAMED} more")
    return "Left alone:\n" + "\n".join(lines)


def conflict_words(conflict: Conflict) -> str:
    merges = "; `merge` takes back only the agent's part" if conflict.mergeable else ""
    return f"{conflict.path}: {conflict.why}{merges}"


def _for_model(prepared: Prepared, *, files: bool, cut: bool) -> str:
    did = "did again what had been taken back" if prepared.target.redo else "took back"
    told = f"[The user {did}: {prepared.title}."
    if files:
        paths = named([str(each.path) for each in prepared.files], MOST_NAMED) or "no file"
        told += f" These files are as they were: {paths}; read them again before you change them."
    if cut and not files and not prepared.target.redo:
        told += " The files stay as the removed part of the conversation left them."
    return f"{told}]"
