"""Limits how much of a result the model gets: the profile `short`, for models with a small context.

Its limits are those of a tool set made for such models: 4,000 characters of each stream of a command, 8,000 of anything
else, taken from the beginning, or from the end for output that grows there (a background command). Part of a stream's
4,000 characters are its end, which says why a command failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from acp_agent.config.model import ToolsConfig

STREAM_CHARS = 4_000
"""Limit for stdout, and for stderr."""

TEXT_CHARS = 8_000

FROM_THE_END = frozenset(("bash_output", "bash_kill", "capture_pane", "send_keys"))
"""Tools whose newest output matters most."""


END_PART = 0.25
"""The part of a stream's limit that is its end."""

LONGEST_NOTE = 200
"""Length of a last line in brackets, which says how to continue and is kept."""

ROOM_FOR_NOTES = 600
"""Characters of an envelope's output for the lines below it."""


def result_chars(config: ToolsConfig) -> int:
    """The most characters of a result that the model gets; longer ones are cut."""
    if config.profile == "short":
        return TEXT_CHARS
    limit = min(config.max_output_chars, config.overflow.threshold)
    if config.observation != "plain":
        limit = min(limit, max(config.envelope.output_chars - ROOM_FOR_NOTES, 1))
    return limit


def shortened(text: str, limit: int = TEXT_CHARS, *, keep: Literal["head", "tail", "both"] = "head") -> str:
    """`text`, cut to `limit` characters, with a mark at the cut."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    if keep == "tail":
        return f"[truncated {left_out} chars from start]\n{text[-limit:]}"
    if keep == "both":
        end = int(limit * END_PART)
        return f"{text[: limit - end]}\n...[truncated {left_out} chars]\n{text[-end:]}"
    last = text.rstrip().rpartition("\n")[2]
    note = f"\n{last}" if last.startswith("[") and last.endswith("]") and len(last) <= LONGEST_NOTE else ""
    return f"{text[:limit]}\n...[truncated {left_out} chars]{note}"


def shortened_streams(stdout: str, stderr: str) -> str:
    """Both streams of a command, cut separately and joined; twice the limit if there is only one."""
    limit = STREAM_CHARS if stdout.strip() and stderr.strip() else 2 * STREAM_CHARS
    parts = [shortened(stream, limit, keep="both") for stream in (stdout, stderr) if stream.strip()]
    return "\n[stderr]\n".join(parts) if stdout.strip() else "".join(f"[stderr]\n{part}" for part in parts)


def keeps(tool: str) -> Literal["head", "tail"]:
    """Which end of a tool's output is kept."""
    return "tail" if tool in FROM_THE_END else "head"
