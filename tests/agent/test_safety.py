"""Rules, policy, limits, sandbox, audit and trust as experienced by the user and the model."""

import json
import os
import pwd
import subprocess
import tempfile
from pathlib import Path

import anyio
import pytest

from acp_agent.client.permissions import allow_always, allow_once, reject_always, reject_once
from acp_agent.executors.sandbox import probe
from acp_agent.loop.shell import folder_sandbox, free_disk
from acp_agent.safety.lines import line
from acp_agent.testing.fake_model import Answer, Call
from tests.forked import COMMAND
from tests.repositories import git, repository
from tests.waits import until

from .kit import asks, audit, bash, confined, put, results, rig, rounds, went

ALLOW_TOUCH = '[[tools.permissions.bash]]\npattern = "touch *"\naction = "allow"\n'
DENY_SUDO = '[[tools.permissions.bash]]\npattern = "*sudo*"\naction = "deny"\n'
DENY_RMDIR = '[[tools.permissions.bash]]\npattern = "*rmdir*"\naction = "deny"\n'
ASK_LS = '[[tools.permissions.bash]]\npattern = "ls *"\naction = "ask"\n'


@pytest.mark.parametrize("mode", ["code", "auto"])
async def test_forbidden_paths_hold_for_file_tools_and_mentions_as_for_commands(tmp_path, mode):
    """With the home folder as the project, keys are in it."""
    home = tmp_path / "home"
    put(home / ".ssh" / "id_rsa", "tangerine")
    (home / "link").symlink_to(".ssh")
    calls = [
        Call("read", {"path": ".ssh/id_rsa"}), Call("read", {"path": "link/id_rsa"}),
        Call("grep", {"pattern": "tan", "path": "."}), Call("list_directory", {"path": ".ssh"}),
        Call("copy_path", {"source": ".ssh/id_rsa", "destination": "a"}),
        Call("copy_path", {"source": ".ssh", "destination": "b"}),
        Call("move_path", {"source": ".ssh", "destination": "c"}),
        Call("write", {"path": ".ssh/authorized_keys", "content": "x"}), Call("delete_path", {"path": ".ssh"}),
    ]  # fmt: skip
    async with went(tmp_path, rounds(*calls), folder=home, mode=mode, prompt="go @.ssh/id_rsa") as r:
        assert "tangerine" not in str([request.body for request in r.model.requests])
        assert not r.editor.permission_requests
        said = results(r, len(calls) + 1)
        assert sum("tools.risk.forbidden_paths" in text for text in said) >= 7, said
        assert sorted(path.name for path in (home / ".ssh").iterdir()) == ["id_rsa"]
        assert not any((home / name).exists() for name in "abc")
    async with went(tmp_path, rounds(Call("read", {"path": "id_rsa"})), folder=home / ".ssh") as r:
        assert "tangerine" in results(r, 2)[0], "opened on purpose"


async def test_an_unrelated_rule_does_not_answer_the_question_about_what_a_command_reads(tmp_path):
    put(tmp_path / "other" / "secret", "tangerine")
    calls = rounds(bash("cat < ../other/secret"), bash("cat < /dev/tcp/127.0.0.1/9"))
    async with went(tmp_path, calls, config=DENY_SUDO, permissions=[reject_once, reject_once], mode="code") as r:
        assert len(r.editor.permission_requests) == 2
        assert "tangerine" not in str(r.messages(3))


async def test_the_line_of_a_call_is_parsed_once(tmp_path, monkeypatch):
    """By whoever looks at it: the access, the rules, hints, the choice of a filter, the observation for the model."""
    texts: list[str] = []
    parse = line.Parser

    class Counting:
        def __init__(self, language: object) -> None:
            self._parser = parse(language)

        def parse(self, source: bytes) -> object:
            texts.append(source.decode())
            return self._parser.parse(source)

    monkeypatch.setattr(line, "Parser", Counting)
    line.read.cache_clear()
    command = "mkdir made && ls -a 2>&1 | tail -5; bash -c 'echo inner'"
    async with went(tmp_path, rounds(bash(command)), config=ALLOW_TOUCH, otherwise=allow_once) as r:
        assert "inner" in results(r, 2)[0]
    assert [text for text in texts if text in command] == [command, "echo inner"]


# --- rules -------------------------------------------------------------------------------------------------------


async def test_a_rule_answers_the_question_and_covers_every_part_of_a_line(tmp_path):
    script = rounds(bash("touch a && touch b"), bash("touch c; chmod 600 c"))
    async with went(tmp_path, script, config=ALLOW_TOUCH, otherwise=reject_once) as r:
        assert sorted(path.name for path in r.project.iterdir()) == ["a", "b"]
        (asked,) = r.editor.permission_requests
        assert asked.tool_call.title == "touch c; chmod 600 c"


ECHO_ONLY = '[[tools.scoped.constraints]]\ntool = "bash"\nparameter = "command"\nallow_patterns = ["echo *"]\n'
LISTED = '[tools.risk]\nallowed_commands = ["echo", "ls"]\n'
DENIED = "A user's rule denies this call (tools.permissions.bash[0])"
NAMES = {
    "rule": '[[tools.permissions.run_command]]\npattern = "*touch*"\naction = "deny"\n',
    "policy": '[tools.policy]\nrules = [{effect = "deny", tool = "shell", args_match = "touch"}]\n',
    "limit": '[tools.scoped]\ndenied_tools = ["run_shell"]\n',
}


@pytest.mark.parametrize(("config", "command", "told"), [
    *((DENY_RMDIR, dressed, DENIED) for dressed in ("rmdir x", "r\\mdir x", "env A=1 rmdir x", "echo; rmdir x")),
    (DENY_RMDIR, "bash -c 'rm''dir x'", DENIED), (NAMES["rule"], "touch a", DENIED),
    (NAMES["policy"], "touch a", "The policy denied this call"), (NAMES["limit"], "touch a", "tools.scoped"),
    ("[tools.risk]\nblock_high_risk_commands = true\n", "sudo -n true", "High-risk commands are blocked"),
    ("", "cat ~/.ssh/id_rsa", "tools.risk.forbidden_paths"), ("", "cat $HOME/.ssh/id", "tools.risk.forbidden_paths"),
    ("", "tar cf x.tar ~/.ssh", "tools.risk.forbidden_paths"), ("", "ls /etc/shadow", "tools.risk.forbidden_paths"),
    (LISTED, "echo a; touch b", "`touch` is not among the allowed programs"),
    (ECHO_ONLY, "echo a; touch b", "must look like"), (ECHO_ONLY, "echo a\ntouch b", "must look like"),
    (ECHO_ONLY, "echo $(touch b)", "must look like"),
    ('[tools.scope]\nrun_as_user = "nobody-of-that-name"\n', "touch a", "does not exist on this machine"),
])  # fmt: skip
async def test_what_is_forbidden_is_not_run_and_the_model_hears_why(tmp_path, config, command, told):
    """`execute_bash` is another name of `bash`."""
    async with went(tmp_path, rounds(Call("execute_bash", {"command": command})), config=config, mode="auto") as r:
        assert told in results(r, 2)[0]
        assert not r.editor.permission_requests
        assert list(r.project.iterdir()) == []


