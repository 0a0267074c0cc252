"""What a turn did by the program's own observation: told with the results of commands, at the end, and to the user."""

from __future__ import annotations

import re
from typing import Any

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.loop.turn_facts import ALTERS, ASKS, CLAIMS
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import asks, bash, rig, rounds, went

FILES = {"config.json": '{"port": 8080}\n', "old.txt": "one\ntwo\n"}
NO_EDIT = Call("edit", {"path": "config.json", "old_string": "port: 1", "new_string": "port: 2"})


def last_tool(r: Any, number: int) -> str:
    return [str(each["content"]) for each in r.messages(number) if each["role"] == "tool"][-1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sed -i 's/8080/9090/' config.json", "[changed: config.json +1 -1]"),
        ("sed -i 's/port: 8080/port: 9090/' config.json", "[no file changed]"),
        ("printf 'a\\nb\\n' > new.txt; rm old.txt", "[created: new.txt; deleted: old.txt]"),
        ("find . -name '*.log' -delete", "[no file changed]"),
        ("mkdir -p .cache node_modules && touch .cache/x node_modules/y made", "[created: made]"),
        ("for n in 1 2 3 4 5 6 7; do echo $n > f$n; done", "[created: f1, f2, f3, f4, f5 and 2 more]"),
        ("cat config.json", ""),
        ("test -f config.json", ""),
    ],
)
async def test_a_commands_result_says_what_it_changed(tmp_path, line, told):
    async with went(tmp_path, rounds(bash(line)), mode="auto", files=FILES) as r:
        text = last_tool(r, 2)
        assert told in text if told else "changed" not in text and "created" not in text, text


async def turn(tmp_path, *answers: Answer | str, **more: Any) -> tuple[Any, list[str]]:
    """The rig after a prompt, and the last message of each request."""
    more = {"mode": "auto", "prompt": "Set the port to 9090.", "files": FILES, "finish_check": True} | more
    async with went(tmp_path, list(answers), **more) as r:
        return r, [str(each["content"]) for body in r.model.requests for each in body.body["messages"][-1:]]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["I have changed the port to 9090."], "[No file has been changed in this turn. Go on, or tell the user"),
        (["Done."], "[No file has been changed in this turn. Go on"),
        ([asks(NO_EDIT), "The port was updated."], "; the last change failed: "),
        ([asks(NO_EDIT), "I could not find it."], "the last change failed: "),
        ([asks(Call("rename_all", {"a": 1})), "Renamed."], "the last change failed: rename_all"),
        ([asks(bash("sed -i s/8080/9090/ config.json")), asks(NO_EDIT), "All done."], "[The last change failed: "),
    ],
)
async def test_before_a_turn_ends_the_model_is_told_once_what_was_not_done(tmp_path, answers, told):
    r, last = await turn(tmp_path, *answers, "It is not done: there is no such text.")
    assert told in last[-1]
    assert len(r.model.requests) == len(answers) + 1, "once a turn"
    assert len(re.findall("No file has been changed|The last change failed", r.editor.text())) == 1


async def test_who_goes_on_is_not_contradicted(tmp_path):
    fix = asks(Call("write", {"path": "config.json", "content": '{"port": 9090}\n'}))
    r, _ = await turn(
        tmp_path, "I have changed the port.", asks(Call("read", {"path": "config.json"})), fix, "Now I did."
    )
    assert len(r.model.requests) == 4
    assert "No file" not in r.editor.text()


@pytest.mark.parametrize(
    ("answers", "more"),
    [
        (["The port was changed in May."], {"prompt": "When was the port changed?"}),
        (["It was added by Ann."], {"prompt": "Explain this file."}),
        (["I looked at it."], {}),
        (["Done."], {"prompt": "Run the tests."}),
        ([asks(bash("sed -i s/8080/9090/ config.json")), "I have changed the port."], {}),
        ([asks(Call("write", {"path": "x", "content": "x"})), "I have added x."], {}),
        (["I have changed the port."], {"mode": "ask"}),
        (["I have changed the port."], {"finish_check": False}),
        ([asks(bash("true")), "I have changed the port."], {"config": "[undo]\nenabled = false\n"}),
        ([asks(NO_EDIT), asks(bash("sed -i s/8080/9090/ config.json")), "I have changed it."], {}),
    ],
)
async def test_words_that_are_true_or_claim_nothing_cost_no_request(tmp_path, answers, more):
    r, _ = await turn(tmp_path, *answers, **more)
    assert len(r.model.requests) == len(answers)
    assert "o file has been changed" not in r.editor.text()


async def test_a_refused_change_is_the_users_decision(tmp_path):

    r, _ = await turn(
        tmp_path,
        asks(Call("write", {"path": "x", "content": "x"})),
        "As you like.",
        mode="code",
        permissions=[reject_once],
    )
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


@pytest.mark.parametrize(
    ("line", "alters"),
    [
        ("sed -i s/a/b/ f", True), ("perl -pi -e s/a/b/ f", True), ("echo x > f", True), ("echo x >> f", True),
        ("git mv a b", True), ("find . -delete", True), ("cat f | tee g", True), ("sed s/a/b/ f", False),
        ("ls 2>&1", False), ("make >/dev/null 2>&1", False), ("git log", False), ("python -m pytest", False),
        ("grep -i x f", False), ("x -> y", False),
    ],
)  # fmt: skip
def test_lines_that_are_there_to_change_files(line, alters):
    assert (ALTERS.search(line) is not None) is alters


def test_claims_and_questions():
    for text in (
        "I've updated `a`.",
        "I have now fixed it",
        "The file has been renamed.",
        "x is now set",
    ):
        assert CLAIMS.search(text), text
    for text in ("You can add it yourself.", "I would change it so:", "It contains the settings.", "I looked at it."):
        assert not CLAIMS.search(text), text
    for text in ("What is it?", "explain the parser", "is it done", "Was geht hier vor?"):
        assert ASKS.search(text), text
    assert not ASKS.search("Fix the parser.") and not ASKS.search("In a.py, rename x to y")
