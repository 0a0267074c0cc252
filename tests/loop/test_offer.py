"""Which tools are offered and sent, and in which form."""

import math
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from acp_agent.config.model import DependenciesConfig, DependencyRule, SchemaFilterConfig, TafcConfig, ToolsConfig
from acp_agent.errors import ProviderError
from acp_agent.llm.base import ToolDefinition
from acp_agent.loop.modes import MODES, ModeId
from acp_agent.loop.toolbox.offer import Offer, complexity, think_first, threshold_of
from acp_agent.loop.toolbox.relevance import Relevance, lexical_scores
from acp_agent.tools.kit.registry import ESSENTIAL, STEP_AWAY, Registry, SessionRegistry, ToolEntry, builtin_registry

ABSENT = (
    "definition", "references", "symbols", "hover", "rename", "skill", "switch_mode", "capture_pane", "send_keys",
    "tmux_create_session", "tmux_kill_session", "tmux_create_pane", "tmux_kill_pane",
)  # fmt: skip
"""Tools that a project without skills and language servers has not, nor a session without a terminal."""


def entry(name: str, description: str = "", *, core: bool = False, reads_only: bool = False) -> ToolEntry:
    parameters = {"type": "object", "properties": {}}
    return ToolEntry(name, (), "other", reads_only, description or name, parameters, False, core)


def offer(entries, mode: ModeId = "code", missing=None, relevance=None, **config) -> Offer:
    return made_of(Registry(entries, {}), ToolsConfig(**config), mode, missing, relevance)


def made_of(registry, config, mode: ModeId = "code", missing=None, relevance=None, model="default/m") -> Offer:
    """`missing`: tool -> why it is not there."""
    choices: Any = SimpleNamespace(mode=lambda: MODES[mode], model=model)
    absent: Any = SimpleNamespace(why=lambda tool: (missing or {}).get(tool))
    deciders: Any = SimpleNamespace(hides=lambda tool: None)
    return Offer(registry, config, choices, absent, relevance or Relevance(), deciders)


MANY = [entry("bash", core=True), entry("read", core=True)] + [
    entry(f"mcp_{name}", description)
    for name, description in {
        "github_create_issue": "Open a new issue in a repository",
        "github_list_issues": "List the issues of a repository", "slack_post": "Post a message in a channel",
        "calendar_add": "Add an event to the calendar", "weather": "The weather forecast of a city",
        "jira_ticket": "Create a ticket",
    }.items()
]  # fmt: skip


# --- what is offered ---------------------------------------------------------------------------------------------


def test_each_mode_offers_what_its_promise_allows():
    registry = builtin_registry()
    for mode in MODES.values():
        names = set(made_of(registry, ToolsConfig(), mode.id).names())
        assert ("write" in names) == mode.changes
        assert ("bash" in names) == mode.changes
        assert ("http_request" in names) == mode.changes
        assert {"read", "grep", "fetch", "web_search", "ask_user", "delegate", "time"} <= names
        assert ("switch_mode" in names) == (mode.id == "architect")
        assert ("plan" in names) == (mode.id != "ask")


def test_switched_off_missing_and_unknown_tools_say_why():
    made = offer([entry("a"), entry("b"), entry("c")], disabled=["a"], missing={"b": "`b` is not here."})
    assert made.names() == ["c"]
    assert "disabled" in made.excluded()["a"] and made.excluded()["b"] == "`b` is not here."
    assert made.find("a") is None and made.find("c") is not None


def test_a_tool_is_hidden_until_what_it_requires_has_succeeded():
    rules = {"deploy": DependencyRule(requires=["build", "test"])}
    config = DependenciesConfig(enabled=True, rules=rules)
    made = offer([entry("build"), entry("test"), entry("deploy")], dependencies=config)
    assert made.names() == ["build", "test"]
    assert "`build`, `test` to succeed first" in made.excluded()["deploy"]
    made.succeeded("build")
    assert "deploy" not in made.names()
    made.succeeded("test")
    assert "deploy" in made.names()
    assert "deploy" in offer([entry("deploy")], dependencies=DependenciesConfig(rules=rules)).names(), "not enabled"


