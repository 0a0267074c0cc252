"""The history's rules, and reading the log twice."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.llm.base import AssistantMessage, TextPart, ToolMessage, ToolUse, UserMessage
from acp_agent.loop.memory.history import INTERRUPTED, History, decode_message
from acp_agent.loop.memory.replay import rebuild_history, replayed_updates
from acp_agent.loop.prompts.prompt_text import title_of
from acp_agent.protocol.codec import encode
from acp_agent.schema.acp import ResourceLink, TextContent
from acp_agent.store.base import LogEntry


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def calls(*ids: str) -> AssistantMessage:
    return AssistantMessage("", tuple(ToolUse(id_, "bash", "{}") for id_ in ids))


def answer(id_: str) -> ToolMessage:
    return ToolMessage(id_, "bash", (TextPart("ok"),))


messages = st.lists(
    st.one_of(
        st.builds(user, st.text()), st.builds(AssistantMessage, text=st.text(max_size=3)),
        st.integers(0, 3).map(lambda n: calls(*(f"c{i}" for i in range(n)))), st.sampled_from(["c0", "c1"]).map(answer),
    ),
    max_size=20,
)  # fmt: skip


@given(messages)
def test_no_two_user_messages_in_a_row_and_no_empty_assistant_message(added):
    history = History(added)
    assert (UserMessage, UserMessage) not in list(pairwise([type(message) for message in history.messages]))
    assert all(m.text or m.tool_calls for m in history.messages if isinstance(m, AssistantMessage))


def test_open_calls_are_answered_once():
    history = History([user("go"), calls("a", "b"), answer("a")])
    assert [call.id for call in history.unanswered()] == ["b"]
    assert [message.content[0].text for message in history.close_calls()] == [INTERRUPTED]
    assert history.close_calls() == []


def test_messages_survive_their_encoding():
    for message in (user("é\u2028"), calls("a"), answer("a"), AssistantMessage("x", thought="y", opaque=({"a": 1},))):
        assert decode_message(encode(message)) == message


def update(**fields: object) -> LogEntry:
    return LogEntry("update", json.dumps(fields).encode())


def kept(*messages: object) -> list[LogEntry]:
    return [LogEntry("message", encode(message)) for message in messages]


def call(**fields: object) -> LogEntry:
    return update(sessionUpdate="tool_call", toolCallId="x", title="ls", status="pending", **fields)


def progress(status: str, **fields: object) -> LogEntry:
    return update(sessionUpdate="tool_call_update", toolCallId="x", status=status, **fields)


def chunk(kind: str, text: str, id_: str) -> LogEntry:
    return update(sessionUpdate=kind, content={"type": "text", "text": text}, messageId=id_)


def test_chunks_of_one_message_are_joined_and_others_are_not():
    told = replayed_updates([
        chunk("agent_message_chunk", "a", "1"), chunk("agent_message_chunk", "b", "1"),
        chunk("agent_message_chunk", "c", "2"), chunk("agent_thought_chunk", "d", "2"),
    ])  # fmt: skip
    assert [item["content"]["text"] for item in told] == ["ab", "c", "d"]


def test_a_call_is_replayed_once_in_its_final_state_without_terminals():
    told = replayed_updates([
        call(_meta={"tool_name": "bash"}), progress("in_progress"),
        progress(
            "completed", content=[{"type": "terminal", "terminalId": "t"}],
            rawOutput={"stdout": "out\n", "stderr": "err\n", "exit_code": 0, "truncated": False},
            _meta={"terminal_exit": {}},
        ),
    ])  # fmt: skip
    assert len(told) == 1 and told[0]["sessionUpdate"] == "tool_call" and told[0]["status"] == "completed"
    assert "out\nerr" in told[0]["content"][0]["content"]["text"] and told[0]["_meta"] == {"tool_name": "bash"}


def test_a_call_the_process_did_not_outlive_is_replayed_as_failed():
    (told,) = replayed_updates([call()])
    assert told["status"] == "failed" and "Interrupted" in told["content"][-1]["content"]["text"]
    assert replayed_updates([progress("completed")]) == [], "an update of an unknown call is left out"


def test_text_that_was_told_but_not_finished_is_remembered_and_a_reset_replaces_what_was_before():
    history, repaired = rebuild_history(
        [*kept(user("go")), *(chunk("agent_message_chunk", text, "1") for text in ("half an ", "answer"))]
    )
    assert history.messages[-1] == AssistantMessage("half an answer")
    assert repaired == [AssistantMessage("half an answer")]
    history, repaired = rebuild_history([*kept(user("one")), LogEntry("reset", b"[]"), *kept(user("two"))])
    assert (history.messages, repaired) == ([user("two")], [])


def test_a_log_that_a_crash_has_cut_is_mended_wherever_the_cut_is():
    said, done = user("go"), AssistantMessage("ok")
    history, repaired = rebuild_history(kept(said, calls("a", "b"), answer("a"), user("again"), answer("b"), done))
    closed = ToolMessage("b", "bash", (TextPart(INTERRUPTED),))
    assert history.messages == [said, calls("a", "b"), answer("a"), closed, user("again"), done]
    assert repaired == []


def test_titles_are_first_words():
    assert title_of([TextContent(text="  Fix the parser \n and more")]) == "Fix the parser"
    assert title_of([ResourceLink(name="a.py", uri="file:///a.py")]) == "a.py" and title_of([]) == "Untitled"
    long = title_of([TextContent(text="word " * 50)])
    assert len(long) <= 60
    assert long.endswith("word…")
