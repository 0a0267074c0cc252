"""How often a test does again what chance may find: often enough for each commit, and much longer in `make nightly`."""

import os

NIGHTLY = os.environ.get("ACP_TEST_NIGHTLY") == "1"


def times(usual: int, nightly: int | None = None) -> int:
    """Rounds, or examples of a property: ten times as many at night if nothing else is said."""
    return (10 * usual if nightly is None else nightly) if NIGHTLY else usual


def examples(usual: int) -> int:
    """Of a property: a quarter of them before each commit, always the same; ten times as many, and others, at night."""
    return 10 * usual if NIGHTLY else (usual + 3) // 4
