"""Redacts credentials: one function for all channels (model, editor, rawOutput, log, audit, store, titles, errors).

How it works. One RE2 pass over the whole text finds the lines worth a look (`ANCHORS`); all others pass unchanged.
Those lines are searched with the exact patterns, and each match is replaced by a mark, `[redacted: GitHub token]`.
Only private key blocks span lines.

A stream returns exactly what the whole text would have, however it was cut. It can, because a line consists of groups
of words that are independent of each other: a group ends at a blank unless the text before it waits for a value
(`password = `). So only the last group of an unfinished line is kept, and only the part of it after the first point at
which a credential may begin is held back. `UNIT` bounds what is held; longer groups are cut there, in a stream and in a
whole text alike.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus

from acp_agent.credentials import patterns as known
from acp_agent.credentials.line_redactor import MARK, LineRedactor
from acp_agent.credentials.redacting_stream import RedactingStream
from acp_agent.credentials.values import is_credential
from acp_agent.linear import MAX_PATTERN_CHARS, Pattern, PatternError, compiled

SHORTEST_OWN = 8
SETTINGS = frozenset("disabled required optional undefined anonymous automatic password testtest".split())
"""Values of such variables that hide nothing and occur in ordinary text."""
PIECE = 256 * 1024
"""Characters searched at once: a size that fits a processor's cache is faster."""


def holds_mark(text: str) -> bool:
    """Whether the text contains a mark where its source may have a credential."""
    return "[redacted: " in text and MARK.search(text) is not None


OWN_NAME = compiled(
    r"(?i)(?:^|_)(?:key|token|secret|password|passwd|passphrase|pwd|credentials?|apikey|pat|pass|auth)$"
)


