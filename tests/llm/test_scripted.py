from pathlib import Path

import pytest

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError
from acp_agent.llm.base import AssistantMessage, Finished, ModelInfo, TextDelta, ToolUse, UsageReport
from acp_agent.llm.scripted import ScriptedProvider

from .kit import USER, collect

SCRIPT = """[
  {"thought": "hm", "text": ["Loo", "king."], "tool_calls": [{"name": "read", "arguments": {"path": "a"}}]},
  {"text": "Done.", "usage": {"input_tokens": 3, "output_tokens": 1}, "finish": "length"}
]"""


def provider(tmp_path: Path, script: str) -> ScriptedProvider:
    (path := tmp_path / "script.json").write_text(script, encoding="utf-8")
    return ScriptedProvider(ProviderOptions(name="demo", script=str(path)))


async def test_the_answer_is_the_one_that_follows_the_assistants_messages_so_far(tmp_path: Path) -> None:
    demo = provider(tmp_path, SCRIPT)
    first = await collect(demo)
    assert first[1:] == [
        TextDelta("Loo"), TextDelta("king."), ToolUse("call_0_0", "read", '{"path":"a"}'), Finished("tool_calls"),
    ]  # fmt: skip
    assert await collect(demo) == first
    assert await collect(demo, (USER, AssistantMessage("Looking."))) == [
        TextDelta("Done."), UsageReport(3, 1), Finished("length"),
    ]  # fmt: skip


async def test_it_has_one_model_says_when_it_is_past_its_end_and_needs_its_script(tmp_path: Path) -> None:
    assert await collect(provider(tmp_path, "[]")) == [
        TextDelta("The script is used up: it has 0 answers."), Finished("stop"),
    ]  # fmt: skip
    assert await provider(tmp_path, "[]").models() == [ModelInfo("scripted")]
    with pytest.raises(ConfigError, match="cannot be read"):
        ScriptedProvider(ProviderOptions(name="demo", script=str(tmp_path / "nothing.json")))


@pytest.mark.parametrize("script", ["{}", "[", '[{"txt": "a typo"}]', '[{"finish": "sometime"}]'])
def test_a_script_that_is_none_is_a_config_error_that_names_it(tmp_path: Path, script: str) -> None:
    with pytest.raises(ConfigError, match=r"script\.json.*is not a list of answers"):
        provider(tmp_path, script)
