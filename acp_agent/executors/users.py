"""The user that tools act as (`tools.scope.run_as_user`): for commands, a process; for files, a thread.

On Linux, each thread has its own user and groups for access to files. While these are another user's, the kernel also
takes root's privileges over files from it, so that a tool reads, writes and creates exactly what that user may.
"""

from __future__ import annotations

import codecs
import grp
import os
import platform
import pwd
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread

from acp_agent.child import User
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.syscalls import ARCHES, number
from acp_agent.lazy import load

T = TypeVar("T")


@cache
def _find(text: str) -> User:
    try:
        found = pwd.getpwuid(int(text)) if text.isdigit() else pwd.getpwnam(text)
    except (KeyError, OverflowError) as error:
        raise ExecutorError(
            f"`tools.scope.run_as_user` names {text!r}, which does not exist on this machine"
        ) from error
    if os.geteuid() not in (0, found.pw_uid):
        raise ExecutorError(
            f"`tools.scope.run_as_user` is {text!r}, but this process may not switch users; start the agent as root, "
            "or remove the key"
        )
    groups = tuple(entry.gr_gid for entry in grp.getgrall() if found.pw_name in entry.gr_mem)
    return User(found.pw_name, found.pw_uid, found.pw_gid, (*groups, found.pw_gid), Path(found.pw_dir))


def find_user(text: str) -> User | None:
    """The user by name or number; `None` for our own user or empty `text`.

    Raises ExecutorError if it does not exist or this process may not switch to it.
    """
    user = _find(text) if text else None
    return None if user is None or user.uid == os.geteuid() else user


@contextmanager
def acting_as(user: User | None) -> Iterator[None]:
    """What this thread does with files, it does as `user`; `None`: as always. Raises ExecutorError if it cannot."""
    if user is None:
        yield
        return
    own = os.getgroups()
    try:
        _become(user.uid, user.gid, user.groups)
        _acting.now = user, own
        yield
    finally:
        _acting.now = None
        _become(os.geteuid(), os.getegid(), own)


async def in_thread_as(user: User | None, work: Callable[[], T]) -> T:
    """What `work` returns, done in a thread that acts as `user`."""

    def done() -> T:
        with acting_as(user):
            return work()

    return await anyio.to_thread.run_sync(done)


_acting = threading.local()
"""`now`: whom this thread acts as, and our own groups."""


@contextmanager
def as_ourselves() -> Iterator[None]:
    """Within `acting_as`: what this thread does with our own files."""
    acting = getattr(_acting, "now", None)
    if acting is None:
        yield
        return
    user, own = acting
    _become(os.geteuid(), os.getegid(), own)
    try:
        yield
    finally:
        _become(user.uid, user.gid, user.groups)


def _become(uid: int, gid: int, groups: Iterable[int]) -> None:
    """For this thread alone: the functions of the C library would change all of them."""
    if platform.system() != "Linux" or (arch := ARCHES.get(platform.machine())) is None:
        raise ExecutorError("file tools can act as another user (`tools.scope.run_as_user`) only on Linux")
    syscall, listed = _libc().syscall, tuple(groups)
    array = (load("ctypes:c_uint32") * len(listed))(*listed)
    # In this order: who has become another user may not change groups any more; the way back is the other way round.
    steps: list[tuple[Any, ...]] = [("setgroups", len(listed), array), ("setfsgid", gid), ("setfsuid", uid)]
    for name, *arguments in steps if uid != os.geteuid() else reversed(steps):
        syscall(number(name, arch), *arguments)
    if (syscall(number("setfsuid", arch), -1), syscall(number("setfsgid", arch), -1)) != (uid, gid):
        raise ExecutorError(f"the system did not let this process act as user {uid}")


CODECS = "utf-8-sig utf-16 utf-16-le utf-16-be utf-32-le utf-32-be cp1252 latin-1".split()
"""What files are read and written with (`encodings`)."""


@cache
def _libc() -> Any:
    for name in CODECS:  # Another user may not be able to read Python's own files.
        codecs.lookup(name)
    return load("ctypes:CDLL")(None, use_errno=True)
