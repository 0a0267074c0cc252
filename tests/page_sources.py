"""What the page of `acp-coder serve` was built of, as its build has noted it."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = ROOT / "editors/vscode"


def stale_sources() -> list[str]:
    """Files of the page, and sources of it, that are others than when it was built."""
    found = []
    for line in (EXTENSION / "page.sha256").read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ", 1)
        path = EXTENSION / name
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            found.append(name)
    return found
