"""The log with what was taken back left out: against a list of prompts that is really cut."""

import random

import msgspec
import pytest

from acp_agent.llm.base import AssistantMessage, Message, TextPart, UserMessage
from acp_agent.loop.memory import rewinding
from acp_agent.loop.memory.history import History
from acp_agent.loop.memory.replay import history_of, rebuild_history, replayed_updates
from acp_agent.protocol.codec import encode
from acp_agent.store.base import LogEntry


def turn(number: int, *, command: bool = False) -> list[LogEntry]:
    words = f"/undo {number}" if command else f"prompt {number}"
    return [
        LogEntry("turn", encode(rewinding.TurnMark(number, f"id {number}", "", command))),
        LogEntry("update", encode(chunk("user_message_chunk", words, f"id {number}"))),
    ]


def chunk(kind: str, text: str, message_id: str) -> dict[str, object]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, "messageId": message_id}


def said(text: str) -> LogEntry:
    return LogEntry("update", encode(chunk("agent_message_chunk", text, text)))


def message(one: Message) -> LogEntry:
    return LogEntry("message", encode(one))


def answered(number: int) -> list[LogEntry]:
    user, answer = UserMessage((TextPart(f"prompt {number}"),)), AssistantMessage(f"answer {number}")
    return [*turn(number), message(user), said(f"answer {number}"), message(answer)]


def rewind(to: int) -> LogEntry:
    return LogEntry("rewind", encode(rewinding.RewindMark(to)))


def texts(history: History) -> list[bytes]:
    return [encode(each) for each in history.messages]


def test_what_is_left_is_what_was_there_before() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        log: list[LogEntry] = []
        snapshots: dict[int, list[bytes]] = {}
        undone: list[tuple[int, list[bytes]]] = []
        for number in range(1, chance.randint(2, 12)):
            match chance.choice(["prompt", "prompt", "prompt", "reset", "rewind", "unrewind", "help"]):
                case "prompt":
                    snapshots[number] = texts(history_of(log))
                    log += answered(number)
                    undone.clear()
                case "reset":
                    log.append(LogEntry("reset", encode([UserMessage((TextPart("summary"),))])))
                    undone.clear()
                case "help":
                    log += [*turn(number, command=True), said("the commands are")]
                case "rewind":
                    now = texts(history_of(log))
                    to = chance.choice([0, *snapshots])
                    log += turn(number, command=True)
                    try:
                        rewinding.check_rewind(log, to)
                    except rewinding.RewindError:
                        continue
                    log += [rewind(to), said("taken back")]
                    undone.append((to, now))
                    assert texts(history_of(log)) == snapshots[to]
                case "unrewind":
                    log += turn(number, command=True)
                    try:
                        rewinding.check_unrewind(log, undone[-1][0] if undone else chance.choice([0, *snapshots]))
                    except rewinding.RewindError:
                        assert not undone
                        continue
                    log.append(LogEntry("unrewind", b"{}"))
                    assert texts(history_of(log)) == undone.pop()[1]
            history, repaired = rebuild_history(log)
            assert (texts(history), repaired) == (texts(history_of(log)), []), "a restart changes nothing"
            replayed_updates(log)


def test_a_commands_answer_never_becomes_the_models_words() -> None:
    user = message(UserMessage((TextPart("prompt 1"),)))
    log = [*turn(1), user, *turn(2, command=True), said("Commands: ..."), *answered(3)]
    history, repaired = rebuild_history([*log, rewind(3), said("Taken back.")])
    assert (texts(history), repaired) == ([user.payload], [])
    rewinding.check_unrewind([*log, rewind(3)], 3)
    with pytest.raises(rewinding.RewindError, match="more of it was taken back since"):
        rewinding.check_unrewind([*log, rewind(3), rewind(1)], 3)


def test_words_that_a_killed_agent_had_said_are_kept() -> None:
    history, repaired = rebuild_history([*turn(1), message(UserMessage((TextPart("prompt 1"),))), said("half an ans")])
    assert repaired == [AssistantMessage("half an ans")] and len(history.messages) == 2


def test_prompts_have_their_first_words_and_are_known_as_cut() -> None:
    log = [*answered(1), *answered(2), *turn(3, command=True), rewind(2)]
    assert [(each.number, each.title, each.message_id, each.cut) for each in rewinding.prompts_of(log)] == [
        (1, "prompt 1", "id 1", False), (2, "prompt 2", "id 2", True), (3, "/undo 3", "id 3", True),
    ]  # fmt: skip


def test_notes_wait_for_the_next_prompt() -> None:
    note = LogEntry("note", msgspec.json.encode("files were restored"))
    assert rewinding.pending_notes([*answered(1), note]) == ["files were restored"]
    assert rewinding.pending_notes([*answered(1), note, *answered(2)]) == []


def test_the_log_before_a_prompt() -> None:
    assert rewinding.before([*answered(1), *answered(2)], 2) == answered(1)
    with pytest.raises(rewinding.RewindError, match="no prompt 7"):
        rewinding.before(answered(1), 7)


def test_the_log_without_the_prompt_that_runs_is_what_is_left_also_if_that_cut_itself_off() -> None:
    done = [*answered(1), *answered(2)]
    assert rewinding.finished_before([*done, *turn(3)], 3) == done == rewinding.finished_before(done, 0)
    undoing = [*done, *turn(3, command=True), rewind(2)]
    assert rewinding.finished_before(undoing, 3) == [*answered(1), rewind(2)]
    with pytest.raises(rewinding.RewindError):
        rewinding.before(undoing, 3)
