"""Size limits of the code. Each failure names what has grown; `pytest -rP` prints the figures."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .imports import KIT, PACKAGE, ROOT, modules, parsed

MOST_LINES = 110_100
MOST_KIT_LINES = 8_500
MOST_MODULES = 20
LONGEST_FUNCTION = 80
MOST_PARAMETERS = 12
MOST_ATTRIBUTES = 20


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file, _ in modules():
        yield str(file.relative_to(ROOT)), parsed(file)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for place, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"{place}:{node.lineno} {node.name}", node


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (child for child in ast.walk(node) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def told(what: str, figures: dict[str, int], most: int) -> None:
    """Prints the largest, and fails for those above `most`."""
    largest = sorted(figures.items(), key=lambda item: -item[1])
    sys.stdout.write(f"{what} (at most {most}): {', '.join(f'{place} {number}' for place, number in largest[:3])}\n")
    assert not {place: number for place, number in largest if number > most}


def test_the_product_and_the_kit_keep_to_their_lines():
    lines: Counter[str] = Counter()
    for file, name in modules():
        lines[name.split(".")[0]] += file.read_text(encoding="utf-8").count("\n")
    told("lines of the product", {PACKAGE.name: lines[PACKAGE.name]}, MOST_LINES)
    lines[KIT.name] += (KIT.parent / "hatch_wire.py").read_text(encoding="utf-8").count("\n")
    told("lines of the kit", {KIT.name: lines[KIT.name]}, MOST_KIT_LINES)


def test_no_folder_has_too_many_modules():
    folders = Counter(str(file.parent.relative_to(ROOT)) for file, _ in modules() if file.name != "__init__.py")
    told("modules of a folder", dict(folders), MOST_MODULES)


def test_no_function_is_too_long():
    lengths = {
        f"{place}:{function.lineno} {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for place, tree in trees()
        for function in functions(tree)
    }
    told("lines of a function", lengths, LONGEST_FUNCTION)


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """Of a dataclass or Struct: what its constructor takes."""
    made = any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
    if not made and not any("Struct" in ast.dump(base) for base in node.bases):
        return []
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return [item for item in fields if "ClassVar" not in ast.dump(item.annotation) and not _is_set_later(item)]


def _is_set_later(item: ast.AnnAssign) -> bool:
    keywords = item.value.keywords if isinstance(item.value, ast.Call) else []
    return any(word.arg == "init" and getattr(word.value, "value", True) is False for word in keywords)


def is_data(place: str) -> bool:
    """Configuration, and messages of protocols: their fields are given."""
    return place.startswith(("acp_agent/config/", "acp_agent/schema/"))


def test_no_constructor_takes_too_much():
    parameters = {}
    for place, node in classes():
        own = [
            function for function in node.body if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        ]
        taken = [len(function.args.args) + len(function.args.kwonlyargs) - 1 for function in own]
        if not is_data(place):
            parameters[place] = max([*taken, len(_fields(node))])
    told("parameters of a constructor", parameters, MOST_PARAMETERS)


def test_no_class_has_too_many_attributes():
    attributes = {}
    for place, node in classes():
        names = {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.Attribute)
                and isinstance(inner.ctx, ast.Store)
                and ast.unparse(inner.value) == "self"
            ):
                names.add(inner.attr)
        if not is_data(place):
            attributes[place] = len(names)
    told("attributes of a class", attributes, MOST_ATTRIBUTES)


def test_the_lock_file_pins_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    asked += [item for extra in project["project"]["optional-dependencies"].values() for item in extra]
    names = {re.split(r"[<>=\[ ]", item)[0].lower().replace("_", "-") for item in asked}
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert not names - {name.lower() for name in locked}, "run `make lock`"


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/architecture.md", "AGENTS.md", "docs/extending.md"])
def test_the_files_that_documents_name_are_there(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r"`((?:acp_agent|tests|scripts|docs|schemas|editors)/[\w./-]+)`", text)
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    there = {*files, *(str(folder) for name in files for folder in Path(name).parents)}
    assert not [name for name in named if "NAME" not in name and name.rstrip("/") not in there]
