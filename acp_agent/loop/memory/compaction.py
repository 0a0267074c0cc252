"""Compaction: a conversation never gets stuck because its context is full.

Before each request the size of what would be sent (system prompt, tools, history) is compared with the model's window.
If it is too large, in this order and no further than needed:

    shorten old results -> shorten results of the last round that take more than their share
        -> let the model summarise what is old -> shorten all results but those of the last round
        -> of old turns keep prompt and last words -> leave out the oldest messages
        -> shorten the last results to what fits, then the arguments of calls

What stays whatever happens: the first prompt (bounded), the summary, the files read and changed so far
(`conversation_head`), the newest prompt, the last round. What the model is asked to summarise is shortened, never left
out.

Each step is a plain function from messages to messages; a step that gains nothing is not taken twice for the same
history. If even the minimum (instructions, tools, the last prompt) does not fit, the user is told so. A server that
says "too long" despite the estimate leads here too, once per request.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct

from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.errors import ProviderError
from acp_agent.llm.base import (
    Answers,
    AssistantMessage,
    Message,
    ModelSettings,
    TextDelta,
    TextPart,
    ToolMessage,
    ToolUse,
    UserMessage,
    last_words,
)
from acp_agent.loop.memory.conversation_head import DROPPED, is_prompt, opened, text_of, words_of
from acp_agent.loop.memory.history import History
from acp_agent.loop.memory.token_counts import MESSAGE_CHARS, characters
from acp_agent.output.envelope import bounded

log = logging.getLogger(__name__)

SHORTENED = "\n[... {} characters of this old result were removed to save space ...]"

UNSEEN = (
    "\n[{} more characters of this result do not fit into the context. What follows can be had in a smaller part: "
    "`read` with `offset` and `limit`, `read_overflow`, a search, or a command that prints less.]"
)

SLACK = 300
"""Characters by which a result may be longer: the note that it was shortened."""

NO_MEDIA = "[an image or audio of this old result was removed to save space]"

ARGUMENTS = "{} characters of the arguments of this call were removed to save space"

NEWEST = 0.5
"""Fraction of the space that results of the last round may have together before anything older is touched."""

RECENT = 0.4
"""Fraction of the space that the newest messages keep verbatim when older ones are summarised."""

OF_SUMMARY = 0.25
"""Fraction of the space that a summary may have."""

OLD_WORDS = 300
"""Characters kept of the prompt and of the last words of an old turn whose rounds are left out."""

FEWEST_TO_SUMMARISE = 4
"""Messages; fewer are not worth a request."""

Summarise = Callable[[Sequence[Message]], Awaitable[str]]
"""Returns the model's summary of these messages; empty if it gave none. Raises ProviderError."""


class Limits(Struct, frozen=True):
    """Space for the messages, in characters."""

    most: int
    """Their maximum; more does not fit."""
    target: int
    """The size they should have afterwards."""


class Compacted(Struct, frozen=True):
    messages: list[Message]
    shortened: int = 0
    """Results."""
    summarised: int = 0
    """Messages."""
    cut: int = 0
    """Old turns of which prompt and last words are left."""
    dropped: int = 0
    """Messages."""
    summary: str = ""
    trouble: str = ""
    """Why there is no summary although there should be one."""

    @property
    def size(self) -> int:
        return size_of(self.messages)

    @property
    def words(self) -> str:
        """A line saying what was done."""
        done = []
        if self.shortened:
            done.append(f"{self.shortened} tool results shortened")
        if self.summarised:
            done.append(f"{self.summarised} messages summarised")
        if self.cut:
            done.append(f"{self.cut} old turns cut to their prompt and last words")
        if self.dropped:
            done.append(f"the {self.dropped} oldest messages removed")
        return ", ".join(done) or "nothing could be removed"


def size_of(messages: Sequence[Message]) -> int:
    return sum(characters(message) for message in messages)


