"""Which backend serves what: the editor what it offers and may serve, this machine the rest.

Pure.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Operation = Literal["run", "read_text", "write_text"]
"""Operations that an editor may serve. Everything else goes to the disk."""
Backend = Literal["editor", "local"]


class Offer(Struct, frozen=True):
    """The operations that the editor offers and the configuration lets us use."""

    terminal: bool = False
    read_text: bool = False
    write_text: bool = False


def route(operation: Operation, offer: Offer) -> Backend:
    """The backend of an operation. Each capability is independent (FS-1, TERM-1)."""
    match operation:
        case "run":
            return "editor" if offer.terminal else "local"
        case "read_text":
            return "editor" if offer.read_text else "local"
        case "write_text":
            return "editor" if offer.write_text else "local"
