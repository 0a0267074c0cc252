"""Redaction of text that arrives in pieces: what can be passed on, what waits, and what spans lines.

Complete lines are processed whole. Of an unfinished line the last group of words is kept (`_tail`, of which `_sent`
characters were already passed on): a group ends at a blank unless the text before it waits for a value. A line with
an ESC or the beginning of a key block waits for its end. Nothing waits for more than `UNIT` characters: then the group
is cut, at the same place however the text arrived.

A private key block becomes one mark, emitted with its first line of base64; the rest is dropped line by line.
Lines of base64 wait for what follows, since they may be the tail of a block whose beginning was cut off.
"""

from __future__ import annotations

from collections.abc import Iterator

from acp_agent.credentials import key_blocks as blocks
from acp_agent.credentials import patterns as known
from acp_agent.credentials.key_blocks import KEY_MARK, UNIT, first_wait, line_end, run_start, word_length
from acp_agent.credentials.line_redactor import COLOURS, HEADER_WORD, LineRedactor


class RedactingStream:
    """`feed` returns what is decided, `finish` the rest; together they equal `Redactor.redact` of the whole."""

    def __init__(self, lines: LineRedactor, enabled: bool = True) -> None:
        self._lines = lines
        self._enabled = enabled
        self._found: list[str] = []
        self._run = ""
        self._tail = ""
        self._sent = 0
        self._fresh = True
        self._block = ""
        """State of a key block: "" outside, "maybe" after its first line, "in" after its mark."""
        self._maybe = ""
        self._newline = False
        self._swallow = False
        self._mapped = False
        self._header = False
        """Whether what was passed on of this line speaks of a header, which says what the next words are."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds found so far, each once, in order."""
        return tuple(self._found)

    @property
    def held(self) -> int:
        """Number of characters fed but not returned yet."""
        return len(self._maybe) + len(self._run) + len(self._tail) - self._sent

    def feed(self, chunk: str) -> str:
        """Returns the text that can be passed on after this piece."""
        if not self._enabled or not chunk:
            return chunk
        if not chunk.isascii():
            chunk = self._whole(chunk)
        text = self._tail + chunk
        cut = max(text.rfind("\n"), text.rfind("\r", 0, len(text) - 1)) + 1
        out: list[str] = []
        if cut:
            text, self._tail = self._run + text[:cut], text[cut:]
            start = run_start(text, 0, len(text), self._fresh) if text[-1] == "\n" and not self._block else len(text)
            self._run = text[start:]
            if start:
                self._send(out, self._complete(text[:start], self._fresh), start)
            if start or not self._run:
                self._fresh = text[-1] == "\n"
        else:
            self._tail = text
        self._unfinished(out)
        return self._given(out)

    def finish(self) -> str:
        """Returns the rest: everything held back."""
        out: list[str] = []
        text, self._run, self._tail = self._run + self._tail, "", ""
        if text:
            self._send(out, self._complete(text, self._fresh), len(text))
        if self._block == "maybe":
            out.append(self._give_up())
        elif self._block == "in" and self._newline:
            out.append("\n")
        self._block, self._fresh, self._swallow = "", True, False
        return self._given(out)

    def _whole(self, chunk: str) -> str:
        try:
            chunk.encode()
        except UnicodeEncodeError:
            self._mapped = True
            return chunk.translate(blocks.SURROGATES)
        return chunk

    def _given(self, out: list[str]) -> str:
        text = "".join(out)
        return text.translate(blocks.BACK) if self._mapped and not text.isascii() else text

    def _redacted(self, text: str) -> tuple[str, bool]:
        """As `LineRedactor.redact`, of a part of the line."""
        before = f"{HEADER_WORD} " if self._header else ""
        self._header = self._header or HEADER_WORD in text
        done, last = self._lines.redact(before + text, self._found)
        return done.removeprefix(before), last

    def _send(self, out: list[str], done: str, raw: int) -> None:
        """`done` replaces the first `raw` characters held; the part of it already passed on is not sent again."""
        out.append(done[self._sent :])
        self._sent = max(0, self._sent - raw)

    # --- an unfinished line -------------------------------------------------------------------------------------

    def _unfinished(self, out: list[str]) -> None:
        if self._run:
            if len(self._tail) <= UNIT:
                return
            run, self._run = self._run, ""
            self._send(out, self._complete(run, self._fresh), len(run))
            self._fresh = True
        text = self._tail
        while len(text) > UNIT or (self._block == "in" and "-----END" in text and blocks.END.search(text) is not None):
            done, used = self._piece(text)
            self._send(out, done, used)
            text, self._fresh = text[used:], self._fresh and not used
        self._tail = text
        if self._block or self._lines.by_line or not text:
            return
        stop = first_wait(text)
        if stop >= 0:
            self._advance(out, self._natural(text, stop))
            return
        simple = not (self._lines.by_word or self._swallow)
        quick = self._lines.quick.search(text) if simple else None
        begins = len(text) if quick is None else -1
        if quick is not None and quick.end() == len(text):
            begins = max(quick.start(group) for group in (1, 2, 3))
        if simple and begins >= 0:
            self._plain(out, text, begins)
            return
        self._advance(out, self._natural(text, len(text)))
        text = self._tail
        hold = self._hold(text)
        if hold > self._sent:
            out.append(text[self._sent : hold])
            self._sent = hold

    def _plain(self, out: list[str], text: str, hold: int) -> None:
        """Passes on text without credentials up to `hold`, where the end of the text cuts off what may be a format."""
        if self._fresh and text[0].isascii() and blocks.PART_LINE.search(text) is not None:
            hold = min(hold, word_length(text))
        blank = max(text.rfind(" ", 0, hold), text.rfind("\t", 0, hold)) + 1
        if not text.isascii():
            blank = max(blank, self._wide(text, hold, len(text) + 1))
        given = max(hold, self._sent)
        out.append(text[self._sent : given])
        self._header = self._header or HEADER_WORD in text[:blank]
        self._tail, self._sent = text[blank:], given - blank
        self._fresh = self._fresh and not blank

    def _advance(self, out: list[str], cut: int) -> None:
        if cut:
            done = self._tail[:cut]
            if self._swallow or not self._lines.nothing_in(done):
                done = self._part(done)[0]
            self._header = self._header or HEADER_WORD in self._tail[:cut]
            self._send(out, done, cut)
            self._tail, self._fresh = self._tail[cut:], False

    def _hold(self, text: str) -> int:
        """First point at which a credential may begin, however the group continues."""
        if self._lines.by_word or self._swallow:
            return 0
        hold = len(text)
        early = self._lines.early.search(text)
        if early is not None:
            hold = max(early.start(group) for group in (1, 2, 3))
        after = known.AFTER.search(text)
        if after is not None:
            hold = min(hold, after.end())
        if self._fresh and blocks.PART_LINE.search(text) is not None:
            hold = min(hold, word_length(text))
        return hold

    def _wide(self, text: str, stop: int, known_: int) -> int:
        """Position after the last character before `stop` of a script written without blanks; 0 if there is none.

        `known_`: what was found for a later `stop`: looking there again would make long groups quadratic.
        """
        if self._lines.by_word:
            return 0
        scheme = text.find("://", max(text.rfind(" ", 0, stop), text.rfind("\t", 0, stop)) + 1, stop)
        if scheme >= 0:  # Its password may hold anything.
            stop = scheme
        if known_ <= stop:
            return known_
        while stop and text[stop - 1] < "\u2e80":
            stop -= 1
        return stop

    def _natural(self, text: str, stop: int) -> int:
        """Last position up to `stop` where a group ends; 0 if there is none."""
        wide = 0 if text.isascii() else len(text) + 1
        while True:
            cut = max(text.rfind(" ", 0, stop), text.rfind("\t", 0, stop)) + 1
            if wide:
                wide = self._wide(text, stop, wide)
                cut = max(cut, wide)
            if not cut:
                return 0
            waiting = self._lines.hanging(text[:cut], text[cut : cut + 1])
            if waiting < 0:
                return cut
            stop = waiting

    def _piece(self, text: str) -> tuple[str, int]:
        """First piece of a line longer than `UNIT`, redacted, and its original length."""
        window = text[:UNIT]
        if self._block:
            return self._in_block(window)
        stop = first_wait(window)
        cut = self._natural(window, stop if stop >= 0 else UNIT)
        if cut:
            return self._part(window[:cut])[0], cut
        cut = UNIT
        if stop < 0:
            cut = max(window.rfind(char, UNIT // 2) for char in ",;&") + 1 or UNIT
        done, last = self._part(window[:cut])
        self._swallow = last
        return done, cut

    # --- whole lines --------------------------------------------------------------------------------------------

    def _complete(self, text: str, fresh: bool) -> str:
        """Redacts lines. Only the last may lack its line end, and only in `finish`."""
        out: list[str] = []
        at, size = 0, len(text)
        hits = self._hits(text)
        start, end = 0, 0
        while at < size:
            if self._block:
                line = line_end(text, at, size)
                done, used = self._in_block(text[at : min(line, at + UNIT)])
                out.append(done)
                at += used
                continue
            if self._swallow:
                line = line_end(text, at, size)
                out.append(self._line(text[at:line]))
                at = line
                continue
            while end <= at and start < size:
                start, end = next(hits, (size, size))
            if start >= size:
                out.append(text[at:])
                break
            start = max(start, at)
            orphan = self._orphan(text, at, start, end, fresh)
            if orphan is not None:
                begin, after = orphan
                out += [text[at:begin], KEY_MARK]
                self._note("private key")
                at = after
                continue
            out.append(text[at:start])
            self._header = self._header and not start
            at = line_end(text, start, end)
            out.append(self._line(text[start:at]))
        self._header = False
        return "".join(out)

    def _orphan(self, text: str, at: int, start: int, end: int, fresh: bool) -> tuple[int, int] | None:
        """The range to replace for the tail of a key block that ends in this line."""
        if "-----END" not in text[start:end] or (at == start and not at):
            return None
        if start and text[start - 1] != "\n":
            return None
        marker = blocks.ORPHAN_END.search(text[start:end])
        first = run_start(text, at, start, fresh if not at else text[at - 1] == "\n")
        if marker is None or first == start:
            return None
        return first + word_length(text[first:start]), start + marker.end()

    def _line(self, text: str) -> str:
        out: list[str] = []
        while len(text) > UNIT or (self._block and text):
            done, used = self._piece(text)
            out.append(done)
            text = text[used:]
        if text:
            out.append(self._part(text)[0])
        self._swallow = self._header = False
        return "".join(out)

    def _hits(self, text: str) -> Iterator[tuple[int, int]]:
        """Lines worth searching, in order, as (start, end)."""
        if self._lines.by_line:
            at = 0
            while at < len(text):
                end = text.find("\n", at) + 1 or len(text)
                yield at, end
                at = end
            return
        if "\x1b" not in text:
            end = 0
            for m in self._lines.anchors.finditer(text):
                if (at := m.start()) >= end:
                    start = text.rfind("\n", end, at) + 1 or end
                    end = text.find("\n", at) + 1 or len(text)
                    yield start, end
            return
        numbers: set[int] = set()
        for form in (text, COLOURS.sub("", text)):
            number, seen = 0, 0
            for m in self._lines.anchors.finditer(form):
                number += form.count("\n", seen, m.start())
                seen = m.start()
                numbers.add(number)
        at = 0
        for number, line in enumerate(text.split("\n") if numbers else ()):
            if number in numbers:
                yield at, min(at + len(line) + 1, len(text))
            at += len(line) + 1

    # --- key blocks ---------------------------------------------------------------------------------------------

    def _note(self, kind: str) -> None:
        if kind not in self._found:
            self._found.append(kind)

    def _part(self, text: str) -> tuple[str, bool]:
        """Redacts groups of one line; also returns whether they ended in a credential. May begin a key block."""
        out: list[str] = []
        if self._swallow:
            swallowed = blocks.SWALLOWED.search(text)
            text = text[swallowed.end() :] if swallowed is not None else text
            if not text:
                return "", True
            self._swallow = False
        while "-----BEGIN" in text and (begin := blocks.BEGIN.search(text)) is not None:
            after = text[begin.end() :]
            end = blocks.END.search(after)
            body = blocks.BODY_AFTER.search(after)
            if end is not None and blocks.BASE64_RUN.search(after[: end.start()]) is not None:
                text, rest = text[: begin.start()], after[end.end() :]
            elif body is not None:
                text, rest = text[: begin.start()], after[body.end() :]
                if not rest:
                    self._block, self._newline = "in", after.endswith("\n")
            elif blocks.NOTHING_AFTER.search(after) is not None:
                self._block, self._maybe, self._newline = "maybe", text[begin.start() :], after.endswith("\n")
                return "".join([*out, self._redacted(text[: begin.start()])[0]]), False
            else:
                out.append(self._redacted(text[: begin.end()])[0])
                text = after
                continue
            out += [self._redacted(text)[0], KEY_MARK]
            self._note("private key")
            text = rest
            if not rest:
                return "".join(out), not self._block
        done, last = self._redacted(text)
        return "".join([*out, done]), last

    def _in_block(self, line: str) -> tuple[str, int]:
        """Handles a line after the beginning of a key block: its output, and how much of it was consumed."""
        done = ""
        body = blocks.BODY.search(line) is not None
        if self._block == "maybe":
            if (blocks.BLANK.search(line) or blocks.HEADER.search(line)) and len(self._maybe) + len(line) <= UNIT:
                self._maybe += line
                return "", len(line)
            if not body:
                return self._give_up(), 0
            self._block, self._maybe, done = "in", "", KEY_MARK
            self._note("private key")
        end = blocks.END.search(line)
        if end is not None:
            self._block = ""
            return done, end.end()
        if body or blocks.BLANK.search(line) or blocks.SHORT_BODY.search(line) or blocks.HEADER.search(line):
            self._newline = line.endswith("\n")
            return done, len(line)
        self._block = ""
        return done + ("\n" if self._newline else ""), 0

    def _give_up(self) -> str:
        """Returns the held text, since it is not a key block after all."""
        text, self._maybe, self._block = self._maybe, "", ""
        return "".join(self._lines.redact(line, self._found)[0] for line in text.splitlines(keepends=True))
