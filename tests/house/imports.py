"""The imports of the package and of the kit, read with `ast`: who imports what, on which line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "acp_agent"
KIT = ROOT / "kit" / "acp_conformance"


class Import(NamedTuple):
    file: Path
    line: int
    importer: str
    """Dotted module that imports."""
    imported: str
    """Dotted module that is imported, as far as the statement names it."""
    inside: bool
    """Whether it is in a function."""
    typing_only: bool

    @property
    def where(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def modules() -> Iterator[tuple[Path, str]]:
    for package in (PACKAGE, KIT):
        for file in sorted(package.rglob("*.py")):
            if "demo" not in file.relative_to(package).parts[:-1]:  # the sample project of the demonstration is data
                name = ".".join(file.relative_to(package.parent).with_suffix("").parts)
                yield file, name.removesuffix(".__init__")


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports() -> list[Import]:
    found: list[Import] = []
    for file, name in modules():
        found.extend(_imports(parsed(file), file, name, inside=False, typing_only=False))
    return found


def _imports(node: ast.AST, file: Path, name: str, *, inside: bool, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(file, child.lineno, name, alias.name, inside, typing_only)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{file}:{child.lineno}: imports are absolute"
            assert child.module is not None
            for alias in child.names:
                submodule = Path(*child.module.split("."), f"{alias.name}.py")
                is_module = any((package.parent / submodule).exists() for package in (PACKAGE, KIT))
                full = f"{child.module}.{alias.name}" if is_module else child.module
                yield Import(file, child.lineno, name, full, inside, typing_only)
        elif not isinstance(child, ast.expr):  # most nodes, and none of them holds a statement
            deeper = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            guarded = typing_only or (
                isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
            )
            yield from _imports(child, file, name, inside=deeper, typing_only=guarded)
