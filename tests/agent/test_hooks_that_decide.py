"""Hooks that decide: the protocol of Claude Code's hooks, at each event, and what several of them come to."""

import json
import os
import re
import shlex
import socket
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, get_args

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.client.permissions import allow_always, allow_once, cancelled, reject_once
from acp_agent.commands.config import rows
from acp_agent.commands.extensions import try_hooks
from acp_agent.config.load import load_config
from acp_agent.config.safety_settings import HookEvent
from acp_agent.errors import HookFailed
from acp_agent.loop.hooks.hook_names import TOOLS, in_our_names, in_their_form, their_names
from acp_agent.loop.hooks.hook_protocol import read_exit, read_text
from acp_agent.schema.acp import CreateElicitationResponse
from acp_agent.testing.fake_model import Answer, Call
from tests.processes import running
from tests.repositories import git
from tests.waits import until

from .kit import asks, audit, bash, cancels, put, results, rig, rounds, trust, went


def hook(event: str, command: str, **more: object) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"event": event, "command": command, **more}.items()]
    return "\n".join(["[[hooks.on]]", *lines]) + "\n"


def says(**specific: object) -> str:
    """A command that prints this decision."""
    return f"printf %s {shlex.quote(json.dumps({'hookSpecificOutput': specific}))}"


def keeps(file: Path, then: str = "") -> str:
    """A command that keeps what it reads, a line each."""
    return f"cat >> {file}; {then}"


