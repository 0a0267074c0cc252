"""Checkers as they are installed here: ruff, mypy, tsc, ESLint, cargo, clippy, go vet."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from acp_agent.tools.kit.tool_context import Location
from tests.executors.kit import stage
from tests.files import puts
from tests.tools.kit import bench
from tests.tools.test_diagnostics import NODE, found, python_project

TWICE = 60.0
"""Seconds for two runs of tsc, each of which computes for four where nobody else does."""


@pytest.mark.parametrize("backend", ["local", "editor"])
async def test_ruff_and_mypy_for_real(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path) as at, bench(tmp_path, commands=at.commands, through=at.files) as on:
        python_project(on.folder)
        result = await on.call("diagnostics")
        assert result.text == (
            "1 error, 1 warning (ruff, mypy):\n"
            "pkg/a.py:3:10 error[assignment]: Incompatible types in assignment "
            '(expression has type "str", variable has type "int")\n'
            "pkg/a.py:1:8 warning[F401]: `os` imported but unused"
        )
        assert found(result) == [
            ("error", "pkg/a.py", 3, 10, "assignment", "mypy"), ("warning", "pkg/a.py", 1, 8, "F401", "ruff"),
        ]  # fmt: skip
        assert result.locations == (Location(on.folder / "pkg/a.py", 3), Location(on.folder / "pkg/a.py", 1))
        assert not result.failed
        (on.folder / "pkg" / "a.py").write_text("x: int = 1\n")
        assert (await on.call("diagnostics", path="pkg/a.py")).text == "No problems found by ruff, mypy."


async def test_what_is_no_python_is_an_error_for_ruff_and_mypy(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        python_project(on.folder)
        (on.folder / "pkg" / "a.py").write_text("def f(:\n")
        result = await on.call("diagnostics", path="pkg/a.py")
        assert {(item[0], item[1], item[2], item[5]) for item in found(result)} >= {
            ("error", "pkg/a.py", 1, "ruff"), ("error", "pkg/a.py", 1, "mypy"),
        }  # fmt: skip
        assert not result.failed


@pytest.mark.parametrize("backend", ["local", "editor"])
async def test_tsc_for_real(backend: str, tmp_path: Path) -> None:
    own = NODE / ".bin" / "tsc"
    assert own.exists() or shutil.which("tsc"), "run scripts/install_node_tools.sh (make tools)"
    async with (
        stage(backend, tmp_path, bound=TWICE) as at,
        bench(tmp_path, commands=at.commands, through=at.files, bound=TWICE) as on,
    ):
        if own.exists():
            (on.folder / "node_modules").symlink_to(NODE)
        (on.folder / "tsconfig.json").write_text(
            '{"compilerOptions": {"strict": true, "types": []}, "include": ["src"]}'
        )
        (on.folder / "src").mkdir()
        puts(on.folder, {"src/a.ts": 'export const x: number = "a";\n', "src/b.ts": 'import { x } from "./a";\nx.y;\n'})
        result = await on.call("diagnostics")
        assert found(result) == [
            ("error", "src/a.ts", 1, 14, "TS2322", "tsc"), ("error", "src/b.ts", 2, 3, "TS2339", "tsc"),
        ]  # fmt: skip
        assert not result.failed
        assert [item[1] for item in found(await on.call("diagnostics", path="src/b.ts"))] == ["src/b.ts"]


async def test_eslint_for_real(tmp_path: Path) -> None:
    if not (NODE / ".bin" / "eslint").exists():
        pytest.skip("eslint is missing: scripts/install_node_tools.sh installs it where node is there")
    async with bench(tmp_path) as on:
        (on.folder / "node_modules").symlink_to(NODE)
        (on.folder / "eslint.config.mjs").write_text('export default [{rules: {"no-var": "warn"}}];\n')
        puts(on.folder, {"b.js": "var a = 1;\n", "c.mjs": "let (\n"})
        result = await on.call("diagnostics")
        assert {(item[0], item[1], item[4]) for item in found(result)} == {
            ("error", "c.mjs", ""), ("warning", "b.js", "no-var"),
        }  # fmt: skip
        assert not result.failed


def need_cargo(monkeypatch: pytest.MonkeyPatch, *sub: str) -> None:
    """Skips where cargo does not run. With another HOME, rustup does not find the toolchains besides its programs."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is missing: see https://rustup.rs")
    beside = Path(cargo).parent.parent.parent / ".rustup"
    if "RUSTUP_HOME" not in os.environ and beside.is_dir():
        monkeypatch.setenv("RUSTUP_HOME", str(beside))
    if subprocess.run([cargo, *sub, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"`{' '.join(['cargo', *sub])}` does not run here: see https://rustup.rs")


@pytest.mark.parametrize("backend", ["local", "editor"])
async def test_cargo_for_real(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_cargo(monkeypatch)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    monkeypatch.setenv("CARGO_NET_OFFLINE", "1")
    async with stage(backend, tmp_path) as at, bench(tmp_path, commands=at.commands, through=at.files) as on:
        (on.folder / "app" / "src").mkdir(parents=True)
        (on.folder / "Cargo.toml").write_text('[workspace]\nmembers = ["app"]\nresolver = "2"\n')
        (on.folder / "app" / "Cargo.toml").write_text('[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n')
        main = on.folder / "app" / "src" / "main.rs"
        main.write_text('fn main() {\n    let unused = 1;\n    let x: i32 = "a";\n    println!("{x}");\n}\n')
        result = await on.call("diagnostics", path="app")
        assert found(result)[0] == ("error", "app/src/main.rs", 3, 18, "E0308", "check")
        assert "mismatched types: expected `i32`, found `&str`" in result.text and not result.failed
        main.write_text("fn main() {}\n")
        assert (await on.call("diagnostics", kind="check")).text == "No problems found by check."
        (on.folder / "app" / "Cargo.toml").write_text("[package\n")
        result = await on.call("diagnostics", kind="check")
        assert result.failed and "check failed (exit code 101)" in result.text and "Cargo.toml" in result.text


async def test_clippy_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_cargo(monkeypatch, "clippy")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    monkeypatch.setenv("CARGO_NET_OFFLINE", "1")
    async with bench(tmp_path) as on:
        (on.folder / "src").mkdir()
        (on.folder / "Cargo.toml").write_text('[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n')
        (on.folder / "src" / "main.rs").write_text("fn main() {\n    let v = vec![1];\n    if v.len() == 0 {}\n}\n")
        result = await on.call("diagnostics", kind="clippy")
        assert ("warning", "src/main.rs", 3, 8, "clippy::len_zero", "clippy") in found(result)


async def test_go_vet_for_real(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is missing: see https://go.dev/doc/install")
    async with bench(tmp_path) as on:
        (on.folder / "go.mod").write_text("module example.com/m\n\ngo 1.20\n")
        (on.folder / "main.go").write_text(
            'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Printf("%d", "x")\n}\n'
        )
        result = await on.call("diagnostics")
        assert [(item[0], item[1], item[2], item[4]) for item in found(result)] == [("warning", "main.go", 6, "printf")]
