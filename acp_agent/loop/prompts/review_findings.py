"""Findings of a review: lines `path:line: error|warning|info: message`, as compilers write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, cast

from msgspec import Struct

from acp_agent.errors import ToolError
from acp_agent.safety.folders.paths import Roots

LINE = re.compile(
    r"^[ \t*`#>-]{0,6}([\w./][^:\n*`]*)`?:(\d{1,7})(?:[-:]\d+)?[:\s*`]{1,6}(error|warning|info)[:\s*`]{1,6}(.+)$",
    re.MULTILINE,
)
MAX_FINDINGS = 200
MAX_MESSAGE = 500

Severity = Literal["error", "warning", "info"]


class Finding(Struct, frozen=True):
    """As `_meta.findings` says it to clients."""

    path: str
    line: int
    """1-based."""
    severity: Severity
    message: str


def findings(text: str, roots: Roots) -> Iterator[Finding]:
    """Those whose files are in the session's folders."""
    for number, match in enumerate(LINE.finditer(text)):
        if number >= MAX_FINDINGS:
            return
        try:
            path = roots.resolve(match[1].strip())
        except ToolError:
            continue
        line = int(match[2])
        if line and roots.disk.kind(path) == "file":
            yield Finding(str(path), line, cast(Severity, match[3]), match[4].strip(" *`")[:MAX_MESSAGE])
