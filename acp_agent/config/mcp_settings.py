"""The settings of MCP servers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from acp_agent.config import safety_settings as safety
from acp_agent.config.language_settings import key


class McpServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, key("Program to start, for a stdio server.", project=True)] = ""
    args: Annotated[list[str], key("Its arguments.", project=True)] = []
    env: Annotated[dict[str, str], key("Variables set for it.", project=True)] = {}
    inherit: Annotated[
        list[str], key("Names of variables that it inherits besides those that commands do.", project=True)
    ] = []
    cwd: Annotated[str, key("Its working directory. Empty: the session's folder.", project=True)] = ""
    url: Annotated[str, key("URL, for an HTTP server.", project=True)] = ""
    transport: Annotated[
        Literal["", "stdio", "http", "sse"],
        key("Empty: `stdio` with a command, `http` (streamable) with a URL.", project=True),
    ] = ""
    headers: Annotated[dict[str, str], key("HTTP headers sent with every request.", project=True)] = {}
    client_id: Annotated[
        str,
        key(
            "For its login: the id of a client that is registered there, or the https URL of a document that describes"
            " one. Empty: one is registered at the login.",
            project=True,
        ),
    ] = ""
    client_secret: Annotated[str, key("The registered client's secret, if it has one.")] = ""
    callback_port: Annotated[
        int,
        key(
            "Port on this machine that the browser comes back to, if the client is registered with one. 0: any.",
            project=True,
            ge=0,
            le=65535,
        ),
    ] = 0
    enabled: Annotated[bool, key("`false`: it is not started.", project=True)] = True
    allow: Annotated[list[str], key("Patterns of tools that are offered (`read_*`). Empty: all.", project=True)] = []
    deny: Annotated[
        list[str],
        key("Patterns of tools that are not offered. Both lists also limit the editor's servers.", project=True),
    ] = []
    of: Annotated[str, key(safety.WHOSE)] = ""
    sampling: Annotated[
        bool, key("It may have the session's model answer its prompts; you are asked each time, and it costs as usual.")
    ] = False


class McpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    servers: Annotated[dict[str, McpServerConfig], key("MCP servers by name.")] = {}
    inherit: Annotated[
        list[str], key("Names of variables that all servers inherit, also those that the editor names.")
    ] = []
    client_programs: Annotated[
        bool,
        key("Start the programs that clients name as servers. They run as you, outside the sandbox and `agent.place`."),
    ] = True
    connect_timeout: Annotated[float, key("Seconds a server may take to get ready.", gt=0)] = 30.0
    prompt_wait: Annotated[float, key("Seconds a prompt waits for servers that are still connecting.", ge=0)] = 5.0
    call_timeout: Annotated[float, key("Timeout of a call to a server's tool in seconds.", gt=0)] = 300.0
    background_after: Annotated[float, key("Seconds after which a call goes on in the background; 0: never.", ge=0)] = (
        120.0
    )
    max_result_bytes: Annotated[int, key("Largest result of a call in bytes.", ge=1024)] = 10_485_760
