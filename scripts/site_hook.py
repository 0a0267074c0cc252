"""For mkdocs: the names of samples (```toml sample=NAME), which a test reads, are no part of the site."""

from __future__ import annotations

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    return re.sub(r"^(```\w+) sample=\S+$", r"\1", markdown, flags=re.MULTILINE)
