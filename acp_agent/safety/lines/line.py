"""One command line, parsed once: its tree, and its words as bash passes them to programs.

All analyses share one `Line` (`read`). Those that decide whether it may run (`examine`, `looks`) walk the tree and take
nothing from it unchecked. Hints (`interactive`) and the choice of filters (`last_command`) are tables over the flat
list of its simple commands (`Line.commands`): where bash would read a line differently, that list is wrong or
empty.

Why the parse can be trusted: a word is taken from the tree only if its node is of a kind listed here, its text matches
an expression for that kind, and a second parser of quotes (`quoting`) agrees. Quotes occur only in quoted nodes,
unquoted words contain no character special to bash, and between nodes there are only blanks (`gap`). So bash reads
the same words. The only module that imports tree-sitter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

import tree_sitter_bash
from msgspec import Struct
from msgspec.structs import replace
from tree_sitter import Language, Node, Parser, Tree

from acp_agent.legible import IGNORED
from acp_agent.safety.lines.quoting import Unquoted, unquoted
from acp_agent.safety.lines.reach import EXPANDS, NOT_UNDERSTOOD, OUTSIDE, AsksExactly

BACKGROUND = "it runs in the background"
HIDDEN = "it contains invisible characters"
TOO_LONG = "it is very long"

MAX_CHARS = 10_000
MAX_DEPTH = 60
"""Maximum depth of the flat list."""
KEPT = 32
"""Number of cached lines: those of currently running calls, and the lines within them."""

PLAIN = r"[\w./:,=+@%^*?\[\]{}~!-]"
ESCAPE = re.compile(r"\\([ -/:-@\[-`{-~])")
"""A blank or a mark that a backslash makes a letter like any other; before a letter or a line end it is a mistake."""
BARE = re.compile(rf"(?:{PLAIN}|{ESCAPE.pattern})(?:{PLAIN}|#|{ESCAPE.pattern})*")
ESCAPE_QUOTED = re.compile(r'\\([$`"\\])')
PATTERN_MARKS = frozenset("*?[]!^-\\")
QUOTED = {
    "raw_string": re.compile(r"'[^']*'"),
    # A backslash or a dollar sign only where bash takes it literally, or one for the other.
    "string": re.compile(r'"(?:[^"\\`$]|\\[^\n]|\$(?=[ |)"]))*"'),
}
QUOTES = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.""", re.DOTALL)
NEVER = re.compile(r"`|\$[({\[]|[<>]\(|<<")
"""Asks wherever it occurs, quoted or not: no quoting mistake of ours may turn it into a running program."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
TILDE = re.compile(r"(?:^|[=:])~")
LANGUAGE = Language(tree_sitter_bash.language())
BEYOND_LATIN_1 = re.compile(rb"[\xc4-\xf4][\x80-\xbf]*")
"""A character above U+00FF. After a `{` and elsewhere, tree-sitter-bash looks it up in C's tables of 256, and crashes
where the memory behind them ends (its issue 337)."""

EXPANSIONS = frozenset(
    ("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
)
WORDS = frozenset(("word", "number", "string", "raw_string", "concatenation"))
GROUPS = frozenset(("program", "list", "subshell", "compound_statement", "negated_command"))
"""Nodes whose children run one after the other."""
BROKEN = GROUPS | frozenset(
    "pipeline array if_statement elif_clause else_clause while_statement for_statement c_style_for_statement do_group "
    "case_statement case_item function_definition command_substitution process_substitution heredoc_redirect".split()
)
"""Nodes between whose children a line may end. In others, bash begins a new command there, whatever the tree says."""
TAKERS = frozenset(("command", "declaration_command", "command_substitution", "process_substitution"))
"""Nodes that consume the output of substitutions in them."""
TOO_DEEP = "too deep"


class Word(Struct, frozen=True):
    """A word as bash passes it to a program, apart from wildcards."""

    text: str
    glob: bool = False


class Redirect(Struct, frozen=True):
    operator: str
    target: str | None
    """`None`: known only at run time."""
    writes: bool
    shown: str = ""
    """The target as far as known."""
    descriptor: str = ""
    """As written, if present."""
    understood: bool = True

    @property
    def gives_input(self) -> bool:
        """Whether standard input comes from it."""
        return self.operator in ("<", "<&", "<>", "<<")

    @property
    def takes_output(self) -> bool:
        """Whether standard output goes to a file."""
        return self.operator in ("&>", "&>>") or (self.operator in (">", ">>", ">|") and self.descriptor in ("", "1"))


class Simple(Struct, frozen=True):
    """A simple command as the second parser reads it; anything known only at run time is kept as written."""

    text: str
    words: tuple[str, ...]
    """Program and arguments, without quotes."""
    written: tuple[str, ...]
    """The same with quotes."""
    literal: bool
    """Whether the program gets exactly these words."""
    program: str | None
    """Its name, if literal."""
    assigned: tuple[tuple[str, str | None], ...]
    """Variables set for it alone, with their values; with a value of `None` the name is the whole text."""
    redirects: tuple[Redirect, ...]


class Around(Struct, frozen=True, eq=False):
    """A construct around commands; all commands in the same one share the same object."""

    kind: str
    """The grammar's word (`pipeline`, `subshell`, `if_statement`), or `stage`: a stage of a pipeline; `body`: what
    a redirection applies to; `behind`: commands the grammar puts into a redirection."""
    redirects: tuple[Redirect, ...] = ()
    """Redirections of a `stage`, or of a `body`."""
    fed: bool = False
    """Whether it provides the commands' input."""
    taken: bool = False
    """Whether it consumes their output, so that it is not shown directly."""