@pytest.mark.parametrize(("config", "command"), [
    ('[tools.risk]\nautonomy = "full"\n', "sudo -n echo fine || echo fine"), (LISTED, "echo fine"),
    (ECHO_ONLY, "echo fine"), (ECHO_ONLY, "echo a > b; echo fine"),
])  # fmt: skip
async def test_what_is_not_forbidden_runs_unasked(tmp_path, config, command):
    async with went(tmp_path, rounds(bash(command)), config=config, mode="auto") as r:
        assert not r.editor.permission_requests
        assert "fine\n" in results(r, 2)[0]


async def test_a_rule_that_asks_asks_in_every_mode_is_named_and_is_answered_by_a_remembered_answer(tmp_path):
    script = rounds(bash("ls -a"), bash("ls -a"))
    async with went(tmp_path, script, config=ASK_LS, mode="auto", otherwise=allow_always) as r:
        (asked,) = r.editor.permission_requests
        words = asked.tool_call.content[-1].content.text
        assert "tools.permissions.bash[0] ask `ls *`" in words and "config.toml:1" in words


async def test_a_tool_that_is_wholly_denied_is_not_offered_and_does_not_run(tmp_path):
    config = '[[tools.permissions.bash]]\npattern = "*"\naction = "deny"\n'
    async with went(tmp_path, rounds(bash("touch a")), config=config) as r:
        assert "bash" not in r.tool_names(1) and "read" in r.tool_names(1)
        assert not (r.project / "a").exists()
        assert "is denied" in results(r, 2)[0]


async def test_paths_are_matched_as_they_are_shown_and_protected_ones_must_be_named(tmp_path):
    config = '[[tools.permissions.write]]\npattern = "*"\naction = "allow"\n'
    script = rounds(
        Call("write", {"path": "a.txt", "content": "x"}), Call("write", {"path": ".vscode/tasks.json", "content": "{}"})
    )
    async with went(tmp_path, script, config=config, otherwise=reject_once) as r:
        (asked,) = r.editor.permission_requests
        assert "`.vscode` is loaded by VS Code" in asked.tool_call.content[-1].content.text
        assert (r.project / "a.txt").exists() and not (r.project / ".vscode").exists()


# --- policy ------------------------------------------------------------------------------------------------------

POLICY = """[tools.policy]
rules = [
  {effect = "allow", tool = "bash"},
  {effect = "deny", tool = "bash", args_match = "hostile"},
]
"""


async def test_the_model_hears_only_that_the_policy_denied_it_and_the_audit_log_which_rule(tmp_path):
    async with went(tmp_path, rounds(bash("echo hostile"), bash("echo fine")), config=POLICY, mode="auto") as r:
        told = results(r, 2)[0]
        assert "The policy denied this call" in told and "hostile" not in told and "rules[1]" not in told
        assert "fine" in results(r, 3)[1]
    denied, allowed, ended = audit(tmp_path)
    assert denied["decision"] == "deny"
    assert denied["policy_match"].startswith("tools.policy.rules[1] deny bash args_match=hostile (")
    assert denied["policy_match"].endswith("config.toml:4)")
    assert (allowed["decision"], ended["result"], ended["exit_code"]) == ("allow", "completed", 0)


async def test_no_answer_of_a_person_bypasses_the_policy(tmp_path):
    config = '[tools.policy]\ndefault = "deny"\nrules = [{effect = "allow", tool = "read"}]\n' + ALLOW_TOUCH
    async with went(tmp_path, rounds(bash("touch a")), config=config, mode="auto", otherwise=allow_always) as r:
        assert not (r.project / "a").exists()
        assert not r.editor.permission_requests


async def test_a_policy_that_cannot_be_read_is_told_and_denies(tmp_path):
    config = '[tools.policy]\nrules = [{effect = "deny", tool = "bash", args_match = "(("}]\n'
    async with went(tmp_path, rounds(bash("echo a")), config=config, mode="auto") as r:
        assert "not a regular expression" in r.editor.text()
        assert "The policy denied this call" in results(r, 2)[0]


# --- limits of tools ---------------------------------------------------------------------------------------------

SCOPED = '[[tools.scoped.constraints]]\ntool = "bash"\ndeny_patterns = ["touch"]\n'


async def test_a_violation_is_told_and_the_person_may_let_that_one_call_pass(tmp_path):
    script = [*rounds(bash("touch a")), *rounds(bash("touch b"), bash("touch a"), bash("touch a"))]
    async with went(tmp_path, script, config=SCOPED, mode="auto") as r:
        assert "`touch` must not occur in it" in results(r, 2)[0]
        assert "No such call was stopped" in await r.says("/approve nonsense")
        mark = results(r, 2)[0].split("/approve ")[1].split("`")[0]
        await r.says(f"/approve {mark}", "again")
        assert sorted(path.name for path in r.project.iterdir()) == ["a"]
        assert [("must not occur" in text) for text in results(r, 6)[-3:]] == [True, False, True]


# --- risk --------------------------------------------------------------------------------------------------------


async def test_dangerous_commands_are_asked_about_in_every_mode_and_each_time(tmp_path):
    script = rounds(bash("sudo -n true"), bash("sudo -n true"))
    async with went(tmp_path, script, mode="auto", otherwise=allow_always) as r:
        assert len(r.editor.permission_requests) == 2
        asked = r.editor.permission_requests[0]
        assert {option.kind for option in asked.options} == {"allow_once", "reject_once"}
        assert "Risk: high" in asked.tool_call.content[-1].content.text


async def test_readonly_autonomy_changes_nothing_in_any_mode(tmp_path):
    script = rounds(bash("touch a"), Call("write", {"path": "b", "content": "x"}), Call("read", {"path": "c"}))
    files = {"c": "here\n"}
    async with went(tmp_path, script, config='[tools.risk]\nautonomy = "readonly"\n', mode="auto", files=files) as r:
        assert sorted(path.name for path in r.project.iterdir()) == ["c"]
        assert "here" in results(r, 4)[2]


async def test_changing_calls_are_counted_by_the_hour(tmp_path):
    script = rounds(bash("touch a"), bash("touch b"), Call("list_directory", {"path": "."}))
    async with went(tmp_path, script, config="[tools.risk]\nmax_actions_per_hour = 1\n", mode="auto") as r:
        assert sorted(path.name for path in r.project.iterdir()) == ["a"]
        assert "max_actions_per_hour" in results(r, 3)[1]
        assert "a" in results(r, 4)[2]


