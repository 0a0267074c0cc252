"""What our modules use of `glob`, on hosts with a Python before 3.11: a folder to begin in, and hidden files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from typing import Any

TOP, HIDDEN = "iglob", "_ishidden"


def install() -> None:
    """For the whole process, which is ours."""
    older: Any = glob.iglob

    def iglob(pattern: str, *, root_dir: Any = None, recursive: bool = False, **_: Any) -> Iterator[str]:
        if root_dir is None or os.path.isabs(pattern):
            yield from older(pattern, recursive=recursive)
            return
        top = os.path.join(root_dir, "")
        for path in older(glob.escape(top) + pattern, recursive=recursive):
            yield path[len(top) :]

    vars(glob).update({TOP: iglob, HIDDEN: lambda name: False})
