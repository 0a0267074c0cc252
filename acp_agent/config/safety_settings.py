"""Safety settings: sandbox, rules, policy, scopes, audit. Part of `Settings` (see `model`).

None of these keys may be set by a project.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PROTECTED = [
    ".git/hooks",
    ".git/config",
    ".acp-coder",
    ".vscode",
    ".idea",
    ".mcp.json",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".config/fish",
]
"""Paths below a session folder that make other programs run something."""

SAFE_VARIABLES = [
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR"),
    *("TMPDIR", "COLUMNS", "LINES", "PWD", "CI", "DEBUG", "VERBOSE", "HOSTNAME", "XDG_*_HOME", "XDG_*_DIRS"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_*", "PYTHON*", "PIP_*", "UV_*", "POETRY_*", "HATCH_*"),
    *("NODE_*", "NVM_*", "FNM_*", "VOLTA_HOME", "npm_config_*", "NPM_CONFIG_*", "YARN_*", "PNPM_HOME", "BUN_INSTALL"),
    *(
        "DENO_*",
        "CARGO_*",
        "RUST*",
        "GO*",
        "CGO_*",
        "JAVA_HOME",
        "JDK_HOME",
        "MAVEN_*",
        "M2_HOME",
        "GRADLE_*",
        "SDKMAN_DIR",
    ),
    *("DOTNET_*", "RUBY*", "GEM_*", "BUNDLE_*", "RBENV_*", "PHP_*", "COMPOSER_*", "PERL5LIB", "ANDROID_*", "FLUTTER_*"),
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LD_LIBRARY_PATH", "DYLD_*", "LIBRARY_PATH", "CPATH"),
    *("PKG_CONFIG_*", "CMAKE_*", "MAKEFLAGS", "NIX_*", "GUIX_*", "ASDF_*", "MISE_*", "HOMEBREW_*", "SSL_CERT_*"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY"),
    *("HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "PLAYWRIGHT_*", "SOURCE_DATE_EPOCH", "DEBIAN_FRONTEND", "ACP_CODER_RUN"),
]
"""Names of variables a command inherits; `*` matches anything."""

FORBIDDEN = ["~/.ssh", "~/.aws", "~/.gnupg", "~/.config/gcloud", "~/.kube", "~/.docker", "~/.netrc", "/etc/shadow"]
"""Where keys are stored."""

Action = Literal["allow", "ask", "deny"]
Pattern = Annotated[str, Meta(max_length=1024)]
PathText = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""A path: no system has one with a NUL character."""


class SandboxConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    disabled: Annotated[bool, Meta(description="Run commands without a sandbox.")] = False
    strict: Annotated[
        bool, Meta(description="Run no command at all without a sandbox; `false`: run it with a warning.")
    ] = False
    allow_read: Annotated[
        list[PathText],
        Meta(description="Folders and files commands may read besides the session's and the system's folders."),
    ] = []
    allow_write: Annotated[
        list[PathText], Meta(description="Folders and files commands may write besides the session's folders.")
    ] = []
    allow_network: Annotated[bool, Meta(description="`false`: commands have no network.")] = True
    allow_unix_sockets: Annotated[
        bool, Meta(description="Let commands use AF_UNIX sockets (Docker, key agents, databases).")
    ] = False
    protect: Annotated[
        list[PathText],
        Meta(
            description="Paths below each session folder that neither commands nor tools can change without asking: "
            "files that other programs trust."
        ),
    ] = msgspec.field(default_factory=PROTECTED.copy)
    editor_terminal: Annotated[
        bool, Meta(description="Also confine commands in the editor's terminal (which must run on this machine).")
    ] = True
    landlock: Annotated[bool, Meta(description="Add Landlock inside bubblewrap if the kernel supports it.")] = True
    max_processes: Annotated[
        int, Meta(ge=0, description="Maximum processes of one command at a time; 0: no limit.")
    ] = 2048


class PermissionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        Pattern,
        Meta(description="Glob, ignoring case, for a command, a path below the session's folder or a URL."),
    ]
    action: Annotated[Action, Meta(description="What happens to a matching call.")]


class PolicyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effect: Annotated[Literal["allow", "deny"], Meta(description="What the rule does with matching calls.")]
    tool: Annotated[Pattern, Meta(description="Glob for the tool's name.")] = "*"
    paths: Annotated[list[Pattern], Meta(description="Globs of resolved absolute paths; one must match.")] = []
    args_match: Annotated[
        Pattern, Meta(description="Regular expression (RE2) that must match in an argument of the call.")
    ] = ""
    env: Annotated[
        dict[str, str], Meta(description="Variables of the agent's environment that must have these values (globs).")
    ] = {}


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Whether the rules apply.")] = True
    default: Annotated[Literal["allow", "deny"], Meta(description="What happens if no rule matches.")] = "allow"
    rules: Annotated[
        list[PolicyRule], Meta(max_length=256, description="The rules; a deny wins, wherever it is in the list.")
    ] = []


class AuthorizationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Whether these rules are added after those of `tools.policy`.")] = False
    rules: Annotated[list[PolicyRule], Meta(max_length=256, description="Rules as in `tools.policy.rules`.")] = []


class ScopedConstraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Pattern, Meta(description="Glob for the tool's name.")]
    parameter: Annotated[str, Meta(description="Only this argument of the call. Empty: all of them.")] = ""
    deny_patterns: Annotated[list[Pattern], Meta(description="Texts that no argument may contain, ignoring case.")] = []
    allow_patterns: Annotated[list[Pattern], Meta(description="Globs; the argument must match one of them.")] = []
    allowed_paths: Annotated[
        list[PathText], Meta(description="Folders that every path of the call must be below.")
    ] = []
    allowed_hosts: Annotated[list[Pattern], Meta(description="Globs of hosts that may be contacted.")] = []


class ScopedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Whether these limits apply.")] = True
    allowed_tools: Annotated[
        list[str], Meta(description="Globs of the only tools that may be used. With these, `denied_tools` is ignored.")
    ] = []
    denied_tools: Annotated[list[str], Meta(description="Globs of tools that may not be used.")] = []
    constraints: Annotated[list[ScopedConstraint], Meta(description="Constraints on the arguments of tools.")] = []


class ScopeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run_as_user: Annotated[
        str, Meta(description="User that commands run as (name or number); the agent must be allowed to switch users.")
    ] = ""
    audit_all_invocations: Annotated[bool, Meta(description="Log every call, including read-only ones.")] = True


class GovernanceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trajectory_enabled: Annotated[bool, Meta(description="Watch the sequence of a session's calls.")] = False
    block_risky_patterns: Annotated[
        bool, Meta(description="Block calls that would repeat a sequence that failed or was rejected before.")
    ] = False
    blocked_sequences: Annotated[
        list[list[str]],
        Meta(
            description="Sequences: a tool, then texts its arguments contain in that order; or several tools in a row."
        ),
    ] = []
    always_available: Annotated[list[str], Meta(description="Tools that are never blocked by what was learned.")] = []
    window: Annotated[
        int, Meta(ge=2, le=10, description="Number of calls in a row that are learned as one sequence.")
    ] = 3
    similarity: Annotated[
        float, Meta(gt=0, le=1, description="Similarity to a call that went wrong from which a call is blocked.")
    ] = 0.9
    max_learned: Annotated[int, Meta(ge=0, description="Maximum learned sequences kept per project.")] = 200


class AnomalyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Watch how often each tool fails.")] = True
    window_size: Annotated[int, Meta(ge=2, le=1000, description="Number of a tool's last calls that count.")] = 20
    failure_threshold: Annotated[float, Meta(gt=0, le=1, description="Fraction of them that may fail.")] = 0.7
    auto_block: Annotated[bool, Meta(description="Then block the tool until `/unblock`.")] = True


class RiskConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    autonomy: Annotated[
        Literal["readonly", "supervised", "full"],
        Meta(
            description="`readonly`: no changes, whatever the mode; `supervised`: dangerous commands ask in every "
            "mode; `full`: only the mode and the rules decide."
        ),
    ] = "supervised"
    block_high_risk_commands: Annotated[bool, Meta(description="Refuse dangerous commands instead of asking.")] = False
    ask_medium_risk: Annotated[
        bool, Meta(description="Ask about commands that change something, if the mode asks.")
    ] = True
    allowed_commands: Annotated[
        list[str], Meta(description="The only programs a command line may call. Empty: all.")
    ] = []
    forbidden_paths: Annotated[list[PathText], Meta(description="Paths that no command line may mention.")] = (
        msgspec.field(default_factory=FORBIDDEN.copy)
    )
    max_actions_per_hour: Annotated[
        int, Meta(ge=0, description="Maximum calls of a session per hour that change something; 0: no limit.")
    ] = 0


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Log every tool call and decision.")] = True
    file: Annotated[str, Meta(description="The log file. Empty: `audit.jsonl` in the state folder.")] = ""
    required: Annotated[bool, Meta(description="Run no tool while the log cannot be written.")] = False
    max_bytes: Annotated[int, Meta(ge=10_000, description="Size in bytes at which the file is rotated.")] = 10_000_000
    backups: Annotated[int, Meta(ge=0, le=100, description="Rotated files kept.")] = 5
    argument_chars: Annotated[int, Meta(ge=100, description="Logged characters of a call's arguments.")] = 2_000
    result_chars: Annotated[int, Meta(ge=0, description="Logged characters of a call's result.")] = 200
