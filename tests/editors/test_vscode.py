"""The extension in the real VS Code: what the agent says and does is visible, in the chat and at its location."""

import re

from acp_agent.testing.fake_model import Answer, Call

from .chat import Card, Chat
from .held_tools import held
from .kit import working
from .window import Row, Window

LINES = "".join(f"line {number}\n" for number in range(1, 41))
LENSES = {"acpCoder.inlineStatus.codeLens": True}
SPINNER = re.compile("^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ")


def is_spinning(title: str):
    return lambda texts: any(SPINNER.match(text) and title in text for text in texts)


def is_done(title: str):
    return lambda texts: any(re.fullmatch(rf"✓ {re.escape(title)} \d+\.\d s", text) for text in texts)


async def is_idle(window: Window) -> None:
    await window.eventually(window.status_bar, lambda items: "Agent" in items)


async def tool_rows(window: Window) -> list[Row]:
    return await window.rows("Tool Calls")


async def test_the_views_are_there_and_an_answer_streams_into_the_chat_with_its_thought_plan_and_usage(code, tmp_path):
    steps = [
        {"content": "Look", "status": "completed"}, {"content": "Change", "status": "in_progress", "priority": "high"},
        {"content": "Check"},
    ]  # fmt: skip
    script = [
        Answer(thought="It is a greeting.", tool_calls=(Call("plan", {"entries": steps}),)),
        Answer(
            text=("Hello, **you**", " and `all`.\n\n<img src=x onerror=alert(1)><script>alert(2)</script>"),
            hang_after=1,
        ),
    ]
    async with working(code, tmp_path, script) as (window, model):
        chat = Chat(window)
        await chat.open()
        assert await window.eventually(window.views, len) == ["Chat", "Tool Calls", "Changes", "Sessions"]
        await chat.send("Say hello")
        await window.eventually(chat.answers, lambda texts: texts == ["Hello, you"])
        assert await chat.prompts() == ["Say hello"]
        assert await chat.frame.get_by_role("button", name="Stop", exact=True).is_visible()
        model.release()
        await window.eventually(chat.answers, lambda texts: texts and texts[-1].startswith("Hello, you and all."))
        answer = chat.frame.locator(".from-agent")
        assert await answer.locator("strong").inner_text() == "you"
        assert await answer.locator("code").inner_text() == "all"
        assert await answer.locator("script, [onerror]").count() == 0
        thought = chat.frame.locator("details.thought")
        assert await thought.get_attribute("open") is None
        await thought.locator("summary").click()
        await thought.get_by_text("It is a greeting.").wait_for()
        await chat.frame.locator(".plan:not([open]) summary").click()
        assert await chat.frame.locator(".plan li").all_inner_texts() == [
            "done:\nLook", "being done:\nChange\nhigh", "to do:\nCheck",
        ]  # fmt: skip
        assert "of 128k tokens" in await chat.frame.locator(".usage").inner_text()
        await is_idle(window)
        assert not await chat.frame.get_by_role("button", name="Stop", exact=True).count()


