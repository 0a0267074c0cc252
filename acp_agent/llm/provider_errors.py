"""Parses servers' errors: status, headers and body in, one `ProviderError` with a readable message out.

The sentence names the provider, contains the vendor's own message and says what to do. Kinds are decided by the
vendor's codes first, then by wording (local servers send no codes), then by status. No I/O and no HTTP library here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from acp_agent.errors import ProviderError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.choose import shown_url
from acp_agent.llm.streamed_text import clean
from acp_agent.llm.transport.retry import retry_after

if TYPE_CHECKING:
    from acp_agent.errors import ProviderErrorKind

_LONGEST_QUOTE = 600

_CONTEXT_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length", "request_too_large"}
)
_CONTEXT_WORDS = (
    r"maximum context length"  # OpenAI, OpenRouter, vLLM, Mistral, Ollama
    r"|exceeds? the (model's )?(maximum )?context (window|length|limit)"  # OpenAI responses, Ollama
    r"|maximum model length"  # vLLM
    r"|available context size"  # llama.cpp
    r"|exceeded max context length"  # Ollama
    r"|loaded with context length"  # LM Studio
    r"|greater than the context length"  # LM Studio
    r"|exceed context limit"
    r"|(prompt|input) is too long"
    r"|input token count .* exceeds the maximum"
    r"|reduce the length of (the|your) (messages|prompt|input)"
    r"|request too large for"  # One request above a whole minute's tokens: waiting does not help.
)
_COMPLAINTS = ("error_message", "errorMessage", "message", "detail", "msg", "error")
"""Where servers put their words in place of an answer."""
_MAY_COMPLAIN = rf'"(?:{"|".join(_COMPLAINTS)})"'.encode()
_DEEPEST = 4
_QUOTA_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"}
    | {"exceeded_current_quota_error", "arrearage"}  # Moonshot, Qwen
)
_QUOTA_WORDS = (
    r"exceeded your current quota|insufficient (credits|balance|funds|quota)|credit balance|out of credits"
    r"|used all available credits|have any credits"  # xAI
    r"|余额不足"  # Z.ai
)
_KEY_CODES = frozenset({"invalid_api_key", "authentication_error"})
_KEY_WORDS = r"api key not valid|(incorrect|invalid) api key"  # Gemini and xAI say so with status 400.
_REGION_CODES = frozenset({"unsupported_country_region_territory"})
_REGION_WORDS = (
    r"(country|region|territory|territories)\b.* not supported"  # OpenAI
    r"|user location is not supported"  # Gemini
    r"|unsupported countries, regions"  # Claude on Bedrock
    r"|not available in your (country|region)"
)
_REFUSAL_CODES = frozenset({"content_filter", "content_policy_violation", "bio_policy", "moderation_blocked"})
_REFUSAL_WORDS = r"content management policy|input was flagged|flagged (by|as|for)|requires moderation"
_MODEL_CODES = frozenset(
    {"model_not_found", "deploymentnotfound", "invalid_model", "unknown_model", "model_not_available"}
    | {"model_decommissioned"}  # Groq
)
_MODEL_WORDS = (
    r"\bmodels?\b.*(not found|not exist|decommissioned)|no such model|not a valid model|^model: |\bunknown model\b"
    r"|not found the model|unable to access model"  # Moonshot, Together
)
_LACK_WORDS = r"not supported|n[o']t support|unsupported|requires --|mmproj|missing data required"
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "too_many_requests"})
_SERVER_CODES = frozenset(
    {"server_error", "internal_error", "internal_server_error", "overloaded_error", "vector_store_timeout"}
)

_ADVICE: dict[str, str] = {
    "auth": "Check the key and its permissions; `acp-coder login{named}` stores another one.",
    "region": "Choose another provider, or a server of this one in a country that it serves.",
    "rate_limit": "Wait a moment and try again.",
    "quota": "Add credit or raise the limit at the provider, or choose another model.",
    "context_too_long": "Begin a new session, or choose a model that reads more.",
    "refusal": "Rephrase the request.",
    "bad_request": "The server did not accept the request: check the model's name and the provider's settings.",
    "server": "Try again in a moment.",
    "loading": "Try again when it is ready.",
    "network": "Check the base URL and the network.",
}

_OPENING: dict[str, str] = {
    "auth": "refused the API key",
    "region": "does not serve the country or network that the request came from",
    "rate_limit": "is receiving too many requests",
    "quota": "says that the account's quota is used up",
    "context_too_long": "says that the conversation is too long",
    "refusal": "refused the request because of its content policy",
    "bad_request": "rejected the request",
    "server": "failed",
    "loading": "is still loading the model",
}


SERVER_AT = "The server at "
DAY = 86_400
LIMITED_SECONDS = 120
"""A longer wait is said with the time at which it ends."""
_WAIT_WORDS = re.compile(
    r"(?:try again|retry|wait)\D{0,20}?((?:\d+(?:\.\d+)?\s*(?:ms|hours?|h|minutes?|min|m|seconds?|s)(?![a-z])\s*)+)"
)
_UNITS = {"ms": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def server_label(name: str, base_url: str) -> str:
    """What a user calls the server: the name they gave it, or its maker's, or where it is."""
    if name != "default":
        return name
    host = urlsplit(base_url).netloc.rpartition("@")[2]
    return "OpenAI" if host in ("", "api.openai.com") else f"{SERVER_AT}{host}"


