"""The filter, run by our own interpreter; the attacks show that the kernel reads it the same way."""

import re
from pathlib import Path
from typing import Any

import pytest

from acp_agent.executors.sandbox.seccomp import (
    ALLOW,
    AUDIT_ARCH,
    ENOSYS_ANSWER,
    EPERM_ANSWER,
    EQUAL,
    KILL,
    Assembler,
    build_filter,
)
from acp_agent.executors.sandbox.syscalls import CALLS, DENIED, Arch, number
from tests.executors.sandbox.bpf import answer
from tests.tables import table

ARCHES: list[Arch] = ["x86_64", "aarch64"]
HIGH = 1 << 32
HERE = 0xFFFFFF9C
"""AT_FDCWD"""

ARGUMENTS: list[tuple[str, tuple[int, ...], int]] = [
    ("clone", (0x01200011,), ALLOW), ("clone", (0x003D0F00,), ALLOW),
    *(("clone", (0x11 | 1 << bit,), EPERM_ANSWER) for bit in (17, 25, 26, 27, 28, 29, 30)),
    ("clone", (0x11 | 1 << 28 | HIGH,), EPERM_ANSWER), ("clone3", (), ENOSYS_ANSWER), ("openat2", (), ENOSYS_ANSWER),
    ("fchmod", (3, 0o755), ALLOW), ("fchmod", (3, 0o2755), ALLOW), ("fchmod", (3, 0o4755), EPERM_ANSWER),
    ("fchmodat", (HERE, 0, 0o4000), EPERM_ANSWER), ("fchmodat", (HERE, 0o4000, 0o755), ALLOW),
    ("fchmodat2", (HERE, 0, 0o4755, 0), EPERM_ANSWER), ("mknodat", (HERE, 0, 0o104755), EPERM_ANSWER),
    ("mknodat", (HERE, 0, 0o100755), ALLOW), ("openat", (HERE, 0, 0o101, 0o4755), EPERM_ANSWER),
    ("openat", (HERE, 0, 0o20200002, 0o4755), EPERM_ANSWER), ("openat", (HERE, 0, 0o101, 0o644), ALLOW),
    ("openat", (HERE, 0, 0, 0o4755), ALLOW), ("socketpair", (1, 1), ALLOW), ("socketpair", (1, 0o2000001), ALLOW),
    ("socketpair", (1, 2), EPERM_ANSWER), ("socketpair", (1, 0o2004002), EPERM_ANSWER),
    ("socketpair", (1, 3), EPERM_ANSWER), ("socketpair", (1, 5), ALLOW), ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), EPERM_ANSWER), ("ioctl", (0, 0x5412 | HIGH), EPERM_ANSWER),
    ("ioctl", (0, 0x541C), EPERM_ANSWER), ("ioctl", (0x5412, 0x5413), ALLOW), ("personality", (0,), ALLOW),
    ("personality", (0xFFFFFFFF,), ALLOW), ("personality", (0x0040000,), ALLOW),
    ("personality", (0x0400000,), EPERM_ANSWER), ("personality", (8,), EPERM_ANSWER),
    ("socket", (1, 1, 0), EPERM_ANSWER), ("socket", (1 | HIGH, 1, 0), EPERM_ANSWER), ("socket", (2, 1, 0), ALLOW),
    ("socket", (10, 2, 0), ALLOW), ("socket", (16, 3, 0), ALLOW), ("socket", (16, 3, 9), EPERM_ANSWER),
    *(("socket", (family, 1, 0), EPERM_ANSWER) for family in (0, 3, 17, 31, 38, 40, 44, 45)),
]  # fmt: skip


@pytest.mark.parametrize("arch", ARCHES)
@table(("name", "arguments", "expected"), ARGUMENTS)
def test_arguments_decide(arch: Arch, name: str, arguments: tuple[int, ...], expected: int) -> None:
    value = number(name, arch)
    assert value is not None
    assert answer(build_filter(arch), value, AUDIT_ARCH[arch], arguments) == expected


