"""Tests that run the whole kit are begun first: the others, which mostly wait, fill the time beside them."""

import pytest

WHOLE = ("keeps_all", "passes_everything", "breaks_no_other_check", "typescript_sdk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(words in item.name for words in WHOLE))
