"""The settings, as msgspec Structs: the source of the published schema and docs page.

Every limit of the program is defined here with its default. A field marked `project` may also be set by a project's own
file, once the user trusts the folder; the others only by the user (a cloned repository must not choose where keys are
sent).
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from acp_agent.config import place_settings as where
from acp_agent.config import safety_settings as safety
from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.config.language_settings import ChatConfig, ClientProfileConfig, LspConfig, ProtocolConfig, key
from acp_agent.config.mcp_settings import McpConfig
from acp_agent.config.wire_apis import WIRE_APIS, ApiName

ModeName = Literal["ask", "architect", "code", "auto"]
ThoughtLevelName = Literal["default", "off", "low", "medium", "high"]


class PriceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In dollars per million tokens."""

    model: Annotated[str, key("`provider/model`; `*` stands for any characters. The first price that fits counts.")] = (
        ""
    )
    input: Annotated[float, key("Price of input tokens.", ge=0)] = 0.0
    output: Annotated[float, key("Price of output tokens.", ge=0)] = 0.0
    cached: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None, key("Price of input read from a cache. Without it: as `input`.")
    ] = None
    cache_write: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None, key("Price of input written to a cache. Without it: as `input`.")
    ] = None
    fast: Annotated[
        Annotated[float, msgspec.Meta(gt=0)] | None,
        key("What the server's faster answers cost, as a multiple of these prices. Without it: none are offered."),
    ] = None


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: Annotated[
        str,
        key("Name of the provider in `providers` to use, or of a known one (`anthropic`, `google`, `ollama`, ...)."),
    ] = "default"
    model: Annotated[
        str, key("Model to use, `provider/model` or `model`. Empty: the provider's first one.", project=True)
    ] = ""
    find_local_servers: Annotated[
        bool, key("Look for Ollama, LM Studio and llama.cpp on this machine if there is neither a provider nor a key.")
    ] = True
    mode: Annotated[
        ModeName,
        key(
            "Mode of new sessions: `ask` reads only, `architect` reads and plans, `code` asks before changes, `auto` "
            "asks only about dangerous calls and where a rule asks."
        ),
    ] = "code"
    remembered_answers: Annotated[
        bool, key("What you always allowed is allowed. Off: it is asked again (`acp-coder -p --deny`).")
    ] = True
    far: Annotated[
        bool,
        key(
            "The editor runs on another machine (its command is `ssh HOST acp-coder`): its files, terminals and "
            "language servers are those of that machine and are left alone."
        ),
    ] = False
    place: Annotated[
        str,
        key(
            "Where commands run: `local`, the name of a place in `places`, `container:NAME` for a running container "
            "or an image of that name, `devcontainer:FOLDER`, or, where files are, too, `container:NAME:DIR` or "
            "`ssh:[USER@]HOST[:DIR]`.",
            project=True,
        ),
    ] = "local"
    elsewhere: Annotated[bool, key("Commands and sub-agents may go to other places than `agent.place`.")] = True
    trust: Annotated[bool, key("A folder's own `.acp-coder` takes effect once you trust it.")] = True
    isolation: Annotated[
        Literal["none", "worktree"],
        key("`worktree`: each new session works in a git worktree of its own, on a branch of its own."),
    ] = "none"
    suggestions: Annotated[
        bool,
        key(
            "After each turn, suggest prompts to a client that shows them, by one more call of the model (with "
            "`protocol.unstable`)."
        ),
    ] = False
    thought_level: Annotated[
        ThoughtLevelName, key("Reasoning effort of the model; `default` leaves it to the server.", project=True)
    ] = "default"
    max_tool_iterations: Annotated[
        int, key("Model calls in one turn before it ends with `max_turn_requests`.", ge=1, le=1000, project=True)
    ] = 200
    max_output_tokens: Annotated[
        int,
        key(
            "Maximum tokens of an answer; 0: the server decides (`messages`: 64000, 32000 for older models).",
            ge=0,
            project=True,
        ),
    ] = 0
    instructions: Annotated[str, key("Text added to the system prompt.")] = ""
    goal_text: Annotated[str, key("The goal of each new session, as `/plan GOAL` sets one.")] = ""
    context_budget: Annotated[
        float,
        key(
            "Fraction of the model's context that may be used before the conversation is compacted.",
            gt=0,
            le=1,
            project=True,
        ),
    ] = 0.8
    context_budget_tokens: Annotated[
        int, key("Hard limit in tokens beside that fraction; 0: none.", ge=0, project=True)
    ] = 0
    finish_check: Annotated[
        bool,
        key(
            "Tell the model once, before a turn ends, that its last change failed or that it changed nothing though it "
            "says so.",
            project=True,
        ),
    ] = True
    doom_loop: Annotated[
        int,
        key(
            "Consecutive rounds with the same calls or the same outputs, or circles of up to four rounds, after which "
            "a turn ends.",
            ge=2,
            project=True,
        ),
    ] = 3
    max_repetition: Annotated[
        int,
        key("Characters of one repeated short text after which the model is stopped; 0: never.", ge=0, project=True),
    ] = 8000
    max_answer_bytes: Annotated[
        int, key("Bytes of text and thought in one answer after which the model is stopped.", ge=1024, project=True)
    ] = 16_777_216
    instruction_files: Annotated[bool, key("Read the project's AGENTS.md, or what stands for it.")] = True
    max_instruction_bytes: Annotated[
        int, key("Maximum bytes of instruction files at the head of a conversation.", ge=1024, project=True)
    ] = 65_536
    skills: Annotated[bool, key("Offer the skills of `.agents/skills`.")] = True
    max_cost: Annotated[
        float,
        key(
            "Dollars that a session may cost, with its sub-agents and summaries, before you are asked whether to go "
            "on; 0: no limit. Does not hold for models whose price is not known (`agent.prices`).",
            ge=0,
        ),
    ] = 0.0
    max_cost_per_day: Annotated[
        float, key("Dollars that all sessions of a day (local time) may cost before you are asked; 0: no limit.", ge=0)
    ] = 0.0
    prices: Annotated[
        list[PriceConfig],
        key("Your own prices (`[[agent.prices]]`), in dollars per million tokens; they go before the known ones."),
    ] = []
    fallback_models: Annotated[
        list[str],
        key("Models (`provider/model`) to continue with, in this order, when one is overloaded, out of quota or away."),
    ] = []
    fallback_retry_after: Annotated[
        float, key("Seconds after which a model that failed is used again in place of its fallback.", ge=0)
    ] = 300.0
    record: Annotated[
        str,
        key(
            "File to which what models are asked and answer is appended, without credentials (`acp-coder replay`). "
            "Empty: nothing is recorded."
        ),
    ] = ""
    record_wire: Annotated[
        str, key("File to which the messages of client and agent are appended; may be the same as `agent.record`.")
    ] = ""


class ProviderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    api: Annotated[
        ApiName,
        key(
            f"Protocol: {', '.join(f'`{api}` ({row.about})' for api, row in WIRE_APIS.items())}. Empty: the base URL "
            "decides."
        ),
    ] = ""
    base_url: Annotated[str, key("Base URL of the API. Empty: OpenAI's.")] = ""
    api_key_env: Annotated[str, key("Environment variable of the key. Empty: no key is needed.")] = "OPENAI_API_KEY"
    api_key: Annotated[str, key("The key itself. `acp-coder login` stores it more safely.")] = ""
    models: Annotated[list[str], key("Models to offer. Empty: the server is asked.")] = []
    context_window: Annotated[
        int,
        key(
            "Context size in tokens; 0: what the server says, else 128000. Ollama is asked for it, or for 32768.", ge=0
        ),
    ] = 0
    keep_alive: Annotated[float, key("Seconds that Ollama keeps the model loaded after a request.", ge=0)] = 1800.0
    images: Annotated[bool, key("Whether the models accept images.")] = True
    audio: Annotated[bool, key("Whether the models accept audio.")] = False
    headers: Annotated[dict[str, str], key("Extra HTTP headers.")] = {}
    connect_timeout: Annotated[float, key("Connection timeout in seconds.", gt=0)] = 10.0
    idle_timeout: Annotated[
        float, key("Longest time in seconds without data from the server, before and during an answer.", gt=0)
    ] = 300.0
    max_retries: Annotated[int, key("Retries of a request that failed before its first event.", ge=0, le=20)] = 3
    retry_base_delay: Annotated[float, key("Seconds before the first retry; doubles.", gt=0)] = 0.5
    retry_for: Annotated[
        float, key("Longest wait in seconds, in all, where a limit of the server refuses requests.", ge=0)
    ] = 300.0
    max_retry_delay: Annotated[float, key("Longest `Retry-After` in seconds to wait for.", gt=0)] = 30.0
    loading_wait: Annotated[float, key("Longest wait in seconds for a server that is loading its model.", ge=0)] = 60.0
    script: Annotated[str, key("`scripted` and `replay` only: file with the recorded answers.")] = ""
    tool_calling: Annotated[
        Literal["auto", "native", "fenced"],
        key(
            "How tools are called: `native` through the API, `fenced` with blocks in the answer's text (for models "
            "without tool calls), `auto`: native until the server refuses or drops tools."
        ),
    ] = "auto"
    embedding_model: Annotated[
        str, key("Model of the server's embeddings endpoint, used to choose tools. Empty: words are compared.")
    ] = ""


