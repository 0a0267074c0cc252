"""Which tools the model is offered, and in what form.

All tools of the registry except those excluded by the mode, the configuration, the environment (no browser) or unmet
prerequisites: these are not offered and do not run. Of the rest, the core tools are always sent; if there are many
others (MCP servers), only the relevant ones are, chosen for each prompt. A tool left out as irrelevant still runs if
the model calls it by name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from acp_agent.config.model import DependencyRule, ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.lazy import load
from acp_agent.llm.base import ToolDefinition
from acp_agent.loop.choices import Choices
from acp_agent.loop.modes import Mode
from acp_agent.loop.toolbox.absent import NO_RUNS, Absent
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.loop.toolbox.rendering import rendered
from acp_agent.safety.access import RISK_METADATA
from acp_agent.safety.deciding.deciders import Deciders
from acp_agent.safety.globs import matches, matches_any
from acp_agent.tools.kit.other_forms import NAMES
from acp_agent.tools.kit.registry import ESSENTIAL, STEP_AWAY, TOOLS, ToolEntry, Tools

log = logging.getLogger(__name__)

FIND_MORE = "tools"

EDIT, PATCH = "edit", "apply_patch"
"""Two forms of the same: a model is told of the one that it knows better."""

LEAST_SIMILAR = 0.05
"""Below it, a likeness is noise."""

MOST_FOUND = 4
"""Tools that one search adds."""

ANY = {"type": "object", "properties": {}, "additionalProperties": True}
"""Arguments of a tool that is meant by a made-up name: the tool's own schema is compared when it is called."""

DEFAULT_THRESHOLD = 0.6

THOUGHTS = "thinking"
"""The field for thinking in complex tools; removed before a tool sees its arguments."""

LONGEST_NAME = 100
"""Characters shown of a name that the model made up."""


