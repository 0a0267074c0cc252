"""Repairs of streamed text: halves of surrogate pairs, and thoughts written inline between `<think>` tags."""

from __future__ import annotations

import re
from typing import Literal

_SURROGATE = "[\ud800-\udfff]"
_OPEN = "<think>"
_CLOSE = "</think>"


def clean(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it can be encoded."""
    if text.isascii() or re.search(_SURROGATE, text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SurrogateJoiner:
    """Joins a high surrogate at the end of one delta with the low one at the start of the next.

    Servers that cut text by UTF-16 units and escape it send such halves.
    """

    def __init__(self) -> None:
        self._high = ""

    def feed(self, text: str) -> str:
        if not self._high and (text.isascii() or re.search(_SURROGATE, text) is None):
            return text
        if not text:
            return ""
        text = self._high + text
        self._high = ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return clean(text)

    def finish(self) -> str:
        """Returns U+FFFD if the text ended in half a pair."""
        text, self._high = clean(self._high), ""
        return text


class ThinkSplitter:
    """Separates thought from text for servers that leave `<think>…</think>` in the content.

    Only a tag at the very start opens a thought: later tags are part of an answer that writes about them. Tags may be
    split anywhere across deltas.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "thought", "after", "text"] = "start"
        self._held = ""

    @property
    def settled(self) -> bool:
        """Whether everything that follows is text, so that `feed` is no longer needed."""
        return self._state == "text"

    def feed(self, text: str) -> tuple[str, str]:
        """Returns `(thought, text)` added by this delta."""
        thought = ""
        text = self._held + text
        self._held = ""
        if self._state == "start":
            start = text.lstrip()
            if start.startswith(_OPEN):
                self._state = "thought"
                text = start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                self._held = text
                return "", ""
            else:
                self._state = "text"
        if self._state == "thought":
            before, close, after = text.partition(_CLOSE)
            if not close:
                self._held = _partial_close(before)
                return before[: len(before) - len(self._held)], ""
            thought, text = before, after
            self._state = "after"
        if self._state == "after":
            # Templates put blank lines between the thought and the answer; they belong to neither.
            text = text.lstrip("\r\n")
            if text:
                self._state = "text"
        return thought, text

    def finish(self) -> tuple[str, str]:
        """Returns text held back when the answer ended."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "thought" else ("", held)


def _partial_close(text: str) -> str:
    for size in range(min(len(_CLOSE) - 1, len(text)), 0, -1):
        if text.endswith(_CLOSE[:size]):
            return text[-size:]
    return ""
