"""Text from a model, a file's name or a program as a user can trust to see it."""

from __future__ import annotations

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
HIDDEN = (0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF)
CONTROLS |= {code: f"\\u{code:04x}" for code in HIDDEN}
"""Replaces characters that could move the cursor, hide text or reverse it by their numbers: a title must not lie."""


def legible(text: str) -> str:
    """`text` with such characters shown as `\\x1b` or `\\u202e`; tabs and line ends stay."""
    return text.replace("\r\n", "\n").translate(CONTROLS)
