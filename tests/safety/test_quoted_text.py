"""A quoted here-document that is only read as text does not make a harmless line ask."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.safety.access import Allow
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.examine import examine
from acp_agent.safety.lines.quoting import without_quoted_text
from tests.nightly import examples

BODY = "run $(rm -rf ~) and `sudo id`\n"


def allowed(line: str, folder: Path) -> bool:
    return isinstance(examine(line, Roots(folder, []), folder).verdict, Allow)


@pytest.mark.parametrize("line", ["cat <<'EOF'\n{}EOF", "cat <<'E' | sort -u | head -n 5\n{}E\n", "wc -l <<'E'\nE\n"])
def test_text_that_is_only_read_does_not_ask(tmp_path: Path, line: str) -> None:
    assert allowed(line.format(BODY), tmp_path)
    assert not allowed(line.format(BODY).replace("'", ""), tmp_path) or "{}" not in line, (
        "bash expands what is not quoted"
    )


@pytest.mark.parametrize("line", [
    "bash <<'E'\nls\nE", "cat <<'E' | sh\nls\nE", "xargs cat <<'E'\n/etc/passwd\nE", "cat <<'E'\nx\nE\nrm -rf .",
    "cat <<'E'; rm x\nx\nE", "cat <<'E' > file\nx\nE", "cat /etc/shadow <<'E'\nx\nE", "cat <<'E' <<F\nx\nE\n$(id)\nF",
    "sort --files0-from=- <<'E'\n/etc/passwd\nE", "cat <<'E' &\nx\nE",
])  # fmt: skip
def test_a_line_that_does_more_with_it_asks(tmp_path: Path, line: str) -> None:
    assert not allowed(line, tmp_path)


TEXT = st.text(st.sampled_from("$()`'\"\\ E\n<#{}~*x;|&"), max_size=60)


@settings(max_examples=examples(40))
@given(TEXT)
def test_what_counts_as_quoted_text_is_taken_as_it_is_by_bash(body: str) -> None:
    line = f"cat <<'E'\n{body}\nE"
    if without_quoted_text(line) is None:
        return
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=10, cwd="/", check=False)
    assert done.stdout == f"{body}\n" and not done.stderr
