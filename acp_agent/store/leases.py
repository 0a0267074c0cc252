"""Which process runs a session: it has a lease on it, which runs out unless it is renewed.

The time is the database's, so that machines need not agree about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.store.database import Part

TURN = "turn:"
"""Before the name of a holder that has it for one turn; servers have others."""
LONGER = 4.0
"""Than ours no lease is by more than this: that of a process with another configuration may be longer."""


class Leases(Part):
    """`holder`: the name of a process. `seconds`: how long it has the lease from now on."""

    def claim(self, session_id: str, holder: str, seconds: float) -> bool:
        """Takes the lease if it is free, the holder's already, or has run out. One of all who try at once gets it.
        False also where there is no such session."""
        clock = self._db.clock
        query = (
            f"UPDATE sessions SET holder = ?, held_until = {clock} + ? "
            f"WHERE id = ? AND (holder IS NULL OR holder = ? OR held_until <= {clock})"
        )
        if self._db.change(query, holder, seconds, session_id, holder) > 0:
            return True
        # No lease is that long: the clock was set back. Who holds it, if anybody does, renews it before it has run out.
        cut = f"UPDATE sessions SET held_until = {clock} + ? WHERE id = ? AND held_until > {clock} + ?"
        self._db.change(cut, seconds * LONGER, session_id, seconds * LONGER)
        return False

    def renew(self, sessions: Sequence[str], holder: str, seconds: float) -> set[str]:
        """Holds these for longer; returns those that the holder still has."""
        if not sessions:
            return set()
        places = ",".join("?" * len(sessions))
        query = (
            f"UPDATE sessions SET held_until = {self._db.clock} + ? WHERE holder = ? AND id IN ({places}) RETURNING id"
        )
        return {row[0] for row in self._db.rows(query, seconds, holder, *sessions)}

    def let_go(self, session_id: str, holder: str) -> bool:
        """Frees it; False if it is not the holder's."""
        query = "UPDATE sessions SET holder = NULL, held_until = NULL WHERE id = ? AND holder = ?"
        return self._db.change(query, session_id, holder) > 0

    def holder(self, session_id: str) -> str:
        """Who has it now; empty: nobody."""
        query = f"SELECT holder FROM sessions WHERE id = ? AND holder IS NOT NULL AND held_until > {self._db.clock}"
        rows = self._db.rows(query, session_id)
        return str(rows[0][0]) if rows else ""

    def held(self) -> list[str]:
        """The sessions that a process runs now."""
        query = f"SELECT id FROM sessions WHERE holder IS NOT NULL AND held_until > {self._db.clock}"
        return [str(row[0]) for row in self._db.rows(query)]
