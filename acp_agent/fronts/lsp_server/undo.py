"""Takes back what the agent did, by its extension methods (docs/internals/undo.md): commands, offers for code actions.

What would happen is shown and asked once, unless the caller says `yes`.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import msgspec
from lsprotocol.types import Range
from msgspec import Struct
from pygls.exceptions import JsonRpcInvalidParams

from acp_agent.errors import AgentError, PeerError
from acp_agent.fronts.lsp_server.conversation import Session
from acp_agent.fronts.lsp_server.documents.editor_documents import Document, path_of, plain_ends
from acp_agent.fronts.lsp_server.documents.edits import hunks_between
from acp_agent.fronts.lsp_server.documents.text_positions import split_lines
from acp_agent.fronts.lsp_server.front import SAID_LENGTH, Front
from acp_agent.fronts.lsp_server.lsp_editor import Kind
from acp_agent.fronts.lsp_server.status import one_line
from acp_agent.legible import legible
from acp_agent.schema import undo_methods as methods
from acp_agent.schema.undo_methods import ChangesResponse, CheckpointsResponse, UndoChange, UndoRequest, UndoResponse

log = logging.getLogger(__name__)

OFFER_SECONDS = 0.5
"""How long code actions wait for the changes; what comes later is there for the next ones."""

NAMED_FILES = 5
"""Files and conflicts that are named in a question."""

CANCEL, SHOW, DO, MERGE = "Cancel", "Show", "Do it", "Do it, and keep what I changed"

_Kind = TypeVar("_Kind")


class Asked(UndoRequest, frozen=True, omit_defaults=True):
    """The argument of a command."""

    uri: str = ""
    """In place of `path`."""
    yes: bool = False

    @property
    def subject(self) -> str:
        """What is taken back, in words."""
        if self.call is not None:
            return "one tool call"
        if self.path is not None:
            return f"{'parts' if self.hunks is not None else 'the changes'} of {one_line(self.path)}"
        prompt = f"prompt {self.to} and all after it" if self.to else "the last prompt"
        what = "files and conversation" if self.what in (None, "both") else self.what
        return f"{prompt} ({what})"

    def params(self) -> dict[str, Any]:
        """For `_session/undo`, but for the session."""
        asked = msgspec.structs.replace(self, uri="", yes=False, merge=False, dry_run=False)
        return {name: value for name, value in msgspec.to_builtins(asked).items() if name != "sessionId"}


def read_asked(name: str, given: Mapping[str, Any]) -> Asked:
    """Raises JsonRpcInvalidParams with what is wrong."""
    try:
        asked = msgspec.convert({**given, "sessionId": ""}, Asked)
    except msgspec.ValidationError as error:
        raise JsonRpcInvalidParams(f"{name}: {error}") from error
    if not asked.uri:
        return asked
    path = path_of(asked.uri)
    if path is None:
        raise JsonRpcInvalidParams(f"{name}: `uri` is not the address of a file")
    return msgspec.structs.replace(asked, path=str(path))


class Offer(Struct, frozen=True):
    """A hunk at a place of a document."""

    first: int
    last: int
    """Lines counted from 1."""
    argument: dict[str, Any]


class Undo:
    """`folder` is for the texts that are shown: private, gone when the server ends. What was taken back is said in the
    transcript."""

    def __init__(self, front: Front, folder: Path, tasks: anyio.abc.TaskGroup) -> None:
        self._editor = front.editor
        self._conversation = front.conversation
        self._transcript = front.transcript
        self._folder = folder
        self._tasks = tasks
        self._known: tuple[object, ChangesResponse] | None = None
        """The changes of the session, and after which turn of it."""
        self._asking: anyio.Event | None = None
        self._files: list[Path] = []

    def close(self) -> None:
        """Removes the texts that were shown."""
        for path in self._files:
            path.unlink(missing_ok=True)

    # --- what is offered at a place -----------------------------------------------------------------------------

    async def offers(self, document: Document | None, where: Range) -> list[Offer]:
        """The changed places that a range touches. Nothing while the agent works."""
        session = self._conversation.current
        if document is None or session is None or self._conversation.busy or not _can(session):
            return []
        time = (session.id, self._conversation.turns)
        if self._known is None or self._known[0] != time:
            if self._asking is None:
                self._asking = anyio.Event()
                self._tasks.start_soon(self._learn, session, time, self._asking)
            with anyio.move_on_after(OFFER_SECONDS):
                await self._asking.wait()
        known = self._known[1] if self._known is not None and self._known[0] == time else ChangesResponse()
        for change in known.changes:
            if Path(change.path) == document.path:
                return _offers(change, document, where)
        return []

    async def _learn(self, session: Session, time: object, done: anyio.Event) -> None:
        try:
            self._known = time, _convert(await self._request(session, "changes", {}), ChangesResponse)
        except AgentError as error:
            log.info("the changes of the session are unknown: %s", error)
            self._known = time, ChangesResponse()
        finally:
            self._asking = None
            done.set()

    # --- commands -----------------------------------------------------------------------------------------------

    async def checkpoints(self) -> Any:
        answer = await self._request(await self._session(), "checkpoints", {})
        await self._show("checkpoints.md", _listed(_convert(answer, CheckpointsResponse)))
        return answer

    async def diff(self, since: int) -> Any:
        """The changes since before a prompt, or of the session (0), as one diff."""
        answer = await self._request(await self._session(), "changes", {"since": since} if since else {})
        changes = _convert(answer, ChangesResponse)
        if not changes.changes and not changes.not_covered:
            self._editor.say("Agent: nothing has changed")
        else:
            await self._show("changes.diff", _as_diff(changes.changes, changes.not_covered))
        return answer

    async def undo(self, asked: Asked) -> Any:
        return await self._take_back(await self._session(), "undo", asked.params(), asked)

    async def redo(self, asked: Asked) -> Any:
        return await self._take_back(await self._session(), "redo", {}, asked)

    async def _take_back(self, session: Session, method: str, params: dict[str, Any], asked: Asked) -> Any:
        merge = asked.merge
        if not asked.yes:
            answer = await self._request(session, method, {**params, "dryRun": True})
            outcome = _convert(answer, UndoResponse)
            verb = f"take back {asked.subject}" if method == "undo" else "do again what was taken back"
            chosen = await self._confirm(outcome, f"Agent: {verb}?")
            if chosen not in (DO, MERGE):
                return answer
            merge = merge or chosen == MERGE
        if merge:
            params = {**params, "merge": True}
        self._known = None
        answer = await self._request(session, method, params)
        outcome = _convert(answer, UndoResponse)
        words = outcome.words or ("Done." if outcome.done else "Nothing was changed.")
        # All of it is in the transcript; what was left alone is worth a key press.
        said = words if outcome.conflicts or not outcome.done else one_line(words, SAID_LENGTH)
        self._editor.say(f"Agent: {said}", Kind.Info if outcome.done else Kind.Warning)
        if outcome.done and self._transcript.begun:
            self._transcript.end(one_line(words, 2_000))
        return answer

    async def _confirm(self, outcome: UndoResponse, question: str) -> str | None:
        files = [_label(change) for change in outcome.changes]
        message = "\n".join([question, *(_some(files) or ["no file changes"]), *_left(outcome)])
        choices = [CANCEL, *([SHOW] if files else []), DO]
        if any(conflict.mergeable for conflict in outcome.conflicts):
            choices.append(MERGE)
        try:
            chosen = await self._editor.choose(message, choices)
            if chosen == SHOW:
                await self._show("preview.diff", _as_diff(outcome.changes, ()))
                choices.remove(SHOW)
                chosen = await self._editor.choose(message, choices)
        except PeerError as error:
            raise AgentError("the editor cannot ask; with `yes: true` the command does not ask") from error
        return chosen

    # --- the agent ----------------------------------------------------------------------------------------------

    async def _session(self) -> Session:
        if self._conversation.current is None:
            raise AgentError("there is no session yet; `Agent: earlier sessions` continues one")
        session = await self._conversation.open()
        if not _can(session):
            raise AgentError(f"{session.agent.name} cannot tell or take back what it changed")
        return session

    async def _request(self, session: Session, method: str, params: dict[str, Any]) -> Any:
        if self._conversation.busy and method in ("undo", "redo"):
            raise AgentError("the agent is working: stop it first")
        connection = session.agent.client.connection
        return await connection.request(f"_session/{method}", {"sessionId": session.id, **params})

    async def _show(self, name: str, text: str) -> None:
        path = self._folder / f"{os.getpid()}-{len(self._files) + 1}-{name}"
        self._files.append(path)
        try:
            _write(path, text)
        except OSError as error:
            raise AgentError(f"{path} cannot be written: {error.strerror}") from error
        if not await self._editor.show(path.as_uri(), 0):
            self._editor.say(f"Agent: see {path}")


def _can(session: Session) -> bool:
    undo = (session.agent.capabilities.meta or {}).get("undo")
    return isinstance(undo, dict) and undo.get("version") == methods.UNDO_VERSION


def _convert(answer: Any, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AgentError(f"the agent's answer cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)  # Of a server that had the same number.
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", errors="replace"
    ) as file:
        file.write(text)


# --- hunks -------------------------------------------------------------------------------------------------------


def _offers(change: UndoChange, document: Document, where: Range) -> list[Offer]:
    """Hunks that are as the agent left them, where they are in the document now."""
    if not isinstance(change.new_text, str) or not change.shown:
        return []
    edits = hunks_between(split_lines(plain_ends(change.new_text)), split_lines(plain_ends(document.now.text)))
    found = []
    for index, hunk in enumerate(change.hunks):
        # Of removed lines the place is the line before.
        start = max(hunk.new_start - 1, 0)
        end = start + max(hunk.new_lines, 1)
        if any(edit.start < end and start < max(edit.end, edit.start + 1) for edit in edits):
            continue
        moved = sum(len(edit.lines) - (edit.end - edit.start) for edit in edits if edit.end <= start)
        first, last = start + moved, end + moved - 1
        if where.start.line <= last and first <= where.end.line:
            argument = {"uri": document.uri, "hunks": [index], "expect": [hunk.id], "yes": True}
            found.append(Offer(first + 1, last + 1, argument))
    return found


# --- texts -------------------------------------------------------------------------------------------------------


def _label(change: UndoChange) -> str:
    counts = (f"+{change.added}" if change.added else "", f"-{change.removed}" if change.removed else "")
    kind = "" if change.kind == "changed" else f"({change.kind})"
    return " ".join(filter(None, (one_line(change.path), *counts, kind, one_line(change.words))))


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - NAMED_FILES
    return [*lines[:NAMED_FILES], *([f"and {more} more"] if more > 0 else [])]


def _left(outcome: UndoResponse) -> list[str]:
    left = [f"left alone: {one_line(one.path)}: {one_line(one.why)}" for one in outcome.conflicts]
    return _some(left)


def _listed(found: CheckpointsResponse) -> str:
    lines = ["# Checkpoints", ""]
    for point in found.checkpoints:
        back = " and ".join(["files"] * point.undone + ["conversation"] * point.cut)
        lines.append(f"## {point.prompt}. {one_line(point.title)}{f' ({back} taken back)' if back else ''}")
        lines += ["", *([one_line(point.time), ""] if point.time else [])]
        lines += [f"- {one_line(file.path)} +{file.added} -{file.removed}" for file in point.files]
        lines += [f"- not covered: {one_line(words, 500)}" for words in point.not_covered]
        lines.append("")
    if found.redo:
        lines += ["The last undo can be taken back with `acpCoder.redo`.", ""]
    return "\n".join(lines)


def _as_diff(changes: Sequence[UndoChange], not_covered: Sequence[str]) -> str:
    lines = [f"# not covered: {one_line(words, 500)}" for words in not_covered]
    for change in changes:
        path = one_line(change.path, 1_000)
        if not change.shown:
            lines.append(f"# {path}: {change.kind}; {one_line(change.words) or 'no text, or too long to be shown'}")
            continue
        old, new = (legible(text or "").splitlines() for text in (change.old_text, change.new_text))
        before, after = (path if text is not None else "/dev/null" for text in (change.old_text, change.new_text))
        lines += difflib.unified_diff(old, new, before, after, lineterm="")
    return "\n".join([*lines, ""])
