"""Which servers handle a file, in which folder they run and which program they are."""

from pathlib import Path

import pytest

from acp_agent.config.language_settings import LanguageServerConfig, LspConfig
from acp_agent.lsp.known_servers import MOST_LOOKED_AT, any_installed, known, language_of, rows, serving, where, which


@pytest.mark.parametrize(("name", "languages"), [
    ("a.py", {"basedpyright": "python", "pyright": "python", "pylsp": "python", "ruff": "python"}),
    ("a.pyi", {"basedpyright": "python", "pyright": "python", "pylsp": "python", "ruff": "python"}),
    ("a.ts", {"typescript": "typescript"}), ("a.d.mts", {"typescript": "typescript"}),
    ("A.TSX", {"typescript": "typescriptreact"}), ("a.cjs", {"typescript": "javascript"}),
    ("a.jsx", {"typescript": "javascriptreact"}), ("go.mod", {"gopls": "go.mod"}), ("a.go", {"gopls": "go"}),
    ("a.hpp", {"clangd": "cpp"}), ("lib.rs", {"rust-analyzer": "rust"}), (".bashrc", {"bash": "shellscript"}),
    ("a.yml", {"yaml": "yaml"}), ("Gemfile", {"ruby-lsp": "ruby"}), ("myGemfile", {}), ("py", {}), ("a.py.txt", {}),
])  # fmt: skip
def test_a_files_name_says_which_servers_are_for_it(name: str, languages: dict[str, str]):
    found = {row.name: language_of(row, Path("/w") / name) for row in rows(LspConfig())}
    assert {name: language for name, language in found.items() if language} == languages


def test_every_row_is_whole_and_named_in_the_documents():
    assert all(row.name == name and row.command and row.languages for name, row in known().items())
    text = (Path(__file__).parents[2] / "docs" / "language-servers.md").read_text(encoding="utf-8")
    assert [name for name, row in known().items() if f"`{row.command[0]}`" not in text] == []


def test_keys_that_are_configured_replace_those_of_the_known_row_and_others_stay():
    config = LspConfig(servers={
        "ruff": LanguageServerConfig(command=["my-ruff", "serve"], settings={"a": 1}),
        "gopls": LanguageServerConfig(enabled=False),
        "mine": LanguageServerConfig(command=["mine"], languages={".py": "python"}, group="python types"),
        "empty": LanguageServerConfig(languages={".x": "x"}),
    })  # fmt: skip
    found = {row.name: row for row in rows(config)}
    assert (found["ruff"].command, found["ruff"].settings) == (("my-ruff", "serve"), {"a": 1})
    assert found["ruff"].languages == known()["ruff"].languages
    assert found["ruff"].root_markers == known()["ruff"].root_markers and "gopls" not in found and "empty" not in found
    assert next(iter(found)) == "mine" and found["basedpyright"] == known()["basedpyright"]


def test_the_workspace_is_the_nearest_folder_with_a_marker_within_the_sessions(tmp_path: Path):
    session, other = tmp_path / "session", tmp_path / "other"
    (deep := session / "one" / "two" / "three").mkdir(parents=True)
    other.mkdir()
    (tmp_path / "go.mod").touch()
    folders = [session, other]
    assert where(deep / "a.go", folders, ["go.mod"]) == session
    (session / "one" / "go.mod").touch()
    assert where(deep / "a.go", folders, ["go.work", "go.mod"]) == session / "one"
    (session / "one" / "two" / "a.sln").touch()
    assert where(deep / "a.cs", folders, ["*.sln"]) == session / "one" / "two"
    assert where(other / "a.go", folders, ["go.mod"]) == other
    assert where(tmp_path / "a.go", folders, ["go.mod"]) == session
    assert where(deep / "a.go", [session, deep], []) == deep


def test_the_projects_own_program_comes_before_that_on_the_path(tmp_path: Path):
    session, near = tmp_path / "session", tmp_path / "session" / "sub"
    path = tmp_path / "bin"
    for folder in (near, path):
        folder.mkdir(parents=True)
    environ = {"PATH": f".:{path}:relative"}
    assert which("tool", near, session, environ) is None
    places = [
        path / "tool", session / "node_modules" / ".bin" / "tool", session / ".venv" / "bin" / "tool",
        near / "node_modules" / ".bin" / "tool",
    ]  # fmt: skip
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o755)
        assert which("tool", near, session, environ) == str(place)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "above").touch(mode=0o755)
    assert which("above", near, session, environ) is None
    assert which(str(path / "tool"), near, session, environ) == str(path / "tool")
    assert which("sub/node_modules/.bin/tool", near, session, environ) == str(places[-1])
    (near / "node_modules" / ".bin" / "tool").chmod(0o644)
    assert which("tool", near, session, environ) == str(places[-2])


def test_only_servers_for_files_that_are_there_count(tmp_path: Path) -> None:
    def names() -> set[str]:
        return {row.name for row in serving(list(known().values()), [tmp_path])}

    assert names() == set()
    (tmp_path / "node_modules" / "x").mkdir(parents=True)
    (tmp_path / "node_modules" / "x" / "a.ts").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.lua").touch()
    assert names() == set(), "other people's files"
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "Main.PY").touch()
    assert {"basedpyright", "ruff"} <= names() and "typescript" not in names()
    (tmp_path / "Gemfile").touch()
    assert "ruby-lsp" in names()
    program = tmp_path / "node_modules" / ".bin" / "typescript-language-server"
    program.parent.mkdir()
    program.touch()
    environ = {"PATH": "/nonexistent"}
    assert not any_installed(list(known().values()), [tmp_path], environ)
    (tmp_path / "index.d.ts").touch()
    assert any_installed(list(known().values()), [tmp_path], environ)


def test_the_look_at_the_files_is_short(tmp_path: Path) -> None:
    for number in range(MOST_LOOKED_AT):
        (tmp_path / f"{number}.dat").touch()
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "a.go").touch()
    assert serving(list(known().values()), [tmp_path, tmp_path / "missing"]) == []
