"""The `rawOutput` of a shell command's tool call."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

MAX_STREAM_CHARS = 100_000
"""Characters of one stream: `rawOutput` is sent in one message."""

NO_OUTPUT = "[no output, exit code 0]"
"""The text for the model if a command succeeded without output."""


class ShellOutput(msgspec.Struct, frozen=True):
    stdout: Annotated[str, Meta(description="Standard output; both streams if a terminal merged them.")]
    stderr: Annotated[str, Meta(description="Standard error.")]
    exit_code: Annotated[int | None, Meta(description="null if a signal or a timeout ended the command.")]
    truncated: Annotated[bool, Meta(description="Whether output was left out.")]

    def as_json(self, limit: int = MAX_STREAM_CHARS) -> dict[str, Any]:
        """Returns plain JSON data, each stream cut in the middle to `limit` characters."""
        stdout, stderr = bounded(self.stdout, limit), bounded(self.stderr, limit)
        truncated = self.truncated or stdout != self.stdout or stderr != self.stderr
        return {"stdout": stdout, "stderr": stderr, "exit_code": self.exit_code, "truncated": truncated}


def bounded(text: str, limit: int) -> str:
    """`text` with its middle left out if it is longer than `limit`."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters omitted ...]\n{text[-half:]}"
