"""`apply_patch` and calls in other agents' forms, in the whole agent."""

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.schema.acp import Content, Diff
from acp_agent.testing.fake_model import Call

from .kit import asks, rig, went

ALL = """*** Begin Patch
*** Update File: a.py
@@ def two():
-    return 1
+    return 2
*** Update File: old.txt
*** Move to: sub/new.txt
-old
+new
*** Add File: sub/added.txt
+hello
*** Delete File: gone.txt
*** End Patch"""
A = "def one():\n    return 1\n\n\ndef two():\n    return 1\n"


def put(project) -> None:
    (project / "a.py").write_text(A)
    (project / "old.txt").write_text("old\nkept\n")
    (project / "old.txt").chmod(0o755)
    (project / "gone.txt").write_text("x\n")


def said(r, number: int = 2) -> str:
    (content,) = (m["content"] for m in r.messages(number) if m["role"] == "tool")
    return str(content)


async def test_one_patch_changes_moves_adds_and_deletes_after_one_question(tmp_path):
    script = [asks(Call("apply_patch", {"input": ALL})), "done"]
    async with went(tmp_path, script, environ={"OPENAI_MODEL": "gpt-5.1"}, before=put) as r:
        assert "apply_patch" in r.tool_names(1) and "edit" not in r.tool_names(1)
        (asked,) = r.editor.permission_requests
        assert [content.path.rsplit("/", 1)[1] for content in asked.tool_call.content if isinstance(content, Diff)] == [
            "a.py", "new.txt", "added.txt",
        ]  # fmt: skip
        texts = [content.content.text for content in asked.tool_call.content if isinstance(content, Content)]
        assert texts[:2] == ["`old.txt` moves to `sub/new.txt`.", "`gone.txt` is deleted."], "no diff says it"
        (call,) = r.editor.tool_calls().values()
        call.assert_finished("completed")
        assert call.title == "Patch a.py, old.txt, sub/added.txt and 1 more"
        assert (r.project / "a.py").read_text() == A[:-2] + "2\n"
        moved = r.project / "sub" / "new.txt"
        assert moved.read_text() == "new\nkept\n" and moved.stat().st_mode & 0o111, "a move keeps the mode"
        assert (r.project / "sub" / "added.txt").read_text() == "hello\n"
        assert not (r.project / "old.txt").exists() and not (r.project / "gone.txt").exists()
        for words in ("a.py was changed.", "sub/new.txt was moved there.", "sub/added.txt was created.", "deleted."):
            assert words in said(r)


async def test_nothing_is_changed_where_one_part_does_not_fit_or_the_user_says_no(tmp_path):
    wrong = ALL.replace("-old\n", "-other\n")
    calls = [asks(Call("apply_patch", {"input": text})) for text in (wrong, ALL)]
    async with rig(tmp_path, [*calls, "done"], permissions=[reject_once], before=put) as r:
        before = {path.name: path.read_text() for path in r.project.iterdir()}
        await r.editor.prompt("go")
        assert "old.txt: The patch does not fit: these lines are not in the file" in said(r)
        assert len(r.editor.permission_requests) == 1, "what cannot work is not asked about"
        assert {path.name: path.read_text() for path in r.project.iterdir()} == before


FORBIDDEN = {
    "an edit": '[[tools.permissions.edit]]\npattern = "a.py"\naction = "deny"',
    "a new file": '[[tools.permissions.write]]\npattern = "sub/*"\naction = "deny"',
    "a deletion": '[[tools.permissions.delete_path]]\npattern = "*"\naction = "deny"',
    "by the policy": '[tools.policy]\nrules = [{ effect = "deny", tool = "edit", paths = ["*/a.py"] }]',
    "by a limit": '[tools.scoped]\nenabled = true\ndenied_tools = ["write"]',
}


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_what_rules_forbid_other_tools_a_patch_does_not_do(tmp_path, name):
    script = [asks(Call("apply_patch", {"input": ALL})), "done"]
    async with went(tmp_path, script, mode="auto", config=FORBIDDEN[name], before=put) as r:
        assert (r.project / "a.py").read_text() == A and (r.project / "gone.txt").exists()


async def test_what_a_rule_asks_about_for_edits_is_asked_about_unless_one_allows_the_patch(tmp_path):
    ask = '[[tools.permissions.edit]]\npattern = "a.py"\naction = "ask"\n'
    allow = '[[tools.permissions.apply_patch]]\npattern = "*"\naction = "allow"\n'
    for number, (config, asked) in enumerate(((ask, 1), (ask + allow, 0))):
        (folder := tmp_path / str(number)).mkdir()
        script = [asks(Call("apply_patch", {"input": ALL})), "done"]
        async with went(folder, script, mode="auto", config=config, before=put) as r:
            assert len(r.editor.permission_requests) == asked
            assert not (r.project / "gone.txt").exists()


async def test_a_patch_without_json_around_it_and_a_protected_file(tmp_path):
    """The rules of every path hold, whatever else is in the patch."""
    text = ALL.replace("sub/added.txt", ".git/hooks/pre-commit")
    async with rig(tmp_path, [asks(Call("apply_patch", text)), "done"], mode="auto", before=put) as r:
        (r.project / ".git" / "hooks").mkdir(parents=True)
        r.editor.permissions = [reject_once]
        await r.editor.prompt("go")
        assert len(r.editor.permission_requests) == 1, "also in `auto`"
        assert (r.project / "a.py").read_text() == A and not (r.project / ".git/hooks/pre-commit").exists()
    outside = ALL.replace("sub/new.txt", "../../out.txt")
    (tmp_path / "b").mkdir()
    async with rig(tmp_path / "b", [asks(Call("apply_patch", {"input": outside})), "done"]) as r:
        put(r.project)
        await r.editor.prompt("go")
        assert (r.project / "old.txt").exists() and not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(("name", "arguments", "title", "words"), [
    ("str_replace_based_edit_tool", {"command": "view", "path": "a.py", "view_range": [5, 6]}, "Read", "def two():"),
    (
        "str_replace_based_edit_tool", {"command": "str_replace", "path": "a.py", "old_str": "one", "new_str": "eins"},
        "Edit", "was changed",
    ),
    ("str_replace_editor", {"command": "create", "path": "n.txt", "file_text": "x"}, "Write", "was created"),
    ("str_replace_based_edit_tool", {"command": "insert", "path": "a.py"}, "str_", "no command 'insert' here"),
    ("Grep", {"pattern": "RETURN", "-i": True, "include": "*.py", "head_limit": 1}, "Search", "more than 1 match"),
    ("Grep", {"pattern": "return", "output_mode": "files_with_matches", "-n": True}, "Search", "a.py"),
    ("Read", {"file_path": "a.py", "offset": 0}, "Read", "def one():"),
])  # fmt: skip
async def test_calls_in_the_form_of_other_agents_tools_are_understood(tmp_path, name, arguments, title, words):
    async with went(tmp_path, [asks(Call(name, arguments)), "done"], mode="auto", before=put) as r:
        (call,) = r.editor.tool_calls().values()
        assert call.title.startswith(title)
        assert words in said(r)
        if "output_mode" in arguments:
            assert said(r).strip() == "a.py"
