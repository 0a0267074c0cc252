"""Builds what all sessions of the process share: providers, the built-in tools, redactors.

Loaded in stage two, in a thread, once the first session has been answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from acp_agent.build.host_session import reached
from acp_agent.build.open_workspaces import start
from acp_agent.build.own_credentials import of_session
from acp_agent.build.session_parts import build_parts, owners_shares
from acp_agent.build.warming import warm
from acp_agent.config.xdg import state_dir
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import AuthRequired, InvalidParams, ProviderError, StoreError
from acp_agent.lazy import load
from acp_agent.limits.shares import Shares
from acp_agent.llm.choose import needs_key
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.model.models import Models
from acp_agent.loop.model.spending import LISTED
from acp_agent.loop.session import Session
from acp_agent.loop.shell.private_folder import sweep
from acp_agent.loop.turns.parts import Parts
from acp_agent.safety.deciding.deciders import EXAMINE
from acp_agent.safety.folders.paths import real_path
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import builtin_registry

log = logging.getLogger(__name__)

TIDY = "acp_agent.undo.tidying:tidy"
LEFT_WORKTREES = "acp_agent.loop.shell.worktrees:left_of"
SWEEP_WORKTREES = "acp_agent.loop.shell.worktrees:sweep"


class Builder:
    """`spawn` runs something in the background until the agent closes. `loaded` is called once everything is loaded."""

    def __init__(
        self,
        environ: Mapping[str, str],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._environ = environ
        self._spawn = spawn
        self._loaded = loaded
        self._registry = builtin_registry()
        self._models = Models(environ, spawn)
        self._warm = False
        self._introduced: set[str] = set()
        self._redactions: dict[object, Redaction] = {}
        self._shares: Shares | None = None

    async def parts(self, session: Session, store: SessionStore) -> Parts:
        """Builds the parts of `session`, which live as long as it does."""
        redaction = self._redaction(session)
        before = session.roots
        session.roots, host = await reached(session.config, before, self._environ)
        own = (self._registry, self._models, redaction, self._environ, self._spawn)
        try:
            self._shares = self._shares or owners_shares(session.config.settings)
            parts = build_parts(session, store, *own, host, self._shares)
        except BaseException:
            session.roots = before
            if host is not None:
                await host.end()
            raise
        self._spawn(parts.beside.live())
        start(parts.project, self._spawn)
        return parts

    def _redaction(self, session: Session) -> Redaction:
        """Knows the agent's own keys and those of the MCP servers. Sessions with the same keys share it."""
        settings = session.config.settings
        values = of_session(settings, self._environ, session.mcp_servers)
        self._models.recorded.know(session.roots.clients[0], values, settings.secrets.extra_patterns)
        identity = (values, tuple(settings.secrets.extra_patterns), settings.secrets.redact)
        if identity not in self._redactions:
            redactor = Redactor(values=values, extra_patterns=identity[1], enabled=settings.secrets.redact)
            self._redactions[identity] = Redaction(redactor)
        return self._redactions[identity]

    async def introduce(self, session: Session) -> None:
        """Tells the client the session's commands and models, and loads what its turns need, whenever its parts were
        built.

        The provider is needed first. What only tools need is loaded when the process is idle, so that the first prompts
        do not wait for it.
        """
        parts = await session.parts()
        first = session.id not in self._introduced
        self._introduced.add(session.id)
        parts.prompts.menu.show()
        try:
            await self._models.discover(session.config, session.choices)
        except (AuthRequired, ProviderError, InvalidParams) as error:
            log.info("the models could not be listed: %s", error)
        if (told := await parts.turns.prepare()) and first:
            session.outbox.tell("\n".join(told))
        state, top = Path(state_dir(self._environ)), real_path(session.roots.clients[0])
        for words in await anyio.to_thread.run_sync(load(LEFT_WORKTREES), state, top):
            session.outbox.tell(words)
        if not self._warm:
            self._warm = True
            await warm([*self._registry.loaders(), partial(_examine, session), partial(_prices, session)])
            self._loaded()
            self._spawn(_sweep(Path(state_dir(self._environ))))
            self._spawn(self._tidy(session))
        await parts.shell.confinement.ready()

    async def _tidy(self, session: Session) -> None:
        """Finishes the undos of agents that were killed, and drops what is too old."""
        state = Path(state_dir(self._environ))
        if not (state / "undo").is_dir():
            return
        try:
            words = await anyio.to_thread.run_sync(_tidied, session, state)
        except StoreError as error:
            log.warning("what is kept for undo could not be tidied: %s", error)
        else:
            if words:
                session.outbox.tell("\n".join(["An undo that had been interrupted was finished.", *words]))

    async def close(self) -> None:
        await self._models.close()


def _examine(session: Session) -> None:
    """Loads what command lines are examined with: the parser, and the tables that a line like this one is held to."""
    load(EXAMINE)("timeout 5 git log | sort > /dev/null", session.roots, session.roots.cwd)


def _prices(session: Session) -> None:
    """Loads the table of prices, if the chosen server may charge: the end of the first answer does not wait for it."""
    settings = session.config.settings
    provider = settings.provider(settings.chosen_provider)
    if provider is not None and needs_key(provider.base_url):
        load(LISTED)


def _tidied(session: Session, state: Path) -> list[str]:
    with closing(session.store.another()) as store:
        words: list[str] = load(TIDY)(store, state, session.config.settings.undo)
        return words


async def _sweep(state: Path) -> None:
    await anyio.to_thread.run_sync(load(SWEEP_WORKTREES), state)
    for folder in await anyio.to_thread.run_sync(sweep):
        log.info("removed %s, left by an agent that was killed", folder)
