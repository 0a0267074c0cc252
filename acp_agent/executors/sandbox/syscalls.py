"""Numbers of the system calls the filter knows. They never change."""

from __future__ import annotations

from typing import Literal

Arch = Literal["x86_64", "aarch64"]

ARCHES: dict[str, Arch] = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""Name of the machine -> column of the table."""

DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes: their memory, their descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # wide doors into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    # keys, which belong to no namespace
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "unshare": (272, 97),
    # files by something else than their path
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "iopl": (172, None),
    "ioperm": (173, None),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "uselib": (134, None),
    "_sysctl": (156, None),
}
"""Calls no command needs: (x86_64, aarch64), `None` if there is none."""

CALLS: dict[str, tuple[int, int | None]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
    "personality": (135, 92),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "creat": (85, None),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
}
"""Calls whose arguments decide."""


USED: dict[str, tuple[int, int]] = {
    "close": (3, 57),
    "write": (1, 64),
    "dup3": (292, 24),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "capset": (126, 91),
    "execve": (59, 221),
    "statx": (332, 291),
    "statfs": (137, 43),
    "close_range": (436, 436),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "setgroups": (116, 159),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
}
"""Calls that our own last step makes, and those with which a thread acts as another user."""


def number(name: str, arch: Arch) -> int | None:
    """The number of a call in one of the tables, `None` where the architecture has none."""
    row = DENIED.get(name) or CALLS.get(name) or USED[name]
    return row[0] if arch == "x86_64" else row[1]
