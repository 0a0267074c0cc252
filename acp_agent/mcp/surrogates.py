r"""Half surrogate pairs in JSON: its grammar allows `"\ud800"`, but no parser that returns text accepts it.

Some servers cut text by UTF-16 units and send the halves. That loses a character, not the answer.
"""

from __future__ import annotations

import re

ESCAPE = re.compile(
    rb"""
    \\(?:
        u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}    # a pair
      | (?P<begun>
            (?: u[dD][89abAB][0-9a-fA-F]{2} (?: \\(?: u (?: [dD] (?: [c-fC-F][0-9a-fA-F]? )? )? )? )?
              | u[0-9a-fA-F]{0,3}
            )? \Z
        )
      | (?P<half> u[dD][89a-fA-F][0-9a-fA-F]{2} )
      | u
      | [^u](?: \\[^u] )*
    )
    """,
    re.VERBOSE,
)
REPLACEMENT = b"?"


def repaired(data: bytes) -> bytes:
    """JSON with each half of a pair replaced by `?`; everything else unchanged."""
    repairer = Repairer()
    return repairer.feed(data) + repairer.end()


class Repairer:
    """The same for JSON that arrives in pieces, alone or in the events of a stream."""

    def __init__(self) -> None:
        self._begun = b""
        """An escape whose end has not arrived yet."""

    def feed(self, piece: bytes) -> bytes:
        data, self._begun = self._begun + piece, b""
        return ESCAPE.sub(self._told, data)

    def end(self) -> bytes:
        """Returns text held back, at the end of the stream."""
        return self._begun

    def _told(self, found: re.Match[bytes]) -> bytes:
        if found["begun"] is not None:
            self._begun = found[0]
            return b""
        return REPLACEMENT if found["half"] else found[0]
