"""Measures redaction: about 50 MB of mixed output, one core, in bytes per second."""

from __future__ import annotations

import time
from pathlib import Path

from acp_agent.credentials.redactor import Redactor

SIZE = 50_000_000
CHUNK = 64 * 1024
SOURCES = Path(__file__).resolve().parent.parent / "acp_agent"


def mixed_text() -> str:
    """Build logs, source code, a lock file, test logs, and a few credentials among them."""
    build = "".join(
        f"[{n % 400:3}/400] Building CXX object src/CMakeFiles/core.dir/module_{n}.cpp.o\n"
        f"   Compiling serde_json v1.0.{n % 130} (registry+https://github.com/rust-lang/crates.io-index)\n"
        for n in range(4000)
    )
    lock = "".join(
        f'    "node_modules/package-{n}": {{\n      "version": "1.{n}.0",\n'
        f'      "resolved": "https://registry.npmjs.org/package-{n}/-/package-{n}-1.{n}.0.tgz",\n'
        f'      "integrity": "sha512-{n:064x}{n * 7:022x}=="\n    }},\n'
        for n in range(4000)
    )
    tests = "".join(
        f"tests/unit/test_module_{n % 90}.py::test_case_{n}[param-{n}] PASSED          [{n % 100:3}%]\n"
        for n in range(8000)
    )
    source = "".join(file.read_text(encoding="utf-8") for file in sorted(SOURCES.rglob("*.py")))
    few = f'export DEPLOY_TOKEN={"gh" + "p_" + "A1b2" * 9}\npassword: "{"hunter" + "22x"}"\n'
    part = build + few + source + lock + few + tests
    return part * (SIZE // len(part) + 1)


def redaction() -> float:
    """Bytes per second of `Redactor.redact` over the whole text."""
    text = mixed_text()
    redactor = Redactor(values=["the-agents-own-key-0123456789"])
    started = time.perf_counter()
    redactor.redact(text)
    return len(text.encode()) / (time.perf_counter() - started)


def streaming() -> float:
    """Bytes per second of a stream fed with 64 KiB at a time."""
    text = mixed_text()
    stream = Redactor(values=["the-agents-own-key-0123456789"]).stream()
    started = time.perf_counter()
    for at in range(0, len(text), CHUNK):
        stream.feed(text[at : at + CHUNK])
    stream.finish()
    return len(text.encode()) / (time.perf_counter() - started)


def prose() -> float:
    """Milliseconds for 2,000 pieces of prose of some 20 characters, as a model sends them."""
    words = "The parser reads a word and then looks at the next line of the file, which is long. "
    text = (words * 6 + "\n") * 200
    stream = Redactor(values=["the-agents-own-key-0123456789"]).stream()
    started = time.perf_counter()
    for n in range(2000):
        stream.feed(text[n * 20 : n * 20 + 20])
    return (time.perf_counter() - started) * 1000