class Offer:
    """Of one session, or (`only`) of a sub-agent in it. `deciders` may take a tool away altogether."""

    def __init__(
        self,
        registry: Tools,
        config: ToolsConfig,
        choices: Choices,
        absent: Absent,
        relevance: Relevance,
        deciders: Deciders,
        more: Mapping[str, Mapping[str, Any]] | None = None,
        only: frozenset[str] | None = None,
        succeeded: dict[str, None] | None = None,
        small: bool = False,
    ) -> None:
        """`more`: parameters that tools have in this session, by tool. `only`: the tools of a sub-agent. `succeeded`:
        those that did so far, in that order. `small`: whether the model's context is."""
        self._more = {name: dict(parameters) for name, parameters in (more or {}).items()}
        self._deciders = deciders
        self._registry = registry
        self._config = config
        self._choices = choices
        self._absent = absent
        self._relevance = relevance
        self._only = only
        self._succeeded = {} if succeeded is None else succeeded
        self._added: list[str] = list(only or ())
        """By `find_more` and `bring`, oldest first."""
        self._chosen: frozenset[str] | None = None
        self._taken: dict[tuple[str, ...], str | None] = {}
        self._weighed: set[str] = set()
        """Tools that the choice was made from."""
        self._boosts: dict[str, float] = {}
        """By tool, for one turn: what `prefers` adds."""
        self._small = small
        self._definitions: dict[str, tuple[ToolEntry, ToolDefinition]] = {}

    def only(self, tools: frozenset[str], absent: Absent | None, more: Mapping[str, Mapping[str, Any]]) -> Offer:
        """The offer for a sub-agent with these tools. `absent` and `more`: of where it works; none: what is absent
        here."""
        about = self._choices, absent or self._absent, self._relevance, self._deciders, more
        return Offer(self._registry, self._config, *about, tools, self._succeeded, self._small)

    # --- what may run -----------------------------------------------------------------------------------------

    def why_not(self, entry: ToolEntry) -> str | None:
        """Why a tool is not offered, as a sentence; `None` if it is."""
        if self._only is not None and entry.name not in self._only:
            return f"`{entry.name}` is not among the tools of this sub-agent."
        mode = self._choices.mode()
        if not _in_mode(entry, mode):
            reads = "" if mode.changes else ", which is read-only"
            return f"`{entry.name}` is not available in the mode `{mode.id}`{reads}."
        names = (entry.name, *entry.aliases)
        if names not in self._taken:
            self._taken[names] = self._why_taken(names)
        if (why := self._taken[names] or self._absent.why(entry.name)) is not None:
            return why
        needed = self._unmet(entry)
        return f"`{entry.name}` needs {', '.join(f'`{name}`' for name in needed)} to succeed first." if needed else None

    def _why_taken(self, names: Sequence[str]) -> str | None:
        """Why the configuration and its rules, which do not change, take a tool away; first its own name."""
        name = names[0]
        known = (*names, EDIT) if name == PATCH else names
        if any(matches_any(self._config.disabled, each) for each in known):
            return f"`{name}` is disabled in the configuration (`tools.disabled`)."
        if name == FIND_MORE and not self._config.schema_filter.enabled:
            return "All tools are sent to the model already (`tools.schema_filter.enabled`)."
        denied = map(self._deciders.hides, (EDIT, PATCH) if name == PATCH else (name,))  # No edits are no patches.
        return next((why for why in denied if why is not None), None)

    def entries(self) -> list[ToolEntry]:
        """Lists what is offered now, in the order of the registry."""
        return [entry for entry in self._registry.entries() if self.why_not(entry) is None]

    def find(self, name: str) -> ToolEntry | None:
        """The tool with that name, if it is offered."""
        entry = self._registry.find(name)
        return entry if entry is not None and self.why_not(entry) is None else None

    def unknown(self, name: str) -> ToolError:
        """Names the nearest tool, with its parameters, and all others."""
        entries = self.entries()
        known = {other: entry for entry in entries for other in (entry.name, *entry.aliases)}
        near = load("difflib:get_close_matches")(name[:LONGEST_NAME], known, n=1)
        meant = f" Did you mean {_signature(known[near[0]])}?" if near else ""
        names = ", ".join(entry.name for entry in entries)
        return ToolError(f"Unknown tool `{name[:LONGEST_NAME]}`.{meant} The tools are: {names}.", "tool_not_found")

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries()]

    def excluded(self) -> dict[str, str]:
        """Tool -> why it is not offered."""
        return {entry.name: why for entry in self._registry.entries() if (why := self.why_not(entry)) is not None}

    def succeeded(self, name: str) -> None:
        """A tool has succeeded: affects tools that require or prefer it, and it continues to be sent."""
        self._succeeded.setdefault(name)

    def _unmet(self, entry: ToolEntry) -> list[str]:
        rule = self._rule(entry)
        names = [self._registry.own_name(name) for name in rule.requires] if rule is not None else []
        return [name for name in names if name not in self._succeeded]

    def _rule(self, entry: ToolEntry) -> DependencyRule | None:
        rules = self._config.dependencies
        names = (entry.name, *entry.aliases) if rules.enabled and rules.rules else ()
        return next((rules.rules[name] for name in names if name in rules.rules), None)

    def unknown_names(self) -> list[str]:
        """Names in the configuration that match no tool. MCP tools may still be added, so their names are accepted."""
        rules = self._config.dependencies.rules
        tools = [name for entry in self._registry.entries() for name in (entry.name, *entry.aliases)]
        named = [pattern for pattern in self._config.disabled if not any(matches(pattern, name) for name in tools)]
        named += [*rules]
        named += [name for rule in rules.values() for name in (*rule.requires, *rule.prefers)]
        unknown = (name for name in named if self._registry.find(name) is None and not name.startswith("mcp_"))
        return list(dict.fromkeys(unknown))

    # --- what is sent -----------------------------------------------------------------------------------------

    async def aim(self, prompt: str, window: int | None = None) -> None:
        """Chooses what is sent with the requests of one turn. `window`: the model's context in tokens, if known."""
        for entry in self._registry.entries():
            if lacking := self._unmet(entry):
                log.debug("DependencyExclusion: %s is not offered before %s", entry.name, ", ".join(lacking))
        config = self._config.schema_filter
        small = config.is_small(window)
        most = config.max_tools_small if small else config.max_tools
        entries = self.entries()
        if small and self._small and self._chosen is not None:  # Another choice would cost the server's prompt cache.
            await self._aim_at_new(prompt, [entry for entry in entries if entry.name not in self._weighed], most)
            return
        self._small, self._chosen = small, None
        self._weighed = {entry.name for entry in entries}
        self._boosts = {entry.name: boost for entry in entries if (boost := self._boost(entry))}
        away = self._away()
        others = [entry for entry in entries if not self._always(entry, away) and entry.name not in away]
        if small and config.enabled:  # Ours are the same in all projects: a local server reads them once.
            others = [entry for entry in others if entry.name not in TOOLS]
            self._chosen = frozenset(entry.name for entry in others)
        if not config.enabled or len(others) <= most:
            return
        if not most:  # No scores are needed: with embeddings they are a request.
            self._chosen = frozenset()
            return
        scores = await self._relevance.scores(prompt, [_text(entry) for entry in others])
        ranked = sorted(
            zip(
                (score + self._boosts.get(entry.name, 0.0) for entry, score in zip(others, scores, strict=True)),
                others,
                strict=True,
            ),
            key=lambda pair: -pair[0],
        )
        known = [entry for _, entry in ranked if entry.name in self._succeeded]
        least = max(config.min_similarity, LEAST_SIMILAR) if small else config.min_similarity
        fitting = [entry for score, entry in ranked if score >= least and entry not in known]
        self._chosen = frozenset(entry.name for entry in [*known, *fitting][:most])

    async def _aim_at_new(self, prompt: str, new: Sequence[ToolEntry], most: int) -> None:
        """Adds the relevant ones of what has come since the choice, of an MCP server that connected late."""
        self._weighed |= {entry.name for entry in new}
        if not new or not most:
            return
        scores = await self._relevance.scores(prompt, [_text(entry) for entry in new])
        least = max(self._config.schema_filter.min_similarity, LEAST_SIMILAR)
        ranked = sorted(zip(scores, new, strict=True), key=lambda pair: -pair[0])
        self._added += [entry.name for score, entry in ranked if score >= least][:most]

    async def find_more(self, query: str) -> list[ToolEntry]:
        """Adds the tools that fit the words best to what is sent; returns them, best first."""
        left_out = self.left_out()
        words = set(query.casefold().replace("_", " ").split())
        scores = await self._relevance.scores(query, [f"{_text(entry)}\n{entry.parameters}" for entry in left_out])
        named = [bool(words & set(entry.name.split("_"))) for entry in left_out]
        scores = [score + self._boost(entry) if score else 0.0 for entry, score in zip(left_out, scores, strict=True)]
        ranked = sorted(zip(scores, named, left_out, strict=True), key=lambda row: (-row[1], -row[0]))
        found = [entry for score, name, entry in ranked if name or score >= LEAST_SIMILAR][:MOST_FOUND]
        self._added += [entry.name for entry in found]
        return found

    def bring(self, name: str) -> bool:
        """Adds a tool, which what the model has just seen calls for, to what is sent. Whether it is offered."""
        if self.find(name) is None:
            return False
        if name not in self._added and name not in {entry.name for entry in self.sent()}:
            self._added.append(name)
        return True

    def left_out(self) -> list[ToolEntry]:
        """What is offered, but not sent."""
        sent = {entry.name for entry in self.sent()}
        return [entry for entry in self.entries() if entry.name not in sent and not self._other_form(entry)]

    def _other_form(self, entry: ToolEntry) -> bool:
        """Whether the model knows another form of the tool better: GPT-5 and Codex models write patches."""
        if entry.name not in (EDIT, PATCH):
            return False
        model = self._choices.model.rpartition("/")[2]
        patches = self.find(PATCH) is not None and matches_any(self._config.files.patch_models, model.casefold())
        return patches == (entry.name == EDIT)

    def _away(self) -> Collection[str]:
        """What is not sent before it is found."""
        return STEP_AWAY & TOOLS.keys() if self.find(FIND_MORE) is not None else ()

    def _always(self, entry: ToolEntry, away: Collection[str]) -> bool:
        if entry.name in away:
            return False
        return entry.name in ESSENTIAL if self._small else entry.core

    def _boost(self, entry: ToolEntry) -> float:
        rules, rule = self._config.dependencies, self._rule(entry)
        if rule is None:
            return 0.0
        satisfied = sum(self._registry.own_name(name) in self._succeeded for name in rule.prefers)
        return min(rules.boost_per_dep * satisfied, rules.max_total_boost)

    def sent(self) -> list[ToolEntry]:
        """The entries whose definitions are sent now; what `prefers` boosts comes first, built-in tools, too. Those
        that look at background commands are sent before there is one: a tool that came in the middle of a turn would
        cost the server's prompt cache."""
        chosen, away = self._chosen, self._away()
        fits = (None, NO_RUNS) if self.find("bash") is not None else (None,)
        entries = [
            entry for entry in self._registry.entries() if self.why_not(entry) in fits and not self._other_form(entry)
        ]
        sent = {
            entry.name: entry
            for entry in sorted(entries, key=lambda entry: -self._boosts.get(entry.name, 0.0))
            if self._always(entry, away)
            or (entry.name in away and entry.name in self._boosts)
            or (entry.name in chosen if chosen is not None else entry.name not in away)
        }
        # New ones come last: what the server has read of the request so far stays the same.
        more = dict.fromkeys([*self._added, *(name for name in self._succeeded if name not in sent)])
        known = {entry.name: entry for entry in entries}
        return [*sent.values(), *(known[name] for name in more if name in known and name not in sent)]

    def definitions(self) -> Sequence[ToolDefinition]:
        return self.definitions_of(self.sent())

    def unsent(self) -> tuple[ToolDefinition, ...]:
        """What runs though it is not sent: tools left out, other names of all, and names that models make up."""
        sent, entries = {entry.name for entry in self.sent()}, self.entries()
        known = {name: entry for entry in entries for name in (entry.name, *entry.aliases)}
        made_up = [ToolDefinition(name, "", ANY) for name, ours in NAMES.items() if ours in known and name not in known]
        return (
            *(ToolDefinition(name, "", entry.parameters) for name, entry in known.items() if name not in sent),
            *made_up,
        )

    def definitions_of(self, entries: Sequence[ToolEntry]) -> Sequence[ToolDefinition]:
        """The form in which they are sent."""
        tafc = self._config.tafc
        definitions = [self._rendered(entry) for entry in entries]
        if self._config.require_risk_metadata:
            definitions = [with_risk_metadata(tool) if tool.name == "bash" else tool for tool in definitions]
        if not tafc.enabled:
            return definitions
        threshold = threshold_of(tafc.complexity_threshold)
        return [think_first(tool) if complexity(tool.parameters) >= threshold else tool for tool in definitions]

    def _rendered(self, entry: ToolEntry) -> ToolDefinition:
        """The same object as long as the entry is the same: providers encode it once."""
        guidance = "brief" if self._small and self._config.guidance == "short" else self._config.guidance
        known = self._definitions.get(f"{guidance} {entry.name}")
        if known is None or known[0] is not entry:
            made = rendered(entry, guidance)
            if entry.name in self._more:
                made = _with_properties(made, self._more[entry.name])
            known = self._definitions[f"{guidance} {entry.name}"] = (entry, made)
        return known[1]


