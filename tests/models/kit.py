"""A real llama.cpp server with real, small weights (`scripts/install_model_server.sh`)."""

import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / ".editors" / "bin" / "llama-server"
WEIGHTS = ROOT / "tests" / ".models" / "small.gguf"
KEY = "sk-only-on-this-machine"
LITELLM = ROOT / "tests" / ".models" / "litellm" / "bin" / "litellm"
BOUND = 120.0
"""Seconds for the server to load its model."""


class Server:
    def __init__(self, port: int) -> None:
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, path: str, body: object | None = None, seconds: float = BOUND) -> Any:
        """The JSON of a request of our own; `path` is below the server's root."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base_url.removesuffix("/v1") + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)

    def wait(self, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
        """Until it answers there."""
        until = time.monotonic() + BOUND
        while True:
            try:
                self.ask(path)
                return
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                assert time.monotonic() < until, "the server did not start in time"
                time.sleep(0.1)

    def tokens(self, text: str) -> int:
        return len(self.ask("/tokenize", {"content": text})["tokens"])


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def llama(
    log: Path, *options: object, wait: bool = True, weights: Path = WEIGHTS, threads: int = 1, port: int = 0
) -> Iterator[Server]:
    """One thread: two wait for each other where the machine does other work. Without `wait` it is still loading."""
    port = port or free_port()
    command = [PROGRAM, "-m", weights, "--port", port, "-t", threads, "--no-webui", "--temp", 0, "--seed", 1, *options]
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with log.open("wb") as out, subprocess.Popen([*map(str, command)], stdout=out, stderr=out, env=environ) as process:
        server = Server(port)
        server.process = process
        try:
            if wait:
                server.wait("/health", process, log)
            yield server
        finally:
            process.kill()


class Proxy(ThreadingHTTPServer):
    """In front of a server: passes everything on, requests for an answer after `edit` has changed their body. `edit`
    may also answer in the server's place, with the name and arguments of a call. `timings`: the server's own count for
    each answer (`prompt_n`: tokens read, `cache_n`: tokens it still knew)."""

    daemon_threads = True

    def __init__(self, server: Server, edit: Callable[[int, dict[str, Any]], tuple[str, object] | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = server.base_url.removesuffix("/v1")
        self.edit = edit
        self.asked = 0
        self.timings: list[dict[str, Any]] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Passing(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/chat/completions"):
            self.server.asked += 1
            asked = json.loads(body)
            if (call := self.server.edit(self.server.asked, asked)) is not None:
                self._call(*call)
                return
            body = json.dumps(asked).encode()
        self._pass_on(body)

    def _call(self, name: str, arguments: object) -> None:
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call{self.server.asked}", "type": "function", "function": function}
        self._head(200, "text/event-stream")
        for delta, reason in (({"role": "assistant", "tool_calls": [call]}, None), ({}, "tool_calls")):
            chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _pass_on(self, body: bytes | None) -> None:
        request = urllib.request.Request(self.server.target + self.path, body, {"Content-Type": "application/json"})
        try:
            answer = urllib.request.urlopen(request, timeout=BOUND)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self._head(answer.status, answer.headers["Content-Type"])
            for line in answer:
                if b'"timings"' in line:
                    self.server.timings.append(json.loads(line.removeprefix(b"data: "))["timings"])
                self.wfile.write(line)
                self.wfile.flush()

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def litellm(folder: Path, server: Server) -> Iterator[str]:
    """The base URL of a LiteLLM proxy in front of the server; it has the model `small`."""
    config = {
        "model_list": [
            {
                "model_name": "small",
                "litellm_params": {"model": "openai/small", "api_base": server.base_url, "api_key": "none"},
            }
        ]
    }
    (folder / "litellm.yaml").write_text(json.dumps(config))
    port = free_port()
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": KEY,
    }  # fmt: skip
    command = [LITELLM, "--config", folder / "litellm.yaml", "--host", "127.0.0.1", "--port", port]
    log = folder / "litellm.log"
    with log.open("wb") as out, subprocess.Popen([*map(str, command)], stdout=out, stderr=out, env=environ) as process:
        proxy = Server(port)
        try:
            proxy.wait("/health/liveliness", process, log)
            yield proxy.base_url
        finally:
            process.kill()
