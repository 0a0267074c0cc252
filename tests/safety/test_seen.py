"""What is not to be seen is shown by its number, asks, and is no way to another's name."""

from pathlib import Path

import pytest

from acp_agent.legible import legible, look
from acp_agent.safety.access import Allow
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.examine import examine
from tests.tables import table

UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u17b4\u180e\u200b\u200d\u202e\u2060\u206f\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e01ef"
)


@table("char", list(UNSEEN))
def test_it_is_shown_by_its_number_and_a_line_with_it_asks(char: str) -> None:
    shown = legible(f"a{char}b")
    assert shown.isascii() and shown[:2] == "a\\" and f"{ord(char):x}" in shown
    assert not isinstance(examine(f"ls a{char}b", Roots(Path("/"), []), Path("/")).verdict, Allow)


def test_what_can_be_seen_stays() -> None:
    for text in ("a\tb\nc", "ä ö 漢字 한글 ✔ 😀", "naïve café"):
        assert legible(text) == text


@pytest.mark.parametrize(("name", "own"), [
    ("Help", "help"), ("UNDO", "undo"), ("hеlp", "help"), ("cоmmit", "commit"), ("reⅴiew", "review"),
    ("ｔrust", "trust"), ("he1p", "help"), ("trust\u200b", "trust"), ("mοdel", "model"), ("p\u3164lan", "plan"),
    ("résumé", "resume"),
])  # fmt: skip
def test_names_that_are_taken_for_each_other_look_the_same(name: str, own: str) -> None:
    assert name != own and look(name) == look(own)


def test_other_names_do_not() -> None:
    names = ("help", "helper", "commit", "comment", "undo", "redo", "fix", "git:tidy", "対話")
    assert len({look(name) for name in names}) == len(names)
