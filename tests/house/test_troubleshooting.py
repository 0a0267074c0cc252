"""docs/troubleshooting.md quotes what the program says, and has an entry for each kind of error of a model's server."""

import ast
import re

from acp_agent.llm import provider_errors

from .imports import ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("|") and " | " in line]
QUOTED = [row[0] for row in ROWS if row[0] != "It says"]


def texts() -> list[str]:
    """The strings of the program, with "…" for what is put into them."""
    found: list[str] = []
    for path in (ROOT / "acp_agent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(map(str, parts)))
    return found


def test_each_message_is_one_that_the_program_has():
    said = "\n".join(texts())
    patterns = {text: r"[^\n]*?".join(map(re.escape, text.split("…"))) for text in QUOTED}
    missing = [text for text, pattern in patterns.items() if not re.search(pattern, said)]
    assert len(QUOTED) >= 40 and missing == []


def test_each_kind_of_error_of_a_server_has_its_entry():
    openings = {kind: words for kind, words in provider_errors._OPENING.items() if kind != "server"}
    assert len(openings) > 5 and [words for words in openings.values() if words not in QUOTED] == []
    assert provider_errors._ADVICE["network"] in QUOTED


def test_each_entry_says_why_and_what_to_do():
    assert [row for row in ROWS if len(row) != 3 or not all(cell.strip() for cell in row)] == []
