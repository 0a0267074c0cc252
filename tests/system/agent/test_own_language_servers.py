"""The agent's own language servers, real ones in the real sandbox: errors with an edit, and the tools that ask them."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.schema.acp import Diff
from acp_agent.schema.lsp_types import Position, Range, TextEdit
from acp_agent.testing.fake_model import Answer, Call
from acp_agent.tools.code.rename import edited
from tests.agent.kit import Rig, asks, bash, results, rig
from tests.forked import first_line
from tests.processes import running
from tests.waits import until

BIN = str(Path(sys.executable).parent)
PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin"

CONFIG = "[lsp]\nedit_wait = 30.0\n"
"""A busy machine takes long to start a server; what is told is the same."""

SHAPES = """\
class Shape:
    def area(self) -> float:
        return 0.0


def total(shapes: list[Shape]) -> float:
    return sum(shape.area() for shape in shapes)
"""
MAIN = """\
from shapes import Shape, total

print("𝒳", total([Shape()]))
"""


def on(tmp_path: Path, *calls: Call, **more: Any):
    """A session in `code` mode with confined commands, whose PATH has the language servers."""
    (project := tmp_path / "project").mkdir(exist_ok=True)
    (project / "shapes.py").write_text(SHAPES, encoding="utf-8")
    (project / "main.py").write_text(MAIN, encoding="utf-8")
    (project / "pyproject.toml").write_text('[tool.basedpyright]\ntypeCheckingMode = "standard"\n')
    script = [*(asks(call) for call in calls), Answer(text="done")]
    settings = {"sandbox": True, "mode": "auto", "config": CONFIG, "environ": {"PATH": PATH}, **more}
    return rig(tmp_path, script, **settings)


async def run(r: Rig, text: str = "go") -> list[str]:
    with anyio.fail_after(120):
        await r.editor.prompt(text)
    return results(r)


async def test_an_edit_tells_the_errors_it_brought_about_and_only_these(tmp_path):
    edits = [
        Call("edit", {"path": "shapes.py", "old_string": "return 0.0", "new_string": "return 'none'"}),
        Call("edit", {"path": "shapes.py", "old_string": "class Shape:", "new_string": "# A shape.\nclass Shape:"}),
    ]
    async with on(tmp_path, *edits) as r:
        first, second = await run(r)
        assert first.startswith("shapes.py was changed.\n") and "return 'none'" in first
        assert "\n\n1 new error after this change:\nshapes.py:3:16: Type " in first
        assert "[basedpyright reportReturnType]" in first
        assert "after this change" not in second  # The error of before has moved by a line.
        content = [item for item in next(iter(r.editor.tool_calls().values())).content if not isinstance(item, Diff)]
        assert "1 new error" in content[0].content.text


async def test_a_syntax_error_of_a_new_file_is_told_by_ruff_as_well(tmp_path):
    async with on(tmp_path, Call("write", {"path": "new.py", "content": "def broken(:\n    pass\n"})) as r:
        (told,) = await run(r)
        assert "new.py was created." in told and "new.py:1:12:" in told and "Ruff" in told


async def test_symbols_are_found_by_the_server_not_by_their_spelling(tmp_path):
    calls = [
        Call("definition", {"path": "main.py", "symbol": "total", "line": 3}),
        Call("references", {"path": "shapes.py", "symbol": "Shape"}),
        Call("hover", {"path": "main.py", "symbol": "total"}), Call("symbols", {"path": "shapes.py"}),
        Call("symbols", {"query": "total", "path": "main.py"}),
        Call("definition", {"path": "main.py", "symbol": "total", "line": 2}),
        Call("definition", {"path": "main.py", "symbol": "missing"}),
    ]  # fmt: skip
    async with on(tmp_path, *calls) as r:
        definition, references, hover, outline, named, wrong_line, missing = await run(r)
        assert definition == "shapes.py:6:5: def total(shapes: list[Shape]) -> float:"
        assert references.startswith("4 places in 2 files:")
        assert 'main.py:3:19: print("𝒳", total([Shape()]))' in references  # In characters, not in UTF-16 code units.
        assert "total" in hover and "float" in hover
        assert "1: class Shape" in outline and "  2: method area" in outline and "6: function total" in outline
        assert "shapes.py:6: function total" in named and "is not at line 2 of main.py, but at line 1, 3" in wrong_line
        assert "`missing` is not in main.py" in missing


async def test_a_rename_is_one_question_with_the_changes_of_all_files(tmp_path):
    rename = Call("rename", {"path": "shapes.py", "symbol": "total", "new_name": "sum_of_areas"})
    async with on(tmp_path, rename, mode="code", permissions=[allow_once]) as r:
        (told,) = await run(r)
        assert told == "`total` is now `sum_of_areas` in 2 files:\nshapes.py\nmain.py" or "main.py\nshapes.py" in told
        assert "def sum_of_areas" in (r.project / "shapes.py").read_text()
        assert 'print("𝒳", sum_of_areas([Shape()]))' in (r.project / "main.py").read_text(encoding="utf-8")
        (request,) = r.editor.permission_requests
        assert {Path(item.path).name for item in request.tool_call.content if isinstance(item, Diff)} == {
            "shapes.py", "main.py",
        }  # fmt: skip


async def test_a_rename_that_is_rejected_or_cannot_be_made_changes_nothing(tmp_path):
    rename = Call("rename", {"path": "shapes.py", "symbol": "total", "new_name": "sum_of_areas"})
    async with on(tmp_path, rename, mode="code", permissions=[reject_once]) as r:
        await run(r)
        assert (r.project / "shapes.py").read_text() == SHAPES
        assert (r.project / "main.py").read_text(encoding="utf-8") == MAIN
    rename = Call("rename", {"path": "main.py", "symbol": "print", "new_name": "show"})
    async with on(tmp_path, rename, mode="code", permissions=[allow_once]) as r:
        (told,) = await run(r)
        assert "rename" in told.lower()
        assert r.editor.permission_requests == [] and (r.project / "main.py").read_text(encoding="utf-8") == MAIN


async def test_diagnostics_of_the_servers_by_the_tool_and_by_a_mention(tmp_path):
    async with on(tmp_path, Call("diagnostics", {"source": "lsp", "path": "."})) as r:
        (r.project / "main.py").write_text("import os\nprint(undefined)\n")
        (told,) = await run(r, "look at @diagnostics")
        mention = [item for item in r.request(1)["messages"] if item["role"] == "user"][-1]["content"]
        said = mention if isinstance(mention, str) else "".join(part["text"] for part in mention)
        assert "main.py:2:7: error:" in said and "F401" in said
        assert "main.py:2:7 error[reportUndefinedVariable]: " in told and "main.py:1:8 warning[F401]: " in told
        assert "taplo" not in told  # Of files that no server is installed for nothing is said.
        assert next(iter(r.editor.tool_calls().values())).status == "completed"


async def test_without_a_sandbox_no_server_is_started_unless_the_person_says_so(tmp_path):
    call = Call("hover", {"path": "main.py", "symbol": "total"})
    async with on(tmp_path, call, sandbox=False) as r:
        (told,) = await run(r)
        assert "there is no sandbox to confine them" in told and "lsp.unconfined" in told
        assert r.editor.text() == "done"  # Nobody is told who has not asked for a server.
    async with on(tmp_path, call, sandbox=False, config=CONFIG + "unconfined = true\n") as r:
        (told,) = await run(r)
        assert "float" in told


async def test_a_server_in_the_sandbox_reads_the_project_and_writes_nothing_of_it(tmp_path):
    program = tmp_path / "bin" / "spy"
    program.parent.mkdir()
    program.write_text(
        f"{first_line('')}\n"
        "import pathlib, sys\n"
        "seen = pathlib.Path('shapes.py').read_text()[:11]\n"
        "try:\n    pathlib.Path('made').write_text('x'); seen += ' wrote'\n"
        "except OSError: seen += ' read-only'\n"
        "import socket\n"
        "try:\n    socket.create_connection(('127.0.0.1', 9), 1); seen += ' network'\n"
        "except ConnectionRefusedError: seen += ' refused'\n"
        "except OSError: seen += ' no-network'\n"
        "try:\n    socket.socket(socket.AF_UNIX); seen += ' sockets'\n"
        "except OSError: seen += ' no-sockets'\n"
        "sys.stderr.write(seen + chr(10)); sys.exit(3)\n"
    )
    program.chmod(0o755)
    config = (
        CONFIG + f'max_restarts = 0\n[lsp.servers.spy]\ncommand = ["{program}"]\nlanguages = {{ ".spy" = "spy" }}\n'
    )
    config += (
        f'[tools.sandbox]\nallow_unix_sockets = true\nallow_read = ["{program.parent}", "{Path(BIN).parents[1]}"]\n'
    )
    async with on(tmp_path, Call("hover", {"path": "a.spy", "symbol": "x"}), config=config) as r:
        (r.project / "a.spy").write_text("x\n")
        (told,) = await run(r)
        assert "class Shape read-only" in told and "wrote" not in told
        assert "no-sockets" in told  # Also where commands, of which a user is asked, may use them.
        assert not (r.project / "made").exists()


async def test_the_servers_end_with_the_session(tmp_path):
    def ours() -> bool:
        return any(works_in(pid, tmp_path / "project") for pid in running("langserver"))

    async with on(tmp_path, Call("hover", {"path": "main.py", "symbol": "total"})) as r:
        await run(r)
        assert ours()
        await r.editor.client.close_session(r.editor.session_id)
        await until(lambda: not ours())


def works_in(pid: int, folder: Path) -> bool:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    return False


async def test_the_tools_are_offered_where_a_server_is_installed_only(tmp_path):
    names = {"definition", "references", "symbols", "hover", "rename"}
    async with on(tmp_path) as r:
        await run(r)
        assert names <= r.tool_names(1)
    async with on(tmp_path, environ={"PATH": "/nowhere"}) as r:
        await run(r)
        assert not names & r.tool_names(1)


RENAME = Call("rename", {"path": "shapes.py", "symbol": "total", "new_name": "sum_of_areas"})
RENAMED = MAIN.replace("total", "sum_of_areas")


async def test_a_rename_changes_what_the_editor_has_and_not_what_the_disk_had(tmp_path):
    main = tmp_path / "project" / "main.py"
    buffers = {main: "# not saved\n" + MAIN}
    async with on(tmp_path, RENAME, buffers=buffers, save=False) as r:
        (told,) = await run(r)
        assert buffers[main] == "# not saved\n" + RENAMED
        assert "error" not in told
        assert main.read_text(encoding="utf-8") == MAIN


async def test_a_rename_changes_what_a_command_has_written_meanwhile(tmp_path):
    edit = Call("edit", {"path": "main.py", "old_string": "print(", "new_string": "print( "})
    command = bash("printf '# new\\n' | cat - main.py > /tmp/x && cat /tmp/x > main.py")
    async with on(tmp_path, edit, command, RENAME) as r:
        *_, told = await run(r)
        assert (r.project / "main.py").read_text(encoding="utf-8") == "# new\n" + RENAMED.replace("print(", "print( ")
        assert "error" not in told


async def test_a_file_that_a_rename_reaches_by_two_names_is_changed_once(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "alias.py").symlink_to("main.py")
    async with on(tmp_path, RENAME) as r:
        (told,) = await run(r)
        assert "in 2 files" in told
        assert (r.project / "main.py").read_text(encoding="utf-8") == RENAMED


def test_lines_are_counted_as_the_language_servers_count_them():
    def at(line: int) -> TextEdit:
        return TextEdit(Range(Position(line, 0), Position(line, 1)), "X")

    assert edited("a\rb\r\nc\nd", [at(line) for line in range(4)]) == "X\rX\r\nX\nX"
    assert edited("a\n", [TextEdit(Range(Position(1, 0), Position(9, 0)), "b")]) == "a\nb"
    assert edited("", [TextEdit(Range(Position(0, 0), Position(0, 0)), "b")]) == "b"
