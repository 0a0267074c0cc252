# ruff: noqa: E501 (outputs and rules stand as they are)
"""The nine strategies: what each removes, with which parameters, and with which confidence."""

import msgspec
import pytest

from acp_agent.output.cut import Omission, carried_out
from acp_agent.output.error_lines import looks_like_error
from acp_agent.output.strategies import (
    Dedup,
    GitDiff,
    GitStatus,
    GroupByRule,
    KeepMatching,
    Strategy,
    StripAnnotated,
    StripNoise,
    TestSummary,
    Truncate,
)
from tests.tables import table


def kept(strategy: Strategy, text: str, *, failed: bool = False) -> tuple[list[str], str]:
    lines = text.split("\n")
    cut = strategy.cut(lines)
    return carried_out(lines, cut, failed=failed), cut.confidence


def numbered(count: int, word: str = "line") -> str:
    return "\n".join(f"{word} number {number}" for number in range(count))


def test_strip_noise_is_full_when_lines_longer_than_their_mark_went_and_fallback_otherwise():
    lines, confidence = kept(StripNoise(("^Compiling ", "^\\s*$")), numbered(10, "Compiling") + "\n\ndone")
    assert lines == ["[... 10 lines of noise left out ...]", "done"] and confidence == "Full"
    assert kept(StripNoise(("^Compiling ",)), "one\ntwo") == (["one", "two"], "Fallback")
    assert kept(StripNoise(("^x$",)), "a\nx\nb")[0] == ["a", "x", "b"]
    assert Omission("line", "lines").mark(1) == "[... 1 line left out ...]"


def test_truncate_keeps_twenty_lines_at_each_end_or_what_the_rule_says():
    lines, confidence = kept(Truncate(), numbered(101))
    assert lines == [*numbered(20).split("\n"), "[... 61 lines left out ...]", *numbered(101).split("\n")[-20:]]
    assert confidence == "Partial"
    assert kept(Truncate(), numbered(100)) == (numbered(100).split("\n"), "Full")
    lines, _ = kept(Truncate(max_lines=5, head=2, tail=1), numbered(50))
    assert lines == ["line number 0", "line number 1", "[... 47 lines left out ...]", "line number 49"]


def test_keep_matching_keeps_nothing_else_but_errors():
    text = numbered(20) + "\nwanted: a\nerror: lost\n" + numbered(20)
    lines, confidence = kept(KeepMatching(("^wanted",)), text)
    assert lines == ["[... 40 other lines left out ...]", "wanted: a", "error: lost"] and confidence == "Partial"
    assert kept(KeepMatching(("^absent",)), text) == (text.split("\n"), "Fallback")


def test_strip_annotated_takes_the_lines_of_a_note_but_its_errors():
    text = "warning: a\nnote: because of this long reason here\n  --> over there\n  and more of it\nwarning: b\n  = help: see the manual of the program\nend"
    lines, confidence = kept(StripAnnotated(("note:", "help:")), text)
    assert lines == ["warning: a", "[... 4 lines of notes left out ...]", "warning: b", "end"] and confidence == "Full"
    assert kept(StripAnnotated(("note:",)), "a\nb")[1] == "Fallback"
    text = "note: the following happened in the tool\n  error: disk full\n  and what is below it, too, at length\nend"
    assert "  error: disk full" in kept(StripAnnotated(("note:",)), text)[0]


