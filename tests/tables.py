"""`table`: `pytest.mark.parametrize` as one test, for rows that exercise one rule. `packed`: rows as text."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def table(names: str | tuple[str, ...], rows: Collection[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Runs the test for each row. All rows run; those that fail are named, each with its error.

    Takes what `parametrize` takes: the names of one or of several parameters, and the rows. The rows share the
    fixtures, so that it fits tests that change nothing, or that begin with what they need. The test may be async.
    """
    columns = (names,) if isinstance(names, str) else names
    assert rows

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in columns]

        def named(row: Any) -> dict[str, Any]:
            return dict(zip(columns, (row,) if isinstance(names, str) else row, strict=True))

        def run_all(**given: Any) -> None:
            failed: list[str] = []
            for row in rows:
                with noted(row, failed):
                    test(**named(row), **given)
            judge(failed, len(rows))

        async def await_all(**given: Any) -> None:
            failed: list[str] = []
            for row in rows:
                with noted(row, failed):
                    await test(**named(row), **given)
            judge(failed, len(rows))

        run: Callable[..., Any] = await_all if inspect.iscoroutinefunction(test) else run_all
        run.__dict__.update(test.__dict__)  # the marks of other decorators
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


@contextmanager
def noted(row: Any, failed: list[str]) -> Iterator[None]:
    """Whatever a row raises is its failure."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
        failed.append(f"{row!r}: {type(error).__name__}: {error}")


def judge(failed: list[str], count: int) -> None:
    assert not failed, f"{len(failed)} of {count} rows failed\n" + "\n".join(failed)


def packed(text: str) -> list[str]:
    """The rows of a text whose lines hold several, with ` ¦ ` between them."""
    return re.split("\n| ¦ ", text.strip("\n"))
