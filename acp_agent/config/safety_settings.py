"""Safety settings: sandbox, rules, policy, scopes, audit, hooks. Part of `Settings` (see `model`).

No key but those of hooks may be set by a project.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from acp_agent.config.language_settings import key
from acp_agent.config.trusted_files import names_of

SAFE_VARIABLES = (
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_* TZ TERM COLORTERM NO_COLOR TMPDIR COLUMNS LINES PWD CI DEBUG "
    "VERBOSE HOSTNAME XDG_*_HOME XDG_*_DIRS VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_* PYTHON* PIP_* UV_* "
    "POETRY_* HATCH_* NODE_* NVM_* FNM_* VOLTA_HOME npm_config_* NPM_CONFIG_* YARN_* PNPM_HOME BUN_INSTALL DENO_* "
    "CARGO_* RUST* GO* CGO_* JAVA_HOME JDK_HOME MAVEN_* M2_HOME GRADLE_* SDKMAN_DIR DOTNET_* RUBY* GEM_* BUNDLE_* "
    "RBENV_* PHP_* COMPOSER_* PERL5LIB ANDROID_* FLUTTER_* CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS "
    "LD_LIBRARY_PATH DYLD_* LIBRARY_PATH CPATH PKG_CONFIG_* CMAKE_* MAKEFLAGS NIX_* GUIX_* ASDF_* MISE_* "
    "HOMEBREW_* SSL_CERT_* REQUESTS_CA_BUNDLE CURL_CA_BUNDLE http_proxy https_proxy no_proxy all_proxy HTTP_PROXY "
    "HTTPS_PROXY NO_PROXY ALL_PROXY PLAYWRIGHT_* SOURCE_DATE_EPOCH DEBIAN_FRONTEND ACP_CODER_RUN"
).split()
"""Names of variables a command inherits; `*` matches anything."""

FORBIDDEN = ["~/.ssh", "~/.aws", "~/.gnupg", "~/.config/gcloud", "~/.kube", "~/.docker", "~/.netrc", "/etc/shadow"]
"""Where keys are stored."""

KEY_FILES = (
    ".env .env.* .envrc.local !.env.example !.env.sample !.env.template !.env.dist !.env.defaults "
    "!.env.schema id_rsa* id_dsa* id_ecdsa* id_ed25519* !id_*.pub *.pem !*cert*.pem !*chain*.pem "
    "!*public*.pem !ca.pem !*-ca.pem *.key *.p8 *.p12 *.pfx *.ppk *.jks *.keystore *.kdbx .netrc _netrc "
    ".pypirc .pgpass .my.cnf .htpasswd .git-credentials .dockercfg .vault-token .vault_pass* .boto .s3cfg "
    ".terraformrc *.tfvars *.tfstate *.tfstate.backup credentials.json credentials.toml "
    "client_secret*.json service-account*.json service_account*.json serviceAccountKey*.json secrets.json "
    "secrets.toml secrets.yaml secrets.yml secrets.env .cargo/credentials .gem/credentials "
    ".m2/settings.xml .config/gh/hosts.yml .config/rclone .password-store .local/share/keyrings .mozilla "
    ".config/google-chrome .config/chromium"
).split()
"""Files that may keep keys or passwords; `!`: not these."""

Action = Literal["allow", "ask", "deny"]
Pattern = Annotated[str, Meta(max_length=1024)]
PathText = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""A path: no system has one with a NUL character."""


def check_paths(key: str, texts: list[str]) -> None:
    """Raises ValueError for entries that would stand for nothing."""
    for text in texts:
        if not text.strip():
            raise ValueError(f"`{key}` contains an empty path; remove it, or name a folder")
        if text.startswith("~") and text != "~" and not text.startswith("~/"):
            raise ValueError(f"`{key}` contains {text!r}: only your own home folder can be written as `~`")
        if "**" in text and key.startswith("tools.sandbox"):
            raise ValueError(
                f"`{key}` contains {text!r}: `**` is not known here; a folder stands for all that is in it"
            )


class SandboxConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    disabled: Annotated[bool, key("Run commands without a sandbox.")] = False
    strict: Annotated[bool, key("Run no command at all without a sandbox; `false`: run it with a warning.")] = False
    allow_read: Annotated[
        list[PathText],
        key(
            "Folders and files commands may read besides the session's and the system's folders: paths (relative ones: "
            "to the session's folders) or globs."
        ),
    ] = []
    allow_write: Annotated[
        list[PathText], key("The same for what they may write. A folder that ends with `/` is made if it is missing.")
    ] = []
    writable: Annotated[
        list[PathText],
        key(
            "If set, all that commands may write in the session's folders: paths or globs, as in `allow_write`. File "
            "tools are not affected."
        ),
    ] = []
    enclosing_repository: Annotated[
        bool,
        key(
            "In a session below the top of your git repository, let git in commands work: they write its `.git`, and "
            "can read its other files (not those that are hidden or may keep keys)."
        ),
    ] = True
    network: Annotated[
        Literal["ask", "allow", "deny"] | list[Pattern],
        key(
            "The network of commands. `ask`: through a proxy of the agent, which asks about each new host; `allow`: "
            "all of it; `deny`: none; a list of hosts (`HOST`, `*.HOST`, `HOST:PORT`): only these, without asking."
        ),
    ] = "ask"
    registries: Annotated[
        bool, key("With `ask`: let commands reach well-known package registries (npm, PyPI, crates.io, …) unasked.")
    ] = False
    host_timeout: Annotated[
        float, key("Seconds to answer a question about a host; then the connection is refused.", gt=0, le=3600)
    ] = 120.0
    loopback_ports: Annotated[
        list[Annotated[int, Meta(ge=1, le=65535)]],
        key("Services of this machine (ports) that commands find at their own localhost: a database, say."),
    ] = []
    publish_ports: Annotated[
        bool, key("Make servers that commands start reachable at the same port of this machine's loopback.")
    ] = True
    allow_unix_sockets: Annotated[bool, key("Let commands use AF_UNIX sockets (Docker, key agents, databases).")] = (
        False
    )
    protect: Annotated[
        list[PathText],
        key(
            "Paths below each session folder that commands in the sandbox can neither change nor create, and that "
            "tools change only after asking: files that other programs load, see trusted-files.md."
        ),
    ] = msgspec.field(default_factory=lambda: names_of("protect"))
    protect_existing: Annotated[
        list[PathText],
        key("The same, but commands may create those that are missing; you are told of each that they create."),
    ] = msgspec.field(default_factory=lambda: names_of("protect_existing"))
    report: Annotated[
        list[PathText],
        key("Paths that tools change only after asking; of those that commands create or change you are told."),
    ] = msgspec.field(default_factory=lambda: names_of("report"))
    editor_terminal: Annotated[
        bool, key("Also confine commands in the editor's terminal (which must run on this machine).")
    ] = True
    landlock: Annotated[bool, key("Add Landlock inside bubblewrap if the kernel supports it.")] = True
    max_processes: Annotated[int, key("Maximum processes of one command at a time; 0: no limit.", ge=0)] = 2048

    max_memory: Annotated[
        int, key("Bytes of memory that each process of a command may allocate for data; 0: no limit.", ge=0)
    ] = 0
    min_free_disk: Annotated[
        int, key("Bytes that stay free on the disk: a command that leaves less is ended; 0: no limit.", ge=0)
    ] = 200_000_000
    max_file_size: Annotated[int, key("Largest file in bytes that a command may write; 0: no limit.", ge=0)] = 0

    def __post_init__(self) -> None:
        for name in ("allow_read", "allow_write", "writable"):
            check_paths(f"tools.sandbox.{name}", getattr(self, name))


class PermissionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[Pattern, key("Glob, ignoring case, for a command, a path below the session's folder or a URL.")]
    action: Annotated[Action, key("What happens to a matching call.")]


class PolicyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effect: Annotated[Literal["allow", "deny"], key("What the rule does with matching calls.")]
    tool: Annotated[Pattern, key("Glob for the tool's name.")] = "*"
    paths: Annotated[
        list[Pattern],
        key(
            "Globs of paths; one must match. A relative one is below the session's folder, at any depth if without `/`."
        ),
    ] = []
    args_match: Annotated[Pattern, key("Regular expression (RE2) that must match in an argument of the call.")] = ""
    env: Annotated[
        dict[str, str], key("Variables of the agent's environment that must have these values (globs).")
    ] = {}


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether the rules apply.")] = True
    default: Annotated[Literal["allow", "deny"], key("What happens if no rule matches.")] = "allow"
    rules: Annotated[list[PolicyRule], key("The rules; a deny wins, wherever it is in the list.", max_length=256)] = []


class AuthorizationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether these rules are added after those of `tools.policy`.")] = False
    rules: Annotated[list[PolicyRule], key("Rules as in `tools.policy.rules`.", max_length=256)] = []


class ScopedConstraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Pattern, key("Glob for the tool's name.")]
    parameter: Annotated[str, key("Only this argument of the call. Empty: all of them.")] = ""
    deny_patterns: Annotated[list[Pattern], key("Texts that no argument may contain, ignoring case.")] = []
    allow_patterns: Annotated[list[Pattern], key("Globs; the argument must match one of them.")] = []
    allowed_paths: Annotated[list[PathText], key("Folders that every path of the call must be below.")] = []
    allowed_hosts: Annotated[list[Pattern], key("Globs of hosts that may be contacted.")] = []


class ScopedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether these limits apply.")] = True
    allowed_tools: Annotated[
        list[str], key("Globs of the only tools that may be used. With these, `denied_tools` is ignored.")
    ] = []
    denied_tools: Annotated[list[str], key("Globs of tools that may not be used.")] = []
    constraints: Annotated[list[ScopedConstraint], key("Constraints on the arguments of tools.")] = []


class ScopeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether `run_as_user` and `require_capability` apply.")] = True
    run_as_user: Annotated[
        str,
        key(
            "User that commands, file tools and MCP servers run as (name or number); the agent must be allowed to "
            "switch users, as root is."
        ),
    ] = ""
    require_capability: Annotated[
        bool, key("Run no tool at all, not even one without a user, unless the agent may switch to `run_as_user`.")
    ] = False
    audit_all_invocations: Annotated[bool, key("Log every call, including read-only ones.")] = True

    def __post_init__(self) -> None:
        if self.enabled and self.require_capability and not self.run_as_user:
            raise ValueError("`require_capability` needs `run_as_user`: the user that the agent must be able to become")

    @property
    def user(self) -> str:
        """The user that tools act as; empty: the agent's own."""
        return self.run_as_user if self.enabled else ""


class GovernanceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trajectory_enabled: Annotated[bool, key("Watch the sequence of a session's calls.")] = False
    block_risky_patterns: Annotated[
        bool, key("Block calls that would repeat a sequence that failed or was rejected before.")
    ] = False
    blocked_sequences: Annotated[
        list[list[str]],
        key(
            "Sequences: a tool, then texts its arguments contain in that order; or several tools in a row (after "
            "`bash` written as `tool:NAME`, since names of tools are words of commands)."
        ),
    ] = []
    always_available: Annotated[list[str], key("Tools that are never blocked by what was learned.")] = []
    window: Annotated[int, key("Number of calls in a row that are learned as one sequence.", ge=2, le=10)] = 3
    similarity: Annotated[
        float, key("Similarity to a call that went wrong from which a call is blocked.", gt=0, le=1)
    ] = 0.9
    max_learned: Annotated[int, key("Maximum learned sequences kept per project.", ge=0)] = 200


class AnomalyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Watch how often each tool fails.")] = True
    window_size: Annotated[int, key("Number of a tool's last calls that count.", ge=2, le=1000)] = 20
    failure_threshold: Annotated[float, key("Fraction of them that may fail.", gt=0, le=1)] = 0.7
    auto_block: Annotated[bool, key("Then block the tool until `/unblock`.")] = True
    block_seconds: Annotated[
        float, key("Seconds after which the tool may be used again, for runs with nobody to ask; 0: never.", ge=0)
    ] = 0.0


class RiskConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    autonomy: Annotated[
        Literal["readonly", "supervised", "full"],
        key(
            "`readonly`: no changes, whatever the mode; `supervised`: dangerous commands ask in every mode; `full`: "
            "only the mode and the rules decide."
        ),
    ] = "supervised"
    block_high_risk_commands: Annotated[bool, key("Refuse dangerous commands instead of asking.")] = False
    ask_medium_risk: Annotated[bool, key("Ask about commands that change something, if the mode asks.")] = True
    allowed_commands: Annotated[list[str], key("The only programs a command line may call. Empty: all.")] = []
    forbidden_paths: Annotated[
        list[PathText], key("Paths that no command line may mention, and that no tool and no command may touch.")
    ] = msgspec.field(default_factory=FORBIDDEN.copy)
    max_actions_per_hour: Annotated[
        int, key("Maximum calls of a session per hour that change something; 0: no limit.", ge=0)
    ] = 0


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Log every tool call and decision.")] = True
    file: Annotated[
        str,
        key("The log file. Empty: `audit.jsonl` in the state folder. Owners of a server: in `owners/NAME` beside it."),
    ] = ""
    required: Annotated[bool, key("Run no tool while the log cannot be written.")] = False
    max_bytes: Annotated[int, key("Size in bytes at which the file is rotated.", ge=10_000)] = 10_000_000
    backups: Annotated[int, key("Rotated files kept.", ge=0, le=100)] = 5
    argument_chars: Annotated[int, key("Logged characters of a call's arguments.", ge=100)] = 2_000
    result_chars: Annotated[int, key("Logged characters of a call's result.", ge=0)] = 200


