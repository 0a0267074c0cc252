"""The table of clients: what each can really do, and the user's overrides."""

import json
from pathlib import Path

import pytest

from acp_agent.config.language_settings import ClientProfileConfig
from acp_agent.config.load import load_config
from acp_agent.errors import ConfigError
from acp_agent.protocol.profiles import PROFILES, UNNAMED, Quirks, RenderingPlan, config_name, rendering_plan
from acp_agent.schema import acp
from acp_agent.schema.decode import decode_params

CAPTURED = Path(__file__).parents[1] / "captured"
SWITCHES = ("reads_files", "writes_files", "terminals", "terminal_output", "forms", "plans")
ALL = acp.ClientCapabilities(
    fs=acp.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True,
    elicitation=acp.ElicitationCapabilities(
        form=acp.ElicitationFormCapabilities(), url=acp.ElicitationUrlCapabilities()
    ),
    session=acp.ClientSessionCapabilities(compaction=acp.CompactionCapabilities(), notices=acp.NoticeCapabilities()),
    meta={"terminal_output": True},
)  # fmt: skip
NOTHING = acp.ClientCapabilities()
FILES = acp.ClientCapabilities(fs=acp.FileSystemCapabilities(read_text_file=True, write_text_file=True))


def named(name: str) -> acp.Implementation:
    return acp.Implementation(name=name, version="1")


def switches(plan: RenderingPlan) -> dict[str, bool]:
    return {name: getattr(plan, name) for name in SWITCHES}


def captured(name: str) -> acp.InitializeRequest:
    (file,) = CAPTURED.glob(f"acp-{name}*.json")
    return decode_params("initialize", json.loads(file.read_text(encoding="utf-8")), "agent")


def recorded_plan(name: str) -> RenderingPlan:
    said = captured(name)
    return rendering_plan(said.client_capabilities, said.client_info)


RECORDED = [
    ("acpx", "acpx", "reads_files writes_files terminals plans", ()),
    ("codecompanion", "CodeCompanion.nvim", "reads_files writes_files", ("plans: no (it does not draw plans)",)),
    ("marimo", UNNAMED, "reads_files plans", (f"writes files: no ({PROFILES[UNNAMED].why})",)),
    ("toad", "toad", "reads_files writes_files terminals plans", ()),
    ("vscode-acp-client", "vscode-acp-client", "reads_files writes_files terminals plans", ()),
    ("vscode-acp-coder", "vscode-acp-coder", "reads_files writes_files terminals forms plans compaction notices", ()),
]


@pytest.mark.parametrize(("client", "name", "able", "corrected"), RECORDED)
def test_a_recorded_client_gets_the_plan_it_needs_and_is_told_why(client, name, able, corrected):
    plan = recorded_plan(client)
    assert (plan.name, plan.corrected) == (name, corrected)
    assert {field for field in (*SWITCHES, "compaction", "notices") if getattr(plan, field)} == set(able.split())
    assert "marimo" in PROFILES[UNNAMED].why
    assert len(list(CAPTURED.glob("acp-*.json"))) == len(RECORDED)


@pytest.mark.parametrize("name", ["CodeCompanion.nvim", "codecompanion.nvim", "CODECOMPANION.NVIM"])
def test_the_name_is_found_however_it_is_written(name):
    assert not rendering_plan(ALL, named(name)).plans


@pytest.mark.parametrize(("name", "key"), [
    ("CodeCompanion.nvim", "codecompanion-nvim"), ("toad", "toad"), ("My  Own (Editor) 2.0", "my-own-editor-2-0"),
    ("snake_case", "snake_case"), (".hidden.", "hidden"), ("Äther", "ther"), ("...", ""),
])  # fmt: skip
def test_the_name_in_the_configuration_needs_no_quotes(name, key):
    assert config_name(name) == key


