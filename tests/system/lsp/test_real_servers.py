"""The real ruff, basedpyright and typescript-language-server."""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.language_settings import LspConfig
from acp_agent.lsp.base import Document, LspError
from acp_agent.schema.lsp_types import FileDiagnostics, Location, Position
from tests.lsp.kit import BIN, NODE, Kit, messages, running

PATH = os.pathsep.join([str(BIN), "/usr/local/bin", "/usr/bin", "/bin"])
CONFIG = LspConfig(edit_wait=30.0, start_timeout=30.0, request_timeout=30.0)


def python(folder: Path, **config: Any) -> AbstractAsyncContextManager[Kit]:
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    return running(folder, CONFIG, path=PATH, **config)


def script(folder: Path) -> AbstractAsyncContextManager[Kit]:
    if not (NODE / ".bin" / "typescript-language-server").exists():
        pytest.skip("typescript-language-server is missing: scripts/install_node_tools.sh installs it")
    (folder / "node_modules").symlink_to(NODE)
    (folder / "tsconfig.json").write_text('{"compilerOptions": {"strict": true, "types": []}}', encoding="utf-8")
    return running(folder, CONFIG, path=PATH)


async def test_a_type_error_that_an_edit_brings_is_told_and_an_old_one_that_moved_is_not(tmp_path: Path):
    async with python(tmp_path) as kit:
        before = kit.write("a.py", "x: int = 'old'\n")
        after = kit.write("a.py", "import os\n\nx: int = 'old'\ny: str = 1\n")
        found = await kit.servers.new_errors(before, after)
        assert found.waiting == ()
        ((path, item),) = found.errors
        assert (path, item.source, item.code, item.range.start.line) == (after.path, "basedpyright", _ASSIGNMENT, 3)
        assert "is not assignable to declared type" in item.message
        states = {each.name: (each.state, each.restarts, each.folder) for each in kit.servers.states()}
        assert states == {"basedpyright": ("ready", 0, tmp_path), "ruff": ("ready", 0, tmp_path)}


_ASSIGNMENT = "reportAssignmentType"


async def test_edits_that_mend_break_or_import_are_told_by_both_servers_with_their_places(tmp_path: Path):
    async with python(tmp_path) as kit:
        bad, good = "x: int = 'a'\n", "x: int = 1\n"
        path = kit.write("a.py", bad).path
        for before, after, count in [(bad, good, 0), (good, good + "\n", 0), (good + "\n", bad, 1), (bad, bad, 0)]:
            found = await kit.servers.new_errors(Document(path, before), kit.write("a.py", after))
            assert (len(found.errors), found.waiting) == (count, ())
        found = await kit.servers.new_errors(kit.write("a.py", "x = 1\n"), kit.write("a.py", "x = (\n"))
        assert {item.source for _, item in found.errors} == {"basedpyright", "Ruff"}
        user = kit.write("b.py", "x = 1\n")
        assert (await kit.servers.new_errors(None, user)).errors == ()
        assert (await kit.servers.new_errors(None, kit.write("helper.py", "VALUE = 1\n"))).errors == ()
        importing = kit.write("b.py", "from helper import VALUE\n\nprint(VALUE)\n")
        assert (await kit.servers.new_errors(user, importing)).errors == ()
        found = await kit.servers.new_errors(None, kit.write("a.py", "s = '🎈🎈'; t: int = 'x'\n"))
        ((_, item),) = found.errors
        assert item.range.start.character == len("s = '🎈🎈'; t: int = ".encode("utf-16-le")) // 2


async def test_callers_that_an_edit_breaks_in_other_files_are_told(tmp_path: Path):
    async with python(tmp_path) as kit:
        before = kit.write("a.py", "def add(a: int) -> int:\n    return a\n")
        user = kit.write("b.py", "from a import add\n\nprint(add(1))\n")
        await kit.servers.diagnostics([user, before])
        after = kit.write("a.py", "def add(a: int, b: int) -> int:\n    return a + b\n")
        ((path, item),) = (await kit.servers.new_errors(before, after)).errors
        assert (path, item.range.start.line) == (user.path, 2)
        assert 'Argument missing for parameter "b"' in item.message


async def test_questions_about_python_are_answered(tmp_path: Path):
    async with python(tmp_path) as kit:
        one = kit.write(
            "one.py", 'class Duck:\n    """Quacks."""\n\n    def quack(self) -> str:\n        return "quack"\n'
        )
        two = kit.write("two.py", "from one import Duck\n\nprint(Duck().quack())\n")
        at = Position(2, 14)
        assert places(await kit.servers.definition(two, at)) == [("one.py", 3)]
        assert sorted(places(await kit.servers.references(two, at))) == [("one.py", 3), ("two.py", 2)]
        hover = await kit.servers.hover(two, at)
        assert hover is not None and "quack" in hover.contents.value
        (symbol,) = await kit.servers.document_symbols(one)
        assert (symbol.name, symbol.kind, [child.name for child in symbol.children]) == ("Duck", 5, ["quack"])
        (found,) = await kit.servers.workspace_symbols("quack", one)
        assert (found.name, found.container_name, places([found.location])) == ("quack", "Duck", [("one.py", 3)])
        edit = await kit.servers.rename(two, at, "honk")
        assert {Path(uri).name: [each.new_text for each in edits] for uri, edits in edit.changes.items()} == {
            "one.py": ["honk"], "two.py": ["honk"],
        }  # fmt: skip
        with pytest.raises(LspError, match=r"nothing to rename at line 2, character 1"):
            await kit.servers.rename(two, Position(1, 0), "honk")


