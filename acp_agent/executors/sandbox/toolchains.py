"""Paths in the user's home that every command may read: compilers and interpreters installed there, and git's settings.

Programs on PATH are visible with the folder they were installed in. Anything not listed here is not visible: keys,
browsers, mail, other projects. Caches that programs write to are not shared; a session has its own home for these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from acp_agent.executors.sandbox.system import READABLE

BELOW_HOME = (
    *(".pyenv", ".rustup", ".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/config.toml", ".cargo/env"),
    *(".nvm", ".volta", ".fnm", ".bun", ".deno", ".asdf", ".sdkman", ".rbenv", ".rvm", ".jenv", ".goenv", ".phpenv"),
    *("go/bin", "go/pkg", "sdk", ".dotnet", ".ghcup", ".cabal/bin", ".opam", ".juliaup", ".julia/juliaup", ".elan"),
    *(
        ".local/bin",
        ".local/lib",
        ".local/opt",
        ".local/share/uv/python",
        ".local/share/uv/tools",
        ".local/share/pipx",
        ".local/share/mise",
    ),
    *(".local/share/fnm", ".local/share/pnpm", ".local/share/rtx", ".nix-profile", ".local/state/nix/profiles"),
    *("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".m2/repository", ".gradle/wrapper"),
    *(".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".gitignore"),
    *(".rustfmt.toml", ".inputrc"),
)

KEYS = re.compile(rb"://[^/\\s@]+@|token|passw|secret|extraheader|authorization", re.IGNORECASE)
MAX_SETTINGS = 1_000_000

FOLDERS_OF_PROGRAMS = frozenset(("bin", "sbin", "shims", "scripts"))


def toolchains(home: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Resolved, existing; none of them contains or is the home."""
    found: dict[Path, None] = {}
    for name in BELOW_HOME if home is not None else ():
        _add(found, Path(home or "/", name), home)
    for entry in environ.get("PATH", "").split(os.pathsep):
        if not entry.startswith("/"):
            continue
        folder = Path(entry)
        _add(found, folder, home)
        if folder.name.lower() in FOLDERS_OF_PROGRAMS and not _wide(folder.parent, home):
            _add(found, folder.parent, home)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR"):
        if environ.get(name, "").startswith("/"):
            _add(found, Path(environ[name]), home)
    return tuple(found)


def _add(found: dict[Path, None], path: Path, home: Path | None) -> None:
    """Not what every command sees anyway."""
    if not os.path.exists(path):  # Most are not there: nothing else is asked about these.
        return
    place = Path(os.path.realpath(path))
    if os.path.isfile(place) and _holds_key(place):
        return
    if not _above(place, home) and not any(place.is_relative_to(folder) for folder in READABLE):
        found[place] = None


def _holds_key(file: Path) -> bool:
    """Whether a file of settings may hold a password or token (`[url "https://TOKEN@…"]`)."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_SETTINGS + 1)
            return len(data) > MAX_SETTINGS or KEYS.search(data) is not None
    except OSError:
        return True


def _above(path: Path, home: Path | None) -> bool:
    """Whether it is the home, the root or above the home, which would show everything."""
    return path == Path("/") or (home is not None and (path == home or path in home.parents))


def _wide(prefix: Path, home: Path | None) -> bool:
    """Whether more is below than one installation: `~/.local`, `/usr/local` is shown anyway."""
    return _above(prefix, home) or prefix.name in (".local", ".cargo", "go")
