"""A key in the environment is enough: the table of known providers."""

import re
import socket
import threading
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import chain, repeat
from typing import Any

import pytest
from anyio import to_thread
from anyio.from_thread import start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.commands.extensions import list_models
from acp_agent.config import local_servers, provider_rows
from acp_agent.config.load import load_config
from acp_agent.config.provider_rows import row_of, table
from acp_agent.config.sources import merge
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import ConfigError
from acp_agent.handshake import needs_login
from acp_agent.llm.choose import choose_api, complete_base_url, host_of
from acp_agent.opening import known_models
from acp_agent.schema.acp import ConfigOptionUpdate
from acp_agent.testing.fake_model import Failure, FakeModel
from tests.tables import table as rows

from .kit import agent_rig, another

ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-ant-x"}
GROQ = {"GROQ_API_KEY": "gsk-x"}
OPENAI = {"OPENAI_API_KEY": "sk-x"}


def model_of(answer: Any) -> tuple[str, list[str]]:
    option = next(option for option in answer.config_options if option.id == "model")
    return option.current_value, [each.value for each in option.options]


def config_of(tmp_path, **environ):
    return load_config({"HOME": str(tmp_path), "ACP_CODER_KEYRING": "0", **environ})


@asynccontextmanager
async def with_keys(tmp_path, monkeypatch, script, **environ):
    """An agent with these variables alone. The rows lead to FakeModel."""
    (tmp_path / "project").mkdir()
    async with FakeModel(script, models=["first-model", "second-model"]) as model:
        moved = {name: row._replace(base_url=model.base_url) for name, row in table().items()}
        monkeypatch.setattr(provider_rows, "table", lambda: moved)
        own = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ACP_CODER_KEYRING": "0", **environ}
        async with another(own) as editor:
            yield editor, model, model_of(await editor.new_session(tmp_path / "project"))


async def test_one_key_is_enough(tmp_path, monkeypatch):
    async with with_keys(tmp_path, monkeypatch, ["Hello."], **ANTHROPIC) as (editor, model, offered):
        assert offered == ("anthropic/auto", ["anthropic/auto"])
        assert (await editor.prompt("hi")).stop_reason == "end_turn"
        request = model.requests[0]
        assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", "sk-ant-x")
        assert request.body["model"] == "first-model"
        await editor.wait_for(
            lambda update: isinstance(update, ConfigOptionUpdate) and model_of(update)[0] == "anthropic/first-model"
        )


async def test_with_several_keys_all_are_listed_and_each_can_be_chosen(tmp_path, monkeypatch):
    async with with_keys(tmp_path, monkeypatch, ["one", "two"], **GROQ, **ANTHROPIC) as (editor, model, offered):
        assert offered == ("anthropic/auto", ["anthropic/auto", "groq/auto"])
        for value in ("groq:llama", "groq/llama"):
            answer = await editor.client.set_config_option(editor.session_id, "model", value)
            assert model_of(answer)[0] == "groq/llama"
            await editor.prompt("hi")
        for request in model.requests:
            assert request.path == "/v1/chat/completions"
            assert (request.body["model"], request.headers["authorization"]) == ("llama", "Bearer gsk-x")


async def test_nothing_changes_for_whoever_has_a_server_configured(tmp_path):
    async with agent_rig(tmp_path, ["ok"], environ={**ANTHROPIC, "OPENAI_MODEL": "anthropic/claude-x"}) as r:
        model = "default/anthropic/claude-x"
        assert model_of(await r.editor.new_session(r.project)) == (model, [model])
        await r.editor.prompt("hi")
        assert r.request(1)["model"] == "anthropic/claude-x"


