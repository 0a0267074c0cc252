"""Lines of private key blocks, and where lines begin, end and have to wait."""

from __future__ import annotations

from acp_agent.linear import at_first_use

UNIT = 16 * 1024
"""The most characters a stream holds back, and the longest group of words examined as one."""

KEY_MARK = "[redacted: private key]"

BEGIN = at_first_use(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
END = at_first_use(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
ORPHAN_END = at_first_use(r"^[ \t]*-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
BASE64_RUN = at_first_use(r"[A-Za-z0-9+/=]{16}")
BODY_AFTER = at_first_use(r"^(?:(?:\\+[nr]|[\s\"'+,])*[A-Za-z0-9+/=]{16,})+(?:\\+[nr]|[\s\"'+,]|[A-Za-z0-9+/=])*")
NOTHING_AFTER = at_first_use(r"^(?:\\+[nr]?|[\s\"'+,`)])*$")
BLANK = at_first_use(r"^[\s>|+\-#*/\"'\\]*$")
HEADER = at_first_use(r"^[\s>|+\-\"']*(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|X-[\w\-]+): ")
PREFIX = r"^[\s>|+\-#*\"'`0-9:]*"
SUFFIX = r"(?:\\+[nr]?|[\s\"'`,;+)])*$"
BODY = at_first_use(PREFIX + r"[A-Za-z0-9+/]{16,}={0,2}" + SUFFIX)
SHORT_BODY = at_first_use(
    PREFIX + r"(?:[A-Za-z+/]*[0-9+/][A-Za-z0-9+/]*={0,2}|[A-Za-z0-9+/]+={1,2}|=[A-Za-z0-9+/]{4})" + SUFFIX
)
FULL_LINE = at_first_use(r"^[A-Za-z0-9+/]{60,80}={0,2}\r?\n$")
LAST_LINE = at_first_use(r"^[A-Za-z0-9+/]{1,80}={0,2}\r?\n$")
PART_LINE = at_first_use(r"^[A-Za-z0-9+/]{1,80}={0,2}\r?$")
SWALLOWED = at_first_use(r"^[A-Za-z0-9+/=_.\-]*")


def word_length(text: str) -> int:
    """Length of the beginning that reads like a word (`The`): that part of a base64 line is passed on immediately."""
    index = 1 if text[:1].isascii() and text[:1].isupper() else 0
    while index < len(text) and "a" <= text[index] <= "z":
        index += 1
    return index


def run_start(text: str, low: int, high: int, fresh: bool) -> int:
    """Start of the base64 lines that end at `high`; `high` if there are none. `fresh`: a line begins at `low`."""
    at, total, full = high, 0, 0
    while at > low:
        start = text.rfind("\n", low, at - 1) + 1 or low
        line = text[start:at] if at - start < 90 else ""
        whole = bool(line) and (start > low or fresh) and total + len(line) <= UNIT
        if not whole or (FULL_LINE.search(line) is None and (at < high or LAST_LINE.search(line) is None)):
            break
        full += len(line) > 60
        total += len(line)
        at = start
    return at if full else high


SURROGATES = {0xD800 + index: 0x10F800 + index for index in range(0x800)}
"""RE2 rejects lone surrogates; private-use characters replace them while a text is searched."""
BACK = {there: here for here, there in SURROGATES.items()}


def first_wait(text: str) -> int:
    """Start of the first thing that must wait for the end of its line (an ESC, a key block), or -1."""
    escape, begin = text.find("\x1b"), text.find("-----BEGIN")
    return max(escape, begin) if min(escape, begin) < 0 else min(escape, begin)


def line_end(text: str, at: int, stop: int) -> int:
    """End of the line that begins at `at`: after a line feed or a lone carriage return."""
    newline = text.find("\n", at, stop) + 1 or stop
    back = text.find("\r", at, newline)
    if back < 0 or text.startswith("\r\n", back):
        return newline
    return back + 1