@pytest.mark.parametrize(("passing", "failing", "summary"), [
    ("test tests::error_{} ... ok", "test tests::x ... FAILED", "test result: FAILED. 30 passed; 1 failed"),
    (
        "        PASS [   0.005s] words tests::a_{}", "        FAIL [   0.005s] words tests::b",
        "     Summary [   0.051s] 31 tests run",
    ),
    (
        "tests/a.py::test_error_{} PASSED    [ 12%]", "tests/a.py::test_x FAILED    [ 12%]",
        "==== 1 failed, 30 passed in 0.07s ====",
    ),
    (
        "[gw0] [ 12%] PASSED tests/a.py::test_{} ", "[gw0] [ 12%] FAILED tests/a.py::test_x ",
        "==== 1 failed, 30 passed in 0.07s ====",
    ),
    ("--- PASS: TestError{} (0.00s)", "--- FAIL: TestX (0.00s)", "FAIL\texample.org/words\t0.005s"),
    ("  ✓ adds up {} (2 ms)", "  ✕ adds up (2 ms)", "Tests:       1 failed, 30 passed, 31 total"),
    ("test_a{} (mod.Class.test_a) ... ok", "test_b (mod.Class.test_b) ... FAIL", "Ran 31 tests in 0.001s"),
])  # fmt: skip
def test_test_summary_drops_what_passed_and_keeps_failures_and_the_summary(passing, failing, summary):
    text = "\n".join(
        [*(passing.format(number) for number in range(30)), failing, "    left: 3", "   right: 4", summary]
    )
    lines, confidence = kept(TestSummary(), text, failed=True)
    assert lines == ["[... 30 lines of passing tests left out ...]", failing, "    left: 3", "   right: 4", summary]
    assert confidence == "Full"


def test_test_summary_without_a_summary_is_partial_and_of_anything_else_fallback():
    killed = "\n".join(f"tests/a.py::test_{number} PASSED [  1%]" for number in range(30))
    assert kept(TestSummary(), killed) == (["[... 30 lines of passing tests left out ...]"], "Partial")
    assert kept(TestSummary(), numbered(30)) == (numbered(30).split("\n"), "Fallback")


def test_of_go_what_failed_and_its_coverage_stay_and_what_passed_goes():
    text = "=== RUN   TestA\n    a_test.go:5: looking at the first thing\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:7: before\n    b_test.go:8: got 1\n--- FAIL: TestB (0.00s)\nFAIL"
    lines, _ = kept(TestSummary(), text, failed=True)
    assert "    b_test.go:7: before" in lines and "--- FAIL: TestB (0.00s)" in lines
    assert not any("a_test.go" in line for line in lines)
    plain = "\n".join(f"ok  \texample.org/p{n}\t0.{n:03d}s" for n in range(50)) + "\nok  \texample.org/c\t(cached)"
    assert kept(TestSummary(), plain)[0] == ["[... 51 lines of passing tests left out ...]"]
    covered = [f"ok  \texample.org/p{n}\t0.{n:03d}s\tcoverage: 80.0% of statements" for n in range(100)]
    assert kept(TestSummary(), "\n".join(covered))[0] == covered
    verbose = ["=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS", "coverage: 80.0% of statements", covered[0]]
    assert kept(TestSummary(), "\n".join(verbose * 9))[0][-2:] == verbose[-2:]


def test_group_by_rule_keeps_the_first_of_each_rule_and_the_places_of_all():
    block = "warning: unneeded `return` statement\n --> src/{0}.rs:{0}:5\n  |\n{0} |     return 1;\n  |\n  = help: https://rust-lang.github.io/rust-clippy/master/index.html#needless_return\n"
    lines, confidence = kept(GroupByRule(), "\n".join(block.format(number) for number in range(4)))
    assert lines.count("warning: unneeded `return` statement") == 1
    assert "[... 3 more of needless_return left out, at src/1.rs:1:5, src/2.rs:2:5, src/3.rs:3:5 ...]" in lines
    assert confidence == "Full"
    text = "\n".join(f"src/a.py:{number}:1: F401 `os` imported but unused" for number in range(1, 9))
    assert kept(GroupByRule(), text)[0][1].startswith("[... 7 more of F401 left out, at src/a.py:2:1, ")
    described = "\n".join(f"a.x:{number} [style/indent] indented by a wrong number of blanks" for number in range(9))
    lines, _ = kept(GroupByRule(r"\[(?P<rule>[\w/]+)\]"), described)
    assert len(lines) == 2 and "8 more of style/indent left out" in lines[1]


def test_group_by_rule_never_groups_errors_that_say_different_things():
    block = "error: unused variable: `{0}`\n --> src/a.rs:{0}:5\n  |\n  = note: `-D unused-variables` implied by `-D warnings`\n"
    lines, _ = kept(GroupByRule(), "\n".join(block.format(number) for number in range(5)), failed=True)
    assert [line for line in lines if line.startswith("error")] == [f"error: unused variable: `{n}`" for n in range(5)]
    assert kept(GroupByRule(), "nothing here")[1] == "Fallback"


