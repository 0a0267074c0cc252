"""Code actions: what a user may request from the agent at a position, as plain data over the commands.

Fixing a diagnostic is a `quickfix`. Everything else is `source.acpCoder`: every editor lists that kind when asked for
all, and none runs it automatically on save, as some do with `source.fixAll` and `source.organizeImports`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lsprotocol import types
from msgspec import Struct

from acp_agent.fronts.lsp_server.documents.editor_documents import Document
from acp_agent.fronts.lsp_server.drawing import SOURCE
from acp_agent.fronts.lsp_server.prompt_content import is_cursor, question_in
from acp_agent.fronts.lsp_server.status import one_line
from acp_agent.fronts.lsp_server.transcript import is_transcript
from acp_agent.fronts.lsp_server.undo import Offer

KIND = "source.acpCoder"
QUICKFIX = types.CodeActionKind.QuickFix.value
WORDS = 60
"""Characters of a question or a problem in a title."""


class _Action(Struct, frozen=True):
    title: str
    command: str
    arguments: tuple[Any, ...] = ()
    kind: str = KIND
    diagnostics: tuple[types.Diagnostic, ...] = ()


def actions_for(
    params: types.CodeActionParams,
    document: Document | None,
    *,
    busy: bool,
    literals: bool,
    question: str = "",
    offers: Sequence[Offer] = (),
) -> list[types.CodeAction | types.Command]:
    """`busy`: whether a turn is running. `question`: one that waits for its answer. `literals`: whether the editor
    accepts more than commands. `offers`: the agent's changes there."""
    only = params.context.only
    found: list[types.CodeAction | types.Command] = []
    for action in _all(params, document, busy, question, offers):
        if only is not None and not any(_is_below(action.kind, str(getattr(kind, "value", kind))) for kind in only):
            continue
        command = types.Command(title=action.title, command=action.command, arguments=list(action.arguments))
        if literals:
            found.append(
                types.CodeAction(
                    title=action.title, kind=action.kind, command=command, diagnostics=list(action.diagnostics) or None
                )
            )
        else:
            found.append(command)
    return found


def _is_below(kind: str, wanted: str) -> bool:
    return not wanted or kind == wanted or kind.startswith(wanted + ".")


def _all(
    params: types.CodeActionParams, document: Document | None, busy: bool, question: str, offers: Sequence[Offer]
) -> Iterator[_Action]:
    uri = params.text_document.uri
    if question:
        yield _Action(f"Agent: answer: {one_line(question, WORDS)}", "acpCoder.answer")
    if is_transcript(uri):
        yield _Action("Send to the agent", "acpCoder.send", ({"uri": uri},))
    else:
        yield from _about(uri, params.range, params.context.diagnostics, document)
    for offer in offers:
        lines = f"line {offer.first}" if offer.first == offer.last else f"lines {offer.first}-{offer.last}"
        yield _Action(f"Agent: revert this change ({lines})", "acpCoder.undo", (offer.argument,))
    if busy:
        yield _Action("Agent: stop", "acpCoder.stop")
    else:
        yield _Action("Agent: continue", "acpCoder.continue")
    yield _Action("Agent: show the transcript", "acpCoder.transcript")
    yield _Action("Agent: pick the mode", "acpCoder.mode")
    yield _Action("Agent: pick the model", "acpCoder.model")
    yield _Action("Agent: new session", "acpCoder.newSession")
    yield _Action("Agent: earlier sessions", "acpCoder.sessions")


def _about(
    uri: str, where: types.Range, diagnostics: Sequence[types.Diagnostic], document: Document | None
) -> Iterator[_Action]:
    place = {"uri": uri, "range": _plain_range(where)}
    for diagnostic in diagnostics:
        if diagnostic.source == SOURCE:
            continue
        problem = {"message": diagnostic.message, "source": diagnostic.source or ""}
        yield _Action(
            f"Agent: fix: {one_line(diagnostic.message, WORDS)}",
            "acpCoder.fix",
            ({"uri": uri, "range": _plain_range(diagnostic.range), "diagnostic": problem},),
            QUICKFIX,
            (diagnostic,),
        )
    question = question_in(document.now, where) if document is not None else ""
    if question:
        yield _Action(f"Ask the agent: {one_line(question, WORDS)}", "acpCoder.ask", ({**place, "text": question},))
    selected = where.start != where.end and (document is None or not is_cursor(document.now, where))
    yield _Action(f"Agent: ask about {'the selection' if selected else 'this line'}", "acpCoder.ask", (place,))
    yield _Action(f"Agent: explain {'the selection' if selected else 'this line'}", "acpCoder.explain", (place,))
    yield _Action(f"Agent: write a test for {'the selection' if selected else 'this line'}", "acpCoder.test", (place,))


def _plain_range(where: types.Range) -> dict[str, Any]:
    return {
        "start": {"line": where.start.line, "character": where.start.character},
        "end": {"line": where.end.line, "character": where.end.character},
    }
