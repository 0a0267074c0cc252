"""Parses how long a call waits for a command: true, false, seconds, or `30s`, `10m`, `1h`. Pure."""

from __future__ import annotations

import math
import re

DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|sec|secs|seconds?|m|min|mins|minutes?|h|hours?)?", re.IGNORECASE)
FACTORS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
WORDS = {"true": True, "false": False}


def _unit(word: str) -> str:
    return "ms" if word.lower() == "ms" else word[0].lower()


def wait_of(value: bool | float | str) -> bool | float:
    """True, False or seconds above 0. Raises ValueError with a sentence."""
    if isinstance(value, str):
        text = value.strip()
        if (word := WORDS.get(text.lower())) is not None:
            return word
        found = DURATION.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{value!r} is not a duration; give true, false, seconds, or one such as `30s`, `10m`, `1h`"
            )
        value = float(found[1]) * FACTORS[_unit(found[2] or "s")]
    if isinstance(value, bool):
        return value
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} is not a number of seconds; give one of 0 or more")
    return float(value) or False
