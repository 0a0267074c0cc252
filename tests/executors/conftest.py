"""The backends that each contract of executors is run with; `tests/system/executors` has the others."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["local", "editor"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)
