"""Calls in fenced blocks: for models without tool calls, however the stream is cut."""

import json
import random

import anyio
import anyio.to_thread
import msgspec
import pytest

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.adapters import AdaptedProvider
from acp_agent.llm.lacks.fenced import AGAIN, Fenced, FenceReader, catalogue, fenced_messages
from acp_agent.testing.fake_model import Answer, Call, Failure, Usage
from tests.tables import table

from .kit import USER, connected

NAMES = ("bash", "web_scrape", "read", "write")
TOOLS = [llm.ToolDefinition(name, f"About {name}.", {"type": "object", "properties": {}}) for name in NAMES]
SETTINGS = llm.ModelSettings(model="m", system="You are.")


def read(text: str, pieces: int = 1, *, tools=NAMES, complete: bool = True):
    """The text that remains, and the calls as (name, arguments)."""
    reader = FenceReader(tools)
    cuts = sorted(random.Random(pieces).randrange(len(text) + 1) for _ in range(pieces - 1))
    out = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        out += reader.feed(text[start:end])
    out += reader.end(complete=complete)
    said = "".join(one.text for one in out if isinstance(one, llm.TextDelta))
    return said, [(one.name, one.arguments) for one in out if isinstance(one, llm.ToolUse)]


CASES = [
    ("Hello.\n", "Hello.\n", []), ("```bash\nls -la\n```\n", "", [("bash", {"command": "ls -la"})]),
    ("I look.\n```bash\nls\n```\nthen\n", "I look.\nthen\n", [("bash", {"command": "ls"})]),
    ("```bash\nfor f in *; do\n  echo $f\ndone\n```", "", [("bash", {"command": "for f in *; do\n  echo $f\ndone"})]),
    ("```scrape\n{\"url\": \"https://a.b\", \"select\": \"h1\"}\n```\n", "",
     [("web_scrape", {"url": "https://a.b", "select": "h1"})]),
    ('```tool\n{"name": "read", "arguments": {"path": "a"}}\n```\n', "", [("read", {"path": "a"})]),
    ('```tool\n{"tool": "read", "parameters": {"path": "a"}}\n```\n', "", [("read", {"path": "a"})]),
    ('```tool\n{"name": "read", "arguments": "{\\"path\\": \\"a\\"}"}\n```\n', "", [("read", {"path": "a"})]),
    ("````bash\ncat <<E\n```\nE\n````\n", "", [("bash", {"command": "cat <<E\n```\nE"})]),
    ("  ```bash\nls\n  ```\n", "", [("bash", {"command": "ls"})]),
    ("```Bash \nls\n```\n", "", [("bash", {"command": "ls"})]),
    ("```bash\nls\n```\n```bash\npwd\n```\n", "", [("bash", {"command": "ls"}), ("bash", {"command": "pwd"})]),
    ("```python\nprint(1)\n```\n", "```python\nprint(1)\n```\n", []),
    ("```\n```bash\nls\n```\n", "```\n```bash\nls\n```\n", []),
    ("````markdown\n```bash\nls\n```\n````\n", "````markdown\n```bash\nls\n```\n````\n", []),
    ("say ```bash inline\n", "say ```bash inline\n", []), ("`a` and ``b``\n", "`a` and ``b``\n", []),
    ("```bash ls\n", "```bash ls\n", []), ("```bash\r\nls\r\n```\r\n", "", [("bash", {"command": "ls\r"})]),
]  # fmt: skip


@pytest.mark.parametrize("pieces", [1, 2, 5, 40])
@table(("text", "said", "calls"), CASES)
def test_blocks_become_calls_and_the_rest_stays_text(text, said, calls, pieces):
    got, made = read(text, pieces)
    assert got == said and [(name, json.loads(arguments)) for name, arguments in made] == calls


def test_characters_may_come_alone_text_is_not_held_back_and_ids_are_unique():
    for text, said, calls in CASES:
        reader = FenceReader(NAMES)
        out = [one for character in text for one in reader.feed(character)] + reader.end(complete=True)
        assert "".join(one.text for one in out if isinstance(one, llm.TextDelta)) == said
        assert len([one for one in out if isinstance(one, llm.ToolUse)]) == len(calls)
    reader = FenceReader(NAMES)
    assert reader.feed("Hel") == [llm.TextDelta("Hel")] and reader.feed("lo") == [llm.TextDelta("lo")]
    assert reader.feed("\n`") == [llm.TextDelta("\n")] and reader.feed("x` is") == [llm.TextDelta("`x` is")]
    reader = FenceReader(NAMES)
    calls = [one for one in reader.feed("```bash\nls\n```\n" * 50) if isinstance(one, llm.ToolUse)]
    assert len({call.id for call in calls}) == 50


