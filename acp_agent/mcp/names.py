"""Makes names that models and clients accept from arbitrary names of servers and tools."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

LONGEST = 64
"""Maximum length of a function name in OpenAI's API."""

DIGEST = 8


def unique_names(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Maps (server, tool) to `mcp_<server>_<tool>`, in the given order, without duplicates.

    Anything but an ASCII letter, digit, `_` or `-` becomes `_`. A name that is too long or not unique ends in a digest
    of the original; which name that is does not depend on the order.
    """
    plain = {pair: re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp_{pair[0]}_{pair[1]}") for pair in pairs}
    shared = Counter(plain.values())
    taken = {name for name, count in shared.items() if count == 1 and len(name) <= LONGEST}
    names: dict[tuple[str, str], str] = {}
    for pair, name in plain.items():
        if name not in taken:
            name = _with_digest(name, pair, taken)
            taken.add(name)
        names[pair] = name
    return names


def _with_digest(name: str, pair: tuple[str, str], taken: set[str]) -> str:
    digest = hashlib.sha256("\0".join(pair).encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(DIGEST, len(digest) - 3):
        made = f"{name[: max(LONGEST - length - 1, 0)]}_{digest[:length]}"[:LONGEST]
        if made not in taken:
            return made
    raise AssertionError("no name is left")
