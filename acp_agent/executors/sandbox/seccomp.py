"""The seccomp filter: what is allowed unless it is in our own table.

A filter is a program of the kernel's old packet filter (BPF): it sees the architecture, the number and the raw
arguments of a call. It is assembled here from instructions with named targets, because the machine's own jumps reach
only 255 instructions far.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from acp_agent.executors.sandbox.syscalls import DENIED, Arch, number

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
"""The whole process, not the thread."""
EPERM_ANSWER: Final = 0x00050000 | 1
ENOSYS_ANSWER: Final = 0x00050000 | 38

AUDIT_ARCH: dict[Arch, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
Sockets = Literal["all", "tcp", "none"]
"""Of the internet."""

X32_BIT = 0x40000000

LOAD, JUMP, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCH_AT = 0, 4
MAX_JUMP = 255
MAX_LENGTH = 4096

NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID and -NET. CLONE_NEWTIME is known to clone3 and unshare alone."""

TIOCSTI, TIOCLINUX = 0x5412, 0x541C
"""Put characters into the terminal's input, as if the user had typed them; and paste the console's selection."""

PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)
"""The plain one, the one without address randomisation (sanitizers ask for it), and the question which it is."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
"""Requests of the C library for the machine's own addresses."""


SET_USER = 0o4000
"""The mode bit that makes a program run as its owner: outside the sandbox that would be the user."""

MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
"""Calls that set a mode -> which argument it is."""

OPENS = {"open": 2, "openat": 3}
"""Calls that do where they make a file; the flags are before the mode."""

MAKES_A_FILE = 0o100 | 0o20000000
"""O_CREAT, and the bit of O_TMPFILE that is its own."""

DATAGRAMS = tuple(kind | flags for kind in (2, 3) for flags in (0, 0o4000, 0o2000000, 0o2004000))
"""SOCK_DGRAM and SOCK_RAW (the same for AF_UNIX) with SOCK_NONBLOCK and SOCK_CLOEXEC; the kernel takes no other bit."""


STREAMS = tuple(1 | flags for flags in (0, 0o4000, 0o2000000, 0o2004000))
"""SOCK_STREAM likewise."""

TCP = 6
MSG_FASTOPEN = 0x20000000
"""Connects without `connect`, where Landlock is not asked."""
SENDS = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
"""Calls that can -> which argument the flags are."""


class _Step(Struct, frozen=True):
    code: int
    value: int = 0
    yes: str = ""
    no: str = ""
    """Labels to go on at; empty: the next step."""


class Assembler:
    """Steps and labels, in order; `assemble()` gives the program."""

    def __init__(self) -> None:
        self._items: list[_Step | str] = []

    def label(self, name: str) -> None:
        self._items.append(name)

    def load(self, offset: int) -> None:
        self._items.append(_Step(LOAD, offset))

    def go(self, target: str) -> None:
        self._items.append(_Step(JUMP, yes=target))

    def test(self, code: int, value: int, yes: str = "", no: str = "") -> None:
        self._items.append(_Step(code, value, yes, no))

    def answer(self, value: int) -> None:
        self._items.append(_Step(RETURN, value))

    def assemble(self) -> bytes:
        """The program as an array of `struct sock_filter`. A test whose target is too far away gets a jump behind it
        that reaches further; which ones do is found by trying until nothing moves any more."""
        steps = [item for item in self._items if isinstance(item, _Step)]
        far: set[tuple[int, bool]] = set()
        while True:
            places, labels = self._layout(far)
            before = len(far)
            for index, step in enumerate(steps):
                if step.code in (EQUAL, AT_LEAST, ANY_BIT):
                    for way, target in ((True, step.yes), (False, step.no)):
                        if target and labels[target] - places[index] - 1 > MAX_JUMP:
                            far.add((index, way))
            if len(far) == before:
                break
        words: list[tuple[int, int, int, int]] = []
        for index, step in enumerate(steps):
            words.extend(_encode(step, index, places[index], labels, far))
        if len(words) > MAX_LENGTH:
            raise ValueError(f"the filter has {len(words)} steps, but the kernel accepts {MAX_LENGTH}")
        return b"".join(struct.pack("=HBBI", *word) for word in words)

    def _layout(self, far: set[tuple[int, bool]]) -> tuple[list[int], dict[str, int]]:
        places: list[int] = []
        labels: dict[str, int] = {}
        at = 0
        for item in self._items:
            if isinstance(item, str):
                labels[item] = at
                continue
            index = len(places)
            places.append(at)
            at += 1 + ((index, True) in far) + ((index, False) in far)
        return places, labels


def _encode(
    step: _Step, index: int, at: int, labels: dict[str, int], far: set[tuple[int, bool]]
) -> Iterable[tuple[int, int, int, int]]:
    if step.code == JUMP:
        return [(JUMP, 0, 0, labels[step.yes] - at - 1)]
    if step.code in (LOAD, RETURN):
        return [(step.code, 0, 0, step.value)]
    behind: list[tuple[int, int, int, int]] = []
    count = ((index, True) in far) + ((index, False) in far)
    distances = []
    for way, target in ((True, step.yes), (False, step.no)):
        if (index, way) in far:
            distances.append(len(behind))
            behind.append((JUMP, 0, 0, labels[target] - (at + 1 + len(behind)) - 1))
        elif target:
            distances.append(labels[target] - at - 1)
        else:
            distances.append(count)
    if min(distances) < 0:
        raise ValueError("a filter can only jump forward")
    return [(step.code, distances[0], distances[1], step.value), *behind]


