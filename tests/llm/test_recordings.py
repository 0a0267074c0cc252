"""What is in the file of a recording, what never is, and how it is read."""

import fcntl
import json
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.config.model import ProviderOptions
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.fronts.playing.listener import Listener
from acp_agent.llm import base as llm
from acp_agent.llm.adapters import AdaptedProvider
from acp_agent.llm.recordings.cleaning import Cleaner, alike, digest
from acp_agent.llm.recordings.playback import Plain, Playback, insert
from acp_agent.llm.recordings.reading import read_recording
from acp_agent.llm.recordings.recorder import Recorder
from acp_agent.llm.recordings.replay_provider import ReplayProvider
from acp_agent.llm.recordings.tape import Tape
from tests.credentials.test_redactor import TOKENS
from tests.nightly import examples

from .kit import SETTINGS, TOOL, USER, collect

Said = Sequence[llm.ModelEvent | ProviderError]


class Fixed:
    """Answers each request with the next of its answers."""

    name = "fixed"

    def __init__(self, *answers: Said) -> None:
        self._answers = iter(answers)

    async def stream(self, messages: Any, tools: Any, settings: Any) -> AsyncGenerator[llm.ModelEvent, None]:
        for event in next(self._answers):
            if isinstance(event, ProviderError):
                raise event
            yield event

    async def models(self) -> list[llm.ModelInfo]:
        return []

    async def aclose(self) -> None:
        pass


def tape_in(folder: Path, *, redactor: Any = None, home: str = "/home/someone") -> Tape:
    return Tape(folder / "r.jsonl", Cleaner(redactor or Redactor(), {"HOME": home}), {})


def recorder_of(inner: Fixed, tape: Tape) -> AdaptedProvider:
    return AdaptedProvider(inner, Recorder(inner.name, tape))


async def recorded(
    folder: Path, *asked: tuple[Sequence[llm.Message], Sequence[llm.ModelEvent | ProviderError]]
) -> Path:
    tape = tape_in(folder)
    recorder = recorder_of(Fixed(*(answer for _, answer in asked)), tape)
    for messages, _ in asked:
        try:
            await collect(recorder, messages)
        except ProviderError:
            pass
    tape.close()
    return tape.path


def player(path: Path) -> ReplayProvider:
    insert(Playback(read_recording(path)))
    return ReplayProvider(ProviderOptions(name="p", script=str(path)))


def user(text: str) -> llm.UserMessage:
    return llm.UserMessage((llm.TextPart(text),))


ANSWER: Said = [llm.TextDelta("Hel"), llm.TextDelta("lo"), llm.UsageReport(3, 2), llm.Finished("stop")]


Events = list[llm.ModelEvent]


def cut(text: str, at: int) -> list[str]:
    """In two, and the second in single characters: as a model may stream it."""
    return [text[:at], *text[at:]]


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04x}" for each in text)


def prompt(text: str) -> dict[str, Any]:
    return say(2, "session/prompt", {"sessionId": "s", "prompt": [{"type": "text", "text": text}]})


def asks(text: str) -> dict[str, Any]:
    return say(3, "session/request_permission", {"toolCall": {"title": text}, "options": []})


def answers(**what: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 3, **what}


def called(text: str) -> dict[str, Any]:
    return update({"sessionUpdate": "tool_call", "title": text, "rawInput": {"c": f"curl {text}"}})


