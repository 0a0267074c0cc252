"""The last line of each audit log, as its agents have recorded it."""

from __future__ import annotations

from acp_agent.store.database import Part


class AuditHeads(Part):
    """All methods raise StoreError."""

    def read(self, log: str) -> tuple[int, str, int] | None:
        """The number of its last line, the hash of that, and the number of the first line that is kept."""
        rows = self._db.rows("SELECT count, hash, begin FROM audit_heads WHERE log = ?", log)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def write(self, log: str, count: int, hash: str, begin: int) -> None:
        self._db.change(
            "INSERT INTO audit_heads (log, count, hash, begin) VALUES (?,?,?,?) ON CONFLICT (log) DO UPDATE SET "
            "count = excluded.count, hash = excluded.hash, begin = excluded.begin",
            *(log, count, hash, begin),
        )
