"""Parses the answers of search engines into results. Pure; each parser raises ToolError for what it cannot
read."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from acp_agent.errors import ToolError
from acp_agent.limits.decoding import read_json
from acp_agent.tools.net.web_page import link_of, parse, text_of

DUCKDUCKGO = "https://html.duckduckgo.com/html/"
LONGEST = 500
"""Characters of a title or snippet."""

_TAG = re.compile(r"<[^<>]{0,200}>")


class SearchResult(Struct, frozen=True):
    title: str
    url: str
    snippet: str


def read_duckduckgo(page: str) -> list[SearchResult]:
    """The results of DuckDuckGo's HTML page, without advertisements; by its classes, else by its outgoing links."""
    tree = parse(page)
    found = _unique(_by_classes(tree)) or _unique(_by_links(tree))
    if found or tree.css_first(".no-results") is not None:
        return found
    if tree.css_first(".anomaly-modal__title, #challenge-form, form[action*=anomaly]") is not None:
        raise ToolError(
            "DuckDuckGo wants proof of a human and returned no results.",
            "rate_limited",
            suggestion="Wait a while before the next search, or fetch a page you know.",
        )
    raise ToolError("DuckDuckGo returned a page without results in a known format.", "server_error")


def read_searxng(text: str) -> list[SearchResult]:
    return _unique(
        SearchResult(_clean(item.get("title")), _string(item.get("url")), _clean(item.get("content")))
        for item in _items(text, "SearXNG", "results")
    )


def read_brave(text: str) -> list[SearchResult]:
    return _unique(
        SearchResult(_clean(item.get("title")), _string(item.get("url")), _clean(item.get("description")))
        for item in _items(text, "Brave", "web", "results")
    )


def _by_classes(tree: LexborHTMLParser) -> list[SearchResult]:
    found = []
    for box in tree.css(".result"):
        if "result--ad" in (box.attributes.get("class") or ""):
            continue
        title = box.css_first("a.result__a")
        if title is not None and (url := _outgoing(title)) is not None:
            snippet = box.css_first(".result__snippet")
            found.append(SearchResult(_short(text_of(title)), url, _short(text_of(snippet)) if snippet else ""))
    return found


def _by_links(tree: LexborHTMLParser) -> list[SearchResult]:
    """For an unknown layout: every outgoing link, its longest text as the title."""
    titles: dict[str, str] = {}
    for link in tree.css("a[href]"):
        url = _outgoing(link)
        words = _short(text_of(link))
        if url is not None and len(words) > len(titles.get(url, "")):
            titles[url] = words
    return [SearchResult(title, url, "") for url, title in titles.items()]


def _outgoing(link: LexborNode) -> str | None:
    """The final target of a link: DuckDuckGo's own addresses contain it in `uddg`. `None`: it is not outgoing."""
    address = link_of(link, DUCKDUCKGO)
    if address is None:
        return None
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        if host != "duckduckgo.com" and not host.endswith(".duckduckgo.com"):
            return address
        wrapped = parse_qs(parts.query).get("uddg", [""])[0] if parts.path.startswith("/l/") else ""
        inner = urlsplit(wrapped)
    except ValueError:
        return None
    away = inner.scheme in ("http", "https") and not (inner.hostname or "").endswith("duckduckgo.com")
    return wrapped if away else None


def _items(text: str, who: str, *path: str) -> list[dict[str, Any]]:
    try:
        found = read_json(text)
    except msgspec.DecodeError as error:
        raise ToolError(f"{who} did not answer with JSON.", "server_error") from error
    for key in path:
        found = found.get(key, {}) if isinstance(found, dict) else None
    if found == {}:  # Brave omits empty lists.
        return []
    if not isinstance(found, list):
        raise ToolError(f"{who} returned JSON without results.", "server_error")
    return [item for item in found if isinstance(item, dict)]


def _unique(results: Iterable[SearchResult]) -> list[SearchResult]:
    found: dict[str, SearchResult] = {}
    for result in results:
        if result.url.startswith(("https://", "http://")) and result.title:
            found.setdefault(result.url, result)
    return list(found.values())


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _clean(value: object) -> str:
    return _short(" ".join(html.unescape(_TAG.sub("", _string(value))).split()))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
