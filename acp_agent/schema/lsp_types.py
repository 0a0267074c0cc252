"""The words of the Language Server Protocol (3.17) that the `_lsp/*` extension uses, and their decoder.

Names and shapes are LSP's: positions count from 0, characters in UTF-16 code units, severities go from 1 (error) to 4
(hint). docs/lsp-extension.md describes the methods. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, ValidationError, convert

from acp_agent.errors import InvalidParams
from acp_agent.schema.decode import MalformedResult

MESSAGE_LIMIT = 300

SYMBOL_KINDS = (
    "file module namespace package class method property field constructor enum interface function variable constant "
    "string number boolean array object key null enum-member struct event operator type-parameter"
).split()
"""Names of LSP's `SymbolKind`, which counts from 1."""


def symbol_kind(number: int) -> str:
    """A word for a `SymbolKind`; `symbol` for one that is not known."""
    return SYMBOL_KINDS[number - 1] if 1 <= number <= len(SYMBOL_KINDS) else "symbol"


class Position(Struct, frozen=True):
    line: int
    """From 0."""
    character: int
    """From 0, in UTF-16 code units."""


class Range(Struct, frozen=True):
    start: Position
    end: Position


class Location(Struct, frozen=True):
    uri: str
    range: Range


class Diagnostic(Struct, frozen=True):
    range: Range
    message: str
    severity: int = 1
    source: str = ""
    code: str | int | None = None


class FileDiagnostics(Struct, frozen=True):
    uri: str
    diagnostics: list[Diagnostic] = []


class DiagnosticReport(Struct, frozen=True):
    """The answer to `_lsp/diagnostics`."""

    items: list[FileDiagnostics] = []


class PublishDiagnostics(Struct, frozen=True, rename="camel"):
    """`_lsp/publishDiagnostics`: all diagnostics of one file, in the place of those before."""

    session_id: str
    uri: str
    diagnostics: list[Diagnostic]


class TextDocument(Struct, frozen=True):
    uri: str


class DidSave(Struct, frozen=True, rename="camel"):
    """`_lsp/didSave`."""

    session_id: str
    text_document: TextDocument


class MarkupContent(Struct, frozen=True):
    value: str
    kind: str = "markdown"


class Hover(Struct, frozen=True):
    contents: MarkupContent
    range: Range | None = None


class DocumentSymbol(Struct, frozen=True, rename="camel"):
    """Of files whose server knows only a flat list, `location` is given and the ranges are not."""

    name: str
    kind: int
    range: Range | None = None
    selection_range: Range | None = None
    location: Location | None = None
    detail: str = ""
    container_name: str = ""
    children: list[DocumentSymbol] = []


class WorkspaceSymbol(Struct, frozen=True, rename="camel"):
    name: str
    kind: int
    location: Location
    container_name: str = ""


class TextEdit(Struct, frozen=True, rename="camel"):
    range: Range
    new_text: str


class WorkspaceEdit(Struct, frozen=True):
    changes: dict[str, list[TextEdit]] = {}


METHODS: dict[str, Any] = {
    "_lsp/diagnostics": DiagnosticReport,
    "_lsp/hover": Hover | None,
    "_lsp/definition": list[Location],
    "_lsp/references": list[Location],
    "_lsp/documentSymbols": list[DocumentSymbol],
    "_lsp/workspaceSymbols": list[WorkspaceSymbol],
    "_lsp/rename": WorkspaceEdit,
}
"""Each request's result. Where a list or an edit is expected, null means none."""

NOTIFICATIONS: dict[str, Any] = {"_lsp/publishDiagnostics": PublishDiagnostics, "_lsp/didSave": DidSave}


def decode_result(method: str, result: object) -> Any:
    """Raises MalformedResult."""
    kind = METHODS[method]
    empty: object = {} if kind in (DiagnosticReport, WorkspaceEdit) else []
    try:
        return convert(empty if result is None and kind != Hover | None else result, kind)
    except ValidationError as error:
        raise MalformedResult(method, str(error)[:MESSAGE_LIMIT]) from error


def decode_notification(method: str, params: object) -> Any:
    """Raises InvalidParams."""
    try:
        return convert(params, NOTIFICATIONS[method])
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {str(error)[:MESSAGE_LIMIT]}") from error
