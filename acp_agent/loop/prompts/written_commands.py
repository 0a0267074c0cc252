"""Slash commands that are written down: Markdown files with a front matter, a prompt with places for its arguments.

!`command`            the output of a command, which is judged as any
@path                 the text of a file
$ARGUMENTS, $1 to $9  what the user wrote behind the command
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from acp_agent.loop.prompts.front_matter import description_of, read_front_matter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,79}")
TOKEN = re.compile(r"!`([^`\n]+)`|(?<![\w`@./-])@([\w./~$-]*[\w/])|\$(ARGUMENTS\b|[1-9])")
PLACE = re.compile(r"\$(ARGUMENTS\b|[1-9])")
MAX_PLACES = 100
"""Places of arguments that are filled."""
MAX_COMMANDS = 20
"""Commands and files of one prompt."""


class Piece(Struct, frozen=True):
    """A part of a prompt: text as it is, or what a command or a file says."""

    kind: Literal["text", "command", "file"]
    text: str


class WrittenCommand(Struct, frozen=True):
    name: str
    description: str
    hint: str
    body: str
    tools: tuple[str, ...] = ()
    """Calls that are allowed without a question, as `Bash(git add:*)`; empty unless the user trusts the file."""
    model: str = ""
    mode: str = ""
    agent: str = ""
    """The sub-agent that does it."""
    title: str = ""
    """What it is, for people: `project`, `yours`, the name of a plugin."""

    def pieces(self, arguments: str) -> list[Piece]:
        """The prompt with these arguments. What they contain is text: only the file names commands and files."""
        found = list(self._filled(arguments, _words(arguments)))
        if arguments and PLACE.search(self.body) is None:
            found.append(Piece("text", f"\n\nArguments: {arguments}"))
        return found

    def _filled(self, arguments: str, words: list[str]) -> Iterator[Piece]:
        at, count, filled = 0, 0, 0
        for match in TOKEN.finditer(self.body):
            yield Piece("text", self.body[at : match.start()])
            at = match.end()
            command, file, place = match[1], match[2], match[3]
            if place is not None:
                filled += 1
                yield Piece("text", _argument(place, arguments, words) if filled <= MAX_PLACES else match[0])
                continue
            count += 1
            if count > MAX_COMMANDS:
                yield Piece("text", match[0])
            elif command is not None:
                yield Piece("command", _fill(command, arguments, words))
            else:
                yield Piece("file", _fill(file, arguments, words))
        yield Piece("text", self.body[at:])


def read_command(name: str, text: str, where: object, *, title: str, trusted: bool) -> WrittenCommand | None:
    """The command in a file; `None`, with a reason in the log, if it is none. `trusted`: its `allowed-tools` count."""
    if NAME.fullmatch(name) is None:
        return None
    front, body = read_front_matter(text, where)
    if not body.strip():
        return None
    return WrittenCommand(
        name,
        description_of(front, body),
        front.line("argument-hint"),
        body.strip(),
        (front.texts("allowed-tools") or ()) if trusted else (),
        front.line("model"),
        front.line("mode"),
        front.line("agent"),
        title,
    )


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def _argument(place: str, arguments: str, words: list[str]) -> str:
    if place == "ARGUMENTS":
        return arguments
    return words[int(place) - 1] if int(place) <= len(words) else ""


def _fill(text: str, arguments: str, words: list[str]) -> str:
    return PLACE.sub(lambda match: _argument(match[1], arguments, words), text)
