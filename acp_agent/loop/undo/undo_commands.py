"""`/checkpoints`, `/undo`, `/redo` and `/diff`, and the extension methods that say and do the same."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import anyio.lowlevel
from msgspec import UNSET, Struct

from acp_agent.errors import AgentError, ConnectionClosed, InvalidParams
from acp_agent.loop.ask import ask_beside
from acp_agent.loop.memory.rewinding import is_number
from acp_agent.loop.undo.undoing import Prepared, Target, UndoError, Undoing, conflict_words
from acp_agent.schema import acp
from acp_agent.schema import undo_methods as methods
from acp_agent.schema.undo_methods import What
from acp_agent.undo.base import named
from acp_agent.undo.file_changes import MANY_FILES, MOST_FILES, FileChange, hunk_ids

if TYPE_CHECKING:
    from acp_agent.loop.session import Session

log = logging.getLogger(__name__)

KEEP = "keep"
MERGE = "merge"
CHOICE = "choice"
NAMES: dict[What, str] = {
    "both": "files and conversation",
    "files": "files only",
    "conversation": "the conversation only",
}
MOST_TEXT = 16_000_000
"""Characters of files in one answer."""
MOST_SHOWN = 100
"""Files of a preview; the others are named."""
MOST_LINES = 1_000
"""Files that are named without being shown; the others are counted."""
SHORTEST_CALL = 6
"""Characters of a call's id: a shorter word is no id."""
USAGE = (
    "`/undo` takes back the last prompt, `/undo 3` prompt 3 and all after it, `/undo CALL` one call; add `files`, "
    "`conversation` or `both`, `merge` to keep what you changed since, and `yes` to be asked nothing."
)


class Wish:
    """The words of `/undo`. Raises UndoError."""

    def __init__(self, rest: str, *, redo: bool = False) -> None:
        self.what: What | None = None
        self.merging = self.sure = False
        prompt, call = 0, ""
        for word in rest.split():
            lower = word.lower().lstrip("#")
            what: What | None = next((each for each in get_args(What) if each == lower), None)
            if what is not None:
                self.what = what
            elif lower in (MERGE, "yes"):
                self.merging, self.sure = self.merging or lower == MERGE, self.sure or lower == "yes"
            elif redo:
                raise UndoError("`/redo` takes back the last undo; it takes no number.")
            elif is_number(lower) and not (prompt or call):
                prompt = int(lower)
            elif len(word) >= SHORTEST_CALL and not (prompt or call):
                call = word
            else:
                raise UndoError(f"`{word}` is not understood. {USAGE}")
        self.target = Target(prompt, call, redo=redo)


async def checkpoints(undoing: Undoing) -> str:
    """The answer of `/checkpoints`."""
    found = await undoing.checkpoints()
    lines = [_checkpoint_line(each) for each in found]
    uncovered = "".join(f"\n- {words}" for words in undoing.uncovered())
    return (
        "\n".join(["Prompts that can be taken back:" if lines else "Nothing can be taken back yet.", *lines])
        + (f"\n\nNot covered, if a command changes it:{uncovered}" if uncovered else "")
        + (f"\n\n{USAGE}" if lines else "")
    )


def _checkpoint_line(point: methods.UndoCheckpoint) -> str:
    files = [each for each in point.files if not each.cache]
    added, removed, number = sum(each.added for each in files), sum(each.removed for each in files), len(files)
    count = f"{number} file{'s' if number != 1 else ''} (+{added} -{removed})" if number else "no files"
    back = " and ".join(["files"] * point.undone + ["conversation"] * point.cut)
    undone = f", {back} taken back" if back else ""
    uncovered = "".join(f"\n  - {words}" for words in point.not_covered)
    return f"- {point.prompt}. {point.time[:16].replace('T', ' ')} {point.title}: {count}{undone}{uncovered}"


async def undo(session: Session, undoing: Undoing, rest: str, *, redo: bool = False) -> str:
    """`/undo` and `/redo`: shows what would happen, asks once, does it; the answer."""
    try:
        wish = Wish(rest, redo=redo)
        prepared = await undoing.prepare(wish.target, merging=wish.merging)
        possible = _possible(prepared, wish)
        if not possible and not _merges(prepared, wish):
            return _nothing(prepared)
        card = _show(session, prepared, undoing.beyond())
        try:
            sure = wish.sure and possible
            what, merging = (possible[0], wish.merging) if sure else await _ask(session, card, prepared, wish)
            if what is None:
                return f"Nothing was changed. {'Your editor cannot ask: ' if merging else ''}{_how(prepared, redo)}"
            if merging and not wish.merging:
                prepared = await undoing.prepare(wish.target, merging=True)
            words = await undoing.carry_out(prepared, what, partial(_tell, session, card, len(prepared.plan.steps)))
        except BaseException:
            _close(session, card, "failed")
            raise
        _close(session, card, "completed")
        return words
    except UndoError as error:
        if session.queue.cancelled:
            session.outbox.say(str(error))
            await anyio.lowlevel.checkpoint()
        return str(error)