def _argument(index: int) -> int:
    """Where the low half of an argument is (both architectures are little-endian). The kernel itself looks only at
    that half of the arguments tested here, so the other half must not decide."""
    return 16 + 8 * index


def build_filter(arch: Arch, *, unix_sockets: bool = False, network: Sockets = "all") -> bytes:
    """The filter for one architecture. `network` is for where no network namespace does it: `none`, no socket of the
    internet can be made at all, not even to this machine; `tcp`, only those whose ports Landlock decides about, which
    are of plain TCP and connected by `connect`."""
    out = Assembler()
    out.load(ARCH_AT)
    out.test(EQUAL, AUDIT_ARCH[arch], no="kill")
    out.load(NUMBER_AT)
    if arch == "x86_64":
        out.test(AT_LEAST, X32_BIT, yes="kill")

    calls = {name: number(name, arch) for name in ("clone", "clone3", "ioctl", "personality", "socket")}
    if not unix_sockets:
        calls["socketpair"] = number("socketpair", arch)
    if network == "tcp":
        calls |= {name: number(name, arch) for name in SENDS}
    for name in (*MODES, *OPENS, "openat2"):
        if (value := number(name, arch)) is not None:
            calls[name] = value
    for name, value in calls.items():
        assert value is not None
        out.test(EQUAL, value, yes=name)
    for name in DENIED:
        value = number(name, arch)
        if value is not None:
            out.test(EQUAL, value, yes="refuse")
    out.answer(ALLOW)
    _look_at_processes(out)
    _look_at_modes(out, calls.keys())
    _look_at_sockets(out, unix_sockets=unix_sockets, network=network)
    out.label("refuse")
    out.answer(EPERM_ANSWER)
    out.label("allow")
    out.answer(ALLOW)
    out.label("kill")
    out.answer(KILL)
    return out.assemble()


def _look_at_processes(out: Assembler) -> None:
    out.label("clone")
    out.load(_argument(0))
    out.test(ANY_BIT, NEW_NAMESPACES, yes="refuse", no="allow")
    out.label("clone3")
    # Its flags are in memory, where a filter cannot look. Without it the C library uses clone.
    out.answer(ENOSYS_ANSWER)

    out.label("ioctl")
    out.load(_argument(1))
    out.test(EQUAL, TIOCSTI, yes="refuse")
    out.test(EQUAL, TIOCLINUX, yes="refuse", no="allow")

    out.label("personality")
    out.load(_argument(0))
    for value in PERSONALITIES:
        out.test(EQUAL, value, yes="allow")
    out.go("refuse")


def _look_at_modes(out: Assembler, calls: Collection[str]) -> None:
    """No file gets the setuid or the setgid bit."""
    for name, place in MODES.items():
        if name in calls:
            out.label(name)
            out.load(_argument(place))
            out.test(ANY_BIT, SET_USER, yes="refuse", no="allow")
    for name, place in OPENS.items():
        if name in calls:
            out.label(name)
            out.load(_argument(place - 1))
            out.test(ANY_BIT, MAKES_A_FILE, no="allow")
            out.load(_argument(place))
            out.test(ANY_BIT, SET_USER, yes="refuse", no="allow")
    out.label("openat2")
    # Its mode is in memory, where a filter cannot look. Programs that know it go on with openat.
    out.answer(ENOSYS_ANSWER)


def _look_at_sockets(out: Assembler, *, unix_sockets: bool, network: Sockets) -> None:
    for name, place in SENDS.items() if network == "tcp" else ():
        out.label(name)
        out.load(_argument(place))
        out.test(ANY_BIT, MSG_FASTOPEN, yes="refuse", no="allow")
    out.label("socketpair")
    # Ends of a pair of datagrams can be sent to the address of any socket there is; those of streams cannot.
    out.load(_argument(1))
    for kind in DATAGRAMS:
        out.test(EQUAL, kind, yes="refuse")
    out.go("allow")

    out.label("socket")
    out.load(_argument(0))
    if unix_sockets:
        out.test(EQUAL, AF_UNIX, yes="allow")
    if network != "none":
        out.test(EQUAL, AF_INET, yes="allow" if network == "all" else "tcp")
        out.test(EQUAL, AF_INET6, yes="allow" if network == "all" else "tcp")
    out.test(EQUAL, AF_NETLINK, no="refuse")
    out.load(_argument(2))
    out.test(EQUAL, NETLINK_ROUTE, yes="allow", no="refuse")
    out.label("tcp")
    out.load(_argument(1))
    for kind in STREAMS:
        out.test(EQUAL, kind, yes="stream")
    out.go("refuse")
    out.label("stream")
    out.load(_argument(2))
    for protocol in (0, TCP):  # Not MPTCP, nor SCTP, which Landlock does not know.
        out.test(EQUAL, protocol, yes="allow")


def write_filter(folder: Path, arch: Arch, *, unix_sockets: bool, network: Sockets = "all") -> Path:
    """The filter as a file in `folder`, written once."""
    path = folder / f"seccomp{'-unix' if unix_sockets else ''}{'' if network == 'all' else f'-{network}'}.bpf"
    if not os.path.exists(path):
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(build_filter(arch, unix_sockets=unix_sockets, network=network))
        beside.replace(path)
    return path
