"""Where values come from, and how wrong ones are reported."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_agent.config.credentials import store_key
from acp_agent.config.load import Config, keys, load_config
from acp_agent.config.model import ProviderConfig, Settings
from acp_agent.config.other_names import OTHER_NAMES
from acp_agent.config.sources import ENVIRONMENT, PROJECT_FILE, read_file
from acp_agent.errors import ConfigError
from tests.tables import table


class Sources:
    """The files and variables of one person."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "config" / "config.toml"
        self.project = folder / "project"
        self.environ = {"HOME": str(folder), "ACP_CODER_CONFIG": str(self.file)}
        self.flags: dict[str, str] = {}

    def user(self, text: str) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text, encoding="utf-8")

    def of_project(self, text: str) -> Path:
        path = self.project / PROJECT_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self) -> Config:
        return load_config(self.environ, project=read_file(f"{self.project}/{PROJECT_FILE}"), flags=self.flags)

    def refuses(self, words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            self.load()


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path)


# --- precedence --------------------------------------------------------------------------------------------------


def test_without_any_source_everything_is_the_default(sources: Sources) -> None:
    config = sources.load()
    assert config.settings == Settings() and config.origin("agent.model") == "default"
    assert config.settings.provider("default") == ProviderConfig() and config.settings.provider("other") is None


def test_each_source_overrides_the_ones_before(sources: Sources) -> None:
    expected = [("", "default")]
    assert sources.load().settings.agent.model == ""
    sources.user('[agent]\nmodel = "user"\n')
    expected.append(("user", f"{sources.file}:2"))
    check(sources, *expected[-1])
    project = sources.of_project('# a remark\n[agent]\nmodel = "project"\n')
    check(sources, "project", f"{project}:3")
    sources.environ["OPENAI_MODEL"] = "environment"
    check(sources, "environment", "environment (OPENAI_MODEL)")
    sources.flags["agent.model"] = "flag"
    check(sources, "flag", "command line (--set agent.model)")


def check(sources: Sources, value: str, origin: str) -> None:
    config = sources.load()
    assert (config.settings.agent.model, config.origin("agent.model")) == (value, origin)


def test_tables_are_merged_and_lists_replaced(sources: Sources) -> None:
    sources.user(
        "[tools.bash]\ntimeout = 5\noutput_limit = 2048\n"
        '[providers.local]\nbase_url = "http://localhost:1/v1"\nmodels = ["a", "b"]\nheaders = { X-Y = "z" }\n'
    )
    sources.of_project("[tools.bash]\ntimeout = 7\n")
    config = sources.load()
    assert (config.settings.tools.bash.timeout, config.settings.tools.bash.output_limit) == (7, 2048)
    assert config.settings.providers["local"].models == ["a", "b"]
    assert config.settings.providers["local"].headers == {"X-Y": "z"}
    assert config.origin("tools.bash.timeout").endswith("config.toml:2")
    assert config.origin("providers.local.models") == f"{sources.file}:6"
    assert config.origin("tools.bash.max_timeout") == "default"


def test_dotted_and_quoted_keys_are_found_with_their_lines(sources: Sources) -> None:
    sources.user('agent.model = "x"\n\n["agent"]\n"mode" = "ask"\n'.replace('["agent"]\n"mode"', "[log]\nlevel"))
    sources.refuses(r"config\.toml:4: `log\.level`")
    sources.user('agent.model = "x"\n\n["log"]\n"level" = "info"\n')
    config = sources.load()
    assert config.origin("agent.model") == f"{sources.file}:1" and config.origin("log.level") == f"{sources.file}:4"


def test_empty_variables_and_the_file_of_no_project_count_as_not_set(sources: Sources) -> None:
    sources.environ.update(OPENAI_MODEL="", ACP_CODER_MODE="  ")
    assert sources.load().settings == Settings()
    sources.of_project("nonsense")
    assert load_config(sources.environ).settings == Settings()


# --- text for other types ----------------------------------------------------------------------------------------


