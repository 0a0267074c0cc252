"""A tool's result as a JSON observation for the model, `acp_coder.tool_observation.v1`."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from acp_agent.limits.decoding import read_json
from acp_agent.output.envelope import bounded

ResultStatus = Literal["completed", "failed", "denied", "cancelled"]


class ObservedSession(msgspec.Struct, frozen=True):
    started_at: Annotated[str, Meta(description="When the session was opened, ISO 8601 in UTC.")]
    steps: Annotated[int, Meta(description="Model messages that called tools.")]
    executed_commands: Annotated[int, Meta(description="Commands run.")]
    observations: Annotated[int, Meta(description="Results given to the model, including this one.")]


class ObservedTool(msgspec.Struct, frozen=True, omit_defaults=True):
    tool: Annotated[str, Meta(description="Name of the tool.")]
    call_id: Annotated[str, Meta(description="The model's id of the call.")]
    command: Annotated[str | None, Meta(description="The command line, for tools that run one.")] = None
    workdir: Annotated[str | None, Meta(description="Where it ran.")] = None
    raw: Annotated[str, Meta(description="The arguments as JSON, cut in the middle.")] = ""


class ObservedResult(msgspec.Struct, frozen=True):
    status: Annotated[ResultStatus, Meta(description="`denied`: a rule or the user did not allow it.")]
    exit_code: Annotated[int | None, Meta(description="null if there is none.")]
    timed_out: Annotated[bool, Meta(description="Whether it was killed at its timeout.")]
    interactive: Annotated[bool, Meta(description="Whether the command seems to need a terminal.")]
    output: Annotated[str, Meta(description="The tool's output, cut in the middle.")]


class Observation(msgspec.Struct, frozen=True):
    schema: Annotated[Literal["acp_coder.tool_observation.v1"], Meta(description="Name and version of this format.")]
    timestamp: Annotated[str, Meta(description="ISO 8601 in UTC.")]
    session: ObservedSession
    tool: ObservedTool
    result: ObservedResult


class Harness(msgspec.Struct, frozen=True):
    unix_millis: Annotated[int, Meta(description="Milliseconds since 1970, of this machine's clock.")]
    source: Literal["harness"] = "harness"


class Stamped(msgspec.Struct, frozen=True):
    harness_timestamp: Harness
    result: Annotated[Any, Meta(description="For a command its exit code and output; else the tool's JSON or text.")]


def stamped_text(
    said: str, *, ran: bool, exit_code: int | None, output_chars: int, unix_millis: int, stderr: str | None = None
) -> str:
    """The result `said` as JSON for the model with the time, the text cut to that many characters. `ran`: whether it
    ran a command; `stderr`: what that printed there, which is in `said`, too; `None`: the streams came merged."""
    result: Any = bounded(said, output_chars)
    if ran:
        apart = {"streams": "merged"} if stderr is None else {"stderr": bounded(stderr, output_chars)}
        result = {"exit_code": exit_code, "output": result, **apart}
    elif said.startswith("{") and result == said:
        with suppress(msgspec.DecodeError):
            result = read_json(said)
    return msgspec.json.encode(Stamped(Harness(unix_millis), result)).decode()


def observation_text(observation: Observation, *, output_chars: int, raw_chars: int) -> str:
    """The JSON for the model, with `output` and `raw` cut to the given numbers of characters."""
    tool, result = observation.tool, observation.result
    shown = msgspec.structs.replace(
        observation,
        tool=msgspec.structs.replace(tool, raw=bounded(tool.raw, raw_chars)),
        result=msgspec.structs.replace(result, output=bounded(result.output, output_chars)),
    )
    return msgspec.json.encode(shown).decode()
