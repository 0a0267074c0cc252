"""Random lines: nothing raises, nothing is allowed that the parser calls an error, and bash reads the same words."""

import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from acp_agent.safety.access import Allow
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import matches
from acp_agent.safety.lines.examine import examine, judge
from acp_agent.safety.lines.line import read
from acp_agent.safety.lines.quoting import unquoted
from tests.nightly import examples, times

FUZZ = settings(
    max_examples=examples(200), derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PIECES = st.sampled_from(
    "ls cat a.txt rm -rf sudo x git -c log env "
    "A=1 xargs bash -c find -exec {} \\; ; && || | |& & ( ) { } [ ] [[ ]] ' \" "
    "` $ $( ${ $' $\" <( >( > >> >& <& &> >| < << <<- <<< EOF 2>&1 /dev/null .. ~ * ? \\ # ! = == if then else fi "
    "for in "
    "do done while case esac ;; function time coproc (( )) a=1 a=( eval timeout 5 é \0 \ud800 \u202e \r".split(" ")
)
LINES = st.lists(st.one_of(PIECES, st.sampled_from([" ", " ", "\n", "\t"])), max_size=16).map("".join)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fuzz")
    (root / "a.txt").write_text("a\n")
    return root


@FUZZ
@given(line=LINES | st.text(alphabet=st.characters(codec=None), max_size=40))
def test_no_text_breaks_the_examination(line: str, project: Path) -> None:
    found = examine(line, Roots(project), project)
    assert found.lines() and found.understood == (not found.trouble)
    assert line in found.candidates or not line.strip()


@FUZZ
@given(line=LINES)
def test_a_parse_error_is_never_allowed(line: str, project: Path) -> None:
    if read(line).root.has_error:
        found = examine(line, Roots(project), project)
        assert not isinstance(judge(line, Roots(project), project), Allow)
        assert not found.understood and not found.permitted_by(lambda text: text)


@FUZZ
@given(line=LINES)
def test_what_every_rule_would_allow_is_valid_bash(line: str, project: Path) -> None:
    if examine(line, Roots(project), project).permitted_by(lambda text: text):
        checked = subprocess.run(["bash", "-n"], input=line.encode(), capture_output=True, timeout=30)
        assert checked.returncode == 0, checked.stderr


# --- wrapped -------------------------------------------------------------------------------------------------------


def spelled(word: str, dice: random.Random) -> str:
    """The same word in other quotes."""
    made = []
    for char in word:
        made.append(
            dice.choice([char, char, f"'{char}'", f'"{char}"', f"\\{char}", f"''{char}", f"$'\\x{ord(char):x}'"])
        )
    return "".join(made)


WRAPPERS = [
    "env {}", "env A=1 {}", "timeout 5 {}", "nice -n 3 {}", "nohup {}", "command {}", "exec {}", "setsid {}", "time {}",
    "stdbuf -oL {}", "xargs -n 1 {}", "A=1 {}", "a; {}", "a && {}", "a | {}", "( {} )", "{{ {}; }}",
    "if a; then {}; fi", "while a; do {}; done", "f() {{ {}; }}", "echo $( {} )", "cat <({})", 'echo "$( {} )"',
    "find . -exec {} ';'", "{} > /dev/null", "for i in a b; do {}; done", "case a in a) {};; esac",
]  # fmt: skip
PLAIN = {
    "env {}", "env A=1 {}", "timeout 5 {}", "nice -n 3 {}", "nohup {}", "command {}", "exec {}", "setsid {}",
    "stdbuf -oL {}",
}  # fmt: skip
SHELLS = ["bash -c {}", "sh -c {}", "eval {}", "bash -ec {}"]


@FUZZ
@given(seed=st.integers(0, 10**9))
@example(seed=21548167)
def test_a_denied_program_is_a_candidate_in_whatever_it_is_wrapped(seed: int, project: Path) -> None:
    dice = random.Random(seed)
    line = f"{spelled('sudo', dice)} {spelled('reboot', dice)}"
    simple = True
    for _ in range(dice.randint(0, 4)):
        if dice.random() < 0.3:
            line = dice.choice(SHELLS).format(shlex.quote(line))
        else:
            fitting = [wrapper for wrapper in WRAPPERS if simple or wrapper not in PLAIN | {"xargs -n 1 {}", "A=1 {}"}]
            wrapper = dice.choice([one for one in fitting if simple or "find" not in one])
            simple = simple and wrapper in PLAIN
            line = wrapper.format(line)
            continue
        simple = True
    if subprocess.run(["bash", "-n", "-c", line], capture_output=True, timeout=30).returncode != 0:
        return  # put together so that bash takes none of it
    assert any(matches("sudo reboot*", text) for text in examine(line, Roots(project), project).candidates), line


# --- what bash makes of it -----------------------------------------------------------------------------------------

SNIPPETS = [
    "a", "b c", "'a b'", '"a b"', "\\ ", "\\\\", "\\'", '\\"', "$'a\\tb'", "$'\\x41\\102'", "''", '""', "a'b'",
    '"a\\$b"', '"a\\b"', '"a\\\nb"', "a\\\nb", "-x", "--y=z", "{}", "a,b", "{a,b}", "a..b", "{1..3}", "$", "$a", '"$a"',
    '"a$"', "$'a'b", "~", "a~", "a=~", "*", "?", "[a]", "#", "a#b", "!", '"!"', "é", "=", "a=b", ":", "%", "^", "@",
    "+", "\\;", "'\n'", '"`"', "\\a", "\\*", "'*'", "$'\\u41'", "$'\\''", "\\$a", "\\#", "\\{a,b}", "a:~", "$'\\q'",
    '"\'"', "'\"'",
]  # fmt: skip


def test_words_are_what_bash_hands_over(tmp_path: Path) -> None:
    dice = random.Random(20)
    lines: dict[str, list[list[str]]] = {}
    for _ in range(times(500)):
        sources = ["".join(dice.choices(SNIPPETS, k=dice.randint(1, 3))) for _ in range(dice.randint(1, 4))]
        line = "x " + " ".join(sources)
        if (commands := understood(line, tmp_path)) and len(commands) == 1:
            lines[line] = commands
    assert len(lines) > 60
    for line, ran in zip(lines, ran_by_bash(lines, tmp_path), strict=True):
        assert lines[line] == ran, line


ENDS = [*[" "] * 9, "", "\t", "\n", " \n", "\n\n", "; ", " && ", " | ", " || ", "\\\n", " # c\n", ";\n"]
OPERATORS = (
    "x y x z == =~ != -eq -a [ ] [[ ]] ( ) { } in # ! 2 2> 1>&2 > out < >& -o {a} {a}> += a[0]=1 $( ` (( <<< >| <> "
    "2>&1 ~"
)


def test_what_every_rule_would_allow_is_what_bash_runs(tmp_path: Path) -> None:
    """A line end after `==` was a blank for the grammar: the command after it would have run as a word of another."""
    dice = random.Random(21)
    operators, words = OPERATORS.split(" "), [each for each in SNIPPETS if "\n" not in each]
    lines: dict[str, list[tuple[str, ...]]] = {}
    for _ in range(times(500)):
        chosen = [dice.choice(operators if dice.random() < 0.7 else words) for _ in range(dice.randint(1, 7))]
        line = "".join(word + dice.choice(ENDS) for word in chosen) + "x"
        found = examine(line, Roots(tmp_path), tmp_path)
        if found.permitted_by(lambda text: text):
            lines[line] = [part.words for part in found.parts if part.words is not None]
            if len(lines[line]) < len(found.parts):
                del lines[line]  # With wildcards.
    assert sum("\n" in line for line in lines) > 8
    assert sum(">" in line for line in lines) > 3
    for line, ran in zip(lines, ran_by_bash(lines, tmp_path), strict=True):
        # None, if it is no shell after all; not what stands after `||`.
        assert Counter(map(tuple, ran)) <= Counter(lines[line]), line


@pytest.mark.parametrize("line", [
    "ls ==\nrm -rf x", "ls a == \n\n rm x", "ls == # a\nrm x", "{ls;\n}", "x && ls ==\nrm x", "!{a}", "ls >& -x",
    "ls {a}>x",
])  # fmt: skip
def test_a_rule_for_one_command_does_not_allow_another_that_the_grammar_takes_for_its_words(line: str, tmp_path: Path):
    assert not examine(line, Roots(tmp_path), tmp_path).permitted_by(lambda text: text)


def test_words_after_a_redirection_are_those_of_the_command_before_it(tmp_path: Path) -> None:
    lines = ["a && b 2>x c d", "a 2>x b | c 2>y d", "! a 1>&2 b", "a || b 2>x c | d 2>y e", "a 2>x b 1>&2 c"]
    for line, ran in zip(lines, ran_by_bash(lines, tmp_path), strict=True):
        found = examine(line, Roots(tmp_path), tmp_path)
        assert {part.words for part in found.parts} >= set(map(tuple, ran)), line
        assert found.permitted_by(lambda text: text)


def understood(line: str, folder: Path) -> list[list[str]]:
    """The commands of a line that none of the user's rules would have to ask about."""
    found = examine(line, Roots(folder), folder)
    known = [list(part.words) for part in found.parts if part.words is not None]
    return known if found.understood and len(known) == len(found.parts) else []


RAN = """\
PATH=/nonexistent
command_not_found_handle() { printf '%s\\0' "$@" $'\\2' >&9; }
"""


def ran_by_bash(lines: Iterable[str], folder: Path) -> list[list[list[str]]]:
    """Of each line the commands, with their words."""
    script = RAN + "".join(f"eval {shlex.quote(line)}; printf '\\1\\0' >&9\n" for line in lines)
    shell = shutil.which("bash") or "bash"
    wrapped = [shell, "-c", 'exec 9>&1; exec >/dev/null; exec "$0"', shell]
    done = subprocess.run(wrapped, input=script.encode(), cwd=folder, capture_output=True, check=True, timeout=60)
    ran = [one.split(b"\2\0")[:-1] for one in done.stdout.split(b"\1\0")[:-1]]
    return [[[word.decode() for word in one.split(b"\0")[:-1]] for one in commands] for commands in ran]


@FUZZ
@given(text=st.text(max_size=60))
def test_a_word_quoted_by_the_library_is_read_back(text: str) -> None:
    word = unquoted(shlex.quote(text))
    if "\0" not in text and text.isprintable():
        assert word.literal
    assert word.text == text


CRASHES = r"""
import sys
from acp_agent.safety.lines.line import read
for before in ("{", "{1", "a{b,{12", "echo $(echo {", "cat <<E\nx$", "[[ -", "${", "$"):
    for code in (0x100, 0x7FF, 0x800, 0x2028, 0xFFFD, *range(0x10000, 0x110000, int(sys.argv[1]))):
        read(before + chr(code)).root
"""


def test_characters_above_u_00ff_do_not_crash_the_parser() -> None:
    """In a small process: how much memory there is beyond the tables decides whether it crashes."""
    step = 0x1010 // times(1, 16)
    assert subprocess.run([sys.executable, "-c", CRASHES, str(step)], timeout=60).returncode == 0


@pytest.mark.parametrize("word", ["日本", "a日", "🎉", "ğ", "x🎉y", "ÿ"])
def test_words_keep_their_characters(word: str):
    line = read(f"grep {word} '{word}.txt'")
    [command] = line.root.children
    assert line.gap == "" and line.simple(command).words == ("grep", word, f"{word}.txt")


QUOTING = st.lists(
    st.sampled_from(["'", '"', "\\", "$(hit)", "`hit`", "${x:-$(hit)}", " ", "a", "#", "\n", "$", "!", "<(hit)"]),
    max_size=9,
).map("".join)


@settings(max_examples=examples(400))
@given(QUOTING)
def test_what_is_taken_for_quoted_is_never_run(text: str) -> None:
    line = f"echo {text}"
    with tempfile.TemporaryDirectory() as made:
        if isinstance(judge(line, Roots(Path(made)), Path(made)), Allow):
            code = 'hit() { touch hit; }; eval "$1"'
            subprocess.run(["bash", "-c", code, "_", line], cwd=made, capture_output=True, timeout=20, check=False)
            assert not (Path(made) / "hit").exists()
