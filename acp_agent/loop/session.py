"""One conversation: its id, folders, choices and the running turn.

A session is cheap until its first prompt. What a turn needs (`Parts`) is built in the background by `build` and awaited
here.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent import tracing
from acp_agent.errors import (
    AuthRequired,
    ConfigError,
    ExecutorError,
    InternalError,
    InvalidParams,
    ProviderError,
    ResourceNotFound,
    RpcError,
    StoreError,
)
from acp_agent.lazy import load
from acp_agent.loop.modes import MODES, Mode, narrower
from acp_agent.loop.opened import Opened
from acp_agent.loop.session_state import SessionState
from acp_agent.loop.turn_queue import Joining
from acp_agent.protocol.client import Client
from acp_agent.schema import acp
from acp_agent.store.session_store import SessionStore

if TYPE_CHECKING:
    from acp_agent.config.load import Config
    from acp_agent.llm.base import UsageReport
    from acp_agent.loop.prompts.instructions import Instructions
    from acp_agent.loop.turn_lease import TurnLease
    from acp_agent.loop.turns.parts import Parts
    from acp_agent.loop.turns.prompt_keys import PromptKeys

TURN = "invoke_agent acp-coder"
"""The span of one."""
SPLIT = "acp_agent.loop.prompts.command_names:split_command"
LEASE = "acp_agent.loop.turn_lease:TurnLease"
PROJECT_LAYER = "acp_agent.loop.toolbox.trust:project_layer"
KEYS = "acp_agent.loop.turns.prompt_keys:PromptKeys"
CURSOR = "acp_agent.loop.memory.replay:begun"
CURSOR_CHANGED = "acp_agent.loop.memory.replay:changed"
PROMPTS = "acp_agent.loop.memory.rewinding:prompts_of"
log = logging.getLogger(__name__)


class Session(SessionState):
    """One conversation with its client: its turns, one after the other."""

    def __init__(
        self,
        opened: Opened,
        client: Client,
        store: SessionStore,
        *,
        build: Callable[[Session], Awaitable[Parts]],
        **about: Any,
    ) -> None:
        """`build` makes what its turns need; the others as of `SessionState`."""
        super().__init__(opened, client, store, **about)
        self._build = build
        self._parts: Parts | None = None
        self._keys: PromptKeys | None = None

    @property
    def keys(self) -> PromptKeys:
        """Of prompts that may come again."""
        if self._keys is None:
            self._keys = load(KEYS)(self.store, self.id)
        return self._keys

    @cached_property
    def _lease(self) -> TurnLease | None:
        made: TurnLease | None = None
        if self.queue.leased:
            made = load(LEASE)(self.store, self.id, self.config.settings.server.lease)
        return made

    @cached_property
    def _building(self) -> anyio.Lock:
        # Created late: it loads anyio's event loop backend, for which the session's response must not wait.
        return anyio.Lock()

    async def parts(self) -> Parts:
        """Returns the parts that a turn needs; the first caller builds them. Raises ResourceNotFound once the session
        is closed."""
        async with self._building:
            if self.queue.closed:
                raise ResourceNotFound(f"Session {self.id!r} is closed")
            if self._parts is None:
                parts = await self._build(self)
                try:
                    stored, place = await self.store.do(self.store.so_far, self.id)
                    if self._lease is not None:
                        self._lease.seen = place
                    await parts.memory.goals.read()
                    if (goal := self.config.settings.agent.goal_text.strip()) and not stored:
                        await parts.memory.goals.begin(goal)
                    self.costs.so_far = await self.store.do(self.store.spending.of_session, self.id)
                    self.cache_key = parts.memory.restore(stored) or self.id
                    parts.calls.outputs.restore(stored)
                    parts.calls.quota.count(parts.memory.messages())
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await parts.close()
                    raise
                self._parts = parts
        return self._parts

    async def move(self, place: str) -> None:
        """Works in another place from now on; what runs in the one before ends. While no turn of a model runs.

        Raises InvalidParams for one that is not configured, StoreError.
        """
        try:
            config = self.config.in_place(place)
        except ConfigError as error:
            raise InvalidParams(f"Invalid params: {error}") from error
        await self._leave(config, place)
        self.choices.settings = config.settings

    async def _leave(self, config: Config, place: str | None = None) -> None:
        """Closes the parts; those who need them next build them by `config`."""
        async with self._building:
            await self.outbox.flushed()
            parts, self._parts = self._parts, None
            if parts is not None:
                with anyio.CancelScope(shield=True):
                    await parts.close()
            if place is not None:
                await self.store.do(self.store.change, self.id, place=place)
            self.config, self.roots = config, self.roots.here

    async def _go(self, place: str) -> str:
        """`/place NAME`: what is then said. Does not need the place where the session is now."""
        try:
            await self.move(place)
            self.choices.show()
            parts = await self.parts()
        except (InvalidParams, ExecutorError) as error:
            return str(error).removeprefix("Invalid params: ")
        return "\n".join(f"- {line}" for line in await parts.shell.confinement.lines())

    async def choose(self, wished: Sequence[acp.InitialSessionConfigOption], *, others: bool = False) -> None:
        """Takes the values of options that a client opens it with, in their order. What does not fit is left out, as
        the protocol has it. `others`: clients that have it open are told."""
        before = self.choices.options()
        for each in wished:
            now = {option.id: option.current_value for option in self.choices.options()}.get(each.config_id)
            fits = type(each.value) is type(now) and (each.type == "boolean") is isinstance(now, bool)
            value = self.choices.meant(each.value) if fits and each.config_id == "model" else each.value
            if not fits or value in (None, now):
                continue
            try:
                if each.config_id != "place":
                    await self.choices.set_option(each.config_id, value, tell=others)
                elif not self.queue.busy:
                    await self.move(str(value))
            except InvalidParams as error:
                log.info("%s: %s", self.id, error)
        if others and self.choices.options() != before:
            self.choices.show()

    async def name_model(self, model: object) -> None:
        """Chooses a model that the user has just named. Raises InvalidParams for one that its server does not list."""
        if isinstance(model, str) and self.choices.meant(model) is None:
            await (await self.parts()).models.look()
        await self.choices.set_option("model", model)

    def instructions(self) -> Instructions | None:
        """Of the head of the conversation, if it has been built."""
        return None if self._parts is None else self._parts.memory.instructions

    async def prompt(
        self,
        blocks: Sequence[acp.ContentBlock],
        *,
        bound_to: Mode | None = None,
        announce: Callable[[], str] | None = None,
    ) -> acp.StopReason:
        """Runs one turn. A second prompt waits for the first. Raises RpcError if the turn could not be finished.

        `bound_to`: the prompt is not from the user; no command is run, and the mode is at most that one. What
        `announce` returns is sent when its turn starts.
        """
        ended: dict[str, Any] = {"state": "idle", "stopReason": "failed"}
        numbers: list[int] = []
        before = self.spent
        try:
            ended["stopReason"] = reason = await self._prompt(blocks, bound_to, announce, numbers)
            return reason
        except RpcError as error:
            ended["error"] = error.as_json()
            raise
        except anyio.get_cancelled_exc_class():
            ended["stopReason"] = "cancelled"
            raise
        finally:
            if any(numbers):
                ended |= self.used_since(before)
                self.client.turn(ended)

    def used_since(self, before: UsageReport | None) -> dict[str, Any]:
        """`before`: what was spent before the turn. `usage` of tokens, the `limit` on the cost that ended it, if any,
        and what the turn changed."""
        used = {} if self.spent is None or self.spent is before else {"usage": self.spent.as_json()}
        facts = {} if self._parts is None else self._parts.shell.turn.facts.as_json()
        return {**used, **({"limit": self.costs.limit} if self.costs.limit else {}), **facts}

    async def _prompt(
        self,
        blocks: Sequence[acp.ContentBlock],
        bound_to: Mode | None,
        announce: Callable[[], str] | None,
        numbers: list[int],
    ) -> acp.StopReason:
        """`numbers`: gets the number of the prompt, 0 if it is not in the log."""
        reason: acp.StopReason = "cancelled"
        if len(self.queue) >= (most := self.config.settings.limits.max_prompts):
            words = f"{most} prompts run or wait in this session (`limits.max_prompts`)"
            raise InternalError(f"{words}: wait for one, or cancel them.")
        try:
            with self.queue.cancellable() as scope:
                async with self.queue.turn(), self._alone(scope.cancel):
                    await self.outbox.released()  # A prompt that arrives before its session's response waits for it.
                    if self._parts is not None:
                        self._parts.beside.suggestions.withdraw()
                    self.choices.bound_to = bound_to
                    if announce is not None:
                        self.outbox.say(announce())
                    try:
                        with tracing.span(TURN, gen_ai__operation__name="invoke_agent", **self._traced()):
                            reason = await self._turn(blocks)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await self.outbox.settled()
                            history = self.store.history
                            history.at_leisure(partial(history.index, self.id), partial(log.debug, "%s"))
                        numbers.append(self.queue.prompt)
                        self.choices.bound_to, self.queue.prompt = None, 0
        except ExecutorError as error:
            raise InternalError(self.outbox.clean(str(error)), {"kind": "place"}) from error
        except ProviderError as error:
            raise _as_answer(error, self.outbox.clean(self._advised(error))) from error
        if not self.queue.closed and (failure := await self.outbox.taken_failure()) is not None:
            raise InternalError(str(failure)) from failure
        if self._lease is not None and self._lease.lost:
            raise self._lease.refusal()
        return "cancelled" if scope.cancelled_caught else reason

    def _traced(self) -> dict[str, str]:
        return {"gen_ai__agent__name": "acp-coder", "gen_ai__conversation__id": self.id}

    def _advised(self, error: ProviderError) -> str:
        return str(error) if self._parts is None else self._parts.models.advised(error)

    async def prompt_unasked(self, blocks: Sequence[acp.ContentBlock], mode: str, announce: Callable[[], str]) -> None:
        """Runs a turn that no client request waits for; `announce`: as in `prompt`. Failures are shown.

        The text is not the user's: it runs no command, and nothing that `mode` would not allow.
        """
        try:
            known = next((one for one in MODES.values() if one.id == mode), MODES["ask"])
            await self.prompt(blocks, bound_to=known, announce=announce)
        except RpcError as error:
            if not self.queue.closed:
                self.outbox.say(f"It failed: {error}")

    async def _turn(self, blocks: Sequence[acp.ContentBlock]) -> acp.StopReason:
        if not says_something(blocks):
            return "end_turn"  # Nothing was said; no model takes an empty message.
        name, rest = load(SPLIT)(blocks)
        if name == "place" and rest.strip() and self.choices.bound_to is None:
            await self._record_prompt(blocks, command=True)
            self.outbox.say(await self._go(rest.strip()))
            return "end_turn"
        if self._parts is not None and self._parts.shell.confinement.over:
            await self._leave(self.config)
        parts = await self.parts()
        parts.memory.mend()
        prompts = parts.prompts
        self.costs.limit = ""
        if self.choices.bound_to is None and parts.commands.finds(blocks):
            await self._record_prompt(blocks, command=True)
            await parts.commands.run(blocks)
            await self._take_folder(parts)
            return "end_turn"
        prompts.user_message(blocks)  # What the model does not take is refused before anything is stored.
        await self._record_prompt(blocks)
        self.queue.steering = [] if self.choices.bound_to is None else None
        try:
            return await self._answer(parts, blocks)
        finally:
            if self.queue.cancelled:
                self.queue.give_back()
            self.join(parts.memory.add)  # The next turn knows what came too late for this one.
            self.queue.steering = None

    async def _take_folder(self, parts: Parts) -> Parts:
        """The parts, made anew with the folder's configuration if the user has just trusted it."""
        if not parts.toolbox.extensions.was_given():
            return parts
        try:
            layer = await self.store.do(load(PROJECT_LAYER), str(self.roots.clients[0]), self.store)
            config = self.config if layer is None else self.config.with_project(layer)
        except (ConfigError, StoreError) as error:
            self.outbox.tell(f"The folder's configuration is not used: {error}")
            return parts
        if config is self.config:
            return parts
        if any(run.running for run in parts.shell.runs.states()):
            self.outbox.tell("The folder's configuration is used from the next session on: a command runs here.")
            return parts
        await self._leave(config)
        return await self.parts()

    async def _answer(self, parts: Parts, blocks: Sequence[acp.ContentBlock]) -> acp.StopReason:
        memory, prompts = parts.memory, parts.prompts
        for note in prompts.notes():
            memory.add(note)
        expanded: Sequence[acp.ContentBlock] | str = blocks
        try:
            expanded = await prompts.expand(blocks)
        finally:  # A prompt that was cancelled meanwhile has been said all the same.
            if not isinstance(expanded, str):
                memory.add(prompts.user_message(expanded))
        if isinstance(expanded, str):
            self.outbox.say(expanded)
            return "end_turn"
        if self.title is None:
            await self.set_title(prompts.title(blocks), first=True)
        await parts.turns.ask_trust()
        parts = await self._take_folder(parts)
        self.spent = None
        parts.models.spending.begin()
        asked = prompts.asked
        model = await parts.models.ready(asked.model or self.choices.model)
        if not asked.model and model.chosen != self.choices.model:
            await self.choices.use_real_name(model.chosen)
        if asked.mode is not None:
            self.choices.bound_to = narrower(self.choices.mode(), asked.mode)
        return await parts.turns.run(model, blocks, asked)

    async def steer(self, blocks: Sequence[acp.ContentBlock], *, until_joined: bool = False) -> str:
        """Lets what the user wrote join the running turn at its next step; else returns why no turn takes it.
        `until_joined`: waits for that step; "cancelled" if the turn is cancelled first, and nothing was taken. Raises
        InvalidParams for blocks that the model does not accept."""
        if self.queue.steering is None:
            return "noRunningTurn"
        parts = await self.parts()
        message = parts.prompts.user_message(blocks)
        if self.queue.steering is None:
            return "noRunningTurn"
        if parts.commands.finds(blocks):
            return "command"  # Not for the model: it runs as a prompt of its own.
        joining = Joining(blocks, message, copy_context(), until_joined)
        self.queue.steering.append(joining)
        if until_joined:
            await joining.settled.wait()
            return "" if joining.joined else "cancelled"
        return ""

    async def cancel_call(self, call_id: str) -> bool:
        """Ends this tool call alone, or the command that it has left in the background; false if neither runs."""
        if self.queue.cancel_call(call_id):
            return True
        return self._parts is not None and self._parts.shell.runs.kill_of(call_id)

    def background(self) -> list[dict[str, str]]:
        """As `SessionRuns.running`."""
        return [] if self._parts is None else self._parts.shell.runs.running()

    async def _record_prompt(self, blocks: Sequence[acp.ContentBlock], *, command: bool = False) -> None:
        # First: a prompt that fails with this leaves nothing behind.
        at = await self.store.do(self.store.change, self.id, new_turn=True)
        self.turns += 1
        self.queue.prompt = self.turns
        message_id = str(uuid.uuid4())
        mark: dict[str, Any] = {"number": self.turns, "message_id": message_id, "time": at, "command": command}
        if self._keys is not None and (key := self._keys.inserted(message_id)) is not None:
            mark["key"] = key
        self.outbox.put("turn", mark)
        self.client.turn({"state": "running"})
        self.show_prompt(blocks, message_id)
        if self.client.shows_cursors:
            self.outbox.emit(load(CURSOR)(message_id), keep=False, clean=True)

    async def turn_back(self, to: int, *, forth: bool) -> None:
        """As `Memory.turn_back`."""
        assert self._parts is not None, "only what has been built can be taken back"
        parts = self._parts
        before = parts.memory.length
        await parts.memory.turn_back(to, forth=forth)
        for prompt in load(PROMPTS)(await self.stored()) if self.client.shows_cursors else ():
            if prompt.number >= to and prompt.message_id:
                shown = load(CURSOR_CHANGED)(prompt.message_id, stands=not prompt.cut)
                self.outbox.emit(shown, keep=False, clean=True)
        parts.calls.forget()
        parts.calls.quota.count(parts.memory.messages())
        parts.shell.runs.forget()
        if self.usage is not None:
            more = parts.memory.room.estimator.tokens(self.choices.model, parts.memory.length - before)
            self.report_usage(max(0, self.usage.used + more), self.usage.size)

    @asynccontextmanager
    async def between_turns(self) -> AsyncIterator[None]:
        """No turn runs in it, here or elsewhere. Raises InvalidParams while one does here, RpcError if one does in
        another process, or if what is said in it cannot be stored."""
        if self.queue.busy:
            raise InvalidParams("A turn is running; stop it, or wait for its end")
        async with self.queue.turn(), self._alone(lambda: None):
            await self.outbox.released()
            if self._parts is not None:
                self._parts.beside.suggestions.withdraw()
                self._parts.memory.mend()
            yield
            await self.outbox.flushed()

    @asynccontextmanager
    async def _alone(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """As `TurnLease.held`."""
        if self._lease is None:
            yield
            return
        async with self._building:
            knows = self._parts is not None
        async with self._lease.held(knows=knows, stop=stop, stored=self.outbox.all_stored):
            yield

    async def left_behind(self) -> bool:
        """Whether another process has gone on with what is known of it here, and is done."""
        if self._lease is None or self._parts is None or self.queue.busy:
            return False
        return await self.store.do(self._lease.left_behind)

    async def settled(self) -> None:
        """Waits until no turn is running."""
        async with self.queue.turn():
            pass

    async def close(self) -> None:
        """Ends the turn, waits for it, and releases the session's resources."""
        self.queue.closed = True
        self.queue.cancel()
        async with self.queue.turn(), self._building:
            await self.outbox.flushed()
            self.outbox.held = True  # What ends now is stored, not sent: the client may be reopening the session.
            if self._parts is not None:
                await self._parts.close()
        await self.outbox.taken_failure()
        await self.outbox.settled()


def says_something(blocks: Sequence[acp.ContentBlock]) -> bool:
    return any(not isinstance(block, acp.TextContent) or block.text.strip() for block in blocks)


def _as_answer(error: ProviderError, words: str) -> RpcError:
    """Turns a provider error into the prompt's error response; the session continues."""
    data = {"kind": error.kind}
    if error.kind == "auth":
        return AuthRequired(words, data)
    return InternalError(words, data)
