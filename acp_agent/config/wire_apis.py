"""The APIs that servers of models speak, a row each. All that tells them apart without a request is read from here: by
the configuration, the choice by the base URL, the list of models, the tests. Plain data: `initialize` may need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from acp_agent.lazy import load

AZURE = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")


class WireApi(NamedTuple):
    provider: str
    """`"module:Class"` below `acp_agent`, made of one `ProviderOptions`: no row that the kit's wheel would follow."""
    about: str
    """Who speaks it, for the description of `providers.NAME.api`."""
    fake: str = ""
    """`"module:Class"`, a `Wire` of `FakeModel`, for the contract of all providers. Empty: it has other tests."""
    hosts: tuple[str, ...] = ()
    """Where it is spoken if the configuration does not say; with a dot before it: all hosts below."""
    local_port: int = 0
    """The same for this machine."""
    keyless: bool = False
    """There is no server, or it takes other credentials."""
    lists: Literal["never", "elsewhere", "always"] = "always"
    """Whether a server's list of models is of use to choose from; that of `hosts` may be long and say nothing."""
    model: str = ""
    """The one to begin with where the list is of no use."""
    free: bool = False
    """Nobody charges for it."""
    recorded: bool = False
    """Its answers are those of a recording, which was made above what corrects the answers of servers."""
    fast: bool = False
    """Whether a request can ask for a faster answer at another price."""
    client_type: str = ""
    """What ACP calls it (`providers/list`)."""

    def load(self) -> Any:
        """The class of its provider."""
        return load(f"acp_agent.{self.provider}")


WIRE_APIS = {
    "bedrock": WireApi(
        "llm.clouds.bedrock:BedrockProvider", "Amazon's, by the credentials of that cloud",
        fake="acp_agent.testing.fake_converse:Converse", keyless=True, lists="never",
    ),
    "chat": WireApi(
        "llm.chat:ChatProvider", "Chat Completions: vLLM, llama.cpp, LM Studio, ...",
        fake="acp_agent.testing.fake_openai:ChatCompletions", fast=True, client_type="openai",
    ),
    "messages": WireApi(
        "llm.messages:MessagesProvider", "Anthropic", fake="acp_agent.testing.fake_messages:Messages",
        hosts=("api.anthropic.com",), fast=True, client_type="anthropic",
    ),
    "ollama": WireApi(
        "llm.ollama:OllamaProvider", "its own API, which takes the size of the context",
        fake="acp_agent.testing.fake_ollama:Ollama", local_port=11434,
    ),
    "replay": WireApi(
        "llm.recordings.replay_provider:ReplayProvider", "a recording", keyless=True, free=True, recorded=True,
    ),
    "responses": WireApi(
        "llm.responses:ResponsesProvider", "OpenAI and Azure", fast=True, client_type="openai",
        fake="acp_agent.testing.fake_openai:Responses", hosts=("api.openai.com", *AZURE),
        lists="elsewhere", model="gpt-5.1",
    ),
    "scripted": WireApi("llm.scripted:ScriptedProvider", "a script", keyless=True, lists="never", free=True),
    "vertex": WireApi(
        "llm.clouds.vertex:VertexProvider", "Google's, by the credentials of that cloud", keyless=True, lists="never",
    ),
}  # fmt: skip
"""`api` in the configuration -> its row."""

ELSE = "chat"
"""What servers speak that no row knows."""

if TYPE_CHECKING:
    ApiName = str
else:
    ApiName = Literal[("", *WIRE_APIS)]
