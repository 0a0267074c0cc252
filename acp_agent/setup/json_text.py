"""Sets or removes one member of a hand-written JSON file (comments, trailing commas), keeping the rest.

The text is parsed with tree-sitter's JSON grammar, which knows comments; only the member's own bytes and a comma
change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tree_sitter_json
from tree_sitter import Language, Node, Parser

from acp_agent.errors import UsageError
from acp_agent.limits.decoding import read_loose_json

INDENT = "  "


def set_member(text: str, path: Sequence[str], value: Any, file: str) -> str:
    """`text` with the member at `path` set to `value`, creating objects on the way. Raises UsageError for invalid
    JSON."""
    if not text.strip():
        text = "{}\n"
    data = text.encode()
    place = _root(data, file)
    for depth, name in enumerate(path):
        pair = _pair(place, name, data)
        if pair is None:
            made: Any = value
            for inner in reversed(path[depth + 1 :]):
                made = {inner: made}
            return _insert(data, place, name, made, depth + 1)
        inner_value = pair.child_by_field_name("value")
        if inner_value is None:
            raise UsageError(f"{file}: `{'.'.join(path[: depth + 1])}` has no value; fix the file first")
        if depth == len(path) - 1:
            return _splice(data, inner_value.start_byte, inner_value.end_byte, _dump(value, depth + 1))
        if inner_value.type != "object":
            raise UsageError(f"{file}: `{'.'.join(path[: depth + 1])}` is not an object, so nothing can be added to it")
        place = inner_value
    raise AssertionError("the path is not empty")


def remove_member(text: str, path: Sequence[str], file: str) -> str:
    """`text` without the member at `path`, and without objects on the way that are empty then: no comment is lost."""
    data = text.encode()
    place = _root(data, file)
    chain: list[Node] = []
    for name in path:
        pair = _pair(place, name, data)
        if pair is None:
            return text
        chain.append(pair)
        value = pair.child_by_field_name("value")
        if value is None:
            return text
        place = value
    comments: list[str] = []
    while len(chain) > 1 and len(_pairs(around := chain[-2].child_by_field_name("value"))) == 1:
        assert around is not None, "it has pairs"
        found = [child for child in around.children if child.type == "comment"]
        comments += [data[child.start_byte : child.end_byte].decode() for child in found]
        chain.pop()
    return _cut(data, chain[-1], "".join(f"\n{INDENT}{comment}" for comment in comments))


def get_member(text: str, path: Sequence[str], file: str) -> str | None:
    """The source text of the member's value; None where there is none."""
    data = text.encode()
    if not text.strip():
        return None
    place = _root(data, file)
    for name in path:
        pair = _pair(place, name, data)
        value = None if pair is None else pair.child_by_field_name("value")
        if value is None:
            return None
        place = value
    return data[place.start_byte : place.end_byte].decode()


def _root(data: bytes, file: str) -> Node:
    """The outermost object. Commas at the end are let through, as the editors do."""
    tree = Parser(Language(tree_sitter_json.language())).parse(data)
    found = [node for node in tree.root_node.named_children if node.type not in ("comment", "ERROR")]
    wrong = [node for node in _errors(tree.root_node) if data[node.start_byte : node.end_byte].strip() != b","]
    if wrong or len(found) != 1 or found[0].type != "object":
        line = wrong[0].start_point[0] + 1 if wrong else 1
        raise UsageError(f"{file}: not a JSON object (line {line}); fix it first, nothing was changed")
    return found[0]


def _errors(node: Node) -> list[Node]:
    if node.type == "ERROR" or node.is_missing:
        return [node]
    return [error for child in node.children for error in _errors(child)] if node.has_error else []


def _pairs(node: Node | None) -> list[Node]:
    return [] if node is None else [child for child in node.named_children if child.type == "pair"]


def _pair(place: Node, name: str, data: bytes) -> Node | None:
    """The last of that name counts, as in every JSON parser."""
    found = None
    for pair in _pairs(place):
        key = pair.child_by_field_name("key")
        if key is not None and _means(data[key.start_byte : key.end_byte], name):
            found = pair
    return found


def _means(key: bytes, name: str) -> bool:
    try:
        return bool(read_loose_json(key, strict=False) == name)
    except ValueError:
        return False


def _insert(data: bytes, place: Node, name: str, value: Any, depth: int) -> str:
    member = f"{json.dumps(name)}: {_dump(value, depth)}"
    pairs = _pairs(place)
    outer = "\n" + INDENT * (depth - 1)
    if not pairs:
        inside = data[place.start_byte + 1 : place.end_byte - 1].decode().rstrip()
        return _splice(data, place.start_byte + 1, place.end_byte - 1, f"{inside}\n{INDENT * depth}{member}{outer}")
    last = pairs[-1].end_byte
    line_start = data.rfind(b"\n", 0, pairs[-1].start_byte) + 1
    before = data[line_start : pairs[-1].start_byte]
    indent = before.decode() if not before.strip() else INDENT * depth
    rest = data[last : place.end_byte - 1]
    if comma := _comma(place, last, data):
        return _splice(data, comma, comma, f"\n{indent}{member},")
    inline = b"\n" not in data[place.start_byte : place.end_byte]
    if inline and not rest.strip():
        return _splice(data, last, last, f", {member}")
    return _splice(data, last, last, f",\n{indent}{member}")


def _comma(place: Node, after: int, data: bytes) -> int:
    """Where the comma behind the last member ends; 0 where there is none."""
    for child in place.children:
        if child.start_byte >= after and data[child.start_byte : child.end_byte].strip() == b",":
            return child.end_byte
    return 0


def _cut(data: bytes, pair: Node, instead: str) -> str:
    parent = pair.parent
    assert parent is not None, "a member is in an object"
    pairs = _pairs(parent)
    start, end = pair.start_byte, pair.end_byte
    line_start = data.rfind(b"\n", 0, start) + 1
    if comma := _comma(parent, end, data):
        end = comma
    elif len(pairs) > 1:  # The last of several: the comma before it goes, too.
        before = pairs[[other.start_byte for other in pairs].index(pair.start_byte) - 1]
        comma = _comma(parent, before.end_byte, data)
        if comma and not data[comma:start].strip():
            return _splice(data, comma - 1, end, _closed(instead, data[end:]))
    if not data[line_start:start].strip() and line_start > parent.start_byte:
        start = line_start - 1
    return _splice(data, start, end, _closed(instead, data[end:]))


def _closed(comments: str, rest: bytes) -> str:
    """A comment must not swallow what follows."""
    return f"{comments}\n" if comments and not rest.startswith((b"\n", b"\r\n")) else comments


def _dump(value: Any, depth: int) -> str:
    return json.dumps(value, indent=len(INDENT), ensure_ascii=False).replace("\n", "\n" + INDENT * depth)


def _splice(data: bytes, start: int, end: int, text: str) -> str:
    return (data[:start] + text.encode() + data[end:]).decode()