def test_git_status_keeps_every_path_error_and_foreign_line_and_drops_hints():
    text = 'On branch main\nChanges to be committed:\n  (use "git restore --staged <file>..." to unstage)\n\tmodified:   a.py\n\nUntracked files:\n  (use "git add <file>..." to include in what will be committed)\n\tnew file\n'
    lines, confidence = kept(GitStatus(), text)
    assert lines == [
        "On branch main", "Changes to be committed:", "[... 2 hints left out ...]", " modified: a.py",
        "Untracked files:", " new file",
    ]  # fmt: skip
    assert confidence == "Full"
    assert kept(GitStatus(), "something else")[1] == "Fallback"
    before = "all:\n\n\tcc -o x x.c\n\n  (use this as it is)"
    lines, _ = kept(GitStatus(), before + "\nOn branch main\n\n\tmodified:   a.py")
    assert lines == [*before.split("\n"), "On branch main", " modified: a.py"]
    text = "On branch main\n\tmodified:   error.py\n\tmodified:   a.py"
    assert kept(GitStatus(), text)[0] == ["On branch main", "\tmodified:   error.py", " modified: a.py"]


def diff_of(name: str, size: int) -> str:
    added = "\n".join(f"+--- error: line {number}" for number in range(size))
    return f"diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n@@ -0,0 +1,{size} @@\n{added}"


def test_git_diff_keeps_all_headers_and_says_what_it_cut_of_hunks_alone():
    text = "\n".join([diff_of("small.py", 5), diff_of("large.py", 600), diff_of("huge.py", 6000)])
    lines, confidence = kept(GitDiff(max_diff_lines=100), text)
    headers = [line for line in text.split("\n") if line.startswith(("diff", "index", "--- a", "+++ b", "@@"))]
    assert [line for line in lines if line in headers] == headers
    assert sum(line.startswith("+--- error") for line in lines) == 85
    assert "[... 560 lines of large.py left out ...]" in lines and "[... 5960 lines of huge.py left out ...]" in lines
    assert confidence == "Partial"
    assert kept(GitDiff(), diff_of("a", 495)) == (diff_of("a", 495).split("\n"), "Full")
    assert len(kept(GitDiff(), diff_of("a", 496))[0]) == 501 and kept(GitDiff(), numbered(501))[1] == "Fallback"
    text = diff_of("a", 600) + "\nerror: the diff broke off"
    assert "error: the diff broke off" in kept(GitDiff(20), text)[0]


def test_dedup_counts_lines_that_differ_in_time_and_ids_alone():
    text = "\n".join(
        f"2026-11-21T09:16:{n:02d}.1Z INFO 0x{n:04x} request 3f1c0f6e-51d3-4b2f-9d1c-5b7e8a6f{n:04x}" for n in range(12)
    )
    lines, confidence = kept(Dedup(), text + "\nother\nother thing", failed=True)
    assert lines == [text.split("\n")[0] + " (x12)", "other", "other thing"] and confidence == "Full"
    text = "request 1 failed\nrequest 2 failed\nrequest 1 failed"
    assert kept(Dedup(), text)[0] == text.split("\n")


@pytest.mark.parametrize("name", ["request 3f1c0f6e-51d3-4b2f-9d1c-5b7e8a6f{:04x}", "free(0x7ffd{:04x})"])
def test_dedup_joins_errors_that_differ_in_time_and_none_that_differ_in_ids(name):
    errors = [f"2026-11-21T09:16:{n:02d}.1Z ERROR {name.format(n)} failed" for n in range(12)]
    assert kept(Dedup(), "\n".join(errors))[0] == errors
    again = [f"2026-11-21T09:16:{n:02d}.1Z ERROR {name.format(0)} failed" for n in range(12)]
    assert kept(Dedup(), "\n".join(again), failed=True)[0] == [again[0] + " (x12)"]


