"""Which programs a process that we start may run: itself, and no other.

Landlock restricts the thread that asks for it and what that starts. So a thread of its own does, starts the process and
ends with it; nothing runs between fork and exec.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from acp_agent.lazy import load

CREATE_RULESET, ADD_RULE, RESTRICT_SELF, NO_NEW_PRIVS = 444, 445, 446, 38
PATH_BENEATH, EXECUTE = 1, 1
O_PATH = getattr(os, "O_PATH", 0)
ELF, PT_INTERP, MAX_HEADERS = b"\x7fELF\x02\x01", 3, 64
"""64 bits, little-endian, as on all machines for which there is a sandbox."""

Done = TypeVar("Done")


def alone(program: str, run: Callable[[], Done]) -> Done:
    """`run()`, in which no other program can be started than this one, where the kernel has Landlock and the program is
    none that another one reads (a script). Raises OSError."""
    if sys.platform != "linux" or (loader := _loader(program)) is None:
        return run()
    done: Future[Done] = Future()

    def restricted() -> None:
        try:
            _restrict([program, loader] if loader else [program])
            done.set_result(run())
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            done.set_exception(error)

    Thread(target=restricted, name="alone", daemon=True).start()
    return done.result()


def _loader(program: str) -> str | None:
    """What the kernel starts an executable with; empty: nothing else. `None` if it is no executable."""
    with open(program, "rb") as file:
        head = file.read(64)
        if not head.startswith(ELF):
            return None
        start, size, number = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        for each in range(min(number, MAX_HEADERS)):
            file.seek(start + each * size)
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == PT_INTERP:
                file.seek(offset)
                return os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
    return ""


def _restrict(programs: list[str]) -> None:
    """This thread, for good; without Landlock nothing. Raises OSError."""
    libc, size = load("ctypes:CDLL")(None, use_errno=True), load("ctypes:c_size_t")
    rules = libc.syscall(CREATE_RULESET, struct.pack("<Q", EXECUTE), size(8), 0)
    if rules < 0:
        return
    try:
        for path in programs:
            with suppress(FileNotFoundError):
                place = os.open(path, O_PATH | os.O_CLOEXEC)
                try:
                    _called(libc.syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("<Qi", EXECUTE, place), 0))
                finally:
                    os.close(place)
        _called(libc.prctl(NO_NEW_PRIVS, *(size(each) for each in (1, 0, 0, 0))))
        _called(libc.syscall(RESTRICT_SELF, rules, 0))
    finally:
        os.close(rules)


def _called(result: Any) -> None:
    if result:
        raise OSError(load("ctypes:get_errno")(), "Landlock cannot be used")
