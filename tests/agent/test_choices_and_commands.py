"""Modes, config options and slash commands."""

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_model import Call, Failure
from tests.tables import table

from .kit import agent_rig, asks, refused, rig, went


def values(options):
    return {option.id: option.current_value for option in options}


async def told(r, holds):
    """The options, once the client was told of some of which this holds."""
    update = await r.editor.wait_for(lambda u: isinstance(u, acp.ConfigOptionUpdate) and holds(u.config_options))
    return update.config_options


async def test_modes_and_options_are_offered_and_agree(tmp_path):
    async with agent_rig(tmp_path) as r:
        answer = await r.editor.new_session(r.project)
        assert [mode.id for mode in answer.modes.available_modes] == ["ask", "architect", "code", "auto"]
        assert answer.modes.current_mode_id == "code"
        assert [(o.id, o.category) for o in answer.config_options] == [
            ("mode", "mode"), ("model", "model"), ("thought_level", "thought_level"),
        ]  # fmt: skip
        assert values(answer.config_options) == {
            "mode": "code", "model": "default/fake-model", "thought_level": "default",
        }  # fmt: skip


async def test_a_mode_set_by_the_client_shows_in_the_options(tmp_path):
    async with rig(tmp_path) as r:
        await r.editor.client.set_session_mode(r.editor.session_id, "architect")
        assert values(await told(r, lambda options: True))["mode"] == "architect"


async def test_a_mode_set_as_an_option_shows_in_the_modes(tmp_path):
    async with rig(tmp_path) as r:
        answer = await r.editor.client.set_config_option(r.editor.session_id, "mode", "ask")
        assert values(answer.config_options)["mode"] == "ask"
        update = await r.editor.wait_for(lambda u: isinstance(u, acp.CurrentModeUpdate))
        assert update.current_mode_id == "ask"


async def test_unknown_options_and_values_are_invalid_params(tmp_path):
    async with rig(tmp_path) as r:
        for option, value in (
            ("mode", "nonsense"), ("model", "default/unknown"), ("thought_level", "extreme"), ("nonsense", "x"),
            ("mode", True), ("mode", 3), ("mode", None), ("mode", ["ask"]),
        ):  # fmt: skip
            params = {"sessionId": r.editor.session_id, "configId": option, "value": value}
            with refused(-32602):
                assert not await r.editor.request("session/set_config_option", params), (option, value)
        for session, mode in ((r.editor.session_id, "nonsense"), ("nope", "ask")):
            with pytest.raises(PeerError):
                await r.editor.client.set_session_mode(session, mode)


async def test_the_chosen_model_and_thought_level_are_asked_for(tmp_path):
    async with rig(tmp_path, ["a"], models=("fake-model", "other-model")) as r:
        await told(r, lambda options: "other-model" in str(options[1].options))
        await r.editor.client.set_config_option(r.editor.session_id, "model", "default/other-model")
        await r.editor.client.set_config_option(r.editor.session_id, "thought_level", "high")
        await r.editor.prompt("hi")
        assert r.request(1)["model"] == "other-model" and r.request(1)["reasoning_effort"] == "high"


async def test_the_model_can_be_set_as_clients_of_old_schemas_do(tmp_path):
    async with rig(tmp_path, ["a"], models=("fake-model", "other-model")) as r:
        session = r.editor.session_id
        await told(r, lambda options: "other-model" in str(options[1].options))
        params = {"sessionId": session, "modelId": "default/other-model"}
        assert await r.editor.request("session/set_model", params) == {}
        await told(r, lambda options: values(options)["model"] == "default/other-model")
        await r.editor.prompt("hi")
        assert r.request(1)["model"] == "other-model"
        for wrong in ({**params, "modelId": "default/unknown"}, {**params, "modelId": 7}, {"modelId": "x"}, []):
            with refused(-32602):
                await r.editor.request("session/set_model", wrong)


async def test_auto_becomes_the_servers_first_model(tmp_path):
    async with went(tmp_path, ["a"], models=("first", "second"), environ={"OPENAI_MODEL": ""}, prompt="hi") as r:
        assert r.request(1)["model"] == "first"
        options = await told(r, lambda options: values(options)["model"] == "default/first")
        assert "auto" not in str(options[1].options)


async def test_providers_stand_side_by_side(tmp_path):
    async with agent_rig(tmp_path, ["one", "two"]) as r:
        file = tmp_path / "home" / ".config" / "acp-coder" / "config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(
            f'[providers.second]\nbase_url = "{r.model.base_url}"\nmodels = ["m2", "m3"]\n'
            '[providers.scripted]\napi = "scripted"\nmodels = ["s"]\n'
        )
        answer = await r.editor.new_session(r.project)
        offered = [o.value for o in answer.config_options[1].options]
        assert offered == ["default/fake-model", "second/m2", "second/m3", "scripted/s"]
        await r.editor.client.set_config_option(r.editor.session_id, "model", "second/m3")
        await r.editor.prompt("hi")
        assert r.request(1)["model"] == "m3"
        where = r.model.base_url.removeprefix("http://").removesuffix("/v1")
        names = [o.name for o in answer.config_options[1].options]
        assert names == [f"fake-model ({where})", "m2 (second)", "m3 (second)", "s (scripted)"]
        await r.editor.prompt("/model")
        assert "- `default/fake-model`\n" in r.editor.text() and f"`default` is {where}." in r.editor.text()


