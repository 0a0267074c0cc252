"""Processes that carry a mark in their environment: what a command started, wherever it put itself.

Needs the standard library alone: it is also sent to other hosts.
"""

from __future__ import annotations

import os
import signal

MARK = "ACP_CODER_RUN"
"""Environment variable that marks what an executor started."""
KERNEL_THREAD = 0x00200000
"""The kernel's flag PF_KTHREAD, in the field `flags` of /proc/PID/stat."""


def kill_round(mark: str) -> bool:
    """SIGKILL to what carries `mark` or a mark below it. Whether another round is needed: something was killed (and may
    have had children) or was not visible yet."""
    needle = f"{MARK}={mark}".encode()
    again = False
    own = os.getpid()
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return False
    for pid in pids:
        if pid == own:
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read()
            if environ and needle not in environ:
                continue
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if fields[0] == b"Z" or int(fields[6]) & KERNEL_THREAD:
                continue
            again = True
            if environ:
                os.kill(pid, signal.SIGKILL)
            # Otherwise it has none, or is in the middle of an exec and has none for a moment.
        except OSError:
            continue
    return again
