"""Prompts that are suggested after a turn, a draft of ACP: `pytest -k SUG`."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.loop.turns.suggestions import LONGEST, Suggestions, suggested
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.server.test_server import editor, served
from tests.tables import table

from .kit import Rig, asks, bash, reloads, rig, went
from .test_cost import PRICES, USAGE, costs, says
from .test_fallback import EMPTY
from .test_session_drafts import HANGS, ON
from .test_v2 import place, text

ASKS = f"[agent]\nsuggestions = true\n{ON}"
BOTH: dict[str, Any] = {"config": ASKS, "suggestions": True}
THREE = "1. Run the tests.\n- Commit it.\n“And then?”"
LISTED = ["Run the tests.", "Commit it.", "And then?"]


def told(of: FakeEditor, session: str = "") -> list[list[str]]:
    """Each list that it was sent."""
    found = [each for each in of.updates[session or of.session_id] if isinstance(each, acp.PromptSuggestionsUpdate)]
    assert all(len(one.prompt) == 1 for each in found for one in each.suggestions)
    return [[getattr(one.prompt[0], "text", "") for one in each.suggestions] for each in found]


async def came(r: Rig, number: int = 1) -> list[list[str]]:
    await r.editor.wait_until(lambda: len(told(r.editor)) >= number)
    return told(r.editor)


async def test_sug_1_2_and_5_after_the_answer_the_likeliest_come_first(tmp_path):
    async with went(tmp_path, ["Done.", THREE], **BOTH) as r:
        assert await came(r) == [LISTED]
        lines = [line.message for line in r.editor.transcript]
        answer = next(at for at, line in enumerate(lines) if "stopReason" in str(line.get("result")))
        assert answer < next(at for at, line in enumerate(lines) if "prompt_suggestions_update" in str(line))


OFF: dict[str, dict[str, Any]] = {
    "the user has not switched it on": {"config": ON, "suggestions": True},
    "drafts are off": {"config": "[agent]\nsuggestions = true\n", "suggestions": True},
    "the client does not show them": {"config": ASKS},
}


@pytest.mark.parametrize("why", OFF)
async def test_sug_1_else_no_model_is_asked(tmp_path, why: str) -> None:
    async with went(tmp_path, ["Done.", "Again."], **OFF[why]) as r:
        await r.editor.prompt("go")
        assert len(r.model.requests) == 2 and told(r.editor) == []


async def test_sug_3_and_5_the_next_prompt_withdraws_them(tmp_path):
    async with went(tmp_path, ["Done.", THREE, "Again.", "Run it."], **BOTH) as r:
        await came(r)
        await r.editor.prompt("go")
        assert await came(r, 3) == [LISTED, [], ["Run it."]]
        await r.editor.prompt("/help")
        assert (await came(r, 4))[3] == [], "a command, too"


SHED = '[places.shed]\nkind = "ssh"\nhost = "shed.invalid"\n'


async def test_sug_3_an_undo_and_a_move_to_another_place_withdraw_them(tmp_path):
    config = {**BOTH, "config": ASKS + SHED}
    async with went(tmp_path, ["Done.", THREE, "Again.", "Run it."], **config) as r:
        await came(r)
        await r.editor.request("_session/undo", {"sessionId": r.editor.session_id, "to": 1, "what": "both"})
        assert await came(r, 2) == [LISTED, []]
        await r.editor.prompt("go")
        await came(r, 3)
        asked = {"sessionId": r.editor.session_id, "configId": "place", "value": "shed"}
        await r.editor.request("session/set_config_option", asked)
        assert (await came(r, 4))[2:] == [["Run it."], []]


async def test_sug_5_what_was_answered_as_the_next_prompt_came_is_not_shown(tmp_path, monkeypatch):
    made: list[Suggestions] = []
    after, answered = Suggestions.after, anyio.Event()
    monkeypatch.setattr(Suggestions, "after", lambda self, *about: (made.append(self), after(self, *about)))

    def late(said: str) -> list[str]:
        if not answered.is_set():
            made[0].withdraw()
        answered.set()
        return suggested(said)

    monkeypatch.setattr("acp_agent.loop.turns.suggestions.suggested", late)
    async with went(tmp_path, ["Done.", THREE, "Again.", "Run it."], **BOTH) as r:
        await answered.wait()
        await r.editor.prompt("go")
        assert await came(r) == [["Run it."]]


async def test_sug_5_the_next_prompt_ends_the_asking(tmp_path):
    async with went(tmp_path, ["Done.", HANGS, "Again.", "Run it."], **BOTH) as r:
        await r.model.wait_for_request(2)
        assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        assert await came(r) == [["Run it."]]


async def test_sug_4_they_are_in_no_log_and_in_no_later_request(tmp_path):
    async with went(tmp_path, ["Done.", THREE, "Again.", "Run it."], **BOTH) as r:
        await came(r)
        await r.editor.prompt("go")
        await came(r, 3)
        asked, later = r.model.requests[1].body, r.model.requests[2].body
        assert "want to say next" in str(asked["messages"][-1]) and "want to say next" not in str(later)
        assert "Commit it." not in str(later)
        await reloads(r)
        assert told(r.editor) == [] and "Commit it." not in str(r.editor.updates)


async def test_sug_6_one_call_with_the_beginning_of_the_turns_and_a_small_answer(tmp_path):
    async with went(tmp_path, [asks(bash("echo made")), "Done.", THREE], mode="auto", **BOTH) as r:
        await came(r)
        last, extra = r.model.requests[1].body, r.model.requests[2].body
        assert extra["messages"][: len(last["messages"])] == last["messages"]
        assert extra["tools"] == last["tools"] and extra["max_tokens"] <= 1000 and len(r.model.requests) == 3


async def test_sug_6_calls_of_tools_in_the_answer_do_not_run(tmp_path):
    answer = Answer(text="Run it.", tool_calls=(Call("bash", {"command": "touch made"}),))
    async with went(tmp_path, ["Done.", answer], mode="auto", **BOTH) as r:
        assert await came(r) == [["Run it."]] and not (r.project / "made").exists()


async def test_sug_6_what_they_cost_is_counted(tmp_path):
    async with went(tmp_path, [says("Done."), says(THREE)], suggestions=True, config=ASKS + PRICES) as r:
        await came(r)
        await r.editor.wait_until(lambda: len(costs(r.editor)) > 1 and costs(r.editor)[-1] == 2 * costs(r.editor)[0])


async def test_sug_6_none_at_a_cap_and_nobody_is_asked_about_it(tmp_path):
    config = f"[agent]\nsuggestions = true\nmax_cost = 1.0\n{ON}{PRICES}"
    script = [says("Done."), says("Again.")]
    async with went(tmp_path, script, suggestions=True, config=config, permissions=[reject_once]) as r:
        assert USAGE.input_tokens and (await r.editor.prompt("go")).meta["limit"] == "agent.max_cost"
        assert len(r.model.requests) == 1 and len(r.editor.permission_requests) == 1 and told(r.editor) == []


async def test_sug_6_none_after_a_cancel_and_an_error_of_the_asking_is_not_told(tmp_path):
    async with rig(tmp_path, [HANGS, "Done.", EMPTY, "Again.", "Run it."], **BOTH) as r:
        turn = r.editor.begin("go")
        await r.model.wait_for_request(1)
        r.editor.cancel()
        assert (await turn.response()).stop_reason == "cancelled"
        await r.editor.prompt("go")
        await r.model.wait_for_request(3)
        await r.editor.prompt("go")
        assert await came(r) == [["Run it."]] and "quota" not in r.editor.text()


async def test_sug_6_a_cancel_between_turns_ends_the_asking(tmp_path):
    async with went(tmp_path, ["Done.", HANGS, "Again.", "Run it."], **BOTH) as r:
        await r.model.wait_for_request(2)
        r.editor.cancel()
        await r.model.answer_closed(2)
        await r.editor.prompt("go")
        assert await came(r) == [["Run it."]]


async def test_sug_over_a_server_none_are_made(tmp_path: Path) -> None:
    """Clients of both kinds may be at one session."""
    async with served(tmp_path, ["Done.", "Again."], config=ASKS) as at, editor(at, suggestions=True) as made:
        await made.new_session(at.project)
        await made.prompt("go")
        await made.prompt("go")
        assert len(at.model.requests) == 2 and told(made) == []


@table(("said", "found"), [
    ("", []),
    ("  \n\n \n", []),
    ('Say "hi"', ['Say "hi"']),
    ("One.\nOne.\nTwo.", ["One.", "Two."]),
    ("x" * (LONGEST + 1) + "\nTwo.", ["Two."]),
    ("a\nb\nc\nd", ["a", "b", "c"]),
    ('1) "Run it"\n* Then', ["Run it", "Then"]),
])  # fmt: skip
def test_sug_2_no_blank_text_no_list_marks_and_few(said: str, found: list[str]) -> None:
    assert suggested(said) == found


async def test_sug_in_v2_it_is_the_same(tmp_path: Path) -> None:
    async with place(tmp_path, ["Done.", THREE, "Again.", ""]) as here:
        own = Path(here.environ["HOME"]) / ".config/acp-coder/config.toml"
        own.parent.mkdir(parents=True)
        own.write_text(ASKS)
        async with here.client() as client:
            await client.initialize(capabilities={"session": {"promptSuggestions": {}}})
            session = (await client.ask("session/new", cwd=str(here.project)))["sessionId"]
            for number in (1, 2):
                await client.ask("session/prompt", sessionId=session, prompt=text("go"))
                await client.until(lambda _, n=number: len(client.updates("prompt_suggestions_update")) >= n)  # type: ignore[misc]
            shown, withdrawn = client.updates("prompt_suggestions_update")
            assert [each["prompt"][0]["text"] for each in shown["suggestions"]] == LISTED
            assert withdrawn["suggestions"] == []
