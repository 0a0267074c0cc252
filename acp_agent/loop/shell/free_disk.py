"""Ends a command before it has filled the disk, whichever of its files do that: limits of single files cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

LOOK_SECONDS = 0.5
MEGABYTE = 1_000_000


def free(folders: Sequence[Path]) -> int:
    """Bytes that this user can still write in the fullest of the file systems."""
    left = []
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        left.append(found.f_bavail * found.f_frsize)
    return min(left, default=0)


async def guard(folders: Sequence[Path], least: int, runs: Callable[[], bool], end: Callable[[str], None]) -> None:
    """Calls `end`, with why, once less than `least` bytes are free, or half of what there was where that is less."""
    least = min(least, free(folders) // 2)
    while runs():
        await anyio.sleep(LOOK_SECONDS)
        if runs() and (left := free(folders)) < least:
            end(
                f"The command was ended: only {left // MEGABYTE} MB are free on the disk "
                "(`tools.sandbox.min_free_disk`). Remove what it wrote, or ask the user to make room."
            )
            return
