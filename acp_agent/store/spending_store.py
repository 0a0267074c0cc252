"""What model calls used and cost, by day, session and model."""

from __future__ import annotations

from typing import Any

import msgspec

from acp_agent.store.database import Part, clean

COUNTED = "calls, input, cached, output, cost, unpriced, estimated"
SUMS = ", ".join(
    f"CAST(coalesce(sum({name}), 0) AS {'DOUBLE PRECISION' if name == 'cost' else 'BIGINT'})"
    for name in COUNTED.split(", ")
)
ADDED = ", ".join(f"{name} = spending.{name} + excluded.{name}" for name in COUNTED.split(", "))


class Spent(msgspec.Struct, frozen=True):
    """A sum of model calls."""

    calls: int = 0
    input: int = 0
    """Tokens, those from a cache and into it included."""
    cached: int = 0
    """Of these, read from a cache."""
    output: int = 0
    """Tokens."""
    cost: float = 0.0
    """Dollars, of the calls that have a price."""
    unpriced: int = 0
    """Calls whose price is not known."""
    estimated: int = 0
    """Calls whose tokens the server did not count."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(*map(sum, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))

    @property
    def cached_percent(self) -> float:
        return 100 * self.cached / self.input if self.input else 0.0

    @property
    def words(self) -> str:
        """What it cost, for a user."""
        if not self.unpriced:
            return dollars(self.cost)
        return f"{dollars(self.cost)} and more" if self.cost else "price not known"


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


class SpendingStore(Part):
    """All methods raise StoreError. `day` is a date, `YYYY-MM-DD`."""

    def add(self, day: str, session_id: str, model: str, spent: Spent) -> None:
        values = msgspec.structs.astuple(spent)
        self._db.change(
            f"INSERT INTO spending (day, session_id, model, {COUNTED}) VALUES (?,?,?,?,?,?,?,?,?,?) "
            f"ON CONFLICT (session_id, day, model) DO UPDATE SET {ADDED}",
            *(day, session_id, clean(model), *values),
        )

    def of_session(self, session_id: str) -> Spent:
        return self._sum("session_id = ?", session_id)

    def of_day(self, day: str) -> Spent:
        """Of all sessions and processes, also of sessions that were deleted."""
        return self._sum("day = ?", day)

    def by_model(self, session_id: str) -> dict[str, Spent]:
        """The most expensive first."""
        return self._groups("model", "WHERE session_id = ? GROUP BY model", session_id)

    def by_session(self) -> dict[str, Spent]:
        return self._groups("session_id", "GROUP BY session_id")

    def _sum(self, where: str, *values: object) -> Spent:
        return Spent(*self._db.rows(f"SELECT {SUMS} FROM spending WHERE {where}", *values)[0])

    def _groups(self, name: str, rest: str, *values: object) -> dict[str, Spent]:
        query = f"SELECT {name}, {SUMS} FROM spending {rest} ORDER BY sum(cost) DESC, {name}"
        rows: list[Any] = self._db.rows(query, *values)
        return {key: Spent(*sums) for key, *sums in rows}
