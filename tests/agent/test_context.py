"""A conversation that is too long for its model continues."""

import itertools
import json

import pytest

from acp_agent.schema.acp import CompactionUpdate, Notice, UsageUpdate
from acp_agent.testing.fake_model import Failure, Usage
from tests.agent.kit import WIRE, Answer, Call, asks, bash, rig, went


def refusal(window: int | str) -> Failure:
    words = f"This model's maximum context length is {window} tokens."
    return Failure(400, {"error": {"message": words, "code": "context_length_exceeded"}})


def config(window: int, more: str = "") -> str:
    return f"[providers.default]\ncontext_window = {window}\n{more}"


def says(text: str) -> Answer:
    """Of a server that counts no tokens: what FakeModel counts by itself has nothing to do with the text."""
    return Answer(text=text, usage=None)


def wordy(number: int) -> str:
    return "".join(f"w{index:05} " for index in range(number))


def reads(name: str) -> Answer:
    return Answer(tool_calls=(Call("read", {"path": name}),), usage=None)


def updates(r, kind):
    return [update for update in r.editor.updates[r.editor.session_id] if isinstance(update, kind)]


def sizes(r):
    return [len(json.dumps(request.body["messages"])) for request in r.model.requests]


in_v1 = pytest.mark.skipif(WIRE == "v2", reason="a compaction is an update of its own in v2, without words")
FILES = [f"f{number}" for number in range(6)]
LONG = {name: f"{name} {name} {name}\n" * 1300 for name in FILES}


async def test_old_results_make_room_for_new_ones_and_the_turn_goes_on(tmp_path):
    script = [*(reads(name) for name in FILES), says("all read")]
    async with rig(tmp_path, script, config=config(24_000, "[compaction]\nkeep_results = 1\n"), files=LONG) as r:
        assert (await r.editor.prompt("read them all")).stop_reason == "end_turn"
        assert r.editor.text().endswith("all read") and "The conversation was shortened" in r.editor.text()
        last = r.messages(len(r.model.requests))
        assert "read them all" in str(last[1])
        assert "f5 f5 f5" in str(last[-1]), "the newest is whole"
        assert "removed to save space" in str(last)
        answered = [message["tool_call_id"] for message in last if message["role"] == "tool"]
        called = [call["id"] for message in last for call in message.get("tool_calls", ())]
        assert answered == called


async def test_a_cap_in_tokens_makes_room_whatever_the_window(tmp_path):
    capped = config(128_000, "[agent]\ncontext_budget_tokens = 19_000\n[compaction]\nkeep_results = 1\n")
    async with rig(tmp_path, [*(reads(name) for name in FILES), says("all read")], config=capped, files=LONG) as r:
        assert (await r.editor.prompt("read them all")).stop_reason == "end_turn"
        assert "The conversation was shortened" in r.editor.text()
        assert "at 15 % it is compacted" in await r.says("/context")


async def test_a_prompt_above_the_cap_is_not_sent(tmp_path):
    capped = config(128_000, "[agent]\ncontext_budget_tokens = 1500\n")
    async with went(tmp_path, [], config=capped, ends="max_tokens") as r:
        assert "can hold 1500 tokens (the limit is `agent.context_budget_tokens`)" in r.editor.text()
    assert r.model.requests == []


async def test_an_unknown_window_counts_as_128000_tokens(tmp_path):
    told = "[tools.files]\nread_lines = 1300\n[tools.result_cache]\nenabled = false\n[compaction]\nkeep_results = 1\n"
    async with rig(tmp_path, [*(reads(FILES[number % 6]) for number in range(22)), says("all read")], config=told) as r:
        for name in FILES:
            (r.project / name).write_text(f"{name} {name} {name}\n" * 2000)
        assert (await r.editor.prompt("read them all")).stop_reason == "end_turn"
        assert "The conversation was shortened" in r.editor.text()
        assert "(assumed: its size is not known; `providers.NAME.context_window` sets it)" in await r.says("/context")
        assert "can hold 128,000 tokens" in r.editor.text()


@pytest.mark.parametrize("shows", ["compaction", pytest.param("notices", marks=in_v1)])
async def test_a_client_gets_compactions_with_the_summary_or_a_notice_if_it_shows_them(tmp_path, shows):
    script = [*[says(wordy(2000))] * 3, says("THE SUMMARY"), says("the end")]
    async with rig(tmp_path, script, config=config(14_500), **{shows: True}) as r:
        for number in range(4):
            assert (await r.editor.prompt(f"prompt {number}")).stop_reason == "end_turn"
        if shows == "compaction":
            shown = updates(r, CompactionUpdate)
            assert [update.status for update in shown] == ["in_progress", "completed"]
            assert len({update.compaction_id for update in shown}) == 1
            assert shown[-1].summary[0].text == "THE SUMMARY"
        else:
            assert any("messages summarised" in notice.title for notice in updates(r, Notice))
        assert "made shorter" not in r.editor.text()
        last = str(r.messages(len(r.model.requests)))
        assert "THE SUMMARY" in last and "prompt 3" in last and "prompt 0" in last and "prompt 1" not in last


async def test_a_model_that_cannot_summarise_costs_the_middle_of_old_turns_and_no_more(tmp_path):
    script = [*[says(wordy(2000))] * 3, Failure(400, {"error": {"message": "no"}}), says("the end")]
    async with rig(tmp_path, script, config=config(14_500)) as r:
        for number in range(4):
            assert (await r.editor.prompt(f"prompt {number}")).stop_reason == "end_turn"
        assert "old turns cut to their prompt and last words" in r.editor.text()
        assert "There is no summary" in r.editor.text()
        last = str(r.messages(len(r.model.requests)))
        assert all(f"prompt {number}" in last for number in range(4)) and "w01999" in last


