"""One command line, parsed once: its tree, and its words as bash passes them to programs.

Everything that examines a line uses the same `Line` (`read`): what decides whether it may run (`examine`, `looks`),
hints (`interactive`) and the choice of filters (`last_command`).

Why the parse can be trusted: a word is taken from the tree only if its node is of a kind listed here, its text matches
an expression for that kind, and a second parser of quotes (`quoting`) agrees. Quotes occur only in quoted nodes,
unquoted words contain no character special to bash, and between the nodes there are only blanks (`gap`). So bash reads
the same words. The only module that imports tree-sitter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from acp_agent.safety.lines.quoting import Unquoted, unquoted
from acp_agent.safety.lines.reach import EXPANDS, NOT_UNDERSTOOD, OUTSIDE, AsksExactly

BACKGROUND = "it runs in the background"
HIDDEN = "it contains invisible characters"
TOO_LONG = "it is very long"

MAX_CHARS = 10_000
KEPT = 32
"""Lines that stay read: those of the calls that run now, and the lines within them."""

BARE = re.compile(r"[\w./:,=+@%^*?\[\]{}~!-][\w./:,=+@%^*?\[\]{}~!#-]*")
QUOTED = {
    "raw_string": re.compile(r"'[^']*'"),
    # A backslash or a dollar sign only where bash takes it as it is.
    "string": re.compile(r'"(?:[^"\\`$]|\\[^$`"\\\n]|\$(?=[ |)"]))*"'),
}
NEVER = re.compile(r"`|\$[({\[]|[<>]\(|<<")
"""Asks wherever it is, quoted or not: no quoting mistake of ours may turn it into a running program."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
TILDE = re.compile(r"(?:^|[=:])~")
LANGUAGE = Language(tree_sitter_bash.language())

