"""`initialize`, capabilities, authentication."""

import json
from pathlib import Path

import pytest

from acp_agent.config.credentials import credentials_file, store_key
from acp_agent.errors import PeerError
from acp_agent.handshake import answer_initialize
from acp_agent.testing.fake_editor import FakeEditor

from .kit import agent_rig, another, connect, environ_for, on_stdio, refused, rig

CAPTURED = sorted(Path(__file__).parents[1].joinpath("captured").glob("acp-*.json"))
REMOTE = "https://models.invalid/v1"


@pytest.mark.parametrize("version", [1, 0, 2, 99, 65535])
async def test_the_version_is_one_for_a_client_of_v1_whatever_was_asked(tmp_path, version):
    """What such a client says of itself no client of v2 says."""
    async with connect(environ_for(tmp_path, "http://localhost:1/v1")) as (editor, _):
        for own in ({"clientCapabilities": {}}, {"clientInfo": {"name": "old", "version": "1"}}):
            answer = await editor.request("initialize", {"protocolVersion": version, **own})
            assert answer["protocolVersion"] == 1 and "agentCapabilities" in answer and "capabilities" not in answer


@pytest.mark.parametrize("version", ["1", 1.0, True, None, -1, 65536, [], {}])
async def test_an_impossible_version_is_invalid_params(tmp_path, version):
    async with connect(environ_for(tmp_path, "http://localhost:1/v1")) as (editor, _):
        with refused(-32602):
            await editor.request("initialize", {"protocolVersion": version})


@pytest.mark.parametrize("capabilities", [
    None, {}, {"fs": None, "terminal": None},
    {"fs": {"readTextFile": "yes"}, "terminal": "garbage", "session": 7, "unknown": {"a": 1}}, {"_meta": "garbage"},
    "garbage",
])  # fmt: skip
async def test_odd_capabilities_count_as_unsupported(tmp_path, capabilities):
    async with connect(environ_for(tmp_path, "http://localhost:1/v1")) as (editor, agent):
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, "extra": 1, "_meta": {"traceparent": "x"}}
        await editor.request("initialize", params)
        assert not agent._capabilities.terminal
        assert not agent._capabilities.fs.write_text_file


@pytest.mark.parametrize("file", CAPTURED, ids=lambda file: file.stem)
async def test_real_clients_are_answered(tmp_path, file):
    async with connect(environ_for(tmp_path, "http://localhost:1/v1")) as (editor, _):
        assert (await editor.start(json.loads(file.read_text()))).agent_capabilities.load_session


async def test_a_local_server_needs_no_login(tmp_path):
    async with agent_rig(tmp_path) as r:
        answer = await r.editor.start()
        assert [method.name for method in answer.auth_methods] == ["No login"]
        assert answer.agent_capabilities.auth.logout is None
        assert await r.editor.request("authenticate", {"methodId": "api-key"}) == {}
        for method in ("authenticate", "logout"):
            with pytest.raises(PeerError):
                await r.editor.request(method, {"methodId": "login"})


async def test_terminal_login_is_offered_only_where_the_client_has_it(tmp_path):
    config = {"providers": {"default": {"base_url": REMOTE}}}

    def ids(capabilities: object) -> list[str]:
        answer = answer_initialize({"protocolVersion": 1, "clientCapabilities": capabilities}, config)
        return [method["id"] for method in answer["authMethods"]]

    assert ids({}) == ["api-key"]
    assert ids({"auth": {"terminal": True}}) == ["api-key", "login"]
    answer = answer_initialize({"protocolVersion": 1, "clientCapabilities": {"_meta": {"terminal-auth": True}}}, config)
    assert answer["authMethods"][0]["_meta"]["terminal-auth"]["args"][-1] == "login"
    assert answer["agentCapabilities"]["auth"] == {"logout": {}}
    answer = answer_initialize({"protocolVersion": 1}, {**config, "protocol": {"unstable": True}})
    assert answer["agentCapabilities"]["auth"] == {"status": {}, "logout": {}}


async def test_without_a_key_sessions_need_a_login_and_nothing_else_does(tmp_path):
    async with another(environ_for(tmp_path, REMOTE)) as editor:
        for method, params in (
            ("session/new", {"cwd": str(tmp_path), "mcpServers": []}), ("authenticate", {"methodId": "api-key"}),
        ):  # fmt: skip
            with pytest.raises(PeerError) as error:
                await editor.request(method, params)
            assert error.value.code == -32000
            assert "OPENAI_API_KEY" in error.value.message and "acp-coder login" in error.value.message
        assert (await editor.client.list_sessions()).sessions == []