def own_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values, longest first, of the agent's own variables that name a credential, if worth hiding.

    Excluded: values shorter than 8 characters, paths, words of settings (`disabled`), URLs without a password.
    """
    found = set()
    for name, raw in environ.items():
        value = raw.strip()
        if OWN_NAME.search(name) is None or len(value) < SHORTEST_OWN:
            continue
        if value[0] in "/~" or value.lower() in SETTINGS:
            continue
        if "://" in value and "@" not in value:
            continue
        found.add(value)
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _spellings(values: Iterable[str]) -> list[str]:
    """Each value in the forms a text may hold: as it is, URL-encoded, in JSON, in base64. Longest first."""
    found: set[str] = set()
    for value in values:
        for line in value.split("\n"):
            part = line.strip()
            if len(part) < SHORTEST_OWN or part.startswith("-----") or not part.isprintable():
                continue
            coded = base64.b64encode(part.encode("utf-8", "surrogatepass")).decode().rstrip("=")
            found |= {part, coded, coded.replace("+", "-").replace("/", "_"), json.dumps(part)[1:-1]}
            found |= {quote(part, safe="", errors="replace"), quote_plus(part, errors="replace")}
    return sorted(found, key=lambda value: (-len(value), value))


class Redactor:
    """Redacts credentials from text. Safe to share between sessions and threads.

    `values`: the agent's own credentials, replaced wherever they occur. `extra_patterns`: the user's own RE2 patterns;
    invalid ones are described in `trouble` and ignored. With `enabled=False` text stays unchanged.
    """

    def __init__(self, *, values: Iterable[str] = (), extra_patterns: Sequence[str] = (), enabled: bool = True) -> None:
        self.enabled = enabled
        trouble: list[str] = []
        extra = list(_extra(extra_patterns, trouble))
        self.trouble: tuple[str, ...] = tuple(trouble)
        self._extra = extra
        self._values: set[str] = set()
        self._learning = Lock()
        self._lines = self._knowing(set(values))

    def learn(self, values: Iterable[str]) -> None:
        """From now on replaces these, too."""
        with self._learning:
            if more := set(values) - self._values:
                self._lines = self._knowing(more)

    def _knowing(self, more: set[str]) -> LineRedactor:
        self._values |= more
        own = [text for text in _spellings(self._values) if text.encode("utf-8", "replace").decode() == text]
        return LineRedactor(own, self._extra)

    def redact(self, text: str) -> str:
        """The text with each credential replaced by a mark; the same object if there is none."""
        return self.redact_counted(text)[0]

    def finds(self, text: str) -> bool:
        """Whether the text contains a credential."""
        return self.redact(text) != text

    def redact_counted(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The redacted text, and the kinds found, each once, in order ("GitHub token", "password")."""
        if not self.enabled or not text:
            return text, ()
        if len(text) <= PIECE and text.isascii() and self._lines.nothing_in(text):
            return text, ()
        stream = self.stream()
        same = 0  # Length of the unchanged beginning: parts without a credential are not copied.
        changed: list[str] = []
        for at in range(0, len(text) + 1, PIECE):
            given = stream.feed(text[at : at + PIECE])
            if at + PIECE > len(text):
                given += stream.finish()
            if not changed and text.startswith(given, same):
                same += len(given)
            else:
                changed.append(given)
        if not changed and same == len(text):
            return text, stream.kinds
        return "".join([text[:same], *changed]), stream.kinds

    def stream(self) -> RedactingStream:
        """For text that arrives in pieces: the result equals `redact` of the whole."""
        return RedactingStream(self._lines, self.enabled)

    def value(self, obj: Any) -> Any:
        """Redacts every string in JSON-like data, keys included; returns the same object if nothing changed.

        An entry whose key names a credential counts as an assignment. Handles any depth.
        """
        if not self.enabled:
            return obj
        done: dict[int, Any] = {}
        stack: list[tuple[Any, bool]] = [(obj, False)]
        while stack:
            item, entered = stack.pop()
            if not isinstance(item, (dict, list, tuple)) or (id(item) in done and not entered):
                continue
            if entered:
                done[id(item)] = self._container(item, done)
                continue
            done[id(item)] = item
            stack.append((item, True))
            stack.extend((child, False) for child in (item.values() if isinstance(item, dict) else item))
        return self._leaf(obj, done)

    def _leaf(self, item: Any, done: dict[int, Any]) -> Any:
        if isinstance(item, str):
            return self.redact(item)
        return done.get(id(item), item) if isinstance(item, (dict, list, tuple)) else item

    def _container(self, item: Any, done: dict[int, Any]) -> Any:
        if not isinstance(item, dict):
            new = [self._leaf(child, done) for child in item]
            if all(a is b for a, b in zip(new, item, strict=True)):
                return item
            return new if isinstance(item, list) else tuple(new)
        changed, out = False, {}
        for key, child in item.items():
            new_key, new_child = key, self._leaf(child, done)
            if isinstance(key, str):
                new_key = self.redact(key)
                if isinstance(new_child, str) and known.names_secret(key) and not holds_mark(new_child):
                    password = known.kind_of_name(key) == "password"
                    if not any(map(str.isspace, child)) and is_credential(child, quoted=True, password=password):
                        new_child = f"[redacted: {known.kind_of_name(key)}]"
            changed = changed or new_key is not key or new_child is not child
            out[new_key] = new_child
        return out if changed else item


def _extra(patterns: Sequence[str], trouble: list[str]) -> Iterator[Pattern]:
    for source in patterns:
        if len(source) > MAX_PATTERN_CHARS:
            trouble.append(f"secrets.extra_patterns: longer than {MAX_PATTERN_CHARS} characters: {source[:40]!r}...")
            continue
        try:
            pattern = compiled(source)
        except PatternError as error:
            trouble.append(f"secrets.extra_patterns: {source!r} is not an RE2 pattern: {error}")
            continue
        except UnicodeEncodeError:
            trouble.append("secrets.extra_patterns: a pattern is not valid text")
            continue
        if pattern.search("") is not None:
            trouble.append(f"secrets.extra_patterns: {source!r} matches the empty string")
            continue
        yield pattern
