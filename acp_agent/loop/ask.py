"""Questions from the model to the user: as a form, else as a choice like a permission, else in the conversation.

Never hangs: the first two are bounded by a timeout, the third ends the turn, and the next prompt is the answer.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.errors import AgentError, ConnectionClosed
from acp_agent.loop.outbox import Outbox
from acp_agent.protocol.client import QUESTION, Client
from acp_agent.schema import acp
from acp_agent.tools.kit.tool_context import Answer, Question

if TYPE_CHECKING:
    from acp_agent.loop.calls.call import Call

log = logging.getLogger(__name__)

ANSWER = "answer"
OTHER = "other"
SKIP = "skip"

DECLINED = "The user declined to answer. Continue with what you know, or state your assumptions."
UNANSWERED = "No answer in time. Continue with a sensible assumption and state it, or end the turn."
MAX_OPTIONS = 9
"""No editor shows more buttons than this well."""


TRUST_MEANS = (
    "They can start programs and change how the agent works, with your privileges. Read them first; `/trust` shows and "
    "changes this later."
)


HOOK_MEANS = "Hooks are programs of your configuration that decide what may happen; `/hooks` lists them."


COST_MEANS = (
    "The provider charges for model calls. Going on raises this limit of your configuration by its own amount, for "
    "this session. `/cost` shows what was spent on what."
)


async def ask_user(client: Client, call: Call, question: Question, *, timeout: float) -> Answer:
    """`timeout` in seconds. Raises ConnectionClosed."""
    try:
        with anyio.fail_after(timeout):
            if client.plan.forms:
                return await _by_form(client, call, question)
            if 0 < len(question.choices) <= MAX_OPTIONS and not question.several:
                return await _by_choice(client, call, question)
    except TimeoutError:
        return Answer(None, UNANSWERED)
    except ConnectionClosed:
        raise
    except AgentError as error:
        log.warning("the question could not be asked: %s", error)
    return Answer(None, "The question is in the conversation; the next prompt is the answer.", ends_turn=True)


async def ask_trust(outbox: Outbox, words: str, files: Sequence[str]) -> bool | None:
    """Whether the user trusts these files of the folder, which are shown; `None` without an answer.

    Raises ConnectionClosed.
    """
    text = "\n\n".join([*files, TRUST_MEANS])
    yes = acp.PermissionOption(option_id="trust", name="Trust these files", kind="allow_always")
    no = acp.PermissionOption(option_id="no", name="Do not use them", kind="reject_always")
    return await _ask_either(outbox, words, text, yes, no, {"trust": True})


async def ask_hook(outbox: Outbox, words: str, more: str) -> bool | None:
    """Whether the user goes on where a hook, as `words` say, leaves it to them; `None` without an answer. `more`: what
    would happen. Raises ConnectionClosed."""
    yes = acp.PermissionOption(option_id="go-on", name=more, kind="allow_once")
    no = acp.PermissionOption(option_id="stop", name="Do not", kind="reject_once")
    return await _ask_either(outbox, words, HOOK_MEANS, yes, no, {"hook": True})


async def ask_cost(outbox: Outbox, words: str, more: str) -> bool | None:
    """Whether the user goes on although a limit on the cost is reached; `None` without an answer. `words` say which,
    `more` how far it goes. Raises ConnectionClosed."""
    yes = acp.PermissionOption(option_id="go-on", name=more, kind="allow_once")
    no = acp.PermissionOption(option_id="stop", name="Stop here", kind="reject_once")
    return await _ask_either(outbox, f"{words}. Go on?", COST_MEANS, yes, no, {"cost": True})


async def ask_model(outbox: Outbox, title: str, why: str, models: Sequence[str]) -> str | None:
    """Which of the models goes on in place of one that cannot; `None` if none. Raises ConnectionClosed."""
    options = [acp.PermissionOption(option_id=name, name=f"Continue with {name}", kind="allow_once") for name in models]
    no = acp.PermissionOption(option_id="stop", name="Stop here", kind="reject_once")
    chosen = await _ask_one(outbox, title, why, [*options, no], {"cost": True})
    return chosen if chosen in models else None


async def ask_sampling(outbox: Outbox, server: str, model: str, prompt: str, *, timeout: float) -> bool:
    """Whether the model may answer what an MCP server asks it, this once. Raises AgentError."""
    yes = acp.PermissionOption(option_id="answer", name="Let the model answer, once", kind="allow_once")
    no = acp.PermissionOption(option_id="no", name="Do not", kind="reject_once")
    title = f"The MCP server {server} asks {model}"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", prompt)), default=0))
    with anyio.move_on_after(timeout):
        text = f"{fence}\n{prompt}\n{fence}"
        return await _ask_either(outbox, title, text, yes, no, {"sampling": server}) is True
    return False


async def _ask_either(
    outbox: Outbox, title: str, text: str, yes: acp.PermissionOption, no: acp.PermissionOption, meta: dict[str, Any]
) -> bool | None:
    """Whether the answer was `yes`; `None` without one. Raises ConnectionClosed."""
    return {yes.option_id: True, no.option_id: False}.get(await _ask_one(outbox, title, text, [yes, no], meta))


async def _ask_one(
    outbox: Outbox, title: str, text: str, options: Sequence[acp.PermissionOption], meta: dict[str, Any]
) -> str:
    """The id of the chosen option; empty without one. Raises ConnectionClosed."""
    call_id = str(uuid.uuid4())
    content: list[acp.ToolCallContent] = [acp.Content(content=acp.TextContent(text=text))]
    card = acp.ToolCall(tool_call_id=call_id, title=title, kind="other", status="pending", content=content)
    outbox.emit(card)
    answer = ""
    try:
        answer = await ask_beside(outbox, card, options, meta)
    except ConnectionClosed:
        raise
    except AgentError as error:
        log.warning("the question could not be asked: %s", error)
    finally:
        status: acp.ToolCallStatus = "completed" if answer in {option.option_id for option in options} else "failed"
        outbox.emit(acp.ToolCallProgress(tool_call_id=call_id, status=status))
    return answer


async def ask_beside(
    outbox: Outbox, card: acp.ToolCall, options: Sequence[acp.PermissionOption], meta: dict[str, Any]
) -> str:
    """The id of the option that the user chose for a card that is shown; empty if none. Raises AgentError."""
    shown = acp.ToolCallUpdate(
        tool_call_id=card.tool_call_id,
        title=card.title,
        kind=card.kind,
        status=card.status,
        content=card.content,
        locations=card.locations,
        meta=meta,
    )
    outcome = (await outbox.client.request_permission(shown, options)).outcome
    return outcome.option_id if isinstance(outcome, acp.SelectedPermissionOutcome) else ""


# --- by a form ---------------------------------------------------------------------------------------------------


async def _by_form(client: Client, call: Call, question: Question) -> Answer:
    answer = await client.elicit(question.text, _form(question), tool_call_id=call.id)
    if answer.action != "accept":
        return Answer(None, DECLINED)
    return _read(answer, question)


def _form(question: Question) -> acp.ElicitationSchema:
    choices = list(question.choices)
    if not choices:
        return acp.ElicitationSchema(properties={ANSWER: acp.StringPropertySchema(title="Answer")}, required=[ANSWER])
    other = acp.StringPropertySchema(title="Something else", description="In your own words, instead or in addition")
    if question.several:
        several = acp.MultiSelectPropertySchema(title="Answers", items=acp.StringMultiSelectItems(enum=choices))
        return acp.ElicitationSchema(properties={ANSWER: several, OTHER: other})
    return acp.ElicitationSchema(
        properties={ANSWER: acp.StringPropertySchema(title="Answer", enum=choices), OTHER: other}
    )


def _read(answer: acp.CreateElicitationResponse, question: Question) -> Answer:
    """The content, validated again: a client can return anything."""
    content = answer.content or {}
    given = content.get(ANSWER)
    texts = given if isinstance(given, list) else [given]
    picked = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    if question.choices:
        picked = [text for text in picked if text in question.choices]
    other = content.get(OTHER)
    if question.choices and isinstance(other, str) and other.strip():
        picked.append(other.strip())
    return Answer("; ".join(picked)) if picked else Answer(None, DECLINED)


# --- as a choice -------------------------------------------------------------------------------------------------


async def _by_choice(client: Client, call: Call, question: Question) -> Answer:
    options = [
        acp.PermissionOption(option_id=f"choice-{number}", name=choice, kind="allow_once")
        for number, choice in enumerate(question.choices)
    ]
    options.append(acp.PermissionOption(option_id=SKIP, name="Do not answer", kind="reject_once"))
    shown = acp.ToolCallUpdate(
        tool_call_id=call.id,
        title=question.text,
        name=call.name,
        kind="other",
        content=[acp.Content(content=acp.TextContent(text=question.text))],
        meta={QUESTION: True},
    )
    answer = await client.request_permission(shown, options)
    match answer.outcome:
        case acp.CancelledPermissionOutcome():
            return Answer(None, "The turn was cancelled.", cancelled=True)
        case acp.SelectedPermissionOutcome(option_id=picked):
            for option, choice in zip(options, question.choices, strict=False):
                if option.option_id == picked:
                    return Answer(choice)
    return Answer(None, DECLINED)
