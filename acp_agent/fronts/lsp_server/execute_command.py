"""`workspace/executeCommand`: the user's commands to the agent.

An editor may block until a command is answered (eglot does), so a command is answered immediately and its work
continues; errors are then shown as messages. With `wait: true` the answer is sent when the work is done, and cancelling
the request stops it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio.abc
from lsprotocol.types import LSPErrorCodes, Position, Range
from msgspec import Struct
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from acp_agent.errors import AgentError, PeerError
from acp_agent.fronts.lsp_server import prompt_content
from acp_agent.fronts.lsp_server.conversation import Choice, Turn
from acp_agent.fronts.lsp_server.front import Front
from acp_agent.fronts.lsp_server.lsp_editor import Kind
from acp_agent.fronts.lsp_server.prompt_content import Passage, Prompt
from acp_agent.fronts.lsp_server.status import one_line
from acp_agent.fronts.lsp_server.transcript import is_answered, pending_prompt
from acp_agent.fronts.lsp_server.undo import Asked, Undo, read_asked

MAX_CHOICES = 30
"""No editor shows more than that in one question."""

CONTINUE = "Continue."

NUMBERS = {"acpCoder.undo": "to", "acpCoder.diff": "since"}
"""The field that a plain number stands for, also one that an editor passes as a string."""

Work = Callable[[], Awaitable[Any]]


class _Given(Struct, frozen=True):
    """The single argument of a command, validated."""

    text: str = ""
    id: str = ""
    uri: str = ""
    where: Range | None = None
    message: str = ""
    source: str = ""
    wait: bool = False
    more: Asked = Asked("")


class Commands:
    def __init__(self, front: Front, undo: Undo, tasks: anyio.abc.TaskGroup) -> None:
        self._front = front
        self._undo = undo
        self._tasks = tasks
        self._sent: list[Turn] = []
        """Turns of prompts sent from the transcript."""
        self.table: dict[str, Callable[[Sequence[Any] | None], Awaitable[Any]]] = {}
        for name, plain, work in (
            ("prompt", "text", self._prompt),
            ("ask", "text", self._ask),
            ("fix", "", self._fix),
            ("explain", "", self._explain),
            ("test", "", self._test),
            ("continue", "", self._continue),
            ("send", "uri", self._send),
            ("stop", "", self._stop),
            ("answer", "text", self._answer),
            ("mode", "id", self._mode),
            ("model", "id", self._model),
            ("transcript", "", self._transcript),
            ("newSession", "", self._new_session),
            ("sessions", "id", self._sessions),
            ("output", "id", self._output),
            ("checkpoints", "", lambda _: self._undo.checkpoints),
            ("diff", "", lambda given: partial(self._undo.diff, given.more.since)),
            ("undo", "call", lambda given: partial(self._undo.undo, given.more)),
            ("redo", "", lambda given: partial(self._undo.redo, given.more)),
        ):
            self.table[f"acpCoder.{name}"] = partial(self._execute, f"acpCoder.{name}", plain, work)

    async def _execute(
        self, name: str, plain: str, work: Callable[[_Given], Work], arguments: Sequence[Any] | None
    ) -> Any:
        """Raises JsonRpcException for malformed arguments and, if the caller waits, for failures."""
        given = _read(name, plain, arguments)
        try:
            todo = work(given)
            if given.wait:
                return await todo()
        except AgentError as error:
            raise JsonRpcException(_words(error), code=LSPErrorCodes.RequestFailed.value) from error
        self._tasks.start_soon(self._in_background, todo)
        return None

    async def _in_background(self, todo: Work) -> None:
        try:
            await todo()
        except _TurnFailed:
            pass  # It was reported when it failed.
        except AgentError as error:
            self._front.editor.say(f"Agent: {_words(error)}", Kind.Error)

    # --- turns ------------------------------------------------------------------------------------------------

    def _turn(self, prompt: Prompt, *, sent: bool = False) -> Work:
        turn = self._front.submit(prompt)  # Submitted now, so that prompts keep the order of their commands.
        if sent:
            self._sent = [turn, *(other for other in self._sent if not other.done.is_set())]

        async def finish() -> dict[str, str]:
            try:
                await turn.done.wait()
            finally:
                if not turn.done.is_set():
                    self._front.conversation.drop(turn)
                    if turn.stopped:
                        self._front.questions.abandon()
            if turn.failure:
                raise _TurnFailed(turn.failure)
            return {"stopReason": turn.stop_reason}

        return finish

    def _prompt(self, given: _Given) -> Work:
        if not given.text.strip():
            raise JsonRpcInvalidParams("acpCoder.prompt takes a string, or an object with `text`")
        return self._turn(self._about(given.text, given))

    def _ask(self, given: _Given) -> Work:
        if given.text.strip():
            return self._turn(self._about(given.text, given))
        place = self._passage(given, "acpCoder.ask")
        return partial(self._front.show_transcript, f"About {place.markdown}: ")

    def _fix(self, given: _Given) -> Work:
        place = self._passage(given, "acpCoder.fix")
        if not given.message:
            raise JsonRpcInvalidParams("acpCoder.fix needs a `diagnostic` with a `message`")
        return self._turn(prompt_content.fix(given.message, given.source, place))

    def _explain(self, given: _Given) -> Work:
        return self._turn(prompt_content.explain(self._passage(given, "acpCoder.explain")))

    def _test(self, given: _Given) -> Work:
        return self._turn(prompt_content.test(self._passage(given, "acpCoder.test")))

    def _continue(self, given: _Given) -> Work:
        return self._turn(Prompt(CONTINUE))

    def _send(self, given: _Given) -> Work:
        document = self._front.documents.get(given.uri)
        if document is None:
            raise JsonRpcInvalidParams("acpCoder.send needs the `uri` of an open transcript")
        if document is not self._front.documents.of(self._front.transcript.file):
            # From an earlier session, or from another server that the editor has started for this file.
            raise AgentError("this is not the current session's transcript; `Agent: show the transcript` opens it")
        text = pending_prompt(document.now.text)
        if not text:
            raise AgentError("write the prompt below the last `## You` first")
        if is_answered(text):
            raise AgentError("the answer is still being written: write below the `## You` that follows it")
        if any(turn.prompt.text == text for turn in self._sent if not turn.done.is_set()):
            raise AgentError("this was already sent")
        if self._front.questions.resume(text):  # It says what to do instead of what was asked.
            self._front.transcript.said(text)
            return _done
        return self._turn(prompt_content.linked(self._front.documents, text), sent=True)

    def _stop(self, given: _Given) -> Work:
        stopped = self._front.stop()

        async def tell() -> dict[str, bool]:
            return {"stopped": stopped}

        return tell

    def _answer(self, given: _Given) -> Work:
        if not self._front.questions.resume(given.text):
            raise AgentError("no question is pending" if not given.text else "no question is pending that takes words")
        return _done

    def _about(self, text: str, given: _Given) -> Prompt:
        if not given.uri:
            return Prompt(text)
        return Prompt(text, (prompt_content.passage(self._front.documents, given.uri, given.where),))

    def _passage(self, given: _Given, name: str) -> Passage:
        if not given.uri:
            raise JsonRpcInvalidParams(f"{name} needs an object with `uri`, and `range` for a part of the document")
        return prompt_content.passage(self._front.documents, given.uri, given.where)

    # --- choices ----------------------------------------------------------------------------------------------

    def _mode(self, given: _Given) -> Work:
        conversation = self._front.conversation
        return partial(self._choose, "mode", given.id, conversation.modes, conversation.set_mode)

    def _model(self, given: _Given) -> Work:
        conversation = self._front.conversation
        return partial(self._choose, "model", given.id, conversation.models, conversation.set_model)

    async def _choose(
        self,
        what: str,
        chosen: str,
        choices: Callable[[], Awaitable[Sequence[Choice]]],
        take: Callable[[str], Awaitable[None]],
    ) -> dict[str, str] | None:
        chosen = chosen or await self._pick(what, await choices())
        if not chosen:
            return None
        await take(chosen)
        self._front.editor.say(f"Agent: {what} {one_line(chosen)}")
        return {"id": chosen}

    def _sessions(self, given: _Given) -> Work:
        conversation = self._front.conversation

        async def choose() -> dict[str, str] | None:
            found = await conversation.sessions()
            choices = [
                Choice(info.session_id, " ".join(filter(None, (info.title or info.session_id, info.updated_at))))
                for info in found
            ]
            picked = given.id or await self._pick("session", choices)
            if not picked:
                return None
            chosen = [info for info in found if info.session_id == picked]
            if not chosen:
                raise AgentError(f"there is no session {picked!r} in this folder")
            self._front.stop()  # Including its questions: an agent may wait for their answers before it stops.
            await conversation.load(chosen[0])
            self._front.transcript.end("")
            await self._front.show_transcript()
            return {"id": picked}

        return choose

    async def _pick(self, what: str, choices: Sequence[Choice]) -> str:
        """Returns the id of the user's choice; empty if nothing was picked."""
        if not choices:
            raise AgentError(f"there is no {what} to choose")
        labels: dict[str, str] = {}
        for choice in choices[:MAX_CHOICES]:
            label = f"{one_line(choice.name, 80)}{' (now)' if choice.current else ''}"
            labels[label if label not in labels else f"{label} [{one_line(choice.id)}]"] = choice.id
        more = f" ({len(choices) - MAX_CHOICES} more, by id)" if len(choices) > MAX_CHOICES else ""
        picked = await self._front.editor.choose(f"Agent: which {what}?{more}", list(labels))
        return labels.get(picked or "", "")

    # --- the transcript and sessions --------------------------------------------------------------------------

    def _transcript(self, given: _Given) -> Work:
        return self._front.show_transcript

    def _new_session(self, given: _Given) -> Work:
        self._front.conversation.forget()
        self._front.questions.abandon()

        async def tell() -> None:
            self._front.editor.say("Agent: the next prompt starts a new session")

        return tell

    def _output(self, given: _Given) -> Work:
        call = self._front.board.calls.get(given.id)
        if call is None:
            raise AgentError("this tool call is from an earlier turn; its output is in the transcript")

        async def show() -> None:
            if not call.ended:
                self._front.transcript.call(call)
            await self._front.show_transcript()

        return show