def test_variables_and_flags_are_taken_as_what_their_key_wants(sources: Sources) -> None:
    sources.environ["ACP_CODER_MAX_TOOL_ITERATIONS"] = "42"
    sources.environ["OPENAI_BASE_URL"] = "http://localhost:1/v1"
    sources.flags.update({
        "tools.bash.timeout": "2.5", "tools.bash.editor_terminal": "false", "limits.list_page": "7",
        "providers.local.images": "true", "agent.model": "42", "providers.local.headers.X-Y": "1",
    })  # fmt: skip
    settings = sources.load().settings
    assert settings.agent.max_tool_iterations == 42
    assert settings.providers["default"].base_url == "http://localhost:1/v1" and settings.tools.bash.timeout == 2.5
    assert settings.tools.bash.editor_terminal is False and settings.limits.list_page == 7
    assert settings.providers["local"].images is True and settings.agent.model == "42"
    assert settings.providers["local"].headers == {"X-Y": "1"}


def test_text_in_a_file_is_not_taken_for_a_number(sources: Sources) -> None:
    sources.user('[tools.bash]\ntimeout = "5"\n')
    sources.refuses(r"config\.toml:2: `tools\.bash\.timeout`: expected `float`, got `str`")
    sources.environ["ACP_CODER_MAX_TOOL_ITERATIONS"] = "42"
    sources.refuses(r"tools\.bash\.timeout")


@pytest.mark.parametrize(("variable", "value", "words"), [
    ("ACP_CODER_MAX_TOOL_ITERATIONS", "many", r"environment \(ACP_CODER_MAX_TOOL_ITERATIONS\): `agent\.max_tool"),
    ("ACP_CODER_MAX_TOOL_ITERATIONS", "0", r"`agent\.max_tool_iterations`: expected `int` >= 1"),
    ("ACP_CODER_MODE", "yolo", r"environment \(ACP_CODER_MODE\): `agent\.mode`: invalid enum value 'yolo'"),
    ("ACP_CODER_LOG_LEVEL", "loud", r"`log\.level`: invalid enum value"),
    ("ACP_CODER_API", "soap", r"environment \(ACP_CODER_API\): `providers\.default\.api`: invalid enum value"),
])  # fmt: skip
def test_wrong_variables_are_named(variable: str, value: str, words: str, sources: Sources) -> None:
    sources.environ[variable] = value
    sources.refuses(words)


# --- wrong files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "words"), [
    ("[agent]\nmodell = 1\n", r":2: unknown key `agent\.modell`; did you mean `agent\.model`\?"),
    ("[agnet]\nmodel = 'x'\n", r":2: unknown key `agnet\.model`; did you mean `agent\.model`\?"),
    ("\n[tools.bsh]\ntimeout = 1\n", r":3: unknown key `tools\.bsh\.timeout`; did you mean `tools\.bash\.timeout`"),
    ("zzz = 1\n", r":1: unknown key `zzz`; see docs/configuration\.md"), ("[zzz]\n", r":1: unknown key `zzz`"),
    ("agent = 3\n", r":1: `agent` is a table, not a value"),
    ("providers = 3\n", r":1: `providers` is a table, not a value"),
    ("[providers]\nlocal = 'x'\n", r":2: `providers\.local` is a table, not a value"),
    ("[providers.local]\nbase_ur = 'x'\n", r":2: unknown key `providers\.local\.base_ur`; did you mean"),
    ("[agent]\nmodel = 3\n", r":2: `agent\.model`: expected `str`, got `int`"),
    ("[tools.bash]\ntimeout = 1000\n", r":2: `tools\.bash\.timeout`: expected `float` <= 600"),
    ("[tools.bash]\ntimeout = 0\n", r":2: `tools\.bash\.timeout`: expected `float` > 0"),
    ("[providers.local]\nmodels = 'x'\n", r":2: `providers\.local\.models`: expected `array`, got `str`"),
    ("[providers.local]\nmodels = [1]\n", r":2: `providers\.local\.models`: expected `str`, got `int`"),
    ("[providers.a]\nimages = true\n[providers.b]\nimages = 3\n", r":4: `providers\.b\.images`: expected `bool`"),
    ("[agent\n", r"config\.toml: not valid TOML: .*line 1"),
    ("[agent]\nmodel = 'x\n", r"config\.toml: not valid TOML: .*at end of document"),
    ("[agent]\nmodel = 1\nmodel = 2\n", r"not valid TOML: .*line 3"),
])  # fmt: skip
def test_wrong_files_are_told_with_file_line_and_key(text: str, words: str, sources: Sources) -> None:
    sources.user(text)
    with pytest.raises(ConfigError, match=words) as error:
        sources.load()
    assert str(sources.file) in str(error.value)


