"""The blocks and command lines of the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name for name in ("evals/README.md", "kit/README.md")),
    *sorted((ROOT / "editors").glob("*.md")), *sorted((ROOT / "editors/vscode").glob("README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]  # fmt: skip
BLOCK = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |- run: )?(?:uvx )?(acp-(?:coder|conformance)\b.*)$")


class Block(NamedTuple):
    place: str
    """`docs/server.md:62`."""
    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines that begin with `acp-coder` or `acp-conformance`, without their comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [re.sub(r"\s+# .*", "", found[1]) for line in lines if (found := COMMAND.match(line.strip()))]


def blocks(*kinds: str, page: Path | None = None) -> Iterator[Block]:
    """Those of these kinds, of one page or of all."""
    for each in PAGES if page is None else [page]:
        text = each.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            if found[3] in kinds:
                place = f"{each.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
                yield Block(place, found[3], re.sub(f"^{found[1]}", "", found[4], flags=re.MULTILINE))
