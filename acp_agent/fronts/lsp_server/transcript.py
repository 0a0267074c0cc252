"""The conversation as a Markdown file: private, one per session, written during the turn.

A user's text is below `## You`, the agent's below `## Agent`. The file ends with an empty `## You` between turns: text
written below it in the editor is the next prompt (`pending_prompt`). No text of the agent's can look like that
heading.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from acp_agent.fronts.lsp_server.status import Call, one_line
from acp_agent.fronts.view import command_of
from acp_agent.legible import legible
from acp_agent.output.sanitize import sanitize_output
from acp_agent.schema import acp

log = logging.getLogger(__name__)

NAME = "acp-coder.md"
"""Suffix of all transcripts' names."""

YOU = "## You"
AGENT = "## Agent"
BLANK = "\n\n"
HEADING = re.compile(r"^([ \t]{0,3}#{1,2}[ \t]{1,8}You[ \t]{0,8})$", re.MULTILINE)
ANSWER = re.compile(r"^## Agent$", re.MULTILINE)

DETAIL_LINES = 200
"""Lines of one output or diff that are kept."""

ASKED_LINES = 5_000
"""The same in a question to the user: nobody can approve what they cannot see."""

HELD_BACK = 64
"""Characters at the end of the agent's text that wait for the rest of their line, which may be a heading."""

_numbers = count(1)


def is_transcript(uri: str) -> bool:
    return uri.endswith(NAME)


def pending_prompt(text: str) -> str:
    """The text below the last `## You`."""
    text = text.replace("\r\n", "\n")
    found = list(HEADING.finditer(text))
    return text[found[-1].end() :].strip() if found else ""


def is_answered(pending: str) -> bool:
    """Whether an answer has begun below the last `## You`: then not all of that text is the user's."""
    return ANSWER.search(pending) is not None


def with_draft(file_text: str, buffer_text: str) -> str:
    """The text an open transcript should have: the file, and what the user has begun to write below it."""
    buffer_text = buffer_text.replace("\r\n", "\n")
    draft = pending_prompt(buffer_text)
    if is_answered(draft):  # It was shown during a turn: the user's text is what the file does not contain.
        if file_text.startswith(buffer_text.rstrip()):
            return file_text
        pairs = enumerate(zip(file_text, buffer_text, strict=False))
        common = next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(file_text), len(buffer_text)))
        rest = buffer_text[common:].strip()
        draft = buffer_text[buffer_text.rfind("\n", 0, common) + 1 :].strip() if rest else ""
    else:  # The same text may have been sent before; it was sent if it is at its place or below it.
        places = [found.start() for found in HEADING.finditer(file_text)]
        nth = len(HEADING.findall(buffer_text))
        later = file_text[places[nth - 1] :] if 0 < nth <= len(places) else ""
        if f"{YOU}{BLANK}{_quiet(draft)}{BLANK}{AGENT}{BLANK}" in later or draft == pending_prompt(file_text):
            return file_text
    if not draft:
        return file_text
    ending = "" if pending_prompt(file_text) == "" and HEADING.search(file_text) else f"\n\n{YOU}\n\n"
    return f"{file_text}{ending}{draft}\n"


