"""The signals that a process inherits, undone, so that what it starts depends on nobody above it.

An ignored and a blocked signal stay so across `exec`. Under `nohup`, cron, `cmd &` in a script or an editor that
ignores SIGINT, no child could be interrupted; with SIGCHLD ignored, nobody learns how a child ended. `subprocess` gives
back only what Python itself ignores. A signal with a handler has its default in a child, so each ignored one gets one.
"""

from __future__ import annotations

import signal
from types import FrameType

GIVEN_BACK = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by Python, and given back to each child by `subprocess`."""
TERMINALS = (signal.SIGTTIN, signal.SIGTTOU)
DEFAULTS = (signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)
"""Nobody learns how a child ended where the first is ignored; a fault would be repeated behind a handler."""


def default_signals() -> None:
    """Lets children start with default dispositions and an empty mask; this process still ignores what it was told to
    ignore. Every process of ours that another program starts begins with it. Raises ValueError outside of the main
    thread."""
    for number in range(1, signal.NSIG):
        if signal.getsignal(number) is not signal.SIG_IGN or number in GIVEN_BACK:
            continue
        if number in DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        else:
            signal.signal(number, _ignore_again if number in TERMINALS else _do_nothing)
            signal.siginterrupt(number, number in TERMINALS)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """As if it were ignored."""


def _ignore_again(number: int, frame: FrameType | None) -> None:
    """The call that used the terminal from the background is repeated, and would cause the signal without end."""
    signal.signal(number, signal.SIG_IGN)