def _about(provider: str, words: str) -> str:
    """Words that name the address anyway."""
    plain = provider.startswith(SERVER_AT) or provider == "OpenAI"
    return words[:1].upper() + words[1:] if plain else f"{provider}: {words}"


def seconds_in(text: str) -> float | None:
    """The length of `6m0s`, `20 seconds`, `250ms`; None if it is none."""
    found = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|h|m|s)", text.lower())
    return sum(float(number) * _UNITS[unit] for number, unit in found) if found else None


def _asked_wait(headers: Mapping[str, str], message: str) -> float | None:
    """How long the server asks to wait, in `Retry-After`, in the limits that are used up, or in its words."""
    wait = retry_after(headers, datetime.now(UTC))
    for kind in ("requests", "tokens"):
        if wait is None and headers.get(f"x-ratelimit-remaining-{kind}") == "0":
            wait = seconds_in(headers.get(f"x-ratelimit-reset-{kind}") or "")
    if wait is None and (found := re.search(_WAIT_WORDS, message.lower())):
        wait = seconds_in(found[1])
    return wait


class ErrorInAnswer(Exception):
    """Internal to this package: the server sent an error in place of an answer. `body` is its error object, or text."""

    def __init__(self, body: object) -> None:
        super().__init__(str(body))
        self.body = body


class VendorError(msgspec.Struct, frozen=True):
    """The server's own message."""

    message: str = ""
    code: str = ""
    type: str = ""
    status: int | None = None
    """Set only if the error object itself names an HTTP status (OpenRouter, llama.cpp)."""


def read_vendor_error(body: object) -> VendorError:
    """Reads any of the formats servers use: `{"error": {...}}`, `{"error": "text"}`, `{"detail": ...}`, plain text."""
    if isinstance(body, (bytes, bytearray)):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str):
        text = body.strip()
        if text[:1] in ("{", "["):
            try:
                return read_vendor_error(read_loose_json(text))
            except ValueError:
                pass
        if text[:1] == "<":
            return VendorError(message="")  # A proxy's web page helps nobody.
        return VendorError(message=_quote(text))
    if isinstance(body, list) and body:
        return read_vendor_error(body[0])  # Gemini's endpoint wraps the object in a list.
    if not isinstance(body, dict):
        return VendorError()
    error = body.get("error") or body
    if not isinstance(error, dict):
        return VendorError(message=_quote(error))
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    raw = error["metadata"].get("raw") if isinstance(error.get("metadata"), dict) else None
    if isinstance(raw, str) and raw:
        message = f"{message}: {raw}"  # OpenRouter: the upstream's own message.
    code = error.get("code")
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else None
    return VendorError(
        message=_quote(message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)),
        code=code.lower() if isinstance(code, str) else "",
        type=error["type"].lower() if isinstance(error.get("type"), str) else "",
        status=status,
    )


