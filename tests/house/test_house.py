"""The architecture, checked: floors, doors, and what no file may do. Each failure names the line to move."""

import ast
import re
import sys
from collections.abc import Iterator

from acp_agent.build.host_session import WALLS_SENT
from acp_agent.executors.far import program

from .imports import KIT, PACKAGE, ROOT, imports, modules, parsed

FLOORS: dict[str, int] = {
    "__main__": 8, "cli": 8, "api": 8, "commands": 8, "agent": 7, "open_sessions": 7, "fronts": 7, "setup": 7,
    "opening": 6, "auth": 6, "client_provider": 6, "handshake": 6, "build": 6, "loop": 5, "tools": 4, "undo": 4,
    "executors": 3, "output": 3, "safety": 3, "credentials": 3, "llm": 3, "store": 3, "client": 3, "mcp": 3,
    "plugins": 3, "lsp": 3, "testing": 3, "conformance": 3, "protocol": 2, "child": 2, "own_programs": 1,
    "proxying": 2, "config": 2, "schema": 1, "disk": 1, "errors": 1, "lazy": 1, "tracing": 1, "telemetry": 1,
    "legible": 1, "limits": 1, "linear": 1, "toml_table": 1, "": 0,
}  # fmt: skip
"""A module's floor is that of the first part of its name below the package."""

WINGS = {
    "executors", "output", "safety", "credentials", "llm", "store", "client", "mcp", "lsp", "plugins", "testing",
    "conformance",
}  # fmt: skip
SIDEWAYS = {("testing", "client"), ("conformance", "client"), ("conformance", "testing")}
"""The test kit's editor is the client, with faults."""

DOORS: dict[str, tuple[str, ...]] = {
    "pydantic": ("acp_agent.tools", "acp_agent.mcp.mcp_client"), "wcwidth": ("acp_agent.executors.terminals.screen",),
    "pyte": ("acp_agent.executors.terminals.screen",), "botocore": ("acp_agent.llm.clouds.bedrock",),
    "google": ("acp_agent.llm.clouds.vertex",), "genai_prices": ("acp_agent.llm.prices",),
    "mcp": ("acp_agent.mcp", "acp_agent.fronts.mcp_front"), "mcp_types": ("acp_agent.mcp",),
    "pygls": ("acp_agent.lsp", "acp_agent.fronts.lsp_server"),
    "lsprotocol": ("acp_agent.lsp", "acp_agent.fronts.lsp_server"),
    "httpx2": ("acp_agent.mcp", "acp_agent.tools.net.web_client", "acp_agent.loop.hooks.hook_requests"),
    "httpcore2": ("acp_agent.llm.transport.http_client", "acp_agent.tools.net.web_client"),
    "selectolax": ("acp_agent.tools.net.web_page", "acp_agent.tools.net.web_results"),
    "jsonrpcserver": ("acp_agent.client",), "oslash": ("acp_agent.client",), "sqlite3": ("acp_agent.store",),
    "psycopg": ("acp_agent.store.postgres",),
    "tree_sitter": ("acp_agent.safety.lines.line", "acp_agent.setup.json_text"),
    "tree_sitter_json": ("acp_agent.setup.json_text",),
    "tomlkit": ("acp_agent.setup.helix", "acp_agent.setup.mcp_table"),
    "tree_sitter_bash": ("acp_agent.safety.lines.line",), "jsonschema_rs": ("acp_agent.testing",),
    "pytest": ("acp_agent.testing", "acp_conformance.pytest_kit", "acp_conformance.pytest_options"),
    "starlette": ("acp_agent.fronts.server.app", "acp_agent.fronts.server.http_form"),
    "opentelemetry": ("acp_agent.telemetry",), "prometheus_client": ("acp_agent.fronts.server.metrics",),
    "uvicorn": ("acp_agent.fronts.server.app",), "pathspec": ("acp_agent.executors.searching.search_worker",),
    "re2": ("acp_agent.linear",), "yaml": (), "playwright": (), "h11": ("acp_agent.executors.sandbox.proxy",),
    "cryptography": ("acp_agent.executors.sandbox.proxy",), "cronsim": ("acp_agent.tools.kit.timing",),
    "prompt_toolkit": ("acp_agent.fronts.terminal",), "rich": ("acp_agent.fronts.terminal",),
    "platformdirs": (), "keyring": (), "acp_conformance": ("acp_conformance",),
    "asyncio": (
        "acp_agent.protocol", "acp_agent.agent", "acp_agent.open_sessions", "acp_agent.fronts.server",
        "acp_agent.commands.serve", "acp_agent.testing.fake_model", "acp_agent.store.lane",
    ),
}  # fmt: skip
"""Dependency -> the modules (and what is below them) that may import it. An empty tuple: by lazy rows only."""

