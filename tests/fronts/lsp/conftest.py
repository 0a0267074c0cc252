"""The editor whose `initialize` parameters a test takes: one here, the others in `tests/system/fronts/lsp`."""

import pytest

from tests.fronts.lsp.kit import CAPTURED


@pytest.fixture(params=CAPTURED[:1])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
