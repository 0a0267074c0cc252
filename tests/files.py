"""Files of tests."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["put", "puts"]


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def puts(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        put(folder / name, text)
