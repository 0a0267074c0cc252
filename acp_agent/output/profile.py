"""How much of a result the model gets: the profile `short`, for models with a small context.

Its figures are those of a tool set made for such models: 4,000 characters of each stream of a command, 8,000 of all
else, from the beginning; what grows at its end (a command in the background) from the end.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["STREAM_CHARS", "TEXT_CHARS", "keeps", "shortened", "shortened_streams"]

STREAM_CHARS = 4_000
"""Of stdout, and of stderr."""

TEXT_CHARS = 8_000

FROM_THE_END = frozenset(("bash_output", "bash_kill"))
"""Tools whose newest output matters most."""


def shortened(text: str, limit: int = TEXT_CHARS, *, keep: Literal["head", "tail"] = "head") -> str:
    """`text`, cut to `limit` characters, with a mark at the cut."""
    if len(text) <= limit:
        return text
    if keep == "head":
        return f"{text[:limit]}\n...[truncated]"
    return f"[truncated {len(text) - limit} chars from start]\n{text[-limit:]}"


def shortened_streams(stdout: str, stderr: str) -> str:
    """Both streams of a command, each cut for itself, one after the other."""
    parts = [shortened(stream, STREAM_CHARS) for stream in (stdout, stderr) if stream.strip()]
    return "\n[stderr]\n".join(parts) if stdout.strip() else "".join(f"[stderr]\n{part}" for part in parts)


def keeps(tool: str) -> Literal["head", "tail"]:
    """Which end of a tool's output is kept."""
    return "tail" if tool in FROM_THE_END else "head"
