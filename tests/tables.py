"""`table`: `pytest.mark.parametrize` as one test, for rows that exercise one rule. `packed`: rows as text."""

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any

import pytest


def table(names: str | tuple[str, ...], rows: Collection[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs the test for each row. All rows run; those that fail are named, each with its error.

    Takes what `parametrize` takes: the names of one or of several parameters, and the rows. The rows share the
    fixtures, so that it fits tests that change nothing.
    """
    columns = (names,) if isinstance(names, str) else names
    assert rows

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in columns]

        def run(**given: Any) -> None:
            failed = []
            for row in rows:
                values = (row,) if isinstance(names, str) else row
                try:
                    test(**dict(zip(columns, values, strict=True)), **given)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever a row raises is its failure
                    failed.append(f"{row!r}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} of {len(rows)} rows failed\n" + "\n".join(failed)

        run.__dict__.update(test.__dict__)  # the marks of other decorators
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def packed(text: str) -> list[str]:
    """The rows of a text whose lines hold several, with ` ¦ ` between them."""
    return re.split("\n| ¦ ", text.strip("\n"))
