"""What the chat prints."""

from acp_agent.fronts.terminal.screens import DIM, RESET, joined
from tests.tables import table


@table(("parts", "width", "lines"), [
    (["a.py +1 -1", "60 tokens", "14 s"], 40, ["a.py +1 -1 · 60 tokens · 14 s"]),
    (["a.py +1 -1", "60 tokens", "14 s"], 24, ["a.py +1 -1 · 60 tokens", "14 s"]),
    (["a part that is too long", "14 s"], 10, ["a part that is too long", "14 s"]),
    ([f"{DIM}a.py{RESET}", "14 s"], 11, [f"{DIM}a.py{RESET} · 14 s"]),
])  # fmt: skip
def test_parts_are_put_into_lines_and_none_is_broken(parts: list[str], width: int, lines: list[str]):
    assert joined(parts, " · ", width) == lines
