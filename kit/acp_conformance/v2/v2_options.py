"""Options of a session: V2-CFG."""

from __future__ import annotations

from typing import Any

from acp_conformance.trial import INVALID_PARAMS, NotHere, Trial, check
from acp_conformance.v2.v2_client import AgentV2, speaking
from acp_conformance.v2.v2_wire import values, wrong_option

SET = "session/set_config_option"


async def _options(agent: AgentV2) -> list[dict[str, Any]]:
    """Of a new session. Raises NotHere."""
    made = await agent.new_session()
    if not made.get("configOptions"):
        raise NotHere("it has no options")
    options: list[dict[str, Any]] = made["configOptions"]
    return options


async def _option(agent: AgentV2, type_: str) -> dict[str, Any]:
    """The first of that type. Raises NotHere."""
    option = next((each for each in await _options(agent) if each.get("type") == type_), None)
    if option is None:
        raise NotHere(f"it has no option of the type `{type_}`")
    return option


def _current(options: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["configId"]: each.get("currentValue") for each in options}


@check("V2-CFG-1")
async def options_have_ids_values_and_one_of_them(trial: Trial) -> None:
    async with speaking(trial) as agent:
        for option in await _options(agent):
            agent.expect("id" not in option and option.get("configId"), f"an option is {option}")
            for why in wrong_option(option):
                agent.expect(False, why)


@check("V2-CFG-2")
async def an_option_is_set_by_type_and_value(trial: Trial) -> None:
    async with speaking(trial) as agent:
        option = await _option(agent, "select")
        given = {"sessionId": agent.session, "configId": option["configId"]}
        wrong: tuple[dict[str, Any], ...] = (
            {"value": option["currentValue"]},
            {"type": "kit", "value": option["currentValue"]},
            {"type": "boolean", "value": True},
            {"type": "id", "value": "kit-no-such-value"},
            {"type": "id", "value": option["currentValue"], "configId": "kit-no-such-option"},
        )
        for more in wrong:
            await agent.refused(SET, {**given, **more}, INVALID_PARAMS, why=f"with {more}")
        for value in (values(option)[-1], values(option)[0]):
            answered = await agent.ask(SET, {**given, "type": "id", "value": value})
            shown = _current(answered["configOptions"])[option["configId"]]
            agent.expect(shown == value, f"set to {value!r}, the option is {shown!r}")


@check("V2-CFG-3")
async def a_boolean_option_is_set_without_a_capability(trial: Trial) -> None:
    async with speaking(trial) as agent:
        option = await _option(agent, "boolean")
        id_, value = option["configId"], not option["currentValue"]
        params = {"sessionId": agent.session, "configId": id_, "type": "boolean", "value": value}
        shown = _current((await agent.ask(SET, params))["configOptions"])[id_]
        agent.expect(shown == value, f"set to {value!r}, the option is {shown!r}")
