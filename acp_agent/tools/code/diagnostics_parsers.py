"""Parses the output of checkers into diagnostics. Pure functions, one for each format.

A parser gets everything the program printed on both streams, and copes with terminal output: unrelated lines before,
after and in between (`plain` removes colours). It returns `None` if the program's report is missing, which does not
mean "no problems".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct

Severity = Literal["error", "warning", "info"]


class Diagnostic(Struct, frozen=True):
    severity: Severity
    message: str
    file: str = ""
    """As named by the program; empty if there is none."""
    line: int | None = None
    """1-based, as is `col`."""
    col: int | None = None
    code: str = ""
    source: str = ""
    """The checker."""


Place = tuple[str, int | None, int | None]
"""File, line, column."""

Parser = Callable[[str], list[Diagnostic] | None]

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")


def plain(text: str) -> str:
    """Removes colours and carriage returns."""
    return ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def _values(text: str, first: str) -> Iterator[Any]:
    """The JSON values at the start of lines, beginning with one of the characters `first`."""
    decoder = json.JSONDecoder()
    at = 0
    for found in re.finditer(rf"^[ \t]*(?=[{re.escape(first)}])", text, re.MULTILINE):
        if found.end() < at:
            continue
        try:
            value, at = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        yield value


def _objects(text: str) -> Iterator[dict[str, Any]]:
    return (value for value in _values(text, "{") if isinstance(value, dict))


def _array(text: str) -> list[dict[str, Any]] | None:
    """The first JSON array of objects."""
    for value in _values(text, "["):
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
    return None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object, plus: int = 0) -> int | None:
    """A 1-based position; `None` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value + plus < 1:
        return None
    return value + plus


# --- cargo ----------------------------------------------------------------------------------------------------

SUMMARIES = re.compile(r"aborting due to|\d+ warnings? emitted|For more information|Some errors have detailed")


def parse_cargo(text: str) -> list[Diagnostic] | None:
    """`cargo check --message-format=json`: one message per line."""
    found: dict[Diagnostic, None] = {}
    seen = False
    for line in _objects(text):
        seen = seen or "reason" in line
        message = _dict(line.get("message"))
        if line.get("reason") != "compiler-message" or SUMMARIES.match(_text(message.get("message"))):
            continue
        span = _primary(message)
        words, label = _text(message.get("message")), _text(span.get("label"))
        level = _text(message.get("level"))
        severity: Severity = "error" if level.startswith("error") else "warning" if level == "warning" else "info"
        code = _text(_dict(message.get("code")).get("code"))
        place = (_text(span.get("file_name")), _number(span.get("line_start")), _number(span.get("column_start")))
        found[Diagnostic(severity, f"{words}: {label}" if label else words, *place, code)] = None
    return list(found) if seen else None


def _primary(message: dict[str, Any]) -> dict[str, Any]:
    """The primary location; for a third-party macro, where it is used."""
    spans = _dicts(message.get("spans"))
    span = next((span for span in spans if span.get("is_primary")), spans[0] if spans else {})
    label = span.get("label")
    while _text(span.get("file_name")).startswith(("/", "<")):
        used = _dict(_dict(span.get("expansion")).get("span"))
        if not used:
            break
        span = used
    return {**span, "label": label}


# --- Python ---------------------------------------------------------------------------------------------------


def parse_ruff(text: str) -> list[Diagnostic] | None:
    """`ruff check --output-format=json`. Findings of its rules are warnings; invalid Python is an error."""
    items = _array(text)
    if items is None:
        return None
    found = []
    for item in items:
        code, place = _text(item.get("code")), _dict(item.get("location"))
        broken = not code or code in ("invalid-syntax", "E999")
        found.append(
            Diagnostic(
                "error" if broken else "warning",
                _text(item.get("message")),
                _text(item.get("filename")),
                _number(place.get("row")),
                _number(place.get("column")),
                code,
            )
        )
    return found


MYPY_LINE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<col>\d+):)?(?:\d+:\d+:)? "
    r"(?P<severity>error|warning|note): (?P<message>.*?)(?:  \[(?P<code>[\w-]+)\])?$",
    re.MULTILINE,
)


