"""The turns of a session: what must be ready before one, and one turn from its prompt to its end."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from acp_agent.errors import CostLimit, StoreError
from acp_agent.llm.base import AssistantMessage, TextPart, ToolMessage, UserMessage, last_words
from acp_agent.loop.calls.runner import Calls
from acp_agent.loop.journal import Journal
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.model.ready_model import ReadyModel
from acp_agent.loop.model.turn import Limits, run_turn
from acp_agent.loop.model.turn_host import SessionHost
from acp_agent.loop.prompts.prompt_text import leading_text
from acp_agent.loop.session_state import SessionState
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.turns.command_prompts import Asked
from acp_agent.loop.turns.suggestions import Suggestions
from acp_agent.schema.acp import ContentBlock, StopReason

log = logging.getLogger(__name__)

NOT_REDACTED = (
    "Credentials are not redacted for the model, the editor, the log and the database (`secrets.redact = false`)."
)


class Turns:
    def __init__(
        self,
        session: SessionState,
        memory: Memory,
        toolbox: Toolbox,
        calls: Calls,
        journal: Journal,
        suggestions: Suggestions,
        troubles: Sequence[str] = (),
    ) -> None:
        """`troubles`: what is to be said before the first turn."""
        self._before = troubles
        self._session = session
        self._memory = memory
        self._toolbox = toolbox
        self._calls = calls
        self._journal = journal
        self._suggestions = suggestions
        self._told = False

    async def prepare(self) -> Sequence[str]:
        """Prepares what the first turn needs, once. Returns messages for the user."""
        first, self._told = not self._told, True
        if first:
            await self._expire()
        extensions = self._toolbox.extensions
        told = [*await extensions.project(), *await extensions.packages()]
        return [*told, *self._troubles()] if first else told

    async def ask_trust(self) -> None:
        """Asks about the folder's own files, if that is open, and says what there is to say before a turn."""
        for told in [*await self.prepare(), *await self._toolbox.extensions.ask(self._journal)]:
            self._session.outbox.tell(told)

    async def _expire(self) -> None:
        """Removes old stored outputs of all sessions."""
        try:
            store = self._calls.outputs.store
            await store.do(store.expire, self._calls.config.overflow.retention_days)
        except StoreError as error:
            log.warning("old outputs could not be removed: %s", error)

    def _troubles(self) -> list[str]:
        """Lists what is wrong with the configuration and what it refers to."""
        config, outputs, permissions = self._session.config, self._calls.outputs, self._calls.shell.project.permissions
        told = [*self._before, *(() if config.settings.secrets.redact else (NOT_REDACTED,))]
        told += [*outputs.redactor.trouble, *outputs.filters.trouble()]
        told += permissions.deciders.rules.trouble
        told += permissions.unknown_tools()
        told += self._memory.library.trouble
        told += [] if (deciding := self._calls.shell.hooks.deciding) is None else deciding.trouble
        told += [config.trouble, *config.notes] if config.trouble else config.notes
        told += self._toolbox.servers.trouble
        unknown = ", ".join(f"`{name}`" for name in self._toolbox.offer.unknown_names())
        return [*told, f"The configuration names tools that do not exist: {unknown}."] if unknown else told

    async def run(self, model: ReadyModel, blocks: Sequence[ContentBlock], asked: Asked) -> StopReason:
        """Asks the model until it is done; the prompt `blocks` is in the history already."""
        agent, outbox = self._session.config.settings.agent, self._session.outbox
        goal = self._memory.goals.active
        turn = self._calls.shell.turn
        turn.begin(model, "" if goal is None else goal.id)
        self._calls.failures.changed()
        await self._toolbox.servers.ready()
        self._toolbox.relevance.use(model.embed)
        window = self._memory.room.known(model.name, model.known_window)
        await self._toolbox.offer.aim(outbox.clean(leading_text(blocks)), window)
        self._calls.shell.project.recorder.begin()
        host = SessionHost(self._session, model, self._memory, self._toolbox.offer, self._calls.shell.hooks, outbox)
        limits = Limits(
            agent.max_tool_iterations,
            "agent.max_tool_iterations",
            agent.doom_loop,
            agent.max_repetition,
            agent.max_answer_bytes,
        )
        small = self._session.config.settings.tools.schema_filter.is_small(window)
        checks = agent.finish_check and self._session.choices.mode().changes
        hooks, permissions, rounds = self._calls.shell.hooks, self._calls.shell.project.permissions, 0
        permissions.allowed = (asked.command, asked.allowed)
        try:
            if asked.first is not None:
                self._memory.add(AssistantMessage(tool_calls=(asked.first,)))
                if (await self._calls.run_all([asked.first], self._memory.add)).ends_turn:
                    return "end_turn"
            while True:
                reason = await run_turn(model, host, self._calls.run_all, limits)
                messages, facts = self._memory.messages(), turn.facts
                spoke = reason == "end_turn" and isinstance(messages[-1], AssistantMessage)  # Else a call has ended it.
                last = last_words(messages)
                may = spoke and checks and limits.left > 0
                if may and (shown := facts.shown(last, self._toolbox.offer.definitions())) is not None:
                    self._memory.replace([*messages[:-1], AssistantMessage(tool_calls=(shown,))])
                    if (await self._calls.run_all([shown], self._memory.add)).ends_turn:
                        return "end_turn"
                    continue
                first = small and not any(isinstance(message, ToolMessage) for message in messages)
                if may and (words := facts.unfinished(leading_text(blocks), last, small=small, first=first)):
                    if facts.idle_words:
                        self._memory.replace(messages[:-1])
                    self._memory.add(UserMessage((TextPart(words),), own=True))
                    continue
                if reason != "end_turn" or not (words := await hooks.goes_on("Stop", rounds, last)):
                    if spoke and (contradicted := facts.contradicts()):
                        outbox.say(contradicted)
                    if spoke:
                        self._suggestions.after(model, host)
                    return reason
                rounds += 1
                self._memory.add(UserMessage((TextPart(words),), own=True))
        except CostLimit as limit:
            outbox.say(f"{limit} Your next prompt asks again; `/cost` shows what was spent.")
            self._session.costs.limit = limit.key
            return "max_turn_requests"
        finally:
            permissions.allowed = ("", ())
            self._session.report_cost()
            self._calls.shell.forget_state()
