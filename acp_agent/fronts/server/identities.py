"""Who may use the server: tokens by name, and which folders each may open.

A token is 256 random bits, so a plain hash of it (SHA-256) tells nothing; only that is kept, in a private file that is
replaced as a whole. A server that runs sees changes with the next connection.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from acp_agent.errors import ConfigError
from acp_agent.limits.decoding import read_json

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
PREFIX = "acp_"
"""Of every token, by which it is known as one where it has got to by mistake."""
RANDOM_BYTES = 32
FIRST = "first"
MINE = "~"
"""Owner of what the server's user has in the terminal and in editors, too; no name of a token."""


Scope = Literal["watch", "approve", "prompt"]
"""What a token may do: only look on; also answer questions and stop turns; everything."""


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One token."""

    name: str
    digest: str
    folders: tuple[str, ...] = ()
    """Below which its sessions may work, absolute and resolved; empty: anywhere."""
    made: str = ""
    """ISO 8601, UTC."""
    scope: Scope = "prompt"
    of: str = ""
    """Whose sessions it reaches, if not its own."""

    @property
    def owner(self) -> str:
        return self.of or self.name


class Identities:
    """Those of a file, which need not exist. All raise ConfigError with a sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, ...] = ()
        self._known: tuple[Identity, ...] = ()

    def known(self) -> tuple[Identity, ...]:
        """Read again if the file has changed."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._known = (), ()
            return ()
        except OSError as error:
            raise ConfigError(f"{self.path}: the tokens cannot be read: {error.strerror}") from error
        stamp = found.st_ino, found.st_mtime_ns, found.st_size
        if stamp != self._stamp:
            # A secret that is mounted is root's, and its group is the way to it.
            if found.st_mode & (0o077 if found.st_uid == os.getuid() else 0o027):
                raise ConfigError(f"{self.path}: others may read the tokens' file; `chmod 600` it")
            try:
                self._known = read_json(self.path.read_bytes(), type=tuple[Identity, ...])
            except (OSError, msgspec.DecodeError) as error:
                raise ConfigError(f"{self.path}: is no file of tokens: {error}") from error
            self._stamp = stamp
        return self._known

    def find(self, token: str) -> Identity | None:
        """Whose token it is. Takes the same time whichever it is, and if it is none."""
        digest, found = _digest(token), None
        for identity in self.known():
            if hmac.compare_digest(identity.digest, digest):
                found = identity
        return found

    def add(self, name: str, folders: tuple[str, ...] = (), scope: Scope = "prompt", owner: str = "") -> str:
        """Returns the new token, which is kept nowhere. `owner`: or a token, which reaches the same sessions."""
        for each in (name, name if owner == MINE else owner or name):
            if not NAME.fullmatch(each):
                raise ConfigError(
                    f"{each!r} is no name for a token: letters and digits, then also `.`, `_` and `-`, at most 64"
                )
        token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        made = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with self._changing() as known:
            if any(each.name == name for each in known):
                raise ConfigError(f"there is a token {name!r} already; revoke it first, or choose another name")
            owner = next((each.owner for each in known if each.name == owner), owner)
            self._write([*known, Identity(name, _digest(token), folders, made, scope, owner)])
        return token

    def revoke(self, name: str) -> None:
        with self._changing() as known:
            rest = [each for each in known if each.name != name]
            if len(rest) == len(known):
                names = ", ".join(each.name for each in known) or "none"
                raise ConfigError(f"there is no token {name!r}; there are: {names}")
            self._write(rest)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Identity, ...]]:
        """Alone, whoever else adds one at the same time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{self.path}: the tokens cannot be changed: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.known()
        finally:
            os.close(lock)

    def _write(self, known: list[Identity]) -> None:
        new = f"{self.path}.{os.getpid()}.new"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(known)))
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except OSError as error:
            raise ConfigError(f"{self.path}: the tokens cannot be changed: {error.strerror}") from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
