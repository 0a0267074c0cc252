"""diagnostics: parsing of output, as a table; then the real programs on small projects."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import anyio
import anyio.to_thread
import pytest

from acp_agent.config.model import DiagnosticsConfig, ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Ask, ExecuteAccess, PathAccess
from acp_agent.safety.deciding.decide import decide
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.code import diagnostics_parsers as parsers
from acp_agent.tools.code.diagnostics_checkers import PARSERS, CheckerName, checkers, choose
from acp_agent.tools.kit.tool_context import Location, ToolResult
from tests.files import put
from tests.tables import table
from tests.tools.kit import REGISTRY, Bench, bench

NODE = Path(__file__).parent.parent / ".node" / "node_modules"
BIN = Path(sys.executable).parent

# --- what is printed ------------------------------------------------------------------------------------------

CARGO = (
    """{"reason":"compiler-artifact","package_id":"x"}
{"reason":"compiler-message","message":{"rendered":"...","children":[],"level":"error","message":"mismatched types","""
    """"spans":[{"file_name":"src/main.rs","line_start":1,"column_start":20,"is_primary":false,"label":"due"},"""
    """{"file_name":"src/main.rs","line_start":1,"column_start":26,"is_primary":true,"label":"expected `i32`"}],"""
    """"code":{"code":"E0308","explanation":"..."}}}
error: could not compile `t` (bin "t") due to 1 previous error
{"reason":"compiler-message","message":{"level":"warning","message":"unused variable: `y`","spans":[{"file_name":"""
    """"/rustc/x/macros.rs","line_start":9,"column_start":9,"is_primary":true,"label":null,"expansion":{"span":"""
    """{"file_name":"src/lib.rs","line_start":4,"column_start":5}}}],"code":{"code":"unused_variables"}}}
{"reason":"compiler-message","message":{"level":"error","message":"linking with `cc` failed","spans":[],"code":null}}
{"reason":"compiler-message","message":{"level":"error","message":"aborting due to 1 previous error","spans":[]}}
{"reason":"compiler-message","message":{"level":"failure-note","message":"For more information about this","spans":[]}}
{"reason":"build-finished","success":false}
"""
)
RUFF = """warning: something of the settings
[
  {
    "code": "F401",
    "filename": "/work/a.py",
    "location": {"column": 8, "row": 1},
    "message": "`os` imported but unused",
    "severity": "error"
  },
  {"code": null, "filename": "/work/b.py", "location": {"column": 1, "row": 2}, "message": "SyntaxError: no"},
  {"code": "invalid-syntax", "filename": "/work/b.py", "location": {"column": 1, "row": 3}, "message": "no"}
]
Found 3 errors.
"""
MYPY_JSON = """{"file": "a.py", "line": 2, "column": 9, "message": "no", "hint": null, "code": "x", "severity": "error"}
some warning of a plugin
{"file": "a.py", "line": 3, "column": -1, "message": "See this", "hint": "a hint", "code": null, "severity": "note"}
{"file": "bad.py", "line": 3, "column": 7, "message": "no", "hint": null, "code": "syntax", "severity": "error"}
"""
MYPY_TEXT = """a.py:2:10: error: Incompatible types in assignment  [assignment]
dir/b.py:7: note: See https://mypy.readthedocs.io
Found 1 error in 1 file (checked 2 source files)
"""
PYRIGHT = """No configuration file found.
{
    "version": "1.1.400",
    "generalDiagnostics": [
        {"file": "/work/a.py", "severity": "error", "message": "\\"x\\" is not defined",
         "rule": "reportUndefinedVariable",
         "range": {"start": {"line": 2, "character": 4}, "end": {"line": 2, "character": 5}}},
        {"file": "/work/a.py", "severity": "information", "message": "hm"}
    ],
    "summary": {"errorCount": 1}
}
"""
TSC = """a.ts(1,7): error TS2322: Type '{ c: string; }' is not assignable to type 'X'.
  Types of property 'c' are incompatible.
    Type 'string' is not assignable to type 'number'.
