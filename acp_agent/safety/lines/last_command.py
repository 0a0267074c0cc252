"""The command whose output a shell line finally shows, in the form that filter rules expect.

Only for choosing a filter: nothing here decides what may run. If uncertain, there is no command (an empty text), and no
filter is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acp_agent.safety.lines.line import Line, read
from acp_agent.safety.lines.programs import words
from acp_agent.safety.lines.wrappers import WRAPPERS, base, behind, seen_by

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 40

CUTTERS = words("tail head cat tee less more")
"""Programs whose output has the format of their input: of the pipe, where they name no file."""
CUTTER_OPTIONS = {
    "head": ("-n", "-c", "--lines", "--bytes"),
    "tail": ("-n", "-c", "-s", "--lines", "--bytes", "--pid", "--sleep-interval", "--max-unchanged-stats"),
}
"""Options of cutters that take a word."""
FEEDERS = words("yes echo printf")
"""In front of a pipe they answer questions; what is seen is the next program's."""
SILENT = words(
    "cd pushd popd export set unset source . true : exit return mkdir rm touch cp mv chmod umask ulimit sleep trap "
    "wait shopt alias exec declare local readonly typeset test [ eval"
)
SPEAKING = words("echo printf")
"""They print a remark after another's output (`make; echo $?`)."""

PYTHON_OPTIONS = words("-W -X")
PYTHONS = words("python python3 pypy pypy3")
SEEN_THROUGH = seen_by("filters")
RUNNERS = {"pnpm": "exec", **{name: WRAPPERS[name].sub for name in SEEN_THROUGH if WRAPPERS[name].sub}}
KNOWN = CUTTERS | FEEDERS | SILENT | SPEAKING | PYTHONS | SEEN_THROUGH | RUNNERS.keys()
"""Names without which a line cannot be read: one that gives them another meaning gives no command."""

GLOBAL: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "git": (
        words("-C -c --git-dir --work-tree --namespace --config-env --exec-path"),
        words("--no-pager -P -p --paginate --no-optional-locks --bare --literal-pathspecs"),
    ),
    "cargo": (words("--color --config -C -Z"), words("-q --quiet -v -vv --verbose --offline --locked --frozen")),
    "npm": (
        words("--prefix -C -w --workspace --loglevel --registry --userconfig"),
        words("-s --silent -q --quiet --workspaces -ws --verbose -d --offline --yes -y"),
    ),
    "pnpm": (
        words("-C --dir -F --filter --loglevel --reporter"),
        words("-r --recursive -w --workspace-root -s --silent"),
    ),
    "yarn": (words("--cwd"), words("-s --silent")),
    "docker": (
        words("--context -c -H --host --config -l --log-level --tlscacert --tlscert"),
        words("-D --debug --tls --tlsverify"),
    ),
    "kubectl": (
        words("-n --namespace --context --kubeconfig --cluster --user -s --server --as"),
        words("--insecure-skip-tls-verify"),
    ),
    "terraform": (words(""), words("")),
    "tofu": (words(""), words("")),
    "pip": (
        words("--proxy --python --cache-dir --log --timeout --retries --cert --trusted-host"),
        words("-q -qq --quiet -v --verbose --no-input --disable-pip-version-check --isolated --no-cache-dir"),
    ),
}
"""Program -> options that may be before its sub-command: with a word of their own, and without."""


@dataclass(frozen=True)
class LastCommand:
    text: str
    """Program (without its folder) and arguments as written, one blank between. Without wrappers, variables in front,
    redirections, and options between a program and its sub-command. Empty if there is none."""
    alone: bool
    """Whether nothing else in the line can have printed."""


NONE = LastCommand("", False)


def last_command(script: str) -> LastCommand:
    """The last command of `script` whose output is seen as it is. Total: what is not understood gives an empty text.

    `cd x && cargo test 2>&1 | tail -80` gives `cargo test`. A pipe into what changes the format (`grep`, `sort`, `wc`)
    gives none; nor do loops, conditions and here documents in pipes, and names to which the line itself gives another
    meaning.
    """
    line = read(script)
    if not line.is_shell:
        return NONE
    segments, renamed = _segments(line, line.root, 0), _renamed(line)
    if segments is None or renamed & KNOWN:
        return NONE
    for number in range(len(segments) - 1, -1, -1):
        if not segments[number].prints and not segments[number].speaks:
            continue
        if segments[number].speaks and any(segment.prints for segment in segments[:number]):
            continue
        others = segments[:number] + segments[number + 1 :]
        if not segments[number].text or _program(segments[number : number + 1]) in renamed:
            return NONE
        return LastCommand(segments[number].text, not any(other.prints or other.speaks for other in others))
    return LastCommand(segments[-1].text, True) if segments else NONE


@dataclass(frozen=True)
class _Segment:
    text: str
    prints: bool
    speaks: bool = False


