"""MCP servers as the rest of the agent sees them: where they are, what they offer, what calls return, how they fail.

What lives here: plain values and pure functions. What does not: the `mcp` package, tasks, processes.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from acp_agent.child import User
from acp_agent.config.mcp_settings import McpConfig, McpServerConfig
from acp_agent.disk import Entered
from acp_agent.errors import AgentError, ConfigError
from acp_agent.schema.acp import McpServer, McpServerHttp, McpServerSse

if TYPE_CHECKING:
    from acp_agent.errors import ToolErrorCategory

Transport = Literal["stdio", "http", "sse"]

McpErrorCode = Literal[
    "transient", "rate_limited", "invalid_input", "auth_failure", "server_error", "not_found", "policy_blocked"
]

TOOL_CATEGORIES: dict[McpErrorCode, ToolErrorCategory] = {
    "transient": "network_error",
    "rate_limited": "rate_limited",
    "invalid_input": "invalid_parameters",
    "auth_failure": "policy_blocked",
    "server_error": "server_error",
    "not_found": "permanent_failure",
    "policy_blocked": "policy_blocked",
}
"""The category of each code. `not_found` is not `tool_not_found`: the name was in the registry."""


class McpError(AgentError):
    """An MCP server could not do what was requested. `str()` is a clause that says what happened.

    `retry_after` is in seconds, if the server gave a time.
    """

    def __init__(self, code: McpErrorCode, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code: McpErrorCode = code
        self.retry_after = retry_after


SAFE_PATH = "PYTHONSAFEPATH"
"""Keeps `python -m` and `-c` from loading modules of the folder in which they start: any command can put one there.
Not empty: it is in force (Python 3.11 and later)."""


ON_THIS_MACHINE = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\]):\d+$")


class LoginClient(msgspec.Struct, frozen=True):
    """What is registered at a server for logins."""

    id: str = ""
    """Or the https URL of a document that describes it. Empty: one is registered at the login."""
    secret: str = ""
    port: int = 0
    """On this machine, to which the browser comes back; 0: any."""


class ServerLimits(msgspec.Struct, frozen=True):
    """What the user lets a server do."""

    tools: tuple[str, ...] = ()
    """Patterns of those that are offered; empty: all."""
    without: tuple[str, ...] = ()
    sampling: bool = False
    """Whether it may ask the model."""


class ServerSpec(msgspec.Struct, frozen=True):
    """Address or command of a server."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    inherit: tuple[str, ...] = ()
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    client: LoginClient = LoginClient()
    allows: ServerLimits = ServerLimits()

    def offers(self, tool: str) -> bool:
        """Whether the user's lists let the model have a tool."""
        allowed = not self.allows.tools or any(fnmatchcase(tool, pattern) for pattern in self.allows.tools)
        return allowed and not any(fnmatchcase(tool, pattern) for pattern in self.allows.without)

    def digest(self) -> str:
        """Of what it is: its program with the arguments, or its address but for a port on this machine, which changes
        with each start of an editor."""
        head, _, path = self.url.partition("?")[0].partition("://")[2].partition("/")
        host = ON_THIS_MACHINE.sub(r"\1", head)
        return sha256(repr((self.transport, self.command, self.args, self.cwd, host, path)).encode()).hexdigest()[:16]


Answer = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers what a server, by its name, asks with these parameters. Raises McpError."""


class Secrets(Protocol):
    """Where logins are kept, by the URL of the server. The methods block and raise ConfigError."""

    def read(self, url: str) -> str:
        """Empty if there is none."""
        ...

    def write(self, url: str, text: str) -> None: ...


class Answers(msgspec.Struct, frozen=True):
    """Who answers what servers ask."""

    secrets: Secrets | None = None
    """The user's logins."""

    elicit: Answer | None = None
    """Asks the user; `None`: no server may."""
    sample: Answer | None = None
    """Asks the model, for those servers that may."""
    url_done: Callable[[str, str], None] = lambda server, elicitation: None
    """Gets what a server has been waiting for at a URL, by the id of its question."""


class KeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the servers of a session are run. Times are in seconds."""

    folders: Sequence[Path]
    """The session's; servers run in the first."""
    entered: Entered = nullcontext
    """Where a server is started that is to run in a folder. May raise ExecutorError."""
    environ: Mapping[str, str] = os.environ
    """What every server inherits."""
    more: Mapping[str, str] = {}
    """Variables that it inherits if its configuration names them."""
    user: Callable[[], User | None] = lambda: None
    """The user that servers run as. May raise ExecutorError."""
    as_trusted: Callable[[ServerSpec], ServerSpec]
    """The server as it is to be started. Blocks; raises NotAsTrusted."""
    connect_timeout: float
    call_timeout: float
    max_result_bytes: int
    on_change: Callable[[], None]
    """Called after every change of tools or prompts."""
    on_trouble: Callable[[str, str], None]
    """Called with a server's name and a sentence for the user."""
    answers: Answers = Answers()

    @classmethod
    def of(
        cls,
        config: McpConfig,
        folders: Sequence[Path],
        environ: Mapping[str, str],
        more: Mapping[str, str],
        **rest: Any,
    ) -> KeeperSettings:
        """By the configuration: every server inherits what `mcp.inherit` names of `more`."""
        return cls(
            folders=folders,
            connect_timeout=config.connect_timeout,
            call_timeout=config.call_timeout,
            max_result_bytes=config.max_result_bytes,
            environ={**environ, **{name: more[name] for name in config.inherit if name in more}},
            more=more,
            **rest,
        )


