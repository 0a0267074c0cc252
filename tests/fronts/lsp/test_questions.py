"""Permissions and choices by message requests: the safe answer first, one at a time, nothing granted by accident."""

import sys
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcMethodNotFound

from acp_agent.fronts.lsp_server.questions import INSTEAD, question_text
from acp_agent.fronts.lsp_server.status import Call
from acp_agent.schema.acp import Content, Diff, TextContent
from tests.editors.raw_agent import Turn
from tests.fronts.lsp.kit import begun, lsp, raw_lsp

OPTIONS = [
    {"optionId": "always", "name": "Allow always", "kind": "allow_always"},
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "never", "name": "Never", "kind": "reject_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


async def ask(turn: Turn, title: str = "Run make", number: int = 1, **call: Any) -> Any:
    return await turn.request(
        "session/request_permission", toolCall={"toolCallId": f"t{number}", "title": title, **call}, options=OPTIONS
    )


@pytest.mark.parametrize("command", [
    "echo " + "a" * 300 + "; rm -rf ~", "echo " + "a" * 900 + "; rm -rf ~", "echo hi # harmless\nrm -rf ~",
    "rm -rf 'a  b'", "echo hi" + " " * 300 + "; rm -rf ~", "true\n" * 50 + "rm -rf ~",
])  # fmt: skip
def test_a_question_shows_what_runs_or_says_that_there_is_more(command: str):
    asked = question_text(Call("1", command, raw_input={"command": command}))
    whole = command in asked.text.replace("\n$ ", "\n") or command in asked.text.replace("\n", "").partition("$ ")[2]
    assert whole or "more lines, to read before you allow it: Show" in asked.text
    assert whole == (asked.end == "")
    assert len(asked.text) < 2_400 and len(asked.end) < 2_400 and "rm -rf" in (asked.end or asked.text).splitlines()[-1]


def test_a_question_about_a_long_command_keeps_its_risk_and_asks_for_its_end_to_be_read():
    command = "\n".join(f"echo {number}" for number in range(29)) + "\nrm precious"
    why = "Asked because it deletes files.\n\nRisk: high (it deletes)"
    content = [Content(content=TextContent(text=text)) for text in (f"```\n{command}\n```", why)]
    asked = question_text(Call("1", command, content=content, raw_input={"command": command}), explained=True)
    for text in (asked.text, asked.end):
        assert text.splitlines()[-2:] == ["Asked because it deletes files.", "Risk: high (it deletes)"]
        assert len(text.splitlines()) <= 12
    assert "$ echo 0" in asked.text and "rm precious" not in asked.text.partition("\n")[2]
    assert "rm precious" in asked.end.splitlines()[-3]


@pytest.mark.parametrize("block", ["```\nmake\n```", "```sh\nmake\n```\n"])
def test_a_question_about_a_command_has_no_empty_fence(block: str):
    content = [Content(content=TextContent(text=block)), Content(content=TextContent(text="Asked: it is new."))]
    assert question_text(Call("1", "make", content=content)).text == "make\nAsked: it is new."
    assert question_text(Call("1", "Run it", content=content)).text.splitlines()[2] == "make"


def test_a_question_shows_all_of_a_long_line_and_a_command_as_a_shell_takes_it():
    diff = Diff(path="/p/a.py", old_text="x\n", new_text="a" * 200 + "; evil()\n")
    assert question_text(Call("1", "Edit a.py", content=[diff])).text.endswith("a; evil()")
    text = question_text(Call("1", "Run it", raw_input={"command": ["sh", "-c", "rm -rf ~"]})).text
    assert text == "Run it\n$ sh -c 'rm -rf ~'"


async def test_the_safe_answer_stands_first_and_only_what_is_chosen_counts(tmp_path: Path, name: str):
    async with raw_lsp(tmp_path, name=name) as (editor, agent):
        turn = await begun(editor, agent)
        for number, action in enumerate(["Reject", "Allow once", "Allow always", "Never"], 1):
            request = await ask(turn, number=number)
            question = await editor.question(number)
            assert question.actions == ["Reject", "Allow once", "Allow always", "Never", "Show"]
            question.answer(action)
            assert await request.chosen() == {"Reject": "no", "Allow once": "once", "Allow always": "always"}.get(
                action, "never"
            )
        request = await ask(turn, number=5)
        (await editor.question(5)).answer(None)
        assert await request.chosen() == "no"


async def test_a_question_says_what_it_is_about_and_show_opens_the_whole(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent)
        new = "".join(f"line {number}\n" for number in range(40))
        diff = {"type": "diff", "path": "/p/a.py", "oldText": "old\n", "newText": new}
        request = await ask(turn, "Edit \u202ea.py\x1b[2J\nnow", content=[diff], rawInput={"command": "make all"})
        question = await editor.question()
        lines = question.message.split("\n")
        assert lines[0] == "Edit \\u202ea.py\\x1b[2J now" and "-old" in lines and "+line 3" in lines
        assert len(lines) == 12 and lines[-1].endswith("more lines, to read before you allow it: Show")
        assert question.actions == ["Reject", "Never", "Show"]
        question.answer("Show")
        await editor.until(lambda: editor.shown_documents)
        uri = editor.shown_documents[0].uri
        await editor.until(lambda: any("acpCoder.answer" in words for words in editor.said()))
        assert len(editor.questions) == 1  # It is not before what is to be read.
        titles = [
            action["title"]
            for action in await editor.actions(uri, types.Range(types.Position(0, 0), types.Position(0, 0)))
        ]
        assert titles[0].startswith("Agent: answer: Edit \\u202ea.py")
        await editor.execute("acpCoder.answer")
        again = await editor.question(2)
        assert again.message.endswith("+line 38\n+line 39")
        assert again.actions == ["Reject", "Allow once", "Allow always", "Never", "Show"]
        (shown,) = editor.shown_documents
        assert shown.take_focus and shown.uri.endswith("-acp-coder.md")
        text = Path(shown.uri.removeprefix("file://")).read_text()
        assert "+line 39" in text and "make all" in text and "\x1b" not in text and "\u202e" not in text
        again.answer("Allow once")
        assert await request.chosen() == "once"


@pytest.mark.parametrize("opened", [False, True], ids=["in a file", "in an open buffer"])
async def test_a_rejection_says_what_to_do_instead_in_the_transcript(tmp_path: Path, opened: bool):
    options = [*OPTIONS[:3], {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"}]
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent)
        await turn.text_chunk("I run it.\n")
        call = {"toolCallId": "t1", "title": "Run make"}
        if opened:
            await editor.execute("acpCoder.transcript", {"wait": True})
            editor.open(Path(editor.shown_documents[0].uri.removeprefix("file://")))
        request = await turn.request("session/request_permission", toolCall=call, options=options)
        question = await editor.question()
        assert question.actions == ["Reject", INSTEAD, "Allow once", "Allow always", "Never", "Show"]
        question.answer(INSTEAD)
        await editor.until(lambda: any("(acpCoder.send)" in words for words in editor.said()))
        uri = editor.shown_documents[-1].uri
        buffer = editor.buffers[uri] if opened else editor.open(Path(uri.removeprefix("file://")))
        assert buffer.text.endswith("\n\n## You\n\nInstead: ")
        await editor.execute("acpCoder.answer")  # Asked again, with all of its answers.
        again = await editor.question(2)
        assert again.actions == question.actions
        again.answer("Show")
        await editor.until(lambda: sum("(acpCoder.answer)" in words for words in editor.said()) == 2)
        editor.type(buffer, buffer.text.rindex("Instead:"), len(buffer.text), "Instead: use ninja")
        await editor.execute("acpCoder.send", uri)
        outcome = (await request.result())["outcome"]
        assert outcome == {"outcome": "selected", "optionId": "reject_once", "_meta": {"reason": "use ninja"}}
        await turn.text_chunk("Ninja it is.")
        await turn.end()
        await editor.turns_over()
        await editor.until(lambda: "Ninja it is." in buffer.text)
        said = "## You\n\nInstead: use ninja\n\n## Agent\n\n**Answered:** rejected: use ninja\n\nNinja it is."
        assert said in editor.transcript() and said in buffer.text and buffer.text.count("use ninja") == 2
        assert len([each for each in agent.received if each["method"] == "session/prompt"]) == 1


async def test_a_question_that_takes_no_reason_is_not_answered_by_what_is_sent(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        request = await ask(await begun(editor, agent))
        (await editor.question()).answer("Show")
        await editor.until(lambda: any("(acpCoder.answer)" in words for words in editor.said()))
        with pytest.raises(JsonRpcException, match="no question is pending that takes words"):
            await editor.execute("acpCoder.answer", {"text": "use ninja", "wait": True})
        await editor.execute("acpCoder.answer")
        (await editor.question(2)).answer("Reject")
        assert await request.chosen() == "no"


async def test_questions_come_one_at_a_time(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent)
        first, second = await ask(turn, "First", 1), await ask(turn, "Second", 2)
        question = await editor.question()
        assert question.message == "First"
        terminal = await turn.request("terminal/create", command="true")
        await terminal.result()  # What was asked before that has been taken up.
        assert len(editor.questions) == 1
        question.answer("Allow once")
        assert await first.chosen() == "once"
        (await editor.question(2)).answer("Never")
        assert await second.chosen() == "never"


async def test_options_of_one_name_are_told_apart(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent)
        options = [
            {"optionId": "a", "name": "Yes", "kind": "allow_once"},
            {"optionId": "b", "name": "Yes", "kind": "allow_once"},
            {"optionId": "c", "name": "Show", "kind": "allow_once"},
        ]
        for number, (action, chosen) in enumerate([("Yes (2)", "b"), ("Show (2)", "c"), (None, "cancelled")], 1):
            call = {"toolCallId": "t1", "title": "Which?"}
            request = await turn.request("session/request_permission", toolCall=call, options=options)
            question = await editor.question(number)
            assert question.actions == ["Yes", "Yes (2)", "Show (2)", "Show"]
            question.answer(action)
            assert await request.chosen() == chosen


async def test_an_editor_that_cannot_ask_rejects_and_tells(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        del editor.protocol.fm.features[types.WINDOW_SHOW_MESSAGE_REQUEST]
        editor.report_server_error = lambda error, source: None  # type: ignore[method-assign]
        assert await (await ask(await begun(editor, agent))).chosen() == "no"
        await editor.until(editor.said)
        assert editor.said()[0].startswith("Rejected, since this editor cannot ask")
        assert JsonRpcMethodNotFound.MESSAGE in editor.said()[0]


async def test_forms_of_choices_are_asked_and_others_declined(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent)
        (told,) = [m["params"]["clientCapabilities"] for m in agent.received if m["method"] == "initialize"]
        assert told["elicitation"] == {"form": {}}

        async def form(properties: dict[str, Any], *required: str) -> Any:
            schema = {"type": "object", "properties": properties, "required": list(required)}
            return await turn.request("elicitation/create", mode="form", message="Which?", requestedSchema=schema)

        fields = {
            "colour": {"type": "string", "enum": ["red", "green"]}, "more": {"type": "string"},
            "sure": {"type": "boolean", "title": "Sure?"},
            "sizes": {"type": "array", "items": {"anyOf": [{"const": "s", "title": "Small"}]}},
        }  # fmt: skip
        request = await form(fields, "colour")
        for number, (actions, action) in enumerate(
            [(["red", "green"], "green"), (["No", "Yes"], "Yes"), (["Small"], "Small")], 1
        ):
            question = await editor.question(number)
            assert question.actions == ["Do not answer", *actions, "Show"]
            question.answer(action)
        assert await request.result() == {
            "action": "accept", "content": {"colour": "green", "sure": True, "sizes": ["s"]},
        }  # fmt: skip
        request = await form({"colour": fields["colour"]})
        (await editor.question(4)).answer("Do not answer")
        assert await request.result() == {"action": "decline"}
        assert await (await form({"name": {"type": "string"}}, "name")).result() == {"action": "decline"}
        assert "cannot be entered here: Which?" in editor.said()[-1]


async def test_all_that_is_asked_for_can_be_seen_before_it_is_answered(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent)
        text = "".join(f"line {number}\n" for number in range(1_000))
        await ask(turn, "Write a.py", content=[{"type": "diff", "path": "/p/a.py", "newText": text}])
        assert "more lines, to read before you allow it: Show" in (await editor.question()).message
        assert "+line 500\n" in editor.transcript()


ASKER = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    if method == "initialize":
        capabilities = {"loadSession": True, "sessionCapabilities": {"list": {}}}
        result = {"protocolVersion": 1, "agentCapabilities": capabilities}
    elif method == "session/list":
        result = {"sessions": [{"sessionId": "old", "cwd": message["params"]["cwd"], "title": "An old one"}]}
    elif method == "session/new":
        result = {"sessionId": "new"}
    elif method == "session/prompt":
        prompt = message["id"]
        options = [{"optionId": "no", "name": "Reject", "kind": "reject_once"}]
        params = {"sessionId": "new", "toolCall": {"toolCallId": "t", "title": "x"}, "options": options}
        say(id="ask", method="session/request_permission", params=params)
        continue
    elif message.get("id") == "ask":  # The turn ends when its question is answered.
        say(id=prompt, result={"stopReason": message["result"]["outcome"]["outcome"]})
        continue
    if "id" in message:
        say(id=message["id"], result=result)
"""


async def test_another_session_takes_the_place_of_one_that_asks(tmp_path: Path):
    async with lsp(tmp_path, command=[sys.executable, "-c", ASKER]) as (editor, _):
        await editor.execute("acpCoder.prompt", "go")
        question = await editor.question()
        await editor.execute("acpCoder.sessions", {"id": "old", "wait": True})
        assert question.withdrawn
        assert not [words for words in editor.said() if "did not stop" in words]
