"""The forms in which servers answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.lsp import answers
from acp_agent.lsp.base import LspError
from acp_agent.lsp.greeting import configuration
from acp_agent.lsp.uris import path_of, uri_of

PLACE = {"start": {"line": 1, "character": 2}, "end": {"line": 3, "character": 4}}
OTHER = {"start": {"line": 9, "character": 9}, "end": {"line": 9, "character": 9}}


@pytest.mark.parametrize("data", [
    {"uri": "file:///w/a%20b.py", "range": PLACE}, [{"uri": "file:///w/a%20b.py", "range": PLACE}],
    [{"uri": "file:///w/a b.py", "range": PLACE}, {"uri": "file:///w/a%20b%2epy", "range": PLACE}],
    [{"targetUri": "file:///w/a%20b.py", "targetRange": OTHER, "targetSelectionRange": PLACE}],
    [None, 3, {}, {"uri": "file:///w/x"}, {"uri": "file:///w/a%20b.py", "range": PLACE, "more": [1]}],
])  # fmt: skip
def test_places_come_as_one_as_many_and_as_links(data):
    (found,) = answers.locations(data)
    assert found.uri == "file:///w/a%20b.py" and (found.range.start.line, found.range.end.character) == (1, 4)


@pytest.mark.parametrize(("contents", "text"), [
    ({"kind": "markdown", "value": "**a**"}, "**a**"), ("a", "a"),
    ({"language": "go", "value": "x := 1"}, "```go\nx := 1\n```"),
    ("An icon: ![it](data:image/svg+xml;base64,PHN2Zy8+) and ![a](http://b/c)", "An icon:  and ![a](http://b/c)"),
    ([{"language": "go", "value": "x"}, "", "words\n"], "```go\nx\n```\n\nwords"),
])  # fmt: skip
def test_hovers_come_as_markup_and_as_marked_text(contents, text):
    found = answers.hover({"contents": contents, "range": PLACE})
    assert found is not None and (found.contents.value, found.contents.kind) == (text, "markdown")


@pytest.mark.parametrize("data", [
    None, {}, {"contents": ""}, {"contents": []}, {"contents": {"value": " \n"}}, {"contents": "![](data:,)"}, [],
])  # fmt: skip
def test_a_hover_without_words_is_none(data):
    assert answers.hover(data) is None


def test_symbols_come_as_a_tree_and_as_a_list():
    child = {"name": "f", "kind": 6, "range": PLACE}
    tree = [{"name": "C", "kind": 5, "range": OTHER, "selectionRange": PLACE, "children": [child, {"name": 3}]}]
    (found,) = answers.document_symbols(tree)
    assert (found.selection_range, [each.name for each in found.children]) == (found.children[0].range, ["f"])
    flat = [{"name": "f", "kind": 6, "location": {"uri": "file:///a", "range": PLACE}, "containerName": "C"}]
    (found,) = answers.document_symbols(flat)
    assert (found.range, found.container_name) == (None, "C")
    assert answers.workspace_symbols(flat)[0].location == found.location
    bare = [{"name": "f", "kind": 6, "location": {"uri": "file:///a"}}]
    assert answers.workspace_symbols(bare)[0].location.range.start.line == 0


def test_edits_come_by_file_and_by_document():
    edits = [{"range": PLACE, "newText": "a"}]
    by_file = answers.workspace_edit({"changes": {"file:///a": edits, "file:///b": []}})
    document = {"textDocument": {"uri": "file:///a", "version": 3}, "edits": edits}
    assert by_file == answers.workspace_edit({"documentChanges": [document]})
    twice = answers.workspace_edit({"documentChanges": [document, document]})
    assert [len(each) for each in twice.changes.values()] == [2]
    assert answers.workspace_edit(None).changes == {}


@pytest.mark.parametrize("data", [
    {"documentChanges": [{"kind": "create", "uri": "file:///a"}]},
    {"documentChanges": [{"textDocument": {"uri": "file:///a"}, "edits": [{"newText": "a"}]}]},
    {"changes": {"file:///a": [{"range": PLACE}]}}, {"changes": {"file:///a": None}},
])  # fmt: skip
def test_an_edit_is_taken_whole_or_not_at_all(data):
    with pytest.raises(LspError):
        answers.workspace_edit(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "file:///a", "x", "markdown"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "range start end line character message uri targetUri contents value language name kind location "
                "children changes documentChanges edits textDocument newText severity code source".split()
            ),
            inner, max_size=6,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_nothing_that_a_server_answers_is_an_exception(data):
    for take in (
        answers.diagnostics, answers.locations, answers.hover, answers.document_symbols, answers.workspace_symbols,
    ):  # fmt: skip
        take(data)
    try:
        answers.workspace_edit(data)
    except LspError:
        pass


def test_settings_are_found_by_section_in_either_spelling():
    settings = {"a": {"b": {"c": 1}}, "x.y": 2}
    for section, value in [("a.b", {"c": 1}), ("x.y", 2), ("a.z", None), ("a.b.c.d", None), (None, settings)]:
        assert configuration(settings, section) == value


@given(st.text(alphabet=st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1))
def test_a_path_survives_its_uri(name: str):
    path = path_of("file:///w/x")
    assert path is not None and path_of(uri_of(path / name)) == path / name and path_of("https://w/x") is None
    assert path_of("file://[") is None
    assert path_of("file://localhost/w/x") == path and path_of("file://server/w/x") is None
