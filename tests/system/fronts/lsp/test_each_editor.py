"""The tests of the LSP front that begin as an editor does, for the editors that the first tier leaves out."""

import pytest

from tests.contracts import contract
from tests.fronts.lsp import test_actions, test_editor_documents, test_life, test_questions, test_status, test_turns
from tests.fronts.lsp.kit import CAPTURED

FIRST = (test_actions, test_editor_documents, test_life, test_questions, test_status, test_turns)


@pytest.fixture(params=CAPTURED[1:])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


globals().update(contract("name", *FIRST))
