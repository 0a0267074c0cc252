"""Passes LSP between its stdin and a server, and records when each message passed: `lsp_tee.py LOG COMMAND ...`.

A line of LOG is a JSON list: seconds (monotonic), `to` or `from` the server, and the method, or `answer` and the method
of the answered request. Standard library only, so that it starts quickly.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import IO, Any, BinaryIO


def main() -> int:
    log = open(sys.argv[1], "a", encoding="utf-8")  # noqa: SIM115 - open as long as the process lives
    asked: dict[str, str] = {}

    def passes(way: str, source: IO[bytes], target: IO[bytes] | BinaryIO) -> None:
        while (header := _header(source)) is not None:
            length = int(header.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = source.read(length)
            now = time.monotonic()
            message: dict[str, Any] = json.loads(body)
            method = message.get("method", "")
            if way == "to" and "id" in message and method:
                asked[str(message["id"])] = method
            elif way == "from" and not method:
                method = "answer " + asked.pop(str(message.get("id")), "")
            log.write(json.dumps([now, way, method]) + "\n")
            log.flush()
            target.write(header + body)
            target.flush()
        target.close()

    with subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        there = threading.Thread(target=passes, args=("to", sys.stdin.buffer, process.stdin), daemon=True)
        there.start()
        passes("from", process.stdout, sys.stdout.buffer)
        return process.wait()


def _header(source: IO[bytes]) -> bytes | None:
    header = b""
    while not header.endswith(b"\r\n\r\n"):
        line = source.readline()
        if not line:
            return None
        header += line
    return header


if __name__ == "__main__":
    sys.exit(main())