def _segments(line: Line, node: Node, depth: int) -> list[_Segment] | None:
    """The commands that run one after the other; None where a part of it is not understood."""
    if depth > MAX_DEPTH:
        return None
    depth += 1
    match node.type:
        case "program" | "list" | "subshell" | "compound_statement" | "negated_command":
            found: list[_Segment] = []
            for child in node.children:
                if child.is_named and child.type not in ("comment", "heredoc_body"):
                    below = _segments(line, child, depth)
                    if below is None:
                        return None
                    found += below
            return found
        case "command":
            return [_segment(line.simple(node).written)]
        case "variable_assignment" | "variable_assignments" | "declaration_command" | "unset_command" | "test_command":
            return [_Segment("", False)]
        case "function_definition":
            return [_Segment("", False)]
        case "pipeline":
            return _pipeline(line, node, depth)
        case "redirected_statement":
            return _redirected(line, node, depth)
    return [_Segment("", True)]


def _pipeline(line: Line, node: Node, depth: int) -> list[_Segment] | None:
    stages: list[list[_Segment]] = []
    for child in node.children:
        if child.is_named and child.type != "comment":
            stage = _segments(line, child, depth)
            if not stage or (stages and any(one.gives_input for one in line.redirects(child))):
                return None
            stages.append(stage)
    while len(stages) > 1 and _program(stages[0]) in FEEDERS:
        stages.pop(0)
    if all(_cuts(stage) for stage in stages[1:]):
        return stages[0]
    return [_Segment("", True)]


def _program(stage: Sequence[_Segment]) -> str:
    return stage[0].text.partition(" ")[0] if len(stage) == 1 else ""


def _cuts(stage: Sequence[_Segment]) -> bool:
    """Whether it lets through what comes out of the pipe, and nothing of a file."""
    program = _program(stage)
    if program not in CUTTERS:
        return False
    if program == "tee":
        return True
    words = iter(stage[0].text.split()[1:])
    for word in words:
        if word in CUTTER_OPTIONS.get(program, ()) or _ends_in_option(program, word):
            next(words, None)
        elif not word.startswith(("-", "+")) or word == "--":
            return False
    return True


def _ends_in_option(program: str, word: str) -> bool:
    """Whether the last of several options in one word takes the next word: `-fn 20`."""
    return program in CUTTER_OPTIONS and word[:1] == "-" != word[1:2] and word[-1:] in "nc"


def _renamed(line: Line) -> frozenset[str]:
    """Functions and aliases that the line makes."""
    names = set()
    nodes = [line.root]
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.type == "function_definition" and (name := node.child_by_field_name("name")) is not None:
            names.add(line.text_of(name))
        elif node.type == "command" and line.text_of(node).startswith("alias "):
            names.update(line.text_of(child).strip("'\"").partition("=")[0] for child in node.children[1:])
    return frozenset(names)


def _redirected(line: Line, node: Node, depth: int) -> list[_Segment] | None:
    body, *parts = node.children
    found = _segments(line, body, depth)
    if not found:
        return found
    if any(child.type == "pipeline" for part in parts for child in part.children):
        return None  # A here document into a pipe: the grammar hides the pipe in it.
    redirects = line.redirects(node)
    if body.type == "pipeline" and any(redirect.gives_input for redirect in redirects):
        return None
    if any(redirect.takes_output for redirect in redirects):
        # Of `{ a; b; } > file` nothing is seen; of `a; b > file` the grammar makes one node, too.
        kept = [] if body.type in ("subshell", "compound_statement") else found[:-1]
        return kept + [_Segment(segment.text, False) for segment in found[len(kept) :]]
    return found


def _segment(written: Sequence[str]) -> _Segment:
    words = _without_wrappers(written)
    if not words:
        return _Segment("", True)
    text = " ".join(_without_options(words))
    return _Segment(text, words[0] not in SILENT and words[0] not in SPEAKING, words[0] in SPEAKING)


def _without_wrappers(written: Sequence[str]) -> list[str]:
    """Program and arguments; empty where a wrapper hides them."""
    words = list(written)
    for _ in range(10):
        if not words:
            return []
        program = words[0] = base(words[0].strip("'\""))
        if program in RUNNERS:
            if words[1:2] != [RUNNERS[program]] or len(words) < 3 or words[2].startswith("-"):
                return words
            words = words[2:]
        elif program in SEEN_THROUGH:
            found = behind(words)
            if found is None or not found.words:
                return words
            words = list(found.words)
        elif program.rstrip("0123456789.") in ("python", "pypy") and (module := _module(words[1:])):
            words = module
        else:
            return words
    return []


def _module(words: list[str]) -> list[str]:
    """Of `python -u -m pytest tests` the words `pytest tests`; empty where no module is run."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        if words[at] in ("-c", "-"):
            return []
        at += 2 if words[at] in PYTHON_OPTIONS else 1
    return words[at + 1 :] if at < len(words) and words[at] == "-m" else []


def _without_options(words: list[str]) -> list[str]:
    """Without the options before a sub-command, where all of them are known."""
    program = words[0].rstrip("0123456789.") if words[0].startswith("pip") else words[0]
    if program not in GLOBAL:
        return words
    with_word, without = GLOBAL[program]
    at = 1
    while at < len(words):
        word = words[at]
        if word in with_word:
            at += 2
        elif word in without or word.partition("=")[0] in with_word or word.startswith(("-chdir=", "+")):
            at += 1
        else:
            break
    if at >= len(words) or words[at].startswith("-"):
        return words
    return [program, *words[at:]]
