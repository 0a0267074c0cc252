"""One conversation: its id, roots, choices and history, and the turn that runs.

`emit(update)` stores, then sends: what the client was told is on disk. The first update after a pause goes at once;
those that follow closely go together, once per round of the event loop, so that a burst of small chunks costs one
transaction and (joined) one message.

A session is light until its first prompt. What a turn needs (provider, tools, permission gate) is the `Engine`,
built in the background by `build.py` and awaited here.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from acp_agent.config.load import Config
from acp_agent.errors import (
    AuthRequired,
    InternalError,
    InvalidParams,
    ProviderError,
    ResourceNotFound,
    RpcError,
    StoreError,
)
from acp_agent.lazy import load
from acp_agent.loop.modes import MODES, Mode, ModeId, narrower
from acp_agent.loop.options import THOUGHT_LEVELS, config_options, mode_state
from acp_agent.protocol.client import Client
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.protect import configured_folders
from acp_agent.schema.acp import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    ContentBlock,
    CurrentModeUpdate,
    McpServer,
    Notice,
    SessionConfigOption,
    SessionInfoUpdate,
    SessionModeState,
    SessionNotification,
    SessionUpdate,
    StopReason,
    TextContent,
    ToolCall,
    UsageUpdate,
    UserMessageChunk,
)
from acp_agent.store.base import EntryKind, LogEntry, SessionRecord
from acp_agent.store.session_store import SessionStore

if TYPE_CHECKING:
    from acp_agent.llm.base import Message, ModelSettings, Provider, ToolDefinition, UsageReport
    from acp_agent.loop.beside.published import DiagnosticsCache
    from acp_agent.loop.calls.guard import SessionSafety
    from acp_agent.loop.calls.redaction import Redaction
    from acp_agent.loop.memory.history import History
    from acp_agent.loop.toolbox.offer import Offer


log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.003
"""After so long without an update the next one does not wait for company."""


DIAGNOSTICS = "acp_agent.loop.beside.published:DiagnosticsCache"

PROMPT_REDACTED = (
    "Your prompt holds a credential. It was taken out before the prompt was kept and sent to the model "
    "(`secrets.redact` in the configuration)."
)


class Model(Protocol):
    """A model that can be asked now."""

    provider: Provider
    id: str
    name: str
    """`provider:model`, with the model's real name."""

    @property
    def context_window(self) -> int:
        """Tokens."""
        ...

    @property
    def known_window(self) -> int | None:
        """The same where it is no guess."""
        ...


class SlashCommands(Protocol):
    def finds(self, blocks: Sequence[ContentBlock]) -> bool:
        """Whether these blocks call a command that exists."""
        ...

    async def run(self, session: Session, engine: Engine, blocks: Sequence[ContentBlock]) -> None: ...


