"""Makes sure that a sandbox has ended completely before its protection is removed.

The started process ends before the processes in its namespace do. In between, one of them could use the path of a
removed placeholder.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from pathlib import Path

MILLISECONDS = 2000
"""Longest wait for a process that hangs in the kernel, where it cannot do anything either."""


def end_namespace(info: Path) -> None:
    """Kills the first process of the namespace that bubblewrap reported in `info`, and waits until it is gone: the
    kernel ends it last."""
    try:
        written = json.loads(info.read_bytes() or b"{}")
    except (OSError, ValueError, RecursionError):
        return
    pid = written.get("child-pid")
    if not isinstance(pid, int) or not _is_first(pid, written.get("pid-namespace")):
        return
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            # Checked again now that the number cannot be reused.
            if _is_first(pid, written.get("pid-namespace")):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                waiting = select.poll()
                waiting.register(fd, select.POLLIN)
                waiting.poll(MILLISECONDS)
        finally:
            os.close(fd)


def _is_first(pid: int, namespace: object) -> bool:
    """Whether the number still belongs to it: process 1 of a namespace of its own, and of that one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    if len(numbers) < 2 or numbers[1] != "1":
        return False
    try:
        return namespace is None or os.readlink(f"/proc/{pid}/ns/pid") == f"pid:[{namespace}]"
    except OSError:
        return True  # not allowed to ask, or just ending
