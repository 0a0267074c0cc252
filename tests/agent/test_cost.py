"""What model calls cost: counted, shown, stored, and capped."""

from contextlib import asynccontextmanager

import pytest

from acp_agent.client.permissions import cancelled, never_answers, reject_once
from acp_agent.errors import InternalError
from acp_agent.loop.model import spending
from acp_agent.schema.acp import UsageUpdate
from acp_agent.testing.fake_model import Answer, Call, FakeModel, RawAnswer, Usage

from .kit import another, cancels, environ_for, rig, went

PRICES = """
[[agent.prices]]
model = "default/fake-*"
input = 10
output = 20
cached = 1
"""

USAGE = Usage(input_tokens=100_000, output_tokens=50_000, cached_tokens=40_000)
COST = (60_000 * 10 + 40_000 * 1 + 50_000 * 20) / 1_000_000
"""1.64 dollars."""

READ = Answer(tool_calls=(Call("list_directory", {}),), usage=USAGE)
DELEGATE = Answer(tool_calls=(Call("delegate", {"prompt": "Look.", "title": "look"}),), usage=USAGE)
SUM = "Today, all sessions: "


def says(text: str) -> Answer:
    return Answer(text=text, usage=USAGE)


def capped(amount: float, key: str = "max_cost") -> str:
    return f"[agent]\n{key} = {amount}\n{PRICES}"


def costs(editor) -> list[float | None]:
    updates = [update for update in editor.updates[editor.session_id] if isinstance(update, UsageUpdate)]
    return [None if update.cost is None else update.cost.amount for update in updates]


async def told(editor, command: str = "/cost") -> str:
    before = len(editor.text())
    await editor.prompt(command)
    return editor.text()[before:]


async def test_the_cost_of_a_session_is_the_sum_of_its_calls_with_cached_tokens_at_their_own_price(tmp_path):
    async with went(tmp_path, [READ, says("done")], config=PRICES) as r:
        assert costs(r.editor) == pytest.approx([COST, 2 * COST])
        lines = (await told(r.editor)).strip().splitlines()
        assert lines[0] == (
            "This session: $3.28; 2 model calls, 200,000 tokens read (40 % from the server's cache), 100,000 written."
        )
        assert lines[2].startswith("- `fake-model`: $3.28; 2 model calls")
        assert lines[4] == "Today, all sessions: $3.28." and lines[1] == lines[3] == ""
        shown = await told(r.editor, "/context")
        last = "The last call: 100,000 tokens read, 40,000 of them (40 %) from the server's cache; 50,000 written."
        assert last in shown
        assert "The session: 200,000 tokens read, 80,000 of them (40 %)" in shown


async def test_a_server_on_this_machine_costs_nothing(tmp_path):
    async with went(tmp_path, [says("done")]) as r:
        assert costs(r.editor) == [0.0]
        assert "This session: $0.00; 1 model call" in await told(r.editor)


OPENROUTER = (
    b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":194,"completion_tokens":2,"cost":0.95,'
    b'"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":100}}}\n\n',
    b"data: [DONE]\n\n",
)
"""The example of openrouter.ai/docs/use-cases/usage-accounting."""


@pytest.mark.parametrize(("host", "cost"), [("127.0.0.1", 0.95), ("openrouter.ai", 0.0)])
async def test_what_openrouter_says_it_charged_is_believed_and_nobody_else(tmp_path, monkeypatch, host, cost):
    monkeypatch.setattr(spending, "CHARGING", host)
    async with went(tmp_path, [RawAnswer(OPENROUTER)]) as r:
        assert costs(r.editor) == [cost]


async def test_sub_agents_and_summaries_count(tmp_path):
    async with went(tmp_path, [DELEGATE, says("seen"), says("done"), says("short")], config=PRICES) as r:
        assert costs(r.editor)[-1] == pytest.approx(3 * COST)
        await r.editor.prompt("/compact")
        assert "This session: $6.56; 4 model calls" in await told(r.editor)


