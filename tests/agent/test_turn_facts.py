"""What a turn did by the program's own observation: told with the results of commands, at the end, and to the user."""

import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import allow_always, reject_once
from acp_agent.fronts.headless import Ended
from acp_agent.loop.turn_facts import ASKS, WANTS, TurnFacts, _alters, _claims
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.examine import examine
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import asks, bash, put, rig, rounds, went
from tests.agent.test_hooks_that_decide import hook
from tests.agent.test_mcp import server
from tests.tables import table

FILES = {"config.json": '{"port": 8080}\n', "old.txt": "one\ntwo\n"}
NO_EDIT = Call("edit", {"path": "config.json", "old_string": "port: 1", "new_string": "port: 2"})


def last_tool(r: Any, number: int) -> str:
    return [str(each["content"]) for each in r.messages(number) if each["role"] == "tool"][-1]


@table(("line", "told"), [
    ("sed -i 's/8080/9090/' config.json", "[changed: config.json +1 -1]"),
    ("sed -i 's/port: 8080/port: 9090/' config.json", "[no file changed]"),
    ("printf 'a\\nb\\n' > new.txt; rm old.txt", "[created: new.txt; deleted: old.txt]"),
    ("find . -name '*.log' -delete", "[no file changed]"),
    ("mkdir -p .cache node_modules && touch .cache/x node_modules/y made", "[created: made]"),
    ("for n in 1 2 3 4 5 6 7; do echo $n > f$n; done", "[created: f1, f2, f3, f4, f5 and 2 more]"),
    ("chmod +x config.json", "[changed: config.json (mode)]"), ("sed -i s/1/2/ ../elsewhere; true", ""),
    ("cd /tmp && sed -i s/no-such-word/b/ no-such-file-here", ""), ("sed -i s/a/b/ out/f", ""),
    ("echo x > /dev/null", ""), ("git stash", ""), ("touch old.txt", ""), ("rm -f $HOME/x", ""),
    ("(true; rm -f x) &", ""), ("cat config.json", ""), ("test -f config.json", ""),
])  # fmt: skip
async def test_a_commands_result_says_what_it_changed(tmp_path, again, line, told):
    def linked(project: Path) -> None:
        put(tmp_path / "outside" / "f", "x\n")
        (project / "out").symlink_to(tmp_path / "outside")

    async with again(rounds(bash(line)), mode="auto", files=FILES, before=linked) as r:
        text = last_tool(r, 2)
        assert told in text if told else re.search(r"\[(?:no file|changed|created|deleted)", text) is None, text


async def turn(tmp_path, *answers: Answer | str, **more: Any) -> tuple[Any, list[str]]:
    """The rig after a prompt, and the last message of each request."""
    more = {"mode": "auto", "prompt": "Set the port to 9090.", "files": FILES, "finish_check": True} | more
    async with went(tmp_path, list(answers), **more) as r:
        return r, [str(each["content"]) for body in r.model.requests for each in body.body["messages"][-1:]]


@pytest.mark.parametrize(("answers", "told"), [
    (["I have changed the port to 9090."], "[No file has been changed in this turn. Go on, or tell the user"),
    (["Done."], "[No file has been changed in this turn. Go on"), (["Updated the port."], "[No file has been changed "),
    (["I will set the port to 9090."], "Answer with a tool call"),
    (["Use this:\n\n```bash\nsed -i s/8080/9090/ config.json\n```\nIt sets the port."], "Answer with a tool call"),
    (["To do that, you need to edit config.json."], "Answer with a tool call"),
    ([asks(NO_EDIT), "The port was updated."], "; the last change failed: "),
    ([asks(NO_EDIT), "I could not find it."], "the last change failed: "),
    ([asks(Call("rename_all", {"a": 1})), "Renamed."], "the last change failed: rename_all"),
    ([asks(bash("sed -i s/8080/9090/ config.json")), asks(NO_EDIT), "All done."], "[The last change failed: "),
])  # fmt: skip
async def test_before_a_turn_ends_the_model_is_told_once_what_was_not_done(tmp_path, answers, told):
    r, last = await turn(tmp_path, *answers, "It is not done: there is no such text.")
    assert told in last[-1]
    assert len(r.model.requests) == len(answers) + 1, "once a turn"
    assert len(re.findall("No file has been changed|The last change failed", r.editor.text())) == 1


async def test_an_announcement_is_no_answer(tmp_path):
    r, last = await turn(tmp_path, "I will look at the file.", "It is 8080.", prompt="What is the port?")
    assert "The user asked: What is the port?]" in last[-1] and "o file has been changed" not in r.editor.text()