def test_aliases_in_the_configuration_mean_their_tool_and_unknown_names_are_told():
    rules = {"edit": DependencyRule(requires=["read_file"])}
    config = ToolsConfig(
        disabled=["shell", "web_*", "fs_*", "teleport"], dependencies=DependenciesConfig(enabled=True, rules=rules)
    )
    made = made_of(builtin_registry(), config)
    assert "bash" not in made.names()
    assert "web_search" in made.excluded()
    assert "edit" not in made.names()
    made.succeeded("read")
    assert "edit" in made.names()
    assert made.unknown_names() == ["fs_*", "teleport"]


def test_complex_built_in_tools_think_first_where_it_is_enabled():
    made = made_of(builtin_registry(), ToolsConfig(tafc=TafcConfig(enabled=True)))
    thinking = {
        tool.name for tool in made.definitions_of(made.entries()) if "thinking" in tool.parameters["properties"]
    }
    assert thinking == {"plan", "http_request", "send_keys"}


# --- what is sent ------------------------------------------------------------------------------------------------


def sent(made: Offer) -> list[str]:
    return [item.name for item in made.sent()]


async def test_of_many_tools_the_relevant_ones_are_sent_and_the_core_always():
    made = offer(MANY, schema_filter=SchemaFilterConfig(max_tools=2))
    await made.aim("Please create an issue in the github repository about the crash")
    assert sent(made) == ["bash", "read", "mcp_github_create_issue", "mcp_github_list_issues"]
    await made.aim("What will the weather be in this city?")
    assert "mcp_weather" in sent(made)


async def test_a_tool_that_was_used_stays_and_one_that_was_left_out_still_runs():
    made = offer(MANY, schema_filter=SchemaFilterConfig(max_tools=2))
    await made.aim("weather")
    assert "mcp_slack_post" not in sent(made)
    assert made.find("mcp_slack_post") is not None
    made.succeeded("mcp_slack_post")
    assert "mcp_slack_post" in sent(made)
    await made.aim("weather")
    assert "mcp_slack_post" in sent(made)


async def test_few_tools_are_all_sent_and_the_filter_can_be_switched_off_or_leave_out_what_is_unlike():
    for made in (offer(MANY), offer(MANY, schema_filter=SchemaFilterConfig(enabled=False, max_tools=1))):
        await made.aim("anything")
        assert sent(made) == [item.name for item in MANY]
    strict = offer(MANY, schema_filter=SchemaFilterConfig(max_tools=3, min_similarity=0.2))
    await strict.aim("weather forecast")
    assert sent(strict) == ["bash", "read", "mcp_weather"]


async def test_a_model_with_a_small_context_gets_the_essential_tools_whatever_the_prompt():
    made = made_of(builtin_registry(), ToolsConfig())
    await made.aim("what is the weather on the web page", 8192)
    names = sent(made)
    assert {"bash", "read", "edit", "write", "grep", "tools"} <= set(names) <= ESSENTIAL
    await made.aim("delegate something, then ask the user", 8192)
    assert sent(made) == names, "another choice would cost the server's prompt cache"
    another = made_of(builtin_registry(), ToolsConfig())
    await another.aim("look up a page", 8192)
    assert sent(another) == names, "that of other projects, too"
    assert "fetch" in [each.name for each in await another.find_more("fetch a web page")]
    await made.aim("x", 128_000)
    assert len(sent(made)) == len(made.entries()) - len(STEP_AWAY) - 1, "`apply_patch` is the other form of `edit`"


