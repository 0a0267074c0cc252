"""The bundled table of prices, against what the vendors publish: each sum is worked out by hand from their page."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from acp_agent.llm.base import UsageReport
from acp_agent.llm.prices import listed_cost
from acp_agent.loop.model.spending import plausible
from tests.tables import table

ANTHROPIC = "https://api.anthropic.com/v1"
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
OPENAI = ""

# docs.anthropic.com/en/docs/about-claude/pricing, per MTok: Opus 4.1 $15 in, $18.75 written to the cache for five
# minutes, $1.50 cache hits, $75 out; Haiku 3.5 $0.80 in, $4 out; Sonnet with 1M context: up to 200K input tokens $3 in,
# $15 out, above $6 and $22.50 (cache hits a tenth of the input's price).
# ai.google.dev/gemini-api/docs/pricing, as quoted with this example in discuss.ai.google.dev/t/107349: Gemini 2.5 Pro
# up to 200k tokens $1.25 in, $0.125 cached, above $2.50 and $0.25; 11,500 tokens of which 10,000 are cached cost
# $0.001875 + $0.00125. Its output: $10, above $15.
# openai.com/api/pricing: GPT-4.1 $2 in, $0.50 cached, $8 out; GPT-4.1 mini $0.40 and $1.60.
EXAMPLES = [
    (ANTHROPIC, "claude-opus-4-1", UsageReport(100_000, 10_000, 80_000, 0, 15_000), 0.075 + 0.12 + 0.28125 + 0.75),
    (ANTHROPIC, "claude-3-5-haiku-20241022", UsageReport(1_000_000, 1_000_000), 0.80 + 4),
    (ANTHROPIC, "claude-sonnet-4-5-20250929", UsageReport(200_000, 10_000), 0.60 + 0.15),
    (ANTHROPIC, "claude-sonnet-4-5-20250929", UsageReport(300_000, 10_000, 200_000), 0.60 + 0.12 + 0.225),
    (GOOGLE, "gemini-2.5-pro", UsageReport(11_500, 11_000, 10_000), 0.001875 + 0.00125 + 0.11),
    (GOOGLE, "models/gemini-2.5-pro", UsageReport(300_000, 1_000), 0.75 + 0.015),
    (OPENAI, "gpt-4.1", UsageReport(1_000_000, 1_000_000, 500_000), 1 + 0.25 + 8),
    (OPENAI, "gpt-4.1-mini", UsageReport(1_000_000, 1_000_000), 0.40 + 1.60),
]


@table(("base_url", "model", "usage", "dollars"), EXAMPLES)
def test_the_vendors_examples_cost_what_they_say(base_url, model, usage, dollars):
    assert listed_cost(base_url, model, usage) == pytest.approx(dollars)


def test_an_unknown_model_or_server_has_no_price():
    assert listed_cost(OPENAI, "no-such-model", UsageReport(1, 1)) is None
    assert listed_cost("https://llm.example.com/v1", "gpt-4.1", UsageReport(1, 1)) is None


counts = some.integers(-10, 10**7)


@given(some.builds(UsageReport, counts, counts, counts, counts, counts))
def test_whatever_a_server_counts_never_costs_less_than_nothing(usage):
    cost = listed_cost(ANTHROPIC, "claude-sonnet-4-5", plausible(usage))
    assert cost is not None and cost >= 0
