"""Rules may use any of a tool's names (`run_command` is `bash`): replaces aliases with the tool's own name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from acp_agent.config.model import ToolsConfig
from acp_agent.config.safety_settings import PermissionRule, PolicyRule


def with_own_names(tools: ToolsConfig, own: Callable[[str], str]) -> ToolsConfig:
    """`own`: maps any of a tool's names to its own; other texts (globs) stay unchanged."""

    def names(texts: list[str]) -> list[str]:
        return [own(text) for text in texts]

    def rules(listed: list[PolicyRule]) -> list[PolicyRule]:
        return [msgspec.structs.replace(rule, tool=own(rule.tool)) for rule in listed]

    permissions: dict[str, list[PermissionRule]] = {}
    for name, listed in tools.permissions.items():
        permissions.setdefault(own(name), []).extend(listed)
    scoped, governance = tools.scoped, tools.governance
    return msgspec.structs.replace(
        tools,
        permissions=permissions,
        policy=msgspec.structs.replace(tools.policy, rules=rules(tools.policy.rules)),
        authorization=msgspec.structs.replace(tools.authorization, rules=rules(tools.authorization.rules)),
        scoped=msgspec.structs.replace(
            scoped,
            allowed_tools=names(scoped.allowed_tools),
            denied_tools=names(scoped.denied_tools),
            constraints=[msgspec.structs.replace(item, tool=own(item.tool)) for item in scoped.constraints],
        ),
        governance=msgspec.structs.replace(
            governance,
            always_available=names(governance.always_available),
            blocked_sequences=[names(sequence) for sequence in governance.blocked_sequences],
        ),
    )
