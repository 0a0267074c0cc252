"""Questions in the real VS Code: whatever is asked about is allowed only where all of it has been in view."""

from typing import Any

import pytest
from playwright.async_api import Locator

from .raw_agent import OPTIONS, Request, Turn
from .test_vscode_attacks import attacked, begun, edit, hide_chat
from .window import Window

COMMAND = "".join(f"echo step {number}\n" for number in range(1, 30)) + "rm precious.txt"
WHY = "Asked because it deletes files.\n\nRisk: high (it deletes)\n\nThe rules say that `rm` changes something."
LONG_OPTIONS = [
    {"optionId": "yes", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "ever", "name": "Always allow git push in this project", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    {"optionId": "never", "name": "Never allow git push in this project", "kind": "reject_always"},
]


def run(command: str, why: str = WHY, title: str = "") -> dict[str, Any]:
    """A question about a command, as acp-coder asks it."""
    content = [{"type": "content", "content": {"type": "text", "text": text}} for text in (f"```\n{command}\n```", why)]
    call = {"toolCallId": "c", "title": title or command, "kind": "execute", "rawInput": {"command": command}}
    return {**call, "content": content, "_meta": {"asked": {"reason": "", "rule": ""}}}


async def ask(turn: Turn, call: dict[str, Any], options: list[dict[str, str]] = OPTIONS) -> Request:
    return await turn.request("session/request_permission", toolCall=call, options=options)


async def is_in_view(element: Locator, window: Window) -> bool:
    """Whether all of it can be seen in the chat."""
    box = await element.bounding_box()
    frame = await window.page.locator("iframe.webview:visible").first.bounding_box()
    assert frame is not None
    if box is None or box["height"] < 1:
        return False
    across = frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] + 0.5
    return across and frame["y"] <= box["y"] and box["y"] + box["height"] <= frame["y"] + frame["height"] + 0.5


@pytest.mark.parametrize("width", [300, 170])
async def test_a_long_command_is_allowed_once_its_end_was_in_view_and_rejected_at_once(code, tmp_path, width):
    async with attacked(code, tmp_path) as (window, chat, agent):
        await window.page.set_viewport_size({"width": 1280, "height": 720})
        turn = await begun(chat, agent)
        await window.side_bar(width)
        question = await ask(turn, run(COMMAND), LONG_OPTIONS)
        allow, reject = chat.option("Allow once"), chat.option("Reject")
        await reject.wait_for()
        subject = chat.frame.locator(".question .subject")
        assert await subject.locator(".whole").inner_text() == COMMAND
        for part in (allow, reject, *[chat.option(option["name"]) for option in LONG_OPTIONS]):
            assert await is_in_view(part, window)
        assert await is_in_view(chat.frame.locator(".question .why p", has_text="Risk: high"), window)
        assert not await is_in_view(subject.locator(".end"), window)
        assert [await chat.option(option["name"]).get_attribute("aria-disabled") for option in LONG_OPTIONS] == [
            "true", "true", None, None,
        ]  # fmt: skip
        await allow.click(force=True)  # It turns the page.
        assert not question.done.is_set()
        await subject.evaluate("subject => subject.scrollTo(0, 0)")
        again = await ask(turn, {**run(COMMAND), "toolCallId": "d"}, LONG_OPTIONS)
        await reject.click()
        assert await question.chosen() == "no"
        await window.eventually(chat.frame.locator(".question").count, lambda count: count == 1)
        await window.eventually(lambda: allow.get_attribute("aria-disabled"), lambda value: value == "true")
        await subject.hover()
        await window.page.mouse.wheel(0, 5000)
        await window.eventually(lambda: allow.get_attribute("aria-disabled"), lambda value: value is None)
        assert await is_in_view(subject.locator(".end"), window)
        await allow.click()
        assert await again.chosen() == "yes"