def test_a_file_that_cannot_be_read_is_told(sources: Sources) -> None:
    sources.file.mkdir(parents=True)
    sources.refuses(r"config\.toml: cannot be read")
    sources.file.rmdir()
    sources.file.write_bytes(b"\xff\xfe")
    sources.refuses("cannot be read")


@pytest.mark.parametrize("flag", ["agent.modle", "agent", "nonsense", "", ".", "providers", "agent.model.x", "a..b"])
def test_wrong_flags_are_told(flag: str, sources: Sources) -> None:
    sources.flags[flag] = "x"
    sources.refuses("command line")


# --- a project's own file ----------------------------------------------------------------------------------------


def test_a_project_sets_what_it_may_and_no_permissions(sources: Sources) -> None:
    sources.of_project("[agent]\nmax_tool_iterations = 30\n[tools.files]\nread_lines = 100\n")
    settings = sources.load().settings
    assert (settings.agent.max_tool_iterations, settings.tools.files.read_lines) == (30, 100)
    sources.of_project('[[tools.permissions.bash]]\npattern = "*"\naction = "allow"\n')
    sources.refuses("cannot be set by a project")


@table("key", [key for key in keys() if not key.project])
def test_a_project_sets_nothing_else(key: Any, sources: Sources) -> None:
    *tables, name = key.name.replace("NAME", "default").split(".")
    path = sources.of_project(f"[{'.'.join(tables)}]\n{name} = {toml(key.default)}\n")
    dotted = ".".join((*tables, name)).replace(".", r"\.")
    sources.refuses(rf"{path}:2: `{dotted}(\.x)?` cannot be set by a project")


def toml(value: object) -> str:
    if value is None:  # TOML has no word for it.
        return "true"
    return "{ x = 'y' }" if value == {} else msgspec.json.encode(value).decode()


SENSITIVE = [
    "agent.mode", "agent.instructions", "agent.provider", "providers.NAME.base_url", "providers.NAME.api_key",
    "providers.NAME.headers", "store.path", "log.file", "tools.sandbox.disabled",
    "audit.enabled", "tools.policy.enabled",
]  # fmt: skip


@table("name", SENSITIVE)
def test_what_would_give_a_cloned_repository_power_is_the_persons(name: str) -> None:
    assert not next(key for key in keys() if key.name == name).project


# --- the tables --------------------------------------------------------------------------------------------------


def test_every_key_is_described_and_has_a_default_of_its_type() -> None:
    found = list(keys())
    assert len({key.name for key in found}) == len(found)
    for key in found:
        assert key.description.endswith("."), key.name
        assert msgspec.convert(key.default, key.type) == key.default, key.name


def test_every_variable_sets_a_key_that_exists() -> None:
    named = {name.replace("providers.default.", "providers.NAME.") for name in ENVIRONMENT.values()}
    assert named - {key.name for key in keys()} == set()


# --- what a trusted project may add ------------------------------------------------------------------------------


def test_a_project_adds_hooks_behind_the_persons_and_mcp_servers_beside_theirs(sources: Sources) -> None:
    sources.user('[[hooks.tool_after]]\ncommand = "mine"\n')
    sources.of_project('[[hooks.tool_after]]\ncommand = "theirs"\n[[hooks.tool_before]]\ncommand = "early"\n')
    hooks = sources.load().settings.hooks
    assert [hook.command for hook in hooks.tool_after] == ["mine", "theirs"]
    assert [hook.command for hook in hooks.tool_before] == ["early"]
    sources.user('[mcp.servers.forge]\ncommand = "forge"\nenv = {TOKEN = "x"}\n')
    sources.of_project('[mcp.servers.docs]\ncommand = "docs"\n')
    assert set(sources.load().settings.mcp.servers) == {"forge", "docs"}
    file = sources.of_project('[mcp.servers.forge]\ncommand = "evil"\n')
    sources.refuses(rf"{file}:1.*forge.*in your own configuration")