@rows(("environ", "config", "provider", "models"), [
    ({}, "", "default", ["default/auto"]), (OPENAI, "", "default", ["default/auto"]),
    (OPENAI | ANTHROPIC, "", "default", ["default/auto", "anthropic/auto"]),
    ({"GITHUB_TOKEN": "x"}, "", "default", ["default/auto"]),
    ({"GITHUB_TOKEN": "x", "OPENAI_MODEL": "github/openai/gpt-4.1"}, "", "github", ["github/openai/gpt-4.1"]),
    (OPENAI | {"OPENAI_MODEL": "openai/gpt-5"}, "", "openai", ["openai/gpt-5"]),
    ({"OPENAI_MODEL": "ollama:qwen3:8b"}, "", "ollama", ["ollama/qwen3:8b"]),
    ({"OPENAI_MODEL": "qwen3:8b"}, "", "default", ["default/qwen3:8b"]),
    ({"ACP_CODER_PROVIDER": "ollama"}, "", "ollama", ["ollama/auto"]),
    (ANTHROPIC, '[providers.default]\nbase_url = "http://localhost:1"\n', "default", ["default/auto"]),
    (
        ANTHROPIC, '[agent]\nmodel = "b"\n[providers.default]\nmodels = ["a"]\n[providers.other]\nmodels = ["b"]\n',
        "other", ["other/b", "default/a"],
    ),
    (ANTHROPIC, '[agent]\nmodel = "claude-x"\n', "anthropic", ["anthropic/claude-x"]),
    (
        {}, '[agent]\nprovider = "router"\nmodel = "openai/gpt-5"\n[providers.router]\n[providers.openai]\n', "router",
        ["router/openai/gpt-5"],
    ),
    ({}, '[agent]\nmodel = "openai/gpt-5"\n[providers.openai]\n', "openai", ["openai/gpt-5"]),
    ({}, '[agent]\nprovider = "a"\nmodel = "b:m"\n[providers.a]\n[providers.b]\n', "b", ["b/m"]),
    ({}, '[agent]\nprovider = "a"\nmodel = "a/m"\n[providers.a]\n', "a", ["a/m"]),
    ({}, '[agent]\nprovider = "a"\n[providers.a]\nmodels = ["a/m"]\n', "a", ["a/a/m"]),
    ({}, '[agent]\nprovider = "a"\nmodel = "a/m"\n[providers.a]\nmodels = ["a/m"]\n', "a", ["a/a/m"]),
    ({"GOOGLE_API_KEY": "x"}, "", "google", ["google/auto"]),
])  # fmt: skip
def test_the_default_is_the_one_that_is_meant(environ, config, provider, models, tmp_path):
    (path := tmp_path / "config.toml").write_text(config)
    loaded = config_of(tmp_path, ACP_CODER_CONFIG=str(path), **environ)
    assert loaded.settings.chosen_provider == provider
    assert known_models(loaded) == models


def test_a_key_says_from_which_variable_it_is_and_a_cloud_needs_none(tmp_path):
    loaded = config_of(tmp_path, GOOGLE_API_KEY="x")
    assert loaded.settings.providers["google"].api_key_env == "GOOGLE_API_KEY"
    assert "GOOGLE_API_KEY" in loaded.origin("providers.google.base_url")
    config = config_of(tmp_path, AWS_REGION="eu-west-1", OPENAI_MODEL="bedrock/us.anthropic.claude-x")
    assert (config.settings.chosen_provider, needs_login(merge(list(config.layers)))) == ("bedrock", False)
    unknown = config_of(tmp_path, ACP_CODER_PROVIDER="nobody")
    assert unknown.settings.provider("nobody") is None, "it is not made up"


def test_each_row_is_complete():
    for name, row in table().items():
        assert re.fullmatch(r"[a-z0-9]+", name), "no `/` and no `:`: they separate it from the model"
        assert (row.api or choose_api(row.base_url)) in WIRE_APIS
        if not row.base_url or "{" in row.base_url:
            assert (row.url or "{" in row.base_url) and row.hint, (
                "a variable says the address, and the hint what is in it"
            )
            continue
        assert complete_base_url(row.base_url).removesuffix("/v1") == row.base_url.removesuffix("/v1")
        assert row.named or not row.keys or all(key.endswith("_API_KEY") for key in row.keys), "the table is read by it"
        assert row.thinking in ("effort", "reasoning", "type", "switch", "none")
        assert row_of(f"{row.base_url}/x") == row


# --- servers on this machine -------------------------------------------------------------------------------------

SERVES = local_servers.serves
LM_STUDIO = [
    {"owned_by": "organization_owner", **entry}
    for entry in (
        {"id": "embed", "type": "embeddings"},
        {"id": "other", "type": "llm", "state": "not-loaded", "max_context_length": 32768},
        {"id": "qwen", "type": "vlm", "state": "loaded", "max_context_length": 32768, "loaded_context_length": 8192},
    )
]
LLAMA_CPP = [{"id": "qwen", "owned_by": "llamacpp"}]


@contextmanager
def on_this_machine(monkeypatch, **models):
    """FakeModel at the usual addresses of these servers, with these models; nothing at the others. In a thread of its
    own, since the configuration is read without an event loop."""
    monkeypatch.setattr(local_servers, "serves", SERVES)
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        moved = {name: row._replace(base_url="http://127.0.0.1:1", url=()) for name, row in table().items()}
        servers = {}
        for name, listed in models.items():
            model = FakeModel(["Hello."], models=listed)
            servers[name] = stack.enter_context(portal.wrap_async_context_manager(model))
            base_url = servers[name].base_url.removesuffix("/v1" if name == "ollama" else "")
            moved[name] = moved[name]._replace(base_url=base_url)
        monkeypatch.setattr(provider_rows, "table", lambda: moved)
        yield servers


