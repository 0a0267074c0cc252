"""Landlock, by which a process restricts its own file access: versions and rights.

Its rules only allow, each for a path and everything below it. Querying the kernel restricts nothing here.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

CREATE_RULESET = 444
ASK_VERSION = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_AND_REMOVE = 0b1_1111_1111_0000
"""Remove folder, remove file, make a character device, folder, file, socket, FIFO, block device, link."""
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

READ: Final = EXECUTE | READ_FILE | READ_DIR
WRITE: Final = WRITE_FILE | MAKE_AND_REMOVE | REFER | TRUNCATE
DEVICE: Final = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV

FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""What a rule on a file may hold."""

Rule = tuple[int, Path]


def abi() -> int:
    """The kernel's Landlock version; 0 if it has none or it is disabled."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_VERSION)))


def handled(version: int) -> int:
    """All the file rights this version decides about."""
    rights = EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | MAKE_AND_REMOVE
    if version >= 2:
        rights |= REFER
    if version >= 3:
        rights |= TRUNCATE
    if version >= 5:
        rights |= IOCTL_DEV
    return rights


def kind_of_rule(rights: int, path: Path) -> Rule:
    """The rule for `path`, which may be a file."""
    return (rights, path) if os.path.isdir(path) else (rights & FILE_RIGHTS, path)
