"""Figures of the architecture that may only fall. A limit is today's value, the goal stands beside it. A change that
raises a figure fails; one that lowers it by more than a fiftieth lowers the limit with it."""

import ast
import gc
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from acp_agent.config import wire_apis
from acp_agent.config.load import keys
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.tools.kit.registry import TOOLS

from .imports import imports, modules, parsed
from .test_figures import _fields, told

KITS = ("acp_conformance", "acp_agent.testing")
ROW = re.compile(r"(acp_agent(?:\.\w+)*):\w+")
WORDS = {"place", "part_of", "apart", "here"}


@pytest.fixture(autouse=True, scope="module")
def _no_collector() -> Iterator[None]:
    """Looking for garbage among a million nodes again and again takes longer than the tests."""
    gc.disable()
    yield
    gc.enable()


@cache
def package() -> dict[type[ast.AST], list[tuple[str, Any]]]:
    """Kind -> module and node, of all trees."""
    found: dict[type[ast.AST], list[tuple[str, Any]]] = defaultdict(list)
    for file, module in modules():
        for node in ast.walk(parsed(file)):
            found[type(node)].append((module, node))
    return found


def every(*kinds: type[ast.AST], but: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    return ((module, node) for kind in kinds for module, node in package()[kind] if not module.startswith(but))


def held(what: str, found: Iterable[str], most: int) -> None:
    """Prints how many there are (and all of them, if there are too many), and fails unless the limit is close."""
    places = sorted(found)
    sys.stdout.write("\n".join([*places, ""]) if len(places) > most else "")
    told(what, {"acp_agent": len(places)}, most)
    assert len(places) >= most - most // 50, f"{what}: lower the limit to {len(places)}"


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, largest first."""
    bits = {name: 1 << index for index, name in enumerate(graph)}
    reach = {name: sum(bits[other] for other in others - {name}) for name, others in graph.items()}
    for via, bit in bits.items():
        for name in graph:
            reach[name] |= reach[via] if reach[name] & bit else 0
    found: dict[int, list[str]] = defaultdict(list)
    for name in graph:
        found[reach[name]] += [name] if reach[name] & bits[name] else []
    return sorted(filter(None, found.values()), key=len, reverse=True)


@pytest.mark.parametrize(
    ("rows", "most"),
    [(False, [26, 4, 3, 3, 2, 2]), (True, [33, 11, 7, 6, 6, 5, 3, 2, 2, 2, 2, 2, 2])],
    ids=["typing", "lazy"],
)
def test_rings_of_imports_shrink(rows: bool, most: list[int]) -> None:
    """Typing imports count; the second time, `"module:name"` rows too. Goal: none. The members of a table are not
    counted: each is in the ring that the table is in, and there may be more of them (CONTRIBUTING.md)."""
    graph: dict[str, set[str]] = {module: set() for module, _ in every(ast.Module)}
    for item in imports():
        graph[item.importer] |= {item.imported} & graph.keys()
    for module, node in every(ast.Constant) if rows else ():
        row = ROW.fullmatch(node.value) if isinstance(node.value, str) else None
        graph[module] |= {row[1]} & graph.keys() if row else set()
    providers = {f"acp_agent.{row.provider.partition(':')[0]}" for row in WIRE_APIS.values()}
    graph[wire_apis.__name__] |= providers if rows else set()
    found = rings(graph)
    members = providers | {row.partition(":")[0] for row in TOOLS.values()}
    sizes = sorted((len({*ring} - members) for ring in found), reverse=True)
    sys.stdout.write(f"modules of the rings of imports (at most {most}): {sizes}\n")
    assert sizes == most, f"take apart what joined, or lower the limit to {sizes}: {found}"


def test_fewer_objects_are_made_by_copying() -> None:
    """Calls of `copy.copy` and `copy.deepcopy`, of `self` and of others. Goal: 1, the cursor of a screen (a value)."""
    names = {"copy", "deepcopy", "copy.copy", "copy.deepcopy"}
    calls = [(module, node) for module, node in every(ast.Call) if _last(node) in names]
    found = [f"{module}:{node.lineno} {ast.unparse(node)}" for module, node in calls if ast.unparse(node.func) in names]
    held("objects made by copying", found, 1)


def _last(node: ast.AST) -> str:
    """`c` of `a.b.c`, `a.b.c(...)`, `a.b.c[...]`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _own(tree: ast.ClassDef) -> set[str]:
    """The attributes of a class; none of a record (dataclass, Struct), which others may fill."""
    if {"dataclass", "Struct", "NamedTuple", "TypedDict"} & {_last(item) for item in tree.decorator_list + tree.bases}:
        return set()
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    fields = {_last(item.target) for item in tree.body if isinstance(item, ast.AnnAssign)}
    return fields | {node.attr for node in stored if _last(node.value) == "self"}


def _words(said: ast.AST | None) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(said))) if said else set()


