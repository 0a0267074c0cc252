"""Other names of keys, accepted with a note that names the present one."""

from __future__ import annotations

from typing import Any

from acp_agent.config.sources import Layer
from acp_agent.errors import ConfigError

OTHER_NAMES = {
    "tools.shell.background_timeout_secs": "tools.bash.background_timeout",
    "tools.shell.enable_execution_context": "tools.bash.turn_context",
    "tools.shell.allowed_paths": "tools.sandbox.allow_write",
    "tools.shell": "tools.bash",
    "tools.file": "tools.files",
    "tools.scrape": "tools.web",
    "tools.compression.compression_threshold_tokens": "tools.compression.threshold_tokens",
    "tools.filters.filters_path": "tools.filters.path",
    "tools.filters.security.enabled": "secrets.redact",
    "tools.filters.security.extra_patterns": "secrets.extra_patterns",
    "tools.overflow.max_overflow_bytes": "tools.overflow.max_bytes",
    "tools.result_cache.ttl_secs": "tools.result_cache.ttl",
    "tools.sandbox.allow_network": "tools.sandbox.network",
}
"""Keys and tables; what is inside a table is named before it."""

OTHER_VALUES: dict[str, dict[Any, str]] = {"tools.sandbox.network": {True: "allow", False: "deny"}}
"""Key -> its value under the other name -> the present one."""


def present_names(layer: Layer) -> list[str]:
    """Renames what the layer has under another name; returns the notes. Raises ConfigError if both names are given and
    differ."""
    notes = _without_effect(layer)
    for other, name in OTHER_NAMES.items():
        found = _taken(layer.values, other.split("."))
        if found is None:
            continue
        notes.append(f"{layer.name}: `{other}` is called `{name}` here.")
        for key, value in found.items() if isinstance(found, dict) else [("", found)]:
            whole, old = (f"{name}.{key}", f"{other}.{key}") if key else (name, other)
            *tables, last = whole.split(".")
            at: Any = layer.values
            for table in tables:
                at = at.setdefault(table, {}) if isinstance(at, dict) else at
            if not isinstance(at, dict):
                raise ConfigError(f"{layer.name}: `{old}` is another name of `{whole}`, which is in no table there")
            value = OTHER_VALUES.get(whole, {}).get(value, value) if isinstance(value, bool) else value
            if at.setdefault(last, value) != value:
                raise ConfigError(f"{layer.name}: `{old}` is another name of `{whole}`, which is set, too")
            layer.renamed[whole] = old
            if old in layer.origins:
                layer.origins[whole] = layer.origins.pop(old)
    return notes


def _without_effect(layer: Layer) -> list[str]:
    """Takes out what other agents' files have and nothing here reads; returns the notes."""
    notes: list[str] = []
    if _taken(layer.values, ["lsp", "max_new_errors"]) is not None:
        notes.append(f"{layer.name}: `lsp.max_new_errors` is not needed here: an edit reports the first ten.")
    tools = layer.values.get("tools")
    if not isinstance(tools, dict):
        return notes
    if isinstance(tools.get("enabled"), bool):
        if not tools.pop("enabled"):
            tools["disabled"] = ["*"]
        notes.append(f'{layer.name}: `tools.enabled` is not needed here; false is `tools.disabled = ["*"]`.')
    for table in ("policy", "authorization"):
        rules = tools[table].get("rules") if isinstance(tools.get(table), dict) else None
        found = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
        if [rule.pop("capabilities") for rule in found if "capabilities" in rule]:
            notes.append(f"{layer.name}: `capabilities` of `tools.{table}.rules` is reserved: it narrows no rule.")
    return notes


def _taken(values: Any, path: list[str]) -> Any:
    """What is at `path`, taken out, with the tables that are empty then; None if nothing is there."""
    if not isinstance(values, dict) or path[0] not in values:
        return None
    if len(path) == 1:
        return values.pop(path[0])
    found = _taken(values[path[0]], path[1:])
    if found is not None and not values[path[0]]:
        del values[path[0]]
    return found
