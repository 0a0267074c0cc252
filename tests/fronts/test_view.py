"""What a user sees of a turn outside an editor."""

import io
import json
import time

import pytest

from acp_agent.fronts.view import JsonView, PlainView, TerminalView
from acp_agent.schema import acp

TURN: list[acp.SessionUpdate] = [
    acp.AgentThoughtChunk(content=acp.TextContent(text="hm")),
    acp.AgentMessageChunk(content=acp.TextContent(text="I look")),
    acp.AgentMessageChunk(content=acp.TextContent(text=" at it.")),
    acp.ToolCall(tool_call_id="1", title="pytest -q", kind="execute", status="pending"),
    acp.ToolCallProgress(tool_call_id="1", status="in_progress"),
    acp.ToolCallProgress(tool_call_id="1", status="failed", content=[acp.Terminal(terminal_id="t")], raw_output={
        "stdout": "".join(f"line {n}\n" for n in range(30)), "stderr": "boom\n",
    }),
    acp.ToolCall(tool_call_id="2", title="Edit a.py", kind="edit", status="pending"),
    acp.ToolCall(tool_call_id="3", title="Read b.py", kind="read", status="pending"),
    acp.ToolCallProgress(tool_call_id="2", status="completed", content=[acp.Diff(
        path="/p/a.py", old_text="one\n", new_text="two\n",
    )]),
    acp.ToolCallProgress(
        tool_call_id="3", status="completed", content=[acp.Content(content=acp.TextContent(text="text of b"))],
    ),
    acp.ToolCallProgress(tool_call_id="unknown", status="completed"),
    acp.Plan(entries=[acp.PlanEntry(content="Step", priority="high", status="completed")]),
    acp.UsageUpdate(used=1, size=2),
]  # fmt: skip


def shown(view: type[PlainView]) -> str:
    out = io.StringIO()
    made = view(out)
    for update in TURN:
        made.update("s", update)
    made.end("max_tokens")
    return out.getvalue()


@pytest.mark.parametrize("view", [PlainView, TerminalView])
def test_a_turn_is_shown_in_order_with_output_diffs_and_results(view):
    text = shown(view)
    order = ["hm", "I look at it.", "pytest -q", "boom", "Edit a.py", "/p/a.py", "one", "two", "text of b", "Step"]
    at = 0
    for words in order:
        at = text.index(words, at)
    assert "19 lines before" in text and "line 29" in text and "line 3\n" not in text
    assert text.rstrip().removesuffix("\x1b[0m").endswith("stopped: max_tokens")


def test_plain_lines_hold_no_control_character_and_a_spinner_is_cleared_before_text():
    text = shown(PlainView)
    assert "\x1b" not in text and "\r" not in text and ": Edit a.py" in text
    text = shown(TerminalView)
    assert "⠋" in text and text.rindex("\x1b[J") > text.rindex("⠋")


def test_the_time_of_a_call_is_without_the_time_that_its_question_waited(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    out = io.StringIO()
    view = PlainView(out)
    view.update("s", acp.ToolCall(tool_call_id="1", title="pytest", status="pending"))
    view.update("s", acp.ToolCall(tool_call_id="2", title="make", status="pending"))
    view.ask("Run this?\ny/N: ")
    now += 60
    view.asked(
        acp.RequestPermissionRequest(session_id="s", tool_call=acp.ToolCallUpdate(tool_call_id="1"), options=[]), "Yes"
    )
    view.update("s", acp.ToolCallProgress(tool_call_id="1", status="in_progress"))
    now += 2
    view.ask("Which?\n1: ")  # It asks while it runs.
    now += 60
    view.asked(
        acp.RequestPermissionRequest(session_id="s", tool_call=acp.ToolCallUpdate(tool_call_id="1"), options=[]), "One"
    )
    view.update("s", acp.ToolCallProgress(tool_call_id="1", status="completed"))
    view.update("s", acp.ToolCallProgress(tool_call_id="2", status="failed"))  # Its turn never came.
    assert "done (2.0 s): pytest" in out.getvalue() and "failed (0.0 s)" in out.getvalue()


def test_json_is_one_line_an_update():
    out = io.StringIO()
    view = JsonView(out)
    for update in TURN:
        view.update("s", update)
    view.end("end_turn")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == len(TURN) + 1
    assert lines[1] == {
        "sessionId": "s",
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "I look"}},
    }
    assert lines[-1] == {"stopReason": "end_turn"}


def test_what_could_hide_or_move_text_is_shown_by_its_number():
    turn: list[acp.SessionUpdate] = [
        acp.ToolCall(tool_call_id="1", title="ls\x1b[2K\r rm -rf x \u202e", status="pending"),
        acp.AgentMessageChunk(content=acp.TextContent(text="a\x1b]0;evil\x07b\n")),
        acp.ToolCallProgress(
            tool_call_id="1", status="completed", content=[acp.Content(content=acp.TextContent(text="red \x1b[31m\tx"))]
        ),
    ]
    out = io.StringIO()
    view = PlainView(out)
    for update in turn:
        view.update("s", update)
    text = out.getvalue()
    assert "\\x1b[2K\\x0d rm -rf x \\u202e" in text
    assert not any(char in text for char in "\x1b\r\x07\u202e")
    assert "\tx" in text
