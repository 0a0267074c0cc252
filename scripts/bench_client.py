"""A client for benchmarks: it does as little as a client can, so that what is measured is the agent."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROMPT = "Say hello."

Event = tuple[float, dict[str, Any]]
"""When a message was read (seconds, monotonic), and the message."""


class Client:
    """An agent as a child process, with a minimal client over pipes with blocking reads."""

    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        environ: Mapping[str, str],
        capabilities: dict[str, Any] | None = None,
        *,
        v2: bool = False,
    ) -> None:
        """`v2`: it speaks v2 of ACP; a prompt is answered by the end of its turn."""
        self._v2 = v2
        self.project = home / "project"
        self.project.mkdir(exist_ok=True)
        self.capabilities = capabilities or {}
        self.scripts: list[str] = []
        """The script files of the requested terminals."""
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        self._lines: list[bytes] = []
        self._partial = b""
        self._read_at = 0.0
        self._next_id = 0
        self.spawned = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, bufsize=0
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()

    # --- messages -------------------------------------------------------------------------------------------------

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._next_id += 1
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def _write(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._in, data) :]

    def receive(self) -> Event:
        """Returns the next message, answering the agent's requests on the way."""
        while True:
            while not self._lines:
                data = os.read(self._out, 1 << 20)
                self._read_at = time.monotonic()
                if not data:
                    raise RuntimeError("the agent has ended")
                *self._lines, self._partial = (self._partial + data).split(b"\n")
                self._lines.reverse()
            message: dict[str, Any] = json.loads(self._lines.pop())
            if "method" in message and "id" in message:
                result = self._serve(message["method"], message["params"])
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
                continue
            return self._read_at, message

    def until(self, *ids: int) -> list[Event]:
        """Reads everything up to the last of these answers."""
        open_ = set(ids)
        events: list[Event] = []
        while open_:
            events.append(self.receive())
            message = events[-1][1]
            if "error" in message:
                raise RuntimeError(str(message["error"]))
            update = message["params"]["update"] if message.get("method") == "session/update" else {}
            if update.get("stopReason"):
                open_.difference_update(ids)
            if "method" not in message and "messageId" not in (message["result"] or {}):
                open_.discard(message["id"])
        return events

    def _serve(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        terminal = str(params.get("terminalId"))
        if method == "terminal/create":
            terminal = f"t{len(self.scripts)}"
            self.scripts.append(params["args"][0])
            environ = {**os.environ, **{pair["name"]: pair["value"] for pair in params["env"]}}
            self._terminals[terminal] = start([params["command"], *params["args"]], params["cwd"], environ)
            return {"terminalId": terminal}
        if method == "terminal/wait_for_exit":
            return {"exitCode": self._terminals[terminal].wait(), "signal": None}
        if method == "terminal/output":
            status = {"exitCode": self._terminals[terminal].poll(), "signal": None}
            return {"output": "", "truncated": False, "exitStatus": status}
        if method == "terminal/release":
            finish(self._terminals.pop(terminal))
        return {}

    # --- a conversation -------------------------------------------------------------------------------------------

    def initialize(self) -> float:
        params: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": self.capabilities}
        if self._v2:
            params = {"protocolVersion": 2, "capabilities": {}, "info": {"name": "bench", "version": "1"}}
        return self.until(self.send("initialize", params))[-1][0]

    def new_session(self) -> tuple[str, float]:
        at, answer = self.until(self.send("session/new", {"cwd": str(self.project), "mcpServers": []}))[-1]
        return answer["result"]["sessionId"], at

    def set_mode(self, session: str, mode: str) -> None:
        self.until(self.send("session/set_mode", {"sessionId": session, "modeId": mode}))

    def ask(self, session: str, text: str = PROMPT) -> int:
        return self.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def prompt(self, session: str, text: str = PROMPT) -> float:
        """Runs one turn; returns its time in ms."""
        started = time.monotonic()
        return (self.until(self.ask(session, text))[-1][0] - started) * 1000

    def cpu(self) -> float:
        """The agent's CPU time so far in ms, from the kernel's clock of that process."""
        return time.clock_gettime(~self.process.pid << 3 | 2) * 1000

    def memory(self) -> float:
        """Returns the current memory of the process, in MiB."""
        return self._status("VmRSS:")

    def peak_memory(self) -> float:
        """The peak memory, in MiB."""
        return self._status("VmHWM:")

    def _status(self, name: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(name)[2].split()[0]) / 1024

    def close(self) -> float:
        """Closes stdin and waits; returns the time in ms until the process was gone."""
        assert self.process.stdin is not None and self.process.stdout is not None
        started = time.monotonic()
        self.process.stdin.close()
        self.process.wait()
        took = (time.monotonic() - started) * 1000
        self.process.stdout.close()
        return took


def start(command: list[str], cwd: str | Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """A command with pipes, started like in a client's terminal and by the agent itself."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def text_of(events: Sequence[Event]) -> list[tuple[float, str]]:
    """Returns the model's text, with each chunk's time of arrival."""
    updates = ((at, message["params"]["update"]) for at, message in events if message.get("method") == "session/update")
    return [(at, one["content"]["text"]) for at, one in updates if one["sessionUpdate"] == "agent_message_chunk"]