def test_an_entry_of_a_list_has_its_own_line_and_a_wrong_word_that_of_the_list(sources: Sources) -> None:
    sources.user(
        '[agent]\nmode = "ask"\n\n[[tools.permissions.bash]]\npattern = "a"\naction = "allow"\n'
        '[[tools.permissions.bash]]\npattern = "b"\naction = "deny"\n'
        '[tools.policy]\nrules = [\n  {effect = "deny", tool = "a"},\n  {effect = "deny", tool = "b"},\n]\n'
    )
    config = sources.load()
    assert config.origin_of("tools.permissions.bash", 0) == f"{sources.file}:4"
    assert config.origin_of("tools.permissions.bash", 1) == f"{sources.file}:7"
    assert config.origin_of("tools.policy.rules", 0) == f"{sources.file}:12"
    assert config.origin_of("tools.policy.rules", 1) == f"{sources.file}:13"
    assert config.origin_of("tools.authorization.rules", 0) == ""
    sources.user('[agent]\nmode = "ask"\n[[tools.permissions.bash]]\npattern = "a"\naction = "alow"\n')
    sources.refuses(r"config.toml:3: .*alow")


@pytest.mark.parametrize(("key", "text", "words"), [
    ("tools.sandbox.allow_read", "~bob/x", "only your own home folder can be written as `~`"),
    ("tools.files.deny_read", "~bob/x", "only your own home folder can be written as `~`"),
    ("tools.sandbox.allow_write", "/srv/**/x", "a folder stands for all that is in it"),
    ("tools.sandbox.writable", "", "contains an empty path"),
    *((f"tools.{key}", r"a\u0000b", "") for key in ("sandbox.protect", "sandbox.allow_read", "files.deny_read")),
])  # fmt: skip
def test_a_path_that_would_stand_for_nothing_is_refused_by_name(sources: Sources, key, text, words) -> None:
    table, _, name = key.rpartition(".")
    sources.user(f'[{table}]\n{name} = ["{text}"]\n')
    sources.refuses(f"config.toml:1: .*`{key}` .*{re.escape(words)}" if words else rf"config.toml:2: `{key}`")


# --- other names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", OTHER_NAMES)
def test_a_key_or_table_under_another_name_sets_the_present_one(sources: Sources, other: str) -> None:
    name = OTHER_NAMES[other]
    known = {key.name: key.default for key in keys()}
    key = name if name in known else next(key for key in known if key.startswith(f"{name}."))
    value = known[key]
    value = not value if isinstance(value, bool) else value + 7 if isinstance(value, (int, float)) else value
    sources.user(f"{other}{key.removeprefix(name)} = {msgspec.json.encode(value).decode()}\n")
    config = sources.load()
    assert config.notes == (f"{sources.file}: `{other}` is called `{name}` here.",)
    assert config.origin(key) == f"{sources.file}:1"
    at: Any = msgspec.to_builtins(config.settings)
    for part in key.split("."):
        at = at[part]
    assert at == value


@table(("text", "words"), [
    (
        "[tools.shell]\ntimeout = 3\n[tools.bash]\ntimeout = 4\n",
        "`tools.shell.timeout` is another name of `tools.bash.timeout`, which is set, too",
    ),
    ("[tools]\nbash = 3\nshell.timeout = 4\n", "which is in no table there"),
    ("\n[tools.shell]\ntimeout = 'x'\n", "config.toml:3: `tools.bash.timeout`"),
    ("[tools.shell]\ntimeuot = 1\n", "unknown key `tools.bash.timeuot`"),
])  # fmt: skip
def test_another_name_hides_no_mistake(sources: Sources, text: str, words: str) -> None:
    sources.user(text)
    with pytest.raises(ConfigError) as caught:
        sources.load()
    assert words in str(caught.value)


def test_what_other_agents_files_have_and_nothing_reads_is_noted(sources: Sources) -> None:
    rule = '[[tools.{}.rules]]\neffect = "deny"\ntool = "bash"\ncapabilities = ["x"]\n'
    sources.user("[tools]\nenabled = true\n" + rule.format("policy") + rule.format("authorization"))
    config = sources.load()
    assert (len(config.notes), config.settings.tools.disabled) == (3, [])
    assert [each.tool for each in config.settings.tools.policy.rules] == ["bash"]
    sources.user("[tools]\nenabled = false\n")
    assert sources.load().settings.tools.disabled == ["*"]
    for wrong in ("[tools]\nenabled = 7\n", "tools = 3\n", "[tools]\npolicy = 1\n", "[tools.policy]\nrules = [3]\n"):
        sources.user(wrong)
        with pytest.raises(ConfigError):
            sources.load()


def test_a_project_and_a_flag_may_use_other_names_for_what_they_may_set(sources: Sources) -> None:
    sources.of_project("[tools.shell]\ntimeout = 3\n")
    sources.flags = {"tools.result_cache.ttl_secs": "7"}
    config = sources.load()
    assert (config.settings.tools.bash.timeout, config.settings.tools.result_cache.ttl) == (3, 7)
    sources.of_project("[tools.shell]\nallowed_paths = ['/']\n")
    sources.refuses(r"sandbox.allow_write. cannot be set by a project")


