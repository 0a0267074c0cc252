"""Redacts one line, or groups of its words: finds credentials and replaces each with a mark.

What two patterns find at once is one credential, named by the better of the two. A mark is never replaced again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from acp_agent.credentials import patterns as known
from acp_agent.credentials.values import is_credential, is_placeholder
from acp_agent.lazy import pattern
from acp_agent.linear import Pattern, at_first_use, compiled

MARK = at_first_use(r"\[redacted: [A-Za-z0-9 '\-]{1,40}\]")
"""Replaces a credential. Has no quotes and backslashes, since it may end up in JSON and shell lines."""

OWN_HEAD = 8
COOKIE_CHARS = 4096
NAME_CHARS = 600
"""Characters at the end of a text that may be a name still waiting for its value."""
MOST_PASSES = 6
LONG_REFUSED = 256
"""Characters of a non-credential value after which it is not searched for further names: keeps the work linear."""

LONGEST_REMEMBERED, REMEMBERED = 500, 1_000
"""Line length, and number of lines, up to which redactions are cached."""

COLOURS = pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
"""Uses `re` for speed. Linear by construction: no part of a sequence can hold the ESC that begins the next."""


def escaped(text: str) -> str:
    """RE2 source that matches exactly this text."""
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{{{ord(char):x}}}" for char in text)


class Span(Struct, frozen=True):
    """A credential's position and name; of two spans that meet, the one with the higher priority gives the name."""

    start: int
    end: int
    kind: str
    rank: int


class LineRedactor:
    """All patterns of one configuration. `own`: spellings of the agent's credentials. Immutable except for a cache."""

    def __init__(self, own: Sequence[str], extra: Sequence[Pattern]) -> None:
        self._extra = tuple(extra)
        self._memo: dict[str, tuple[str, bool, tuple[str, ...]]] = {}
        self.by_line = any(not in_one_word(pattern.pattern) for pattern in extra)
        """Whether a pattern may cross white space, so that a line must be searched as a whole."""
        self.by_word = bool(extra)
        self._values = tuple(own)
        literals = "|".join(map(escaped, own))
        self.own = compiled(literals) if own else None
        sources = [
            known.ANCHORS,
            *([literals] if own else []),
            *(f"(?:{p.pattern})" for p in extra if not self.by_line),
        ]
        self.anchors = compiled("|".join(sources))
        heads = sorted({text[:OWN_HEAD] for text in own})
        whole, growing = "|".join(map(escaped, heads)), known.growing(heads)
        early = known.early() + (f"|({whole}|(?:{growing})\\z)" if own else "|([^\\x{0}-\\x{10ffff}])")
        self.early = at_first_use(early)
        self.quick = compiled(f"{known.QUICK_WORDS}|{early}")
        self._heads = compiled(whole) if own else None
        self._growing = compiled(f"(?:{growing})\\z") if own else None

    def nothing_in(self, text: str) -> bool:
        """Whether a first quick look shows that the text stays unchanged."""
        return not self.by_line and "\x1b" not in text and self.anchors.search(text) is None

    def hanging(self, text: str, following: str) -> int:
        """Start of the part at the end of the text that waits for what comes after a blank; -1 if there is none.

        `following`: the next character, "" if not known yet.
        """
        found = []
        end = text[-NAME_CHARS:]
        m = (known.HANGING if following and following not in "=: \t" else known.HANGING_NAME).search(end)
        if m is not None:
            found.append(len(text) - len(end) + m.start())
        if "ookie" in text or "OOKIE" in text:
            m = known.COOKIE_HANGING.search(text)
            if m is not None:
                found.append(m.start())
        if self._heads is not None and self._growing is not None:
            m = self._growing.search(end)
            if m is not None:
                found.append(len(text) - len(end) + m.start())
            for head in self._heads.finditer(text[-4096:]):
                rest = text[-4096:][head.start() :]
                if any(len(rest) < len(value) and value.startswith(rest) for value in self._values):
                    found.append(len(text) - len(rest))
        return min(found, default=-1)

    def redact(self, text: str, kinds: list[str]) -> tuple[str, bool]:
        """Redacts one line; also returns whether its last character belonged to a credential."""
        out, last = self._plain(text, kinds)
        if "\x1b" not in text:
            return out, last
        bare = COLOURS.sub("", out)
        clean, clean_last = self._plain(bare, kinds)
        return (out, last) if clean == bare else (clean, clean_last)

    def _plain(self, text: str, kinds: list[str]) -> tuple[str, bool]:
        """Caches: the same lines come again and again in logs and in the several reports of one call."""
        if len(text) > LONGEST_REMEMBERED:
            return self._searched(text, kinds)
        if (known_ := self._memo.get(text)) is None:
            found: list[str] = []
            known_ = (*self._searched(text, found), tuple(found))
            if len(self._memo) >= REMEMBERED:
                self._memo.clear()
            self._memo[text] = known_
        out, last, found_kinds = known_
        kinds.extend(kind for kind in found_kinds if kind not in kinds)
        return out, last

    def _searched(self, text: str, kinds: list[str]) -> tuple[str, bool]:
        at_end = False
        for _ in range(MOST_PASSES):
            spans = self._spans(text)
            if not spans:
                break
            parts, at = [], 0
            for span in spans:
                parts += [text[at : span.start], f"[redacted: {span.kind}]"]
                at = span.end
                if span.kind not in kinds:
                    kinds.append(span.kind)
            at_end = at_end or at == len(text)
            text = "".join(parts) + text[at:]
        return text, at_end

    def _spans(self, text: str) -> list[Span]:
        """The spans to replace, in order, without overlaps and marks."""
        found = list(_known(text))
        if self.own is not None:
            found += [Span(m.start(), m.end(), "credential of the agent", 5) for m in self.own.finditer(text)]
        for own in self._extra:
            found += [Span(m.start(), m.end(), "configured pattern", 1) for m in own.finditer(text)]
        if not found:
            return found
        found.sort(key=lambda span: (span.start, -span.end))
        merged: list[Span] = []
        for span in found:
            if merged and span.start < merged[-1].end:
                old = merged.pop()
                best = span if span.rank > old.rank else old
                span = Span(old.start, max(old.end, span.end), best.kind, best.rank)
            if span.end > span.start:
                merged.append(span)
        return list(_around_marks(text, merged)) if "[redacted: " in text else merged


