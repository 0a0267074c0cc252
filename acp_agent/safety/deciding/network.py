"""Which hosts may be contacted. Pure, without lookups.

`check_url` parses a URL as a browser would (every spelling of an address, every disguise of a name) and rejects what
must not be requested; `check_addresses` judges what a name resolved to. Callers connect only to the `Target` and the
addresses returned here: exactly what was checked. Every redirect hop, and every request of a browser, is a new URL.

The tables are our own (`network.toml`): the standard library's `is_private` and `is_global` have gaps. In IPv6 only
2000::/3 is public, except for the special blocks in it.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Literal, NoReturn
from urllib.parse import quote, unquote

import idna
from msgspec import Struct

from acp_agent.config.model import WebConfig
from acp_agent.errors import ToolError
from acp_agent.toml_table import toml_table

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_URL = 8192

PUBLIC_6 = ipaddress.IPv6Network("2000::/3")

LOCAL_NAMES = ("localhost", "localdomain", "local", "internal", "intranet", "lan", "private", "home.arpa", "onion")
"""Names that, including all their subdomains, belong to no public server."""

_DEFAULT_PORTS = {"https": 443, "http": 80}
_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IDEOGRAPHIC_STOPS = str.maketrans("。｡．", "...")


class NetworkPolicy(Struct, frozen=True):
    """Hosts that the user allowed in addition to public hosts over https. Names as returned by `check_url`."""

    http_hosts: frozenset[str] = frozenset()
    """Hosts that may be contacted without TLS."""
    private_hosts: frozenset[str] = frozenset()
    """Hosts that may have any name and any address."""

    @classmethod
    def from_config(cls, config: WebConfig) -> NetworkPolicy:
        return cls(frozenset(map(_plain, config.http_hosts)), frozenset(map(_plain, config.private_hosts)))


class Target(Struct, frozen=True):
    """A URL that may be requested, split into parts."""

    scheme: str
    """`https` or `http`."""
    host: str
    """Lower case, in ASCII, without a trailing dot; an address in its canonical form, without brackets."""
    port: int
    path: str
    """Path and query, beginning with `/`, in ASCII."""
    address: IPAddress | None = None
    """Set if the host is an address rather than a name."""

    @property
    def authority(self) -> str:
        """Host and port as written in a URL and in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        """The canonical URL, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"


def check_url(url: str, policy: NetworkPolicy) -> Target:
    """Parses `url`. Raises ToolError: `invalid_parameters` if it is not a URL, `policy_blocked` if it must not be
    requested. A name is judged only by its spelling; `check_addresses` judges what it resolves to.
    """
    shown = _shown(url)
    if len(url) > LONGEST_URL:
        _invalid(f"The URL has {len(url)} characters, more than {LONGEST_URL}.")
    bad = next((char for char in url if char == "\\" or unicodedata.category(char) in _BAD_CATEGORIES), None)
    if bad is not None:
        _invalid(
            f"{shown} holds the character {bad!a}, which is not allowed in a URL. Percent-encode it if you mean it."
        )
    match = _ABSOLUTE.match(url)
    if match is None:
        _invalid(f"{shown} is not an absolute URL. Write it in full, as in https://example.com/page.")
    scheme, authority, rest = match[1].lower(), match[2], match[3]
    if scheme not in _DEFAULT_PORTS:
        _blocked(f"{shown} was not requested: only https is allowed, not {scheme}.")
    if "@" in authority:
        _blocked(f"{shown} was not requested: it contains a user name or password. Leave out everything before the @.")
    host, address, port = _host_and_port(authority, shown)
    _judge_host(host, address, shown, policy)
    if scheme == "http" and host not in policy.http_hosts:
        _blocked(
            f"{shown} was not requested: only https is allowed. Try https://{_bracketed(host)}; "
            "the user may allow the host without TLS in `tools.web.http_hosts`."
        )
    path = quote(rest if rest.startswith("/") else "/" + rest, safe="!$%&'()*+,/:;=?@[]~-._")
    return Target(scheme, host, _DEFAULT_PORTS[scheme] if port is None else port, path, address)


def check_addresses(host: str, addresses: Iterable[str], policy: NetworkPolicy) -> tuple[str, ...]:
    """The addresses of `host` (from its `Target`) that may be connected to: all of them, in order, without duplicates.

    A single non-public address blocks all, because the name may resolve to any of them next time. Raises ToolError:
    `policy_blocked`, or `network_error` if there are no addresses.
    """
    found: dict[str, IPAddress] = {}
    for text in addresses:
        address = _address(text)
        if address is None:
            _blocked(f"{host} was not requested: it resolved to {_shown(text)}, which is not an address.")
        found[str(address)] = address
    if not found:
        raise ToolError(f"{host} has no address. Check its name.", "network_error")
    if host not in policy.private_hosts:
        for shown, address in found.items():
            if (word := why_not_public(address)) is not None:
                _blocked(
                    f"{host} was not requested: its address {shown} is not public ({word}). "
                    "The user may allow the host in `tools.web.private_hosts`."
                )
    return tuple(found)


@cache
def not_public(version: Literal[4, 6]) -> tuple[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, str], ...]:
    """The blocks that are not public, with their purpose; the first match counts."""
    blocks = toml_table(__file__, dict[str, dict[str, str]])[f"ipv{version}"]
    return tuple((ipaddress.ip_network(block), word) for block, word in blocks.items())


def why_not_public(address: IPAddress) -> str | None:
    """The purpose of a non-public address's block, in a few words; `None` for a public address."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((word for block, word in not_public(4) if address in block), None)
    if address.scope_id is not None:
        return "bound to an interface"
    word = next((word for block, word in not_public(6) if address in block), None)
    return word or (None if address in PUBLIC_6 else "outside the public block 2000::/3")