def told(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def kept(file: Path, number: int) -> list[dict[str, Any]]:
    """So many lines of hooks that nobody waits for."""
    await until(lambda: file.exists() and file.read_text().count("\n") >= number)
    return told(file)


# --- PreToolUse --------------------------------------------------------------------------------------------------


async def test_a_hook_reads_the_call_as_claude_code_tells_it(tmp_path):
    seen = tmp_path / "seen"
    script = rounds(
        bash("true"), Call("edit", {"path": "a.txt", "old_string": "a", "new_string": "b"}),
        Call("edit", {"path": "a.txt", "edits": [{"old_string": "b", "new_string": "c"}]}),
        Call("find_path", {"pattern": "*"}),
    )  # fmt: skip
    async with went(tmp_path, script, mode="auto", config=hook("PreToolUse", keeps(seen)), files={"a.txt": "a\n"}) as r:
        calls = list(r.editor.tool_calls())
        first, edit, several, glob = told(seen)
        assert first == {
            "session_id": r.editor.session_id, "transcript_path": "", "cwd": str(r.project),
            "permission_mode": "bypassPermissions", "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_input": {"command": "true"}, "tool_use_id": calls[0],
        }  # fmt: skip
        assert edit["tool_name"] == "Edit" and edit["tool_input"]["file_path"] == str(r.project / "a.txt")
        assert several["tool_name"] == "MultiEdit"
        assert glob["tool_name"] == "Glob"


@pytest.mark.parametrize("command", [
    "echo 'not today' >&2; exit 2", says(permissionDecision="deny", permissionDecisionReason="not today"),
    """printf '{"decision": "block", "reason": "not today"}'""",
], ids=["exit-2", "json", "old-json"])  # fmt: skip
async def test_a_hook_denies_and_the_model_reads_why(tmp_path, command):
    config = hook("PreToolUse", command, name="curfew", matcher="Bash")
    async with went(tmp_path, rounds(bash("touch made")), mode="auto", config=config) as r:
        assert not (r.project / "made").exists()
        assert "The hook `curfew` does not allow this call: not today" in results(r, 2)[0]
        r.editor.tool_call().assert_finished("failed")
        assert not r.editor.permission_requests
        decision = next(line for line in audit(tmp_path) if line["event"] == "decision")
        assert (decision["decision"], decision["rule"]) == ("deny", "hook curfew")


async def test_a_hook_can_let_the_user_decide_in_every_mode(tmp_path):
    config = hook("PreToolUse", says(permissionDecision="ask", permissionDecisionReason="look"), name="careful")
    script = rounds(Call("list_directory", {}), bash("touch made"))
    async with went(tmp_path, script, mode="auto", config=config, permissions=[allow_once, reject_once]) as r:
        assert len(r.editor.permission_requests) == 2
        for request in r.editor.permission_requests:
            assert "the hook `careful` wants you to decide: look" in str(request.tool_call.content)
            assert {option.kind for option in request.options} == {"allow_once", "reject_once"}
        assert not (r.project / "made").exists()


async def test_an_allow_answers_a_question_only_where_the_configuration_says_so(tmp_path):
    allow = says(permissionDecision="allow")
    for frees, asked in ((False, 1), (True, 0)):
        (home := tmp_path / str(frees)).mkdir()
        config = hook("PreToolUse", allow, name="easy", frees=frees)
        async with went(home, rounds(Call("write", {"path": "a", "content": "x"})), config=config) as r:
            assert len(r.editor.permission_requests) == asked
            decisions = [line for line in audit(home) if line["event"] == "decision"]
            assert decisions[0]["rule"] == ("hook easy" if frees else decisions[0]["rule"])


async def test_an_allow_overrides_no_rule_no_danger_and_no_denial(tmp_path):
    config = hook("PreToolUse", says(permissionDecision="allow"), frees=True) + (
        '[[tools.permissions.bash]]\npattern = "rm *"\naction = "deny"\n'
        '[[tools.permissions.bash]]\npattern = "touch *"\naction = "ask"\n'
    )
    script = rounds(bash("rm a"), bash("touch b"), bash("sudo -n ls"))
    async with went(tmp_path, script, config=config, permissions=[reject_once, reject_once]) as r:
        assert [request.tool_call.title for request in r.editor.permission_requests] == ["touch b", "sudo -n ls"]
        assert "denies this call" in results(r, 4)[0]


async def test_a_changed_input_is_shown_judged_again_and_run(tmp_path):
    config = hook("PreToolUse", says(updatedInput={"command": "touch other"}), matcher="Bash")
    async with went(tmp_path, rounds(bash("touch made")), config=config) as r:
        (request,) = r.editor.permission_requests
        assert request.tool_call.title == "touch other"
        assert request.tool_call.raw_input == {"command": "touch other"}
        assert r.editor.tool_call().title == "touch other"
        assert (r.project / "other").exists() and not (r.project / "made").exists()
        assert json.loads(next(line for line in audit(tmp_path) if line["event"] == "decision")["arguments"]) == {
            "command": "touch other"
        }


async def test_no_change_of_a_hook_gets_past_the_rules_or_an_earlier_hook(tmp_path):
    guard = "grep -q forbidden && { echo 'no such word' >&2; exit 2; }; exit 0"
    config = (
        hook("PreToolUse", guard, name="guard")
        + hook("PreToolUse", says(updatedInput={"command": "touch forbidden"}), name="changer", pattern="touch one")
        + hook("PreToolUse", says(updatedInput={"command": "rm two"}), pattern="touch two")
        + '[[tools.permissions.bash]]\npattern = "rm *"\naction = "deny"\n'
    )
    async with went(tmp_path, rounds(bash("touch one"), bash("touch two")), mode="auto", config=config) as r:
        first, second = results(r, 3)
        assert "The hook `guard` does not allow this call: no such word" in first
        assert "denies this call" in second
        assert list(r.project.glob("forbidden")) == []


async def test_what_was_allowed_is_not_allowed_once_it_is_changed(tmp_path):
    config = hook("PreToolUse", says(permissionDecision="allow"), frees=True, pattern="touch made") + hook(
        "PreToolUse", says(updatedInput={"command": "touch other"})
    )
    async with went(tmp_path, rounds(bash("touch made")), config=config, permissions=[reject_once]) as r:
        assert [request.tool_call.title for request in r.editor.permission_requests] == ["touch other"]


async def test_a_hook_that_changes_and_allows_allows_what_it_made_of_it(tmp_path):
    both = says(permissionDecision="allow", updatedInput={"command": "touch other"})
    async with went(tmp_path, rounds(bash("touch made")), config=hook("PreToolUse", both, frees=True)) as r:
        assert not r.editor.permission_requests
        assert [path.name for path in r.project.iterdir()] == ["other"]


async def test_a_call_that_cannot_be_fails_as_without_hooks(tmp_path):
    seen = tmp_path / "seen"
    async with went(
        tmp_path, rounds(Call("read", {"path": "/etc/passwd"})), config=hook("PreToolUse", keeps(seen))
    ) as r:
        assert "category: policy_blocked" in results(r, 2)[0] and "outside this session's folders" in results(r, 2)[0]
        assert not seen.exists()


async def test_a_change_that_cannot_be_used_asks(tmp_path):
    config = hook("PreToolUse", says(updatedInput={"cmd": 3}), name="odd")
    async with went(tmp_path, rounds(bash("touch made")), mode="auto", config=config, permissions=[reject_once]) as r:
        assert "the hook `odd` wants you to decide: it failed" in str(r.editor.permission_requests[0].tool_call.content)
        assert not (r.project / "made").exists()


async def test_a_changed_call_that_keeps_failing_is_not_run_again(tmp_path):
    config = hook("PreToolUse", says(updatedInput={"file_path": "missing"}), matcher="Read")
    script = rounds(*(Call("read", {"path": f"{number}.txt"}) for number in range(3)))
    async with went(tmp_path, script, mode="auto", config=config) as r:
        assert ["was not run again" in text for text in results(r, 4)] == [False, False, True]


@pytest.mark.parametrize(("more", "why"), [
    ({"command": "echo broken >&2; exit 1"}, "exit code 1: broken"),
    ({"command": "sleep 600", "timeout": 0.2}, "ran longer than 0.2 s"),
    ({"command": "printf '{'"}, "its output is not what a hook says"),
    ({"command": """printf '{"decision": "perhaps"}'"""}, "which is not one of"),
    ({"command": "kill -9 $$"}, "killed by SIGKILL"), ({"command": "yes"}, "printed more than"),
    ({"command": "true", "matcher": "("}, "`matcher` is not a regular expression"),
    ({"command": ""}, "it needs either `command` or `url`"),
    ({"command": "", "url": "ftp://a"}, "is not one of http or https"),
    ({"command": "", "url": "http://127.0.0.1:9/"}, "cannot be reached"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
async def test_a_hook_that_breaks_is_said_and_asks_instead_of_allowing(tmp_path, more, why):
    config = hook("PreToolUse", **{"name": "frail", **more})
    script = rounds(bash("touch made"), bash("touch other"))
    async with went(tmp_path, script, mode="auto", config=config, permissions=[reject_once, reject_once]) as r:
        assert len(r.editor.permission_requests) == 2 and why in str(r.editor.permission_requests[0].tool_call.content)
        assert "(PreToolUse) " in r.editor.text() and why in r.editor.text()
        assert not (r.project / "made").exists()


@pytest.mark.parametrize(("matcher", "meant"), [
    ("Bash", True), ("bash", True), ("B", False), ("Edit|Bash", True), (".*", True), ("*", True), ("mcp__.*", False),
])  # fmt: skip
async def test_matchers_are_expressions_for_the_whole_name_ours_or_theirs(tmp_path, matcher, meant):
    config = hook("PreToolUse", "exit 2", matcher=matcher)
    async with went(tmp_path, rounds(bash("touch made")), mode="auto", config=config) as r:
        assert (r.project / "made").exists() is not meant


@pytest.mark.parametrize(("pattern", "call", "meant"), [
    ("git push *", bash("cd . && git push --force"), True), ("git push *", bash("git status"), False),
    ("git push *", bash('eval "$X"'), True), ("git push *", bash("bash -c 'git push'"), True),
    ("secret/*", Call("read", {"path": "secret/a"}), True),
    ("secret/*", Call("read", {"path": "./other/../secret/a"}), True),
    ("secret/*", Call("read", {"path": "open/a"}), False), ("secret/*", bash("cat secret/a"), True),
])  # fmt: skip
async def test_patterns_find_what_a_call_touches_however_it_is_written(tmp_path, pattern, call, meant):
    seen = tmp_path / "seen"
    config = hook("PreToolUse", keeps(seen, "exit 2"), pattern=pattern)
    async with rig(tmp_path, rounds(call), mode="auto", config=config) as r:
        for name in ("secret", "open", "other"):
            put(r.project / name / "a", "x")
        await r.editor.prompt("go")
        assert seen.exists() is meant


@pytest.mark.parametrize(("event", "number"), [("PreToolUse", 1), ("SessionStart", 3)])
async def test_hooks_that_are_running_end_with_the_turn_and_all_they_started(tmp_path, event, number):
    began = tmp_path / "began"
    command = f"sleep 98761 & setsid sleep 98762 & echo >> {began}; wait"
    async with rig(tmp_path, rounds(bash("true")), mode="auto", config=hook(event, command) * number) as r:
        turn = r.editor.begin("go")
        await until(lambda: began.exists() and len(began.read_text()) >= number)
        await cancels(r, turn)
        for call in r.editor.tool_calls().values():
            call.assert_finished("failed")
        assert not running("sleep 9876")


async def test_a_hook_at_a_url_decides_as_one_that_is_a_command(tmp_path):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append((self.headers["x-key"], body))
            word = {"permissionDecision": "deny", "permissionDecisionReason": "by the server"}
            data = json.dumps({"hookSpecificOutput": word}).encode()
            status = 500 if "five" in json.dumps(body["tool_input"]) else 200
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    bodies: list[tuple[str, dict[str, Any]]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/hook"
    config = f'[[hooks.on]]\nevent = "PreToolUse"\nurl = "{url}"\nheaders = {{ x-key = "k" }}\n'
    script = rounds(bash("touch made"), bash("touch five"))
    try:
        async with went(tmp_path, script, mode="auto", config=config, permissions=[reject_once]) as r:
            assert "by the server" in results(r, 3)[0]
            assert bodies[0][0] == "k" and bodies[0][1]["tool_input"] == {"command": "touch made"}
            (request,) = r.editor.permission_requests
            assert "its server answered 500" in str(request.tool_call.content)
            assert not list(r.project.glob("*"))
    finally:
        server.shutdown()
        server.server_close()


async def test_context_and_words_for_the_user_arrive_where_they_are_meant(tmp_path):
    out = {
        "systemMessage": "for you",
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "generated file"},
    }
    config = hook("PreToolUse", f"printf %s {shlex.quote(json.dumps(out))}", name="h")
    async with went(tmp_path, rounds(bash("echo hi")), mode="auto", config=config) as r:
        assert "hi" in results(r, 2)[0] and "[Added by the hook h]\ngenerated file" in results(r, 2)[0]
        assert "The hook `h` says: for you" in r.editor.text()


async def test_a_hook_can_end_the_turn(tmp_path):
    config = hook("PreToolUse", """printf '{"continue": false, "stopReason": "enough"}'""")
    async with went(tmp_path, rounds(bash("touch made")), mode="auto", config=config) as r:
        assert len(r.model.requests) == 1
        assert not (r.project / "made").exists()
        assert "enough" in str(r.editor.tool_call().content)


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
async def test_why_a_hook_ends_the_turn_is_told_without_credentials_and_not_at_length(tmp_path, event):
    said = {"continue": False, "stopReason": f"token ghp_{'a1B2' * 9} {'x' * 20_000}"}
    config = hook(event, f"printf %s {shlex.quote(json.dumps(said))}")
    async with went(tmp_path, [*rounds(bash("echo hi")), "done"], mode="auto", config=config) as r:
        await r.editor.prompt("and now")
        (result,) = results(r, 2)
        assert "token" in result and "ghp_a1B2" not in result and len(result) < 5_000


async def test_hooks_of_a_folder_run_once_it_is_trusted_after_yours_and_free_nothing(tmp_path):
    seen = tmp_path / "seen"
    own = tmp_path / "project/.acp-coder"
    put(own / "hooks/check", f"echo theirs >> {seen}; {says(permissionDecision='allow')}\n")
    (own / "config.toml").write_text(hook("PreToolUse", "bash .acp-coder/hooks/check", frees=True))
    trusts = [allow_always]

    async def answered(request):
        return await (trusts[-1] if (request.tool_call.meta or {}).get("trust") else allow_once)(request)

    config = hook("PreToolUse", f"echo yours >> {seen}")
    script = [*rounds(bash("touch one")), *rounds(bash("touch two")), *rounds(bash("touch three"))]
    async with went(tmp_path, script, config=config, otherwise=answered) as r:
        assert seen.read_text().split() == ["yours", "theirs"], "they hold at once"
        await r.editor.new_session(r.project)
        before = len(r.editor.permission_requests)
        await r.editor.prompt("again")
        assert seen.read_text().split() == ["yours", "theirs"] * 2
        assert len(r.editor.permission_requests) == before + 1
        trusts.append(cancelled)
        (own / "hooks/check").write_text(f"echo other >> {seen}\n")
        await r.editor.new_session(r.project)
        await r.editor.prompt("once more")
        assert seen.read_text().split() == [*["yours", "theirs"] * 2, "yours"]


async def test_hooks_that_a_team_wrote_for_claude_code_run_in_a_folder_that_is_trusted(tmp_path):
    own = tmp_path / "project/.claude"
    put(own / "hooks/guard.sh", "grep -q forbidden && { echo 'not here' >&2; exit 2; }; exit 0\n")
    entry = {"type": "command", "command": 'bash "$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.sh'}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [entry]}], "Odd": []}, "model": "x"}
    (own / "settings.json").write_text(json.dumps(settings))
    script = [*rounds(bash("touch forbidden")), *rounds(bash("touch forbidden"), bash("touch made"))]
    async with went(tmp_path, script, mode="auto") as r:
        assert (r.project / "forbidden").exists()
        (r.project / "forbidden").unlink()
        await trust(r)
        assert ".claude/settings.json: the event 'Odd' is not supported" in r.editor.text()
        await r.editor.prompt("again")
        assert "not here" in results(r, 4)[1]
        assert [path.name for path in r.project.iterdir() if path.name != ".claude"] == ["made"]