def _in_mode(entry: ToolEntry, mode: Mode) -> bool:
    if entry.name in mode.extra_tools:
        return True
    if entry.kind == "switch_mode":
        return False
    return mode.changes or (entry.reads_only and entry.kind != "think")


def _text(entry: ToolEntry) -> str:
    properties = entry.parameters.get("properties")
    parameters = " ".join(properties) if isinstance(properties, Mapping) else ""
    return f"{entry.name.replace('_', ' ')}\n{entry.description}\n{parameters}"


def with_risk_metadata(tool: ToolDefinition) -> ToolDefinition:
    """The definition that requires the model's risk assessment."""
    made = _with_properties(tool, RISK_METADATA)
    required = [*_list(tool.parameters.get("required")), *RISK_METADATA]
    return ToolDefinition(made.name, made.description, {**made.parameters, "required": required})


def _with_properties(tool: ToolDefinition, more: Mapping[str, Any]) -> ToolDefinition:
    properties = {**tool.parameters.get("properties", {}), **more}
    return ToolDefinition(tool.name, tool.description, {**tool.parameters, "properties": properties})


# --- thinking before calling -----------------------------------------------------------------------------------


def threshold_of(value: float) -> float:
    """A configured threshold, from 0 to 1; anything but a number counts as 0.6."""
    if value != value or value in (float("inf"), float("-inf")):
        return DEFAULT_THRESHOLD
    return min(1.0, max(0.0, value))


