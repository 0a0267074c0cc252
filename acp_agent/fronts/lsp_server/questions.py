"""Questions from the agent to the user: permissions and choices, as message requests. One at a time, in order.

The safe answer is first, since some editors choose the first when a user hits Return without reading. A dismissed
question is a rejection. What does not fit in a question can only be rejected until its whole was opened. When the turn
is stopped, open questions are answered `cancelled`.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
from msgspec import Struct

from acp_agent.client.permissions import reject_once
from acp_agent.errors import PeerError
from acp_agent.fronts.lsp_server.lsp_editor import Editor, Kind
from acp_agent.fronts.lsp_server.status import Board, Call, one_line
from acp_agent.fronts.lsp_server.transcript import ASKED_LINES, Transcript, details_of, diff_text
from acp_agent.fronts.view import command_of
from acp_agent.legible import legible
from acp_agent.schema import acp

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SHOW = "Show"
INSTEAD = "No, and say what to do instead"
DRAFT = "Instead: "
"""Where the user goes on in the transcript."""
REASONED = "reject_once"
"""The option that takes a reason."""
NO_ANSWER = "Do not answer"
ORDER = ("reject_once", "allow_once", "allow_always", "reject_always")
SHOWN_LINES = 12
FEW_LINES = 8
"""Characters of a question, with its choices, that Emacs's echo area shows."""
QUIET_SECONDS = 1.0
"""How long the user must not have typed before a question is shown."""
LINE_LENGTH = 140
TITLE_LENGTH = 400


class Asked(Struct, frozen=True):
    """The text of a question. `end`, if it is not whole: the text with the end, to ask again after it was opened."""

    text: str
    end: str = ""