def complaint(data: bytes) -> dict[str, Any] | None:
    """The error object that a server sent with status 200 in the form of an answer, of which it has nothing. Asked of
    each fragment of a call, most of which need no parsing for that."""
    if re.search(_MAY_COMPLAIN, data) is None:
        return None
    try:
        return _complaint(read_loose_json(data.decode("utf-8", "replace"), strict=False), _DEEPEST)
    except ValueError:
        return None


def _complaint(body: object, deep: int) -> dict[str, Any] | None:
    if isinstance(body, dict):
        for name in _COMPLAINTS:
            if isinstance(words := body.get(name), str) and words.strip():
                return {"error": {**body, "message": words}}
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return next((found for each in inner if deep and (found := _complaint(each, deep - 1)) is not None), None)


def error_from_status(
    provider: str, status: int, body: object, headers: Mapping[str, str], *, base_url: str = "", model: str = ""
) -> ProviderError:
    """The error for an HTTP status other than 2xx. `headers` has lower-case keys or ignores case. `base_url`: the
    requested one, if redirects are not followed."""
    if base_url and 300 <= status < 400:
        target = _quote(shown_url(headers.get("location", "another address")))
        words = _about(provider, f"{base_url} redirects to {target} (HTTP {status}). Set that as the base URL.")
        return ProviderError("bad_request", words, status=status)
    vendor = read_vendor_error(body)
    wait = _asked_wait(headers, vendor.message) if status == 429 else retry_after(headers, datetime.now(UTC))
    return _error(provider, status, vendor, model=model, wait=wait)


def error_from_object(provider: str, body: object, *, model: str = "") -> ProviderError:
    """The error for an error object inside a stream that had begun with status 200."""
    vendor = read_vendor_error(body)
    return _error(provider, vendor.status, vendor, model=model, wait=None)


def network_error(provider: str, base_url: str, cause: str) -> ProviderError:
    """The error for a missing or partial answer. `cause` is the transport's own message."""
    detail = f" ({_quote(cause)})" if cause else ""
    return ProviderError(
        "network", _about(provider, f"the connection to {base_url} failed{detail}. {_ADVICE['network']}")
    )


def nobody_listens_error(provider: str, base_url: str) -> ProviderError:
    """The error for a connection that this machine refused."""
    words = _about(provider, f"no server listens at {base_url}. Start it, or check the provider's base URL.")
    return ProviderError("network", words)


def tls_error(provider: str, base_url: str, cause: str) -> ProviderError:
    """The error for a connection that could not be encrypted. `cause` is OpenSSL's own message."""
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        words = f"the certificate of {base_url} is not trusted"
        advice = "Check the host's name; if the certificate is from an authority of your own, set SSL_CERT_FILE to its."
    else:
        words = f"no encrypted connection to {base_url} could be made"
        advice = "If the server speaks plain HTTP, begin the base URL with `http://`."
    return ProviderError("network", _about(provider, f"{words} ({_quote(cause)}). {advice}"))


def idle_timeout_error(provider: str, base_url: str, seconds: float) -> ProviderError:
    return ProviderError(
        "timeout",
        _about(
            provider,
            f"{base_url} sent nothing for {seconds:g} seconds. "
            "Try again, or raise the provider's idle timeout if the model needs longer.",
        ),
    )


def web_page_error(provider: str, base_url: str) -> ProviderError:
    return ProviderError(
        "not_found",
        _about(
            provider,
            f"{base_url} returned a web page instead of a model's answer. "
            "Check the provider's base URL (for most servers it ends in /v1).",
        ),
    )


def key_error(provider: str) -> ProviderError:
    """The error for a key, or a configured header, with characters that HTTP cannot carry."""
    return ProviderError(
        "auth",
        f"{provider}: the API key or a configured header contains characters that HTTP does not allow. Enter it again.",
    )


