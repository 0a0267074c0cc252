"""An agent on stdio that is a server: starts `acp-coder serve` for itself, and passes lines between its own stdin and
stdout and a WebSocket. So the checks of the kit drive the server."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import websockets

COMMAND = str(Path(sys.executable).with_name("acp-coder"))
LARGEST = 64 * 1024 * 1024


async def begun(server: asyncio.subprocess.Process) -> tuple[str, str]:
    """Address and token, as the server prints them."""
    assert server.stdout is not None
    token = ""
    while line := (await server.stdout.readline()).decode():
        if found := re.search(r"shown only now: (\S+)", line):
            token = found[1]
        if found := re.search(r"Serving ACP at (ws\S+)", line):
            return found[1], token
    raise SystemExit("the server did not start")


async def passed(command: list[str]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LARGEST)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        server = await asyncio.create_subprocess_exec(
            *command, "--port", "0", "--token-file", str(Path(folder, "tokens.json")), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            url, token = await begun(server)
            headers = {"Authorization": f"Bearer {token}"}
            async with websockets.connect(url, additional_headers=headers, max_size=None, compression=None) as socket:
                stopped = asyncio.Event()
                loop.add_signal_handler(signal.SIGTERM, stopped.set)
                ways = [asyncio.ensure_future(each) for each in (sent(reader, socket), told(socket), stopped.wait())]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for each in ways:
                    each.cancel()
        finally:
            server.terminate()
            await server.wait()


async def sent(reader: asyncio.StreamReader, socket: websockets.ClientConnection) -> None:
    while line := await reader.readline():
        if line.strip():  # One that is empty is no message, so it is no frame.
            await socket.send(line.decode("utf-8", "replace").removesuffix("\n"))


async def told(socket: websockets.ClientConnection) -> None:
    async for frame in socket:
        assert isinstance(frame, str)
        sys.stdout.buffer.write(frame.encode() + b"\n")
        sys.stdout.buffer.flush()


asyncio.run(passed([os.environ.get("SERVER", COMMAND), "serve"]))