class McpTool(msgspec.Struct, frozen=True):
    """A tool as described by its server. Hints are the server's claims and not to be relied on."""

    server: str
    name: str
    title: str
    description: str
    parameters: dict[str, Any]
    """The server's JSON schema, without what is not valid in it."""
    output: dict[str, Any] | None = None
    """That of structured content."""
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None
    of: str = ""
    """`ServerSpec.digest` of its server."""


class PromptArgument(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    required: bool = False


class McpPrompt(msgspec.Struct, frozen=True):
    server: str
    name: str
    title: str
    description: str
    arguments: tuple[PromptArgument, ...] = ()


class McpContent(msgspec.Struct, frozen=True):
    """An image."""

    mime_type: str
    data: str
    """Base64."""


class McpLink(msgspec.Struct, frozen=True):
    """A link to a resource."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""


class McpResult(msgspec.Struct, frozen=True):
    text: str
    parts: tuple[McpContent, ...] = ()
    links: tuple[McpLink, ...] = ()
    """Those that `text` names, too."""
    structured: Any = None
    """Structured content as JSON, for programs."""
    is_error: bool = False
    """The tool ran and reported a failure."""


Progress = Callable[[str], None]
"""Gets lines that say how far a call is."""


def from_acp(server: McpServer) -> ServerSpec:
    """The server given by a client."""
    if isinstance(server, McpServerHttp | McpServerSse):
        headers = {header.name: header.value for header in server.headers}
        transport: Transport = "http" if isinstance(server, McpServerHttp) else "sse"
        return ServerSpec(server.name, transport, url=server.url, headers=headers)
    env = {variable.name: variable.value for variable in server.env}
    return ServerSpec(server.name, "stdio", command=server.command, args=tuple(server.args), env=env)


def from_config(name: str, config: McpServerConfig) -> ServerSpec:
    """The server given by the configuration. Raises ConfigError for an incomplete or contradictory entry."""
    transport: Transport = config.transport or ("stdio" if config.command else "http")
    wanted = "command" if transport == "stdio" else "url"
    if not getattr(config, wanted):
        raise ConfigError(f"mcp.servers.{name}: `{wanted}` is not set.")
    if transport == "stdio":
        inherit = tuple(config.inherit)
        spec = ServerSpec(name, transport, config.command, tuple(config.args), config.env, inherit, config.cwd)
    else:
        client = LoginClient(config.client_id, config.client_secret, config.callback_port)
        spec = ServerSpec(name, transport, url=config.url, headers=config.headers, client=client)
    return _limited(spec, config)


def _limited(spec: ServerSpec, config: McpServerConfig) -> ServerSpec:
    allows = ServerLimits(tuple(config.allow), tuple(config.deny), config.sampling)
    return msgspec.structs.replace(spec, allows=allows)


def gather(
    servers: Iterable[McpServer], config: Mapping[str, McpServerConfig], *, programs: bool = True
) -> tuple[tuple[ServerSpec, ...], tuple[tuple[str, str], ...]]:
    """Returns the servers of a session, and (name, sentence) of each invalid one.

    The client's come first and replace configured ones of the same name, whose limits they keep; a name the client uses
    twice gets a number.
    `programs`: whether its servers may be programs.
    """
    specs: dict[str, ServerSpec] = {}
    troubles: list[tuple[str, str]] = []
    for server in servers:
        spec = from_acp(server)
        if spec.transport == "stdio" and not programs:
            troubles.append((spec.name, f"{spec.name}: clients may not have programs started (`mcp.client_programs`)"))
            continue
        name, number = spec.name, 1
        while name in specs:
            number += 1
            name = f"{spec.name}-{number}"
        if spec.name in config:
            spec = _limited(spec, config[spec.name])
        specs[name] = msgspec.structs.replace(spec, name=name)
    for name, entry in config.items():
        if name in specs or not entry.enabled:
            continue
        try:
            specs[name] = from_config(name, entry)
        except ConfigError as error:
            troubles.append((name, str(error)))
    return tuple(specs.values()), tuple(troubles)


def prompt_arguments(prompt: McpPrompt, text: str) -> dict[str, str]:
    """Reads the text after a slash command as the prompt's arguments.

    A prompt with one argument takes the text as it is; others take `name=value` and positional words, quoted as in a
    shell. Raises McpError if a required argument is missing or there is a word too many.
    """
    text = text.strip()
    names = [argument.name for argument in prompt.arguments]
    given: dict[str, str] = {}
    if len(names) == 1:
        if text:
            given[names[0]] = text.removeprefix(f"{names[0]}=")
    else:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise McpError("invalid_input", f"the arguments of {prompt.name} have an unclosed quote") from error
        rest: list[str] = []
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name in names:
                given[name] = value
            else:
                rest.append(word)
        free = [name for name in names if name not in given]
        if len(rest) > len(free):
            raise McpError("invalid_input", f"{prompt.name} takes {len(names)} arguments: {', '.join(names) or 'none'}")
        given.update(zip(free, rest, strict=False))
    missing = [argument.name for argument in prompt.arguments if argument.required and argument.name not in given]
    if missing:
        raise McpError("invalid_input", f"{prompt.name} needs {', '.join(missing)}")
    return given
