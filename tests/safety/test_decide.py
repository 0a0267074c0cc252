"""How rules decide about a call: deny before ask before allow."""

from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from acp_agent.safety.access import Access, Allow, Ask, Deny, ExecuteAccess, NoAccess, PathAccess, Verdict
from acp_agent.safety.deciding.decide import EDIT_SCOPE, combine, decide
from acp_agent.safety.folders.paths import Roots

EDITS = Ask("it changes a file", (EDIT_SCOPE,), "edits in this project", rule="edits ask")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path)


def verdict(roots: Roots, *accesses: Access, may_change: bool = True) -> Verdict:
    return decide(accesses, roots, mode="code" if may_change else "ask", may_change=may_change)


def test_touching_nothing_and_reading_inside_are_allowed_in_every_mode_and_writing_asks(roots, tmp_path: Path) -> None:
    assert isinstance(verdict(roots), Allow)
    for may_change in (True, False):
        for access in (NoAccess(), PathAccess("read", tmp_path / "x")):
            assert isinstance(verdict(roots, access, may_change=may_change), Allow)
    assert verdict(roots, PathAccess("write", tmp_path / "x")) == EDITS


@pytest.mark.parametrize("mode", ["read", "write"])
def test_paths_outside_are_denied(mode: str, roots: Roots, tmp_path: Path) -> None:
    found = verdict(roots, PathAccess("read" if mode == "read" else "write", tmp_path.parent / "x"))
    assert isinstance(found, Deny)
    assert "outside" in found.reason


def test_a_mode_that_only_reads_denies_writing_and_commands(roots: Roots, tmp_path: Path) -> None:
    for access in (PathAccess("write", tmp_path / "x"), ExecuteAccess("ls", tmp_path)):
        found = verdict(roots, access, may_change=False)
        assert isinstance(found, Deny)
        assert "`ask`" in found.reason


def test_commands_are_judged_by_what_they_do(roots: Roots, tmp_path: Path) -> None:
    assert isinstance(verdict(roots, ExecuteAccess("ls", tmp_path)), Allow)
    found = verdict(roots, ExecuteAccess("cargo test", tmp_path))
    assert isinstance(found, Ask)
    assert found.scopes == ("bash cargo test",)


def test_deny_wins_over_ask_and_ask_over_allow_in_any_order() -> None:
    allow: Verdict = Allow()
    ask: Verdict = Ask("because", ("a",), "a")
    deny: Verdict = Deny("no")
    for order in permutations((allow, ask, deny)):
        assert combine(order) == deny
    for order in permutations((allow, ask)):
        assert combine(order) == ask
    assert isinstance(combine([Allow(), Allow()]), Allow)
    assert isinstance(combine([]), Allow)


def test_several_asks_become_one_that_names_each_scope_once() -> None:
    asks = [Ask("r1", ("a", "b"), "A"), Ask("r2", ("b", "c"), "B"), Ask("r1", ("a",), "A")]
    assert replace(combine(asks), rule="", notes=()) == Ask("r1; r2", ("a", "b", "c"), "A and B")
