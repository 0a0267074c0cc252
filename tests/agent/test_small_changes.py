"""Small changes of ACP after the pinned schema, by the ids of their requirements (SM-...)."""

import pytest

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


@pytest.mark.parametrize("method", ["nes/start", "nes/suggest", "positionEncoding/set"])
async def test_sm_6_next_edit_suggestions_are_gone(tmp_path, method):
    async with agent_rig(tmp_path) as r:
        assert "nes" not in str(r.editor.transcript[1].message) and "positionEncoding" not in str(
            r.editor.transcript[1]
        )
        with refused(-32601):
            await r.editor.request(method, {})
