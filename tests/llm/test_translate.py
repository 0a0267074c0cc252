"""A history begun with one provider goes on with another."""

import json
import re
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.llm import base as llm
from acp_agent.llm.chat_request import Dialect, RequestEncoder
from acp_agent.llm.translate import ANTHROPIC_ID, MISTRAL_ID, RESPONSES_ID, call_id, returned, signed, tool_name
from acp_agent.testing.fake_model import Answer, Call, FakeModel

from .kit import SETTINGS, TOOL, USER, WIRES, Api, calls, collect, connected, make, texts, thoughts
from .test_clouds import as_sdk

APIS = tuple(WIRES)
MODELS = {
    "bedrock": "anthropic.claude-sonnet-4-5", "messages": "claude-opus-5", "responses": "gpt-5",
}  # fmt: skip
"""Where the name of the model decides whether it thinks."""
EACH_AFTER_EACH = (*chain.from_iterable(combinations(APIS, 2)), APIS[0])
ODD = "functions.read:0|fc_" + "x" * 80
"""An id as Kimi, Gemini and others form it."""


async def test_one_history_goes_through_all_wire_apis() -> None:
    history: list[llm.Message] = [USER]
    before: list[Api] = []
    async with FakeModel(lambda _: answer) as model:
        providers = {api: make(api, model.base_url, max_retries=0) for api in APIS}
        for number, api in enumerate(EACH_AFTER_EACH):
            call = Call("read", {"path": "a"}, id=f"{number}{ODD}")
            answer = Answer(thought="hm", encrypted=f"zz{api}", text="Looking.", tool_calls=(call,))
            events = await collect(
                providers[api], history, (TOOL,), llm.ModelSettings(MODELS.get(api, "qwen3"), thought_level="low")
            )
            assert len(model.requests) == number + 1, "nothing was refused"
            finished = events[-1]
            assert isinstance(finished, llm.Finished)
            sent = str(model.requests[-1].body)
            for other in APIS:
                home = other == api and other in before and WIRES[other].seals
                assert (f"zz{other}" in sent) == home, "thoughts go home, and nowhere else"
            assert "_from" not in sent
            history += [
                llm.AssistantMessage(
                    "".join(texts(events)), tuple(calls(events)), "".join(thoughts(events)), opaque=finished.opaque
                ),
                llm.ToolMessage(calls(events)[0].id, "read", (llm.TextPart("content"),)),
            ]
            before.append(api)
        for provider in providers.values():
            await provider.aclose()


IMAGE, PAPER, SOUND = (
    llm.ImagePart("image/png", "iVBORw0="), llm.DocumentPart("JVBERi0=", "a.pdf"), llm.AudioPart("audio/wav", "AA=="),
)  # fmt: skip
ODD_HISTORY = (
    llm.UserMessage((llm.TextPart("look \ud800"), IMAGE, PAPER, SOUND)),
    llm.AssistantMessage(
        tool_calls=(
            llm.ToolUse(ODD, "read file!", '{"path": '), llm.ToolUse("b", "", "[1]"), llm.ToolUse("c", "x" * 100, " "),
            llm.ToolUse("d", "y", "[" * 5000),
        ),
        thought="hm",
    ),
    llm.ToolMessage(ODD, "read file!", (llm.TextPart(""),)), llm.ToolMessage("b", "", ()),
    llm.ToolMessage("c", "x" * 100, (IMAGE, PAPER)),
    llm.ToolMessage("d", "y", (llm.TextPart("\udfff"), PAPER, IMAGE, SOUND)),
    llm.AssistantMessage(thought="the answer broke off in the thought"), llm.UserMessage((llm.TextPart("go on"),)),
    llm.AssistantMessage(" "), llm.UserMessage((llm.TextPart("and this"),)),
)  # fmt: skip


@pytest.mark.parametrize(("api", "name"), [*MODELS.items(), ("bedrock", "amazon.nova-pro-v1:0")])
async def test_whatever_a_history_has_in_it_the_server_gets_calls_with_results_and_no_empty_texts(api: Api, name: str):
    async with connected(api, ["ok"], max_retries=0) as (provider, model):
        await collect(provider, ODD_HISTORY, (TOOL,), llm.ModelSettings(name, thought_level="low"))
        sent = model.requests[0].body
    found: dict[str, list[str]] = {"calls": [], "results": []}
    for path, value in walk(sent):
        where, key = path.rpartition(".")[::2]
        if key == "text":
            assert value.strip(), f"an empty text at {path}"
        if key in ("tool_use_id", "tool_call_id") or (where.endswith("toolResult") and key == "toolUseId"):
            found["results"].append(value)
        elif (where.endswith(".toolUse") and key == "toolUseId") or ("tool_calls" in where and key == "id"):
            found["calls"].append(value)
        elif key == "call_id" and api == "responses":
            found["calls" if value not in found["calls"] else "results"].append(value)
        elif key == "id" and api == "messages":
            found["calls"].append(value)
    assert len(found["calls"]) == 4 and sorted(found["calls"]) == sorted(found["results"])
    if api == "bedrock":
        check_by_amazon(sent)


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value, each with where it is."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from walk(each, f"{path}.{key}")
    elif isinstance(value, list):
        assert value or path.endswith((".tool_calls", ".summary", ".input")), f"nothing at {path}"
        for each in value:
            yield from walk(each, path)
    elif isinstance(value, str):
        yield path, value


def check_by_amazon(body: dict[str, Any]) -> None:
    shape = (
        botocore.session.Session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
    )
    assert not (report := ParamValidator().validate({**as_sdk(body), "modelId": "m"}, shape)).has_errors(), (
        report.generate_report()
    )


@given(st.text(), st.sampled_from([ANTHROPIC_ID, MISTRAL_ID, RESPONSES_ID]))
def test_an_id_is_never_one_that_the_server_refuses(given_: str, taken: re.Pattern[str]) -> None:
    made = call_id(given_, taken)
    assert taken.fullmatch(made)
    assert call_id(made, taken) == made == call_id(given_, taken)


@given(st.text())
def test_a_name_is_never_one_that_the_server_refuses(given_: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool_name(given_))


def test_ids_are_the_same_in_calls_and_results_and_items_the_servers_own() -> None:
    history = (
        USER, llm.AssistantMessage(tool_calls=(llm.ToolUse(ODD, "read", "{}"),)), llm.ToolMessage(ODD, "read", ()),
    )  # fmt: skip
    sent = json.loads(RequestEncoder(Dialect(ids=MISTRAL_ID)).encode(history, (), SETTINGS))["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] != ODD
    old, other = {"type": "reasoning", "id": "a"}, {"type": "reasoning", "id": "b"}
    message = llm.AssistantMessage(opaque=(old, *signed([other], "elsewhere"), {"type": "other"}))
    assert returned(message, "here", "reasoning") == [old]