def _around_marks(text: str, spans: list[Span]) -> Iterator[Span]:
    marks = [(m.start(), m.end()) for m in MARK.finditer(text)]
    for span in spans:
        at = span.start
        for start, end in marks:
            if end <= at or start >= span.end:
                continue
            if start > at:
                yield Span(at, start, span.kind, span.rank)
            at = end
        if at < span.end:
            yield Span(at, span.end, span.kind, span.rank)


WORD_ONLY = at_first_use(
    r"^(?:[A-Za-z0-9_\-@%&=,;:/!~#'\"<>]|\\[.\-+*?()\[\]{}|/\\^$wdSb]|\(\?i\)|\(\?:|[()|+*?]|"
    r"\{[0-9,]+\}|\[[A-Za-z0-9_\-+/=.]+\])+$"
)


def in_one_word(source: str) -> bool:
    """Whether every match of the pattern is certainly within one word. May return false negatives."""
    return WORD_ONLY.search(source) is not None and " " not in source


LITERALS = ("hooks.slack.com/", "webhooks/", ":AA", "sig=", ".atlasv1.", "/webhookb2/")
"""A literal that occurs in every text holding a credential, for each context of one."""
PREPARED = tuple(
    (literal, at_first_use(f"({before})({secret})"), kind)
    for literal, (before, secret, kind) in zip(LITERALS, known.CONTEXTS[1:], strict=True)
)
USERINFO = at_first_use(rf"(://{known.USERINFO}*?:)((?:{known.USERINFO}|@)+)@")


URL_WORDS = frozenset(["p", "pw", "pwd", "pass", "passwd", "password", "passphrase", "secret", "token"])
"""Passwords in example URLs."""


def _known(text: str) -> Iterator[Span]:
    """Finds formats, headers and assignments in one line."""
    for m in known.PROVIDER_TOKEN.finditer(text):
        yield Span(m.start(1), m.end(1), known.kind_of_token(m.group(1)), 4)
    if "://" in text:
        for m in USERINFO.finditer(text):
            if not (is_placeholder(m.group(2)) or m.group(2).lower() in URL_WORDS):
                yield Span(m.start(2), m.end(2), "password", 2)
    if "/" in text or ":" in text or "=" in text or "." in text:
        for literal, pattern, kind in PREPARED:
            for m in pattern.finditer(text) if literal in text else ():
                yield Span(m.start(2), m.end(2), kind, 3)
    yield from _headers(text)
    yield from _assignments(text)


