"""The settings, as msgspec Structs: the source of the published schema and docs page.

Every limit of the program is defined here with its default. A field marked `project` may also be set by a project's own
file, once the user trusts the folder; the others only by the user (a cloned repository must not choose where keys are
sent).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from acp_agent.config.language_settings import PROJECT, ClientProfileConfig, LspConfig
from acp_agent.config.safety_settings import (
    SAFE_VARIABLES,
    AnomalyConfig,
    AuditConfig,
    AuthorizationConfig,
    GovernanceConfig,
    PathText,
    PermissionRule,
    PolicyConfig,
    RiskConfig,
    SandboxConfig,
    ScopeConfig,
    ScopedConfig,
)

ModeName = Literal["ask", "architect", "code", "auto"]
ThoughtLevelName = Literal["default", "off", "low", "medium", "high"]


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: Annotated[str, Meta(description="Name of the provider in `providers` to use.")] = "default"
    model: Annotated[
        str,
        Meta(description="Model to use, `model` or `provider:model`. Empty: the provider's first one.", extra=PROJECT),
    ] = ""
    mode: Annotated[
        ModeName,
        Meta(
            description="Mode of new sessions: `ask` reads only, `architect` reads and plans, `code` asks before "
            "changes, `auto` asks only about dangerous calls and where a rule asks."
        ),
    ] = "code"
    thought_level: Annotated[
        ThoughtLevelName,
        Meta(description="Reasoning effort of the model; `default` leaves it to the server.", extra=PROJECT),
    ] = "default"
    max_tool_iterations: Annotated[
        int,
        Meta(
            ge=1, le=1000, description="Model calls in one turn before it ends with `max_turn_requests`.", extra=PROJECT
        ),
    ] = 10
    max_output_tokens: Annotated[
        int, Meta(ge=0, description="Maximum tokens of an answer; 0: the server decides.", extra=PROJECT)
    ] = 0
    instructions: Annotated[str, Meta(description="Text added to the system prompt.")] = ""
    context_budget: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Fraction of the model's context that may be used before the conversation is compacted.",
            extra=PROJECT,
        ),
    ] = 0.8
    doom_loop: Annotated[
        int,
        Meta(
            ge=2,
            description="Consecutive rounds with the same commands or the same outputs after which a turn ends.",
            extra=PROJECT,
        ),
    ] = 3
    instruction_files: Annotated[
        bool, Meta(description="Read the project's AGENTS.md (or else CLAUDE.md, GEMINI.md).")
    ] = True
    max_instruction_bytes: Annotated[
        int, Meta(ge=1024, description="Maximum bytes of instruction files in the system prompt.", extra=PROJECT)
    ] = 65_536
    skills: Annotated[bool, Meta(description="Offer the skills of `.agents/skills`.")] = True


class ProviderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    api: Annotated[
        Literal["", "chat", "responses", "scripted"],
        Meta(
            description="Protocol: `chat` (Chat Completions: Ollama, vLLM, llama.cpp, ...), `responses` "
            "(OpenAI and Azure), `scripted` (recorded answers). Empty: the base URL decides."
        ),
    ] = ""
    base_url: Annotated[str, Meta(description="Base URL of the API. Empty: OpenAI's.")] = ""
    api_key_env: Annotated[str, Meta(description="Environment variable that holds the key.")] = "OPENAI_API_KEY"
    api_key: Annotated[str, Meta(description="The key itself. `acp-coder login` stores it more safely.")] = ""
    models: Annotated[list[str], Meta(description="Models to offer. Empty: the server is asked.")] = []
    context_window: Annotated[
        int, Meta(ge=0, description="Context size in tokens; 0: what the server says, else 128000.")
    ] = 0
    images: Annotated[bool, Meta(description="Whether the models accept images.")] = True
    audio: Annotated[bool, Meta(description="Whether the models accept audio.")] = False
    headers: Annotated[dict[str, str], Meta(description="Extra HTTP headers.")] = {}
    connect_timeout: Annotated[float, Meta(gt=0, description="Connection timeout in seconds.")] = 10.0
    idle_timeout: Annotated[
        float,
        Meta(gt=0, description="Longest time in seconds without data from the server, before and during an answer."),
    ] = 300.0
    max_retries: Annotated[
        int, Meta(ge=0, le=20, description="Retries of a request that failed before its first event.")
    ] = 3
    retry_base_delay: Annotated[float, Meta(gt=0, description="Seconds before the first retry; doubles.")] = 0.5
    max_retry_delay: Annotated[float, Meta(gt=0, description="Longest `Retry-After` in seconds to wait for.")] = 30.0
    script: Annotated[str, Meta(description="`scripted` only: file with the recorded answers.")] = ""
    tool_calling: Annotated[
        Literal["auto", "native", "fenced"],
        Meta(
            description="How tools are called: `native` through the API, `fenced` with blocks in the answer's text "
            "(for models without tool calls), `auto`: native until the server refuses tools."
        ),
    ] = "auto"
    embedding_model: Annotated[
        str,
        Meta(description="Model of the server's embeddings endpoint, used to choose tools. Empty: words are compared."),
    ] = ""


class BashConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout: Annotated[
        float, Meta(gt=0, le=600, description="Default timeout of a command in seconds.", extra=PROJECT)
    ] = 60.0
    max_timeout: Annotated[
        float, Meta(gt=0, le=600, description="Longest timeout in seconds the model may request.", extra=PROJECT)
    ] = 600.0
    output_limit: Annotated[
        int,
        Meta(
            ge=1024,
            description="Bytes of output kept per stream; the middle of longer output is cut.",
            extra=PROJECT,
        ),
    ] = 10_485_760
    editor_output_limit: Annotated[
        int,
        Meta(ge=1024, description="Bytes of output an editor's terminal should keep; they are sent in one message."),
    ] = 1_048_576
    raw_output_chars: Annotated[
        int, Meta(ge=1000, description="Characters of each stream in `rawOutput`; the middle is cut.", extra=PROJECT)
    ] = 100_000
    terminate_grace: Annotated[
        float, Meta(ge=0, le=5, description="Seconds between SIGTERM and SIGKILL when a command is stopped.")
    ] = 0.1
    editor_terminal: Annotated[
        bool, Meta(description="Run commands in the editor's own terminal if it offers one.")
    ] = True
    max_background_runs: Annotated[
        int,
        Meta(ge=0, le=64, description="Background commands of a session that may run at the same time.", extra=PROJECT),
    ] = 8
    background_timeout: Annotated[
        float, Meta(gt=0, description="Seconds a background command may run before it is killed.", extra=PROJECT)
    ] = 1800.0
    environment: Annotated[
        list[str],
        Meta(description="Variables that commands inherit; `*` matches anything. Credentials are never inherited."),
    ] = msgspec.field(default_factory=SAFE_VARIABLES.copy)
    environment_extra: Annotated[
        list[str], Meta(description="Names of further variables that commands inherit, whatever they contain.")
    ] = []
    blocked_commands: Annotated[
        list[str],
        Meta(description="Older form of `tools.permissions.bash`, used if that is empty: texts that deny."),
    ] = []
    confirm_patterns: Annotated[list[str], Meta(description="The same: texts that ask.")] = []
    refuse_interactive: Annotated[
        bool, Meta(description="Refuse commands that need a terminal, with a message on what to do instead.")
    ] = True
    turn_context: Annotated[
        bool,
        Meta(
            description="Give commands and hooks ACP_CODER_TURN_ID, ACP_CODER_SESSION_ID, ACP_CODER_GOAL_ID and "
            "the like."
        ),
    ] = False


class FilesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_read_bytes: Annotated[
        int, Meta(ge=1024, description="Largest file in bytes that `read` and `edit` open.", extra=PROJECT)
    ] = 10_485_760
    read_lines: Annotated[int, Meta(ge=1, description="Lines `read` returns by default.", extra=PROJECT)] = 2000
    max_line_chars: Annotated[
        int, Meta(ge=80, description="Characters of a line that `read` shows.", extra=PROJECT)
    ] = 2000
    max_image_bytes: Annotated[
        int, Meta(ge=1024, description="Largest image in bytes that `read` returns.", extra=PROJECT)
    ] = 5_242_880
    max_results: Annotated[
        int,
        Meta(ge=1, description="Maximum entries returned by `grep`, `find_path` and `list_directory`.", extra=PROJECT),
    ] = 500
    search_timeout: Annotated[float, Meta(gt=0, description="Timeout of a search in seconds.", extra=PROJECT)] = 30.0
    max_tree_entries: Annotated[
        int, Meta(ge=1, description="Files and folders one call may delete, move or copy.", extra=PROJECT)
    ] = 100_000
    allowed_paths: Annotated[
        list[PathText],
        Meta(description="Folders that tools and commands of every session may use besides its own."),
    ] = []
    deny_read: Annotated[
        list[PathText], Meta(description="Globs of paths that no tool and no command in the sandbox may read.")
    ] = []
    allow_read: Annotated[list[PathText], Meta(description="Exceptions from `deny_read`.")] = []
    editor_buffers: Annotated[
        bool, Meta(description="Read and write through the editor's buffers if it offers them.")
    ] = True


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout: Annotated[float, Meta(gt=0, description="Timeout of a request in seconds, redirects included.")] = 15.0
    max_body_bytes: Annotated[
        int, Meta(ge=1024, description="Largest response in bytes, after decompression; more is cut.")
    ] = 1_048_576
    max_redirects: Annotated[int, Meta(ge=0, le=10, description="Redirects followed, each checked again.")] = 3
    http_hosts: Annotated[
        list[str], Meta(description="Hosts allowed without TLS (`http:`). Their address must be public.")
    ] = []
    private_hosts: Annotated[
        list[str],
        Meta(description="Hosts whose address may be private (a documentation server of your network, localhost)."),
    ] = []
    proxy: Annotated[
        str, Meta(description="HTTP proxy for all web tools. Empty: none, whatever the environment says.")
    ] = ""
    scrape_limit: Annotated[int, Meta(ge=1, description="Elements `web_scrape` returns by default.")] = 10
    search_provider: Annotated[
        Literal["duckduckgo", "searxng", "brave"], Meta(description="Search service for `web_search`.")
    ] = "duckduckgo"
    searxng_url: Annotated[str, Meta(description="Base URL of the SearXNG server, for `searxng`.")] = ""
    brave_key_env: Annotated[str, Meta(description="Variable with the Brave Search key.")] = "BRAVE_API_KEY"
    max_search_results: Annotated[int, Meta(ge=1, le=50, description="Results of `web_search`.")] = 8


class DiagnosticsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_diagnostics: Annotated[
        int, Meta(ge=1, description="Maximum number of diagnostics returned.", extra=PROJECT)
    ] = 50
    timeout: Annotated[float, Meta(gt=0, description="Timeout of a checker in seconds.", extra=PROJECT)] = 300.0


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    recall_limit: Annotated[int, Meta(ge=1, le=100, description="Memories `memory_recall` returns by default.")] = 5
    max_chars: Annotated[int, Meta(ge=100, description="Longest memory in characters.")] = 10_000


class DelegateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_depth: Annotated[
        int, Meta(ge=0, le=5, description="Nesting depth of sub-agents; 0 offers none at all.", extra=PROJECT)
    ] = 2
    max_iterations: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum model calls of a sub-agent.", extra=PROJECT)
    ] = 10


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Run schedules while a session is open.")] = True
    max_schedules: Annotated[int, Meta(ge=0, description="Maximum schedules of a project.")] = 50
    min_interval: Annotated[float, Meta(ge=1, description="Shortest time in seconds between two runs.")] = 60.0


class BrowserConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    executable: Annotated[str, Meta(description="The Chromium to use. Empty: Playwright's, else the system's.")] = ""
    timeout: Annotated[float, Meta(gt=0, description="Timeout of one browser action in seconds.")] = 30.0
    idle_timeout: Annotated[float, Meta(gt=0, description="Seconds after which an unused browser is closed.")] = 300.0


class CacheConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Answer a repeated read-only call from a cache.", extra=PROJECT)] = True
    ttl: Annotated[float, Meta(ge=0, description="Seconds a result is kept; 0: forever.", extra=PROJECT)] = 300.0


class DependencyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    requires: Annotated[list[str], Meta(description="Tools that must have succeeded before this one is offered.")] = []
    prefers: Annotated[
        list[str], Meta(description="Tools that make this one more relevant once they have succeeded.")
    ] = []


class DependenciesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Whether the rules apply.")] = False
    boost_per_dep: Annotated[float, Meta(ge=0, le=1, description="Added for each satisfied `prefers`.")] = 0.15
    max_total_boost: Annotated[float, Meta(ge=0, le=1, description="Maximum that `prefers` can add.")] = 0.2
    rules: Annotated[dict[str, DependencyRule], Meta(description="Rules by tool.")] = {}


class SchemaFilterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="With many tools, send only the relevant definitions.")] = True
    max_tools: Annotated[int, Meta(ge=1, description="Definitions sent besides the core tools.", extra=PROJECT)] = 24
    small_window: Annotated[
        int, Meta(ge=0, description="Context in tokens up to which only the essential tools count as core.")
    ] = 16_384
    max_tools_small: Annotated[
        int, Meta(ge=0, description="Definitions sent to such a model besides the essential ones.")
    ] = 4
    min_similarity: Annotated[
        float, Meta(ge=0, le=1, description="Tools less similar to the prompt are left out.", extra=PROJECT)
    ] = 0.0


class TafcConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool, Meta(description="Add a field `thinking` to complex tools, filled before the others.", extra=PROJECT)
    ] = False
    complexity_threshold: Annotated[
        float,
        Meta(
            description="Complexity from which it is added, 0 to 1; anything but a number counts as 0.6.", extra=PROJECT
        ),
    ] = 0.6


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    attempts: Annotated[
        int, Meta(ge=0, le=10, description="Retries of a read-only call that failed for a temporary reason.")
    ] = 2
    base_delay: Annotated[float, Meta(gt=0, description="Seconds before the first retry; doubles.")] = 0.5
    max_delay: Annotated[float, Meta(gt=0, description="Longest wait in seconds.")] = 10.0


class FiltersConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool, Meta(description="Filter the output of commands before the model reads it.", extra=PROJECT)
    ] = True
    path: Annotated[
        str, Meta(description="File with further rules. Empty: `filters.toml` next to the user's configuration.")
    ] = ""
    disabled: Annotated[list[str], Meta(description="Names of rules that are not applied.", extra=PROJECT)] = []
    max_diff_lines: Annotated[
        int, Meta(ge=20, description="Lines of a diff that the built-in `git-diff` rule keeps.", extra=PROJECT)
    ] = 500


class OverflowConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    threshold: Annotated[
        int, Meta(ge=1000, description="Characters from which an output is stored in full.", extra=PROJECT)
    ] = 50_000
    retention_days: Annotated[float, Meta(gt=0, description="Days it is stored.")] = 7.0
    max_bytes: Annotated[int, Meta(ge=0, description="Maximum bytes stored of one output; 0: no limit.")] = 10_485_760
    read_chars: Annotated[
        int, Meta(ge=100, description="Characters `read_overflow` returns by default.", extra=PROJECT)
    ] = 20_000


class EnvelopeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    output_chars: Annotated[int, Meta(ge=100, description="Maximum characters of `result.output`.")] = 6_000
    raw_chars: Annotated[int, Meta(ge=100, description="Characters of `tool.raw`, the call's arguments.")] = 2_000


CompressionStrategy = Literal["aggressive", "moderate", "none"]


class CompressionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Compress outputs while a goal (`/plan`) is active.", extra=PROJECT)] = (
        True
    )
    goal_aware: Annotated[
        bool, Meta(description="Keep what is relevant to the goal; else only strategies apply.", extra=PROJECT)
    ] = True
    threshold_tokens: Annotated[
        int, Meta(ge=0, description="Outputs with more tokens than this are compressed.", extra=PROJECT)
    ] = 300
    goal_relevance_threshold: Annotated[
        float, Meta(ge=0, le=1, description="Sections less relevant than this are left out.", extra=PROJECT)
    ] = 0.5
    preserve_errors: Annotated[
        bool, Meta(description="Keep lines that report errors, whatever their relevance.", extra=PROJECT)
    ] = True
    preserve_shell_errors: Annotated[
        bool, Meta(description="Leave the output of failed commands as it is.", extra=PROJECT)
    ] = True
    max_preserved_chars: Annotated[
        int, Meta(ge=200, description="Maximum characters of a compressed output.", extra=PROJECT)
    ] = 4_096
    strategies: Annotated[
        dict[str, CompressionStrategy],
        Meta(description="Strategy by tool, on top of the built-in ones; `*` for all others.", extra=PROJECT),
    ] = {}


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bash: BashConfig = BashConfig()
    files: FilesConfig = FilesConfig()
    web: WebConfig = WebConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    memory: MemoryConfig = MemoryConfig()
    delegate: DelegateConfig = DelegateConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    browser: BrowserConfig = BrowserConfig()
    result_cache: CacheConfig = CacheConfig()
    dependencies: DependenciesConfig = DependenciesConfig()
    schema_filter: SchemaFilterConfig = SchemaFilterConfig()
    tafc: TafcConfig = TafcConfig()
    retry: RetryConfig = RetryConfig()
    filters: FiltersConfig = FiltersConfig()
    overflow: OverflowConfig = OverflowConfig()
    compression: CompressionConfig = CompressionConfig()
    envelope: EnvelopeConfig = EnvelopeConfig()
    sandbox: SandboxConfig = SandboxConfig()
    permissions: Annotated[
        dict[str, list[PermissionRule]],
        Meta(description="Rules by tool, in order; the first match decides. Without a match the mode decides."),
    ] = {}
    policy: PolicyConfig = PolicyConfig()
    authorization: AuthorizationConfig = AuthorizationConfig()
    scoped: ScopedConfig = ScopedConfig()
    scope: ScopeConfig = ScopeConfig()
    governance: GovernanceConfig = GovernanceConfig()
    anomaly: AnomalyConfig = AnomalyConfig()
    risk: RiskConfig = RiskConfig()
    require_risk_metadata: Annotated[
        bool,
        Meta(description="`bash` requires `risk`, `mutation`, `privesc` and `why`, shown with the permission request."),
    ] = False
    observation: Annotated[
        Literal["plain", "envelope"],
        Meta(
            description="How the model reads results: `plain` text, or the JSON `envelope` "
            "`acp_coder.tool_observation.v1`.",
            extra=PROJECT,
        ),
    ] = "plain"
    profile: Annotated[
        Literal["standard", "short"],
        Meta(
            description="Limits on what the model gets: `standard`, or `short` (a few thousand characters per result, "
            "for models with a small context).",
            extra=PROJECT,
        ),
    ] = "standard"
    disabled: Annotated[list[str], Meta(description="Tools that are not offered.", extra=PROJECT)] = []
    entry_points: Annotated[
        bool, Meta(description="Load tools that installed packages offer as `acp_coder.tools`.")
    ] = True
    max_tool_calls_per_session: Annotated[
        int, Meta(ge=0, description="Maximum tool calls of a session until `/clear`; 0: no limit.", extra=PROJECT)
    ] = 0
    repeated_failures: Annotated[
        int,
        Meta(ge=1, description="Identical failures of the same call after which it is not run again.", extra=PROJECT),
    ] = 2
    ask_timeout: Annotated[float, Meta(gt=0, description="Seconds `ask_user` waits for an answer.")] = 1800.0
    max_output_chars: Annotated[
        int,
        Meta(
            ge=1000, description="Maximum characters of a tool result for the model; the middle is cut.", extra=PROJECT
        ),
    ] = 50_000


class CompactionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool,
        Meta(
            description="Compact the conversation when the context reaches `agent.context_budget`; `false`: the turn "
            "stops there.",
            extra=PROJECT,
        ),
    ] = True
    target: Annotated[
        float, Meta(gt=0, le=0.9, description="Fraction of the context used afterwards.", extra=PROJECT)
    ] = 0.5
    keep_results: Annotated[
        int,
        Meta(
            ge=0,
            description="Number of newest tool results that are not shortened as long as others can be.",
            extra=PROJECT,
        ),
    ] = 4
    result_chars: Annotated[
        int, Meta(ge=50, description="Characters kept of a shortened tool result.", extra=PROJECT)
    ] = 400


class SecretsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    redact: Annotated[
        bool,
        Meta(description="Redact credentials in everything the model, the editor, the log and the database get."),
    ] = True
    extra_patterns: Annotated[
        list[str],
        Meta(description="Regular expressions (RE2) of further credentials, at most 512 characters each."),
    ] = []


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    client_timeout: Annotated[
        float, Meta(gt=0, description="Seconds the editor may take to answer a file or terminal request.")
    ] = 20.0
    kill_timeout: Annotated[
        float, Meta(gt=0, description="Seconds to wait for the editor to confirm a killed or released terminal.")
    ] = 2.0
    updates_per_second: Annotated[int, Meta(ge=1, le=60, description="Live output updates of one command.")] = 10
    live_output_chars: Annotated[int, Meta(ge=1000, description="Maximum characters of a live output update.")] = 16_000
    max_line_bytes: Annotated[
        int, Meta(ge=65_536, description="Longest message accepted from the editor, in bytes.")
    ] = 67_108_864
    list_page: Annotated[int, Meta(ge=1, le=1000, description="Sessions per page of `session/list`.")] = 50
    max_link_chars: Annotated[int, Meta(ge=100, description="Characters of a web page linked in a prompt.")] = 20_000
    max_prompt_bytes: Annotated[
        int, Meta(ge=1024, description="Largest embedded resource in bytes taken into a prompt as text.")
    ] = 1_048_576


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The session database. Empty: `sessions.db` in the state folder.")] = ""
    busy_timeout: Annotated[
        float, Meta(gt=0, description="Seconds to wait for another agent that is writing to it.")
    ] = 1.0


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Lowest severity logged.")] = (
        "warning"
    )
    file: Annotated[str, Meta(description="Log file. Empty: `agent.log` in the state folder; `-`: stderr only.")] = ""
    max_bytes: Annotated[int, Meta(ge=10_000, description="Size in bytes at which the log file is rotated.")] = (
        1_000_000
    )
    backups: Annotated[int, Meta(ge=0, le=20, description="Rotated log files kept.")] = 2


class McpServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="Program to start, for a stdio server.", extra=PROJECT)] = ""
    args: Annotated[list[str], Meta(description="Its arguments.", extra=PROJECT)] = []
    env: Annotated[dict[str, str], Meta(description="Variables set for it.", extra=PROJECT)] = {}
    url: Annotated[str, Meta(description="URL, for an HTTP server.", extra=PROJECT)] = ""
    transport: Annotated[
        Literal["", "stdio", "http", "sse"],
        Meta(description="Empty: `stdio` with a command, `http` (streamable) with a URL.", extra=PROJECT),
    ] = ""
    headers: Annotated[dict[str, str], Meta(description="HTTP headers sent with every request.", extra=PROJECT)] = {}
    enabled: Annotated[bool, Meta(description="`false`: it is not started.", extra=PROJECT)] = True


class McpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    servers: Annotated[dict[str, McpServerConfig], Meta(description="MCP servers by name.")] = {}
    connect_timeout: Annotated[float, Meta(gt=0, description="Seconds a server may take to get ready.")] = 30.0
    prompt_wait: Annotated[
        float, Meta(ge=0, description="Seconds a prompt waits for servers that are still connecting.")
    ] = 5.0
    call_timeout: Annotated[float, Meta(gt=0, description="Timeout of a call to a server's tool in seconds.")] = 300.0
    max_result_bytes: Annotated[int, Meta(ge=1024, description="Largest result of a call in bytes.")] = 10_485_760


class HookConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="Command line, run by bash in the session's folder.")] = ""
    tools: Annotated[list[str], Meta(description="Only for these tools. Empty: for all.")] = []
    timeout: Annotated[float, Meta(gt=0, le=600, description="Its timeout in seconds.")] = 10.0


class HooksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool_before: Annotated[list[HookConfig], Meta(description="Run before a tool.", extra=PROJECT)] = []
    tool_after: Annotated[list[HookConfig], Meta(description="Run after a tool.", extra=PROJECT)] = []
    file_changed: Annotated[list[HookConfig], Meta(description="Run after a tool changed a file.", extra=PROJECT)] = []
    cwd_changed: Annotated[
        list[HookConfig], Meta(description="Run after a command changed the shell's folder.", extra=PROJECT)
    ] = []


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration."""

    agent: AgentConfig = AgentConfig()
    providers: Annotated[
        dict[str, ProviderConfig],
        Meta(description="Providers by name. Without one, `default` is created from OPENAI_* variables."),
    ] = {}
    tools: ToolsConfig = ToolsConfig()
    mcp: McpConfig = McpConfig()
    hooks: HooksConfig = HooksConfig()
    lsp: LspConfig = LspConfig()
    clients: Annotated[
        dict[str, ClientProfileConfig],
        Meta(
            description="What a client can really do, by its `clientInfo` name (lower case, `-` for other characters); "
            "`unnamed`: one without a name."
        ),
    ] = {}
    compaction: CompactionConfig = CompactionConfig()
    secrets: SecretsConfig = SecretsConfig()
    limits: LimitsConfig = LimitsConfig()
    store: StoreConfig = StoreConfig()
    log: LogConfig = LogConfig()
    audit: AuditConfig = AuditConfig()

    @property
    def chosen_provider(self) -> str:
        """The provider of new sessions: the one the model names (`provider:model`), else `agent.provider`."""
        named = self.agent.model.partition(":")[0]
        return named if named in self.providers else self.agent.provider

    def provider(self, name: str) -> ProviderConfig | None:
        """The provider `name`; `default` always exists."""
        found = self.providers.get(name)
        return ProviderConfig() if found is None and name == "default" else found
