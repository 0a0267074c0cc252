"""A client sets the model provider: `providers/*` of ACP's draft, and `_meta.gateway` of `authenticate`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Failure, FakeModel
from tests.agent.kit import another, asks, bash, environ_for, on_stdio, put, refused

pytestmark = on_stdio
REMOTE = "https://api.openai.com/v1"
TOKEN = "gw-not-a-real-token-1234"
CONFIG = "[protocol]\nunstable = true\n"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again: the settings of a provider that the client has set are the defaults."""
    monkeypatch.setattr("acp_agent.llm.transport.retry.next_delay", lambda *_: None)


@asynccontextmanager
async def client(
    tmp_path: Path, base_url: str = REMOTE, config: str = CONFIG, **more: Any
) -> AsyncIterator[FakeEditor]:
    (tmp_path / "config.toml").write_text(config)
    (tmp_path / "project").mkdir(exist_ok=True)
    environ = environ_for(tmp_path, base_url, ACP_CODER_CONFIG=str(tmp_path / "config.toml"), **more.pop("environ", {}))
    async with another(environ, **more) as editor:
        yield editor


def given(model: FakeModel, **more: Any) -> dict[str, Any]:
    about = {"providerId": "main", "apiType": "openai", "baseUrl": model.base_url, "headers": {"X-Gateway": TOKEN}}
    return {**about, **more}


async def prompted(editor: FakeEditor, tmp_path: Path, model: FakeModel, **more: Any) -> None:
    """A turn of a new session at the provider that the client has set."""
    await editor.request("providers/set", given(model, **more))
    await editor.new_session(tmp_path / "project")
    assert (await editor.prompt("Hi")).stop_reason == "end_turn"


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
        assert headers["x-gateway"] == TOKEN and "authorization" not in headers
        assert model.requests[0].body["model"] == "fake-model"


async def test_a_disabled_provider_is_not_used_and_may_be_set_again(tmp_path: Path) -> None:
    async with FakeModel(["Hello."]) as model, client(tmp_path, model.base_url) as editor:
        for name in ("main", "unknown", "main"):
            assert await editor.request("providers/disable", {"providerId": name}) == {}
        (main,) = (await editor.request("providers/list", {}))["providers"]
        assert main.get("current") is None
        with refused(-32000):
            await editor.new_session(tmp_path / "project")
        await prompted(editor, tmp_path, model)


@pytest.mark.parametrize("wrong", [
    {"providerId": "other"}, {"apiType": "bedrock"}, {"baseUrl": "ftp://a"}, {"baseUrl": "a.example"},
    {"baseUrl": "https://a.example/?key=1"}, {"baseUrl": f"https://me:{TOKEN}@a.example/"}, {"baseUrl": "http://[::1"},
    {"baseUrl": "http://a.example:99999/v1"}, {"baseUrl": "http://a.example\0/"}, {"headers": {"X Y": "a"}},
    {"headers": {f"Authorization: Bearer {TOKEN}": ""}}, {"headers": {"X": "a\r\nY: b"}}, {"headers": {"X": " a"}},
    {"headers": {"X": "\u00e9"}}, {"headers": {"X": 7}}, {"headers": {"Content-Length": "3"}},
    {"headers": {"Transfer-Encoding": "chunked"}},
])  # fmt: skip
async def test_what_cannot_be_set_is_refused_and_changes_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with FakeModel([]) as model, client(tmp_path, model.base_url) as editor:
        with pytest.raises(PeerError) as error:
            await editor.request("providers/set", given(model, **wrong))
        assert error.value.code == -32602
        assert TOKEN not in str(error.value)
        (main,) = (await editor.request("providers/list", {}))["providers"]
        assert main["current"] == {"apiType": "openai", "baseUrl": model.base_url}


async def test_off_it_is_not_there(tmp_path: Path) -> None:
    async with FakeModel([]) as model, client(tmp_path, config="") as editor:
        for method, params in (("list", {}), ("set", given(model)), ("disable", {"providerId": "main"})):
            with refused(-32601):
                await editor.request(f"providers/{method}", params)


@pytest.mark.usefixtures("at_once")
async def test_a_gateway_far_away_needs_no_key_and_none_of_the_users_is_sent_there(tmp_path: Path) -> None:
    """Keys under the name that the client's provider has, too."""
    config = f'{CONFIG}[providers.client]\napi_key = "sk-of-the-user-1234567"\nmodels = ["mine"]\n'
    env = {"ACP_CODER_MODEL": "fake-model", "OPENAI_API_KEY": "sk-ours-and-not-theirs"}
    stored = tmp_path / ".config" / "acp-coder" / "credentials.json"
    put(stored, '{"client": "sk-stored-for-that-name"}')
    async with FakeModel(["Hello."]) as model, client(tmp_path, config=config, environ=env) as editor:
        await prompted(editor, tmp_path, model)
        assert "authorization" not in {name.lower() for name in model.requests[0].headers}
        far = "http://gateway.invalid/v1"
        with pytest.raises(PeerError, match=far):  # It was asked.
            await prompted(editor, tmp_path, model, baseUrl=far)


