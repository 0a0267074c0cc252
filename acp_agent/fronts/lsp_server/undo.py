"""Takes back what the agent did, by its extension methods (docs/internals/undo.md): commands, offers for code actions.

What would happen is shown and asked once, unless the caller says `yes`.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.abc
import msgspec
from lsprotocol.types import Range
from msgspec import UNSET, Struct, UnsetType
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

log = logging.getLogger(__name__)

VERSION = 1
"""Of the methods, as advertised in `agentCapabilities._meta.undo`."""

OFFER_SECONDS = 0.5
"""How long code actions wait for the changes; what comes later is there for the next ones."""

NAMED_FILES = 5
"""Files and conflicts that are named in a question."""

CANCEL, SHOW, DO, MERGE = "Cancel", "Show", "Do it", "Do it, and keep what I changed"

_Kind = TypeVar("_Kind")


class Wire(Struct, rename="camel", frozen=True):
    """What the methods take and give."""


class Hunk(Wire, frozen=True):
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    id: str = ""


class Change(Wire, frozen=True):
    path: str
    kind: Literal["created", "changed", "deleted"] = "changed"
    old_text: str | None = ""
    new_text: str | None = ""
    shown: bool = True
    words: str = ""
    """What changed besides the text, or why that is not shown."""
    added: int = 0
    removed: int = 0
    hunks: Sequence[Hunk] = ()

    @property
    def label(self) -> str:
        counts = (f"+{self.added}" if self.added else "", f"-{self.removed}" if self.removed else "")
        kind = "" if self.kind == "changed" else f"({self.kind})"
        return " ".join(filter(None, (one_line(self.path), *counts, kind, one_line(self.words))))


class Changes(Wire, frozen=True):
    changes: Sequence[Change] = ()
    not_covered: Sequence[str] = ()


class Conflict(Wire, frozen=True):
    path: str
    why: str = ""
    mergeable: bool = False


class Outcome(Wire, frozen=True):
    changes: Sequence[Change] = ()
    conflicts: Sequence[Conflict] = ()
    done: bool = False
    words: str = ""


class File(Wire, frozen=True):
    path: str
    added: int = 0
    removed: int = 0


class Checkpoint(Wire, frozen=True):
    prompt: int
    time: str = ""
    title: str = ""
    undone: bool = False
    cut: bool = False
    files: Sequence[File] = ()
    not_covered: Sequence[str] = ()


class Checkpoints(Wire, frozen=True):
    checkpoints: Sequence[Checkpoint] = ()
    redo: bool = False


class Asked(Struct, rename="camel", frozen=True):
    """The argument of a command."""

    to: int | UnsetType = UNSET
    call: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    uri: str = ""
    """In place of `path`."""
    since: int | UnsetType = UNSET
    hunks: list[int] | UnsetType = UNSET
    expect: list[str] | UnsetType = UNSET
    """The ids of `hunks`."""
    what: Literal["files", "conversation", "both"] | UnsetType = UNSET
    merge: bool = False
    yes: bool = False

    @property
    def subject(self) -> str:
        """What is taken back, in words."""
        if self.call is not UNSET:
            return "one tool call"
        if self.path is not UNSET:
            return f"{'parts' if self.hunks is not UNSET else 'the changes'} of {one_line(self.path)}"
        prompt = "the last prompt" if self.to is UNSET else f"prompt {self.to} and all after it"
        what = "files and conversation" if self.what in (UNSET, "both") else self.what
        return f"{prompt} ({what})"

    def params(self) -> dict[str, Any]:
        """For `_session/undo`."""
        names = ("to", "call", "path", "since", "hunks", "expect", "what")
        return {name: value for name in names if (value := getattr(self, name)) is not UNSET}


def read_asked(name: str, given: Mapping[str, Any]) -> Asked:
    """Raises JsonRpcInvalidParams with what is wrong."""
    try:
        asked = msgspec.convert(given, Asked)
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
        self._known: tuple[object, Changes] | None = None
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
        known = self._known[1] if self._known is not None and self._known[0] == time else Changes()
        for change in known.changes:
            if Path(change.path) == document.path:
                return _offers(change, document, where)
        return []

    async def _learn(self, session: Session, time: object, done: anyio.Event) -> None:
        try:
            self._known = time, await self._ask(session, "changes", {}, Changes)
        except AgentError as error:
            log.info("the changes of the session are unknown: %s", error)
            self._known = time, Changes()
        finally:
            self._asking = None
            done.set()

    # --- commands -----------------------------------------------------------------------------------------------

    async def checkpoints(self) -> Any:
        answer = await self._request(await self._session(), "checkpoints", {})
        await self._show("checkpoints.md", _listed(_convert(answer, Checkpoints)))
        return answer

    async def diff(self, since: int | UnsetType) -> Any:
        """The changes since before a prompt, or of the session, as one diff."""
        answer = await self._request(await self._session(), "changes", {} if since is UNSET else {"since": since})
        changes = _convert(answer, Changes)
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
            outcome = _convert(answer, Outcome)
            verb = f"take back {asked.subject}" if method == "undo" else "do again what was taken back"
            chosen = await self._confirm(outcome, f"Agent: {verb}?")
            if chosen not in (DO, MERGE):
                return answer
            merge = merge or chosen == MERGE
        if merge:
            params = {**params, "merge": True}
        self._known = None
        answer = await self._request(session, method, params)
        outcome = _convert(answer, Outcome)
        words = outcome.words or ("Done." if outcome.done else "Nothing was changed.")
        # All of it is in the transcript; what was left alone is worth a key press.
        said = words if outcome.conflicts or not outcome.done else one_line(words, SAID_LENGTH)
        self._editor.say(f"Agent: {said}", Kind.Info if outcome.done else Kind.Warning)
        if outcome.done and self._transcript.begun:
            self._transcript.end(one_line(words, 2_000))
        return answer

    async def _confirm(self, outcome: Outcome, question: str) -> str | None:
        files = [change.label for change in outcome.changes]
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

    async def _ask(self, session: Session, method: str, params: dict[str, Any], kind: type[_Kind]) -> _Kind:
        return _convert(await self._request(session, method, params), kind)

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
    return isinstance(undo, dict) and undo.get("version") == VERSION


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


def _offers(change: Change, document: Document, where: Range) -> list[Offer]:
    """Hunks that are as the agent left them, where they are in the document now."""
    if change.new_text is None or not change.shown:
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


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - NAMED_FILES
    return [*lines[:NAMED_FILES], *([f"and {more} more"] if more > 0 else [])]


def _left(outcome: Outcome) -> list[str]:
    left = [f"left alone: {one_line(one.path)}: {one_line(one.why)}" for one in outcome.conflicts]
    return _some(left)


def _listed(found: Checkpoints) -> str:
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


def _as_diff(changes: Sequence[Change], not_covered: Sequence[str]) -> str:
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