async def compact(
    messages: Sequence[Message], limits: Limits, config: CompactionConfig, summarise: Summarise | None
) -> Compacted:
    """Shrinks `messages` as far as needed and possible. Without `summarise` the model is not asked."""
    done = Compacted(list(messages))
    enough = (limits.most + limits.target) // 2
    unseen = _last_round(done.messages)
    done = _shortened(done, config, keep=max(config.keep_results, unseen), need=done.size - limits.target)
    if done.size <= enough:
        return done
    newest = size_of(done.messages[len(done.messages) - unseen :])
    if newest > (share := max(int(limits.most * NEWEST), enough - (done.size - newest))):
        done = _with(done, *filled_up(done.messages, done.size - newest + share, config.result_chars))
    if done.size <= enough:
        return done
    if summarise is not None:
        done = await _summarised(done, limits, summarise)
        if done.size <= enough:
            return done
    done = _shortened(done, config, keep=unseen, need=done.size - limits.target)
    if done.size <= enough:
        return done
    kept, cut = cut_old_turns(done.messages, done.size - limits.target)
    done = _with(done, kept, cut=cut)
    if done.size <= enough:
        return done
    kept, dropped = drop_oldest(done.messages, limits.target)
    done = _with(done, kept, dropped=dropped)
    if done.size > limits.most:
        done = _with(done, *filled_up(done.messages, enough, config.result_chars))
    if done.size > limits.most:
        done = _with(done, shorten_arguments(done.messages, config.result_chars))
    return done


def _last_round(messages: Sequence[Message]) -> int:
    """How many results answer the model's last calls."""
    count = 0
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        count += 1
    return count


def _with(done: Compacted, messages: list[Message], shortened: int = 0, *, cut: int = 0, dropped: int = 0) -> Compacted:
    """Returns `done` shortened further, or unchanged if nothing was gained."""
    if size_of(messages) >= done.size:
        return done
    return msgspec.structs.replace(
        done,
        messages=messages,
        shortened=done.shortened + shortened,
        cut=done.cut + cut,
        dropped=done.dropped + dropped,
    )


def _shortened(done: Compacted, config: CompactionConfig, *, keep: int, need: int) -> Compacted:
    messages, count = shorten_results(done.messages, keep=keep, chars=config.result_chars, need=need)
    return _with(done, messages, count)


# --- shorten old results -----------------------------------------------------------------------------------------


def shorten_results(messages: Sequence[Message], *, keep: int, chars: int, need: int) -> tuple[list[Message], int]:
    """Cuts tool results, the oldest first, to `chars` characters until `need` characters are gained; the `keep` newest
    stay. Returns how many were cut."""
    result = list(messages)
    places = [at for at, message in enumerate(result) if isinstance(message, ToolMessage)]
    count = gained = 0
    for at in places[: max(0, len(places) - keep)]:
        if gained >= need:
            break
        message = result[at]
        assert isinstance(message, ToolMessage)
        shorter = _shorter(message, chars)
        gain = characters(message) - characters(shorter)
        if gain > 0:
            result[at], count, gained = shorter, count + 1, gained + gain
    return result, count


