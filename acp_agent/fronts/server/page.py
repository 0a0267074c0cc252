"""The page at `/`: its files, which anybody may have, and the cookie by which it gets in.

A page cannot give a WebSocket a header, so it gives its token once, to `/login`, and gets it back as a cookie that no
script can read. What takes a token from that cookie, and for whom, is said in `entrance`.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from acp_agent.fronts.server.entrance import cookie_name, token_of

FOLDER = Path(__file__).with_name("static")
"""What `make page` builds; it is in the repository, so that who installs from it needs no Node."""
NOT_HERE = "The files of the page are missing: install acp-coder again.\n"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/highlight.js": ("highlight.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/icon.png": ("icon.png", "image/png"),
    "/notices.txt": ("notices.txt", "text/plain; charset=utf-8"),
}
LOGIN, LOGOUT = "/login", "/logout"
COMPRESSED = ("text/", "image/svg")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
GUARDS = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Served(Struct, frozen=True):
    """An answer of HTTP."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class _File(Struct, frozen=True):
    stamp: tuple[int, int]
    tag: str
    body: bytes
    packed: bytes
    """With gzip; empty: that would not help."""


class Page:
    """`days`: how long a browser stays logged in after its last visit."""

    def __init__(self, days: int, folder: Path = FOLDER) -> None:
        self._seconds = days * 24 * 3600
        self._folder = folder
        self._read: dict[str, _File] = {}

    def file(self, path: str, headers: Mapping[str, str], tls: bool) -> Served:
        """`path` is one of FILES."""
        name, kind = FILES[path]
        try:
            file = self._file(name, kind)
        except OSError:
            plain = ("Content-Type", "text/plain; charset=utf-8")
            return Served(503, (*GUARDS, plain, ("Cache-Control", "no-store")), NOT_HERE.encode())
        packs = bool(file.packed) and "gzip" in headers.get("accept-encoding", "")
        tag = f'"{file.tag}{"-gzip" if packs else ""}"'
        about: tuple[tuple[str, str], ...] = (*GUARDS, ("ETag", tag), ("Cache-Control", "no-cache"))
        about = (*about, ("Vary", "Accept-Encoding"))
        if tag in (each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")):
            return Served(304, about)
        about = (*about, ("Content-Type", kind))
        return (
            Served(200, (*about, ("Content-Encoding", "gzip")), file.packed) if packs else Served(200, about, file.body)
        )

    def login(self, path: str, headers: Mapping[str, str], tls: bool) -> Served:
        """Makes the token of `Authorization` a cookie, for the page."""
        return self._cookie(headers, tls, token_of(headers), self._seconds)

    def logout(self, path: str, headers: Mapping[str, str], tls: bool) -> Served:
        """Clears the cookie."""
        return self._cookie(headers, tls, "", 0)

    def _cookie(self, headers: Mapping[str, str], tls: bool, token: str, seconds: int) -> Served:
        parts = [f"{cookie_name(headers)}={token}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
        if tls or headers.get("origin", "").casefold().startswith("https:"):  # TLS may end at a proxy.
            parts.append("Secure")
        return Served(204, (("Set-Cookie", "; ".join(parts)), ("Cache-Control", "no-store")))

    def _file(self, name: str, kind: str) -> _File:
        """Read again if it was built anew. Raises OSError."""
        path = self._folder / name
        found = path.stat()
        stamp = found.st_mtime_ns, found.st_size
        if name not in self._read or self._read[name].stamp != stamp:
            body = path.read_bytes()
            packed = gzip.compress(body, mtime=0) if kind.startswith(COMPRESSED) else b""
            self._read[name] = _File(stamp, hashlib.sha256(body).hexdigest()[:32], body, packed)
        return self._read[name]