async def test_the_cost_survives_a_restart_and_the_deletion_of_its_session_does_not_lower_the_days_sum(tmp_path):
    async with went(tmp_path, [says("one"), says("two"), says("three")], config=PRICES) as r:
        first = r.editor.session_id
        async with another(r.environ) as editor:
            await editor.resume_session(first, r.project)
            await editor.prompt("more")
            assert costs(editor) == pytest.approx([2 * COST])
            await editor.client.delete_session(first)
            await editor.new_session(r.project)
            await editor.prompt("new")
            assert costs(editor)[-1] == pytest.approx(COST)
            assert "Today, all sessions: $4.92." in await told(editor)


async def test_calls_that_the_server_did_not_count_are_estimated_also_when_they_are_cancelled(tmp_path):
    script = [Answer(text="done", usage=None), Answer(text=("half", "more"), hang_after=1)]
    async with went(tmp_path, script, config=PRICES) as r:
        assert costs(r.editor)[0] > 0
        turn = r.editor.begin("more")
        await r.editor.wait_until(lambda: "half" in r.editor.text())
        await cancels(r, turn)
        assert costs(r.editor)[-1] > costs(r.editor)[0]
        shown = await told(r.editor)
        assert "2 model calls" in shown
        assert "Of 2 calls the server did not count the tokens; they are estimated." in shown


# --- caps ----------------------------------------------------------------------------------------------------------


async def test_at_the_cap_the_user_is_asked_and_goes_on_to_another_caps_worth(tmp_path):
    files = [Answer(tool_calls=(Call("read", {"path": name}),), usage=USAGE) for name in ("a", "b", "c")]
    async with went(tmp_path, [*files, says("done")], config=capped(1.5)) as r:
        assert r.editor.text().endswith("done")
        asked = r.editor.permission_requests
        assert [request.tool_call.title for request in asked] == [
            "This session has cost $1.64; the limit is $1.50 (`agent.max_cost`). Go on?",
            "This session has cost $3.28; the limit is $1.50, raised to $3.14 (`agent.max_cost`). Go on?",
            "This session has cost $4.92; the limit is $1.50, raised to $4.78 (`agent.max_cost`). Go on?",
        ]
        assert [option.name for option in asked[0].options] == ["Go on, until it is $3.14", "Stop here"]
        r.editor.assert_tool_calls_finished()


async def test_a_user_who_stops_at_the_cap_pays_for_no_further_call_and_is_asked_again_at_the_next_prompt(tmp_path):
    script = [READ, says("never"), says("never")]
    async with rig(tmp_path, script, config=capped(1.5), permissions=[reject_once] * 3) as r:
        answer = await r.editor.prompt("go")
        assert (answer.stop_reason, answer.meta["limit"]) == ("max_turn_requests", "agent.max_cost")
        assert "Stopped: this session has cost $1.64; the limit is $1.50 (`agent.max_cost`)." in r.editor.text()
        assert "limit" not in ((await r.editor.prompt("/cost")).meta or {})
        await r.editor.prompt("again")
        assert len(r.editor.permission_requests) == 2
        shown = await told(r.editor, "/compact")
        assert "Stopped: this session has cost $1.64" in shown and "The conversation stays as it is." in shown
        assert len(r.editor.permission_requests) == 3
        assert len(r.model.requests) == 1


async def fails(request):
    raise InternalError("no questions, please")


@pytest.mark.parametrize("answer", [cancelled, fails])
async def test_a_client_that_gives_no_answer_stops_the_turn(tmp_path, answer):
    async with rig(tmp_path, [READ, says("never")], config=capped(1.5), permissions=[answer]) as r:
        assert (await r.editor.prompt("go")).stop_reason == "max_turn_requests"
        assert len(r.model.requests) == 1