class Command(Struct, frozen=True):
    """A simple command at its position in the line; or, so that it is not overlooked, a function (its name is its only
    word), a loop and the like (without words). Their contents follow."""

    kind: str
    """The grammar's word; `TOO_DEEP` for anything nested too deeply."""
    simple: Simple
    around: tuple[Around, ...] = ()
    """Outermost first."""
    detached: bool = False
    """Followed by `&`."""

    @property
    def has_input(self) -> bool:
        """Input from a pipe, a file, or text in the line."""
        fed = any(redirect.gives_input for redirect in self.simple.redirects)
        for around in reversed(self.around):
            if around.kind in ("command", "declaration_command"):
                break  # Substitutions within a command do not have its input.
            fed = fed or around.fed
        return fed

    @property
    def output_taken(self) -> bool:
        return any(around.taken for around in self.around)


def bare_of(text: str) -> str:
    """The text without what is in single quotes, where bash expands nothing; all of it where a comment, or another
    kind of quotes, makes it uncertain which quotes these are."""
    bare = QUOTES.sub(lambda found: "''" if found[0].startswith("'") else found[0], text)
    return text if "#" in bare or "$'" in bare or "<<" in bare else bare


NOTHING = Simple("", (), (), False, None, (), ())


class Line:
    """One line. Everything is computed on first use, once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._source = text.encode(errors="replace")

    @cached_property
    def _tree(self) -> Tree:
        # Kept as long as its nodes, which point into it. The substitute is as long, and is not part of a name either.
        known = BEYOND_LATIN_1.sub(lambda found: b"\xc2\xa7" + b"_" * (len(found[0]) - 2), self._source)
        return Parser(LANGUAGE).parse(known)

    @cached_property
    def root(self) -> Node:
        return self._tree.root_node

    @property
    def is_shell(self) -> bool:
        """Whether it may be examined at all by analyses that do not decide."""
        return len(self.text) <= MAX_CHARS and not self.root.has_error

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """In the order of the line; empty if it is not shell."""
        return tuple(self._below(self.root, (), 0)) if self.is_shell else ()

    @cached_property
    def trouble(self) -> str:
        """Why its text alone requires asking; else empty."""
        if len(self.text) > MAX_CHARS:
            return TOO_LONG
        for char in self.text:
            category = unicodedata.category(char)
            if (category[0] == "C" and char not in "\n\t") or (category[0] == "Z" and char != " "):
                return HIDDEN
        if IGNORED.search(self.text):
            return HIDDEN
        if not self.text.strip():
            return NOT_UNDERSTOOD
        return EXPANDS if NEVER.search(bare_of(self.text)) else ""

    @cached_property
    def gap(self) -> str:
        """Why the tree omits text or contains an error; empty if bash reads the same words.

        Between the leaves there are only blanks, and line ends where bash has them; a comment counts as a blank.
        """
        if self.root.has_error:
            return NOT_UNDERSTOOD
        at = 0
        pending = [self.root]
        while pending:
            node = pending.pop()
            if node.child_count and node.type not in ("string", "raw_string"):
                pending.extend(reversed(node.children))
                if node.type not in BROKEN and self._is_broken(node):
                    return NOT_UNDERSTOOD
                continue
            if self._source[at : node.start_byte].strip(b" \t\n"):
                return NOT_UNDERSTOOD
            if node.type == "&":
                return BACKGROUND
            if node.type in ("{", "!") and self._source[node.end_byte : node.end_byte + 1] not in (b" ", b"\t", b"\n"):
                return NOT_UNDERSTOOD  # The beginning of a word, for bash.
            if node.type == "comment":
                before = self._source[node.start_byte - 1 : node.start_byte]
                if before not in (b"", b" ", b"\t", b"\n") or "\n" in self.text_of(node):
                    return NOT_UNDERSTOOD
            at = max(at, node.end_byte)
        return NOT_UNDERSTOOD if self._source[at:].strip(b" \t\n") else ""

    def _is_broken(self, node: Node) -> bool:
        """Whether a line ends between children of the node: after `==`, the grammar reads on."""
        children = node.children
        return any(b"\n" in self._source[a.end_byte : b.start_byte] for a, b in pairwise(children))

    def text_of(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")

    def unquoted(self, node: Node) -> Unquoted:
        """A word as the second parser reads it, including text known only at run time."""
        return unquoted(self.text_of(node))

    def word(self, node: Node) -> Word:
        """A word on which both parsers agree. Raises AsksExactly if it is not plain."""
        if node.type not in WORDS:
            raise AsksExactly(EXPANDS if node.type in EXPANSIONS else NOT_UNDERSTOOD)
        parts = node.children if node.type == "concatenation" else [node]
        if sum(part.end_byte - part.start_byte for part in parts) != node.end_byte - node.start_byte:
            raise AsksExactly(NOT_UNDERSTOOD)
        bare, text, escaped = "", "", ""
        for part in parts:
            source = self.text_of(part)
            quoted = QUOTED.get(part.type)
            if quoted is not None and quoted.fullmatch(source):
                text += ESCAPE_QUOTED.sub(r"\1", source[1:-1]) if part.type == "string" else source[1:-1]
            elif part.type in ("word", "number") and BARE.fullmatch(source):
                text += ESCAPE.sub(r"\1", source)
                bare += ESCAPE.sub("", source)
                escaped += "".join(ESCAPE.findall(source))
            elif "$" in source and part.type != "raw_string":
                raise AsksExactly(EXPANDS)
            else:
                raise AsksExactly(NOT_UNDERSTOOD)
        if TILDE.search(bare) or ("~" in bare and len(parts) > 1):
            raise AsksExactly(OUTSIDE)
        if "{" in bare and ("," in text or ".." in text):
            raise AsksExactly(EXPANDS)
        has_glob = any(char in bare for char in "*?[")
        if has_glob and (
            PATTERN_MARKS.intersection(escaped) or any(char in text and char not in bare for char in "*?[")
        ):
            raise AsksExactly(NOT_UNDERSTOOD)  # Wildcards and the same characters quoted, in one word.
        second = self.unquoted(node)
        if second != Unquoted(text, not has_glob, has_glob):
            raise AsksExactly(NOT_UNDERSTOOD)
        return Word(text, has_glob)

    def simple(self, node: Node, behind: Sequence[Node] = ()) -> Simple:
        """The simple command of a node. `behind`: its words that are elsewhere in the tree."""
        words: list[str] = []
        written: list[str] = []
        assigned: list[tuple[str, str | None]] = []
        literal, program, end = node.type == "command", None, -1
        for child in node.children:
            glued = child.start_byte == end and child.is_named
            literal = literal and not glued  # Bash reads two words without a blank between them as one.
            end = child.end_byte
            if child.type == "variable_assignment" and node.type == "command":
                found = ASSIGNMENT.fullmatch(self.text_of(child))
                value = unquoted(found[2]) if found else self.unquoted(child)
                literal = literal and found is not None and (value.literal or value.glob)
                assigned.append((found[1], value.text) if found else (self.text_of(child), None))
            elif not child.type.endswith("_redirect") and child.type != "comment":
                word = self.unquoted(child)
                literal = literal and word.literal and not self._is_descriptor(child)
                if not words and word.literal and child.type == "command_name":
                    program = word.text
                words.append((words.pop() if glued and words else "") + word.text)
                written.append((written.pop() if glued and written else "") + self.text_of(child))
        for child in behind:
            literal = literal and self.unquoted(child).literal and not self._is_descriptor(child)
            words.append(self.unquoted(child).text)
            written.append(self.text_of(child))
        redirects = tuple(self.redirects(node))
        return Simple(self.text_of(node), tuple(words), tuple(written), literal, program, tuple(assigned), redirects)

    def _is_descriptor(self, node: Node) -> bool:
        """For bash, `1` or `{fd}` right before a redirection is no word."""
        following = self._source[node.end_byte : node.end_byte + 1]
        return following in (b"<", b">") and re.fullmatch(r"\d+|.*\}", self.text_of(node), re.DOTALL) is not None

    def redirects(self, node: Node) -> list[Redirect]:
        """Redirections that are children of a node."""
        return [self.redirect(child) for child in node.children if child.type.endswith("_redirect")]

    def redirect(self, node: Node) -> Redirect:
        if node.type != "file_redirect":
            return Redirect("<<", None, False)
        descriptor = "".join(self.text_of(child) for child in node.children if child.type == "file_descriptor")
        children = [child for child in node.children if child.type != "file_descriptor"]
        operator = children[0].type if children else "?"
        if len(children) < 2 or "\n" in self.text_of(node):  # For bash, a newline ends a redirection.
            return Redirect(operator, None, True, understood=False)
        target = self.unquoted(children[1])
        if operator in (">&", "<&") and re.fullmatch(r"[0-9]|-", target.text):
            return Redirect(operator, target.text, False, descriptor=descriptor)
        if operator in (">&", "<&") and target.text.startswith("-"):  # `-` closes it; a word of the command follows.
            return Redirect(operator, None, True, understood=False)
        writes = operator not in ("<", "<&")
        return Redirect(operator, target.text if target.literal else None, writes, target.text, descriptor)

    # --- the flat list ------------------------------------------------------------------------------------------------

    def _below(self, node: Node, around: tuple[Around, ...], depth: int, *, stands: bool = True) -> Iterator[Command]:
        """The commands of a node. `stands`: whether a command may be at this position."""
        depth += 1
        kind = node.type
        if depth > MAX_DEPTH:
            yield Command(TOO_DEEP, NOTHING, around)
            return
        match kind:
            case "pipeline":
                yield from self._pipeline(node, around, depth)
                return
            case "redirected_statement":
                yield from self._redirected(node, around, depth)
                return
            case "command" | "declaration_command" | "unset_command" | "test_command":
                following = node.next_sibling
                detached = following is not None and following.type == "&"
                yield Command(kind, self.simple(node), around, detached)
            case "function_definition":
                name = node.child_by_field_name("name")
                yield Command(kind, replace(NOTHING, words=() if name is None else (self.text_of(name),)), around)
            case _ if stands and kind not in GROUPS:
                yield Command(kind, NOTHING, around)
        if node.is_named and node.child_count and kind != "program":
            around = (*around, Around(kind, taken=kind in TAKERS))
        for child in node.children:
            if child.type not in ("comment", "heredoc_body"):
                yield from self._below(child, around, depth, stands=child.is_named and kind in GROUPS)

    def _pipeline(self, node: Node, around: tuple[Around, ...], depth: int) -> Iterator[Command]:
        stages = [child for child in node.children if child.is_named and child.type != "comment"]
        around = (*around, Around(node.type))
        for number, stage in enumerate(stages):
            redirects = tuple(self.redirects(stage))
            within = Around("stage", redirects, fed=number > 0, taken=stage is not stages[-1])
            yield from self._below(stage, (*around, within), depth)

    def _redirected(self, node: Node, around: tuple[Around, ...], depth: int) -> Iterator[Command]:
        body, *others = node.children
        redirects = tuple(self.redirects(node))
        # A pipe's redirection belongs to its last command, which the pipe feeds anyway.
        fed = body.type != "pipeline" and any(redirect.gives_input for redirect in redirects)
        # `cat <<EOF | python`: the grammar puts what follows the pipe into the redirection.
        pipes = [child for other in others for child in other.children if child.type == "pipeline"]
        around = (*around, Around(node.type))
        yield from self._below(body, (*around, Around("body", redirects, fed, bool(pipes))), depth)
        for other in others:
            for child in other.children:
                if child.type not in ("heredoc_body", "heredoc_start", "heredoc_end"):
                    behind = Around("behind", fed=child.type == "pipeline")
                    parts = child.children if child.type == "pipeline" else [child]
                    for part in parts:
                        yield from self._below(part, (*around, behind), depth, stands=False)


@lru_cache(maxsize=KEPT)
def read(text: str) -> Line:
    """Returns the parsed line, shared by all analyses while it is cached."""
    return Line(text)
