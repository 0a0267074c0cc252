"""What the user of a client is asked: CPERM, CELIC."""

from __future__ import annotations

import json

import anyio

from acp_conformance.clients.client_trial import PEOPLE, ClientTrial, question
from acp_conformance.trial import SECONDS, NotHere, Wrong

STOP = "Stop the turn now, instead of answering this"
FORM = {
    "type": "object",
    "properties": {"word": {"type": "string", "title": "Any word"}, "sure": {"type": "boolean", "default": True}},
    "required": ["word"],
}


@question("CPERM-1")
async def permission_is_answered(trial: ClientTrial) -> str:
    outcome = await trial.permission("Choose anything")
    return f"it answers {outcome.get('optionId', 'cancelled')}"


@question("CELIC-1", "elicitation.form")
async def a_form_is_answered(trial: ClientTrial) -> str:
    answer = await trial.call(
        "elicitation/create", seconds=PEOPLE * SECONDS, mode="form", message="Any word will do", requestedSchema=FORM
    )
    action = answer.get("action") if isinstance(answer, dict) else None
    trial.expect(action in ("accept", "decline", "cancel"), f"it was answered with {json.dumps(answer)[:300]}")
    content = answer.get("content") if action == "accept" else {"word": ""}
    typed = (content.get("word"), content.get("sure", True)) if isinstance(content, dict) else ()
    trial.expect([*map(type, typed)] == [str, bool], f"the form was answered with {json.dumps(content)[:300]}")
    return f"it answers {action}"


@question("CPERM-2")
async def open_questions_end_with_the_turn(trial: ClientTrial) -> None:
    """The last one: the turn is over then."""
    outcome: dict[str, object] = {}
    async with anyio.create_task_group() as tasks:

        async def bounded() -> None:
            await trial.cancelled.wait()
            await anyio.sleep(trial.patience())
            raise Wrong("the turn was cancelled, and the open permission request was not answered")

        tasks.start_soon(bounded)
        outcome = await trial.permission(STOP)
        if not trial.cancelled.is_set():
            with anyio.move_on_after(trial.patience(SECONDS / 10)):
                await trial.cancelled.wait()
        tasks.cancel_scope.cancel()
    if not trial.cancelled.is_set():
        raise NotHere("the turn was not cancelled")
    trial.expect(
        outcome.get("outcome") == "cancelled", f"the turn was cancelled, and permission was answered with {outcome}"
    )
