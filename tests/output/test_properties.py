# ruff: noqa: E501 (outputs and rules stand as they are)
"""Properties of every rule, for any output: no error line is lost, nothing grows, nothing becomes empty."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.output.error_lines import looks_like_error
from acp_agent.output.filters import load_filters
from acp_agent.output.strategies import TIMES
from tests.nightly import examples
from tests.output.test_golden import CASES, recorded

COMMANDS = {
    "cargo-test": "cargo test", "cargo-nextest": "cargo nextest run", "clippy": "cargo clippy", "git-status": "git status",
    "git-diff": "git diff", "git-log": "git log", "directory-listing": "find .", "log-dedup": "docker logs x",
    "docker-build": "docker build .", "npm-install": "npm ci", "yarn-install": "yarn", "pnpm-install": "pnpm i",
    "pip-install": "pip install x", "make": "make", "pytest": "pytest", "go-test": "go test ./...",
    "terraform": "terraform plan", "kubectl": "kubectl get x", "brew": "brew install x",
}  # fmt: skip
USER = """
[[rules]]
name = "all-noise"
match = { exact = "all-noise" }
strategy = { type = "strip_noise", patterns = ["."] }
[[rules]]
name = "nothing-wanted"
match = { exact = "nothing-wanted" }
strategies = [{ type = "strip_annotated", prefixes = ["a", "e", "F", "n"] }, { type = "keep_matching", patterns = ["^ok"] }]
[[rules]]
name = "one-line"
match = { exact = "one-line" }
strategies = [{ type = "truncate", max_lines = 1, head = 0, tail = 0 }, { type = "group_by_rule", pattern = ".*" }]
"""
FILTERS, WARNINGS = load_filters(USER, max_diff_lines=20)
ALL = COMMANDS | {name: name for name in ("all-noise", "nothing-wanted", "one-line")}

ERRORS = [
    "error: it broke", "error[E0308]: mismatched types", "FAILED tests/a.py::test_b - AssertionError", "E       assert 1 == 2",
    "--- FAIL: TestWrong (0.01s)", "panic: runtime error: index out of range", "fatal: not a git repository",
    "make: *** [Makefile:4: all] Error 1", "npm ERR! code E404", "ERROR: No matching distribution found for x",
    "test tests::wrong ... FAILED", "thread 'main' panicked at src/main.rs:3:5:", "Traceback (most recent call last):",
    "  File not found", "Killed", "make: *** No rule to make target 'x'.", "write: No space left on device", "failures=0, errors=1",
    "web-1  0/1  Pending  0  5d", "request 3f1c0f6e-51d3-4b2f-9d1c-5b7e8a6f0001 failed", "request 3f1c0f6e-51d3-4b2f-9d1c-5b7e8a6f0002 failed", "#9 1.2 E: Unable to locate package x", "E1121 09:24:26.964228 30505 memcache.go:265] refused",
]  # fmt: skip
REAL = sorted({line for case in CASES for line in recorded(case).split("\n")[:60]})
LINES = st.one_of(
    st.sampled_from(REAL), st.sampled_from(ERRORS),
    st.sampled_from([
        "", " ", "@@ -1,9 +1,9 @@", "diff --git a/x b/x", "+++ b/x", "+added", " ok", "=== RUN   TestX",
        "[... 3 lines left out ...]",
    ]),
    st.text(alphabet="abE: +-0\t", max_size=12),
)  # fmt: skip


def told(text: str) -> set[str]:
    """The error lines, without what `dedup` takes for the same, and without how often they came."""
    return {TIMES.sub("#", line).strip() for line in text.split("\n") if looks_like_error(line)}


@pytest.mark.parametrize("rule", ALL)
@settings(max_examples=examples(40))
@given(st.lists(LINES, max_size=120), st.sampled_from([0, 1, None]))
def test_no_error_line_is_lost_and_nothing_grows(rule, lines, exit_code):
    text = "\n".join(lines)
    filtered = FILTERS.apply(text, ALL[rule], exit_code=exit_code)
    assert rule in filtered.rules and len(filtered.text) <= len(text) and bool(filtered.text) == bool(text)
    shown = TIMES.sub("#", filtered.text)
    contents = rule == "git-diff"  # What a hunk announces is contents; the error lines below are never.
    for line in told(text):
        assert line in shown or (contents and line[:1] in "+- ")
    for line in set(lines) & set(ERRORS):
        assert TIMES.sub("#", line).strip() in shown


@pytest.mark.parametrize("rule", ALL)
@settings(max_examples=examples(20))
@given(st.lists(LINES, max_size=80))
def test_applied_again_no_error_line_and_no_mark_is_lost(rule, lines):
    once = FILTERS.apply("\n".join(lines), ALL[rule], exit_code=1).text
    shown = TIMES.sub("#", FILTERS.apply(once, ALL[rule], exit_code=1).text)
    for line in once.split("\n"):
        if line in ERRORS or (line.startswith("[... ") and line.endswith(" ...]")):
            assert TIMES.sub("#", line).strip() in shown


def test_every_built_in_rule_and_every_rule_of_the_test_is_tried():
    assert WARNINGS == []
    assert set(FILTERS.names) == set(ALL)
