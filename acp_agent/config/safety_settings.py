"""Settings of safety: sandbox, rules, policy, scopes, audit. Part of `Settings` (see `model`).

None of these keys may be set by a project.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from acp_agent.config.language_settings import key

PROTECTED = (
    ".git/hooks .git/config .acp-coder .vscode .idea .mcp.json .envrc .bashrc .bash_profile .bash_login "
    ".bash_logout .profile .zshrc .zshenv .zprofile .zlogin .config/fish"
).split()
"""Below a folder of the session: what makes other programs run something."""

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
"""Names of variables a command inherits; `*` stands for anything."""

FORBIDDEN = ["~/.ssh", "~/.aws", "~/.gnupg", "~/.config/gcloud", "~/.kube", "~/.docker", "~/.netrc", "/etc/shadow"]
"""Where keys are kept."""

Action = Literal["allow", "ask", "deny"]
Pattern = Annotated[str, Meta(max_length=1024)]
PathText = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""A path: no system has one with a NUL character."""


class SandboxConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    disabled: Annotated[bool, key("Run commands without a sandbox.")] = False
    strict: Annotated[bool, key("Run no command at all where there is no sandbox; `false`: run it with a warning.")] = (
        False
    )
    allow_read: Annotated[
        list[PathText], key("Folders and files commands may read beyond the session's folders and the system's.")
    ] = []
    allow_write: Annotated[
        list[PathText], key("Folders and files commands may write beyond the session's folders.")
    ] = []
    allow_network: Annotated[bool, key("`false` cuts commands off from every network.")] = True
    allow_unix_sockets: Annotated[
        bool, key("Let commands make sockets of the kind AF_UNIX (docker, agents of keys, databases).")
    ] = False
    protect: Annotated[
        list[PathText],
        key(
            "Paths below each of the session's folders that neither commands nor tools change without "
            "being asked about: what other programs trust."
        ),
    ] = msgspec.field(default_factory=PROTECTED.copy)
    editor_terminal: Annotated[
        bool, key("Confine commands in the editor's terminal, too (it runs on this machine).")
    ] = True
    landlock: Annotated[bool, key("Add Landlock inside of bubblewrap, where the kernel has it.")] = True
    max_processes: Annotated[int, key("Processes of one command at once; 0: no limit.", ge=0)] = 2048


class PermissionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        Pattern,
        key("Glob, whatever the case: of a command, of a path below the session's folder, of an URL."),
    ]
    action: Annotated[Action, key("What is done with a call that matches.")]


class PolicyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effect: Annotated[Literal["allow", "deny"], key("What the rule does with calls that match.")]
    tool: Annotated[Pattern, key("Glob of the tool's name.")] = "*"
    paths: Annotated[list[Pattern], key("Globs of resolved absolute paths; one must match.")] = []
    args_match: Annotated[Pattern, key("Regular expression (RE2) found in an argument of the call.")] = ""
    env: Annotated[
        dict[str, str], key("Variables of the agent's environment that must have these values (globs).")
    ] = {}


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether the rules count.")] = True
    default: Annotated[Literal["allow", "deny"], key("What is done with a call that no rule matches.")] = "allow"
    rules: Annotated[list[PolicyRule], key("The rules; a deny wins, wherever it stands.", max_length=256)] = []


class AuthorizationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether these rules are added behind those of `tools.policy`.")] = False
    rules: Annotated[list[PolicyRule], key("Rules as in `tools.policy.rules`.", max_length=256)] = []


class ScopedConstraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Pattern, key("Glob of the tool's name.")]
    parameter: Annotated[str, key("Only this argument of the call. Empty: all of them.")] = ""
    deny_patterns: Annotated[list[Pattern], key("Texts no argument may hold, whatever the case.")] = []
    allow_patterns: Annotated[list[Pattern], key("Globs; the argument must match one of them.")] = []
    allowed_paths: Annotated[list[PathText], key("Folders that every path of the call must be below.")] = []
    allowed_hosts: Annotated[list[Pattern], key("Globs of hosts that may be asked.")] = []


class ScopedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Whether these limits count.")] = True
    allowed_tools: Annotated[
        list[str], key("Globs of the only tools that may be used. With these, `denied_tools` is ignored.")
    ] = []
    denied_tools: Annotated[list[str], key("Globs of tools that may not be used.")] = []
    constraints: Annotated[list[ScopedConstraint], key("What the arguments of tools must keep to.")] = []


class ScopeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run_as_user: Annotated[
        str, key("User that commands run as (name or number); needs the privilege to change users.")
    ] = ""
    audit_all_invocations: Annotated[bool, key("Write a line for every call, also for those that only read.")] = True


class GovernanceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trajectory_enabled: Annotated[bool, key("Watch the sequence of a session's calls.")] = False
    block_risky_patterns: Annotated[
        bool, key("Block calls that would repeat a sequence that failed or was rejected before.")
    ] = False
    blocked_sequences: Annotated[
        list[list[str]],
        key("Sequences: the tool, then texts its arguments hold in that order; or several tools in a row."),
    ] = []
    always_available: Annotated[list[str], key("Tools that are never blocked by what was learned.")] = []
    window: Annotated[int, key("Calls in a row that are learned as one sequence.", ge=2, le=10)] = 3
    similarity: Annotated[float, key("How alike a call must be to one that went wrong, to be blocked.", gt=0, le=1)] = (
        0.9
    )
    max_learned: Annotated[int, key("Learned sequences of a project that are kept.", ge=0)] = 200


class AnomalyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Watch how often each tool fails.")] = True
    window_size: Annotated[int, key("Last calls of a tool that count.", ge=2, le=1000)] = 20
    failure_threshold: Annotated[float, key("Part of them that may fail.", gt=0, le=1)] = 0.7
    auto_block: Annotated[bool, key("Block the tool then, until `/unblock`.")] = True


class RiskConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    autonomy: Annotated[
        Literal["readonly", "supervised", "full"],
        key(
            "`readonly`: nothing is changed, whatever the mode; `supervised`: dangerous commands are asked "
            "about in every mode; `full`: only the mode and the rules decide."
        ),
    ] = "supervised"
    block_high_risk_commands: Annotated[bool, key("Refuse dangerous commands instead of asking.")] = False
    ask_medium_risk: Annotated[bool, key("Ask about commands that change something, where the mode asks.")] = True
    allowed_commands: Annotated[list[str], key("The only programs a command line may call. Empty: all.")] = []
    forbidden_paths: Annotated[list[PathText], key("Paths that no command line may name.")] = msgspec.field(
        default_factory=FORBIDDEN.copy
    )
    max_actions_per_hour: Annotated[
        int, key("Calls of a session within an hour that change something; 0: no limit.", ge=0)
    ] = 0


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, key("Write down every tool call and decision.")] = True
    file: Annotated[str, key("Where. Empty: `audit.jsonl` in the state folder.")] = ""
    required: Annotated[bool, key("Run no tool while nothing can be written down.")] = False
    max_bytes: Annotated[int, key("Size in bytes at which the file is rotated.", ge=10_000)] = 10_000_000
    backups: Annotated[int, key("Rotated files kept.", ge=0, le=100)] = 5
    argument_chars: Annotated[int, key("Characters of a call's arguments written down.", ge=100)] = 2_000
    result_chars: Annotated[int, key("Characters of a call's result written down.", ge=0)] = 200
