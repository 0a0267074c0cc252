"""Calls that a server answers later: the extension `io.modelcontextprotocol/tasks` (SEP-2663).

It is asked how far its task is until that has ended; what it wants to know meanwhile is answered. For whoever waits it
is a call that takes long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, NoReturn

import anyio
import mcp_types as types
from mcp.client.extension import ClaimContext, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from acp_agent.mcp.base import McpError, Progress
from acp_agent.mcp.content import one_line
from acp_agent.mcp.mending import mended

EXTENSION = "io.modelcontextprotocol/tasks"
LEAST_PAUSE, PAUSE, MOST_PAUSE = 0.2, 1.0, 30.0
"""Seconds between two looks, where the server asks for less, nothing or more."""
CANCEL_SECONDS = 5.0
"""For telling the server that nobody waits any more."""
ENDED = ("completed", "failed", "cancelled")
QUESTIONS = 20
"""Times that a task may ask for something."""

Ask = Callable[[str, types.InputRequest], Awaitable[types.InputResponse | types.ErrorData]]
"""The key of a question, and what is answered to it."""


class CallTask(types.Result):
    """How far it is; the answer to a call that became one."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: float | None = None


class _TaskState(types.Result):
    """The answer to `tasks/get`."""

    status: str
    status_message: str | None = None
    poll_interval_ms: float | None = None
    result: dict[str, Any] | None = None
    error: types.ErrorData | None = None
    input_requests: dict[str, types.InputRequest] | None = None


class _TaskRequest(types.Request[dict[str, Any], str]):
    name_param = "taskId"


async def _elsewhere(task: CallTask, context: ClaimContext) -> NoReturn:
    raise AssertionError("`finished` is used")


CLAIMS = {EXTENSION: [ResultClaim(result_type="task", model=CallTask, resolve=_elsewhere)]}
"""What makes the package offer the extension, to servers whose protocol has it."""


async def finished(session: ClientSession, task: CallTask, ask: Ask, say: Progress) -> types.CallToolResult:
    """What the call returns. Cancels the task if nobody waits for it any more. Raises McpError, MCPError."""
    # What it has come to is in the answer to `tasks/get` alone, also if it has ended already.
    id_, state, answered = task.task_id, _TaskState(status="", poll_interval_ms=task.poll_interval_ms), set[str]()
    try:
        while True:
            if state.status == "completed":
                if state.result is None:
                    raise McpError("server_error", "its task has ended without a result")
                given = mended("tools/call", LATEST_MODERN_VERSION, state.result, lambda _: None)
                return types.CallToolResult.model_validate(given, by_name=False)
            if state.status == "failed":
                error = state.error or types.ErrorData(code=types.INTERNAL_ERROR, message="its task failed")
                raise MCPError(error.code, error.message, error.data)
            if state.status == "cancelled":
                raise McpError("server_error", "it cancelled its task")
            if new := {key: each for key, each in (state.input_requests or {}).items() if key not in answered}:
                answered |= new.keys()
                if len(answered) > QUESTIONS:
                    raise McpError("server_error", f"its task asked for something {QUESTIONS} times and has not ended")
                responses = {key: _sent(await ask(key, each)) for key, each in new.items()}
                await _send(session, "tasks/update", id_, inputResponses=responses)
            else:
                pause = PAUSE if state.poll_interval_ms is None else state.poll_interval_ms / 1000
                await anyio.sleep(max(LEAST_PAUSE, min(pause, MOST_PAUSE)))  # Also for NaN.
            state = await _send(session, "tasks/get", id_)
            if state.status_message:
                say(one_line(state.status_message, 200))
    finally:
        if state.status not in ENDED:  # It may end meanwhile, which the server then says by an error.
            with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(MCPError, ValueError):
                await _send(session, "tasks/cancel", id_)


def _sent(answer: types.InputResponse | types.ErrorData) -> dict[str, Any]:
    if isinstance(answer, types.ErrorData):
        raise McpError("server_error", f"its task asked for what it cannot have: {one_line(answer.message, 200)}")
    given: dict[str, Any] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    return given


async def _send(session: ClientSession, method: str, id_: str, **more: Any) -> Any:
    kind: Any = _TaskState if method == "tasks/get" else types.EmptyResult
    return await session.send_request(_TaskRequest(method=method, params={"taskId": id_, **more}), kind)
