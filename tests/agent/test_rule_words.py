"""Why a call is asked about, in one sentence."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from acp_agent import safety
from acp_agent.loop.calls.rule_words import KINDS, NAMES, OTHERS, asked_because
from acp_agent.safety.lines.reach import NOT_UNDERSTOOD
from tests.tables import table

VAGUE = "it may change something"


@table(("reason", "rule", "said"), [
    (VAGUE, "scope:git commit; scope:git push", "Asked because `git commit` and `git push` change something."),
    (
        VAGUE, "scope:a; redirect; scope:b; scope:a; scope:c",
        "Asked because `a`, `b` and `c` change something and its output goes to a file.",
    ),
    (
        VAGUE, "dangerous:python3 -c; scope:touch",
        "Asked because `python3 -c` can run or change anything and `touch` changes something.",
    ),
    (VAGUE, "dangerous:sed s/a/b/; e", "Asked because `sed s/a/b/; e` can run or change anything."),
    ("it changes a file", "edits ask", "Asked because it changes a file."),
    (VAGUE, "redirect; redirect", "Asked because its output goes to a file."),
    (VAGUE, "scope:cat; redirect", "Asked because `cat` changes something and its output goes to a file."),
    (
        VAGUE, "tools.permissions.bash[0] ask `git *` (config.toml:3); unknown",
        "Asked because your rule `tools.permissions.bash[0] ask `git *` (config.toml:3)` asks and it may change "
        "something.",
    ),
    ("one of your rules asks (x)", "tools.policy[1] x", "Asked because your rule `tools.policy[1] x` asks."),
    ("it deletes; now", "risk high: it deletes; now", "Asked because it deletes and now."),
    ("it names `.env`, which may keep keys or passwords", "key file: .env", "Asked because it names `.env`, which may "
     "keep keys or passwords."),
    ("it changes a file that other programs trust", "protected: .envrc",
     "Asked because `.envrc` is loaded by direnv when a shell enters the folder, once you allow it."),
    ("it asks for x", "something new", "Asked because it asks for x."),
    ("it may change something", "", "Asked because it may change something."),
])  # fmt: skip
def test_the_reason_is_one_sentence_with_what_the_rule_knows(reason: str, rule: str, said: str):
    assert asked_because(reason, rule) == said


@table(("reason", "rule", "said"), [
    (
        NOT_UNDERSTOOD, f"tools.permissions.bash[0] x; {NOT_UNDERSTOOD}",
        f"Asked because your rule `tools.permissions.bash[0] x` asks and {NOT_UNDERSTOOD}.",
    ),
    ("it goes out", f"scope:make; {NOT_UNDERSTOOD}", "Asked because it goes out and `make` changes something."),
])  # fmt: skip
def test_no_inner_word_of_another_rule_is_taken_for_a_part_of_a_name(reason: str, rule: str, said: str):
    assert asked_because(reason, rule) == said


def test_every_rule_that_a_decider_can_give_is_known_by_how_it_begins():
    found = {
        piece
        for file in Path(safety.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for value in _rules(node)
        for piece in re.split(r"; ", _template(value))
    }
    known = (*(f"{kind}:" for kind in KINDS), *NAMES, *OTHERS, HOLE)
    assert {"redirect", "not literal", f"key file: {HOLE}"} <= found
    assert not [piece for piece in found if piece and not piece.startswith(known)]


HOLE = "…"


def _rules(node: ast.AST) -> Iterator[ast.expr]:
    """What is passed or assigned as `rule`, and the first of two that `decided` gives."""
    if isinstance(node, ast.keyword) and node.arg == "rule":
        yield node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == "rule":
                yield node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
                yield from (value for name, value in pairs if isinstance(name, ast.Name) and name.id == "rule")
    elif isinstance(node, ast.FunctionDef) and node.name == "decided":
        returned = (each.value for each in ast.walk(node) if isinstance(each, ast.Return))
        yield from (value.elts[0] for value in returned if isinstance(value, ast.Tuple))


def _template(value: ast.expr) -> str:
    """The literal words of an expression, with a hole for each value."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_template(each) for each in values)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_template(body)}; {_template(orelse)}"
        case ast.BoolOp(values=values):
            return "; ".join(map(_template, values))
        case ast.Call(func=ast.Attribute(value=inner)) if not isinstance(inner, ast.Constant):
            return _template(inner)
        case ast.Name(id="NOT_UNDERSTOOD"):
            return NOT_UNDERSTOOD
    return HOLE
