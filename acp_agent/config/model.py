"""What may be configured, as msgspec Structs: the source of the published schema and docs page.

Every limit of the program has its named default here and is read from here. A field marked `project` may also be set
by a project's own file; the others only by the person (a cloned repository must not choose where keys are sent).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "AgentConfig",
    "BashConfig",
    "FilesConfig",
    "LimitsConfig",
    "LogConfig",
    "ProviderConfig",
    "Settings",
    "StoreConfig",
    "ToolsConfig",
]

PROJECT = {"project": True}
"""Marks a key that a project's own file may set too."""

ModeName = Literal["ask", "architect", "code", "auto"]
ThoughtLevelName = Literal["default", "off", "low", "medium", "high"]

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: Annotated[str, Meta(description="Name of the provider in `providers` to use.")] = "default"
    model: Annotated[
        str,
        Meta(description="Model to use, `model` or `provider:model`. Empty: the provider's first.", extra=PROJECT),
    ] = ""
    mode: Annotated[
        ModeName,
        Meta(
            description="Mode of new sessions: `ask` reads only, `architect` reads and plans, `code` asks before "
            "changes, `auto` asks nothing that the rules do not deny."
        ),
    ] = "code"
    thought_level: Annotated[
        ThoughtLevelName,
        Meta(description="How much the model reasons; `default` leaves it to the server.", extra=PROJECT),
    ] = "default"
    max_tool_iterations: Annotated[
        int,
        Meta(
            ge=1, le=1000, description="Model calls in one turn before it ends with `max_turn_requests`.", extra=PROJECT
        ),
    ] = 10
    max_output_tokens: Annotated[
        int, Meta(ge=0, description="Tokens of one answer of the model; 0 leaves it to the server.", extra=PROJECT)
    ] = 0
    instructions: Annotated[str, Meta(description="Text added to the system prompt.")] = ""


class ProviderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    api: Annotated[
        Literal["", "chat", "responses", "scripted"],
        Meta(
            description="Protocol spoken: `chat` (Chat Completions: Ollama, vLLM, llama.cpp, ...), `responses` "
            "(OpenAI and Azure), `scripted` (recorded answers). Empty: the base URL decides."
        ),
    ] = ""
    base_url: Annotated[str, Meta(description="Where the API is. Empty: OpenAI's own.")] = ""
    api_key_env: Annotated[str, Meta(description="Environment variable that holds the key.")] = "OPENAI_API_KEY"
    api_key: Annotated[str, Meta(description="The key itself. `acp-agent login` keeps it in a safer place.")] = ""
    models: Annotated[list[str], Meta(description="Models offered. Empty: asked of the server.")] = []
    context_window: Annotated[
        int, Meta(ge=0, description="Tokens the model can hold; 0: what the server says, else 128000.")
    ] = 0
    images: Annotated[bool, Meta(description="Whether the models take images.")] = True
    audio: Annotated[bool, Meta(description="Whether the models take audio.")] = False
    headers: Annotated[dict[str, str], Meta(description="Extra HTTP headers.")] = {}
    connect_timeout: Annotated[float, Meta(gt=0, description="Seconds to connect.")] = 10.0
    idle_timeout: Annotated[
        float, Meta(gt=0, description="Longest silence of the server in seconds, before and within an answer.")
    ] = 300.0
    max_retries: Annotated[
        int, Meta(ge=0, le=20, description="Retries of a request that failed before its first event.")
    ] = 3
    retry_base_delay: Annotated[float, Meta(gt=0, description="Seconds before the first retry; doubles.")] = 0.5
    max_retry_delay: Annotated[
        float, Meta(gt=0, description="Longest `Retry-After` in seconds that is waited for.")
    ] = 30.0
    script: Annotated[str, Meta(description="`scripted` only: file with the recorded answers.")] = ""


class BashConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout: Annotated[
        float, Meta(gt=0, le=600, description="Seconds a command may run by default.", extra=PROJECT)
    ] = 60.0
    max_timeout: Annotated[
        float, Meta(gt=0, le=600, description="Longest timeout in seconds the model may ask for.", extra=PROJECT)
    ] = 600.0
    output_limit: Annotated[
        int, Meta(ge=1024, description="Bytes of output kept per stream; more is cut from the middle.", extra=PROJECT)
    ] = 1_048_576
    raw_output_chars: Annotated[
        int, Meta(ge=1000, description="Characters of each stream in `rawOutput`; the middle is cut.", extra=PROJECT)
    ] = 100_000
    terminate_grace: Annotated[
        float, Meta(ge=0, le=5, description="Seconds between SIGTERM and SIGKILL when a command is stopped.")
    ] = 0.1
    editor_terminal: Annotated[
        bool, Meta(description="Run commands in the editor's own terminal where it offers one.")
    ] = True


class FilesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_read_bytes: Annotated[
        int, Meta(ge=1024, description="Largest file in bytes that `read` and `edit` open.", extra=PROJECT)
    ] = 10_485_760
    read_lines: Annotated[int, Meta(ge=1, description="Lines `read` gives at once by default.", extra=PROJECT)] = 2000
    max_line_chars: Annotated[
        int, Meta(ge=80, description="Characters of a line that `read` shows.", extra=PROJECT)
    ] = 2000
    max_image_bytes: Annotated[
        int, Meta(ge=1024, description="Largest image in bytes that `read` gives.", extra=PROJECT)
    ] = 5_242_880
    max_results: Annotated[
        int, Meta(ge=1, description="Entries `grep`, `find_path` and `list_directory` give at most.", extra=PROJECT)
    ] = 500
    search_timeout: Annotated[float, Meta(gt=0, description="Seconds a search may take.", extra=PROJECT)] = 30.0
    editor_buffers: Annotated[
        bool, Meta(description="Read and write through the editor's buffers where it offers them.")
    ] = True


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bash: BashConfig = BashConfig()
    files: FilesConfig = FilesConfig()
    max_output_chars: Annotated[
        int,
        Meta(ge=1000, description="Characters of one tool result the model gets; the middle is cut.", extra=PROJECT),
    ] = 50_000


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    client_timeout: Annotated[
        float, Meta(gt=0, description="Seconds the editor may take to answer a file or terminal request.")
    ] = 20.0
    kill_timeout: Annotated[
        float, Meta(gt=0, description="Seconds to wait for the editor to confirm a killed or released terminal.")
    ] = 2.0
    updates_per_second: Annotated[int, Meta(ge=1, le=60, description="Live output updates of one command.")] = 10
    live_output_chars: Annotated[int, Meta(ge=1000, description="Characters of a live output update.")] = 16_000
    max_line_bytes: Annotated[
        int, Meta(ge=65_536, description="Longest message accepted from the editor, in bytes.")
    ] = 67_108_864
    list_page: Annotated[int, Meta(ge=1, le=1000, description="Sessions in one page of `session/list`.")] = 50
    max_prompt_bytes: Annotated[
        int, Meta(ge=1024, description="Largest embedded resource in bytes taken into a prompt as text.")
    ] = 1_048_576


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The session database. Empty: `sessions.db` in the state folder.")] = ""
    busy_timeout: Annotated[float, Meta(gt=0, description="Seconds to wait for another agent that is writing.")] = 1.0


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Least severity logged.")] = (
        "warning"
    )
    file: Annotated[str, Meta(description="Log file. Empty: `agent.log` in the state folder; `-`: stderr only.")] = ""
    max_bytes: Annotated[int, Meta(ge=10_000, description="Size in bytes at which the log file is rotated.")] = (
        1_000_000
    )
    backups: Annotated[int, Meta(ge=0, le=20, description="Rotated log files kept.")] = 2


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration."""

    agent: AgentConfig = AgentConfig()
    providers: Annotated[
        dict[str, ProviderConfig],
        Meta(description="Providers by name. `default` is made from OPENAI_* variables when there is none."),
    ] = {}
    tools: ToolsConfig = ToolsConfig()
    limits: LimitsConfig = LimitsConfig()
    store: StoreConfig = StoreConfig()
    log: LogConfig = LogConfig()

    @property
    def chosen_provider(self) -> str:
        """The provider of new sessions: the one the model names (`provider:model`), else `agent.provider`."""
        named = self.agent.model.partition(":")[0]
        return named if named in self.providers else self.agent.provider

    def provider(self, name: str) -> ProviderConfig | None:
        """The provider `name`; `default` always exists."""
        found = self.providers.get(name)
        return ProviderConfig() if found is None and name == "default" else found