async def test_a_report_has_the_files_that_were_asked_for_and_who_answered(tmp_path: Path):
    async with python(tmp_path) as kit:
        documents = [
            kit.write("a.py", "import os\nx: int = ''\n"), kit.write("b.py", "y = 1\n"), kit.write("c.txt", ""),
        ]  # fmt: skip
        report = await kit.servers.diagnostics(documents)
        assert sorted(report.sources) == ["basedpyright", "ruff"]
        assert counts(report.items) == {"a.py": True, "b.py": False}
        assert {item.source for each in report.items for item in each.diagnostics} == {"basedpyright", "Ruff"}
        (trouble,) = report.trouble
        assert "c.txt" in trouble


async def test_each_workspace_has_servers_of_its_own_with_its_own_settings(tmp_path: Path):
    async with python(tmp_path) as kit:
        kit.write("inner/ruff.toml", 'line-length = 320\n[lint]\nselect = ["D100"]\n')
        kit.write("inner/pyrightconfig.json", '{"typeCheckingMode": "off"}')
        report = await kit.servers.diagnostics([kit.write("a.py", "x = 1\n"), kit.write("inner/a.py", "x = 1\n")])
        codes = {Path(each.uri).parent.name: [item.code for item in each.diagnostics] for each in report.items}
        assert codes == {tmp_path.name: [], "inner": ["D100"]}
        assert len(kit.servers.states()) == 4


async def test_packages_of_the_projects_own_environment_are_found(tmp_path: Path):
    async with python(tmp_path) as kit:
        environment = tmp_path / ".venv"
        (package := environment / "lib" / "python3.11" / "site-packages" / "ducks").mkdir(parents=True)
        (package / "__init__.py").write_text("QUACK: int = 1\n", encoding="utf-8")
        (package / "py.typed").write_text("", encoding="utf-8")
        (environment / "bin").mkdir()
        (environment / "bin" / "python").symlink_to(os.path.realpath(BIN / "python"))
        (environment / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(BIN / 'python'))}\n")
        found = await kit.servers.new_errors(None, kit.write("a.py", "from ducks import QUACK\n\nprint(QUACK)\n"))
        assert found.errors == ()
        kit.write("inner/pyrightconfig.json", "{}")
        text = "from ducks import QUACK\n\nprint(QUACK)\n"
        assert (await kit.servers.new_errors(None, kit.write("inner/a.py", text))).errors == ()
        found = await kit.servers.new_errors(None, kit.write("b.py", "from geese import QUACK\n\nprint(QUACK)\n"))
        assert [item.code for _, item in found.errors] == ["reportMissingImports"]


async def test_typescript_tells_new_errors_and_is_not_waited_for_where_there_are_none(tmp_path: Path):
    async with script(tmp_path) as kit:
        before = kit.write("a.ts", "export const x: number = 1;\n")
        user = kit.write("b.ts", 'import { x } from "./a";\nexport const y: number = x;\n')
        report = await kit.servers.diagnostics([before, user])
        assert (counts(report.items), report.sources) == ({"a.ts": False, "b.ts": False}, ("typescript",))
        same = kit.write("a.ts", before.text + "\n")
        found = await kit.servers.new_errors(before, same)
        assert (found.errors, found.waiting) == ((), ())
        after = kit.write("a.ts", 'export const x: string = "🎈" + missing;\n')
        found = await kit.servers.new_errors(same, after)
        assert found.waiting == ()
        assert messages(found.errors) == [
            ("a.ts", "Cannot find name 'missing'."), ("b.ts", "Type 'string' is not assignable to type 'number'."),
        ]  # fmt: skip
        assert found.errors[0][1].range.start == Position(0, 32)
        found = await kit.servers.new_errors(after, kit.write("a.ts", before.text))
        assert (found.errors, found.waiting) == ((), ())


async def test_questions_about_typescript_are_answered(tmp_path: Path):
    async with script(tmp_path) as kit:
        one = kit.write("one.ts", "export class Duck {\n  quack(): string { return 'quack'; }\n}\n")
        two = kit.write("two.tsx", 'import { Duck } from "./one";\n\nnew Duck().quack();\n')
        at = Position(2, 12)
        assert places(await kit.servers.definition(two, at)) == [("one.ts", 1)]
        assert sorted(places(await kit.servers.references(two, at))) == [("one.ts", 1), ("two.tsx", 2)]
        hover = await kit.servers.hover(two, at)
        assert hover is not None and "Duck.quack(): string" in hover.contents.value
        (symbol,) = await kit.servers.document_symbols(one)
        assert (symbol.name, [child.name for child in symbol.children]) == ("Duck", ["quack"])
        assert [each.name for each in await kit.servers.workspace_symbols("quack")] == ["quack"]
        assert {Path(uri).name for uri in (await kit.servers.rename(two, at, "honk")).changes} == {"one.ts", "two.tsx"}
        with pytest.raises(LspError, match="You cannot rename this element"):
            await kit.servers.rename(two, Position(1, 0), "honk")


def places(found: Sequence[Location]) -> list[tuple[str, int]]:
    return [(Path(each.uri).name, each.range.start.line) for each in found]


def counts(items: Sequence[FileDiagnostics]) -> dict[str, bool]:
    """Name -> whether there is something to tell."""
    return {Path(each.uri).name: bool(each.diagnostics) for each in items}
