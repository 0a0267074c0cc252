"""Python's regular expressions as those of `grep -E`, weaker: every line that Python's finds, grep finds, too.

For GNU's and busybox's grep in the C locale, where a character is a byte: text is UTF-8, or windows-1252 or latin-1
where it is none. What grep has no words for (look-around, back-references, word ends) is left out or becomes anything;
counts above 10 become "or more", so that no pattern grows large over there. A line's end may be CR LF. Text with a NUL
is no matter of this module: some programs do not look behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from acp_agent.lazy import load

PARSE = "re._parser:parse"
"""Python's own parser of patterns, where it has been since 3.11; where it is not, every line is found."""
EVERY = b"^"
"""Finds every line."""
MOST = 4000
"""Bytes of a pattern for grep; of a longer one, every line is found."""
COPIES = 10
ASCII = frozenset(range(1, 128)) - {10}
HIGH = b"\x80-\xff"
SPECIAL = frozenset(b".[*^$()+?{|\\")
FOLDED = {"i": "İı", "s": "ſ", "k": "\u212a"}
"""The letters beyond ASCII that are the same as one of ASCII when case is ignored."""
BEGIN, END = ("AT_BEGINNING", "AT_BEGINNING_STRING"), ("AT_END", "AT_END_STRING")
CATEGORIES = {
    "DIGIT": frozenset(map(ord, "0123456789")),
    "SPACE": frozenset(b"\t\v\f\r "),
    "WORD": frozenset(c for c in ASCII if chr(c).isalnum() or c == ord("_")),
}
MORE_SPACE = frozenset(b"\x1c\x1d\x1e\x1f")
"""Not so with `(?a)`."""
Class = tuple[frozenset[int], bool]
"""One character: which of ASCII, and whether others."""


