"""Spans of turns, model calls and tool calls, for OpenTelemetry. Off, and nothing of it loaded, unless OTEL_* asks.

Names and attributes are those of its conventions for generative AI; nothing that was said, read or written is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from acp_agent.errors import ConfigError
from acp_agent.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Span(Protocol):
        def set(self, **attributes: Any) -> None:
            """`__` in a name stands for a dot; what is `None` is left out."""
            ...

        def end(self, error: BaseException | None = None) -> None: ...


TRACER = "acp_agent.telemetry:Tracer"
ASKS = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class _Nothing:
    def set(self, **attributes: Any) -> None:
        pass

    def end(self, error: BaseException | None = None) -> None:
        pass


NOTHING = _Nothing()


class _Process:
    """Traces are the process's: OpenTelemetry has one tracer, too."""

    tracer: Any = None


def wanted(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(environ.get(name) for name in ASKS)


def begin(environ: Mapping[str, str]) -> None:
    """Raises ConfigError."""
    if not wanted(environ):
        return
    try:
        _Process.tracer = load(TRACER)(environ)
    except ImportError as error:
        raise ConfigError(
            f"OTEL_* variables ask for traces, but {error.name} is not installed: `pip install 'acp-coder[otel]'`, or "
            "set OTEL_SDK_DISABLED=true"
        ) from error


def end(seconds: float) -> None:
    """Sends what is left, for so long."""
    tracer, _Process.tracer = _Process.tracer, None
    if tracer is not None:
        tracer.end(seconds)


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[Span]:
    """What begins in it is part of it."""
    if _Process.tracer is None:
        yield NOTHING
        return
    with _Process.tracer.span(name, attributes) as opened:
        yield opened


def start(name: str, **attributes: Any) -> Span:
    """One that has to be ended, and of which nothing is part."""
    if _Process.tracer is None:
        return NOTHING
    started: Span = _Process.tracer.start(name, attributes)
    return started


@contextmanager
def continued(meta: Mapping[str, Any] | None) -> Iterator[None]:
    """What begins in it is part of the trace that a client names in `_meta` (`traceparent`, `tracestate`)."""
    if _Process.tracer is None or not meta or "traceparent" not in meta:
        yield
        return
    with _Process.tracer.continued(meta):
        yield
