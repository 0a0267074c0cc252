"""Paths and `file:` URIs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def uri_of(path: Path) -> str:
    return path.as_uri()


def path_of(uri: str) -> Path | None:
    """The path that the URI names, however it is quoted; None if it is not a file URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    text = unquote(parts.path, errors="surrogateescape")
    return Path(text) if text.startswith("/") and "\0" not in text else None
