# ruff: noqa: E501 (outputs and rules stand as they are)
"""Rules: which commands they match, how they combine, and what a user's file may do."""

import os

import pytest

from acp_agent.output.filter_rules import read_user_filters
from acp_agent.output.filters import Filtered, load_filters
from acp_agent.safety.lines.last_command import last_command

FILTERS, WARNINGS = load_filters()
PASSED = "".join(f"tests/a.py::test_{number} PASSED  [ 50%]\n" for number in range(40))
LOG = "".join(f"value {number}\n" for number in range(400))

MATCHES = {
    "cargo test --all": ["cargo-test"], "cargo +nightly t": ["cargo-test"], "cargo testing": [],
    "cargo nextest run": ["cargo-nextest"], "cd x && cargo clippy -- -D warnings 2>&1": ["clippy"],
    "git status -sb": ["git-status"], "git --no-pager diff HEAD": ["git-diff"], "git show": ["git-diff"],
    "git stash show -p": ["git-diff"], "git difftool": [], "git log --oneline": ["git-log"],
    "ls": ["directory-listing"], "find . -name x": ["directory-listing"], "lsof": [],
    "find . -name '*.py' -not -path './x/*' -size +5k -mtime -3 | head -50": ["directory-listing"],
    "find . -type f -exec cat {} +": [], "find . -execdir cat {} +": [], "find . -printf '%p %s'": [],
    "find . -ok cat {} +": [], "find . -name x -delete": [], "find . -fprint x": [], "make | cat notes.txt": [],
    "pytest() { cat notes.txt; }; pytest": [], "docker compose logs -f": ["log-dedup"],
    "kubectl -n web logs x": ["log-dedup"], "journalctl -u x": ["log-dedup"], "tail -f /var/log/app.log": ["log-dedup"],
    "cat app.logic": [], "docker buildx build .": ["docker-build"], "npm ci": ["npm-install"], "npm init": [],
    "yarn": ["yarn-install"], "yarn test": [], "pnpm -r i": ["pnpm-install"],
    "python -m pip install x": ["pip-install"], "pip3.11 install x": ["pip-install"], "pip list": [],
    "make -j4": ["make"], "makeinfo x": [], "python -m pytest -q": ["pytest"], "go test ./...": ["go-test"],
    "terraform -chdir=x plan": ["terraform"], "terraform output": [], "kubectl get pods": ["kubectl"],
    "brew install jq": ["brew"], "python x.py": [], "": [],
}  # fmt: skip


@pytest.mark.parametrize("script", MATCHES, ids=list(MATCHES))
def test_a_command_line_is_matched_by_its_rules(script):
    assert [rule.name for rule in FILTERS.matching(last_command(script).text)] == MATCHES[script]


def test_there_are_nineteen_rules_and_without_one_output_stays_as_it_was():
    assert len(FILTERS.names) == 19
    assert WARNINGS == []
    assert FILTERS.apply(LOG, "python x.py", exit_code=0) == Filtered(LOG, 400, 400, None, ())
    assert FILTERS.apply("", "make", exit_code=0).text == ""
    assert Filtered("", 342, 28, "Full", ()).stats("bash") == "[bash] 342 lines -> 28 lines, 91.8% filtered"
    assert Filtered("", 28, 28, "Full", ()).stats("bash") == "" and Filtered("", 0, 0, None, ()).percent == 0.0


def test_rules_are_applied_one_after_the_other_and_the_worst_confidence_counts():
    text = '[[rules]]\nname = "short"\nmatch = { prefix = "pytest" }\nstrategy = { type = "truncate", max_lines = 10, head = 3, tail = 3 }'
    filters, warnings = load_filters(text)
    assert warnings == []
    filtered = filters.apply(PASSED + LOG + "==== 40 passed in 0.1s ====\n", "pytest -v", exit_code=0)
    assert filtered.rules == ("pytest", "short") and filtered.confidence == "Partial"
    assert filtered.text.startswith("[... 40 lines of passing tests left out ...]\nvalue 0\n")
    assert filtered.text.endswith("==== 40 passed in 0.1s ====\n")
    unknown = filters.apply(LOG, "pytest", exit_code=0)
    assert unknown.confidence == "Fallback" and unknown.lines_after == 7
    assert FILTERS.apply(LOG, "pytest", exit_code=0).confidence == "Fallback"


