"""The known language servers, and which of them handle a file's language. Cheap to import: without pygls.

A row of `lsp.servers` in the configuration with a known name replaces the keys that it gives; one with another name is
a server of its own and comes before the known ones. Of a `group` only the first that is installed is started.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from acp_agent.config.language_settings import LspConfig

OWN_PROGRAMS = (".venv/bin", "venv/bin", "node_modules/.bin")
"""Where a project keeps programs of its own."""


class ServerRow(Struct, frozen=True):
    name: str
    command: tuple[str, ...]
    languages: Mapping[str, str]
    """A file's ending, or its whole name -> LSP language id."""
    root_markers: tuple[str, ...] = ()
    """Names, with `*` patterns, of what is in the folder that it works in."""
    group: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True


PYTHON_TYPES = "python types"
PYTHON = {".py": "python", ".pyi": "python"}
PYTHON_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile")
SCRIPT = {
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "typescriptreact",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascriptreact",
}
C_FAMILY = {
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".c++": "cpp",
    ".hh": "cpp",
    ".hpp": "cpp",
    ".hxx": "cpp",
    ".ipp": "cpp",
    ".m": "objective-c",
    ".mm": "objective-cpp",
    ".cu": "cuda-cpp",
}
SHELL = {".sh": "shellscript", ".bash": "shellscript", ".bashrc": "shellscript", ".bash_profile": "shellscript"}

