"""The taxonomy of tool failures: eleven categories, and what each implies.

The category alone determines whether the same call is retried automatically (temporary errors), whether its arguments
were at fault (then one repair is tried), and whether it counts against the model (infrastructure failures never do).
"""

from __future__ import annotations

import errno
import socket

from acp_agent.errors import AgentError, ExecutorError, ToolError
from acp_agent.output.sanitize import unlike_notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_agent.errors import ToolErrorCategory


SUGGESTIONS: dict[ToolErrorCategory, str] = {
    "tool_not_found": "Use one of the tools you were given, by its exact name.",
    "invalid_parameters": "Fix the arguments as the error says and call the tool again, once.",
    "type_mismatch": "Give each argument the type in the tool's schema and call the tool again, once.",
    "policy_blocked": "Do not try to achieve the same another way. Continue without it, or say what you need and why.",
    "confirmation_required": "Do not try to achieve the same another way. Continue without it, or say what you need "
    "and why.",
    "permanent_failure": "The same call would fail again. Change what the error names, or try another way.",
    "cancelled": "The user stopped it. Wait for what they say next.",
    "rate_limited": "Too many requests. Wait before you try again, or continue with something else.",
    "server_error": "The server is at fault. Try again later, or use another source.",
    "network_error": "The host could not be reached. Check the address, or continue without it.",
    "timeout": "It took too long. Request less, or set a longer timeout if the tool has one.",
}
"""Suggestions, used if the error itself has none."""

PASSING: frozenset[ToolErrorCategory] = frozenset(("rate_limited", "server_error", "network_error", "timeout"))
"""The same call may succeed a little later. Never the model's fault."""

PARAMETERS: frozenset[ToolErrorCategory] = frozenset(("invalid_parameters", "type_mismatch"))
"""The arguments are wrong: one repair is tried before the error is reported to the model."""


TOLD: frozenset[ToolErrorCategory] = PARAMETERS | {"tool_not_found", "permanent_failure"}
"""Their messages say what is wrong: the category and its suggestion would only repeat that."""


def wrong_arguments(
    message: str, category: ToolErrorCategory = "invalid_parameters", suggestion: str = "Call it again."
) -> ToolError:
    """For the model's own mistake in a call: the user need not read what its schema wants."""
    shown = "The model gave this call arguments that do not fit, so nothing was run."
    return ToolError(message, category, suggestion=suggestion, shown=shown)


def not_there(shown: str | None, told: str = "does not exist.") -> ToolError:
    """For a path at which nothing is."""
    return ToolError(f"{shown} {told}", "invalid_parameters", suggestion="Use `find_path` to find it.")


def is_retryable(category: ToolErrorCategory) -> bool:
    return category in PASSING


def classify_http_status(status: int) -> ToolErrorCategory:
    """The category of an HTTP error status (400 and above)."""
    if status in (400, 422):
        return "invalid_parameters"
    if status in (401, 403):
        return "policy_blocked"
    if status == 429:
        return "rate_limited"
    if 500 <= status <= 599:
        return "server_error"
    return "permanent_failure"


NETWORK_ERRNOS = frozenset(
    (
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EADDRNOTAVAIL,
    )
)


def classify_io_error(error: OSError) -> ToolErrorCategory:
    """The category of an operating system error. A missing program or file is permanent: `tool_not_found` is only for
    names of tools."""
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return "timeout"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return "policy_blocked"
    if isinstance(error, ConnectionError | socket.gaierror) or error.errno in NETWORK_ERRNOS:
        return "network_error"
    return "permanent_failure"


def as_tool_error(error: AgentError | OSError) -> ToolError:
    """Converts any failure of a call into a ToolError."""
    if isinstance(error, ToolError):
        return error
    if isinstance(error, OSError):
        shown = f"{error.filename}: " if error.filename else ""
        return ToolError(
            f"{shown}{(error.strerror or str(error) or type(error).__name__).lower()}.", classify_io_error(error)
        )
    cause = error.__cause__
    if isinstance(error, ExecutorError) and isinstance(cause, OSError):
        return ToolError(str(error), classify_io_error(cause))
    return ToolError(str(error))


def feedback(error: ToolError) -> str:
    """Returns the text that reports a failure to the model."""
    said = unlike_notes(str(error).strip())  # It may be a server's.
    if error.category in TOLD:
        more = f"\nsuggestion: {error.suggestion}" if error.suggestion else ""
        return f"[tool_error] {said}{more}"
    suggestion = error.suggestion or SUGGESTIONS[error.category]
    retryable = "true" if is_retryable(error.category) else "false"
    return f"[tool_error]\ncategory: {error.category}\nerror: {said}\nsuggestion: {suggestion}\nretryable: {retryable}"
