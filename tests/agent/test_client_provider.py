"""A client sets the model provider: `providers/*` of ACP's draft, and `_meta.gateway` of `authenticate`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.agent.kit import connect, environ_for, on_stdio

pytestmark = [pytest.mark.anyio, on_stdio]
REMOTE = "https://api.openai.com/v1"
TOKEN = "gw-not-a-real-token-1234"
CONFIG = "[protocol]\nunstable = true\n"


@asynccontextmanager
async def client(
    tmp_path: Path, base_url: str = REMOTE, config: str = CONFIG, **more: Any
) -> AsyncIterator[FakeEditor]:
    (tmp_path / "config.toml").write_text(config)
    (tmp_path / "project").mkdir(exist_ok=True)
    environ = environ_for(tmp_path, base_url, ACP_CODER_CONFIG=str(tmp_path / "config.toml"), **more.pop("environ", {}))
    async with connect(environ, **more) as (editor, _):
        await editor.start()
        yield editor


def given(model: FakeModel, **more: Any) -> dict[str, Any]:
    about = {"providerId": "main", "apiType": "openai", "baseUrl": model.base_url, "headers": {"X-Gateway": TOKEN}}
    return {**about, **more}


async def test_requests_go_where_the_client_says_with_its_headers_and_no_key_of_ours(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": "sk-ours-and-not-theirs", "ACP_CODER_MODEL": "fake-model"}
    async with FakeModel(["Hello."]) as model, client(tmp_path, environ=env) as editor:
        (main,) = (await editor.request("providers/list", {}))["providers"]
        current = {"apiType": "openai", "baseUrl": REMOTE}
        assert main == {
            "providerId": "main", "supported": ["anthropic", "openai"], "required": False, "current": current
        }  # fmt: skip
        assert await editor.request("providers/set", given(model)) == {}
        listed = await editor.request("providers/list", {})
        assert listed["providers"][0]["current"] == {"apiType": "openai", "baseUrl": model.base_url}
        assert TOKEN not in str(listed)
        await editor.new_session(tmp_path / "project")
        assert (await editor.prompt("Hi")).stop_reason == "end_turn"
        headers = {name.lower(): value for name, value in model.requests[0].headers.items()}
        assert headers["x-gateway"] == TOKEN
        assert "authorization" not in headers
        assert model.requests[0].body["model"] == "fake-model"


async def test_a_disabled_provider_is_not_used_and_may_be_set_again(tmp_path: Path) -> None:
    async with FakeModel(["Hello."]) as model, client(tmp_path, model.base_url) as editor:
        for name in ("main", "unknown", "main"):
            assert await editor.request("providers/disable", {"providerId": name}) == {}
        (main,) = (await editor.request("providers/list", {}))["providers"]
        assert main.get("current") is None
        with pytest.raises(PeerError) as error:
            await editor.new_session(tmp_path / "project")
        assert error.value.code == -32000
        await editor.request("providers/set", given(model))
        await editor.new_session(tmp_path / "project")
        assert (await editor.prompt("Hi")).stop_reason == "end_turn"


@pytest.mark.parametrize(
    "wrong",
    [
        {"providerId": "other"},
        {"apiType": "bedrock"},
        {"baseUrl": "ftp://a"},
        {"baseUrl": "a.example"},
        {"baseUrl": "https://a.example/?key=1"},
        {"headers": {"X Y": "a"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X": 7}},
    ],
)
async def test_what_cannot_be_set_is_refused_and_changes_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with FakeModel([]) as model, client(tmp_path, model.base_url) as editor:
        with pytest.raises(PeerError) as error:
            await editor.request("providers/set", given(model, **wrong))
        assert error.value.code == -32602
        (main,) = (await editor.request("providers/list", {}))["providers"]
        assert main["current"] == {"apiType": "openai", "baseUrl": model.base_url}


async def test_off_it_is_not_there(tmp_path: Path) -> None:
    async with FakeModel([]) as model, client(tmp_path, config="") as editor:
        for method, params in (("list", {}), ("set", given(model)), ("disable", {"providerId": "main"})):
            with pytest.raises(PeerError) as error:
                await editor.request(f"providers/{method}", params)
            assert error.value.code == -32601


async def test_what_it_gave_is_hidden_from_model_and_disk(tmp_path: Path) -> None:
    command = f"echo {TOKEN[:8]}''{TOKEN[8:]}"
    script: list[Answer | str] = [Answer(tool_calls=(Call("bash", {"command": command}),)), "Done."]
    headers = {"X-Api-Key": TOKEN, "Authorization": "Bearer another-not-a-token"}
    env = {"ACP_CODER_MODE": "auto"}
    async with FakeModel(script) as model, client(tmp_path, environ=env) as editor:
        await editor.request("providers/set", given(model, headers=headers))
        await editor.new_session(tmp_path / "project")
        await editor.prompt("Say it")
        assert TOKEN not in str(model.requests[1].body)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file


GATEWAY = acp.ClientCapabilities(auth=acp.AuthCapabilities(meta={"gateway": True}))


async def test_a_gateway_is_offered_to_clients_that_have_one_and_needs_no_login(tmp_path: Path) -> None:
    env = {"ACP_CODER_MODEL": "fake-model"}
    async with FakeModel(["Hello."]) as model, client(tmp_path, config="", capabilities=GATEWAY, environ=env) as editor:
        assert editor.initialized is not None
        offered = {each.id: each.meta for each in editor.initialized.auth_methods}
        assert offered["gateway"] == {"gateway": {"protocol": "anthropic"}}
        assert offered["gateway-openai"] == {"gateway": {"protocol": "openai"}}
        with pytest.raises(PeerError) as error:
            await editor.new_session(tmp_path / "project")
        assert error.value.code == -32000
        for wrong in (None, {}, {"gateway": 7}, {"gateway": {"baseUrl": 7}}, {"gateway": {"baseUrl": "file:///a"}}):
            with pytest.raises(PeerError) as error:
                await editor.request("authenticate", {"methodId": "gateway-openai", "_meta": wrong})
            assert error.value.code == -32602
        gateway = {"baseUrl": model.base_url, "headers": {"X-Gateway": TOKEN}, "providerName": "ours"}
        await editor.request("authenticate", {"methodId": "gateway-openai", "_meta": {"gateway": gateway}})
        await editor.new_session(tmp_path / "project")
        assert (await editor.prompt("Hi")).stop_reason == "end_turn"


async def test_other_clients_are_offered_none(tmp_path: Path) -> None:
    async with client(tmp_path, config="") as editor:
        assert editor.initialized is not None
        assert [each.id for each in editor.initialized.auth_methods] == ["api-key"]
