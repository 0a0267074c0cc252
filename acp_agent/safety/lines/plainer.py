"""Plainer lines that do the same as one with a loop over words, names passed to `xargs`, or a quoted message.

What such a line may do is what the plain commands may do: they are examined in its place (`examine`), and an "always"
covers each by its program and sub-command, or nothing if one of them has no such scope. Here lives what makes the two
the same: words that bash leaves as they are, names that only `find` prints, text in which bash expands nothing. What is
not exactly that has no plainer line. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from acp_agent.safety.lines.line import MAX_CHARS, Line, read
from acp_agent.safety.lines.programs import words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_ROUNDS = 20
"""How often."""
WORD = re.compile(r"[\w./@%+=:,-]+", re.ASCII)
"""What bash leaves as it is, quoted or not: nothing splits it, nothing in it is expanded."""
SETS = re.compile(
    r"\b(?:IFS|read|readarray|mapfile|printf|unset|local|declare|typeset|export|readonly|let|getopts|eval|source|set|shift)\b|\(\("
)
"""What may change the variable of a loop, or how its words are split."""
HOLDS = frozenset(
    (
        "program",
        "list",
        "pipeline",
        "compound_statement",
        "subshell",
        "redirected_statement",
        "do_group",
        "for_statement",
    )
)
"""Around a loop, or a pipe into `xargs`: what else there is decides what runs."""

# --- names -------------------------------------------------------------------------------------------------------

COUNTS = words("wc du ls stat basename dirname md5sum sha1sum sha256sum cksum")
"""Programs that show nothing of what is in a file, whatever their arguments are."""
TAKES_FOLDERS = words("ruff mypy pyright black isort flake8 eslint prettier shellcheck rustfmt gofmt")
"""Programs that do to all files below a folder what they do to each."""
XARGS_ALONE = words("-r --no-run-if-empty -0 --null -t --verbose -n1")
XARGS_VALUES = words("-n -P -L")
ZERO = words("-0 --null")
FIND_ALONE = words("-print -print0 -not ! ( ) -o -a -or -and -empty -mount -xdev")
FIND_VALUES = words("-name -iname -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -newer -regex")
"""With these, `find` prints names below where it begins, and nothing else."""

# --- messages ----------------------------------------------------------------------------------------------------

PLAIN = r"[\w ./:=,@+&|;%-]*"
"""Without quotes, so that what follows is no part of a quoted word."""
TEXT = r"\n(?P<text>(?:(?!(?P=end)\n)[^\n]*\n)*)(?P=end)"
COMMIT = rf"{PLAIN}\bgit commit\b{PLAIN}"
MESSAGE = re.compile(
    rf"""(?P<before>{COMMIT}(?: -\w*m ?| --message[= ]))"\$\(cat <<'(?P<end>\w+)'{TEXT}\n *\)"(?P<after>.*)""",
    re.ASCII | re.DOTALL,
)
"""`git commit -m "$(cat <<'EOF'`, a text, its end and `)"`."""
FROM_INPUT = re.compile(
    rf"(?P<before>{PLAIN}\bgit commit (?:[\w=-]+ )*(?:-F ?|--file[= ])-) ?<<'(?P<end>\w+)'(?P<same>{PLAIN})"
    rf"{TEXT}(?P<after>\n.*|)",
    re.ASCII | re.DOTALL,
)
"""`git commit -F - <<'EOF'`, a text and its end."""


def plainer(text: str) -> tuple[str, str] | None:
    """A line that does the same with plain commands, and the program that gets names by `xargs`, if there is one (then
    the line is only to judge by); `None` if there is nothing to make plainer, or it is not sure that it is the same."""
    start, passed = text, ""
    if (quoted := _without_message(text)) is not None:
        text = quoted
    for _ in range(MAX_ROUNDS):
        line = read(text)
        if len(text) > MAX_CHARS or line.gap or "#" in text:  # A comment would hide what is put behind it.
            return None
        found = next(_replaced(line), None)
        if found is None:
            break
        node, new, program = found
        if program and passed:
            return None
        source, passed = text.encode(errors="replace"), program or passed
        text = b"".join((source[: node.start_byte], new.encode(), source[node.end_byte :])).decode(errors="replace")
    return (text, passed) if text != start else None


def _without_message(text: str) -> str | None:
    if (found := MESSAGE.fullmatch(text)) is not None and _closes_nothing(found["text"]):
        return f"{found['before']}message{found['after']}"
    if (found := FROM_INPUT.fullmatch(text)) is not None:
        return f"{found['before']}{found['same']}{found['after']}"
    return None


def _closes_nothing(text: str) -> bool:
    """Whether also a bash that counts parentheses and quotes in a here-document (3.2) ends the substitution where it
    ends: either parentheses that belong together, or quotes."""
    if re.search(r"[\\`$]", text):
        return False
    opened = 0
    for char in text:
        opened += (char == "(") - (char == ")")
        if opened < 0:
            return False
    return not opened and not ("(" in text and re.search("['\"]", text))


def _replaced(line: Line) -> Iterator[tuple[Node, str, str]]:
    """A node, what may stand in its place, and the program that gets names."""
    pending = [line.root]
    while pending:
        node = pending.pop()
        if node.type == "for_statement" and (unrolled := _unrolled(line, node)) is not None:
            yield node, unrolled, ""
        if node.type == "pipeline" and (passed := _passed(line, node)) is not None:
            yield node, *passed
        pending += reversed([child for child in node.children if child.type in HOLDS])


def _unrolled(line: Line, node: Node) -> str | None:
    """`{ BODY; BODY; }` for a loop over words."""
    children = [child for child in node.children if child.type not in (";", "\n")]
    kinds = [child.type for child in children]
    if kinds[:3] != ["for", "variable_name", "in"] or kinds[-1] != "do_group" or len(kinds) < 5:
        return None
    name, items, body = line.text_of(children[1]), [line.text_of(each) for each in children[3:-1]], children[-1]
    if not all(map(WORD.fullmatch, items)) or SETS.search(line.text):
        return None
    inner = [child for child in body.children if child.type not in ("do", "done")]
    uses = list(_uses(line, body, name))
    if not inner or len(inner) != body.child_count - 2 or re.search(rf"\bfor\s+{name}\b", line.text_of(body)):
        return None
    source, end = line.text.encode(errors="replace"), inner[-1].end_byte
    if any(source[use.start_byte - 1 : use.start_byte] in (b"\\", b"$") or _names(use) for use in uses):
        return None
    runs = []
    for item in items:
        text, at = b"", inner[0].start_byte
        for use in uses:
            text += source[at : use.start_byte] + item.encode()
            at = use.end_byte
        runs.append((text + source[at:end]).decode(errors="replace").rstrip("; \n\t"))
    return "\n".join(["{", *runs, "}"]) if sum(map(len, runs)) <= MAX_CHARS else None


def _names(use: Node) -> bool:
    """Whether it stands for a program or in an assignment, where words are more than words."""
    around: Node | None = use
    while around is not None and around.type not in ("command", "do_group"):
        if around.type in ("command_name", "variable_assignment"):
            return True
        around = around.parent
    return False


def _uses(line: Line, node: Node, name: str) -> Iterator[Node]:
    """Where the variable stands, in the order of the line."""
    for child in node.children:
        if child.type in ("simple_expansion", "expansion"):
            if line.text_of(child) in (f"${name}", f"${{{name}}}"):
                yield child
        elif child.type != "raw_string":
            yield from _uses(line, child, name)


def _passed(line: Line, node: Node) -> tuple[str, str] | None:
    """For `find … | xargs PROGRAM …`: the two commands one after the other, the second with where `find` begins."""
    stages = [child for child in node.children if child.is_named]
    if len(stages) != (node.child_count + 1) // 2 or any(
        child.type != "|" for child in node.children if not child.is_named
    ):
        return None
    for number, stage in enumerate(stages[1:], 1):
        names, given = _words(line, stages[number - 1]), _words(line, stage)
        if names is None or given is None or names[0] != "find" or given[0] != "xargs":
            continue
        program, options = _behind_xargs(given)
        begins = _begins(names)
        if not program or not begins:
            return None
        if program[0] not in COUNTS and not (program[0] in TAKES_FOLDERS and _only_files(names, options)):
            return None
        judged = shlex.join([*program, *begins, *(f"{begin}/x" for begin in begins)])
        first, behind = map(line.text_of, stages[:number]), map(line.text_of, stages[number + 1 :])
        return f"{{\n{' | '.join(first)}\n{' | '.join([judged, *behind])}\n}}", program[0]
    return None


def _only_files(names: Sequence[str], options: set[str]) -> bool:
    """Whether each name is that of a file, no link, and reaches the program as it is."""
    files = any(pair == ("-type", "f") for pair in pairwise(names))
    return files and not {"-o", "-or", "!", "-not"} & set(names) and "-print0" in names and bool(ZERO & options)


def _words(line: Line, node: Node) -> tuple[str, ...] | None:
    """The words of a plain command without redirections and variables."""
    if node.type != "command":
        return None
    simple = line.simple(node)
    plain = simple.literal and simple.words and not simple.redirects and not simple.assigned
    return simple.words if plain else None


def _behind_xargs(given: Sequence[str]) -> tuple[Sequence[str], set[str]]:
    """The command that it runs, and its own options; no command if one of these is not known."""
    at, options = 1, set[str]()
    while at < len(given) and given[at].startswith("-"):
        options.add(given[at])
        if given[at] in XARGS_VALUES:
            if not given[at + 1 : at + 2] or not given[at + 1].isdecimal():
                return (), set()
            at += 2
        elif given[at] in XARGS_ALONE:
            at += 1
        else:
            return (), set()
    return given[at:], options


def _begins(names: Sequence[str]) -> list[str]:
    """Where `find` begins, if it only prints names; empty if it may do, or print, anything else."""
    at = 1
    while at < len(names) and WORD.fullmatch(names[at]) and not names[at].startswith("-"):
        at += 1
    begins = list(names[1:at]) or ["."]
    while at < len(names):
        if names[at] in FIND_VALUES:
            at += 2
        elif names[at] in FIND_ALONE:
            at += 1
        else:
            return []
    return begins