async def test_a_running_call_spins_at_its_line_and_becomes_a_tick_that_fades(code, tmp_path):
    script = [
        Answer(tool_calls=(Call("held_read", {"path": "a.txt", "offset": 5, "limit": 2}),)),
        Answer(
            tool_calls=(Call("held_edit", {"path": "a.txt", "old_string": "line 9\n", "new_string": "line nine\n"}),)
        ),
        "Changed.", "Nothing to do.",
    ]  # fmt: skip
    settings = {**LENSES, "acpCoder.inlineStatus.fadeAfter": 600, "acpCoder.permissions.openDiffs": False}
    environment = held(tmp_path / "package")
    async with working(code, tmp_path, script, files={"a.txt": LINES}, settings=settings, **environment) as (window, _):
        file, go = tmp_path / "project" / "a.txt", tmp_path / "project" / "go"
        chat = Chat(window)
        await window.open_file(file)
        await chat.open()
        await chat.send("Change line 9")

        reading = "Read a.txt lines 5 to 6"
        await window.eventually(window.decorations, is_spinning(reading))
        assert await window.gutter_marks() == 1
        await window.eventually(window.lenses, lambda texts: texts == [reading, "Stop"])
        await window.eventually(
            lambda: tool_rows(window),
            lambda rows: rows == [Row("Prompt 1", "1 call", "", 1, True), Row(reading, "", "loading~spin", 2, None)],
        )
        await window.eventually(window.status_bar, lambda items: "1 tool" in items)
        assert await chat.cards() == [Card(reading, "in_progress")]

        go.touch()
        await window.eventually(window.decorations, is_done(reading))
        await window.eventually(chat.options, len)
        go.unlink()
        editing = "Edit a.txt"
        await window.eventually(window.status_bar, lambda items: "1 question" in items)
        await window.eventually(window.decorations, lambda texts: any(text == f"◌ {editing}" for text in texts))
        await chat.permit("Allow once")
        await window.eventually(window.decorations, is_spinning(editing))
        await window.eventually(window.lenses, lambda texts: {editing, "Show diff", "Stop"} <= set(texts))

        go.touch()
        await window.eventually(window.decorations, is_done(editing))
        await window.eventually(chat.answers, lambda texts: texts == ["Changed."])
        # Only now, so that a slow window cannot miss a tick.
        assert is_done(reading)(await window.decorations())
        await window.change_settings({"acpCoder.inlineStatus.fadeAfter": 1})
        await window.eventually(window.decorations, lambda texts: texts == [])
        assert await window.gutter_marks() == 2
        await window.eventually(window.lenses, lambda texts: texts == [reading, editing, "Show diff"])
        rows = await window.eventually(lambda: tool_rows(window), lambda rows: all("~" not in row.icon for row in rows))
        assert [(row.label, row.icon, row.description[0]) for row in rows[1:]] == [
            (reading, "eye", "✓"), (editing, "edit", "✓"),
        ]  # fmt: skip
        assert all(re.fullmatch(r"✓ \d+\.\d s", row.description) for row in rows[1:])
        await is_idle(window)
        assert await chat.cards() == [Card(reading, "completed"), Card(editing, "completed")]
        await window.click_lens("Show diff")
        await window.tab("a.txt (changed)").wait_for()
        assert "line 9\n" in (await window.diff())[0]
        assert "line nine\n" in (await window.diff())[1]

        await window.tab("a.txt").click()
        await window.eventually(window.gutter_marks, lambda count: count == 2)
        await chat.send("And now?")
        await window.eventually(window.gutter_marks, lambda count: count == 0)
        await window.eventually(window.lenses, lambda texts: texts == [])


async def test_nothing_moves_the_text_and_the_hover_has_what_can_be_done(code, tmp_path):
    script = [
        Answer(tool_calls=(Call("grep", {"pattern": "line", "path": "a.txt"}),)),
        Answer(
            tool_calls=(Call("held_edit", {"path": "a.txt", "old_string": "line 9\n", "new_string": "line nine\n"}),)
        ),
        "Changed.",
    ]  # fmt: skip
    environment = {**held(tmp_path / "package"), "ACP_CODER_MODE": "auto"}
    settings = {"acpCoder.inlineStatus.fadeAfter": 600}
    async with working(code, tmp_path, script, files={"a.txt": LINES}, settings=settings, **environment) as (window, _):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        await chat.open()
        lines = window.page.locator(".editor-group-container.active .view-lines .view-line")

        async def places() -> list[float]:
            return sorted(await lines.evaluate_all("all => all.map(line => line.getBoundingClientRect().top)"))

        before = await places()
        await chat.send("Change line 9")
        await window.eventually(window.decorations, is_spinning("Edit a.txt"))
        # Forty places of a search are one text.
        assert len([text for text in await window.decorations() if "Search" in text]) == 1
        assert await places() == before and await window.lenses() == []
        (tmp_path / "project" / "go").touch()
        await window.eventually(window.decorations, is_done("Edit a.txt"))
        await window.eventually(chat.answers, lambda texts: texts == ["Changed."])
        assert await places() == before and await window.lenses() == []
        await lines.filter(has_text="line nine").locator("span span").last.hover()
        hover = window.page.locator(".monaco-hover:visible")
        await hover.get_by_text("Show diff").first.click()
        await window.tab("a.txt (changed)").wait_for()