class Engine(Protocol):
    """What a turn needs, built once for a session."""

    offer: Offer
    commands: SlashCommands

    async def model(self, choice: str) -> Model:
        """The model behind a `provider:model`. Raises AuthRequired, ProviderError, InvalidParams."""
        ...

    def command_list(self) -> AvailableCommandsUpdate:
        """What begins with `/`."""
        ...

    def status(self) -> Sequence[str]:
        """Lines for a person: what belongs to the session beside the conversation."""
        ...

    async def compact(self) -> str:
        """Makes the conversation as short as it can be; words for a person, whatever happens."""
        ...

    async def context(self) -> Sequence[str]:
        """Lines for a person: what the model's context holds."""
        ...

    def plan(self, word: str) -> str:
        """Does with the goal what `word` says (empty: nothing); words for a person."""
        ...

    async def start(self) -> Sequence[str]:
        """Makes ready what may take a while, once the session has been answered. Gives what the person should hear."""
        ...

    async def expand(self, blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock] | str:
        """The prompt as the model gets it: a skill or a prompt of an MCP server in the place of its command, web pages
        with their links. A string: why there is nothing to ask, for the person."""
        ...

    def notes(self) -> Sequence[Message]:
        """What happened since the last turn that the model must hear of before the prompt."""
        ...

    def forget(self) -> None:
        """The model has forgotten the conversation: what counts on it begins anew."""
        ...

    def user_message(self, blocks: Sequence[ContentBlock], choice: str) -> Message:
        """The prompt for the model `choice`. Raises InvalidParams for blocks it does not take."""
        ...

    def title(self, blocks: Sequence[ContentBlock]) -> str: ...

    def settings(self, model: Model) -> ModelSettings: ...

    def tools(self) -> Sequence[ToolDefinition]:
        """The tools of the mode in force."""
        ...

    async def turn(self, model: Model, blocks: Sequence[ContentBlock]) -> StopReason:
        """Asks the model until it is done; the prompt `blocks` is in the history already."""
        ...

    def history(self) -> tuple[History, list[Message]]:
        """A new history, restored from what the session stored, and what had to be added to mend it."""
        ...

    @property
    def safety(self) -> SessionSafety: ...

    async def warm(self) -> None:
        """Finds out what confines commands, before the first one waits for it."""
        ...

    async def doctor(self) -> Sequence[str]:
        """How commands are confined and what is written down, a line each."""
        ...

    async def policy_status(self) -> Sequence[str]:
        """All that is in force, a line each."""
        ...

    async def policy_check(self, text: str) -> str:
        """What would become of a call, `TOOL {JSON}`."""
        ...

    async def close(self) -> None:
        """Kills what the session's commands left running."""
        ...


