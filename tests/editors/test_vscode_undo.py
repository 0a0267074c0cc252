"""Taking back what the agent did, in the real VS Code: restore to a prompt, the Changes view, plans to approve."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.async_api import TimeoutError

from acp_agent.testing.fake_model import Answer, Call

from .chat import Chat
from .kit import VsCode, working
from .raw_agent import raw_agent
from .window import Window

TEXT = "".join(f"line {number}\n" for number in range(1, 31))
WRITES = (
    Answer(tool_calls=(
        Call("bash", {"command": "sed -i 's/^line 3$/LINE 3/; s/^line 28$/LINE 28/' a.txt; echo new > b.txt"}),
    )),
    "One.", Answer(tool_calls=(Call("bash", {"command": "sed -i 's/^line 15$/LINE 15/' a.txt"}),)), "Two.",
)  # fmt: skip

EDITS = [
    Answer(tool_calls=(Call("edit", {"path": "a.txt", "old_string": f"line {n}\n", "new_string": f"LINE {n}\n"}),))
    for n in (3, 20)
]


@asynccontextmanager
async def changed(code: VsCode, tmp_path: Path) -> AsyncIterator[tuple[Window, Chat, Path]]:
    """Two prompts are done: the first changed two lines and made a file, the second changed one more line."""
    async with working(code, tmp_path, WRITES, files={"a.txt": TEXT}, ACP_CODER_MODE="auto") as (window, _):
        chat = Chat(window)
        await chat.open()
        await chat.send("First")
        await window.eventually(chat.answers, lambda answers: answers == ["One."])
        await chat.send("Second")
        await window.eventually(chat.answers, lambda answers: answers == ["One.", "Two."])
        yield window, chat, tmp_path / "project"


async def press(window: Window, chat: Chat, prompt: str, button: str) -> None:
    """A button of a message, which is there when the mouse is over it."""
    item = chat.frame.locator(".from-user").filter(has_text=prompt)
    await item.hover()
    await item.get_by_role("button", name=button, exact=True).click()


async def read(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


async def test_files_and_chat_are_restored_to_a_prompt_after_a_preview_and_come_back(code, tmp_path):
    async with changed(code, tmp_path) as (window, chat, project):
        after = (project / "a.txt").read_text()
        await window.open_file(project / "a.txt")
        await press(window, chat, "First", "Restore to here")
        title, labels = await window.quick_input()
        assert "Restore to before “First”" in title
        assert [label.strip() for label in labels] == ["Files and chat", "Files", "Chat"]
        await window.choose("Files and chat")
        await window.tab("Restore to before “First” (2 files)").wait_for()
        await window.page.locator(".multiDiffEntry").nth(1).wait_for()
        _, labels = await window.quick_input()
        assert [label.strip() for label in labels] == ["Restore", "Cancel"]
        assert (project / "a.txt").read_text() == after
        await window.page.keyboard.press("Escape")
        await window.eventually(window.tabs, lambda tabs: tabs == ["a.txt"])
        assert (project / "a.txt").read_text() == after

        await press(window, chat, "First", "Restore to here")
        await window.choose("Files and chat")
        await window.page.locator(".multiDiffEntry").nth(1).wait_for()
        await window.choose("Restore")
        await window.eventually(chat.prompts, lambda prompts: prompts == [])
        assert (project / "a.txt").read_text() == TEXT and not (project / "b.txt").exists()
        await window.eventually(chat.box.input_value, lambda text: text == "First")
        assert await window.tabs() == ["a.txt"]

        await chat.frame.get_by_role("button", name="Redo").click()
        await window.choose("Redo")
        await window.eventually(chat.prompts, lambda prompts: prompts == ["First", "Second"])
        assert (project / "a.txt").read_text() == after and (project / "b.txt").read_text() == "new\n"


async def test_the_marks_of_what_was_taken_back_are_gone(code, tmp_path):
    script = [*EDITS, "Done."]
    async with working(code, tmp_path, script, files={"a.txt": TEXT}, ACP_CODER_MODE="auto") as (window, _):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        await chat.open()
        await chat.send("Change it")
        await window.eventually(chat.answers, lambda answers: answers == ["Done."])
        await window.eventually(window.gutter_marks, lambda count: count == 2)
        await press(window, chat, "Change it", "Restore to here")
        await window.choose("Files")
        await window.choose("Restore")
        await window.eventually(lambda: read(tmp_path / "project" / "a.txt"), lambda text: text == TEXT)
        await window.tab("a.txt").click()
        await window.eventually(window.gutter_marks, lambda count: count == 0)


async def test_what_a_prompt_changed_is_reviewed_above_the_box_and_in_the_file(code, tmp_path):
    script = [*EDITS, Answer(tool_calls=(Call("write", {"path": "notes/b.txt", "content": "one\ntwo\n"}),)), "Done."]
    async with working(code, tmp_path, script, files={"a.txt": TEXT}, ACP_CODER_MODE="auto") as (window, _):
        file = tmp_path / "project" / "a.txt"
        chat = Chat(window)
        await window.open_file(file)
        await chat.open()
        await chat.send("Change it")
        bar = chat.frame.get_by_role("region", name="Changes of the last prompt")
        await window.eventually(bar.inner_text, lambda text: text.split() == "2 files +4 −2 Review Keep Undo".split())
        tinted = window.page.locator(".editor-group-container.active .view-overlays [class*='ced-']")
        await window.eventually(tinted.count, lambda count: count >= 2)
        await bar.locator(".fold").click()
        await bar.get_by_role("button", name="Keep the changes of notes/b.txt").click()
        await window.eventually(bar.locator("li").count, lambda count: count == 1)

        # By key to the second change, and from its hover back; the first is kept at the cursor.
        await window.go_to(1)
        await window.page.keyboard.press("Alt+F5")
        await window.eventually(window.status_bar, lambda items: "Ln 3, Col 1" in items)
        await window.page.keyboard.press("Alt+F5")
        await window.eventually(window.status_bar, lambda items: "Ln 20, Col 1" in items)
        # What is kept is kept in the next window, too; VS Code has stored it a moment after the click.
        await window.reload()
        await chat.box.wait_for()
        await window.eventually(bar.inner_text, lambda text: text.split()[:4] == "1 file +2 −2".split())
        await window.open_file(file)
        await window.page.locator(".view-line", has_text="LINE 20").locator("span span").first.hover()
        await window.page.locator(".monaco-hover:visible a", has_text="Undo").click()
        restored = TEXT.replace("line 3\n", "LINE 3\n")
        await window.eventually(lambda: read(file), lambda text: text == restored)
        await window.go_to(25)
        await window.page.keyboard.press("Shift+Alt+F5")
        await window.eventually(window.status_bar, lambda items: "Ln 3, Col 1" in items)
        await window.command("acp-coder: Keep the Change at the Cursor")
        await bar.wait_for(state="hidden")
        await window.eventually(tinted.count, lambda count: count == 0)
        assert file.read_text() == restored


async def test_what_the_user_changed_since_is_named_and_left_alone(code, tmp_path):
    async with changed(code, tmp_path) as (window, chat, project):
        (project / "b.txt").write_text("mine\n")
        await press(window, chat, "First", "Restore to here")
        await window.choose("Files")
        _, labels = await window.quick_input()
        assert any(label.strip().startswith("b.txt: ") for label in labels), labels
        await window.choose("Restore")
        await window.eventually(lambda: read(project / "a.txt"), lambda text: text == TEXT)
        assert (project / "b.txt").read_text() == "mine\n"
        assert await chat.prompts() == ["First", "Second"]


async def test_changes_are_listed_kept_and_reverted_hunk_by_hunk(code, tmp_path):
    async with changed(code, tmp_path) as (window, _, project):
        await window.view("Chat").locator(".pane-header").click()  # Room for all rows.
        after = (project / "a.txt").read_text()

        async def labels() -> list[tuple[str, str]]:
            return [(label, description) for label, description, *_ in await window.rows("Changes")]

        async def act(row: str, action: str) -> None:
            button = window.row("Changes", row).get_by_role("button", name=action)

            async def pressed() -> bool:
                """Rows move while the list is drawn anew, away from the mouse."""
                await window.row("Changes", row).hover()
                with suppress(TimeoutError):
                    await button.click(timeout=1000)
                    return True
                return False

            await window.eventually(pressed, bool)

        await window.eventually(labels, lambda rows: rows[:2] == [("Last prompt", "1 file +1 −1"), ("a.txt", "+1 −1")])
        await window.eventually(labels, lambda rows: ("Session", "2 files +4 −3") in rows)
        await window.row("Changes", "Last prompt").locator(".monaco-tl-twistie").click()
        await window.row("Changes", "Session").locator(".monaco-tl-twistie").click()
        await window.row("Changes", "a.txt").locator(".monaco-tl-twistie").click()
        await window.eventually(labels, lambda rows: ("Line 15", "+1 −1 LINE 15") in rows)
        await act("Line 3", "Keep")
        await window.eventually(labels, lambda rows: not any(label == "Line 3" for label, _ in rows))
        await act("Line 28", "Revert")
        reverted = after.replace("LINE 28", "line 28")
        await window.eventually(lambda: read(project / "a.txt"), lambda text: text == reverted)
        await window.eventually(labels, lambda rows: not any(label == "Line 28" for label, _ in rows))
        await act("b.txt", "Revert")
        await window.eventually(lambda: read(project / "b.txt"), lambda text: text is None)
        await window.eventually(labels, lambda rows: not any(label == "b.txt" for label, _ in rows))
        assert (project / "a.txt").read_text() == reverted
        await window.command("acp-coder: Redo What Was Taken Back")
        await window.choose("Redo")
        await window.eventually(lambda: read(project / "b.txt"), lambda text: text == "new\n")
        await window.row("Changes", "a.txt").click()
        await window.tab("a.txt (changed)").wait_for()
        before, now = await window.diff()
        assert "line 15" in before and "LINE 15" in now


async def test_a_fork_goes_on_from_before_a_prompt_in_a_session_of_its_own(code, tmp_path):
    async with changed(code, tmp_path) as (window, chat, project):
        after = (project / "a.txt").read_text()
        await press(window, chat, "Second", "Fork from here")
        await window.eventually(chat.prompts, lambda prompts: prompts == ["First"])
        await window.eventually(chat.box.input_value, lambda text: text == "Second")
        assert await chat.answers() == ["One."]
        assert (project / "a.txt").read_text() == after
        await window.eventually(lambda: window.rows("Sessions"), lambda rows: len(rows) == 2)


async def test_the_agents_plan_is_approved_in_its_document(code, tmp_path):
    plan = Answer(tool_calls=(Call("switch_mode", {"plan": "# Plan\n\n1. Write it."}),))
    async with working(code, tmp_path, (plan, "Begun."), ACP_CODER_MODE="architect") as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Plan it")
        await window.tab("Plan.md").wait_for()
        text = await window.eventually(window.editor_text, lambda text: "1. Write it." in text)
        assert text.count("# Plan") == 1
        approve = "Approve, ask before changes (mode code)"
        await window.eventually(window.lenses, lambda lenses: lenses[:1] == [approve] and "Keep planning" in lenses)
        await window.click_lens(approve)
        await window.eventually(chat.answers, lambda answers: answers == ["Begun."])
        assert "The user approved the plan" in str(model.requests[-1].body["messages"][-1]["content"])


PLAN = "# Plan\n\n" + "".join(f"{number}. Step {number}\n" for number in range(1, 81)) + "\nThat is all."
OPTIONS = [
    {"optionId": "ask", "name": "Approve and ask before edits", "kind": "allow_once"},
    {"optionId": "auto", "name": "Approve and do not ask for edits", "kind": "allow_always"},
    {"optionId": "plan", "name": "Keep planning", "kind": "reject_once"},
]


async def test_a_plan_is_a_document_that_is_approved_once_it_was_read(code, tmp_path):
    (project := tmp_path / "project").mkdir()
    async with raw_agent() as agent, code.window(project, agent.settings) as window:
        chat = Chat(window)
        await chat.open()
        await chat.send("Plan")
        turn = await agent.prompted()
        content = [{"type": "content", "content": {"type": "text", "text": PLAN}}]
        call: dict[str, Any] = {
            "toolCallId": "p", "title": "Carry out the plan", "kind": "switch_mode", "content": content,
        }  # fmt: skip
        question = await turn.request("session/request_permission", toolCall=call, options=OPTIONS)
        await window.tab("Plan.md").wait_for()
        text = await window.eventually(window.editor_text, lambda text: "# Plan" in text)
        assert "Carry out the plan" in text and "That is all." not in text
        names = [option["name"] for option in OPTIONS]
        # Those at the end may have a place already, and no words yet.
        await window.eventually(window.lenses, lambda lenses: lenses[:3] == names)
        await window.click_lens("Approve and ask before edits")  # It turns to the end.
        await window.eventually(window.editor_text, lambda text: "That is all." in text)
        assert not question.done.is_set()
        await window.eventually(window.lenses, lambda lenses: names[0] in lenses[-3:])
        await window.eventually(
            lambda: chat.option(names[0]).get_attribute("aria-disabled"), lambda disabled: disabled is None
        )
        await window.page.locator(".codelens-decoration > a", has_text=names[0]).last.click()
        assert await question.chosen() == "ask"

        again = await turn.request("session/request_permission", toolCall={**call, "toolCallId": "q"}, options=OPTIONS)
        await window.eventually(window.editor_text, lambda text: "# Plan" in text)
        await window.focus_editor()
        await window.type("No")
        assert "No" not in await window.editor_text()
        await window.click_lens("Keep planning")
        assert await again.chosen() == "plan"
