"""Edits in the real VS Code: reviewed in its diff editor, made in its buffers, reverted by its undo."""

from pathlib import Path
from typing import Any

from acp_agent.testing.fake_model import Answer, Call, FakeModel

from .chat import Card, Chat
from .kit import working

TEXT = "alpha\nbeta\ngamma\n"
CHANGE = Call("edit", {"path": "a.txt", "old_string": "beta", "new_string": "BETA"})
NOTEBOOK = """{
 "cells": [
  {
   "cell_type": "code",
   "execution_count": null,
   "id": "a1",
   "metadata": {},
   "outputs": [],
   "source": [
    "before"
   ]
  }
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"""
# All lines stay in view when CodeLenses come and go above them.
STEADY = {"editor.scrollBeyondLastLine": False}
OPTIONS = ["Allow once", "Always allow edits in this project", "Reject", "Never allow edits in this project"]


def changing(*calls: Call) -> list[Any]:
    return [Answer(tool_calls=calls or (CHANGE,)), "Done."]


def tool_results(model: FakeModel) -> list[str]:
    """What the model was told by tools."""
    return [str(message["content"]) for message in model.requests[-1].body["messages"] if message["role"] == "tool"]


async def is_done(window, chat: Chat) -> None:
    await window.eventually(chat.answers, lambda texts: texts[-1:] == ["Done."])


async def asked(window, chat: Chat) -> None:
    await window.tab("a.txt (proposed)").wait_for()
    await window.eventually(window.diff, lambda sides: "BETA" in sides[1])
    # What is for once stands first.
    assert await window.eventually(chat.options, len) == [OPTIONS[0], OPTIONS[2], OPTIONS[1], OPTIONS[3]]


async def test_an_edit_is_asked_about_in_the_diff_editor_and_can_be_reviewed_after_it_was_made(code, tmp_path):
    async with working(code, tmp_path, changing(), files={"a.txt": TEXT}) as (window, _):
        file = tmp_path / "project" / "a.txt"
        chat = Chat(window)
        await chat.open()
        await chat.send("Change it")
        await asked(window, chat)
        assert await window.diff() == ("alpha\nbeta\ngamma\n", "alpha\nBETA\ngamma\n")
        assert file.read_text() == TEXT
        assert await chat.frame.locator(".diff .added, .diff .removed").all_inner_texts() == ["+1", "−1"]
        await chat.permit("Allow once")
        await is_done(window, chat)
        assert file.read_text() == "alpha\nBETA\ngamma\n"
        assert await chat.cards() == [Card("Edit a.txt", "completed")]
        # Much later, with another text in the file.
        await window.page.keyboard.press("Control+K")
        await window.page.keyboard.press("Control+W")
        await window.eventually(window.tabs, lambda labels: labels == [])
        file.write_text("something else\n")
        await chat.frame.get_by_role("button", name="a.txt").and_(chat.frame.locator(".diff")).click()
        await window.tab("a.txt (changed)").wait_for()
        assert await window.diff() == ("alpha\nbeta\ngamma\n", "alpha\nBETA\ngamma\n")


async def test_a_question_is_answered_by_a_command_and_by_the_diff_editors_title_bar(code, tmp_path):
    script = [*changing(), *changing(), *changing()]
    async with working(code, tmp_path, script, files={"a.txt": TEXT}) as (window, model):
        file = tmp_path / "project" / "a.txt"
        chat = Chat(window)
        actions = window.page.locator(".editor-group-container.active .editor-actions")
        await chat.open()
        await chat.send("Change it")
        await asked(window, chat)
        await window.command("acp-coder: Answer the Agent's Question…")
        title, labels = await window.quick_input()
        assert "Edit a.txt" in title and [label.strip() for label in labels] == OPTIONS
        await window.choose("Reject")
        await is_done(window, chat)
        assert file.read_text() == TEXT
        assert await chat.cards() == [Card("Edit a.txt", "cancelled")]
        assert "The user did not allow this call" in tool_results(model)[0]
        # A diff that opened by itself goes with its question.
        await window.eventually(window.tabs, lambda labels: labels == [])

        await chat.send("Try again")
        await window.eventually(chat.options, len)
        await actions.get_by_role("button", name="Reject Once").click()
        await window.eventually(chat.answers, lambda texts: texts == ["Done.", "Done."])
        assert file.read_text() == TEXT

        await chat.send("And again")
        await window.eventually(chat.options, len)
        await actions.get_by_role("button", name="Allow Once").click()
        await window.eventually(chat.answers, lambda texts: texts == ["Done.", "Done.", "Done."])
        assert file.read_text() == "alpha\nBETA\ngamma\n"


async def test_a_question_is_asked_by_a_notification_where_the_chat_is_not_seen(code, tmp_path):
    settings = {"acpCoder.permissions.openDiffs": False}
    async with working(code, tmp_path, changing(), files={"a.txt": TEXT}, settings=settings) as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Change it")
        await window.page.locator(".part.activitybar a[aria-label^='Search']").click()
        await window.eventually(window.notifications, lambda texts: any("asks: Edit a.txt" in text for text in texts))
        # It does not show the change: who wants to allow it looks at it first.
        assert await window.notification_buttons("Edit a.txt") == ["Show", "Reject"]
        badge = window.page.locator(".part.activitybar .action-item:has(a[aria-label^='acp-coder']) .badge-content")
        assert await badge.inner_text() == "1" and "1 question" in await window.status_bar()
        await window.click_notification("Show", containing="Edit a.txt")
        await chat.frame.locator(".question .subject:focus").wait_for()
        # Neither outlives what it is for: the question is in view now, and is answered then.
        await window.eventually(window.notifications, lambda texts: texts == [])
        await chat.permit("Allow once")
        await model.wait_for_request(2)
        assert "BETA" in (tmp_path / "project" / "a.txt").read_text()
        await badge.wait_for(state="hidden")