@pytest.mark.parametrize(("start", "middle", "end"), [
    ("```bash\n", "echo", "\n```\n"), ("```bash\n", "a b\n", "```\n"), ("```python\n", "word", "\n```\n"),
    ("", "word", "\n"), ("", " ```", "\n"), ("", "    ", "x\n"),
])  # fmt: skip
def test_the_length_of_a_line_costs_no_more_than_its_characters(start, middle, end):
    reader, out, copied = FenceReader(NAMES), [], 0

    class Counted(str):
        """Text that counts what is copied to put it behind other text."""

        def __radd__(self, before):
            nonlocal copied
            copied += len(before) + len(self)
            return Counted(str(before) + str(self))

        def __getitem__(self, part):
            return Counted(super().__getitem__(part))

    for piece in (start, *[middle] * 20_000, end):
        out += reader.feed(Counted(piece))
    out += reader.end(complete=True)
    length = sum(
        len(one.text if isinstance(one, llm.TextDelta) else json.loads(one.arguments)["command"]) for one in out
    )
    assert length >= 4 * 20_000 - 1
    assert copied < 20 * length


@pytest.mark.parametrize("line", ["```" + " " * 60_000 + "!", "`" * 60_000 + "!", "\n" * 150_000, "a\n" * 90_000])
async def test_much_text_in_one_piece_is_read_in_one_go(line):
    def at_once():
        return read(line), read(f"````bash\n{line}\n````\n")

    alone, in_a_block = await anyio.to_thread.run_sync(at_once, abandon_on_cancel=True)
    assert alone == (line, []) and len(in_a_block[1]) == 1


def test_a_block_is_a_call_only_where_it_is_closed_or_complete_and_offered():
    assert read("```bash\nls\n", complete=True) == ("", [("bash", '{"command": "ls"}')])
    assert read("```bash\nrm -r", complete=False) == ("```bash\nrm -r", [])
    assert read("```bash\n", complete=True) == ("```bash\n", [])
    text = "```bash\nls\n```\n```scrape\n{}\n```\n"
    assert read(text, tools=("read",)) == (text, [])
    assert read('```tool\n{"name": "x"}\n```\n', tools=()) == ('```tool\n{"name": "x"}\n```\n', [])
    _, calls = read('```tool\n{"name": "read", "arguments": {"path": }\n```\n')
    assert calls == [("read", '{"name": "read", "arguments": {"path": }')]


@pytest.mark.parametrize("body", ["not json", "[1]", '{"name": 5}', "{", '"text"', "null"])
def test_a_tool_block_with_nonsense_is_a_call_the_loop_can_answer(body):
    _, ((name, arguments),) = read(f"```tool\n{body}\n```\n")
    assert name == "tool"
    assert isinstance(arguments, str)


def test_the_history_is_told_in_blocks_that_would_be_read_as_the_same_calls():
    calls = (
        llm.ToolUse("1", "bash", '{"command": "cat <<E\\n```\\nE"}'), llm.ToolUse("2", "read", '{"path": "a"}'),
        llm.ToolUse("3", "bash", '{"command": "x", "timeout": 5}'), llm.ToolUse("4", "write", "not json"),
    )  # fmt: skip
    results = [llm.ToolMessage(call.id, call.name, (llm.TextPart(f"r{call.id}"),)) for call in calls]
    told = fenced_messages([llm.UserMessage((llm.TextPart("go"),)), llm.AssistantMessage("I look.", calls), *results])
    assert [type(message) for message in told] == [llm.UserMessage, llm.AssistantMessage, llm.UserMessage]
    assert told[1].tool_calls == ()
    said, again = read(told[1].text)
    assert said.strip() == "I look." and again[0] == ("bash", '{"command": "cat <<E\\n```\\nE"}')
    assert [name for name, _ in again] == ["bash", "read", "bash", "write"]
    assert json.loads(again[2][1]) == {"command": "x", "timeout": 5}
    assert told[2].content[0].text.startswith("Result of `bash`:\n```\nr1\n```\nIf the task is done")


def test_the_catalogue_names_each_tool_and_only_the_blocks_that_work():
    text = catalogue(TOOLS)
    assert all(f"## {name}" in text for name in NAMES)
    assert "```scrape" in text
    assert "```scrape" not in catalogue(TOOLS[2:]) and "```bash" not in catalogue(TOOLS[2:]) and catalogue([]) == ""


async def events_of(provider):
    return [event async for event in provider.stream([USER], TOOLS, SETTINGS)]


async def asked(answer, mode="fenced"):
    """What comes of this answer, the names of its calls, and what was sent."""
    async with connected("chat", [answer]) as (inner, model):
        events = await events_of(AdaptedProvider(inner, Fenced(mode)))
        return events, [event.name for event in events if isinstance(event, llm.ToolUse)], model.requests[0].body


async def test_fenced_sends_no_tools_and_reads_calls_from_the_text():
    events, _, body = await asked(Answer(text=("Look:\n```ba", "sh\nls\n`", "``\n")))
    assert "tools" not in body and body["messages"][0]["content"].startswith("You are.\n\n<tools>")
    (call,) = [event for event in events if isinstance(event, llm.ToolUse)]
    assert (call.name, call.arguments) == ("bash", '{"command": "ls"}')
    assert events[-1] == llm.Finished("tool_calls")
    assert "".join(event.text for event in events if isinstance(event, llm.TextDelta)) == "Look:\n"