def parse_mypy(text: str) -> list[Diagnostic] | None:
    """`mypy --output=json`, one object per line; or the text of an older version. No output means no problems."""
    found = []
    for item in _objects(text):
        if "severity" in item and "message" in item:
            code = _text(item.get("code"))
            hint = _text(item.get("hint"))
            # Columns are zero-based there, except for syntax errors.
            col = _number(item.get("column"), 0 if code == "syntax" else 1)
            words = _text(item.get("message")) + (f" ({hint})" if hint else "")
            place = (_text(item.get("file")), _number(item.get("line")), col)
            found.append(Diagnostic(_mypy_severity(_text(item.get("severity"))), words, *place, code))
    for line in MYPY_LINE.finditer(text):
        place = (line["file"], int(line["line"]), int(line["col"]) if line["col"] else None)
        found.append(Diagnostic(_mypy_severity(line["severity"]), line["message"], *place, line["code"] or ""))
    return found


def _mypy_severity(word: str) -> Severity:
    return "error" if word == "error" else "warning" if word == "warning" else "info"


def parse_pyright(text: str) -> list[Diagnostic] | None:
    """`pyright --outputjson`."""
    report = next((value for value in _objects(text) if "generalDiagnostics" in value), None)
    if report is None:
        return None
    found = []
    for item in _dicts(report["generalDiagnostics"]):
        start = _dict(_dict(item.get("range")).get("start"))
        word = item.get("severity")
        found.append(
            Diagnostic(
                "error" if word == "error" else "warning" if word == "warning" else "info",
                _text(item.get("message")),
                _text(item.get("file")),
                _number(start.get("line"), 1),
                _number(start.get("character"), 1),
                _text(item.get("rule")),
            )
        )
    return found


# --- JavaScript -----------------------------------------------------------------------------------------------

TSC_LINE = re.compile(
    r"^(?:(?P<file>\S.*?)\((?P<line>\d+),(?P<col>\d+)\): )?(?P<severity>error|warning|message) (?P<code>TS\d+): "
    r"(?P<message>.*(?:\n[ \t]+\S.*)*)$",
    re.MULTILINE,
)


def parse_tsc(text: str) -> list[Diagnostic] | None:
    """`tsc --pretty false`: one line each, and indented lines that explain. No output means no problems."""
    found = []
    for item in TSC_LINE.finditer(text):
        message = "\n".join(line.strip() for line in item["message"].split("\n"))
        word = item["severity"]
        place: Place = ("", None, None)
        if item["line"]:
            place = (item["file"], int(item["line"]), int(item["col"]))
        severity: Severity = "error" if word == "error" else "warning" if word == "warning" else "info"
        found.append(Diagnostic(severity, message, *place, item["code"]))
    return found


def parse_eslint(text: str) -> list[Diagnostic] | None:
    """`eslint -f json`."""
    files = _array(text)
    if files is None:
        return None
    return [
        Diagnostic(
            "error" if item.get("severity") == 2 else "warning",
            _text(item.get("message")),
            _text(file.get("filePath")),
            _number(item.get("line")),
            _number(item.get("column")),
            _text(item.get("ruleId")),
        )
        for file in files
        for item in _dicts(file.get("messages"))
    ]


# --- Go -------------------------------------------------------------------------------------------------------

GO_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?::(?P<col>\d+))?$")
GO_LINE = re.compile(
    r"^(?:vet: )?(?P<file>[^\s:#{}\"][^:\n\"]*\.go):(?P<line>\d+)(?::(?P<col>\d+))?: (?P<message>.*)$", re.MULTILINE
)


def parse_go_vet(text: str) -> list[Diagnostic] | None:
    """`go vet -json`: objects `{package: {analyzer: [{posn, message}]}}` between comments; compile errors as text.
    No output means no problems."""
    found: dict[Diagnostic, None] = {}
    for package in _objects(text):
        for analyzers in package.values():
            for analyzer, items in _dict(analyzers).items():
                for item in _dicts(items):
                    posn = GO_PLACE.match(_text(item.get("posn")))
                    place = _go_place(posn) if posn else ("", None, None)
                    found[Diagnostic("warning", _text(item.get("message")), *place, analyzer)] = None
    for line in GO_LINE.finditer(text):
        found[Diagnostic("error", line["message"], *_go_place(line))] = None
    return list(found)


def _go_place(place: re.Match[str]) -> Place:
    return place["file"], int(place["line"]), int(place["col"]) if place["col"] else None