@pytest.mark.parametrize("info", [None, named("")])
def test_a_client_without_a_name_has_a_row_of_its_own(info):
    plan = rendering_plan(FILES, info)
    assert (plan.name, plan.reads_files, plan.writes_files) == (UNNAMED, True, False)


def test_a_client_that_nobody_knows_is_taken_at_its_word():
    plan = rendering_plan(ALL, named("brand-new"))
    assert all(switches(plan).values()) and plan.compaction and plan.notices and plan.corrected == ()
    assert rendering_plan(ALL).writes_files and rendering_plan(ALL).corrected == ()
    url = acp.ClientCapabilities(elicitation=acp.ElicitationCapabilities(url=acp.ElicitationUrlCapabilities()))
    assert not rendering_plan(url, named("x")).forms


@pytest.mark.parametrize("value", [False, None, 1, "yes", {}])
def test_only_a_plain_yes_offers_terminal_output(value):
    assert not rendering_plan(acp.ClientCapabilities(meta={"terminal_output": value}), named("x")).terminal_output


@pytest.mark.parametrize("switch", ["reads_files", "writes_files", "terminals", "forms"])
def test_the_person_cannot_turn_on_what_was_not_offered(switch):
    plan = rendering_plan(NOTHING, named("x"), {"x": ClientProfileConfig(**{switch: True})})
    assert not getattr(plan, switch) and plan.corrected == ()


def test_what_the_agent_only_sends_may_be_turned_on():
    plan = rendering_plan(NOTHING, named("x"), {"x": ClientProfileConfig(terminal_output=True)})
    assert plan.terminal_output and plan.corrected == ("terminal output: yes (`clients.x.terminal_output`)",)


@pytest.mark.parametrize("switch", SWITCHES)
def test_no_row_of_the_table_turns_on_what_was_not_offered(switch, monkeypatch):
    monkeypatch.setitem(PROFILES, "x", Quirks(**{switch: True}, why="why"))
    said = switches(rendering_plan(NOTHING, named("other")))
    assert switches(rendering_plan(NOTHING, named("x"))) == {**said, "terminal_output": switch == "terminal_output"}


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_person_turns_off_one_thing_and_nothing_else(switch):
    plan = rendering_plan(ALL, named("x"), {"x": ClientProfileConfig(**{switch: False})})
    assert {name for name, value in switches(plan).items() if not value} == {switch}
    assert plan.corrected == (f"{switch.replace('_', ' ')}: no (`clients.x.{switch}`)",)


def test_the_persons_words_count_more_than_the_table_for_their_client_alone():
    plan = rendering_plan(FILES, None, {UNNAMED: ClientProfileConfig(writes_files=True)})
    assert plan.writes_files and plan.corrected[-1] == "writes files: yes (`clients.unnamed.writes_files`)"
    own = {"codecompanion-nvim": ClientProfileConfig(plans=True, reads_files=False)}
    plan = rendering_plan(FILES, named("CodeCompanion.nvim"), own)
    assert plan.plans and not plan.reads_files
    assert rendering_plan(ALL, named("x"), {"y": ClientProfileConfig(plans=False)}).plans
    assert rendering_plan(ALL, named("x"), {"x": ClientProfileConfig(plans=True, terminals=True)}).corrected == ()


def test_the_configuration_file_names_clients_and_no_word_that_none_has(tmp_path):
    settings = from_file(tmp_path, "[clients.codecompanion-nvim]\nreads_files = false\n[clients.toad]\nplans = false\n")
    assert not rendering_plan(FILES, named("CodeCompanion.nvim"), settings).reads_files
    assert not rendering_plan(ALL, named("Toad"), settings).plans and rendering_plan(ALL, named("acpx"), settings).plans
    with pytest.raises(ConfigError, match="clients.toad"):
        from_file(tmp_path, "[clients.toad]\nwrites = false\n")


def from_file(tmp_path: Path, text: str) -> dict[str, ClientProfileConfig]:
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    return load_config({"HOME": str(tmp_path), "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}).settings.clients
