"""Hosts that commands connect to: how they are named, and which are listed. Pure, without lookups.

The same guard as for the web tools (`network.py`) reads a name; unlike these, a command may also reach a host of the
user's own network or machine, if the user says so, and then each port counts by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import ToolError
from acp_agent.safety.deciding.network import IPAddress, host_of, why_near, why_not_public
from acp_agent.toml_table import toml_table

USUAL_PORTS = frozenset((80, 443))
NEVER = frozenset(("link-local", "a cloud's inner service"))
"""Kinds of addresses that only the configuration opens: clouds answer there with a machine's own credentials."""


class Host(Struct, frozen=True):
    """Where a command wants to connect to."""

    name: str
    """As in `network.Target`."""
    port: int
    near: str = ""
    """Why it is not public, in a few words; empty if it is."""
    at: str = ""
    """Addresses that are not public, to which its name leads: an answer covers no others."""

    @property
    def place(self) -> str:
        """For rules and users. The port is named where it is not a usual one."""
        host = f"[{self.name}]" if ":" in self.name else self.name
        return host if self.port in USUAL_PORTS and not self.near else f"{host}:{self.port}"


def find_host(text: str, port: int) -> Host:
    """Raises ToolError if it is no host."""
    name, address = host_of(text)
    if not 0 < port < 65536:
        raise ToolError(f"There is no port {port}.", "invalid_parameters")
    return Host(name, port, why_near(name, address))


def judged(host: Host, addresses: Iterable[str], allowed: Sequence[str]) -> Host:
    """The host with what its addresses show. `allowed`: hosts of the configuration that may be anywhere.

    Raises ToolError for an address that only the configuration opens.
    """
    if host.name in allowed:
        return host
    near: dict[str, str] = {}
    for text in (host.name, *addresses):
        address = host_of(text)[1]
        why = None if address is None else why_not_public(address)
        if address is None or why is None:
            continue
        if not NEVER.isdisjoint((why, *map(why_not_public, _inner(address)))):
            raise ToolError(
                f"{host.place} has the address {text} ({why}), where clouds give out a machine's own credentials. "
                "Only `tools.web.private_hosts` opens it.",
                "policy_blocked",
            )
        near[text] = why
    if host.near or not near:
        return host
    at = ", ".join(sorted(near))
    return replace(host, near=f"its address {at} is not public: {next(iter(near.values()))}", at=at)


def _inner(address: IPAddress) -> Iterable[IPAddress]:
    """What an address of IPv6 that is not public may stand for: one of IPv4 in it (mapped, NAT64, 6to4, …), or itself
    without an interface."""
    if isinstance(address, IPv6Address):
        number = int(address)
        yield from (IPv4Address(number & 0xFFFFFFFF), IPv4Address(number >> 80 & 0xFFFFFFFF), IPv6Address(number))


@cache
def registries() -> dict[str, str]:
    """Hosts that package managers download from -> the ecosystem."""
    table = toml_table(__file__, dict[str, list[str]])
    return {host: name for name, hosts in table.items() for host in hosts}


def is_registry(host: Host) -> bool:
    return host.port == 443 and not host.near and host.name in registries()