def complexity(parameters: Mapping[str, Any]) -> float:
    """How hard a tool is to call correctly, 0 to 1: required parameters (3 are many), nesting depth (2 levels below the
    first are deep) and the largest enumeration (6 values are many)."""
    required = min(len(_list(parameters.get("required"))) / 3, 1.0)
    depth = min(max(_depth(parameters) - 1, 0) / 2, 1.0)
    enum = min(_largest_enum(parameters) / 6, 1.0)
    return min(1.0, 0.4 * required + 0.35 * depth + 0.35 * enum)


def think_first(tool: ToolDefinition) -> ToolDefinition:
    """The definition with a field in which the model thinks before it fills the others."""
    properties = tool.parameters.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    if THOUGHTS in properties:
        return tool
    thoughts = {"type": "string", "description": "First think here, briefly, about which values to use."}
    parameters = {
        **tool.parameters,
        "properties": {THOUGHTS: thoughts, **properties},
        "required": [THOUGHTS, *_list(tool.parameters.get("required"))],
    }
    return ToolDefinition(tool.name, tool.description, parameters)


def _below(schema: Any) -> list[Any]:
    if not isinstance(schema, Mapping):
        return []
    properties = schema.get("properties")
    below = list(properties.values()) if isinstance(properties, Mapping) else []
    if "items" in schema:
        below.append(schema["items"])
    return below + [part for word in ("anyOf", "oneOf", "allOf") for part in _list(schema.get(word))]


def _list(value: Any) -> list[Any]:
    """A server's schema may contain anything anywhere."""
    return value if isinstance(value, list) else []


def _depth(schema: Any) -> int:
    if not isinstance(schema, Mapping):
        return 0
    own = 1 if "properties" in schema or "items" in schema else 0
    return own + max((_depth(part) for part in _below(schema)), default=0)


def _largest_enum(schema: Any) -> int:
    if not isinstance(schema, Mapping):
        return 0
    own = len(schema["enum"]) if isinstance(schema.get("enum"), list) else 0
    return max([own, *(_largest_enum(part) for part in _below(schema))])


def _signature(entry: ToolEntry) -> str:
    """`name(needed, [optional])`."""
    properties, required = entry.parameters.get("properties") or {}, entry.parameters.get("required") or ()
    return f"`{entry.name}({', '.join(each if each in required else f'[{each}]' for each in properties)})`"
