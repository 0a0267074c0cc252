"""Calls as Claude Code writes them in `allowed-tools` and hooks: `Read`, `Bash(git add:*)`, `Edit(src/**)`. Pure."""

from __future__ import annotations

from acp_agent.config.safety_settings import divided
from acp_agent.loop.hooks.hook_names import SEVERAL, TOOLS, their_names
from acp_agent.safety.access import ExecuteAccess, NetworkAccess, NoAccess, PathAccess
from acp_agent.safety.deciding.subjects import CallFacts, Subject
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import matches


def our_tool(name: str) -> str:
    """Our name of a tool of theirs; others unchanged."""
    theirs = {tool.name: ours for ours, tool in TOOLS.items()}
    return "edit" if name == SEVERAL else theirs.get(name, name)


def covers(text: str, call: CallFacts, roots: Roots) -> bool:
    """Whether everything that a call does is what `text` names."""
    tool, pattern = divided(text)
    if our_tool(tool) != call.tool and tool not in their_names(call.tool, call.arguments):
        return False
    subject = Subject(call, roots)
    for access in call.accesses:
        match access:
            case ExecuteAccess():
                if not (access.confined and subject.examined(access).permitted_by(lambda part: _hit(pattern, part))):
                    return False
            case PathAccess(_, path):
                if not any(matches(pattern, name) for name in (roots.display(path), str(path))):
                    return False
            case NetworkAccess():
                if not any(matches(pattern, name) for name in (access.host, access.what)):
                    return False
            case NoAccess():
                pass
            case _:
                if pattern != "*":
                    return False
    return True


def _hit(pattern: str, part: str) -> str | None:
    return pattern if matches(pattern, part) else None
