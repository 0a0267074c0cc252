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

import glob
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from acp_agent.safety.access import Allow, Ask
from acp_agent.safety.git_folder import runs_programs
from acp_agent.safety.paths import Roots, real_path
from acp_agent.safety.programs import looked_at
from acp_agent.safety.scopes import scopes_of

__all__ = ["judge", "parsed"]

CHANGES = "it may change something"
OUTSIDE = "it looks outside of the folders of this session"
NOT_UNDERSTOOD = "the command line could not be understood"
BACKGROUND = "it runs in the background"
EXPANDS = "it uses values that are known only when it runs"
WRITES = "it writes its output to a file"
HIDDEN = "it holds characters that cannot be seen"
TOO_LONG = "it is very long"
HOSTILE_GIT = "the configuration of this git repository names programs to run"

MAX_CHARS = 10_000
MAX_DEPTH = 40
MAX_GLOB_MATCHES = 1_000
NAME_MAX = 255
MAX_GLOB_PARTS = 2
"""Components of a path with wildcards: each multiplies the folders to look into."""

BARE = re.compile(r"[\w./:,=+@%^*?\[\]{}~!-][\w./:,=+@%^*?\[\]{}~!#-]*")
QUOTED = {
    "raw_string": re.compile(r"'[^']*'"),
    # A backslash or a dollar sign only where bash takes it as it is.
    "string": re.compile(r'"(?:[^"\\`$]|\\[^$`"\\\n]|\$(?=[ |)"]))*"'),
}
NEVER = re.compile(r"`|\$[({\[]|[<>]\(|<<")
"""Asks wherever it stands, quoted or not: no quoting mistake of ours may turn it into a program that runs."""
TILDE = re.compile(r"(?:^|[=:])~")
BRACKET = re.compile(r"\[[!^]?[\w.-]+\]")
LANGUAGE = Language(tree_sitter_bash.language())

