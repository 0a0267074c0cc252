"""The rules that decided, in sentences."""

from acp_agent.loop.calls.rule_words import rule_words
from tests.tables import table


@table(("rule", "said"), [
    (
        "dangerous:python3 -c; scope:touch",
        "The rules say that `python3 -c` can run or change anything and that `touch` changes something.",
    ),
    ("dangerous:sed s/a/b/; e", "The rules say that `sed s/a/b/; e` can run or change anything."),
    ("edits ask", "The rules say that edits are asked about."),
    ("redirect; redirect", "The rules say that its output goes to a file."),
    (
        "tools.permissions.bash[0] ask `git *` (config.toml:3); unknown",
        "The rules say that your rule `tools.permissions.bash[0] ask `git *` (config.toml:3)` decides and that it "
        "may change something.",
    ),
    ("risk high: it deletes; now", "The rules say that a high risk is asked about every time."),
    ("something new", "The rules say that something new."),
])  # fmt: skip
def test_a_rule_is_a_sentence(rule: str, said: str):
    assert rule_words(rule) == said
