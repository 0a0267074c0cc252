"""Choices made from the base URL and the model's name, before anything is sent. Pure, and light enough for start-up.

What lives here: which API a server speaks, whether it wants a key, how its base URL is completed, which reasoning
effort a model takes. What does not: I/O, an HTTP library, configuration.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from acp_agent.config.wire_apis import AZURE, ELSE, WIRE_APIS
from acp_agent.errors import ConfigError

if TYPE_CHECKING:
    from acp_agent.llm.base import ThoughtLevel

OPENAI_BASE_URL = "https://api.openai.com/v1"
ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1"
_REASONING_MODEL = re.compile(r"(o\d|gpt-([5-9]|\d\d))(?![0-9a-z])")
_CAN_SKIP_REASONING = re.compile(r"gpt-5\.\d+(-\d{4}-\d\d-\d\d)?$")


def choose_api(base_url: str | None) -> str:
    """The API whose row knows the host, or the port on this machine; chat completions for all others. Without a URL it
    is OpenAI's.
    """
    url = base_url or OPENAI_BASE_URL
    host, place = host_of(url), url.rpartition("://")[2].partition("/")[0]
    for api, row in WIRE_APIS.items():
        if any(host == each or (each[0] == "." and host.endswith(each)) for each in row.hosts):
            return api
        if row.local_port and place.endswith(f":{row.local_port}") and is_loopback(url):
            return api
    return ELSE


def is_azure(base_url: str | None) -> bool:
    """Whether the key must also be sent in Azure's `api-key` header."""
    return host_of(base_url).endswith(AZURE)


def needs_key(base_url: str | None, api: str = "") -> bool:
    """Whether the server needs a key: false for local ones, and for those that take other credentials."""
    if api and WIRE_APIS[api].keyless:
        return False
    if base_url and base_url.partition(":")[0].lower() in ("unix", "http+unix"):
        return False
    return not is_loopback(base_url)


def key_headers(base_url: str, key: str | None) -> dict[str, str]:
    """The headers that carry a key to a server with one of OpenAI's APIs; none without a key."""
    if not (key := (key or "").strip()):
        return {}
    return {"Authorization": f"Bearer {key}", **({"api-key": key} if is_azure(base_url) else {})}


def is_loopback(base_url: str | None) -> bool:
    """Whether the URL's host is this machine: `localhost`, `*.localhost`, 127.0.0.0/8 or ::1. Does no lookup."""
    host = host_of(base_url)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def complete_base_url(base_url: str | None) -> str:
    """The URL to which `/chat/completions`, `/responses` and `/models` are appended, without a trailing slash.

    The convention is that of `OPENAI_BASE_URL`: it includes `/v1`. Only a URL without any path is completed:
    `http://localhost:11434` becomes `http://localhost:11434/v1`, an Azure resource gets `/openai/v1`. Raises
    `ConfigError` for anything but an http or https URL.
    """
    if not base_url or not base_url.strip():
        return OPENAI_BASE_URL
    try:
        url = urlsplit(_with_scheme(base_url.strip()))
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0 and base_url.isprintable()
    except ValueError:  # Malformed brackets or ports.
        usable = False
    if not usable or " " in url.netloc:
        raise ConfigError(f"the base URL {shown_url(base_url)!r} is not an http or https URL")
    path = url.path.rstrip("/")
    if is_azure(base_url) and path in ("", "/openai"):
        path = "/openai/v1"
    return urlunsplit((url.scheme, url.netloc, path or "/v1", url.query, ""))


def shown_url(base_url: str) -> str:
    """For messages: without the name, the password and the query, where keys may be."""
    return re.sub(r"^([a-z+]+://)?.*@", r"\1", base_url, flags=re.IGNORECASE | re.DOTALL).partition("?")[0]


def is_reasoning_model(model: str) -> bool:
    """Whether the name is that of an OpenAI reasoning model (`o3`, `gpt-5-mini`, ...)."""
    return _REASONING_MODEL.match(model.rpartition("/")[2]) is not None


def reasoning_effort(model: str, level: ThoughtLevel | None, *, openai: bool) -> str | None:
    """The `effort` value to send; `None` to omit it.

    "off" is sent as "none" only to OpenAI models known to accept it (`gpt-5.1` and later). Other servers disagree on
    how thinking is switched off, and several reject unknown values, so they are sent nothing.
    """
    if level is None:
        return None
    if level == "off":
        return "none" if openai and _CAN_SKIP_REASONING.match(model.rpartition("/")[2]) else None
    return level


def _with_scheme(base_url: str) -> str:
    if "://" in base_url or base_url.startswith("unix:"):
        return base_url
    local = is_loopback(f"http://{base_url}")
    return f"{'http' if local else 'https'}://{base_url}"


def host_of(base_url: str | None) -> str:
    """Lower case; empty if there is none."""
    if not base_url:
        return ""
    try:
        host = urlsplit(base_url if "://" in base_url else f"//{base_url}").hostname
    except ValueError:
        return ""
    return (host or "").lower().rstrip(".")