src/app (old).ts(12,3): error TS1005: ';' expected.
error TS5023: Unknown compiler option 'x'.
"""
ESLINT = (
    """[{"filePath":"/work/b.js","messages":[{"ruleId":"no-var","severity":1,"message":"Unexpected var","line":1,"""
    """"column":1},{"ruleId":null,"fatal":true,"severity":2,"message":"Parsing error","line":2,"column":5}]},"""
    """{"filePath":"/work/c.js","messages":[]}]"""
)
GO_VET = """# example.com/m
# [example.com/m]
{
	"example.com/m": {
		"printf": [
			{
				"posn": "/work/main.go:6:2",
				"message": "fmt.Printf format %d has arg \\"x\\" of wrong type string"
			}
		]
	}
}
vet: ./broken.go:5:7: undefined: y
"""

Parser = Callable[[str], list[parsers.Diagnostic] | None]
TYPES = """Type '{ c: string; }' is not assignable to type 'X'.
Types of property 'c' are incompatible.
Type 'string' is not assignable to type 'number'."""
SAMPLES: list[tuple[Parser, str, list[parsers.Diagnostic]]] = [
    (parsers.parse_cargo, CARGO, [
        parsers.Diagnostic("error", "mismatched types: expected `i32`", "src/main.rs", 1, 26, "E0308"),
        parsers.Diagnostic("warning", "unused variable: `y`", "src/lib.rs", 4, 5, "unused_variables"),
        parsers.Diagnostic("error", "linking with `cc` failed"),
    ]),
    (parsers.parse_ruff, RUFF, [
        parsers.Diagnostic("warning", "`os` imported but unused", "/work/a.py", 1, 8, "F401"),
        parsers.Diagnostic("error", "SyntaxError: no", "/work/b.py", 2, 1),
        parsers.Diagnostic("error", "no", "/work/b.py", 3, 1, "invalid-syntax"),
    ]),
    (parsers.parse_ruff, "[]\n", []),
    (parsers.parse_mypy, MYPY_JSON, [
        parsers.Diagnostic("error", "no", "a.py", 2, 10, "x"),
        parsers.Diagnostic("info", "See this (a hint)", "a.py", 3, None),
        parsers.Diagnostic("error", "no", "bad.py", 3, 7, "syntax"),
    ]),
    (parsers.parse_mypy, MYPY_TEXT, [
        parsers.Diagnostic("error", "Incompatible types in assignment", "a.py", 2, 10, "assignment"),
        parsers.Diagnostic("info", "See https://mypy.readthedocs.io", "dir/b.py", 7, None),
    ]),
    (parsers.parse_pyright, PYRIGHT, [
        parsers.Diagnostic("error", '"x" is not defined', "/work/a.py", 3, 5, "reportUndefinedVariable"),
        parsers.Diagnostic("info", "hm", "/work/a.py"),
    ]),
    (parsers.parse_tsc, TSC, [
        parsers.Diagnostic("error", TYPES, "a.ts", 1, 7, "TS2322"),
        parsers.Diagnostic("error", "';' expected.", "src/app (old).ts", 12, 3, "TS1005"),
        parsers.Diagnostic("error", "Unknown compiler option 'x'.", "", None, None, "TS5023"),
    ]),
    (parsers.parse_eslint, ESLINT, [
        parsers.Diagnostic("warning", "Unexpected var", "/work/b.js", 1, 1, "no-var"),
        parsers.Diagnostic("error", "Parsing error", "/work/b.js", 2, 5),
    ]),
    (parsers.parse_go_vet, GO_VET, [
        parsers.Diagnostic(
            "warning", 'fmt.Printf format %d has arg "x" of wrong type string', "/work/main.go", 6, 2, "printf",
        ),
        parsers.Diagnostic("error", "undefined: y", "./broken.go", 5, 7),
    ]),
]  # fmt: skip


@table(("parse", "text", "expected"), SAMPLES)
def test_a_report_is_understood_also_through_a_terminal(
    parse: Parser, text: str, expected: list[parsers.Diagnostic]
) -> None:
    assert parse(text) == expected
    coloured = "\x1b[1;33mwarning\x1b[0m: something\r\n" + text.replace("\n", "\r\n") + "\x1b[?25hdone\r\n"
    assert parse(parsers.plain(coloured)) == expected


@table("parse", [parsers.parse_cargo, parsers.parse_ruff, parsers.parse_pyright, parsers.parse_eslint])
@table("text", ["", "thread 'main' panicked\n", "[1, 2", "{", '{"a": 1}\n[3]\n', "[" * 5000])
def test_a_report_that_is_not_there_is_not_an_empty_one(parse: Parser, text: str) -> None:
    assert parse(text) is None


@table("parse", [sample[0] for sample in SAMPLES])
@table("text", [
    '[{"location": 3, "messages": 7, "message": null}]',
    '{"reason": "compiler-message", "message": {"spans": [1], "code": 3}}',
    '{"generalDiagnostics": [{"range": []}, 3]}', '{"severity": 1, "message": []}', '{"a": {"b": [{"posn": 4}]}}',
])  # fmt: skip
def test_odd_shapes_break_no_parser(parse: Parser, text: str) -> None:
    found = parse(text)
    assert found is None or all(isinstance(item, parsers.Diagnostic) for item in found)


# --- what is chosen -------------------------------------------------------------------------------------------


RUFF_ALL = "ruff check --output-format=json ."
MYPY_CALL = "mypy --output=json --no-error-summary --show-column-numbers"


def place(folder: Path, *names: str) -> None:
    """Empty files that may be run."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch(mode=0o755)


