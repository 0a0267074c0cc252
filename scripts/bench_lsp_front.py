"""The language-server front: the delay of a streamed delta that passes through it (`acpCoder/update`)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PROMPT_ID = 2


def delays(command: Sequence[str], project: Path, environ: Mapping[str, str]) -> list[float]:
    """Milliseconds from the model's write of each delta, whose text is that time, to the editor's read.

    The model's first answer is for warming up.
    """
    process = subprocess.Popen(
        [*command, "lsp"],
        cwd=project,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    options = {"updates": True}
    folders = [{"uri": project.as_uri(), "name": "project"}]
    try:
        _send(
            process.stdin,
            {
                "id": 0,
                "method": "initialize",
                "params": {
                    "processId": None,
                    "rootUri": project.as_uri(),
                    "workspaceFolders": folders,
                    "capabilities": {"window": {"workDoneProgress": True}},
                    "initializationOptions": options,
                },
            },
        )
        _until(process.stdout, process.stdin, 0)
        _send(process.stdin, {"method": "initialized", "params": {}})
        _ask(process.stdin, 1)
        _until(process.stdout, process.stdin, 1)
        _ask(process.stdin, PROMPT_ID)
        return _until(process.stdout, process.stdin, PROMPT_ID)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=20)


def _ask(stream: IO[bytes], number: int) -> None:
    argument = {"text": "Say hello.", "wait": True}
    params = {"command": "acpCoder.prompt", "arguments": [argument]}
    _send(stream, {"id": number, "method": "workspace/executeCommand", "params": params})


def _send(stream: IO[bytes], message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    stream.flush()


def _until(stream: IO[bytes], answers: IO[bytes], number: int) -> list[float]:
    """Reads up to the answer to that request; returns the delays of the deltas before it. Raises RuntimeError."""
    late: list[float] = []
    while True:
        length = 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not length:
            raise RuntimeError("the front has ended")
        body = stream.read(length)
        now = time.monotonic_ns()
        message = json.loads(body)
        if message.get("method") == "acpCoder/update":
            update = message["params"]["update"]
            if update["sessionUpdate"] == "agent_message_chunk":
                stamps = [int(word) for word in update["content"]["text"].split() if word.isdigit()]
                late += [(now - stamp) / 1e6 for stamp in stamps]
        elif "method" in message and "id" in message:
            _send(answers, {"id": message["id"], "result": None})
        elif message.get("id") == number:
            if "error" in message:
                raise RuntimeError(message["error"]["message"])
            return late
