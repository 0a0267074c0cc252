"""docs/model-recipes.md: what a reader types, and the block below it, choose the provider that is meant."""

import re
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.load import load_config
from acp_agent.config.model import Settings
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.llm.base import UsageReport
from acp_agent.llm.choose import choose_api
from acp_agent.llm.prices import listed_cost

PAGE = Path(__file__).parents[2] / "docs/model-recipes.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEANT = {
    "Ollama": ("ollama", "ollama", "qwen3:8b"), "LM Studio": ("lmstudio", "chat", "qwen3-8b"),
    "llama.cpp": ("llamacpp", "chat", ""), "vLLM": ("vllm", "chat", ""), "LiteLLM": ("litellm", "chat", ""),
    "OpenRouter": ("openrouter", "chat", "anthropic/claude-sonnet-4.5"),
    "Anthropic": ("anthropic", "messages", "claude-sonnet-4-5"), "OpenAI": ("default", "responses", "gpt-5.1"),
    "Gemini": ("google", "chat", "gemini-flash-latest"), "Azure": ("azure", "responses", "my-deployment"),
    "Bedrock": ("bedrock", "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "Vertex": ("vertex", "vertex", "claude-sonnet-4-5@20250929"),
}  # fmt: skip
"""Recipe -> provider, API, and the model, if one is named."""
LISTED = ("OpenRouter", "Anthropic", "OpenAI", "Gemini", "Bedrock", "Vertex")
"""Whose prices are known."""


def recipes() -> dict[str, str]:
    _, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    return {title: text for title, _, text in (section.partition("\n") for section in sections)}


def exported(text: str) -> dict[str, str]:
    """What the shell blocks export."""
    lines = [line for kind, block in BLOCK.findall(text) if kind == "sh" for line in block.splitlines()]
    words = [word for line in lines if line.startswith("export ") for word in line.partition(" #")[0].split()[1:]]
    return dict(word.split("=", 1) for word in words)


def chosen(settings: Settings) -> tuple[str, Any]:
    name = settings.chosen_provider
    return name, settings.provider(name)


def test_there_is_a_recipe_for_each_server():
    assert MEANT.keys() <= recipes().keys()


@pytest.mark.parametrize("recipe", MEANT)
def test_what_is_typed_chooses_the_server_that_is_meant(recipe: str, tmp_path: Path):
    text = recipes()[recipe]
    provider, api, model = MEANT[recipe]
    typed = exported(text)
    settings = load_config({"HOME": str(tmp_path), **typed}).settings
    name, found = chosen(settings)
    assert (name, found.api or choose_api(found.base_url)) == (provider, api)
    assert settings.agent.model.removeprefix(f"{provider}/") == model
    assert api in WIRE_APIS
    if recipe in LISTED:
        assert (listed_cost(found.base_url, model, UsageReport(1000, 1000)) or 0) > 0, "its prices are known"


@pytest.mark.parametrize("recipe", [name for name, text in recipes().items() if "```toml" in text and name in MEANT])
def test_the_configuration_beside_it_says_the_same(recipe: str, tmp_path: Path):
    (block,) = (text for kind, text in BLOCK.findall(recipes()[recipe]) if kind == "toml")
    (file := tmp_path / "config.toml").write_text(block, encoding="utf-8")
    typed = {name: value for name, value in exported(recipes()[recipe]).items() if recipe == "Vertex"}
    settings = load_config({"HOME": str(tmp_path), "ACP_CODER_CONFIG": str(file), **typed}).settings
    name, found = chosen(settings)
    assert (name, found.api or choose_api(found.base_url)) == MEANT[recipe][:2]


def test_google_models_of_vertex_and_deployments_with_names_of_their_own_need_prices(tmp_path: Path):
    vertex = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"
    assert listed_cost(vertex, "google/gemini-2.5-pro", UsageReport(1000, 1000)) is None
    azure = "https://my-resource.openai.azure.com"
    assert listed_cost(azure, "my-deployment", UsageReport(1000, 1000)) is None
    assert listed_cost(azure, "gpt-4.1", UsageReport(1000, 1000))