async def test_no_sub_agent_gets_around_a_hook_of_the_folder(tmp_path):
    (own := tmp_path / "project/.claude").mkdir(parents=True)
    command = "grep -q forbidden && { echo 'not here' >&2; exit 2; }; exit 0"
    entry = {"hooks": [{"type": "command", "command": command}]}
    (own / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": [entry]}}))
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        git(tmp_path / "project", *words)
    task = {"prompt": "Do it.", "isolation": "worktree"}
    script = [*rounds(Call("delegate", task))[:1], *rounds(bash("touch forbidden")), "done"]
    async with rig(tmp_path, script, mode="auto") as r:
        await trust(r)
        await r.editor.prompt("go")
        assert "not here" in results(r, 3)[0]


# --- after a call, and questions ---------------------------------------------------------------------------------


async def test_what_a_hook_says_after_a_call_is_read_by_the_model(tmp_path):
    seen = tmp_path / "seen"
    config = hook("PostToolUse", keeps(seen, "echo 'line too long' >&2; exit 2"), name="lint", matcher="Write|Bash")
    script = rounds(Call("write", {"path": "a", "content": "x"}), bash("echo out; false"))
    async with went(tmp_path, script, mode="auto", config=config) as r:
        assert "[The hook lint objects: line too long]" in results(r, 2)[0]
        write, command = told(seen)
        assert write["tool_response"]["success"] is True
        assert command["tool_response"]["success"] is False and command["tool_response"]["exit_code"] == 1
        assert "out" in command["tool_response"]["stdout"]
        r.editor.assert_tool_calls_finished()


async def test_what_a_hook_changed_after_a_call_is_taken_back_with_it(tmp_path):
    config = hook("PostToolUse", "printf formatted > a.txt", matcher="Write")
    script = rounds(Call("read", {"path": "a.txt"}), Call("write", {"path": "a.txt", "content": "x"}))
    async with went(tmp_path, script, mode="auto", config=config, files={"a.txt": "before"}) as r:
        assert (r.project / "a.txt").read_text() == "formatted"
        await r.editor.prompt("/undo")
        assert (r.project / "a.txt").read_text() == "before"


async def test_a_hook_answers_the_question_before_the_user_is_asked(tmp_path):
    deny = says(decision={"behavior": "deny", "message": "never here"})
    allow = says(decision={"behavior": "allow"})
    config = hook("PermissionRequest", deny, name="no", pattern="touch one") + hook(
        "PermissionRequest", allow, name="yes", frees=True, pattern="touch two"
    )
    script = rounds(bash("touch one"), bash("touch two"), bash("touch three"), bash("sudo -n touch two"))
    async with went(tmp_path, script, config=config, permissions=[allow_once, reject_once]) as r:
        assert "never here" in results(r, 5)[0]
        assert sorted(path.name for path in r.project.iterdir()) == ["three", "two"]
        assert [request.tool_call.title for request in r.editor.permission_requests] == [
            "touch three", "sudo -n touch two",
        ]  # fmt: skip
        rules = {line["rule"]: line["decision"] for line in audit(tmp_path) if line["event"] == "decision"}
        assert rules["hook no"] == "deny" and rules["hook yes"] == "allow"


async def test_no_allow_of_a_hook_outlives_the_mode_it_was_said_in(tmp_path):
    began, go = tmp_path / "began", tmp_path / "go"
    os.mkfifo(go)
    allow = f"touch {began}; cat {go}; {says(decision={'behavior': 'allow'})}"
    config = hook("PermissionRequest", allow, name="yes", frees=True)
    async with rig(tmp_path, rounds(bash("touch made")), config=config) as r:
        turn = r.editor.begin("go")
        await until(began.exists)
        await r.editor.client.set_session_mode(r.editor.session_id, "architect")
        await anyio.to_thread.run_sync(go.write_text, "")
        await turn.response()
        assert not (r.project / "made").exists()
        assert "which is read-only" in results(r, 2)[0]


ASK = Call("ask_user", {"question": "Which one?", "choices": ["red", "blue"]})


async def accepts(request: object) -> CreateElicitationResponse:
    return CreateElicitationResponse(action="accept", content={"answer": "blue"})


@pytest.mark.parametrize(("script", "elicitation", "expected"), [
    ([*rounds(bash("touch made"))], None, ["permission_prompt", "acp-coder asks for permission: touch made"]),
    ([*rounds(ASK)], None, ["elicitation_dialog", "Which one?"]),
    ([*rounds(ASK)], accepts, ["elicitation_dialog", "Which one?"]),
    ([], None, ["permission_prompt", "acp-coder asks for permission: The hook `odd` wants you to decide"]),
], ids=["permission", "choice", "form", "hook"])  # fmt: skip
async def test_a_question_is_a_notification(tmp_path, script, elicitation, expected):
    seen = tmp_path / "seen"
    config = hook("Notification", keeps(seen), matcher="permission_prompt|elicitation_dialog")
    config += "" if script else hook("UserPromptSubmit", "exit 1", name="odd")
    async with went(tmp_path, script, config=config, elicitation=elicitation, permissions=[reject_once]):
        (line,) = await kept(seen, 1)
        assert line["notification_type"] == expected[0] and line["message"].startswith(expected[1])


async def test_hooks_after_a_call_are_asked_in_their_order(tmp_path):
    config = hook("PostToolUse", "cat a.txt a.txt > b.txt", matcher="Write")
    config += hook("PostToolUse", "cat b.txt >&2; exit 2", name="lint", matcher="Write")
    async with rig(tmp_path, rounds(Call("write", {"path": "a.txt", "content": "x"})), mode="auto", config=config) as r:
        await r.editor.prompt("go")
        assert "[The hook lint objects: xx]" in results(r, 2)[0]


# --- prompts, the session, compaction, the end of turns ----------------------------------------------------------


async def test_a_prompt_is_refused_or_added_to(tmp_path):
    refuses = "grep -q password && { echo 'no passwords' >&2; exit 2; }; echo 'The branch is main.'"
    config = hook("UserPromptSubmit", refuses, name="p") + hook("UserPromptSubmit", keeps(tmp_path / "later"))
    async with went(tmp_path, ["first", "second"], config=config, prompt="my password is x") as r:
        assert not r.model.requests
        assert not (tmp_path / "later").exists()
        assert "Your prompt was not sent to the model: the hook `p` does not allow it: no passwords" in r.editor.text()
        await r.editor.prompt("hello")
        assert "password" not in str(r.messages(1))
        assert "[Added by the hook p]\nThe branch is main." in str(r.messages(1)[-1]["content"]).replace("\\n", "\n")


async def test_the_user_decides_about_a_prompt_whose_hook_breaks(tmp_path):
    config = hook("UserPromptSubmit", "exit 1", name="p")
    async with went(tmp_path, ["first"], config=config, permissions=[reject_once, allow_once], prompt="one") as r:
        assert not r.model.requests
        await r.editor.prompt("two")
        assert len(r.model.requests) == 1
        assert "one" not in [message["content"] for message in r.messages(1)]


async def test_hooks_are_told_of_the_session_and_add_to_its_first_prompt(tmp_path):
    seen = tmp_path / "seen"
    config = hook("SessionStart", keeps(seen, "echo house rules")) + hook("SessionEnd", keeps(seen))
    async with went(tmp_path, ["one", "two", "three"], config=config, prompt="a") as r:
        await r.says("b", "/clear", "c")
        assert [line["source"] for line in told(seen)] == ["startup", "clear"]
        assert "house rules" in str(r.messages(1)) and str(r.messages(2)).count("house rules") == 1
        await r.editor.request("session/close", {"sessionId": r.editor.session_id})
        assert told(seen)[-1]["hook_event_name"] == "SessionEnd"


async def test_hooks_that_cannot_refuse_run_at_once_and_are_read_in_their_order(tmp_path):
    """The first ends after the second has."""
    os.mkfifo(tmp_path / "pid")
    config = hook("SessionStart", f"read pid < {tmp_path}/pid; tail --pid=$pid -f /dev/null; echo first", timeout=30)
    config += hook("SessionStart", f"echo $$ > {tmp_path}/pid; echo second", timeout=30)
    config += hook("SessionStart", "exit 1", name="frail")
    async with went(tmp_path, ["one"], config=config, prompt="a") as r:
        assert re.search("first.*second", str(r.messages(1)))
        assert "The hook `frail` (SessionStart) failed: exit code 1" in r.editor.text()


async def test_a_compaction_can_be_refused_and_is_told(tmp_path):
    seen = tmp_path / "seen"
    config = hook("PreCompact", keeps(seen, "test -e allowed || { echo 'not yet' >&2; exit 2; }"), matcher="manual")
    config += hook("SessionStart", "echo again", matcher="compact")
    async with went(tmp_path, [LONG, "summary", "end"], config=config, prompt="a") as r:
        assert "not yet" in await r.says("/compact")
        assert told(seen)[0]["trigger"] == "manual"
        (r.project / "allowed").touch()
        await r.says("/compact", "b")
        assert "summary" in str(r.messages(3)) and "again" in str(r.messages(3))


async def test_a_model_that_ends_goes_on_as_often_as_is_allowed(tmp_path):
    seen = tmp_path / "seen"
    config = "[hooks]\nmax_rounds = 2\n" + hook("Stop", keeps(seen, "echo 'run the tests' >&2; exit 2"), name="tests")
    async with went(tmp_path, ["one", "two", "three"], config=config) as r:
        assert len(r.model.requests) == 3
        assert [line["stop_hook_active"] for line in told(seen)] == [False, True, True]
        assert told(seen)[0]["last_assistant_message"] == "one"
        assert "run the tests" in r.messages(2)[-1]["content"]
        assert "`hooks.max_rounds`" in r.editor.text()


async def test_a_sub_agent_is_told_and_goes_on(tmp_path):
    seen = tmp_path / "seen"
    stop = 'grep -q \'"stop_hook_active": true\' || { echo "look again" >&2; exit 2; }'
    config = hook("SubagentStart", keeps(seen, "echo be brief")) + hook("SubagentStop", stop)
    call = asks(Call("delegate", {"prompt": "Find it.", "title": "find it"}))
    async with went(tmp_path, [call, "first", "second", "done"], config=config) as r:
        assert told(seen)[0]["agent_type"] == "find it"
        assert "be brief" in str(r.messages(2)) and "look again" in str(r.messages(3))
        assert results(r, 4)[0] == "second"


async def test_hooks_of_calls_are_told_which_sub_agent_makes_them(tmp_path):
    seen = tmp_path / "seen"
    config = "".join(hook(event, keeps(seen)) for event in ("PreToolUse", "PermissionRequest", "PostToolUse"))
    call = asks(Call("delegate", {"prompt": "Find it.", "title": "find it"}))
    script = [call, *rounds(bash("touch one")), *rounds(bash("touch two"))]
    async with went(tmp_path, script, config=config, permissions=[allow_once] * 2) as r:
        delegate = next(iter(r.editor.tool_calls()))
        own = {"agent_id": delegate, "agent_type": "find it"}
        of_call: dict[str, list[dict[str, Any]]] = {}
        for line in told(seen):
            about = {name: line[name] for name in ("agent_id", "agent_type") if name in line}
            of_call.setdefault(line["tool_input"].get("command", "delegate"), []).append(about)
        assert of_call == {"delegate": [{}] * 2, "touch one": [own] * 3, "touch two": [{}] * 3}


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_compaction_of_a_sub_agent_is_asked_about_and_says_whose_it_is(tmp_path, refuses):
    seen = tmp_path / "seen"
    config = "[providers.default]\ncontext_window = 24_000\n[compaction]\nkeep_results = 1\n"
    config += hook("PreCompact", keeps(seen, "echo 'not yet' >&2; exit 2" if refuses else ""), name="p")
    reads = [Answer(tool_calls=(Call("read", {"path": f"f{number}"}),), usage=None) for number in range(6)]
    call = asks(Call("delegate", {"prompt": "Read all.", "title": "reader"}))
    async with rig(tmp_path, [call, *reads, *(() if refuses else ("all read",)), "done"], config=config) as r:
        for number in range(6):
            (r.project / f"f{number}").write_text(f"f{number} f{number} f{number}\n" * 1300)
        await r.editor.prompt("go")
        line = told(seen)[0]
        assert line["trigger"] == "auto"
        assert (line["agent_id"], line["agent_type"]) == (next(iter(r.editor.tool_calls())), "reader")
        result = results(r, len(r.model.requests))[0]
        refusal = "The conversation was not compacted: the hook `p` does not allow it: not yet"
        assert (refusal in result, "all read" in result) == (refuses, not refuses)


async def test_the_command_lists_them(tmp_path):
    async with rig(tmp_path, [], config=hook("PreToolUse", "true", name="mine", matcher="Bash", pattern="git *")) as r:
        assert "PreToolUse `Bash` touching `git *`: `mine`" in await r.says("/hooks")


async def test_no_credential_in_the_url_of_a_hook_is_told(tmp_path, capsys):
    url = "http://someone:word-one@127.0.0.1:9/hook?key=word-two"
    config = f'[[hooks.on]]\nevent = "PreToolUse"\nurl = "{url}"\n'
    config += hook("PreToolUse", "", url="http://someone:word/three@127.0.0.1:9/")
    there = socket.create_server(("127.0.0.1", 0))
    config += hook("PreToolUse", "", url=f"http://127.0.0.1:{there.getsockname()[1]}/")
    config += 'headers = { x = "word-four\\n" }\n'
    async with went(tmp_path, rounds(bash("true")), config=config, permissions=[reject_once]) as r:
        assert "PreToolUse: `http://127.0.0.1:9/hook`" in await r.says("/hooks")
        assert try_hooks.run(Namespace(verb="list", cwd=str(r.project)), r.environ) == 0
        kept = dict(rows(load_config(r.environ)))["hooks.on"]
        everything = [
            str(r.editor.transcript), str(audit(tmp_path)), capsys.readouterr().out, kept, *map(str, r.messages(2)),
        ]  # fmt: skip
        assert all("127.0.0.1:9/hook" in text for text in everything[1:4])
        assert not [text for text in everything if re.search("word.(one|two|three|four)|someone", text)]
    there.close()


async def test_without_hooks_nothing_of_them_is_loaded(tmp_path):
    async with went(tmp_path, rounds(bash("true")), mode="auto") as r:
        assert (await r.agent.sessions.get(r.editor.session_id).parts()).shell.hooks.deciding is None


EVENTS = get_args(HookEvent)
LONG = " ".join(map(str, range(3000)))
GOLDEN = Path(__file__).parents[1] / "golden/hooks"


async def test_what_each_event_tells_is_as_it_was(tmp_path):
    """`UPDATE_GOLDEN=1` writes the files."""
    script = [
        *rounds(Call("write", {"path": "a.txt", "content": "x"}), bash("echo hi"))[:2],
        asks(Call("delegate", {"prompt": "Find it.", "title": "find it"})), "found", LONG, "summary",
    ]  # fmt: skip
    async with went(tmp_path, script, config="".join(hook(event, keeps(tmp_path / event)) for event in EVENTS)) as r:
        await r.editor.prompt("/compact")
        await kept(tmp_path / "Notification", 1)
        await r.editor.request("session/close", {"sessionId": r.editor.session_id})
        ids = {r.editor.session_id: "SESSION", str(r.project): "PROJECT", LONG: "WORDS"}
        ids |= {name: f"CALL-{number}" for number, name in enumerate(r.editor.tool_calls(), 1)}
    for event in EVENTS:
        text = (tmp_path / event).read_text()
        for word, name in ids.items():
            text = text.replace(word, name)
        found = json.dumps([json.loads(line) for line in text.splitlines()], indent=1) + "\n"
        file = GOLDEN / f"{event}.json"
        if os.environ.get("UPDATE_GOLDEN"):
            put(file, found)
        assert found == file.read_text(), event


# --- the protocol ------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10,
)  # fmt: skip