@pytest.mark.parametrize(("name", "models", "path"), [
    ("ollama", ["qwen"], "/api/chat"), ("lmstudio", LM_STUDIO, "/v1/chat/completions"),
    ("llamacpp", LLAMA_CPP, "/v1/chat/completions"),
])  # fmt: skip
async def test_without_any_configuration_a_server_of_this_machine_is_used(tmp_path, monkeypatch, name, models, path):
    own = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ACP_CODER_KEYRING": "0"}
    with on_this_machine(monkeypatch, **{name: models}) as servers:
        async with another(own) as editor:
            assert model_of(await editor.new_session(tmp_path)) == (f"{name}/auto", [f"{name}/auto"])
            assert (await editor.prompt("hi")).stop_reason == "end_turn"
            assert f"No model is configured, so `{name}` at http://127.0.0.1:" in editor.text()
        (request,) = servers[name].requests
        assert (request.path, request.body["model"]) == (path, "qwen")


def test_the_first_is_the_default_and_each_can_be_chosen(tmp_path, monkeypatch):
    with on_this_machine(monkeypatch, ollama=["a"], llamacpp=LLAMA_CPP):
        config = config_of(tmp_path)
        assert known_models(config) == ["ollama/auto", "llamacpp/auto"]
        assert config.origin("providers.llamacpp.base_url").startswith("known providers")


@pytest.mark.parametrize(("models", "environ"), [
    ({"llamacpp": ["some-other-server"]}, {}), ({"lmstudio": LM_STUDIO[:1]}, {}), ({"ollama": []}, {}),
    ({"ollama": Failure(500, "oops")}, {}), ({"ollama": ["a"]}, {"OPENAI_API_KEY": "x"}),
    ({"ollama": ["a"]}, {"ANTHROPIC_API_KEY": "x"}), ({"ollama": ["a"]}, {"OPENAI_BASE_URL": "http://127.0.0.1:1"}),
    ({"ollama": ["a"]}, {"ACP_CODER_FIND_LOCAL_SERVERS": "false"}),
])  # fmt: skip
def test_other_servers_and_those_of_somebody_who_has_a_key_are_not_used(tmp_path, monkeypatch, models, environ):
    with on_this_machine(monkeypatch, **models) as servers:
        config = config_of(tmp_path, **environ)
        assert not {"ollama", "lmstudio", "llamacpp"} & set(config.found)
        assert not any(server.requests for server in servers.values())


def test_a_server_that_is_silent_is_passed_over(tmp_path, monkeypatch):
    with on_this_machine(monkeypatch), socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        rows = {name: row._replace(base_url=url) for name, row in provider_rows.table().items()}
        monkeypatch.setattr(provider_rows, "table", lambda: rows)
        monkeypatch.setattr(local_servers, "ANSWER_TIMEOUT", 0.01)
        assert not config_of(tmp_path).found


BIG = b"HTTP/1.1 200 OK\r\n\r\n" + b'{"models": [' + b" " * (11 * 1024 * 1024) + b'{"model": "x"}]}'
DEEP = b'HTTP/1.1 200 OK\r\n\r\n{"models": ' + b"[" * 100_000


