"""Diagnostics after an edit of a Python file of 2,000 lines: what the agent adds to the servers' own time.

basedpyright and ruff run behind a tee (`lsp_tee.py`) that records when each message passed. So the servers' time, from
`didChange` to the last answer with diagnostics, is that of the very same edit.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

from acp_agent.config.language_settings import LspConfig
from acp_agent.lsp.base import Document, Launch, NewErrors
from acp_agent.lsp.own_servers import OwnServers

LINES = 2000
ROUNDS = 10
CONFIG = LspConfig(edit_wait=60.0, start_timeout=60.0)
TEE = str(Path(__file__).with_name("lsp_tee.py"))
CHANGE = "textDocument/didChange"
DIAGNOSTICS = ("answer textDocument/diagnostic", "textDocument/publishDiagnostics")


def measure(rounds: int = ROUNDS, lines: int = LINES) -> list[tuple[float, float]]:
    """For each edit: milliseconds of `new_errors`, and the part of them taken by the slower server itself."""
    with tempfile.TemporaryDirectory(prefix="bench-lsp-") as name:
        return anyio.run(functools.partial(_measure, Path(name).resolve(), rounds, lines))


async def _measure(folder: Path, rounds: int, lines: int) -> list[tuple[float, float]]:
    environ = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    logs: list[Path] = []

    async def launch(argv: Sequence[str], cwd: Path) -> Launch:
        logs.append(folder / f"{len(logs)}.log")
        return Launch([sys.executable, "-S", TEE, str(logs[-1]), *argv], cwd, environ)

    servers = OwnServers(CONFIG, [folder], launch, environ=environ, hides=lambda _: False, tell=_complain)
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    document = _write(folder / "module.py", source(lines))
    samples: list[tuple[float, float]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        await servers.diagnostics([document])
        for number in range(rounds):
            after = _write(document.path, _edited(document.text, number))
            begun = time.monotonic()
            found: NewErrors = await servers.new_errors(document, after)
            took = time.monotonic() - begun
            assert len(found.errors) == 1
            assert not found.waiting
            samples.append((took * 1000, max(_own(log, begun) for log in logs) * 1000))
            document = after
        tasks.cancel_scope.cancel()
    return samples


def _complain(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")


def _own(log: Path, since: float) -> float:
    """Seconds from the change to the last diagnostics that a server sent for it."""
    passed: list[tuple[float, str, str]] = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    changed = min(when for when, way, method in passed if when >= since and method == CHANGE)
    return max(when for when, way, method in passed if when >= changed and method in DIAGNOSTICS) - changed


def _write(path: Path, text: str) -> Document:
    path.write_text(text, encoding="utf-8")
    return Document(path, text)


def _edited(text: str, number: int) -> str:
    """Adds a line with a type error, between two functions in the middle."""
    lines = text.split("\n")
    lines.insert(1 + 8 * (len(lines) // 16), f"wrong_{number}: int = 'text'")
    return "\n".join(lines)


def source(lines: int) -> str:
    """A module of `lines` lines: alternating assignments and functions, without errors."""
    block = (
        "\n\ndef step_{n}(values: list[int], factor: int = {n}) -> dict[str, int]:\n"
        '    """Step {n}."""\n'
        "    total = sum(value * factor for value in values)\n"
        "    names = {{str(value): value for value in values if value % 2}}\n"
        '    names["total"] = total\n'
        "    return names\n"
    )
    text = "from __future__ import annotations\n" + "".join(block.format(n=n) for n in range((lines - 1) // 8))
    return text + "\n" * (lines - text.count("\n"))


if __name__ == "__main__":
    for took, own in measure():
        sys.stdout.write(f"{took:.1f} ms, of them the servers' own {own:.1f} ms: {took - own:.1f} ms added\n")