@pytest.mark.parametrize(("files", "lines"), [
    ({"Cargo.toml": ""}, ["cargo check --message-format=json --quiet"]), ({"pyproject.toml": ""}, [RUFF_ALL]),
    ({"tool/x.py": ""}, [RUFF_ALL]),
    (
        {"pyproject.toml": "[tool.mypy]\nfiles = ['src']\n[tool.pyright]\n"},
        [RUFF_ALL, MYPY_CALL, "pyright --outputjson"],
    ),
    ({"mypy.ini": "[mypy]\n"}, [f"{MYPY_CALL} ."]), ({"setup.cfg": "[mypy]\n"}, [f"{MYPY_CALL} ."]),
    ({"tsconfig.json": ""}, ["tsc --noEmit --pretty false"]), ({"eslint.config.mjs": ""}, ["eslint -f json ."]),
    ({"package.json": '{"eslintConfig": {}}'}, ["eslint -f json ."]), ({"go.mod": ""}, ["go vet -json ./..."]),
    ({"pyrightconfig.json": ""}, ["pyright --outputjson"]),
    ({"package.json": "{", "setup.cfg": "\0[", "README": ""}, []), ({"pyproject.toml": "not = [toml"}, [RUFF_ALL]),
])  # fmt: skip
def test_auto_takes_what_the_project_uses(files: dict[str, str], lines: list[str], tmp_path: Path) -> None:
    for name, text in files.items():
        put(tmp_path / name, text)
    assert [check.line for check in choose("auto", None, Roots(tmp_path))] == lines


