"""`[tools.permissions]`, `[tools.policy]`, `[tools.scoped]`, sentinel, anomalies and rate: tables."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.config.model import BashConfig, ToolsConfig
from acp_agent.config.safety_settings import (
    AnomalyConfig,
    AuthorizationConfig,
    GovernanceConfig,
    PermissionRule,
    PolicyConfig,
    PolicyRule,
    ScopedConfig,
    ScopedConstraint,
)
from acp_agent.safety.access import Access, ExecuteAccess, NetworkAccess, NoAccess, PathAccess
from acp_agent.safety.deciding.anomaly import Anomaly, AnomalyDetector
from acp_agent.safety.deciding.approvals import Approvals
from acp_agent.safety.deciding.blocks import Block, Blocks
from acp_agent.safety.deciding.rate import HOUR, ActionRate
from acp_agent.safety.deciding.rule_list import MAX_POLICY_RULES, Rule, RuleList
from acp_agent.safety.deciding.subjects import CallFacts, Subject
from acp_agent.safety.deciding.trajectory import FAILURES, Sentinel
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import PathGlobs, matches
from tests.nightly import examples

ROOTS = Roots(Path("/srv"))
TOOLS = {"bash", "read", "write", "fetch"}


def compiled(**sections: object) -> RuleList:
    config = ToolsConfig(**sections)  # type: ignore[arg-type]
    return RuleList.compile(config, {"STAGE": "prod"}, None, lambda key, index: f"c.toml:{index}", TOOLS.__contains__)


def subject(tool: str = "bash", *texts: str, paths: Sequence[str | Path] = (), hosts: Sequence[str] = ()) -> Subject:
    accesses: list[Access] = [PathAccess("read", Path(path)) for path in paths]
    accesses += [NetworkAccess(host, f"GET {host}") for host in hosts]
    return Subject(CallFacts(tool, {str(number): text for number, text in enumerate(texts)}, accesses), ROOTS)


# --- globs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "text", "expected"), [
    ("cargo *", "cargo test --all", True), ("cargo *", "CARGO test", True), ("cargo *", "cargo", True),
    ("cargo *", "cargotest", False), ("*sudo*", "a\nsudo b", True), ("git status", "git status -s", False),
    ("a?c", "abc", True), ("a[bx]c", "axc", True), ("a[!bx]c", "axc", False), ("*" * 200 + "x", "y" * 5000, False),
])  # fmt: skip
def test_a_glob_stands_for_the_whole_text_whatever_its_case(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(("pattern", "path", "expected"), [
    (".env", "/srv/app/.env", True), (".env", "/srv/app/a/b/.env", True), (".env", "/srv/app-evil/.env", False),
    (".env", "/srv/app/.env/key", True), (".env*", "/srv/app/.env.local", True),
    ("secrets/", "/srv/app/secrets/a/b", True), ("secrets/*.key", "/srv/app/secrets/a.key", True),
    ("secrets/*.key", "/srv/app/x/secrets/a.key", False), ("**/secrets/*.key", "/srv/app/x/secrets/a.key", True),
    ("~/.ssh", "/home/u/.ssh/id", True), ("~/.ssh", "/home/u/.sshx", False), ("/etc/*.conf", "/etc/a.conf", True),
])  # fmt: skip
def test_path_globs_hold_below_the_folders_and_for_all_that_is_below_a_match(pattern: str, path: str, expected) -> None:
    assert PathGlobs([pattern], [Path("/srv/app")], Path("/home/u")).matches(Path(path)) is expected


def test_a_folder_whose_name_holds_wildcards_is_taken_literally() -> None:
    globs = PathGlobs([".env"], [Path("/srv/a[b]*")], None)
    assert globs.matches(Path("/srv/a[b]*/.env")) and not globs.matches(Path("/srv/ab/.env"))


# --- permissions -------------------------------------------------------------------------------------------------


def rules(*lines: tuple[str, str], tool: str = "bash") -> RuleList:
    listed = [PermissionRule(pattern, action) for pattern, action in lines]  # type: ignore[arg-type]
    return compiled(permissions={tool: listed})


def effects(listed: Sequence[Rule]) -> list[str]:
    return [rule.effect for rule in listed]


def effect(known: RuleList, text: str) -> str | None:
    found = known.permission("bash", [text])
    return None if found is None else found.effect


def test_the_first_rule_that_matches_decides_and_says_where_it_stands() -> None:
    known = rules(("*sudo*", "deny"), ("cargo *", "allow"), ("*", "ask"))
    for text, action in (("sudo x", "deny"), ("cargo test", "allow"), ("cargo sudo", "deny"), ("ls", "ask")):
        assert effect(known, text) == action
    assert str(known.permission("bash", ["sudo x"])) == "tools.permissions.bash[0] deny `*sudo*` (c.toml:0)"
    assert rules(("cargo *", "allow")).permission("bash", ["ls"]) is None


def test_a_tool_is_hidden_where_nothing_of_it_can_be_allowed() -> None:
    assert rules(("*", "deny")).hides("bash") is not None
    assert rules(("x", "deny"), ("*", "deny")).hides("bash") is not None
    assert rules(("x", "ask"), ("*", "deny")).hides("bash") is None
    assert rules(("*", "deny")).hides("read") is None
    assert rules(("*", "deny"), tool="mcp_*").hides("mcp_forge_push") is not None


def test_a_tools_own_rules_come_before_those_of_a_glob() -> None:
    known = compiled(permissions={"*": [PermissionRule("*", "deny")], "read": [PermissionRule("*", "allow")]})
    assert effects(known.permissions("read")) == ["allow", "deny"]
    assert known.hides("read") is None and known.hides("write") is not None


def test_older_keys_become_rules_where_bash_has_none() -> None:
    bash = BashConfig(blocked_commands=["rm -rf", "[x]?"], confirm_patterns=["git push"])
    known = compiled(bash=bash)
    for text, action in (("a; rm -rf b", "deny"), ("git push origin", "ask"), ("run [x]? y", "deny")):
        assert effect(known, text) == action
    assert known.permission("bash", ["run xy"]) is None
    both = compiled(permissions={"bash": [PermissionRule("*", "allow")]}, bash=bash)
    assert effects(both.permissions("bash")) == ["allow"]


# --- policy ------------------------------------------------------------------------------------------------------


def policy(*listed: PolicyRule, default: str = "allow", more: tuple[PolicyRule, ...] = ()) -> RuleList:
    return compiled(
        policy=PolicyConfig(default=default, rules=list(listed)),  # type: ignore[arg-type]
        authorization=AuthorizationConfig(enabled=bool(more), rules=list(more)),
    )


def decided(made: RuleList, asked: Subject) -> str:
    found = made.applies("policy", asked)
    return found[0].effect if found is not None else "allow"


SUDO = PolicyRule("deny", "bash", args_match="sudo")


@pytest.mark.parametrize(("pattern", "denied", "not_denied"), [
    ("secret/*", "/srv/secret/a/b", "/srv/x/secret/a"), ("./secret/*", "/srv/secret/a", "/else/secret/a"),
    ("key.pem", "/srv/a/b/key.pem", "/else/key.pem"), ("**/key.pem", "/else/key.pem", "/else/key"),
    ("/srv//secret/", "/srv/secret", "/srv/other"), ("~/x", "/home/u/x", "/srv/x"),
    ("a/../secret/*", "/srv/secret/b", "/srv/a"), ("../next/*", "/next/a", "/srv/next/a"),
])  # fmt: skip
def test_a_relative_path_of_a_policy_is_below_the_sessions_folder(pattern: str, denied: str, not_denied: str) -> None:
    config = ToolsConfig(policy=PolicyConfig(rules=[PolicyRule("deny", paths=[pattern])]))
    rules = RuleList.compile(config, {}, Path("/home/u"), roots=ROOTS)
    assert rules.trouble == () and rules.applies("policy", subject("read", paths=[denied])) is not None
    assert rules.applies("policy", subject("read", paths=[not_denied])) is None


def test_a_path_that_nothing_can_match_is_told_and_denies() -> None:
    config = ToolsConfig(policy=PolicyConfig(rules=[PolicyRule("allow", "read", paths=["~/x"])]))
    rules = RuleList.compile(config, {}, None, roots=ROOTS)
    assert "no path can match it, so it denies every call of `read`" in rules.trouble[0]
    assert rules.applies("policy", subject("read", paths=["/srv/a"])) is not None


HOME = PolicyRule("allow", "read", paths=["/home/*"])


@pytest.mark.parametrize(("made", "asked", "effect"), [
    (policy(SUDO), subject("bash", "sudo x"), "deny"), (policy(SUDO), subject("bash", "ls"), "allow"),
    (policy(SUDO), subject("read", "sudo x"), "allow"),
    (policy(PolicyRule("allow", "bash"), SUDO), subject("bash", "sudo x"), "deny"),
    (policy(SUDO, PolicyRule("allow", "bash")), subject("bash", "sudo x"), "deny"),
    (policy(HOME, default="deny"), subject("read", paths=("/home/u/a",)), "allow"),
    (policy(HOME, default="deny"), subject("read", paths=("/homes/u/a",)), "deny"),
    (policy(HOME, default="deny"), subject("read", paths=("/home/u/a", "/etc/passwd")), "deny"),
    (policy(HOME, default="deny"), subject("read", paths=("/home/u/a",) * 500), "allow"),
    (policy(HOME, default="deny"), subject("read", paths=("/home/u/a",) * 501), "deny"),
    (policy(HOME, default="deny"), subject("read", paths=("/home/u/a",) * 500 + ("/etc/passwd",)), "deny"),
    (policy(PolicyRule("deny", paths=["/etc/*"])), subject("read", paths=("/x",) * 500 + ("/etc/passwd",)), "deny"),
    (policy(HOME, default="deny"), subject("read"), "deny"),
    (policy(HOME, default="deny"), subject("write", paths=("/home/u/a",)), "deny"),
    (policy(PolicyRule("deny", "write", paths=["/home/*"])), subject("write", paths=("/x", "/home/a")), "deny"),
    (policy(PolicyRule("deny", "mcp_*")), subject("mcp_a_b"), "deny"),
    (policy(PolicyRule("deny", env={"STAGE": "prod"})), subject("read"), "deny"),
    (policy(PolicyRule("deny", env={"STAGE": "test"})), subject("read"), "allow"),
    (policy(PolicyRule("deny", env={"OTHER": "*"})), subject("read"), "allow"),
    (policy(PolicyRule("allow", "bash", args_match="^ls"), default="deny"), subject("bash", "ls", "rm"), "deny"),
    (policy(PolicyRule("allow", "bash", args_match="^ls"), default="deny"), subject("bash", "ls"), "allow"),
    (policy(more=(SUDO,)), subject("bash", "sudo x"), "deny"),
    (policy(PolicyRule("allow", "bash", args_match="sudo"), more=(SUDO,)), subject("bash", "sudo x"), "deny"),
])  # fmt: skip
def test_a_deny_wins_an_allow_must_match_all_and_the_default_decides_the_rest(made, asked, effect: str) -> None:
    assert decided(made, asked) == effect


def test_the_trace_names_the_rule_and_its_place() -> None:
    found = policy(HOME, SUDO).applies("policy", subject("bash", "sudo x"))
    assert found is not None and str(found[0]) == "tools.policy.rules[1] deny bash args_match=sudo (c.toml:1)"
    assert found[0].denial(found[1]).rule == "policy"  # the rest goes to the audit log only


def test_a_rule_that_cannot_be_read_denies_every_call_of_its_tools() -> None:
    made = policy(PolicyRule("allow", "bash", args_match="(("))
    assert "not a regular expression" in made.trouble[0]
    assert decided(made, subject("bash", "ls")) == "deny" and decided(made, subject("read")) == "allow"


def test_more_rules_or_longer_patterns_than_there_may_be_deny_everything() -> None:
    many = (PolicyRule("allow", "read"),) * (MAX_POLICY_RULES // 2 + 1)
    long = policy(PolicyRule("deny", "bash", args_match="ä" * 600))
    assert "1024 bytes" in long.trouble[0]
    for made in (long, policy(*many, more=many)):
        assert made.trouble and decided(made, subject("read")) == "deny"
    assert decided(policy(PolicyRule("deny", "bash", args_match="a" * 1024)), subject("read")) == "allow"


def test_hidden_is_what_a_policy_always_denies_to_a_tool() -> None:
    made = policy(
        PolicyRule("allow", "read", paths=["*/open/*"]), PolicyRule("deny", "read", paths=["*/a"]),
        PolicyRule("deny", "read", paths=["*/b"], args_match="x"), PolicyRule("deny", "write", paths=["*/c"]),
        PolicyRule("deny", "*", paths=["*/d"]),
    )  # fmt: skip
    assert made.hidden_paths("read") == ["*/a", "*/d"] and made.denied_paths() == ["*/a", "*/b", "*/c", "*/d"]


# --- scoped ------------------------------------------------------------------------------------------------------


def limits(*constraints: ScopedConstraint, **more: object) -> RuleList:
    return compiled(scoped=ScopedConfig(constraints=list(constraints), **more))  # type: ignore[arg-type]


def broken(made: RuleList, asked: Subject, *approved: str) -> str:
    found = made.applies("limits", asked, approved)
    return found[1] if found is not None else ""


def test_an_allow_list_of_tools_makes_the_deny_list_moot() -> None:
    both = limits(allowed_tools=["read", "mcp_*"], denied_tools=["read"])
    assert both.hides("read") is None and both.hides("mcp_x") is None
    assert "tools.scoped.allowed_tools" in str(both.hides("bash"))
    assert "not among the allowed tools" in broken(both, subject("bash"))
    assert "tools.scoped.denied_tools" in str(limits(denied_tools=["bash"]).hides("bash"))
    assert not limits(enabled=False, denied_tools=["bash"]).hides("bash")


@pytest.mark.parametrize(("constraint", "arguments", "stops"), [
    (ScopedConstraint("bash", deny_patterns=["rm -rf"]), {"command": "RM -RF x"}, True),
    (ScopedConstraint("bash", deny_patterns=["rm -rf"]), {"command": "r\\m -rf x"}, True),
    (ScopedConstraint("bash", deny_patterns=["rm -rf"]), {"command": "ls"}, False),
    (ScopedConstraint("bash", "description", deny_patterns=["ls"]), {"command": "xx"}, False),
    (ScopedConstraint("bash", "command", allow_patterns=["ls *", "cat *"]), {"command": "ls -l"}, False),
    (ScopedConstraint("bash", "command", allow_patterns=["ls *"]), {"command": "ls; cat x"}, True),
    (ScopedConstraint("bash", "command", allow_patterns=["ls *"]), {"command": "rm"}, True),
    (ScopedConstraint("bash", "command", allow_patterns=["ls *"]), {}, True),
    (ScopedConstraint("read"), {"command": "x"}, False),
])  # fmt: skip
def test_constraints_of_arguments(constraint: ScopedConstraint, arguments: dict, stops: bool) -> None:
    accesses = [ExecuteAccess(arguments["command"], Path("/srv")) if arguments else NoAccess()]
    assert bool(broken(limits(constraint), Subject(CallFacts("bash", arguments, accesses), ROOTS))) is stops


def test_paths_and_hosts_are_held_to_theirs(tmp_path: Path) -> None:
    held = limits(ScopedConstraint("*", allowed_paths=[str(tmp_path / "a")], allowed_hosts=["*.example.com"]))
    assert not broken(held, subject("write", paths=[tmp_path / "a/b"], hosts=["x.example.com"]))
    assert "not below" in broken(held, subject("write", paths=[tmp_path / "ab"]))
    assert "not among the hosts" in broken(held, subject("fetch", hosts=["example.org"]))


def test_an_approval_covers_the_same_call_once() -> None:
    approvals = Approvals()
    approvals.violated("1234", "bash", {"command": "x"}, "rule 1")
    assert approvals.find("9") is None
    approvals.approve(approvals.find("12"))  # type: ignore[arg-type]
    assert not approvals.of("bash", {"command": "y"})
    for _ in range(2):  # Judging it twice does not use it up.
        assert approvals.of("bash", {"command": "x"}) == {"rule 1"}
    held = frozenset({"rule 1"})
    approvals.violated("5678", "bash", {"command": "x"}, "rule 2")
    approvals.approve("5678")
    assert approvals.take("bash", {"command": "x"}, held) and not approvals.take("bash", {"command": "x"}, held)
    assert approvals.take("bash", {"command": "x"}, frozenset({"rule 2"}))
    assert not approvals.of("bash", {"command": "x"})


def test_an_approval_covers_one_limit_and_is_not_used_up_by_another() -> None:
    held = limits(ScopedConstraint("bash", deny_patterns=["a"]), ScopedConstraint("bash", deny_patterns=["b"]))
    first, second = (rule.label for rule in held.of("limits"))
    asked = subject("bash", "a b")
    assert first == "tools.scoped.constraints[0] (c.toml:0)"
    assert held.applies("limits", asked, (first, second)) is None
    assert "`a`" in broken(held, asked)
    assert "`b`" in broken(held, asked, first)


# --- sentinel ----------------------------------------------------------------------------------------------------


class Row:
    def __init__(self, steps: str, failures: int, rejected: bool) -> None:
        self.steps, self.failures, self.rejected = steps, failures, rejected


class Kept:
    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def learned(self) -> list[Row]:
        return list(self.rows.values())

    def keep(self, steps: str, failures: int, rejected: bool) -> None:
        self.rows[steps] = Row(steps, failures, rejected)

    def forget(self) -> int:
        count = len(self.rows)
        self.rows.clear()
        return count


def sentinel(*, learns: bool = False) -> Sentinel:
    return Sentinel(GovernanceConfig(trajectory_enabled=True, block_risky_patterns=learns, window=2), Kept())


def blocks(watching: Sentinel, tool: str, words: str) -> bool:
    return bool(watching.blocks(watching.step(tool, {"x": words})))


@pytest.mark.parametrize(("sequence", "calls", "blocked"), [
    (["bash", "rm", "-rf", "/"], [("bash", "rm -rf /")], True),
    (["bash", "rm", "-rf", "/"], [("bash", "sudo 'rm' -rf /;ls")], True),
    (["bash", "rm", "-rf", "/"], [("bash", "rm -rf /tmp/x")], False),
    (["bash", "rm", "-rf", "/"], [("bash", "ls / -rf rm")], False),
    (["write", "config.toml", "password"], [("write", "a/config.toml my_PASSWORD=1")], True),
    (["write", "config.toml", "password"], [("read", "config.toml password")], False),
    (["read", ".env", "fetch"], [("read", "x/.env"), ("bash", "ls"), ("fetch", "https://a.b")], True),
    (["read", ".env", "fetch"], [("fetch", "https://a.b"), ("read", "x/.env")], False),
    (["read", ".env", "fetch"], [("read", "x"), ("fetch", "https://a.b")], False),
    (["bash", "git", "fetch"], [("bash", "git fetch")], True),
    (["bash", "git", "fetch"], [("bash", "git log"), ("fetch", "https://a.b")], False),
    (["bash", "git", "tool:fetch"], [("bash", "git log"), ("fetch", "https://a.b")], True),
    (["write", "password"], [("write", "word " * 5_000 + "password")], True),
])  # fmt: skip
def test_a_blocked_sequence_blocks_the_call_that_would_complete_it(sequence: list[str], calls, blocked: bool) -> None:
    watching = sentinel()
    for number, (tool, text) in enumerate(calls[:-1]):
        watching.began(str(number), tool, {"x": text})
    last = watching.step(calls[-1][0], {"x": calls[-1][1]})
    asked = Subject(CallFacts(last.tool, {}, ()), ROOTS, (last,), watching.made)
    for enabled in (True, False):
        governance = GovernanceConfig(trajectory_enabled=enabled, blocked_sequences=[sequence])
        assert (compiled(governance=governance).applies("sequences", asked) is not None) is (blocked and enabled)


def test_what_the_person_rejected_is_blocked_and_only_in_the_same_surroundings() -> None:
    watching = sentinel(learns=True)
    watching.began("1", "read", {"path": "a"})
    watching.began("2", "bash", {"command": "make deploy"})
    assert watching.reject("2") == "bash"
    watching.began("3", "read", {"path": "other"})
    assert blocks(watching, "bash", "make deploy")
    assert not blocks(watching, "bash", "make test")
    watching.began("4", "write", {"path": "a"})
    assert not blocks(watching, "bash", "make deploy")
    assert watching.reject("none") is None


def test_equal_calls_in_another_order_are_the_same_sequence() -> None:
    kept = Kept()
    watching = Sentinel(GovernanceConfig(trajectory_enabled=True, block_risky_patterns=True, window=3), kept)
    for number, order in enumerate((("a", "b"), ("b", "a"), ("a", "b"))):
        for path in order:
            watching.began(f"{path}{number}", "read" if path == "a" else "grep", {"path": path})
        assert not blocks(watching, "bash", "make deploy")
        watching.began(f"x{number}", "bash", {"command": "make deploy"})
        watching.ended(f"x{number}", "failed")
    assert (len(watching.blocking), len(kept.rows)) == (1, 1)


@given(st.integers(0, 6_000), st.integers(1, 40))
@settings(max_examples=examples(30))
def test_calls_are_never_equal_because_only_their_beginning_is(same: int, more: int) -> None:
    config = GovernanceConfig(trajectory_enabled=True, block_risky_patterns=True, window=2, similarity=1.0)
    watching = Sentinel(config, Kept())
    words = [f"w{number}" for number in range(same)]
    for number in range(FAILURES):
        watching.began("", "write", {})
        watching.began(str(number), "write", {"content": " ".join([*words, *["end"] * more, "one"])})
        watching.ended(str(number), "failed")
    watching.began("", "write", {})
    assert blocks(watching, "write", " ".join([*words, "end " * more, "one"]))
    assert not blocks(watching, "write", " ".join([*words, "end " * more, "other"]))


def test_what_failed_often_is_blocked_until_it_succeeds() -> None:
    watching = sentinel(learns=True)

    def call(outcome: str) -> None:
        watching.began("read", "read", {"path": "a"})
        watching.began("x", "bash", {"command": "make"})
        watching.ended("x", outcome)  # type: ignore[arg-type]
        watching.began("read", "read", {"path": "a"})

    for _ in range(FAILURES - 1):
        call("failed")
    assert not blocks(watching, "bash", "make")
    call("failed")
    assert blocks(watching, "bash", "make")
    call("succeeded")
    assert not blocks(watching, "bash", "make")


def test_an_equal_call_that_keeps_failing_is_blocked_whatever_came_before_it() -> None:
    watching = sentinel(learns=True)
    for number, tool in enumerate(("read", "write", "grep")):
        assert not blocks(watching, "bash", "make")
        watching.began("", tool, {})
        watching.began(str(number), "bash", {"command": "make"})
        watching.ended(str(number), "failed")
    watching.began("", "fetch", {})
    assert blocks(watching, "bash", "make") and not blocks(watching, "bash", "make test")
    assert len(watching.blocking) == 3
    watching.began("4", "bash", {"command": "make"})
    watching.ended("4", "succeeded")
    assert not blocks(watching, "bash", "make") and not watching.blocking


def test_what_succeeded_is_not_blocked_for_being_like_what_failed() -> None:
    config = GovernanceConfig(trajectory_enabled=True, block_risky_patterns=True, window=2, similarity=0.5)
    kept = Kept()
    watching = Sentinel(config, kept)

    def call(command: str, outcome: str) -> None:
        watching.began("", "read", {})
        watching.began("x", "bash", {"command": command})
        watching.ended("x", outcome)  # type: ignore[arg-type]
        watching.began("", "read", {})

    call("ls", "succeeded")
    assert not kept.rows
    call("make a b", "failed")
    call("make a c", "succeeded")
    for _ in range(2):
        call("make a b", "failed")
    assert blocks(watching, "bash", "make a d") and not blocks(watching, "bash", "make a c")
    watching.reject("x")
    assert blocks(watching, "bash", "make a c"), "what the user rejected outweighs it"


def test_what_a_policy_refused_is_learned_like_a_failure() -> None:
    made = Blocks(AnomalyDetector(AnomalyConfig()), sentinel(learns=True), ActionRate(0))
    for number in range(FAILURES):
        made.refused(CallFacts("bash", {"command": "terraform apply"}, (), str(number)))
    made.learn()
    assert (
        made.check(CallFacts("bash", {}, ()), [made.sentinel.step("bash", {"command": "terraform apply"})]) is not None
    )


# --- anomalies, rate ---------------------------------------------------------------------------------------------


def test_a_tool_that_fails_most_of_the_time_is_blocked_until_it_is_unblocked() -> None:
    seen: list[Anomaly] = []
    detector = AnomalyDetector(AnomalyConfig(window_size=10), seen.append)
    for number in range(10):
        detector.observed("fetch", failed=number >= 3)
    assert detector.blocks("fetch") is None  # seven of ten are not more than the threshold
    detector.observed("fetch", failed=True)
    assert str(detector.blocks("fetch")) == "8 of the last 10 calls of `fetch` failed"
    assert len(seen) == 1
    assert detector.blocks("read") is None and detector.unblock("fetch") and not detector.unblock("fetch")
    assert detector.blocks("fetch") is None
    now = 0.0
    passing = AnomalyDetector(AnomalyConfig(window_size=2, block_seconds=60), clock=lambda: now)
    passing.observed("a", failed=True)
    passing.observed("a", failed=True)
    assert passing.blocks("a") is not None
    now = 60.0
    assert passing.blocks("a") is None and not passing.unblock("a")
    told = AnomalyDetector(AnomalyConfig(window_size=2, auto_block=False), seen.append)
    told.observed("a", failed=True)
    told.observed("a", failed=True)
    assert told.blocks("a") is None
    assert len(seen) == 2


def test_a_rate_counts_the_last_hour_only() -> None:
    now = 0.0
    rate = ActionRate(2, lambda: now)
    rate.count()
    now = 10.0
    rate.count()
    assert rate.wait() == pytest.approx(HOUR - 10)
    now = HOUR + 1
    assert rate.used == 1 and rate.wait() == 0
    unlimited = ActionRate(0, lambda: now)
    for _ in range(5):
        unlimited.count()
    assert unlimited.wait() == 0


def test_what_is_blocked_is_one_list_and_can_be_lifted() -> None:
    made = Blocks(AnomalyDetector(AnomalyConfig(window_size=2)), sentinel(learns=True), ActionRate(1, lambda: 0.0))
    assert made.listed() == []
    call = CallFacts("bash", {"command": "make deploy"}, [ExecuteAccess("make deploy", Path("/srv"))], "1")
    made.began(call)
    made.sentinel.reject("1")
    for _ in range(2):
        made.anomalies.observed("fetch", failed=True)
    assert made.listed() == [
        Block("fetch", "2 of the last 2 calls of `fetch` failed"), Block("learned", "rejected: bash make deploy"),
        Block("hour", "1 calls changed something within an hour; wait 60 min for the next"),
    ]  # fmt: skip
    denied = made.check(call, made.steps(call, ()))
    assert denied is not None and denied.rule == "learned sequence"
    assert [made.lift(name) for name in ("fetch", "learned", "hour", "read")] == [True, True, True, False]
    assert made.listed() == [] and made.check(call, made.steps(call, ())) is None