@pytest.mark.parametrize("replies", [
    pytest.param([BIG], id="11 MB"), pytest.param([DEEP], id="deep"),
    pytest.param([b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"], id="redirect"),
    pytest.param(repeat(b" "), id="no end of the first line"),
    pytest.param(chain([b"HTTP/1.1 200 OK\r\n"], repeat(b"X: y\r\n")), id="no end of the head"),
    pytest.param(chain([b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"], repeat(b" ")), id="drip"),
    pytest.param([b"\x16\x03\x01 what is this"], id="no HTTP"), pytest.param([b""], id="nothing"),
])  # fmt: skip
def test_another_program_at_the_port_never_holds_up_the_start(monkeypatch, replies):
    monkeypatch.setattr(local_servers, "ANSWER_TIMEOUT", 0.1)
    ended = threading.Event()

    def answer(listener):
        while not ended.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    if connection.recv(1000):  # Otherwise somebody looked whether there is a server.
                        for reply in replies:
                            connection.sendall(reply)
                            if ended.wait(0.001):
                                return

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        listener.settimeout(0.1)
        served = pool.submit(answer, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert not SERVES(url, *table()["ollama"].local)
        ended.set()
        served.result(10)


@rows(("value", "url"), [
    ("0.0.0.0", "http://127.0.0.1:11434"), ("192.168.1.5", "http://192.168.1.5:11434"), ("box:1234", "http://box:1234"),
    ("http://box", "http://box:80"), ("https://box/ollama/", "https://box:443/ollama"), ("[::1]:5", "http://[::1]:5"),
    ("box:many", "http://box:11434"), (" ", "http://127.0.0.1:11434"), ("http://[::1", "http://[::1"),
])  # fmt: skip
def test_ollama_is_where_its_own_variable_says(value, url):
    assert table()["ollama"].address({"OLLAMA_HOST": value}) == url


AZURE = {"AZURE_OPENAI_API_KEY": "x"}


def test_azure_needs_its_address(tmp_path):
    assert not config_of(tmp_path, **AZURE).found
    found = config_of(tmp_path, **AZURE, AZURE_OPENAI_ENDPOINT="https://me.openai.azure.com/")
    assert (found.settings.chosen_provider, found.settings.providers["azure"].api) == ("azure", "responses")
    words = "`azure` has no address: set AZURE_OPENAI_ENDPOINT to the URL of the resource"
    with pytest.raises(ConfigError, match=words):
        config_of(tmp_path, **AZURE, OPENAI_MODEL="azure/gpt-5")


@rows(("name", "environ", "base_url"), [
    (
        "vertex", {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "us-east5"},
        "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5",
    ),
    (
        "vertex", {"ANTHROPIC_VERTEX_PROJECT_ID": "p"},
        "https://global-aiplatform.googleapis.com/v1/projects/p/locations/global",
    ),
    ("vertex", {}, ""),
    ("bedrock", {"AWS_DEFAULT_REGION": "eu-west-1"}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
    ("bedrock", {"AWS_REGION": "a", "AWS_DEFAULT_REGION": "b"}, "https://bedrock-runtime.a.amazonaws.com"),
    ("bedrock", {}, ""), ("bedrock", {"AWS_REGION": "evil.com/"}, ""), ("bedrock", {"AWS_REGION": "evil.com/?"}, ""),
    ("bedrock", {"AWS_REGION": "a@evil.com#"}, ""),
    ("vertex", {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "evil.com/"}, ""),
    ("vertex", {"GOOGLE_CLOUD_PROJECT": "../p"}, ""),
    (
        "vertex", {"GOOGLE_CLOUD_PROJECT": "example.com:p"},
        "https://global-aiplatform.googleapis.com/v1/projects/example.com:p/locations/global",
    ),
])  # fmt: skip
def test_the_address_of_a_cloud_is_made_of_its_variables(name, environ, base_url):
    assert table()[name].address(environ) == base_url


@given(st.text() | st.from_regex(r"[a-z0-9.:@/?#\\\[\]-]{1,12}", fullmatch=True))
def test_a_variable_never_leads_to_another_host(value):
    bedrock = table()["bedrock"].address({"AWS_REGION": value})
    vertex = table()["vertex"].address({"GOOGLE_CLOUD_PROJECT": value, "GOOGLE_CLOUD_LOCATION": value})
    for base_url, end in ((bedrock, ".amazonaws.com"), (vertex, "-aiplatform.googleapis.com")):
        try:
            assert not base_url or host_of(complete_base_url(base_url)).endswith(end)
        except ConfigError:
            pass  # Refused before anything is sent.


async def test_a_known_provider_is_there_when_a_fallback_names_it_beside_configured_ones(tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text(
        '[agent]\nprovider = "mine"\nfallback_models = ["groq/first-model"]\n'
        '[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\nmax_retries = 0\n'
    )
    config = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    async with with_keys(tmp_path, monkeypatch, ["Hello."], **GROQ, **config) as (editor, model, offered):
        assert offered[0] == "mine/m"
        assert (await editor.prompt("hi")).stop_reason == "end_turn"
        assert (model.requests[0].body["model"], model.requests[0].headers["authorization"]) == (
            "first-model", "Bearer gsk-x",
        )  # fmt: skip


async def test_the_list_of_models_begins_with_the_one_that_is_taken_without_a_choice(tmp_path, monkeypatch, capsys):
    async with FakeModel(models=["first-model", "second-model"]) as model:
        row = table()["mistral"]._replace(base_url=model.base_url, model="second-model")
        monkeypatch.setattr(provider_rows, "table", lambda: {"mistral": row})
        environ = {"HOME": str(tmp_path), "MISTRAL_API_KEY": "x", "ACP_CODER_KEYRING": "0"}
        assert await to_thread.run_sync(list_models.run, Namespace(provider="mistral"), environ) == 0
    assert capsys.readouterr().out.split() == ["mistral/second-model", "mistral/first-model"]


def test_a_server_that_cannot_be_asked_for_its_models_is_named_once(tmp_path, capsys):
    environ = {"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "x", "ACP_CODER_KEYRING": "0"}
    environ["ANTHROPIC_BASE_URL"] = "https://acp.invalid/v1"
    assert list_models.run(Namespace(provider="anthropic"), environ) == 1
    assert capsys.readouterr().err.count("anthropic") == 1
