"""Calls that models write as text, in the forms that local models use, and texts that only look like them."""

import json
import random
from pathlib import Path

import pytest

from acp_agent.llm.adapters import AdaptedProvider
from acp_agent.llm.base import ModelSettings, TextDelta, ToolDefinition, ToolUse
from acp_agent.llm.lacks.fenced import Fenced
from acp_agent.llm.lacks.written_calls import WrittenCalls
from acp_agent.testing.fake_model import Answer, Call
from acp_agent.tools.kit.registry import builtin_registry

from .kit import USER, connected

STRING = {"type": "string"}
TOOLS = [
    ToolDefinition("bash", "Runs a command.", {
        "type": "object", "properties": {"command": STRING, "timeout": {"type": "number"}}, "required": ["command"],
    }),
    ToolDefinition("read", "Reads.", {"type": "object", "properties": {"path": STRING}, "required": ["path"]}),
    ToolDefinition("write", "Writes.", {
        "type": "object", "properties": {"path": STRING, "content": STRING}, "required": ["path", "content"],
    }),
]  # fmt: skip
LS = ("bash", {"command": "ls"})

CALLS = {
    # Qwen2.5-Coder 1.5B, llama.cpp, asked to run a test.
    "fenced json, then an invented result": (
        'First run the test:\n\n```json\n{\n  "name": "bash",\n  "arguments": {\n    "command": "ls"\n  }\n}\n'
        "```\n\nThe output is:\n```\nOK\n```\n", "First run the test:\n\n", [LS],
    ),
    "in place of a result": (
        'I used `bash`. The result is:\n\n```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n',
        "I used `bash`. The result is:\n\n", [LS],
    ),
    "in the tag of results": (
        '<tool_response>\n    {"name": "bash", "arguments": {"command": "ls"}}\n</tool_response>', "", [LS],
    ),
    "bare": ('{"name": "bash", "arguments": {"command": "ls"}}', "", [LS]),
    "bare after text": (
        'Let me look.\n{"name": "bash", "arguments": {"command": "ls"}}\nDone!', "Let me look.\n", [LS],
    ),
    "parameters": ('{"name": "read", "parameters": {"path": "a"}}', "", [("read", {"path": "a"})]),
    "arguments as text": ('{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}', "", [LS]),
    "OpenAI's form": (
        '{"id": "1", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}', "", [LS],
    ),
    "a list": (
        '[{"name": "bash", "arguments": {"command": "ls"}}, {"name": "read", "arguments": {"path": "b"}}]', "",
        [LS, ("read", {"path": "b"})],
    ),
    "a fence without a tag": ('```\n{"name": "bash", "arguments": {"command": "ls"}}\n```', "", [LS]),
    "Hermes": ('<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>\nx', "", [LS]),
    "Hermes, never closed": ('<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}', "", [LS]),
    "Qwen3-Coder": (
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n<parameter=timeout>\n5\n</parameter>\n"
        "</function>\n</tool_call>", "", [("bash", {"command": "ls", "timeout": 5})],
    ),
    "function with JSON": ('<function=bash>{"command": "ls"}</function>', "", [LS]),
    "Mistral": ('[TOOL_CALLS][{"name": "bash", "arguments": {"command": "ls"}}]', "", [LS]),
    "Mistral, newer": ('[TOOL_CALLS]bash[ARGS]{"command": "ls"}', "", [LS]), "Python": ('bash(command="ls")', "", [LS]),
    "Python in Gemma's block": ('Sure.\n```tool_code\nbash(command="ls")\n```\nIt says: OK', "Sure.\n", [LS]),
    "Python with the one argument": ("read('a')\n", "", [("read", {"path": "a"})]),
    "line breaks within text": (
        '{"name": "write", "arguments": {"path": "a", "content": "one\n```\ntwo }\n"}}', "",
        [("write", {"path": "a", "content": "one\n```\ntwo }\n"})],
    ),
}  # fmt: skip

