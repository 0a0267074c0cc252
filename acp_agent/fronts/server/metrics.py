"""What the server counts, as text for Prometheus. Of all owners together; no name, path or word of a session."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from acp_agent.fronts.server import COUNTS
from acp_agent.schema import acp

CONTENT_TYPE = CONTENT_TYPE_PLAIN_1_0_0
TURN_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
CALL_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800)
WORD_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
"""Seconds."""
TOKENS = {"inputTokens": "input", "outputTokens": "output", "thoughtTokens": "thought", "cachedReadTokens": "cached"}
MOST_OPEN = 10_000
"""Tool calls whose beginning is remembered."""


class Metrics:
    """`connections`, `sessions`: how many there are now, in this process."""

    def __init__(self, connections: Callable[[], float], sessions: Callable[[], float]) -> None:
        self._registry = own = CollectorRegistry()
        self._now = (
            (_gauge("acp_coder_connections", "Clients that are connected.", own), connections),
            (_gauge("acp_coder_sessions", "Sessions that are open.", own), sessions),
        )
        self._running = _gauge("acp_coder_turns_running", "Turns that run.", own)
        self._turns = Counter("acp_coder_turns", "Turns that ended, by why.", ("reason",), registry=own)
        self._tokens = Counter("acp_coder_tokens", "Tokens of the models, by kind.", ("kind",), registry=own)
        self._calls = Counter("acp_coder_tool_calls", "Tool calls that ended, by outcome.", ("outcome",), registry=own)
        self._refused = Counter(
            "acp_coder_refused", "Requests that did not get in, by status.", ("status",), registry=own
        )
        self._turn_seconds = Histogram(
            "acp_coder_turn_seconds", "How long turns take.", buckets=TURN_BUCKETS, registry=own
        )
        self._call_seconds = Histogram(
            "acp_coder_tool_call_seconds", "From a tool call to its result.", buckets=CALL_BUCKETS, registry=own
        )
        self._first_words = Histogram(
            "acp_coder_first_word_seconds", "From a prompt to the first word.", buckets=WORD_BUCKETS, registry=own
        )
        for kind in TOKENS.values():
            self._tokens.labels(kind)
        self._counts = os.environ.pop(COUNTS, "")
        self._open_calls: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        """By session, since when its turn waits for the first word."""

    def text(self) -> bytes:
        """Of all workers, if there are any."""
        self.look()
        registry = self._registry
        if self._counts:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, self._counts)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def look(self) -> None:
        """To be called from time to time: others tell what this process has counted, too."""
        for gauge, count in self._now:
            gauge.set(count())

    def refused(self, status: int) -> None:
        self._refused.labels(str(status)).inc()

    def turn_begins(self, session_id: str) -> float:
        """Returns what `turn_ends` needs."""
        self._running.inc()
        self._asked[session_id] = begun = time.monotonic()
        return begun

    def turn_ends(self, session_id: str, begun: float, reason: str, usage: dict[str, int] | None) -> None:
        self._running.dec()
        self._asked.pop(session_id, None)
        self._turns.labels(reason).inc()
        self._turn_seconds.observe(time.monotonic() - begun)
        for name, kind in TOKENS.items():
            self._tokens.labels(kind).inc((usage or {}).get(name, 0))

    def shown(self, session_id: str, update: Any) -> None:
        """An update of a session, as it happens."""
        begun: float | None
        if isinstance(update, acp.ToolCall):
            if len(self._open_calls) < MOST_OPEN:
                self._open_calls[update.tool_call_id] = time.monotonic()
        elif isinstance(update, acp.AgentMessageChunk | acp.AgentThoughtChunk):
            if (begun := self._asked.pop(session_id, None)) is not None:
                self._first_words.observe(time.monotonic() - begun)
        elif isinstance(update, acp.ToolCallProgress) and update.status in ("completed", "failed"):
            begun = self._open_calls.pop(update.tool_call_id, None)
            if begun is not None:
                self._calls.labels(update.status).inc()
                self._call_seconds.observe(time.monotonic() - begun)


def _gauge(name: str, words: str, registry: CollectorRegistry) -> Gauge:
    return Gauge(name, words, registry=registry, multiprocess_mode="livesum")


def forget(process: int) -> None:
    """A worker that has ended: what it had now does not count any more."""
    mark_process_dead(process)  # type: ignore[no-untyped-call]