def ere(pattern: str, flags: int) -> bytes:
    """One line. The pattern is one that `re.compile` accepts."""
    try:
        parsed = load(PARSE)(pattern, flags)
        found = _anchored(list(parsed), bool(parsed.state.flags & re.IGNORECASE))
    except (ImportError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return EVERY
    return found if 0 < len(found) <= MOST else EVERY


def _anchored(nodes: list[Any], fold: bool) -> bytes:
    """Anchors count only at the two ends: elsewhere the programs understand them differently."""
    begins = b"^" if nodes and _at(nodes[0]) in BEGIN else b""
    ends = b"\r?$" if nodes and _at(nodes[-1]) in END else b""
    return begins + _sequence(nodes, fold) + ends


def _at(node: Any) -> str | None:
    return str(node[1].name) if node[0].name == "AT" else None


def _sequence(nodes: Iterable[Any], fold: bool) -> bytes:
    return b"".join(_node(op.name, value, fold) for op, value in nodes)


def _node(op: str, value: Any, fold: bool) -> bytes:
    if op == "LITERAL":
        return _literal(chr(value), fold)
    if (one := _class(op, value, fold)) is not None:
        return _some(one)
    if op == "SUBPATTERN":
        _, more, less, inner = value
        return _sequence(inner, (fold or bool(more & re.IGNORECASE)) and not less & re.IGNORECASE)
    if op == "BRANCH":
        return _either([_sequence(each, fold) for each in value[1]])
    if op == "GROUPREF_EXISTS":
        return _either([_sequence(each or (), fold) for each in value[1:]])
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat(value[0], value[1], value[2], fold)
    if op == "ATOMIC_GROUP":
        return _sequence(value, fold)
    if op in ("GROUPREF", "GROUPREF_IGNORE"):
        return b".*"
    if op in ("AT", "ASSERT", "ASSERT_NOT", "FAILURE"):
        return b""
    raise LookupError(op)


def _literal(char: str, fold: bool) -> bytes:
    if char in "\0\n":
        return b"."
    if not fold:
        return _either([_escaped(char)] if char.isascii() else _encodings(char))
    if not char.isascii():
        return _some((frozenset(b"skiSKI"), True))
    both = _bracket((frozenset(map(ord, char + char.swapcase())), False))
    return _either([both, *(each.encode() for each in FOLDED.get(char.lower(), ""))])


def _escaped(char: str) -> bytes:
    return (b"\\" if ord(char) in SPECIAL else b"") + char.encode()


def _encodings(char: str) -> list[bytes]:
    return sorted({char.encode()} | {char.encode(codec, "ignore") for codec in ("cp1252", "latin-1")} - {b""})


def _either(parts: list[bytes]) -> bytes:
    some = list(dict.fromkeys(part for part in parts if part))
    if not some:
        return b""
    empty = b"?" if len(some) < len(set(parts)) else b""
    return some[0] if len(some) == 1 and not empty else b"(%b)%b" % (b"|".join(some), empty)


def _repeat(least: int, most: int, inner: Any, fold: bool) -> bytes:
    nodes = list(inner)
    one = _class(nodes[0][0].name, nodes[0][1], fold) if len(nodes) == 1 else None
    if one is not None:
        atom = _bracket(one)
        exact = least == most <= COPIES and not one[1]
        tail = b"?" if (least, most) == (0, 1) and not one[1] else b"*"
        return atom * min(least, COPIES) + (b"" if exact else atom + tail)
    if most == 0 or not (text := _sequence(nodes, fold)):
        return b""
    return b"(%b)%b" % (text, (b"?" if least == 0 else b"") if most == 1 else (b"+" if least else b"*"))


def _class(op: str, value: Any, fold: bool) -> Class | None:
    """`None`: the node is not one of these characters."""
    if op == "LITERAL" and value in ASCII and not (fold and chr(value).lower() in FOLDED):
        return _folded({value}, fold), False
    if op in ("ANY", "ANY_ALL"):
        return ASCII, True
    if op == "NOT_LITERAL":
        return ASCII - _folded({value}, fold), True
    if op == "IN":
        return _set(value, fold)
    if op == "CATEGORY":
        return _category(value.name), True
    return None


def _set(items: Any, fold: bool) -> Class:
    negated, chars, others = False, set[int](), False
    for op, value in items:
        if op.name == "NEGATE":
            negated = True
        elif op.name == "CATEGORY":
            chars |= _category(value.name, negated)
            others = True
        else:
            first, last = value if op.name == "RANGE" else (value, value)
            chars.update(range(first, min(last, 127) + 1))
            others = others or last > 127
    found = _folded(chars, fold)
    if negated:
        return ASCII - found, True
    letters = frozenset(ord(c) for low in FOLDED for c in (low, low.upper())) if fold else frozenset()
    return ASCII & (found | (letters if others else frozenset())), others or bool(letters & found)


def _folded(chars: set[int], fold: bool) -> frozenset[int]:
    return frozenset(chars) | frozenset(ord(chr(c).swapcase()) for c in chars if fold and c < 128)


def _category(name: str, negated: bool = False) -> frozenset[int]:
    """What it may be; `negated`: what it is for certain."""
    name = name.removeprefix("CATEGORY_").removeprefix("UNI_")
    kind = name.removeprefix("NOT_")
    sure = CATEGORIES[kind]
    may = sure | MORE_SPACE if kind == "SPACE" else sure
    if name != kind:
        return ASCII - (may if negated else sure)
    return sure if negated else may


def _some(one: Class) -> bytes:
    return _bracket(one) + (b"[%b]*" % HIGH if one[1] else b"")


def _bracket(one: Class) -> bytes:
    chars, others = one
    if one in ((ASCII, True), (frozenset(), False)):
        return b"."
    if len(chars) == 1 and not others:
        return _escaped(chr(*chars))
    plain = sorted(chars - frozenset(b"]^-["))
    runs = b"".join(b"%c-%c" % (run[0], run[-1]) if len(run) > 2 else bytes(run) for run in _runs(plain))
    has = {char: char if ord(char) in chars else b"" for char in (b"]", b"[", b"^", b"-")}
    body = has[b"]"] + runs + (HIGH if others else b"") + has[b"["]
    return b"[%b]" % (body + has[b"^"] + has[b"-"] if body else has[b"-"] + has[b"^"])


def _runs(chars: list[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for char in chars:
        if runs and runs[-1][-1] + 1 == char:
            runs[-1].append(char)
        else:
            runs.append([char])
    return runs
