"""What must not be in a recording, and what differs between two runs.

What goes into a file: no credential, no image but its digest, tokens for folders. What is compared (`alike`): without
ids, times and the like.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from acp_agent.limits.decoding import read_loose_json

BINARY = {"image": "data", "audio": "data", "document": "data"}
"""Kind of content -> its field of base64."""
DIGEST = b"sha256:"
HIDDEN = "[redacted]"

UUID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
)
VARYING = (
    # What is redacted already is not redacted and noted once more.
    (re.compile(r'(?:\\n|\n)*\[credentials were redacted in this: [^\]]*\]|(?:\\n)+(?=")'), ""),
    (UUID, "<<id>>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?)?"), "<<date>>"),
    (
        re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2} +(\d\d:\d\d(:\d\d)?|\d{4})\b"),
        "<<date>>",
    ),
    (re.compile(r"\b\d\d:\d\d:\d\d([.,]\d+)?\b"), "<<time>>"),
    (re.compile(r"\b\d+([.,]\d+)? ?(µs|ms|s|sec|seconds?|min|minutes?)\b"), "<<duration>>"),
    (re.compile(r"\b(pid|PID|process)([ =:]+)\d+"), r"\1\2<<pid>>"),
    (re.compile(r"\binstructions [0-9a-f]{12}\b"), "instructions <<mark>>"),
    (re.compile(r"\bacp-coder-[a-z0-9_]{8}\b"), "acp-coder-<<private>>"),
)
"""What may differ in two runs that are the same."""


def alike(text: str) -> str:
    """The text without what varies: equal for two runs that did the same."""
    for pattern, token in VARYING:
        text = pattern.sub(token, text)
    return text


class Redacts(Protocol):
    """A redactor of credentials."""

    def value(self, obj: Any) -> Any: ...

    def redact(self, text: str) -> str: ...

    def stream(self) -> Any: ...


class Cleaner:
    """`redactor`: may be replaced by one that knows more."""

    def __init__(self, redactor: Redacts, environ: Mapping[str, str] = os.environ) -> None:
        self.redactor = redactor
        self._tokens: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._token("<<tmp>>", tempfile.gettempdir())
        if home := environ.get("HOME"):
            self._token("<<home>>", home)

    def folder(self, path: str) -> None:
        """Takes a working folder of a session, in the order in which they are opened."""
        known = [token for token in self._folders if token.startswith("<<cwd")]
        if not any(self._folders[token] == path for token in known):
            self._token(f"<<cwd {len(known) + 1}>>" if known else "<<cwd>>", path)

    def _token(self, token: str, path: str) -> None:
        self._folders[token] = path
        for spelling in (str(Path(path).resolve()), path):
            if len(spelling) > 1 and spelling[0] == "/":
                self._tokens[spelling] = token
        longest_first = sorted(self._tokens, key=lambda path: -len(path))
        self._paths = re.compile("(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w-])")

    def clean(self, value: Any) -> Any:
        """JSON data as it may be recorded."""
        return self._walk(self.redactor.value(self._prepared(value)), self._named)

    def pieces(self, texts: Sequence[str]) -> list[str]:
        """The pieces of one text; what is replaced stands in the piece in which it begins."""
        whole = "".join(texts)
        if self.redactor.redact(whole) != whole:
            stream = self.redactor.stream()
            texts = [stream.feed(text) for text in texts]
            texts[-1] += stream.finish()
            whole = "".join(texts)
        edits = [(found.start(), found.end(), self._tokens[found[0]]) for found in self._paths.finditer(whole)]
        out, start = [], 0
        for text in texts:
            end, at, new = start + len(text), start, ""
            for begin, after, token in edits:
                if begin < end and after > start:
                    new += whole[at:begin] + token if begin >= start else ""
                    at = min(after, end)
            out.append(new + whole[at:end])
            start = end
        return out

    def restored(self, value: Any, ids: Mapping[str, str]) -> Any:
        """The same with the folders of this run, and with the ids that `ids` translates."""

        def restore(text: str) -> str:
            if "<<" in text:
                for token, path in self._folders.items():
                    text = text.replace(token, path)
            return UUID.sub(lambda found: ids.get(found[0], found[0]), text) if ids else text

        return self._walk(value, restore)

    def _named(self, text: str) -> str:
        return self._paths.sub(lambda found: self._tokens[found[0]], text)

    def _walk(self, value: Any, change: Callable[[str], str]) -> Any:
        match value:
            case str():
                return change(value)
            case dict():
                return {change(str(key)): self._walk(each, change) for key, each in value.items()}
            case list() | tuple():
                return [self._walk(each, change) for each in value]
        return value

    def _prepared(self, value: Any) -> Any:
        """Replaces what is base64, what is JSON in a text, and what a pair of name and value gives away."""
        match value:
            case str():
                return self._json_text(value)
            case dict():
                field = "blob" if isinstance(value.get("blob"), str) else BINARY.get(str(value.get("type")), "")
                new = {
                    key: digest(each) if key == field and isinstance(each, str) else self._prepared(each)
                    for key, each in value.items()
                }
                name = new.get("name")
                if isinstance(name, str) and isinstance(new.get("value"), str):
                    new["value"] = next(iter(self.redactor.value({name: new["value"]}).values()))
                return new
            case list() | tuple():
                return [self._prepared(each) for each in value]
        return value

    def _json_text(self, text: str) -> str:
        if text[:1] not in ("{", "["):
            return text
        try:
            before = read_loose_json(text)
            after = self.redactor.value(before)
            return text if after == before else json.dumps(after, ensure_ascii=False)
        except ValueError:
            return text


def digest(data: str) -> str:
    """What stands for base64: base64 of its digest and size; the same for what is one already."""
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = data.encode("utf-8", "replace")
    if raw.startswith(DIGEST):
        return data
    words = DIGEST + f"{hashlib.sha256(raw).hexdigest()} of {len(raw)} bytes".encode()
    return base64.b64encode(words).decode()
