"""Edits of one member in a handwritten JSON file."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.errors import UsageError
from acp_agent.setup.json_text import get_member, remove_member, set_member

PATH = ("agent_servers", "acp-coder")
VALUE = {"command": "/opt/acp-coder", "args": []}


def plain(text: str) -> object:
    """The value of JSON with comments and commas at the end."""
    text = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda found: found[1] or "", text)
    return json.loads(re.sub(r",(\s*[}\]])", r"\1", text))


@pytest.mark.parametrize(("before", "after"), [
    ("", {"agent_servers": {"acp-coder": VALUE}}), ("{}", {"agent_servers": {"acp-coder": VALUE}}),
    ('{"a": 1}', {"a": 1, "agent_servers": {"acp-coder": VALUE}}),
    ('{\n  // mine\n  "a": 1,\n}\n', {"a": 1, "agent_servers": {"acp-coder": VALUE}}),
    ('{\n  "a": 1 // "}" is no end\n}\n', {"a": 1, "agent_servers": {"acp-coder": VALUE}}),
    ('{"agent_servers": {}}', {"agent_servers": {"acp-coder": VALUE}}),
    (
        '{"agent_servers": {"other": {"command": "x"}}}',
        {"agent_servers": {"other": {"command": "x"}, "acp-coder": VALUE}},
    ),
    ('{"agent_servers": {"acp-coder": {"command": "old"},},}', {"agent_servers": {"acp-coder": VALUE}}),
    ('{\n\t"agent_servers": {\n\t\t// none yet\n\t}\n}', {"agent_servers": {"acp-coder": VALUE}}),
])  # fmt: skip
def test_a_member_is_set_and_taken_away_and_all_else_stays(before, after):
    text = set_member(before, PATH, VALUE, "settings.json")
    assert plain(text) == after
    assert all(line[line.index("//") :] in text for line in before.splitlines() if "//" in line)
    assert json.loads(get_member(text, PATH, "settings.json") or "") == VALUE
    gone = remove_member(text, PATH, "settings.json")
    assert get_member(gone, PATH, "settings.json") is None
    kept = dict(after)
    servers = {name: value for name, value in kept.pop("agent_servers").items() if name != "acp-coder"}
    assert plain(gone) == kept | ({"agent_servers": servers} if servers else {})


def test_a_hand_written_file_changes_by_the_member_alone():
    before = '{\n  // my settings\n  "theme": "One Dark", // dark\n  "agent_servers": {\n'
    before += '    "x": {"command": "x"},\n  },\n}\n'
    after = set_member(before, PATH, "v", "settings.json")
    assert after == before.replace('"x"},\n', '"x"},\n    "acp-coder": "v",\n')
    assert remove_member(after, PATH, "settings.json") == before


def test_a_comment_behind_the_last_member_stays_and_a_key_with_a_tab_is_a_key():
    after = set_member('{\n  "a": 1 // one\n}\n', ("b",), 2, "f")
    assert plain(after) == {"a": 1, "b": 2} and "// one" in after
    assert get_member(set_member('{"a\tb": 1}', ["x"], 2, "f"), ["x"], "f") == "2"
    assert set_member('{"a\tb": 1}', ["a\tb"], 2, "f") == '{"a\tb": 2}'


@pytest.mark.parametrize("text", ["[]", "{", '{"a": }', "nonsense", '{"a": 1} trailing', '"text"'])
def test_what_is_no_json_object_is_refused_in_words_and_not_touched(text):
    with pytest.raises(UsageError, match="not a JSON object|no value"):
        set_member(text, ("a", "b"), 1, "settings.json")


def test_a_member_on_the_way_that_is_no_object_is_not_overwritten():
    with pytest.raises(UsageError, match="`agent_servers` is not an object"):
        set_member('{"agent_servers": [1]}', PATH, VALUE, "settings.json")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(names, values, max_size=4), st.lists(names, min_size=1, max_size=3), values, st.booleans())
def test_for_any_object_what_is_set_can_be_read_and_the_rest_is_as_before(data, path, value, indented):
    text = json.dumps(data, ensure_ascii=False, indent=2 if indented else None)
    expected = json.loads(json.dumps(data))
    place = expected
    for name in path[:-1]:
        if name in place and not isinstance(place[name], dict):
            with pytest.raises(UsageError):
                set_member(text, path, value, "f")
            return
        place = place.setdefault(name, {})
    place[path[-1]] = value
    written = set_member(text, path, value, "f")
    assert json.loads(written) == expected
    assert get_member(remove_member(written, path, "f"), path, "f") is None


@pytest.mark.parametrize("text", [
    '{\n  "agent_servers": {\n    // my note\n    "acp-coder": {}\n  }\n}\n',
    '{"a": 1, "agent_servers": {/* my note */ "acp-coder": {}}}',
    '{"agent_servers": {"acp-coder": {} // my note\n}, "b": 2}',
])  # fmt: skip
def test_a_comment_beside_the_member_stays_when_that_is_taken_away(text):
    gone = remove_member(text, ["agent_servers", "acp-coder"], "f")
    assert "my note" in gone and "agent_servers" not in gone and set_member(gone, ["x"], 1, "f").count("my note") == 1
    assert "\n\n" not in gone
