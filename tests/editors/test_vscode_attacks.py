"""A hostile or careless agent in the real VS Code: nobody is deceived, nothing is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from .chat import Card, Chat
from .kit import VsCode
from .raw_agent import Failed, RawAgent, Request, Turn, raw_agent
from .window import Window

LINK = "[Details](command:workbench.action.toggleZenMode)"
TEXT = "alpha\nbeta\ngamma\n"


@asynccontextmanager
async def attacked(
    code: VsCode, tmp_path: Path, *, starts: bool = True, files: dict[str, bytes] | None = None, **settings: Any
) -> AsyncIterator[tuple[Window, Chat, RawAgent]]:
    """A window on `tmp_path/project`, which holds `files`, with an agent that says what the test says."""
    (project := tmp_path / "project").mkdir()
    for name, content in (files or {}).items():
        (project / name).write_bytes(content)
    async with raw_agent(starts=starts) as agent, code.window(project, {**agent.settings, **settings}) as window:
        yield window, Chat(window), agent


async def begun(chat: Chat, agent: RawAgent, text: str = "Begin") -> Turn:
    """The turn of a prompt that the user sends in the chat."""
    await chat.open()
    await chat.send(text)
    turn = await agent.prompted()
    assert turn.text == text
    return turn


async def hide_chat(window: Window) -> None:
    await window.open_container("Search")


def edit(path: Path, old: str, new: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "diff", "path": str(path), "oldText": old, "newText": new}]
    return {"toolCallId": "call_1", "title": "Edit", "kind": "edit", "status": "pending", "content": content, **more}


async def write(turn: Turn, path: Path, content: str) -> None:
    await (await turn.request("fs/write_text_file", path=str(path), content=content)).result()


async def read(turn: Turn, path: Path) -> str:
    return str((await (await turn.request("fs/read_text_file", path=str(path))).result())["content"])


async def test_the_words_of_a_stranger_are_no_links_in_notifications_and_long_ones_cannot_be_allowed(code, tmp_path):
    async with attacked(code, tmp_path) as (window, chat, agent):
        turn = await begun(chat, agent)
        await hide_chat(window)
        links = window.page.locator(".notifications-toasts .notification-list-item-message a")
        question = await turn.ask({"toolCallId": "a", "title": f"Read. {LINK}"})
        await window.eventually(window.notifications, lambda texts: any("Read. [Details]" in text for text in texts))
        assert await links.all_inner_texts() == ["Show", "Reject"]
        await window.click_notification("Reject", containing="Read.")
        assert await question.chosen() == "no"

        long = await turn.ask({"toolCallId": "b", "title": f"Run {'true; ' * 60} rm -rf /"})
        assert await window.notification_buttons("Run true;") == ["Show", "Reject"]
        await window.click_notification("Show", containing="Run true;")
        await chat.box.wait_for()
        await chat.permit("Refuse")
        assert await long.chosen() == "no"

        await hide_chat(window)
        agent.refusal = f"No more sessions. {LINK}"
        await window.command("acp-coder: New Session")
        await window.eventually(window.notifications, lambda texts: any("No more sessions." in text for text in texts))
        assert await links.count() == 0


async def test_allow_once_answers_only_what_the_person_sees(code, tmp_path):
    async with attacked(code, tmp_path) as (window, chat, agent):
        first = await begun(chat, agent)
        hidden = await first.ask({"toolCallId": "a", "title": "Of the first session"})
        await window.eventually(chat.options, lambda names: names == ["Allow", "Refuse"])
        await hide_chat(window)
        await window.command("acp-coder: New Session")
        # It shows the chat when it is done; that would close the palette.
        await chat.frame.locator("textarea:focus").wait_for()
        await window.eventually(chat.options, lambda names: names == [])
        await window.command("acp-coder: Allow Once")
        title, labels = await window.quick_input()
        assert "Of the first session" in title and [label.strip() for label in labels] == ["Allow", "Refuse"]
        assert not hidden.done.is_set()
        await window.page.keyboard.press("Escape")

        second = await begun(chat, agent, "Second")
        assert second.session != first.session
        seen = await second.ask({"toolCallId": "a", "title": "Of the second session"})
        await window.eventually(chat.options, lambda names: names == ["Allow", "Refuse"])
        await window.command("acp-coder: Allow Once")
        assert await seen.chosen() == "yes"
        assert not hidden.done.is_set()


async def test_the_diff_editor_shows_what_is_asked_about_and_reused_ids_are_calls_of_their_own(code, tmp_path):
    async with attacked(code, tmp_path, files={"a.txt": TEXT.encode()}) as (window, chat, agent):
        file = tmp_path / "project" / "a.txt"
        turn = await begun(chat, agent)
        await turn.update(sessionUpdate="tool_call", **edit(file, TEXT, TEXT.replace("beta", "GOOD"), title="Shown"))
        await window.eventually(chat.cards, lambda cards: cards == [Card("Shown", "pending")])
        await chat.frame.locator(".diff").first.click()
        await window.eventually(window.diff, lambda sides: sides[1] == TEXT.replace("beta", "GOOD"))
        question = await turn.ask(edit(file, TEXT, TEXT.replace("beta", "EVIL"), title="Asked"))
        await window.eventually(window.diff, lambda sides: sides == (TEXT, TEXT.replace("beta", "EVIL")))
        await chat.permit("Refuse")
        assert await question.chosen() == "no"
        await turn.end()
        await window.eventually(chat.cards, lambda cards: cards == [Card("Asked", "cancelled")])

        again = await begun(chat, agent, "Again")
        await again.update(sessionUpdate="tool_call", toolCallId="call_1", title="Other", status="in_progress")
        both = [Card("Asked", "cancelled"), Card("Other", "in_progress")]
        await window.eventually(chat.cards, lambda cards: cards == both)
        await again.end("Done.")
        await window.eventually(chat.cards, lambda cards: cards == [both[0], Card("Other", "cancelled")])
        await window.eventually(window.status_bar, lambda items: "Agent" in items)


async def test_the_diff_of_a_question_waits_until_the_person_has_typed(code, tmp_path):
    async with attacked(code, tmp_path, files={"a.txt": TEXT.encode(), "b.txt": b"one\n"}) as (window, chat, agent):
        project = tmp_path / "project"
        letters = "the quick brown fox jumps over the lazy dog and sleeps there"
        turn = await begun(chat, agent)
        await window.open_file(project / "a.txt")
        await window.go_to(1)
        questions: list[Request] = []
        await window.type(letters[:10])
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                questions.append(await turn.ask(edit(project / "b.txt", "one\n", "two\n")))

            tasks.start_soon(ask)
            await window.page.keyboard.type(letters[10:], delay=30)
        await window.tab("b.txt (proposed)").wait_for()
        await window.tab("a.txt").click()
        await window.eventually(window.editor_text, lambda text: text == letters + TEXT)
        await chat.permit("Refuse")
        assert await questions[0].chosen() == "no"


async def test_files_are_written_where_the_editor_shows_something_else_or_the_agent_is_told_why_not(code, tmp_path):
    files = {
        "gone.txt": b"same\n", "fixed.txt": b"fixed\n", "latin.txt": b"caf\xe9\n", "crlf.txt": b"one\r\ntwo\r\n",
        "mixed.txt": b"one\r\ntwo\r\n", "bom.txt": b"\xef\xbb\xbfone\n", "fresh.txt": b"old\n",
    }  # fmt: skip
    settings = {"files.readonlyInclude": {"**/fixed.txt": True}}
    async with attacked(code, tmp_path, files=files, **settings) as (window, chat, agent):
        project = tmp_path / "project"
        turn = await begun(chat, agent)

        gone = project / "gone.txt"
        await window.open_file(gone)
        gone.unlink()
        await write(turn, gone, "same\n")
        assert gone.read_bytes() == b"same\n"
        # The workbench is to know it, too. It hears nothing of a file that is made and removed within a moment.
        marked = window.tab("gone.txt").locator(".strikethrough, .deleted")
        for _ in range(6):
            gone.unlink()
            with anyio.move_on_after(8):
                while not await marked.count():
                    await anyio.sleep(0.05)
                break
            gone.write_bytes(b"same\n")
            await anyio.sleep(1)
        assert await marked.count() > 0
        await write(turn, gone, "same\n")
        assert gone.read_bytes() == b"same\n"
        assert not await window.is_dirty("gone.txt")

        with pytest.raises(Failed, match="read-only"):
            await write(turn, project / "fixed.txt", "other\n")
        assert (project / "fixed.txt").read_bytes() == b"fixed\n"

        latin = project / "latin.txt"
        with pytest.raises(Failed, match="encoding"):
            await read(turn, latin)
        with pytest.raises(Failed, match="encoding"):
            await write(turn, latin, "coffee\n")
        assert latin.read_bytes() == b"caf\xe9\n"

        crlf = project / "crlf.txt"
        await write(turn, crlf, "one\r\n2\r\n")
        assert crlf.read_bytes() == b"one\r\n2\r\n"
        await write(turn, crlf, "one\n2\n")
        assert crlf.read_bytes() == b"one\n2\n"
        mixed = project / "mixed.txt"
        await write(turn, mixed, "one\r\ntwo\nthree\r\n")
        assert mixed.read_bytes() == b"one\r\ntwo\nthree\r\n"
        assert await read(turn, mixed) == "one\r\ntwo\nthree\r\n"
        bom = project / "bom.txt"
        await write(turn, bom, "two\n")
        assert bom.read_bytes() == b"\xef\xbb\xbftwo\n"
        await write(turn, bom, "two\r\nthree\n")
        assert bom.read_bytes() == b"\xef\xbb\xbftwo\r\nthree\n"

        fresh = project / "fresh.txt"
        await window.open_file(fresh)
        fresh.write_bytes(b"new\n")
        assert await read(turn, fresh) == "new\n"


async def test_what_is_sent_before_the_agent_has_started_and_added_while_the_chat_is_hidden_arrives(code, tmp_path):
    async with attacked(code, tmp_path, starts=False, files={"a.txt": TEXT.encode()}) as (window, chat, agent):
        await window.open_file(tmp_path / "project" / "a.txt")
        await window.go_to(1)
        await window.page.keyboard.press("Shift+ArrowDown")
        await window.command("acp-coder: Add Selection to Chat")
        chips = chat.frame.locator(".composer .chips li")
        await window.eventually(chips.all_inner_texts, lambda texts: [text.strip() for text in texts] == ["a.txt:1"])
        await chat.send("Early")
        # What is answered after it was sent: the extension has it, and the agent has not started yet.
        await chat.box.press_sequentially("@")
        await chat.frame.locator(".suggestions [role=option]").first.wait_for()
        await chat.box.fill("")

        async def initialising() -> int:
            return agent.count("initialize")

        await window.eventually(initialising, bool)
        agent.may_start.set()
        turn = await agent.prompted()
        assert (turn.text, turn.session) == ("Early", "s1")
        await window.eventually(chat.prompts, lambda prompts: prompts == ["Early"])
        await turn.end("> " * 5000)
        await chat.frame.locator(".from-agent", has_text="> > >").wait_for()
        after = await begun(chat, agent, "And now?")
        assert after.session == "s1"
        await after.end("Still here.")
        await window.eventually(chat.answers, lambda answers: answers[-1:] == ["Still here."])
        assert agent.count("session/new") == 1

        await hide_chat(window)
        await window.go_to(2)
        await window.page.keyboard.press("Shift+ArrowDown")
        await window.command("acp-coder: Add Selection to Chat")
        await window.eventually(chips.all_inner_texts, lambda texts: [text.strip() for text in texts] == ["a.txt:2"])


async def test_a_thousand_tool_calls_at_once_end_with_all_views_at_rest(code, tmp_path):
    count = 1000
    text = "".join(f"line {number}\n" for number in range(1, count + 1))
    shown = {"acpCoder.inlineStatus.codeLens": True}
    async with attacked(code, tmp_path, files={"a.txt": text.encode()}, **shown) as (window, chat, agent):
        file = tmp_path / "project" / "a.txt"
        await window.open_file(file)
        turn = await begun(chat, agent)

        def updates(update: str, **more: Any) -> list[dict[str, Any]]:
            # The newest stands where only old ones do, at the top of what is in view.
            places = [{"locations": [{"path": str(file), "line": line}]} for line in [*range(1, count), 3]]
            return [
                {
                    "method": "session/update",
                    "params": {
                        "sessionId": turn.session,
                        "update": {"sessionUpdate": update, "toolCallId": f"c{number}", **more, **place},
                    },
                }
                for number, place in enumerate(places)
            ]

        await agent.say(*updates("tool_call", title="Read", kind="read", status="in_progress"))
        await window.eventually(window.status_bar, lambda items: f"{count} tools" in items)
        await agent.say(*updates("tool_call_update", status="completed"))
        await turn.end("All read.")
        await window.eventually(window.status_bar, lambda items: "Agent" in items)
        await window.eventually(chat.answers, lambda answers: answers == ["All read."])
        rows = await window.eventually(
            lambda: window.rows("Tool Calls"),
            lambda rows: len(rows) > 1 and all("✓" in row.description for row in rows[1:]),
        )
        assert (rows[0].label, rows[0].description) == ("Prompt 1", f"{count} calls")

        async def lenses() -> list[str]:
            return [text for text in await window.lenses() if text]

        # Of a file with so many only the newest have lenses.
        await window.eventually(lenses, lambda texts: texts == ["Read"])
        await (await begun(chat, agent, "And now?")).end("At rest.")
        await window.eventually(chat.answers, lambda answers: answers[-1:] == ["At rest."])