BROAD = {
    "acp_agent/commands/early.py", "acp_agent/executors/far/side.py", "acp_agent/protocol/connection.py",
    "acp_agent/loop/calls/runner.py", "acp_agent/tools/kit/third_party.py",
}  # fmt: skip
"""Where `except Exception` may stand."""

ROOMS: dict[str, tuple[str, ...]] = {
    "acp_agent.safety": ("", "folders", "lines", "deciding"),
    "acp_agent.loop": (
        "", "prompts", "hooks", "shell", "memory", "toolbox", "model", "beside", "undo", "calls", "turns",
    ),
    "acp_agent.tools": ("kit", "net", "web", "files", "code", "terminal", ""),
}  # fmt: skip
"""The rooms of a wing in the order in which they build on each other; the first is what is at its top."""

LONGEST_FILE = 750

ABOVE = {"acp_agent.loop.commands"}
"""Modules at the top of a wing that use all of its rooms."""

ROOM_PAGES = {
    "executors/far": "docs/internals/places.md", "executors/places": "docs/internals/places.md",
    "executors/terminals": "docs/internals/places.md", "executors/tmux": "docs/internals/places.md",
    "tools/terminal": "docs/internals/places.md", "executors/sandbox": "docs/internals/sandbox.md",
    "executors/sandbox/proxy": "docs/internals/network.md", "fronts/lsp_server": "docs/internals/lsp-front.md",
    "fronts/server": "docs/internals/server.md", "fronts/playing": "docs/internals/recordings.md",
    "fronts/terminal": "docs/internals/terminal.md",
    "llm/recordings": "docs/internals/recordings.md", "loop/hooks": "docs/internals/hooks.md",
    "loop/undo": "docs/internals/undo.md",
}  # fmt: skip
"""Rooms with a page of their own: data, who calls whom."""

SHARED_NAMES = {"__init__", "__main__", "base"}
"""Names that files of several folders have, and mean the same: a package's face, its command, a wing's contract."""


def part(module: str) -> str:
    """The kit is a wing: it uses no other but those of `SIDEWAYS`, and (`DOORS`) nobody uses it."""
    first, *rest = module.split(".")
    return "conformance" if first == KIT.name else (*rest, "")[0]


def test_every_module_has_a_floor():
    assert not ({part(name) for _, name in modules()} - FLOORS.keys())


def test_every_part_has_its_page():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert not [name for name in FLOORS if name not in ("", "__main__", "cli") and f"`{name}" not in text]
    pages = re.findall(r"\]\((internals/[\w-]+\.md)\)", text)
    assert len(pages) > 10 and not [page for page in pages if not (ROOT / "docs" / page).exists()]


def test_imports_run_down_the_floors():
    wrong = []
    for item in imports():
        if not item.imported.startswith((PACKAGE.name, KIT.name)) or item.typing_only:
            continue
        here, there = part(item.importer), part(item.imported)
        if here == there:
            continue
        sideways = here in WINGS and there in WINGS and (here, there) not in SIDEWAYS
        if FLOORS[there] > FLOORS[here] or sideways:
            wrong.append(f"{item.where}: {here} (floor {FLOORS[here]}) imports {there} (floor {FLOORS[there]})")
    assert not wrong, "\n".join(wrong)


def test_imports_between_rooms_run_one_way():
    wrong = []
    folders = {name for file, name in modules() if file.name == "__init__.py"}
    for wing, rooms in ROOMS.items():

        def room(module: str, wing: str = wing) -> str:
            name = module.removeprefix(wing + ".").split(".")[0]
            return name if f"{wing}.{name}" in folders else ""

        for item in imports():
            if item.typing_only or item.importer in ABOVE:
                continue
            if item.importer.startswith(wing + ".") and item.imported.startswith(wing + "."):
                here, there = room(item.importer), room(item.imported)
                if rooms.index(there) > rooms.index(here):
                    wrong.append(f"{item.where}: {here or wing} imports {there}")
    assert not wrong, "\n".join(wrong)


def test_each_dependency_has_one_door():
    wrong = []
    for item in imports():
        top = item.imported.split(".")[0]
        if top in DOORS and not item.typing_only:
            doors = DOORS[top]
            if not any(item.importer == door or item.importer.startswith(door + ".") for door in doors):
                wrong.append(f"{item.where}: {top} belongs to {', '.join(doors) or 'a lazy row'}")
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_cycles():
    graph: dict[str, set[str]] = {}
    known = {name for _, name in modules()}
    for item in imports():
        if item.imported in known and not item.typing_only:
            graph.setdefault(item.importer, set()).add(item.imported)
    state: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, " -> ".join([*path[path.index(name) :], name])
        state[name] = 1
        for below in graph.get(name, ()):
            visit(below, (*path, name))
        state[name] = 2

    for name in known:
        visit(name, ())