async def test_what_comes_after_the_choice_of_a_small_context_is_weighed_too_and_comes_last():
    registry = SessionRegistry(builtin_registry())
    made = made_of(registry, ToolsConfig())
    await made.aim("what changed here", 8192)
    names = sent(made)
    late = [entry("mcp_weather", "weather forecast"), entry("mcp_mail", "send a letter")]
    registry.set_group("mcp", [(one, cast(Any, None)) for one in late])
    await made.aim("the weather forecast for tomorrow", 8192)
    assert sent(made) == [*names, "mcp_weather"]
    await made.aim("send a letter", 8192)
    assert sent(made) == [*names, "mcp_weather"], "weighed once"


async def test_models_that_know_patches_are_offered_them_in_place_of_edit():
    for model, patches in (
        ("default/gpt-5.1", True), ("openrouter:openai/gpt-5-mini", True), ("default/GPT-5.1-Codex-Max", True),
        ("default/codex-mini-latest", True), ("default/gpt-4.1", False), ("default/claude-opus-4", False),
    ):  # fmt: skip
        made = made_of(builtin_registry(), ToolsConfig(), model=model)
        await made.aim("x")
        assert ("apply_patch" in sent(made), "edit" in sent(made)) == (patches, not patches), model
        assert made.find("edit") is not None and made.find("apply_patch") is not None, "both run"
        found = await made.find_more("change a file with a patch or an edit")
        assert not {"edit", "apply_patch"} & {entry.name for entry in found}
    neither = made_of(builtin_registry(), ToolsConfig(disabled=["edit"]), model="default/gpt-5")
    assert not {"edit", "apply_patch"} & set(neither.names()), "who forbids edits forbids patches"
    without = made_of(builtin_registry(), ToolsConfig(disabled=["apply_patch"]), model="default/gpt-5")
    await without.aim("x")
    assert "edit" in sent(without)


# --- one step away -----------------------------------------------------------------------------------------------

WANTED = {
    "move_path": ("move a file", "rename a file", "rename the folder", "move a folder elsewhere"),
    "copy_path": ("copy a file", "copy a folder", "duplicate a file"),
    "delete_path": ("delete a file", "remove a folder", "delete old files", "remove a file"),
    "create_directory": ("create a folder", "make a new directory", "create an empty folder"),
    "diagnostics": ("run the linter", "type checker errors", "compiler errors and warnings", "run ruff", "clippy"),
    "memory_store": ("remember something for later", "store a fact", "save a preference of the user"),
    "memory_recall": ("recall what was stored", "what do I remember", "search my memory"),
    "memory_forget": ("forget a memory", "remove a stored memory"),
    "schedule_add": ("run a prompt every morning", "schedule a task", "add a schedule"),
    "schedule_list": ("list the schedules", "which schedules are there"),
    "schedule_remove": ("remove a schedule", "stop a scheduled prompt"),
    "browser": ("open a page in a browser", "take a screenshot of a page", "click a button on a web page"),
    "http_request": ("send a POST request", "call a REST API", "HTTP request with headers"),
    "web_scrape": ("extract elements with a CSS selector", "scrape a table from a web page"),
    "edit_notebook": ("edit a Jupyter notebook", "insert a cell into a notebook", "change a cell of an ipynb file"),
    "time": ("what time is it", "the current date"),
}
"""Words of users. Of tools that are not here: what they do, in their own words."""
WANTED |= {
    entry.name: (entry.description.splitlines()[0],)
    for entry in builtin_registry().entries()
    if entry.name in STEP_AWAY - WANTED.keys()
}


def test_what_is_left_out_is_known():
    assert WANTED.keys() == STEP_AWAY
    assert sum(map(len, WANTED.values())) >= 40


@pytest.mark.parametrize(("tool", "query"), [(tool, query) for tool, queries in WANTED.items() for query in queries])
async def test_a_tool_that_is_not_sent_is_found_by_what_it_does(tool, query):
    made = made_of(builtin_registry(), ToolsConfig())
    before = sent(made)
    assert tool not in before
    assert tool in [one.name for one in await made.find_more(query)]
    after = sent(made)
    assert after[: len(before)] == before and tool in after, "new ones come last: the prompt cache is kept"


