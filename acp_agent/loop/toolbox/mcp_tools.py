"""The MCP servers of a session, as the loop sees them: tools in its registry, prompts among its commands.

The servers are connected in the background, after the session's response. A prompt that arrives in the meantime waits
for them briefly and continues without those that are not ready.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from acp_agent.child import User
from acp_agent.config.mcp_settings import McpConfig
from acp_agent.config.safety_settings import OF_FOLDER
from acp_agent.lazy import load
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.prompts.instructions import neutral
from acp_agent.loop.prompts.menu import Menu
from acp_agent.mcp.base import Answers, KeeperSettings, McpError, McpPrompt, ServerSpec, gather, prompt_arguments
from acp_agent.output.sanitize import unlike_notes
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import AvailableCommand, McpServer, UnstructuredCommandInput
from acp_agent.tools.kit.registry import SessionRegistry

if TYPE_CHECKING:
    from acp_agent.limits.shares import Share
    from acp_agent.loop.toolbox.server_requests import ServerRequests
    from acp_agent.mcp.mcp_servers import McpServers, ServerState

log = logging.getLogger(__name__)

GROUP = "mcp"
UNFIT = re.compile(r"[^\w.:/-]+", re.ASCII)
RESOURCE = re.compile(r"(?<![\w`@./-])@([\w.-]+):(\S+)", re.ASCII)
ENDS = ".,;:!?)\"'`"
"""What ends a sentence and not the URI."""
MOST_RESOURCES = 8
"""Resources read for one prompt."""
LONGEST_COMMAND = 80
"""Characters of a command's name; a server's prompt names may contain anything."""

SERVERS = "acp_agent.mcp.mcp_servers:McpServers"
LOGIN = "acp_agent.mcp.oauth:login"
LOGIN_TIMEOUT = 600.0
FOLDER_SERVERS = "acp_agent.plugins.mcp_json:folder_servers"
SERVER_TOOLS = "acp_agent.tools.kit.mcp_tool:server_tools"
"""Loaded with the first server: it brings pydantic."""


class SessionServers:
    """Of one session. Its prompts are added as commands to `menu`."""

    def __init__(
        self,
        given: Sequence[McpServer],
        config: McpConfig,
        registry: SessionRegistry,
        *,
        roots: Roots,
        environ: Mapping[str, str],
        more: Mapping[str, str],
        user: Callable[[], User | None],
        as_trusted: Callable[[str, ServerSpec], ServerSpec],
        outbox: Outbox,
        menu: Menu,
        requests: ServerRequests,
        programs: Share,
    ) -> None:
        """`programs`: the session's, of which each server takes one."""
        self._programs = programs
        specs, troubles = gather(given, config.servers, programs=config.client_programs)
        self.trouble = [words for _, words in troubles]
        clients = {server.name for server in given}
        self._whose = {name: entry.of for name, entry in config.servers.items() if name not in clients}
        self._taken = {*(spec.name for spec in specs), *config.servers}
        self._registry = registry
        self._menu = menu
        self._outbox = outbox
        self._wait = config.prompt_wait
        self._limits = config.background_after, config.call_timeout
        self._requests = requests
        self._news = anyio.Event()
        self._environ = environ
        self._of_folder: list[str] = []
        """The names of those that the trusted folder has."""
        self._settings = KeeperSettings.of(
            config,
            roots.clients,
            environ,
            more,
            entered=roots.here.entered,
            user=user,
            as_trusted=lambda spec: as_trusted(self._of(spec.name), spec),
            on_change=self._on_change,
            on_trouble=self._on_trouble,
            answers=Answers(
                requests.logins, requests.elicit if requests.asks_user else None, requests.sample, requests.url_done
            ),
        )
        self._wanted = anyio.Event()
        """Set with the first server."""
        self._servers: McpServers | None = None
        if specs:
            self._make(specs)

    def _make(self, specs: Sequence[ServerSpec]) -> None:
        self._servers = load(SERVERS)(specs, self._settings, self._programs)
        self._wanted.set()

    def trust(self, data: bytes) -> None:
        """Uses the servers of the folder's `.mcp.json`, which the user trusts; empty: ends them. None of them replaces
        a server of the user or the client."""
        if self._of_folder:
            self._connected.remove(self._of_folder)
            self._of_folder = []
        if not data:
            return
        servers, trouble = load(FOLDER_SERVERS)(data, self._environ)
        specs, more = gather((), {name: entry for name, entry in servers.items() if name not in self._taken})
        for words in [*trouble, *(words for _, words in more)]:
            self._outbox.tell(words)
        self._of_folder = [spec.name for spec in specs]
        if specs and self._servers is None:
            self._make(specs)
        elif specs:
            self._connected.add(specs)

    def _of(self, name: str) -> str:
        """Whose a server is; empty: the user's or the client's."""
        return OF_FOLDER if name in self._of_folder else self._whose.get(name, "")

    @property
    def connected(self) -> McpServers | None:
        """`None`: there are none."""
        return self._servers

    @property
    def _connected(self) -> McpServers:
        assert self._servers is not None, "only servers have tools and prompts"
        return self._servers

    async def run(self) -> None:
        """Connects the servers and keeps them until `close`."""
        await self._wanted.wait()
        await self._connected.run()

    async def close(self) -> None:
        if self._servers is not None:
            await self._servers.close()

    async def login(self, name: str) -> None:
        """Has the user log in at a server, and connects it anew. Raises McpError."""
        login, spec = await anyio.to_thread.run_sync(load, LOGIN), self._connected.spec(name)
        try:
            await login(spec, self._requests.logins, partial(self._requests.show, name), LOGIN_TIMEOUT)
        finally:
            self._requests.url_done(name, "")
        await self._connected.restart(name)

    def states(self) -> tuple[ServerState, ...]:
        return self._servers.states() if self._servers is not None else ()

    async def ready(self) -> None:
        """Waits until all servers are connected or have failed, or for as long as a prompt may wait."""
        if self._servers is not None:
            self._servers.refresh()
        with anyio.move_on_after(self._wait):
            while any(state.state == "connecting" for state in self.states()):
                await self._news.wait()

    def _on_change(self) -> None:
        servers = self._connected
        left_out = self._registry.set_group(GROUP, load(SERVER_TOOLS)(servers.tools(), servers.start, self._limits))
        for name in left_out:
            log.warning("the tool %s of an MCP server is left out: the name is taken", name)
        self._wake()
        self._menu.change(self.commands())

    def _on_trouble(self, server: str, words: str) -> None:
        self._wake()
        self._outbox.tell(words)

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    # --- prompts as commands ----------------------------------------------------------------------------------

    def commands(self) -> list[AvailableCommand]:
        return [
            AvailableCommand(
                name=_command(prompt),
                description=prompt.description or f"A prompt of the MCP server {prompt.server}",
                input=_hint(prompt),
            )
            for prompt in {_command(prompt): prompt for prompt in reversed(self._prompts())}.values()
        ]

    def _prompts(self) -> Sequence[McpPrompt]:
        return self._servers.prompts() if self._servers is not None else ()

    def find_prompt(self, command: str) -> McpPrompt | None:
        return next((prompt for prompt in self._prompts() if _command(prompt) == command), None)

    async def resources(self, text: str, limit: int) -> list[str]:
        """For each resource that a prompt names as `@server:uri`: its text, about `limit` bytes at most, or why it
        could not be read."""
        known = {state.name for state in self.states()}
        named = [(server, uri.rstrip(ENDS)) for server, uri in RESOURCE.findall(text) if server in known]
        if not named:
            return []
        await self.ready()
        found: list[str] = []
        for number, (server, uri) in enumerate(dict.fromkeys(named)):
            try:
                if number >= MOST_RESOURCES:
                    raise McpError("invalid_input", f"{MOST_RESOURCES} of a prompt are read")
                read = unlike_notes(neutral(await self._connected.resource(server, uri, limit)))
                found.append(f"[The resource {uri} of the MCP server {server}, named in the prompt]\n{read}")
            except McpError as error:
                words = f"The resource {uri} of the MCP server {server} could not be read: {error}."
                self._outbox.tell(words)
                found.append(f"[{words}]")
        return found

    async def text_of(self, prompt: McpPrompt, rest: str) -> tuple[str, bool]:
        """Returns the text of a prompt and True, or the reason for its absence and False."""
        try:
            arguments = prompt_arguments(prompt, rest) if prompt.arguments else {}
            messages = await self._connected.prompt(prompt.server, prompt.name, arguments)
        except McpError as error:
            return f"The prompt `{_command(prompt)}` could not be used: {error}", False
        texts = [text if role == "user" else f"[{role}] {text}" for role, text in messages]
        if rest and not prompt.arguments:  # It takes no arguments: the user's text follows it.
            texts.append(rest)
        return "\n\n".join(texts), True


def _command(prompt: McpPrompt) -> str:
    """A command's name has no spaces: the rest is its argument."""
    return UNFIT.sub("_", f"{prompt.server}:{prompt.name}")[:LONGEST_COMMAND]


def _hint(prompt: McpPrompt) -> UnstructuredCommandInput | None:
    names = [f"<{argument.name}>" if argument.required else f"[{argument.name}]" for argument in prompt.arguments]
    return UnstructuredCommandInput(hint=" ".join(names)) if names else None