def _shorter(message: ToolMessage, chars: int, note: str = SHORTENED) -> ToolMessage:
    """Cut at the end of a line, if there is one near."""
    text = text_of(message)
    media = any(not isinstance(part, TextPart) for part in message.content)
    references = [line for line in text.splitlines()[-8:] if "overflow:" in line][-1:]
    if len(text) > chars + SLACK:
        chars = text.rfind("\n", chars // 2, chars) if "\n" in text[chars // 2 : chars] else chars
        text = text[:chars] + note.format(len(text) - chars)
        text = "\n".join([text, *(line for line in references if line not in text)])
    return ToolMessage(message.call_id, message.name, (TextPart(f"{text}\n{NO_MEDIA}" if media else text),))


def filled_up(messages: Sequence[Message], most: int, least: int) -> tuple[list[Message], int]:
    """Cuts the results of the last round, which the model has not seen yet, so that all messages have `most`
    characters: the longest ones, and each to what fits, but to no less than `least`. Returns how many were cut."""
    result = list(messages)
    places = range(len(result) - _last_round(result), len(result))
    texts = {at: message for at in places if isinstance(message := result[at], ToolMessage)}
    sizes = [characters(message) for message in texts.values()]
    share = _share(sizes, most - (size_of(result) - sum(sizes)))
    count = 0
    for at, message in texts.items():
        if characters(message) > max(share, least):
            shorter = _shorter(message, max(share - SLACK, least), UNSEEN)
            if characters(shorter) < characters(message):
                result[at], count = shorter, count + 1
    return result, count


def _share(sizes: Iterable[int], room: int) -> int:
    """To what size the longest of these are to be cut, so that all fit into `room`."""
    ordered = sorted(sizes)
    share = 0
    for number, size in enumerate(ordered):
        share = max(room, 0) // (len(ordered) - number)
        if size > share:
            break
        room -= size
    return share


def shorten_arguments(messages: Sequence[Message], chars: int, *, answered: bool = True) -> list[Message]:
    """Replaces the arguments of calls that are longer than `chars` with JSON that says what is missing. `answered`:
    only of calls that have an answer."""
    known = {message.call_id for message in messages if isinstance(message, ToolMessage)}

    def shorter(call: ToolUse) -> ToolUse:
        if len(call.arguments) <= chars + SLACK or (answered and call.id not in known):
            return call
        return ToolUse(call.id, call.name, json.dumps({"left_out": ARGUMENTS.format(len(call.arguments))}))

    return [
        msgspec.structs.replace(message, tool_calls=tuple(shorter(call) for call in message.tool_calls))
        if isinstance(message, AssistantMessage) and message.tool_calls
        else message
        for message in messages
    ]


# --- summarise ---------------------------------------------------------------------------------------------------


async def _summarised(done: Compacted, limits: Limits, summarise: Summarise) -> Compacted:
    head, rest = opened(done.messages)
    old, new = split(rest, int(limits.target * RECENT))
    if len(old) < FEWEST_TO_SUMMARISE:
        return done
    try:
        summary = await summarise(condensed([*head.messages(), *old], limits.target))
    except ProviderError as error:
        log.warning("the conversation could not be summarised: %s", error)
        return msgspec.structs.replace(done, trouble=str(error))
    if not summary:
        return msgspec.structs.replace(done, trouble="the model returned no summary")
    prompt = _prompt_of(old, new)
    summary = bounded(summary, max(int(limits.target * OF_SUMMARY), 200))
    head = msgspec.structs.replace(head.after(old, prompt), summary=summary, dropped=0)
    messages = list(History([*head.messages(), *prompt, *new]).messages)
    if size_of(messages) >= done.size:
        return msgspec.structs.replace(done, trouble="the summary was not shorter than the conversation")
    return msgspec.structs.replace(done, messages=messages, summarised=len(old), summary=summary)


def condensed(messages: Sequence[Message], room: int) -> list[Message]:
    """The messages with the longest ones shortened, all to the same size, so that they fit into `room` characters, as
    far as that can be: none is left out. The head of a conversation stays."""
    head, rest = opened(messages)
    begun = head.messages()
    room -= size_of(begun)
    if size_of(rest) <= room:
        return list(messages)
    share = _share(map(characters, rest), room)
    return list(History([*begun, *(_condensed(message, share) for message in rest)]).messages)


def _condensed(message: Message, share: int) -> Message:
    if characters(message) <= share:
        return message
    chars = max(share - MESSAGE_CHARS, 1)
    if isinstance(message, ToolMessage):
        return _shorter(message, max(chars - SLACK, 1))
    if isinstance(message, UserMessage):
        return UserMessage((TextPart(bounded(words_of(message), chars)),), message.own)
    calls = shorten_arguments([message], max(chars // 2, 1), answered=False)[0]
    assert isinstance(calls, AssistantMessage)
    return msgspec.structs.replace(calls, text=bounded(message.text, max(chars // 2, 1)))


def split(messages: Sequence[Message], room: int) -> tuple[list[Message], list[Message]]:
    """The old and the new messages: the new have at most `room` characters, but always what follows the last message
    of the model that has no answer yet, and begin where a turn or a round of calls begins."""
    at = len(messages)
    size = 0
    for index in range(len(messages) - 1, -1, -1):
        size += characters(messages[index])
        if size > room and at < len(messages):
            break
        if not isinstance(messages[index], ToolMessage):
            at = index
    return list(messages[:at]), list(messages[at:])


def _prompt_of(old: Sequence[Message], new: Sequence[Message]) -> Sequence[Message]:
    """The prompt that the new messages answer, where it is among the old ones."""
    if new and is_prompt(new[0]):
        return []
    return list(filter(is_prompt, old))[-1:]


async def summarise(model: Answers, messages: Sequence[Message], settings: ModelSettings) -> str:
    """The model's own summary of the conversation. Raises ProviderError."""
    request = Path(__file__).with_name("compaction.md").read_text(encoding="utf-8")
    asked = History(messages)
    asked.close_calls()
    asked.add(UserMessage((TextPart(request),)))
    said: list[str] = []
    async with aclosing(model.stream(asked.messages, (), settings)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                said.append(event.text)
    return "".join(said).strip()


# --- leave out the oldest ----------------------------------------------------------------------------------------


def cut_old_turns(messages: Sequence[Message], need: int) -> tuple[list[Message], int]:
    """Of old turns, the oldest first, keeps the prompt and the last words, until `need` characters are gained; the
    newest turn stays. Returns how many turns were cut."""
    head, rest = opened(messages)
    prompts = [at for at, message in enumerate(rest) if is_prompt(message)]
    kept, gone = list(rest[: prompts[0]] if prompts else rest), list[Message]()
    count = gained = left_out = 0
    for begin, end in pairwise(prompts):
        turn = list(rest[begin:end])
        short = _short_turn(turn) if gained < need else turn
        if (gain := size_of(turn) - size_of(short)) > 0:
            gained, count, left_out = gained + gain, count + 1, left_out + len(turn) - len(short)
            gone += turn
            turn = short
        kept += turn
    kept += rest[prompts[-1] :] if prompts else []
    if not gone:
        return list(messages), 0
    return list(History([*head.after(gone, kept, left_out).messages(), *kept]).messages), count


def _short_turn(turn: Sequence[Message]) -> list[Message]:
    prompt = UserMessage((TextPart(bounded(words_of(turn[0]), OLD_WORDS)),))
    last = last_words(turn)
    return [prompt, *([AssistantMessage(bounded(last, OLD_WORDS))] if last else [])]


def drop_oldest(messages: Sequence[Message], room: int) -> tuple[list[Message], int]:
    """Keeps the newest messages that fit into `room` characters, and the head of the conversation with a note of what
    is missing; the last prompt and the last round of calls always stay. Returns how many were dropped."""
    if size_of(messages) <= room:
        return list(messages), 0
    head, rest = opened(messages)
    prompt = max((at for at, message in enumerate(rest) if is_prompt(message)), default=-1)
    fixed = [rest[prompt]] if prompt >= 0 else []
    room -= size_of(fixed) + size_of(head.after(rest, fixed).messages()) + len(DROPPED) + 8
    at = _begin(rest, room, after=prompt)
    if at <= prompt + 1:  # The whole last turn fits: so do earlier turns, as far as there is space.
        at = _begin(rest, room + size_of(fixed), after=-1)
        at = next((index for index in range(at, prompt + 1) if is_prompt(rest[index])), prompt)
        kept = list(rest[max(at, 0) :])
    else:
        kept = [*fixed, *rest[at:]]
    if not (dropped := len(rest) - len(kept)):
        return list(messages), 0
    head = head.after(rest[: dropped + len(fixed)], kept, dropped)
    return list(History([*head.messages(), *kept]).messages), dropped


def _begin(messages: Sequence[Message], room: int, *, after: int) -> int:
    """Where the newest messages after `after` that fit into `room` begin: at least the last round."""
    begin = size = 0
    found = False
    for index in range(len(messages) - 1, after, -1):
        size += characters(messages[index])
        if found and size > room:
            return begin
        if not isinstance(messages[index], ToolMessage):
            begin, found = index, True
    return begin if found else after + 1


def floor_chars(messages: Sequence[Message]) -> int:
    """Returns the size of what no step can leave out: the head and the last prompt."""
    head, rest = opened(messages)
    last = next(filter(is_prompt, reversed(rest)), None)
    return size_of(head.messages()) + (0 if last is None else characters(last))


# --- what a server says ------------------------------------------------------------------------------------------

LIMIT = (
    r"(?i)(?:context|model|token)s?[ _-](?:window|length|size|limit)\D{0,40}?(\d[\d,_]{2,})"
    r"|(\d[\d,_]{2,})\s*(?:tokens?\s*)?(?:maximum|max\b)|max(?:imum)?\D{0,40}?(\d[\d,_]{2,})"
)


def window_of(error: ProviderError) -> int | None:
    """The window in tokens that a rejection names."""
    found = re.search(LIMIT, str(error))
    if found is None:
        return None
    digits = next(group for group in found.groups() if group)
    return int(re.sub(r"[,_]", "", digits)) or None
