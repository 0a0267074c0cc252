"""What others wrote, by each reader of it: depth, length and noise are never more than the error that it names."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.sources import parse
from acp_agent.errors import AgentError, ConfigError, HookFailed
from acp_agent.limits.decoding import DEEPEST, read_json, read_loose_json, read_toml
from acp_agent.llm.provider_errors import read_vendor_error
from acp_agent.llm.translate import arguments_object
from acp_agent.loop.hooks.hook_protocol import read_text
from acp_agent.loop.model.doom_loop import _canonical
from acp_agent.output.filter_rules import _read as read_rules
from acp_agent.output.observation import stamped_text
from acp_agent.output.passing import _event
from acp_agent.plugins.mcp_json import folder_servers
from acp_agent.safety.deciding.audit_file import link_of
from acp_agent.store.base import read_stored

READERS: dict[str, tuple[Callable[[str], object], type[Exception] | None]] = {
    "json": (read_json, ValueError), "loose json": (read_loose_json, ValueError), "toml": (read_toml, ValueError),
    "config.toml": (lambda text: parse("config.toml", text), ConfigError),
    "a hook": (lambda text: read_text("PreToolUse", text), HookFailed),
    "a result": (lambda text: stamped_text(text, ran=False, exit_code=None, output_chars=9**9, unix_millis=0), None),
    "filter rules": (lambda text: read_rules(text, "filters.toml", {}, []), None), "a test's event": (_event, None),
    "a model's arguments": (arguments_object, None), "a repeated call": (_canonical, None),
    "a provider's error": (read_vendor_error, None),
    ".mcp.json": (lambda text: folder_servers(text.encode(), {}), None),
    "an audit log": (lambda text: link_of(text.encode()), None), "the store": (read_stored, AgentError),
}  # fmt: skip


def fed(name: str, text: str) -> None:
    read, error = READERS[name]
    with suppress(*filter(None, (error,))):
        read(text)


@pytest.mark.parametrize("name", READERS)
def test_depth_and_length_end_in_words(name):
    for form in ("[", '{"a":', "a = [", 'a = "', "[[", "{" * 9 + "\0"):
        for count in (DEEPEST - 1, DEEPEST + 1, 900, 100_000):
            for text in (form * count, form * count + "1" + "]" * count, '{"a":' * count + "1" + "}" * count):
                fed(name, text)
    fed(name, '{"continue": true, "a": "' + "x" * 1_000_000 + '"}')


@given(st.sampled_from(sorted(READERS)), st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_noise_ends_in_words(name, text):
    fed(name, text)
    fed(name, "{" + text + "}")


@pytest.mark.parametrize("read", [read_json, read_loose_json])
def test_what_is_read_is_not_deeper_than_the_bound_and_brackets_in_texts_do_not_count(read):
    nested = "[" * DEEPEST + "]" * DEEPEST
    assert read(nested) is not None and read(f'["{"[" * 9000}", "\\"[", {nested[1:-1]}]')
    with pytest.raises(ValueError, match="nested too deeply"):
        read(f"[{nested}]")
