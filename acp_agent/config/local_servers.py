"""Finds model servers on this machine, for whoever has neither configured one nor has a key.

A port that nobody listens at costs nothing; whoever does is asked for its list of models, by the path that this kind of
server alone has, and is passed over unless it answers in time and as expected: other programs use these ports, too.
"""

from __future__ import annotations

import io
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from acp_agent.lazy import load
from acp_agent.limits.decoding import read_loose_json

CONNECT_TIMEOUT = 0.2
ANSWER_TIMEOUT = 0.5
"""Seconds."""
LONGEST_LIST = 1024 * 1024
"""Bytes."""


def serves(base_url: str, path: str, models: str, mark: str) -> bool:
    """Whether a server of that kind answers there and has a model: what a row's `local` says of it."""
    try:
        place = urlsplit(base_url)
        host, port = place.hostname or "127.0.0.1", place.port or 80
        with socket.create_connection((host, port), CONNECT_TIMEOUT) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = load("http.client:HTTPResponse")(_Hurried(connection))
            answer.begin()
            body = read_loose_json(answer.read(LONGEST_LIST)) if answer.status == 200 else None
    except ConnectionError:  # First: nobody listens, and `http.client` is not needed.
        return False
    except (OSError, load("http.client:HTTPException"), ValueError):
        return False
    entries = body.get(models) if isinstance(body, dict) else None
    return isinstance(entries, list) and any(_is_model(mark, entry) for entry in entries)


class _Hurried(io.RawIOBase):
    """A connection as `HTTPResponse` reads it, until a deadline: each timeout of a socket is for one byte alone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + ANSWER_TIMEOUT

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if (left := self._until - time.monotonic()) <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def _is_model(mark: str, entry: Any) -> bool:
    name, _, value = mark.partition("=")
    if not isinstance(entry, dict) or name not in entry or entry.get("type") == "embeddings":
        return False
    return not value or entry[name] == value
