"""Repositories of git, apart from the configuration of this machine and of who runs the tests."""

import os
import subprocess
from pathlib import Path

from tests.files import put

__all__ = ["committed", "git", "repository"]

OPTIONS = ("-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    """Its standard output."""
    command = ["git", "-C", str(folder), *OPTIONS, *arguments]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=check).stdout


def committed(folder: Path, *paths: str, message: str = "x") -> None:
    git(folder, "add", *paths)
    git(folder, "commit", "-qm", message)


def repository(folder: Path, message: str = "x") -> Path:
    """With one commit of one file."""
    put(folder / "file", "x\n")
    git(folder, "init", "-q")
    committed(folder, "file", message=message)
    return folder
