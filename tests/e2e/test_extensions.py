"""`acp-coder hooks` as a user uses it."""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_agent import __version__
from acp_agent.commands.extensions.newer_version import newer_version

from .kit import configured
from .test_cli import run

CHANGES = json.dumps({"hookSpecificOutput": {"updatedInput": {"file_path": "b", "content": "y"}}})
CONFIG = f"""\
[[hooks.on]]
event = "PreToolUse"
matcher = "Bash"
pattern = "git push *"
name = "no force"
command = "grep -q force && {{ echo 'no force' >&2; exit 2; }}; exit 0"
env = {{ KEY = "sesame" }}

[[hooks.on]]
event = "PreToolUse"
matcher = "Write"
command = {json.dumps(f"echo '{CHANGES}'")}

[[hooks.on]]
event = "SessionStart"
matcher = "startup"
command = "echo hello"

[[hooks.file_changed]]
command = "make format"
"""


def hooks(tmp_path: Path, *arguments: str, config: str = CONFIG) -> Any:
    return run(tmp_path, "hooks", *arguments, **configured(tmp_path, config))


def test_hooks_are_listed_without_their_variables_and_wrong_ones_named_with_file_and_line(tmp_path):
    done = hooks(tmp_path, "list")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == [
        "file_changed: `make format`", "PreToolUse `Bash` touching `git push *`: `no force`",
    ]  # fmt: skip
    assert hooks(tmp_path, "list", config="").stdout.startswith("There are no hooks")
    done = hooks(tmp_path, "list", config='[[hooks.on]]\nevent = "Sometimes"\ncommand = "true"\n')
    assert done.returncode == 2 and "config.toml:1" in done.stderr and "Sometimes" in done.stderr
    done = run(tmp_path, "config", "show", **configured(tmp_path, CONFIG))
    assert "no force" in done.stdout and "sesame" not in done.stdout


def test_a_test_shows_what_would_happen_what_is_changed_and_what_is_added(tmp_path):
    call = json.dumps({"command": "git push --force"})
    done = hooks(tmp_path, "test", "PreToolUse", "--tool", "Bash", "--input", call)
    assert done.returncode == 0 and "asked: no force\n  says: deny no force\n" in done.stdout
    assert "rule: hook no force" in done.stdout
    done = hooks(tmp_path, "test", "PreToolUse", "--input", json.dumps({"command": "ls"}))
    assert "asked" not in done.stdout and "allow: nothing asks or denies" in done.stdout
    call = json.dumps({"path": "a", "content": "x"})
    done = hooks(tmp_path, "test", "PreToolUse", "--tool", "write", "--input", call)
    assert 'input: {"path": "b", "content": "y"}' in done.stdout
    assert "adds for the model: hello" in hooks(tmp_path, "test", "SessionStart", "--kind", "startup").stdout
    assert "asked" not in hooks(tmp_path, "test", "SessionStart", "--kind", "resume").stdout


@pytest.mark.parametrize(("arguments", "words"), [
    (("test", "Never"), "there is no event 'Never': PreToolUse, "),
    (("test", "PreToolUse", "--tool", "teleport"), "there is no tool 'teleport'"),
    (("test", "PreToolUse", "--input", "{"), "--input is not JSON"),
    (("test", "PreToolUse", "--input", "[]"), "--input is not a JSON object"),
    (("test", "PreToolUse", "--input", "{}"), "command: Field required"),
    (("list", "--cwd", "/nowhere"), "/nowhere is not an existing folder"),
])  # fmt: skip
def test_what_cannot_be_is_said(tmp_path, arguments, words):
    done = hooks(tmp_path, *arguments)
    assert done.returncode == 2 and words in done.stderr


@pytest.mark.parametrize(("answer", "words"), [
    ({"info": {"version": "99.0.1"}}, "there is a newer version, 99.0.1; this is "),
    ({"info": {"version": __version__}}, "is the newest version"),
    ({"info": {"version": "0.0.1rc1"}}, "is the newest version"),
    ({"info": {"version": None}}, "is the newest version"), ({}, "is not known"), (None, "is not known"),
])  # fmt: skip
def test_a_newer_version_is_looked_for_where_that_is_asked(tmp_path, answer, words):
    index = tmp_path / "index.json"
    if answer is not None:
        index.write_text(json.dumps(answer))
    assert words in newer_version(index.as_uri())
