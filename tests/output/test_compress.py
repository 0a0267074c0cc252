"""Outputs while a goal is active."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.config.model import CompressionConfig
from acp_agent.output.compress import STRATEGIES, compressed, sections_of, strategy_of, wants_compression
from acp_agent.output.error_lines import looks_like_error
from tests.nightly import examples

GAP = re.compile(r"\[output filtered: (\d+) lines? not about the goal(?:, or beyond the length that is kept)?\]")
GOAL = "Fix the tokenizer of the parser"
FILLER = [f"line {number} of nothing in particular" for number in range(200)]


def shorten(
    tool: str, lines: Sequence[str], config: CompressionConfig | None = None, scores: Sequence[float] | None = None
) -> str | None:
    config = config or CompressionConfig()
    sections = sections_of("\n".join(lines))
    scores = [0.0] * len(sections.bounds) if scores is None else scores
    return compressed(tool, sections, GOAL, scores, config)


def test_sections_cover_the_text_without_gaps() -> None:
    for count in (1, 2, 50, 5000):
        lines = [f"{number}" if number % 9 else "" for number in range(count)]
        sections = sections_of("\n".join(lines))
        assert "\n".join(sections.texts) == "\n".join(lines)
        assert len(sections.bounds) <= 130


def test_aggressive_keeps_the_goal_the_errors_and_three_lines() -> None:
    lines = [*FILLER]
    lines[50] = "src/parser.py: parsed"
    lines[90] = "error: it broke"
    text = shorten("bash", lines)
    assert text is not None
    kept = [line for line in text.splitlines() if not GAP.fullmatch(line)]
    assert kept == [FILLER[0], "src/parser.py: parsed", "error: it broke", *FILLER[-2:]]
    assert sum(int(found) for found in GAP.findall(text)) == len(lines) - len(kept)


def test_moderate_keeps_the_beginning_and_what_is_relevant() -> None:
    sections = sections_of("\n".join(FILLER))
    assert len("\n".join(FILLER)) > CompressionConfig().max_preserved_chars
    scores = [0.0] * len(sections.bounds)
    scores[7] = 0.9
    text = shorten("read", FILLER, scores=scores)
    assert text is not None
    begin, end = sections.bounds[7]
    assert "\n".join(FILLER[begin:end]) in text and text.startswith("\n".join(FILLER[:10]))
    assert FILLER[begin + 30] not in text


def test_what_is_about_the_goal_stays_whole_up_to_the_limit() -> None:
    lines = [f"src/a{number}.py:1: nothing" for number in range(100)]
    assert shorten("grep", lines) is not None
    lines[40] = "src/parser.py:12: def parse():"
    assert shorten("grep", lines) is None, "it names the goal"
    assert shorten("read", lines, scores=[0.9, *[0.0] * 100]) is None, "a section is relevant"
    text = shorten("grep", [*lines, *lines])
    assert text is not None and len(text) <= CompressionConfig().max_preserved_chars
    assert lines[40] in text


def test_found_paths_are_counted() -> None:
    text = shorten("find_path", [f"src/module_{number}/file.py" for number in range(120)])
    assert text is not None
    assert text.startswith("[120 files and folders match]\nsrc/module_0/file.py\n[output filtered: 117 lines")


def test_what_is_kept_has_a_limit_which_errors_get_first() -> None:
    errors = [f"error: number {number} is broken" for number in range(300)]
    apart = [line for error in errors for line in (error, FILLER[0], "the parser", FILLER[1])]
    for lines in ([*FILLER, *errors, *FILLER, *(f"the parser {n}" for n in range(500))], [*FILLER, *apart]):
        for limit in (250, 1000, 4096):
            text = shorten("bash", lines, CompressionConfig(max_preserved_chars=limit))
            assert text is not None and len(text) <= limit
            assert errors[0] in text and "the parser" not in text
    config = CompressionConfig(max_preserved_chars=400)
    text = shorten("bash", [*FILLER, *(f"the parser {n}" for n in range(500))], config)
    assert text is not None
    assert len(GAP.sub("", text)) <= 440
    assert "beyond the length that is kept" in text


def test_without_goals_or_errors_to_keep_the_strategy_counts_and_what_is_short_stays() -> None:
    lines = [*FILLER, "the parser is here", *FILLER]
    text = compressed("bash", sections_of("\n".join(lines)), GOAL, None, CompressionConfig(goal_aware=False))
    assert text is not None and "parser" not in text
    lines = [*FILLER, "error: it broke", *FILLER]
    text = shorten("bash", lines, CompressionConfig(preserve_errors=False))
    assert text is not None and "it broke" not in text
    assert shorten("bash", ["the parser"] * 300) is None


@pytest.mark.parametrize(("tool", "strategy"), [
    ("bash", "aggressive"), ("read", "moderate"), ("web_scrape", "moderate"), ("find_path", "aggressive"),
])  # fmt: skip
def test_the_strategies_are_those_of_the_source_document(tool: str, strategy: str) -> None:
    assert strategy_of(tool, CompressionConfig()) == strategy


def test_strategies_are_configured_by_tool_and_for_all_others() -> None:
    config = CompressionConfig(strategies={"read": "none", "*": "moderate"})
    assert strategy_of("read", config) == "none" and strategy_of("bash", config) == STRATEGIES["bash"]
    assert strategy_of("mcp_docs_search", config) == "moderate"
    assert strategy_of("mcp_docs_search", CompressionConfig()) == "none"


@pytest.mark.parametrize(("tool", "tokens", "exit_code", "more", "wanted"), [
    ("bash", 301, 0, {}, True), ("bash", 300, 0, {}, False), ("bash", 5000, 1, {}, False),
    ("bash", 5000, None, {}, False), ("bash", 5000, 1, {"preserve_shell_errors": False}, True),
    ("plan", 5000, 0, {}, False), ("bash", 5000, 0, {"enabled": False}, False),
    ("bash", 5000, 0, {"threshold_tokens": 6000}, False),
])  # fmt: skip
def test_when_an_output_is_compressed(tool, tokens, exit_code, more, wanted) -> None:
    assert wants_compression(tool, tokens, CompressionConfig(**more), exit_code=exit_code) is wanted


@settings(max_examples=examples(150))
@given(
    lines=st.lists(
        st.sampled_from(["", "plain words", "the parser", "error: x", "FAILED y", "more plain words here " * 5]),
        max_size=150,
    ),
    tool=st.sampled_from(["bash", "read", "grep", "fetch"]), seed=st.integers(0, 1),
)  # fmt: skip
def test_no_line_of_an_error_or_of_the_goal_is_lost(lines: list[str], tool: str, seed: int) -> None:
    sections = sections_of("\n".join(lines))
    scores = [float(seed)] * len(sections.bounds)
    text = compressed(tool, sections, GOAL, scores, CompressionConfig(max_preserved_chars=100_000))
    if text is None:
        return
    assert len(text) < len("\n".join(lines))
    kept = text.splitlines()
    for line in lines:
        if looks_like_error(line) or "parser" in line:
            assert line in kept
    wanted = [line for line in lines if looks_like_error(line) or "parser" in line]
    assert [line for line in kept if looks_like_error(line) or "parser" in line] == wanted
