"""Makes the steps of an undo. It is in the log, with all its changes, before the first of them; so a process that is
killed in between leaves an undo that `recover` finishes.

Blocking; what the open editor must do itself comes before, by `loop/undo`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from acp_agent.errors import AgentError, ExecutorError
from acp_agent.store.operation_store import OperationStore
from acp_agent.undo.base import NOTHING
from acp_agent.undo.contents import Contents
from acp_agent.undo.operation_log import changes_of, settle
from acp_agent.undo.pictures import Camera, clear, put, rename
from acp_agent.undo.undo_plan import Step

LOCKS = "restoring"


def make(steps: Sequence[Step], camera: Camera) -> list[str]:
    """Makes all steps, or none: if one fails, those before it are taken back. Returns what was not done, in words.

    Raises ContentError, ExecutorError, OSError.
    """
    contents, done, words = camera.contents, list[Step](), list[str]()
    moved = {step.now.mark: step for step in steps if step.then.kind == "none" and step.now.mark}
    moves = [(moved[step.then.mark], step) for step in steps if _is_unkept(step) and step.then.mark in moved]
    taken = {id(step) for pair in moves for step in pair}
    above = {folder for _, step in moves for folder in step.path.parents}
    try:
        for source, destination in moves:
            rename(source.path, destination.path)
            done += [source, destination]
        for step in steps:
            if id(step) in taken:
                continue
            found = camera.take(step.path, keep=False)
            if step.then.kind == "dir" and step.now.kind == "none" and found.kind == "dir" and step.path in above:
                found = step.now  # Made a moment ago, for a file that was moved there.
            if not found.same(step.now):
                raise ExecutorError(f"{step.path} changed in the last moment, so nothing was restored")
            done.append(step)
            if left := put(step.path, step.then, contents):
                words.append(left)
    except (AgentError, OSError):
        _back(done, moves, contents)
        raise
    return words


def _is_unkept(step: Step) -> bool:
    return step.then.kind == "file" and not step.then.content


def _back(done: Sequence[Step], moves: Sequence[tuple[Step, Step]], contents: Contents) -> None:
    for step in reversed(done):
        with suppress(AgentError, OSError):
            if not _is_unkept(step) and (step.now.content or step.now.kind != "file"):
                put(step.path, step.now, contents)
    for source, destination in moves:
        with suppress(AgentError, OSError):
            rename(destination.path, source.path)


@contextmanager
def held(folder: Path, operation: int) -> Iterator[bool]:
    """While this is held, no other process finishes that undo; false if another one holds it."""
    path = folder / f"{LOCKS}-{operation}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def recover(store: OperationStore, contents: Contents) -> list[str]:
    """Finishes the undos of processes that were killed. Returns what could not be, in words."""
    words = []
    camera = Camera(contents, 1 << 40)
    for operation in store.running():
        with held(contents.folder.parent, operation.id) as ours:
            if not ours or (now := store.get(operation.id)) is None or now.state != "running":
                continue
            for change in changes_of(store, [operation.id]):
                try:
                    clear(change.path)
                    current = camera.take(change.path, keep=False)
                    after = change.after or NOTHING
                    if current.same(after):
                        continue
                    if not current.same(change.before):
                        words.append(f"{change.path} was changed meanwhile and left alone")
                    elif left := put(change.path, after, contents):
                        words.append(left)
                except (AgentError, OSError) as error:
                    words.append(f"{change.path} was not restored: {error}")
            settle(store, operation.id)
    return words
