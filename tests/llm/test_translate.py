"""A history begun with one provider goes on with another."""

from __future__ import annotations

import json
import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.llm.base import AssistantMessage, Finished, Message, ModelSettings, TextPart, ToolMessage, ToolUse
from acp_agent.llm.chat_request import Dialect, RequestEncoder
from acp_agent.llm.translate import ANTHROPIC_ID, MISTRAL_ID, RESPONSES_ID, call_id, returned, signed, tool_name
from acp_agent.testing.fake_model import Answer, Call, FakeModel

from .kit import SETTINGS, TOOL, USER, Api, calls, collect, make, texts, thoughts

pytestmark = pytest.mark.anyio

APIS: tuple[Api, ...] = ("chat", "messages", "responses")
MODELS = {"chat": "qwen3", "messages": "claude-opus-5", "responses": "gpt-5"}
ODD = "functions.read:0|fc_" + "x" * 80
"""An id as Kimi, Gemini and others form it."""


@pytest.mark.parametrize("order", list(permutations(APIS)), ids="-".join)
async def test_one_history_goes_through_all_wire_apis(order: tuple[Api, ...]) -> None:
    answer = Answer(thought="hm", encrypted="zzz", text="Looking.", tool_calls=(Call("read", {"path": "a"}, id=ODD),))
    history: list[Message] = [USER]
    for api in (*order, order[0]):
        async with FakeModel([answer]) as model:
            provider = make(api, model.base_url, max_retries=0)
            asked = ModelSettings(MODELS[api], thought_level="low")
            events = await collect(provider, history, (TOOL,), asked)
            await provider.aclose()
            assert len(model.requests) == 1, "nothing was refused"
        finished = events[-1]
        assert isinstance(finished, Finished)
        sent = str(model.requests[0].body)
        assert ("zzz" in sent) == (len(history) > 3 * 2 and api != "chat"), "thoughts go home, and nowhere else"
        assert "_from" not in sent
        history += [
            AssistantMessage(
                "".join(texts(events)), tuple(calls(events)), "".join(thoughts(events)), opaque=finished.opaque
            ),
            ToolMessage(calls(events)[0].id, "read", (TextPart("content"),)),
        ]


@given(st.text(), st.sampled_from([ANTHROPIC_ID, MISTRAL_ID, RESPONSES_ID]))
def test_an_id_is_never_one_that_the_server_refuses(given_: str, taken: re.Pattern[str]) -> None:
    made = call_id(given_, taken)
    assert taken.fullmatch(made)
    assert call_id(made, taken) == made == call_id(given_, taken)


@given(st.text())
def test_a_name_is_never_one_that_the_server_refuses(given_: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool_name(given_))


def test_calls_and_results_have_the_same_id_for_mistral() -> None:
    history = (USER, AssistantMessage(tool_calls=(ToolUse(ODD, "read", "{}"),)), ToolMessage(ODD, "read", ()))
    sent = json.loads(RequestEncoder(Dialect(ids=MISTRAL_ID)).encode(history, (), SETTINGS))["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] != ODD


def test_items_of_older_sessions_are_taken_for_the_servers_own() -> None:
    old, other = {"type": "reasoning", "id": "a"}, {"type": "reasoning", "id": "b"}
    message = AssistantMessage(opaque=(old, *signed([other], "elsewhere"), {"type": "other"}))
    assert returned(message, "here", "reasoning") == [old]
