"""How a session is opened: configuration, login, store, the answer. No event loop is needed for it.

So the first `session/new` is answered before asyncio is loaded, as `initialize` is (`commands/stdio.py`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from acp_agent.auth import Login
from acp_agent.config.load import Config, load_config
from acp_agent.config.model import as_choice
from acp_agent.config.place_settings import is_host
from acp_agent.config.xdg import state_dir
from acp_agent.errors import ConfigError, InvalidParams, ResourceNotFound
from acp_agent.lazy import load
from acp_agent.loop.modes import known_mode
from acp_agent.loop.opened import Opened
from acp_agent.loop.options import AUTO_MODEL, config_options, mode_state, places_of
from acp_agent.loop.prompts.project_rules import project_rules
from acp_agent.loop.toolbox.trust import project_layer
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.folders.protect import WORKTREES, configured_folders
from acp_agent.schema import acp
from acp_agent.store.base import ClientPrompt, ListedSession, SessionRecord
from acp_agent.store.session_store import SessionStore
from acp_agent.store.stores import postgres_store, sqlite_store

PLACE_VARIABLE = "ACP_CODER_PLACE"
CLIENT_PROMPT = "acp_agent.build.client_prompt:client_prompt"
WORKTREE = "acp_agent.loop.shell.worktrees:of_folder"


def open_store(config: Config, environ: Mapping[str, str]) -> SessionStore:
    """The user's session store. Raises StoreError."""
    store = config.settings.store
    if url := store_url(config, environ):
        with suppress(OSError):  # The agent's own folder, which a store in a file would have made.
            Path(state_dir(environ)).mkdir(parents=True, exist_ok=True, mode=0o700)
        bounds = (store.connections, store.timeout, store.busy_timeout, store.away)
        return postgres_store(url, store.schema, *bounds)
    return sqlite_store(store_file(config, environ), busy_timeout=store.busy_timeout)


def store_url(config: Config, environ: Mapping[str, str]) -> str:
    """Where the store is, if it is on a server."""
    store = config.settings.store
    return store.url or environ.get(store.url_env, "")


def store_file(config: Config, environ: Mapping[str, str]) -> Path:
    """Where it is otherwise."""
    return Path(config.settings.store.path or f"{state_dir(environ)}/sessions.db").expanduser()


