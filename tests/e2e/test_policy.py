"""`acp-coder policy` and what `doctor` reports about safety, as a user uses them."""

from pathlib import Path

import pytest

from .kit import configured
from .test_cli import run

RULES = """\
[[tools.permissions.bash]]
pattern = "*rm -rf*"
action = "deny"

[[tools.permissions.bash]]
pattern = "cargo *"
action = "allow"

[tools.policy]
rules = [{effect = "deny", tool = "write", paths = ["*/generated/*"]}]
"""

EXPECTED = """\
[[test]]
command = "cargo test && ls"
expect = "allow"
rule = "tools.permissions.bash[1]"

[[test]]
command = "bash -c 'rm -rf x'"
expect = "deny"

[[test]]
command = "touch a"
expect = "ask"

[[test]]
tool = "write"
arguments = {path = "generated/a", content = "x"}
expect = "deny"
rule = "policy"
"""


def explained(tmp_path: Path, *arguments: str, rules: str = RULES):
    return run(tmp_path, "policy", *arguments, **configured(tmp_path, rules))


def test_explain_shows_the_parts_their_verdicts_and_the_rule_with_its_place(tmp_path):
    done = explained(tmp_path, "explain", "cargo test && sudo id")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "ask: it uses another user's privileges"
    assert "cargo test: asks, since it may change something" in done.stdout
    assert "sudo id: asks, since it may change something [dangerous:sudo], risk high" in done.stdout
    assert f"{tmp_path}/config.toml:5)" in done.stdout
    denied = explained(tmp_path, "explain", "env X=1 rm -rf y")
    assert denied.stdout.startswith("deny: ")
    assert f"rule: tools.permissions.bash[0] deny `*rm -rf*` ({tmp_path}/config.toml:1)" in denied.stdout


def test_explain_knows_modes_folders_and_other_tools(tmp_path):
    (tmp_path / "project").mkdir()
    at = ("--cwd", str(tmp_path / "project"))
    assert explained(tmp_path, "explain", "touch a", "--mode", "ask", *at).stdout.startswith("deny: The mode `ask`")
    assert explained(tmp_path, "explain", "touch a", "--mode", "auto", *at).stdout.startswith("allow: ")
    assert explained(tmp_path, "explain", '{"path": "../x"}', "--tool", "read", *at).stdout.startswith("deny: ")
    policy = explained(tmp_path, "explain", '{"path": "generated/x", "content": ""}', "--tool", "write", *at)
    assert "policy: tools.policy.rules[0] deny write" in policy.stdout


@pytest.mark.parametrize(("arguments", "words"), [
    (["explain", "x", "--tool", "nonsense"], "Unknown tool `nonsense`"),
    (["explain", "x", "--tool", "read"], "not JSON"), (["explain", "{}", "--tool", "read"], "wrong"),
    (["explain", "x", "--cwd", "/does/not/exist"], "not an existing folder"), (["test", "none.toml"], "none.toml"),
    (["explain"], "required"),
])  # fmt: skip
def test_a_wrong_question_gets_a_sentence(tmp_path, arguments, words):
    done = explained(tmp_path, *arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_expected_verdicts_are_held_against_the_rules(tmp_path):
    (tmp_path / "expected.toml").write_text(EXPECTED)
    done = explained(tmp_path, "test", "expected.toml")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "4 of 4 as expected")
    done = explained(tmp_path, "test", "expected.toml", rules=RULES.replace('"deny"', '"ask"', 1))
    assert done.returncode == 1 and "BAD 2. bash -c 'rm -rf x': ask, expected deny" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 of 4 as expected"


@pytest.mark.parametrize(("text", "words"), [
    ("", "test"), ("[[test]]\nexpect = 'allow'\n", "give either `command`"),
    ("[[test]]\ncommand = 'ls'\nexpect = 'perhaps'\n", "'allow', 'ask', 'deny'"),
    ("[[test]]\ncommand = 'ls'\n", "expect"), ("x", "expected.toml"),
])  # fmt: skip
def test_a_file_that_cannot_be_understood_is_no_success(tmp_path, text, words):
    (tmp_path / "expected.toml").write_text(text)
    done = explained(tmp_path, "test", "expected.toml")
    assert done.returncode == 2 and words in done.stderr