async def test_the_model_must_say_what_it_thinks_of_the_risk_and_is_not_believed(tmp_path):
    right = {"risk": "medium", "mutation": True, "privesc": False, "why": "to create it"}
    said = {"risk": "low", "mutation": False, "privesc": False, "why": "to look"}
    script = rounds(bash("touch a"), bash("touch a", **said), bash("touch b", **right))
    async with went(tmp_path, script, config="[tools]\nrequire_risk_metadata = true\n" + ALLOW_TOUCH) as r:
        (definition,) = [tool for tool in r.request(1)["tools"] if tool["function"]["name"] == "bash"]
        assert {"risk", "mutation", "privesc", "why"} <= set(definition["function"]["parameters"]["required"])
        assert "`risk`, `mutation`, `privesc`, `why` missing" in results(r, 2)[0]
        (asked,) = r.editor.permission_requests
        words = asked.tool_call.content[-1].content.text
        assert "the model understates the risk" in words
        assert "The model says: risk low, changes nothing, with your privileges. Why: to look" in words
        assert (r.project / "b").exists()


# --- what was learned --------------------------------------------------------------------------------------------


LEARNS = "[tools.governance]\ntrajectory_enabled = true\nblock_risky_patterns = true\nwindow = 2\n"


@pytest.mark.parametrize("more", ["", 'always_available = ["bash"]\n'], ids=["ordinary", "always available"])
async def test_a_rejected_call_is_not_repeated_in_a_later_session(tmp_path, more):
    config = LEARNS + more
    async with went(tmp_path, rounds(bash("touch a")), config=config, mode="auto") as r:
        assert "are not acceptable" in await r.says("/reject")
        (r.project / "a").unlink()
    async with went(tmp_path, rounds(bash("touch a"), bash("touch b")), config=config, mode="auto") as r:
        assert ("the user rejected before" in results(r, 2)[0]) is not bool(more)
        assert sorted(path.name for path in r.project.iterdir()) == (["a", "b"] if more else ["b"])
        await r.editor.prompt('/policy check bash {"command": "touch a"}')
        assert ("deny: Calls like this one the user rejected before" in r.editor.text()) is not bool(more)
        assert "Which call?" in await r.says("/policy check")


async def test_a_tool_that_always_fails_is_blocked_until_the_person_unblocks_it(tmp_path):
    config = "[tools.anomaly]\nwindow_size = 2\n[tools]\nrepeated_failures = 9\n"
    calls = [Call("read", {"path": f"pipe{number}"}) for number in range(3)]
    async with rig(tmp_path, [*rounds(*calls), "ok"], config=config, mode="auto") as r:
        for number in range(3):
            os.mkfifo(r.project / f"pipe{number}")
        await r.editor.prompt("go")
        assert "is blocked" in results(r, 4)[2]
        assert "2 of the last 2 calls of `read` failed" in await r.says("/unblock")
        assert "`read` may be used again." in await r.says("/unblock read")


# --- explained ---------------------------------------------------------------------------------------------------


async def test_the_person_can_ask_what_is_in_force_and_what_would_become_of_a_call(tmp_path):
    async with went(tmp_path, [], config=DENY_SUDO + POLICY, prompt="/policy status") as r:
        await r.says('/policy check bash {"command": "sudo id"}', '/policy check bash {"command": "ls"}')
        text = await r.says("/policy check nonsense {}", "/policy check bash nonsense", "/doctor")
        assert "Rule: tools.permissions.bash[0] deny `*sudo*`" in text
        assert "Policy: tools.policy.rules[1] deny bash" in text and "deny: A user's rule denies this call" in text
        assert "rule: looks:ls" in text and "Unknown tool `nonsense`" in text and "The arguments are not JSON" in text
        assert "turned off by tools.sandbox.disabled" in text and "audit.jsonl is written" in text


async def test_rules_that_would_have_saved_questions_are_proposed(tmp_path):
    script = rounds(bash("cargo test"), bash("cargo test --all"), bash("touch a"), bash("git commit -m x"))
    async with went(tmp_path, script, permissions=[allow_once, allow_once, allow_once, reject_once]) as r:
        text = await r.says("/permissions")
        assert '[[tools.permissions.bash]]  # would have saved 2 questions\npattern = "cargo test *"' in text
        assert "git commit" not in text


# --- audit -------------------------------------------------------------------------------------------------------


async def test_every_call_and_decision_is_written_down(tmp_path):
    outside = Call("write", {"path": "/etc/x", "content": "x"})
    calls = (bash("echo hi; exit 3"), Call("nonsense", {}), Call("read", {"path": "none"}), bash("touch no"), outside)
    async with went(tmp_path, rounds(*calls), permissions=[allow_once, reject_once]) as r:
        session = r.editor.session_id
    lines = audit(tmp_path)
    assert {line["caller_id"] for line in lines} == {session}
    seen = [(line["event"], line["tool"], line.get("decision") or line.get("result")) for line in lines]
    assert ("decision", "bash", "allowed_by_person") in seen and ("result", "bash", "failed") in seen
    assert ("result", "nonsense", "failed") in seen and ("result", "read", "failed") in seen
    assert ("decision", "bash", "rejected_by_person") in seen and seen[-1] == ("decision", "write", "deny")
    assert "outside this session's folders" in lines[-1]["reason"]
    ended = next(line for line in lines if line["event"] == "result" and line["tool"] == "bash")
    assert ended["exit_code"] == 3 and ended["duration_ms"] >= 0 and len(ended["turn"]) == 36
    decided = lines[0]
    assert json.loads(decided["arguments"]) == {"command": "echo hi; exit 3"}
    assert decided["sandbox"] == "none"


