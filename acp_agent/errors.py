"""The exception hierarchy. Every error says whose fault it is and propagates to the place that can answer it.

    AgentError                      ours; carries a sentence fit for a user
    ├── ConfigError                 a configuration value is wrong: names file, line, key   -> CLI exit 2
    ├── StoreError                  the session database cannot be used                        -> clear error
    ├── UsageError                  a command line is wrong                                    -> CLI exit 2
    ├── RpcError                    becomes a JSON-RPC error answer, with its code
    │   ├── ParseError (-32700) MethodNotFound (-32601) InvalidParams (-32602)
    │   ├── InternalError (-32603) RequestCancelled (-32800)
    │   └── AuthRequired (-32000) ResourceNotFound (-32002) NotAllowed (-32003)
    ├── LocalProtocolError          we misused the protocol (answered twice, ...): our bug
    ├── PeerError                   the other side answered our request with an error
    ├── ConnectionClosed            the other side is gone
    ├── CapabilityMissing           the client never offered what was asked of it
    ├── ProviderError               the model's server: kind + the vendor's words
    │   └── CostLimit               `agent.max_cost` or `max_cost_per_day` was reached
    ├── ExecutorError               a file or command operation could not be done
    ├── McpError                    an MCP server could not do it: code (drawn in mcp/base.py)
    └── ToolError                   a tool failed in a way the model can act on

Cancellation is not in this tree: it is normal, and is never caught here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    ProviderErrorKind = Literal[
        "auth",
        "rate_limit",
        "quota",
        "context_too_long",
        "network",
        "timeout",
        "refusal",
        "bad_request",
        "not_found",
        "server",
        "loading",
        "region",
        "cost",
        "recording",
    ]
    ToolErrorCategory = Literal[
        "tool_not_found",
        "invalid_parameters",
        "type_mismatch",
        "policy_blocked",
        "confirmation_required",
        "permanent_failure",
        "cancelled",
        "rate_limited",
        "server_error",
        "network_error",
        "timeout",
    ]


class AgentError(Exception):
    """Base of all our errors. `str(error)` is a sentence fit for a user."""


class ConfigError(AgentError):
    """A configuration value is wrong. The message names file, line, key and the nearest valid key."""


class StoreError(AgentError):
    """The session store cannot be used (corrupt, newer than this program, unwritable)."""


class StoreBusy(StoreError):
    """Another program keeps the database locked; the same may work later."""


class StoreConflict(StoreError):
    """The tables do not take it: what it belongs to is not there, or it is there already."""


class UsageError(AgentError):
    """A command line is wrong; the message is one sentence."""


class RpcError(AgentError):
    """A JSON-RPC 2.0 error response. `code` as in ACP's `ErrorCode`; `data` is optional JSON."""

    code: int = -32603

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def as_json(self) -> dict[str, Any]:
        """As it stands in an answer."""
        return {"code": self.code, "message": self.message, **({} if self.data is None else {"data": self.data})}


class ParseError(RpcError):
    code = -32700


class MethodNotFound(RpcError):
    code = -32601


class InvalidParams(RpcError):
    code = -32602


class InternalError(RpcError):
    code = -32603


class RequestCancelled(RpcError):
    code = -32800


class AuthRequired(RpcError):
    code = -32000


class ResourceNotFound(RpcError):
    code = -32002


class NotAllowed(RpcError):
    """By the scope of the client's token (`acp-coder serve`)."""

    code = -32003


class LocalProtocolError(AgentError):
    """We broke the protocol ourselves: a bug on our side, never the peer's fault."""


class PeerError(AgentError):
    """The other side answered our request with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class ConnectionClosed(AgentError):
    """The other side is gone: nothing more can be requested of it."""


class CapabilityMissing(AgentError):
    """The client did not offer this operation in its `ClientCapabilities`."""


class ProviderError(AgentError):
    """The model's server failed. `str()` is our sentence including the vendor's message.

    `kind` says what to do: "auth" (log in), "rate_limit" and "quota" (wait, pay), "context_too_long" (compact),
    "network", "timeout", "server" and "loading" (try again), "refusal", "bad_request", "not_found" (model or URL),
    "region" (not served there), "cost" (`CostLimit`), "recording" (it has no such request).
    `retry_after` is in seconds, if the server named one. `status` is the HTTP status, if there was an answer. `fact`:
    the sentence without what to do; empty if it says that as a whole. `about_model`: the server does not know the one
    it was asked for. `model` is the one that was asked, where there are others to fall back on.
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        fact: str = "",
        about_model: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ProviderErrorKind = kind
        self.fact = fact
        self.about_model = about_model
        self.model = ""
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in ("rate_limit", "network", "timeout", "server", "loading")


class CostLimit(ProviderError):
    """A limit on what models may cost was reached, and nobody wanted to go on. `key` names it in the configuration."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__("cost", message)
        self.key = key


class ExecutorError(AgentError):
    """A file or command operation could not be done; the message says what and why."""


class WorktreeError(AgentError):
    """There can be no git worktree of a folder, or git failed on one; the message says why."""


class NotAsTrusted(AgentError):
    """A program of a folder or a plugin is not started: it is not what the user trusts; the text says why."""


class HookFailed(AgentError):
    """A hook did not say anything that can be used; the text says what went wrong."""


class ToolError(AgentError):
    """A tool failed. The message says what was tried and what happened: the model and the user read it.

    `category` says what can be done about it. `suggestion` is for the model alone: what to try instead; it replaces the
    category's own. `shown` is what the user reads instead of the message, where that is about the model's own mistake.
    `retry_after` is in seconds, if a server named one.
    """

    def __init__(
        self,
        message: str,
        category: ToolErrorCategory = "permanent_failure",
        *,
        suggestion: str = "",
        shown: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.category: ToolErrorCategory = category
        self.suggestion = suggestion
        self.shown = shown
        self.retry_after = retry_after