def chunk(text: str) -> dict[str, Any]:
    return update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def update(what: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": what}}


def terminal(text: str) -> dict[str, Any]:
    return update(
        {"sessionUpdate": "tool_call_update", "_meta": {"terminal_output": {"terminal_id": "t", "data": text}}}
    )


def new(server: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/w", "mcpServers": [server]}}


def say(id_: int, method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


IN_REQUESTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "the system prompt": lambda t: {"settings": llm.ModelSettings("m", system=f"Be good. {t} Yes.")},
    "a tool": lambda t: {"tools": [llm.ToolDefinition("x", t, {"type": "object", "default": t})]},
    "the prompt": lambda t: {"messages": [user(f"use {t} please")]},
    "a result": lambda t: {"messages": [llm.ToolMessage("1", "bash", (llm.TextPart(f"out: {t}\n"),))]},
    "arguments": lambda t: {"messages": [llm.AssistantMessage("", (llm.ToolUse("1", "x", json.dumps({"a": [t]})),))]},
    "a thought": lambda t: {"messages": [llm.AssistantMessage("a", thought=t, opaque=({"text": f"see {t} there"},))]},
}
IN_ANSWERS: dict[str, Callable[[str, int], list[Any]]] = {
    "text": lambda t, at: [*map(llm.TextDelta, cut(f"It is {t} now", at)), llm.Finished("stop")],
    "thought": lambda t, at: [*map(llm.ThoughtDelta, cut(t, at)), llm.TextDelta("x"), llm.Finished("stop")],
    "text between others": lambda t, at: [llm.TextDelta(t[:at]), llm.ThoughtDelta("h"), llm.TextDelta(t[at:])],
    "arguments": lambda t, at: [llm.ToolUse("1", "x", json.dumps({"a": {t: t}}))],
    "escaped arguments": lambda t, at: [
        llm.ToolUse("1", "x", '{"a": "' + "".join(f"\\u{ord(c):04x}" for c in t) + '"}')
    ],
    "arguments that are no JSON": lambda t, at: [llm.ToolUse("1", "x", "{" + t)],
    "a notice": lambda t, at: [llm.Notice(f"no {t}")],
    "what only the provider reads": lambda t, at: [llm.Finished("stop", ({"a": t},))],
    "an error": lambda t, at: [llm.TextDelta("x"), ProviderError("auth", f"wrong key {t}")],
}
IN_MESSAGES: dict[str, Callable[[str, int], list[tuple[Any, dict[str, Any]]]]] = {
    "the prompt": lambda t, at: [("in", prompt(t))],
    "chunks": lambda t, at: [
        *(("out", chunk(piece)) for piece in cut(f"is {t}", at)),
        ("out", {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}),
    ],
    "a terminal": lambda t, at: [*(("out", terminal(piece)) for piece in cut(t, at)), ("out", {"id": 2, "result": {}})],
    "a variable of a server": lambda t, at: [("in", new({"name": "m", "env": [{"name": "A", "value": t}]}))],
    "a header of a server": lambda t, at: [("in", new({"name": "m", "headers": [{"name": "A", "value": t}]}))],
    "a header of a provider": lambda t, at: [("in", say(2, "providers/set", {"headers": {"X": t}}))],
    "a header of a gateway": lambda t, at: [
        ("in", say(2, "authenticate", {"_meta": {"gateway": {"headers": {"X": t}}}}))
    ],
    "a call": lambda t, at: [("out", called(t))],
    "a question": lambda t, at: [("out", asks(t)), ("in", answers(result={"outcome": {"outcome": "cancelled"}}))],
    "a file": lambda t, at: [("in", answers(result={"content": f"a\nKEY={t}\n"}))],
    "an error": lambda t, at: [("in", answers(error={"code": 1, "message": t, "data": {"x": t}}))],
}

tokens = st.sampled_from([token for kind in TOKENS.values() for token in kind])


async def written_with(folder: Path, token: str, at: int, *, redactor: Any = None) -> Iterator[tuple[str, str]]:
    """What is written when the credential is in each place: the place, and the file with the deltas joined."""
    found = {}
    for place, make in IN_REQUESTS.items():
        tape = tape_in(folder, redactor=redactor)
        asked: dict[str, Any] = {"messages": [USER], "tools": [TOOL], "settings": SETTINGS} | make(token)
        async for _ in recorder_of(Fixed(ANSWER), tape).stream(**asked):
            pass
        found[f"request: {place}"] = text_of(tape)
    for place, answer in IN_ANSWERS.items():
        tape = tape_in(folder, redactor=redactor)
        try:
            await collect(recorder_of(Fixed(answer(token, at)), tape))
        except ProviderError:
            pass
        found[f"answer: {place}"] = text_of(tape)
    for place, messages in IN_MESSAGES.items():
        tape = tape_in(folder, redactor=redactor)
        listener = Listener(tape, tape)
        for direction, message in messages(token, at):
            listener.hear(direction, json.dumps(message).encode() + b"\n")
        found[f"wire: {place}"] = text_of(tape)
    return iter(found.items())


def text_of(tape: Tape) -> str:
    """The file, and what a reader can put together of it."""
    tape.close()
    text = tape.path.read_text()
    tape.path.unlink()
    events = [event for line in [json.loads(line) for line in text.splitlines()] for event in line.get("events", ())]
    joined = ["".join(str(event.get(kind, "")) for event in events) for kind in ("text", "thought")]
    joined.append("".join(re.findall(r'"(?:text|data)":"([^"]*)"', text)))
    joined += [json.dumps(json.loads(event["call"]["arguments"])) for event in events if _is_json(event)]
    return "\n".join([text, *joined])


def _is_json(event: dict[str, Any]) -> bool:
    try:
        return json.loads(event["call"]["arguments"]) is not None
    except (ValueError, KeyError):
        return False


@settings(max_examples=examples(24))
@given(token=tokens, at=st.integers(0, 30))
def test_a_credential_is_never_in_the_file_wherever_it_was(token: str, at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for place, text in anyio.run(written_with, Path(folder), token, at):
            assert token not in text, place


async def test_without_the_redactor_it_is_in_all_of_these_places(tmp_path: Path) -> None:
    """The control of the test before."""

    class Passing(Plain):
        def stream(self) -> Any:
            return Redactor(enabled=False).stream()

    token = TOKENS["GitHub token"][0]
    kept = [place for place, text in await written_with(tmp_path, token, 7, redactor=Passing()) if token not in text]
    hidden = ("a variable of a server", "a header of a server", "a header of a provider", "a header of a gateway")
    assert kept == [f"wire: {each}" for each in hidden]


@pytest.mark.parametrize("line", [
    b"{", b"[1]", b'{"method": "session/new", "id": [1], "params": {"cwd": "\\u0000", "mcpServers": [{"env": 5}, 7]}}',
    b'{"id": 3, "result": {"outcome": {"optionId": [1]}}}',
    b'{"method": "session/prompt", "params": ' + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}",
    b'{"method": "session/update", "params": {"update": {"_meta": "x", "content": 1}}}',
])  # fmt: skip
async def test_whatever_a_client_sends_recording_goes_on(tmp_path: Path, line: bytes) -> None:
    tape = tape_in(tmp_path)
    listener = Listener(tape, tape)
    listener.hear("out", json.dumps(asks("x")).encode() + b"\n")
    for direction in ("in", "out"):
        listener.hear(direction, line + b"\n")
    listener.hear("in", b'{"id": 9}\n')
    tape.close()
    assert '"message":{"id":9}' in tape.path.read_text()


async def test_a_password_under_its_name_is_taken_out_of_arguments_and_pairs(tmp_path: Path) -> None:
    cleaner = tape_in(tmp_path).cleaner
    assert "hunter2x9" not in str(cleaner.clean([{"name": "DB_PASSWORD", "value": "hunter2x9"}]))
    assert "hunter2x9" not in str(cleaner.clean({"arguments": '{"password": "hunter2x9"}'}))


async def test_a_stream_keeps_its_pieces_and_what_was_said_before_is_not_repeated(tmp_path: Path) -> None:
    first, answer = user("long " * 500), llm.AssistantMessage("Hello")
    more: list[llm.Message] = [first, answer, user("more")]
    path = await recorded(tmp_path, ([first], ANSWER), (more, ANSWER))
    text = path.read_text()
    assert text.count("long long") <= 500 and text.count("Reads a file.") == 0
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[3]["messages"] == {
        "after": 1, "kept": 1,
        "messages": [
            {"role": "assistant", "text": "Hello"}, {"role": "user", "content": [{"type": "text", "text": "more"}]},
        ],
    }  # fmt: skip
    assert [event.get("text") for event in lines[2]["events"]][:2] == ["Hel", "lo"]
    assert await collect(player(path), more) == ANSWER and oct(path.stat().st_mode & 0o777) == "0o600"


async def test_folders_are_tokens_also_when_a_stream_cuts_them_and_come_back_as_those_of_the_replay(tmp_path: Path):
    tape = tape_in(tmp_path)
    tape.cleaner.folder("/work/mine")
    args = '{"path": "/work/mine/a.py", "other": "/work/mine2"}'
    answer: list[llm.ModelEvent] = [
        llm.TextDelta("in /wo"), llm.TextDelta("rk/mi"), llm.TextDelta("ne."), llm.ToolUse("1", "read", args),
    ]  # fmt: skip
    await collect(recorder_of(Fixed([*answer, llm.Finished("tool_calls")]), tape), [user("look into /work/mine")])
    tape.close()
    text = tape.path.read_text()
    assert "/work/mine/" not in text and "/work/mine2" in text
    played = player(tape.path)
    played.cleaner.folder("/elsewhere/x")
    events = await collect(played, [user("look into /elsewhere/x")])
    assert "".join(event.text for event in events if isinstance(event, llm.TextDelta)) == "in /elsewhere/x."
    assert '"path": "/elsewhere/x/a.py"' in next(event.arguments for event in events if isinstance(event, llm.ToolUse))


async def test_an_image_is_its_digest_which_may_be_asked_again_and_stays_the_same(tmp_path: Path) -> None:
    data = "iVBORw0KGgo" + "A" * 400 + "="
    path = await recorded(tmp_path, ([llm.UserMessage((llm.ImagePart("image/png", data),))], ANSWER))
    assert data not in path.read_text()
    assert digest(digest(data)) == digest(data)
    for again in (data, digest(data)):
        assert await collect(player(path), [llm.UserMessage((llm.ImagePart("image/png", again),))]) == ANSWER


async def test_errors_are_played_as_they_were(tmp_path: Path) -> None:
    path = await recorded(tmp_path, ([USER], [llm.TextDelta("a"), ProviderError("quota", "no money", status=402)]))
    events: list[llm.ModelEvent] = []
    with pytest.raises(ProviderError, match="no money") as caught:
        async for event in player(path).stream([USER], (), SETTINGS):
            events.append(event)
    assert (caught.value.kind, caught.value.status, events) == ("quota", 402, [llm.TextDelta("a")])


async def test_each_answer_is_given_once_in_order_and_a_miss_shows_the_difference(tmp_path: Path) -> None:
    two: Said = [llm.TextDelta("second"), llm.Finished("stop")]
    played = player(await recorded(tmp_path, ([USER], ANSWER), ([user("a\nb\nc")], ANSWER), ([USER], two)))
    assert [await collect(played, [USER]) for _ in range(2)] == [ANSWER, two]
    with pytest.raises(ProviderError, match="equal to request 1 of the recording, whose answers were used") as again:
        await collect(played, [USER])
    assert again.value.kind == "recording" and not again.value.retryable
    with pytest.raises(ProviderError) as differs:
        await collect(played, [user("a\nB\nc")])
    assert "from request 2 of the recording in message 1 (user)" in str(differs.value)
    assert "\n-content: text: b\n+content: text: B\n" in str(differs.value)


@pytest.mark.parametrize(("one", "two"), [
    ("at 2026-01-02T03:04:05Z", "at 2025-11-12 13:14:15.123"), ("took 0.3 s", "took 12 s"),
    ("9f0c6d1e-0000-4000-8000-123456789abc", "00000000-1111-4222-8333-444444444444"),
    ("/tmp/acp-coder-ab_12xyz/scripts", "/tmp/acp-coder-00000000/scripts"),
    ("Nov 22 21:54 a.txt", "Jan  2  2024 a.txt"),
])  # fmt: skip
def test_what_differs_between_two_runs_is_alike(one: str, two: str) -> None:
    assert alike(one) == alike(two) and alike(one + "x y") != alike(two + "x z")


async def test_ids_in_an_answer_are_those_of_this_run(tmp_path: Path) -> None:
    then, now = "9f0c6d1e-0000-4000-8000-123456789abc", "00000000-1111-4222-8333-444444444444"
    answer: list[llm.ModelEvent] = [
        llm.ToolUse("1", "read_overflow", json.dumps({"id": then})), llm.Finished("tool_calls"),
    ]  # fmt: skip
    path = await recorded(tmp_path, ([user(f"the rest is {then}")], answer))
    call = (await collect(player(path), [user(f"the rest is {now}")]))[0]
    assert isinstance(call, llm.ToolUse)
    assert json.loads(call.arguments) == {"id": now}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("why", ["missing folder", "other file", "another agent", "device", "link"])
async def test_a_file_that_cannot_be_written_is_one_notice_and_no_failed_turn(tmp_path: Path, why: str) -> None:
    path = tmp_path / "r.jsonl"
    words = {"missing folder": "No such file", "other file": "something else", "another agent": "another agent records",
             "device": "no regular file", "link": "symbolic links"}[why]  # fmt: skip
    if why == "missing folder":
        path = tmp_path / "x" / "r.jsonl"
    elif why == "other file":
        path.write_text("print('mine')\n")
    elif why == "device":
        path = Path("/dev/full")
    elif why == "link":
        (tmp_path / "target").write_text("")
        path.symlink_to(tmp_path / "target")
    recorder = recorder_of(Fixed(ANSWER, ANSWER), Tape(path, Cleaner(Redactor()), {}))
    with locked(path) if why == "another agent" else anyio.CancelScope():
        first, second = await collect(recorder), await collect(recorder)
    assert isinstance(first[0], llm.Notice) and words in first[0].text and (first[1:], second) == (ANSWER, ANSWER)
    if why == "other file":
        assert path.read_text() == "print('mine')\n"


async def test_a_line_for_which_there_is_no_room_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tape = tape_in(tmp_path)
    tape.write({"prompt": "first"})
    write, calls = os.write, iter([True])

    def full(fd: int, data: bytes) -> int:
        if next(calls, False):
            return write(fd, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    tape.write({"prompt": "second"})
    assert "No space left" in tape.taken_trouble()
    assert [json.loads(line) for line in tape.path.read_text().splitlines()][1:] == [{"prompt": "first"}]


@pytest.mark.parametrize(("change", "words"), [
    (lambda text: "", "is empty"), (lambda text: '{"a": 1}\n', "is not a recording"),
    (lambda text: "#!/bin/sh\n", "is not a recording"),
    (lambda text: text.replace('"recording":1', '"recording":2'), "made by a newer version"),
    (lambda text: text.replace('{"answer":1', '{"answer":7'), ":3: the recording is damaged"),
    (lambda text: text.replace('"text":"Hel"', '"txt":"Hel"'), ":3: the recording is damaged"),
    (lambda text: text.replace('"messages":[', '"messages":{'), ":2: the recording is damaged"),
])  # fmt: skip
async def test_a_damaged_or_foreign_file_is_said_to_be_that(tmp_path: Path, change: Any, words: str) -> None:
    path = await recorded(tmp_path, ([USER], ANSWER))
    path.write_text(change(path.read_text()))
    with pytest.raises(ConfigError, match=re.escape(words)):
        read_recording(path)


async def test_a_recording_that_a_killed_agent_left_is_read_up_to_there(tmp_path: Path) -> None:
    path = await recorded(tmp_path, ([USER], ANSWER), ([user("b")], ANSWER))
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b'{"answer"') + 20])
    played = player(path)
    assert await collect(played, [USER]) == ANSWER
    with pytest.raises(ProviderError, match="ends before the answer"):
        await collect(played, [user("b")])