async def test_every_line_says_for_whom_in_what_scope_and_for_what_goal_it_was(tmp_path):
    put(tmp_path / "project/.agents/skills/tidy/SKILL.md", "Tidy up.")
    script = [
        Answer(text="a plan"),
        *rounds(bash("seq 100000"), bash("sleep 0.1; exit 4", background=True), bash("sleep 60", background=True)),
        Answer(text="bye"),
    ]
    async with went(tmp_path, script, mode="auto", prompt="/plan Clean the house") as r:
        await r.editor.prompt("/tidy all")
        await until(lambda: any(line.get("exit_code") == 4 for line in audit(tmp_path)))
        session = r.editor.session_id
    lines = audit(tmp_path)
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert {(line["user"], line["scope"], line["caller_id"]) for line in lines} == {(user, "auto supervised", session)}
    calls = [line for line in lines if line["event"] != "notice"]
    assert {line["skill"] for line in calls} == {"tidy"}
    assert {len(line["goal"]) for line in calls} == {36}
    (long,) = [line for line in calls if line.get("truncated")]
    assert long["output"].startswith("1\n")
    ended = {line["reason"]: line for line in lines if line["event"] == "notice" and "exit code 4" in line["reason"]}
    (line,) = ended.values()
    assert line["call_id"] in {call["call_id"] for call in calls}
    assert line["duration_ms"] > 0
    assert any("`sleep 60`" in line.get("reason", "") for line in lines), "one that ends with its session"
    done = subprocess.run(
        [COMMAND, "audit", "verify"], env={**r.environ, "PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.partition(": ")[2]) == (0, f"ok, {len(lines)} lines\n"), done.stderr


async def test_rotated_logs_in_the_project_are_the_agents_own_as_the_log_is(tmp_path):
    config = f'[audit]\nfile = "{tmp_path}/project/log.jsonl"\n'
    calls = (Call("read", {"path": "log.jsonl.1"}), "cat log.jsonl.?; echo x > log.jsonl.1; cat other.1")
    put(tmp_path / "project/log.jsonl.2", "hidden words")
    files = dict.fromkeys(("log.jsonl.1", "other.1"), "hidden words")  # Rotated once the session has begun.
    async with confined(tmp_path, *calls, config=config, files=files) as r:
        assert "it belongs to the agent" in results(r, 3)[0] and results(r, 3)[1].count("hidden words") == 1
    assert (tmp_path / "project/log.jsonl.1").read_text() == "hidden words"


async def test_no_tool_runs_where_the_log_is_required_and_cannot_be_written(tmp_path):
    config = f'[audit]\nrequired = true\nfile = "{tmp_path}/file/audit.jsonl"\n'
    (tmp_path / "file").write_text("")
    async with went(tmp_path, rounds(bash("touch a"), bash("touch b")), config=config, mode="auto") as r:
        assert list(r.project.iterdir()) == []
        assert r.editor.text().count("cannot be written") == 1


# --- the sandbox -------------------------------------------------------------------------------------------------


def hooks(project: Path) -> None:
    (project / ".git/hooks").mkdir(parents=True)


async def kinds(r) -> str:
    await r.editor.prompt("/doctor")
    return r.editor.text()


async def test_commands_are_confined_to_the_folders_of_the_session(tmp_path):
    put((outside := tmp_path / "outside") / "secret", "hidden words")
    tries = f"echo in > inside; echo out > {outside}/file; cat {outside}/secret; echo x > .git/hooks/pre-commit; true"
    async with confined(tmp_path, tries, before=hooks) as r:
        assert (r.project / "inside").read_text() == "in\n"
        assert not (outside / "file").exists()
        assert "hidden words" not in results(r, 2)[0]
        assert not (r.project / ".git/hooks/pre-commit").exists()
        assert "Sandbox:" in await kinds(r)
    assert [line["sandbox"] for line in audit(tmp_path) if line["event"] == "decision"] == ["bubblewrap"]


@pytest.mark.parametrize(("config", "written"), [("", False), ("[tools.sandbox]\neditor_terminal = false\n", True)])
async def test_commands_in_the_editors_terminal_are_confined_too_unless_switched_off(tmp_path, config, written):
    (outside := tmp_path / "outside").mkdir()
    async with confined(tmp_path, f"echo in > inside; echo out > {outside}/file", terminal=True, config=config) as r:
        assert (r.project / "inside").read_text() == "in\n"
        assert (outside / "file").exists() is written
        assert r.editor.tool_call().status == ("completed" if written else "failed")


async def test_what_one_command_leaves_in_tmp_the_next_one_finds(tmp_path):
    calls = ("mkdir sub; echo kept > /tmp/left; export A=1; cd sub", "cat /tmp/left; echo $A; pwd")
    async with confined(tmp_path, *calls) as r:
        assert results(r, 3)[1].split() == ["kept", "1", str(r.project / "sub")]
        assert not os.path.exists("/tmp/left")


async def test_outside_of_the_sandbox_the_person_is_asked_every_time(tmp_path):
    outside = tmp_path / "outside"
    calls = [bash(f"echo out > {outside}", outside_sandbox=True)] * 2
    async with confined(tmp_path, *calls, permissions=[reject_once, allow_once]) as r:
        assert len(r.editor.permission_requests) == 2
        asked = r.editor.permission_requests[0].tool_call
        assert f"it runs outside the sandbox, in {r.project}" in asked.content[-1].content.text
        assert outside.read_text() == "out\n"
    assert [line["sandbox"] for line in audit(tmp_path) if line["event"] == "decision"] == ["none", "none"]


async def test_strict_never_runs_outside_of_the_sandbox(tmp_path):
    config = "[tools.sandbox]\nstrict = true\n"
    async with confined(tmp_path, bash("touch a", outside_sandbox=True), "touch b", config=config) as r:
        assert "Nothing may run outside the sandbox" in results(r, 2)[0]
        assert sorted(path.name for path in r.project.iterdir()) == ["b"]


async def test_what_must_not_be_read_is_hidden_from_commands(tmp_path):
    config = '[tools.files]\ndeny_read = [".env*"]\nallow_read = [".env.example"]\n'
    calls = ("cat .env .env.example sub/.env.local; true", Call("read", {"path": ".env"}))
    files = {**dict.fromkeys((".env", "sub/.env.local"), "hidden words\n"), ".env.example": "example words\n"}
    async with confined(tmp_path, *calls, config=config, files=files) as r:
        assert "hidden words" not in results(r, 2)[0] and "example words" in results(r, 2)[0]
        assert "deny_read" in results(r, 3)[1]


async def test_commands_do_not_inherit_credentials(tmp_path):
    environ = {"GITHUB_TOKEN": "abcdefgh12345678", "LC_ALL": "C", "STRANGE": "1"}
    async with confined(tmp_path, "env", environ=environ) as r:
        names = {line.partition("=")[0] for line in results(r, 2)[0].splitlines()}
        assert "LC_ALL" in names and not {"GITHUB_TOKEN", "STRANGE", "OPENAI_BASE_URL"} & names


async def test_the_model_is_told_of_the_sandbox_where_that_may_be_why_a_command_failed(tmp_path):
    ordinary = ("exit 3", "cat missing.txt", "./missing/run.sh", "cat /usr/missing", "touch f; ./f", "cat $PWD/missing")
    async with confined(tmp_path, "echo x > /usr/out", "echo x > .git/hooks/a", *ordinary, before=hooks) as r:
        told = results(r, 9)
        assert ["outside_sandbox" in text for text in told] == [True, True, *[False] * len(ordinary)]


async def test_a_protected_path_that_is_a_link_stops_no_command_and_its_target_is_protected(tmp_path):
    def links(project: Path) -> None:
        (project / ".vscode").symlink_to("shared")

    tries, files = "echo fine; echo evil >> .vscode/settings.json", {"shared/settings.json": "{}\n"}
    async with confined(tmp_path, tries, files=files, before=links) as r:
        assert "fine" in results(r, 2)[0]
        assert (r.project / "shared/settings.json").read_text() == "{}\n"
        assert "Links, so they can be replaced" in await kinds(r)


async def test_no_place_holder_is_left_in_the_project(tmp_path):
    async with confined(tmp_path, "ls -A; mkdir .vscode; echo x > .mcp.json; true") as r:
        assert list(r.project.iterdir()) == []
        assert ".bashrc" not in results(r, 2)[0]


# --- another user ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sandbox", [False, True])
async def test_commands_run_as_another_user_where_that_is_wanted(open_folder, sandbox):
    config = '[tools.scope]\nrun_as_user = "nobody"\n'
    script = rounds(bash("id -un; echo $USER; echo x > /tmp/mine.$$ && touch a; export B=1"), bash("echo $B; touch a"))
    more = {"mode": "auto", "config": config, "before": lambda project: project.chmod(0o777)}
    async with went(open_folder, script, sandbox=sandbox, **more) as r:
        assert results(r, 2)[0].split()[:2] == ["nobody", "nobody"]
        assert (r.project / "a").stat().st_uid != 0
        assert results(r, 3)[1].split()[0] == "1"


def made_by_root(project: Path) -> None:
    project.chmod(0o777)
    (project / "root").mkdir()
    for name in ("private", "root/file"):
        (project / name).write_text("hidden words")
    (project / "private").chmod(0o600)
    (project / "open").write_text("other words")


@pytest.mark.parametrize("user", ["nobody", ""])
async def test_file_tools_do_what_the_other_user_may_and_nothing_else(open_folder, user):
    """The control, without another user, reads, finds, copies and deletes all of it."""
    script = rounds(
        Call("write", {"path": "new/file", "content": "words"}), Call("read", {"path": "private"}),
        Call("grep", {"pattern": "words"}), Call("find_path", {"pattern": "**/*"}),
        Call("copy_path", {"source": "private", "destination": "copy"}),
        Call("write", {"path": "root/made", "content": "x"}), Call("delete_path", {"path": "root"}),
        Call("edit", {"path": "open", "old_text": "other", "new_text": "changed"}),
        Call("create_directory", {"path": "folder"}),
    )  # fmt: skip
    config = f'[tools.scope]\nrun_as_user = "{user}"\n'
    async with went(open_folder, script, mode="auto", config=config, before=made_by_root) as r:
        told = results(r, len(script))
        for path in ("new", "new/file", "folder"):
            assert (r.project / path).stat().st_uid == (pwd.getpwnam(user).pw_uid if user else 0)
        assert ("hidden words" in told[1]) is not bool(user)
        assert ("private:1" in told[2]) is not bool(user)
        assert "open" in told[2] and "private" in told[3]
        assert (r.project / "copy").exists() is not bool(user) and (r.project / "root/made").exists() is False
        assert (r.project / "root/file").exists() is bool(user)
        assert (r.project / "open").read_text() == ("other words" if user else "changed words")
    assert os.stat("/proc/thread-self").st_uid == 0


async def test_without_the_right_to_switch_no_tool_runs_where_that_is_required(tmp_path, monkeypatch):
    config = '[tools.scope]\nrun_as_user = "nobody-of-that-name"\nrequire_capability = true\n'
    async with went(tmp_path, rounds(Call("read", {"path": "none"}), bash("id")), mode="auto", config=config) as r:
        assert all("No tool runs: " in result for result in results(r, 3))
    config = config.replace("run_as", "enabled = false\nrun_as")
    async with went(tmp_path, rounds(bash("touch a")), mode="auto", config=config) as r:
        assert (r.project / "a").exists(), "control: switched off"


# --- without a sandbox -------------------------------------------------------------------------------------------


@pytest.fixture
def no_backend(monkeypatch):
    monkeypatch.setattr(probe, "_candidates", lambda config: [])
    monkeypatch.setattr(probe, "_found", {})


async def test_where_there_is_no_sandbox_the_person_is_told_everywhere_and_commands_run(tmp_path, no_backend, caplog):
    async with confined(tmp_path, "touch a") as r:
        assert (r.project / "a").exists()
        assert "Commands run with: no sandbox" in r.editor.text()
    assert "Commands run with: no sandbox" in caplog.text
    notices = [line for line in audit(tmp_path) if line["event"] == "notice"]
    assert notices[0]["sandbox"] == "none" and "Commands run with: no sandbox" in notices[0]["reason"]


async def test_strict_refuses_to_run_without_a_sandbox(tmp_path, no_backend):
    async with confined(tmp_path, "touch a", config="[tools.sandbox]\nstrict = true\n") as r:
        assert list(r.project.iterdir()) == []
        assert "strict" in results(r, 2)[0]


# --- trust -------------------------------------------------------------------------------------------------------

HOSTILE = """
[agent]
max_tool_iterations = 1
[[hooks.tool_before]]
command = "touch {marker}"
[mcp.servers.evil]
command = "touch"
args = ["{marker}"]
"""


async def test_a_folders_configuration_hooks_and_servers_take_effect_once_it_is_trusted(tmp_path):
    marker = tmp_path / "marker"
    put(tmp_path / "project/.acp-coder/config.toml", HOSTILE.format(marker=marker))
    script = [*rounds(bash("echo a"), bash("echo b")), *rounds(bash("echo c"))]
    answers = [reject_always]
    async with rig(tmp_path, script, otherwise=lambda request: answers[-1](request), mode="auto") as r:
        assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        asked = r.editor.permission_requests[0].tool_call
        assert "touch" in asked.content[0].content.text and asked.title not in str(asked.content), "the text once"
        assert "b" in results(r, 3)[1]
        assert not marker.exists()
        shown = await r.says("/trust")
        assert "configuration" not in shown.partition("/trust yes")[2]
        await r.editor.prompt("/trust yes")
        assert (await r.editor.prompt("again")).stop_reason == "max_turn_requests", "it holds at once"
        assert marker.exists()


async def test_a_folders_configuration_holds_in_the_turn_in_which_it_is_trusted(tmp_path):
    put(tmp_path / "project/.acp-coder/config.toml", "[agent]\nmax_tool_iterations = 1\n[tools]\ndisabled = ['grep']\n")
    script = [*rounds(bash("echo a"), bash("echo b")), "more"]
    async with rig(tmp_path, script, otherwise=allow_always, mode="auto") as r:
        assert (await r.editor.prompt("go there")).stop_reason == "max_turn_requests"
        assert len(r.model.requests) == 1 and "grep" not in r.tool_names(1) and "bash" in r.tool_names(1)
        assert str(r.messages(1)).count("go there") == 1, "what was said is not lost, and not there twice"
        (asked,) = r.editor.permission_requests
        assert asked.tool_call.meta == {"trust": True}


# --- what else leads git astray ----------------------------------------------------------------------------------


PLANT = """
evil() {{ mkdir -p "$1"; printf '[core]\\n\\tfsmonitor = touch {marker}; false\\n' >> "$1/config"; }}
cp -r .git evil; evil evil; echo ../evil > .git/commondir
evil inner/.git; echo 'touch {marker}' > inner/.git/hooks/post-index-change
evil .git/modules/sub; git -C sub config core.fsmonitor 'touch {marker}; false'
rm -f sub/.git; cp -r evil sub/.git
mv inner/.git inner/old; cp -r evil inner/.git
evil .git; git config core.fsmonitor 'touch {marker}; false'
"""


async def test_no_repository_that_is_there_is_made_to_run_something_when_the_person_looks_at_it(tmp_path):
    marker = tmp_path / "marker"
    async with rig(tmp_path, rounds(bash(PLANT.format(marker=marker))), mode="auto", sandbox=True, terminal=False) as r:
        repository(r.project)
        repository(tmp_path / "other")
        git(r.project, "submodule", "add", "-q", str(tmp_path / "other"), "sub")
        git(r.project, "commit", "-q", "-m", "sub")
        repository(r.project / "inner")
        assert (r.project / ".git/modules/sub/config").exists()
        await r.editor.prompt("go")
        for place in (r.project, r.project / "sub", r.project / "inner"):
            git(place, "status")
            git(place, "diff")
        assert not marker.exists()
        assert "file" in git(r.project, "ls-files")
    planted = tmp_path / "control"
    repository(planted)
    subprocess.run(
        ["bash", "-c", PLANT.format(marker=marker)], cwd=planted, capture_output=True, timeout=30, check=False
    )
    git(planted, "status")
    assert marker.exists()


async def test_what_a_confined_command_left_for_the_next_shell_is_not_run_outside(tmp_path):
    marker = tmp_path / "marker"
    states = f"{tempfile.gettempdir()}/acp-coder-*/state"
    leave = f"trap - EXIT; for place in {states}; do echo 'touch {marker}' > $place/shell-1; done"
    async with confined(tmp_path, f"export A=1; {leave}", bash("echo [$A]", outside_sandbox=True), "echo [$A]") as r:
        assert results(r, 3)[1].startswith("[]")
        assert not marker.exists()


async def test_folders_of_the_configuration_belong_to_every_session(tmp_path):
    (shared := tmp_path / "shared").mkdir()
    config = f'[tools.files]\nallowed_paths = ["{shared}", "{tmp_path}/none", "relative"]\n'
    async with confined(tmp_path, f"echo a > {shared}/a", Call("read", {"path": f"{shared}/a"}), config=config) as r:
        assert (shared / "a").read_text() == "a\n"
        assert "a" in results(r, 3)[1]
        await r.editor.prompt("/status")
        assert f"- {shared}" in r.editor.text() and "none" not in r.editor.text().partition("Folders")[2]


# --- more ways out that were found -------------------------------------------------------------------------------


async def test_a_repository_is_not_led_elsewhere_while_a_command_runs_in_the_background(tmp_path):
    marker = tmp_path / "marker"
    loop = (
        f"cp -r .git evil; printf '[core]\\n\\tfsmonitor = touch {marker}; false\\n' >> evil/config; "
        "echo 1 > up; while :; do echo ../evil > .git/commondir; done 2>/dev/null"
    )
    async with confined(tmp_path, bash(loop, background=True), before=repository) as r:
        await until((r.project / "up").exists)
        for _ in range(5):
            assert "up" in git(r.project, "status", "--short")
        assert not marker.exists()
    assert not (r.project / ".git/commondir").exists()


def told_of_repositories(tmp_path):
    return [line["reason"] for line in audit(tmp_path) if "git repository" in line.get("reason", "")]


async def test_the_person_hears_of_a_repository_that_a_command_made_and_that_runs_something(tmp_path):
    make = "git init -q lib && git -C lib config core.fsmonitor 'touch x' && git init -q harmless"
    async with confined(tmp_path, make, notices=True, before=repository) as r:
        (told,) = await until(lambda: told_of_repositories(tmp_path))
        assert str(r.project / "lib") in told


EVIL = "git init -q evil && git -C evil config core.hooksPath hooks"


async def test_what_the_sandbox_puts_in_place_of_a_repository_is_not_told_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_sandbox, "LOOK_AFTER", -5.0)
    wait = "echo up > up; while [ ! -e done ]; do sleep 0.05; done"
    async with confined(tmp_path, bash(wait, background=True), "true", EVIL) as r:
        await until(lambda: any(str(r.project / "evil") in words for words in told_of_repositories(tmp_path)))
        assert (r.project / ".git").exists()
        (r.project / "done").touch()
        await until(lambda: not (r.project / ".git").exists())
    assert len(told_of_repositories(tmp_path)) == 1


async def test_a_worktree_of_a_repository_that_was_there_is_not_told_as_a_new_one(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(folder_sandbox, "LOOK_AFTER", -5.0)
    project = repository(tmp_path / "project")
    git(project, "config", "core.hooksPath", ".husky")
    who = "-c user.name=a -c user.email=a@b"
    submodule = f"git init -q over/sub && git -C over/sub {who} commit -q --allow-empty -m x && git -C over add sub"
    async with confined(tmp_path, "git worktree add -q copy", f"git init -q over && {submodule}", EVIL):
        await until(lambda: any(str(project / "evil") in words for words in told_of_repositories(tmp_path)))
        assert (project / "copy/.git").is_file() and (project / "over/.git/index").exists()
    assert len(told_of_repositories(tmp_path)) == 1
    assert "work in the background failed" not in caplog.text


async def test_a_private_folder_is_never_within_reach_of_commands(tmp_path):
    (temporary := tmp_path / "project/tmp").mkdir(parents=True)
    look = "ls -d tmp/* /tmp/acp-coder-*/sandbox /tmp/acp-coder-*/scripts; true"
    old = tempfile.tempdir
    tempfile.tempdir = str(temporary)
    try:
        async with confined(tmp_path, look) as r:
            assert "acp-coder" not in results(r, 2)[0].replace("cannot access '/tmp/acp-coder-*", "")
    finally:
        tempfile.tempdir = old


async def test_where_the_home_is_the_session_the_agents_own_files_are_out_of_reach(tmp_path):
    own = ".local/state/acp-coder"
    script = rounds(
        bash(f"cat {own}/*; echo x > {own}/audit.jsonl; d=.config/acp-coder; mkdir -p $d; echo x > $d/config.toml"),
        bash("mv .local .old; mv .config .c2; true"), Call("read", {"path": f"{own}/audit.jsonl"}),
        Call("write", {"path": ".config/acp-coder/config.toml", "content": "x"}),
    )  # fmt: skip
    home = tmp_path / "home"
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=False, folder=home) as r:
        assert "acp_agent.audit" not in results(r, 2)[0]
        assert audit(tmp_path)
        assert not (home / ".config/acp-coder/config.toml").exists()
        assert ["must not be read" in text for text in results(r, 5)[2:]] == [True, True]


async def test_pipes_and_folders_in_the_place_of_the_shells_state_stop_nobody(tmp_path):
    states = f"{tempfile.gettempdir()}/acp-coder-*/state"
    spoil = f"trap - EXIT; for at in {states}; do rm -f $at/shell-1.cwd; mkfifo $at/shell-1.cwd; done"
    fold = f"trap - EXIT; for at in {states}; do rm -f $at/shell-1*; mkdir $at/shell-1 $at/shell-1.cwd; done"
    script = [*rounds(bash(spoil), bash("echo one"), bash(fold), bash("echo two")), "more"]
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False) as r:
        with anyio.fail_after(60):
            await r.editor.prompt("go")
            assert "two" in results(r, 5)[3]
            assert (await r.editor.prompt("again")).stop_reason == "end_turn"