async def test_what_runs_by_its_name_is_sent_from_then_on_and_last():
    made = made_of(builtin_registry(), ToolsConfig())
    before = sent(made)
    made.succeeded("time")
    made.succeeded("copy_path")
    assert sent(made) == [*before, "time", "copy_path"]


async def test_a_tool_that_is_brought_is_sent_once_and_last_if_it_is_offered():
    made = made_of(builtin_registry(), ToolsConfig())
    before = sent(made)
    assert made.bring("edit_notebook") and made.bring("edit_notebook") and made.bring("read")
    assert sent(made) == [*before, "edit_notebook"]
    for other in (made_of(builtin_registry(), ToolsConfig(), "ask"), made.only(frozenset({"read"}), made._absent, {})):
        assert not other.bring("edit_notebook")
        assert "edit_notebook" not in sent(other)


async def test_without_the_filter_everything_is_sent_and_nothing_searched():
    made = made_of(builtin_registry(), ToolsConfig(schema_filter=SchemaFilterConfig(enabled=False)))
    assert set(sent(made)) >= STEP_AWAY
    assert made.find("tools") is None


@pytest.mark.parametrize(("guidance", "most"), [("short", 13_500), ("full", 19_000)])
async def test_the_default_tools_are_few_and_short(guidance, most):
    made = made_of(builtin_registry(), ToolsConfig(guidance=guidance), missing=dict.fromkeys(ABSENT, "not here"))
    size = len(msgspec.json.encode(made.definitions()))
    assert size <= most, size
    assert ("When to use:" in " ".join(tool.description for tool in made.definitions())) == (guidance == "full")
    assert "null" not in str([tool.parameters for tool in made.definitions()])


async def test_what_is_preferred_after_others_is_boosted_within_its_bound():
    rules = {"mcp_jira_ticket": DependencyRule(prefers=["bash", "read", "grep"])}
    config = DependenciesConfig(enabled=True, rules=rules, boost_per_dep=0.15, max_total_boost=0.2)
    made = offer(MANY, schema_filter=SchemaFilterConfig(max_tools=1), dependencies=config)
    await made.aim("nothing of these words")
    assert "mcp_jira_ticket" not in sent(made)
    for name in ("bash", "read", "grep"):
        made.succeeded(name)
    assert made._boost(made.find("mcp_jira_ticket")) == pytest.approx(0.2)
    await made.aim("nothing of these words")
    assert "mcp_jira_ticket" in sent(made)


async def test_a_built_in_tool_is_sent_first_once_what_it_prefers_has_succeeded_also_one_that_is_a_step_away():
    rules = {"grep": DependencyRule(prefers=["read"]), "diagnostics": DependencyRule(prefers=["edit"])}
    made = made_of(builtin_registry(), ToolsConfig(dependencies=DependenciesConfig(enabled=True, rules=rules)))
    await made.aim("x")
    before = sent(made)
    assert "diagnostics" not in before
    made.succeeded("read")
    assert sent(made) == before, "within a turn nothing moves, so that the server's cache stays good"
    await made.aim("x")
    assert sent(made) == ["grep", *(name for name in before if name != "grep")]
    made.succeeded("edit")
    await made.aim("x")
    assert set(sent(made)[:2]) == {"grep", "diagnostics"}


def counted():
    """Embeddings, and how many texts they were asked for each time."""
    asked: list[int] = []

    async def embed(texts):
        asked.append(len(texts))
        return [[1.0] for _ in texts]

    relevance = Relevance()
    relevance.use(embed)
    return relevance, asked


async def test_no_vectors_are_asked_for_where_nothing_is_chosen_by_them():
    relevance, asked = counted()
    await offer(MANY, relevance=relevance, schema_filter=SchemaFilterConfig(max_tools=6)).aim("query")
    none = offer(MANY, relevance=relevance, schema_filter=SchemaFilterConfig(max_tools_small=0))
    await none.aim("query", 8192)
    assert sent(none) == ["bash", "read"]
    await offer(MANY, relevance=relevance, schema_filter=SchemaFilterConfig(max_tools=1)).aim(" ")
    assert asked == []
    await relevance.scores("a", ["x", "y"])
    await relevance.scores("b", ["x", "y"])
    assert asked == [3, 1], "those of tools once"


