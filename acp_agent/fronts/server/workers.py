"""`acp-coder serve --workers N`: processes that share a socket, and a store on a server.

They are forks of the one that was started, which only looks after them: one that ends is replaced, and all end with it.
What they count is kept in files of a folder that prometheus_client names, so any of them tells what all have counted.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable

from acp_agent.fronts.server.metrics import forget

log = logging.getLogger(__name__)
ENDS = (signal.SIGTERM, signal.SIGINT)
SOON = 5.0
"""Seconds; a worker that ends within them would end again."""


class Workers:
    """`work`: what each does; it gets a file descriptor that can be read once the first process has gone."""

    def __init__(self, number: int, work: Callable[[int], None]) -> None:
        self._number = number
        self._work = work
        self._begun: dict[int, float] = {}
        """By process id."""
        self._stopping = False

    def run(self) -> int:
        """Until SIGTERM or SIGINT. Returns the exit status."""
        self._alive, self._ours = os.pipe()
        for each in ENDS:
            signal.signal(each, self._stop)
        for _ in range(self._number):
            self._begin()
        status = 0
        while self._begun:
            process, ended = os.wait()
            lived = time.monotonic() - self._begun.pop(process)
            forget(process)
            if self._stopping:
                continue
            log.error("worker %d ended with status %d", process, os.waitstatus_to_exitcode(ended))
            if lived < SOON:
                status = 1
                self._stop()
            else:
                self._begin()
        return status

    def _begin(self) -> None:
        """A signal in between waits: it is for both, and a worker must not take it for the first process."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        if process := os.fork():
            self._begun[process] = time.monotonic()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if self._stopping:  # The signal came before.
                os.kill(process, signal.SIGTERM)
            return
        status = 1
        try:
            os.close(self._ours)
            for each in ENDS:
                signal.signal(each, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._work(self._alive)
            status = 0
        except BaseException:
            log.exception("a worker failed")
        finally:
            os._exit(status)

    def _stop(self, *_: object) -> None:
        self._stopping = True
        for process in self._begun:
            os.kill(process, signal.SIGTERM)
