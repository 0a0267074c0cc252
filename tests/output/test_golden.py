"""Outputs of real programs, and what the model reads of them."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from acp_agent.output.error_lines import looks_like_error
from acp_agent.output.filters import load_filters
from acp_agent.output.sanitize import sanitize_output

GOLDEN = Path(__file__).with_name("golden")
CASES: list[dict[str, Any]] = tomllib.loads((GOLDEN / "cases.toml").read_text(encoding="utf-8"))["cases"]
FILTERS, _ = load_filters()


def recorded(case: dict[str, Any]) -> str:
    """What the program printed, as the filters get it."""
    return sanitize_output((GOLDEN / case["rule"] / f"{case['case']}.input.txt").read_bytes().decode("utf-8"))


def called(case: dict[str, Any]) -> str:
    return f"{case['rule']}-{case['case']}"


def without_time(text: str) -> str:
    """Repeated errors that differ in their time alone are told once."""
    return re.sub(r"\d\d:\d\d:\d\d\.\d+ +\d+", "", text)


@pytest.mark.parametrize("case", CASES, ids=called)
def test_what_is_kept_of_a_recorded_output_is_as_recorded(case):
    text = recorded(case)
    filtered = FILTERS.apply(text, case["command"].split(" | ")[0], exit_code=case["exit_code"])
    assert case["rule"] in filtered.rules
    assert len(filtered.text) <= len(text)
    stats = filtered.stats("bash") or "nothing removed"
    shown = f"{filtered.text.removesuffix(chr(10))}\n----\n{filtered.confidence}\n{stats}\n"
    kept = GOLDEN / case["rule"] / f"{case['case']}.kept.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        kept.write_text(shown, encoding="utf-8")
    assert shown == kept.read_text(encoding="utf-8")


SHOWN = {"git-diff", "log-dedup"}
"""Contents of files, and repeated lines of which one stands for all: what is kept of these is in their own tests."""


@pytest.mark.parametrize("case", [case for case in CASES if case["rule"] not in SHOWN], ids=called)
def test_every_error_line_of_a_recorded_output_is_kept(case):
    text = recorded(case)
    filtered = FILTERS.apply(text, case["command"].split(" | ")[0], exit_code=case["exit_code"])
    for line in map(without_time, text.split("\n")):
        if looks_like_error(line):
            assert line.strip() in without_time(filtered.text)


def test_each_built_in_rule_has_a_recorded_output():
    assert {case["rule"] for case in CASES} == set(FILTERS.names)
    assert len(FILTERS.names) == 19
    files = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*.input.txt")}
    assert files == {f"{case['rule']}/{case['case']}.input.txt" for case in CASES}
