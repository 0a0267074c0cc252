"""Whether there is a newer version of the agent: asked only by `acp-coder doctor --updates`."""

from __future__ import annotations

import re
from urllib.error import URLError
from urllib.request import urlopen

from acp_agent import __version__
from acp_agent.limits.decoding import read_loose_json

INDEX = "https://pypi.org/pypi/acp-coder/json"
SECONDS = 5.0
MAX_BYTES = 5_000_000


def newer_version(index: str = INDEX) -> str:
    """A sentence: whether the package index has a newer release than this one, or why that is not known."""
    try:
        with urlopen(index, timeout=SECONDS) as response:
            found = read_loose_json(response.read(MAX_BYTES))["info"]["version"]
    except (URLError, OSError, ValueError, KeyError, TypeError) as error:
        return f"whether there is a newer version is not known: {getattr(error, 'reason', error)}"
    if not isinstance(found, str) or _numbers(found) <= _numbers(__version__):
        return f"{__version__} is the newest version"
    return f"there is a newer version, {found}; this is {__version__}"


def _numbers(version: str) -> tuple[int, ...]:
    """Of a release, without what follows them (`1.2.0rc1`)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found is not None else ()