class Questions:
    """`show` opens the transcript, with a draft or "". `changed` is called when a call starts or stops waiting."""

    def __init__(
        self,
        editor: Editor,
        board: Board,
        transcript: Transcript,
        show: Callable[[str], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._editor = editor
        self._board = board
        self._transcript = transcript
        self._show = show
        self._changed = changed
        self._turn = anyio.Lock()
        self._open: set[anyio.CancelScope] = set()
        self._typed_at = -math.inf
        self._again: anyio.Event | None = None
        self._reasoned, self._reason = False, ""
        """Whether a reason may be given for rejecting what waits, and the one that was given."""
        self.waiting = ""
        """The question that waits until the user wants to answer it, in one line; empty if there is none."""

    def typed(self) -> None:
        """Called while the user is typing: a question would take key presses meant for the text."""
        self._typed_at = anyio.current_time()

    def resume(self, reason: str = "") -> bool:
        """Asks the waiting question, or rejects it for a reason; returns whether there is one."""
        if self._again is None or (reason and not self._reasoned):
            return False
        self._reason = reason.removeprefix(DRAFT.rstrip()).strip()
        self._again.set()
        return True

    def abandon(self) -> None:
        """Called when the turn is being stopped: nobody waits for the answers any more."""
        for scope in self._open:
            scope.cancel()

    async def _in_turn(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """Asks one question at a time; returns `None` if it was abandoned."""
        scope = anyio.CancelScope()
        self._open.add(scope)
        try:
            with scope:
                async with self._turn:
                    return await ask()
        finally:
            self._open.discard(scope)
        return None

    # --- permissions ------------------------------------------------------------------------------------------

    async def permission(self, request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        call = self._board.take(request.tool_call)
        self._board.set_waiting(call.id, True)
        self._changed()
        try:
            outcome = await self._in_turn(partial(self._ask, request, call))
        finally:
            self._board.set_waiting(call.id, False)
            self._changed()
        return acp.CancelledPermissionOutcome() if outcome is None else outcome

    async def _ask(self, request: acp.RequestPermissionRequest, call: Call) -> acp.RequestPermissionOutcome:
        options = safe_first(request.options)
        names = _unique([one_line(option.name) for option in options], SHOW, INSTEAD)
        named = dict(zip(names, options, strict=True))
        self._transcript.question(one_line(call.title), details_of(call, ASKED_LINES))
        try:
            asked = question_text(
                call,
                FEW_LINES if self._editor.name == "Eglot" else SHOWN_LINES,
                explained=isinstance(request.tool_call.meta, dict) and "asked" in request.tool_call.meta,
            )
            if any(option.option_id == REASONED for option in options):
                names.insert(1, INSTEAD)
            safe = [name for name in names if name == INSTEAD or named[name].kind.startswith("reject")]
            chosen = await self._choose(asked, names, Kind.Warning, safe)
        except PeerError as error:
            self._editor.say(
                f"Rejected, since this editor cannot ask ({error.message}): {one_line(call.title)}", Kind.Warning
            )
            self._transcript.answer("rejected: the editor cannot ask")
            return await reject_once(request)
        if chosen is None:
            self._transcript.answer("dismissed: rejected")
            return await reject_once(request)
        if chosen == INSTEAD:
            self._transcript.answer(f"rejected: {self._reason}")
            return acp.SelectedPermissionOutcome(option_id=REASONED, meta={"reason": self._reason})
        option = named[chosen]
        self._transcript.answer(option.name)
        return acp.SelectedPermissionOutcome(option_id=option.option_id)

    async def _choose(self, asked: Asked, names: Sequence[str], kind: Kind, safe: Sequence[str] = ()) -> str | None:
        """Asks once the user has not typed for a moment. After the transcript was shown the question waits: it would
        cover what the user should read. Until then only the names in `safe` are offered if it is not whole."""
        text, offered = asked.text, safe if asked.end else names
        while True:
            if (left := self._typed_at + QUIET_SECONDS - anyio.current_time()) > 0:
                await anyio.sleep(left)
                continue
            chosen = await self._editor.choose(text, [*offered, SHOW], kind)
            if chosen not in (SHOW, INSTEAD):
                return chosen
            await self._show(DRAFT if chosen == INSTEAD else "")
            text, offered = (text, offered) if chosen == INSTEAD else (asked.end or text, names)
            self._again, self.waiting = anyio.Event(), one_line(text.split("\n")[0], TITLE_LENGTH)
            self._reasoned, self._reason = INSTEAD in names, ""
            how = "Write it at the end, then `Send to the agent` (acpCoder.send). " if chosen == INSTEAD else ""
            again = f"`Agent: answer` (acpCoder.answer) asks again: {one_line(self.waiting, 60)}"
            self._editor.say(f"{how}{again}", Kind.Warning)
            try:
                await self._again.wait()
            finally:
                self._again, self.waiting = None, ""
            if self._reason:
                return INSTEAD

    # --- forms ------------------------------------------------------------------------------------------------

    async def elicit(self, request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        """Asks fields with choices one after the other. Declines a form that needs text, and tells the
        user."""
        if not isinstance(request, acp.ElicitationFormMode):
            self._editor.say(f"Not answered: {one_line(request.message)} ({legible(request.url)})", Kind.Warning)
            return acp.CreateElicitationResponse(action="decline")
        required = set(request.requested_schema.required or ())
        asked = {name: _choices(field) for name, field in request.requested_schema.properties.items()}
        if any(not asked.get(name) for name in required) or not any(asked.values()):
            self._editor.say(
                f"The agent asks for text, which cannot be entered here: {one_line(request.message)}. "
                "Answer in the next prompt.",
                Kind.Warning,
            )
            return acp.CreateElicitationResponse(action="decline")
        answer = await self._in_turn(partial(self._fill, request, asked))
        return acp.CreateElicitationResponse(action="cancel") if answer is None else answer

    async def _fill(
        self, request: acp.ElicitationFormMode, asked: dict[str, list[tuple[str, Any]]]
    ) -> acp.CreateElicitationResponse:
        content: dict[str, acp.ElicitationContentValue] = {}
        self._transcript.question(one_line(request.message, 2_000), "")
        for name, choices in asked.items():
            if not choices:
                continue  # An optional text.
            field = request.requested_schema.properties[name]
            title = getattr(field, "title", None) or name
            text = one_line(request.message, 1_000)
            if len([1 for found in asked.values() if found]) > 1:
                text = f"{text}\n{one_line(title)}"
            names = _unique([one_line(label) for label, _ in choices], NO_ANSWER, SHOW, INSTEAD)
            try:
                chosen = await self._choose(Asked(text), [NO_ANSWER, *names], Kind.Info)
            except PeerError as error:
                log.warning("the question could not be asked: %s", error)
                return acp.CreateElicitationResponse(action="decline")
            if chosen is None or chosen == NO_ANSWER:
                self._transcript.answer("not answered")
                return acp.CreateElicitationResponse(action="decline")
            self._transcript.answer(chosen)
            content[name] = choices[names.index(chosen)][1]
        return acp.CreateElicitationResponse(action="accept", content=content)


def safe_first(options: Sequence[acp.PermissionOption]) -> list[acp.PermissionOption]:
    """Rejecting once first, then allowing once, then lasting options; otherwise in the agent's order."""
    return sorted(options, key=lambda option: ORDER.index(option.kind))


def question_text(call: Call, most: int = SHOWN_LINES, *, explained: bool = False) -> Asked:
    """The title, what would be done, and why it is asked; the full text is in the transcript. Only what would be done
    is cut. `explained`: whether the last content says why."""
    head = one_line(call.title, TITLE_LENGTH)
    texts = [*call.content]
    why = [one_line(line, TITLE_LENGTH) for line in _lines(texts.pop(), head, most)] if explained and texts else []
    command = legible(command_of(call.raw_input)).strip()
    known = {head, command, legible(call.title).strip()} - {""}
    about = [line for item in texts for line in _lines(item, head, most) if not _says(item, known)]
    if command not in head:  # Unchanged: a title is a single line of limited length.
        about[:0] = [f"$ {line}" for line in command.split("\n")]
    elif head.endswith("…") and not about:
        about = legible(call.title).split("\n")
    about = [piece for line in about if line.strip() for piece in _pieces(line.rstrip())]
    room = max(2, most - 1 - len(why))
    if len(about) <= room:
        return Asked("\n".join([head, *about, *why]))
    left = len(about) - room + 1
    return Asked(
        "\n".join([head, *about[: room - 1], f"... {left} more lines, to read before you allow it: {SHOW}", *why]),
        "\n".join([head, f"... {left} lines before: {SHOW}", *about[1 - room :], *why]),
    )


def _lines(item: Any, head: str, most: int) -> list[str]:
    """What a content says beside `head`."""
    match item:
        case acp.Diff():
            changed = diff_text(item, ASKED_LINES).split("\n")
            if most <= FEW_LINES:  # Use limited space for the changes.
                changed = [line for line in changed if line[:1] in ("+", "-")]
            return [one_line(item.path), *changed]
        case acp.Content(content=acp.TextContent(text=text)):
            shown = [line for line in legible(text).strip().split("\n") if one_line(line, TITLE_LENGTH) != head]
            if any(line.strip() and not line.startswith("```") for line in shown):  # More than an empty fence.
                return [line for line in shown if line.strip()]
    return []


def _says(item: Any, known: set[str]) -> bool:
    """Whether a content only repeats what is shown already, in a block of code."""
    text = item.content.text if isinstance(item, acp.Content) and isinstance(item.content, acp.TextContent) else ""
    return legible(re.sub(r"^```\w*\n|\n```\n?$", "", text)).strip() in known


def _pieces(line: str) -> list[str]:
    """A line, cut where it is too long for one."""
    return [line[at : at + LINE_LENGTH] for at in range(0, len(line), LINE_LENGTH)]


def _choices(field: object) -> list[tuple[str, Any]]:
    """Returns the choices of a field: label and value. Empty for a string or a number."""
    match field:
        case acp.StringPropertySchema(enum=list() as words):
            return [(word, word) for word in words]
        case acp.StringPropertySchema(one_of=list() as options):
            return [(option.title, option.const) for option in options]
        case acp.BooleanPropertySchema():
            return [("No", False), ("Yes", True)]
        case acp.MultiSelectPropertySchema(items=acp.StringMultiSelectItems(enum=words)):
            return [(word, [word]) for word in words]
        case acp.MultiSelectPropertySchema(items=acp.TitledMultiSelectItems(any_of=options)):
            return [(option.title, [option.const]) for option in options if isinstance(option, acp.EnumOption)]
    return []


def _unique(names: Sequence[str], *taken: str) -> list[str]:
    """Makes names unique if an agent used one twice, or one of ours."""
    found: list[str] = []
    for name in names:
        number, unique = 2, name or "?"
        while unique in found or unique in taken:
            unique = f"{name} ({number})"
            number += 1
        found.append(unique)
    return found
