"""Fitting a conversation into its context: pure steps first, then all of them together."""

import json
from collections.abc import Sequence
from itertools import pairwise

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.loop.memory.compaction import (
    Compacted,
    Limits,
    compact,
    drop_oldest,
    shorten_results,
    size_of,
    window_of,
)
from acp_agent.loop.memory.conversation_head import FIRST_CHARS, Head, Seen, opened
from acp_agent.loop.memory.history import History
from acp_agent.loop.memory.room import Asked, Room
from acp_agent.loop.memory.token_counts import TokenEstimator, characters
from tests.nightly import NIGHTLY, examples


def user(text: str) -> llm.UserMessage:
    return llm.UserMessage((llm.TextPart(text),))


def round_of(number: int, result: str, calls: int = 1) -> list[llm.Message]:
    uses = tuple(llm.ToolUse(f"{number}-{n}", "bash", '{"command": "x"}') for n in range(calls))
    return [llm.AssistantMessage("", uses), *(llm.ToolMessage(use.id, "bash", (llm.TextPart(result),)) for use in uses)]


def valid(messages: Sequence[llm.Message]) -> bool:
    """Whether a model accepts it: what `History` would leave as it is."""
    return list(History(messages).messages) == list(messages) and not History(messages).unanswered()


def history_of(sizes: Sequence[tuple[str, int]], *first: llm.Message) -> list[llm.Message]:
    """A prompt, an answer or a round of calls for each letter, of so many characters."""
    history = History(first)
    for number, (kind, size) in enumerate(sizes):
        match kind:
            case "u":
                history.add(user("u" * (size + 1)))
            case "a":
                history.add(llm.AssistantMessage("a" * (size + 1)))
            case _:
                for message in round_of(number, "r" * size, 1 + size % 3):
                    history.add(message)
    return list(history.messages)


def text_of(messages: Sequence[llm.Message]) -> str:
    said = []
    for message in messages:
        if isinstance(message, llm.AssistantMessage):
            said.append(message.text)
        else:
            said += [part.text for part in message.content if isinstance(part, llm.TextPart)]
    return "\n".join(said)


LONG = [
    user("first prompt"), *round_of(1, "old result " * 500), *round_of(2, "newer result " * 500),
    llm.AssistantMessage("I have done it."), user("second prompt"), *round_of(3, "newest result " * 500, calls=2),
]  # fmt: skip


# --- steps -------------------------------------------------------------------------------------------------------


def test_the_oldest_results_are_shortened_first_and_no_more_than_needed() -> None:
    messages, count = shorten_results(LONG, keep=2, chars=100, need=1000)
    assert count == 1
    assert text_of(messages[2:3]).startswith("old result old result")
    assert "characters of this old result were removed" in text_of(messages[2:3])
    assert messages[4:] == LONG[4:]
    assert valid(messages)


def test_the_newest_results_stay_and_pictures_go() -> None:
    picture = llm.ToolMessage("1-0", "bash", (llm.TextPart("short"), llm.ImagePart("image/png", "AAAA")))
    history = [LONG[0], LONG[1], picture, *LONG[3:]]
    messages, count = shorten_results(history, keep=2, chars=100, need=10**9)
    assert count == 2
    assert messages[-2:] == history[-2:]
    assert "an image or audio of this old result was removed" in text_of(messages[2:3])
    assert shorten_results(messages, keep=2, chars=100, need=10**9)[1] == 0, "nothing is gained twice"


def test_a_shortened_result_keeps_the_reference_to_all_of_it() -> None:
    line = "[all of it, 90000 characters: overflow:0b0e4dd2-6a5c-4d1c-9d53-4ad31c9b3f55 (`read_overflow`)]"
    history = [user("go"), *round_of(1, "x" * 5000 + f"\n{line}\n[exit code 1]")]
    messages, _ = shorten_results(history, keep=0, chars=100, need=1)
    assert line in text_of(messages)