class Transcript:
    """`folder` is made private on the first write. A failing disk costs the transcript, not the turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None
        self._held: list[str] = []
        self._kind = ""
        self._partial = ""
        self._failed = False
        self._used = False
        self._in_turn = False
        self._stray = False
        self._draft_at: int | None = None

    @property
    def file(self) -> Path:
        """Its path, whether or not anything could be written."""
        if self._file is None:
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
            self._file = self._folder / f"{stamp}-{os.getpid()}-{next(_numbers):03}-{NAME}"
        return self._file

    @property
    def begun(self) -> bool:
        return self._file is not None

    @property
    def failed(self) -> bool:
        """Whether a write has failed."""
        return self._failed

    def text(self) -> str:
        """The complete text, as in the file."""
        self.flush()
        try:
            return self.file.read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""

    def begin(self, title: str, *, loaded: bool = False) -> None:
        """Begins a new session: a new file, if the last one was used. A loaded one is replayed until `end()`."""
        if self._file is not None and not self._used and not loaded:
            return
        self.flush()
        self._file = None
        self._kind = self._partial = ""
        self._used = False
        self._draft_at = None
        self._in_turn = loaded
        self._stray = False
        self._write(f"# {one_line(title)}\n\n{'' if loaded else f'{YOU}{BLANK}'}")
        self.flush()

    def draft(self, text: str) -> None:
        """Sets text for a user to continue, below the last heading; removed with the next write."""
        self.flush()
        self._drop_draft()
        self._trail(f"{BLANK}{YOU}{BLANK}{text}" if self._in_turn or self._stray else text)

    def _drop_draft(self) -> None:
        if self._draft_at is not None:
            try:
                os.truncate(self.file, self._draft_at)
            except OSError as error:
                log.warning("the transcript cannot be written: %s", error)
            self._draft_at = None

    # --- a turn -----------------------------------------------------------------------------------------------

    def prompt(self, text: str) -> None:
        """Adds a user's text, below the existing heading."""
        if self._stray:
            self._section("")
            self._write(f"{YOU}{BLANK}")
        self._used = self._in_turn = True
        self._stray = False
        self._write(f"{_quiet(text.strip())}{BLANK}{AGENT}{BLANK}")
        self.flush()

    def said(self, text: str) -> None:
        """Adds what the user says while a turn runs."""
        self._section("")
        self._write(f"{YOU}{BLANK}{_quiet(text.strip())}{BLANK}{AGENT}{BLANK}")
        self.flush()

    def update(self, update: acp.SessionUpdate) -> None:
        self._used = True
        match update:
            case acp.AgentMessageChunk(content=acp.TextContent(text=text)):
                self._say("message", text)
            case acp.AgentThoughtChunk(content=acp.TextContent(text=text)):
                self._say("thought", text)
            case acp.UserMessageChunk(content=acp.TextContent(text=text)):  # From a session that is loaded again.
                if self._kind != "user":
                    self._section("user")
                    self._put(f"{YOU}{BLANK}")
                self._put(_quiet(text))
            case acp.Plan(entries=entries):
                marks = {"pending": " ", "in_progress": "~", "completed": "x"}
                self._block("".join(f"- [{marks[entry.status]}] {one_line(entry.content)}\n" for entry in entries))
            case acp.Notice(title=title, description=description):
                self._block("".join(f"> {one_line(words, 500)}\n" for words in (title, description) if words))
            case _:
                pass

    def question(self, words: str, details: str) -> None:
        """Writes a question to the user, in full."""
        self._block(f"**Asked:** {_quiet(words)}\n\n{details}")
        self.flush()

    def answer(self, words: str) -> None:
        self._block(f"**Answered:** {one_line(words)}\n")

    def call(self, call: Call) -> None:
        """Adds a call that has ended."""
        self._block(f"### {one_line(call.label)}\n\n{details_of(call)}")

    def end(self, words: str) -> None:
        """Ends the turn; `words` describe any unusual end."""
        if words:
            self._block(f"*{_quiet(legible(words))}*\n")
        self._section("")
        self._write(f"{YOU}{BLANK}")
        self._in_turn = self._stray = False
        self.flush()

    # --- writing ----------------------------------------------------------------------------------------------

    def _say(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self._section(kind)
            if kind == "thought":
                self._put("<details><summary>Thought</summary>\n\n")
        self._partial += text
        self._pass_on(last=False)

    def _pass_on(self, *, last: bool) -> None:
        """Writes the agent's text as far as no heading can begin in it."""
        cut = len(self._partial)
        if not last:
            start = self._partial.rfind("\n") + 1
            if cut - start < HELD_BACK and self._partial[start:].lstrip()[:1] in ("", "#"):
                cut = start
        ready, self._partial = self._partial[:cut], self._partial[cut:]
        if ready:
            self._put(_quiet(legible(ready)))

    def _section(self, kind: str) -> None:
        """Closes the current section."""
        self._pass_on(last=True)
        if self._kind == "thought":
            self._put(f"{BLANK}</details>{BLANK}")
        elif self._kind in ("message", "user"):
            self._put(BLANK)
        if self._kind == "user" and kind != "user":
            self._put(f"{AGENT}{BLANK}")
        self._kind = kind

    def _block(self, text: str) -> None:
        self._section("block")
        self._put(text.rstrip("\n") + "\n\n")

    def _put(self, text: str) -> None:
        """Writes the agent's text. Text between turns (from a schedule) must not appear where a user writes."""
        if not self._in_turn and not self._stray:
            self._stray = True
            self._write(f"{AGENT}{BLANK}")
        self._write(text)

    def _write(self, text: str) -> None:
        self._held.append(text)

    def flush(self) -> None:
        """Appends everything buffered, in one write."""
        if self._held:
            self._drop_draft()
            self._append()
            if self._stray:
                self._trail(f"{BLANK}{YOU}{BLANK}")

    def _trail(self, text: str) -> None:
        """Writes something that is removed by the next write."""
        try:
            self._draft_at = self.file.stat().st_size
        except OSError:
            return
        self._write(text)
        self._append()

    def _append(self) -> None:
        data = "".join(self._held).encode("utf-8", "replace")
        self._held.clear()
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
        except OSError as error:
            if not self._failed:
                log.warning("the transcript cannot be written: %s", error)
            self._failed = True


def details_of(call: Call, most: int = DETAIL_LINES) -> str:
    """Renders a call and its result as Markdown; `most` lines of each piece."""
    return "\n".join(_details(call, most))


def _details(call: Call, most: int) -> Iterator[str]:
    command = command_of(call.raw_input)
    if command and command.strip() != one_line(call.title):  # A title is one line of limited length.
        yield _fenced(command, "sh")
    output = _output(call.raw_output) or call.terminal_output
    for item in call.content:
        match item:
            case acp.Diff():
                yield f"`{one_line(item.path, 1_000)}`\n\n{_fenced(diff_text(item, most), 'diff')}"
            case acp.Content(content=acp.TextContent(text=text)):
                yield _fenced(_bounded(sanitize_output(text), most))
            case acp.Terminal() if output:
                yield _fenced(_bounded(sanitize_output(output), most))
    if output and not call.content:
        yield _fenced(_bounded(sanitize_output(output), most))


def diff_text(diff: acp.Diff, most: int = DETAIL_LINES) -> str:
    """A unified diff without its two headers."""
    old = legible(diff.old_text or "").splitlines()
    lines = list(difflib.unified_diff(old, legible(diff.new_text).splitlines(), lineterm="", n=2))[2:]
    return _bounded("\n".join(lines), most)


def _output(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, dict):
        return "".join(value for name in ("output", "stdout", "stderr") if isinstance(value := raw.get(name), str))
    return ""


def _bounded(text: str, most: int) -> str:
    lines = legible(text).rstrip("\n").split("\n")
    if len(lines) <= most:
        return "\n".join(lines)
    half = most // 2
    return "\n".join([*lines[:half], f"[... {len(lines) - 2 * half} lines left out ...]", *lines[-half:]])


def _fenced(text: str, language: str = "") -> str:
    """A block that no text can close early."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{_quiet(text)}\n{fence}\n"


def _quiet(text: str) -> str:
    """`text` without any line that looks like the heading of a user's text."""
    return HEADING.sub(lambda found: found.group(1).replace("#", "\\#", 1), text)
