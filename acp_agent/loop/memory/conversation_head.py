"""What a compacted conversation begins with: the first prompt, the summary, the files read and changed so far, and how
much was left out. One message of the user's, which the next compaction reads again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.lazy import pattern
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.base import AssistantMessage, Message, TextPart, ToolMessage, ToolUse, UserMessage
from acp_agent.output.envelope import bounded

FIRST = "The first prompt of this conversation:\n\n"
SUMMARY = "Summary of our conversation so far:\n\n"
FILES = "Files read (lines) and changed so far:\n"
EARLIER = "\n- others before these"
DROPPED = "[{} earlier messages were removed to save space.]"
ACKNOWLEDGED = "I have read the summary and will continue from there."

NO_MEDIA = "[an image or audio was removed to save space]"

FIRST_CHARS = 3_000
"""Of the first prompt, once it is kept here alone."""
MOST_FILES = 40
"""The last ones."""
MOST_RANGES = 6
"""Of one file."""

_DROPPED = pattern(re.escape(DROPPED).replace(r"\{\}", r"(\d+)"))
_FILE = pattern(r"- (.+?): (?:lines ([\d, -]+))?(?:, )?(changed)?")
_LINE = pattern(r" *(\d+)\t")
_PATCHED = pattern(r"^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)
CHANGES = ("write", "edit", "patch", "replace", "create")
"""In the names of tools that change files, those of other agents included."""


class Seen(Struct, frozen=True):
    """What the model knows of a file."""

    lines: tuple[tuple[int, int], ...] = ()
    changed: bool = False

    def and_(self, other: Seen) -> Seen:
        return Seen(_merged([*self.lines, *other.lines]), self.changed or other.changed)

    def words(self, path: str) -> str:
        ranges = ", ".join(f"{first}-{last}" for first, last in self.lines[-MOST_RANGES:])
        known = [*([f"lines {ranges}"] if ranges else []), *(["changed"] if self.changed else [])]
        return f"- {path}: {', '.join(known)}"


class Head(Struct, frozen=True):
    first: str = ""
    summary: str = ""
    files: Mapping[str, Seen] = {}
    dropped: int = 0
    """Messages."""
    earlier: bool = False
    """Whether there were more files."""

    @property
    def there(self) -> bool:
        return self != Head()

    def texts(self) -> list[str]:
        files = [seen.words(path) for path, seen in list(self.files.items())[-MOST_FILES:]]
        more = EARLIER if self.earlier or len(self.files) > MOST_FILES else ""
        return [
            *([FIRST + self.first] if self.first else []),
            *([SUMMARY + self.summary] if self.summary else []),
            *([FILES + "\n".join(files) + more] if files else []),
            *([DROPPED.format(self.dropped)] if self.dropped else []),
        ]

    def messages(self) -> list[Message]:
        parts = tuple(map(TextPart, self.texts()))
        begun: list[Message] = [UserMessage(parts)] if parts else []
        return [*begun, AssistantMessage(ACKNOWLEDGED)] if self.summary else begun

    def after(self, gone: Sequence[Message], kept: Sequence[Message], dropped: int = 0) -> Head:
        """The head once these messages, which followed it, are gone; `dropped`: how many are in nothing that stays. The
        first prompt is kept here if it is not among those that do."""
        first = self.first
        if not self.there and (prompt := next(filter(is_prompt, gone), None)) is not None:
            first = "" if any(one is prompt for one in kept) else bounded(words_of(prompt), FIRST_CHARS)
        files = dict(self.files)
        for path, seen in _files(gone):
            files[path] = files.pop(path, Seen()).and_(seen)
        return replace(self, first=first, files=files, dropped=self.dropped + dropped)


def opened(messages: Sequence[Message]) -> tuple[Head, list[Message]]:
    """The head of a conversation, and what follows it."""
    rest = list(messages)
    if not rest or not isinstance(rest[0], UserMessage):
        return Head(), rest
    head, parts = Head(), list(rest[0].content)
    while parts and isinstance(parts[0], TextPart) and (known := _read(head, parts[0].text)) is not None:
        head = known
        parts.pop(0)
    acknowledged = not parts and rest[1:2] == [AssistantMessage(ACKNOWLEDGED)]
    if not head.there or (head.summary and not acknowledged):  # A prompt may begin with such words.
        return Head(), rest
    rest[0 : 1 + acknowledged] = [UserMessage(tuple(parts))] if parts else []
    return head, rest


def _read(head: Head, text: str) -> Head | None:
    if text.startswith(FIRST):
        return replace(head, first=text.removeprefix(FIRST))
    if text.startswith(SUMMARY):
        return replace(head, summary=text.removeprefix(SUMMARY))
    if text.startswith(FILES):
        found = filter(None, map(_FILE.fullmatch, text.removeprefix(FILES).splitlines()))
        files = {each[1]: Seen(_ranges(each[2] or ""), bool(each[3])) for each in found}
        return replace(head, files=files, earlier=text.endswith(EARLIER))
    if (note := _DROPPED.fullmatch(text)) is not None:
        return replace(head, dropped=head.dropped + int(note[1]))
    return None


def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(one), int(other)) for one, other in re.findall(r"(\d+)-(\d+)", text))


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _files(messages: Sequence[Message]) -> Iterator[tuple[str, Seen]]:
    """Which lines of files were read, and which files changed, by the calls and their results."""
    calls = {call.id: call for one in messages if isinstance(one, AssistantMessage) for call in one.tool_calls}
    for message in messages:
        if not isinstance(message, ToolMessage) or (call := calls.get(message.call_id)) is None:
            continue
        text = text_of(message)
        if text.startswith("[tool_error]"):
            continue
        lines = [int(found[1]) for line in text.splitlines() if (found := _LINE.match(line)) is not None]
        changes = any(word in call.name for word in CHANGES)
        for path in _paths(call) if lines or changes else ():
            yield path, Seen(() if changes else _merged((line, line) for line in lines), changes)


def _paths(call: ToolUse) -> list[str]:
    try:
        arguments = read_loose_json(call.arguments or "{}", strict=False)
    except (ValueError, RecursionError):
        return []
    if not isinstance(arguments, dict):
        return []
    found = [arguments.get(name) for name in ("path", "file_path", "notebook_path")]
    paths = [path for path in found if isinstance(path, str)]
    return paths or _PATCHED.findall(json.dumps(arguments).replace("\\n", "\n"))


def is_prompt(message: Message) -> bool:
    return isinstance(message, UserMessage) and not message.own


def words_of(prompt: Message) -> str:
    """Of a prompt that is shortened: never empty, as no API takes that."""
    assert not isinstance(prompt, AssistantMessage)
    media = [NO_MEDIA] if any(not isinstance(part, TextPart) for part in prompt.content) else []
    return "\n".join([text_of(prompt), *media]).strip("\n")


def text_of(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return message.text
    return "\n".join(part.text for part in message.content if isinstance(part, TextPart))
