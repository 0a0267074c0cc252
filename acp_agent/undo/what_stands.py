"""What of some operations still stands, given the undos and redos since."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from acp_agent.undo.base import Change, Operation
from acp_agent.undo.contents import ContentError, Contents
from acp_agent.undo.file_changes import text_of
from acp_agent.undo.merge import merge


def standing(
    operations: Sequence[Operation],
    changes: Mapping[int, Sequence[Change]],
    chosen: Collection[int],
    contents: Contents,
) -> list[Change]:
    """What the chosen operations (no undos) did, with what undos made of that alone. What an undo took back together
    with older changes is gone. What one made of other changes is left out, as if a user had done it. So taking back the
    chosen operations never brings back others that were taken back. `changes`: by operation, from the first chosen one
    on."""
    undos = {operation.id for operation in operations if operation.by == "undo"}
    events: dict[Path, list[tuple[Operation, Change]]] = {}
    for operation in operations:
        for change in changes.get(operation.id, ()):
            events.setdefault(change.path, []).append((operation, change))
    return [change for each in events.values() for change in _at_path(each, undos, chosen, contents)]


def _at_path(
    events: Sequence[tuple[Operation, Change]], undos: set[int], chosen: Collection[int], contents: Contents
) -> list[Change]:
    done, of = list[Change](), set[int]()
    within = set[int]()
    """Undos of these changes alone."""
    gone: dict[int, tuple[list[Change], set[int]]] = {}
    """What stood before an undo took it back, together with older changes."""
    for operation, change in events:
        redone = next(iter(undos.intersection(operation.undoes)), 0)
        if operation.id in chosen:
            done.append(change)
            of.add(operation.id)
        elif operation.by != "undo":
            continue
        elif redone in within:
            done.append(change)
        elif redone in gone and not done:
            done, of = gone[redone]
        elif done and not redone and _is_within(change, done, contents):
            done.append(change)
            within.add(operation.id)
        elif done and not redone and of <= set(operation.undoes):
            last = done[-1]
            if last.after is not None and change.before.same(last.after):
                last = replace(last, after=change.before)  # Its content is kept by now.
            gone[operation.id] = [*done[:-1], last], of
            done, of = [], set()
    return done


def _is_within(undo: Change, done: Sequence[Change], contents: Contents) -> bool:
    """Whether an undo took back these changes, or a part of them, and nothing else."""
    left, last = undo.after, done[-1].after
    if left is None or last is None:
        return False
    if any(left.same(entry.shown()) for change in done for entry in (change.before, change.after) if entry):
        return True
    try:
        first, after, text = (text_of(entry, contents) for entry in (done[0].before, last, left))
    except (ContentError, UnicodeError):
        return False
    # The rest of them taken back gives what was before them.
    return None not in (first, after, text) and merge(after or "", text or "", first or "") == first
