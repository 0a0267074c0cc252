"""The commands of the pages that take long."""

from pathlib import Path

import pytest

from tests.e2e.test_documented_commands import WITH_COMMANDS, costs_much, its_commands_run


@pytest.mark.parametrize("page", [*filter(costs_much, WITH_COMMANDS)], ids=lambda page: page.stem)
async def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    await its_commands_run(page, tmp_path)