EXPANSIONS = frozenset(
    ("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
)
WORDS = frozenset(("word", "number", "string", "raw_string", "concatenation"))


@dataclass(frozen=True)
class Word:
    """As bash hands it to a program, wildcards aside."""

    text: str
    glob: bool = False


@dataclass(frozen=True)
class Redirect:
    operator: str
    target: str | None
    """`None`: known only when it runs."""
    writes: bool
    shown: str = ""
    """The target as far as it is known."""
    descriptor: str = ""
    """As written, if it is."""
    understood: bool = True

    @property
    def gives_input(self) -> bool:
        """Whether standard input comes from it."""
        return self.operator in ("<", "<&", "<>", "<<")

    @property
    def takes_output(self) -> bool:
        """Whether standard output goes to a file."""
        return self.operator in ("&>", "&>>") or (self.operator in (">", ">>", ">|") and self.descriptor in ("", "1"))


@dataclass(frozen=True)
class Simple:
    """A simple command as the second reader has it; what is known only when it runs stands as written."""

    text: str
    words: tuple[str, ...]
    """Program and arguments, without quotes."""
    written: tuple[str, ...]
    """The same with quotes."""
    literal: bool
    """Whether these are the words that a program gets."""
    program: str | None
    """Its name, where that is literal."""
    assigned: tuple[tuple[str, str | None], ...]
    """Variables that are set for it alone, with their values; a value of `None`: the name is the whole text."""
    redirects: tuple[Redirect, ...]


class Line:
    """One line. Everything is found out when it is first asked for, and once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._source = text.encode(errors="replace")

    @cached_property
    def _tree(self) -> Tree:
        # Kept as long as its nodes are: they point into it.
        return Parser(LANGUAGE).parse(self._source)

    @cached_property
    def root(self) -> Node:
        return self._tree.root_node

    @property
    def is_shell(self) -> bool:
        """Whether it may be looked into at all, by those who do not decide."""
        return len(self.text) <= MAX_CHARS and not self.root.has_error

    @cached_property
    def trouble(self) -> str:
        """Why its text alone makes it ask; empty where it does not."""
        if len(self.text) > MAX_CHARS:
            return TOO_LONG
        for char in self.text:
            category = unicodedata.category(char)
            if (category[0] == "C" and char not in "\n\t") or (category[0] == "Z" and char != " "):
                return HIDDEN
        if not self.text.strip():
            return NOT_UNDERSTOOD
        return EXPANDS if NEVER.search(self.text) else ""

    @cached_property
    def gap(self) -> str:
        """Why the tree leaves text out, or holds an error; empty where bash reads the same words.

        Between the leaves there are only blanks, and a comment is one for bash, too.
        """
        if self.root.has_error:
            return NOT_UNDERSTOOD
        at = 0
        pending = [self.root]
        while pending:
            node = pending.pop()
            if node.child_count and node.type not in ("string", "raw_string"):
                pending.extend(reversed(node.children))
                continue
            if self._source[at : node.start_byte].strip(b" \t\n"):
                return NOT_UNDERSTOOD
            if node.type == "&":
                return BACKGROUND
            if node.type == "comment":
                before = self._source[node.start_byte - 1 : node.start_byte]
                if before not in (b"", b" ", b"\t", b"\n") or "\n" in self.text_of(node):
                    return NOT_UNDERSTOOD
            at = max(at, node.end_byte)
        return NOT_UNDERSTOOD if self._source[at:].strip(b" \t\n") else ""

    def text_of(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")

    def unquoted(self, node: Node) -> Unquoted:
        """A word as the second reader has it: also what is known only when it runs."""
        return unquoted(self.text_of(node))

    def word(self, node: Node) -> Word:
        """A word that both readers read alike. Raises AsksExactly where it is not plain."""
        if node.type not in WORDS:
            raise AsksExactly(EXPANDS if node.type in EXPANSIONS else NOT_UNDERSTOOD)
        parts = node.children if node.type == "concatenation" else [node]
        if sum(part.end_byte - part.start_byte for part in parts) != node.end_byte - node.start_byte:
            raise AsksExactly(NOT_UNDERSTOOD)
        bare, text = "", ""
        for part in parts:
            source = self.text_of(part)
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
        second = self.unquoted(node)
        if second != Unquoted(text, not has_glob, has_glob):
            raise AsksExactly(NOT_UNDERSTOOD)
        return Word(text, has_glob)

    def simple(self, node: Node, behind: Sequence[Node] = ()) -> Simple:
        """The simple command of a node. `behind`: words of it that the tree has elsewhere."""
        words: list[str] = []
        written: list[str] = []
        assigned: list[tuple[str, str | None]] = []
        literal, program, end = node.type == "command", None, -1
        for child in node.children:
            glued = child.start_byte == end and child.is_named
            literal = literal and not glued  # two words without a blank between them are one for bash
            end = child.end_byte
            if child.type == "variable_assignment" and node.type == "command":
                found = ASSIGNMENT.fullmatch(self.text_of(child))
                value = unquoted(found[2]) if found else self.unquoted(child)
                literal = literal and found is not None and (value.literal or value.glob)
                assigned.append((found[1], value.text) if found else (self.text_of(child), None))
            elif not child.type.endswith("_redirect") and child.type != "comment":
                word = self.unquoted(child)
                literal = literal and word.literal
                if not words and word.literal and child.type == "command_name":
                    program = word.text
                words.append((words.pop() if glued and words else "") + word.text)
                written.append((written.pop() if glued and written else "") + self.text_of(child))
        for child in behind:
            literal = literal and self.unquoted(child).literal
            words.append(self.unquoted(child).text)
            written.append(self.text_of(child))
        redirects = tuple(self.redirects(node))
        return Simple(self.text_of(node), tuple(words), tuple(written), literal, program, tuple(assigned), redirects)

    def redirects(self, node: Node) -> list[Redirect]:
        """Those that are children of a node."""
        return [self.redirect(child) for child in node.children if child.type.endswith("_redirect")]

    def redirect(self, node: Node) -> Redirect:
        if node.type != "file_redirect":
            return Redirect("<<", None, False)
        descriptor = "".join(self.text_of(child) for child in node.children if child.type == "file_descriptor")
        children = [child for child in node.children if child.type != "file_descriptor"]
        operator = children[0].type if children else "?"
        if len(children) < 2 or "\n" in self.text_of(node):  # for bash, a line ends a redirection
            return Redirect(operator, None, True, understood=False)
        target = self.unquoted(children[1])
        if operator in (">&", "<&") and re.fullmatch(r"[0-9]|-", target.text):
            return Redirect(operator, target.text, False, descriptor=descriptor)
        writes = operator not in ("<", "<&")
        return Redirect(operator, target.text if target.literal else None, writes, target.text, descriptor)


@lru_cache(maxsize=KEPT)
def read(text: str) -> Line:
    """The line, for all who look at it while it is known."""
    return Line(text)
