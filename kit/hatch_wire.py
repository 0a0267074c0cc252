"""Puts the modules of the agent that the kit imports into what is built of it, below `acp_conformance/_wire`.

In a checkout the kit imports them from `acp_agent`. Who installs it has no such package: the wheel and the source
archive hold exactly the modules that it reaches, by import or by a `"module:name"` row, and each such name in them and
in the kit's own modules says where they are then. An editable install goes on with the checkout.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

AGENT, KIT, WIRE = "acp_agent", "acp_conformance", "acp_conformance._wire"
SCHEMAS = (
    "REQUIREMENTS.md", "REQUIREMENTS-v2.md", "acp-v1.schema.json", "acp-v1-drafts.schema.json",
    "acp-v1-1.34.overlay.json", "acp-v2.schema.json", "acp-v2-preview.overlay.json",
)  # fmt: skip
ROW = re.compile(r"(\w+(?:\.\w+)*):\w+")
"""A `"module:name"` row."""


class Wire(BuildHookInterface[BuilderConfig]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A source archive brings them."""
        if version == "editable" or (Path(self.root) / WIRE.replace(".", "/")).exists():
            return
        self._made = Path(tempfile.mkdtemp())
        for name, content in contents(Path(self.root).parent).items():
            file = self._made / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            build_data["force_include"][str(file)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if made := getattr(self, "_made", None):
            shutil.rmtree(made)


def contents(repository: Path) -> dict[str, bytes]:
    """What is built, by path in it: the modules, rewritten, the files that they read beside them, and the schemas.
    Raises ValueError for an import that cannot be rewritten."""
    found = {f"{KIT}/schemas/{name}": (repository / "schemas" / name).read_bytes() for name in SCHEMAS}
    for file in reached(repository):
        source = file.read_text(encoding="utf-8")
        found[_target(file, repository)] = rewritten(source, str(file)).encode()
        for beside in _named_files(file, ast.parse(source)):
            found[_target(beside, repository)] = beside.read_bytes()
    return found


def reached(repository: Path) -> list[Path]:
    """The modules of the kit, and those of the agent that they reach, with the packages that these are in."""
    waiting = sorted((repository / "kit" / KIT).rglob("*.py"))
    found: dict[Path, None] = {}
    while waiting:
        file = waiting.pop()
        if file not in found:
            found[file] = None
            for module in imported(ast.parse(file.read_text(encoding="utf-8"))):
                waiting += _files(repository, module)
    return sorted(found)


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that it names, those for types alone and those of rows too; a name out of a module may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif row := _row(node):
            yield row


def rewritten(source: str, name: str) -> str:
    """The same with each `acp_agent` of an import or of a row replaced. Raises ValueError for `import acp_agent`, which
    binds that name."""
    lines = source.encode().split(b"\n")
    places = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(_is_agent(each.name) for each in node.names):
            raise ValueError(f"{name}:{node.lineno}: write `from {AGENT} import ...`")
        named = node.module if isinstance(node, ast.ImportFrom) else _row(node)
        if isinstance(node, ast.stmt | ast.expr) and _is_agent(named or ""):
            places.append((node.lineno - 1, node.col_offset))
    for line, column in sorted(places, reverse=True):  # What stands before one is not moved by it.
        text = lines[line]
        lines[line] = text[:column] + text[column:].replace(AGENT.encode(), WIRE.encode(), 1)
    return b"\n".join(lines).decode()


def _is_agent(module: str) -> bool:
    return module.split(".")[0] == AGENT


def _row(node: ast.AST) -> str:
    """The module of a row, if the node is one."""
    match = ROW.fullmatch(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    return match[1] if match else ""


def _files(repository: Path, module: str) -> Iterator[Path]:
    """The module's file, and the faces of the packages that it is in; none if it is not the agent's."""
    parts = module.split(".")
    for number in range(1, len(parts) + 1 if _is_agent(module) else 0):
        path = repository.joinpath(*parts[:number])
        yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists())


def _named_files(file: Path, tree: ast.Module) -> Iterator[Path]:
    """Data beside a module of the agent's that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w-]+\.\w+", node.value):
            beside = file.with_name(node.value)
            if beside.suffix != ".py" and beside.is_file() and KIT not in file.parts:
                yield beside


def _target(file: Path, repository: Path) -> str:
    """Where the file is in what is built."""
    parts = file.relative_to(repository).parts
    return "/".join(parts[1:] if parts[0] == "kit" else (*WIRE.split("."), *parts[1:]))
