"""Prompts that the user may want to send next, for a client that shows them (a draft of ACP).

One more call of the model after a turn, if the user has switched it on. Nothing of it belongs to the conversation.
"""

from __future__ import annotations

import logging
import re
from contextlib import aclosing

import anyio
from msgspec.structs import replace

from acp_agent.errors import AgentError
from acp_agent.llm.base import TextDelta, TextPart, UserMessage
from acp_agent.loop.model.ready_model import ReadyModel
from acp_agent.loop.model.spending import Spending
from acp_agent.loop.model.turn_host import SessionHost
from acp_agent.loop.session_state import SessionState
from acp_agent.schema.acp import PromptSuggestion, PromptSuggestionsUpdate, TextContent

log = logging.getLogger(__name__)

MOST = 3
LONGEST = 200
"""Characters of one."""
TOKENS = 1000
"""Of the answer, with its thoughts."""
SECONDS = 60.0
ASK = (
    f"What may the user want to say next? Answer with at most {MOST} short prompts in the user's words and language, "
    "the likeliest first, one a line and nothing else; with nothing if none suggests itself. Call no tools."
)
LINE = re.compile(r"\s*(?:(?:[-*•]|\d{1,2}[.)])\s+)?(?:[\"“](.*)[\"”]|(.*?))\s*")


class Suggestions:
    """Of one session."""

    def __init__(self, session: SessionState, spending: Spending) -> None:
        self._session = session
        self._spending = spending
        self._wanted: tuple[ReadyModel, SessionHost] | None = None
        self._news = anyio.Event()
        self._asking: anyio.CancelScope | None = None
        self._shown = False

    def after(self, model: ReadyModel, host: SessionHost) -> None:
        """A turn of the user's has ended well."""
        session = self._session
        if (
            session.config.settings.agent.suggestions
            and session.client.takes_suggestions
            and session.choices.bound_to is None
        ):
            self._wanted = model, host
            self._news.set()

    def withdraw(self) -> None:
        """The next prompt has come, or what they are about has gone."""
        self._wanted = None
        if self._asking is not None:
            self._asking.cancel()
        if self._shown:
            self._show([])

    async def live(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            async with self._session.queue.turn():  # The turn has ended, and so has what waited for it.
                pass
            if (wanted := self._wanted) is not None:
                self._wanted = None
                with anyio.move_on_after(SECONDS) as self._asking, self._session.queue.beside(self._asking):
                    await self._suggest(*wanted)
                self._asking = None

    async def _suggest(self, model: ReadyModel, host: SessionHost) -> None:
        settings, said = replace(host.settings(), max_output_tokens=TOKENS), ""
        asked = [*host.messages(), UserMessage((TextPart(ASK),), own=True)]
        try:
            if await self._spending.at_cap():
                return
            async with aclosing(model.stream(asked, host.tools(), settings)) as events:
                async for event in events:
                    said += event.text if isinstance(event, TextDelta) else ""
                    if len(said) > MOST * LONGEST * 2:
                        break
        except AgentError as error:
            log.info("no prompts are suggested: %s", error)
            return
        finally:
            self._session.report_cost()
        found = suggested(self._session.outbox.clean(said))
        if found and self._asking is not None and not self._asking.cancel_called:  # Which is not noticed at once.
            self._show(found)

    def _show(self, prompts: list[str]) -> None:
        self._shown = bool(prompts)
        found = [PromptSuggestion(prompt=[TextContent(text=prompt)]) for prompt in prompts]
        self._session.outbox.emit(PromptSuggestionsUpdate(suggestions=found), keep=False, clean=True)


def suggested(said: str) -> list[str]:
    """The prompts in an answer, without marks of a list; what is too long to be one is left out."""
    found = [LINE.fullmatch(line) for line in said.splitlines()]
    lines = [(line[1] or line[2] or "").strip() for line in found if line is not None]
    return list(dict.fromkeys(line for line in lines if line and len(line) <= LONGEST))[:MOST]
