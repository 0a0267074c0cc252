"""The extension's agent in the real VS Code: found or not, exited, replaced; folders, problems, wire traffic."""

import json
import os
import signal
import sys
from pathlib import Path

from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.agent.kit import without_context
from tests.e2e.kit import COMMAND, alive

from .chat import Card, Chat
from .kit import agent_settings, working
from .window import Window

OTHER_AGENT = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tell(session, **update):
    say(method="session/update", params={"sessionId": session, "update": update})

mode = "slow"
for line in sys.stdin:
    message = json.loads(line)
    method, params, answer = message.get("method"), message.get("params", {}), {}
    if method == "initialize":
        answer = {"protocolVersion": 1, "agentInfo": {"name": "other", "title": "Another One", "version": "1"}}
    elif method == "session/new":
        modes = [{"id": "slow", "name": "Slow"}, {"id": "fast", "name": "Fast"}]
        answer = {"sessionId": "s", "modes": {"currentModeId": mode, "availableModes": modes}}
    elif method == "session/set_mode":
        mode = params["modeId"]
    elif method == "session/prompt":
        place = {"path": sys.argv[1], "line": 2}
        tell("s", sessionUpdate="tool_call", toolCallId="1", title="Look", kind="search", locations=[place])
        tell("s", sessionUpdate="tool_call_update", toolCallId="1", status="completed")
        words = params["prompt"][0]["text"]
        for word in (mode, ": ", words):
            tell("s", sessionUpdate="agent_message_chunk", content={"type": "text", "text": word})
        answer = {"stopReason": "end_turn"}
    if "id" in message:
        say(id=message["id"], result=answer)
"""


async def answered(window: Window, chat: Chat, *texts: str) -> None:
    await window.eventually(chat.answers, lambda answers: answers == list(texts))


async def problem(window: Window, chat: Chat, words: str) -> list[str]:
    """Waits for a problem whose text has these words; returns the labels of its buttons."""
    shown = chat.frame.locator(".problem")
    await window.eventually(shown.all_inner_texts, lambda texts: any(words in text for text in texts))
    return await shown.locator(".actions button").all_inner_texts()


def agents_of(home: Path) -> list[int]:
    """The processes of agents that were started with this home."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            if COMMAND.encode() in command and f"HOME={home}".encode() in (folder / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def test_an_agent_that_is_not_there_is_told_in_words_and_found_once_the_setting_is_right(code, tmp_path):
    async with working(code, tmp_path, ["Here."], settings={"acpCoder.command": "no-such-agent"}) as (window, _):
        chat = Chat(window)
        await window.open_container("acp-coder")
        assert await problem(window, chat, "The agent's program was not found.") == ["Open settings", "Start again"]
        assert "no-such-agent" in await chat.frame.locator(".problem").inner_text()
        await window.eventually(window.status_bar, lambda items: "Agent" in items)
        await chat.frame.get_by_role("button", name="Open settings").click()
        field = window.page.locator(".settings-editor .setting-item-contents", has_text="Acp Coder: Command")
        await field.first.wait_for()
        await window.page.keyboard.press("Escape")
        await window.change_settings({"acpCoder.command": COMMAND})
        # A setting that is corrected starts the agent by itself.
        await chat.frame.get_by_role("combobox", name="Model", exact=True).wait_for()
        assert await chat.frame.locator(".problem").count() == 0
        await chat.send("Are you there?")
        await answered(window, chat, "Here.")


async def test_a_program_that_is_no_agent_is_told_with_what_it_wrote(code, tmp_path):
    script = "import sys; sys.exit('no configuration found')"
    settings = {"acpCoder.command": sys.executable, "acpCoder.arguments": ["-c", script]}
    async with working(code, tmp_path, settings=settings) as (window, _):
        chat = Chat(window)
        await window.open_container("acp-coder")
        buttons = await problem(window, chat, "exited with status 1 before it answered")
        assert buttons == ["Start again", "Open settings", "Show log"]
        assert "no configuration found" in await chat.frame.locator(".problem").inner_text()