def test_one_file_is_checked_by_what_knows_its_kind_from_the_folder_that_configures_it(tmp_path: Path) -> None:
    place(tmp_path, "Cargo.toml", "web/tsconfig.json", "web/src/a b.ts", "go/go.mod", "go/x/y.go", "py/-a.py")
    place(tmp_path, "py/mypy.ini")
    (tmp_path / "py" / "mypy.ini").write_text("[mypy]\n")
    roots = Roots(tmp_path)

    def chosen(kind: Any, path: str) -> list[tuple[str, Path]]:
        return [(check.line, check.cwd) for check in choose(kind, tmp_path / path, roots)]

    assert chosen("auto", "web/src/a b.ts") == [("tsc --noEmit --pretty false", tmp_path / "web")]
    assert chosen("eslint", "web/src/a b.ts") == [("eslint -f json 'a b.ts'", tmp_path / "web" / "src")]
    assert chosen("auto", "go/x/y.go") == [("go vet -json ./x", tmp_path / "go")]
    assert chosen("go vet", "go/x") == [("go vet -json ./x/...", tmp_path / "go")]
    mypy = f"{MYPY_CALL} ./-a.py"
    assert chosen("mypy", "py/-a.py") == [(mypy, tmp_path / "py")]
    assert [line for line, _ in chosen("auto", "py/-a.py")] == ["ruff check --output-format=json ./-a.py", mypy]


def test_a_program_of_the_project_comes_first(tmp_path: Path) -> None:
    project = tmp_path / "project"
    place(project, "node_modules/.bin/tsc", ".venv/bin/ruff", "sub dir/tsconfig.json", "sub dir/a.py")
    place(tmp_path, "node_modules/.bin/eslint")
    lines = [check.line for check in choose("auto", project / "sub dir", Roots(project))]
    assert lines == [
        "../.venv/bin/ruff check --output-format=json .", "../node_modules/.bin/tsc --noEmit --pretty false",
    ]  # fmt: skip
    assert choose("eslint", None, Roots(project))[0].line == "eslint -f json .", "none from outside"


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff")


def without_end(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 33)


def test_a_configuration_that_is_no_plain_file_of_the_project_is_not_read(tmp_path: Path) -> None:
    (project := tmp_path / "project").mkdir()
    (outside := tmp_path / "outside.toml").write_text("[tool.mypy]\n[tool.pyright]\n")
    names = ("pyproject.toml", "setup.cfg", "mypy.ini", "package.json")
    makers: list[Callable[[Path], None]] = [
        os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(outside),
        lambda path: path.symlink_to(path.name), lambda path: path.mkdir(), no_text, without_end,
    ]  # fmt: skip
    for make in makers:
        for name in names:
            make(project / name)
        assert {check.checker.name for check in choose("auto", None, Roots(project))} <= {"ruff", "mypy"}
        assert len(choose("mypy", None, Roots(project))) == 1
        for name in names:
            path = project / name
            path.rmdir() if path.is_dir() else path.unlink()
    (project / "settings.toml").write_text("[tool.mypy]\nfiles = 'a'\n")
    (project / "pyproject.toml").symlink_to("settings.toml")
    assert [check.line.split()[-1] for check in choose("auto", None, Roots(project))] == [".", "--show-column-numbers"]


