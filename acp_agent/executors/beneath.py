"""Handles of folders and files, reached from the root without ever following a link.

Paths are already resolved: their links were followed when they were checked. So a link on the way has been put there
since, and the operation stops (`Swapped`). The kernel's `openat2` walks in one step; without it we walk name by name
(`tree_walk.reach`). Operations use the handle: nothing can change between the last check and the use.
"""

from __future__ import annotations

import errno
import os
import platform
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from acp_agent.errors import ExecutorError
from acp_agent.executors.tree_walk import FOLDER, STEP, NoFolder, look, reach
from acp_agent.lazy import load

OPENAT2 = 437
MACHINES = frozenset({"x86_64", "amd64", "aarch64", "arm64", "riscv64", "ppc64le"})
"""Where the number is that, and a `long` has 64 bits."""

BENEATH, NO_SYMLINKS, NO_MAGICLINKS = 0x08, 0x04, 0x02
RESOLVE = BENEATH | NO_SYMLINKS | NO_MAGICLINKS
TRIES = 4
"""`openat2` gives up if anything is renamed in the meantime; after this many tries we walk ourselves."""

KERNELS_OWN = frozenset(
    {
        0x9FA0,  # proc
        0x62656572,  # sysfs
        0x64626720,  # debugfs
        0x74726163,  # tracefs
        0x73636673,  # securityfs
        0x27E0EB,  # cgroup
        0x63677270,  # cgroup2
        0xCAFE4A11,  # bpf
        0x1CD1,  # devpts
        0xDE5E81E4,  # efivarfs
        0x62656570,  # configfs
        0xF97CFF8C,  # selinux
        0x6165676C,  # pstore
        0x42494E4D,  # binfmt_misc
    }
)
"""File systems whose files are interfaces to the kernel, wherever they are mounted."""


ACL = "system.posix_acl_access"
OF_CONTENT = {"security.capability", "security.ima", "security.evm"}
"""Extended attributes that say something of a file's content, or give it rights for that: not kept when it changes."""


class Swapped(ExecutorError):
    """A link is where the checked path had none."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"{path} changed while it was opened: it is a link now; nothing was done")


@contextmanager
def folder(path: Path, *, make: bool = False) -> Iterator[int]:
    """Returns a handle of the folder. `make`: creates missing folders. Raises Swapped, FileNotFoundError,
    NotADirectoryError."""
    handle = _in_one_step(path) if kernel_walks() else None
    if handle is not None:
        try:
            yield handle
        finally:
            os.close(handle)
        return
    try:
        with reach(path, make=make) as reached:
            yield reached.fd
    except FileNotFoundError:
        raise
    except NoFolder as error:
        if error.link:
            raise Swapped(path) from error
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def _in_one_step(path: Path) -> int | None:
    """`None` if it has to be walked: something is missing, or keeps being renamed."""
    top = os.open(path.anchor, STEP)
    try:
        for _ in range(TRIES):
            handle, number = _openat2(top, str(path)[len(path.anchor) :] or ".")
            if number != errno.EAGAIN:
                break
    finally:
        os.close(top)
    if handle >= 0:
        return handle
    if number in (errno.EAGAIN, errno.ENOENT):
        return None
    if number in (errno.ELOOP, errno.EXDEV):
        raise Swapped(path)
    raise OSError(number, os.strerror(number), str(path))


@contextmanager
def regular(parent: int, path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Returns a descriptor of the file `path` in its open folder. Never blocks; opens only regular files.

    Raises Swapped, FileNotFoundError, IsADirectoryError; ExecutorError for what is not a file.
    """
    need_regular(parent, path)
    try:
        # Without O_NONBLOCK, opening a pipe that replaced the file would block.
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Swapped(path) from error
        raise
    try:
        _need_regular(os.fstat(descriptor), path)
        if kernels_own(descriptor):
            raise ExecutorError(f"{path} belongs to the kernel, not to a project, so it was not opened")
        yield descriptor
    finally:
        os.close(descriptor)


def need_regular(parent: int, path: Path) -> None:
    """Raises what `regular` raises for what the path is."""
    found = look(parent, path.name or ".")
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if stat.S_ISREG(found.st_mode) and kernels_own(parent):
        raise ExecutorError(f"{path} belongs to the kernel, not to a project, so it was not opened")
    _need_regular(found, path)


def _need_regular(found: os.stat_result, path: Path) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISLNK(found.st_mode):
        raise Swapped(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise ExecutorError(f"{path} is {what_it_is(found.st_mode)}, not a regular file, so it was not opened")


def keep_attributes(parent: int, name: str, old: os.stat_result, new: int) -> None:
    """Gives the file `new`, which is to replace the file of that name, its mode and, as far as permitted, its owner,
    access control list and extended attributes."""
    with suppress(PermissionError):
        os.fchown(new, old.st_uid, old.st_gid)
    if not stat.S_ISREG(old.st_mode):
        return
    os.fchmod(new, stat.S_IMODE(old.st_mode))
    if sys.platform != "linux":
        return
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        try:
            had = set(os.listxattr(descriptor)) - OF_CONTENT
            if ACL not in had:  # That which a folder gives new files would let others in.
                with suppress(OSError):
                    os.removexattr(new, ACL)
            for attribute in had:
                with suppress(OSError):
                    os.setxattr(new, attribute, os.getxattr(descriptor, attribute))
        finally:
            os.close(descriptor)


def what_it_is(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def named(handle: int) -> int:
    """A descriptor of the same folder that can be listed; to be closed by the caller."""
    return os.open(".", os.O_RDONLY | FOLDER, dir_fd=handle)


# --- the kernel ----------------------------------------------------------------------------------------------------


@cache
def _libc() -> Any:
    return load("ctypes:CDLL")(None, use_errno=True)


@cache
def _of_linux() -> bool:
    return sys.platform.startswith("linux") and platform.machine().lower() in MACHINES


@cache
def kernel_walks() -> bool:
    """Whether `openat2` works here: older kernels lack it, and some containers forbid it."""
    if not _of_linux():
        return False
    top = os.open("/", STEP)
    try:
        handle, _ = _openat2(top, ".")
    finally:
        os.close(top)
    if handle < 0:
        return False
    os.close(handle)
    return True


def _openat2(top: int, path: str) -> tuple[int, int]:
    """The descriptor of a folder, or -1 and the error's number."""
    handle = int(_libc().syscall(OPENAT2, top, os.fsencode(path), *_how()))
    return handle, (load("ctypes:get_errno")() if handle < 0 else 0)


@cache
def _how() -> tuple[Any, Any]:
    """What `openat2` is asked for, and its size."""
    # With O_NOFOLLOW, a link as the last component could not be distinguished from a file.
    how = (load("ctypes:c_uint64") * 3)(STEP & ~os.O_NOFOLLOW, 0, RESOLVE)
    return load("ctypes:byref")(how), load("ctypes:c_size_t")(24)


def kernels_own(descriptor: int) -> bool:
    """Whether it is on a kernel file system (`/proc` and the like), wherever that is mounted."""
    return file_system(descriptor) in KERNELS_OWN


def file_system(descriptor: int) -> int:
    """The kind of file system, as `statfs` names it; 0 where that is not known."""
    if not _of_linux():
        return 0
    found = load("ctypes:create_string_buffer")(512)  # struct statfs is 120 bytes; the kind is first
    if _libc().fstatfs(descriptor, found) != 0:
        return 0
    return int.from_bytes(found.raw[:8], sys.byteorder) & 0xFFFFFFFF