@on_stdio
async def test_a_key_stored_meanwhile_is_found_by_authenticate_and_forgotten_by_logout(tmp_path):
    environ = environ_for(tmp_path, REMOTE)
    async with another(environ) as editor:
        store_key("default", "sk-test-not-a-key", environ)
        assert credentials_file(environ).stat().st_mode & 0o777 == 0o600
        await editor.client.authenticate("api-key")
        await editor.new_session(tmp_path)
        await editor.client.logout()
        with refused(-32000):
            await editor.new_session(tmp_path)
        assert json.loads(credentials_file(environ).read_text()) == {}


@on_stdio
async def test_the_status_of_the_login_is_told_and_so_are_its_changes_to_who_asked(tmp_path):
    (tmp_path / "config.toml").write_text("[protocol]\nunstable = true\n")
    more = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    environ = environ_for(tmp_path, REMOTE, **more)
    async with connect(environ) as (editor, _):
        answer = await editor.start()
        assert answer.agent_capabilities.auth.status is not None
        assert await editor.request("auth/status", {}) == {"state": "unauthenticated"}
        store_key("default", "sk-test-not-a-key", environ)
        await editor.client.authenticate("api-key")
        await editor.client.authenticate("api-key")
        await editor.client.logout()
        told = [line["params"] for line in editor.lines("from_agent", "auth/status_update")]
        assert told == [{"state": "authenticated"}, {"state": "unauthenticated"}]
    async with another(environ_for(tmp_path, "http://localhost:1/v1", **more)) as editor:
        assert await editor.request("auth/status", {}) == {"state": "not_required"}
    async with connect(environ_for(tmp_path, REMOTE)) as (editor, _):
        answer = await editor.start()
        assert answer.agent_capabilities.auth.status is None
        with refused(-32601):
            await editor.request("auth/status", {})


@on_stdio
async def test_after_logout_a_key_of_the_environment_counts_only_after_authenticate(tmp_path):
    async with another(environ_for(tmp_path, REMOTE, OPENAI_API_KEY="sk-test-not-a-key")) as editor:
        await editor.new_session(tmp_path)
        await editor.client.logout()
        with pytest.raises(PeerError):
            await editor.new_session(tmp_path)
        await editor.client.authenticate("api-key")
        await editor.new_session(tmp_path)


@pytest.mark.parametrize("method_id", ["login", "nonsense", ""])
async def test_other_methods_cannot_be_authenticated_here(tmp_path, method_id):
    async with another(environ_for(tmp_path, REMOTE, OPENAI_API_KEY="sk-test-not-a-key")) as editor:
        with refused(-32602):
            await editor.request("authenticate", {"methodId": method_id})


async def test_a_second_initialize_leaves_sessions_alone(tmp_path):
    async with rig(tmp_path, ["ok"]) as r:
        await r.editor.start()
        assert (await r.editor.prompt("hi")).stop_reason == "end_turn"


@on_stdio
async def test_requests_before_initialize_are_answered_and_unknown_methods_are_not_found(tmp_path):
    async with connect(environ_for(tmp_path, "http://localhost:1/v1")) as (editor, _):
        assert (await editor.request("session/list", {}))["sessions"] == []
        for method in ("session/archive", "_vendor/thing", "nonsense", "session/cancelled"):
            with refused(-32601):
                assert not await editor.request(method, {}), method


async def test_unknown_notifications_are_ignored(tmp_path):
    async with agent_rig(tmp_path) as r:
        for method in ("_vendor/x", "$/y", "session/cancel", "nonsense"):
            r.editor.notify(method, {"sessionId": 7})
        r.editor.notify("session/cancel", {"sessionId": "unknown"})
        assert (await r.editor.client.list_sessions()).sessions == []


@on_stdio
async def test_a_broken_configuration_is_an_error_with_file_and_line(tmp_path):
    (file := tmp_path / "config.toml").write_text("[agent]\nmodle = 'x'\n")
    async with connect(environ_for(tmp_path, "http://localhost:1/v1", ACP_CODER_CONFIG=str(file))) as (editor, _):
        with pytest.raises(PeerError) as error:
            await editor.request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        assert f"{file}:2" in error.value.message and "agent.modle" in error.value.message


def test_the_rig_checks_every_line_against_the_schema():
    assert FakeEditor.schema_file is not None
    assert FakeEditor.schema_file.exists()