async def test_lenses_come_and_go_only_where_they_do_not_move_the_text_under_the_cursor(code, tmp_path):
    reading = Answer(tool_calls=(Call("read", {"path": "a.txt", "offset": 5, "limit": 2}),))
    script = [reading, "Seen.", "Nothing to do."]
    async with working(code, tmp_path, script, files={"a.txt": LINES}, settings=LENSES) as (window, _):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        lines = window.page.locator(".editor-group-container.active .view-lines .view-line")
        line = lines.filter(has_text=re.compile(r"^line.12$"))

        async def place() -> float:
            return await line.evaluate("line => line.getBoundingClientRect().top")

        await window.go_to(12)
        before = await place()
        await chat.open()
        await chat.send("Read")
        await window.eventually(chat.answers, lambda texts: texts == ["Seen."])
        await window.eventually(window.gutter_marks, lambda count: count == 1)
        assert await window.lenses() == [] and await place() == before
        await window.go_to(2)
        await window.eventually(window.lenses, len)
        await window.go_to(12)
        below = await place()
        assert below > before
        await chat.open()
        await chat.send("And now?")
        await window.eventually(window.gutter_marks, lambda count: count == 0)
        await window.eventually(chat.answers, lambda texts: texts == ["Seen.", "Nothing to do."])
        assert await window.lenses() and await place() == below
        await window.go_to(2)
        await window.eventually(window.lenses, lambda texts: texts == [])
        assert await place() == before


async def test_the_stop_above_a_line_stops_the_turn_that_works_there(code, tmp_path):
    script = [Answer(tool_calls=(Call("held_read", {"path": "a.txt", "offset": 5, "limit": 2}),))]
    async with working(
        code, tmp_path, script, files={"a.txt": LINES}, settings=LENSES, **held(tmp_path / "package")
    ) as (window, _):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        await chat.open()
        await chat.send("Read")
        await window.eventually(window.lenses, lambda texts: "Stop" in texts)
        await window.click_lens("Stop")
        await window.eventually(chat.notices, lambda texts: texts == ["Stopped."])
        ((title, status),) = await chat.cards()
        assert (title, status) in {("Read a.txt lines 5 to 6", "failed"), ("Read a.txt lines 5 to 6", "cancelled")}
        await window.eventually(window.lenses, lambda texts: "Stop" not in texts)
        await is_idle(window)


async def test_calls_of_a_sub_agent_stand_below_their_parents_and_a_click_leads_to_the_place_or_output(code, tmp_path):
    script = [
        Answer(tool_calls=(Call("delegate", {"title": "look around", "prompt": "Look at b.txt"}),)),
        Answer(tool_calls=(Call("read", {"path": "b.txt", "offset": 20}), Call("bash", {"command": "echo seen"}))),
        "It has 40 lines.", "Looked.",
    ]  # fmt: skip
    async with working(code, tmp_path, script, files={"b.txt": LINES}, ACP_CODER_MODE="auto") as (window, _):
        chat = Chat(window)
        await chat.open()
        await chat.send("Look around")
        await window.eventually(chat.answers, lambda texts: texts == ["Looked."])
        rows = await window.eventually(
            lambda: tool_rows(window), lambda rows: len(rows) == 4 and all("~" not in row.icon for row in rows)
        )
        assert [(row.label, row.icon, row.level) for row in rows] == [
            ("Prompt 1", "", 1), ("Sub-agent: look around", "tools", 2), ("Read b.txt from line 20", "eye", 3),
            ("echo seen", "terminal", 3),
        ]  # fmt: skip
        assert [card.title for card in await chat.cards()] == ["Sub-agent: look around"]
        await chat.frame.get_by_role("button", name="2 calls of the sub-agent").click()
        assert [card.title for card in await chat.cards()][1:] == ["Read b.txt from line 20", "echo seen"]
        await window.row("Tool Calls", "Read b.txt from line 20").click()
        await window.tab("b.txt").wait_for()
        await window.eventually(window.status_bar, lambda items: "Ln 20, Col 1" in items)
        await window.row("Tool Calls", "echo seen").click()
        await window.tab("echo seen.md").wait_for()
        assert "seen" in (await window.editor_text()).partition("Output")[2]


