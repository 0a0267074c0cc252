"""Why a call is asked about, in one sentence."""

from acp_agent.loop.calls.rule_words import asked_because
from tests.tables import table

VAGUE = "it may change something"


@table(("reason", "rule", "said"), [
    (VAGUE, "scope:git commit; scope:git push", "Asked because `git commit` and `git push` change something."),
    (
        VAGUE, "scope:a; redirect; scope:b; scope:a; scope:c",
        "Asked because `a`, `b` and `c` change something and its output goes to a file.",
    ),
    (
        VAGUE, "dangerous:python3 -c; scope:touch",
        "Asked because `python3 -c` can run or change anything and `touch` changes something.",
    ),
    (VAGUE, "dangerous:sed s/a/b/; e", "Asked because `sed s/a/b/; e` can run or change anything."),
    ("it changes a file", "edits ask", "Asked because it changes a file."),
    (VAGUE, "redirect; redirect", "Asked because its output goes to a file."),
    (VAGUE, "scope:cat; redirect", "Asked because `cat` changes something and its output goes to a file."),
    (
        VAGUE, "tools.permissions.bash[0] ask `git *` (config.toml:3); unknown",
        "Asked because your rule `tools.permissions.bash[0] ask `git *` (config.toml:3)` asks and it may change "
        "something.",
    ),
    ("one of your rules asks (x)", "tools.policy[1] x", "Asked because your rule `tools.policy[1] x` asks."),
    ("it deletes; now", "risk high: it deletes; now", "Asked because it deletes and now."),
    ("it names `.env`, which may keep keys or passwords", "key file: .env", "Asked because it names `.env`, which may "
     "keep keys or passwords."),
    ("it changes a file that other programs trust", "protected: .envrc",
     "Asked because `.envrc` is loaded by direnv when a shell enters the folder, once you allow it."),
    ("it asks for x", "something new", "Asked because it asks for x."),
    ("it may change something", "", "Asked because it may change something."),
])  # fmt: skip
def test_the_reason_is_one_sentence_with_what_the_rule_knows(reason: str, rule: str, said: str):
    assert asked_because(reason, rule) == said