def _possible(prepared: Prepared, wish: Wish) -> list[What]:
    files, conversation = bool(prepared.plan.steps), bool(prepared.rewinds)
    found: list[What] = ["files"] if files else ["conversation"] if conversation else []
    if files and conversation:
        found = ["both", "files", "conversation"]
    return [what for what in found if wish.what in (what, None)]


def _merges(prepared: Prepared, wish: Wish) -> bool:
    return wish.what != "conversation" and any(each.mergeable for each in prepared.plan.conflicts)


def _nothing(prepared: Prepared) -> str:
    lines = [f"- {conflict_words(each)}" for each in prepared.plan.conflicts]
    return "\n".join([f"Nothing is left to take back of {prepared.title}.", *lines])


def _how(prepared: Prepared, redo: bool) -> str:
    of = prepared.target.call or prepared.target.prompt
    return f"`{'/redo' if redo else f'/undo {of}'} yes` does it without a question."


def _show(session: Session, prepared: Prepared, beyond: list[str]) -> acp.ToolCall:
    """The preview, as the card of a call."""
    verb = "Do again" if prepared.target.redo else "Take back"
    content: list[acp.ToolCallContent] = [_text("\n\n".join([_summary(prepared), *beyond]))]
    content += [diff_content(each) for each in prepared.files[:MOST_SHOWN] if each.shown]
    card = acp.ToolCall(
        tool_call_id=str(uuid.uuid4()),
        title=f"{verb}: {prepared.title}",
        kind="edit",
        status="pending",
        content=content,
        locations=[acp.ToolCallLocation(path=str(each.path)) for each in prepared.files[:MOST_SHOWN]],
        meta={"undo": True},
    )
    session.outbox.emit(card)
    return card


def _summary(prepared: Prepared) -> str:
    lines = []
    for each in prepared.files:
        if not each.shown or each.words:
            lines.append(f"- {each.path}: {each.kind}{f' ({each.words})' if each.words else ''}")
    if len(prepared.files) > MOST_SHOWN:
        lines += [f"- {each.path}: {each.kind}" for each in prepared.files[MOST_SHOWN:] if each.shown]
    lines = _bounded(lines)
    folders = len(prepared.plan.steps) - len(prepared.files)
    if folders:
        lines.append(f"- {folders} folder{'s' if folders > 1 else ''}")
    if prepared.plan.conflicts:
        lines += ["", "Left alone:", *(f"- {conflict_words(each)}" for each in prepared.plan.conflicts)]
    count = len(prepared.files)
    return "\n".join([f"{count} file{'s' if count != 1 else ''} would change.", *lines])


async def _ask(session: Session, card: acp.ToolCall, prepared: Prepared, wish: Wish) -> tuple[What | None, bool]:
    """What is to be taken back, and whether with a merge; (`None`, true) if nobody can be asked."""
    verb = "Do again" if prepared.target.redo else "Take back"
    offered = {f"{verb} {NAMES[what]}": what for what in _possible(prepared, wish)}
    most: What = wish.what or ("both" if prepared.rewinds else "files")
    with_merge = f"{verb} {NAMES[most]}, keep what you changed since"
    merged: dict[str, What] = {with_merge: most} if _merges(prepared, wish) else {}
    try:
        if session.client.plan.forms:
            return await _by_form(session, card, offered, merged)
        return await _by_permission(session, card, offered, merged)
    except ConnectionClosed:
        raise
    except (AgentError, TimeoutError) as error:
        log.warning("the question could not be asked: %s", error)
        return None, True


async def _by_form(
    session: Session, card: acp.ToolCall, offered: dict[str, What], merged: dict[str, What]
) -> tuple[What | None, bool]:
    choice = acp.StringPropertySchema(title="What", enum=[*offered, *merged, "Change nothing"])
    form = acp.ElicitationSchema(properties={CHOICE: choice}, required=[CHOICE])
    answer = await session.client.elicit(f"{card.title}?", form, tool_call_id=card.tool_call_id)
    given = str((answer.content or {}).get(CHOICE)) if answer.action == "accept" else ""
    return offered.get(given) or merged.get(given), given in merged


async def _by_permission(
    session: Session, card: acp.ToolCall, offered: dict[str, What], merged: dict[str, What]
) -> tuple[What | None, bool]:
    options = [acp.PermissionOption(option_id=what, name=name, kind="allow_once") for name, what in offered.items()]
    options += [acp.PermissionOption(option_id=MERGE, name=name, kind="allow_once") for name in merged]
    options.append(acp.PermissionOption(option_id=KEEP, name="Change nothing", kind="reject_once"))
    picked = await ask_beside(session.outbox, card, options, {"undo": True})
    if picked == MERGE and merged:
        return next(iter(merged.values())), True
    return next((what for what in offered.values() if what == picked), None), False


def _bounded(lines: list[str]) -> list[str]:
    left = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"- and {left} more"] if left > 0 else lines


def _tell(session: Session, card: acp.ToolCall, count: int, done: int) -> None:
    """How far the undo is."""
    title = f"{card.title}: {done} of {count}"
    session.outbox.emit(acp.ToolCallProgress(tool_call_id=card.tool_call_id, status="in_progress", title=title))