DEV_NULL = "/dev/null"
EXPANSIONS = frozenset(
    ("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
)
WORDS = frozenset(("word", "number", "string", "raw_string", "concatenation"))
TEST_OPERATORS = frozenset(("=", "==", "!=", "!"))

Folders = frozenset[Path]
"""Where the shell may stand: more than one after a `cd` that may have failed."""


@dataclass(frozen=True)
class _Word:
    text: str
    glob: bool


@dataclass(frozen=True)
class _After:
    """Where the shell may stand after a command that succeeded, and after one that failed."""

    success: Folders
    failure: Folders

    @property
    def either(self) -> Folders:
        return self.success | self.failure


class _AsksExactly(Exception):
    """The line must be shown as it is; an answer covers this line only."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parsed(command: str) -> Node:
    """The tree of a command line, for those who look into it without deciding what may run (`simple`)."""
    return Parser(LANGUAGE).parse(command.encode(errors="replace")).root_node


def judge(command: str, roots: Roots, cwd: Path) -> Allow | Ask:
    """Whether `command`, run in `cwd`, may run without asking. Total: whatever is not understood asks."""
    try:
        _check_text(command)
        scopes = _Line(command, roots).scopes(cwd)
    except _AsksExactly as asks:
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
        raise _AsksExactly(TOO_LONG)
    for char in command:
        category = unicodedata.category(char)
        if (category[0] == "C" and char not in "\n\t") or (category[0] == "Z" and char != " "):
            raise _AsksExactly(HIDDEN)
    if not command.strip():
        raise _AsksExactly(NOT_UNDERSTOOD)
    if NEVER.search(command):
        raise _AsksExactly(EXPANDS)


class _Line:
    """One walk over one command line. Every method may raise _AsksExactly."""

    def __init__(self, command: str, roots: Roots) -> None:
        self._source = command.encode()
        self._roots = roots
        self._scopes: dict[str, None] = {}

    def scopes(self, cwd: Path) -> tuple[str, ...]:
        """What an "always" answer must cover; nothing when the line only looks."""
        root = Parser(LANGUAGE).parse(self._source).root_node
        if root.has_error:
            raise _AsksExactly(NOT_UNDERSTOOD)
        if not self._is_inside(cwd):
            raise _AsksExactly(OUTSIDE)
        self._check_gaps(root)
        self._walk(root, frozenset((cwd,)), 0)
        return tuple(self._scopes)

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def _check_gaps(self, root: Node) -> None:
        """Between the leaves there are only blanks, and a comment is one for bash, too."""
        at = 0
        pending = [root]
        while pending:
            node = pending.pop()
            if node.child_count and node.type not in ("string", "raw_string"):
                pending.extend(reversed(node.children))
                continue
            if self._source[at : node.start_byte].strip(b" \t\n"):
                raise _AsksExactly(NOT_UNDERSTOOD)
            if node.type == "&":
                raise _AsksExactly(BACKGROUND)
            if node.type == "comment":
                before = self._source[node.start_byte - 1 : node.start_byte]
                if before not in (b"", b" ", b"\t", b"\n") or "\n" in self._text(node):
                    raise _AsksExactly(NOT_UNDERSTOOD)
            at = max(at, node.end_byte)
        if self._source[at:].strip(b" \t\n"):
            raise _AsksExactly(NOT_UNDERSTOOD)

    # --- structure --------------------------------------------------------------------------------------------

    def _walk(self, node: Node, folders: Folders, depth: int) -> _After:
        if depth > MAX_DEPTH:
            raise _AsksExactly(NOT_UNDERSTOOD)
        depth += 1
        match node.type:
            case "program" | "compound_statement" | "subshell":
                after = self._sequence(node, folders, depth)
                return _After(folders, folders) if node.type == "subshell" else after
            case "list":
                return self._list(node, folders, depth)
            case "pipeline":
                for child in node.children:
                    if child.is_named:
                        self._walk(child, folders, depth)
                    elif child.type not in ("|", "|&"):
                        raise _AsksExactly(NOT_UNDERSTOOD)
                return _After(folders, folders)
            case "negated_command":
                _, inner = self._exactly_children(node, 2)
                after = self._walk(inner, folders, depth)
                return _After(after.failure, after.success)
            case "redirected_statement":
                return self._redirected(node, folders, depth)
            case "command":
                return self._command(node, folders)
            case "test_command":
                return self._test(node, folders)
            case kind if kind in EXPANSIONS or kind == "variable_assignment":
                raise _AsksExactly(EXPANDS)
            case _:
                raise _AsksExactly(NOT_UNDERSTOOD)

    def _exactly_children(self, node: Node, count: int) -> list[Node]:
        if node.child_count != count:
            raise _AsksExactly(NOT_UNDERSTOOD)
        return node.children

    def _sequence(self, node: Node, folders: Folders, depth: int) -> _After:
        after = _After(folders, folders)
        for child in node.children:
            if child.type == "comment":
                continue
            if child.is_named:
                after = self._walk(child, after.either, depth)
            elif child.type not in (";", "\n", "(", ")", "{", "}"):
                raise _AsksExactly(NOT_UNDERSTOOD)
        return after

    def _list(self, node: Node, folders: Folders, depth: int) -> _After:
        left, operator, *right = [child for child in node.children if child.type != "comment"]
        first = self._walk(left, folders, depth)
        if len(right) != 1:
            raise _AsksExactly(NOT_UNDERSTOOD)
        if operator.type == "&&":
            second = self._walk(right[0], first.success, depth)
            return _After(second.success, first.failure | second.failure)
        if operator.type == "||":
            second = self._walk(right[0], first.failure, depth)
            return _After(first.success | second.success, second.failure)
        if operator.type == ";":
            return self._walk(right[0], first.either, depth)
        raise _AsksExactly(NOT_UNDERSTOOD)

    def _redirected(self, node: Node, folders: Folders, depth: int) -> _After:
        body, *redirects = node.children
        for redirect in redirects:
            self._redirect(redirect, folders)
        return self._walk(body, folders, depth)

    def _redirect(self, node: Node, folders: Folders) -> None:
        if node.type != "file_redirect":
            raise _AsksExactly(EXPANDS)
        children = [child for child in node.children if child.type != "file_descriptor"]
        if len(children) != 2:
            raise _AsksExactly(NOT_UNDERSTOOD)
        operator, target = children[0].type, self._word(children[1])
        if target.glob:
            raise _AsksExactly(NOT_UNDERSTOOD)
        match operator:
            case ">&" if target.text in ("1", "2"):
                return
            case ">" | ">>" | "&>" | "&>>" if target.text == DEV_NULL:
                return
            case "<":
                self._check_path(target.text, folders)
            case _:
                raise _AsksExactly(WRITES)

    # --- words ------------------------------------------------------------------------------------------------

    def _word(self, node: Node) -> _Word:
        """A word as bash hands it to a program, wildcards aside."""
        if node.type not in WORDS:
            raise _AsksExactly(EXPANDS if node.type in EXPANSIONS else NOT_UNDERSTOOD)
        parts = node.children if node.type == "concatenation" else [node]
        if sum(part.end_byte - part.start_byte for part in parts) != node.end_byte - node.start_byte:
            raise _AsksExactly(NOT_UNDERSTOOD)
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
                raise _AsksExactly(EXPANDS)
            else:
                raise _AsksExactly(NOT_UNDERSTOOD)
        if TILDE.search(bare) or ("~" in bare and len(parts) > 1):
            raise _AsksExactly(OUTSIDE)
        if "{" in bare and ("," in text or ".." in text):
            raise _AsksExactly(EXPANDS)
        has_glob = any(char in bare for char in "*?[")
        if has_glob and any(char in text and char not in bare for char in "*?["):
            raise _AsksExactly(NOT_UNDERSTOOD)  # wildcards and the same characters quoted, in one word
        return _Word(text, has_glob)

    def _command(self, node: Node, folders: Folders) -> _After:
        name, *rest = node.children
        if name.type != "command_name" or name.child_count != 1:
            raise _AsksExactly(EXPANDS if name.type == "variable_assignment" else NOT_UNDERSTOOD)
        program = self._word(name.children[0])
        if program.glob or "=" in program.text:
            raise _AsksExactly(NOT_UNDERSTOOD)
        arguments = []
        for child in rest:
            if child.type.endswith("redirect"):
                self._redirect(child, folders)
            else:
                arguments.append(self._word(child))
        return self._simple(program.text, arguments, folders)

    def _test(self, node: Node, folders: Folders) -> _After:
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
                raise _AsksExactly(EXPANDS if part.type in EXPANSIONS else NOT_UNDERSTOOD)
        opening, closing = node.children[0].type, node.children[-1].type
        if (opening, closing) not in (("[", "]"), ("[[", "]]")):
            raise _AsksExactly(NOT_UNDERSTOOD)
        return self._simple(opening, words, folders)

    # --- one simple command -----------------------------------------------------------------------------------

    def _simple(self, program: str, arguments: list[_Word], folders: Folders) -> _After:
        for word in arguments:
            if word.glob:
                self._check_glob(word.text, folders)
        texts = [word.text for word in arguments]
        if program == "cd":
            return self._cd(arguments, folders)
        paths = looked_at(program, texts)
        if paths is not None:
            if program == "git" and any(runs_programs(folder) for folder in folders):
                raise _AsksExactly(HOSTILE_GIT)
            self._check_paths(paths, folders)
            return _After(folders, folders)
        self._check_paths(texts, folders, reason=CHANGES)
        scopes = scopes_of([program, *texts])
        if scopes is None:
            raise _AsksExactly(CHANGES)
        self._scopes.update((f"bash {scope}", None) for scope in scopes)
        return _After(folders, folders)

    def _cd(self, arguments: list[_Word], folders: Folders) -> _After:
        if len(arguments) != 1 or arguments[0].glob or arguments[0].text.startswith("-") or not arguments[0].text:
            raise _AsksExactly(OUTSIDE if not arguments else NOT_UNDERSTOOD)
        target = arguments[0].text
        self._check_path(target, folders)
        # Bash goes by names where it can (`link/..` is where it was), and by real folders where it cannot.
        reached = {Path(os.path.normpath(folder / target)) for folder in folders}
        reached |= {real_path(folder / target) for folder in folders}
        if not all(map(self._is_inside, reached)):
            raise _AsksExactly(OUTSIDE)
        return _After(frozenset(reached), folders)

    # --- paths ------------------------------------------------------------------------------------------------

    def _check_paths(self, arguments: Iterable[str], folders: Folders, reason: str = OUTSIDE) -> None:
        for argument in arguments:
            if argument.startswith("-") and argument != "-":
                name, equals, value = argument.partition("=")
                if equals:
                    self._check_path(value, folders)
                if not name.startswith("--") and ("/" in name or ".." in name):
                    raise _AsksExactly(reason)  # a value glued to its option: where it begins is not known here
                if not name.startswith("--"):
                    self._check_glued(argument, folders)
            else:
                self._check_path(argument, folders)
                if "=" in argument:
                    self._check_path(argument.partition("=")[2], folders)

    def _check_glued(self, argument: str, folders: Folders) -> None:
        """A value glued to its option is no link that leads out, wherever it begins."""
        for start in range(max(2, len(argument) - NAME_MAX), len(argument)):
            name = argument[start:]
            if "/" not in name and any(os.path.islink(folder / name) for folder in folders):
                self._check_path(name, folders)

    def _check_path(self, text: str, folders: Folders) -> None:
        if text in ("", "-", DEV_NULL):
            return
        if text.startswith("~"):
            raise _AsksExactly(OUTSIDE)
        if not all(self._is_inside(folder / text) for folder in folders):
            raise _AsksExactly(OUTSIDE)

    def _is_inside(self, path: Path) -> bool:
        try:
            return self._roots.contains(real_path(path))
        except (OSError, ValueError, RuntimeError):
            return False

    def _check_glob(self, pattern: str, folders: Folders) -> None:
        """Everything a pattern stands for is inside, and none of it reads like an option."""
        wide = BRACKET.sub("?", pattern)
        components = wide.split("/")
        wild = [part for part in components if "*" in part or "?" in part]
        if "[" in wide or len(wild) > MAX_GLOB_PARTS:
            raise _AsksExactly(NOT_UNDERSTOOD)
        if wide.startswith("/") or ".." in components or any(part.startswith(".") for part in wild):
            raise _AsksExactly(OUTSIDE)
        for folder in folders:
            try:
                found = list(islice(glob.iglob(wide, root_dir=folder, include_hidden=True), MAX_GLOB_MATCHES + 1))
            except (OSError, ValueError, re.error) as error:
                raise _AsksExactly(NOT_UNDERSTOOD) from error
            if len(found) > MAX_GLOB_MATCHES or any(name.startswith("-") for name in found):
                raise _AsksExactly(NOT_UNDERSTOOD)
            for name in found:
                self._check_path(name, folders)