KNOWN = (
    ServerRow(
        "basedpyright",
        ("basedpyright-langserver", "--stdio"),
        PYTHON,
        ("pyrightconfig.json", *PYTHON_ROOTS),
        group=PYTHON_TYPES,
    ),
    ServerRow(
        "pyright", ("pyright-langserver", "--stdio"), PYTHON, ("pyrightconfig.json", *PYTHON_ROOTS), PYTHON_TYPES
    ),
    ServerRow("pylsp", ("pylsp",), PYTHON, PYTHON_ROOTS, PYTHON_TYPES),
    ServerRow("ruff", ("ruff", "server"), PYTHON, ("ruff.toml", ".ruff.toml", *PYTHON_ROOTS)),
    ServerRow(
        "typescript",
        ("typescript-language-server", "--stdio"),
        SCRIPT,
        ("tsconfig.json", "jsconfig.json", "package.json"),
        # A second server for syntax would answer, in part only, while the first one still reads the project.
        options={"tsserver": {"useSyntaxServer": "never"}},
    ),
    ServerRow(
        "gopls",
        ("gopls",),
        {".go": "go", "go.mod": "go.mod", "go.sum": "go.sum", "go.work": "go.work"},
        ("go.work", "go.mod"),
    ),
    ServerRow(
        "clangd",
        ("clangd",),
        C_FAMILY,
        ("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "meson.build", "Makefile"),
    ),
    ServerRow("rust-analyzer", ("rust-analyzer",), {".rs": "rust"}, ("Cargo.toml", "rust-project.json")),
    ServerRow("zls", ("zls",), {".zig": "zig", ".zon": "zig"}, ("build.zig",)),
    ServerRow("yaml", ("yaml-language-server", "--stdio"), {".yaml": "yaml", ".yml": "yaml"}),
    ServerRow("json", ("vscode-json-language-server", "--stdio"), {".json": "json", ".jsonc": "jsonc"}),
    ServerRow("html", ("vscode-html-language-server", "--stdio"), {".html": "html", ".htm": "html"}, ("package.json",)),
    ServerRow(
        "css",
        ("vscode-css-language-server", "--stdio"),
        {".css": "css", ".scss": "scss", ".less": "less"},
        ("package.json",),
    ),
    ServerRow("bash", ("bash-language-server", "start"), SHELL),
    ServerRow(
        "lua", ("lua-language-server",), {".lua": "lua"}, (".luarc.json", ".luarc.jsonc", ".stylua.toml", "stylua.toml")
    ),
    ServerRow("taplo", ("taplo", "lsp", "stdio"), {".toml": "toml"}, (".taplo.toml", "taplo.toml")),
    ServerRow("marksman", ("marksman", "server"), {".md": "markdown"}, (".marksman.toml",)),
    ServerRow(
        "jdtls", ("jdtls",), {".java": "java"}, ("pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle")
    ),
    ServerRow(
        "kotlin", ("kotlin-language-server",), {".kt": "kotlin", ".kts": "kotlin"}, ("build.gradle", "build.gradle.kts")
    ),
    ServerRow("ruby-lsp", ("ruby-lsp",), {".rb": "ruby", ".rake": "ruby", "Gemfile": "ruby"}, ("Gemfile",), "ruby"),
    ServerRow("solargraph", ("solargraph", "stdio"), {".rb": "ruby"}, ("Gemfile",), "ruby"),
    ServerRow("intelephense", ("intelephense", "--stdio"), {".php": "php"}, ("composer.json",), "php"),
    ServerRow("phpactor", ("phpactor", "language-server"), {".php": "php"}, ("composer.json",), "php"),
    ServerRow("csharp-ls", ("csharp-ls",), {".cs": "csharp"}, ("*.sln", "*.csproj")),
    ServerRow("elixir-ls", ("elixir-ls",), {".ex": "elixir", ".exs": "elixir"}, ("mix.exs",)),
    ServerRow(
        "haskell",
        ("haskell-language-server-wrapper", "--lsp"),
        {".hs": "haskell", ".lhs": "literate haskell"},
        ("hie.yaml", "stack.yaml", "cabal.project", "*.cabal"),
    ),
    ServerRow("ocamllsp", ("ocamllsp",), {".ml": "ocaml", ".mli": "ocaml.interface"}, ("dune-project",)),
    ServerRow("dart", ("dart", "language-server", "--protocol=lsp"), {".dart": "dart"}, ("pubspec.yaml",)),
    ServerRow("sourcekit", ("sourcekit-lsp",), {".swift": "swift"}, ("Package.swift",)),
    ServerRow(
        "terraform", ("terraform-ls", "serve"), {".tf": "terraform", ".tfvars": "terraform-vars"}, (".terraform",)
    ),
    ServerRow("nil", ("nil",), {".nix": "nix"}, ("flake.nix",), "nix"),
    ServerRow("nixd", ("nixd",), {".nix": "nix"}, ("flake.nix",), "nix"),
    ServerRow("svelte", ("svelteserver", "--stdio"), {".svelte": "svelte"}, ("package.json",)),
    ServerRow("texlab", ("texlab",), {".tex": "latex", ".bib": "bibtex"}, (".latexmkrc", "latexmkrc")),
)
"""In the order in which they are asked."""


def rows(config: LspConfig) -> tuple[ServerRow, ...]:
    """The servers that may be started, in the order in which they are asked."""
    known = {row.name: row for row in KNOWN}
    changed: dict[str, ServerRow] = {}
    for name, given in config.servers.items():
        row = known.get(name, ServerRow(name, (), {}))
        changed[name] = replace(
            row,
            command=tuple(given.command) or row.command,
            languages=given.languages or row.languages,
            root_markers=tuple(given.root_markers) or row.root_markers,
            group=given.group or row.group,
            # A date of TOML is text in JSON.
            settings=msgspec.to_builtins(given.settings) or row.settings,
            options=msgspec.to_builtins(given.options) or row.options,
            enabled=given.enabled,
        )
    own = [row for name, row in changed.items() if name not in known]
    every = own + [changed.get(row.name, row) for row in KNOWN]
    return tuple(row for row in every if row.enabled and row.command and row.languages)


def language_of(row: ServerRow, path: Path) -> str | None:
    """The LSP language id that the server knows the file by; None: the file is not for it. The longest ending wins."""
    for name in (path.name, path.name.lower()):
        found = [ending for ending in row.languages if name == ending or (ending[:1] == "." and name.endswith(ending))]
        if found:
            return row.languages[max(found, key=len)]
    return None


def where(path: Path, folders: Sequence[Path], markers: Sequence[str]) -> Path:
    """The nearest folder at or above the file that has a marker, within `folders`; else that of `folders` it is in, or
    the first."""
    inside = [folder for folder in folders if path.is_relative_to(folder)]
    if not inside:
        return folders[0]
    top = min(inside, key=lambda folder: len(folder.parts))
    for folder in path.parents:
        if not folder.is_relative_to(top):
            break
        if any(_stands(folder, marker) for marker in markers):
            return folder
    return max(inside, key=lambda folder: len(folder.parts))


def _stands(folder: Path, marker: str) -> bool:
    try:
        return any(folder.glob(marker)) if "*" in marker else (folder / marker).exists()
    except (OSError, ValueError, NotImplementedError):
        return False


def any_installed(known: Sequence[ServerRow], folders: Sequence[Path], environ: Mapping[str, str]) -> bool:
    """Whether one of the servers seems to be there: by the names in the folders of programs, which is quicker than to
    look for each of them."""
    places = [str(folder / place) for folder in folders for place in OWN_PROGRAMS]
    names: set[str] = set()
    for place in (*places, *environ.get("PATH", os.defpath).split(os.pathsep)):
        with suppress(OSError):
            names.update(os.listdir(place) if os.path.isabs(place) else ())
    wanted = {row.command[0] for row in known}
    return not wanted.isdisjoint(names) or any(os.sep in program and os.path.exists(program) for program in wanted)


def which(program: str, near: Path, top: Path, environ: Mapping[str, str]) -> str | None:
    """The program's absolute path: the project's own, from the folder `near` up to `top`, else that on PATH.

    One with a slash in it is looked for at that place, seen from `top`."""
    if os.sep in program:
        return shutil.which(str(top / Path(program).expanduser()))
    folders = [folder for folder in (near, *near.parents) if folder.is_relative_to(top)] or [top]
    for folder in folders:
        for place in OWN_PROGRAMS:
            if found := shutil.which(program, path=str(folder / place)):
                return found
    path = os.pathsep.join(part for part in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part))
    return shutil.which(program, path=path)


def interpreter(folder: Path, top: Path) -> str | None:
    """The Python of the project's own environment, from `folder` up to `top`."""
    for above in (folder, *folder.parents):
        if not above.is_relative_to(top):
            break
        for place in (".venv/bin/python", "venv/bin/python"):
            if found := shutil.which(str(above / place)):
                return found
    return None