# --- commands ----------------------------------------------------------------------------------------------------


async def test_commands_are_announced_without_slash_and_described(tmp_path):
    async with rig(tmp_path) as r:
        update = await r.editor.wait_for(lambda u: isinstance(u, acp.AvailableCommandsUpdate))
        names = [command.name for command in update.available_commands]
        assert {"help", "model", "mode", "clear", "compact", "context", "tools", "status", "permissions"} <= set(names)
        assert len(set(names)) == len(names)
        assert all(command.description and not command.name.startswith("/") for command in update.available_commands)


@table(("command", "words"), [
    ("/help", "/compact"), ("/model", "\n- `fake-model` (in use)\n"), ("/model nonsense", "no model"),
    ("/mode", "architect"),
    ("/mode nonsense", "no mode"), ("/context", "0 messages"), ("/tools", "`bash`"),
    ("/status", "Model: `fake-model`\n"),
    ("/permissions", "Nothing is remembered"), ("/permissions revoke 7", "no permission"),
    ("/compact", "nothing to compact"), ("/clear", "forgotten"),
])  # fmt: skip
async def test_each_command_answers_without_the_model(again, command, words):
    async with again([], prompt=command) as r:
        assert words in r.editor.text()
        assert r.model.requests == []


async def test_a_command_runs_with_other_blocks_beside_it(tmp_path):
    blocks = [acp.ResourceLink(name="x", uri="file:///x"), acp.TextContent(text="/mode ask")]
    async with went(tmp_path, [], prompt=blocks) as r:
        assert "Mode: `ask`" in r.editor.text()


@pytest.mark.parametrize("text", ["/usr/bin/env is broken", "/tmp is full", "/ help", "// comment", "see /help"])
async def test_what_is_no_command_is_a_prompt(tmp_path, text):
    async with went(tmp_path, ["ok"], prompt=text) as r:
        assert r.messages(1)[-1]["content"] == text


@pytest.mark.parametrize(("text", "meant"), [("/nonsense", ""), ("/checkpoint 2", " Did you mean `/checkpoints`?")])
async def test_a_command_that_does_not_exist_is_said_and_not_sent_to_the_model(tmp_path, text, meant):
    async with went(tmp_path, [], prompt=text) as r:
        name = text.split()[0]
        assert r.editor.text() == f"There is no command `{name}`.{meant} `/help` lists them. The model was not asked."
        assert r.model.requests == []


async def test_mode_command_switches_and_tells_the_client_both_ways(tmp_path):
    async with went(tmp_path, [], prompt="/mode auto") as r:
        mode = await r.editor.wait_for(lambda u: isinstance(u, acp.CurrentModeUpdate))
        assert mode.current_mode_id == values(await told(r, lambda options: True))["mode"] == "auto"


async def test_clear_lets_the_model_forget_also_after_a_load(tmp_path):
    async with went(tmp_path, ["a", "b", "c"], prompt="one") as r:
        await r.says("/clear", "two")
        assert [m["content"] for m in r.messages(2)[1:]] == ["two"]
        await r.editor.load_session(r.editor.session_id, r.project)
        assert "a" in r.editor.text()
        await r.editor.prompt("three")
        assert [m["content"] for m in r.messages(3)[1:]] == ["two", "b", "three"]


@pytest.mark.parametrize("compaction", [True, False])
async def test_compact_replaces_the_conversation_by_a_summary(tmp_path, compaction):
    async with went(tmp_path, ["a" * 1000, "the summary", "b"], compaction=compaction, prompt="one") as r:
        assert "Compacted" in await r.says("/compact")
        updates = [u for u in r.editor.updates[r.editor.session_id] if isinstance(u, acp.CompactionUpdate)]
        assert [u.status for u in updates] == (["in_progress", "completed"] if compaction else [])
        await r.editor.prompt("two")
        messages = r.messages(3)
        assert "the summary" in messages[1]["content"] and messages[-1]["content"] == "two"
        assert "one" in messages[1]["content"] and "aaa" not in str(messages[1:]), "the first prompt stays"


async def test_compact_answers_also_where_the_model_fails_and_leaves_the_conversation_as_it_was(tmp_path):
    async with rig(tmp_path, ["a", Failure(400, {"error": {"message": "no"}}), "b"], compaction=True) as r:
        await r.editor.prompt("one")
        assert (await r.editor.prompt("/compact")).stop_reason == "end_turn"
        assert "could not be shortened" in r.editor.text()
        updates = [u for u in r.editor.updates[r.editor.session_id] if isinstance(u, acp.CompactionUpdate)]
        assert updates[-1].status == "failed"
        await r.editor.prompt("two")
        assert [m["content"] for m in r.messages(3)[1:]] == ["one", "a", "two"]


async def test_permissions_are_listed_and_revoked(tmp_path):
    call = Call("write", {"path": "a.txt", "content": "a"})
    script = [asks(call), "x", asks(Call("write", {"path": "b.txt", "content": "b"})), "y"]
    async with went(tmp_path, script, otherwise=allow_always) as r:
        assert "#1 always allow `edit *`" in await r.says("/permissions")
        await r.says("/permissions revoke 1", "go again")
        assert len(r.editor.permission_requests) == 2