def _error(provider: str, status: int | None, vendor: VendorError, *, model: str, wait: float | None) -> ProviderError:
    kind = _kind(status, vendor)
    about_model = kind == "not_found" and _is_about_model(vendor)
    said = f': "{vendor.message}"' if vendor.message else ""
    number = f" (HTTP {status})" if status is not None else ""
    if kind == "not_found":
        if about_model:
            opening = f"does not know the model {model!r}" if model else "does not know the model"
            advice = "Choose another model, or make it available on the server."
        else:
            opening = "does not serve this URL"
            advice = "Check the provider's base URL (for most servers it ends in /v1) and the model's name."
    else:
        named = "" if provider == "OpenAI" or provider.startswith(SERVER_AT) else f" --provider {provider}"
        opening, advice = _OPENING[kind], _ADVICE[kind].format(named=named)
        if kind == "rate_limit" and wait:
            advice = f"It asks to wait {wait:g} seconds." if wait <= LIMITED_SECONDS else _later(wait)
    end = "" if said.endswith('."') or not said else "."
    fact = f"{provider} {opening}{number}{said}{end}" if said else f"{provider} {opening}{number}."
    return ProviderError(kind, f"{fact} {advice}", status=status, retry_after=wait, fact=fact, about_model=about_model)


def limit_end(wait: float) -> str:
    """The time, as the user's clock has it, after so many seconds."""
    until = (datetime.now(UTC) + timedelta(seconds=wait)).astimezone()
    return f"{until:%H:%M}" if wait < DAY else f"{until:%Y-%m-%d %H:%M}"


def _later(wait: float) -> str:
    instead = "Until then `/model` chooses another model, or `agent.fallback_models` names one."
    return f"The limit ends at {limit_end(wait)}. {instead}"


def _kind(status: int | None, vendor: VendorError) -> ProviderErrorKind:
    words = vendor.message.lower()
    names = {vendor.code, vendor.type}
    if names & _CONTEXT_CODES or re.search(_CONTEXT_WORDS, words):
        return "context_too_long"
    if names & _QUOTA_CODES or status == 402 or (status in (None, 400, 403, 429) and re.search(_QUOTA_WORDS, words)):
        return "quota"
    if names & _REFUSAL_CODES or (status in (400, 403) and re.search(_REFUSAL_WORDS, words)):
        return "refusal"
    if names & _REGION_CODES or _is_about_region(status, vendor):
        return "region"
    if status in (401, 403, 407) or names & _KEY_CODES or (status == 400 and re.search(_KEY_WORDS, words)):
        return "auth"
    if status == 429 or names & _RATE_CODES:
        return "rate_limit"
    if status == 404 or _is_about_model(vendor):
        return "not_found"
    if status == 503 and re.search(r"\bloading\b", words):
        return "loading"
    if status in (500, 501) and re.search(_LACK_WORDS, words):
        return "bad_request"  # The same request would fail again.
    if status in (408, 409, 425) or (status is not None and status >= 500) or names & _SERVER_CODES:
        return "server"
    # Without a status the error came in the middle of a stream: the request itself had been accepted.
    return "server" if status is None and "invalid_request_error" not in names else "bad_request"


def _is_about_region(status: int | None, vendor: VendorError) -> bool:
    if status == 403 and vendor.type == "forbidden" and vendor.message == "Request not allowed":
        return True  # Anthropic: a key without permission is a `permission_error`.
    return status in (400, 403) and re.search(_REGION_WORDS, vendor.message.lower()) is not None


def _is_about_model(vendor: VendorError) -> bool:
    return (
        bool({vendor.code, vendor.type} & _MODEL_CODES) or re.search(_MODEL_WORDS, vendor.message.lower()) is not None
    )


def _quote(text: Any) -> str:
    words = " ".join(clean(str(text)).split())
    return words if len(words) <= _LONGEST_QUOTE else words[:_LONGEST_QUOTE] + "…"
