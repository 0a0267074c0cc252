"""What a session is, without what its turns need: its id, folders, choices, the way to its client and its store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import StoreError
from acp_agent.lazy import load
from acp_agent.loop.choices import Choices
from acp_agent.loop.opened import Opened
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.published import Published
from acp_agent.loop.turn_queue import TurnQueue
from acp_agent.protocol.client import Client
from acp_agent.schema import acp
from acp_agent.store.base import ClientPrompt, LogEntry, SessionRecord
from acp_agent.store.session_store import SessionStore
from acp_agent.store.spending_store import Spent

if TYPE_CHECKING:
    from acp_agent.llm.base import Message, UsageReport
    from acp_agent.loop.prompts.instructions import Instructions

FORK = "acp_agent.loop.memory.forking:fork"
PROMPT_REDACTED = (
    "Your prompt contained a credential. It was redacted before the prompt was stored and sent to the model "
    "(`secrets.redact` in the configuration)."
)
LONGEST_TITLE = 200
"""Characters of a session's title."""


def one_title(words: str) -> str:
    """What somebody calls a session, as one line that is not too long."""
    return " ".join(words.split())[:LONGEST_TITLE].rstrip()


class Costs(Struct):
    """Shared by all parts of a session."""

    so_far: Spent = Spent()
    """What its model calls cost: read when its parts are built, counted since."""
    limit: str = ""
    """The limit on the cost that ended the last turn, if one did."""


class SessionState:
    def __init__(
        self,
        opened: Opened,
        client: Client,
        store: SessionStore,
        *,
        soon: Callable[[Callable[[], None]], None],
        leased: bool,
    ) -> None:
        """`soon` calls back in the next round of the event loop. `leased`: each turn has the session's lease for
        itself."""
        record = opened.record
        self.id = record.id
        self.roots = opened.roots
        self.client = client
        self.config = opened.config
        self.mcp_servers = opened.mcp_servers
        """The servers the client named for this session."""
        self.outbox = Outbox(record.id, client, store, soon)
        client.before_asking = self.outbox.flushed
        settings = opened.config.settings
        self.choices = Choices(record, self.outbox, store, opened.models, settings)
        self.queue = TurnQueue(leased=leased)
        self.published = Published(settings.lsp)
        self.cache_key = record.id
        """For the provider's prompt cache; a fork has its source's."""
        self.client_prompt = record.client_prompt
        self.children: dict[str, str] = {}
        """The sub-agents that work, by the ids of their sessions: their calls."""
        self.title = record.title
        self.turns = record.turns
        self.usage: acp.UsageUpdate | None = None
        self.spent: UsageReport | None = None
        """By the current or the last turn."""
        self.last_call: UsageReport | None = None
        self.costs = Costs()
        self.store = store

    async def stored(self) -> list[LogEntry]:
        return await self.store.do(self.store.entries, self.id)

    async def fork(self, entries: Sequence[LogEntry], *, cwd: str | None = None) -> SessionRecord:
        """A new session that begins with `entries`, a part of the log; `cwd`: in another folder. Raises StoreError."""
        record = await self.store.do(self.store.get, self.id)
        if record is None:
            raise StoreError(f"session {self.id} was deleted and cannot be forked")
        forked: SessionRecord = await self.store.do(load(FORK), self.store, record, entries, self, cwd)
        return forked

    async def instruct(self, told: ClientPrompt) -> None:
        """Has this system prompt of its client, from the next request to the model on. Raises StoreError."""
        await self.store.do(self.store.instruct, self.id, told)
        self.client_prompt = told

    def instructions(self) -> Instructions | None:
        """Of the head of the conversation, if it has been built."""
        return None

    def join(self, add: Callable[[Message], None]) -> bool:
        """Shows and adds what the user wrote meanwhile to the conversation; false if there is nothing."""
        waiting = self.queue.steering
        if not waiting:
            return False
        self.queue.steering = []
        for each in waiting:
            each.whose.run(self.show_prompt, each.blocks, str(uuid.uuid4()))
            add(each.message)
            each.settle(joined=True)
        return True

    def show_prompt(self, blocks: Sequence[acp.ContentBlock], message_id: str) -> None:
        redaction = self.outbox.redaction
        if redaction is not None and any(redaction.struct(block) is not block for block in blocks):
            self.outbox.tell(PROMPT_REDACTED)
        if self.choices.bound_to is None:
            self.client.said(message_id)
        for block in blocks:
            self.outbox.emit(acp.UserMessageChunk(content=block, message_id=message_id))
        self.outbox.flush()

    async def set_title(self, title: str, *, first: bool = False) -> None:
        """`first`: nobody has given it one, as far as is known here. What somebody gives it meanwhile stays."""
        self.title = title = self.outbox.clean(title)
        if first:
            stored, updated_at = await self.store.do(self.store.entitle, self.id, title)
            if self.title == title:
                self.title = stored
        else:
            updated_at = await self.store.do(self.store.change, self.id, title=title)
        self.outbox.emit(acp.SessionInfoUpdate(title=self.title, updated_at=updated_at), keep=False)

    def report_usage(self, used: int, window: int, last: UsageReport | None = None) -> None:
        """`used` of `window` tokens are in use; `last`: what the last model call cost."""
        meta = None
        if last is not None:
            self.spent, self.last_call = last if self.spent is None else self.spent + last, last
            meta = {"tokens": last.as_json()}
        self.usage = acp.UsageUpdate(used=used, size=window, cost=self._cost(), meta=meta)
        self.outbox.emit(self.usage, keep=False)

    def report_cost(self) -> None:
        """Sends the cost again, if calls were counted since the last time: of a sub-agent, or cut off."""
        if self.usage is not None and (cost := self._cost()) != self.usage.cost:
            self.usage = replace(self.usage, cost=cost)
            self.outbox.emit(self.usage, keep=False)

    def _cost(self) -> acp.Cost | None:
        """Of the session so far, if the price of all of it is known."""
        spent = self.costs.so_far
        return None if spent.unpriced else acp.Cost(amount=round(spent.cost, 6), currency="USD")
