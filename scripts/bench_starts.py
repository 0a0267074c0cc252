"""How long agents take from their start to the answer to `initialize`: `scripts/bench_starts.py NAME=COMMAND ...`.

Each is started ROUNDS times, in turn with the others, in an empty home folder; the first round is not counted. Prints
the median, the least and the most in ms, for docs/comparison.md. Asserts nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 11
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}}},
}  # fmt: skip


def started(command: list[str], home: str) -> float:
    """Milliseconds until the answer."""
    keys = {"OPENAI_API_KEY": "none", "GEMINI_API_KEY": "none"}
    environ = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", **keys}
    begun = time.perf_counter()
    with subprocess.Popen(
        command, cwd=home, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as agent:
        try:
            assert agent.stdin is not None and agent.stdout is not None
            agent.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
            agent.stdin.flush()
            while b'"protocolVersion"' not in (line := agent.stdout.readline()):
                assert line, f"{command[0]} ended"
            return (time.perf_counter() - begun) * 1000
        finally:
            agent.kill()


def main() -> None:
    agents = {name: shlex.split(command) for name, _, command in (word.partition("=") for word in sys.argv[1:])}
    times: dict[str, list[float]] = {name: [] for name in agents}
    with tempfile.TemporaryDirectory() as home:
        for number in range(ROUNDS + 1):
            for name, command in agents.items():
                taken = started(command, home)
                times[name] += [taken] if number else []
    for name, each in sorted(times.items(), key=lambda item: statistics.median(item[1])):
        sys.stdout.write(f"{name:20} {statistics.median(each):6.0f} {min(each):6.0f} {max(each):6.0f}\n")


if __name__ == "__main__":
    main()
