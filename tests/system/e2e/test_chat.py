"""The chat, in a real terminal: a pty, and `pyte` as what draws it."""

import re
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel
from tests.e2e.kit import COMMAND, alive, configured
from tests.e2e.test_chat import SECONDS, Tty, asked, chat

DRAWN = "\x1b[?25l"
"""The cursor is hidden while the live part is drawn."""


async def test_while_it_works_enter_joins_the_turn_tab_waits_and_escape_gives_the_words_back(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("third\r", "❯ third", "Working")
        anyio.from_thread.run(model.wait_for_request, 1)
        tty.type("more\r", "at its next step: more")
        tty.type("\x1b")
        tty.until(
            "Stopped", lambda text: [line.strip() for line in text.rstrip().split("\n")[-3:-1]] == ["❯ third", "more"]
        )
        tty.type("\x03", lambda text: text.rstrip().split("\n")[-2] == "❯")
        tty.type("first\r", "❯ first", "Working")
        anyio.from_thread.run(model.wait_for_request, 2)
        tty.type("joined\r", "at its next step: joined")
        tty.type("queued\t", "after this turn: queued")
        anyio.from_thread.run_sync(model.release)
        tty.until(
            "❯ joined", "Two.", "❯ queued", lambda text: " tokens · " in text.rpartition("Two.")[2]
        )  # It has ended.
        assert "joined" in asked(model, 2) and "queued" not in asked(model, 2) and "queued" in asked(model, 3)
        tty.type("left\x03", lambda text: text.rstrip().split("\n")[-2] == "❯")
        tty.type("\x03", "Ctrl-C again leaves")
        tty.type("\x03")
        assert tty.ended() == 0

    slow = Answer(text="One.", hang_before=True, tool_calls=(Call("list_directory", {}),))
    await chat(tmp_path, [Answer(text="never", hang_before=True), slow, "Joined.", "Two."], walk)


async def test_sessions_are_gone_on_with_modes_change_and_folded_text_opens(tmp_path):
    def first(tty: Tty, model: FakeModel) -> None:
        tty.until("Seen.", "● Read 30 lines of long.txt")
        assert "line 7" not in tty.text
        tty.type("\x0f", "│ ", "line 7")
        tty.type("\x1b[Z", "auto · fake-model")
        tty.type("/help\r", "What is allowed", "Shift-Tab", "/resume")
        tty.type("/exit\r")
        assert tty.ended() == 0
        assert "Continue with: acp-coder --session" in tty.text

    def second(tty: Tty, model: FakeModel) -> None:
        tty.until("That was the conversation so far.", "❯ look at @long.txt", "Seen.")
        tty.type("!echo mine\r", "exit code 0")
        tty.type("/mod", "Pick a model")
        tty.type("\x15and\r", "Again.")
        assert "The user ran `echo mine` (exit code 0)" in asked(model, 0)

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "long.txt").write_text("".join(f"line {number}\n" for number in range(30)))
    read = Answer(tool_calls=(Call("read", {"path": "long.txt"}),))
    await chat(tmp_path, [read, "Seen."], first, "look at @long.txt")
    await chat(tmp_path, ["Again."], second, "-c")


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"LANG": "C", "LC_ALL": "C"}, {"TERM": "dumb"}], ids=str)
async def test_a_narrow_or_simple_terminal_gets_what_it_can_show(tmp_path, more):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("/help")
        tty.type("go\r", "Make this change?")
        if "TERM" in more:
            tty.until("Your answer:")
            tty.type("y\r")
        else:
            tty.until("a digit")
            assert "  2. Always allow edits in this project\n     (a)\n" in tty.text, "what is too long goes on below"
            tty.resize(60, 20)
            tty.type("\x1b[A\x1b[A\r")
        tty.until("1 file changed: n.txt", "All done.")
        assert ("LANG" in more) == bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", tty.raw)), "no colours"
        if "TERM" in more:
            tty.type("think\r", "Thought for 0 s (/unfold)", "Thought.")
            tty.type("/unfold\r", "│ A deep thought.")
            assert "\x1b" not in tty.raw
        elif "LANG" in more:
            assert tty.text.isascii() and "* Wrote n.txt +1 -0" in tty.text
        tty.type("\x04")
        assert tty.ended() == 0

    write = Answer(text="I write it.", tool_calls=(Call("write", {"path": "n.txt", "content": "new\n"}),))
    thought = Answer(thought="A deep thought.", text="Thought.")
    await chat(tmp_path, [write, "All done.", thought], walk, columns=40, **more)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_it_is_stopped_and_goes_on_and_leaves_nothing_when_its_terminal_goes_away(tmp_path):
    left: list[int] = []

    def walk(tty: Tty, model: FakeModel) -> None:
        tty.type(f"{COMMAND}\r", "code · fake-model")
        tty.type("half a pro", "❯ half a pro")
        tty.type("\x1a", "Stopped")
        tty.type("fg\r", lambda text: text.rsplit("Stopped", 1)[1].count("❯ half a pro") == 1)
        tty.type("mpt\r", "❯ half a prompt", "Working")
        left.extend(children(tty.pid))
        left.extend(each for pid in [*left] for each in children(pid))
        assert len(left) == 2

    await chat(tmp_path, [Answer(text="never", hang_before=True)], walk, program=("bash", "--norc", "-i"))
    with anyio.fail_after(SECONDS):
        while any(map(alive, left)):
            await anyio.sleep(0.01)


