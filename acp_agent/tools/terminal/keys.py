"""What keys send to a program in a terminal: names as tmux has them (`C-c`, `Up`, `F5`, `M-x`). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMED = {
    "Enter": "\r", "Tab": "\t", "BTab": "\x1b[Z", "Escape": "\x1b", "Space": " ", "BSpace": "\x7f",
    "IC": "\x1b[2~", "DC": "\x1b[3~", "PPage": "\x1b[5~", "NPage": "\x1b[6~",
    "F1": "\x1bOP", "F2": "\x1bOQ", "F3": "\x1bOR", "F4": "\x1bOS", "F5": "\x1b[15~", "F6": "\x1b[17~",
    "F7": "\x1b[18~", "F8": "\x1b[19~", "F9": "\x1b[20~", "F10": "\x1b[21~", "F11": "\x1b[23~", "F12": "\x1b[24~",
}  # fmt: skip
CURSOR = {"Up": "A", "Down": "B", "Right": "C", "Left": "D", "Home": "H", "End": "F"}
"""Their last character: what comes before it depends on the mode that the program has set."""
ALSO = {
    "Insert": "IC", "Delete": "DC", "PageUp": "PPage", "PgUp": "PPage", "PageDown": "NPage", "PgDn": "NPage",
    "Return": "Enter", "Backspace": "BSpace", "Esc": "Escape",
}  # fmt: skip
CONTROL = re.compile(r"(?:C-|\^)([a-zA-Z@\[\\\]^_ ?])")
META = re.compile(r"M-(.+)", re.DOTALL)
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

INTERRUPTS = frozenset({"C-c", "^C", "C-C", "^c"})


def bytes_of(keys: Sequence[str], *, application: bool) -> bytes:
    """`application`: whether the program wants the other form of the cursor keys. Raises ValueError with a sentence."""
    return "".join(_sent(key, application) for key in keys).encode()


def _sent(key: str, application: bool) -> str:
    known = {name.lower(): name for name in (*NAMED, *CURSOR, *ALSO)}
    name = known.get(key.lower(), key) if len(key) > 1 else key
    name = ALSO.get(name, name)
    if name in NAMED:
        return NAMED[name]
    if name in CURSOR:
        return f"\x1b{'O' if application else '['}{CURSOR[name]}"
    if found := CONTROL.fullmatch(key):
        return "\x7f" if found[1] == "?" else chr(ord(found[1].upper()) & 0x1F)
    if found := META.fullmatch(key):
        return f"\x1b{_sent(found[1], application)}"
    if len(key) == 1 and not CONTROL_CHARACTER.match(key):
        return key
    raise ValueError(f"{key!r} is no key: give one character, C-x, M-x, or one of {', '.join((*NAMED, *CURSOR))}")


def typed(text: str) -> str:
    """The text as keys: a line's end is Enter. Raises ValueError for control characters, which are keys."""
    if found := CONTROL_CHARACTER.search(text.replace("\r\n", "\n")):
        raise ValueError(f"`literal_text` contains the control character {found[0]!r}: give it in `keys`, as C-c")
    return text.replace("\r\n", "\n").replace("\n", "\r")