class ProviderOptions(ProviderConfig, frozen=True, kw_only=True):
    """What a provider is built from: its table of the configuration, with the key that was found for it."""

    name: str
    """The provider's name in the configuration, used in messages."""

    @classmethod
    def of(cls, name: str, settings: ProviderConfig, key: str | None, **more: object) -> ProviderOptions:
        return cls(name=name, **(msgspec.structs.asdict(settings) | {"api_key": key or ""} | more))


class BashConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout: Annotated[float, key("Default timeout of a command in seconds.", gt=0, le=600, project=True)] = 60.0
    max_timeout: Annotated[
        float, key("Longest timeout in seconds the model may request.", gt=0, le=600, project=True)
    ] = 600.0
    output_limit: Annotated[
        int, key("Bytes of output kept per stream; the middle of longer output is cut.", ge=1024, project=True)
    ] = 10_485_760
    editor_output_limit: Annotated[
        int, key("Bytes of output an editor's terminal should keep; they are sent in one message.", ge=1024)
    ] = 1_048_576
    raw_output_chars: Annotated[
        int, key("Characters of each stream in `rawOutput`; the middle is cut.", ge=1000, project=True)
    ] = 100_000
    terminate_grace: Annotated[
        float, key("Seconds between SIGTERM and SIGKILL when a command is stopped.", ge=0, le=5)
    ] = 0.1
    login_shell: Annotated[
        bool, key("Run commands in a login shell, which reads `/etc/profile` and, outside the sandbox, your own.")
    ] = False
    editor_terminal: Annotated[bool, key("Run commands in the editor's own terminal if it offers one.")] = True
    max_background_runs: Annotated[
        int, key("Background commands of a session that may run at the same time.", ge=0, le=64, project=True)
    ] = 8
    max_background_runs_per_owner: Annotated[
        int, key("The same of all sessions of an owner of a server, or of an agent on stdio.", ge=1)
    ] = 64
    max_background_runs_per_process: Annotated[
        int, key("Of all owners of a process; fewer where it may have few descriptors (`ulimit -Hn`).", ge=1)
    ] = 256
    background_timeout: Annotated[
        float, key("Seconds a background command may run before it is killed.", gt=0, project=True)
    ] = 1800.0
    environment: Annotated[
        list[str], key("Variables that commands inherit; `*` matches anything. Credentials are never inherited.")
    ] = msgspec.field(default_factory=safety.SAFE_VARIABLES.copy)
    environment_extra: Annotated[
        list[str], key("Names of further variables that commands inherit, whatever they contain.")
    ] = []
    blocked_commands: Annotated[
        list[str], key("Older form of `tools.permissions.bash`, used if that is empty: texts that deny.")
    ] = []
    confirm_patterns: Annotated[list[str], key("The same: texts that ask.")] = []
    refuse_interactive: Annotated[
        bool, key("Refuse commands that need a terminal, with a message on what to do instead.")
    ] = True
    turn_context: Annotated[
        bool, key("Give commands and hooks ACP_CODER_TURN_ID, ACP_CODER_SESSION_ID, ACP_CODER_GOAL_ID and the like.")
    ] = False


class FilesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_read_bytes: Annotated[
        int, key("Largest file in bytes that `edit` opens; of larger ones `read` gives parts.", ge=1024, project=True)
    ] = 10_485_760
    read_lines: Annotated[int, key("Lines `read` returns by default.", ge=1, project=True)] = 2000
    max_line_chars: Annotated[int, key("Characters of a line that `read` shows.", ge=80, project=True)] = 2000
    edit_context: Annotated[
        int, key("Lines around a change that `edit` returns to the model; 0: no lines at all.", ge=0, project=True)
    ] = 3
    patch_models: Annotated[
        list[str], key("Globs of models that are offered `apply_patch` in place of `edit`.", project=True)
    ] = msgspec.field(default_factory=lambda: ["gpt-5*", "*codex*"])
    max_image_bytes: Annotated[int, key("Largest image in bytes that `read` returns.", ge=1024, project=True)] = (
        5_242_880
    )
    max_results: Annotated[
        int, key("Maximum entries returned by `grep`, `find_path` and `list_directory`.", ge=1, project=True)
    ] = 500
    search_timeout: Annotated[float, key("Timeout of a search in seconds.", gt=0, project=True)] = 30.0
    max_tree_entries: Annotated[
        int, key("Files and folders one call may delete, move or copy.", ge=1, project=True)
    ] = 100_000
    allowed_paths: Annotated[
        list[safety.PathText], key("Folders that tools and commands of every session may use besides its own.")
    ] = []
    deny_read: Annotated[
        list[safety.PathText], key("Globs of paths that no tool and no command in the sandbox may read.")
    ] = []
    allow_read: Annotated[list[safety.PathText], key("Exceptions from `deny_read`.")] = []
    key_files: Annotated[
        list[safety.PathText],
        key(
            "Names of files and folders that may keep keys or passwords: you are asked about each in every mode, "
            "before a tool reads or changes it or a command line names it; searches leave them out. `*` matches "
            "anything, `!` makes an exception."
        ),
    ] = msgspec.field(default_factory=safety.KEY_FILES.copy)
    editor_buffers: Annotated[bool, key("Read and write through the editor's buffers if it offers them.")] = True

    def __post_init__(self) -> None:
        safety.check_paths("tools.files.deny_read", self.deny_read)


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timeout: Annotated[float, key("Timeout of a request in seconds, redirects included.", gt=0)] = 15.0
    max_body_bytes: Annotated[int, key("Largest response in bytes, after decompression; more is cut.", ge=1024)] = (
        1_048_576
    )
    max_redirects: Annotated[int, key("Redirects followed, each checked again.", ge=0, le=10)] = 3
    http_hosts: Annotated[list[str], key("Hosts allowed without TLS (`http:`). Their address must be public.")] = []
    private_hosts: Annotated[
        list[str], key("Hosts whose address may be private (a documentation server of your network, localhost).")
    ] = []
    proxy: Annotated[str, key("HTTP proxy for all web tools. Empty: none, whatever the environment says.")] = ""
    scrape_limit: Annotated[int, key("Elements `web_scrape` returns by default.", ge=1)] = 10
    search_provider: Annotated[Literal["duckduckgo", "searxng", "brave"], key("Search service for `web_search`.")] = (
        "duckduckgo"
    )
    searxng_url: Annotated[str, key("Base URL of the SearXNG server, for `searxng`.")] = ""
    brave_key_env: Annotated[str, key("Variable with the Brave Search key.")] = "BRAVE_API_KEY"
    max_search_results: Annotated[int, key("Results of `web_search`.", ge=1, le=50)] = 8


class DiagnosticsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_diagnostics: Annotated[int, key("Maximum number of diagnostics returned.", ge=1, project=True)] = 50
    timeout: Annotated[float, key("Timeout of a checker in seconds.", gt=0, project=True)] = 300.0


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    recall_limit: Annotated[int, key("Memories `memory_recall` returns by default.", ge=1, le=100)] = 5
    max_chars: Annotated[int, key("Longest memory in characters.", ge=100)] = 10_000


class DelegateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_depth: Annotated[int, key("Nesting depth of sub-agents; 0 offers none at all.", ge=0, le=5, project=True)] = 2
    max_iterations: Annotated[int, key("Maximum model calls of a sub-agent.", ge=1, le=1000, project=True)] = 100


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Run schedules while a session is open.")] = True
    max_schedules: Annotated[int, key("Maximum schedules of a project.", ge=0)] = 50
    min_interval: Annotated[float, key("Shortest time in seconds between two runs.", ge=1)] = 60.0


class BrowserConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    executable: Annotated[str, key("The Chromium to use. Empty: Playwright's, else the system's.")] = ""
    timeout: Annotated[float, key("Timeout of one browser action in seconds.", gt=0)] = 30.0
    idle_timeout: Annotated[float, key("Seconds after which an unused browser is closed.", gt=0)] = 300.0


class CacheConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Answer a repeated read-only call from a cache.", project=True)] = True
    ttl: Annotated[float, key("Seconds a result is kept; 0: forever.", ge=0, project=True)] = 300.0


class DependencyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    requires: Annotated[list[str], key("Tools that must have succeeded before this one is offered.")] = []
    prefers: Annotated[
        list[str],
        key("Tools after whose success this one is more relevant: from the next prompt on it is sent before others."),
    ] = []


class DependenciesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether the rules apply.")] = False
    boost_per_dep: Annotated[float, key("Added for each satisfied `prefers`.", ge=0, le=1)] = 0.15
    max_total_boost: Annotated[float, key("Maximum that `prefers` can add.", ge=0, le=1)] = 0.2
    rules: Annotated[dict[str, DependencyRule], key("Rules by tool.")] = {}


class SchemaFilterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("With many tools, send only the relevant definitions.")] = True
    max_tools: Annotated[int, key("Definitions sent besides the core tools.", ge=1, project=True)] = 24
    small_window: Annotated[int, key("Context in tokens up to which the prompt is short, the tools few.", ge=0)] = (
        16_384
    )
    max_tools_small: Annotated[
        int, key("Definitions of servers and the project sent to such a model besides the essential ones.", ge=0)
    ] = 4
    min_similarity: Annotated[
        float, key("Tools less similar to the prompt are left out.", ge=0, le=1, project=True)
    ] = 0.0

    def is_small(self, window: int | None) -> bool:
        """Whether a model's context, in tokens, is known to be small."""
        return window is not None and window <= self.small_window


class TafcConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[
        bool, key("Add a field `thinking` to complex tools, filled before the others.", project=True)
    ] = False
    complexity_threshold: Annotated[
        float, key("Complexity from which it is added, 0 to 1; anything but a number counts as 0.6.", project=True)
    ] = 0.6


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    attempts: Annotated[int, key("Retries of a read-only call that failed for a temporary reason.", ge=0, le=10)] = 2
    base_delay: Annotated[float, key("Seconds before the first retry; doubles.", gt=0)] = 0.5
    max_delay: Annotated[float, key("Longest wait in seconds.", gt=0)] = 10.0


class FiltersConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Filter the output of commands before the model reads it.", project=True)] = True
    path: Annotated[str, key("File with further rules. Empty: `filters.toml` next to the user's configuration.")] = ""
    disabled: Annotated[list[str], key("Names of rules that are not applied.", project=True)] = []
    max_diff_lines: Annotated[
        int, key("Lines of a diff that the built-in `git-diff` rule keeps.", ge=20, project=True)
    ] = 500


class OverflowConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    threshold: Annotated[int, key("Characters from which an output is stored in full.", ge=1000, project=True)] = 50_000
    retention_days: Annotated[float, key("Days it is stored.", gt=0)] = 7.0
    max_bytes: Annotated[int, key("Maximum bytes stored of one output; 0: no limit.", ge=0)] = 10_485_760
    read_chars: Annotated[int, key("Characters `read_overflow` returns by default.", ge=100, project=True)] = 20_000


class EnvelopeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    output_chars: Annotated[int, key("Maximum characters of `result.output`.", ge=100)] = 6_000
    raw_chars: Annotated[int, key("Characters of `tool.raw`, the call's arguments.", ge=100)] = 2_000


CompressionStrategy = Literal["aggressive", "moderate", "none"]


class CompressionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Compress outputs while a goal (`/plan`) is active.", project=True)] = True
    goal_aware: Annotated[bool, key("Keep what is relevant to the goal; else only strategies apply.", project=True)] = (
        True
    )
    threshold_tokens: Annotated[int, key("Outputs with more tokens than this are compressed.", ge=0, project=True)] = (
        300
    )
    goal_relevance_threshold: Annotated[
        float, key("Sections less relevant than this are left out.", ge=0, le=1, project=True)
    ] = 0.5
    preserve_errors: Annotated[bool, key("Keep lines that report errors, whatever their relevance.", project=True)] = (
        True
    )
    preserve_shell_errors: Annotated[bool, key("Leave the output of failed commands as it is.", project=True)] = True
    max_preserved_chars: Annotated[
        int, key("Maximum characters of a compressed output, lines with errors included.", ge=200, project=True)
    ] = 4_096
    strategies: Annotated[
        dict[str, CompressionStrategy],
        key("Strategy by tool, on top of the built-in ones; `*` for all others.", project=True),
    ] = {}


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    guidance: Annotated[
        Literal["short", "full"],
        key("How tools are described to the model: `short` in plain sentences, `full` with headings and examples."),
    ] = "short"
    bash: BashConfig = BashConfig()
    terminal: where.TerminalConfig = where.TerminalConfig()
    tmux: where.TmuxConfig = where.TmuxConfig()
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
    sandbox: safety.SandboxConfig = safety.SandboxConfig()
    permissions: Annotated[
        dict[str, list[safety.PermissionRule]],
        key("Rules by tool, in order; the first match decides. Without a match the mode decides."),
    ] = {}
    policy: safety.PolicyConfig = safety.PolicyConfig()
    authorization: safety.AuthorizationConfig = safety.AuthorizationConfig()
    scoped: safety.ScopedConfig = safety.ScopedConfig()
    scope: safety.ScopeConfig = safety.ScopeConfig()
    governance: safety.GovernanceConfig = safety.GovernanceConfig()
    anomaly: safety.AnomalyConfig = safety.AnomalyConfig()
    risk: safety.RiskConfig = safety.RiskConfig()
    require_risk_metadata: Annotated[
        bool, key("`bash` requires `risk`, `mutation`, `privesc` and `why`, shown with the permission request.")
    ] = False
    observation: Annotated[
        Literal["plain", "envelope", "timestamp"],
        key(
            "How the model reads results: `plain` text, the JSON `envelope` `acp_coder.tool_observation.v1`, or JSON "
            "with the time of each result (`timestamp`).",
            project=True,
        ),
    ] = "plain"
    profile: Annotated[
        Literal["standard", "short"],
        key(
            "Limits on what the model gets: `standard`, or `short` (a few thousand characters per result, for models "
            "with a small context).",
            project=True,
        ),
    ] = "standard"
    disabled: Annotated[
        list[str], key("Tools that are not offered; `*` stands for any characters (`mcp_*`).", project=True)
    ] = []
    entry_points: Annotated[bool, key("Load tools that installed packages offer as `acp_coder.tools`.")] = True
    max_parallel_calls: Annotated[
        int, key("Calls of one answer that only read and so run together; the rest wait.", ge=1, project=True)
    ] = 16
    max_tool_calls_per_session: Annotated[
        int, key("Maximum tool calls of a session until `/clear`; 0: no limit.", ge=0, project=True)
    ] = 0
    repeated_failures: Annotated[
        int, key("Identical failures of the same call after which it is not run again.", ge=1, project=True)
    ] = 2
    max_plan_chars: Annotated[
        int, key("Maximum characters of a plan for approval: you are to read all of it.", ge=1000)
    ] = 20_000
    ask_timeout: Annotated[float, key("Seconds `ask_user` waits for an answer.", gt=0)] = 1800.0
    max_output_chars: Annotated[
        int, key("Maximum characters of a tool result for the model; the middle is cut.", ge=1000, project=True)
    ] = 50_000
    summarize_output: Annotated[
        bool,
        key(
            "Ask the model for a summary of a result longer than `tools.max_output_chars`, in place of its beginning "
            "and end. Costs a request.",
            project=True,
        ),
    ] = False


class SecretsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    redact: Annotated[
        bool, key("Redact credentials in everything the model, the editor, the log and the database get.")
    ] = True
    extra_patterns: Annotated[
        list[str], key("Regular expressions (RE2) of further credentials, at most 512 characters each.")
    ] = []


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    client_timeout: Annotated[float, key("Seconds the editor may take to answer a file or terminal request.", gt=0)] = (
        20.0
    )
    kill_timeout: Annotated[
        float, key("Seconds to wait for the editor to confirm a killed or released terminal.", gt=0)
    ] = 2.0
    updates_per_second: Annotated[int, key("Live output updates of one command.", ge=1, le=60)] = 10
    live_output_chars: Annotated[int, key("Maximum characters of a live output update.", ge=1000)] = 16_000
    max_line_bytes: Annotated[int, key("Longest message accepted from the editor, in bytes.", ge=65_536)] = 67_108_864
    max_sessions: Annotated[int, key("Open sessions of a process, of all owners.", ge=1)] = 1000
    max_prompts: Annotated[int, key("Prompts that may run or wait in a session; more are refused.", ge=1)] = 16
    max_programs_per_session: Annotated[
        int, key("Commands that are waited for, MCP servers and language servers of a session at a time.", ge=1)
    ] = 64
    max_programs_per_owner: Annotated[
        int, key("Of all sessions of an owner of a server, or of an agent on stdio.", ge=1)
    ] = 256
    max_programs_per_process: Annotated[
        int, key("Of all owners of a process; fewer where it may have few descriptors (`ulimit -Hn`).", ge=1)
    ] = 1024
    list_page: Annotated[int, key("Sessions per page of `session/list`.", ge=1, le=1000)] = 50
    max_link_chars: Annotated[int, key("Characters of a web page linked in a prompt.", ge=100)] = 20_000
    max_prompt_bytes: Annotated[
        int, key("Largest embedded resource in bytes taken into a prompt as text.", ge=1024)
    ] = 1_048_576


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Annotated[Literal["debug", "info", "warning", "error"], key("Lowest severity logged.")] = "warning"
    file: Annotated[str, key("Log file. Empty: `agent.log` in the state folder; `-`: stderr only.")] = ""
    max_bytes: Annotated[int, key("Size in bytes at which the log file is rotated.", ge=10_000)] = 1_000_000
    backups: Annotated[int, key("Rotated log files kept.", ge=0, le=20)] = 2


FAMILIES = ("mistral", "qwen")
"""Known providers that have the name of models of Ollama's library."""
TAG = r":(latest|v?\d[\w.-]*|chat|code|instruct|text)(-[\w.-]+)?"


def as_choice(model: str) -> str:
    """`provider:model` as `provider/model`: the first of the two characters separates. `mistral:7b` is a model."""
    name = model.partition("/")[0].partition(":")[0]
    if name == model or (name in FAMILIES and re.fullmatch(TAG, model[len(name) :])):
        return model
    return f"{name}/{model[len(name) + 1 :]}"


class UndoConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Keep what the agent changes, so that `/undo` can take it back.")] = True
    max_entries: Annotated[
        int, key("Files and folders below the session's folders that are watched for what commands change.", ge=0)
    ] = 60_000
    max_file_bytes: Annotated[
        int, key("Files up to this size are kept before commands change them; what git has needs no copy.", ge=0)
    ] = 2_000_000
    max_tool_file_bytes: Annotated[
        int, key("Files up to this size are kept when the agent's own tools change or remove them.", ge=0)
    ] = 64_000_000
    look_seconds: Annotated[
        float, key("Seconds a command may wait for copies of files that git does not have.", ge=0)
    ] = 0.2
    copy_seconds: Annotated[
        float, key("Seconds per prompt of copying such files while the model answers and commands run.", ge=0)
    ] = 2.0
    quota_bytes: Annotated[int, key("Disk space of what is kept; the oldest is dropped first. 0: no limit.", ge=0)] = (
        1_000_000_000
    )
    retention_days: Annotated[float, key("Days after which changes can no longer be taken back.", gt=0)] = 30.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration."""

    agent: AgentConfig = AgentConfig()
    providers: Annotated[
        dict[str, ProviderConfig],
        key(
            "Providers by name. Without one, `default` is created from OPENAI_* variables, and each known provider "
            "whose key is in the environment is offered."
        ),
    ] = {}
    tools: ToolsConfig = ToolsConfig()
    mcp: McpConfig = McpConfig()
    network: where.NetworkConfig = where.NetworkConfig()
    hooks: safety.HooksConfig = safety.HooksConfig()
    plugins: safety.PluginsConfig = safety.PluginsConfig()
    lsp: LspConfig = LspConfig()
    places: Annotated[dict[str, where.PlaceConfig], key("Places by name, in which commands may run.")] = {}
    clients: Annotated[
        dict[str, ClientProfileConfig],
        key(
            "What a client can really do, by its `clientInfo` name (lower case, `-` for other characters); `unnamed`: "
            "one without a name."
        ),
    ] = {}
    compaction: CompactionConfig = CompactionConfig()
    secrets: SecretsConfig = SecretsConfig()
    limits: LimitsConfig = LimitsConfig()
    protocol: ProtocolConfig = ProtocolConfig()
    server: where.ServerConfig = where.ServerConfig()
    store: where.StoreConfig = where.StoreConfig()
    undo: UndoConfig = UndoConfig()
    worktree: where.WorktreeConfig = where.WorktreeConfig()
    log: LogConfig = LogConfig()
    terminal: ChatConfig = ChatConfig()
    audit: safety.AuditConfig = safety.AuditConfig()

    @property
    def chosen_provider(self) -> str:
        """The provider of new sessions: the one the model names (`provider/model`), else `agent.provider`."""
        return self.choice(self.agent.model).partition("/")[0] if self.agent.model else self.agent.provider

    def place(self) -> where.Place | None:
        """Where commands run; `None`: on this machine. Raises ConfigError for a name that is not configured."""
        return where.find_place(self.agent.place, self.places)

    def choice(self, model: str) -> str:
        """`provider/model` for what a user may write: that, `provider:model`, or a model alone. That is the chosen
        provider's, unless its configured models lack it and just one other provider has it.

        Names of models may contain a `/`, too: what stands before it is another provider than the chosen one only if
        that is OpenAI's, whose models have none."""
        chosen = self.agent.provider
        own = self.provider(chosen)
        named, separator, _ = as_choice(model).partition("/")
        listed = own is not None and model in own.models
        plain = named in (chosen, "default") or (chosen == "default" and "default" not in self.providers)
        meant = named in (*self.providers, "default") and (plain or model.startswith(f"{named}:"))
        if separator and meant and not listed:
            return as_choice(model)
        if own is not None and own.models and not listed:
            having = [name for name, provider in self.providers.items() if model in provider.models]
            if len(having) == 1:
                return f"{having[0]}/{model}"
        return f"{chosen}/{model}"

    def fallback(self, model: str) -> str:
        """`provider/model` for one of `agent.fallback_models`; `name:tag` is a model unless there is that provider."""
        choice = as_choice(model)
        known = self.provider(choice.partition("/")[0]) is not None
        return choice if "/" in model or known else self.choice(model)

    def provider(self, name: str) -> ProviderConfig | None:
        """The provider `name`; `default` always exists."""
        found = self.providers.get(name)
        return ProviderConfig() if found is None and name == "default" else found

    def price(self, model: str) -> PriceConfig | None:
        """The first of the user's prices that is of `provider/model`."""
        return next((price for price in self.agent.prices if fnmatchcase(model, price.model)), None)

    def no_provider(self, name: str) -> str:
        """The words for a provider that is not configured."""
        known = ", ".join(self.providers) or "none"
        return f"the provider {name!r} is not in the configuration; configured: {known}"