async def _done() -> None:
    return


class _TurnFailed(AgentError):
    """An error whose message the user has already read."""


def _words(error: AgentError) -> str:
    return error.message if isinstance(error, PeerError) else str(error)


# --- arguments ---------------------------------------------------------------------------------------------------


def _read(name: str, plain: str, arguments: Sequence[Any] | None) -> _Given:
    """`plain`: the field that a plain string stands for, if one is accepted in place of the object."""
    given = list(arguments or ())
    if len(given) > 1:
        raise JsonRpcInvalidParams(f"{name} takes one argument, not {len(given)}")
    if not given or given[0] is None:
        return _Given()
    value = given[0]
    if name in NUMBERS and (type(value) is int or (isinstance(value, str) and value.isdecimal())):
        value = {NUMBERS[name]: int(value)}
    if isinstance(value, str):
        if not plain:
            raise JsonRpcInvalidParams(f"{name} takes an object, not a string")
        value = {plain: value}
    if not isinstance(value, Mapping):
        raise JsonRpcInvalidParams(f"{name} takes {'a string or ' if plain else ''}an object")
    diagnostic = value.get("diagnostic") or {}
    if not isinstance(diagnostic, Mapping):
        raise JsonRpcInvalidParams(f"{name}: `diagnostic` is an object")
    wait = value.get("wait", False)
    if not isinstance(wait, bool):
        raise JsonRpcInvalidParams(f"{name}: `wait` is true or false")
    return _Given(
        text=_text(name, value, "text"),
        id=_text(name, value, "id"),
        uri=_text(name, value, "uri"),
        where=_range(name, value.get("range", diagnostic.get("range"))),
        message=_text(name, diagnostic, "message"),
        source=_text(name, diagnostic, "source"),
        wait=wait,
        more=read_asked(name, value) if name in ("acpCoder.undo", "acpCoder.redo", "acpCoder.diff") else Asked(""),
    )


def _text(name: str, value: Mapping[str, Any], field: str) -> str:
    found = value.get(field)
    if found is not None and not isinstance(found, str):
        raise JsonRpcInvalidParams(f"{name}: `{field}` must be a string")
    return found or ""


def _range(name: str, value: Any) -> Range | None:
    if value is None:
        return None
    try:
        return Range(start=_position(value["start"]), end=_position(value["end"]))
    except (KeyError, TypeError, ValueError) as error:
        raise JsonRpcInvalidParams(f"{name}: `range` is not a range of LSP") from error


def _position(value: Any) -> Position:
    line, character = value["line"], value["character"]
    if type(line) is not int or type(character) is not int or line < 0 or character < 0:
        raise ValueError("not a position")
    return Position(line=line, character=character)