def test_dropping_keeps_the_last_prompt_and_the_last_round() -> None:
    messages, dropped = drop_oldest(LONG, 100)
    assert dropped == len(LONG) - 4
    head, _ = opened(messages)
    assert (head.first, head.dropped) == ("first prompt", dropped)
    assert f"[{dropped} earlier messages were removed" in text_of(messages) and "second prompt" in text_of(messages)
    assert messages[-3:] == LONG[-3:]
    assert valid(messages)


def test_dropping_begins_at_a_prompt_where_whole_turns_fit() -> None:
    history: list[llm.Message] = []
    for turn in range(20):
        history += [user(f"prompt {turn}"), llm.AssistantMessage(f"answer {turn} " * 20)]
    messages, dropped = drop_oldest(history, 1500)
    assert dropped
    assert size_of(messages) <= 1500
    assert valid(messages)
    first = text_of(messages[:1])
    assert "prompt" in first and "answer" not in first


@settings(max_examples=examples(200))
@given(
    sizes=st.lists(st.tuples(st.sampled_from("uart"), st.integers(0, 400)), max_size=40), room=st.integers(0, 5000),
    keep=st.integers(0, 5),
)  # fmt: skip
def test_whatever_is_left_out_a_model_accepts_the_rest(sizes: list[tuple[str, int]], room: int, keep: int) -> None:
    messages = history_of(sizes)
    kept, dropped = drop_oldest(messages, room)
    assert valid(kept)
    assert (dropped > 0) == (kept != messages)
    shorter, _ = shorten_results(messages, keep=keep, chars=50, need=10**9)
    assert valid(shorter)
    assert size_of(shorter) <= size_of(messages) + 0
    last = next((message for message in reversed(messages) if isinstance(message, llm.UserMessage)), None)
    if last is not None:
        assert text_of([last]) in text_of(kept)


PICTURE = llm.UserMessage((llm.ImagePart("image/png", "AAAA"),))
OWN = llm.UserMessage((llm.TextPart("[Go on.]"),), own=True)


@pytest.mark.parametrize("says", ["", "SUMMARY"])
@pytest.mark.parametrize(
    ("history", "stays"),
    [
        (
            [PICTURE, *round_of(1, "x" * 3000), PICTURE, *round_of(2, "x" * 3000), user("now"), *round_of(3, "xx")],
            "[an image or audio was removed",
        ),
        ([user("first"), *round_of(0, "x"), user("NEWEST" * 200), *round_of(1, "x" * 3000), OWN,
          *round_of(2, "x" * 3000), *round_of(3, "x" * 3000)], "NEWEST" * 200),
        ([user("Summary of our conversation so far:\n\nwe did it."), *(each for n in range(6) for each in
          round_of(n, "x" * 3000))], "we did it."),
    ],
    ids=["pictures are named", "words of the program are no prompt", "a prompt may begin as a summary does"],
)  # fmt: skip
async def test_what_the_user_said_stays(history: list[llm.Message], stays: str, says: str) -> None:
    async def summary(messages: Sequence[llm.Message]) -> str:
        assert all(each.content != (llm.TextPart(""),) for each in messages if isinstance(each, llm.UserMessage))
        return says

    done = await compact(history, Limits(5000, 3500), CompactionConfig(keep_results=1), summary)
    assert stays in text_of(done.messages) and valid(done.messages) and done.size <= 5000
    kinds = ["tool" if isinstance(each, llm.ToolMessage) else type(each).__name__ for each in done.messages]
    assert all(one == "tool" or one != other for one, other in pairwise(kinds)), "roles take turns"
    said = [part.text for each in done.messages if isinstance(each, llm.UserMessage) for part in each.content
            if isinstance(part, llm.TextPart)]  # fmt: skip
    assert all(said), "no part is empty"


# --- together ----------------------------------------------------------------------------------------------------


async def no_summary(messages: Sequence[llm.Message]) -> str:
    raise AssertionError("the model need not be asked")


async def test_shortening_alone_is_enough_where_it_is() -> None:
    size = size_of(LONG)
    done = await compact(LONG, Limits(size - 1000, size - 3000), CompactionConfig(keep_results=2), no_summary)
    assert (done.shortened, done.summarised, done.dropped) == (1, 0, 0)
    assert done.words == "1 tool results shortened"


