"""Live output of a command that prints too much to show: the newest part, and never half a credential."""

import re

import pytest

from acp_agent.credentials.redactor import Redactor
from acp_agent.executors.base import ExitStatus, OutputChunk, StreamName
from acp_agent.executors.buffer import LONGEST_CUT_LINE
from acp_agent.legible import verbatim
from acp_agent.loop.calls.live import SPARE, TERMINAL_FACTOR, ContentFeed, TerminalFeed
from acp_agent.schema.acp import Content, TextContent, ToolCallProgress
from tests.nightly import times

TOKEN = "gh" + "p_" + "A1b2" * 9
MARK = "[redacted: GitHub token]"
LIMIT = 1000
MISSING = re.compile(r"\r\n\[\.\.\. (\d+) characters omitted \.\.\.\]\r\n")


async def nothing() -> None:
    pass


class Shown:
    """A feed, and what of it reached the client. `shown()` is what `pump` does from time to time."""

    def __init__(self, kind: type[ContentFeed] | type[TerminalFeed]) -> None:
        self.updates: list[ToolCallProgress] = []
        self.feed = kind("c", self.updates.append, nothing, 10, LIMIT, Redactor().stream)

    def add(self, text: str, stream: StreamName = "stdout") -> None:
        self.feed.add(OutputChunk(stream, text))

    def shown(self) -> str:
        before = len(self.updates)
        self.feed._send()
        if len(self.updates) == before:
            return ""
        update = self.updates[-1]
        if isinstance(update.content, list):
            (content,) = update.content
            assert isinstance(content, Content) and isinstance(content.content, TextContent)
            return content.content.text
        assert isinstance(update.meta, dict)
        return str(update.meta["terminal_output"]["data"])


def lines(first: int, last: int) -> str:
    return "".join(f"line {number} of the log\n" for number in range(first, last))


def test_of_a_flood_the_content_shows_the_newest_lines_and_goes_on_from_there() -> None:
    shown = Shown(ContentFeed)
    for start in range(0, 10_000, 10):
        shown.add(lines(start, start + 10))
    assert shown.shown() == verbatim(lines(0, 10_000)[-LIMIT:])
    shown.add(lines(10_000, 10_003))
    assert shown.shown() == verbatim(lines(0, 10_003)[-LIMIT:])


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 100_000])
@pytest.mark.parametrize("kind", [ContentFeed, TerminalFeed])
def test_no_part_of_a_credential_is_shown_however_the_flood_is_cut(kind: type[ContentFeed], size: int) -> None:
    flood = "".join(f"{number} token {TOKEN} {TOKEN} end\n" for number in range(400 if size < 10 else times(2000)))
    shown = Shown(kind)
    seen = []
    for at in range(0, len(flood), size):
        shown.add(flood[at : at + size])
        if at % 50_000 < size:
            seen.append(shown.shown())
    seen.append(shown.shown())
    whole = "\n".join(seen)
    assert MARK in whole
    assert not re.search(r"ghp|A1b2|1b2A|b2A1|2A1b", whole)


def test_a_line_that_was_cut_is_left_out_and_one_of_the_other_stream_is_not() -> None:
    shown = Shown(ContentFeed)
    shown.add("warning: first\n", "stderr")
    shown.add("a" * 50)
    shown.add("b" * LIMIT * SPARE)
    shown.add("c" * 50 + "\nwhole\n")
    shown.add("warning: second\n", "stderr")
    assert shown.shown() == verbatim("whole\nwarning: second\n")


def test_of_a_cut_line_without_end_so_much_is_left_out_and_no_more() -> None:
    shown = Shown(ContentFeed)
    for _ in range(10):
        shown.add("x " * LIMIT * SPARE)
    shown.add("y " * LONGEST_CUT_LINE)
    assert shown.shown() == verbatim(("y " * LIMIT)[-LIMIT:])


def test_what_a_display_terminal_is_not_sent_is_counted_in_it() -> None:
    shown = Shown(TerminalFeed)
    flood = lines(0, 100_000)
    for at in range(0, len(flood), 500):
        shown.add(flood[at : at + 500])
    text = shown.shown()
    found = MISSING.search(text)
    assert found is not None
    first, last = (part.replace("\r\n", "\n") for part in (text[: found.start()], text[found.end() :]))
    assert flood.startswith(first) and flood.endswith(last)
    assert len(first) + int(found[1]) + len(last) == len(flood)
    assert len(first) + len(last) <= LIMIT * TERMINAL_FACTOR


def test_a_display_terminal_gets_every_character_of_what_is_no_flood_and_the_rest_at_the_end() -> None:
    shown = Shown(TerminalFeed)
    got = ""
    for start in range(0, 3000, 100):
        shown.add(lines(start, start + 100))
        got += shown.shown()
    shown.add("password = ")
    shown.add("oops\n", "stderr")
    meta = shown.feed.finish(ExitStatus(3, None))
    assert meta == {"terminal_exit": {"terminal_id": "c", "exit_code": 3, "signal": None}}
    last = shown.updates[-1].meta
    assert isinstance(last, dict)
    got += last["terminal_output"]["data"]
    assert got.startswith(lines(0, 3000).replace("\n", "\r\n"))
    assert "password =" in got[-40:] and "oops\r\n" in got[-40:]