def test_no_import_stands_in_a_function():
    wrong = [item.where for item in imports() if item.inside]
    assert not wrong, "\n".join(wrong)


def test_programs_of_ours_are_looked_for_through_one_door():
    """`lsp/known_servers.py` looks for the project's own, which are confined."""
    doors = {"acp_agent/own_programs.py", "acp_agent/lsp/known_servers.py"}
    calls = [place for file, place in modules() if "shutil.which(" in file.read_text(encoding="utf-8")]
    assert {str(place) for place in calls} == {name.removesuffix(".py").replace("/", ".") for name in doors}


def test_git_is_started_through_one_door():
    """`own_programs.run_git`: with all that off by which a repository could start a program."""
    starters = {"find_program", "which", "run", "_run", "Popen", "run_process", "open_process", "check_output", "start"}
    wrong = []
    for file, _ in modules():
        place = str(file.relative_to(ROOT))
        for node in ast.walk(parsed(file)):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if name in starters:
                    named = first.elts[0] if isinstance(first, ast.List | ast.Tuple) and first.elts else first
                    if isinstance(named, ast.Constant) and str(named.value).rpartition("/")[2] == "git":
                        wrong.append(f"{place}:{node.lineno}")
    assert [each.partition(":")[0] for each in wrong] == ["acp_agent/own_programs.py"]


ELSEWHERE = {
    "acp_agent/executors/start.py": "it gets a shell that begins with `as_before`, or what is `behind` one",
    "acp_agent/executors/far/side.py": "on a host, where no limit is raised",
    "acp_agent/client/terminals.py": "not the agent's process", "acp_agent/commands/demo.py": "not the agent's process",
    "acp_agent/fronts/terminal/chat_program.py": "not the agent's process",
    "acp_agent/setup/helix.py": "not the agent's process", "kit/acp_conformance": "not the agent's process",
}  # fmt: skip


def test_what_we_start_gets_the_limit_of_descriptors_that_it_would_have_got():
    """`limits/descriptors.py`: by `restoring` or `behind`."""
    starters = {"subprocess.Popen", "subprocess.run", "anyio.run_process", "anyio.open_process", "run"}
    wrong, used = [], set()
    for file, _ in modules():
        place = str(file.relative_to(ROOT))
        known = {name for name in ELSEWHERE if place.startswith(name)}
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in starters:
                if ast.unparse(node.func) == "run" and "subprocess:run" not in text:
                    continue
                used |= known
                if not known and "restoring()" not in ast.unparse(node) and "behind(" not in text:
                    wrong.append(f"{place}:{node.lineno}")
    assert (wrong, used) == ([], set(ELSEWHERE))