FRIENDS = {
    "an example": 'Called like this, for example:\n```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n',
    "another tool beside words": 'So:\n```json\n{"name": "deploy", "arguments": {"to": "prod"}}\n```\n',
    "another tool before words": '```json\n{"name": "deploy", "arguments": {"to": "prod"}}\n```\nThat deploys.\n',
    "more than a call": '{"name": "deploy", "arguments": {"to": "prod"}, "version": 1}\n',
    "two blocks": '```json\n{"name": "x", "arguments": {}}\n```\n\n```json\n{"name": "y", "arguments": {}}\n```\n',
    "no arguments": '{"name": "deploy", "arguments": "none"}\n', "a person": '{"name": "Ada", "age": 36}\n',
    "package.json": '```json\n{"name": "bash", "version": "1.0.0", "arguments": {"command": "ls"}}\n```\n',
    "missing argument": 'It is\n{"name": "write", "arguments": {"path": "a"}}\n',
    "unknown argument": 'It is\n{"name": "bash", "arguments": {"cmd": "ls"}}\n',
    "wrong type": 'It is\n{"name": "bash", "arguments": {"command": ["ls"]}}\n',
    "data": '{"users": [{"name": "bash", "arguments": 3}]}\nand so on\n',
    "a script": "```python\nfor line in read(path):\n    print(line)\n```\nDone.\n",
    "a script in a shell": 'Run:\n```bash\necho \'{"name": "bash", "arguments": {"command": "ls"}}\'\n```\n',
    "in another block": 'A log:\n```text\n{"name": "bash", "arguments": {"command": "ls"}}\n```\nend\n',
    "in a line": 'The object {"name": "bash", "arguments": {"command": "ls"}} is a call.\n',
    "in prose": "bash(1) is a shell, read(2) a system call.\nread(fd, buffer, size) reads.\n",
    "a tag in prose": "The <tool_call> tag wraps a call.\n<tools> are others\n",
    "in a block without a tag": 'For example:\n```\n{"name": "bash", "arguments": {"command": "ls"}}\n```\nDo not.\n',
    "a log in a block without a tag": '```\n12:00 start\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n',
    "a README in a fence": '````markdown\n```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n````\n',
    "tildes": 'It is:\n~~~json\n{"name": "bash", "arguments": {"command": "ls"}}\n~~~\n',
    "indented": 'It is:\n\n    {"name": "bash", "arguments": {"command": "ls"}}\n\nend\n',
    "a sentence that begins with it": 'bash(command="ls") would list it, so no.\nend\n',
    "a sentence about an object": '{"name": "bash", "arguments": {"command": "ls"}} is what it says.\nend\n',
    "more in the block": '```json\n{"name": "bash", "arguments": {"command": "ls"}}\n{"result": 1}\n```\n',
    "what a file contains": '`a.json` contains:\n```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n',
    "a text block": '```text\nbash(command="ls")\n```\n',
    "broken": '{"name": "bash", "arguments": {"command": "ls"\n\nwell\n',
    "code": "Look:\n\n```js\nconst a = {\n}\n```\n{braces}\n[brackets]\n",
}  # fmt: skip


WHOLE = {
    '```json\n{"name":"rename","arguments":{"path":"a","new_name":"b"}}\n```': [
        ("rename", {"path": "a", "new_name": "b"})
    ],
    ' {"tool": "deploy", "args": {}}\n': [("deploy", {})],
    '{"name": "deploy", "arguments": "{\\"to\\": 1}"}': [("deploy", {"to": 1})],
    '<tool_call>\n{"name": "deploy", "arguments": {"to": 1}}\n</tool_call>\n': [("deploy", {"to": 1})],
    '[{"name": "x", "arguments": {}}, {"name": "y", "arguments": {}}]': [("x", {}), ("y", {})],
    '{"name": "write", "arguments": {"path": "a"}}\n': [("write", {"path": "a"})],
    '{"name": "bash", "arguments": {"cmd": "ls"}}': [("bash", {"cmd": "ls"})],
    '```\n{"name": "bash", "arguments": {"command": ["ls"]}}\n```\n': [("bash", {"command": ["ls"]})],
}
"""Answers that are nothing else: whether such a tool is there, and takes that, is said of the call."""


def read(text: str, pieces: int):
    reader = WrittenCalls(TOOLS)
    cuts = sorted(random.Random(pieces).randrange(len(text) + 1) for _ in range(pieces - 1))
    out = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        out += reader.feed(text[start:end])
        if reader.called:
            break
    else:
        out += reader.end()
    said = "".join(one.text for one in out if isinstance(one, TextDelta))
    return said, [(one.name, json.loads(one.arguments)) for one in out if isinstance(one, ToolUse)]


@pytest.mark.parametrize(("text", "said", "calls"), CALLS.values(), ids=CALLS)
def test_calls_in_text_are_found_however_the_stream_is_cut(text, said, calls):
    for pieces in (1, 2, 3, 7, 20, len(text)):
        assert read(text, pieces) == (said, calls), pieces


@pytest.mark.parametrize(("text", "calls"), WHOLE.items())
def test_an_answer_that_is_nothing_but_a_call_is_one(text, calls):
    for pieces in (1, 2, 3, 7, 20, len(text)):
        assert read(text, pieces) == ("", calls), pieces