async def test_a_limit_of_the_server_is_waited_out_where_the_user_sees_it_and_errors_name_the_server(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("go\r", "Retrying in 3 s (1 of 10), Esc stops. The server limits requests.")
        tty.until("At last.", "❯\ncode ·")
        assert "Retrying" not in tty.text
        tty.type("again\r")
        where = model.base_url.removeprefix("http://").removesuffix("/v1")
        tty.until(f'The server at {where} refused the API key (HTTP 401): "bad key".')
        tty.type("/new\r", lambda text: text.count("acp-coder in ") == 2)
        tty.type("third\r", lambda text: text.count("refused the API key") == 2)
        tty.type("/resume\r")
        tty.until("Continue which session?", "1. ", "  go", "a digit, a letter", lambda text: "2. " not in text)
        tty.type("\x1b", lambda text: "a digit, a letter" not in text)
        tty.type("\x04")
        assert tty.ended() == 0 and "Continue with: " not in tty.text

    limit = Failure(429, {"error": {"message": "Rate limit reached. Please try again in 3s."}})
    await chat(tmp_path, [limit, "At last.", *[Failure(401, {"error": {"message": "bad key"}})] * 2], walk)


async def test_it_rings_if_that_is_configured_and_a_paste_is_a_placeholder(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("\x1b[200~" + "".join(f"pasted {number}\n" for number in range(20)) + "\x1b[201~")
        tty.until("[pasted text 1: 21 lines,")
        assert "\a" not in tty.raw
        tty.type(" is what?\r", "Fine.", lambda _: "\a" in tty.raw)
        assert "pasted 7\\npasted 8" in asked(model, 0)
        tty.type("\x1b[A")
        tty.until(lambda text: text.count("pasted 19") == 2)  # From the history.

    await chat(tmp_path, ["Fine."], walk, **configured(tmp_path, '[terminal]\nnotify = "bell"\n'))


async def test_sessions_models_files_and_an_editor_are_picked_by_keys(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        model.models = ("fake-model", "other-model")
        tty.until("code · fake-model")
        tty.type("first words\r", "One.", " tokens · ")
        tty.type("/new\r", lambda text: text.count("acp-coder in ") == 2)
        tty.type("/resume\r", "Continue which session?", "  first words", "a digit, a letter")
        tty.type("1", "That was the conversation so far.", lambda text: text.count("❯ first words") == 2)
        tty.type("look at @dee", "inner/deep.txt")
        tty.type("\t", "❯ look at @inner/deep.txt")
        tty.type("and @nothere.\r")
        tty.until("❯ look at @inner/deep.txt and @nothere.", "@nothere: no such file, sent as words", "Two.")
        said = asked(model, 1)
        assert "first words" in said and "look at @inner/deep.txt" in said and "[deep.txt](/" in said
        tty.type("/cos", "  /cost  ")
        tty.type("\t", "❯ /cost")
        tty.type("\r", "Today, all sessions: ", lambda text: text.rstrip().split("\n")[-2] == "❯")
        assert re.search(r"^\d+ s$", tty.text, re.MULTILINE) is None  # A command has no closing line.
        tty.type("/model\r", "Which model?", "fake-model", "other-model", "a digit, a letter")
        tty.type("\x1b[B\r", "code · other-model")
        tty.type("typed \x07", "❯ typed and edited")
        tty.type("\r", "Three.")
        assert model.requests[2].body["model"] == "other-model" and "typed and edited" in asked(model, 2)
        tty.type("\x04")
        assert tty.ended() == 0

    (tmp_path / "project" / "inner").mkdir(parents=True)
    (tmp_path / "project" / "inner" / "deep.txt").write_text("deep words\n")
    (editor := tmp_path / "editor").write_text('#!/bin/sh\nprintf "and edited" >> "$1"\n')
    editor.chmod(0o755)
    await chat(tmp_path, ["One.", "Two.", "Three."], walk, EDITOR=str(editor), VISUAL="")


async def test_many_deltas_are_drawn_a_few_times_a_second(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        before = tty.raw.count(DRAWN)
        tty.type("go\r", "1999", " tokens · ")
        drawn = tty.raw.count(DRAWN) - before
        assert 2 <= drawn < 200, "not once for each delta"

    await chat(tmp_path, [Answer(deltas=2_000, delta_text="{number} ", interval_ms=1)], walk)


ASKS = (
    Call("ask_user", {"question": "Which way?", "choices": ["Left", "Right"]}),
    Call("ask_user", {"question": "What else?", "choices": ["Tests", "Docs"], "several": True}),
    Call("ask_user", {"question": "What name?"}),
)


async def test_forms_are_filled_and_the_terminal_is_told_when_it_waits(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("go\r", "Which way?", "1. Left", "a digit, a letter", lambda _: "\x1b]9;acp-coder: " in tty.raw)
        tty.type("2", "What else?", "[ ] Docs", "Space marks")
        tty.type("\x1b[B ", "[x] Docs")
        tty.type("\r", "What name?", "Enter sends, Esc does not answer")
        tty.type("Ada\r", "Thanks.", "↳ Right", "↳ Docs", "↳ Ada", lambda _: "\x1b]9;acp-coder: done\a" in tty.raw)
        said = asked(model, 3)
        assert all(f"The user answered: {each}" in said for each in ("Right", "Docs", "Ada"))
        assert "Ask: " not in tty.text, "a question is said once"
        tty.type("\x04")
        assert tty.ended() == 0

    await chat(
        tmp_path,
        [*(Answer(tool_calls=(each,)) for each in ASKS), "Thanks."],
        walk,
        **configured(tmp_path, '[terminal]\nnotify = "osc9"\n'),
    )


async def test_vi_keys_edit_the_input_if_they_are_configured(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        tty.type("wrong words", "❯ wrong words")
        tty.type("\x1b")
        tty.type("0ceright", "❯ right words")
        tty.type("\x1bA here\r", "Fine.")
        assert "right words here" in asked(model, 0)
        tty.type("go\r", "❯ go", "Working")
        tty.type("\x1b\x1b", "Stopped", lambda text: text.rstrip().split("\n")[-2] == "❯ go")
        tty.type("\x03", lambda text: text.rstrip().split("\n")[-2] == "❯")
        tty.type("\x04")
        assert tty.ended() == 0

    slow = Answer(text="never", hang_before=True)
    await chat(tmp_path, ["Fine.", slow], walk, **configured(tmp_path, '[terminal]\nkeys = "vi"\n'))


async def test_a_sentence_typed_at_a_question_answers_nothing_and_always_needs_enter(tmp_path):
    def walk(tty: Tty, model: FakeModel) -> None:
        tty.until("code · fake-model")
        for number, words in enumerate(("what does that do?", "also do x", "yes but why", "1 or 2", "no idea", "xyz")):
            if not number:
                tty.type("go\r")
            tty.until("Run this?", "a digit, a letter, or arrows and Enter")
            tty.type(words, f"❯ {words}", "Keys go into the input")
            assert "↳" not in tty.text and model.requests[1:] == []
            tty.type("\x15")
        tty.until("a digit, a letter, or arrows and Enter")
        tty.type("\x1b[200~a pasted\rline\x1b[201~", "❯ a pasted", "Keys go into the input")
        tty.type("\x15\x15\x7f\x15", "a digit, a letter, or arrows and Enter")
        tty.type("a", "❯ 2. Always allow `mkdir` commands in this project")
        assert "↳" not in tty.text and not (tmp_path / "project" / "new").exists()
        tty.type("\r", "↳ Always allow `mkdir`", "Done.")
        assert (tmp_path / "project" / "new").is_dir()
        tty.type("\x04")
        assert tty.ended() == 0

    make = Answer(tool_calls=(Call("bash", {"command": "mkdir new"}),))
    await chat(tmp_path, [make, "Done."], walk)