async def test_an_agent_that_is_killed_is_started_again_and_the_session_goes_on(code, tmp_path):
    command = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done"
    script = ["One.", Answer(tool_calls=(Call("bash", {"command": command}),)), "Three."]
    async with working(code, tmp_path, script, ACP_CODER_MODE="auto") as (window, model):
        chat = Chat(window)
        await chat.open()
        await chat.send("Count")
        await answered(window, chat, "One.")
        await chat.send("Wait")
        await model.wait_for_request(2)
        pid = tmp_path / "project" / "pid"

        async def written() -> bool:
            return pid.exists() and pid.read_text().endswith("\n")

        await window.eventually(written, bool)
        (agent,) = agents_of(tmp_path)
        os.kill(agent, signal.SIGKILL)
        assert await problem(window, chat, "The agent exited.") == ["Start again", "Show log"]
        await window.eventually(chat.cards, lambda cards: cards == [Card(command, "failed")])

        async def runs() -> bool:
            return alive(int(pid.read_text()))

        await window.eventually(runs, lambda running: not running)
        await chat.frame.get_by_role("button", name="Start again").click()
        await window.eventually(chat.frame.locator(".problem").count, lambda count: count == 0)
        await window.eventually(chat.prompts, lambda prompts: prompts == ["Count", "Wait"])
        assert await chat.frame.get_by_role("button", name="Stop", exact=True).count() == 0
        await chat.send("Go on")
        await answered(window, chat, "One.", "Three.")
        messages = without_context(model.requests[-1].body["messages"])
        assert [message["content"] for message in messages if message["role"] == "user"] == ["Count", "Wait", "Go on"]


async def test_any_other_agent_works_by_the_setting(code, tmp_path):
    agent, file = tmp_path / "other.py", tmp_path / "project" / "a.txt"
    agent.write_text(OTHER_AGENT, encoding="utf-8")
    settings = {"acpCoder.command": sys.executable, "acpCoder.arguments": [str(agent), str(file)]}
    async with working(code, tmp_path, files={"a.txt": "one\ntwo\n"}, settings=settings) as (window, _):
        chat = Chat(window)
        await window.open_file(file)
        await chat.open()
        await window.eventually(
            lambda: chat.box.get_attribute("aria-label"), lambda label: label == "Message to Another One"
        )
        await chat.choose("Mode", "Fast")
        await window.eventually(chat.picker("Mode").inner_text, lambda text: text == "Fast")
        await chat.send("Hello")
        await answered(window, chat, "fast: Hello")
        await window.eventually(chat.cards, lambda cards: cards == [Card("Look", "completed")])
        await window.eventually(window.gutter_marks, lambda count: count == 1)
        await window.expand_view("Sessions")
        assert await window.rows("Sessions") == []
        await window.reload()
        await chat.open()
        await chat.send("Again")
        await answered(window, chat, "slow: Again")


async def test_the_other_folders_of_a_workspace_are_the_agents_too(code, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "b.txt").write_text("bee\n")
    workspace = tmp_path / "both.code-workspace"
    workspace.write_text(json.dumps({"folders": [{"path": folder.name} for folder in folders]}), encoding="utf-8")
    script = [Answer(tool_calls=(Call("read", {"path": str(folders[1] / "b.txt")}),)), "Read."]
    settings = {"acpCoder.trace.wire": True}
    async with (
        FakeModel(script) as model, code.window(workspace, {**agent_settings(tmp_path, model), **settings}) as window,
    ):  # fmt: skip
        chat = Chat(window)
        await chat.open()

        async def has_folders() -> bool:
            # The browser's VS Code may open a workspace before it can read its file, and then has no folders at all.
            if await chat.frame.locator(".problem", has_text="Open a folder first.").count():
                await window.reload()
                await chat.open()
            return await chat.frame.get_by_role("combobox", name="Model", exact=True).count() == 1

        await window.eventually(has_folders, bool)
        await chat.send("Read the other")
        await answered(window, chat, "Read.")
        assert await chat.cards() == [Card(f"Read {folders[1]}/b.txt", "completed")]
        system = str(model.requests[0].body["messages"][1]["content"])
        assert str(folders[0]) in system and str(folders[1]) in system

        # The same on the wire, which is traced.
        await window.command("acp-coder: Show Wire Traffic")
        panel = window.page.locator(".part.panel .view-lines")
        await window.eventually(panel.inner_text, lambda text: "←" in text and '"stopReason":"end_turn"' in text)

        async def traced() -> str:
            return "".join(file.read_text() for file in code.root.glob("user/logs/**/*wire.log"))

        await window.eventually(traced, lambda text: f'"additionalDirectories":["{folders[1]}"]' in text)