@pytest.mark.parametrize(
    "head", ["{", "[", "---", "apiVersion: v1", "E1121 09:24:26.964228 30505 memcache.go:265] x\napiVersion: v1"]
)
def test_dedup_leaves_a_document_as_it_is(head):
    text = head + '\n  - "0x01"' * 30
    assert kept(Dedup(), text) == (text.split("\n"), "Fallback")


def test_a_failed_command_keeps_its_last_forty_lines_or_what_follows_its_error():
    lines, _ = kept(Truncate(max_lines=10, head=1, tail=1), numbered(100), failed=True)
    assert lines[2:] == numbered(100).split("\n")[-40:]
    text = numbered(50) + "\nmain.c:1:5: error: expected ;\n    1 | int\n      |    ^\n" + numbered(50)
    lines, _ = kept(Truncate(max_lines=10, head=1, tail=1), text, failed=True)
    assert lines[2:5] == ["main.c:1:5: error: expected ;", "    1 | int", "      |    ^"]


@pytest.mark.parametrize(
    "strategy", [Truncate(10, 1, 1), KeepMatching(("number 3$",)), StripNoise(("number",)), Dedup()]
)
def test_a_failed_command_that_named_an_error_keeps_its_last_forty_lines_too(strategy):
    text = "error: it began here\n" + numbered(100) + "\nin words that nobody knows\n" + numbered(39)
    assert kept(strategy, text, failed=True)[0][-40:] == text.split("\n")[-40:]


PODS = ["NAMESPACE   NAME       READY   STATUS    RESTARTS      AGE"]
PODS += [f"web         pod-{n:04d}   1/1     Running   3 (5m ago)    {n}d" for n in range(300)]
UNREADY = {
    170: "web         pod-bad1   0/1     Pending   0             5d",
    171: "web         pod-bad2   0/1     ContainerCreating   47  5d",
    172: "web         pod-bad3   9/10    Running   0             5d",
    173: "web         pod-bad4   1/1     Terminating 0           5d",
    174: "web         pod-bad5   0/1     Init:0/1  0             5d",
}


@pytest.mark.parametrize("strategy", [Truncate(200, 100, 40), KeepMatching(("^NAME",)), StripNoise(("web",))])
def test_rows_of_what_is_not_ready_stay_in_a_table(strategy):
    rows = [UNREADY.get(place, row) for place, row in enumerate(PODS)]
    rows[175] = "web         pod-done   0/1     Completed 0             5d"
    lines, _ = kept(strategy, "\n".join(rows))
    assert [line for line in lines if "bad" in line] == list(UNREADY.values())
    assert rows[175] not in lines
    assert len(lines) < 150


def test_rows_of_what_is_not_ready_stay_without_a_head_and_lines_after_a_table_are_none():
    rows = [f"pod-{n:04d}   1/1     Running   0   {n}d" for n in range(300)]
    rows[170], rows[171] = "pod-bad1   0/1     Pending   0    5d", "dep-bad2   2/10    3         2    4d13h"
    lines, _ = kept(Truncate(200, 100, 40), "\n".join(rows))
    assert [line for line in lines if "bad" in line] == rows[170:172] and len(lines) == 144
    after = [f"line number {n} of something else" for n in range(50)]
    lines, _ = kept(StripNoise(("^line",)), "\n".join([PODS[0], PODS[1], UNREADY[170], *after]))
    assert lines == [PODS[0], PODS[1], UNREADY[170], "[... 50 lines of noise left out ...]"]


@pytest.mark.parametrize(
    ("head", "well", "unwell"),
    [
        ("NAME     STATUS   ROLES    AGE", "node-{}   Ready    <none>   5d", "node-x   Ready,SchedulingDisabled <none> 5d"),
        ("NAME    DESIRED   CURRENT   READY   AGE", "set-{}   3         3         3       5d", "set-x   12        12        9       5d"),
        ("NAME     READY   SECRET   AGE", "cert-{}   True    tls      5d", "cert-x   False   tls      5d"),
        ("NAME    STATUS   VOLUME", "pvc-{}   Bound    v-1", "pvc-x   Lost     v-1"),
    ],
)  # fmt: skip
def test_rows_of_other_tables_are_judged_by_their_columns(head, well, unwell):
    rows = [head, *(well.format(n % 10) for n in range(60)), unwell, *(well.format(n % 10) for n in range(60))]
    lines, _ = kept(Truncate(50, 5, 5), "\n".join(rows))
    assert unwell in lines and len(lines) == 13


