"""The one door to OpenTelemetry's SDK: its tracer, configured by its own variables.

`OTEL_TRACES_EXPORTER`: `otlp` (over HTTP; the default) or `console` (to stderr, since stdout belongs to the protocol).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from acp_agent import __version__
from acp_agent.errors import ConfigError
from acp_agent.lazy import load

logging.getLogger("opentelemetry").setLevel(logging.ERROR)

OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter:OTLPSpanExporter"
KEYS = ("traceparent", "tracestate", "baggage")


class Tracer:
    """Raises ConfigError for an exporter that it does not have, ImportError."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        named = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
        if named not in ("otlp", "console"):
            raise ConfigError(f"OTEL_TRACES_EXPORTER={named}: `otlp`, `console` and `none` are known")
        exporter: SpanExporter = ConsoleSpanExporter(out=sys.stderr) if named == "console" else load(OTLP)()
        name = environ.get("OTEL_SERVICE_NAME") or "acp-coder"
        about = Resource.create({"service.name": name, "service.version": __version__})
        self._provider = TracerProvider(resource=about, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(self._provider)  # That of the MCP client, which passes the trace on.
        self._tracer = self._provider.get_tracer("acp_coder", __version__)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any]) -> Iterator[_Span]:
        with self._tracer.start_as_current_span(name, attributes=_named(attributes)) as opened:
            yield _Span(opened)

    def start(self, name: str, attributes: Mapping[str, Any]) -> _Span:
        return _Span(self._tracer.start_span(name, attributes=_named(attributes)))

    @contextmanager
    def continued(self, meta: Mapping[str, Any]) -> Iterator[None]:
        carrier = {key: value for key in KEYS if isinstance(value := meta.get(key), str)}
        token = context.attach(extract(carrier))
        try:
            yield
        finally:
            context.detach(token)

    def end(self, seconds: float) -> None:
        self._provider.force_flush(int(seconds * 1000))
        self._provider.shutdown()


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, **attributes: Any) -> None:
        self._span.set_attributes(_named(attributes))

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in attributes.items() if value is not None}