async def test_what_a_server_finds_too_long_is_made_shorter_and_asked_again_once(tmp_path):
    script = [says(wordy(4000)), says(wordy(4000)), refusal(9000), says("SUMMARY"), says("the end")]
    async with rig(tmp_path, script) as r:
        for number in range(3):
            assert (await r.editor.prompt(f"prompt {number}")).stop_reason == "end_turn"
        assert r.editor.text().endswith("the end")
        assert sizes(r)[-1] < sizes(r)[2]
        assert updates(r, UsageUpdate)[-1].size == 9000, "what the server named is known from now on"


async def test_a_server_that_refuses_again_is_an_error_in_words_and_not_a_loop(tmp_path):
    async with went(tmp_path, [says(wordy(3000)), *[refusal("{}")] * 4, says("later")], prompt="one") as r:
        with pytest.raises(Exception, match="too long"):
            await r.editor.prompt("two")
        assert len(r.model.requests) <= 4
        assert "so it was restored" in r.editor.text()
        session = r.editor.session_id
    async with rig(tmp_path, [says("later")]) as r:
        await r.editor.load_session(session, r.project)
        await r.editor.prompt("three")
        assert str(r.messages(1)).count("w0") > 100, "nothing was lost for a refusal that did not help"


async def test_a_model_that_is_too_small_for_the_tools_alone_is_named(tmp_path):
    async with went(tmp_path, ["never"], config=config(1500), prompt="hi", ends="max_tokens") as r:
        assert "can hold 1500 tokens" in r.editor.text() and "/model" in r.editor.text()
        assert r.model.requests == []
        for command in ("/context", "/compact"):
            assert (await r.editor.prompt(command)).stop_reason == "end_turn"


async def test_a_session_that_is_over_the_limit_goes_on_after_a_restart(tmp_path):
    async with rig(tmp_path, [says(wordy(10_000))] * 3) as r:
        for number in range(3):
            await r.editor.prompt(f"prompt {number}")
        session = r.editor.session_id
    async with rig(tmp_path, [says("THE SUMMARY"), says("going on")], config=config(24_000)) as r:
        await r.editor.load_session(session, r.project)
        assert (await r.editor.prompt("and now?")).stop_reason == "end_turn"
        assert r.editor.text().endswith("going on")
        assert "and now?" in str(r.messages(2)[-1])
        assert sizes(r)[-1] < 60_000


async def test_a_full_context_stops_the_turn_where_room_is_not_to_be_made(tmp_path):
    script = [reads("f0"), reads("f1"), reads("f2"), says("after clear")]
    async with rig(tmp_path, script, config=config(20_000, "[compaction]\nenabled = false\n"), files=LONG) as r:
        assert (await r.editor.prompt("go")).stop_reason == "max_tokens"
        assert "context is full to" in r.editor.text()
        await r.editor.prompt("/clear")
        assert (await r.editor.prompt("hello")).stop_reason == "end_turn"


async def test_context_tells_what_the_next_request_holds(tmp_path):
    async with went(tmp_path, [says("ok")], config=config(24_000), prompt="hi") as r:
        text = await r.says("/context")
        for words in (
            "- instructions: ", " tools: ", "- 2 messages: ", "can hold 24,000 tokens", "The last call: ",
            "The session: ",
        ):  # fmt: skip
            assert words in text


@pytest.mark.parametrize("command", ["/context", "/compact"])
async def test_both_commands_answer_without_a_server(tmp_path, command):
    async with went(tmp_path, [says(wordy(3000)), says("short")], prompt="hi") as r:
        await r.editor.prompt("hi again")
        session = r.editor.session_id
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    async with rig(tmp_path, [], environ=environ, config="[providers.default]\nmax_retries = 0\n") as r:
        await r.editor.load_session(session, r.project)
        assert (await r.editor.prompt(command)).stop_reason == "end_turn"
        words = {"/context": "4 messages", "/compact": "The model could not write a summary"}[command]
        assert words in r.editor.text()


# --- what is the same from request to request -------------------------------------------------------------------


async def test_the_beginning_of_the_requests_of_a_session_is_the_same_to_the_byte(tmp_path):
    script = [asks(bash("seq 1 30000")), asks(Call("plan", {"entries": [{"content": "x"}]})), "done", "again", "loaded"]
    async with went(tmp_path, script, mode="auto") as r:
        await r.editor.prompt("more")
        await r.editor.load_session(r.editor.session_id, r.project)
        await r.editor.prompt("and more")
        requests = [request.body for request in r.model.requests]
        assert len(requests) == 5
        assert len({json.dumps(body["tools"]) for body in requests}) == 1
        assert len({json.dumps(body["messages"][0]) for body in requests}) == 1
        for earlier, later in itertools.pairwise(requests):
            assert later["messages"][: len(earlier["messages"])] == earlier["messages"], "only appended"


async def test_tokens_from_the_servers_cache_are_reported(tmp_path):
    usage = Usage(input_tokens=20_000, output_tokens=10, cached_tokens=16_000)
    async with rig(tmp_path, [Answer(text="ok", usage=usage)]) as r:
        answer = await r.editor.prompt("hi")
        assert answer.meta["usage"]["cachedReadTokens"] == 16_000 and answer.meta["usage"]["inputTokens"] == 20_000
        assert updates(r, UsageUpdate)[-1].meta["tokens"]["cachedReadTokens"] == 16_000
        assert "16,000 of them (80 %) from the server's cache" in await r.says("/context")