@pytest.mark.parametrize("text", FRIENDS.values(), ids=FRIENDS)
def test_text_about_tools_stays_text(text):
    for pieces in (1, 2, 3, 7, 20, len(text)):
        assert read(text, pieces) == (text, []), pieces


ODD = [
    ToolDefinition("a", "", {"type": "object", "required": None}),
    ToolDefinition("b", "", {"type": "object", "properties": {"path": True}, "required": [{}]}),
    ToolDefinition("c", "", {"type": "object", "properties": {}, "additionalProperties": True}),
]


@pytest.mark.parametrize(("text", "called"), [
    ('{"name": "a", "arguments": {}}', True), ('{"name": "b", "arguments": {"path": "x"}}', True),
    ('{"name": "c", "arguments": {"any": {"x": [1]}}}', True), ("c(any={1})", False), ("c(any=b'1')", False),
    ("c(any=...)", False), ("c(any=1e999)", False), ("<function=b><parameter=path>x</parameter></function>", True),
    ('{"name": "c", "arguments": {"any": "\\ud83d"}}', True),
])  # fmt: skip
def test_odd_schemas_and_values_break_nothing(text, called):
    reader = WrittenCalls(ODD)
    out = [*reader.feed(text), *reader.end()]
    assert isinstance(out[-1], ToolUse) is called
    "".join(one.arguments if isinstance(one, ToolUse) else one.text for one in out).encode()


def test_ordinary_text_is_not_held_back_and_no_end_or_long_call_costs_a_square():
    reader = WrittenCalls(TOOLS)
    for piece in ("Hello", " there", "\n", "This is", " plain text\n", "```python\nimport os\n", "x = {1}\n"):
        assert [one.text for one in reader.feed(piece)] == [piece]
    text = f"<function=bash>{'<parameter=a>' * 200_000}</function>\n"
    reader = WrittenCalls(TOOLS)
    assert "".join(one.text for one in [*reader.feed(text), *reader.end()]) == text
    reader = WrittenCalls(TOOLS)
    out = reader.feed('{"name": "write", "arguments": {"path": "a", "content": "')
    for _ in range(10_000):
        out += reader.feed("word ")
    out += reader.feed('"}}')
    out += reader.end()
    assert out == [] or isinstance(out[-1], ToolUse)
    assert len(json.loads(out[-1].arguments)["content"]) == 50_000


SETTINGS = ModelSettings(model="m", system="You are.")


@pytest.mark.parametrize("mode", ["auto", "native", "fenced"])
async def test_the_stream_ends_with_the_call_before_the_model_invents_its_result(mode):
    pieces = ("Look.\n", '```json\n{"name": "bash", "arg', 'uments": {"command": "ls"}}\n```\n', "It says OK.")
    async with connected("chat", [Answer(text=pieces)]) as (inner, _):
        events = [event async for event in AdaptedProvider(inner, Fenced(mode)).stream([USER], TOOLS, SETTINGS)]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Look.\n"
        assert [event.name for event in events if isinstance(event, ToolUse)] == ["bash"]
        assert events[-1].reason == "tool_calls"


async def test_a_model_that_makes_real_calls_may_write_about_them():
    shown = '```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n'
    async with connected("chat", [Answer(tool_calls=(Call("bash", {"command": "ls"}),)), shown]) as (inner, _):
        provider = AdaptedProvider(inner, Fenced("auto"))
        first = [event async for event in provider.stream([USER], TOOLS, SETTINGS)]
        assert any(isinstance(event, ToolUse) for event in first)
        second = [event async for event in provider.stream([USER], TOOLS, SETTINGS)]
        assert "".join(event.text for event in second if isinstance(event, TextDelta)) == shown


REAL = json.loads(Path(__file__).with_name("real_answers.json").read_text(encoding="utf-8"))["answers"]
"""What a real coding model answered to our request with the tools of `OFFERED`, whole (the tasks are `first-*` of
evals/tasks). It was asked to document a call of `bash` and wrote one and nothing else: that is one for whoever reads
it, and why written calls are asked about."""

OFFERED = ("bash", "read", "edit", "write", "grep", "list_directory")


@pytest.mark.parametrize("row", REAL, ids=[row["prompt"][:40] for row in REAL])
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_what_a_real_model_wrote_is_a_call_where_it_means_one(row, size):
    known = {entry.name: entry.definition for entry in builtin_registry().entries()}
    reader = WrittenCalls([known[name] for name in OFFERED])
    events = []
    for at in range(0, len(row["answer"]), size):
        if not reader.called:
            events += reader.feed(row["answer"][at : at + size])
    events += reader.end() if not reader.called else []
    assert [event.name for event in events if isinstance(event, ToolUse)] == row["calls"]
    if not row["calls"]:
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == row["answer"]