def _classes() -> dict[tuple[str, str], set[str]]:
    """Module (or "" for all) and name -> what is said there to be its class: in an annotation, or by what makes it."""
    said = [(module, node.arg, node.annotation) for module, node in every(ast.arg)]
    said += [(module, node.name, node.returns) for module, node in every(ast.FunctionDef)]
    said += [(module, _last(node.target), node.annotation) for module, node in every(ast.AnnAssign)]
    made = [(module, node) for module, node in every(ast.Assign) if isinstance(node.value, ast.Call)]
    said += [(module, _last(node.targets[0]), node.value.func) for module, node in made]
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, name, node in said:
        found[module, name] |= _words(node)
    for (_, name), words in [*found.items()]:
        found["", name] |= words
    return found


def test_fewer_attributes_are_set_from_outside() -> None:
    """Counted is each attribute of a class that some statement `x.attribute = ...` sets in a module without such a
    class. The class of x is what the module, or else the package, says of its last name (`outbox: Outbox`); records,
    messages and the kits are left out. Goal: 3, where the plan counts 20 of these, those that tie parts together."""
    homes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, tree in every(ast.ClassDef, but=("acp_agent.schema",)):
        for attribute in _own(tree):
            homes[tree.name, attribute].add(module)
    known, classes = {tree.name for _, tree in every(ast.ClassDef)}, _classes()
    found: dict[tuple[str, str], str] = {}
    for module, node in every(ast.Attribute, but=KITS):
        receiver = _last(node.value)
        if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) not in {"self", "cls"}:
            for name in classes[module, receiver] & known or classes["", receiver] | {receiver}:
                if module not in homes.get((name, node.attr), {module}):
                    found[name, node.attr] = f"{name}.{node.attr}: {module}:{node.lineno}"
    held("attributes set from outside", found.values(), 65)


def test_fewer_constructors_take_callbacks() -> None:
    """Parameters of `__init__` and fields of dataclasses and Structs whose annotation has `Callable` in it, or a name
    that stands for such a type. Without the kits. Goal: 40."""
    known = {("collections.abc", "Callable"), ("typing", "Callable")}
    for _ in range(3):  # a name of a name of a name
        for module, node in every(ast.ImportFrom):
            known |= {(module, item.asname or item.name) for item in node.names if (node.module, item.name) in known}
        for module, node in every(ast.Assign):
            stands = isinstance(node.value, ast.Subscript | ast.BinOp)
            if stands and known & {(module, word) for word in _words(node.value)}:
                known.add((module, _last(node.targets[0])))
    found = []
    for module, tree in every(ast.ClassDef, but=KITS):
        makers = [item.args for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
        taken: list[ast.arg | ast.AnnAssign] = [*_fields(tree)]
        taken += [item for args in makers for item in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
        for item in taken:
            if known & {(module, word) for word in _words(item.annotation)}:
                found.append(f"{module}:{item.lineno} {ast.unparse(item)}")
    held("callbacks of constructors", found, 175)


@pytest.mark.parametrize(("kinds", "most", "files"), [
    ({ast.Attribute: "attr"}, 139, 40), ({ast.arg: "arg", ast.keyword: "arg"}, 62, 38), ({ast.Name: "id"}, 840, 119),
], ids=["attributes", "arguments", "names"])  # fmt: skip
def test_places_are_mentioned_less(kinds: dict[type[ast.AST], str], most: int, files: int) -> None:
    """The words `place`, `part_of`, `apart`, `here` outside of `executors`. Goal: attributes and arguments 10 in 3."""
    nodes = every(*kinds, but=("acp_agent.executors",))
    found = [(module, node.lineno) for module, node in nodes if getattr(node, kinds[type(node)]) in WORDS]
    held("mentions of places", (f"{module}:{line}" for module, line in found), most)
    held("modules that mention places", {module for module, _ in found}, files)


def test_fewer_classes_share_a_name() -> None:
    """Public names that more than one class of the package has. Goal: 20."""
    names = Counter(tree.name for _, tree in every(ast.ClassDef) if not tree.name.startswith("_"))
    held("names of several classes", (name for name, number in names.items() if number > 1), 89)


def test_the_keys_of_the_configuration_become_fewer() -> None:
    """The rows of docs/configuration.md. Goal: 290."""
    held("keys of the configuration", (key.name for key in keys()), 372)


def test_fewer_files_are_short() -> None:
    """Modules of at most 60 lines, without the faces of packages: one idea is one file, not several. No goal yet."""
    lines = {module: file.read_text(encoding="utf-8").count("\n") for file, module in modules() if file.stem[0] != "_"}
    held("files of at most 60 lines", (module for module, number in lines.items() if number <= 60), 93)
