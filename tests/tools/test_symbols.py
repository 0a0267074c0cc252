"""`references`: what is left out of a long list is counted by the list's own bound."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.schema.lsp_types import Position, Range
from acp_agent.tools.kit.positions import places_in_words


@pytest.mark.parametrize(("number", "most", "said"), [(12, 100, []), (12, 5, ["[7 more are not shown]"]), (5, 5, [])])
async def test_only_what_is_not_shown_is_counted(tmp_path: Path, number: int, most: int, said: list[str]) -> None:
    roots: Any = SimpleNamespace(display=str, contains=lambda path: False, resolve=lambda path: path)
    ctx: Any = SimpleNamespace(roots=roots)
    found = [((tmp_path / f"{at}.py").as_uri(), Range(Position(0, 0), Position(0, 1))) for at in range(number)]
    lines, locations = await places_in_words(found, ctx, most)
    shown = min(number, most)
    assert len(locations) == shown and lines[shown:] == said
    assert lines[0] == f"{tmp_path}/0.py:1:1"
