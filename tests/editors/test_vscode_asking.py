"""Asking from where one is, in the real VS Code: selections, diagnostics, mentions, code of an answer; sessions."""

import subprocess
from contextlib import suppress

from playwright.async_api import TimeoutError

from acp_agent.testing.fake_model import Answer, Call

from .chat import Chat
from .kit import working
from .test_vscode_turns import AUTO, answered, prompts

TEXT = "".join(f"line {number}\n" for number in range(1, 11))


async def test_a_selection_is_edited_in_place_and_code_of_an_answer_is_put_at_the_cursor(code, tmp_path):
    edit = Call("edit", {"path": "a.txt", "old_string": "line 3\n", "new_string": "LINE 3\n"})
    script = [Answer(tool_calls=(edit,)), "Done.\n\n```python\nx = 1\n```\n\nSee `a.txt:7`."]
    async with working(code, tmp_path, script, files={"a.txt": TEXT}, **AUTO) as (window, model):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        await chat.open()
        await window.go_to(3)
        await window.page.keyboard.press("Shift+End")
        await window.page.keyboard.press("Control+I")
        title, _ = await window.quick_input()
        assert "a.txt:3" in title
        await window.answer("Shout it")
        await window.eventually(chat.answers, lambda texts: texts and texts[-1].startswith("Done."))
        assert prompts(model)[0].startswith("Shout it") and "line 3" in prompts(model)[0]
        await window.eventually(window.editor_text, lambda text: "LINE 3" in text)
        await chat.frame.get_by_role("region", name="Changes of the last prompt").wait_for()

        await chat.frame.get_by_role("link", name="a.txt:7").click()
        await window.eventually(window.status_bar, lambda items: "Ln 7, Col 1" in items)
        await chat.frame.locator(".code").hover()
        await chat.frame.get_by_role("button", name="Insert the code at the cursor").click()
        await window.eventually(window.editor_text, lambda text: "x = 1line 7" in text)


async def test_a_diagnostic_is_fixed_by_the_light_bulb(code, tmp_path):
    async with working(code, tmp_path, ["Fixed."], files={"a.json": '{"a": 1,}\n'}) as (window, model):
        chat = Chat(window)
        await chat.open()
        await window.open_file(tmp_path / "project" / "a.json")
        await window.page.locator(".squiggly-error, .squiggly-warning").first.wait_for()
        await window.go_to(1, 9)
        await window.page.keyboard.press("Control+.")
        await window.page.locator(".action-widget").get_by_text("Fix with acp-coder").click()
        await answered(window, chat, "Fixed.")
        assert prompts(model)[0].startswith("Fix this problem:\nline 1: ") and '{"a": 1,}' in prompts(model)[0]


async def test_folders_and_what_is_changed_in_git_are_mentioned(code, tmp_path):
    (project := tmp_path / "project").mkdir()
    (project / "sources").mkdir()
    (project / "sources" / "a.txt").write_text(TEXT)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm one"):
        subprocess.run(["git", *command.split()], cwd=project, check=True)
    (project / "sources" / "a.txt").write_text(TEXT.replace("line 3", "LINE 3"))
    async with working(code, tmp_path, ["I see."]) as (window, model):
        chat = Chat(window)
        await chat.open()
        names = chat.frame.locator(".suggestions .label")

        async def offered(query: str) -> list[str]:
            await chat.box.fill("")
            await chat.box.press_sequentially(query)
            with suppress(TimeoutError):  # The extension for git may still be starting.
                await names.first.wait_for(timeout=3000)
            return await names.all_inner_texts()

        await window.eventually(lambda: offered("@sour"), lambda labels: "sources/" in labels)
        await chat.frame.locator(".suggestions li", has_text="sources/").first.click()
        await window.eventually(lambda: offered("@di"), lambda labels: labels[:1] == ["diff"])
        await names.first.click()
        chips = chat.frame.locator(".composer .chip .label")
        assert await chips.all_inner_texts() == ["sources/", "git diff"]
        await chat.box.press("Enter")
        await answered(window, chat, "I see.")
        assert "-line 3" in prompts(model)[0] and "+LINE 3" in prompts(model)[0]


async def test_a_session_is_renamed_and_exported(code, tmp_path):
    async with working(code, tmp_path, ["Blue."]) as (window, _):
        chat = Chat(window)
        await chat.open()
        await chat.send("Which colour?")
        await answered(window, chat, "Blue.")
        await window.command("acp-coder: Rename Session…")
        await window.choose("Which colour?")
        await window.answer("Colours")
        await window.eventually(
            lambda: window.rows("Sessions"), lambda rows: [row.label for row in rows] == ["Colours"]
        )
        await window.command("acp-coder: Export Session…")
        await window.choose("Colours")
        await window.eventually(window.editor_text, lambda text: "Which colour?" in text and "Blue." in text)


async def test_another_session_is_mentioned_by_its_title(code, tmp_path):
    async with working(code, tmp_path, ["It is green.", "Green."]) as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Paint the fence")
        await answered(window, chat, "It is green.")
        await window.command("acp-coder: New Session")
        await window.eventually(chat.answers, lambda texts: texts == [])
        await chat.box.fill("")
        await chat.box.press_sequentially("Which colour was it? @the-fen")
        names = chat.frame.locator(".suggestions .label")
        await window.eventually(names.all_inner_texts, lambda labels: labels == ["Paint the fence"])
        await chat.box.press("Enter")
        await window.eventually(chat.box.input_value, lambda text: text.strip().endswith("@Paint-the-fence"))
        await chat.box.press("Enter")
        await answered(window, chat, "Green.")
        assert "It is green." in prompts(model)[-1]


async def test_what_is_remembered_is_revoked_and_rules_and_servers_are_listed(code, tmp_path):
    run = Answer(tool_calls=(Call("bash", {"command": "touch made"}),))
    async with working(code, tmp_path, [run, "Done."]) as (window, _):
        chat = Chat(window)
        await chat.open()
        await window.command("acp-coder: MCP Servers…")
        await window.eventually(window.notifications, lambda texts: any("no MCP servers" in text for text in texts))
        await window.command("acp-coder: Rules…")
        title, labels = await window.quick_input()
        assert "Rules" in title and any(label.startswith("Autonomy: ") for label in labels)
        await window.page.keyboard.press("Escape")

        await chat.send("Make it")
        options = await window.eventually(chat.options, len)
        await chat.permit(next(option for option in options if option.startswith("Always allow")))
        await answered(window, chat, "Done.")
        await window.command("acp-coder: Permissions…")
        _, labels = await window.quick_input()
        await window.choose(next(label for label in labels if label.startswith("always allow")))
        await window.page.locator(".monaco-dialog-box").get_by_role("button", name="Revoke").click()
        await window.eventually(chat.answers, lambda texts: texts[-1].startswith("Revoked #"))
        await window.command("acp-coder: Permissions…")
        told = "Nothing is remembered for this folder"
        await window.eventually(window.notifications, lambda texts: any(told in text for text in texts))
