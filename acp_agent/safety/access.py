"""What a tool call touches, and the verdicts deciders give about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Access", "Allow", "Ask", "Deny", "ExecuteAccess", "NoAccess", "PathAccess", "Verdict"]


@dataclass(frozen=True)
class PathAccess:
    """A file or folder, absolute and resolved as `Roots.resolve` does."""

    mode: Literal["read", "write"]
    path: Path


@dataclass(frozen=True)
class ExecuteAccess:
    """A shell command line, exactly as it will run, and where."""

    command: str
    cwd: Path


@dataclass(frozen=True)
class NoAccess:
    """Touches nothing outside the conversation (a plan, say)."""


Access = PathAccess | ExecuteAccess | NoAccess


@dataclass(frozen=True)
class Allow:
    pass


@dataclass(frozen=True)
class Ask:
    """A person must decide."""

    reason: str
    scopes: tuple[str, ...]
    """What an "always" answer would cover; every one must be covered for the answer to apply."""
    scope_words: str
    """The same for the person: `cargo test …, in this project`."""


@dataclass(frozen=True)
class Deny:
    reason: str
    """A sentence for the model and the person."""


Verdict = Allow | Ask | Deny
