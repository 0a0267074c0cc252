"""The taxonomy of failures: categories, feedback, and repaired arguments."""

import errno
import socket

import pytest

from acp_agent.errors import ExecutorError, ToolError
from acp_agent.llm.base import ToolDefinition
from acp_agent.loop.toolbox.offer import complexity, think_first
from acp_agent.tools.kit import failures
from acp_agent.tools.kit.repair import repair


def test_there_are_eleven_categories_and_four_of_them_pass():
    assert len(failures.SUGGESTIONS) == 11
    assert {"rate_limited", "server_error", "network_error", "timeout"} == failures.PASSING


@pytest.mark.parametrize(("status", "category"), [
    (400, "invalid_parameters"), (422, "invalid_parameters"), (401, "policy_blocked"), (403, "policy_blocked"),
    (429, "rate_limited"), (500, "server_error"), (503, "server_error"), (599, "server_error"),
    (404, "permanent_failure"), (410, "permanent_failure"), (418, "permanent_failure"), (600, "permanent_failure"),
])  # fmt: skip
def test_http_statuses(status, category):
    assert failures.classify_http_status(status) == category


@pytest.mark.parametrize(("error", "category"), [
    (FileNotFoundError(errno.ENOENT, "x"), "permanent_failure"), (PermissionError(errno.EACCES, "x"), "policy_blocked"),
    (OSError(errno.EROFS, "x"), "policy_blocked"), (TimeoutError(), "timeout"),
    (OSError(errno.ETIMEDOUT, "x"), "timeout"), (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "network_error"),
    (OSError(errno.EHOSTUNREACH, "x"), "network_error"), (socket.gaierror(-2, "x"), "network_error"),
    (OSError(errno.ENOSPC, "x"), "permanent_failure"), (IsADirectoryError(errno.EISDIR, "x"), "permanent_failure"),
])  # fmt: skip
def test_errors_of_the_system(error, category):
    assert failures.classify_io_error(error) == category and failures.as_tool_error(error).category == category


def test_an_executors_error_has_the_category_of_its_cause():
    try:
        try:
            raise PermissionError(errno.EACCES, "denied", "/x")
        except OSError as cause:
            raise ExecutorError("/x cannot be written") from cause
    except ExecutorError as error:
        made = failures.as_tool_error(error)
    assert (made.category, str(made)) == ("policy_blocked", "/x cannot be written")


def test_feedback_has_its_four_lines_and_a_suggestion_of_its_own_where_there_is_one():
    assert failures.feedback(ToolError("too many requests", "rate_limited")).splitlines() == [
        "[tool_error]", "category: rate_limited", "error: too many requests",
        "suggestion: Too many requests. Wait before you try again, or continue with something else.", "retryable: true",
    ]  # fmt: skip
    assert "suggestion: try b\n" in failures.feedback(ToolError("a", "timeout", suggestion="try b"))
    for category in failures.SUGGESTIONS.keys() - failures.TOLD:
        text = failures.feedback(ToolError("x", category))
        assert text.endswith(f"retryable: {'true' if failures.is_retryable(category) else 'false'}")
        assert "suggestion: " in text


def test_a_message_that_says_what_is_wrong_is_told_in_one_line():
    for category in failures.TOLD:
        assert failures.feedback(ToolError("f does not exist.", category)) == "[tool_error] f does not exist."
    assert failures.feedback(ToolError("a", suggestion="try b")) == "[tool_error] a\nsuggestion: try b"


SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"}, "old_string": {"type": "string"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}}, "more": {"type": "object"},
        "wait": {"anyOf": [{"type": "boolean"}, {"type": "number"}, {"type": "string"}]},
        "column": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "timeout": {"type": "number", "minimum": 1}, "from": {"type": "integer", "minimum": 0},
    },
    "required": ["path"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "repaired"),
    [
        ({"file_path": "a"}, {"path": "a"}), ({"filePath": "a", "oldStr": "b"}, {"path": "a", "old_string": "b"}),
        ({"old-string": "b"}, {"old_string": "b"}), ({"path": "a", "limit": "5"}, {"path": "a", "limit": 5}),
        ({"path": "a", "limit": "null"}, {"path": "a", "limit": None}),
        ({"path": "a", "exact": "True"}, {"path": "a", "exact": True}),
        ({"path": "a", "exact": "yes"}, {"path": "a", "exact": True}),
        ({"path": "a", "tags": '["x"]'}, {"path": "a", "tags": ["x"]}),
        ({"path": "a", "tags": "x"}, {"path": "a", "tags": ["x"]}),
        ({"path": "a", "more": '{"k": 1}'}, {"path": "a", "more": {"k": 1}}),
        ({"path": "a", "risk": "low", "why": "x"}, {"path": "a"}),
        ({"path": "a", "limit": "30s"}, {"path": "a", "limit": 30}),
        ({"path": "a", "limit": "2 min"}, {"path": "a", "limit": 120}), ({"path": "a"}, None), ({"path": "5"}, None),
        ({"path": "a", "exact": None, "tags": None}, {"path": "a"}), ({"path": None}, None),
        ({"path": "a", "limit": None}, None), ({"path": "a", "made up": None}, {"path": "a"}), ({"invented": 1}, None),
        ({"path": "a", "file": "b"}, None), ({"path": "a", "limit": "many"}, None),
        ({"path": "a", "wait": "30s"}, None), ({"file": "a", "filename": "b"}, None),
        ({"path": "a", "column": 0, "timeout": 0}, {"path": "a"}), ({"path": "a", "limit": 0, "from": 0}, None),
        ({"path": "a", "exact": False, "column": -1}, None),
    ],
    ids=str,
)  # fmt: skip
def test_arguments_are_mended_in_form_only(given, repaired):
    assert repair(given, SCHEMA) == repaired


@pytest.mark.parametrize("schema", [
    {"properties": {"x": True, "y": {}}}, {"properties": {"x": {"type": [{}, 5, "integer"]}}},
    {"properties": {"x": {"anyOf": 3}}}, {"properties": []}, {"properties": None, "required": None},
], ids=str)  # fmt: skip
def test_a_strange_schema_of_a_server_breaks_nothing(schema):
    repair({"x": "1"}, schema)
    assert 0.0 <= complexity(schema) <= 1.0
    assert "thinking" in think_first(ToolDefinition("t", "", schema)).parameters["properties"]