def test_tools_see_contracts_not_backends():
    wrong = [
        f"{item.where}: {item.imported}"
        for item in imports()
        if part(item.importer) == "tools"
        and item.imported.startswith("acp_agent.executors")
        and item.imported != "acp_agent.executors.base"
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_prints_and_broad_excepts_stand_where_they_may():
    wrong = []
    for file, _ in modules():
        place = str(file.relative_to(ROOT))
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                wrong.append(f"{place}:{node.lineno}: print")
            if isinstance(node, ast.ExceptHandler) and place not in BROAD:
                names = [node.type] if not isinstance(node.type, ast.Tuple) else node.type.elts
                if node.type is None or any(isinstance(name, ast.Name) and name.id == "Exception" for name in names):
                    wrong.append(f"{place}:{node.lineno}: except Exception")
    assert not wrong, "\n".join(wrong)


def test_no_file_tells_two_stories():
    long = {}
    for file, _ in modules():
        text = file.read_text(encoding="utf-8")
        if "Do not edit." not in text[:500] and text.count("\n") > LONGEST_FILE:
            long[str(file.relative_to(ROOT))] = text.count("\n")
    assert not long


def test_no_two_files_have_one_name():
    places: dict[str, list[str]] = {}
    for file, _ in modules():
        if file.stem not in SHARED_NAMES and "fronts/demo" not in str(file):
            places.setdefault(file.stem, []).append(str(file.relative_to(ROOT)))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_the_page_of_a_room_names_all_its_files():
    for room, page in ROOM_PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        missing = [file.stem for file in (PACKAGE / room).glob("[!_]*.py") if not re.search(rf"\b{file.stem}\b", text)]
        assert not missing, page


def test_every_lazy_row_names_something_that_exists():
    rows = re.compile(r'"((?:acp_agent|acp_conformance)(?:\.\w+)+):(\w+)"')
    known = {name: file for file, name in modules()}
    wrong = []
    for file, _ in modules():
        for module, name in rows.findall(file.read_text(encoding="utf-8")):
            if module not in known or not re.search(
                rf"^(class|def|async def)?\s*{name}\b", known[module].read_text(encoding="utf-8"), re.MULTILINE
            ):
                wrong.append(f"{file.relative_to(ROOT)}: {module}:{name}")
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is_for():
    assert not [str(file.relative_to(ROOT)) for file, _ in modules() if not ast.get_docstring(parsed(file))]
    assert (PACKAGE / "py.typed").exists() and (KIT / "py.typed").exists()


GROUP_THAT_KEEPS = re.compile(r"(?<![\\(])\)\s*(?:[*+?]|\{[\d,]*\})\+|\(\?>")


FOR_THE_MODEL = re.compile(r"(?<=[.)`}\])]) (?:Use `|Call it again|Read it|Do not |Give |Send |Continue |Try )")


def test_what_a_user_reads_of_a_failed_call_does_not_tell_the_model_what_to_do():
    """That is the suggestion of a `ToolError`, which only the model gets."""
    found = []
    for file, _ in modules():
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ToolError" and node.args:
                parts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
                found += [f"{file}:{node.lineno}"] * bool(FOR_THE_MODEL.search("".join(map(str, parts))))
    assert not found


def test_no_pattern_holds_on_to_a_group():
    """Possessive and atomic groups match wrongly before Python 3.11.5 (CPython issue 106052), which distributions still
    have. A class of characters is safe: `[a-z]*+`."""
    found = []
    for file, _ in modules():
        for node in ast.walk(parsed(file)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ")" for part in parts
            )
            if isinstance(node, (ast.JoinedStr, ast.Constant)) and GROUP_THAT_KEEPS.search(text):
                found.append(f"{file}:{node.lineno}")
    assert found == []


DECODERS = {"json.loads", "json.load", "msgspec.json.decode", "tomllib.loads", "tomllib.load"}
LAZY_DECODERS = {name.replace(".loads", ":loads").replace(".decode", ":decode") for name in DECODERS}
OWN_BYTES = {
    "acp_agent/config/trusted_files.py", "acp_agent/setup/editor_table.py", "acp_agent/setup/change.py",
    "acp_agent/tools/kit/registry.py", "acp_agent/executors/search.py",
    "acp_agent/executors/searching/search_worker.py", "acp_agent/fronts/server/app.py",
    "acp_agent/fronts/server/http_form.py", "acp_agent/llm/chat_request.py", "acp_agent/llm/clouds/vertex.py",
    "acp_agent/mcp/mcp_client.py", "acp_agent/config/sources.py", "acp_agent/config/provider_rows.py",
    "acp_agent/limits/decoding.py", "acp_agent/store/found_words.py", "acp_agent/protocol/peer.py",
}  # fmt: skip
"""They read what the package holds, what they wrote a moment ago, or the store, which checks what it gives; the peer
and `sources` bound what they read without msgspec, which is not loaded yet."""


def test_what_others_wrote_is_read_through_one_door_or_bounded_in_place():
    def direct(node: ast.AST, caught: str = "") -> Iterator[int]:
        if isinstance(node, ast.Try):
            inside = caught + " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
            for child in ast.iter_child_nodes(node):
                yield from direct(child, inside if child in node.body else caught)
            return
        if isinstance(node, ast.Attribute | ast.Constant) and "RecursionError" not in caught:
            named = isinstance(node, ast.Attribute) and ast.unparse(node) in DECODERS
            if named or (isinstance(node, ast.Constant) and node.value in LAZY_DECODERS):
                yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from direct(child, caught)

    kits = ("kit/acp_conformance/", "acp_agent/testing/")
    files = {str(file.relative_to(ROOT)): parsed(file) for file, _ in modules()}
    found = {f"{name}:{line}" for name, tree in files.items() if not name.startswith(kits) for line in direct(tree)}
    assert {where for where in found if where.partition(":")[0] not in OWN_BYTES} == set(), "acp_agent.limits.decoding"
    assert {where.partition(":")[0] for where in found} == OWN_BYTES, "a row without use"


def test_what_is_sent_to_hosts_needs_what_is_there():
    """The standard library, what is sent too, and what stands for the rest."""
    sent = {"search": (program.SEARCH,), "side": program.SENT, "walls": (*program.SENT, *WALLS_SENT)}
    wrong = set()
    for modules_sent in sent.values():
        there = {*modules_sent, *program.STANDING, program.LIBRARY}
        packages = {name.rpartition(".")[0] for name in there} | {"acp_agent", "acp_agent.executors"}
        for each in imports():
            importer = each.importer
            if importer not in modules_sent or each.typing_only or importer in program.STANDING:
                continue
            first = each.imported.partition(".")[0]
            known = each.imported in there or each.imported.rpartition(".")[0] in there or each.imported in packages
            if not known and first not in sys.stdlib_module_names:
                wrong.add(f"{each.where} {each.imported}")
    assert not wrong
