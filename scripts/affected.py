"""`make affected`: runs the tiers whose folders changed since `main` (or since the commit given), cheapest first.

With --print it only names them. What is not in the table below belongs to `make test`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("acp_agent/executors/", ("test", "test-system")),
    ("acp_agent/proxying", ("test", "test-system")),
    ("acp_agent/fronts/server/", ("test", "test-system")),
    ("acp_agent/store/", ("test", "test-system")),
    ("acp_agent/undo/", ("test", "test-system")),
    ("acp_agent/lsp/", ("test", "test-system")),
    ("acp_agent/loop/shell/", ("test", "test-system")),
    ("acp_agent/tools/terminal/", ("test", "test-system")),
    ("acp_agent/protocol/", ("test", "test-v2", "test-conformance")),
    ("acp_agent/schema/", ("test", "test-v2", "test-conformance")),
    ("acp_agent/client/", ("test", "test-conformance")),
    ("acp_agent/testing/", ("test", "test-conformance")),
    ("kit/", ("test", "test-conformance")),
    ("acp_agent/llm/", ("test", "test-models")),
    ("acp_agent/fronts/lsp_server/", ("test", "test-system", "test-editors")),
    ("acp_agent/fronts/", ("test", "test-system")),
    ("acp_agent/commands/", ("test", "test-system")),
    ("acp_agent/safety/", ("test", "test-system")),
    ("acp_agent/setup/", ("test", "test-editors")),
    ("acp_agent/", ("test",)),
    ("editors/", ("test", "test-system", "test-editors")),
    ("deploy/", ("test-system",)),
    ("tests/system/", ("test-system",)),
    ("tests/conformance/", ("test-conformance",)),
    ("tests/models/", ("test-models",)),
    ("tests/editors/", ("test-editors",)),
    ("tests/v2_wire.py", ("test-v2",)),
    ("tests/", ("test",)),
    ("evals/", ("test", "test-system")),
    ("docs/", ("test",)),
    ("", ("check",)),
)
"""The first row whose beginning a changed path has says what is run for it. `check` is always run."""
ORDER = ("check", "test", "test-v2", "test-conformance", "test-system", "test-models", "test-editors")


def tiers(changed: list[str]) -> list[str]:
    """The targets of make for these paths, in the order in which they cost."""
    wanted = {"check"} if changed else set()
    for path in changed:
        wanted |= set(next(targets for beginning, targets in ROWS if path.startswith(beginning)))
    return [target for target in ORDER if target in wanted]


def changed_since(base: str) -> list[str]:
    """Paths that differ from where this branch left `base`, committed or not. Raises CalledProcessError."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()

    (left,) = git("merge-base", "HEAD", base)
    return sorted({*git("diff", "--name-only", left), *git("ls-files", "--others", "--exclude-standard")})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", nargs="?", default="main")
    parser.add_argument("--print", action="store_true", dest="only_print")
    wanted = parser.parse_args()
    try:
        targets = tiers(changed_since(wanted.base))
    except subprocess.CalledProcessError as error:
        sys.exit(f"git does not know {wanted.base!r}: {error.stderr.strip()}. Name a commit: make affected BASE=COMMIT")
    sys.stdout.write(f"{' '.join(targets) or 'nothing has changed'}\n")
    sys.stdout.flush()
    return (
        0 if wanted.only_print or not targets else subprocess.run(["make", *targets], cwd=ROOT, check=False).returncode
    )


if __name__ == "__main__":
    sys.exit(main())
