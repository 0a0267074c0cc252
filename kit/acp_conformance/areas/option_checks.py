"""Modes, config options, slash commands: MODE, CFG, CMD."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import INVALID_PARAMS, UNKNOWN, Agent, NotHere, Trial, Wrong, check


def _modes(made: dict[str, Any]) -> tuple[str, list[str]]:
    modes = made.get("modes")
    if not modes:
        raise NotHere("the session has no modes")
    return modes.get("currentModeId"), [each.get("id") for each in modes.get("availableModes") or []]


def _options(made: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.get("configOptions") or []
    if not found:
        raise NotHere("the session has no config options")
    return found


def _values(option: dict[str, Any]) -> list[Any]:
    flat = []
    for each in option.get("options") or []:
        flat += [one.get("value") for one in each["options"]] if "options" in each else [each.get("value")]
    return flat


@check("MODE-1")
async def modes_are_unique_and_one_is_current(trial: Trial) -> None:
    async with trial.agent() as agent:
        current, ids = _modes(await agent.new_session())
        agent.expect(len(set(ids)) == len(ids), f"the modes are {ids}")
        agent.expect(current in ids, f"the current mode {current!r} is none of {ids}")


@check("MODE-2", "ACP-MODES-002")
async def every_mode_can_be_set(trial: Trial) -> None:
    async with trial.agent() as agent:
        _, ids = _modes(await agent.new_session())
        for mode in ids:
            answered = await agent.ask("session/set_mode", {"sessionId": agent.session, "modeId": mode})
            agent.expect(isinstance(answered, dict), f"`session/set_mode` was answered with {answered!r}")


@check("MODE-3")
async def an_unknown_mode_is_an_error(trial: Trial) -> None:
    async with trial.agent() as agent:
        _, ids = _modes(await agent.new_session())
        await agent.refused("session/set_mode", {"sessionId": agent.session, "modeId": "kit-no-such-mode"})
        await agent.refused("session/set_mode", {"sessionId": UNKNOWN, "modeId": ids[0]})


@check("MODE-4")
async def modes_are_set_while_a_turn_runs(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok", hang_before=True)]) as agent:
        _, ids = _modes(await agent.new_session())
        async with agent.turn() as turn:
            await agent.until(lambda: agent.asked, "a request to the model")
            await agent.ask("session/set_mode", {"sessionId": agent.session, "modeId": ids[-1]})
            agent.expect(not turn.over.is_set(), "setting a mode ended the turn")
            agent.model.release()


@check("CFG-1")
async def options_are_whole(trial: Trial) -> None:
    async with trial.agent() as agent:
        options = _options(await agent.new_session())
        ids = [each.get("id") for each in options]
        agent.expect(len(set(ids)) == len(ids) and all(ids), f"the options' ids are {ids}")
        for each in options:
            agent.expect(each.get("name"), f"the option {each.get('id')} has no name")
            if each.get("type") == "select":
                values, current = _values(each), each.get("currentValue")
                agent.expect(current in values, f"`{each['id']}` is {current!r}, none of {values}")


async def _set(agent: Agent, option: dict[str, Any], value: Any) -> list[dict[str, Any]]:
    params = {"sessionId": agent.session, "configId": option["id"], "value": value}
    answered = await agent.ask("session/set_config_option", params)
    return _options(answered)


@check("CFG-2", "ACP-CONFIG-002")
async def an_option_is_set_and_the_list_is_complete(trial: Trial) -> None:
    async with trial.agent() as agent:
        options = _options(await agent.new_session())
        for each in [each for each in options if each.get("type") == "select"]:
            value = _values(each)[-1]
            answered = await _set(agent, each, value)
            now = {one["id"]: one.get("currentValue") for one in answered}
            agent.expect(
                now.get(each["id"]) == value, f"`{each['id']}` was set to {value!r} and is {now.get(each['id'])!r}"
            )
            agent.expect({one["id"] for one in options} <= set(now), f"the list is not complete: {sorted(now)}")
            break


@check("CFG-4")
async def wrong_options_are_invalid(trial: Trial) -> None:
    async with trial.agent() as agent:
        option = _options(await agent.new_session())[0]
        for id_, value in (("kit-no-such-option", "x"), (option["id"], "kit-no-such-value")):
            params = {"sessionId": agent.session, "configId": id_, "value": value}
            await agent.refused("session/set_config_option", params, INVALID_PARAMS, why=f"of {id_!r} to {value!r}")


@check("CFG-5", "ACP-CONFIG-003")
async def booleans_are_for_who_can_draw_them(trial: Trial) -> None:
    async with trial.agent() as agent:
        wrong = [each for each in _options(await agent.new_session()) if each.get("type") == "boolean"]
        agent.expect(not wrong, f"a boolean option for a client that does not offer them: {wrong[:1]}")


@check("CFG-8")
async def options_belong_to_one_session(trial: Trial) -> None:
    async with trial.agent() as agent:
        option = next((each for each in _options(await agent.new_session()) if len(_values(each)) > 1), None)
        if option is None:
            raise NotHere("no option has two values")
        other = next(value for value in _values(option) if value != option["currentValue"])
        await _set(agent, option, other)
        now = {each["id"]: each.get("currentValue") for each in _options(await agent.new_session())}
        value = now.get(option["id"])
        agent.expect(value == option["currentValue"], f"another session's `{option['id']}` is {value!r}")


@check("CMD-2")
async def commands_are_named_without_a_slash(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")]) as agent:
        await agent.new_session()
        with suppress(Wrong):
            await agent.until(lambda: agent.updates("available_commands_update"), "commands")
        lists = agent.updates("available_commands_update")
        if not lists:
            raise NotHere("it has no commands")
        commands = lists[-1].get("availableCommands") or []
        names = [str(each.get("name")) for each in commands]
        agent.expect(len(set(names)) == len(names), "two commands have one name")
        agent.expect(not [name for name in names if name.startswith("/")], f"the commands are {names}")
        agent.expect(all(each.get("description") for each in commands), "a command has no description")


@check("CMD-4")
async def unknown_commands_are_answered(trial: Trial) -> None:
    async with trial.agent([Answer(text="I do not know it.")] * 2) as agent:
        await agent.new_session()
        answered = await agent.prompt("/kit-no-such-command please")
        agent.expect(answered.get("stopReason"), f"it was answered with {answered}")


@check("NEW-10")
async def no_update_precedes_the_sessions_id(trial: Trial) -> None:
    async with trial.agent() as agent:
        await agent.new_session()
        await agent.quiet()
        early = [each for each in agent.editor.violations if "before the answer that names it" in each]
        agent.expect(not early, f"an update came before the answer of `session/new`: {early[:1]}")