async def test_who_goes_on_is_not_contradicted(tmp_path):
    fix = asks(Call("write", {"path": "config.json", "content": '{"port": 9090}\n'}))
    r, _ = await turn(
        tmp_path, "I have changed the port.", asks(Call("read", {"path": "config.json"})), fix, "Now I did."
    )
    assert len(r.model.requests) == 4
    assert "No file" not in r.editor.text()


@pytest.mark.parametrize(("answers", "more"), [
    (["The port was changed in May."], {"prompt": "When was the port changed?"}), (["I will not do that."], {}),
    (["I'll set it once you tell me which file."], {}), (["Use `sed -n 1p`."], {"prompt": "How do I see it?"}),
    (["I'll remember that."], {"prompt": "Tabs, from now on."}),
    (["It was added by Ann."], {"prompt": "Explain this file."}), (["I looked at it."], {}),
    (["Done."], {"prompt": "Run the tests."}),
    ([asks(bash("sed -i s/8080/9090/ config.json")), "I have changed the port."], {}),
    ([asks(Call("write", {"path": "x", "content": "x"})), "I have added x."], {}),
    (["I have changed the port."], {"mode": "ask"}), (["I have changed the port."], {"finish_check": False}),
    ([asks(bash("sh x.sh")), "I have changed the port."], {"config": "[undo]\nenabled = false\n"}),
    ([asks(bash("git init -q; git branch topic")), "I have created the branch."], {"prompt": "Create a branch."}),
    ([asks(bash("true; sleep 9", background=True)), "I have created it."], {"prompt": "Create the build."}),
    ([asks(NO_EDIT), asks(bash("python3 -c pass")), "I have changed it."], {}),
    ([asks(NO_EDIT), asks(Call("ask_user", {"question": "Which?"}))], {"permissions": [], "elicitation": False}),
    ([asks(bash("pytest > /dev/shm/no/such/log")), "The tests do not run."], {"prompt": "Run the tests."}),
    ([asks(bash("printf 'exit 1' > t.sh; sh t.sh")), "It fails."], {"prompt": "Write a test."}),
    (["Nothing was changed: I need the file's name."], {}),
    ([asks(NO_EDIT), asks(bash("sed -i s/8080/9090/ config.json")), "I have changed it."], {}),
])  # fmt: skip
async def test_words_that_are_true_or_claim_nothing_cost_no_request(tmp_path, answers, more):
    r, _ = await turn(tmp_path, *answers, **more)
    assert len(r.model.requests) == len(answers)
    assert "o file has been changed" not in r.editor.text()


SMALL = {"config": "[providers.default]\ncontext_window = 16_000\n"}
SET = {"path": "config.json", "old_string": "8080", "new_string": "9090"}
SHOWN = f'You can use:\n\n```json\n{{"name": "edit", "arguments": {json.dumps(SET)}}}\n```\nThis sets it.'


NO_CHANGE, NO_CALL = "[No file has been changed in this turn", "[No tool has been called in this turn"


@pytest.mark.parametrize(("prompt", "said", "told"), [
    ("Set the port in config.json to 9090.", "I found the port in config.json.", NO_CHANGE),
    ("Fix the file.", "There is nothing that I can do.", NO_CHANGE),
    ("How many lines has old.txt?", "I called `read`. There are 2 lines.", NO_CALL),
    ("What is in old.txt?", "I have just run `cat`:\n\n```\none\n```", NO_CALL),
    ("What does `print(5)` print?", "The output is 5.", ""),
    ("Make an overview of the files.", "config.json is the configuration.", ""),
    ("Change old.txt and tell me what is in it.", "It has two lines.", ""),
    ("Set the port in config.json to 9090.", f"I found it. {'x' * 600}", ""),
    ("Set the port in config.json.", "To which number?", ""), ("Write a poem.", "Roses are red.", ""),
    ("How are you?", "Fine.", ""), ("What is 2 + 2?", "4", ""),
])  # fmt: skip
async def test_a_small_model_that_does_nothing_or_tells_of_calls_is_asked_for_one(tmp_path, prompt, said, told):
    answers = [said, "As I said."] if told else [said]
    r, last = await turn(tmp_path, *answers, prompt=prompt, **SMALL)
    assert len(r.model.requests) == len(answers)
    if told:
        assert (
            told in last[-1]
            and f"Answer with a tool call, or tell the user what is not done. The user asked: {prompt}" in last[-1]
        )
        assert said not in str(r.messages(2)), "it would say the same again"
    (tmp_path / "large").mkdir()
    r, _ = await turn(tmp_path / "large", said, prompt=prompt)
    assert len(r.model.requests) == 1, "a larger one is believed"