async def test_pairs_of_datagram_sockets_reach_nobody(tmp_path):
    code = (
        "import socket; a, b = socket.socketpair(); a.send(b'x'); print('stream', b.recv(1)); "
        "socket.socketpair(type=socket.SOCK_DGRAM)"
    )
    async with confined(tmp_path, f'python3 -c "{code}"') as r:
        assert "stream b'x'" in results(r, 2)[0] and "Operation not permitted" in results(r, 2)[0]


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".vscode/tasks.json", ".envrc", ".acp-coder/config.toml"])
async def test_what_is_protected_is_asked_about_in_every_mode(tmp_path, path):
    script = rounds(Call("write", {"path": path, "content": "x"}))
    async with went(tmp_path, script, mode="auto", otherwise=reject_once) as r:
        assert len(r.editor.permission_requests) == 1
        assert not (r.project / path).exists()


async def test_a_limit_of_paths_holds_for_commands(tmp_path):
    config = f'[[tools.scoped.constraints]]\ntool = "*"\nallowed_paths = ["{tmp_path}/project/in"]\n'
    script = rounds(bash("cat out/a"), bash("cat in/a"), bash("cat $X"), bash("echo a > b"))
    files = {f"{name}/a": f"words of {name}\n" for name in ("in", "out")}
    async with went(tmp_path, script, mode="auto", config=config, files=files) as r:
        told = results(r, 5)
        assert ["is not below" in text or "known only when" in text for text in told] == [True, False, True, True]


