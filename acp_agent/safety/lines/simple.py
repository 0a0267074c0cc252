"""The simple commands of a shell line: what runs with which words, and where its input comes from.

Only for hints: a line that bash reads differently gives wrong commands here, or none. Decisions about what may run
without asking use `examine.judge`, which takes nothing from the tree unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acp_agent.safety.lines.line import Line, read

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 60


@dataclass(frozen=True)
class SimpleCommand:
    words: tuple[str, ...]
    """Program and arguments, without quotes. What is known only when it runs stands as written (`$x`)."""
    variables: tuple[str, ...]
    """Names of the variables that are set for it alone."""
    has_input: bool
    """By a pipe, a file, or text in the line."""
    output_taken: bool
    """By a pipe: nobody sees it as it comes."""
    detached: bool
    """Followed by `&`."""


def simple_commands(command: str) -> list[SimpleCommand]:
    """In the order of the line; empty for what is no shell. Bodies of functions are left out: who calls them is not
    known."""
    line = read(command)
    return list(_below(line, line.root, has_input=False, output_taken=False, depth=0)) if line.is_shell else []


def _below(line: Line, node: Node, *, has_input: bool, output_taken: bool, depth: int) -> Iterator[SimpleCommand]:
    depth += 1
    match node.type:
        case _ if depth > MAX_DEPTH:
            return
        case "function_definition":
            return
        case "pipeline":
            parts = [child for child in node.children if child.is_named and child.type != "comment"]
            for number, part in enumerate(parts):
                last = number == len(parts) - 1
                yield from _below(
                    line, part, has_input=has_input or number > 0, output_taken=output_taken or not last, depth=depth
                )
            return
        case "redirected_statement":
            yield from _redirected(line, node, has_input=has_input, output_taken=output_taken, depth=depth)
            return
        case "command" | "declaration_command":
            simple, following = line.simple(node), node.next_sibling
            has_input = has_input or any(redirect.gives_input for redirect in simple.redirects)
            variables = tuple(name for name, value in simple.assigned if value is not None)
            detached = following is not None and following.type == "&"
            yield SimpleCommand(simple.words, variables, has_input, output_taken, detached)
            has_input, output_taken = False, True  # What is substituted within it.
    for child in node.children:
        if child.type == "heredoc_body":
            continue
        substituted = child.type in ("command_substitution", "process_substitution")
        yield from _below(line, child, has_input=has_input, output_taken=output_taken or substituted, depth=depth)


def _redirected(line: Line, node: Node, *, has_input: bool, output_taken: bool, depth: int) -> Iterator[SimpleCommand]:
    body, *redirects = node.children
    takes = has_input or any(redirect.gives_input for redirect in line.redirects(node))
    piped = output_taken or any(child.type == "pipeline" for redirect in redirects for child in redirect.children)
    if body.type == "pipeline" and takes and not has_input:
        # The redirection belongs to the last command, which the pipe feeds anyway.
        takes = has_input
    yield from _below(line, body, has_input=takes, output_taken=piped, depth=depth)
    for redirect in redirects:  # `cat <<EOF | python`: the grammar puts what follows the pipe into the redirection.
        for child in redirect.children:
            if child.type == "pipeline":
                for part in child.children:
                    yield from _below(line, part, has_input=True, output_taken=output_taken, depth=depth)
            elif child.type not in ("heredoc_body", "heredoc_start", "heredoc_end"):
                yield from _below(line, child, has_input=has_input, output_taken=output_taken, depth=depth)
