"""Which command's output a user sees at the end of a shell line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.safety.lines.last_command import LastCommand, last_command
from tests.nightly import examples
from tests.tables import table

TEXTS = {
    "cargo test": "cargo test", "cargo test 2>&1 | tail -80": "cargo test",
    "cd /Users/me/project && cargo clippy --workspace -- -D warnings 2>&1": "cargo clippy --workspace -- -D warnings",
    "make 2>&1 | tee build.log | tail -5": "make", "FOO=1 BAR='a b' cargo test": "cargo test",
    "env FOO=1 timeout -k 3 60 nice -n 5 stdbuf -oL pytest  tests": "pytest tests", "time make": "make",
    "sudo -u www nohup make all": "make all", "command -v make": "command -v make",
    "python3.11 -u -W ignore -m pytest -q": "pytest -q", ".venv/bin/python -m pip install x": "pip install x",
    "python script.py -m pytest": "python script.py -m pytest", "./venv/bin/pip3 -q install x": "pip install x",
    "npx --yes tsc -p .": "tsc -p .", "uv run pytest": "pytest",
    "git -C /x -c a.b=c --no-pager diff --stat": "git diff --stat", "git --unknown diff": "git --unknown diff",
    "git --version": "git --version", "cargo +nightly --color always test": "cargo test",
    "npm --prefix web install": "npm install", "docker --context far build .": "docker build .",
    "terraform -chdir=infra plan": "terraform plan", "kubectl -n web get pods": "kubectl get pods",
    "pytest -k 'a  b'   tests": "pytest -k 'a  b' tests", "cd x && (make)": "make",
    "(cd x; make) 2>&1 | tail -3": "make", "{ cd x; make; }": "make", "! make": "make", "make || true": "make",
    "pytest; echo $?": "pytest", "echo hi": "echo hi", "cd /x": "cd /x", "git diff\npytest": "pytest",
    "yes | terraform apply": "terraform apply", "pytest > log.txt 2>&1; tail -50 log.txt": "tail -50 log.txt",
    "cargo test > log.txt": "cargo test", "make &": "make", "cat > f <<EOF\nx\nEOF\nmake": "make",
    "make | head -n 5": "make", "make | tail -fn 20 | cat -": "make", "make | tail --lines 20": "make",
    "make | tail -n +2 | head -c5 -q": "make", "make | less -R +G": "make", "make | cat notes.txt": "",
    "make | cat - notes.txt": "", "make | cat <(ls)": "", "git log | head -5 file": "", "git log | head -5 < file": "",
    "git log | head -5 <<< text": "", "make | tail -n 5 notes.txt": "", "make | tail -5 notes.txt | tee x": "",
    "pytest() { ls; }; pytest": "", "function make { ls; }\nmake": "",
    "if true; then make() { ls; }; fi; time make -j4": "", "head() { cat notes.txt; }; make | head": "",
    "timeout() { ls; }; timeout 5 make": "", "python() { ls; }; python -m pytest": "",
    "alias pytest='ls -la'\npytest": "", "alias 'pytest=ls' other=x\npytest": "", "other() { ls; }; make": "make",
    "alias ll='ls -la'\nmake": "make", "cargo test | grep foo": "", "cargo test | wc -l": "",
    "cargo test | sort | tail": "", "kubectl get pods -o json | jq .items": "", "for i in 1 2; do pytest; done": "",
    "if true; then make; fi": "", "cat <<EOF | python\nx\nEOF\n": "", "make)": "", "": "", "x" * 10_001: "",
}  # fmt: skip


@table("script", TEXTS)
def test_the_last_command_of_a_line_is_named_as_rules_write_it(script):
    assert last_command(script).text == TEXTS[script]


@pytest.mark.parametrize(("script", "alone"), [
    ("make", True), ("cd x && export A=1 && mkdir -p y && make", True), ("make > /dev/null; pytest", True),
    ("A=1; pytest", True), ("git diff; pytest", False), ("pytest; echo $?", False),
    ("for i in 1; do x; done; pytest", False),
])  # fmt: skip
def test_a_command_is_alone_when_nothing_else_may_have_printed(script, alone):
    found = last_command(script)
    assert found.text in ("make", "pytest")
    assert found.alone is alone


def test_deeply_nested_lines_end_without_a_name():
    assert last_command("( " * 500 + "make" + " )" * 500) == LastCommand("", False)


@settings(max_examples=examples(100))
@given(st.text(alphabet="ab ;&|()<>'\"$\n\\{}=-`#!é\x00", max_size=60))
def test_any_text_gives_an_answer(script):
    assert isinstance(last_command(script).text, str)
