"""The user's review of a plan: approved for one of two modes, or planned further, with the user's own words."""

from __future__ import annotations

from msgspec import Struct

from acp_agent.errors import AgentError, ConnectionClosed
from acp_agent.loop.modes import ModeId
from acp_agent.protocol.client import Client
from acp_agent.schema import acp

OPTIONS: dict[ModeId, str] = {
    "code": "Approve, ask before changes (mode code)",
    "auto": "Approve, do not ask (mode auto: commands run too, only dangerous calls are asked about)",
}
"""The careful one first: a client that answers by itself takes the first."""
KEEP_PLANNING = "keep_planning"
WORDS = "words"


class Review(Struct, frozen=True):
    mode: ModeId | None = None
    """The mode in which the plan is to be carried out; `None`: not approved."""
    words: str = ""
    """What the user wants to be different."""
    cancelled: bool = False


async def review_plan(client: Client, call: acp.ToolCallUpdate) -> Review:
    """`call` shows the plan. Anything but a clear approval is none. Raises AgentError if nobody could be asked."""
    options = [acp.PermissionOption(option_id=mode, name=name, kind="allow_once") for mode, name in OPTIONS.items()]
    options.append(acp.PermissionOption(option_id=KEEP_PLANNING, name="Keep planning", kind="reject_once"))
    outcome = (await client.request_permission(call, options)).outcome
    if not isinstance(outcome, acp.SelectedPermissionOutcome):
        return Review(cancelled=True)
    mode = next((mode for mode in OPTIONS if mode == outcome.option_id), None)
    return Review(mode) if mode is not None else Review(words=await _words(client, call.tool_call_id))


async def _words(client: Client, call_id: str) -> str:
    if not client.plan.forms:
        return ""
    form = acp.ElicitationSchema(properties={WORDS: acp.StringPropertySchema(title="Your words")}, required=[WORDS])
    try:
        answer = await client.elicit("What should be different in the plan?", form, tool_call_id=call_id)
    except ConnectionClosed:
        raise
    except AgentError:
        return ""
    given = (answer.content or {}).get(WORDS) if answer.action == "accept" else None
    return given.strip() if isinstance(given, str) else ""
