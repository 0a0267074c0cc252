"""The response to `initialize`, from plain data: the one response that must be sent before anything is loaded.

Standard library only. The process that makes it has loaded neither asyncio nor msgspec yet; a second `initialize` on
the same connection is answered by the same function.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from acp_agent import __version__
from acp_agent.errors import InvalidParams
from acp_agent.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


PROTOCOL_VERSION = 1
MAX_VERSION = 65_535

AGENT_METHOD = "api-key"
TERMINAL_METHOD = "login"
NO_LOGIN = {"id": AGENT_METHOD, "name": "No login", "description": "The configured model needs no key"}
"""What is offered where no login is needed: the registry of ACP agents, and some clients, insist on a method."""

LSP_NOTIFICATIONS = ("_lsp/publishDiagnostics", "_lsp/didSave")
"""Notifications of the extension `_lsp/*` that the agent reads."""

DRAFTS = ("title", "status", "archive", "options")
"""Of sessions, behind `protocol.unstable`."""

GATEWAYS = {"gateway": "anthropic", "gateway-openai": "openai"}
"""Ways to log in by which a client sets the address and headers of model requests, by convention -> their API."""

NEEDS_KEY = "acp_agent.llm.choose:needs_key"
KNOWN = "acp_agent.config.provider_rows:known"


def answer_initialize(params: object, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `InitializeResponse` for `params`. `config`: the merged configuration, unchecked.

    Raises InvalidParams for a missing or impossible `protocolVersion`; everything else in `params` may be anything.
    """
    if not isinstance(params, dict):
        raise InvalidParams("Invalid params: $: expected an object with `protocolVersion`")
    version = params.get("protocolVersion")
    if version is None:
        raise InvalidParams("Invalid params: missing required field `protocolVersion` at `$`")
    if type(version) is not int or not 0 <= version <= MAX_VERSION:
        raise InvalidParams(f"Invalid params: $.protocolVersion: expected an integer from 0 to {MAX_VERSION}")
    login = needs_login(config)
    provider = _provider(config)
    unstable = _table(config.get("protocol")).get("unstable") is True
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {
                "image": provider.get("images", True) is not False,
                "audio": provider.get("audio", False) is True,
                "embeddedContext": True,
            },
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {
                "list": {},
                "delete": {},
                "additionalDirectories": {},
                "resume": {},
                "close": {},
                "fork": {},
                "systemPrompt": {"mode": {"override": {}}},
                **({name: {} for name in DRAFTS} if unstable else {}),
            },
            **({"providers": {}} if unstable else {}),
            "auth": {**({"status": {}} if unstable else {}), **({"logout": {}} if login else {})},
            "_meta": {"undo": {"version": 1}, **_lsp(config)},
        },
        "authMethods": [
            *(_auth_methods(params.get("clientCapabilities")) if login else [NO_LOGIN]),
            *_gateways(params.get("clientCapabilities")),
        ],
        "agentInfo": {"name": "acp-coder", "title": "acp-coder", "version": __version__},
        "_meta": {"steering": {"supported": True}},
    }


def asks_v2(params: object) -> bool:
    """Whether `protocol/v2` answers this `initialize`, if it is on: another version than 1 is asked for, and not with
    what only a client of v1 says of itself."""
    asked = params if isinstance(params, dict) else {}
    version, old = asked.get("protocolVersion"), asked.keys() & {"clientCapabilities", "clientInfo"}
    known = type(version) is int and version != PROTOCOL_VERSION and 0 <= version <= MAX_VERSION
    return known and (not old or "info" in asked)


def has_v2(config: Mapping[str, Any]) -> bool:
    return _table(config.get("protocol")).get("v2") is not False


def _lsp(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of `_lsp/*` that is read (docs/lsp-extension.md), and which mentions of a prompt the agent
    resolves itself."""
    if _table(config.get("lsp")).get("enabled", True) is False:
        return {}
    return {"lsp": {"notifications": list(LSP_NOTIFICATIONS), "mentions": ["@diagnostics", "@problems"]}}


def needs_login(config: Mapping[str, Any]) -> bool:
    """Whether the chosen provider needs a key: local ones and the scripted one do not."""
    provider = _provider(config)
    base_url, api = provider.get("base_url"), provider.get("api")
    if provider.get("api_key_env") == "":
        return False
    return not (base_url or api) or bool(load(NEEDS_KEY)(base_url, api))


def _provider(config: Mapping[str, Any]) -> Mapping[str, Any]:
    agent = _table(config.get("agent"))
    providers = _table(config.get("providers"))
    model = agent.get("model")
    named = model.partition("/")[0].partition(":")[0] if isinstance(model, str) else ""
    name = agent.get("provider", "default")
    if named in providers and (f"{model}".startswith(f"{named}:") or (name == "default" and name not in providers)):
        name = named
    elif name == "default" and name not in providers and providers:
        name = next(iter(providers))
    if isinstance(name, str) and name != "default" and name not in providers:
        return _table(load(KNOWN)(name))
    return _table(providers.get(name) if isinstance(name, str) else None)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _gateways(capabilities: object) -> list[dict[str, Any]]:
    if _table(_table(_table(capabilities).get("auth")).get("_meta")).get("gateway") is not True:
        return []
    words = "Model requests go to the address that the client names, with its headers"
    return [
        {"id": id_, "name": f"Gateway ({api})", "description": words, "_meta": {"gateway": {"protocol": api}}}
        for id_, api in GATEWAYS.items()
    ]


def _auth_methods(capabilities: object) -> list[dict[str, Any]]:
    offered = _table(capabilities)
    agent: dict[str, Any] = {
        "id": AGENT_METHOD,
        "name": "API key",
        "description": "Uses the key from OPENAI_API_KEY, the configuration, or an earlier `acp-coder login`",
    }
    methods = [agent]
    if _table(offered.get("auth")).get("terminal") is True:
        methods.append(
            {
                "type": "terminal",
                "id": TERMINAL_METHOD,
                "name": "Log in with an API key",
                "description": "Asks for the key in a terminal and stores it in the keyring or a private file",
                "args": ["login"],
                "env": {},
            }
        )
    if _table(offered.get("_meta")).get("terminal-auth") is True:
        command = {
            "command": sys.executable,
            "args": ["-m", "acp_agent", "login"],
            "env": {},
            "label": "acp-coder login",
        }
        agent["_meta"] = {"terminal-auth": command}
    return methods