async def test_what_is_old_is_summarised_and_the_prompt_stays() -> None:
    asked: list[Sequence[llm.Message]] = []

    async def summary(messages: Sequence[llm.Message]) -> str:
        asked.append(messages)
        return "THE SUMMARY"

    done = await compact(LONG, Limits(16_000, 15_000), CompactionConfig(keep_results=2, result_chars=5000), summary)
    assert len(asked) == 1
    assert done.summarised and done.summary == "THE SUMMARY"
    text = text_of(done.messages)
    assert "THE SUMMARY" in text and "second prompt" in text and "old result" not in text
    assert valid(done.messages)
    assert done.size <= 16_000


@pytest.mark.parametrize("says", ["", "fails", "z" * 100_000])
async def test_without_a_usable_summary_the_oldest_are_left_out(says: str) -> None:
    async def summary(messages: Sequence[llm.Message]) -> str:
        if says == "fails":
            raise ProviderError("server", "The server failed.")
        return says

    done = await compact(LONG, Limits(16_000, 15_000), CompactionConfig(keep_results=2, result_chars=5000), summary)
    assert done.size <= 16_000
    assert valid(done.messages)
    assert "second prompt" in text_of(done.messages)
    if says != "z" * 100_000:
        assert done.cut and done.trouble


async def test_the_newest_results_are_shortened_last() -> None:
    history = [user("go"), *round_of(1, "x" * 50_000, calls=3)]
    done = await compact(history, Limits(4000, 3000), CompactionConfig(), None)
    assert done.size <= 4000
    assert valid(done.messages)
    assert text_of(done.messages).startswith("go")


async def test_a_result_the_model_never_saw_is_filled_up_to_what_fits_and_says_how_to_get_the_rest() -> None:
    lines = "".join(f"{number:>6}\tline {number}\n" for number in range(1, 3000))
    small = "small result\n" * 20
    results = [
        llm.ToolMessage("1", "read", (llm.TextPart(lines),)), llm.ToolMessage("2", "bash", (llm.TextPart(small),)),
    ]  # fmt: skip
    calls = llm.AssistantMessage("", (llm.ToolUse("1", "read", "{}"), llm.ToolUse("2", "bash", "{}")))
    done = await compact([*LONG, user("now"), calls, *results], Limits(12_000, 8000), CompactionConfig(), None)
    assert 8_000 < done.size <= 12_000
    long, short = done.messages[-2:]
    assert text_of([short]) == text_of(results[1:]), "what is small stays whole"
    shown, _, note = text_of([long]).partition("\n[")
    last = shown.splitlines()[-1]
    assert last == f"{len(shown.splitlines()):>6}\tline {len(shown.splitlines())}", "whole lines"
    assert "do not fit into the context" in note and "`offset`" in note and "old result" not in note


async def test_results_of_the_last_round_are_not_shortened_while_older_ones_can_be() -> None:
    history = [*LONG[:4], user("now"), *round_of(9, "fresh result " * 300, calls=6)]
    done = await compact(history, Limits(30_000, 28_000), CompactionConfig(keep_results=2), None)
    assert done.messages[-6:] == history[-6:]


def test_notes_of_what_was_left_out_are_added_up() -> None:
    messages: list[llm.Message] = list(LONG)
    total = 0
    for number in range(4):
        messages += [*round_of(10 + number, "x" * 2000), llm.AssistantMessage("y" * 500), user(f"prompt {number}")]
        messages, dropped = drop_oldest(messages, 3000)
        total += dropped
    text = text_of(messages)
    assert text.count("earlier messages were removed") == 1 and f"[{total} earlier messages" in text
    assert valid(messages)


