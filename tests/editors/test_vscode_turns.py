"""Turns and sessions in the real VS Code: commands in its terminals, stop, queue, forms, reload, choices."""

from pathlib import Path

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.agent.kit import without_context
from tests.e2e.kit import alive

from .chat import Card, Chat
from .kit import working
from .window import Row, Window

TEXT = "alpha\nbeta\ngamma\n"
# What Ctrl+V does where a picture is on the clipboard.
PASTE = """box => {
    const bytes = Uint8Array.from(atob('%s'), char => char.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], 'dot.png', { type: 'image/png' }));
    box.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
}"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAIT = "echo $$ > pid; echo waiting; until [ -e go ]; do sleep 0.05; done"
AUTO = {"ACP_CODER_MODE": "auto"}


def results(model: FakeModel) -> list[str]:
    """What the model was told by tools, as far as the newest request says."""
    return [str(message["content"]) for message in model.requests[-1].body["messages"] if message["role"] == "tool"]


def prompts(model: FakeModel) -> list[str]:
    """What the user said, in the last request."""
    return [
        str(each["content"]) for each in without_context(model.requests[-1].body["messages"]) if each["role"] == "user"
    ]


async def answered(window: Window, chat: Chat, *texts: str) -> None:
    await window.eventually(chat.answers, lambda answers: answers == list(texts))


async def pid_of(window: Window, file: Path) -> int:
    async def read() -> str:
        return file.read_text() if file.exists() else ""

    written = await window.eventually(read, lambda text: text.endswith("\n"))
    return int(written)


async def test_a_command_runs_in_a_real_terminal_and_its_text_stays(code, tmp_path):
    command = """printf '%s\\n' "one; two" 'a"b' "$((6 * 7))" '$HOME'; exit 3"""
    script = [Answer(tool_calls=(Call("bash", {"command": command}),)), "Ran."]
    async with working(code, tmp_path, script, **AUTO) as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Run it")
        await answered(window, chat, "Ran.")
        assert 'one; two\na"b\n42\n$HOME' in results(model)[0]
        assert await chat.cards() == [Card(command, "failed")]
        terminal = chat.frame.locator(".card .terminal")
        assert await chat.frame.locator(".card .exit").inner_text() == "exit 3"
        assert await terminal.locator("pre").inner_text() == 'one; two\na"b\n42\n$HOME\n'
        await terminal.get_by_role("button", name="Show terminal").click()
        shown = await window.eventually(window.terminal_text, lambda text: "[exit status 3]" in text)
        assert 'one; two\na"b\n42\n$HOME\n' in shown
        await window.eventually(window.terminals, lambda names: any("printf '%s" in name for name in names))


async def test_a_stop_ends_the_command_and_the_next_prompt_works(code, tmp_path):
    script = [
        Answer(tool_calls=(Call("bash", {"command": WAIT}), Call("bash", {"command": "echo never"}))), "Still here.",
    ]  # fmt: skip
    async with working(code, tmp_path, script, **AUTO) as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Wait")
        pid = await pid_of(window, tmp_path / "project" / "pid")
        await window.eventually(
            chat.frame.locator(".terminal pre").all_inner_texts, lambda texts: texts == ["waiting\n"]
        )
        assert alive(pid)
        await chat.stop()
        await window.eventually(chat.notices, lambda texts: texts == ["Stopped."])

        async def lives() -> bool:
            return alive(pid)

        await window.eventually(lives, lambda lives: not lives)
        assert {status for _, status in await chat.cards()} <= {"failed", "cancelled"}
        assert await chat.frame.get_by_role("button", name="Stop", exact=True).count() == 0
        await window.eventually(window.status_bar, lambda items: "Agent" in items)
        await chat.send("Are you there?")
        await answered(window, chat, "Still here.")
        assert prompts(model) == ["Wait", "Are you there?"]


async def test_prompts_that_are_sent_meanwhile_follow_in_order_and_a_stop_gives_them_back(code, tmp_path):
    script = [
        Answer(tool_calls=(Call("bash", {"command": WAIT}),)), "First.", "Second.",
        Answer(text=("Third", "..."), hang_after=1),
    ]  # fmt: skip
    async with working(code, tmp_path, script, **AUTO) as (window, model):
        chat = Chat(window)
        queue = chat.frame.locator(".queue li .text")
        await chat.open()
        await chat.send("one")
        await pid_of(window, tmp_path / "project" / "pid")
        for prompt in ("two", "not this", "three"):
            await chat.send(prompt)
        await window.eventually(queue.all_inner_texts, lambda texts: texts == ["two", "not this", "three"])
        await chat.frame.get_by_role("button", name="Remove from the queue: not this").click()
        await window.eventually(queue.all_inner_texts, lambda texts: texts == ["two", "three"])
        (tmp_path / "project" / "go").touch()
        await answered(window, chat, "First.", "Second.", "Third")
        assert prompts(model) == ["one", "two", "three"]
        assert await chat.prompts() == ["one", "two", "three"]

        await chat.send("four")
        await chat.send("five")
        await window.eventually(queue.all_inner_texts, lambda texts: texts == ["four", "five"])
        await chat.stop()
        await window.eventually(chat.notices, lambda texts: texts == ["Stopped."])
        await window.eventually(chat.box.input_value, lambda text: text == "four\nfive")
        assert await queue.count() == 0
        assert len(model.requests) == 4


async def test_a_reload_brings_the_session_back_with_its_calls_and_its_context(code, tmp_path):
    script = [
        Answer(thought="Look.", tool_calls=(Call("read", {"path": "a.txt"}), Call("bash", {"command": "false"}))),
        "First **answer**.", "Second answer.",
    ]  # fmt: skip
    async with working(code, tmp_path, script, files={"a.txt": TEXT}, **AUTO) as (window, model):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.txt")
        await chat.open()
        await chat.send("Read it")
        await answered(window, chat, "First answer.")
        await window.eventually(window.gutter_marks, lambda count: count == 1)
        cards = await chat.cards()
        assert cards == [Card("Read a.txt", "completed"), Card("false", "failed")]
        await window.reload()
        await chat.open()
        await answered(window, chat, "First answer.")
        assert await chat.prompts() == ["Read it"]
        assert await chat.cards() == cards
        assert await window.eventually(lambda: window.rows("Tool Calls"), len) == [
            Row("Prompt 1", "2 calls", "", 1, True), Row("Read a.txt", "✓", "eye", 2, None),
            Row("false", "✗", "terminal", 2, None),
        ]  # fmt: skip
        await window.eventually(window.status_bar, lambda items: "Agent" in items)
        await window.open_file(tmp_path / "project" / "a.txt")
        assert (await window.decorations(), await window.gutter_marks(), await window.lenses()) == ([], 0, [])
        await chat.send("And now?")
        await answered(window, chat, "First answer.", "Second answer.")
        assert prompts(model) == ["Read it", "And now?"] and "alpha" in results(model)[0]


async def test_a_turn_that_a_reload_cuts_off_says_so_and_goes_on(code, tmp_path):
    script = [Answer(text=("I look at", " the file."), hang_after=1), "Here it is."]
    async with working(code, tmp_path, script) as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Look")
        await answered(window, chat, "I look at")
        await window.reload()
        await chat.open()
        await window.eventually(chat.notices, lambda texts: texts and texts[-1].startswith("Interrupted."))
        await chat.frame.get_by_role("button", name="Continue").click()
        await window.eventually(chat.answers, lambda texts: texts[-1] == "Here it is.")
        assert "Look" in prompts(model)[0] and prompts(model)[-1] == "Continue where you stopped."
        assert not await chat.frame.get_by_role("button", name="Continue").count()


async def test_sessions_are_listed_opened_and_deleted(code, tmp_path):
    async with working(code, tmp_path, ["Blue.", "Green.", "Blue it is."]) as (window, model):
        chat = Chat(window)

        async def sessions() -> list[str]:
            return [row.label for row in await window.rows("Sessions")]

        await chat.open()
        await chat.send("Name a colour")
        await answered(window, chat, "Blue.")
        await window.command("acp-coder: New Session")
        await answered(window, chat)
        await chat.send("Name another one")
        await answered(window, chat, "Green.")
        await window.expand_view("Sessions")
        await window.eventually(sessions, lambda labels: labels == ["Name another one", "Name a colour"])
        assert [row.icon for row in await window.rows("Sessions")] == ["comment-discussion", "comment"]

        await window.row("Sessions", "Name a colour").click()
        await answered(window, chat, "Blue.")
        await chat.send("Sure?")
        await answered(window, chat, "Blue.", "Blue it is.")
        assert prompts(model) == ["Name a colour", "Sure?"]

        await window.eventually(sessions, lambda labels: labels == ["Name a colour", "Name another one"])
        other = window.row("Sessions", "Name another one")
        await other.hover()
        await other.get_by_role("button", name="Delete Session").click()
        dialog = window.page.locator(".monaco-dialog-box")
        assert 'Delete the session "Name another one"?' in await dialog.inner_text()
        await dialog.get_by_role("button", name="Cancel").click()
        assert await sessions() == ["Name a colour", "Name another one"]
        await other.hover()
        await other.get_by_role("button", name="Delete Session").click()
        await dialog.get_by_role("button", name="Delete", exact=True).click()
        await window.eventually(sessions, lambda labels: labels == ["Name a colour"])


async def test_a_question_of_the_agent_is_answered_by_one_choice_or_in_words(code, tmp_path):
    asks = Call("ask_user", {"question": "Which database?", "choices": ["SQLite", "PostgreSQL"]})
    question = Answer(tool_calls=(asks,))
    script = [question, "Good.", question, "Fine.", question, "As you like."]
    async with working(code, tmp_path, script) as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Choose")
        form = chat.frame.get_by_role("form", name="The agent asks")
        await form.get_by_text("Which database?").wait_for()
        assert "1 question" in await window.status_bar()
        await form.get_by_role("button", name="PostgreSQL").click()
        await answered(window, chat, "Good.")
        assert "The user answered: PostgreSQL" in results(model)[-1]
        await chat.send("Say it in words")
        await form.get_by_role("textbox").fill("a file with a pool")
        await form.get_by_role("textbox").press("Enter")
        await answered(window, chat, "Good.", "Fine.")
        assert "The user answered: a file with a pool" in results(model)[-1]
        await chat.send("Choose again")
        await form.get_by_role("button", name="Decline").click()
        await answered(window, chat, "Good.", "Fine.", "As you like.")
        assert "PostgreSQL" not in results(model)[-1]


async def test_the_mode_that_is_chosen_in_the_chat_is_the_agents(code, tmp_path):
    script = [Answer(tool_calls=(Call("write", {"path": "new.txt", "content": "x"}),)), "I may not."]
    async with working(code, tmp_path, script) as (window, model):
        chat = Chat(window)
        mode = chat.picker("Mode")
        await chat.open()
        assert await mode.inner_text() == "Code"
        await mode.click()
        # Each with its description below.
        await window.eventually(window.quick_input, lambda shown: shown[1][::2] == ["Ask", "Architect", "Code", "Auto"])
        await window.choose("Ask")
        await window.eventually(mode.inner_text, lambda text: text == "Ask")
        await chat.send("Write a file")
        await answered(window, chat, "I may not.")
        offered = {tool["function"]["name"] for tool in model.requests[0].body["tools"]}
        assert "read" in offered and not offered & {"write", "edit", "bash"}
        assert not (tmp_path / "project" / "new.txt").exists()
        assert await chat.picker("Model").inner_text() == "fake-model"


async def test_files_the_selection_commands_and_pictures_go_with_a_prompt(code, tmp_path):
    files = {"src/alpha.py": "A = 1\n", "src/beta.py": "one\ntwo\nthree\nfour\n"}
    async with working(code, tmp_path, ["Read.", "Red."], files=files) as (window, model):
        chat = Chat(window)
        suggestions = chat.frame.locator(".suggestions [role=option] .label")
        await window.open_file(tmp_path / "project" / "src" / "beta.py")
        await window.go_to(2)
        await window.page.keyboard.press("Shift+ArrowDown")
        await window.page.keyboard.press("Shift+ArrowDown")
        await chat.open()
        await chat.box.click()
        await window.type("/")
        names = await window.eventually(suggestions.all_inner_texts, len)
        assert "/help" in names or "help" in names
        await window.page.keyboard.press("Escape")
        await chat.box.fill("")
        await window.type("Compare @alp")
        await window.eventually(suggestions.all_inner_texts, lambda labels: labels == ["alpha.py"])
        await window.page.keyboard.press("Enter")
        await window.type("with @sel")
        await window.eventually(suggestions.all_inner_texts, lambda labels: labels == ["selection"])
        await window.page.keyboard.press("Tab")
        assert await chat.frame.locator(".composer .chip .label").all_inner_texts() == ["src/alpha.py", "beta.py:2-3"]
        await window.page.keyboard.press("Enter")
        await answered(window, chat, "Read.")
        sent = prompts(model)[0]
        assert sent.startswith("Compare @src/alpha.py with @") and "two\nthree\n" in sent and "four" not in sent
        assert "alpha.py" in sent.partition("with @")[2]

        await chat.box.evaluate(PASTE % DOT)
        await window.eventually(chat.frame.locator(".composer .chip.image img").count, lambda count: count == 1)
        await chat.send("Which colour?")
        await answered(window, chat, "Read.", "Red.")
        parts = without_context(model.requests[-1].body["messages"])[-1]["content"]
        assert [part["image_url"]["url"] for part in parts if part["type"] == "image_url"] == [
            f"data:image/png;base64,{DOT}"
        ]
        assert await chat.frame.locator(".from-user .chip.image img").count() == 1