async def test_a_call_of_an_earlier_turn_may_be_told_of(tmp_path):
    async with rig(
        tmp_path, [asks(Call("read", {"path": "old.txt"})), "Two.", "I read it."], files=FILES, **SMALL
    ) as r:
        await r.editor.prompt("How many lines has old.txt?")
        await r.editor.prompt("What did you do?")
        assert len(r.model.requests) == 3


@pytest.mark.parametrize("shown", [SHOWN, "Run this:\n\n```bash\nsed -i s/8080/9090/ config.json\n```"])
async def test_a_call_that_is_only_shown_after_it_was_asked_for_is_made(tmp_path, shown):
    r, _ = await turn(tmp_path, "I will set the port.", shown, "It is 9090.")
    assert (r.project / "config.json").read_text() == '{"port": 9090}\n'
    assert len(r.model.requests) == 3 and "No file has been changed" not in r.editor.text()
    (tmp_path / "b").mkdir()
    r, _ = await turn(tmp_path / "b", shown, "Then do it yourself.")
    assert (r.project / "config.json").read_text() == FILES["config.json"], "it may be meant for the user"


async def test_shown_calls_are_made_three_times_in_a_turn_at_most(tmp_path):
    shown = "```bash\ncat old.txt\n```\nThen you see it."
    r, _ = await turn(tmp_path, "I will set the port.", *[shown] * 4)
    assert len(r.model.requests) == 5


async def test_what_the_model_is_told_keeps_to_the_answers_of_a_turn(tmp_path):
    limit = {"config": "[agent]\nmax_tool_iterations = 2\n"}
    r, _ = await turn(tmp_path, "I will set the port.", "```bash\ncat old.txt\n```\nIt is 8080.", **limit)
    assert len(r.model.requests) == 2 and "No file has been changed" in r.editor.text()
    (tmp_path / "b").mkdir()
    r, _ = await turn(tmp_path / "b", asks(NO_EDIT), "I have changed the port.", **limit)
    assert len(r.model.requests) == 2


async def test_the_model_is_told_what_to_send_instead_of_the_call_that_failed(tmp_path):
    same = asks(Call("edit", {"path": "old.txt", "old_string": "new.txt", "new_string": "new.txt"}))
    _, last = await turn(tmp_path, same, "It is renamed.", "It is not.", prompt="Rename old.txt to new.txt.")
    assert "there is nothing to change. To rename a file, call `bash` with `mv old.txt new.txt`. Go on" in last[-1]


async def test_a_refused_change_is_the_users_decision(tmp_path):
    r, _ = await turn(
        tmp_path, asks(Call("write", {"path": "x", "content": "x"})), "As you like.", mode="code",
        permissions=[reject_once],
    )  # fmt: skip
    assert len(r.model.requests) == 2


async def test_the_answer_to_a_prompt_says_what_the_turn_did(tmp_path):
    script = rounds(
        bash("sed -i s/8080/9090/ config.json; touch new"), NO_EDIT, Call("write", {"path": "w", "content": ""})
    )
    async with rig(tmp_path, [*script, "again"], mode="auto", files=FILES) as r:
        meta = (await r.editor.prompt("go")).meta
        changed = {each["path"].rpartition("/")[2]: each["change"] for each in meta["files"]}
        assert changed == {"config.json": "changed", "new": "created", "w": "created"}
        assert meta["failedCalls"] == 1
        assert "files" not in (await r.editor.prompt("and now?")).meta, "of that turn alone"
    facts = TurnFacts()
    facts.changed = {Path(f"/{n}"): "created" for n in range(203)}
    assert facts.as_json()["moreFiles"] == 3
    assert Ended(0, "", {**facts.as_json()}).words.endswith("and 195 more")


