"""A small ACP client that keeps every requirement that the kit's agent asks for, for tests of the kit; not for use.

    python small_client.py FOLDER AGENT ...

`FAULT=ID` gives it the one fault that the question of that id must find.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from acp_agent.client.permissions import allow_once, cancelled
from acp_agent.client.spawn import agent_process
from acp_agent.errors import InternalError, InvalidParams, MethodNotFound
from acp_agent.protocol.transports import Transport
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor

OPTIONS: dict[str, dict[str, Any]] = {
    "CINIT-2": {"info": None}, "CFS-2": {"ignores_line_and_limit": True}, "CFS-3": {"missing_file_reads_empty": True},
    "CFS-4": {"missing_file_is_internal_error": True}, "CFS-8": {"write_needs_parent": True},
    "CTERM-2": {"join_for_shell": True},
}  # fmt: skip
"""Faults that `FakeEditor` has as options."""
ENDS_AT: dict[str, str] = {
    "CRPC-5": "kit: a line of a log", "CRPC-7": '"id": 4711, "result"', "CRPC-9": '"kit-none"',
    "CUPD-1": "usage_update", "CUPD-2": '"sessionUpdate":"kit_unknown"',
}  # fmt: skip
"""Faults that end the client: at a line with this in it."""
BIG = 1024 * 1024
CANCELLED = b"-32800"
IMAGE = acp.ImageContent(data="AAAA", mime_type="image/png")
TEXT = acp.TextContent(text="Ask me")


class FaultyWire:
    """A transport with the faults of lines."""

    def __init__(self, inner: Transport, fault: str) -> None:
        self._inner = inner
        self._fault = fault
        self._rest = b""
        self.close = inner.close

    async def read(self) -> bytes:
        while True:
            data = await self._inner.read()
            if not data:
                return b""
            *lines, self._rest = (self._rest + data).split(b"\n")
            kept = [line + b"\n" for line in lines if await self._takes(line)]
            if kept:
                return b"".join(kept)

    async def _takes(self, line: bytes) -> bool:
        if (ends := ENDS_AT.get(self._fault)) and ends.encode() in line:
            self.close()
        if self._fault == "CRPC-4" and b'"kit/unknown"' in line and b'"id"' not in line:
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no"}}
            await self._inner.write(json.dumps(error).encode() + b"\n")
        return not (self._fault == "CRPC-6" and len(line) > BIG)

    async def write(self, data: bytes) -> None:
        if self._fault == "CRPC-1":
            data = data.replace(b'"id":"kit"', b'"id":"other"')
        if self._fault == "CRPC-8" and CANCELLED in data:
            return
        if self._fault == "CINIT-5":
            data = data.replace(b'"method":"initialize"', b'"method":"initialize","more":1')
        await self._inner.write(data)


class SmallClient:
    def __init__(self, transport: Transport, cwd: Path, fault: str = "", **options: Any) -> None:
        self.cwd = cwd
        self.fault = fault
        self.killed: set[str] = set()
        self.one_by_one = anyio.Lock()
        given = {"elicitation": self.elicit, "check": False, **OPTIONS.get(fault, {}), **options}
        self.editor = FakeEditor(FaultyWire(transport, fault), otherwise=self.permit, **given)
        self.serve = self.editor.client.handle_request
        self.editor.client.handle_request = self.handle  # type: ignore[method-assign]

    async def prompt(self) -> None:
        async with self.editor as editor:
            await editor.start()
            servers = [acp.McpServerHttp(name="kit", url="http://localhost/", headers=[])]
            await editor.new_session(self.cwd, mcp_servers=servers if self.fault == "CINIT-3" else [])
            blocks: Any = [TEXT, IMAGE] if self.fault == "CINIT-4" else [TEXT]
            named = "another" if self.fault == "CINIT-1" else None
            await editor.prompt(blocks, session_id=named, seconds=100)
            editor.violations.clear()  # The agent sends what is no message on purpose.

    # --- what the user says ---------------------------------------------------------------------------------------

    async def permit(self, request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        if "Stop the turn" in str(request.tool_call.title):
            self.editor.cancel()
            return await (allow_once if self.fault == "CPERM-2" else cancelled)(request)
        return acp.SelectedPermissionOutcome(option_id="9") if self.fault == "CPERM-1" else await allow_once(request)

    async def elicit(self, request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        return acp.CreateElicitationResponse(
            action="accept", content={"word": 3 if self.fault == "CELIC-1" else "pear"}
        )

    # --- what the agent asks --------------------------------------------------------------------------------------

    async def handle(self, method: str, params: Any) -> Any:
        if self.fault == "CUPD-3" and "_meta" in params:
            raise InvalidParams("_meta is unknown")
        if method.startswith("fs/") and self.fault != "CFS-9" and not Path(params["path"]).is_relative_to(self.cwd):
            raise InvalidParams("this is not in the project")
        if self.fault == "CRPC-10":
            async with self.one_by_one:
                return await self.answer(method, params)
        try:
            return await self.answer(method, params)
        except MethodNotFound as error:
            raise InternalError("no") if self.fault == "CRPC-2" else error from error
        except InvalidParams as error:
            raise InternalError("no") if self.fault == "CRPC-3" else error from error

    async def answer(self, method: str, params: Any) -> Any:
        params = await self.changed(method, params)
        if await self.ended(method, params):
            return {}
        result = await self.serve(method, params)
        if method == "terminal/kill":
            self.killed.add(params["terminalId"])
        if self.fault == "CTERM-1" and method == "terminal/create":
            await self.serve("terminal/wait_for_exit", {**params, "terminalId": result.terminal_id})
        told = self.told(method, params, msgspec.to_builtins(result))
        return msgspec.to_builtins(result) if told is None else {**msgspec.to_builtins(result), **told}

    async def changed(self, method: str, params: Any) -> Any:
        """What is served instead."""
        match self.fault, method:
            case "CFS-5", "fs/write_text_file" if not Path(params["path"]).exists():
                raise InternalError("there is no such file")
            case "CFS-6", "fs/write_text_file" if Path(params["path"]).exists():
                return {**params, "content": Path(params["path"]).read_text() + params["content"]}
            case "CFS-7", "fs/write_text_file":
                return {**params, "content": params["content"].replace("\r\n", "\n")}
            case "CTERM-3", "terminal/create":
                return {**params, "env": []}
            case "CTERM-13", "terminal/create" if params["command"] == "kit-no-such-program":
                return {**params, "command": "true"}
            case "CTERM-9", "terminal/output" if params["terminalId"] in self.killed:
                raise InternalError("it was killed")
        return params

    async def ended(self, method: str, params: Any) -> bool:
        """Whether it was, otherwise than it should."""
        terminals = self.editor.terminals
        key = (params.get("sessionId"), params.get("terminalId"))
        if (self.fault, method) == ("CTERM-12", "terminal/kill"):
            os.kill(terminals._open[key]._process.pid, signal.SIGKILL)
        elif (self.fault, method) == ("CTERM-10", "terminal/release"):
            del terminals._open[key]
        elif (self.fault, method) == ("CTERM-11", "terminal/release"):
            await terminals._open[key].kill()
        else:
            return False
        return True

    def told(self, method: str, params: Any, result: Any) -> dict[str, Any] | None:
        """What is in the answer instead."""
        match self.fault, method:
            case "CFS-1", "fs/read_text_file" if "line" not in params and not result["content"].endswith("\r\n"):
                return {"content": result["content"].rstrip("\n")}
            case "CFS-10", "fs/read_text_file":
                return {"content": result["content"].replace("\r\n", "\n")}
            case "CTERM-4", "terminal/output":
                return {"truncated": True}
            case "CTERM-5", "terminal/wait_for_exit" if result.get("exitCode") == 3:
                return {"exitCode": 0}
            case "CTERM-6", "terminal/wait_for_exit" if result.get("signal"):
                return {"exitCode": 143, "signal": None}
            case "CTERM-7", "terminal/output":
                return {"truncated": False}
            case "CTERM-8", "terminal/output" if result["truncated"]:
                return {"output": "\ufffd" + result["output"][2:]}
        return None


async def main(folder: str, agent: Sequence[str]) -> None:
    cwd = Path(folder)
    async with agent_process(agent, cwd=cwd, env=dict(os.environ)) as process:
        await SmallClient(process.transport, cwd, os.environ.get("FAULT", "")).prompt()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