async def test_a_long_command_is_read_and_allowed_with_the_keyboard_alone(code, tmp_path):
    async with attacked(code, tmp_path) as (window, chat, agent):
        await window.page.set_viewport_size({"width": 1280, "height": 720})
        question = await ask(await begun(chat, agent), run(COMMAND))
        await chat.option("Refuse").wait_for()
        await window.command("acp-coder: Answer the Agent's Question…")
        _, labels = await window.quick_input()
        assert [label.strip() for label in labels] == ["Show the question", "Refuse"]
        await window.page.keyboard.press("Enter")
        await chat.frame.locator(".subject:focus").wait_for()
        allow = chat.option("Allow")
        assert await allow.get_attribute("aria-disabled") == "true"
        await window.page.keyboard.press("Tab")
        await window.page.keyboard.press("Enter")  # Not live yet: it turns the page.
        await chat.frame.locator(".option:focus").wait_for()
        await window.page.keyboard.press("Shift+Tab")
        await window.page.keyboard.press("End")
        await window.eventually(lambda: allow.get_attribute("aria-disabled"), lambda value: value is None)
        assert not question.done.is_set()
        await window.page.keyboard.press("Tab")
        await window.page.keyboard.press("Enter")
        assert await question.chosen() == "yes"
        assert await chat.box.evaluate("box => box === document.activeElement")


async def test_a_notification_allows_nothing_and_a_picker_only_what_it_shows_whole(code, tmp_path):
    async with attacked(code, tmp_path) as (window, chat, agent):
        turn = await begun(chat, agent)
        await hide_chat(window)
        short = await ask(turn, run("make", title="Run it"))
        assert await window.notification_buttons("raw asks: Run it") == ["Show", "Reject"]
        await window.click_notification("Reject", containing="Run it")
        assert await short.chosen() == "no"

        long = await ask(turn, {**run(COMMAND), "toolCallId": "d"})
        assert await window.notification_buttons("echo step 1") == ["Show", "Reject"]
        # The one that was answered is gone: none stands beside the next.
        await window.eventually(window.notifications, lambda texts: len(texts) == 1)
        await window.click_notification("Reject", containing="echo step 1")
        assert await long.chosen() == "no"

        few = await ask(turn, {**run("make one\nmake two"), "toolCallId": "e"})
        await window.command("acp-coder: Answer the Agent's Question…")
        _, labels = await window.quick_input()
        assert [label.strip() for label in labels] == ["make one", "make two", *WHY.split("\n\n"), "Allow", "Refuse"]
        await window.choose("Allow")
        assert await few.chosen() == "yes"


async def test_the_diff_editor_allows_once_the_last_change_was_in_view(code, tmp_path):
    old = "".join(f"line {number}\n" for number in range(1, 201))
    new = "".join(f"LINE {number}\n" for number in range(1, 201))
    async with attacked(code, tmp_path, files={"a.txt": old.encode()}) as (window, chat, agent):
        question = await ask(await begun(chat, agent), edit(tmp_path / "project" / "a.txt", old, new))
        tab = window.tab("a.txt (proposed)")
        await tab.wait_for()
        await chat.option("Allow").wait_for()
        actions = window.page.locator(".editor-group-container.active .editor-actions .action-label")

        async def titles() -> list[str]:
            labels = [await action.get_attribute("aria-label") or "" for action in await actions.all()]
            return [label for label in labels if label.startswith(("Allow Once", "Reject Once"))]

        await window.eventually(titles, lambda found: found == ["Reject Once"])
        await window.command("acp-coder: Allow Once")
        assert not question.done.is_set()
        await tab.click()
        await window.page.locator(".editor.modified .view-lines").last.click()
        await window.page.keyboard.press("Control+End")
        await window.eventually(titles, lambda found: found == ["Allow Once", "Reject Once"])
        await window.eventually(
            lambda: chat.option("Allow").get_attribute("aria-disabled"), lambda value: value is None
        )
        await window.command("acp-coder: Allow Once")
        assert await question.chosen() == "yes"