def _close(session: Session, card: acp.ToolCall, status: acp.ToolCallStatus) -> None:
    session.outbox.emit(acp.ToolCallProgress(tool_call_id=card.tool_call_id, status=status))


async def diff(session: Session, undoing: Undoing, rest: str) -> str:
    """`/diff [N]`: shows every file's change since before prompt N, in a card."""
    word = rest.strip().lstrip("#")
    if word and not is_number(word):
        return "`/diff` shows what the agent changed in this session, `/diff 3` since before prompt 3."
    files, uncovered = await undoing.changes(int(word or 0))
    if not files:
        return "\n".join(
            ["The agent has changed no file since then, as far as is known.", *(f"- {w}" for w in uncovered)]
        )
    since = f"since before prompt {word}" if word else "in this session"
    content: list[acp.ToolCallContent] = [diff_content(each) for each in files if each.shown]
    more = [f"- {each.path}: {each.kind} ({each.words})" for each in files if not each.shown or each.words]
    if more or uncovered:
        content.append(_text("\n".join([*_bounded(more), *(f"- Not covered: {words}" for words in uncovered)])))
    session.outbox.emit(
        acp.ToolCall(
            tool_call_id=str(uuid.uuid4()),
            title=f"Changes {since}",
            kind="read",
            status="completed",
            content=content,
            locations=[acp.ToolCallLocation(path=str(each.path)) for each in files[:MOST_FILES]],
            meta={"undo": True},
        )
    )
    counted = [each for each in files if not each.cache]
    added, removed = sum(each.added for each in counted), sum(each.removed for each in counted)
    mixed = [str(each.path) for each in files if each.mixed]
    also = f" Changes that are not the agent's are also in {named(mixed, MOST_SHOWN)}."
    part = f" in the first {MOST_FILES} of them" if any(MANY_FILES in each.words for each in files) else ""
    told = f"{len(counted)} file{'s' * (len(counted) != 1)} changed {since} (+{added} -{removed}{part})."
    return told + (also if mixed else "")


def diff_content(change: FileChange) -> acp.Diff:
    meta = None if change.kind == "changed" and not change.words else {"kind": change.kind}
    return acp.Diff(path=str(change.path), old_text=change.old, new_text=change.new or "", meta=meta)


def _text(text: str) -> acp.Content:
    return acp.Content(content=acp.TextContent(text=text))


# --- the extension methods ---------------------------------------------------------------------------------------


async def answer(undoing: Undoing, request: methods.Request) -> Struct:
    """What `methods.METHODS` says of it. Raises InvalidParams."""
    try:
        if isinstance(request, methods.ChangesRequest):
            files, uncovered = await undoing.changes(request.since, request.until, request.call or "")
            return methods.ChangesResponse(_as_changes(files), uncovered)
        if not isinstance(request, methods.RedoRequest):
            return methods.CheckpointsResponse(await undoing.checkpoints(), await undoing.can_redo())
        target = _target(request) if isinstance(request, methods.UndoRequest) else Target(redo=True)
        prepared = await undoing.prepare(target, merging=request.merge)
        what = request.what or ("files" if target.path or target.call else "both")
        words = "" if request.dry_run else await undoing.carry_out(prepared, what)
        conflicts = [methods.UndoConflict(str(each.path), each.why, each.mergeable) for each in prepared.plan.conflicts]
        return methods.UndoResponse(_as_changes(prepared.files), conflicts, not request.dry_run, words)
    except UndoError as error:
        raise InvalidParams(str(error)) from error


def _target(request: methods.UndoRequest) -> Target:
    path, hunks, expect = request.path or "", request.hunks or (), request.expect or ()
    if path and not path.startswith("/"):
        raise InvalidParams("Invalid params: $.path: not absolute")
    if hunks and not path:
        raise InvalidParams("Invalid params: $.hunks: they are of a `path`")
    if len(expect) != len(hunks):
        raise InvalidParams("Invalid params: $.expect: the `id` of each of the `hunks`, from `_session/changes`")
    folder, name = os.path.split(path)
    real = Path(os.path.realpath(folder), name) if path else None  # The last part itself may be a link that changed.
    return Target(request.since if path else request.to, request.call or "", real, tuple(hunks), tuple(expect))


def _as_changes(changes: Sequence[FileChange]) -> list[methods.UndoChange]:
    """With the texts of as many as one message should carry."""
    found, left = [], MOST_TEXT
    for each in changes:
        left -= len(each.old or "") + len(each.new or "")
        shown, words = (each.shown, each.words) if left > 0 else (False, "there is too much to show")
        old, new = (each.old, each.new) if shown else (UNSET, UNSET)
        hunks = [methods.UndoHunk(id_, *hunk) for id_, hunk in zip(hunk_ids(each), each.hunks, strict=True)]
        lines = (each.kind, each.added, each.removed, each.cache)
        found.append(methods.UndoChange(str(each.path), *lines, old, new, shown, words, each.mixed, each.calls, hunks))
    return found
