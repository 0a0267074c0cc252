"""Files and folders whose content makes other programs run something, although nobody starts a build or a test: who
loads each, and when. The defaults of `tools.sandbox.protect`, `protect_existing` and `report`; docs/trusted-files.md is
generated from these rows.

Not in the table is what only a build, a test or a linter loads (`Makefile`, `package.json`, `conftest.py`,
`eslint.config.js`): that is ordinary code of the project.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["protect", "protect_existing", "report"]
"""What commands in the sandbox may do. `protect`: neither change nor create it. `protect_existing`: create it, which is
reported. `report`: both, which is reported, since everyday git changes these."""


class Trusted(Struct, frozen=True):
    names: str
    """Relative paths, separated by spaces; `*` in a name matches anything."""
    who: str
    when: str
    level: Level = "protect_existing"
    home: bool = False
    """Whether it is loaded only from the user's home folder."""


OPENED = "when the folder is opened"
STARTED = "when started in the folder"
LOGIN = "at login"

TRUSTED = (
    Trusted(".git/hooks .git/config", "git", "with most commands, also those of prompts and editors", "protect"),
    Trusted(".acp-coder", "this agent", "in the next session, once you trust the folder", "protect"),
    Trusted(".vscode", "VS Code and editors made from it", OPENED, "protect"),
    Trusted(".idea", "IDEs of JetBrains", OPENED, "protect"),
    Trusted(".mcp.json", "coding agents", STARTED, "protect"),
    Trusted(".envrc", "direnv", "when a shell enters the folder, once you allow it", "protect"),
    Trusted(
        ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .config/fish",
        "shells", "when they start", "protect", home=True,
    ),
    # --- editors ---
    Trusted("*.code-workspace", "VS Code and editors made from it", "when it is opened"),
    Trusted(".zed", "Zed", OPENED),
    Trusted(".helix", "Helix", STARTED),
    Trusted(".nvim.lua .nvimrc .exrc .vimrc .lvimrc .vim .neoconf.json .nlsp-settings", "Vim, Neovim", STARTED),
    Trusted(".dir-locals.el .dir-locals-2.el", "Emacs", "when a file in the folder is opened"),
    Trusted(".fleet .nova .vs .theia *.sublime-project", "editors", OPENED),
    Trusted(".externalToolBuilders", "Eclipse and its language server", "when the project is built by itself"),
    Trusted(".devcontainer .devcontainer.json", "editors", "when the folder is opened in its container"),
    # --- coding agents ---
    Trusted(
        ".cursor .claude .gemini .codex .continue .windsurf .kiro .trae .roo .qwen .opencode opencode.json "
        "opencode.jsonc .crush.json crush.json .factory .augment .amazonq .aider.conf.yml .github/hooks",
        "coding agents", "when they start in the folder (hooks, MCP servers, permissions)",
    ),
    # --- shells and version managers ---
    Trusted(".autoenv .autoenv.zsh .autoenv_leave.zsh", "autoenv", "when a shell enters the folder"),
    Trusted(
        ".mise .mise.toml .mise.local.toml mise.toml mise.local.toml .config/mise .tool-versions",
        "mise, asdf", "when a shell enters the folder, or a program of theirs starts",
    ),
    # --- hooks of version control ---
    Trusted(
        ".husky .pre-commit-config.yaml lefthook.yml .lefthook.yml lefthook-local.yml .overcommit.yml",
        "hooks of git", "when you commit or push",
    ),
    # --- package managers, interpreters, debuggers ---
    Trusted(".npmrc .pnpmfile.cjs .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins", "npm, pnpm, Yarn", STARTED),
    Trusted("bunfig.toml", "Bun", STARTED),
    Trusted(".cargo/config .cargo/config.toml", "cargo, rust-analyzer", "whenever they run below the folder"),
    Trusted(".mvn .bundle/config", "Maven, Bundler and language servers", STARTED),
    Trusted(".gdbinit .lldbinit .pdbrc", "debuggers", STARTED),
    Trusted(
        ".irbrc .pryrc .Rprofile .Renviron .ghci .ocamlinit .iex.exs .octaverc sitecustomize.py usercustomize.py",
        "interpreters", STARTED,
    ),
    # --- what everyday git changes ---
    Trusted(".gitattributes", "git", "with most commands (filters and merge drivers you have set up)", "report"),
    Trusted(
        ".github/workflows .github/actions .forgejo/workflows .gitea/workflows .gitlab-ci.yml .circleci .travis.yml "
        "azure-pipelines.yml Jenkinsfile .drone.yml .woodpecker .woodpecker.yml .buildkite bitbucket-pipelines.yml",
        "the project's CI, with its secrets", "when it is pushed", "report",
    ),
    # --- the home folder ---
    Trusted(".gitconfig .config/git", "git", "with every command", home=True),
    Trusted(".ssh/config .ssh/rc .ssh/authorized_keys .ssh/environment .rhosts .k5login", "ssh and its server",
            "at every connection", home=True),
    Trusted(".bash_aliases .zlogout .inputrc .kshrc .cshrc .tcshrc .login .direnvrc .config/direnv .config/powershell",
            "shells", "when they start", home=True),
    Trusted(
        ".pam_environment .xinitrc .xsession .xsessionrc .xprofile .config/autostart .config/systemd "
        ".config/environment.d .local/share/systemd .local/share/dbus-1 .config/i3 .config/sway .config/hypr",
        "the desktop and systemd", LOGIN, home=True,
    ),
    Trusted(".local/bin .local/share/applications .mailcap .config/mimeapps.list", "shells and the desktop",
            "when a program of that name, or a file of that kind, is opened", home=True),
    Trusted(".forward .procmailrc", "the mail server", "when mail arrives", home=True),
    Trusted(
        ".emacs .emacs.d .config/emacs .gvimrc .config/nvim .config/helix .config/zed .tmux.conf .config/tmux "
        ".screenrc .config/kitty .config/wezterm .wezterm.lua .config/alacritty",
        "editors and terminals", "when they start", home=True,
    ),
    Trusted(
        ".pythonrc .pythonrc.py .pystartup .ipython .jupyter .config/gdb .config/pip .pip .condarc .gemrc .asdfrc "
        ".psqlrc .sqliterc .curlrc .wgetrc",
        "interpreters and other programs", "when they start", home=True,
    ),
)  # fmt: skip


EVERY_NAME = tuple(name for row in TRUSTED for name in row.names.split())


def names_of(level: Level) -> list[str]:
    return [name for row in TRUSTED if row.level == level for name in row.names.split()]


def who_loads(name: str) -> Trusted | None:
    """The row of a name, in any spelling; None for one of the user's own."""
    wanted = name.casefold()
    return next((row for row in TRUSTED if any(_is(wanted, known) for known in row.names.casefold().split())), None)


def _is(name: str, known: str) -> bool:
    return name.endswith(known[1:]) if known.startswith("*") else name == known
