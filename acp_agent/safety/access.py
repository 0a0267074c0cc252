"""The accesses of a tool call, and the verdicts deciders give about them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

READ_VERB = "read"
"""First word of the scope of an answer about reading one file."""
KEEPS = "may keep keys or passwords"


class Where(Protocol):
    """A place that is not this machine, as far as it matters for questions."""

    words: str
    where: str
    identity: str

    @property
    def lacks_walls(self) -> bool: ...

    @property
    def sandbox(self) -> str: ...


class PathAccess(Struct, frozen=True):
    """A file or folder, absolute and resolved as `Roots.resolve` does."""

    mode: Literal["read", "write", "delete"]
    """`delete`: it no longer exists afterwards, nor anything in it."""
    path: Path
    in_tree: bool = False
    """Touched with a whole tree, which may be another one next time: no remembered answer covers it."""


RISK_METADATA: dict[str, dict[str, object]] = {
    "risk": {"type": "string", "enum": ["low", "medium", "high"], "description": "How much harm the command can do."},
    "mutation": {"type": "boolean", "description": "Whether it changes anything."},
    "privesc": {"type": "boolean", "description": "Whether it uses privileges beyond the user's own (sudo)."},
    "why": {"type": "string", "description": "Its purpose, in one short sentence."},
}
"""JSON schema of the fields that `bash` requires from the model with `tools.require_risk_metadata`."""


PLACE, PLACED = "place", ("bash", "delegate")
"""The parameter that names another place than the session's, and the tools that have it."""
IN_PANE = {
    "session": {"type": "string", "description": "Of tmux, with the pane. Default: the shared one."},
    "pane": {
        "type": "string",
        "description": "A pane: its shell keeps folder and variables. `shared` is always there.",
    },
}
"""Parameters that name a terminal in tmux."""
DRAWN = {
    "include_escape_sequences": {"type": "boolean", "description": "With colours and the like, as `\\033[1m`."},
    "escape_non_printable": {"type": "boolean", "description": "Characters that are not printed as `\\ooo`."},
    "include_alternate_screen": {"type": "boolean", "description": "The screen behind a full-screen program's."},
}
"""What only tmux can show."""
PANED: dict[str, dict[str, dict[str, str]]] = {
    "bash": IN_PANE,
    "capture_pane": {**IN_PANE, **DRAWN},
    "send_keys": IN_PANE,
}
"""Parameters that tools have with tmux."""
IN_PLACE = {"type": "string", "description": "Run in this place, not where the session is. The user is asked."}


class Claim(Struct, frozen=True):
    """The model's claim about a command (`tools.require_risk_metadata`)."""

    risk: Literal["low", "medium", "high"]
    mutation: bool
    """Whether it changes something."""
    privesc: bool
    """Whether it uses more privileges than the user's own."""
    why: str


class ExecuteAccess(Struct, frozen=True):
    """A shell command line, exactly as it will run, and its working directory."""

    command: str
    cwd: Path
    confined: bool = True
    """`False`: the model wants it to run outside the sandbox."""
    claim: Claim | None = None


CONNECT = "connect"
"""What rules call a connection of a command: `[[tools.permissions.connect]]`."""

REGISTRIES = "send registries"
"""Scope of an "always" for all of them."""


class NetworkAccess(Struct, frozen=True):
    """A request to a host. The guarded client checks hop by hop whether the host may be contacted at all."""

    host: str
    """As in the URL, lower case, with the port if it is not the usual one."""
    what: str
    """A short description for the question: `GET https://example.com/a`."""
    sends: bool = False
    """Whether it sends the host more than a URL (a body, a state-changing method, a click)."""
    connects: bool = False
    """Whether it is a connection of a running command, which may carry anything."""
    registry: bool = False
    """Whether the host is a well-known package registry."""
    at: str = ""
    """As in `hosts.Host`."""
    credential: bool = False
    """Whether one of the user's is put into the requests: an answer about connections without does not cover it."""

    @property
    def name(self) -> str:
        """The host without a port."""
        head, _, port = self.host.rpartition(":")
        return (head if port.isdigit() and (":" not in head or head.endswith("]")) else self.host).strip("[]")


class ToolAccess(Struct, frozen=True):
    """Access known only to the tool itself: a tool from an MCP server, a project or a package."""

    scope: str
    """What rules see: `mcp github create_issue`."""
    words: str
    """The scope as shown to the user after "Always allow": `calls of create_issue of the server github`."""
    changes: bool = True
    once: bool = False
    """Whether no remembered answer covers it: another time it is something else."""
    of: str = ""
    """What the name in the scope stands for now (a digest): an "always" does not cover another one of that name."""

    @property
    def answered(self) -> str:
        """The scope of an "always"."""
        return f"{self.scope} {self.of}".rstrip()


class ModeAccess(Struct, frozen=True):
    """The switch to another mode: the user is asked every time."""

    mode: str


class NoAccess(Struct, frozen=True):
    """Touches nothing outside the conversation (a plan, say)."""


Access = PathAccess | ExecuteAccess | NetworkAccess | ToolAccess | ModeAccess | NoAccess


class Allow(Struct, frozen=True):
    rule: str = ""
    """Short name of the deciding rule: `looks:git status`, `tools.permissions.bash[2] (config.toml:14)`."""


class Ask(Struct, frozen=True):
    """The user must decide."""

    reason: str
    scopes: tuple[str, ...]
    """Scopes of an "always" answer; every one must be covered for the answer to apply."""
    scope_words: str
    """The scope as shown to the user: `cargo test …, in this project`."""
    changes: bool = True
    """Whether a read-only mode forbids it."""
    every_time: bool = False
    """Whether it asks in every mode and remembers no answer."""
    by_person: bool = False
    """Whether the user's own rules ask, or protected paths are affected: then every mode asks."""
    rule: str = ""
    """The deciding rule, as in `Allow`."""
    notes: tuple[str, ...] = ()
    """Notes to read before answering, one line each."""
    wider: tuple[str, str] | None = None
    """A scope that covers more than `scopes` and may be chosen for an "always" instead, and its words."""


class Deny(Struct, frozen=True):
    reason: str
    """A sentence for the model and the user."""
    rule: str = ""
    """The deciding rule, as in `Allow`: for the user and the audit log."""
    trace: str = ""
    """The reason, for the audit log only."""
    approvable: bool = False
    """Whether the user can allow this one call (`/approve`)."""


Verdict = Allow | Ask | Deny
