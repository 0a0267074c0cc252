"""Tools from installed packages, and what the project has of its own if the user trusts it.

Trust applies to a folder and the exact bytes of its files, and is stored outside the folder (in the session store, with
the permissions): after a pulled commit that changes a tool the user is asked again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from acp_agent.config.sources import PROJECT_FILE
from acp_agent.lazy import load
from acp_agent.loop.journal import Journal
from acp_agent.safety.folders.folder_trust import (
    FOLDER,
    LEADS_TO,
    MARK_CHARS,
    OTHERS,
    SERVERS,
    Found,
    look,
    mark_of,
    scope_of,
    tools_of,
)
from acp_agent.store.base import Decision
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import ENTRY_POINTS, SessionRegistry

log = logging.getLogger(__name__)

ASK = "acp_agent.loop.ask:ask_trust"

PACKAGES = "package"
PROJECT = "project"
TOOL = "trust"

LOAD_TIMEOUT = 30.0

SHOWN_CHARS = 2_000
"""Characters shown of each file when the user is asked."""

ANSWERS = {True: "given by the user", False: "refused by the user", None: "not answered"}

ALL_SHOWN_CHARS = 100_000
"""Of all files together; of the others the size and digest."""
NOT_COVERED = "Not covered, so it may change unnoticed, or is not run:"

QUESTION = "Trust this folder's own files, and let them take effect?"
NOT_TRUSTED = "This folder has its own configuration or tools, which are not used: `/trust` shows them."
TAKEN_BACK = (
    "This folder is no longer trusted (`/trust no` in another session), so nothing of its own is used any more."
)
TRUSTED = "Trusted. The folder's tools, `.mcp.json` and configuration are used."

PACKAGE_TOOLS = "acp_agent.tools.kit.third_party:package_tools"
PROJECT_TOOLS = "acp_agent.tools.kit.third_party:project_tools"
"""Loaded in a thread: they bring pydantic."""


class Extensions:
    """Of one session in `folder`. Puts what it loads into `registry`."""

    def __init__(
        self,
        folder: Path,
        registry: SessionRegistry,
        store: SessionStore,
        trusted: Callable[[Mapping[str, bytes]], None],
        *,
        packages: bool,
        own: bool,
    ) -> None:
        """`trusted` is told the files that the user trusts; none once they no longer do. `packages`: whether tools of
        packages are loaded; `own`: whether the folder may have files of its own."""
        self._folder = folder
        self._registry = registry
        self._store = store
        self._trusted = trusted
        self._packages = packages
        self._own = own
        self._begun = False
        self._shown = ""
        self._given = ""
        """Identifies the files of the folder that take effect in this session."""
        self._loaded = False
        self._asks = False
        self._given_now = False
        self._loading = anyio.Lock()

    async def _look(self) -> Found:
        return await anyio.to_thread.run_sync(look, self._folder) if self._own else Found()

    async def read(self) -> dict[str, bytes]:
        return (await self._look()).files

    async def trusted(self, files: Mapping[str, bytes]) -> bool:
        """Whether the user trusts exactly these files."""
        return await self._answer(files) == "allow"

    async def _answer(self, files: Mapping[str, bytes]) -> Decision | None:
        """Returns the user's answer for exactly these files."""
        return await self._decision(scope_of(files))

    async def _decision(self, scope: str) -> Decision | None:
        known = await self._store.do(self._store.permissions, str(self._folder))
        return next((item.decision for item in known if item.tool == TOOL and item.scope == scope), None)

    @property
    def mark(self) -> str:
        """Identifies the files that were shown last."""
        return mark_of(self._shown)

    @property
    def loaded(self) -> bool:
        """Whether tools of the project are loaded, possibly from an earlier version of their files."""
        return self._loaded

    async def show(self) -> tuple[list[str], list[str], bool]:
        """The files that could be trusted, relative to the folder, what trust does not cover, and whether they are;
        `trust` takes only these."""
        found = await self._look()
        self._shown = scope_of(found.files)
        return list(found.files), found.lines(), await self.trusted(found.files)

    async def packages(self) -> list[str]:
        """Loads the tools of packages once; concurrent callers wait. Returns messages for the user. Imports nothing if
        no package offers any."""
        async with self._loading:
            if not self._packages:
                return []
            self._packages = False
            if not await anyio.to_thread.run_sync(_any_package):
                return []
            return await self._load(PACKAGES, PACKAGE_TOOLS)

    async def project(self) -> list[str]:
        """Loads the project's tools once, if they are trusted; concurrent callers wait. Trust that was taken back in
        another session ends here."""
        async with self._loading:
            if self._given and await self._decision(self._given) != "allow":
                self._drop()
                return [TAKEN_BACK]
            if self._begun or not any((self._folder / name).exists() for name in (FOLDER, OTHERS, SERVERS)):
                return []
            self._begun = True
            files = await self.read()
            if not files:
                return []
            answer = await self._answer(files)
            if answer == "allow":
                return await self._take(files)
            if not any(name.startswith(FOLDER) for name in files):
                return []  # What is for other agents is worth no question; `/trust` shows it.
            self._asks = answer is None
            return [] if self._asks else [NOT_TRUSTED]

    async def ask(self, journal: Journal) -> list[str]:
        """Asks the user, once for these exact files, whether they are trusted; returns a message for the user."""
        if not self._asks:
            return []
        self._asks = False
        found = await self._look()
        shown = scope_of(files := found.files)
        answer = await load(ASK)(journal.outbox, QUESTION, [*_shown(files), *_not_covered(found.lines())])
        journal.notice(f"trust in {', '.join(files)} ({mark_of(shown)}): {ANSWERS[answer]}")
        if answer is None:
            return [NOT_TRUSTED]
        if answer:
            self._shown = shown  # Only now: others may have been shown meanwhile, by `/trust`.
            trouble = await self.trust()
            if trouble is None:
                return [f"The files changed while you were asked. {NOT_TRUSTED}"]
            return [TRUSTED, *trouble]
        await self._store.do(self._store.remember, str(self._folder), TOOL, shown, "reject")
        return [NOT_TRUSTED]

    async def trust(self, mark: str = "") -> list[str] | None:
        """Remembers that the files are trusted and loads them. Returns what went wrong; `None` if they are not those
        shown last (or identified by `mark`), and nothing was done."""
        async with self._loading:
            files = await self.read()
            scope = scope_of(files)
            known = scope == self._shown or (len(mark) >= MARK_CHARS and mark_of(scope) == mark[:MARK_CHARS])
            if not (files and known):
                return None
            self._begun, self._asks = True, False
            self._given_now = PROJECT_FILE in files
            await self._store.do(self._store.remember, str(self._folder), TOOL, scope, "allow")
            return await self._take(files)

    async def _take(self, files: Mapping[str, bytes]) -> list[str]:
        self._given = scope_of(files)
        self._trusted(files)
        return await self._load(PROJECT, PROJECT_TOOLS, tools_of(files))

    def _drop(self) -> None:
        self._given = ""
        self._registry.set_group(PROJECT, ())
        self._trusted({})
        self._loaded = False

    def was_given(self) -> bool:
        """Whether the user has just trusted a configuration, which the session has not read yet; said once."""
        given, self._given_now = self._given_now, False
        return given

    async def distrust(self) -> None:
        """Revokes trust. The user is not asked about these files again."""
        async with self._loading:
            self._begun, self._asks = True, False
            project = str(self._folder)
            for item in await self._store.do(self._store.permissions, project):
                if item.tool == TOOL:
                    await self._store.do(self._store.revoke, project, item.id)
            if files := await self.read():
                await self._store.do(self._store.remember, project, TOOL, scope_of(files), "reject")
            self._drop()

    async def _load(self, group: str, row: str, *arguments: object) -> list[str]:
        """Third-party code runs in a thread that is abandoned if it takes too long."""
        try:
            with anyio.fail_after(LOAD_TIMEOUT):
                made, trouble = await anyio.to_thread.run_sync(lambda: load(row)(*arguments), abandon_on_cancel=True)
        except TimeoutError:
            made, trouble = [], [f"The tools of the {group} were not loaded: it took more than {LOAD_TIMEOUT:g} s."]
        taken = self._registry.set_group(group, made)
        self._loaded = self._loaded or group == PROJECT
        trouble += [f"The tool `{name}` of the {group} is left out: the name is taken." for name in taken]
        for words in trouble:
            log.warning("%s", words)
        return list(trouble)


def _shown(files: Mapping[str, bytes]) -> Iterator[str]:
    """Files for the user: their names, and the beginning of what is in them, as long as there is room."""
    left = ALL_SHOWN_CHARS
    for name, data in files.items():
        text = data.decode("utf-8", "replace")
        most = min(SHOWN_CHARS, left) if "\0" not in text else 0
        left -= min(len(text), most)
        if LEADS_TO in name and not data:
            yield name
        elif not most:
            yield f"{name}\n\n{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"
        else:
            more = f"\n… [{len(text) - most} characters more]" if len(text) > most else ""
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            yield f"{name}\n\n{fence}\n{text[:most].rstrip()}{more}\n{fence}"


def _not_covered(lines: Sequence[str]) -> list[str]:
    return [f"{NOT_COVERED}\n{''.join(f'- {line}{chr(10)}' for line in lines)}".rstrip()] if lines else []


def _any_package() -> bool:
    """Whether an installed package registers the group: searched by hand, since the first turn waits for it and
    importing `importlib.metadata` takes longer."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as opened:
                        if f"[{ENTRY_POINTS}]".encode() in opened.read():
                            return True
                except OSError:
                    continue
    return False
