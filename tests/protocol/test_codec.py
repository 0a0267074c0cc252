"""What is encoded once msgspec is loaded, and which updates may be merged."""

import json
from typing import Any

import pytest

from acp_agent.protocol.codec import MAX_MERGED_CHARS, coalesce_updates, encode
from acp_agent.schema import acp


def update(value: Any, session: str = "s", **rest: Any) -> acp.SessionNotification:
    return acp.SessionNotification(session_id=session, update=value, **rest)


def say(text: str, **rest: Any) -> acp.AgentMessageChunk:
    return acp.AgentMessageChunk(content=acp.TextContent(text=text), **rest)


@pytest.mark.parametrize(("value", "wire"), [
    (acp.TextContent(text="a"), {"type": "text", "text": "a"}), ({"params": update(say("é\n"))}, None),
    ([None, True, 1, 1.5, "x"], [None, True, 1, 1.5, "x"]), (10**50, 10**50),
    ({"big": [2**64, -(2**70)], "struct": acp.TextContent(text="t")}, None),
], ids=["struct", "struct inside", "plain", "huge", "huge beside a struct"])  # fmt: skip
def test_structs_and_plain_data_are_encoded(value: Any, wire: Any) -> None:
    data = encode(value)
    assert b"\n" not in data
    if wire is not None:
        assert json.loads(data) == wire


def test_text_without_utf8_form_is_replaced_and_what_has_no_json_form_refused() -> None:
    """[TR-7]"""
    message = json.loads(encode({"params": update(say("a\ud83db")), "\udc00": 2**70}).decode("utf-8"))
    assert message["params"]["update"] == {
        "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a?b"},
    }  # fmt: skip
    assert message["?"] == 2**70
    with pytest.raises(TypeError):
        encode(object())


def test_adjacent_chunks_of_one_message_are_merged_with_what_belongs_to_both() -> None:
    merged = coalesce_updates(
        "session/update", update(say("a", message_id="m"), meta={"k": 1}),
        update(say("b", message_id="m"), meta={"k": 1}),
    )  # fmt: skip
    assert merged == update(say("ab", message_id="m"), meta={"k": 1})
    thought = acp.AgentThoughtChunk(content=acp.TextContent(text="t"))
    assert coalesce_updates("session/update", update(thought), update(thought)).update.content.text == "tt"
    text = acp.TextContent(text="a", annotations=acp.Annotations(priority=1.0), meta={"x": 1})
    merged = coalesce_updates(
        "session/update", update(acp.AgentMessageChunk(content=text)), update(acp.AgentMessageChunk(content=text))
    )
    assert merged.update.content == acp.TextContent(text="aa", annotations=acp.Annotations(priority=1.0), meta={"x": 1})


@pytest.mark.parametrize(("last", "new"), [
    (update(say("a")), update(say("b"), session="other")),
    (update(say("a", message_id="1")), update(say("b", message_id="2"))),
    (update(say("a", message_id="1")), update(say("b"))), (update(say("a", meta={"p": 1})), update(say("b"))),
    (update(say("a"), meta={"p": 1}), update(say("b"))), (update(say("a")), update(say("b"), meta={"p": 1})),
    (update(say("a")), update(acp.AgentThoughtChunk(content=acp.TextContent(text="b")))),
    (update(say("a")), update(acp.ToolCall(tool_call_id="t", title="t"))),
    (update(acp.ToolCall(tool_call_id="t", title="t")), update(say("a"))),
    (update(say("a")), update(acp.AgentMessageChunk(content=acp.TextContent(text="b", meta={"x": 1})))),
    (
        update(acp.AgentMessageChunk(content=acp.TextContent(text="b", annotations=acp.Annotations(priority=1.0)))),
        update(say("a")),
    ),
    (update(say("a")), update(acp.AgentMessageChunk(content=acp.ImageContent(data="", mime_type="image/png")))),
    (
        update(acp.UserMessageChunk(content=acp.TextContent(text="a"))),
        update(acp.UserMessageChunk(content=acp.TextContent(text="b"))),
    ),
    (update(say("a" * MAX_MERGED_CHARS)), update(say("b"))), ({"sessionId": "s", "update": {}}, update(say("a"))),
    (update(say("a")), {"sessionId": "s", "update": {}}),
])  # fmt: skip
def test_what_is_not_one_text_stays_apart(last: Any, new: Any) -> None:
    assert coalesce_updates("session/update", last, new) is None


def test_other_notifications_stay_apart() -> None:
    assert coalesce_updates("elicitation/complete", update(say("a")), update(say("b"))) is None