@pytest.mark.parametrize(("name", "text"), [
    ("pyproject.toml", "a." * 20_000 + "a = 1\n[tool.mypy]\n"), ("pyproject.toml", "a = " + "[" * 100_000),
    ("setup.cfg", "[mypy]\na" + " " * 200_000 + "b\n"), ("package.json", "[" * 200_000),
])  # fmt: skip
async def test_a_configuration_made_to_be_slow_is_not_taken_apart(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    chosen = await anyio.to_thread.run_sync(choose, "auto", None, Roots(tmp_path), abandon_on_cancel=True)
    assert {check.checker.name for check in chosen} <= {"ruff", "mypy"}


async def test_what_runs_is_what_was_asked_about_or_nothing(on: Bench) -> None:
    (on.folder / "tsconfig.json").write_text("{}")
    tool = REGISTRY.tool("diagnostics")
    params = tool.parse({"kind": "tsc"})
    ran = on.folder / "ran"
    assert on.access("diagnostics", kind="tsc")[0] == ExecuteAccess("tsc --noEmit --pretty false", on.folder)
    preview = await on.preview("diagnostics", kind="tsc")
    pretend(on, "node_modules/.bin/tsc", f"touch '{ran}'")
    with pytest.raises(ToolError, match="the project changed in the meantime"):
        await tool.run(params, on.ctx, preview)
    assert not ran.exists()
    assert on.the_call.processes == []
    assert (await on.call("diagnostics", kind="tsc")).text == "No problems found by tsc."
    assert ran.exists()


async def test_the_question_shows_the_lines_that_were_declared(on: Bench) -> None:
    (on.folder / "tsconfig.json").write_text("{}")
    tool = REGISTRY.tool("diagnostics")
    params = tool.parse({})
    [execute, _] = on.accesses(tool, params)
    pretend(on, "node_modules/.bin/tsc", "exit 0")
    preview = await tool.preview(params, on.ctx)
    assert isinstance(execute, ExecuteAccess)
    assert preview.content == (Content(content=TextContent(text=f"```\n{execute.command}\n```")),)
    with pytest.raises(ToolError, match="the project changed in the meantime"):
        await tool.run(params, on.ctx, preview)


async def test_the_person_is_asked_about_the_exact_command_lines(on: Bench) -> None:
    (on.folder / "mypy.ini").write_text("[mypy]\n")
    (on.folder / "a.py").touch()
    mypy = f"{MYPY_CALL} ."
    accesses = on.access("diagnostics")
    assert accesses == [
        ExecuteAccess(RUFF_ALL, on.folder), PathAccess("read", on.folder), ExecuteAccess(mypy, on.folder),
        ExecuteAccess("mypy --no-error-summary --show-column-numbers .", on.folder), PathAccess("read", on.folder),
    ]  # fmt: skip
    assert isinstance(decide(accesses, on.ctx.roots, mode="code", may_change=True), Ask)
    tool = REGISTRY.tool("diagnostics")
    assert tool.describe(tool.parse({}), on.ctx.roots).title == f"{RUFF_ALL}; {mypy}"


async def test_nothing_to_check_names_what_was_looked_for(on: Bench) -> None:
    with pytest.raises(ToolError, match=r"looked for Cargo\.toml, pyproject\.toml.* go\.mod"):
        on.access("diagnostics")
    with pytest.raises(ToolError, match="missing does not exist"):
        on.access("diagnostics", path="missing")
    with pytest.raises(ToolError, match="outside"):
        on.access("diagnostics", path="..")


# --- what it makes of programs --------------------------------------------------------------------------------


def pretend(on: Bench, path: str, script: str) -> None:
    """A program of the project that prints what a checker might."""
    place(on.folder, path)
    (on.folder / path).write_text(f"#!/bin/bash\n{script}\n")


def found(result: ToolResult) -> list[tuple[Any, ...]]:
    keys = ("severity", "file", "line", "col", "code", "source")
    return [tuple(item[key] for key in keys) for item in result.raw_output["diagnostics"]]


async def test_a_missing_program_is_a_warning_and_no_error(on: Bench) -> None:
    result = await on.call("diagnostics", kind="pyright")
    words = "pyright was not run: `pyright` is not installed."
    assert result.text == words
    assert result.raw_output == {"diagnostics": [], "warnings": [words], "truncated": 0} and not result.failed
    assert not result.keep, "it may be installed the next moment"


async def test_a_checker_that_crashes_is_not_no_problems(on: Bench) -> None:
    for script in ("echo 'internal error: boom' >&2; exit 2", "echo oops; exit 0", "echo '[]'; exit 3"):
        pretend(on, ".venv/bin/ruff", script)
        result = await on.call("diagnostics", kind="ruff")
        assert result.failed
        assert "No problems" not in result.text and "ruff failed (exit code" in result.text
    pretend(on, ".venv/bin/ruff", "echo 'internal error: boom' >&2; exit 2")
    assert "Its last lines:\ninternal error: boom" in (await on.call("diagnostics", kind="ruff")).text
    pretend(on, ".venv/bin/mypy", "echo half; kill -9 $$")
    result = await on.call("diagnostics", kind="mypy")
    assert result.failed
    assert "mypy failed (exit code 137)" in result.text or "mypy did not finish" in result.text


async def test_a_checker_that_runs_too_long_is_stopped_and_what_it_said_is_kept(on: Bench) -> None:
    on.config = ToolsConfig(diagnostics=DiagnosticsConfig(timeout=1.5))
    pretend(on, "node_modules/.bin/tsc", 'echo "a.ts(1,2): error TS1: no"; sleep 1000')
    result = await on.call("diagnostics", kind="tsc")
    assert result.failed
    assert "tsc did not finish" in result.text
    assert found(result) == [("error", "a.ts", 1, 2, "TS1", "tsc")]


async def test_errors_come_first_and_the_rest_is_counted(on: Bench) -> None:
    lines = [f'echo "b.py:{n}:1: note: n{n}"; echo "a.py:{n}:1: error: e{n}  [x]"' for n in range(9, 0, -1)]
    pretend(on, ".venv/bin/mypy", "\n".join([*lines, "exit 1"]))
    result = await on.call("diagnostics", kind="mypy", max_diagnostics=10)
    assert [item[:3] for item in found(result)] == [("error", "a.py", n) for n in range(1, 10)] + [("info", "b.py", 1)]
    assert result.raw_output["truncated"] == 8
    assert result.text.startswith("9 errors, 9 notes (mypy):\na.py:1:1 error[x]: e1\n")
    assert result.text.endswith("b.py:1:1 info: n1\n[8 more are not shown]")
    assert result.locations is not None and len(result.locations) == 10
    assert result.locations[0] == Location(on.folder / "a.py", 1)
    on.config = ToolsConfig(diagnostics=DiagnosticsConfig(max_diagnostics=3))
    assert len(found(await on.call("diagnostics", kind="mypy", max_diagnostics=10))) == 3


async def test_an_older_mypy_is_asked_again_for_text(on: Bench) -> None:
    pretend(
        on, ".venv/bin/mypy",
        'case "$*" in *--output*) echo "mypy: error: unrecognized arguments: --output=json" >&2; exit 2;; esac\n'
        'echo "a.py:2:10: error: no  [assignment]"; exit 1',
    )  # fmt: skip
    result = await on.call("diagnostics", kind="mypy")
    assert found(result) == [("error", "a.py", 2, 10, "assignment", "mypy")]
    assert not result.failed


async def test_clippy_that_is_not_installed_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo = tmp_path / "bin" / "cargo"
    place(tmp_path, "bin/cargo")
    cargo.write_text("#!/bin/bash\necho 'error: no such command: `clippy`' >&2; exit 101\n")
    monkeypatch.setenv("PATH", f"{cargo.parent}:/usr/bin:/bin")
    async with bench(tmp_path) as on:
        result = await on.call("diagnostics", kind="clippy")
        assert not result.failed and result.text == "clippy was not run: `cargo clippy` is not installed."


# --- real programs --------------------------------------------------------------------------------------------


def python_project(folder: Path) -> None:
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("ruff", "mypy"):
        assert (BIN / name).exists(), f"{name} belongs to the packages for development: pip install -e .[dev]"
        (folder / ".venv" / "bin" / name).symlink_to(BIN / name)
    (folder / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\n[tool.ruff.lint]\nselect = ['F']\n")
    put(folder / "pkg" / "a.py", 'import os\n\nx: int = "a"\n')


def test_every_checker_has_a_row_and_a_parser():
    assert set(checkers()) == set(get_args(CheckerName)) == set(PARSERS)
    assert all(checker.name == name for name, checker in checkers().items())
