"""What runs last in the sandbox: it drops the remaining privileges, then becomes the command.

A list of system calls, which `bare_program` makes an executable of. It is started in the sandbox with the command's
arguments as its own. Whatever fails, the command is not run.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.disk import Identity
from acp_agent.executors.sandbox.bare_program import Call, Expect, OnError, Pointing, Result, Stack, Word, executable
from acp_agent.executors.sandbox.base import DOOR_NUMBERS, REPLACED
from acp_agent.executors.sandbox.landlock import Rule, handled
from acp_agent.executors.sandbox.syscalls import Arch, number

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.bare_program import Argument

AT_FDCWD = -100
O_PATH, O_WRONLY, O_CLOEXEC = 0o10000000, 1, 0o2000000
OPENED = 128
"""Places opened for rules at a time."""
RULESET, PLACE = 60, 61
"""Descriptors, whatever numbers the kernel chose first; nothing of the agent is open there any more."""
NULL = 0
PATH_BENEATH, NET_PORT = 1, 2
CONNECT_TCP = 2
SCOPED = 0b11
"""Abstract unix sockets and signals: only among those of the same domain (Landlock ABI 6)."""
SET_SECCOMP, CAPBSET_DROP, SET_SECUREBITS, SET_NO_NEW_PRIVS, CAP_AMBIENT = 22, 24, 28, 38, 47
FILTER_MODE, AMBIENT_CLEAR_ALL = 2, 4
NO_ROOT_FOR_GOOD = 0b11 | 0b1100 | 0b11000000
"""No capabilities from being uid 0, none kept over a change of it, none raised, each locked."""
CAPABILITIES = 64
"""As many as there can be; those that do not exist cannot be dropped."""
CAPABILITY_VERSION = 0x20080522
RLIMIT_NPROC = 6
CLONE_NEWUSER = 0x10000000
O_NOFOLLOW = os.O_NOFOLLOW
STATX_INO, EMPTY_STATUS = 0x100, 0x1000
OPEN_TREE_CLONE, NOT_FOLLOWED, EMPTY_PATH = 1, 0x100, 4
BIND_ALL, READ_ONLY_AGAIN = 0x5000, 0x1 | 0x2 | 0x4 | 0x8 | 0x20 | 0x1000
"""MS_BIND|MS_REC; MS_RDONLY|NOSUID|NODEV|NOEXEC|REMOUNT|BIND."""
NO_EXEC, READ_ONLY_NEW = 0x8, 0x1 | 0x2 | 0x4 | 0x8


STATUS = -64
"""Words below the stack: where `statx` writes. Behind it: its attributes, the inode and the device; and the flags of
`statfs`."""
ATTRIBUTES, INODE, DEVICE_NUMBER, FLAGS = STATUS + 1, STATUS + 4, STATUS + 17, STATUS + 10
MOUNTED = 1 << 13
"""STATX_ATTR_MOUNT_ROOT, since Linux 5.8."""
READ_ONLY = 1


def _tells_mounts() -> bool:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 8)


class Inside:
    """Collects the calls, in their order."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self._calls: list[Call] = []
        self._given = 0
        """Arguments of the program that are not the command's."""

    def _call(
        self,
        name: str,
        *arguments: Argument,
        on_error: OnError = "fail",
        skips: int = 0,
        what: str = "",
        expects: Sequence[Expect] = (),
    ) -> None:
        found = number(name, self._arch)
        assert found is not None, name
        self._calls.append(Call(found, arguments, on_error, what or name, skips, tuple(expects)))

    def enter_group(self, door: Path) -> tuple[str]:
        """Joins a control group; returns what has to be an argument before the command's, so that the program is the
        same for every command."""
        assert not self._given
        self._given = 1
        self._call("openat", AT_FDCWD, Word(2), O_WRONLY | O_CLOEXEC, 0)
        self._call("write", Result(), b"0", 1)
        return (str(door),)

    def join(self, doors: Iterable[str]) -> None:
        """Enters namespaces that there are, whatever kinds the files are of. All are opened first: they may not be
        visible from inside."""
        opened = []
        for descriptor, place in zip(DOOR_NUMBERS, doors, strict=False):
            self._call("openat", AT_FDCWD, os.fsencode(place), O_CLOEXEC, 0)
            self._call("dup3", Result(), descriptor, O_CLOEXEC)
            opened.append(descriptor)
        for descriptor in opened:
            self._call("setns", descriptor, 0)

    def expect(self, path: Path, identity: Identity | None, *, read_only: bool = False, mounted: bool = True) -> None:
        """At that path, which is no link, something has to be mounted (unless `mounted` is false, to be): what has that
        identity, if one is given."""
        expected = [Expect(ATTRIBUTES, MOUNTED, MOUNTED)] if mounted and _tells_mounts() else []
        self._expect(AT_FDCWD, os.fsencode(path), NOT_FOLLOWED, str(path), expected, identity)
        if read_only:
            expected = [Expect(FLAGS, READ_ONLY, READ_ONLY)]
            words = f"{path} {REPLACED}"
            self._call("statfs", os.fsencode(path), Stack(STATUS), what=words, expects=expected)

    def _expect(
        self, top: int, path: bytes, flags: int, shown: str, expected: list[Expect], identity: Identity | None
    ) -> None:
        if identity is not None:
            device, inode = identity
            expected = [*expected, Expect(INODE, inode)]
            expected.append(Expect(DEVICE_NUMBER, os.major(device) | os.minor(device) << 32))
        self._call("statx", top, path, flags, STATX_INO, Stack(STATUS), what=f"{shown} {REPLACED}", expects=expected)

    def _write(self, path: bytes, text: bytes, on_error: OnError = "fail") -> None:
        if on_error == "fail":
            self._call("openat", AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0)
        else:
            self._call("openat", AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0, on_error="skip", skips=1)
        self._call("write", Result(), text, len(text), on_error=on_error)

    def mount_links(self, links: Iterable[tuple[Path, Path]]) -> None:
        """Puts each link (the first path) over a file. Where that fails, what is there stays."""
        for link, file in links:
            flags = OPEN_TREE_CLONE | NOT_FOLLOWED | O_CLOEXEC
            self._call("open_tree", AT_FDCWD, os.fsencode(link), flags, on_error="skip", skips=1)
            self._call("move_mount", Result(), b"", AT_FDCWD, os.fsencode(file), EMPTY_PATH, on_error="go on")

    def bound_namespaces(self) -> None:
        """In the next user namespace there can be no further one."""
        self._write(b"/proc/sys/user/max_user_namespaces", b"1", on_error="go on")

    def mount(self, source: str, place: str) -> None:
        """Puts a file or folder over another, which may be itself. bubblewrap takes twenty times as long for one: it
        reads the list of all mounts."""
        what = f"{place} {REPLACED}"
        self._call("mount", os.fsencode(source), os.fsencode(place), NULL, BIND_ALL, NULL, what=what)

    def mount_read_only(self, places: Iterable[tuple[str, str]], *, runs: bool = False) -> None:
        """`runs`: whether programs in it may be run."""
        for source, place in places:
            self.mount(source, place)
            flags = READ_ONLY_AGAIN & ~NO_EXEC if runs else READ_ONLY_AGAIN
            self._call("mount", NULL, os.fsencode(place), NULL, flags, NULL)

    def mount_empty(self, place: str, *, closed: bool = False) -> None:
        """A folder with nothing in it, in which nothing can be made; `closed`: nor looked up, so that git does not
        take what was in it for deleted."""
        mode = b"mode=0444" if closed else b"mode=0555"
        kind, what = b"tmpfs", f"{place} {REPLACED}"
        self._call("mount", kind, os.fsencode(place), kind, READ_ONLY_NEW, mode, what=what)

    def leave_namespace(self, uid: int, gid: int) -> None:
        """Into a user namespace of its own, to which the mounts do not belong."""
        self._call("unshare", CLONE_NEWUSER)
        self._write(b"/proc/self/setgroups", b"deny", on_error="go on")
        self._write(b"/proc/self/uid_map", b"%d 0 1\n" % uid)
        self._write(b"/proc/self/gid_map", b"%d 0 1\n" % gid)

    def limit_processes(self, most: int, hard: int) -> None:
        """`hard`: the limit that there is already; -1: none."""
        most = min(most, hard) if hard >= 0 else most
        self._call("prlimit64", 0, RLIMIT_NPROC, struct.pack("<QQ", most, most), NULL)

    def drop_capabilities(self, *, is_root: bool) -> None:
        self._call("prctl", CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0, on_error="go on")
        if is_root:
            self._call("prctl", SET_SECUREBITS, NO_ROOT_FOR_GOOD, 0, 0, 0)
        for capability in range(CAPABILITIES):
            self._call("prctl", CAPBSET_DROP, capability, 0, 0, 0, on_error="go on")
        self._call("capset", struct.pack("<Ii", CAPABILITY_VERSION, 0), bytes(24))

    def restrict_files(
        self, version: int, rules: Iterable[Rule], port: int = 0, meant: Mapping[Path, Identity] = {}
    ) -> None:
        """`meant`: what must be at paths of rules, which are no links. `port`: the only TCP port that can be connected
        to, from ABI 4 on; 0: any."""
        rights = handled(version)
        attributes = struct.pack("<QQQ", rights, CONNECT_TCP if port else 0, SCOPED if version >= 6 else 0)
        self._call("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        self._call("landlock_create_ruleset", attributes, 24 if version >= 6 else 16 if port else 8, 0)
        self._call("dup3", Result(), RULESET, O_CLOEXEC)
        for count, (allowed, path) in enumerate(rules, 1):
            allowed &= rights
            # What cannot be reached needs no permission.
            known = meant.get(path)
            flags, skips = (O_PATH | O_CLOEXEC, 2) if known is None else (O_PATH | O_CLOEXEC | O_NOFOLLOW, 3)
            self._call("openat", AT_FDCWD, os.fsencode(path), flags, 0, on_error="skip", skips=skips)
            self._call("dup3", Result(), PLACE, O_CLOEXEC)
            if known is not None:
                self._expect(PLACE, b"", EMPTY_STATUS, str(path), [], known)
            self._call("landlock_add_rule", RULESET, PATH_BENEATH, struct.pack("<Qi", allowed, PLACE), 0)
            if not count % OPENED:  # What was opened has two numbers, and only so many files may be open.
                self._call("close_range", PLACE + 1, 0xFFFFFFFF, 0, on_error="go on")
        if port:
            self._call("landlock_add_rule", RULESET, NET_PORT, struct.pack("<QQ", CONNECT_TCP, port), 0)
        self._call("landlock_restrict_self", RULESET, 0)

    def filter_calls(self, bpf: bytes) -> None:
        self._call("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        self._call("prctl", SET_SECCOMP, FILTER_MODE, Pointing(len(bpf) // 8, bpf), 0, 0)

    def close_files(self) -> None:
        self._call("close_range", 3, 0xFFFFFFFF, 0, on_error="go on")

    @property
    def empty(self) -> bool:
        return not self._calls

    def become(self, argv: Sequence[str], env: Mapping[str, str]) -> bytes:
        """The executable. It looks for the command's program as a shell does."""
        at = 2 + self._given
        *others, last = _candidates(argv[0], env)
        for path in others:
            self._call("execve", path, Stack(at), Stack(at + len(argv) + 1), on_error="go on")
        self._call("execve", last, Stack(at), Stack(at + len(argv) + 1))
        return executable(self._arch, tuple(self._calls))


def _candidates(name: str, env: Mapping[str, str]) -> Iterator[bytes]:
    if "/" in name:
        yield os.fsencode(name)
        return
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        yield os.fsencode(os.path.join(folder or ".", name))
