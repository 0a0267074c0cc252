"""Each promise of docs/security.md names tests that exist."""

import re

from .imports import ROOT

NAMED = re.compile(r"`([\w/]*\.py)?::(test_\w+)`")


def test_each_promise_names_tests_that_exist():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Each promise, and the test that holds it")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 20
    missing = []
    for row in rows:
        file, found = "", NAMED.findall(row)
        assert found, f"no test is named: {row}"
        for place, name in found:
            file = place or file
            if not re.search(rf"def {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8")):
                missing.append(f"{file}::{name}")
    assert not missing