def test_what_others_may_have_printed_too_is_never_full_and_loses_certain_noise_only():
    text = PASSED + "==== 40 passed in 0.1s ====\n"
    assert FILTERS.apply(text, "pytest", exit_code=0).confidence == "Full"
    assert FILTERS.apply(text, "pytest", exit_code=0, alone=False).confidence == "Partial"
    text = '[[rules]]\nname = "mine"\nmatch = { prefix = "mine" }\nstrategy = { type = "keep_matching", patterns = ["value 7"] }'
    filters, _ = load_filters(text)
    for script in ("cat notes.txt; make", "cat notes.txt; git log", "cat notes.txt; mine", "cat notes.txt && ls -R"):
        last = last_command(script)
        filtered = filters.apply(LOG, last.text, exit_code=0, alone=last.alone)
        assert (filtered.text, filtered.confidence) == (LOG, "Fallback") and filtered.rules
        assert filters.apply(LOG, last.text, exit_code=0).lines_after < 250
    text = "".join(f"make[1]: Entering directory '/x/{number}'\nvalue {number}\n" for number in range(100))
    filtered = FILTERS.apply(text, "make", exit_code=0, alone=False)
    assert filtered.lines_after == 101 and "value 50\n" in filtered.text and filtered.confidence == "Partial"


def test_the_cause_of_a_failed_make_and_repeating_lines_of_a_document_stay():
    for cause in ("cc: No space left on device", "Illegal instruction", "✖ 3 problems", "x: quota exceeded"):
        text = LOG + cause + "\n" + LOG + "make: Target 'all' not remade because of errors.\n"
        filtered = FILTERS.apply(text, "make", exit_code=2)
        assert f"\n{cause}\n" in filtered.text and filtered.text.split("\n")[-41:] == text.split("\n")[-41:]
        assert filtered.lines_after < 70
    text = "apiVersion: v1\nitems:\n" + "- 0x01\n- 0x02\n" * 20
    assert FILTERS.apply(text, "kubectl get x -o yaml", exit_code=0).text == text


def test_a_rule_of_a_person_takes_the_place_of_the_built_in_one_of_its_name():
    text = '[[rules]]\nname = "make"\nmatch = { exact = "make  all" }\nstrategy = { type = "dedup" }\n[[rules]]\nname = "mine"\nmatch = { regex = "^x" }\nstrategy = { type = "dedup" }'
    filters, warnings = load_filters(text)
    assert warnings == [] and filters.names.index("make") == FILTERS.names.index("make") and filters.names[-1] == "mine"
    assert [rule.name for rule in filters.matching("make all")] == ["make"] and filters.matching("make") == ()
    filters, _ = load_filters(
        '[[rules]]\nname = "make"\nstrategy = { type = "truncate", max_lines = 5, head = 1, tail = 1 }'
    )
    assert filters.apply(LOG, "make -j4", exit_code=0).lines_after == 3


def test_a_rule_is_switched_off_by_its_name_and_the_length_of_a_diff_configured():
    filters, warnings = load_filters('[[rules]]\nname = "npm-install"\nenabled = false')
    assert "npm-install" not in filters.names and warnings == []
    filters, warnings = load_filters(disabled=["make", "mkae"])
    assert "make" not in filters.names and warnings == ["There is no filter rule `mkae` to disable."]
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,100 @@\n" + "+added\n" * 100
    filters, _ = load_filters(max_diff_lines=20)
    assert filters.apply(diff, "git diff", exit_code=0).lines_after == 21
    assert FILTERS.apply(diff, "git diff", exit_code=0).lines_after == 104