class Session:
    def __init__(
        self,
        record: SessionRecord,
        client: Client,
        store: SessionStore,
        config: Config,
        *,
        models: Sequence[str],
        soon: Callable[[Callable[[], None]], None],
        engine: Callable[[Session], Awaitable[Engine]],
        mcp_servers: Sequence[McpServer] = (),
    ) -> None:
        """`models`: the `provider:model`s known so far. `soon` calls back in the next round of the event loop."""
        self.id = record.id
        more = configured_folders(config.settings.tools.files.allowed_paths)
        self.roots = Roots(Path(record.cwd), [*map(Path, record.additional_directories), *more])
        self.client = client
        client.before_asking = self.flush
        self.config = config
        self.models = list(models)
        self.mcp_servers = tuple(mcp_servers)
        """The servers the client named for this session."""
        self.title = record.title
        self.turns = record.turns
        self.mode_id: ModeId = record.mode if record.mode in MODES else "code"
        self.model = record.model
        self.thought_level = record.thought_level or "default"
        self.usage: UsageUpdate | None = None
        self.spent: UsageReport | None = None
        """By the turn that runs, or ran last."""
        self.redaction: Redaction | None = None
        """Takes credentials out of what is told and kept; there before the first prompt is."""
        self.diagnostics: DiagnosticsCache | None = None
        """What the editor's language servers published; None until they do."""
        self._store = store
        self._soon = soon
        self._build = engine
        self._engine: Engine | None = None
        self._history: History | None = None
        self._outbox: list[tuple[EntryKind | None, Any]] = []
        self._flush_planned = False
        self._flushed_at = 0.0
        self._held = True
        self._store_failure: StoreError | None = None
        self._text_is_last = False
        self._bound_to: Mode | None = None
        self._scopes: list[anyio.CancelScope] = []
        self.closed = False

    # The first lock loads the event loop's backend of anyio: not before the session has been answered.

    @cached_property
    def _engine_lock(self) -> anyio.Lock:
        return anyio.Lock()

    @cached_property
    def _released(self) -> anyio.Event:
        return anyio.Event()

    @cached_property
    def _turn_lock(self) -> anyio.Lock:
        return anyio.Lock()

    # --- telling the client -----------------------------------------------------------------------------------

    def emit(self, update: SessionUpdate, *, keep: bool = True, clean: bool = False) -> None:
        """Stores `update` (unless `keep` is false) and sends it, in the order of the calls. `clean`: credentials were
        taken out of it, as they are of the model's words where one chunk follows the other."""
        words = isinstance(update, AgentMessageChunk | AgentThoughtChunk)
        if self.redaction is not None and not clean and not words:
            update = self.redaction.struct(update)
        if isinstance(update, AgentMessageChunk | ToolCall | UserMessageChunk):
            self._text_is_last = isinstance(update, AgentMessageChunk)
        kind: EntryKind | None = "update" if keep else None
        if self._outbox and self._outbox[-1][0] == kind:
            merged = coalesce_updates("session/update", self._note(self._outbox[-1][1]), self._note(update))
            if merged is not None:
                self._outbox[-1] = (kind, merged.update)
                return
        self._put(kind, update)
        if time.monotonic() - self._flushed_at > PAUSE_SECONDS:
            self.flush()

    def _note(self, update: Any) -> SessionNotification:
        return SessionNotification(session_id=self.id, update=update)

    def _put(self, kind: EntryKind | None, payload: Any) -> None:
        self._outbox.append((kind, payload))
        if not self._flush_planned:
            self._flush_planned = True
            self._soon(self.flush)

    def flush(self) -> None:
        """Stores and sends what was emitted. A store that fails is reported at the end of the turn."""
        self._flush_planned = False
        if not self._outbox:
            return
        outbox, self._outbox = self._outbox, []
        self._flushed_at = time.monotonic()
        entries = [
            LogEntry(kind, payload if isinstance(payload, bytes) else encode(payload))
            for kind, payload in outbox
            if kind is not None
        ]
        try:
            self._store.append(self.id, entries)
        except StoreError as error:
            log.error("%s", error)
            self._store_failure = error
        if self._held:
            self._outbox = [(None, payload) for kind, payload in outbox if kind in (None, "update")]
            return
        for kind, payload in outbox:
            if kind in (None, "update") and not (kind == "update" and isinstance(payload, UserMessageChunk)):
                self.client.update(payload)
        self.client.push()

    def release(self) -> None:
        """The client knows the session's id now: updates may be sent."""
        self._held = False
        self._released.set()
        self.flush()

    async def drain(self) -> None:
        await self.client.drain()

    def say(self, text: str) -> None:
        """A message of the agent's own. It begins a paragraph, also in clients that join messages."""
        text = self.clean(text)
        if self._text_is_last:
            text = f"\n\n{text}"
        self.emit(AgentMessageChunk(content=TextContent(text=text), message_id=str(uuid.uuid4())))

    def tell(self, words: str) -> None:
        """Something the person should hear of: a notice where the client shows them, else a message; in the log too."""
        words = self.clean(words)
        log.warning("%s", words)
        if self.client.shows_notices:
            self.emit(Notice(severity="warning", title=words), keep=False)
        else:
            self.say(f"{words}\n\n")

    def clean(self, text: str) -> str:
        """Without credentials."""
        return text if self.redaction is None else self.redaction.text(text)

    def note_diagnostics(self, note: Any) -> None:
        """Keeps what a language server of the editor published (`_lsp/publishDiagnostics`, `_lsp/didSave`)."""
        lsp = self.config.settings.lsp
        if not lsp.enabled:
            return
        self.published().take(note)

    def published(self) -> DiagnosticsCache:
        """What they published; kept from now on."""
        lsp = self.config.settings.lsp
        if self.diagnostics is None:
            self.diagnostics = load(DIAGNOSTICS)(files=lsp.max_diagnostic_files, per_file=lsp.max_diagnostics_per_file)
        return self.diagnostics

    # --- choices ----------------------------------------------------------------------------------------------

    def mode(self) -> Mode:
        """The mode in force: the session's, or a narrower one where the turn is bound to it."""
        mode = MODES[self.mode_id]
        return mode if self._bound_to is None else narrower(mode, self._bound_to)

    def mode_state(self) -> SessionModeState:
        return mode_state(self.mode_id)

    def options(self) -> list[SessionConfigOption]:
        return config_options(mode=self.mode_id, model=self.model, models=self.models, thought_level=self.thought_level)

    def set_mode(self, mode: str, *, tell: bool = True) -> None:
        """Switches the mode, also while a turn runs. `tell`: the client did not ask for it by `session/set_mode`."""
        if mode not in MODES:
            raise InvalidParams(f"Invalid params: unknown mode {mode!r}; the modes are {', '.join(MODES)}")
        changed = mode != self.mode_id
        self.mode_id = mode
        if changed:
            self._store.change(self.id, mode=mode)
        if tell and changed:
            self.emit(CurrentModeUpdate(current_mode_id=mode), keep=False)

    def set_option(self, option: str, value: object) -> None:
        """Raises InvalidParams for an unknown option, value or type. The caller shows the list anew."""
        if not isinstance(value, str):
            raise InvalidParams(f"Invalid params: $.value: the option {option!r} takes a string")
        if option == "mode":
            self.set_mode(value, tell=True)
        elif option == "model":
            if value not in (*self.models, self.model):
                raise InvalidParams(f"Invalid params: unknown model {value!r}")
            self.model = value
            self._store.change(self.id, model=value)
        elif option == "thought_level":
            if value not in THOUGHT_LEVELS:
                raise InvalidParams(
                    f"Invalid params: unknown thought level {value!r}; they are {', '.join(THOUGHT_LEVELS)}"
                )
            self.thought_level = value
            self._store.change(self.id, thought_level=value)
        else:
            raise InvalidParams(f"Invalid params: unknown option {option!r}")

    def show_options(self) -> None:
        """Tells the client the complete list after a change it did not ask for."""
        self.emit(ConfigOptionUpdate(config_options=self.options()), keep=False)

    # --- history ----------------------------------------------------------------------------------------------

    def messages(self) -> Sequence[Message]:
        return self.history.messages

    @property
    def history(self) -> History:
        assert self._history is not None, "the engine makes the history before anybody reads it"
        return self._history

    def add(self, message: Message, *, clean: bool = False) -> None:
        """Appends to the history, on disk too. `clean`: no credentials are in it."""
        if self.redaction is not None and not clean:
            message = self.redaction.message(message)
        self.history.add(message)
        self._put("message", encode(message))

    def replace_history(self, messages: Sequence[Message]) -> None:
        """Forgets what was said for `messages`; what the person sees stays."""
        if self.redaction is not None:
            messages = [self.redaction.message(message) for message in messages]
        self.history.replace(messages)
        self._put("reset", encode(list(messages)))

    def stored(self) -> list[LogEntry]:
        return self._store.entries(self.id)

    # --- turns ------------------------------------------------------------------------------------------------

    async def engine(self) -> Engine:
        """What a turn needs; built by the first who asks."""
        async with self._engine_lock:
            if self.closed:
                raise ResourceNotFound(f"The session {self.id!r} is closed")
            if self._engine is None:
                self._engine = await self._build(self)
                self._history, mended = self._engine.history()
                for message in mended:
                    self._put("message", encode(message))
        return self._engine

    @property
    def prompts(self) -> int:
        """How many prompts are running or waiting."""
        return len(self._scopes)

    @property
    def busy(self) -> bool:
        return bool(self._scopes)

    def cancel(self) -> None:
        """Ends the running turn and those that wait behind it; their prompts are answered `cancelled`."""
        for scope in self._scopes:
            scope.cancel()

    async def prompt(
        self, blocks: Sequence[ContentBlock], *, bound_to: Mode | None = None, announce: str = ""
    ) -> StopReason:
        """One turn. A second prompt waits for the first. Raises RpcError where the turn could not be finished.

        `bound_to`: it is not the person who asks; no command is run, and the mode is at most that one. `announce` is
        said when its turn comes.
        """
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        reason: StopReason = "cancelled"
        try:
            with scope:
                async with self._turn_lock:
                    if self._held:  # A prompt that came before its session's answer waits for it.
                        await self._released.wait()
                    self._bound_to = bound_to
                    if announce:
                        self.say(announce)
                    try:
                        reason = await self._turn(blocks)
                    finally:
                        self._bound_to = None
        except ProviderError as error:
            raise _as_answer(error, self.clean(str(error))) from error
        finally:
            self._scopes.remove(scope)
            self.flush()
        if self._store_failure is not None and not self.closed:
            failure, self._store_failure = self._store_failure, None
            raise InternalError(str(failure)) from failure
        return "cancelled" if scope.cancelled_caught else reason

    async def prompt_unasked(self, blocks: Sequence[ContentBlock], mode: str, words: str) -> None:
        """A turn that no request of the client waits for; `words` announce it, and what fails is said.

        Its words are not the person's: they run no command, and nothing that `mode` would not allow.
        """
        try:
            known = next((one for one in MODES.values() if one.id == mode), MODES["ask"])
            await self.prompt(blocks, bound_to=known, announce=words)
        except RpcError as error:
            if not self.closed:
                self.say(f"It failed: {error}")

    async def _turn(self, blocks: Sequence[ContentBlock]) -> StopReason:
        if not any(not isinstance(block, TextContent) or block.text.strip() for block in blocks):
            return "end_turn"  # Nothing was said; no model takes an empty message.
        engine = await self.engine()
        if self._bound_to is None and engine.commands.finds(blocks):
            self._record_prompt(blocks)
            await engine.commands.run(self, engine, blocks)
            return "end_turn"
        engine.user_message(blocks, self.model)  # What the model does not take is refused before anything is stored.
        self._record_prompt(blocks)
        for note in engine.notes():
            self.add(note)
        expanded: Sequence[ContentBlock] | str = blocks
        try:
            expanded = await engine.expand(blocks)
        finally:  # A prompt that was cancelled meanwhile has been said all the same.
            if not isinstance(expanded, str):
                self.add(engine.user_message(expanded, self.model))
        if isinstance(expanded, str):
            self.say(expanded)
            return "end_turn"
        if self.title is None:
            self.set_title(engine.title(blocks))
        self.spent = None
        model = await engine.model(self.model)
        if model.name != self.model:
            self._use_real_name(model)
        return await engine.turn(model, blocks)

    def _record_prompt(self, blocks: Sequence[ContentBlock]) -> None:
        if self.redaction is not None and any(self.redaction.struct(block) is not block for block in blocks):
            self.tell(PROMPT_REDACTED)
        message_id = str(uuid.uuid4())
        for block in blocks:
            self.emit(UserMessageChunk(content=block, message_id=message_id))
        self.turns += 1
        self._store.change(self.id, new_turn=True)
        self.flush()

    def _use_real_name(self, model: Model) -> None:
        """`auto` has become a model."""
        self.models = list(dict.fromkeys(model.name if name == self.model else name for name in self.models))
        self.model = model.name
        self._store.change(self.id, model=self.model)
        self.show_options()

    def set_title(self, title: str) -> None:
        title = self.clean(title)
        self.title = title
        updated_at = self._store.change(self.id, title=title)
        self.emit(SessionInfoUpdate(title=title, updated_at=updated_at), keep=False)

    def report_usage(self, used: int, window: int, last: UsageReport | None = None) -> None:
        """`used` of `window` tokens are in use; `last`: what the last model call cost."""
        meta = None
        if last is not None:
            self.spent = last if self.spent is None else self.spent + last
            meta = {"tokens": last.as_json()}
        self.usage = UsageUpdate(used=used, size=window, meta=meta)
        self.emit(self.usage, keep=False)

    async def settled(self) -> None:
        """Returns once no turn runs."""
        async with self._turn_lock:
            pass

    async def close(self) -> None:
        """Ends the turn, waits for it, and frees what the session holds."""
        self.closed = True
        self.cancel()
        async with self._turn_lock, self._engine_lock:
            self.flush()
            self._held = True  # What ends now is stored, not told: the client may be opening the session anew.
            if self._engine is not None:
                await self._engine.close()
        self.flush()


def _as_answer(error: ProviderError, words: str) -> RpcError:
    """A provider's failure as the error answer of the prompt; the session goes on."""
    data = {"kind": error.kind}
    if error.kind == "auth":
        return AuthRequired(words, data)
    return InternalError(words, data)
