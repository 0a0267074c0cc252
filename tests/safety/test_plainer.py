"""Loops over words, names by `xargs`, quoted messages: judged by plain commands that do the same, or not at all."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from acp_agent.safety.access import Allow, Ask
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.examine import EXACT, examine
from acp_agent.safety.lines.plainer import plainer
from tests.nightly import examples
from tests.tables import table

STUBS = ("cargo", "npm", "git", "ruff", "touch", "evil", "rm")
FUZZ = settings(
    max_examples=examples(300), derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("plainer") / "project"
    for name in ("a", "b", "src/x.py", "src/y.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    return root


def scopes(line: str, project: Path) -> list[str] | None:
    """What an "always" covers; `None`: this line alone; nothing if it runs without a question."""
    verdict = examine(line, Roots(project), project).verdict
    if isinstance(verdict, Allow):
        return []
    assert isinstance(verdict, Ask)
    exact = any(scope.startswith(EXACT) for scope in verdict.scopes)
    return None if exact else [scope.removeprefix("bash ") for scope in verdict.scopes]


def message(text: str, before: str = "git commit -m ", after: str = "") -> str:
    return f"{before}\"$(cat <<'EOF'\n{text}\nEOF\n)\"{after}"


COVERED = [
    ("for f in a b; do cargo test -p $f; done", ["cargo test"]),
    ("for f in a b\ndo\n touch \"$f\"\ndone", ["touch"]),
    ("for t in unit e2e; do npm run \"$t\"; done", ["npm run unit", "npm run e2e"]),
    ("for f in a; do touch \\$f; done", ["touch"]),
    ("for f in a b; do cat ${f} && echo \"$f\"; done", []),
    ("for f in a b; do wc -l \"$f\"; done | tail -1", []),
    ("cd src && for f in x y; do ruff check \"$f.py\"; done; git status", ["ruff"]),
    ("for a in 1 2; do for b in x y; do cargo test \"$a-$b\"; done; done", ["cargo test"]),
    ("find . -name '*.py' | xargs wc -l", ["xargs wc"]),
    ("find src -type f | xargs -n 1 wc -l | sort -n", ["xargs wc"]),
    ("cargo test; find src -name '*.py' -print0 | xargs -0 wc -l", ["cargo test", "xargs wc"]),
    ("find src -name '*.py' -type f -print0 | xargs -0 ruff check --fix", ["ruff"]),
    ("cargo test || npm test", ["cargo test", "npm test"]), ("cargo test && git add -A", ["cargo test", "git add"]),
    ("npx tsc --noEmit", ["npx tsc"]), ("npx --no-install eslint src", ["npx --no-install eslint"]),
    ("pnpm exec tsc -p .", ["pnpm exec tsc"]), (message("It's done"), ["git commit"]),
    (message("feat(x): one\n\n- two (2)", "git add -A && git commit -q -m ", " && git push"),
     ["git add", "git commit", "git push"]),
    ("git commit -F - <<'EOF'\nwhat `it` $(does)\nEOF", ["git commit"]),
    (
        "git add a && git commit -F- <<'END' && git push\nx\nEND\ngit tag v1",
        ["git add", "git commit", "git push", "git tag"],
    ),
]  # fmt: skip


@table(("line", "covered"), COVERED)
def test_an_always_covers_each_command_by_its_program(line: str, covered: list[str], project: Path) -> None:
    assert scopes(line, project) == covered


EXACTLY = [
    "for f in a b; do rm $f; done", "for f in *; do touch $f; done", "for f in 'a b'; do touch $f; done",
    "for f in $(ls); do touch $f; done", "for f in a; do cargo test > $f; done", "for f in ../a; do touch $f; done",
    "for f in cargo; do $f test; done", "for f in a=1; do $f cargo test; done", "for f in a; do f=../x; touch $f; done",
    "for f in a; do read f; touch $f; done", "for f in a; do printf -v f x; touch $f; done", "for f; do touch $f; done",
    "IFS=e; for f in aeb; do touch $f; done", "for f in a; do touch $g; done",
    "for f in a; do for f in ../b; do touch $f; done; done", "for f in a; do touch $f & done",
    "for f in a; do touch $f # x\ndone; rm -rf b", "while true; do cargo test; done",
    "for f in a; do touch $f; done > out",
    "for f in --manifest-path=../x; do cargo test $f; done", "for f in a; do cargo test; evil $f; done",
    "find . | xargs rm", "find . -delete | xargs wc", "find / | xargs wc", "echo a | xargs wc",
    "find . -printf x | xargs wc",
    "find . -exec evil {} + | xargs wc", "find . | xargs -I{} wc {}", "find . | xargs sh -c wc", "find . | xargs cat",
    "find . -print0 | xargs -0 ruff check", "find . -type f | xargs ruff check",
    "find . -type f -print0 | xargs -0 touch",
    "find . -type f -print0 | xargs -0 ruff check --config=x", "find . | xargs wc > out", "find . | xargs -a a wc",
    "find . -type f -o -name x -print0 | xargs -0 ruff check", "find . | evil | xargs wc", "find . | xargs wc | sh",
    "find test -type f -print0 | xargs -0 make", "npx evil", "npx -y tsc", "npx tsc@next", "npx -p evil tsc",
    "npx tsc --outDir ../x", "npx --yes eslint", message("x $(evil)"), message("x `evil`"), message(")\" ; evil ; \"("),
    message('")" " ; evil ; "'), message("x", "evil -m "), message("x", "git commit -m ", " ; evil"),
    message("x", "git commit --template "), message("x").replace("<<'EOF'", "<<EOF"), message("x\nEOF\nevil"),
    "git commit -F - <<EOF\n$(evil)\nEOF", "git commit -F - <<'EOF'\nx\nEOF\nevil",
    "git commit -F - <<'EOF' ; evil\nx\nEOF",
    "git commit -F - \"<<'EOF'\"\nevil\nEOF", "sh <<'EOF'\nevil\nEOF", "git commit -F - <<'EOF' | sh\nx\nEOF",
]  # fmt: skip


@table("line", EXACTLY)
def test_what_is_not_surely_the_same_is_asked_about_as_written(line: str, project: Path) -> None:
    assert scopes(line, project) is None


# --- never -------------------------------------------------------------------------------------------------------

LOOPS = st.sampled_from([
    "for f in a b; do ", "for g in b x/y; do ", "for f in a\ndo\n", "; done", "\ndone", " done", "cargo test ",
    "npm run ",
    "touch ", "evil ", "$f", '"$f"', "${f}", "x$f.y", "'$f'", "\\$f", "$g", "$f$g", " && ", " || ", "; ", "\n",
    " | ", "& ",
    "{ ", " }", "( ", " )", "f=../z; ", "# ", "if true; then ", "fi", "\\", "'", '"', "> out ", "<<'EOF'\n", "EOF",
    "! ",
])  # fmt: skip
AROUND = st.lists(LOOPS, max_size=7).map("".join)
LINES = st.builds(
    lambda before, middle, end, after: f"{before}for f in a b; do {middle}{end}{after}",
    st.sampled_from(["", "", "cargo test; ", "evil; ", "'", "{ "]), AROUND,
    st.sampled_from(["; done", "\ndone", "; done; "]), AROUND,
)  # fmt: skip
MESSAGES = st.builds(
    message,
    st.lists(st.sampled_from(["a", " ", "\n", "(", ")", "'", '"', "$(evil)", "`evil`", "; evil; ", "EOF", "\\", "#"]))
    .map("".join),
    st.sampled_from(["git commit -m ", "git add a && git commit -am", "evil; git commit -m ", "'git commit -m "]),
    st.sampled_from(["", "; evil", "\n", " && git push", '"', "'"]),
)  # fmt: skip


def ran(line: str, project: Path) -> list[list[str]] | None:
    """The stubs that bash runs, with their words; `None` if it takes the line for wrong, or does not end."""
    log, stubs = project.parent / "log", project.parent / "bin"
    log.write_text("")
    if not stubs.exists():
        stubs.mkdir()
        for name in STUBS:
            (stubs / name).write_text(f'#!/bin/sh\nprintf "%s\\0" {name} "$@" >> {log}; printf "\\n\\0" >> {log}\n')
            (stubs / name).chmod(0o755)
        for name in ("cat", "sh"):
            (stubs / name).symlink_to(str(shutil.which(name)))
    bash = str(shutil.which("bash"))
    done = subprocess.run(
        [bash, "-c", line], cwd=project, env={"PATH": str(stubs)}, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=20, check=False,
    )  # fmt: skip
    (project / "out").unlink(missing_ok=True)
    if b"syntax error" in done.stderr or b"unexpected EOF" in done.stderr:
        return None
    return [each.split("\0")[:-1] for each in log.read_text(errors="replace").split("\n\0") if each]


@FUZZ
@given(line=LINES)
@example(line="for f in a b; do cargo test $f # x\ndone; evil")
@example(line="for f in a b; do touch '$f' \\$f \"x$f.y\"; done")
def test_a_loop_and_its_plain_commands_run_the_same(line: str, project: Path) -> None:
    made, covered = plainer(line), scopes(line, project)
    if made is not None and covered is not None:
        assert ran(line, project) == ran(made[0], project)


@FUZZ
@given(line=LINES | MESSAGES)
@example(line=message(')" ; evil ; "('))
def test_an_answer_by_programs_never_lets_another_program_run(line: str, project: Path) -> None:
    covered = scopes(line, project)
    if covered is not None:
        programs = {scope.split()[0] for scope in covered}
        assert {words[0] for words in ran(line, project) or ()} <= programs, covered


INJECTED = st.sampled_from([
    "; evil", " && evil", "\nevil", " | evil", " | sh", " $(evil)", " `evil`", " > ../out", " > out", " & evil",
    " <(evil)",
    " >(evil)", " <<<$(evil)", " || evil", " 2>out", "; ../evil", " ; PATH=. cargo test", " {evil,x}",
    "; cd .. && touch a",
])  # fmt: skip


@FUZZ
@given(line=st.sampled_from([line for line, _ in COVERED if "<<" not in line]), more=INJECTED)
def test_nothing_put_behind_a_covered_line_is_covered(line: str, more: str, project: Path) -> None:
    assert scopes(line + more, project) is None


@FUZZ
@given(line=st.sampled_from([line for line, _ in COVERED if line.startswith("for ")]), more=INJECTED)
def test_nothing_put_into_a_loop_is_covered(line: str, more: str, project: Path) -> None:
    body, _, rest = line.rpartition("done")
    assert scopes(f"{body.rstrip('; ')}{more}\ndone{rest}", project) is None