async def test_embeddings_choose_where_there_are_any_and_words_where_they_fail():
    async def embed(texts):
        return [[1.0, 0.0] if "slack" in text or "query" in text else [0.0, 1.0] for text in texts]

    relevance = Relevance()
    relevance.use(embed)
    made = offer(MANY, relevance=relevance, schema_filter=SchemaFilterConfig(max_tools=1))
    await made.aim("query")
    assert "mcp_slack_post" in sent(made)

    async def broken(texts):
        raise ProviderError("server", "down")

    relevance.use(broken)
    await made.aim("weather forecast of a city")
    assert "mcp_weather" in sent(made)


@pytest.mark.parametrize(("query", "best"), [
    ("open issues", 1), ("searching the web", 2), ("deletes files", 0), ("", None), ("\ud800 ...", None),
])  # fmt: skip
def test_words_are_compared_by_their_stems(query, best):
    scores = lexical_scores(query, ["delete a file", "list an issue", "web search"])
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert best is None or max(range(3), key=lambda n: scores[n]) == best


# --- thinking before calling -------------------------------------------------------------------------------------

SIMPLE = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NESTED = {
    "type": "object", "required": ["a", "b", "c", "d", "e"],
    "properties": {
        "a": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "object", "properties": {
            "y": {"enum": [str(n) for n in range(12)]}}}}}},
    },
}  # fmt: skip


def test_complexity_counts_required_depth_and_enumerations():
    assert complexity({}) == 0.0 and complexity(SIMPLE) == pytest.approx(0.4 / 3)
    assert complexity(NESTED) == pytest.approx(1.0)
    assert complexity({"properties": {"x": {"enum": list("abc")}}}) == pytest.approx(0.175)


@pytest.mark.parametrize(
    ("given", "used"), [(0.3, 0.3), (-1, 0.0), (7, 1.0), (math.nan, 0.6), (math.inf, 0.6), (-math.inf, 0.6)]
)
def test_a_threshold_is_clamped_and_what_is_no_number_is_reset(given, used):
    assert threshold_of(given) == used


def test_only_complex_tools_think_first_and_only_when_it_is_enabled():
    entries = [
        ToolEntry("simple", (), "other", False, "s", SIMPLE), ToolEntry("nested", (), "other", False, "n", NESTED),
    ]  # fmt: skip
    assert all("thinking" not in tool.parameters["properties"] for tool in offer(entries).definitions())
    simple, nested = offer(entries, tafc=TafcConfig(enabled=True)).definitions()
    assert "thinking" not in simple.parameters["properties"]
    assert next(iter(nested.parameters["properties"])) == "thinking"
    assert nested.parameters["required"][0] == "thinking"
    assert "thinking" not in NESTED["properties"]
    own = ToolDefinition("t", "", {"type": "object", "properties": {"thinking": {"type": "integer"}}})
    assert think_first(own) is own, "a field of that name stays"


# --- groups of a session -----------------------------------------------------------------------------------------


class Dummy:
    pass


def test_groups_are_replaced_as_a_whole_and_taken_names_stay():
    registry = SessionRegistry(builtin_registry())
    tool = Dummy()
    assert registry.set_group("mcp", [(entry("a"), tool), (entry("bash"), tool)]) == ["bash"]
    assert registry.set_group("project", [(entry("a"), tool), (entry("b"), tool)]) == ["a"]
    assert registry.find("a").name == "a" and registry.tool("b") is tool
    assert registry.loaded("b") is tool and registry.set_group("mcp", [(entry("c"), tool)]) == []
    assert registry.find("a") is None
    assert [item.name for item in registry.entries()][-2:] == ["c", "b"]
    assert registry.find("bash").core
