"""The signals that a process inherits, undone, so that what it starts depends on nobody above it.

An ignored and a blocked signal stay so across `exec`. Under `nohup`, cron, `cmd &` in a script or an editor that ignores
SIGINT, no child could be interrupted; with SIGCHLD ignored, nobody learns how a child ended. `subprocess` gives back only
what Python itself ignores. A signal with a handler has its default in a child, so each ignored one gets a handler that
does nothing. Every process of ours that is not started by another one of ours begins with `default_signals`.
"""

from __future__ import annotations

import signal
from types import FrameType

PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by Python; `subprocess` gives them back to each child."""
TERMINALS = (signal.SIGTTIN, signal.SIGTTOU)


def default_signals() -> None:
    """Lets children begin with default dispositions and an empty mask; this process still ignores what it was told to
    ignore. To be called in the main thread, before there are others. Raises ValueError elsewhere."""
    for number in range(1, signal.NSIG):
        if signal.getsignal(number) is signal.SIG_IGN and number not in (*PYTHONS, signal.SIGCHLD):
            if number in TERMINALS:
                signal.signal(number, _ignore_again)
            else:
                signal.signal(number, _do_nothing)
                signal.siginterrupt(number, False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """As if it were ignored, but nothing that is started inherits it."""


def _ignore_again(number: int, frame: FrameType | None) -> None:
    """A call that uses the terminal from the background is repeated, and would cause the signal again without end."""
    signal.signal(number, signal.SIG_IGN)