@given(st.sampled_from(["PreToolUse", "PostToolUse", "Stop"]), st.integers(-300, 300), st.text(), st.text())
def test_never_does_an_odd_end_count_as_consent(event, code, out, err):
    try:
        answer = read_exit(event, code, out, err)
    except HookFailed:
        return
    assert code in (0, 2)
    assert answer.effect == ("deny" if code == 2 else "")


@given(JSON)
def test_never_does_odd_output_raise_anything_but_that_it_failed(value):
    try:
        read_text("PreToolUse", json.dumps(value))
        read_text("PreToolUse", json.dumps({"hookSpecificOutput": value}))
    except HookFailed:
        pass


@given(
    st.sampled_from(sorted(TOOLS)), st.dictionaries(st.sampled_from(["path", "command", "pattern", "entries"]), JSON)
)
def test_their_form_taken_back_is_ours_but_for_absolute_paths(tool, arguments):
    back = in_our_names(tool, in_their_form(tool, arguments, "/p"))
    assert back.keys() == arguments.keys()
    assert {name: back[name] for name in back if name != "path"} == {
        name: value for name, value in arguments.items() if name != "path"
    }


def test_names_of_mcp_tools_are_theirs_wherever_the_server_ends():
    assert their_names("mcp_my_server_tool", {}) == ("mcp__my__server_tool", "mcp__my_server__tool")
    assert their_names("time", {}) == ()