async def test_a_turn_is_cancelled_while_the_question_is_open(tmp_path):
    async with rig(tmp_path, [READ, says("done")], config=capped(1.5), permissions=[never_answers]) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.permission_requests)
        await cancels(r, turn)
        r.editor.assert_tool_calls_finished()
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        assert len(r.editor.permission_requests) == 2


async def test_a_sub_agent_that_stops_at_the_cap_stops_its_parent_with_one_question(tmp_path):
    async with rig(tmp_path, [DELEGATE, READ, says("never")], config=capped(3), permissions=[reject_once]) as r:
        assert (await r.editor.prompt("go")).stop_reason == "max_turn_requests"
        assert (len(r.editor.permission_requests), len(r.model.requests)) == (1, 2)
        assert costs(r.editor)[-1] == pytest.approx(2 * COST)


async def test_the_days_cap_holds_for_all_agents_of_a_user(tmp_path):
    async with went(tmp_path, [says("one"), says("two")], config=capped(1.5, "max_cost_per_day")) as r:
        async with another(r.environ, permissions=[reject_once]) as editor:
            await editor.new_session(r.project)
            assert (await editor.prompt("go")).meta["limit"] == "agent.max_cost_per_day"
            (asked,) = editor.permission_requests
            assert asked.tool_call.title.startswith("The sessions of today have cost $1.64; the limit is $1.50")
        assert len(r.model.requests) == 1


async def test_what_was_spent_yesterday_is_left_out_of_the_days_cap(tmp_path, monkeypatch):
    async with rig(tmp_path, [says("one"), says("two")], config=capped(1.5, "max_cost_per_day")) as r:
        monkeypatch.setattr(spending, "today", lambda: "2026-01-01")
        await r.editor.prompt("go")
        monkeypatch.setattr(spending, "today", lambda: "2026-01-02")
        await r.editor.prompt("go")
        assert r.editor.permission_requests == []
        assert "Today, all sessions: $1.64." in await told(r.editor)


# --- without a price -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def through_a_proxy(tmp_path, script, more=""):
    """LiteLLM's proxy runs on this machine, but its models may cost anything."""
    async with FakeModel(script) as model:
        (tmp_path / "config.toml").write_text(
            f'[agent]\nprovider = "litellm"\nmodel = "fake-model"\n{more}\n[providers.litellm]\n'
            f'base_url = "{model.base_url}"\n'
        )
        (home := tmp_path / "home").mkdir()
        environ = environ_for(home, "", ACP_CODER_CONFIG=str(tmp_path / "config.toml"))
        del environ["OPENAI_BASE_URL"], environ["OPENAI_MODEL"]
        async with another(environ) as editor:
            await editor.new_session(tmp_path)
            yield editor


async def test_without_a_price_no_cost_is_claimed_and_a_cap_is_said_not_to_hold_once(tmp_path):
    async with through_a_proxy(tmp_path, [READ, says("done")], "max_cost = 1") as editor:
        assert (await editor.prompt("go")).stop_reason == "end_turn"
        assert costs(editor) == [None, None]
        words = "The price of `litellm/fake-model` is not known, so `agent.max_cost` cannot hold for it"
        assert editor.text().count(words) == 1
        shown = await told(editor)
        assert "This session: price not known; 2 model calls" in shown
        assert "set it in the configuration (`[[agent.prices]]`)" in shown


def counted(tokens: int) -> RawAnswer:
    """An answer of which the server says that it read so many tokens."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n' % (tokens, tokens)
    return RawAnswer((OPENROUTER[0], usage, OPENROUTER[2]))


async def test_absurd_counts_of_a_server_never_stop_the_agent_or_its_counting(tmp_path):
    script = [*map(counted, (2**63, 2**63, 10**30, 10**30, -(10**30), -(10**30))), says("again")]
    async with rig(tmp_path, script, config=PRICES) as r:
        for _ in script:
            assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        assert "7 model calls" in await told(r.editor)
