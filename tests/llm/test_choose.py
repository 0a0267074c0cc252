import pytest

from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import ConfigError
from acp_agent.lazy import load
from acp_agent.llm import choose
from acp_agent.llm.base import ThoughtLevel


@pytest.mark.parametrize(("base_url", "api"), [
    (None, "responses"), ("", "responses"), ("https://api.openai.com/v1", "responses"),
    ("https://API.OpenAI.com./v1/", "responses"), ("https://acme.openai.azure.com/openai/v1", "responses"),
    ("https://acme.cognitiveservices.azure.com", "responses"),
    ("https://acme.services.ai.azure.com/openai/v1/", "responses"), ("https://api.anthropic.com", "messages"),
    ("https://api.anthropic.com.evil.example/v1", "chat"), ("https://openrouter.ai/api/v1", "chat"),
    ("http://localhost:11434/v1", "ollama"), ("localhost:11434", "ollama"), ("http://10.0.0.5:11434/v1", "chat"),
    ("http://localhost:8080/v1", "chat"), ("localhost:8080", "chat"),
    ("https://api.openai.com.evil.example/v1", "chat"), ("https://evil.example/api.openai.com", "chat"),
    ("https://notopenai.azure.com", "chat"), ("http://[::1", "chat"),
])  # fmt: skip
def test_choose_api(base_url: str | None, api: str) -> None:
    assert choose.choose_api(base_url) == api


@pytest.mark.parametrize(("base_url", "needed"), [
    (None, True), ("https://api.openai.com/v1", True), ("http://192.168.1.5:11434", True),
    ("http://localhost:11434/v1", False), ("localhost:11434", False), ("http://127.0.0.1:8000", False),
    ("http://127.9.9.9", False), ("http://[::1]:8000/v1", False), ("http://ollama.localhost/v1", False),
    ("unix:/run/model.sock", False), ("unix:///run/model.sock", False), ("http://localhost.example.com", True),
    ("http://127.0.0.1.example.com", True), ("https://user:localhost@example.com/v1", True),
])  # fmt: skip
def test_needs_key(base_url: str | None, needed: bool) -> None:
    assert choose.needs_key(base_url) is needed


@pytest.mark.parametrize(("base_url", "complete"), [
    (None, "https://api.openai.com/v1"), ("  ", "https://api.openai.com/v1"),
    ("https://api.openai.com", "https://api.openai.com/v1"), ("http://localhost:11434", "http://localhost:11434/v1"),
    ("http://localhost:11434/", "http://localhost:11434/v1"), ("localhost:11434", "http://localhost:11434/v1"),
    ("example.com/api", "https://example.com/api"), ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
    ("https://acme.openai.azure.com", "https://acme.openai.azure.com/openai/v1"),
    ("https://acme.openai.azure.com/openai/", "https://acme.openai.azure.com/openai/v1"),
    ("https://example.com/v1?key=1", "https://example.com/v1?key=1"),
])  # fmt: skip
def test_complete_base_url(base_url: str | None, complete: str) -> None:
    assert choose.complete_base_url(base_url) == complete


@pytest.mark.parametrize(
    "base_url", ["ftp://localhost/v1", "http://", "http://[::1", "http://a:port/v1", "http://a b/v1", "http://a\n/v1"]
)
def test_what_is_no_url_is_a_config_error(base_url: str) -> None:
    with pytest.raises(ConfigError, match="is not an http or https URL"):
        choose.complete_base_url(base_url)


def test_azure_and_loopback() -> None:
    assert choose.is_azure("https://acme.openai.azure.com/openai/v1") and not choose.is_azure(
        "https://api.openai.com/v1"
    )
    assert choose.is_loopback("http://localhost:1") and not choose.is_loopback(None)


@pytest.mark.parametrize(("model", "reasons"), [
    ("o3", True), ("o4-mini", True), ("gpt-5", True), ("gpt-5.2-codex", True), ("openai/gpt-5-mini", True),
    ("gpt-4o", False), ("gpt-4.1", False), ("o3xyz", False), ("ollama", False), ("qwen3", False),
])  # fmt: skip
def test_is_reasoning_model(model: str, reasons: bool) -> None:
    assert choose.is_reasoning_model(model) is reasons


@pytest.mark.parametrize(("model", "level", "openai", "effort"), [
    ("gpt-5", None, True, None), ("gpt-5", "high", True, "high"), ("qwen3", "low", False, "low"),
    ("qwen3", "off", False, None), ("gpt-5", "off", True, None), ("gpt-5.1", "off", True, "none"),
    ("gpt-5.1-2025-11-13", "off", True, "none"), ("gpt-5.1-codex", "off", True, None), ("gpt-5.1", "off", False, None),
])  # fmt: skip
def test_reasoning_effort(model: str, level: ThoughtLevel | None, openai: bool, effort: str | None) -> None:
    assert choose.reasoning_effort(model, level, openai=openai) == effort


def test_every_row_names_a_provider_and_what_is_tested_instead_of_a_server():
    assert len(WIRE_APIS) >= 8
    for api, row in WIRE_APIS.items():
        made = row.load()
        assert {"stream", "models", "aclose"} <= set(dir(made)), api
        assert not row.fake or load(row.fake).paths, api
        assert choose.needs_key("https://models.example", api) != row.keyless
