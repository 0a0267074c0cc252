"""Converts output to plain text as shown on a terminal: no escape sequences, no overwritten progress.

Only the terminal's current line is emulated: carriage return, backspace, erasing the line. Movements to other lines
are dropped. Every expression here takes linear time, since a sequence's body ends at the next control character; `re`
finds a hundred thousand of them ten times faster than RE2.
"""

from __future__ import annotations

import re

from acp_agent.lazy import pattern

STRING = r"[^\x00-\x06\x07\x0e-\x1f\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
"""The rest of OSC, DCS, APC, PM and SOS: any text up to its end. If that is missing, only the start is dropped."""
SEQUENCE = (
    r"(?:\x1b\[|\x9b)(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    rf"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]){STRING}"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
CONTROL = pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BLANK_RUN = pattern(r"\n[ \t]*\n[ \t]*\n|\A[ \t]*\n[ \t]*\n")
BLANK_LINES = pattern(r"\n(?:[ \t]*\n){2,}")
BLANK_START = pattern(r"\A(?:[ \t]*\n){2,}")
SEPARATORS = r"\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
"""What a reader may take for the end of a line."""
NOTE = pattern(
    rf"((?:^|[{SEPARATORS}])[^\S\n{SEPARATORS}]*)"
    r"((?:\x1b\[[\d;]*m|[\x00-\x08\x0e-\x1b\x7f-\x84\u200b-\u200f\u2060-\u2064\ufeff])*\[(?:exit code|no output|"
    r"killed|the exit status|background(?: complete)?\]|terminal\]|bash\]|bash_output\]|credentials were|all of it,|"
    r"its beginning and end|what was kept|a part,|not kept:|the full output|output filtered:|unchanged since|cached:|"
    r"tool_error\]|truncated |stderr\]|denied:|the sandbox|(?:added by )?the hook |the user |the goal of this|"
    r"the resource ))",
    re.MULTILINE | re.IGNORECASE,
)
"""The beginnings of the agent's own lines, at the beginning of a line."""
REST, LINE = "\x00", "\x01"
"""Stand-ins between the two steps of `sanitize_output`: erase to the end of the line, erase the line."""
ACTS = pattern(r"[\x00\x01\r\x08]|[^\x00\x01\r\x08]+")


def sanitize_output(text: str) -> str:
    """`text` without escape sequences and control characters (newline and tab stay), each line in its final state, runs
    of blank lines as one. Never longer than `text`; idempotent. Half surrogates become U+FFFD.
    """
    text = encodable(text)
    if CONTROL.search(text) is not None:
        text = re.sub(SEQUENCE, _line_control, text)
        if any(char in text for char in ("\r", "\b", REST, LINE)):
            text = "\n".join([_as_shown(line) for line in text.split("\n")])
    if BLANK_RUN.search(text) is not None:
        text = BLANK_START.sub("\n", BLANK_LINES.sub("\n\n", text))
    return text


def unlike_notes(text: str) -> str:
    """`text` with `> ` before the lines that look like those which the agent adds to a result. Idempotent."""
    return NOTE.sub(r"\1> \2", text) if "[" in text else text


def encodable(text: str) -> str:
    """`text` with U+FFFD for each half surrogate, which no expression and no channel accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _line_control(match: re.Match[str]) -> str:
    """Keeps the sequences that have an effect within their line."""
    final, parameters = match.group("final"), match.group("parameters")
    if final == "K":
        return {"": REST, "0": REST, "2": LINE}.get(parameters, "")
    if final == "G" and parameters in ("", "1"):
        return "\r"
    if final == "C":
        return " "  # Programs that paint use it as a blank.
    return ""


def _as_shown(line: str) -> str:
    """Returns the final text of a terminal line. Each character is written and erased once: linear."""
    line = line.rstrip("\r")
    if not any(char in line for char in ("\r", "\b", REST, LINE)):
        return line
    shown: list[str] = []
    column = 0
    for match in ACTS.finditer(line):
        part = match.group()
        match part[0]:
            case "\r":
                column = 0
            case "\b":
                column = max(0, column - 1)
            case "\x00":
                del shown[column:]
            case "\x01":
                shown.clear()
                column = 0
            case _:
                shown[column : column + len(part)] = part
                column += len(part)
    return "".join(shown)