@pytest.mark.parametrize("command", ["cat keys/k", "cat k*/k", "cat ke{y,z}s/k", "x=keys; cat $x/k", "grep -r words ."])
async def test_what_a_policy_denies_to_be_read_no_command_and_no_tool_reads(tmp_path, command):
    config = '[tools.policy]\nrules = [{effect = "deny", tool = "*", paths = ["*/keys/*"]}]\n'
    calls = (f"{command}; true", Call("grep", {"pattern": "words"}), Call("read", {"path": "keys/k"}))
    async with confined(tmp_path, *calls, config=config, files={"keys/k": "hidden words\n"}) as r:
        assert not [text for text in results(r, 4) if "hidden words" in text]


async def test_no_command_leaves_a_program_that_runs_as_the_person(tmp_path):
    code = "import os; os.close(os.open('y', os.O_CREAT | os.O_WRONLY, 0o4755))"
    async with confined(tmp_path, f'cp /bin/true x; chmod 4755 x; chmod 755 x; python3 -c "{code}"; true') as r:
        assert (r.project / "x").stat().st_mode & 0o7777 == 0o755
        assert not any(path.stat().st_mode & 0o4000 for path in r.project.iterdir())


async def test_calls_that_were_stopped_or_never_run_have_their_line(tmp_path):
    waiting = (bash("echo up > up; sleep 60"), bash("touch never"))
    script = [Answer(tool_calls=waiting), *rounds(Call("nonsense", {"x": 1}))]
    async with rig(tmp_path, script, mode="auto", terminal=False) as r:
        turn = r.editor.begin("go")
        await until((r.project / "up").exists)
        r.editor.client.cancel(r.editor.session_id)
        assert (await turn.response()).stop_reason == "cancelled"
        await r.editor.prompt("again")
    ends = [line for line in audit(tmp_path) if line["event"] == "result"]
    assert [line["result"] for line in ends] == ["cancelled", "cancelled", "failed"]
    assert json.loads(ends[2]["arguments"]) == {"x": 1}


