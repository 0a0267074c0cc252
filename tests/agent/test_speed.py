"""Faster answers at their own price, a draft of ACP: `pytest -k SPD`."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.testing.fake_model import Answer, Usage
from tests.fronts.server.test_server import served

from .kit import Rig, refused, rig
from .test_cost import COST, PRICES, USAGE, costs, told
from .test_fallback import EMPTY
from .test_session_drafts import ON
from .test_v2 import of_v2, text

FAST = f"{PRICES}fast = 2.5\n"
PRIORITY = {"service_tier": "priority"}


def says(words: str, usage: Usage = USAGE) -> Answer:
    return Answer(text=words, usage=usage)


def speed(options: Any) -> Any:
    """The option, if it is offered."""
    return next((each for each in options if each.get("id", each.get("configId")) == "speed"), None)


async def chosen(r: Rig, value: Any, **more: Any) -> Any:
    asked = {"sessionId": r.editor.session_id, "configId": "speed", "value": value, **more}
    return speed((await r.editor.request("session/set_config_option", asked))["configOptions"])


async def opened(r: Rig) -> Any:
    made = await r.editor.request("session/new", {"cwd": str(r.project), "mcpServers": []})
    r.editor.session_id = made["sessionId"]
    return speed(made["configOptions"])


async def test_spd_1_it_is_a_select_of_two_and_each_request_asks_as_it_stands(tmp_path):
    async with rig(tmp_path, [says("one"), says("two"), says("three")], config=ON + FAST) as r:
        option = await opened(r)
        assert (option["category"], option["type"], option["currentValue"]) == ("speed", "select", "standard")
        assert [each["value"] for each in option["options"]] == ["standard", "fast"] and "2.5" in option["description"]
        await r.editor.prompt("go")
        assert (await chosen(r, "fast"))["currentValue"] == "fast"
        await r.editor.prompt("go")
        assert (await chosen(r, "standard"))["currentValue"] == "standard"
        await r.editor.prompt("go")
        assert [each.body.get("service_tier") for each in r.model.requests] == [None, "priority", None]


async def test_spd_1_it_is_a_boolean_where_the_client_takes_these(tmp_path):
    async with rig(tmp_path, [says("one")], config=ON + FAST, boolean_options=True) as r:
        option = await opened(r)
        assert (option["type"], option["category"], option["currentValue"]) == ("boolean", "speed", False)
        assert (await chosen(r, True, type="boolean"))["currentValue"] is True
        await r.editor.prompt("go")
        assert r.model.requests[0].body["service_tier"] == "priority"
        for value, more in (("fast", {}), (1, {}), (True, {}), (None, {"type": "boolean"})):
            with refused(-32602):
                await chosen(r, value, **more)
        asked = {"cwd": str(r.project)}
        assert speed((await r.editor.request("session/options", asked))["configOptions"])["type"] == "boolean"


async def test_spd_1_bad_values_are_refused_and_change_nothing(tmp_path):
    async with rig(tmp_path, [says("one")], config=ON + FAST) as r:
        for value, more in (("quick", {}), ("", {}), (True, {"type": "boolean"}), (2, {}), (None, {})):
            with refused(-32602):
                await chosen(r, value, **more)
        await r.editor.prompt("go")
        assert "service_tier" not in r.model.requests[0].body


NOT_OFFERED = {
    "without drafts": FAST,
    "without a price": ON,
    "without a fast price": ON + PRICES,
    "of an API that has none": f'{ON}{FAST}[providers.default]\napi = "ollama"\nmodels = ["fake-model"]\n',
    "the first price that fits counts": f'{ON}[[agent.prices]]\nmodel = "default/*"\ninput = 1\n{FAST}',
}


@pytest.mark.parametrize("why", NOT_OFFERED)
async def test_spd_2_where_there_is_none_or_its_price_is_not_known_it_is_not_offered(tmp_path, why: str) -> None:
    async with rig(tmp_path, config=NOT_OFFERED[why]) as r:
        assert await opened(r) is None
        with refused(-32602):
            await chosen(r, "fast")


async def test_spd_2_a_fast_answer_costs_its_price_also_for_a_cap(tmp_path):
    config = f"[agent]\nmax_cost = {COST * 2}\n{ON}{FAST}"
    async with rig(tmp_path, [says("one"), says("two")], config=config, permissions=[reject_once]) as r:
        await opened(r)
        await chosen(r, "fast")
        await r.editor.prompt("go")
        assert costs(r.editor) == pytest.approx([COST * 2.5])
        assert f"${COST * 2.5:.2f}" in await told(r.editor)
        answer = await r.editor.prompt("go")  # At the standard price the cap would not be reached.
        assert answer.meta["limit"] == "agent.max_cost"
        assert len(r.model.requests) == 1


async def test_spd_2_a_fallback_without_a_fast_price_is_asked_and_counted_as_ever(tmp_path):
    other = '[[agent.prices]]\nmodel = "default/other-model"\ninput = 10\n'
    config = f'[agent]\nfallback_models = ["other-model"]\n{ON}{FAST}{other}'
    async with rig(tmp_path, [EMPTY, says("two")], config=config) as r:
        await opened(r)
        await chosen(r, "fast")
        await r.editor.prompt("go")
        assert [each.body.get("service_tier") for each in r.model.requests] == ["priority", None]
        assert costs(r.editor) == pytest.approx([USAGE.input_tokens * 10 / 1_000_000])


async def test_spd_2_it_is_not_stored(tmp_path):
    """It costs more: who opens the session again decides anew."""
    async with rig(tmp_path, [says("one"), says("two")], config=ON + FAST) as r:
        await opened(r)
        await chosen(r, "fast")
        await r.editor.prompt("go")
        asked = {"sessionId": r.editor.session_id, "cwd": str(r.project), "mcpServers": []}
        loaded = await r.editor.request("session/load", asked)
        assert speed(loaded["configOptions"])["currentValue"] == "standard"
        wished = [{"configId": "speed", "value": "fast"}]
        again = await r.editor.request("session/load", {**asked, "configOptions": wished})
        assert speed(again["configOptions"])["currentValue"] == "fast"


async def test_spd_the_field_of_each_api(tmp_path):
    for api in ("chat", "responses", "messages"):
        (home := tmp_path / api).mkdir()
        provider = (
            f'[providers.default]\napi = "{api}"\nmodels = ["fake-model"]\nheaders = {{ "Anthropic-Beta" = "mine" }}\n'
        )
        async with rig(home, [says("one"), says("two")], config=f"{ON}{FAST}{provider}") as r:
            await opened(r)
            await r.editor.prompt("go")
            await chosen(r, "fast")
            await r.editor.prompt("go")
            plain, fast = r.model.requests[:2]
            added = {name: value for name, value in fast.body.items() if name not in plain.body}
            assert added == ({"speed": "fast"} if api == "messages" else PRIORITY)
            betas = [each.headers["anthropic-beta"] for each in (plain, fast)]
            assert betas == ["mine", "mine,fast-mode-2026-02-01" if api == "messages" else "mine"]


async def test_spd_1_over_a_server_and_in_v2(tmp_path: Path) -> None:
    """On a server it is a select for all: clients of both kinds may be at one session. Alone, a client of v2 has a
    boolean."""
    async with served(tmp_path, [says("one")], config=ON + FAST) as at, of_v2(at) as client:
        await client.initialize()
        made = await client.ask("session/new", cwd=str(at.project))
        assert speed(made["configOptions"])["type"] == "select"
        assert speed((await client.ask("session/options", cwd=str(at.project)))["configOptions"])["type"] == "select"
        asked = {"sessionId": made["sessionId"], "configId": "speed", "type": "id", "value": "fast"}
        assert (
            speed((await client.ask("session/set_config_option", **asked))["configOptions"])["currentValue"] == "fast"
        )
        await client.ask("session/prompt", sessionId=made["sessionId"], prompt=text("go"))
        await client.ended()
        assert at.model.requests[0].body["service_tier"] == "priority"
