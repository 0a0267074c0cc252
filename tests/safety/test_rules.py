"""`[tools.permissions]`, `[tools.policy]`, `[tools.scoped]`, sentinel, anomalies and rate: tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_agent.config.model import BashConfig
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
from acp_agent.safety.deciding.anomaly import Anomaly, AnomalyDetector
from acp_agent.safety.deciding.authorization import MAX_RULES, Policy, Subject
from acp_agent.safety.deciding.rate import HOUR, ActionRate
from acp_agent.safety.deciding.scoped import Approvals, Scoped
from acp_agent.safety.deciding.tool_patterns import Permissions
from acp_agent.safety.deciding.trajectory import FAILURES, Sentinel
from acp_agent.safety.globs import PathGlobs, matches

# --- globs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("cargo *", "cargo test --all", True),
        ("cargo *", "CARGO test", True),
        ("cargo *", "cargo", True),
        ("cargo *", "cargotest", False),
        ("*sudo*", "a\nsudo b", True),
        ("git status", "git status -s", False),
        ("a?c", "abc", True),
        ("a[bx]c", "axc", True),
        ("a[!bx]c", "axc", False),
        ("*" * 200 + "x", "y" * 5000, False),
    ],
)
def test_a_glob_stands_for_the_whole_text_whatever_its_case(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        (".env", "/srv/app/.env", True),
        (".env", "/srv/app/a/b/.env", True),
        (".env", "/srv/app-evil/.env", False),
        (".env", "/srv/app/.env/key", True),
        (".env*", "/srv/app/.env.local", True),
        ("secrets/", "/srv/app/secrets/a/b", True),
        ("secrets/*.key", "/srv/app/secrets/a.key", True),
        ("secrets/*.key", "/srv/app/x/secrets/a.key", False),
        ("**/secrets/*.key", "/srv/app/x/secrets/a.key", True),
        ("~/.ssh", "/home/u/.ssh/id", True),
        ("~/.ssh", "/home/u/.sshx", False),
        ("/etc/*.conf", "/etc/a.conf", True),
    ],
)
def test_path_globs_hold_below_the_folders_and_for_all_that_is_below_a_match(
    pattern: str, path: str, expected: bool
) -> None:
    globs = PathGlobs([pattern], [Path("/srv/app")], Path("/home/u"))
    assert globs.matches(Path(path)) is expected


def test_a_folder_whose_name_holds_wildcards_is_taken_literally() -> None:
    globs = PathGlobs([".env"], [Path("/srv/a[b]*")], None)
    assert globs.matches(Path("/srv/a[b]*/.env"))
    assert not globs.matches(Path("/srv/ab/.env"))


# --- permissions -------------------------------------------------------------------------------------------------


def rules(*lines: tuple[str, str], tool: str = "bash") -> Permissions:
    listed = [PermissionRule(pattern, action) for pattern, action in lines]  # type: ignore[arg-type]
    return Permissions.from_config({tool: listed}, BashConfig(), lambda key, index: f"c.toml:{index + 1}")


def test_the_first_rule_that_matches_decides_and_says_where_it_stands() -> None:
    known = rules(("*sudo*", "deny"), ("cargo *", "allow"), ("*", "ask"))
    for text, action in (("sudo x", "deny"), ("cargo test", "allow"), ("cargo sudo", "deny"), ("ls", "ask")):
        found = known.first("bash", [text])
        assert found is not None
        assert found.action == action
    assert str(known.first("bash", ["sudo x"])) == "tools.permissions.bash[0] deny `*sudo*` (c.toml:1)"
    assert rules(("cargo *", "allow")).first("bash", ["ls"]) is None


def test_a_tool_is_hidden_where_nothing_of_it_can_be_allowed() -> None:
    assert rules(("*", "deny")).hides("bash") is not None
    assert rules(("x", "deny"), ("*", "deny")).hides("bash") is not None
    assert rules(("x", "ask"), ("*", "deny")).hides("bash") is None
    assert rules(("*", "deny")).hides("read") is None
    assert rules(("*", "deny"), tool="mcp_*").hides("mcp_forge_push") is not None


def test_a_tools_own_rules_come_before_those_of_a_glob() -> None:
    lists = {"*": [PermissionRule("*", "deny")], "read": [PermissionRule("*", "allow")]}
    known = Permissions.from_config(lists, BashConfig())
    assert [rule.action for rule in known.of("read")] == ["allow", "deny"]
    assert known.hides("read") is None
    assert known.hides("write") is not None


def test_older_keys_become_rules_where_bash_has_none() -> None:
    bash = BashConfig(blocked_commands=["rm -rf", "[x]?"], confirm_patterns=["git push"])
    known = Permissions.from_config({}, bash)
    for text, action in (("a; rm -rf b", "deny"), ("git push origin", "ask"), ("run [x]? y", "deny")):
        found = known.first("bash", [text])
        assert found is not None
        assert found.action == action
    assert known.first("bash", ["run xy"]) is None
    both = Permissions.from_config({"bash": [PermissionRule("*", "allow")]}, bash)
    assert [rule.action for rule in both.of("bash")] == ["allow"]


# --- policy ------------------------------------------------------------------------------------------------------


def policy(*listed: PolicyRule, default: str = "allow", more: tuple[PolicyRule, ...] = ()) -> Policy:
    return Policy(
        PolicyConfig(default=default, rules=list(listed)),  # type: ignore[arg-type]
        AuthorizationConfig(enabled=bool(more), rules=list(more)),
        {"STAGE": "prod"},
        lambda key, index: f"c.toml:{index}",
    )


def subject(tool: str = "bash", *texts: str, paths: tuple[str, ...] = ()) -> Subject:
    return Subject(tool, texts, texts, tuple(map(Path, paths)))


SUDO = PolicyRule("deny", "bash", args_match="sudo")
HOME = PolicyRule("allow", "read", paths=["/home/*"])


@pytest.mark.parametrize(
    ("made", "asked", "effect"),
    [
        (policy(SUDO), subject("bash", "sudo x"), "deny"),
        (policy(SUDO), subject("bash", "ls"), "allow"),
        (policy(SUDO), subject("read", "sudo x"), "allow"),
        (policy(PolicyRule("allow", "bash"), SUDO), subject("bash", "sudo x"), "deny"),
        (policy(SUDO, PolicyRule("allow", "bash")), subject("bash", "sudo x"), "deny"),
        (policy(HOME, default="deny"), subject("read", paths=("/home/u/a",)), "allow"),
        (policy(HOME, default="deny"), subject("read", paths=("/homes/u/a",)), "deny"),
        (policy(HOME, default="deny"), subject("read", paths=("/home/u/a", "/etc/passwd")), "deny"),
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
    ],
)
def test_a_deny_wins_an_allow_must_match_all_and_the_default_decides_the_rest(
    made: Policy, asked: Subject, effect: str
) -> None:
    assert made.decide(asked).effect == effect


def test_the_trace_names_the_rule_and_its_place() -> None:
    assert policy(HOME, SUDO).decide(subject("bash", "sudo x")).trace == (
        "tools.policy.rules[1] deny bash args_match=sudo (c.toml:1)"
    )


def test_a_rule_that_cannot_be_read_denies_every_call_of_its_tools() -> None:
    made = policy(PolicyRule("allow", "bash", args_match="(("))
    assert "no regular expression" in made.trouble[0]
    assert made.decide(subject("bash", "ls")).effect == "deny"
    assert made.decide(subject("read")).effect == "allow"


def test_more_rules_than_there_may_be_deny_everything() -> None:
    many = tuple(PolicyRule("allow", "read") for _ in range(MAX_RULES // 2 + 1))
    made = policy(*many, more=many)
    assert made.trouble
    assert made.decide(subject("read")).effect == "deny"


def test_a_pattern_of_more_than_1024_bytes_denies_everything() -> None:
    long = policy(PolicyRule("deny", "bash", args_match="ä" * 600))
    assert "1024 bytes" in long.trouble[0]
    assert long.decide(subject("read")).effect == "deny"
    assert policy(PolicyRule("deny", "bash", args_match="a" * 1024)).decide(subject("read")).effect == "allow"


# --- scoped ------------------------------------------------------------------------------------------------------


def test_an_allow_list_of_tools_makes_the_deny_list_moot() -> None:
    both = Scoped(ScopedConfig(allowed_tools=["read", "mcp_*"], denied_tools=["read"]), None)
    assert both.hides("read") is None
    assert both.hides("mcp_x") is None
    assert both.hides("bash") == "tools.scoped.allowed_tools"
    denied = Scoped(ScopedConfig(denied_tools=["bash"]), None)
    assert denied.hides("bash") == "tools.scoped.denied_tools"
    assert not Scoped(ScopedConfig(enabled=False, denied_tools=["bash"]), None).hides("bash")


@pytest.mark.parametrize(
    ("constraint", "arguments", "more", "broken"),
    [
        (ScopedConstraint("bash", deny_patterns=["rm -rf"]), {"command": "RM -RF x"}, [], True),
        (ScopedConstraint("bash", deny_patterns=["rm -rf"]), {"command": "r\\m -rf x"}, ["rm -rf x"], True),
        (ScopedConstraint("bash", deny_patterns=["rm -rf"]), {"command": "ls"}, [], False),
        (ScopedConstraint("bash", "description", deny_patterns=["ls"]), {"command": "ls"}, [], False),
        (ScopedConstraint("bash", "command", allow_patterns=["ls *", "cat *"]), {"command": "ls -l"}, [], False),
        (ScopedConstraint("bash", "command", allow_patterns=["ls *"]), {"command": "rm"}, [], True),
        (ScopedConstraint("bash", "command", allow_patterns=["ls *"]), {}, [], True),
        (ScopedConstraint("read"), {"command": "x"}, [], False),
    ],
)
def test_constraints_of_arguments(constraint: ScopedConstraint, arguments: dict, more: list, broken: bool) -> None:
    found = Scoped(ScopedConfig(constraints=[constraint]), None).check("bash", arguments, (), (), more)
    assert (found is not None) is broken


def test_paths_and_hosts_are_held_to_theirs(tmp_path: Path) -> None:
    constraint = ScopedConstraint("*", allowed_paths=[str(tmp_path / "a")], allowed_hosts=["*.example.com"])
    scoped = Scoped(ScopedConfig(constraints=[constraint]), None)
    assert scoped.check("write", {}, [tmp_path / "a/b"], ["x.example.com"], ()) is None
    assert "not below" in scoped.check("write", {}, [tmp_path / "ab"], [], ()).reason  # type: ignore[union-attr]
    assert "not among the hosts" in scoped.check("fetch", {}, [], ["example.org"], ()).reason  # type: ignore[union-attr]


def test_an_approval_covers_the_same_call_once() -> None:
    approvals = Approvals()
    approvals.violated("1234", "bash", {"command": "x"}, "rule 1")
    assert approvals.find("9") is None
    approvals.approve(approvals.find("12"))  # type: ignore[arg-type]
    assert not approvals.take("bash", {"command": "y"})
    assert approvals.take("bash", {"command": "x"}) == {"rule 1"}
    assert not approvals.take("bash", {"command": "x"})


def test_an_approval_covers_one_limit_and_is_not_used_up_by_another() -> None:
    constraints = [ScopedConstraint("bash", deny_patterns=["a"]), ScopedConstraint("bash", deny_patterns=["b"])]
    scoped = Scoped(ScopedConfig(constraints=constraints), None)
    first, second = "tools.scoped.constraints[0]", "tools.scoped.constraints[1]"

    def broken(*approved: str) -> str | None:
        found = scoped.check("bash", {"command": "a b"}, (), (), (), approved=frozenset(approved))
        return found.rule if found is not None else None

    assert [broken(), broken(first), broken(first, second)] == [first, second, None]


# --- sentinel ----------------------------------------------------------------------------------------------------


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


class Row:
    def __init__(self, steps: str, failures: int, rejected: bool) -> None:
        self.steps, self.failures, self.rejected = steps, failures, rejected


def sentinel(*sequences: list[str], learns: bool = False, enabled: bool = True) -> Sentinel:
    config = GovernanceConfig(
        trajectory_enabled=enabled, block_risky_patterns=learns, blocked_sequences=list(sequences), window=2
    )
    return Sentinel(config, Kept(), {"bash", "read", "write", "fetch"}.__contains__)


@pytest.mark.parametrize(
    ("sequence", "calls", "blocked"),
    [
        (["bash", "rm", "-rf", "/"], [("bash", "rm -rf /")], True),
        (["bash", "rm", "-rf", "/"], [("bash", "sudo 'rm' -rf /;ls")], True),
        (["bash", "rm", "-rf", "/"], [("bash", "rm -rf /tmp/x")], False),
        (["bash", "rm", "-rf", "/"], [("bash", "ls / -rf rm")], False),
        (["write", "config.toml", "password"], [("write", "a/config.toml my_PASSWORD=1")], True),
        (["write", "config.toml", "password"], [("read", "config.toml password")], False),
        (["read", ".env", "fetch"], [("read", "x/.env"), ("bash", "ls"), ("fetch", "https://a.b")], True),
        (["read", ".env", "fetch"], [("fetch", "https://a.b"), ("read", "x/.env")], False),
        (["read", ".env", "fetch"], [("read", "x"), ("fetch", "https://a.b")], False),
    ],
)
def test_a_blocked_sequence_blocks_the_call_that_would_complete_it(
    sequence: list[str], calls: list[tuple[str, str]], blocked: bool
) -> None:
    watching, idle = sentinel(sequence), sentinel(sequence, enabled=False)
    *before, (tool, text) = calls
    for number, (earlier, words) in enumerate(before):
        assert watching.check(earlier, {"x": words}) is None
        watching.began(str(number), earlier, {"x": words})
    assert (watching.check(tool, {"x": text}) is not None) is blocked
    assert idle.check(tool, {"x": text}) is None


def test_what_the_person_rejected_is_blocked_and_only_in_the_same_surroundings() -> None:
    watching = sentinel(learns=True)
    watching.began("1", "read", {"path": "a"})
    watching.began("2", "bash", {"command": "make deploy"})
    assert watching.reject("2") == "bash"
    watching.began("3", "read", {"path": "other"})
    assert watching.check("bash", {"command": "make deploy"}) is not None
    assert watching.check("bash", {"command": "make test"}) is None
    watching.began("4", "write", {"path": "a"})
    assert watching.check("bash", {"command": "make deploy"}) is None
    assert watching.reject("none") is None


def test_what_failed_often_is_blocked_until_it_succeeds() -> None:
    watching = sentinel(learns=True)

    def call(outcome: str) -> None:
        watching.began("read", "read", {"path": "a"})
        watching.began("x", "bash", {"command": "make"})
        watching.ended("x", outcome)  # type: ignore[arg-type]
        watching.began("read", "read", {"path": "a"})

    for _ in range(FAILURES - 1):
        call("failed")
    assert watching.check("bash", {"command": "make"}) is None
    call("failed")
    assert watching.check("bash", {"command": "make"}) is not None
    call("succeeded")
    assert watching.check("bash", {"command": "make"}) is None


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
    assert detector.blocks("read") is None
    assert detector.unblock("fetch")
    assert not detector.unblock("fetch")
    assert detector.blocks("fetch") is None
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
    assert rate.used == 1
    assert rate.wait() == 0
    unlimited = ActionRate(0, lambda: now)
    for _ in range(5):
        unlimited.count()
    assert unlimited.wait() == 0
