"""Plays the prompts of a recording, as `acp-coder prompt` would run them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec

from acp_agent import __version__
from acp_agent.client.acp_client import AcpClient
from acp_agent.client.fs import Files
from acp_agent.client.permissions import choose
from acp_agent.client.terminals import Terminals
from acp_agent.errors import AgentError, UsageError
from acp_agent.fronts.headless import Answers, OneRun, asks_for_trust, permission_answer
from acp_agent.fronts.playing.here import agent_here
from acp_agent.fronts.view import View
from acp_agent.llm.recordings.playback import Playback
from acp_agent.schema import acp


class PromptsJob(msgspec.Struct, frozen=True):
    playback: Playback
    cwd: Path
    environ: Mapping[str, str]
    folder: Path
    """For the sessions of the agent."""
    mode: str | None = None
    trusted: bool = False
    """Whether permissions are answered as recorded, and the mode may be `auto`."""
    answers: Answers = "nobody"


async def play_prompts(job: PromptsJob, view: View) -> str:
    """The last stop reason, or `error`. Raises UsageError for a recording that has no beginning."""
    done = job.playback.recording.done
    if not any("prompt" in line for line in done):
        raise UsageError('the recording has no prompts: it is played only by a provider with `api = "replay"`')
    if any(line.get("resumed") for line in done):
        raise UsageError("the recording goes on with a session that began before it, so it has no beginning to play")
    job.playback.cleaner.folder(str(job.cwd))
    terminals, asking = Terminals(env=job.environ), anyio.Lock()
    recorded = deque(line for line in done if "permission" in line)

    async def permit(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        if not job.trusted:
            return await permission_answer(job.answers, view, asking, OneRun(), request)
        title = job.playback.cleaner.clean(request.tool_call.title)
        line = next((each for each in recorded if each.get("title") == title), None)
        if line is None or asks_for_trust(request):
            return await permission_answer("allow", view, asking, OneRun(), request)
        recorded.remove(line)
        view.asked(request, f"{line['permission']} (as recorded)")
        return choose(request, str(line["permission"]))

    info = acp.Implementation(name="acp-coder-prompt", version=__version__)
    sessions: dict[Any, str] = {}
    reason = "end_turn"
    async with (
        agent_here(job.environ, job.playback, job.folder) as transport,
        AcpClient(
            transport, files=Files(), terminals=terminals, permissions=permit, on_update=view.update, info=info
        ) as client,
        anyio.create_task_group() as tasks,
    ):
        await client.initialize()
        tasks.start_soon(view.animate, terminals.tail)
        for line in done:
            reason = await _do(line, client, job, view, sessions) or reason
        tasks.cancel_scope.cancel()
    return reason


async def _do(line: dict[str, Any], client: AcpClient, job: PromptsJob, view: View, sessions: dict[Any, str]) -> str:
    """Does what the user did; returns how a prompt ended."""
    number = line.get("session")
    try:
        if "cwd" in line:
            new = await client.new_session(job.cwd)
            sessions[number] = new.session_id
            await client.set_session_mode(new.session_id, _mode(job, line.get("mode")))
            view.begin(new.config_options or ())
        elif "set_mode" in line and job.mode is None:
            await client.set_session_mode(sessions[number], _mode(job, line["set_mode"]))
        elif "set_option" in line and line["id"] != "mode":
            await client.set_config_option(sessions[number], line["id"], line["set_option"])
        elif "prompt" in line:
            blocks = job.playback.restored(line["prompt"])
            ended = await client.prompt(sessions[number], msgspec.convert(blocks, list[acp.ContentBlock]))
            view.end(ended.stop_reason, session_id=sessions[number])
            return ended.stop_reason
    except AgentError as error:
        view.end("error", getattr(error, "message", str(error)), session_id=sessions.get(number, ""))
        return "error"
    return ""


def _mode(job: PromptsJob, recorded: Any) -> str:
    if job.mode is not None or not isinstance(recorded, str):
        return job.mode or "code"
    return "code" if recorded == "auto" and not job.trusted else recorded