def test_a_rule_that_cannot_be_read_is_no_success_and_an_untrusted_one_is_not_read(tmp_path):
    rules = '[tools.policy]\nrules = [{effect = "deny", tool = "bash", args_match = "(("}]\n'
    done = explained(tmp_path, "explain", "ls", rules=rules)
    assert done.returncode == 2 and "not a regular expression" in done.stderr
    (tmp_path / ".acp-coder").mkdir()
    (tmp_path / ".acp-coder/config.toml").write_text("this is not TOML")
    done = run(tmp_path, "config", "show")
    assert done.returncode == 0


def test_doctor_says_how_commands_are_confined_and_what_is_written_down(tmp_path):
    config = configured(tmp_path, '[tools.sandbox]\nnetwork = "deny"\n')
    done = run(tmp_path, "doctor", "--offline", "--all", **config, ACP_CODER_SANDBOX_DISABLED="false")
    assert "ok  sandbox" in done.stdout and "bubblewrap" in done.stdout
    assert "Network: none. Unix sockets: none." in done.stdout and f"Writable: {tmp_path}" in done.stdout
    assert f"ok  audit log        {tmp_path}/.local/state/acp-coder/audit.jsonl" in done.stdout
    assert "turned off by tools.sandbox.disabled" in run(tmp_path, "doctor", "--offline", "--all").stdout


EACH_KIND = """
[tools]
bash.blocked_commands = ["shutdown"]
permissions.write = [{ pattern = "*.md", action = "allow" }, { pattern = "*.lock", action = "deny" }]
policy = { enabled = true, default = "deny", rules = [{ tool = "read", effect = "allow", paths = ["/tmp/**"] }] }
authorization = { enabled = true, rules = [{ tool = "fetch", effect = "deny" }] }
governance = { trajectory_enabled = true, blocked_sequences = [["read", "fetch"]] }
scoped = { enabled = true, denied_tools = ["browser"], constraints = [{ tool = "bash" }] }
risk = { block_high_risk_commands = true, allowed_commands = ["git"], forbidden_paths = ["~/.ssh"] }
"""
BECOME = {
    "tools.bash.blocked_commands": ["permissions: tools.bash.blocked_commands[0] deny `*shutdown*` (FILE:3)"],
    "tools.permissions.write": [
        "permissions: tools.permissions.write[0] allow `*.md` (FILE:4)",
        "permissions: tools.permissions.write[1] deny `*.lock` (FILE:4)",
    ],
    "tools.policy.default": ["policy: default deny"],
    "tools.policy.rules": ["policy: tools.policy.rules[0] allow read paths=/tmp/** (FILE:5)"],
    "tools.authorization.rules": ["policy: tools.authorization.rules[0] deny fetch (FILE:6)"],
    "tools.governance.blocked_sequences": ["sequences: tools.governance.blocked_sequences[0] deny read fetch (FILE:7)"],
    "tools.scoped.denied_tools": ["limits: tools.scoped.denied_tools deny browser"],
    "tools.scoped.constraints": ["limits: tools.scoped.constraints[0] deny bash beyond its limit (FILE:8)"],
    "tools.risk.block_high_risk_commands": ["commands: tools.risk deny high-risk commands"],
    "tools.risk.allowed_commands": [
        "commands: tools.risk.allowed_commands deny commands that call other programs than git (FILE:9)"
    ],
    "tools.risk.forbidden_paths": ["commands: tools.risk.forbidden_paths deny commands that name ~/.ssh (FILE:9)"],
}


def test_config_show_names_the_rules_that_each_key_became(tmp_path):
    config = configured(tmp_path, EACH_KIND)
    shown: dict[str, list[str]] = {}
    key = ""
    for line in run(tmp_path, "config", "show", **config).stdout.splitlines():
        if line.startswith("    # "):
            shown[key].append(line.removeprefix("    # ").replace(config["ACP_CODER_CONFIG"], "FILE"))
        else:
            key = line.partition(" = ")[0]
            shown[key] = []
    assert {key: rules for key, rules in shown.items() if rules} == BECOME