HEADER_WORD = "uthorization"
LONG_BEARER = 20
"""Length from which the word after `Bearer` in a header is a token even without a digit."""
CONNECTION = at_first_use(r"(?i)(?:^|[;\s\"'])(?:server|source|host|id|uid|database|catalog)=[^;\s]+;")
"""Matches a connection string of keys and values, where `;` ends a value rather than a statement."""

AUTH_WORDS = at_first_use(r"(?i)authorization|bearer|cookie")


def _headers(text: str) -> Iterator[Span]:
    if AUTH_WORDS.search(text) is None:
        return
    for m in known.BEARER.finditer(text):
        value = m.group(1)
        long = len(value) >= LONG_BEARER and HEADER_WORD in text
        if (long or any(map(str.isdigit, value))) and not is_placeholder(value):
            yield Span(m.start(1), m.end(1), "bearer token", 2)
    for m in known.AUTHORIZATION.finditer(text):
        start = m.end()
        end = known.value_end(text, start, "\"'`<>(){},;", "")
        value, after = text[start:end].rstrip("\\"), text[end : end + 1]
        scheme = start > 0 and text[start - 1] in " \t" and m.group(0).rstrip()[-1].isalpha()
        if after not in ("(", "{") and is_credential(value, quoted=scheme, after=after):
            yield Span(start, start + len(value), "authorization header", 2)
    for m in known.COOKIE.finditer(text):
        at = m.end()
        while (pair := known.COOKIE_PAIR.search(text[at : at + COOKIE_CHARS])) is not None:
            name, value = pair.group(1).lower(), pair.group(2)
            plain = name in ("path", "domain", "expires", "max-age", "samesite", "priority")
            if not plain and len(value) >= 8 and any(map(str.isdigit, value)) and not is_placeholder(value):
                yield Span(at + pair.start(2), at + pair.end(2), "cookie", 2)
            at += pair.end()


def _assignments(text: str) -> Iterator[Span]:
    done = 0
    for m in known.HEAD.finditer(text):
        if m.start() < done:
            continue
        tight = m.group(2) == "=" and not m.group(3)
        end, span = _assigned(text, m.group(1), m.start(1), m.end(), tight=tight)
        if span is not None:
            yield span
        if span is not None or end - m.end() > LONG_REFUSED:
            done = end
    for m in known.OPTION.finditer(text):
        end, span = _assigned(text, m.group(1), -1, m.end(), tight=False)
        if span is not None and text[span.start] != "-":
            yield span


def _assigned(text: str, name: str, name_at: int, start: int, *, tight: bool) -> tuple[int, Span | None]:
    """The end of the value that begins at `start`, and its span if it is a credential."""
    if name.upper() in ("PWD", "OLDPWD"):
        return start, None
    quoting = ""
    at = start
    if text[at : at + 2].lower() in ("b'", 'b"', "r'", 'r"', "u'", 'u"'):
        at += 1
    slashes = at
    while slashes < min(len(text), at + 3) and text[slashes] == "\\":
        slashes += 1
    if slashes < len(text) and text[slashes] in "\"'`":
        quoting, at = text[at : slashes + 1], slashes + 1
    before = text[name_at - 1 : name_at] if name_at > 0 else ""
    apart = not before or before.isspace() or before in "\"'`;" or before >= "\u2e80"
    shell = tight and name_at >= 0 and name == name.upper() and apart
    stops = "" if quoting else ("\"'`" if shell else "\"'`<>(){}[],;|&\\")
    end = known.value_end(text, at, stops, quoting)
    if quoting and end < len(text) and text[end] not in "\r\n" and not text.startswith(quoting, end):
        return end, None
    value, kind = text[at:end], known.kind_of_name(name)
    env = shell and not quoting
    after = text[end : end + 1].strip()
    if after == ";" and not quoting and CONNECTION.search(text) is not None:
        after, env = "", True
    if is_credential(value, quoted=bool(quoting), env=env, password=kind == "password", after=after):
        return end, Span(at, end, kind, 1)
    return end, None