@table("line", [
    "error: x", "ERROR x", "npm ERR! code", "E   assert 1 == 2", "FAILED tests/a.py::test_b", "--- FAIL: TestX (0.00s)",
    "thread 'main' panicked at src/lib.rs", "panic: runtime error", "Traceback (most recent call last):",
    "KeyError: 'x'", "fatal: not a git repository", "ld: undefined reference to `x'",
    "Segmentation fault (core dumped)", "Killed", "make: *** [Makefile:4: f70.o] Error 1", "bash: x: command not found",
    "cat: x: No such file or directory", "CONFLICT (content): Merge conflict in f", "permission denied",
    "3 passed, 1 failed", "0 errors, 2 failed", "worker 0 failed", "Error: 0 arguments given",
    "failed: 0 bytes written", "E1121 09:24:26.964228 30505 memcache.go:265] x", "java.lang.NullPointerException",
    "syntax_error: x", "ENOENT: x", "connect ECONNREFUSED 127.0.0.1", "could not connect", "exit status 1",
    "Caused by:", "job-1  0/1  CrashLoopBackOff", "test tests::x ... FAILED", "not ok 3 - x",
    "cc -Werror main.c: failed", "Tests run: 5, Failures: 0, Errors: 1, Skipped: 0", "failures=0, errors=1",
    "unreachable=0 failed=2", "failed: 0, errors: 7", "invalid: 0, missing: 4", "ok=3 skipped=0 failed=2",
    '{"failed":0,"errors":3}', "make: *** No rule to make target 'x', needed by 'all'.  Stop.",
    "make[2]: *** [x] Interrupt", "write x: No space left on device", "✖ 3 problems (3 errors)", "✖ 3 problems",
    "Illegal instruction", "*** stack smashing detected ***: terminated", "WARNING: ThreadSanitizer: data race (pid=1)",
    "==1==ERROR: AddressSanitizer: heap-use-after-free", "SUMMARY: UndefinedBehaviorSanitizer: x",
    "read: Connection reset by peer", "getaddrinfo: Name or service not known", "open: too many open files",
    "touch: x: Read-only file system", "Disk quota exceeded", "quota exceeded", "cp: x: Is a directory",
    "ls: x: Not a directory", "KeyboardInterrupt", " ! [rejected]        main -> main (fetch first)",
    "web-1  0/1  ErrImagePull  0  5d", "node-1  NotReady", "rc=1", "[1]+  Exit 1                  make",
    "Exited (137) 3 minutes ago", "write: Broken pipe", "EROFS: x", "EPIPE",
])  # fmt: skip
def test_a_line_that_tells_of_a_failure_is_known(line):
    assert looks_like_error(line)


@table("line", [
    "0 errors", "12 passed, 0 failed", "no errors found", "failed: 0", '{"failed":0}', "test error_handling ... ok",
    "tests/a.py::test_error PASSED   [ 12%]", "--- PASS: TestError (0.00s)", "   Compiling thiserror v1.0.2",
    "cc -Werror -c main.c", "test result: ok. 1 passed; 0 failed; 0 ignored", "all good", "",
    "cargo test --no-fail-fast", "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0", "failures=0, errors=0",
    "Failed: 0, Passed: 12", "host : ok=3 changed=1 unreachable=0 failed=0 skipped=2 rescued=0",
    '{"failed": 0, "errors": 0}', "rc=0", "Exit 0", "exited with code 0", "Exited (0) 3 minutes ago",
    "this is a directory of names",
])  # fmt: skip
def test_a_line_that_tells_of_success_is_no_error(line):
    assert not looks_like_error(line)


def test_strategies_are_read_by_their_type():
    assert msgspec.convert({"type": "truncate"}, Truncate) == Truncate(100, 20, 20)
