"""docs/comparison.md: each cell has a source that is listed, ours are there, and the README says the same in short."""

import re

from .imports import ROOT
from .test_questions import section

PAGE = ROOT / "docs/comparison.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINK = re.compile(r"\[([^\]]+)\]\[([\w-]+)\]")
SOURCES = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", TEXT, re.MULTILINE))
AGENTS = ["acp-coder", "Claude Code", "codex", "opencode", "gemini-cli", "goose"]
OF_COLUMN = ["o-", "c-", "x-", "p-", "g-", "s-"]
RUN = {"run", "start"}
"""What we found when we ran the agents of others."""


def tables(text: str) -> list[list[list[str]]]:
    """The rows of each table, with its heads and without the line below them."""
    found = re.findall(r"(?:^\|.*\|$\n)+", text, re.MULTILINE)
    rows = [[[cell.strip() for cell in line[1:-1].split("|")] for line in each.splitlines()] for each in found]
    return [[head, *body] for head, _, *body in rows]


def compared() -> list[list[list[str]]]:
    return [table for table in tables(TEXT) if table[0][1:] == AGENTS]


def cells() -> list[tuple[str, int, str]]:
    return [
        (row[0], column, cell)
        for _, *body in compared()
        for row in body
        for column, cell in enumerate(row[1:])
    ]  # fmt: skip


def test_each_cell_has_a_source_of_its_agent_or_is_unknown():
    assert len(cells()) > 100 and all(len(row) == 7 for table in compared() for row in table)
    wrong = []
    for row, column, cell in cells():
        names = [name for _, name in LINK.findall(cell)]
        own = all(name in SOURCES and (name.startswith(OF_COLUMN[column]) or name in RUN) for name in names)
        around = LINK.sub("", cell).strip(" ;,")
        if cell != "unknown" and (not names or not own or around not in ("", "though")):
            wrong.append((row, column, cell))
    assert wrong == []


def test_each_source_is_used_and_listed():
    used = {name for _, _, cell in cells() for _, name in LINK.findall(cell)}
    assert used == SOURCES.keys()
    listed = TEXT.partition("\n## Sources\n")[2].partition("\n[run]: ")[0]
    outside = {address for address in SOURCES.values() if address.startswith("https://")}
    assert [address for address in sorted(outside) if f"({address})" not in listed] == []
    assert sorted(outside) == sorted(set(re.findall(r"\((https://[^)]+)\)", listed))), "and none that no cell uses"


def test_our_sources_are_there():
    for address in SOURCES.values():
        path, _, anchor = address.partition("#")
        if not address.startswith("https://"):
            file = (PAGE.parent / path).resolve() if path else PAGE
            assert file.is_file() and (not anchor or section(file, anchor)), address


def test_the_page_says_when_the_sources_were_read():
    assert re.search(r"were read on \d{1,2} [A-Z][a-z]+ 20\d\d", TEXT)


def test_the_readme_says_the_same_in_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(docs/comparison.md)" in readme
    (short,) = [table for table in tables(readme) if table[0][1:] == AGENTS]
    rows = {row[0]: row[1:] for table in compared() for row in table[1:]}
    assert 3 < len(short) - 1 <= 8
    for name, *said in short[1:]:
        whole = rows[name]
        assert [each == "?" for each in said] == [each == "unknown" for each in whole], name
        for word, cell in zip(said, whole, strict=True):
            first = LINK.sub(r"\1", cell).split()[0].strip(":;,")
            assert (word == "no") == (first in ("no", "not", "open")), f"{name}: {word} beside {cell}"