@pytest.mark.usefixtures("at_once")
async def test_no_other_provider_stands_in_for_it(tmp_path: Path) -> None:
    async with FakeModel([]) as other, FakeModel([Failure(500, {"error": {"message": "broken"}})] * 2) as model:
        config = f'{CONFIG}[agent]\nfallback_models = ["other/a", "b"]\n[providers.other]\n'
        config += f'base_url = "{other.base_url}"\n'
        async with client(tmp_path, config=config, environ={"ACP_CODER_MODEL": "fake-model"}) as editor:
            with pytest.raises(PeerError):
                await prompted(editor, tmp_path, model)
        assert {each.body["model"] for each in model.requests} == {"fake-model", "b"}
        assert other.requests == []


async def test_what_a_gateway_says_of_its_headers_is_hidden(tmp_path: Path) -> None:
    refusal = Failure(401, {"error": {"message": f"{TOKEN} is not known"}})
    async with FakeModel([refusal]) as model, client(tmp_path, environ={"ACP_CODER_MODEL": "fake-model"}) as editor:
        with pytest.raises(PeerError) as error:
            await prompted(editor, tmp_path, model)
        assert "is not known" in error.value.message and TOKEN not in error.value.message


async def test_what_it_gave_is_hidden_from_model_and_disk(tmp_path: Path) -> None:
    script: list[Answer | str] = [asks(bash(f"echo {TOKEN[:8]}''{TOKEN[8:]}")), "Done."]
    headers = {"X-Api-Key": TOKEN, "Authorization": "Bearer another-not-a-token"}
    async with FakeModel(script) as model, client(tmp_path, environ={"ACP_CODER_MODE": "auto"}) as editor:
        await prompted(editor, tmp_path, model, headers=headers)
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
        with refused(-32000):
            await editor.new_session(tmp_path / "project")
        for wrong in (None, {}, {"gateway": 7}, {"gateway": {"baseUrl": 7}}, {"gateway": {"baseUrl": "file:///a"}}):
            with refused(-32602):
                await editor.request("authenticate", {"methodId": "gateway-openai", "_meta": wrong})
        gateway = {"baseUrl": model.base_url, "headers": {"X-Gateway": TOKEN}, "providerName": "ours"}
        await editor.request("authenticate", {"methodId": "gateway-openai", "_meta": {"gateway": gateway}})
        await editor.new_session(tmp_path / "project")
        assert (await editor.prompt("Hi")).stop_reason == "end_turn"


async def test_a_logout_and_another_login_end_that_of_a_gateway(tmp_path: Path) -> None:
    env = {"ACP_CODER_MODEL": "fake-model"}
    async with FakeModel([]) as model, client(tmp_path, config="", capabilities=GATEWAY, environ=env) as editor:
        log_in = {"methodId": "gateway", "_meta": {"gateway": {"baseUrl": model.base_url}}}
        await editor.request("authenticate", log_in)
        with refused(-32000):  # There is no key, so what was before stays.
            await editor.request("authenticate", {"methodId": "api-key"})
        await editor.new_session(tmp_path / "project")
        await editor.request("logout", {})
        with refused(-32000):
            await editor.new_session(tmp_path / "project")
        await editor.request("authenticate", log_in)
        await editor.new_session(tmp_path / "project")


async def test_a_login_with_a_key_ends_that_of_a_gateway(tmp_path: Path) -> None:
    env = {"ACP_CODER_MODEL": "fake-model", "OPENAI_API_KEY": "sk-ours-and-not-theirs"}
    async with FakeModel([]) as model, client(tmp_path, config="", capabilities=GATEWAY, environ=env) as editor:
        log_in = {"methodId": "gateway", "_meta": {"gateway": {"baseUrl": model.base_url}}}
        for request, provider in ((log_in, "client"), ({"methodId": "api-key"}, "default")):
            await editor.request("authenticate", request)
            session = await editor.new_session(tmp_path / "project")
            (option,) = (each for each in session.config_options or () if each.id == "model")
            assert str(option.current_value).startswith(f"{provider}/")


async def test_other_clients_are_offered_none(tmp_path: Path) -> None:
    async with client(tmp_path, config="") as editor:
        assert editor.initialized is not None
        assert [each.id for each in editor.initialized.auth_methods] == ["api-key"]
