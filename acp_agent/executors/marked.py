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


def kill_round(mark: str) -> tuple[set[int], bool]:
    """SIGKILL to what carries `mark` or a mark below it. What was killed (it may have had children), and whether
    something shows no environment: it has none, or not yet."""
    needle = f"{MARK}={mark}".encode()
    killed, unclear = set[int](), False
    own = os.getpid()
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return killed, False
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
            if environ:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
            else:  # Or it is in the middle of an exec.
                unclear = True
        except OSError:
            continue
    return killed, unclear
