"""Decides whether a simple command is read-only, and what an "always" answer for it would cover.

A command is read-only if every part of it is understood and its program is known only to read (`programs`), from paths
inside the session's folders. This is an allowlist throughout: an unknown kind of syntax, an unknown program, or an
unknown option of a program that could do harm makes it ask.

Limits: files may change between the decision and the run, and programs read the user's own configuration
(`~/.gitconfig`, `RIPGREP_CONFIG_PATH`), which is trusted. A repository's own configuration is checked (`git_folder`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.always import scopes_of
from acp_agent.safety.lines.git_folder import runs_programs
from acp_agent.safety.lines.line import EXPANSIONS, WORDS, Line, Word
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
from acp_agent.safety.lines.standing import Places

if TYPE_CHECKING:
    from tree_sitter import Node

    from acp_agent.disk import Disk

HOSTILE_GIT = "the configuration of this git repository names programs to run"
BLANKS = (" ", "\t")
TEST_OPERATORS = frozenset(("=", "==", "!=", "!"))


class Judged(Struct, frozen=True):
    """The judgement on one simple command."""

    after: Places | None
    """`None`: it must be asked about as written."""
    scopes: tuple[str, ...] = ()
    """Scopes of an "always"; empty if it is read-only."""
    reason: str = ""

    @property
    def looks(self) -> bool:
        return self.after is not None and not self.scopes


def judge_node(line: Line, node: Node, roots: Roots, folders: Folders) -> tuple[Judged, tuple[str, ...] | None]:
    """Judges a simple command of the tree with its own redirections; also returns its words if all are plain."""
    words: tuple[str, ...] | None = None
    try:
        match node.type:
            case "command":
                program, arguments = _command(line, node, Reach(roots), folders)
            case "test_command":
                program, arguments = _test(line, node)
            case _:
                raise AsksExactly(NOT_UNDERSTOOD)
        if not any(word.glob for word in arguments):
            words = (program, *(word.text for word in arguments))
        return _judged(program, arguments, roots, folders), words
    except AsksExactly as asks:
        return Judged(None, (), asks.reason), words


def judge_words(words: Sequence[str], roots: Roots, folders: Folders) -> Judged:
    """Judges literal words."""
    try:
        return _judged(words[0], [Word(word) for word in words[1:]], roots, folders)
    except AsksExactly as asks:
        return Judged(None, (), asks.reason)


def check_redirect(line: Line, node: Node, roots: Roots, folders: Folders) -> str:
    """Why a redirection asks; else empty."""
    try:
        _redirect(line, node, Reach(roots), folders)
    except AsksExactly as asks:
        return asks.reason
    return ""


# --- parts of a command. All may raise AsksExactly ----------------------------------------------------------


def _redirect(line: Line, node: Node, reach: Reach, folders: Folders) -> None:
    if node.type != "file_redirect":
        raise AsksExactly(EXPANDS)
    children = [child for child in node.children if child.type != "file_descriptor"]
    if len(children) != 2:
        raise AsksExactly(NOT_UNDERSTOOD)
    operator, target = children[0].type, line.word(children[1])
    if target.glob:
        raise AsksExactly(NOT_UNDERSTOOD)
    match operator:
        case ">&" if target.text in ("1", "2"):
            return
        case ">" | ">>" | "&>" | "&>>" if target.text == DEV_NULL:
            return
        case "<":
            reach.check_path(target.text, folders)
        case _:
            raise AsksExactly(WRITES)


def _command(line: Line, node: Node, reach: Reach, folders: Folders) -> tuple[str, list[Word]]:
    name, *rest = node.children
    if name.type != "command_name" or name.child_count != 1:
        raise AsksExactly(EXPANDS if name.type == "variable_assignment" else NOT_UNDERSTOOD)
    program = line.word(name.children[0])
    if program.glob or "=" in program.text:
        raise AsksExactly(NOT_UNDERSTOOD)
    arguments = []
    for child in rest:
        if child.type.endswith("redirect"):
            _redirect(line, child, reach, folders)
        else:
            arguments.append(line.word(child))
    return program.text, arguments


def _test(line: Line, node: Node) -> tuple[str, list[Word]]:
    words = []
    pending = list(reversed(node.children[1:-1]))
    while pending:
        part = pending.pop()
        if part.type in WORDS:
            words.append(line.word(part))
        elif part.type in ("unary_expression", "binary_expression", "negation_expression"):
            pending.extend(reversed(part.children))
        elif part.type == "test_operator" or part.type in TEST_OPERATORS:
            words.append(Word(line.text_of(part)))
        else:
            raise AsksExactly(EXPANDS if part.type in EXPANSIONS else NOT_UNDERSTOOD)
    opening, closing = node.children[0].type, node.children[-1].type
    text = line.text_of(node).removeprefix(opening).removesuffix(closing)
    if (opening, closing) not in (("[", "]"), ("[[", "]]")) or not text.startswith(BLANKS) or not text.endswith(BLANKS):
        raise AsksExactly(NOT_UNDERSTOOD)  # Without a blank it is a word for bash: `[x/run ]` is a program.
    return opening, words


def _judged(program: str, arguments: Sequence[Word], roots: Roots, folders: Folders) -> Judged:
    reach = Reach(roots)
    stays = Places(folders, folders)
    for word in arguments:
        if word.glob:
            reach.check_glob(word.text, folders)
    texts = [word.text for word in arguments]
    if program == "cd":
        return Judged(_cd(arguments, reach, folders, roots.disk))
    paths = looked_at(program, texts)
    if paths is not None:
        if program == "git" and any(runs_programs(folder, roots.disk) for folder in folders):
            raise AsksExactly(HOSTILE_GIT)
        reach.check_paths(paths, folders)
        return Judged(stays)
    reach.check_paths(texts, folders, reason=CHANGES)
    scopes = scopes_of([program, *texts])
    if scopes is None:
        raise AsksExactly(CHANGES)
    return Judged(stays, tuple(dict.fromkeys(f"bash {scope}" for scope in scopes)), CHANGES if scopes else "")


def _cd(arguments: Sequence[Word], reach: Reach, folders: Folders, disk: Disk) -> Places:
    if len(arguments) != 1 or arguments[0].glob or arguments[0].text.startswith("-") or not arguments[0].text:
        raise AsksExactly(OUTSIDE if not arguments else NOT_UNDERSTOOD)
    target = arguments[0].text
    reach.check_path(target, folders)
    # Bash goes by names where it can (`link/..` is the folder it came from), else by real folders.
    reached = {Path(os.path.normpath(folder / target)) for folder in folders}
    reached |= {disk.real_path(folder / target) for folder in folders}
    if not all(map(reach.is_inside, reached)):
        raise AsksExactly(OUTSIDE)
    return Places(frozenset(reached), folders)
