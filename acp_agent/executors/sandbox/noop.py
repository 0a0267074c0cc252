"""No sandbox: commands run with all of this user's permissions or, if configured, not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Confined, Invocation, SandboxKind, SandboxPolicy


class Noop(Struct, frozen=True):
    strict: bool = False
    trouble: tuple[str, ...] = ()
    """Why there is nothing better."""

    kind: SandboxKind = "none"

    def words(self) -> str:
        return "no sandbox; commands are refused (tools.sandbox.strict)" if self.strict else "no sandbox"

    def way(self, user: Mapping[str, Any] | None) -> None:
        return None

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        if self.strict:
            reasons = "".join(f"\n- {reason}" for reason in self.trouble)
            raise ExecutorError(
                f"no sandbox works on this machine, and with tools.sandbox.strict no command runs without one{reasons}"
            )
        return Confined(invocation.argv, invocation.cwd, invocation.env)
