"""Reads servers' answers, in all the forms LSP allows, as the types of `acp_agent.schema.lsp_types`.

Anything unreadable is left out, item by item: servers differ, and one odd field must not cost the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from acp_agent.lsp.base import LspError
from acp_agent.lsp.uris import path_of, uri_of
from acp_agent.schema import lsp_types as lsp

PICTURE = re.compile(r"!\[[^\]\n]*\]\(data:[^)\s]*\)")
"""An image embedded as a `data:` URI: thousands of characters that nobody reads."""

DEEPEST = 100
"""Symbols in symbols: more than JSON that is read can have (`limits/decoding.py`), in which each takes two levels."""


def diagnostics(data: Any) -> list[lsp.Diagnostic]:
    return [item for each in _list(data) if (item := _diagnostic(each)) is not None]


def _diagnostic(data: Any) -> lsp.Diagnostic | None:
    place = _range(_get(data, "range"))
    message = _get(data, "message")
    if isinstance(message, dict):  # MarkupContent, new in LSP 3.18.
        message = message.get("value")
    if place is None or not isinstance(message, str):
        return None
    severity, source, code = _get(data, "severity"), _get(data, "source"), _get(data, "code")
    if isinstance(code, dict):
        code = code.get("value")
    return lsp.Diagnostic(
        place,
        message,
        severity if severity in (1, 2, 3, 4) else 1,
        source if isinstance(source, str) else "",
        code if isinstance(code, str | int) and not isinstance(code, bool) else None,
    )


def locations(data: Any) -> list[lsp.Location]:
    """Reads `Location`, `Location[]` or `LocationLink[]`, without duplicates."""
    items = [data] if isinstance(data, dict) else _list(data)
    return list(dict.fromkeys(item for each in items if (item := _location(each)) is not None))


def _location(data: Any) -> lsp.Location | None:
    uri = _get(data, "uri")
    place = _range(_get(data, "range"))
    if not isinstance(uri, str):
        uri = _get(data, "targetUri")
        place = _range(_get(data, "targetSelectionRange")) or _range(_get(data, "targetRange"))
    return lsp.Location(_uri(uri), place) if isinstance(uri, str) and place is not None else None


def hover(data: Any) -> lsp.Hover | None:
    """Reads `MarkupContent`, `MarkedString` or a list of these; None if it is empty."""
    contents = _get(data, "contents")
    pieces = [_marked(each) for each in (contents if isinstance(contents, list) else [contents])]
    text = "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip())
    text = PICTURE.sub("", text).strip("\n")
    kind = "plaintext" if _get(contents, "kind") == "plaintext" else "markdown"
    return lsp.Hover(lsp.MarkupContent(text, kind), _range(_get(data, "range"))) if text else None


def _marked(data: Any) -> str:
    if isinstance(data, str):
        return data
    value, language = _get(data, "value"), _get(data, "language")
    if not isinstance(value, str):
        return ""
    return f"```{language}\n{value}\n```" if isinstance(language, str) else value


def document_symbols(data: Any) -> list[lsp.DocumentSymbol]:
    """Reads `DocumentSymbol[]` or `SymbolInformation[]`."""
    return _symbols(data, DEEPEST)


def _symbols(data: Any, depth: int) -> list[lsp.DocumentSymbol]:
    found = []
    for each in _list(data):
        name, kind = _get(each, "name"), _get(each, "kind")
        place, location = _range(_get(each, "range")), _location(_get(each, "location"))
        if isinstance(name, str) and isinstance(kind, int) and (place or location):
            found.append(
                lsp.DocumentSymbol(
                    name,
                    kind,
                    place,
                    _range(_get(each, "selectionRange")) or place,
                    location,
                    _text(_get(each, "detail")),
                    _text(_get(each, "containerName")),
                    _symbols(_get(each, "children"), depth - 1) if depth else [],
                )
            )
    return found


def workspace_symbols(data: Any) -> list[lsp.WorkspaceSymbol]:
    """Reads `SymbolInformation[]` or `WorkspaceSymbol[]`; one without a range is put at the beginning of its file."""
    found = []
    for each in _list(data):
        name, kind, place = _get(each, "name"), _get(each, "kind"), _get(each, "location")
        if isinstance(place, dict) and "range" not in place:
            place = {**place, "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}}
        location = _location(place)
        if isinstance(name, str) and isinstance(kind, int) and location:
            found.append(lsp.WorkspaceSymbol(name, kind, location, _text(_get(each, "containerName"))))
    return found


def workspace_edit(data: Any) -> lsp.WorkspaceEdit:
    """All edits by URI. Raises LspError for anything that is not a text edit or cannot be read: an edit is applied
    completely or not at all."""
    changes: dict[str, list[lsp.TextEdit]] = {}
    documents = _get(data, "documentChanges")
    if isinstance(documents, list):
        for each in documents:
            if kind := _get(each, "kind"):
                raise LspError(
                    f"the language server would also {kind} a file, which is not supported here: rename or create the "
                    "file with the file tools, then change the text"
                )
            _add(changes, _get(_get(each, "textDocument"), "uri"), _get(each, "edits"))
    else:
        given = _get(data, "changes")
        for uri, edits in given.items() if isinstance(given, dict) else ():
            _add(changes, uri, edits)
    return lsp.WorkspaceEdit({uri: edits for uri, edits in changes.items() if edits})


def _add(changes: dict[str, list[lsp.TextEdit]], uri: Any, edits: Any) -> None:
    if not isinstance(uri, str) or not isinstance(edits, list):
        raise LspError("the language server returned a malformed edit; nothing was changed")
    into = changes.setdefault(_uri(uri), [])
    for edit in edits:
        place, text = _range(_get(edit, "range")), _get(edit, "newText")
        if place is None or not isinstance(text, str):
            raise LspError("the language server returned a malformed edit; nothing was changed")
        into.append(lsp.TextEdit(place, text))


# --- helpers -----------------------------------------------------------------------------------------------------


def _get(data: Any, key: str) -> Any:
    return data.get(key) if isinstance(data, Mapping) else None


def _list(data: Any) -> Iterable[Any]:
    return data if isinstance(data, list) else ()


def _text(data: Any) -> str:
    return data if isinstance(data, str) else ""


def _uri(uri: str) -> str:
    """Servers quote URIs differently; this gives files' URIs one form."""
    path = path_of(uri)
    return uri if path is None else uri_of(path)


def _range(data: Any) -> lsp.Range | None:
    start, end = _position(_get(data, "start")), _position(_get(data, "end"))
    return None if start is None or end is None else lsp.Range(start, end)


def _position(data: Any) -> lsp.Position | None:
    line, character = _get(data, "line"), _get(data, "character")
    if not isinstance(line, int) or not isinstance(character, int) or line < 0 or character < 0:
        return None
    return lsp.Position(line, character)
