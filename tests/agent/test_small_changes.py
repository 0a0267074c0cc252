"""Small changes of ACP after the pinned schema, by the ids of their requirements (SM-...)."""

import pytest

from acp_agent.schema import acp
from acp_agent.schema.decode import decode_params, decode_result
from tests.house.imports import ROOT

from .kit import agent_rig, connect, environ_for, on_stdio, refused


@on_stdio
async def test_sm_1_the_last_initialize_before_anything_else_counts(tmp_path):
    async with connect(environ_for(tmp_path, "http://127.0.0.1:9/v1")) as (editor, agent):
        for terminal in (True, False):
            await editor.request("initialize", {"protocolVersion": 1, "clientCapabilities": {"terminal": terminal}})
            assert agent._capabilities.terminal is terminal


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork"])
async def test_sm_2_a_variable_that_stands_twice_is_refused_by_its_name(tmp_path, method):
    async with agent_rig(tmp_path) as r:
        await r.editor.new_session(r.project)
        entries = [{"name": name, "value": str(at)} for at, name in enumerate(("A", "TOKEN", "TOKEN", "B"))]
        server = {"name": "x", "command": "/bin/touch", "args": [str(tmp_path / "made")], "env": entries}
        params = {"cwd": str(r.project), "mcpServers": [server], "sessionId": r.editor.session_id}
        with refused(-32602, "$.mcpServers[0]: `env` has more than one `TOKEN`"):
            await r.editor.request(method, params)
        assert not (tmp_path / "made").exists()


def test_sm_3_costs_in_any_unit_are_read():
    update = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 3.5, "currency": "credits"}}
    note = decode_params("session/update", {"sessionId": "s", "update": update}, "client")
    assert note.update.cost == acp.Cost(amount=3.5, currency="credits")


def test_sm_4_our_clients_pass_over_options_of_an_unknown_type():
    select = {"id": "a", "name": "A", "type": "select", "currentValue": "x", "options": [{"value": "x", "name": "X"}]}
    odd = {"id": "b", "name": "B", "type": "_dial", "currentValue": 3}
    made = decode_result("session/new", {"sessionId": "s", "configOptions": [odd, select]}, "agent")
    assert [each.id for each in made.config_options] == ["a"]


async def test_sm_4_we_offer_selects_alone_to_who_says_nothing(tmp_path):
    async with agent_rig(tmp_path) as r:
        made = await r.editor.new_session(r.project)
        assert {type(each) for each in made.config_options} == {acp.SessionConfigSelect}


def test_sm_5_no_client_of_ours_logs_in_by_itself():
    """`authenticate` is asked for by a user's choice among `authMethods`, so never where there is none."""
    callers = [
        path for path in sorted((ROOT / "acp_agent").rglob("*.py"))
        if ".authenticate(" in path.read_text(encoding="utf-8")
    ]  # fmt: skip
    assert [path.name for path in callers] == ["agent.py"]  # The agent's own side of it.


@pytest.mark.parametrize("method", ["nes/start", "nes/suggest", "positionEncoding/set"])
async def test_sm_6_next_edit_suggestions_are_gone(tmp_path, method):
    async with agent_rig(tmp_path) as r:
        assert "nes" not in str(r.editor.transcript[1].message) and "positionEncoding" not in str(
            r.editor.transcript[1]
        )
        with refused(-32601):
            await r.editor.request(method, {})