async def test_two_hundred_calls_in_one_turn_all_end_and_the_editor_still_answers(code, tmp_path):
    calls = tuple(Call("read", {"path": "a.txt", "offset": number, "limit": 2}) for number in range(1, 201))
    script = [Answer(tool_calls=calls), "All read."]
    text = "".join(f"line {number}\n" for number in range(1, 301))
    async with working(code, tmp_path, script, files={"a.txt": text}) as (window, model):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        await chat.open()
        await chat.send("Read all")
        await window.eventually(chat.answers, lambda texts: texts == ["All read."])
        await is_idle(window)
        assert sum(message["role"] == "tool" for message in model.requests[1].body["messages"]) == 200
        for fold in await chat.frame.locator(".group > .fold").all():  # A row of reads is one line.
            await fold.click()
        cards = await window.eventually(chat.cards, lambda cards: len(cards) == 200)
        assert {card.status for card in cards} == {"completed"}
        assert [card.title for card in cards] == [
            f"Read a.txt lines {number} to {number + 1}" for number in range(1, 201)
        ]
        rows = await window.eventually(lambda: tool_rows(window), len)
        assert rows[0] == Row("Prompt 1", "200 calls", "", 1, True)
        # By the keys: a click would go to the place in the editor, and take the focus there.
        await window.command("acp-coder: Focus on Tool Calls View")
        await window.page.keyboard.press("End")
        last = "Read a.txt lines 200 to 201"
        # VS Code draws a long tree again some seconds after the last change. The branch stays in view above the calls.
        rows = await window.eventually(
            lambda: tool_rows(window), lambda rows: rows[-1].label == last and all("~" not in row.icon for row in rows)
        )
        assert {row.icon for row in rows if row.level == 2} == {"eye"}
        # Of all that was read at once the editor shows the newest.
        await window.go_to(150)
        assert await window.eventually(window.gutter_marks, lambda count: count >= 10)
        await window.type("X")
        await window.eventually(window.editor_text, lambda text: "Xline 150" in text)


async def test_follow_mode_shows_the_file_that_is_worked_on_and_leaves_the_focus_where_it_is(code, tmp_path):
    script = [
        Answer(tool_calls=(Call("read", {"path": "a.txt", "offset": 90, "limit": 5}),)), "Seen.",
        Answer(tool_calls=(Call("read", {"path": "b.txt", "offset": 10}),)), "Seen too.",
    ]  # fmt: skip
    text = "".join(f"line {number}\n" for number in range(1, 121))
    async with working(code, tmp_path, script, files={"a.txt": text, "b.txt": text}) as (window, _):
        chat = Chat(window)
        await chat.open()
        await window.command("acp-coder: Toggle Follow Mode")
        await window.eventually(window.status_bar, lambda items: "Follow mode is on" in items)
        await chat.send("Read it")
        await window.tab("a.txt").wait_for()
        await window.eventually(window.editor_text, lambda shown: "line 90\n" in shown)
        await window.eventually(chat.answers, lambda texts: texts == ["Seen."])
        await window.type("still in the chat")
        assert await chat.box.input_value() == "still in the chat"
        await chat.box.fill("")
        await window.command("acp-coder: Toggle Follow Mode")
        await window.eventually(window.status_bar, lambda items: "Follow mode is off" in items)
        await chat.send("And the other")
        await window.eventually(chat.answers, lambda texts: texts == ["Seen.", "Seen too."])
        assert await window.tabs() == ["a.txt"]
