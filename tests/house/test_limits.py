"""Every named number stands in docs/internals/limits*.md: with those that leave something out, or those that do not."""

import ast
import re
from collections.abc import Iterator

from tests.house.imports import PACKAGE, modules, parsed

DOCS = PACKAGE.parent / "docs/internals"
PLAIN = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
MODULE, NAME = re.compile(r"`(\w[\w/]*\.py)`"), re.compile(r"`([A-Z][A-Z_0-9]*)`")


def numbers(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and isinstance(target, ast.Name):
            parts = list(ast.walk(node.value))
            plain = all(isinstance(part, PLAIN) for part in parts)
            of = [part.value for part in parts if isinstance(part, ast.Constant)]
            if plain and target.id.isupper() and all(type(value) in (int, float) for value in of):
                yield target.id


def test_every_named_number_is_in_the_tables_of_limits():
    told = set()
    for page in DOCS.glob("limits-*.md"):
        for line in page.read_text().splitlines():
            if (module := MODULE.search(line)) is not None:
                told |= {(module[1], name) for name in NAME.findall(line)}
    files = {str(file.relative_to(PACKAGE)): file for file, _ in modules()}
    made = {(path, name) for path, file in files.items() for name in numbers(parsed(file))}
    assert sorted(made - told) == [] and sorted(told - made) == []
