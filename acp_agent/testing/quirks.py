"""Quirks of files and terminals found in real editors: each is a switch, off by default."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import anyio
import msgspec

from acp_agent.client.fs import Files
from acp_agent.client.terminals import Terminals
from acp_agent.errors import InternalError, InvalidParams, ResourceNotFound
from acp_agent.schema import acp


class FileQuirks(TypedDict, total=False):
    """Quirks of an editor's files."""

    reads_below: Path | None
    """Files outside this folder are not read."""
    missing_file_reads_empty: bool
    missing_file_is_internal_error: bool
    ignores_line_and_limit: bool
    reads_lossy: bool
    """Bytes that are not UTF-8 are dropped, and every line end becomes a line feed."""
    write_does_nothing: bool
    write_needs_parent: bool
    write_answers_null: bool


class TerminalQuirks(TypedDict, total=False):
    """Quirks of an editor's terminals."""

    join_for_shell: bool
    crlf_output: bool
    wait_never_answers_after_kill: bool
    nothing_is_killed: bool
    """`kill` fails and `release` lets the command continue to run."""


class QuirkyFiles(Files):
    def __init__(self, buffers: dict[Path, str], *, save: bool, quirks: FileQuirks) -> None:
        super().__init__(buffers=buffers, save=save)
        self._quirks = quirks

    async def read(self, request: acp.ReadTextFileRequest) -> acp.ReadTextFileResponse:
        below = self._quirks.get("reads_below")
        if below is not None and not Path(request.path).is_relative_to(below):
            raise InvalidParams(f"{request.path} is outside of {below}")
        if self._quirks.get("ignores_line_and_limit"):
            request = msgspec.structs.replace(request, line=None, limit=None)
        if self._quirks.get("reads_lossy") and await anyio.Path(request.path).is_file():
            return acp.ReadTextFileResponse(content=await anyio.Path(request.path).read_text("utf-8", "ignore"))
        try:
            return await super().read(request)
        except ResourceNotFound as error:
            if self._quirks.get("missing_file_reads_empty"):
                return acp.ReadTextFileResponse(content="")
            if self._quirks.get("missing_file_is_internal_error"):
                raise InternalError("Internal error", {"details": error.message}) from error
            raise

    async def write(self, request: acp.WriteTextFileRequest) -> acp.WriteTextFileResponse | None:
        if self._quirks.get("write_needs_parent") and not await anyio.Path(request.path).parent.is_dir():
            raise InternalError(f"cannot write {request.path}: No such file or directory")
        answer = acp.WriteTextFileResponse() if self._quirks.get("write_does_nothing") else await super().write(request)
        return None if self._quirks.get("write_answers_null") else answer


class QuirkyTerminals(Terminals):
    def __init__(self, quirks: TerminalQuirks) -> None:
        super().__init__(join_for_shell=quirks.get("join_for_shell", False))
        self._quirks = quirks
        self._killed: set[str] = set()

    async def kill(self, request: acp.KillTerminalRequest) -> acp.KillTerminalResponse:
        self._killed.add(request.terminal_id)
        if self._quirks.get("nothing_is_killed"):
            raise InvalidParams("Invalid params")
        return await super().kill(request)

    async def release(self, request: acp.ReleaseTerminalRequest) -> acp.ReleaseTerminalResponse:
        return (
            acp.ReleaseTerminalResponse() if self._quirks.get("nothing_is_killed") else await super().release(request)
        )

    async def wait_for_exit(self, request: acp.WaitForTerminalExitRequest) -> acp.WaitForTerminalExitResponse:
        answer = await super().wait_for_exit(request)
        if self._quirks.get("wait_never_answers_after_kill") and request.terminal_id in self._killed:
            await anyio.sleep_forever()
        return answer

    async def output(self, request: acp.TerminalOutputRequest) -> acp.TerminalOutputResponse:
        answer = await super().output(request)
        crlf = self._quirks.get("crlf_output")
        return msgspec.structs.replace(answer, output=answer.output.replace("\n", "\r\n")) if crlf else answer
