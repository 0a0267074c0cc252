"""A web server's answer, and its body as text: types, charsets, statuses. Pure."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

from acp_agent.errors import ToolError
from acp_agent.tools.kit.failures import classify_http_status

TEXT_TYPES = frozenset(
    (
        "application/ecmascript",
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/toml",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    )
)
"""Accepted besides `text/*`, `+json`, `+xml` and `+yaml`."""

CHARSETS = ("utf", "ascii", "iso8859", "cp", "koi8", "gb", "big5", "euc", "shift_jis", "iso2022", "mac", "hz", "johab")
"""Prefixes of the names that Python has for the charsets of the web."""

_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,300}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class WebAnswer(Struct, frozen=True):
    """The last answer of a chain of redirects."""

    url: str
    """The URL it came from."""
    status: int
    headers: tuple[tuple[str, str], ...]
    """In order, names in lower case."""
    content_type: str
    """Without parameters, lower case; empty if the server sent none."""
    text: str | None
    """`None`: the body is not text and was not read."""
    truncated: bool
    """Whether the body exceeded the limit."""
    hops: tuple[str, ...]
    """Every requested URL, `url` last."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


HTML = ("text/html", "application/xhtml+xml")


def need_text(answer: WebAnswer) -> str:
    """The text of a successful answer. Raises ToolError for an error status and for anything but text."""
    if not 200 <= answer.status < 300:
        said = " ".join((answer.text or "").split())[:200] if answer.content_type not in HTML else ""
        came = f" (requested through {answer.hops[0]})" if len(answer.hops) > 1 else ""
        raise ToolError(
            f"{answer.url}{came} answered with status {answer.status}{': ' + said if said else ''}.",
            classify_http_status(answer.status),
            suggestion=_SUGGESTIONS.get(answer.status, ""),
            retry_after=retry_after(answer),
        )
    if answer.text is None:
        raise ToolError(
            f"{answer.url} is {answer.content_type or 'binary data'}, not text. This tool cannot read it; `bash` can "
            "download it with curl if needed."
        )
    return answer.text


_SUGGESTIONS = {
    401: "The page needs a login. Tell the user, or use a public source.",
    403: "The server refuses this. Use another source; do not repeat the request.",
    404: "Nothing was found. Check the URL, or search for the page.",
    410: "The page was removed. Search for another.",
}


def retry_after(answer: WebAnswer) -> float | None:
    """The wait requested by the server in seconds, from a number or a date."""
    value = (answer.header("retry-after") or "").strip()
    if not value:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def plain_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_text(content_type: str) -> bool:
    """Whether a body of this type is worth reading. One without a type is; `decode_text` examines it."""
    plain = plain_type(content_type)
    return not plain or plain.startswith("text/") or plain in TEXT_TYPES or plain.endswith(("+json", "+xml", "+yaml"))


def decode_text(data: bytes, content_type: str) -> str | None:
    """The body as text; invalid bytes are replaced. `None`: it has no type and is not text."""
    mark = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    if mark is None and not plain_type(content_type) and b"\0" in data[:8192]:
        return None
    named = _CHARSET.search(content_type)
    inside = _META.search(data[:2048]) or _XML.search(data[:2048])
    for name in (mark, named and named[1], inside and inside[1].decode("ascii")):
        if name and (codec := _codec(name)) is not None:
            return data.decode(codec, errors="replace")
    return data.decode("utf-8", errors="replace")


def _codec(name: str) -> str | None:
    """Accepts only charsets of the web: Python has others (`punycode`, `unicode_escape`)."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    plain = found.replace("-", "").replace("_", "").lower()
    if not plain.startswith(tuple(charset.replace("_", "") for charset in CHARSETS)):
        return None
    return "cp1252" if plain in ("iso88591", "ascii") else found
