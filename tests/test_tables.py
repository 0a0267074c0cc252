"""The check of `table` itself."""

import inspect

import pytest

from tests.tables import table


def test_a_table_runs_every_row_and_names_those_that_fail() -> None:
    seen: list[tuple[int, int, str]] = []

    @table("outer", [10, 20])
    @table(("number", "wanted"), [(1, 1), (2, 3), (3, 3), (4, 0)])
    def rule(number: int, wanted: int, outer: int, fixture: str) -> None:
        seen.append((outer, number, fixture))
        assert number == wanted or 1 / wanted == 9

    assert list(inspect.signature(rule).parameters) == ["fixture"]
    with pytest.raises(AssertionError) as failure:
        rule(fixture="x")
    assert seen == [(outer, number, "x") for outer in (10, 20) for number in (1, 2, 3, 4)]
    text = str(failure.value)
    assert "2 of 2 rows failed" in text and text.count("2 of 4 rows failed") == 2 and "(2, 3): AssertionError" in text
    assert "(4, 0): ZeroDivisionError" in text


async def test_a_table_awaits_the_rows_of_an_async_test() -> None:
    seen: list[int] = []

    @table("number", [1, 2, 3])
    async def rule(number: int, fixture: str) -> None:
        seen.append(number)
        assert number != 2

    with pytest.raises(AssertionError, match="1 of 3 rows failed\n2: AssertionError"):
        await rule(fixture="x")
    assert seen == [1, 2, 3]