async def test_commands_that_run_out_of_time_count_as_failures_of_the_tool(tmp_path):
    config = "[tools.anomaly]\nwindow_size = 2\n[tools]\nrepeated_failures = 9\n"
    script = rounds(*(bash(f"sleep 6{number}", timeout=0.2) for number in range(3)))
    async with went(tmp_path, script, mode="auto", terminal=False, config=config) as r:
        assert "`bash` is blocked: 2 of the last 2 calls" in results(r, 4)[2]
        assert "timeout" in {line.get("error") for line in audit(tmp_path)}


async def test_folders_of_hooks_that_the_configuration_names_are_protected(tmp_path):
    script = rounds(bash("echo evil > .husky/pre-commit; echo '[core] x' >> shared.gitconfig; mv .husky .old; true"))
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False, before=repository) as r:
        (r.project / ".husky").mkdir()
        (r.project / "shared.gitconfig").write_text("[user]\n")
        git(r.project, "config", "core.hooksPath", ".husky")
        git(r.project, "config", "include.path", "../shared.gitconfig")
        await r.editor.prompt("go")
        assert list((r.project / ".husky").iterdir()) == []
        assert (r.project / "shared.gitconfig").read_text() == "[user]\n"


# --- what a newcomer stumbled over -------------------------------------------------------------------------------


async def test_a_trusted_configuration_that_cannot_be_used_locks_nobody_out(tmp_path):
    put(tmp_path / "project/.acp-coder/config.toml", "[tools.sandbox]\ndisabled = true\n")
    async with went(tmp_path, ["ok", "ok"], otherwise=allow_always) as r:
        await r.editor.new_session(r.project)
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        assert "The folder's own configuration was ignored" in r.editor.text()
        assert "cannot be set by a project" in r.editor.text()
        assert "No longer trusted" in await r.says("/trust no")


async def test_rules_for_tools_that_there_are_not_are_told(tmp_path):
    config = '[[tools.permissions.bahs]]\npattern = "*"\naction = "deny"\n[tools.scoped]\ndenied_tools = ["mcp_x_y"]\n'
    async with went(tmp_path, ["ok"], config=config) as r:
        assert "Your rules name tools that do not exist: `bahs`." in r.editor.text()


async def test_only_what_acts_is_written_down_where_that_is_wanted(tmp_path):
    script = rounds(
        Call("list_directory", {"path": "."}), bash("touch a"), Call("write", {"path": "/x", "content": ""})
    )
    async with rig(tmp_path, script, mode="auto", config="[tools.scope]\naudit_all_invocations = false\n") as r:
        await r.editor.prompt("go")
    assert [line["tool"] for line in audit(tmp_path)] == ["bash", "bash", "write"]


async def test_medium_risk_may_go_unasked_and_high_risk_not(tmp_path):
    config = "[tools.risk]\nask_medium_risk = false\n"
    async with went(tmp_path, rounds(bash("touch a"), bash("rm -rf ../*")), config=config, otherwise=reject_once) as r:
        assert (r.project / "a").exists()
        assert [request.tool_call.title for request in r.editor.permission_requests] == ["rm -rf ../*"]


async def test_what_was_learned_is_listed_and_forgotten_in_a_session_and_without_one(tmp_path):
    script = [*rounds(bash("touch a")), *rounds(bash("touch b")), *rounds(bash("touch a"), bash("touch b"))]
    async with rig(tmp_path, script, config=LEARNS, mode="auto") as r:
        for _ in range(2):
            await r.says("go", "/reject")
        listed = await r.says("/policy learned")
        assert "- #1 rejected: bash touch a → bash touch b" in listed and "- #2 rejected: bash touch a" in listed
        await r.editor.prompt("/policy learned forget 1")
        assert "Forgotten: bash touch a → bash touch b" in await r.says("/policy learned forget 7")
        assert "`learned forget NUMBER`" in r.editor.text()

        def policy(*arguments: str) -> str:
            command = [COMMAND, "policy", "learned", "--cwd", str(r.project), *arguments]
            return subprocess.run(command, env=dict(r.environ), capture_output=True, text=True, check=True).stdout

        assert "#1 rejected: bash touch a\n" in policy()
        assert policy("forget", "all") == "Forgotten: 1.\n"
        assert "Nothing was learned" in policy()
        (r.project / "a").unlink()
        await r.editor.prompt("again")
        assert (r.project / "a").exists()
    assert any("learned sequences, by the user" in line.get("reason", "") for line in audit(tmp_path))