async def test_native_calls_pass_and_an_answer_ends_with_its_first_whole_block():
    _, names, _ = await asked(Answer(tool_calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"}))))
    assert names == ["read", "read"]
    # What a model writes after it is the result as it imagines it; a real one wrote that as a block of `bash`.
    events, names, _ = await asked('```tool\n{"name": "read", "arguments": {"path": "a"}}\n```\n```bash\n14\n```\n')
    assert names == ["read"] and events[-1] == llm.Finished("tool_calls")
    events, names, _ = await asked(Answer(text="```bash\nrm -rf bu", finish="length"))
    assert names == [] and events[-1].reason == "length"


async def test_auto_is_native_and_leaves_blocks_alone_until_tools_are_refused():
    for before, after, found in (("Run this:\n", "", []), ("", "It lists files.\n", []), ("", "\n", ["bash"])):
        for mode in ("auto", "native"):
            _, names, body = await asked(f"{before}```bash\nls -l\n```\n{after}", mode)
            assert "tools" in body
            assert names == found, (before, after)
    assert (await asked(Answer(text="```bash\nls\n"), "native"))[1] == []


async def test_a_count_alone_is_no_sign_that_tools_are_dropped_and_after_a_written_call_they_are_sent_again_later():
    few = Answer(text="hello", usage=Usage(600, 5))
    large = [*TOOLS[:-1], msgspec.structs.replace(TOOLS[-1], description="x" * 9000)]
    written = llm.AssistantMessage(tool_calls=(llm.ToolUse(f"{llm.WRITTEN}1", "bash", '{"command": "ls"}'),))
    answered = llm.ToolMessage(f"{llm.WRITTEN}1", "bash", (llm.TextPart("a"),))
    sent = []
    async with connected("chat", lambda body: sent.append("tools" in body) or few) as (inner, _):
        provider = AdaptedProvider(inner, Fenced("auto"))
        for messages, times in (([USER], 3), ([USER, written, answered], AGAIN + 3)):
            for _ in range(times):
                assert [event async for event in provider.stream(messages, large, SETTINGS)]
    assert sent == [True] * 4 + [False] * AGAIN + [True, False]


@pytest.mark.parametrize("words", [
    "registry.ollama.ai/library/gemma:2b does not support tools", "This model does not support tool calls",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "No endpoints found that support tool use", "Function calling is not enabled for this model",
])  # fmt: skip
async def test_auto_falls_back_once_the_server_refuses_tools_and_remembers(words):
    refusal = Failure(400, {"error": {"message": words}})
    block = "```bash\nls\n```\n"
    async with connected("chat", [refusal, block, block]) as (inner, model):
        provider = AdaptedProvider(inner, Fenced("auto"))
        for _ in range(2):
            assert [event.name for event in await events_of(provider) if isinstance(event, llm.ToolUse)] == ["bash"]
        assert ["tools" in request.body for request in model.requests] == [True, False, False]


UNLIKED = "Invalid schema for function 'mcp_x': 'oneOf' is not supported"


async def test_auto_does_not_take_other_failures_for_a_refusal_of_tools():
    failures = [
        Failure(400, {"error": {"message": words}}) for words in ("bad image", "the tool name is too long", UNLIKED)
    ]
    async with connected("chat", failures) as (inner, _):
        provider = AdaptedProvider(inner, Fenced("auto"))
        for _ in failures:
            with pytest.raises(ProviderError):
                await events_of(provider)


async def test_closing_the_stream_closes_the_inner_one():
    async with connected("chat", [Answer(text=("a", "b", "c"), hang_after=1)]) as (inner, model):
        stream = AdaptedProvider(inner, Fenced("fenced")).stream([USER], TOOLS, SETTINGS)
        assert await anext(stream) == llm.TextDelta("a")
        await stream.aclose()
        await model.answer_closed(1)


@pytest.mark.parametrize("mode", ["auto", "fenced"])
@pytest.mark.parametrize("held", ['{"name": "read", "argu', "```bash\nls\n```", "The end of\n``", "```tool\n{"])
async def test_what_was_held_back_when_the_stream_broke_is_said_and_not_run(mode, held):
    async with connected("chat", [Answer(text=("I look.\n", held, "never sent"), drop_after=2)]) as (inner, _):
        said = []
        with pytest.raises(ProviderError):
            async for event in AdaptedProvider(inner, Fenced(mode)).stream([USER], TOOLS, SETTINGS):
                said.append(event)
        assert not any(isinstance(event, llm.ToolUse) for event in said)
        assert "".join(event.text for event in said if isinstance(event, llm.TextDelta)) == "I look.\n" + held