OF_FOLDER = "folder"
OF_SETTINGS = "folder, for other agents"
"""Both begin the same."""
WHOSE = "Set by the agent: whose it is, if not yours. What it runs must be what you trust."


class HookConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, key("Command line, run by bash in the session's folder.")] = ""
    tools: Annotated[list[str], key("Only for these tools. Empty: for all.")] = []
    timeout: Annotated[float, key("Its timeout in seconds.", gt=0, le=600)] = 10.0
    of: Annotated[str, key(WHOSE)] = ""


HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PermissionRequest",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "PreCompact",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "Notification",
]


PLAIN_URL = r"(https?://)(?:[^/?#@]*@)?((?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?)(/[^?#@]*)?(?:[?#].*)?"


class DecidingHook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    event: HookEvent
    name: Annotated[str, key("Its name in messages and the audit log. Empty: its command or URL.")] = ""
    matcher: Annotated[
        str, key("Regular expression for the whole name of the tool (or the kind of the event). Empty or `*`: all.")
    ] = ""
    pattern: Annotated[
        str, key("Only calls that touch this: a command, path or host, with `*` and `?` as in `tools.permissions`.")
    ] = ""
    command: Annotated[
        str, key("Command line, run by bash in the session's folder, with the event as JSON on stdin.")
    ] = ""
    url: Annotated[str, key("Or: the URL to which the event is posted.")] = ""
    headers: Annotated[dict[str, str], key("Headers of that request.")] = {}
    env: Annotated[dict[str, str], key("Variables of the command.")] = {}
    timeout: Annotated[float, key("Its timeout in seconds.", gt=0, le=600)] = 60.0
    frees: Annotated[bool, key("Whether its `allow` answers a question. Without effect in a project's hooks.")] = False
    of: Annotated[str, key(WHOSE)] = ""

    @property
    def called(self) -> str:
        """Its name for people."""
        return self.name or " ".join((self.command or plain_url(self.url)).split())[:80]


def divided(call: str) -> tuple[str, str]:
    """The tool and the pattern of a call as Claude Code writes it: `Read`, `Bash(git add:*)`, which is `git add *`,
    `WebFetch(domain:HOST)`, which is HOST; of what is not written so, two empty texts."""
    found = re.fullmatch(r"([\w.-]+)(?:\((.*)\))?", call.strip(), re.DOTALL)
    if found is None:
        return "", ""
    pattern = (found[2] or "*").strip().removeprefix("domain:")
    return found[1], f"{pattern.removesuffix(':*')} *" if pattern.endswith(":*") else pattern


def plain_url(url: str) -> str:
    """Without user, password, query and fragment, which may be credentials; of what is no URL of http, nothing."""
    return "".join(found.groups("")) if (found := re.fullmatch(PLAIN_URL, url, re.DOTALL)) else "a URL"


class HooksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    on: Annotated[list[DecidingHook], key("Run at an event, which they may decide about.", project=True)] = []
    max_context_chars: Annotated[int, key("What the model reads of one answer of a hook.", ge=100)] = 10_000
    max_rounds: Annotated[
        int, key("How often hooks of Stop or SubagentStop may let the model go on in one turn.", ge=0, le=100)
    ] = 5
    tool_before: Annotated[list[HookConfig], key("Run before a tool.", project=True)] = []
    tool_after: Annotated[list[HookConfig], key("Run after a tool.", project=True)] = []
    file_changed: Annotated[list[HookConfig], key("Run after a tool changed a file.", project=True)] = []
    cwd_changed: Annotated[list[HookConfig], key("Run after a command changed the shell's folder.", project=True)] = []


class PluginsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Use the plugins that were added (`acp-coder plugin add`).")] = True
    disabled: Annotated[list[str], key("Names of plugins that are not used.")] = []