@pytest.mark.parametrize(("line", "alters"), [
    ("sed -i s/a/b/ f", True), ("sed --in-place s/a/b/ f", True), ("perl -pi -e s/a/b/ f", True), ("echo x > f", True),
    ("echo x >> f", True), ("git mv a b", True), ("find . -delete", True), ("cat f | tee g", True),
    ("cd s && sudo rm x", True), ("bash -c 'mv a b'", True), ("while true; do rm $i; done", True),
    ("sed s/a/b/ f", False), ("ls 2>&1", False), ("make >/dev/null 2>&1", False), ("git log", False),
    ("python -m pytest", False), ("grep -i x f", False), ("grep -rn rename .", False), ("pip install x", False),
    ("docker rm x", False), ("awk '$1 > 5' f", False), ("git commit -m 'mv a b; rm c'", False),
    ("perl -Mstrict -e 1", False), ("python - <<E\nprint(a > b)\nE", False),
])  # fmt: skip
def test_lines_that_are_there_to_change_files(tmp_path, line, alters):
    assert any(map(_alters, examine(line, Roots(tmp_path), tmp_path).parts)) is alters


def test_claims_and_questions():
    for text in (
        "I've updated `a`.", "I have now fixed it", "The file has been renamed.", "x is now set",
        "Look:\nthe port was changed",
    ):  # fmt: skip
        assert _claims(text), text
    for text in (
        "You can add it yourself.", "I would change it so:", "It contains the settings.", "I looked at it.",
        "Nothing was changed.", "No files have been modified.", "I changed nothing.", "It hasn't been updated",
        "If the file was changed, run it again.", "That is the option which was added.",
    ):  # fmt: skip
        assert not _claims(text), text
    for text in (
        "What is it?", "explain the parser", "is it done", "Was geht hier vor?", "Please explain the change.",
        "Thanks. Now tell me what to change", "OK, and how would you fix it",
        "Do not change anything, just look.", "Write down what is wrong; don't edit",
        "Write a haiku", "Please write me a short commit message for it.", "make a list of the open points",
    ):  # fmt: skip
        assert ASKS.search(text), text
    for text in (
        "Fix the parser.", "In a.py, rename x to y", "Go on", "yes, please", "Write a summary into notes.md",
        "Put it in order.",
    ):  # fmt: skip
        assert WANTS.search(text) and not ASKS.search(text), text
    for text in ("Thank you!", "Die Tests laufen lassen", "Run the tests."):
        assert not WANTS.search(text), text


async def test_who_ends_a_turn_by_a_hook_is_not_gone_on_with_and_a_stop_hook_is_heard_before_the_user_is_told(tmp_path):
    ends = """case "$(cat)" in *'"command"'*) printf '{"continue": false}';; esac"""
    r, _ = await turn(
        tmp_path, asks(NO_EDIT), asks(bash("true")), config=hook("PreToolUse", ends), prompt="Set the port."
    )
    assert len(r.model.requests) == 2
    assert "o file has been changed" not in r.editor.text()
    claims = ["I have changed it."] * 3
    fix = asks(Call("write", {"path": "w", "content": "{}"}))
    stop = f"test -e {tmp_path}/stopped || {{ touch {tmp_path}/stopped; echo 'run the tests' >&2; exit 2; }}"
    (tmp_path / "2").mkdir()
    r, last = await turn(tmp_path / "2", *claims[:2], fix, claims[2], config=hook("Stop", stop))
    assert "No file has been changed" in last[1] and "run the tests" in last[2]
    assert "o file has been changed" not in r.editor.text()


async def test_what_changed_while_others_ran_is_ascribed_to_no_command(tmp_path):
    """To a command in the background, or of another session."""
    script = [asks(bash("cat gate", background=True)), asks(bash("touch mine")), "ok"]
    script += [asks(bash("cat gate; touch made")), asks(bash("touch theirs")), "ok", "ok"]

    def gate(project: Path) -> None:
        os.mkfifo(project / "gate")

    async with went(tmp_path, script, mode="auto", before=gate) as r:
        assert "mine" not in last_tool(r, 3)
        await anyio.to_thread.run_sync((r.project / "gate").write_text, "go")
        await r.editor.prompt("/clear")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(r.editor.prompt, "go")
            await r.editor.wait_for(lambda update: "cat gate; touch" in str(getattr(update, "title", "")))
            await r.editor.wait_for(lambda update: getattr(update, "status", "") == "in_progress")
            await r.editor.new_session(r.project)
            await r.editor.client.set_session_mode(r.editor.session_id, "auto")
            await r.editor.prompt("go")
            assert "theirs" not in last_tool(r, 6)
            await anyio.to_thread.run_sync((r.project / "gate").write_text, "go")


async def test_what_a_server_did_is_not_called_undone(tmp_path):
    script = [asks(Call("mcp_raw_echo", {"a": 1})), "I have created the issue."]
    r, _ = await turn(tmp_path, *script, prompt="Create an issue.", mcp_servers=[server()], otherwise=allow_always)
    assert len(r.model.requests) == 2