def test_the_first_configured_provider_counts_and_one_that_a_key_was_stored_of(tmp_path):
    environ = {"HOME": str(tmp_path), "ACP_CODER_KEYRING": "0", "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    file = tmp_path / "config.toml"
    mine = '[providers.mine]\nbase_url = "http://localhost:9"\nmodels = ["m"]\n[providers.other]\nmodels = ["o"]\n'
    rows = {
        mine: "mine", f'{mine}[agent]\nprovider = "other"\n': "other", f'{mine}[agent]\nmodel = "other/o"\n': "other",
        f'{mine}[providers.default]\nbase_url = "http://localhost:8"\n': "default",
    }  # fmt: skip
    for text, provider in rows.items():
        file.write_text(text)
        assert load_config(environ).settings.chosen_provider == provider, text
    file.write_text(mine)
    assert load_config({**environ, "OPENAI_API_KEY": "x"}).settings.chosen_provider == "default"
    file.unlink()
    store_key("anthropic", "sk-test", environ)
    config = load_config({**environ, "ACP_CODER_FIND_LOCAL_SERVERS": "false"})
    assert config.settings.chosen_provider == "anthropic" and config.found == ("anthropic",)


def test_the_name_and_tag_of_a_model_are_never_split(tmp_path):
    here = {"HOME": str(tmp_path), "ACP_CODER_KEYRING": "0", "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    ollama = '[providers.ollama]\nbase_url = "http://localhost:11434"\n'
    more = f'{ollama}[providers.qwen]\nmodels = ["qwen-max"]\n[agent]\nprovider = "ollama"\n'
    fallbacks = 'fallback_models = ["qwen3:8b", "mistral:7b", "ollama:gemma3:4b", "qwen:qwen-max", "ollama/a:b"]\n'
    (file := tmp_path / "config.toml").write_text(more + fallbacks)
    rows = {
        "qwen3:8b": "ollama/qwen3:8b", "mistral:7b": "ollama/mistral:7b", "qwen:0.5b": "ollama/qwen:0.5b",
        "mistral:latest": "ollama/mistral:latest", "qwen:4b-chat-q4_0": "ollama/qwen:4b-chat-q4_0",
        "mistral:instruct": "ollama/mistral:instruct", "ollama:qwen:0.5b": "ollama/qwen:0.5b",
        "ollama/qwen3:8b": "ollama/qwen3:8b", "hf.co/some/model:Q4_K_M": "ollama/hf.co/some/model:Q4_K_M",
        "qwen:qwen-max": "qwen/qwen-max", "qwen-max": "ollama/qwen-max", "qwen:qwen3:8b": "qwen/qwen3:8b",
    }  # fmt: skip
    for model, choice in rows.items():
        settings = load_config({**here, "OPENAI_MODEL": model}).settings
        assert settings.choice(settings.agent.model) == choice, model
    named = [settings.fallback(each) for each in settings.agent.fallback_models]
    assert named == ["ollama/qwen3:8b", "ollama/mistral:7b", "ollama/gemma3:4b", "qwen/qwen-max", "ollama/a:b"]
    file.unlink()
    for model in ("mistral:7b", "qwen:chat"):  # Known providers have these names, too; they are not meant.
        loaded = load_config({**here, "OPENAI_MODEL": model, "OPENAI_BASE_URL": "http://localhost:11434"})
        assert loaded.settings.choice(model) == f"default/{model}" and loaded.found == ()


def test_a_stored_key_adds_its_provider_beside_configured_ones_and_the_first_of_those_stays_the_default(tmp_path):
    environ = {"HOME": str(tmp_path), "ACP_CODER_KEYRING": "0", "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
    (tmp_path / "config.toml").write_text('[providers.mine]\nbase_url = "http://localhost:9"\n')
    store_key("anthropic", "sk-test", environ)
    config = load_config(environ)
    assert config.settings.chosen_provider == "mine" and config.found == ("anthropic",)
    named = load_config({**environ, "OPENAI_MODEL": "anthropic:claude-x"}).settings
    assert named.choice("anthropic:claude-x") == "anthropic/claude-x" and named.chosen_provider == "anthropic"
