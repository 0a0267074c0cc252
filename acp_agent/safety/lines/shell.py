"""Whether a shell command line only looks, and what an "always" answer for it would cover.

A line runs without asking only when every part of it is understood and every program in it is known to look and not
to touch (`programs`), at paths inside the session's folders. This is a white list from end to end: an unknown kind of
syntax, an unknown program, an unknown option of a program that could do harm, a character that a person would not see:
each of them asks.

Why the parse can be trusted: nothing is taken from the tree but nodes of the kinds named here, and the text of each is
checked once more by an expression of its own. Quotes occur in quoted nodes only, unquoted words hold no character
that means something to bash, and between the nodes there is nothing but blanks. So bash reads the same words.

What is not seen here: the files behind the names may change between the judgement and the run, and programs read the
person's own configuration (`~/.gitconfig`, `RIPGREP_CONFIG_PATH`), which is trusted. A repository's own configuration
is looked at (`git_folder`).

The one door for tree-sitter.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from acp_agent.safety.access import Allow, Ask
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.lines.always import scopes_of
from acp_agent.safety.lines.git_folder import runs_programs
from acp_agent.safety.lines.programs import looked_at
from acp_agent.safety.lines.reach import (
    CHANGES,
    DEV_NULL,
    EXPANDS,
    NOT_UNDERSTOOD,
    OUTSIDE,
    WRITES,
    AsksExactly,
    Folders,
    Reach,
)

__all__ = [
    "CHANGES",
    "EXPANDS",
    "NOT_UNDERSTOOD",
    "OUTSIDE",
    "WRITES",
    "After",
    "Folders",
    "Judged",
    "gaps",
    "judge",
    "judge_node",
    "judge_words",
    "parsed",
    "text_trouble",
]

BACKGROUND = "it runs in the background"
HIDDEN = "it holds characters that cannot be seen"
TOO_LONG = "it is very long"
HOSTILE_GIT = "the configuration of this git repository names programs to run"

MAX_CHARS = 10_000
MAX_DEPTH = 40

BARE = re.compile(r"[\w./:,=+@%^*?\[\]{}~!-][\w./:,=+@%^*?\[\]{}~!#-]*")
QUOTED = {
    "raw_string": re.compile(r"'[^']*'"),
    # A backslash or a dollar sign only where bash takes it as it is.
    "string": re.compile(r'"(?:[^"\\`$]|\\[^$`"\\\n]|\$(?=[ |)"]))*"'),
}
NEVER = re.compile(r"`|\$[({\[]|[<>]\(|<<")
"""Asks wherever it stands, quoted or not: no quoting mistake of ours may turn it into a program that runs."""
TILDE = re.compile(r"(?:^|[=:])~")
LANGUAGE = Language(tree_sitter_bash.language())

EXPANSIONS = frozenset(
    ("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
)
WORDS = frozenset(("word", "number", "string", "raw_string", "concatenation"))
TEST_OPERATORS = frozenset(("=", "==", "!=", "!"))


@dataclass(frozen=True)
class _Word:
    text: str
    glob: bool


@dataclass(frozen=True)
class After:
    """Where the shell may stand after a command that succeeded, and after one that failed."""

    success: Folders
    failure: Folders

    @property
    def either(self) -> Folders:
        return self.success | self.failure


@dataclass(frozen=True)
class Judged:
    """One simple command for itself."""

    after: After | None
    """`None`: it asks as it stands."""
    scopes: tuple[str, ...] = ()
    """What an "always" covers; nothing for what only looks."""
    reason: str = ""

    @property
    def looks(self) -> bool:
        return self.after is not None and not self.scopes


def parsed(command: str) -> Node:
    """The tree of a command line, for those who look into it without deciding what may run (`simple`)."""
    return Parser(LANGUAGE).parse(command.encode(errors="replace")).root_node


def text_trouble(command: str) -> str:
    """Why the text of a line alone makes it ask; empty where it does not."""
    try:
        _check_text(command)
    except AsksExactly as asks:
        return asks.reason
    return ""


def gaps(command: str, root: Node) -> str:
    """Why the tree leaves text out, or holds an error; empty where bash reads the same words."""
    try:
        if root.has_error:
            raise AsksExactly(NOT_UNDERSTOOD)
        _Line(command, Roots(Path("/"))).check_gaps(root)
    except AsksExactly as asks:
        return asks.reason
    return ""


def judge_node(command: str, node: Node, roots: Roots, folders: Folders) -> Judged:
    """The judgement of one node of the tree of `command`, as within `judge`."""
    line = _Line(command, roots)
    return line.judged(lambda: line.walk(node, folders, 0))


def judge_words(words: Sequence[str], roots: Roots, folders: Folders) -> Judged:
    """The judgement of literal words."""
    line = _Line("", roots)
    return line.judged(lambda: line.simple(words[0], [_Word(word, False) for word in words[1:]], folders))


def judge(command: str, roots: Roots, cwd: Path) -> Allow | Ask:
    """Whether `command`, run in `cwd`, may run without asking. Total: whatever is not understood asks."""
    try:
        _check_text(command)
        scopes = _Line(command, roots).scopes(cwd)
    except AsksExactly as asks:
        return _exactly(command, roots, cwd, asks.reason)
    if not scopes:
        return Allow()
    names = [f"`{scope.removeprefix('bash ')}`" for scope in scopes]
    return Ask(CHANGES, scopes, f"{' and '.join(names)} commands in this project")


def _exactly(command: str, roots: Roots, cwd: Path, reason: str) -> Ask:
    """The same line means something else in another folder, so an answer is bound to the folder, too."""
    where = "" if cwd == roots.cwd else f"[in {cwd}] "
    return Ask(reason, (f"bash = {where}{command}",), "this exact command in this project")


def _check_text(command: str) -> None:
    if len(command) > MAX_CHARS:
        raise AsksExactly(TOO_LONG)
    for char in command:
        category = unicodedata.category(char)
        if (category[0] == "C" and char not in "\n\t") or (category[0] == "Z" and char != " "):
            raise AsksExactly(HIDDEN)
    if not command.strip():
        raise AsksExactly(NOT_UNDERSTOOD)
    if NEVER.search(command):
        raise AsksExactly(EXPANDS)


class _Line:
    """One walk over one command line. Every method may raise AsksExactly."""

    def __init__(self, command: str, roots: Roots) -> None:
        self._source = command.encode(errors="replace")
        self._reach = Reach(roots)
        self._scopes: dict[str, None] = {}

    def scopes(self, cwd: Path) -> tuple[str, ...]:
        """What an "always" answer must cover; nothing when the line only looks."""
        root = Parser(LANGUAGE).parse(self._source).root_node
        if root.has_error:
            raise AsksExactly(NOT_UNDERSTOOD)
        if not self._reach.is_inside(cwd):
            raise AsksExactly(OUTSIDE)
        self.check_gaps(root)
        self.walk(root, frozenset((cwd,)), 0)
        return tuple(self._scopes)

    def judged(self, judgement: Callable[[], After]) -> Judged:
        try:
            after = judgement()
        except AsksExactly as asks:
            return Judged(None, (), asks.reason)
        return Judged(after, tuple(self._scopes), CHANGES if self._scopes else "")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def check_gaps(self, root: Node) -> None:
        """Between the leaves there are only blanks, and a comment is one for bash, too."""
        at = 0
        pending = [root]
        while pending:
            node = pending.pop()
            if node.child_count and node.type not in ("string", "raw_string"):
                pending.extend(reversed(node.children))
                continue
            if self._source[at : node.start_byte].strip(b" \t\n"):
                raise AsksExactly(NOT_UNDERSTOOD)
            if node.type == "&":
                raise AsksExactly(BACKGROUND)
            if node.type == "comment":
                before = self._source[node.start_byte - 1 : node.start_byte]
                if before not in (b"", b" ", b"\t", b"\n") or "\n" in self._text(node):
                    raise AsksExactly(NOT_UNDERSTOOD)
            at = max(at, node.end_byte)
        if self._source[at:].strip(b" \t\n"):
            raise AsksExactly(NOT_UNDERSTOOD)

    # --- structure --------------------------------------------------------------------------------------------

    def walk(self, node: Node, folders: Folders, depth: int) -> After:
        if depth > MAX_DEPTH:
            raise AsksExactly(NOT_UNDERSTOOD)
        depth += 1
        match node.type:
            case "program" | "compound_statement" | "subshell":
                after = self._sequence(node, folders, depth)
                return After(folders, folders) if node.type == "subshell" else after
            case "list":
                return self._list(node, folders, depth)
            case "pipeline":
                for child in node.children:
                    if child.is_named:
                        self.walk(child, folders, depth)
                    elif child.type not in ("|", "|&"):
                        raise AsksExactly(NOT_UNDERSTOOD)
                return After(folders, folders)
            case "negated_command":
                _, inner = self._exactly_children(node, 2)
                after = self.walk(inner, folders, depth)
                return After(after.failure, after.success)
            case "redirected_statement":
                return self._redirected(node, folders, depth)
            case "command":
                return self._command(node, folders)
            case "test_command":
                return self._test(node, folders)
            case kind if kind in EXPANSIONS or kind == "variable_assignment":
                raise AsksExactly(EXPANDS)
            case _:
                raise AsksExactly(NOT_UNDERSTOOD)

    def _exactly_children(self, node: Node, count: int) -> list[Node]:
        if node.child_count != count:
            raise AsksExactly(NOT_UNDERSTOOD)
        return node.children

    def _sequence(self, node: Node, folders: Folders, depth: int) -> After:
        after = After(folders, folders)
        for child in node.children:
            if child.type == "comment":
                continue
            if child.is_named:
                after = self.walk(child, after.either, depth)
            elif child.type not in (";", "\n", "(", ")", "{", "}"):
                raise AsksExactly(NOT_UNDERSTOOD)
        return after

    def _list(self, node: Node, folders: Folders, depth: int) -> After:
        left, operator, *right = [child for child in node.children if child.type != "comment"]
        first = self.walk(left, folders, depth)
        if len(right) != 1:
            raise AsksExactly(NOT_UNDERSTOOD)
        if operator.type == "&&":
            second = self.walk(right[0], first.success, depth)
            return After(second.success, first.failure | second.failure)
        if operator.type == "||":
            second = self.walk(right[0], first.failure, depth)
            return After(first.success | second.success, second.failure)
        if operator.type == ";":
            return self.walk(right[0], first.either, depth)
        raise AsksExactly(NOT_UNDERSTOOD)

    def _redirected(self, node: Node, folders: Folders, depth: int) -> After:
        body, *redirects = node.children
        for redirect in redirects:
            self._redirect(redirect, folders)
        return self.walk(body, folders, depth)

    def _redirect(self, node: Node, folders: Folders) -> None:
        if node.type != "file_redirect":
            raise AsksExactly(EXPANDS)
        children = [child for child in node.children if child.type != "file_descriptor"]
        if len(children) != 2:
            raise AsksExactly(NOT_UNDERSTOOD)
        operator, target = children[0].type, self._word(children[1])
        if target.glob:
            raise AsksExactly(NOT_UNDERSTOOD)
        match operator:
            case ">&" if target.text in ("1", "2"):
                return
            case ">" | ">>" | "&>" | "&>>" if target.text == DEV_NULL:
                return
            case "<":
                self._reach.check_path(target.text, folders)
            case _:
                raise AsksExactly(WRITES)

    # --- words ------------------------------------------------------------------------------------------------

    def _word(self, node: Node) -> _Word:
        """A word as bash hands it to a program, wildcards aside."""
        if node.type not in WORDS:
            raise AsksExactly(EXPANDS if node.type in EXPANSIONS else NOT_UNDERSTOOD)
        parts = node.children if node.type == "concatenation" else [node]
        if sum(part.end_byte - part.start_byte for part in parts) != node.end_byte - node.start_byte:
            raise AsksExactly(NOT_UNDERSTOOD)
        bare, text = "", ""
        for part in parts:
            source = self._text(part)
            quoted = QUOTED.get(part.type)
            if quoted is not None and quoted.fullmatch(source):
                text += source[1:-1]
            elif part.type in ("word", "number") and BARE.fullmatch(source):
                text += source
                bare += source
            elif "$" in source and part.type != "raw_string":
                raise AsksExactly(EXPANDS)
            else:
                raise AsksExactly(NOT_UNDERSTOOD)
        if TILDE.search(bare) or ("~" in bare and len(parts) > 1):
            raise AsksExactly(OUTSIDE)
        if "{" in bare and ("," in text or ".." in text):
            raise AsksExactly(EXPANDS)
        has_glob = any(char in bare for char in "*?[")
        if has_glob and any(char in text and char not in bare for char in "*?["):
            raise AsksExactly(NOT_UNDERSTOOD)  # wildcards and the same characters quoted, in one word
        return _Word(text, has_glob)

    def _command(self, node: Node, folders: Folders) -> After:
        name, *rest = node.children
        if name.type != "command_name" or name.child_count != 1:
            raise AsksExactly(EXPANDS if name.type == "variable_assignment" else NOT_UNDERSTOOD)
        program = self._word(name.children[0])
        if program.glob or "=" in program.text:
            raise AsksExactly(NOT_UNDERSTOOD)
        arguments = []
        for child in rest:
            if child.type.endswith("redirect"):
                self._redirect(child, folders)
            else:
                arguments.append(self._word(child))
        return self.simple(program.text, arguments, folders)

    def _test(self, node: Node, folders: Folders) -> After:
        words = []
        pending = list(reversed(node.children[1:-1]))
        while pending:
            part = pending.pop()
            if part.type in WORDS:
                words.append(self._word(part))
            elif part.type in ("unary_expression", "binary_expression", "negation_expression"):
                pending.extend(reversed(part.children))
            elif part.type == "test_operator" or part.type in TEST_OPERATORS:
                words.append(_Word(self._text(part), False))
            else:
                raise AsksExactly(EXPANDS if part.type in EXPANSIONS else NOT_UNDERSTOOD)
        opening, closing = node.children[0].type, node.children[-1].type
        if (opening, closing) not in (("[", "]"), ("[[", "]]")):
            raise AsksExactly(NOT_UNDERSTOOD)
        return self.simple(opening, words, folders)

    # --- one simple command -----------------------------------------------------------------------------------

    def simple(self, program: str, arguments: list[_Word], folders: Folders) -> After:
        for word in arguments:
            if word.glob:
                self._reach.check_glob(word.text, folders)
        texts = [word.text for word in arguments]
        if program == "cd":
            return self._cd(arguments, folders)
        paths = looked_at(program, texts)
        if paths is not None:
            if program == "git" and any(runs_programs(folder) for folder in folders):
                raise AsksExactly(HOSTILE_GIT)
            self._reach.check_paths(paths, folders)
            return After(folders, folders)
        self._reach.check_paths(texts, folders, reason=CHANGES)
        scopes = scopes_of([program, *texts])
        if scopes is None:
            raise AsksExactly(CHANGES)
        self._scopes.update((f"bash {scope}", None) for scope in scopes)
        return After(folders, folders)

    def _cd(self, arguments: list[_Word], folders: Folders) -> After:
        if len(arguments) != 1 or arguments[0].glob or arguments[0].text.startswith("-") or not arguments[0].text:
            raise AsksExactly(OUTSIDE if not arguments else NOT_UNDERSTOOD)
        target = arguments[0].text
        self._reach.check_path(target, folders)
        # Bash goes by names where it can (`link/..` is where it was), and by real folders where it cannot.
        reached = {Path(os.path.normpath(folder / target)) for folder in folders}
        reached |= {real_path(folder / target) for folder in folders}
        if not all(map(self._reach.is_inside, reached)):
            raise AsksExactly(OUTSIDE)
        return After(frozenset(reached), folders)