BAD = {
    'name = "a"': "it has no `match`", 'name = "a"\nmatch = { prefix = "x" }': "it has no `strategy`",
    'match = { prefix = "x" }\nstrategy = { type = "dedup" }': "name",
    'name = "a"\nmatch = { prefix = "x", exact = "y" }\nstrategy = { type = "dedup" }': "exactly one",
    'name = "a"\nmatch = {}\nstrategy = { type = "dedup" }': "exactly one",
    'name = "a"\nmatch = { prefix = " " }\nstrategy = { type = "dedup" }': "empty",
    'name = "a"\nmatch = { glob = "x" }\nstrategy = { type = "dedup" }': "glob",
    'name = "a"\nmatch = { regex = "(" }\nstrategy = { type = "dedup" }': "cannot be used",
    f'name = "a"\nmatch = {{ regex = "{"x" * 513}" }}\nstrategy = {{ type = "dedup" }}': "513 characters",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "shorten" }': "shorten",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", head = "many" }': "strategy.head",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", had = 1 }': "had",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "strip_noise" }': "patterns",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "strip_noise", patterns = ["(?=x)"] }': "cannot be used",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "group_by_rule", pattern = "[" }': "cannot be used",
    'name = "a"\nmatch = { prefix = "x" }\nstrategy = { type = "dedup" }\nstrategies = [{ type = "dedup" }]': "both",
    'name = "a"\nmatch = { prefix = "x" }\ncolour = 1\nstrategy = { type = "dedup" }': "colour",
}  # fmt: skip


@pytest.mark.parametrize("rule", BAD, ids=[str(number) for number in range(len(BAD))])
def test_a_bad_rule_is_left_out_with_a_warning_and_the_rest_loads(rule):
    text = (
        f'[[rules]]\n{rule}\n[[rules]]\nname = "good"\nmatch = {{ prefix = "good" }}\nstrategy = {{ type = "dedup" }}'
    )
    filters, warnings = load_filters(text, source="/home/ada/filters.toml")
    assert filters.names == (*FILTERS.names, "good")
    assert len(warnings) == 1 and warnings[0].startswith("/home/ada/filters.toml: the rule ")
    assert BAD[rule] in warnings[0]


@pytest.mark.parametrize("text", ["not toml", "[[rules", "rules = 3", "x = 1", "rules = [1]"])
def test_a_file_that_makes_no_sense_warns_and_the_built_in_rules_stay(text):
    filters, warnings = load_filters(text)
    assert filters.names == FILTERS.names and len(warnings) == 1


def test_a_file_of_a_person_is_read_or_warned_about_and_never_waited_for(tmp_path):
    path = tmp_path / "filters.toml"
    assert read_user_filters(path) == (None, [])
    path.write_text("# é", encoding="utf-8")
    assert read_user_filters(path) == ("# é", [])
    path.write_bytes(b"#" * (1024 * 1024))
    assert read_user_filters(path)[1] == []
    large, fifo, latin = tmp_path / "large", tmp_path / "fifo", tmp_path / "latin"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    os.mkfifo(fifo)
    latin.write_bytes(b"# \xe9")
    for path, why in (
        (large, "larger than 1 MiB"), (fifo, "not a regular file"), (latin, "not UTF-8"),
        (tmp_path, "not a regular file"),
    ):  # fmt: skip
        text, warnings = read_user_filters(path)
        assert text is None and why in warnings[0]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(x*)*y", "(?:a?){30}a{30}$", "(.*)*=(.*)*b$"])
def test_a_hostile_pattern_on_a_hostile_line_comes_to_an_end(pattern):
    rule = f'[[rules]]\nname = "x"\nmatch = {{ regex = "{pattern}" }}\nstrategy = {{ type = "strip_noise", patterns = ["{pattern}"] }}'
    filters, warnings = load_filters(rule)
    assert warnings == []
    line = "a" * 500_000 + "x" * 500_000 + "!"
    assert filters.apply(line + "\n", "a" * 30 + "=b", exit_code=0).text == line + "\n"
    assert filters.apply(line + "\n", "y" + "a" * 30, exit_code=1).text == line + "\n"