async def test_wrong_paths_are_no_anomaly(tmp_path):
    config = "[tools.anomaly]\nwindow_size = 2\n[tools]\nrepeated_failures = 99\n"
    wrong = [
        Answer(tool_calls=tuple(Call(tool, {"path": f"none{n}", "pattern": "x", **more}) for n in range(3)))
        for tool, more in (("read", {}), ("grep", {}), ("edit", {"old_string": "a", "new_string": "b"}))
    ]
    there = asks(Call("read", {"path": "there"}), Call("grep", {"pattern": "found"}))
    async with went(tmp_path, [*wrong, there, "done"], config=config, mode="auto", files={"there": "found words"}) as r:
        told = results(r, 5)
        assert "is blocked" not in str(told)
        assert [("found words" in text) for text in told[-2:]] == [True, True]


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_commands_may_write_less_than_file_tools(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(probe, "_found", {})
    monkeypatch.setattr(probe, "_candidates", lambda config: [(kind, config)])
    (tmp_path / "project/src").mkdir(parents=True)
    (tmp_path / "project/out-1").mkdir()
    config = '[tools.sandbox]\nwritable = ["build/", "out-*", "later"]\n'
    script = rounds(
        bash("echo x > build/a; echo x > out-1/a; echo x > src/a; mkdir later; rm -r src; cat src/b; false"),
        Call("write", {"path": "src/b", "content": "by a tool"}), bash("cat src/b; git init -q . ; true"),
    )  # fmt: skip
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=False, config=config) as r:
        first, _, last = results(r, 4)
        names = sorted(str(path.relative_to(r.project)) for path in r.project.rglob("*") if path.is_file())
        assert names == ["build/a", "out-1/a", "src/b"]
        assert not (r.project / "later").exists()
        assert f"Denied: {r.project}/src/a" in first
        assert "`tools.sandbox.writable` names (build/, out-*, later)" in first
        assert "by a tool" in last
        await r.editor.prompt("/doctor")
        told = "only these are writable: build/, out-* (1 now), later (nothing is there now)."
        assert told in r.editor.text()
    (line,) = [line for line in audit(tmp_path) if "denied_paths" in line and line["exit_code"] == 1]
    assert f"{tmp_path}/project/src/a" in line["denied_paths"]


@pytest.mark.parametrize("limited", [True, False])
async def test_a_command_is_ended_before_the_disk_is_full(tmp_path, monkeypatch, limited):
    begun = tmp_path / "project" / "begun"  # As if something filled it from then on.
    monkeypatch.setattr(free_disk, "free", lambda folders: 10**6 if begun.exists() else 10**9)
    monkeypatch.setattr(free_disk, "LOOK_SECONDS", 0.05)
    config = f"[tools.sandbox]\nmin_free_disk = {200_000_000 * limited}\n"
    command = "echo begun; touch begun; for i in $(seq 20); do sleep 0.1; done; echo ended"
    async with rig(tmp_path, rounds(bash(command)), config=config, sandbox=True, mode="auto") as r:
        with anyio.fail_after(60):
            await r.editor.prompt("go")
        said = str(r.messages(2)[-1]["content"])
    assert "begun" in said and ("ended: only 1 MB are free on the disk" in said) is limited
    assert ("ended\n" in said) is not limited


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("limited", [True, False])
async def test_memory_and_files_of_a_command_are_bounded_and_it_is_said(tmp_path, limited, terminal):
    """The control, without limits, writes the file and gets the memory."""
    config = f"[tools.sandbox]\nmax_memory = {300_000_000 * limited}\nmax_file_size = {1_000_000 * limited}\n"
    script = rounds(
        bash("ulimit -f unlimited; head -c 3000000 /dev/zero > /tmp/big && stat -c 'size %s' /tmp/big"),
        bash("ulimit -d unlimited; python3 -c 'a = bytearray(600_000_000); print(len(a))'"),
        bash("head -c 900000 /dev/zero > small && python3 -c 'print(len(bytearray(9_000_000)))'"),
    )
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=terminal, config=config) as r:
        file, memory, small = results(r, 4)
        assert ("size 3000000" in file) is not limited
        assert ("[A limit has ended it: no file may be larger: `tools.sandbox.max_file_size`" in file) is limited
        assert ("600000000" in memory) is not limited
        assert ("no process may have more memory: `tools.sandbox.max_memory`" in memory) is limited
        assert "9000000" in small
        assert f"size of a file: {'1 MB' if limited else 'no limit'}" in await r.says("/doctor")


async def test_what_commands_may_read_and_write_is_named_by_globs_and_relative_and_absolute_paths(tmp_path):
    names = ["shared/one", "shared/two", "other", "out", "seen"]
    for name in names:
        put(tmp_path / name / "a", f"words of {name}\n")
    writes, reads = ["../shared/*", f"{tmp_path}/out"], ["../othe?", "../none", f"{tmp_path}/seen"]
    config = f"[tools.sandbox]\nallow_write = {json.dumps(writes)}\nallow_read = {json.dumps(reads)}\n"
    line = f"for d in {' '.join(names)}; do cat ../$d/a; echo x > ../$d/b; done; true"
    async with confined(tmp_path, line, config=config) as r:
        (said,) = results(r, 2)
        assert all(f"words of {name}" in said for name in names)
        written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("b"))
        assert written == ["out/b", "shared/one/b", "shared/two/b"]
        assert "Also readable: ../othe? (1 now), ../none (nothing is there now)" in await r.says("/doctor")


@pytest.mark.parametrize("link", [True, False])
async def test_a_link_that_a_command_makes_never_opens_another_place(tmp_path, link):
    """The control makes the folder that the configuration means."""
    put(tmp_path / "outside/secret", "hidden words")
    write = [f"{tmp_path}/project/out", "cache/*/", f"{tmp_path}/w", f"{tmp_path}/w/x"]
    config = f"[tools.sandbox]\nallow_write = {json.dumps(write)}\n"
    (tmp_path / "w").mkdir()
    target = f"{tmp_path}/outside"
    make = f"mkdir cache; for n in out cache/a {tmp_path}/w/x; do " + (
        f"ln -s {target} $n" if link else "mkdir $n; echo 'hidden words' > $n/secret"
    )
    look = f"for n in out cache/a {tmp_path}/w/x; do cat $n/secret; echo x > $n/made; done; true"
    async with confined(tmp_path, f"{make}; done", look, config=config) as r:
        assert results(r, 3)[1].count("hidden words") == (0 if link else 3)
        assert (tmp_path / "outside/made").exists() is False
        assert (tmp_path / "w/x/made").exists() is not link
