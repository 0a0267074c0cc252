"""Files of tests."""

from pathlib import Path

__all__ = ["put"]


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
