"""A real llama.cpp server with real, small weights (`scripts/install_model_server.sh`)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / ".editors" / "bin" / "llama-server"
WEIGHTS = ROOT / "tests" / ".models" / "small.gguf"
BOUND = 120.0
"""Seconds for the server to load its model."""


class Server:
    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"

    def ask(self, path: str, body: object | None = None, seconds: float = BOUND) -> Any:
        """The JSON of a request of our own; `path` is below the server's root."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base_url.removesuffix("/v1") + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)

    def tokens(self, text: str) -> int:
        return len(self.ask("/tokenize", {"content": text})["tokens"])


@contextmanager
def llama(
    log: Path, *options: object, wait: bool = True, weights: Path = WEIGHTS, threads: int = 1
) -> Iterator[Server]:
    """One thread: two wait for each other where the machine does other work. Without `wait` it is still loading."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PROGRAM, "-m", weights, "--port", port, "-t", threads, "--no-webui", "--temp", 0, "--seed", 1, *options]
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with log.open("wb") as out, subprocess.Popen([*map(str, command)], stdout=out, stderr=out, env=environ) as process:
        server = Server(port)
        try:
            until = time.monotonic() + BOUND
            while wait:
                try:
                    server.ask("/health")
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                    assert time.monotonic() < until, "the server did not load its model"
                    time.sleep(0.1)
            yield server
        finally:
            process.kill()
