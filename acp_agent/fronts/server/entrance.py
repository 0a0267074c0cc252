"""Who gets in, decided by the head of a request before anything is made for it.

In this order: the address (too many wrong tokens), `Host`, `Origin`, the token. Whatever is wrong with a token gets the
same answer. The token stands in `Authorization`, or in the cookie of the server's own page (`page`). Browsers send
cookies along with what other pages ask for, too, so it counts only where the browser says that our page asks.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from acp_agent.config.place_settings import ServerConfig
from acp_agent.fronts.server.identities import Identity

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MINUTE = 60.0
MOST_ADDRESSES = 10_000
MOST_TOKEN = 1024
"""Characters of what is taken for a token."""


class Refusal(Struct, frozen=True):
    """An answer instead."""

    status: int
    words: str
    headers: tuple[tuple[str, str], ...] = ()


NO_TOKEN = Refusal(401, "a token is needed: `Authorization: Bearer TOKEN`", (("WWW-Authenticate", "Bearer"),))


class Entrance:
    """`find`: whose token it is. `bound`: the address that is listened on."""

    def __init__(
        self,
        config: ServerConfig,
        bound: str,
        find: Callable[[str], Identity | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._hosts = {name.casefold() for name in (*config.hosts, *(LOOPBACK if is_loopback(bound) else ()))}
        self._origins = {origin.casefold().rstrip("/") for origin in config.origins}
        self._find = find
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: since when, and how many."""

    def known_as(self, headers: Mapping[str, str]) -> Refusal | None:
        """`Host` and `Origin`. A page elsewhere that makes the user's browser come here is refused by them."""
        host = headers.get("host", "")
        name = (urlsplit(f"//{host}").hostname or "") if _is_host(host) else ""
        if self._hosts and name.casefold() not in self._hosts:
            return Refusal(403, "it is not known by that name here; `server.hosts` lists others")
        origin = headers.get("origin")
        if origin is None or origin.casefold().rstrip("/") in self._origins:
            return None
        if origin.partition("://")[2].casefold() == host.casefold():
            return None
        return Refusal(403, "pages of that origin may not use it; `server.origins` lists those that may")

    def enter(self, address: str, headers: Mapping[str, str]) -> Identity | Refusal:
        """Who asks."""
        now = self._clock()
        since, wrong = self._wrong.get(address, (now, 0))
        if now - since > MINUTE:
            since, wrong = now, 0
        if wrong >= self._config.max_wrong_tokens:
            left = max(1, int(MINUTE - (now - since)) + 1)
            return Refusal(429, "too many wrong tokens from this address", (("Retry-After", str(left)),))
        if (refused := self.known_as(headers)) is not None:
            return refused
        token = token_of(headers)
        known = self._find(token) if 0 < len(token) <= MOST_TOKEN else None
        if known is None:
            if token or headers.get("authorization"):  # Who sends none has guessed nothing.
                self._wrong[address] = since, wrong + 1
                self._wrong.move_to_end(address)
                if len(self._wrong) > MOST_ADDRESSES:
                    self._wrong.popitem(last=False)
            return NO_TOKEN
        return known


def token_of(headers: Mapping[str, str]) -> str:
    """What is sent for a token; empty: nothing."""
    if (said := headers.get("authorization")) is not None:
        kind, _, token = said.partition(" ")
        return token.strip() if kind.casefold() == "bearer" else ""
    if not _asked_by_our_page(headers):
        return ""
    wanted = cookie_name(headers)
    for cookie in headers.get("cookie", "").split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == wanted:
            return value
    return ""


def cookie_name(headers: Mapping[str, str]) -> str:
    """With the port that the browser asked: cookies are the same for all ports of a host."""
    host = headers.get("host", "")
    port = urlsplit(f"//{host}").port if _is_host(host) else None
    return "acp-coder" if port is None else f"acp-coder-{port}"


def _asked_by_our_page(headers: Mapping[str, str]) -> bool:
    """No script of another page can send either header so. Neither is sent with everything: `Origin` not with what is
    only read, `Sec-Fetch-Site` not by a browser that came without TLS from another machine."""
    host, origin = headers.get("host", "").casefold(), headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") == "same-origin"
    return bool(host) and origin.partition("://")[2].casefold() == host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_host(text: str) -> bool:
    try:
        return urlsplit(f"//{text}").netloc == text and urlsplit(f"//{text}").port != 0 and "@" not in text
    except ValueError:
        return False