_BAD_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zs", "Zl", "Zp"))
"""Control and invisible characters, surrogates, and every kind of space."""


def _host_and_port(authority: str, shown: str) -> tuple[str, IPAddress | None, int | None]:
    if authority.startswith("["):
        inside, closed, after = authority[1:].partition("]")
        if not closed or (after and not after.startswith(":")):
            _invalid(f"{shown} has a broken address in brackets.")
        if "%" in inside:
            _blocked(f"{shown} was not requested: its address is bound to an interface.")
        try:
            six = ipaddress.IPv6Address(inside)
        except ValueError:
            _invalid(f"{shown} has no IPv6 address in its brackets.")
        return str(six), six, _port(after.removeprefix(":"), shown)
    host, _, port = authority.partition(":")
    if ":" in port:
        _invalid(f"{shown} has more than one port; an IPv6 address is in brackets.")
    name, address = _host(host, shown)
    return name, address, _port(port, shown)


def host_of(text: str) -> tuple[str, IPAddress | None]:
    """A host as in `Target`, from a name or an address without brackets. Raises ToolError: `invalid_parameters`."""
    address = _address(text)
    return (str(address), address) if address is not None else _host(text, _shown(text))


def why_near(host: str, address: IPAddress | None) -> str:
    """Why a host is not public, in a few words, as far as its spelling shows; empty if it is."""
    if address is not None:
        return why_not_public(address) or ""
    near = "." not in host or any(host == name or host.endswith("." + name) for name in LOCAL_NAMES)
    return "a name on this machine or its network" if near else ""


def _port(text: str, shown: str) -> int | None:
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,5}", text) is None or not 0 < int(text) < 65536:
        _invalid(f"{shown} has no port {_shown(text)}; ports are 1 to 65535.")
    return int(text)


def _host(text: str, shown: str) -> tuple[str, IPAddress | None]:
    """A name or an IPv4 address without disguises: percent-encoding, full-width and other look-alike characters."""
    try:
        decoded = unquote(text, errors="strict") if "%" in text else text
    except UnicodeDecodeError:
        _invalid(f"{shown} has a host whose percent-encoding is broken.")
    if any(unicodedata.category(char) in _BAD_CATEGORIES for char in decoded):
        _invalid(f"{shown} has a host with characters that are not allowed in a host.")
    name = unicodedata.normalize("NFKC", decoded).lower().translate(_IDEOGRAPHIC_STOPS)
    if not name.isascii():
        try:
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError):
            _invalid(f"{shown} has an invalid host name: {_shown(decoded)}.")
    name = name.removesuffix(".")
    if not name:
        _invalid(f"{shown} has no host.")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        four = _ipv4(labels)
        if four is None:
            _invalid(f"{shown} has a host that is neither a name nor an address.")
        return str(four), four
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        _invalid(f"{shown} has an invalid host name: {_shown(decoded)}.")
    return name, None


def _ipv4(parts: list[str]) -> ipaddress.IPv4Address | None:
    """Accepts everything C's `inet_aton` and browsers do: 127.1, 0x7f.0.0.1, 0177.0.0.1, 2130706433."""
    if len(parts) > 4:
        return None
    numbers = [_number(part) for part in parts]
    total = 0
    for place, number in enumerate(numbers):
        last = place == len(numbers) - 1
        if number is None or number >= (256 ** (5 - len(numbers)) if last else 256):
            return None
        total += number if last else number * 256 ** (3 - place)
    return ipaddress.IPv4Address(total)


def _number(text: str) -> int | None:
    if len(text) > 64 or not _NUMBER.fullmatch(text):
        return None
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    if text.startswith("0") and len(text) > 1:
        return int(text, 8) if not set(text) & {"8", "9"} else None
    return int(text)


def _judge_host(host: str, address: IPAddress | None, shown: str, policy: NetworkPolicy) -> None:
    if host in policy.private_hosts:
        return
    if why := why_near(host, address):
        what = f"{host} is {why}" if address is None else f"the address {host} is not public ({why})"
        _blocked(f"{shown} was not requested: {what}. The user may allow the host in `tools.web.private_hosts`.")


def _address(text: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _plain(host: str) -> str:
    """A configured host in the spelling of `check_url`; an invalid one matches nothing."""
    stripped = host.strip()
    six = _address(stripped.removeprefix("[").removesuffix("]"))
    if six is not None:
        return str(six)
    try:
        return _host(stripped, stripped)[0]
    except ToolError:
        return ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _shown(text: str) -> str:
    """Text for a message: printable, truncated, and without a possible password."""
    plain = re.sub(r"(//)[^/?#]*@", r"\1…@", text[:300])
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in plain)
    return (clean or "(nothing)") + ("…" if len(text) > 300 else "")


def _invalid(message: str) -> NoReturn:
    raise ToolError(message, "invalid_parameters")


def _blocked(message: str) -> NoReturn:
    raise ToolError(message, "policy_blocked")
