"""Every named number stands in docs/internals/limits*.md: with those that leave something out, or those that do not."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.imports import ROOT, modules, parsed

PLAIN = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
TOKEN = re.compile(r"`(\w[\w/]*\.py)`|`(_?[A-Z][A-Z_0-9]*)`")


def numbers(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and isinstance(target, ast.Name):
            parts = ast.walk(node.value)
            plain = all(isinstance(part, PLAIN) and type(getattr(part, "value", 0)) in (int, float) for part in parts)
            if plain and target.id.isupper():
                yield target.id


def test_every_named_number_is_in_the_tables_of_limits():
    told = set()
    for page in (ROOT / "docs/internals").glob("limits-*.md"):
        for line in page.read_text().splitlines():
            cell, module = line.split(" | ")[0] if line.startswith("|") else line, ""
            for path, name in TOKEN.findall(cell if line.startswith(("|", "- ")) else ""):
                module = path or module
                told |= {(module, name)} if name and module else set()
    files = {str(Path(*file.relative_to(ROOT).parts[1:])): file for file, _ in modules()}
    made = {(path, name) for path, file in files.items() for name in numbers(parsed(file))}
    named = {(path, each.id) for path in files for each in ast.walk(parsed(files[path])) if type(each) is ast.Name}
    assert sorted(made - told) == sorted(told - named) == []