async def test_an_edit_in_a_dirty_buffer_leaves_the_file_alone_and_one_undo_takes_only_it_back(code, tmp_path):
    script = [Answer(tool_calls=(Call("read", {"path": "a.txt"}),)), Answer(tool_calls=(CHANGE,)), "Done."]  # fmt: skip
    async with working(code, tmp_path, script, files={"a.txt": TEXT}, settings=STEADY, ACP_CODER_MODE="auto") as (
        window, model,
    ):  # fmt: skip
        file = tmp_path / "project" / "a.txt"
        chat = Chat(window)
        await window.open_file(file)
        await window.go_to(3, 6)
        await window.type("_mine")
        await window.eventually(lambda: window.is_dirty("a.txt"), bool)
        await chat.open()
        await chat.send("Change it")
        await is_done(window, chat)
        assert "gamma_mine" in tool_results(model)[0]
        await window.eventually(window.editor_text, lambda text: text == "alpha\nBETA\ngamma_mine\n")
        assert await window.is_dirty("a.txt")
        assert file.read_text() == TEXT
        await window.undo()
        await window.eventually(window.editor_text, lambda text: text == "alpha\nbeta\ngamma_mine\n")
        assert await window.is_dirty("a.txt")
        await window.undo()
        await window.eventually(window.editor_text, lambda text: text == TEXT)
        await window.eventually(lambda: window.is_dirty("a.txt"), lambda dirty: not dirty)
        assert file.read_text() == TEXT


async def test_an_edit_of_a_clean_file_is_saved_and_undone_like_the_persons_own(code, tmp_path):
    script = changing(CHANGE, Call("write", {"path": "made/new.txt", "content": "made\n"}))
    async with working(code, tmp_path, script, files={"a.txt": TEXT}, settings=STEADY, ACP_CODER_MODE="auto") as (
        window, _,
    ):  # fmt: skip
        file: Path = tmp_path / "project" / "a.txt"
        chat = Chat(window)
        await window.open_file(file)
        await chat.open()
        await chat.send("Change it")
        await is_done(window, chat)
        assert file.read_text() == "alpha\nBETA\ngamma\n"
        assert (tmp_path / "project" / "made" / "new.txt").read_text() == "made\n"
        await window.eventually(window.editor_text, lambda text: text == "alpha\nBETA\ngamma\n")
        assert not await window.is_dirty("a.txt")
        await window.undo()
        await window.eventually(window.editor_text, lambda text: text == TEXT)
        await window.save()
        await window.eventually(lambda: _read(file), lambda text: text == TEXT)


async def _read(file: Path) -> str:
    return file.read_text()


async def test_what_the_person_types_while_they_are_asked_is_not_overwritten(code, tmp_path):
    async with working(code, tmp_path, changing(), files={"a.txt": TEXT}, settings=STEADY) as (window, model):
        file = tmp_path / "project" / "a.txt"
        chat = Chat(window)
        await window.open_file(file)
        await chat.open()
        await chat.send("Change it")
        await asked(window, chat)
        await window.tab("a.txt").click()
        await window.go_to(1, 6)
        await window.type("!")
        await window.eventually(lambda: window.is_dirty("a.txt"), bool)
        await chat.permit("Allow once")
        await is_done(window, chat)
        assert await chat.cards() == [Card("Edit a.txt", "failed")]
        assert "changed" in tool_results(model)[0]
        assert await window.editor_text() == "alpha!\nbeta\ngamma\n"
        assert file.read_text() == TEXT


async def test_a_notebook_that_is_open_shows_an_edit_and_its_unsaved_changes_are_not_written_over(code, tmp_path):
    read = Call("read", {"path": "n.ipynb"})
    edits = [Call("edit_notebook", {"path": "n.ipynb", "cell": 1, "new_source": text}) for text in ("first", "second")]
    script = [item for edit in edits for item in (Answer(tool_calls=(read,)), Answer(tool_calls=(edit,)), "Done.")]
    async with working(code, tmp_path, script, files={"n.ipynb": NOTEBOOK}, ACP_CODER_MODE="auto") as (window, model):
        file = tmp_path / "project" / "n.ipynb"
        cells = window.page.locator(".notebookOverlay")
        chat = Chat(window)
        await window.page.keyboard.press("Control+P")
        await window.answer(str(file), enter=False)
        await window.choose("n.ipynb")
        await cells.get_by_text("before").first.wait_for()
        await chat.open()
        await chat.send("Change it")
        await is_done(window, chat)
        assert file.read_text() == NOTEBOOK.replace("before", "first")
        await cells.get_by_text("first").first.wait_for()
        assert not await window.is_dirty("n.ipynb")
        await window.tab("n.ipynb").click()
        await window.command("Notebook: Insert Code Cell Below")
        await window.eventually(lambda: window.is_dirty("n.ipynb"), bool)
        await chat.send("Again")
        await window.eventually(chat.answers, lambda texts: texts == ["Done.", "Done."])
        assert "n.ipynb has unsaved changes in the notebook editor" in tool_results(model)[-1]
        assert file.read_text() == NOTEBOOK.replace("before", "first")
