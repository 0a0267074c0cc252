"""What the views take and give in the real VS Code: room, the keyboard, colours, the names of terminals."""

from acp_agent.testing.fake_model import Answer, Call

from .chat import Chat
from .kit import working
from .test_vscode_attacks import attacked, begun


async def test_the_chord_puts_the_keyboard_into_the_chat_at_its_first_press(code, tmp_path):
    async with attacked(code, tmp_path, files={"a.txt": b"alpha\n"}) as (window, chat, _):
        await window.open_file(tmp_path / "project" / "a.txt")
        await window.focus_editor()
        for text in ("hello", "hello again"):
            await window.page.keyboard.press("Control+K")
            await window.page.keyboard.press("a")
            await chat.frame.locator("textarea:focus").wait_for()
            await window.type(text.removeprefix("hello") or text)
            await window.eventually(chat.box.input_value, lambda value, text=text: value == text)
            await window.focus_editor()
        assert await window.editor_text() == "alpha\n"


async def test_the_terminal_shows_the_command_and_not_the_script_it_runs_as(code, tmp_path):
    script = [Answer(tool_calls=(Call("bash", {"command": "echo one\necho two"}),)), "Ran."]
    settings = {"acpCoder.terminals.reveal": True}
    async with working(code, tmp_path, script, settings=settings, ACP_CODER_MODE="auto") as (window, _):
        chat = Chat(window)
        await chat.open()
        await chat.send("Run it")
        await window.eventually(chat.answers, lambda texts: texts == ["Ran."])
        shown = await window.eventually(window.terminal_text, lambda text: "[exit status 0]" in text)
        assert shown.startswith("$ echo one\necho two\none\ntwo\n")
        names = await window.eventually(window.terminals, len)
        assert "echo one echo two" in names[-1] and ".sh" not in "".join(names)


async def test_code_gets_its_colours_and_a_message_is_copied(code, tmp_path):
    async with attacked(code, tmp_path) as (window, chat, agent):
        await (await begun(chat, agent)).end("```python\ndef f():\n    return 1\n```")
        await window.eventually(
            chat.frame.locator(".from-agent .hljs-keyword").all_inner_texts, lambda words: words == ["def", "return"]
        )
        colours = await chat.frame.locator(".from-agent .hljs-keyword, .from-agent code").evaluate_all(
            "all => all.map(element => getComputedStyle(element).color)"
        )
        assert len(set(colours)) == 2
        await chat.frame.locator(".from-user").hover()
        await chat.frame.get_by_role("button", name="Edit the message and send it again").click()
        await window.eventually(chat.box.input_value, lambda value: value == "Begin")


async def test_a_plan_folds_after_its_turn_and_rests_in_later_ones_and_pickers_stay_in_one_row(code, tmp_path):
    steps = [{"content": "Look", "status": "in_progress"}, {"content": "Check"}]
    script = [
        Answer(tool_calls=(Call("plan", {"entries": steps}),)), "Planned.", Answer(text="More.", hang_after=1), "x",
    ]  # fmt: skip
    async with working(code, tmp_path, script) as (window, model):
        chat = Chat(window)
        await chat.open()
        assert not await window.page.locator(".pane-header[aria-expanded=true]", has_text="Tool Calls").count()
        await chat.send("Plan")
        await window.eventually(chat.answers, lambda texts: texts == ["Planned."])
        plan = chat.frame.locator(".plan")
        await window.eventually(lambda: plan.get_attribute("open"), lambda value: value is None)
        await chat.send("And now?")
        await window.eventually(chat.answers, lambda texts: texts[-1:] == ["More."])
        assert not await plan.locator(".spinner, li").count()
        model.release()
        await window.eventually(window.status_bar, lambda items: "Agent" in items)
        await window.side_bar(170)
        pickers = chat.frame.locator(".pickers .picker")
        await window.eventually(pickers.count, lambda count: count > 1)
        assert len(set(await pickers.evaluate_all("all => all.map(picker => picker.getBoundingClientRect().top)"))) == 1
        await window.reload()
        await chat.box.wait_for()
        await window.eventually(plan.count, lambda count: count == 1)
        assert not await plan.locator(".spinner, li").count()
