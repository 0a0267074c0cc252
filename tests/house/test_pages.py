"""The pages of the documentation: found from the index, begun with what they are for, none too long."""

import re
from pathlib import Path

import pytest

from acp_agent.config.load import load_config
from acp_agent.config.other_names import OTHER_NAMES
from acp_agent.errors import ConfigError

from .imports import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
LONG = {"history.md", "internals/limits-answers.md"}
"""Pages that are looked things up in, not read: they have no bound."""
MOST_LINES = 620


def links(page: Path) -> set[Path]:
    return {(page.parent / path).resolve() for path in LINK.findall(page.read_text(encoding="utf-8"))}


def test_the_index_leads_to_every_page_by_itself_or_by_one_that_it_names():
    near = links(INDEX)
    found = near.union(*(links(page) for page in near if page.is_file() and page.is_relative_to(DOCS)))
    assert len(PAGES) > 60 and [page for page in PAGES if page not in found | {INDEX}] == []
    assert [page for page in DOCS.glob("*.md") if page not in near | {INDEX}] == [], "these it names itself"


@pytest.mark.parametrize("page", [DOCS.glob("*.md"), (DOCS / "editors").glob("*.md")], ids=["docs", "editors"])
def test_each_page_begins_with_what_it_is_for(page):
    wrong = []
    for each in page:
        text = re.sub(r"^<!--.*-->\n\n", "", each.read_text(encoding="utf-8"), flags=re.MULTILINE)
        title, first, *_ = text.split("\n\n", 2)
        prose = not re.match(r"```|[|#!>]|\s|- |\d+\. ", first) and len(first) > 50
        if not title.startswith("# ") or "\n" in title or not prose:
            wrong.append(each.name)
    assert wrong == []


def test_no_page_is_too_long_to_be_read():
    lengths = {page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8").count("\n") for page in PAGES}
    assert {page: lines for page, lines in lengths.items() if lines > MOST_LINES and page not in LONG} == {}
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 150
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").count("\n") <= 150, "older parts: docs/history.md"


def test_what_the_changelog_says_of_keys_that_went_is_what_the_program_does(tmp_path):
    table = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("| in your file | now |\n")[2]
    file = tmp_path / "config.toml"

    def loaded(line: str) -> tuple[str, ...]:
        file.write_text(line, encoding="utf-8")
        return load_config({"HOME": str(tmp_path), "ACP_CODER_CONFIG": str(file)}).notes

    rows = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()[1:]]
    accepted = [old for old, new in rows if "accepted" in new]
    assert len(accepted) == 3 and {"tools.sandbox.allow_network", "tools.shell.allowed_paths"} <= OTHER_NAMES.keys()
    assert "`tools.sandbox.network`" in loaded("tools.sandbox.allow_network = true")[0]
    assert "`tools.sandbox.allow_write`" in loaded('tools.shell.allowed_paths = ["/srv"]')[0]
    assert "not needed" in loaded("tools.enabled = true")[0]
    (gone,) = (re.findall(r"`([\w.]+)`", old) for old, new in rows if "an error" in new)
    for key in gone:
        with pytest.raises(ConfigError, match="unknown key"):
            loaded(f"{key} = 1")
    assert len(gone) == 2