NEEDED = (
    "ptrace process_vm_readv process_vm_writev bpf perf_event_open userfaultfd io_uring_setup io_uring_enter "
    "io_uring_register keyctl add_key request_key mount umount2 pivot_root move_mount open_tree fsopen fsconfig "
    "fsmount fspick mount_setattr setns unshare kexec_load kexec_file_load init_module finit_module delete_module "
    "open_by_handle_at reboot swapon swapoff acct quotactl chroot fanotify_init pidfd_getfd kcmp settimeofday "
    "clock_settime adjtimex sethostname setdomainname"
).split()


@pytest.mark.parametrize("arch", ARCHES)
def test_the_table_which_holds_what_was_promised_is_refused_alone_and_other_architectures_killed(arch: Arch) -> None:
    program = build_filter(arch)
    refused = {number(name, arch) for name in DENIED} - {None}
    special = {number(name, arch) for name in CALLS}
    for value in range(600):
        if value not in special:
            assert answer(program, value, AUDIT_ARCH[arch]) == (EPERM_ANSWER if value in refused else ALLOW), value
    for other in (0x40000003, 0x40000028, *AUDIT_ARCH.values()):
        if other != AUDIT_ARCH[arch]:
            assert answer(program, 0, other) == KILL
    for name in NEEDED:
        needed = number(name, arch)
        assert needed is not None, name
        assert answer(program, needed, AUDIT_ARCH[arch]) == EPERM_ANSWER, name


def test_x32_is_killed() -> None:
    program = build_filter("x86_64")
    for value in (0x40000000, 0x40000000 | 165, 0xFFFFFFFF):
        assert answer(program, value, AUDIT_ARCH["x86_64"]) == KILL


@pytest.mark.parametrize("arch", ARCHES)
def test_sockets_are_as_the_policy_says(arch: Arch) -> None:
    value = number("socket", arch)
    assert value is not None

    def made(family: int, kind: int = 1, protocol: int = 0, **policy: Any) -> bool:
        return answer(build_filter(arch, **policy), value, AUDIT_ARCH[arch], (family, kind, protocol)) == ALLOW

    assert made(1, unix_sockets=True) and not made(1, unix_sockets=False)
    for family in (2, 10):
        assert made(family, network="all") and not made(family, network="none")
        assert made(family, 1 | 0o2004000, 6, network="tcp")
        assert not made(family, 2, network="tcp") and not made(family, 3, 1, network="tcp")
        assert not made(family, 1, 262, network="tcp"), "several paths: Landlock does not see it"
    assert not made(17, unix_sockets=True, network="all")


@pytest.mark.parametrize("between", [0, 1, 253, 254, 255, 256, 257, 600, 1500])
def test_a_jump_reaches_as_far_as_it_has_to(between: int) -> None:
    for near_first in (True, False):
        out = Assembler()
        out.load(0)
        out.test(EQUAL, 7, yes="far", no="other")
        if near_first:
            out.label("other")
        for _ in range(between):
            out.load(0)
        out.answer(1)
        if not near_first:
            out.label("other")
            out.answer(3)
        out.label("far")
        out.answer(2)
        program = out.assemble()
        assert answer(program, 7, 0) == 2 and answer(program, 8, 0) == (1 if near_first else 3)


def test_many_far_jumps_move_each_other_and_still_arrive() -> None:
    out = Assembler()
    out.load(0)
    for value in range(400):
        out.test(EQUAL, value, yes=f"is {value % 5}")
    out.answer(99)
    for rest in range(5):
        out.label(f"is {rest}")
        out.answer(rest)
    program = out.assemble()
    assert [answer(program, value, 0) for value in range(400)] == [value % 5 for value in range(400)]
    assert answer(program, 400, 0) == 99


HEADERS: dict[Arch, tuple[str, ...]] = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


@pytest.mark.parametrize("arch", ARCHES)
def test_the_numbers_are_those_of_the_kernels_headers(arch: Arch) -> None:
    header = next((Path(name) for name in HEADERS[arch] if Path(name).exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    known = {
        name: int(value)
        for name, value in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE)
    }
    ours = {name: number(name, arch) for name in (*DENIED, *CALLS)}
    wrong = {name: value for name, value in ours.items() if name in known and known[name] != value}
    assert len(known) > 250
    assert wrong == {}
    unknown = {name for name, value in ours.items() if value is not None and name not in known}
    assert unknown <= {"open_tree_attr", "fchmodat2"}
