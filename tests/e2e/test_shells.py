"""Completions in real shells, and the manual page as a formatter reads it."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_agent.commands.extensions.completions import SCRIPTS, candidates
from acp_agent.commands.extensions.manual import page, roff
from acp_agent.commands.parser import COMMANDS, build_parser
from tests.e2e.kit import COMMAND, environ
from tests.tables import table

OFFERED: dict[tuple[str, ...], list[str]] = {
    ("pro",): ["prompt"], ("prompt", "--mod"): ["--mode", "--model"],
    ("prompt", "--mode", "a"): ["ask", "architect", "auto"],
    ("prompt", "--mode=a"): ["--mode=ask", "--mode=architect", "--mode=auto"],
    ("prompt", "--mode", "=", "a"): ["ask", "architect", "auto"],  # bash's words
    ("prompt", "--mode", "="): ["ask", "architect", "code", "auto"], ("prompt", "some text", "--ye"): ["--yes"],
    ("prompt", ""): [], ("prompt", "--cwd", ""): [], ("--container", "name", "sess"): ["sessions"],
    ("sessions", "ex"): ["export"], ("sessions", "export", "--"): ["--help"],
    ("serve", "token", ""): ["add", "list", "revoke"], ("serve", "token", "add", "--scope", "w"): ["watch"],
    ("conf",): ["conformance", "config"], ("conformance", ""): ["client", "agent"],
    ("conformance", "client", "--pro"): ["--profile-line"], ("conformance", "--report", "html", ""): [],
    ("conformance", "--", "--"): [], ("nonsense", ""): [], ("completions", ""): ["bash", "zsh", "fish", "words"],
}  # fmt: skip


@table(("words", "offered"), OFFERED.items())
def test_each_word_is_offered_where_the_parser_takes_it(words: Sequence[str], offered: list[str]):
    assert sorted(word for word, _ in candidates(build_parser(), words)) == sorted(offered)


def test_every_command_is_offered():
    offered = [word for word, about in candidates(build_parser(), [""]) if about]
    assert sorted(offered) == sorted(name for name in COMMANDS if " " not in name)
    for one, two in (name.split() for name in COMMANDS if " " in name):
        assert two in {word for word, _ in candidates(build_parser(), [one, ""])}


# Stubs of what only an interactive zsh has; they print what it would be given.
ZSH = """
compdef() { completer=$1 }
_describe() { print -l -- "${(@P)3}" }
_files() { print files }
source script
words=(acp-coder "$@") CURRENT=$(( $# + 1 ))
$completer
"""
BASH = """
source ./script
COMP_WORDS=(acp-coder "$@") COMP_CWORD=$#
_acp_coder
printf '%s\\n' "${COMPREPLY[@]}"
complete -p acp-coder
"""
FISH = "source script; complete -C (string join -- ' ' acp-coder $argv)"


def completed(shell: str, script: str, folder: Path, *words: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (folder / "script").write_text(SCRIPTS[shell])
    found = environ(folder)
    found["PATH"] = f"{Path(COMMAND).parent}:{found['PATH']}"
    argv = [shell, "--no-config", "-c", script, "--"] if shell == "fish" else [shell, "-c", script, "_"]
    done = subprocess.run(
        [*argv, *words], cwd=folder, env=found, capture_output=True, text=True, timeout=60, check=True
    )
    assert not done.stderr
    return done.stdout.splitlines()


def test_bash_completes(tmp_path: Path):
    bound = "complete -o default -F _acp_coder acp-coder"
    assert completed("bash", BASH, tmp_path, "prompt", "--mode", "a") == ["ask", "architect", "auto", bound]
    assert completed("bash", BASH, tmp_path, "prompt", "") == ["", bound], "then bash offers files"


def test_zsh_and_fish_complete_with_what_each_command_does(tmp_path: Path):
    assert completed("zsh", ZSH, tmp_path, "logo") == ["logout:forget an API key"]
    assert completed("zsh", ZSH, tmp_path, "prompt", "--mode", "a") == ["ask:", "architect:", "auto:"]
    assert completed("zsh", ZSH, tmp_path, "prompt", "") == ["files"]
    assert completed("fish", FISH, tmp_path, "logo") == ["logout\tforget an API key"]
    assert completed("fish", FISH, tmp_path, "prompt", "--mode", "ar") == ["architect"]
    assert completed("fish", FISH, tmp_path, "prompt", "scr") == ["script"]


def test_the_manual_page_has_every_command_and_is_read_without_an_error(tmp_path: Path):
    printed = subprocess.run([COMMAND, "man"], capture_output=True, text=True, env=environ(tmp_path), check=True).stdout
    assert printed == "".join(f"{line}\n" for line in page(build_parser()))
    assert all(f".SS {roff(f'acp-coder {name}')}\n" in printed for name in COMMANDS)
    if shutil.which("mandoc") is None:
        pytest.skip("no mandoc here")
    lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning"], input=printed, capture_output=True, text=True, check=False)
    assert [line for line in lint.stdout.splitlines() if "missing date" not in line] == []
    shown = subprocess.run(["mandoc", "-Tutf8"], input=printed, capture_output=True, text=True, check=True).stdout
    assert "the session's mode" in shown.replace("’", "'") and "`provider/model`" in shown


@table(("text", "line"), [
    (".TH", "\\&.TH"), ("'br", "\\(aqbr"), ("a\\b  c", "a\\eb c"), ("--x", "\\-\\-x"), ('"q"', "\\(dqq\\(dq"),
])  # fmt: skip
def test_no_word_is_a_request_or_an_escape_of_roff(text: str, line: str):
    assert roff(text) == line