class Opening:
    """Opens the sessions of one connection. `flags` are those of the command line. `below`: folders that all their
    folders must be in, resolved; none: anywhere."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None, below: Sequence[str] = ()
    ) -> None:
        self.environ = environ
        self.login = Login(environ)
        self._flags = flags
        self._below = tuple(map(Path, below))
        self._store: SessionStore | None = None
        self._opens = Lock()
        self._whole: Opening | None = None
        """Whose store is used, if not its own."""

    def below(self, folders: Sequence[str]) -> Opening:
        """One for folders in these, with the same store, which this one has opened and closes."""
        other = Opening(self.environ, self._flags, folders)
        other._whole = self
        return other

    def may_open(self, folder: str) -> bool:
        return self._may(real_path(Path(folder)))

    def may_see(self, record: ListedSession) -> bool:
        """Whether it is of a folder that may be opened, wherever the folder's name leads by now."""
        return self._may(Path(record.real)) if record.real else self.may_open(record.cwd)

    def _may(self, real: Path) -> bool:
        if not self._below or any(real.is_relative_to(top) for top in self._below):
            return True
        # A worktree of ours lies beside our state; whose it is says the repository that it was made of.
        own = real_path(Path(state_dir(self.environ)).parent) / WORKTREES
        made = load(WORKTREE)(real) if real.parent == own else None
        return made is not None and any(real_path(Path(made.top)).is_relative_to(top) for top in self._below)

    def opened(
        self,
        record: SessionRecord,
        config: Config,
        mcp_servers: Sequence[acp.McpServer] | None,
        models: Sequence[str] = (),
    ) -> Opened:
        """The session with its folders, which are from now on what they are now. Raises InvalidParams if one of them
        may not be opened: its name may lead elsewhere than when it was looked at."""
        more = configured_folders(config.settings.tools.files.allowed_paths)
        roots = Roots(Path(record.cwd), [*map(Path, record.additional_directories), *more], within=self._below)
        for name, real in zip((record.cwd, *record.additional_directories), roots.real, strict=False):
            if not self._may(real):
                raise InvalidParams(f"Invalid params: {name} is in none of the folders that may be opened")
        if record.real and record.real != str(roots.real[0]):
            words = f"{record.cwd} leads to {roots.real[0]} now; this session is of {record.real}, so it was not opened"
            raise InvalidParams(f"Invalid params: $.cwd: {words}. State one of the two as `cwd`")
        record = msgspec.structs.replace(record, real=str(roots.real[0]))
        return Opened(record, config, roots, tuple(models or known_models(config)), tuple(mcp_servers or ()))

    def isolates(self, meta: Mapping[str, Any] | None, config: Config) -> bool:
        """Whether a session is to be in a worktree of its own. Raises InvalidParams."""
        wished = (meta or {}).get("isolation", config.settings.agent.isolation)
        if wished not in ("none", "worktree"):
            raise InvalidParams("Invalid params: $._meta.isolation: `none` or `worktree` is expected")
        if wished == "worktree" and is_host(config.settings.place()):
            words = "there are no worktrees where files are not this machine's; `isolation` must be `none`"
            raise InvalidParams(f"Invalid params: {words}")
        return bool(wished == "worktree")

    def folders(self, cwd: str, additional: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The checked folders of a session. Raises InvalidParams."""
        first, more = folders(cwd, additional)
        for name, each in (
            ("cwd", first),
            *((f"additionalDirectories[{index}]", each) for index, each in enumerate(more)),
        ):
            if not self.may_open(each):
                raise InvalidParams(f"Invalid params: $.{name}: {each} is in none of the folders that may be opened")
        return first, more

    def new(self, request: acp.NewSessionRequest) -> Opened:
        """Makes a session. Raises RpcError, ConfigError, StoreError."""
        cwd, more = self.folders(request.cwd, request.additional_directories)
        real = str(real_path(Path(cwd)))
        config = self.config(real)
        self.login.need(config)
        models = known_models(config)
        record = msgspec.structs.replace(
            blank(cwd, config, models),
            id=str(uuid.uuid4()),
            additional_directories=more,
            real=real,
            client_prompt=self.client_prompt(request, config),
        )
        new = self.opened(record, config, request.mcp_servers, models)
        self.store(config).create(new.record)
        return new

    def stored(self, config: Config, session_id: str) -> SessionRecord:
        """Raises ResourceNotFound, for what the client may not see as well."""
        record = self.store(config).get(session_id)
        if record is None or not self.may_see(record):
            raise ResourceNotFound(f"Session {session_id!r} does not exist", {"sessionId": session_id})
        return record

    def options(self, request: acp.SessionOptionsRequest, *, booleans: bool) -> acp.SessionOptionsResponse:
        """With which a session would be opened. Raises RpcError, ConfigError, StoreError."""
        cwd, _ = self.folders(request.cwd, request.additional_directories or ())
        config = self.config(str(real_path(Path(cwd))))
        models, record = known_models(config), None
        if request.session_id is None:
            record = blank(cwd, config, models)
        else:
            record = self.stored(config, request.session_id)
        return acp.SessionOptionsResponse(
            **choices_of(record, chosen(config, record, self.environ), models, booleans=booleans)
        )

    def client_prompt(
        self,
        request: acp.NewSessionRequest | acp.LoadSessionRequest | acp.ResumeSessionRequest | acp.ForkSessionRequest,
        config: Config,
    ) -> ClientPrompt | None:
        """The system prompt that a request states. Raises InvalidParams."""
        field, meta, servers = request.system_prompt, request.meta, request.mcp_servers
        if field is None and "systemPrompt" not in (meta or {}):
            return None
        stated: ClientPrompt | None = load(CLIENT_PROMPT)(field, meta, servers, config.settings, self.environ)
        return stated

    def config(self, cwd: str | None = None) -> Config:
        """The configuration; with `cwd`, that folder's own, where it is trusted, is part of it. Raises ConfigError."""
        config, flags = load_config(self.environ, flags=self._flags), self._flags
        if self.login.by_client is not None and self.login.by_client.given is not None:
            flags = {**(flags or {}), **self.login.by_client.flags(config.settings)}
            config = load_config(self.environ, flags=flags)
        try:
            own = cwd if config.settings.agent.trust else None
            layer = project_layer(own, self.store(config)) if own is not None else None
            return config if layer is None else load_config(self.environ, project=layer, flags=flags)
        except ConfigError as error:  # The project's: the user must be able to continue and to revoke trust.
            words = f"The folder's own configuration was ignored: {error}. Fix it, or `/trust no`."
            return msgspec.structs.replace(config, trouble=words)

    def store(self, config: Config) -> SessionStore:
        """Opened once. Raises StoreError."""
        if self._whole is not None:
            return self._whole.store(config)
        with self._opens:
            if self._store is None:
                self._store = open_store(config, self.environ)
            return self._store

    def own(self) -> tuple[Config, SessionStore]:
        """The configuration that no folder is part of, and the store. Raises ConfigError, StoreError."""
        config = self.config()
        return config, self.store(config)

    def look(self) -> SessionStore | None:
        """The store once more, for one look; `None` where nothing was ever stored. Raises ConfigError, StoreError."""
        config = self.config()
        if not store_url(config, self.environ) and not store_file(config, self.environ).exists():
            return None
        return open_store(config, self.environ)

    async def end(self) -> None:
        """Closes the store behind all that was to be done in it."""
        if self._store is not None:
            await self._store.do(self._store.close)


def chosen(config: Config, record: SessionRecord, environ: Mapping[str, str]) -> Config:
    """The configuration of a stored session: in the place that was chosen for it, unless the agent was started for
    another one, or for one only. Raises InvalidParams if there is no such place any more."""
    if not (record.place and config.settings.agent.elsewhere) or environ.get(PLACE_VARIABLE):
        return config
    try:
        return config.in_place(record.place)
    except ConfigError as error:
        raise InvalidParams(f"The place that was chosen for this session cannot be had: {error}") from error


def answer(opened: Opened) -> acp.NewSessionResponse:
    """What `session/new` is answered."""
    choices = choices_of(opened.record, opened.config, opened.models)
    return acp.NewSessionResponse(session_id=opened.record.id, **choices, meta=rules(opened.config, opened.roots))


def blank(cwd: str, config: Config, models: Sequence[str]) -> SessionRecord:
    """A session as it begins, without an id."""
    agent = config.settings.agent
    return SessionRecord("", cwd, mode=agent.mode, model=models[0], thought_level=agent.thought_level)


def choices_of(
    record: SessionRecord, config: Config, models: Sequence[str], *, booleans: bool = False
) -> dict[str, Any]:
    """The modes and options of a session as it is opened. `booleans`: as in `config_options`."""
    mode, level, settings = known_mode(record.mode), record.thought_level or "default", config.settings
    model, places = as_choice(record.model), places_of(settings)
    options = config_options(
        settings, mode=mode, model=model, models=models, thought_level=level, places=places, booleans=booleans
    )
    return {"modes": mode_state(mode), "config_options": options}


def rules(config: Config, roots: Roots) -> dict[str, Any] | None:
    """The `_meta` of the response that names a session: the project's instruction files and skills."""
    agent = config.settings.agent
    if is_host(config.settings.place()):
        return None  # They are read once its place was reached.
    names = project_rules(roots, instructions=agent.instruction_files, skills=agent.skills)
    return {"projectRules": [{"name": name} for name in names]} if names else None


def folders(cwd: str, additional: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The checked roots of a session."""
    _absolute(cwd, "$.cwd")
    if not Path(cwd).is_dir() and Path(cwd).parent.name == WORKTREES:
        raise InvalidParams(f"Invalid params: $.cwd: the worktree {cwd} was removed; open it in the project's folder")
    if not Path(cwd).is_dir():
        where = f" on {os.uname().nodename}, where acp-coder runs" if os.environ.get("SSH_CONNECTION") else ""
        raise InvalidParams(f"Invalid params: $.cwd: {cwd} is not an existing folder{where}")
    for index, folder in enumerate(additional):
        _absolute(folder, f"$.additionalDirectories[{index}]")
    return normal(cwd), tuple(normal(folder) for folder in additional)


def normal(path: str) -> str:
    """One spelling for each folder: no `..`, no doubled or trailing slash."""
    return os.path.normpath(path)


def _absolute(path: str, where: str) -> None:
    if "\0" in path or not Path(path).is_absolute():
        raise InvalidParams(f"Invalid params: {where}: must be an absolute path")
    try:
        real_path(Path(path))
        Path(path).is_dir()
    except OSError as error:
        raise InvalidParams(f"Invalid params: {where}: {path[:200]} cannot be used: {error.strerror}") from error
    except ValueError as error:
        raise InvalidParams(f"Invalid params: {where}: contains characters that cannot be encoded in UTF-8") from error


def known_models(config: Config) -> list[str]:
    """The configured `provider/model`s, the chosen one first; a provider whose models are not configured stands with
    its first one, if it is not the only one."""
    settings = config.settings
    agent = settings.agent
    names = [agent.provider, *(name for name in settings.providers if name != agent.provider)]
    known = []
    for name in names:
        provider = settings.provider(name)
        if provider is not None:
            known += [f"{name}/{model}" for model in provider.models]
    if agent.model:
        chosen = settings.choice(agent.model)
    else:
        first = f"{agent.provider}/"
        chosen = known[0] if known and known[0].startswith(first) else first + AUTO_MODEL
    known += [f"{name}/{AUTO_MODEL}" for name in config.found if name != chosen.partition("/")[0]]
    return list(dict.fromkeys([chosen, *known]))
