"""A stream returns the same as the whole text, however it is cut, and does not delay ordinary prose."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_agent.credentials.key_blocks import UNIT
from acp_agent.credentials.redactor import Redactor, holds_mark
from tests.nightly import examples

OWN = ("Zq9!own-Value_77", "own phrase of 5 words", 'quo"ted\\value9')
PLAIN = Redactor(values=OWN)
BY_WORD = Redactor(values=OWN, extra_patterns=[r"corp-[0-9a-f]{6}"])
BY_LINE = Redactor(values=OWN, extra_patterns=[r"(?i)project \w+ \d+", "^id=.+$"])

BASE64 = "Qk1" + "aB3/" * 15 + "x"
FRAGMENTS = [
    *(
        "gh" + "p_", "A1b2" * 9, "s", "k-", "ant-", "proj-", "a1B2" * 8, "AK" + "IA", "Z7" * 8, "ey" + "J",
        "a1b2c3d4e5.",
    ),
    *("password", "api_key", "token", "DB_SECRET", "Authorization", "Bearer", "bearer ", "Basic ", "Cookie: ", "sid="),
    *(
        "=", ":", " = ", ": ", " := ", " => ", '"', "'", '\\"', "`", "[", "]", "(", ")", ",", ";", "&", "$", "{", "}",
        "<",
    ),
    *("hunter22x", "changeme", "a", "Z", "9", "_", "-", ".", "/", "\\", "\\n", "%20", "x1y2z3", "self.token", "word"),
    *("://", "user:", "pw12345@", "host", "postgres", "@", "?sig=", "1234567890:", "AAx" + "yZ09_" * 8),
    *(" ", "  ", "\t", "\n", "\n", "\r", "\r\n", "\u00a0", "\x0b", "\u2028", "語", "。", "é", "\ud800", "\U0001f511"),
    *(
        "-----BEG", "IN ", "-----", "RSA PRIVATE KEY-----", "PRIVATE KEY", "-----END ", BASE64, BASE64 + "\n",
        "abcd==\n",
    ),
    "-----BEGIN " + "PRIVATE KEY-----", "-----END " + "PRIVATE KEY-----",
    *("Proc-Type: 4,ENCRYPTED\n", "The", "Hello there", "\x1b[31m", "\x1b[0m", "\x1b]8;;", "\x07", "\x1b"),
    *("[redacted: password]", "[redacted: ", "key]", "corp-", "0a1b2c", "project x 12", "id="),
    *(text[at : at + 7] for text in OWN for at in range(0, len(text), 7)),
    *(
        "--password ", "--api-key=", "export ", "FOO_TOKEN=", "str", "password: str = ",
        "hooks.slack.com/services/T0/B0/",
    ),
]  # fmt: skip

TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
CUTS = st.lists(st.integers(0, 400), max_size=8)


def in_pieces(redactor: Redactor, text: str, cuts: list[int]) -> str:
    stream = redactor.stream()
    out, at = [], 0
    for cut in [*sorted(cuts), len(text)]:
        out.append(stream.feed(text[at:cut]))
        at = max(at, cut)
    return "".join(out) + stream.finish()


def one_by_one(redactor: Redactor, text: str) -> str:
    stream = redactor.stream()
    return "".join(map(stream.feed, text)) + stream.finish()


@pytest.mark.parametrize("redactor", [PLAIN, BY_WORD, BY_LINE], ids=["plain", "by word", "by line"])
@settings(max_examples=examples(250))
@given(text=TEXTS, cuts=CUTS)
def test_a_stream_gives_what_the_whole_text_gives(redactor: Redactor, text: str, cuts: list[int]):
    whole = redactor.redact(text)
    assert in_pieces(redactor, text, cuts) == whole and one_by_one(redactor, text) == whole


@settings(max_examples=examples(300))
@given(text=TEXTS)
def test_redacting_twice_changes_nothing_more(text: str):
    once = PLAIN.redact(text)
    assert PLAIN.redact(once) == once


@settings(max_examples=examples(300))
@given(text=TEXTS)
@example("Authorizationghp_ bearer ghp_passwordpassword")
@example("Authorization is by words:\nbearer ghp_passwordpassword")
def test_lines_are_redacted_as_if_they_stood_alone(text: str):
    """The first look over the whole text misses no line; private keys apart, which cross lines."""
    text = text.replace("-----", "--").replace("\r", "").replace(BASE64, "")
    assert PLAIN.redact(text) == "".join(PLAIN.redact(line + "\n") for line in text.split("\n"))[:-1]


def test_prose_is_given_as_it_comes():
    """Only the beginning of a word that begins like a format waits, and no longer than for the next piece."""
    stream = Redactor().stream()
    text, given = "", ""
    for word in "The quick password is a token of task-based work , and secrets : all 12 items ( of it ) go".split():
        before, text = text, f"{text} {word}"
        given += stream.feed(f" {word}")
        assert text.startswith(given) and len(given) > len(before)
        assert stream.held <= 1
    assert given == text


def test_what_turns_out_harmless_is_released_and_values_and_keys_wait_for_their_end():
    stream = Redactor().stream()
    assert stream.feed("use s") == "use " and stream.feed("k-") == "" and stream.feed("learn") == ""
    assert stream.feed(" more") == "sk-learn more" and stream.feed(". token: ") == ". token:"
    assert stream.feed("none ") == " none "
    stream = PLAIN.stream()
    assert stream.feed('password = "hun') == "password =" and stream.feed("ter22") == ""
    assert stream.feed('x", more') == ' "[redacted: password]", more' and stream.kinds == ("password",)
    stream = PLAIN.stream()
    assert stream.feed("-----BEGIN " + "PRIVATE KEY-----\n") == ""
    assert stream.feed(BASE64 + "\n") == "[redacted: private key]" and stream.feed((BASE64 + "\n") * 3) == ""
    assert stream.feed("-----END " + "PRIVATE KEY-----\nafter\n") == "\nafter\n"


@pytest.mark.parametrize("unit", ["x", "ab,", "語", "token ", "password: ", "\x1b[1mz", "a b ", "k=v;"])
def test_no_more_than_a_bounded_part_is_held(unit: str):
    text = unit * (3 * UNIT // len(unit))
    stream = PLAIN.stream()
    out = []
    for at in range(0, len(text), 4096):
        out.append(stream.feed(text[at : at + 4096]))
        assert stream.held <= UNIT
    assert "".join(out) + stream.finish() == text == PLAIN.redact(text)


@pytest.mark.parametrize("at", [0, UNIT - 20, UNIT - 1, UNIT, 2 * UNIT - 7])
@pytest.mark.parametrize("filler", ["x", "ab,", "some words "])
def test_a_credential_at_the_border_of_what_is_held_does_not_come_through(at: int, filler: str):
    token = "gh" + "p_" + "A1b2" * 9
    text = (filler * UNIT)[:at] + "," + token + "," + filler * UNIT
    whole = PLAIN.redact(text)
    assert token[:12] not in whole or filler == "x"
    assert token[-12:] not in whole or filler == "x"
    for size in (1000, UNIT - 1, UNIT, 50_000):
        assert in_pieces(PLAIN, text, list(range(0, len(text), size))) == whole


@settings(max_examples=examples(40))
@given(parts=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6), times=st.integers(1000, 6000), cuts=CUTS)
def test_long_lines_are_cut_at_the_same_places(parts: list[str], times: int, cuts: list[int]):
    text = ("".join(parts) * times)[: 3 * UNIT]
    assert in_pieces(PLAIN, text, [cut * 97 for cut in cuts]) == PLAIN.redact(text)


def test_a_mark_is_known_as_one():
    assert holds_mark("a [redacted: GitHub token] b") and not holds_mark("[redacted: ]")


@pytest.mark.parametrize("wide", ["日", "\ud83d", "漢字"])
def test_a_wide_character_in_a_password_of_an_url_does_not_save_it(wide: str) -> None:
    secret = "hunter22" + wide + "p4ss"
    text = f"漢 postgres://u:{secret}@h and more\n"
    stream = Redactor().stream()
    pieces = "".join(stream.feed(char) for char in text) + stream.finish()
    assert pieces == Redactor().redact(text) and "hunter22" not in pieces


def test_groups_that_wait_for_a_value_are_not_read_to_their_beginning_each_time() -> None:
    """One letter that is not ASCII made such a line quadratic: 16 kB held up the agent for seconds."""

    def lines_run(text: str) -> int:
        count = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            Redactor().redact(text)
        finally:
            sys.settrace(before)
        return count

    assert lines_run("bearer wordé" * 400) < 2.5 * lines_run("bearer wordé" * 200)