async def test_huge_arguments_of_the_last_round_are_shortened_last() -> None:
    use = llm.ToolUse("1", "write", json.dumps({"path": "a", "content": "x" * 40_000}))
    history: list[llm.Message] = [
        user("go"), llm.AssistantMessage("", (use,)), llm.ToolMessage("1", "write", (llm.TextPart("written"),)),
    ]  # fmt: skip
    done = await compact(history, Limits(4000, 2000), CompactionConfig(), None)
    assert done.size <= 4000
    assert valid(done.messages)
    shorter = done.messages[1]
    assert isinstance(shorter, llm.AssistantMessage)
    assert "were removed" in json.loads(shorter.tool_calls[0].arguments)["left_out"]


@settings(max_examples=examples(150))
@given(
    sizes=st.lists(st.tuples(st.sampled_from("uart"), st.integers(0, 3000)), min_size=1, max_size=30),
    most=st.integers(0, 20_000), summary=st.sampled_from(["", "SUMMARY", "s" * 5000, None]),
)  # fmt: skip
def test_whatever_is_made_of_a_history_is_valid_and_has_the_last_prompt(sizes, most: int, summary: str | None) -> None:
    messages = history_of(sizes, user("the very first prompt"))

    async def summarise(asked: Sequence[llm.Message]) -> str:
        assert valid(asked), "what is asked for a summary is valid, too"
        if summary is None:
            raise ProviderError("server", "no")
        return summary

    done = anyio.run(compact, messages, Limits(most, most // 2), CompactionConfig(), summarise)
    assert valid(done.messages)
    assert done.size <= size_of(messages)
    last = next(message for message in reversed(messages) if isinstance(message, llm.UserMessage))
    assert text_of([last]) in text_of(done.messages)


# --- long conversations --------------------------------------------------------------------------------------------

TASK = "Port the billing module to the new ledger; never touch the invoices of 2019."
PROMPTS, ROUNDS = 60, 3


def reading(number: int, name: str, first: int) -> list[llm.Message]:
    lines = "\n".join(f"{at:>6}\tline {at} of {name}, which says something" for at in range(first, first + 90))
    use = llm.ToolUse(f"r{number}", "read", json.dumps({"path": name, "offset": first}))
    return [llm.AssistantMessage("I look.", (use,)), llm.ToolMessage(use.id, "read", (llm.TextPart(lines),))]


@pytest.mark.parametrize(("window", "says"), [
    (window, says) for window in (8_000, 16_000, 32_000, 128_000) for says in ("honest", "", "fails")
    if NIGHTLY or says == "honest" or window == 16_000
])  # fmt: skip
async def test_a_long_conversation_keeps_its_task_and_what_was_read_for_few_summaries(window: int, says: str) -> None:
    fixed = {8_000: 2_500, 16_000: 2_500}.get(window, 4_500) * 4 - 400
    desk, room, asks = Desk([]), Room(CompactionConfig(), 0.8), list[int]()
    read: set[str] = set()

    async def summary(messages: Sequence[llm.Message]) -> str:
        asks.append(size_of(messages))
        assert TASK in text_of(messages), "what is summarised begins with what the user wants"
        assert any(isinstance(each, llm.ToolMessage) for each in messages), "and is the conversation itself"
        if says == "fails":
            raise ProviderError("server", "no")
        return "They port the billing module. " * 20 if says else ""

    async def request(prompt: int, *new: llm.Message) -> None:
        history = History([*desk.history, *new])
        desk.history = list(history.messages)
        of = Asked("m", llm.ModelSettings("m", "s" * fixed), [], window, prompt)
        assert await room.fit(desk, of, lambda: summary) is None
        assert valid(desk.history) and room.measure(desk.history, of).all <= window
        text = text_of(desk.history)
        assert TASK in text and f"prompt {prompt}:" in text
        head, rest = opened(desk.history)
        shown = {call.arguments for each in rest if isinstance(each, llm.AssistantMessage) for call in each.tool_calls}
        assert all(name in head.files or any(name in each for each in shown) for name in read)

    for prompt in range(1, PROMPTS + 1):
        words = f"prompt {prompt}: " + (TASK if prompt == 1 else "go on with the next part, please. " * 6)
        await request(prompt, user(words))
        for number in range(ROUNDS):
            name = f"src/part{(prompt + number) % 20}.py"
            read.add(name)
            await request(prompt, *reading(prompt * ROUNDS + number, name, 1 + 90 * (prompt % 5)))
        desk.history.append(llm.AssistantMessage("Done: it reads the ledger now. " * 12))
    assert 0 < len(asks) <= PROMPTS / 4 + 1 if window < 128_000 else len(asks) <= PROMPTS / 4
    if window < 128_000:
        assert opened(desk.history)[0].files["src/part7.py"].lines


async def test_a_long_turn_has_summaries_of_its_own() -> None:
    desk, room, asks = Desk([user(TASK)]), Room(CompactionConfig(), 0.8), list[int]()

    async def summary(messages: Sequence[llm.Message]) -> str:
        asks.append(size_of(messages))
        return f"SUMMARY {len(asks)}"

    for number in range(250):
        desk.history += reading(number, f"f{number}.py", 1)
        of = Asked("m", llm.ModelSettings("m", "s" * 400), [], 16_000, 1)
        assert await room.fit(desk, of, lambda: summary) is None
        assert TASK in text_of(desk.history)
    assert 2 <= len(asks) <= 20
    assert f"SUMMARY {len(asks)}" in text_of(desk.history)


def test_the_head_of_a_conversation_is_read_as_it_was_written() -> None:
    files = {"a b.py": Seen(((1, 80), (120, 160)), changed=True), "c": Seen(changed=True), "d": Seen(((3, 3),))}
    head = Head("do it\n- x: changed", "a summary\n\n[9 earlier messages]", files, 12, earlier=True)
    for rest in ([user("next")], [llm.AssistantMessage("x")], []):
        found, after = opened(History([*head.messages(), *rest]).messages)
        assert (found, after) == (head, rest)
    bare = replace(head, summary="")
    assert opened(History([*bare.messages(), user("next")]).messages) == (bare, [user("next")])
    assert opened([user("do it")]) == (Head(), [user("do it")])
    long = Head().after([user("p" * 10_000), *reading(1, "a", 5), *reading(2, "a", 90)], ())
    assert len(long.first) < FIRST_CHARS + 100 and long.files == {"a": Seen(((5, 179),))}
    cut = llm.ToolMessage("r1", "read", (llm.TextPart("     1\tx\n[... 900 characters omitted ...]\n    99\ty"),))
    assert Head().after([reading(1, "a", 5)[0], cut], ()).files == {"a": Seen(((1, 1), (99, 99)))}, (
        "not what lies between"
    )


async def test_cancelled_while_the_model_summarises_nothing_is_changed() -> None:
    desk, room = Desk(LONG), Room(CompactionConfig(keep_results=10), 0.8)
    asking = anyio.Event()

    async def hangs(messages: Sequence[llm.Message]) -> str:
        asking.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            await room.fit(desk, asked(5000), lambda: hangs)

        tasks.start_soon(work)
        await asking.wait()
        tasks.cancel_scope.cancel()
    assert desk.seen == ["begin", "cancelled"] and desk.history == LONG


@pytest.mark.parametrize(("words", "window"), [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens", 8192),
    ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
    ("the request exceeds the available context size (4,096 tokens)", 4096),
    ("Requested tokens (9000) exceed context window of 4096", 4096),
    ("input exceeds the context window of this model", None),
])  # fmt: skip
def test_the_window_is_read_from_what_servers_say(words: str, window: int | None) -> None:
    assert window_of(ProviderError("context_too_long", words)) == window


# --- the estimator -----------------------------------------------------------------------------------------------


def test_the_estimator_learns_from_what_servers_count_and_little_from_nonsense() -> None:
    estimator = TokenEstimator()
    assert estimator.tokens("m", 4000) == 1000
    for _ in range(8):
        estimator.observe("m", 10_000, 5000)
    assert estimator.tokens("m", 4000) == pytest.approx(2000, rel=0.02) and estimator.tokens("other", 4000) == 1000
    assert estimator.chars("m", 1000) == pytest.approx(2000, rel=0.02)
    estimator.observe("odd", 10, 10_000)
    estimator.observe("odd", 10_000, 0)
    assert estimator.chars_per_token("odd") == 4
    estimator.observe("odd", 10_000, 10**9)
    assert estimator.chars_per_token("odd") >= 1
    estimator.refused("n", 8000, 4000)
    assert estimator.chars_per_token("n") == 2
    picture = llm.UserMessage((llm.ImagePart("image/png", "A" * 1_000_000),))
    assert characters(picture) < 10_000, "an image counts as text of some length"


# --- the room ----------------------------------------------------------------------------------------------------


class Desk:
    def __init__(self, messages: Sequence[llm.Message]) -> None:
        self.history = list(messages)
        self.seen: list[str] = []

    def messages(self) -> Sequence[llm.Message]:
        return self.history

    def begin(self) -> None:
        self.seen.append("begin")

    def replace(self, done: Compacted, before: int, after: int) -> None:
        assert after < before
        self.history = done.messages
        self.seen.append("replace")

    def gave_up(self, *, cancelled: bool = False) -> None:
        self.seen.append("cancelled" if cancelled else "gave up")


def asked(window: int | None, system: str = "s" * 400, tools: int = 0) -> Asked:
    definitions = [llm.ToolDefinition("tool", "d" * tools, {})] if tools else []
    return Asked("m", llm.ModelSettings("m", system), definitions, window)


async def fit(room: Room, desk: Desk, of: Asked, *, forced: bool = False) -> str | None:
    return await room.fit(desk, of, lambda: None, forced=forced)


async def test_what_fits_is_left_alone_and_room_is_made_once_for_the_same_history() -> None:
    desk, room = Desk(LONG), Room(CompactionConfig(), 0.8)
    assert await fit(room, desk, asked(100_000)) is None
    assert await fit(room, desk, asked(None)) is None, "a window nobody told of"
    assert desk.seen == []
    for _ in range(2):
        assert await fit(room, desk, asked(5000)) is None
        assert desk.seen == ["begin", "replace"]
        assert room.measure(desk.messages(), asked(5000)).all <= 4000


async def test_a_history_that_cannot_be_shortened_is_not_tried_again_until_it_has_grown() -> None:
    desk, room = Desk([user("p" * 15_600)]), Room(CompactionConfig(), 0.8)
    for _ in range(2):
        assert await fit(room, desk, asked(4100)) is None, "over the budget, within the window"
        assert desk.seen == ["begin", "gave up"]


async def test_the_floor_is_told_in_words_and_so_is_that_it_is_switched_off() -> None:
    desk, room = Desk([user("p" * 4000)]), Room(CompactionConfig(), 0.8)
    words = await fit(room, desk, asked(2000, tools=8000))
    assert words is not None and "`m` can hold 2000 tokens" in words and "larger context" in words
    desk, room = Desk(LONG), Room(CompactionConfig(enabled=False), 0.8)
    words = await fit(room, desk, asked(5000))
    assert words is not None and "context is full" in words and "/compact" in words and desk.seen == []


@pytest.mark.parametrize("said", ["maximum context length is 3000 tokens", "too many tokens"])
async def test_a_refusal_makes_room_and_what_it_taught_is_kept_once_it_proved_right(said: str) -> None:
    desk, room = Desk(LONG), Room(CompactionConfig(), 0.8)
    room.learn(ProviderError("context_too_long", said), desk.messages(), asked(None))
    before = size_of(desk.history)
    assert await fit(room, desk, asked(None), forced=True) is None
    assert size_of(desk.history) < before
    assert room.windows == {}
    room.counted(desk.history, asked(None), 0)
    assert room.windows["m"] == (3000 if "3000" in said else room.windows["m"])
    assert room.windows["m"] < before // 4


async def test_a_refusal_without_reason_does_not_wedge_the_session() -> None:
    desk, room = Desk([user("hi")]), Room(CompactionConfig(), 0.8)
    room.learn(ProviderError("context_too_long", "too long"), desk.messages(), asked(None))
    assert await fit(room, desk, asked(None), forced=True) is not None
    assert await fit(room, desk, asked(None)) is None, "the next prompt is asked as ever"
    assert room.windows == {}
