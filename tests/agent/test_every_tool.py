"""Rules that every tool keeps when used through the whole agent."""

import os

import pytest

from acp_agent.client.permissions import never_answers
from acp_agent.testing.fake_model import Answer, Call
from tests.processes import running
from tests.tools.kit import REGISTRY
from tests.tools.test_contract import SOME

from .kit import asks, cancels, put, results, rig, went

NAMES = [entry.name for entry in REGISTRY.entries()]


def arguments(name: str) -> dict:
    return {"ask_user": {"question": "Which?", "choices": ["a", "b"]}}.get(name, SOME[name])


async def test_wrong_arguments_are_feedback_and_ask_nobody(tmp_path):
    script = [asks(*(Call(name, {"invented": 1}) for name in NAMES)), "done"]
    async with went(tmp_path, script) as r:
        texts = results(r)
        assert len(texts) == len(NAMES)
        for name, text in zip(NAMES, texts, strict=True):
            assert text.startswith("[tool_error] The arguments of ") and "invented" in text, name
        assert r.editor.permission_requests == []
        for call in r.editor.tool_calls().values():
            call.assert_finished("failed")


@pytest.mark.parametrize("asked", [True, False], ids=["while the user is asked", "while it runs"])
async def test_a_cancel_leaves_every_call_ended_and_nothing_running(tmp_path, asked):
    """A turn for each tool: its call, and then a model that does not answer."""
    before = running(parent=os.getpid())
    name = ""

    def reply(body):
        again = body["messages"][-1]["role"] == "tool"
        return Answer(hang_before=True) if again else asks(Call(name, arguments(name)))

    async with rig(tmp_path, reply, mode="code" if asked else "auto", otherwise=never_answers) as r:
        for number, name in enumerate(NAMES, 1):
            put(r.project / "f", "a\n")
            turn = r.editor.begin("go")
            await r.editor.wait_until(lambda number=number: len(r.editor.tool_calls()) == number)
            await cancels(r, turn)
            call = list(r.editor.tool_calls().values())[-1]
            assert call.status in ("completed", "failed"), name
            call.assert_finished(call.status)
        r.model.release()
    assert running(parent=os.getpid()) <= before


@pytest.mark.parametrize(("name", "given"), [
    ("read", {"path": "big"}), ("grep", {"pattern": "word"}), ("find_path", {"pattern": "*"}), ("list_directory", {}),
    ("bash", {"command": "seq 1 100000"}), ("teleport" + "x" * 5000, {}), ("read", {"path": "x" * 3000}),
    ("memory_recall", {"query": "word"}),
])  # fmt: skip
async def test_what_a_call_gives_is_bounded_for_model_and_person(tmp_path, name, given):
    script = [asks(Call("memory_store", {"key": "k", "content": "word " * 1500})), asks(Call(name, given)), "done"]
    async with rig(tmp_path, script, config="[tools]\nmax_output_chars = 1000\n", mode="auto", terminal=False) as r:
        (r.project / "big").write_text("word\n" * 5000)
        for number in range(300):
            (r.project / f"word-{number}-{'x' * 40}").write_text("word\n")
        await r.editor.prompt("go")
        told = r.messages(3)[-1]["content"]
        assert 0 < len(told) < 1200
        call = list(r.editor.tool_calls().values())[-1]
        assert len("".join(item.content.text for item in call.content if hasattr(item, "content"))) < 1200
