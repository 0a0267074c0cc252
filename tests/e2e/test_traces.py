"""Traces: what a real receiver of OTLP gets, and that nothing is loaded where nobody asked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from acp_agent.client.permissions import allow_once
from acp_agent.testing.fake_model import Answer, Call
from acp_agent.tracing import wanted
from tests.e2e.kit import spawned

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *about: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def test_a_turn_its_model_calls_and_its_tools_are_one_trace_that_goes_on_from_the_clients(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "echo secret-word"}),)), Answer(text="secret-answer")]
    with receiver() as (url, spans):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        async with spawned(tmp_path, script, environ=environ, otherwise=allow_once) as (editor, _):
            params = {
                "sessionId": editor.session_id, "prompt": [{"type": "text", "text": "secret-prompt"}],
                "_meta": {"traceparent": f"00-{TRACE}-{PARENT}-01"},
            }  # fmt: skip
            await editor.request("session/prompt", params)
            session = editor.session_id
        by_name = {span.name: span for span in spans}
        turn, tool, chat = (
            by_name[name] for name in ("invoke_agent acp-coder", "execute_tool bash", "chat fake-model")
        )
        assert {span.trace_id.hex() for span in (turn, tool, chat)} == {TRACE} and turn.parent_span_id.hex() == PARENT
        assert tool.parent_span_id == chat.parent_span_id == turn.span_id
        assert attributes(turn)["gen_ai.conversation.id"] == session and attributes(tool)["gen_ai.tool.name"] == "bash"
        assert attributes(chat)["gen_ai.usage.input_tokens"] == 10
        assert sum(span.name == "chat fake-model" for span in spans) == 2
        assert b"secret" not in b"".join(span.SerializeToString() for span in spans)


def test_traces_are_sent_only_where_they_are_asked_for_and_not_switched_off() -> None:
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    assert wanted(asked) and not wanted({})
    for off in ({"OTEL_SDK_DISABLED": "True"}, {"OTEL_TRACES_EXPORTER": "none"}):
        assert not wanted(asked | off)