async def test_the_problems_of_the_editors_language_servers_reach_the_model(code, tmp_path):
    files = {"settings.json": '{\n  "a": 1,\n  "a": 2 3\n}\n'}
    async with working(code, tmp_path, ["I see.", "I still see."], files=files) as (window, model):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "settings.json")
        squiggles = window.page.locator(".editor-group-container.active .squiggly-error, .squiggly-warning")
        await window.eventually(squiggles.count, lambda count: count > 0)
        await chat.open()
        await chat.send("What is wrong? @problems")
        await answered(window, chat, "I see.")
        sent = str(model.requests[0].body["messages"][-1]["content"])
        assert "settings.json:3:" in sent and "Duplicate object key" in sent

        await chat.box.click()
        await window.type("And @prob")
        suggestions = chat.frame.locator(".suggestions [role=option] .label")
        await window.eventually(suggestions.all_inner_texts, lambda labels: labels == ["problems"])
        await window.page.keyboard.press("Enter")
        await window.page.keyboard.press("Enter")
        await answered(window, chat, "I see.", "I still see.")
        assert "settings.json:3:" in str(model.requests[1].body["messages"][-1]["content"])


async def test_the_editors_typescript_server_finds_and_renames_for_the_agent(code, tmp_path):
    files = {
        "a.ts": "export function old(): number {\n  return 1;\n}\n", "b.ts": 'import { old } from "./a";\nold();\n',
        "tsconfig.json": '{ "compilerOptions": { "strict": true } }\n',
    }  # fmt: skip
    calls = (
        Call("references", {"path": "a.ts", "symbol": "old"}),
        Call("rename", {"path": "a.ts", "symbol": "old", "new_name": "fresh"}),
    )
    script = [*(Answer(tool_calls=(call,)) for call in calls), "Renamed."]
    async with working(code, tmp_path, script, files=files, ACP_CODER_MODE="auto") as (window, model):
        chat = Chat(window)
        await window.open_file(tmp_path / "project" / "a.ts")
        await chat.open()
        await chat.send("Rename old")
        await answered(window, chat, "Renamed.")
    results = [item["content"] for item in model.requests[-1].body["messages"] if item["role"] == "tool"]
    assert "in 2 files" in results[0], results
    assert "`old` is now `fresh` in 2 files" in results[1], results
    assert (tmp_path / "project" / "b.ts").read_text() == 'import { fresh } from "./a";\nfresh();\n'


async def test_the_first_start_takes_a_provider_its_key_and_a_model_and_can_be_closed(code, tmp_path):
    """The server's address is this machine's, but not one that is known to need no key."""
    async with FakeModel(["Hello."], models=["claude-a", "claude-b"]) as model:
        variables = {
            "HOME": str(tmp_path), "PATH": os.environ["PATH"], "ACP_CODER_KEYRING": "0",
            "ANTHROPIC_BASE_URL": model.base_url.replace("127.0.0.1", "0.0.0.0"),
        }  # fmt: skip
        async with working(code, tmp_path, settings={"acpCoder.environment": variables}) as (window, _):
            chat = Chat(window)
            await chat.open()
            card = chat.frame.get_by_role("form", name="First start")
            await card.get_by_label("Provider").select_option("anthropic")
            key = card.get_by_label("API key")
            assert await key.get_attribute("type") == "password"
            assert await card.get_by_role("button", name="Next").is_disabled()
            await chat.frame.get_by_role("button", name="Close", exact=True).click()
            await card.wait_for(state="hidden")

            await window.command("acp-coder: Log In…")
            _, labels = await window.quick_input()
            assert {"anthropic", "openai"} <= set(labels)
            await window.page.keyboard.press("Escape")
            await chat.send("Hello")
            await card.get_by_label("Provider").select_option("anthropic")
            await key.fill("sk-of-nobody")
            await key.press("Enter")
            chosen = card.get_by_role("combobox", name="Model")
            await window.eventually(chosen.inner_text, lambda text: text == "claude-a")
            await chosen.click()
            await window.eventually(window.quick_input, lambda shown: {"claude-a", "claude-b"} <= set(shown[1]))
            await window.answer("-b")
            await window.eventually(chosen.inner_text, lambda text: text == "claude-b")
            await card.get_by_role("button", name="Start").click()
            await card.wait_for(state="hidden")
            assert not await chat.frame.get_by_role("alert").filter(has_text="login").count()
            await window.eventually(chat.box.input_value, lambda text: text == "Hello")
            await chat.box.press("Enter")
            await answered(window, chat, "Hello.")
            assert model.requests[-1].body["model"] == "claude-b"
        stored = tmp_path / ".config" / "acp-coder"
        assert "sk-of-nobody" in (stored / "credentials.json").read_text()
        assert 'provider = "anthropic"\nmodel = "anthropic/claude-b"' in (stored / "config.toml").read_text()
