"""Memories: full-text search, the best first."""

from __future__ import annotations

import re

from acp_agent.store.base import Memory, MemoryCategory
from acp_agent.store.database import Part, clean, now

WORD = re.compile(r"\w+")
MAX_WORDS = 32
"""Words of a query that are searched for."""

COLUMNS = "m.key, m.content, m.category, m.project, m.updated_at"


class MemoryStore(Part):
    """All methods raise StoreError."""

    def store(self, project: str, key: str, content: str, category: MemoryCategory) -> bool:
        """Stores it; True if it replaces an earlier one with the same key."""
        with self._db.write() as db:
            known = db.rows("SELECT 1 FROM memories WHERE project = ? AND key = ?", project, clean(key))
            db.change(
                "INSERT INTO memories (project, key, content, category, updated_at) VALUES (?,?,?,?,?) "
                "ON CONFLICT (project, key) DO UPDATE SET content = excluded.content, category = excluded.category, "
                "updated_at = excluded.updated_at",
                *(project, clean(key), clean(content), category, now()),
            )
        return bool(known)

    def recall(
        self, projects: tuple[str, ...], query: str, limit: int, category: MemoryCategory | None = None
    ) -> list[Memory]:
        """Those that share words with `query`, the best first (BM25; words of the key count twice)."""
        words = list(dict.fromkeys(word.lower() for word in WORD.findall(clean(query))))[:MAX_WORDS]
        if not words or not projects:
            return []
        places = ",".join("?" * len(projects))
        sql = f"SELECT {COLUMNS} {self._db.words.memories} AND m.project IN ({places})"
        values: list[object] = [self._db.words.wanted(words), *projects]
        if category is not None:
            sql += " AND m.category = ?"
            values.append(category)
        sql += f" ORDER BY {self._db.words.best}, m.updated_at DESC LIMIT ?"
        return [Memory(*row) for row in self._db.rows(sql, *values, limit)]

    def keys(self, project: str, limit: int) -> list[str]:
        """The newest first."""
        query = "SELECT key FROM memories WHERE project = ? ORDER BY updated_at DESC LIMIT ?"
        rows = self._db.rows(query, project, limit)
        return [key for (key,) in rows]

    def forget(self, project: str, key: str) -> bool:
        """False where there was none."""
        return self._db.change("DELETE FROM memories WHERE project = ? AND key = ?", project, clean(key)) > 0
